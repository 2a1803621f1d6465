//! A device comes with an older disk than it had, or with an empty one: no other device would resynchronise what that disk lacks.

use crate::bench::*;
use crate::story::{Story, five, stories};

const ALL: [u16; 5] = [0, 1, 2, 3, 4];

fn outdated(bench: &Bench, number: u16) -> Option<u32> {
    let lease = bench.monitor.leases().find(|lease| lease.device == DeviceId(number));
    lease.expect("it is a device of the array").outdated.map(|epoch| epoch.0)
}

/// Device 2 was out and is in again: its epoch is 4, and it has been a member since epoch 3.
fn back_once() -> Story {
    five(&[
        ("4600ms 0134 h7", "e2: 2 out"),
        ("3s 01234 h7", "e3: 2 returning h7"),
        ("h7 resynchronised 2 e3", "e4: 2 in since e3"),
        ("1s 01234 h7", ""),
    ])
}

/// Messages are reordered.
#[test]
fn a_late_copy_of_a_renewal_does_not_make_a_device_outdated_or_useless() {
    let mut bench = back_once().bench;
    let steady =
        |bench: &Bench| outdated(bench, 2).is_none() && bench.monitor.leases().all(|held| held.runs_until.is_some());
    let sent = bench.now.time;
    bench.pass_with(SECOND, &nodes(&ALL, &[7]));
    for (epoch, silent) in [(Epoch(3), Vec::new()), (Epoch(4), vec![DeviceId(2)])] {
        bench.say_in(epoch, device(2), renewal(sent, silent));
        assert!(steady(&bench));
    }
    // So another device can be marked out at the same time.
    let others = nodes(&[0, 1, 2, 3], &[7]);
    let until = bench.now.time.after(LEASE - SECOND / 4);
    while bench.now.time < until {
        bench.pass_with(SECOND / 4, &others);
    }
    bench.say_in(Epoch(3), device(2), renewal(sent, Vec::new()));
    bench.pass(NOTICE * 2);
    assert_eq!(bench.member_state(4), MemberState::Out);
}

/// A renewal of device 2.
fn renewal(sent: Time, silent: Vec<DeviceId>) -> MonitorCommand {
    let (disk, undecided, stamps, knows) = (Some(DiskId(2)), Vec::new(), Clock(0), Level::FIRST);
    MonitorCommand::Renew { sent, silent, disk, bad_slots: 0, failing: false, undecided, stamps, knows, holder: None }
}

stories! {
    five;

    /// A recovery coordinator may have nothing to resynchronise, and report so before the device has adopted the epoch of its return.
    fn a_device_is_marked_in_only_after_it_has_named_an_epoch_since_its_return():
        "4600ms 0134 h7" => "e2: 2 out";
        "late 2 e1";
        "1s 0134 h7" => "e3: 2 returning h7";
        "late 2 e1";
        "h7 resynchronised 2 e3";
        "has 2 e3";
        "hear 2";
        "h7 resynchronised 2 e3" => "e4: 2 in since e3";

    /// Its lease still runs when another disk is put in; the other devices must not rely on it because of that.
    fn devices_are_not_taken_out_for_another_with_the_wrong_disk():
        "hear 3";
        "1s 01244 h7";
        "empty 2 for 6s 014 h7" => "lacking 2 3";
}
