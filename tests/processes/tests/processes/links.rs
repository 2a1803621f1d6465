//! A device on a network of its own, whose link to all others is cut and restored.

use crate::prelude::*;
use braid_processes::network::{Cut, Link};

/// The longest pause that a cut link may cause.
const PAUSE_MAX: Duration = LEASE.saturating_add(Duration::from_secs(1));
/// If a device receives nothing but the monitor hears it, the device must notice first; then its lease must expire.
const HALF_CUT_PAUSE_MAX: Duration = LEASE.saturating_add(Duration::from_secs(2));
/// The device at the far end.
const DEVICE: usize = 2;

/// An array whose third device is at the far end of a link.
struct Apart {
    // Fields are dropped in this order.
    array: Array,
    _device: Daemon,
    _monitor: Daemon,
    link: Link,
}

impl Apart {
    /// Starts the array; none where the system does not permit it. From here on this thread is at the near end.
    fn up(array: fn() -> Array) -> Option<Apart> {
        let link = Link::new()?;
        link.near.enter();
        let mut array = array();
        array.down();
        let address = format!("{}:7002", Link::FAR);
        array.set_address(DEVICE, &address);
        let monitor = array.daemon("monitord", &["monitord", "--listen", &format!("{}:7200", Link::NEAR)]);
        let device = link.far.within(|| array.serve_device(DEVICE, &address, &[]));
        // Sockets in the folder would reach across the cut.
        array.start(&["--tcp"]);
        array.await_volume(0, "healthy");
        Some(Apart { array, _device: device, _monitor: monitor, link })
    }
}

#[test]
fn a_device_whose_link_is_cut_is_marked_out_and_resynchronised_when_it_heals() {
    let Some(Apart { array, link, .. }) = &Apart::up(Array::small) else { return };
    let (_host, other) = array.host();
    let load = Load::running(Plan::apart(&[&array.nbd(), &other]));
    for (cut, most) in [(Cut::Whole, PAUSE_MAX), (Cut::ToNear, PAUSE_MAX), (Cut::ToFar, HALF_CUT_PAUSE_MAX)] {
        link.cut(cut);
        let begun = Instant::now();
        let status = array.await_volume(0, "degraded");
        println!("{cut:?}: taken out after {:?}", begun.elapsed());
        assert_eq!(status["volumes"][0]["missing_devices"], Value::from(vec![DEVICE]), "{status:#}");
        load.go_on();
        load.assert_pause(&format!("{cut:?}"), most);
        link.heal();
        let begun = Instant::now();
        array.await_volume(0, "healthy");
        println!("{cut:?}: back in {:?} after it was healed", begun.elapsed());
        load.go_on();
    }
    load.assert_kept(array, &[&other, &array.nbd()]);
}

#[test]
fn a_link_that_is_cut_for_a_moment_marks_no_device_out() {
    let Some(Apart { array, link, .. }) = &Apart::up(Array::patient) else { return };
    let load = Load::running(Plan::apart(&[&array.nbd()]));
    let epoch = number(&array.status()["epoch"]);
    for cut in [Cut::Whole, Cut::ToNear, Cut::ToFar] {
        link.cut(cut);
        std::thread::sleep(Duration::from_secs(1));
        link.heal();
        println!("{cut:?} for a second: the longest pause of a writer was {:?}", load.pause());
        // TCP retransmits in its own time; the next cut must not interfere with that.
        std::thread::sleep(Duration::from_secs(3));
    }
    assert_eq!(number(&array.status()["epoch"]), epoch);
    load.assert_kept(array, &[&array.nbd()]);
}
