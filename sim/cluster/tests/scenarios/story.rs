//! Common parts of scenarios: their beginning, their end, and shared functions.

pub use braid_base::{
    BLOCK_BYTES, BlockRange, DeviceId, DiskId, Generation, InodeId, LockServerId, MemberState, NodeId, ObjectId, Rng,
    ShardId, Time, TransactionId, VolumeId,
};
pub use braid_cluster::{Cluster, FileSystem, HostSlot, Options, Role, ShardOptions};
pub use braid_host::HostCounters;
pub use braid_layout::{Layout, SitePolicy, VolumeDescription};
pub use braid_machine::{
    ArrayRequest, FileHandle, FilesError, FilesRequest, FilesSuccess, HostError, HostOutcome, HostSuccess, JobRequest,
    ObjectsRequest, OpId, Patience, ScrubReport, VolumeRequest,
};
pub use braid_metadata::Protocol;
pub use braid_ordering::{Atomicity, Ordering, WriteMode};
pub use braid_wire::{
    Action, ActionResult, AdminError, Administration, AttributeName, Command, CommandResult, Failure, FileCommand,
    FileError, FileResult, LockReply, Message, MonitorReply, NewInode, ObjectCommand, ObjectRequest, Outcome, Owner,
    RecoveryThrottle, Reply, ShardBody, ShardMessage, Task,
};
pub use braid_world::{Disk, LocalClock, Trace, Verdict};
pub use bytes::Bytes;
pub use std::cell::{Cell, RefCell};
pub use std::collections::{BTreeMap, BTreeSet};
pub use std::fmt::Display;
pub use std::rc::Rc;
pub use std::time::Duration;

pub const BLOCK: u64 = BLOCK_BYTES as u64;
/// Longer than any lease, and than any back-off of a resend.
pub const A_WHILE: Duration = Duration::from_secs(15);
pub const DONE: HostOutcome = Ok(HostSuccess::Done);
/// The longest time that a user waits after a single failure: a lease and a second.
pub const A_LEASE: Duration = Duration::from_secs(5);
pub const LOCK_SERVER: NodeId = NodeId::LockServer(LockServerId(0));
/// All orderings that keep hosts apart.
pub const KEPT_APART: [Ordering; 4] =
    [Ordering::Timestamp, Ordering::DeviceLock, Ordering::ServerLock, Ordering::CallbackLock];
/// The longest time that a scenario waits for a change of the array.
const PATIENCE: Duration = Duration::from_secs(100);

/// Five devices, RAID 5, three stripes of four blocks, and a lock server if the ordering needs one, with two hosts. Every hostwrite
/// of a block is a small write.
pub fn array_by(ordering: Ordering) -> (Cluster, HostSlot, HostSlot) {
    array_of(options_by(ordering))
}

/// The same array, whose volume the first host has filled.
pub fn filled_array_by(ordering: Ordering) -> (Cluster, HostSlot, HostSlot) {
    filled_array_of(options_by(ordering))
}

pub fn filled_timestamp_array() -> (Cluster, HostSlot, HostSlot) {
    filled_array_by(Ordering::Timestamp)
}

/// The same array, whose hosts compute parity themselves: devices have intents although others never hear of the write.
pub fn array_of_originators(ordering: Ordering) -> (Cluster, HostSlot, HostSlot) {
    array_of(Options { sites: vec![SitePolicy::Originator], ..options_by(ordering) })
}

fn options_by(ordering: Ordering) -> Options {
    ordered(ordering, Options::calm("raid5:4+1", 5, 1, 3))
}

/// The same options with this ordering, and a lock server if it needs one.
pub fn ordered(ordering: Ordering, options: Options) -> Options {
    Options { ordering, lock_servers: ordering.needs_lock_server().into(), ..options }
}

pub fn array_of(options: Options) -> (Cluster, HostSlot, HostSlot) {
    let mut array = Cluster::new(options, Trace::keeping(4_000));
    // The first host is the one that created the volume.
    let (a, b) = (HostSlot(0), array.add_host());
    array.run_for(Duration::from_millis(100));
    (array, a, b)
}

