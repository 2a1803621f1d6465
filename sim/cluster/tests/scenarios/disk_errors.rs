//! Scenarios in which disks fail to write: a few times, or at some places permanently. Users of a volume with redundancy don't notice.

use crate::healing::renew;
use crate::story::*;

/// Units are chunks: a large write goes directly to slots, and a small write goes through the journal.
fn array() -> (Cluster, HostSlot, HostSlot) {
    array_of(Options::calm("raid5:2+1", 3, 16, 60))
}

const STRIPE: u64 = 32 * BLOCK;

fn counter(array: &Cluster, number: u16, name: &str) -> u64 {
    let counters = array.device(DeviceId(number)).expect("the device is up").store().counters();
    counters.into_iter().find(|(found, _)| *found == name).map(|(_, count)| count).expect("the counter exists")
}

/// The byte range of some slots of a device.
fn slots(array: &Cluster, number: u16, slots: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let superblock = array.world.disk(device(number)).expect("the node has a disk").peek(0, 512);
    let data = u64::from_le_bytes(superblock[64..72].try_into().expect("eight bytes"));
    data + slots.start * 73_728..data + slots.end * 73_728
}

fn is_done(outcome: &HostOutcome) -> bool {
    outcome.is_ok()
}

#[test]
fn a_bad_slot_of_one_device_fails_no_write() {
    let (mut array, a, b) = array();
    let bad = slots(&array, 1, 3..4);
    disk(&mut array, device(1)).spoil(bad.start..bad.start + 512);
    let begun = array.world.now();
    for number in 0..300 {
        let op = array.write([a, b][number as usize % 2], number % 60 * STRIPE, STRIPE);
        let outcome = array.finish(op);
        assert!(is_done(&outcome), "write {number}: {outcome:?}");
    }
    assert!(array.world.now().since(begun) < Duration::from_secs(2), "no write waits for the failed device");
    assert_eq!([0, 1, 2].map(|number| counter(&array, number, "slots_bad")), [0, 1, 0]);
    assert!(counter(&array, 1, "write_errors") <= 2);
    assert!(is_in(&array, 1));
    all_is_well(array);
}

#[test]
fn a_device_that_can_t_write_its_data_anywhere_is_done_without() {
    let (mut array, a, _) = array();
    let bad = slots(&array, 1, 0..100_000);
    disk(&mut array, device(1)).spoil(bad);
    // The device stops when it has found too many bad slots; each time its supervisor restarts it.
    let mut stops = 0;
    for number in 0..60 {
        let op = array.write(a, number * STRIPE, STRIPE);
        while array.requests.is_open(op) {
            array.run_for(Duration::from_millis(20));
            for broken in array.device_notes.broken(&array.world) {
                stops += 1;
                array.world.stop(NodeId::Device(broken));
                array.restart_device(broken);
            }
        }
        let outcome = array.finish(op);
        assert!(is_done(&outcome), "write {number}: {outcome:?}");
    }
    assert!(stops > 0);
    wait_out(&mut array, 1);
    renew(&mut array, a, 1);
    all_is_well_with(array, 1);
}
