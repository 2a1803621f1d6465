//! Where stories begin and end, and what they look at on their way.

use braid_base::{BLOCK_BYTES, DeviceId, LockServerId, NodeId};
use braid_cluster::{Cluster, HostSlot, Options};
use braid_machine::{HostOutcome, HostSuccess};
use braid_wire::{Command, Message, Ordering, Outcome};
use braid_world::Trace;
use std::time::Duration;

pub const BLOCK: u64 = BLOCK_BYTES as u64;
/// Longer than any lease, and than any wait for a resend.
pub const A_WHILE: Duration = Duration::from_secs(15);
pub const DONE: HostOutcome = Ok(HostSuccess::Done);
/// What a user waits at most for a single failure: a lease and a second.
pub const A_LEASE: Duration = Duration::from_secs(5);
pub const LOCK_SERVER: NodeId = NodeId::LockServer(LockServerId(0));

/// Five devices, RAID 5, three stripes of four blocks, and a lock server if one is needed: every hostwrite of a block is a small
/// write. There are two hosts.
pub fn array_by(ordering: Ordering) -> (Cluster, HostSlot, HostSlot) {
    let lock_servers = ordering.needs_lock_server().into();
    array_of(Options { ordering, lock_servers, ..Options::calm("raid5:4+1", 5, 1, 3) })
}

pub fn array_of(options: Options) -> (Cluster, HostSlot, HostSlot) {
    let mut array = Cluster::new(options, Trace::keeping(4_000));
    // The first host is the one that created the volume.
    let (a, b) = (HostSlot(0), array.add_host());
    array.run_for(Duration::from_millis(100));
    (array, a, b)
}

pub fn device(number: u16) -> NodeId {
    NodeId::Device(DeviceId(number))
}

/// What a rule of the network looks at.
pub fn is_write(message: &Message) -> bool {
    matches!(message, Message::Request(request) if matches!(request.command, Command::Write { .. }))
}

pub fn is_abort(message: &Message) -> bool {
    let Message::Request(request) = message else { return false };
    matches!(request.command, Command::Decide { outcome: Outcome::Abort, .. })
}

pub fn carries_commits(message: &Message) -> bool {
    matches!(message, Message::Request(request) if !request.commits.is_empty())
}

/// Ends every story: at rest, nothing is left, nothing lost, parity right.
pub fn all_is_well(mut array: Cluster) {
    array.world.network.heal();
    array.run_for(A_WHILE);
    if let Err(failed) = array.check_all() {
        array.world.trace.lines().for_each(|line| println!("{line}"));
        panic!("{}: {}", failed.check, failed.details);
    }
}