/// The same, with a volume that the first host has filled.
pub fn filled_array_of(options: Options) -> (Cluster, HostSlot, HostSlot) {
    let (mut array, a, b) = array_of(options);
    fill(&mut array, a);
    (array, a, b)
}

pub fn device(number: u16) -> NodeId {
    NodeId::Device(DeviceId(number))
}

/// The command of a request.
pub fn command_of(message: &Message) -> Option<&Command> {
    if let Message::Request(request) = message { Some(&request.command) } else { None }
}

/// Whether a message is a devwrite, for rules of the network.
pub fn is_write(message: &Message) -> bool {
    matches!(command_of(message), Some(Command::Write { .. } | Command::Execute { .. }))
}

pub fn is_abort(message: &Message) -> bool {
    matches!(command_of(message), Some(Command::Decide { outcome: Outcome::Abort, .. }))
}

pub fn is_decision(message: &Message) -> bool {
    matches!(command_of(message), Some(Command::Decide { .. }))
}

pub fn is_resolve(message: &Message) -> bool {
    matches!(command_of(message), Some(Command::Resolve { .. }))
}

pub fn is_task(message: &Message) -> bool {
    matches!(command_of(message), Some(Command::Manage { .. }))
}

pub fn asks_what_was_missed(message: &Message) -> bool {
    matches!(command_of(message), Some(Command::Manage { task: Task::ListMissed { .. }, .. }))
}

/// Tells that a new epoch has begun.
pub fn is_news(message: &Message) -> bool {
    matches!(message, Message::MonitorAnswer(answer) if answer.reply == MonitorReply::Changed)
}

pub fn carries_commits(message: &Message) -> bool {
    matches!(message, Message::Request(request) if !request.commits.is_empty())
}

pub fn is_answer(message: &Message, is: impl Fn(&Reply) -> bool) -> bool {
    matches!(message, Message::Answer(answer) if is(&answer.reply))
}

pub fn is_written(message: &Message) -> bool {
    is_answer(message, |reply| matches!(reply, Reply::Written { .. }))
}

/// From now on, messages like this have this verdict. Returns how many there were.
pub fn judge(
    array: &mut Cluster,
    verdict: Verdict,
    mut is_meant: impl FnMut(NodeId, NodeId, &Message) -> bool + 'static,
) -> Rc<Cell<u64>> {
    let count = Rc::new(Cell::new(0));
    let seen = count.clone();
    array.world.network.judge_if(verdict, move |from, to, message| {
        let is_meant = is_meant(from, to, message);
        seen.set(seen.get() + u64::from(is_meant));
        is_meant
    });
    count
}

/// From now on, counts messages like this.
pub fn watch(array: &mut Cluster, is_meant: impl FnMut(NodeId, NodeId, &Message) -> bool + 'static) -> Rc<Cell<u64>> {
    judge(array, Verdict::Pass, is_meant)
}

/// How long this takes.
pub fn time_of(array: &mut Cluster, act: impl FnOnce(&mut Cluster)) -> Duration {
    let begun = array.world.now();
    act(array);
    array.world.now().since(begun)
}

/// Two copies of eight blocks, on two devices of the array.
pub fn another_volume(array: &Cluster, devices: [u16; 2]) -> VolumeDescription {
    let (id, layout) = (VolumeId(array.volume().id.0 + 1), layout("raid1:2", 2, 1));
    let devices = devices.map(DeviceId).to_vec();
    VolumeDescription { id, bytes: 8 * BLOCK, layout, devices, ..array.volume().clone() }
}

pub fn layout(scheme: &str, devices: usize, unit: u64) -> Layout {
    Layout::new(scheme.parse().unwrap(), devices, unit).unwrap()
}

pub fn restart(array: &mut Cluster, number: u16) {
    array.crash(device(number));
    array.restart_device(DeviceId(number));
}

/// All devices lose power, one after the other.
pub fn restart_all(array: &mut Cluster) {
    array.devices().into_iter().for_each(|id| restart(array, id.0));
}

