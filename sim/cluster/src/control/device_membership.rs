//! Devices that are added and removed during a run, beside those that hold volumes, while clients use the array.

use super::reordering_and_migration::{NOT_PLAIN, begin_at_any};
use super::store::device_entry;
use crate::activity::{Activity, Draw, Feature, Options, Run};
use crate::cluster::HostSlot;
use crate::prelude::*;
use braid_control_protocol::{DeviceChange, Operation, Timing};

/// There are at most so many devices beside the first ones.
const DEVICES_MAX: usize = 2;

#[derive(Clone, Debug)]
pub(crate) struct AddRemove;

impl Feature for AddRemove {
    const NAME: &'static str = "add-remove";
    const ONE_IN: u64 = 12;
    const EVERY: Option<[u64; 3]> = Some([200, 500, 1_000]);
    const NOT_WITH: &'static [&'static str] = NOT_PLAIN;

    fn draw(options: &mut Options, _: &mut Draw) -> Option<AddRemove> {
        (options.ordering != Ordering::None).then_some(AddRemove)
    }
}

impl Activity for AddRemove {
    /// Has a host add or remove a device.
    fn act(&mut self, run: &mut Run, rng: &mut Rng) {
        begin_at_any(run, rng, draw_operation);
    }
}

fn draw_operation(run: &mut Run, rng: &mut Rng, by: HostSlot) -> (Subject, Operation) {
    let own = run.cluster.generation(by);
    // What a device waits for may take long: nothing depends on that.
    let timing = Timing { device: Duration::from_secs(5), ..Timing::default() };
    let first = run.cluster.devices();
    let store = &run.cluster.control.as_ref().expect("the run has a control plane").store;
    let there: Vec<DeviceId> =
        store.devices().map(|(device, _)| device).filter(|device| !first.contains(device)).collect();
    let unused = store.next_device();
    if there.len() == DEVICES_MAX || (!there.is_empty() && rng.chance(2, 5)) {
        // Also a device that is being added or removed.
        let device = there[rng.below(there.len() as u64) as usize];
        run.count_fault("removal of a device");
        return (Subject::Device(device, None), DeviceChange::removing(own, device, timing).into());
    }
    run.count_fault("addition of a device");
    let of_new = |device, disk| Subject::NewDevice(Box::new(device_entry(device, disk)));
    // Sometimes with a number that was used.
    if rng.chance(1, 20) {
        let (device, disk) = (DeviceId(unused.0 - 1), run.cluster.device_notes.new_disk());
        return (of_new(device, disk), DeviceChange::adding(own, device, disk, timing).into());
    }
    // Its process was started for an addition that was never entered, and may be down; or it is started now.
    if !run.cluster.device_notes.disks.contains_key(&unused) {
        run.cluster.add_device(unused);
    }
    let disk = run.cluster.device_notes.disk_of(unused);
    (of_new(unused, disk), DeviceChange::adding(own, unused, disk, timing).into())
}
