//! Scenarios with a host that does not keep to the protocol: the array heals what it did.

use crate::story::*;
use braid_base::{DeviceId, MemberState, NodeId, ObjectId};
use braid_cluster::{Cluster, HostSlot, Role};
use braid_machine::{HostError, HostOutcome, HostRequest};
use braid_wire::{Administration, Atomicity, Failure, Ordering, RecoveryThrottle, Task};

/// An object that belongs to no volume.
const STRANGE: ObjectId = ObjectId(77);

fn create_absent(array: &mut Cluster, host: HostSlot) -> HostOutcome {
    let task = Task::CreateObject {
        object: STRANGE,
        first: 0,
        blocks: 64,
        ordering: Ordering::Timestamp,
        redundant: true,
        atomicity: Atomicity::Implied,
        absent: 16,
    };
    let asked = array.ask(host, HostRequest::Manage { device: DeviceId(2), task });
    array.finish(asked)
}

/// Pauses resynchronisation, or continues it.
fn throttle(array: &mut Cluster, host: HostSlot, paused: bool) -> HostOutcome {
    let request = Administration::RecoveryThrottle(RecoveryThrottle { paused, ..RecoveryThrottle::default() });
    let asked = array.ask(host, HostRequest::Administer { request });
    array.finish(asked)
}

fn absent_blocks(array: &Cluster) -> u64 {
    match array.world.machine(device(2)) {
        Some(Role::Device(machine)) => machine.store().absent_blocks(),
        _ => panic!("the device is up"),
    }
}

/// The recovery coordinator creates an object of its own on the device that it resynchronises, and then calls the device complete. Other
/// hosts, and those of a device that is in, are refused.
#[test]
fn a_device_that_is_in_and_lacks_blocks_is_rebuilt_without_an_operator() {
    let (mut array, a, b) = array_by(Ordering::Timestamp);
    fill(&mut array, a);
    let malformed = Err(HostError::Device { device: DeviceId(2), failure: Failure::Malformed });
    assert_eq!(create_absent(&mut array, a), malformed);
    assert_eq!(throttle(&mut array, a, true), DONE);
    lose(&mut array, 2);
    write(&mut array, a, 0, 4 * BLOCK);
    welcome(&mut array, 2);
    let coordinator = loop {
        match member_state(&array, 2) {
            Some(MemberState::Returning { recovery_coordinator: Some(host) }) => break NodeId::Host(host),
            other => {
                assert_ne!(other, Some(MemberState::In), "the device is not whole yet");
                array.run_for(std::time::Duration::from_millis(1));
            }
        }
    };
    let (by, other) = if array.node(a) == coordinator { (a, b) } else { (b, a) };
    assert_eq!(create_absent(&mut array, other), malformed);
    assert!(create_absent(&mut array, by).is_ok());
    assert_eq!(throttle(&mut array, a, false), DONE);
    // It is in, lacks blocks, reports that, is marked out, returns, and is rebuilt.
    wait_until(&mut array, "the device lacks blocks and is in", |array| {
        member_state(array, 2) == Some(MemberState::In) && absent_blocks(array) == 16
    });
    write(&mut array, b, 5 * BLOCK, 4 * BLOCK);
    wait_until(&mut array, "the device is out", |array| member_state(array, 2) == Some(MemberState::Out));
    write(&mut array, a, 9 * BLOCK, 4 * BLOCK);
    wait_in(&mut array, 2);
    assert_eq!(absent_blocks(&array), 0);
    all_is_well(array);
}