pub fn restart_monitor(array: &mut Cluster) {
    array.crash(NodeId::Monitor);
    array.restart_monitor();
}

/// A host loses power, and another one takes its slot.
pub fn replace_host(array: &mut Cluster, host: HostSlot) {
    array.crash(array.node(host));
    take_slot(array, host);
}

/// A new generation takes the slot of a fenced host.
pub fn replace_fenced(array: &mut Cluster, host: HostSlot) {
    assert_eq!(array.fenced(), [host], "the host knows that it is fenced, and no other host is fenced");
    replace_host(array, host);
}

/// Another host takes the slot of one that is down.
pub fn take_slot(array: &mut Cluster, slot: HostSlot) {
    array.replace_host(slot, LocalClock::exact(array.world.now()));
}

/// Has a host kept out of the array.
pub fn fence(array: &mut Cluster, by: HostSlot, host: Generation) {
    let asked = array.fence(by, host);
    assert_eq!(array.finish(asked), DONE);
}

/// What an operator asks of the monitor.
pub fn administer(array: &mut Cluster, host: HostSlot, request: Administration) -> HostOutcome {
    array.perform(host, ArrayRequest::Administer { request })
}

/// Cuts two nodes off from each other.
pub fn cut(array: &mut Cluster, one: NodeId, other: NodeId) {
    cut_off(array, one, &[other]);
}

/// Cuts a node off from some others.
pub fn cut_off(array: &mut Cluster, one: NodeId, others: &[NodeId]) {
    for other in others {
        array.world.network.cut(one, *other);
        array.world.network.cut(*other, one);
    }
}

pub fn disk(array: &mut Cluster, node: NodeId) -> &mut Disk {
    array.world.disk_mut(node).expect("the node has a disk")
}

/// Runs until a condition holds.
pub fn wait_until(array: &mut Cluster, what: &str, is_so: impl Fn(&Cluster) -> bool) {
    let until = array.world.now().after(PATIENCE);
    while !is_so(array) {
        assert!(array.world.now() < until, "still waiting until {what}");
        array.run_for(Duration::from_millis(5));
    }
}

/// The epoch that the monitor has made durable.
pub fn epoch(array: &Cluster) -> u32 {
    array.membership().expect("the monitor is up").epoch.0
}

/// The state of a device that the monitor has made durable; `None` if the monitor does not know it yet.
pub fn member_state(array: &Cluster, number: u16) -> Option<MemberState> {
    Some(array.membership()?.member(DeviceId(number))?.member_state)
}

pub fn is_out(array: &Cluster, number: u16) -> bool {
    member_state(array, number) == Some(MemberState::Out)
}

pub fn is_in(array: &Cluster, number: u16) -> bool {
    member_state(array, number) == Some(MemberState::In)
}

pub fn is_returning(array: &Cluster, number: u16) -> bool {
    matches!(member_state(array, number), Some(MemberState::Returning { .. }))
}

/// Runs until a device is out.
pub fn wait_out(array: &mut Cluster, number: u16) {
    wait_until(array, "the device is out", |array| is_out(array, number));
}

/// Makes a device lose power, and waits until it is out.
pub fn lose(array: &mut Cluster, number: u16) {
    array.crash(device(number));
    wait_out(array, number);
    array.run_for(Duration::from_millis(10));
}

/// Restarts a device, and waits until it is returning.
pub fn welcome(array: &mut Cluster, number: u16) {
    array.restart_device(DeviceId(number));
    wait_until(array, "the device is returning", |array| is_returning(array, number));
    array.run_for(Duration::from_millis(10));
}

/// Restarts a device that is out, and waits until it is in.
pub fn bring_back(array: &mut Cluster, number: u16) {
    welcome(array, number);
    wait_in(array, number);
}

/// Runs until a device is resynchronised and in.
pub fn wait_in(array: &mut Cluster, number: u16) {
    wait_until(array, "the device is in", |array| is_in(array, number));
    array.run_for(Duration::from_millis(10));
}

pub fn counters(array: &Cluster, slot: HostSlot) -> HostCounters {
    array.role(slot).and_then(Role::host).expect("the host is up").counters()
}

