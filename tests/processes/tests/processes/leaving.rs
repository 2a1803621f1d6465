//! Graceful disconnect of hosts: they leave no state behind, and nothing waits for them.

use crate::prelude::*;

/// Two devices with a replicated attribute volume of this ordering, and another volume.
fn up(ordering: &str) -> Array {
    let array =
        Array::of_processes(&["--devices", "2", "--layout", "raid1:2", "--size", "64MiB", "--volume", "vol0:16MiB"]);
    array.create_attribute_volume("locks", ordering);
    array
}

/// A host that makes one change and ends.
fn change(array: &Array) {
    array.braid(&["attr", "add", "locks:7", "1.1", "1"]).done();
}

/// The devices' counters of this name.
fn counted(status: &Value, name: &str) -> Vec<u64> {
    let devices = items(&status["devices"]);
    devices.iter().map(|device| number(&device["counters"][name])).collect()
}

#[test]
fn many_hosts_that_end_leave_nothing_on_the_devices() {
    let hosts = if soak() { 1_100 } else { 60 };
    let array = up("timestamp");
    change(&array);
    let before = counted(&array.status(), "transactions");
    for _ in 0..hosts {
        change(&array);
    }
    let after = counted(&array.status(), "transactions");
    assert!(after.iter().zip(&before).all(|(after, before)| *after <= *before + 1), "{before:?}, then {after:?}");
    let plan = Plan { workers: 2, cells: 64, cell_bytes: 4096, begin: 0, ..Plan::of(&[array.nbd()]) };
    // Writers that fail on any error.
    let load = Load::start(plan);
    for device in 0..2 {
        load.go_on();
        array.kill_device(device);
        load.go_on();
        array.await_volume(0, "healthy");
    }
    load.stop().verify(&array.nbd());
}

#[test]
fn a_host_that_ends_gives_back_its_cached_locks() {
    let array = up("callback-lock");
    change(&array);
    let epochs = counted(&array.status(), "epoch");
    let mut took = Vec::new();
    for _ in 0..5 {
        let begun = Instant::now();
        change(&array);
        took.push(begun.elapsed());
    }
    // A lock that is not given back is free when the lease of its host has expired.
    assert!(took.iter().min().is_some_and(|least| *least < LEASE / 2), "{took:?}");
    assert_eq!(counted(&array.status(), "epoch"), epochs, "no command waited until a lease expired");
}