/// Reads, and waits for the outcome.
pub fn read(array: &mut Cluster, host: HostSlot, offset: u64, length: u64) -> HostOutcome {
    let read = array.read(host, offset, length);
    array.finish(read)
}

/// The content that a host reads.
pub fn content(array: &mut Cluster, host: HostSlot, offset: u64, length: u64) -> Vec<u8> {
    bytes_of(read(array, host, offset, length), &format!("{length} bytes at {offset}"))
}

/// What was read.
pub fn bytes_of(outcome: HostOutcome, what: &str) -> Vec<u8> {
    match outcome {
        Ok(HostSuccess::Data(parts)) => parts.concat(),
        other => panic!("{what} can't be read: {other:?}"),
    }
}

/// Writes, and waits for the answer.
pub fn write(array: &mut Cluster, host: HostSlot, offset: u64, length: u64) {
    assert_eq!(outcome_of_write(array, host, offset, length), DONE, "{length} bytes at {offset}");
}

/// Writes, and waits for the outcome.
pub fn outcome_of_write(array: &mut Cluster, host: HostSlot, offset: u64, length: u64) -> HostOutcome {
    let write = array.write(host, offset, length);
    array.finish(write)
}

/// The outcome of a read of one block that is not part of the history.
pub fn outcome_of_read(array: &mut Cluster, host: HostSlot, offset: u64) -> HostOutcome {
    let (volume, length) = (array.volume().id, BLOCK_BYTES);
    array.perform(host, VolumeRequest::Read { volume, offset, length, patience: Patience::Host })
}

/// Writes zeros that are not part of the history.
pub fn zero(array: &mut Cluster, host: HostSlot, offset: u64, length: u64) -> HostOutcome {
    let volume = array.volume().id;
    array.perform(host, VolumeRequest::Zero { volume, offset, length, patience: Patience::Host })
}

/// All these operations succeed.
pub fn all_succeed(array: &mut Cluster, ops: impl IntoIterator<Item = OpId>, what: impl Display) {
    for op in ops {
        let outcome = array.finish(op);
        assert!(outcome.is_ok(), "{what}: {outcome:?}");
    }
}

/// A host writes, and dies before it gets an answer, after `then`: its devwrites to `lost` never arrive.
pub fn die_writing(
    array: &mut Cluster,
    host: HostSlot,
    (offset, length): (u64, u64),
    lost: &[u16],
    then: impl FnOnce(&Cluster),
) {
    let (writer, lost) = (array.node(host), lost.to_vec());
    array.world.network.drop_if(move |_, to, message| {
        let is_lost = is_write(message) && lost.iter().any(|number| to == device(*number));
        is_lost || (to == writer && is_written(message))
    });
    array.write(host, offset, length);
    array.run_for(Duration::from_millis(20));
    then(array);
    array.crash(writer);
    array.world.network.heal();
}

/// A hostwrite of block 0, which lies on device 0: its parity, on device 4, is never written, because the host dies.
pub fn die_between_two_writes(array: &mut Cluster, host: HostSlot) {
    array.world.network.drop_if(|_, to, message| is_write(message) && to == device(4));
    array.write(host, 0, BLOCK);
    array.run_for(Duration::from_millis(50));
    array.crash(array.node(host));
    array.world.network.heal();
}

/// Fills the whole volume, and waits until all devices know the commits.
pub fn fill(array: &mut Cluster, host: HostSlot) {
    let stripe = array.volume().layout.stripe_blocks() * BLOCK;
    for number in 0..array.volume().stripes() {
        write(array, host, number * stripe, stripe);
    }
    array.run_for(Duration::from_secs(1));
}

/// True if the operation failed because these devices are unavailable.
pub fn lacks(outcome: &HostOutcome, numbers: &[u16]) -> bool {
    let these = |devices: &[DeviceId]| devices.iter().map(|id| id.0).eq(numbers.iter().copied());
    matches!(outcome, Err(HostError::Unavailable { devices }) if these(devices))
}

/// The result of the last command of a request on objects.
pub fn result_of(outcome: HostOutcome) -> CommandResult {
    match outcome {
        Ok(HostSuccess::Objects(mut results)) => results.pop().expect("the request had a command"),
        other => panic!("the request failed: {other:?}"),
    }
}

/// The number that is the value of an attribute.
pub fn number_in(result: &CommandResult) -> i64 {
    result.values[0][..].try_into().map_or(0, i64::from_be_bytes)
}

/// The blocks that a message writes on a device.
pub fn blocks_written(message: &Message) -> BTreeSet<u64> {
    match command_of(message) {
        Some(Command::Write { pieces, .. }) => pieces.iter().flat_map(|piece| piece.range.blocks()).collect(),
        Some(Command::Execute { column, .. }) => column.writes().into_iter().flat_map(BlockRange::blocks).collect(),
        _ => BTreeSet::new(),
    }
}

/// Power fails at all nodes at once, and returns. Other hosts take the places of those that there were.
pub fn power_fails_everywhere(array: &mut Cluster, hosts: [HostSlot; 2]) {
    for node in array.world.up() {
        array.crash(node);
    }
    array.restart_monitor();
    for id in array.devices() {
        array.restart_device(id);
    }
    hosts.into_iter().for_each(|slot| take_slot(array, slot));
}

/// The blocks that a device is written from now on.
pub fn note_blocks_written(array: &mut Cluster, number: u16) -> Rc<RefCell<BTreeSet<u64>>> {
    let written = Rc::new(RefCell::new(BTreeSet::new()));
    let log = written.clone();
    array.world.network.set_rule(move |_, to, message| {
        if to == device(number) {
            log.borrow_mut().extend(blocks_written(message));
        }
        Verdict::Pass
    });
    written
}

/// How an array of a story begins. It may depend on the case.
pub trait Beginning<T, Kind> {
    fn array(&self, case: T) -> (Cluster, HostSlot, HostSlot);
}

impl<T, F: Fn() -> (Cluster, HostSlot, HostSlot)> Beginning<T, ()> for F {
    fn array(&self, _: T) -> (Cluster, HostSlot, HostSlot) {
        self()
    }
}

impl<T, F: Fn(T) -> (Cluster, HostSlot, HostSlot)> Beginning<T, (T,)> for F {
    fn array(&self, case: T) -> (Cluster, HostSlot, HostSlot) {
        self(case)
    }
}

/// Tells the same story of a new array for each of these cases. All is well in the end.
pub fn with_each<T: Clone, Kind>(
    cases: impl IntoIterator<Item = T>,
    array: impl Beginning<T, Kind>,
    mut story: impl FnMut(&mut Cluster, [HostSlot; 2], T),
) {
    with_each_pair(cases, [()], array, |array, hosts, case, ()| story(array, hosts, case));
}

/// The same, for each of these cases in each of these ways.
pub fn with_each_pair<T: Clone, W, I: IntoIterator<Item = W> + Clone, Kind>(
    cases: impl IntoIterator<Item = T>,
    ways: I,
    array: impl Beginning<T, Kind>,
    mut story: impl FnMut(&mut Cluster, [HostSlot; 2], T, W),
) {
    for case in cases {
        for way in ways.clone() {
            let (mut array, a, b) = array.array(case.clone());
            story(&mut array, [a, b], case.clone(), way);
            all_is_well(array);
        }
    }
}

/// Ends every scenario: at rest, no state is left, no data is lost, and parity is right.
pub fn all_is_well(mut array: Cluster) {
    array.world.network.heal();
    array.run_for(A_WHILE);
    if let Err(failed) = array.check_all() {
        array.world.trace.lines().for_each(|line| println!("{line}"));
        panic!("{}: {}", failed.check, failed.details);
    }
}

/// The same, once this device is resynchronised and in.
pub fn all_is_well_with(mut array: Cluster, number: u16) {
    wait_in(&mut array, number);
    all_is_well(array);
}

/// The same, when a device that is out has returned.
pub fn all_is_well_back_with(mut array: Cluster, number: u16) {
    bring_back(&mut array, number);
    all_is_well(array);
}
