//! The coordinator without a host. The tests lend it links, locks and a view of the membership, and play the devices.

use braid_base::limits::Settings;
use braid_base::{
    BLOCK_BYTES, Clock, DeviceId, Generation, LockServerId, MemberState, Membership, NodeId, Now, Rng, Stamp, Time,
    TransactionId, VolumeId,
};
use braid_blocks::{Content, Piece};
use braid_layout::{Layout, RaidLevel, VolumeDescription};
use braid_locks::client::{Acquisition, Ctx as LockCtx, LockClient, LockClientConfig, Part};
use braid_machine::{Effect, HostEffects, HostError, HostOutcome, HostSuccess, OpId, Patience, VolumeRequest};
use braid_membership::client::{Ctx as MonitorCtx, MonitorClient};
use braid_ordering::Ordering;
use braid_transactions::{Coordinator, Ctx, Event, Links, OperationId};
use braid_wire::locking::{LockAnswer, LockCommand, LockReply};
use braid_wire::{Command, Message, MonitorAnswer, MonitorReply, Outcome, Refusal, Reply, Step, Vote};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

const HOST: Generation = Generation(7);
const OP: OperationId = OperationId::User(OpId::front_end(1));
const PART: Part = Part(5);
const SECOND: u64 = 1_000_000_000;

/// A minimal owner of a coordinator.
struct Owner {
    coordinator: Coordinator,
    links: Links,
    locks: LockClient,
    monitor: MonitorClient,
    membership: Membership,
    rng: Rng,
    settings: Settings,
    now: Now,
    volume: Rc<VolumeDescription>,
    /// Commands to devices, heartbeats aside.
    sent: Vec<(DeviceId, Command)>,
    /// The commits that rode on them.
    rode: Vec<(DeviceId, u64)>,
    /// Commands to the lock server.
    asked: Vec<LockCommand>,
    events: Vec<Event>,
}

impl Owner {
    /// Five devices with a volume of RAID 5, 4+1, in units of one block.
    fn new(ordering: Ordering) -> Owner {
        let devices: Vec<_> = (0..5).map(DeviceId).collect();
        let scheme: RaidLevel = "raid5:4+1".parse().expect("a scheme");
        let volume = VolumeDescription {
            ordering,
            ..VolumeDescription::new(
                VolumeId(1),
                256 * BLOCK_BYTES as u64,
                Layout::new(scheme, scheme.width(), 1).expect("a layout"),
                devices.clone(),
            )
        };
        let servers = vec![LockServerId(0)];
        let mut owner = Owner {
            coordinator: Coordinator::new(HOST),
            links: Links::new(&devices),
            locks: LockClient::new(LockClientConfig { host: HOST, servers, acquisition: Acquisition::Ordered }),
            monitor: MonitorClient::of_host(None),
            membership: Membership::first(devices),
            rng: Rng::new(1),
            settings: Settings::default(),
            now: Now { time: Time(SECOND), clock: Clock(1_000 * SECOND) },
            volume: Rc::new(volume),
            sent: Vec::new(),
            rode: Vec::new(),
            asked: Vec::new(),
            events: Vec::new(),
        };
        owner.adopt();
        owner
    }

    /// Adopts its membership.
    fn adopt(&mut self) {
        let (membership, mut out) = (Some(self.membership.clone()), HostEffects::new());
        let answer = MonitorAnswer { membership, unavailable: Vec::new(), reply: MonitorReply::Changed };
        self.monitor.on_answer(self.now.time, answer);
        let cx = MonitorCtx { now: self.now, settings: &self.settings, out: &mut out };
        while self.monitor.next_event(&cx).is_some() {}
    }

    fn does(&mut self, what: impl FnOnce(&mut Coordinator, &mut Ctx)) {
        let mut out = HostEffects::new();
        let Owner { coordinator, links, locks, monitor, rng, settings, now, .. } = self;
        let locks = locks.of_part(PART);
        let (now, view) = (*now, monitor.view());
        what(coordinator, &mut Ctx { now, host: HOST, settings, view, links, locks, rng, out: &mut out });
        self.events.extend(std::iter::from_fn(|| self.coordinator.pop_event()));
        self.perform(out);
        self.locks.invariants();
        self.links.invariants();
        self.coordinator.invariants(self.locks.holders(PART));
    }

    fn perform(&mut self, mut out: HostEffects) {
        for effect in out.drain() {
            match effect {
                Effect::Send { to: NodeId::Device(device), message: Message::Request(request) } => {
                    self.rode.extend(request.commits.iter().map(|sequence| (device, *sequence)));
                    if request.command != Command::Heartbeat {
                        self.sent.push((device, request.command));
                    }
                }
                Effect::Send { message: Message::LockRequest(request), .. } => self.asked.push(request.command),
                other => panic!("not an effect of a coordinator: {other:?}"),
            }
        }
    }

    fn write_block(&mut self) {
        let data = Bytes::from(vec![1; BLOCK_BYTES]);
        let (volume, request) = (
            self.volume.clone(),
            VolumeRequest::Write { volume: self.volume.id, offset: 0, data, patience: Patience::Host },
        );
        self.does(|coordinator, ctx| coordinator.start(ctx, OP, volume, request.into()));
    }

    fn replies(&mut self, device: DeviceId, reply: Reply) {
        self.does(|coordinator, ctx| coordinator.on_reply(ctx, device, reply));
    }

    /// Lets time pass, and fires the timers of the coordinator and the links that become due.
    fn pass(&mut self, span: Duration) {
        let end = self.now.time.after(span);
        loop {
            let (own, link) = (self.coordinator.next_timer(), self.links.next_timer());
            let next = own.map(|(time, _)| time).into_iter().chain(link.map(|(time, _)| time)).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.go_to(next.max(self.now.time));
            match (own, link) {
                (Some((time, timer)), _) if time == next => self.does(|coordinator, ctx| coordinator.wake(ctx, timer)),
                (_, Some((_, timer))) => self.does(|_, ctx| {
                    let (links, mut outbound) = ctx.outbound();
                    links.wake(&mut outbound, timer);
                }),
                _ => unreachable!("one of them is next"),
            }
        }
        self.go_to(end);
    }

    fn go_to(&mut self, time: Time) {
        self.now.clock = self.now.clock.ahead(time.since(self.now.time));
        self.now.time = time;
    }

    /// Takes out the commands so far, by device.
    fn take_sent(&mut self) -> BTreeMap<DeviceId, Command> {
        std::mem::take(&mut self.sent).into_iter().collect()
    }

    fn outcome(&self) -> Option<&HostOutcome> {
        self.events.iter().find_map(|event| match event {
            Event::Ended { op: OP, outcome } => Some(outcome),
            _ => None,
        })
    }
}

fn id_of(command: &Command) -> (TransactionId, Stamp) {
    match command {
        Command::Read { transaction, stamp, .. }
        | Command::Prewrite { transaction, stamp, .. }
        | Command::Write { transaction, stamp, .. }
        | Command::Decide { transaction, stamp, .. }
        | Command::Retract { transaction, stamp }
        | Command::Resolve { transaction, stamp } => (*transaction, *stamp),
        other => panic!("not a command of a transaction: {other:?}"),
    }
}

/// The answer of a device that accepts every command, and holds zeros.
fn taken(command: &Command) -> Reply {
    match command {
        Command::Read { transaction, extents, .. } | Command::Prewrite { transaction, reads: extents, .. } => {
            let piece = |range: &_| Piece { range: *range, content: Content::Hole };
            Reply::Data { transaction: *transaction, waited: false, pieces: extents.iter().map(piece).collect() }
        }
        Command::Write { transaction, .. } => Reply::Written { transaction: *transaction, waited: false },
        Command::Decide { transaction, outcome, .. } => Reply::Decided { transaction: *transaction, outcome: *outcome },
        other => panic!("not accepted here: {other:?}"),
    }
}

/// Plays an operation up to its writes, and returns these.
fn written(owner: &mut Owner) -> BTreeMap<DeviceId, Command> {
    owner.write_block();
    for (device, command) in owner.take_sent() {
        owner.replies(device, taken(&command));
    }
    let writes = owner.take_sent();
    assert!(writes.values().all(|command| matches!(command, Command::Write { .. })), "{writes:?}");
    assert_eq!(writes.len(), 2, "the devices of the data and of the parity");
    writes
}

#[test]
fn a_write_is_answered_when_all_have_it_and_over_when_all_have_confirmed_its_commit() {
    let mut owner = Owner::new(Ordering::Timestamp);
    let writes = written(&mut owner);
    let (last, command) = writes.last_key_value().expect("two");
    let (first, _) = writes.first_key_value().expect("two");
    owner.replies(*first, taken(command));
    assert_eq!(owner.outcome(), None, "the other device has not answered");
    owner.replies(*last, taken(command));
    assert_eq!(owner.outcome(), Some(&Ok(HostSuccess::Done)));
    assert!(!owner.coordinator.has_operations() && owner.coordinator.has_transactions());

    let (id, _) = id_of(command);
    assert_eq!(owner.rode, [], "there was no request to ride on");
    owner.pass(owner.settings.commit_linger);
    assert_eq!(owner.rode, [(*first, id.sequence), (*last, id.sequence)]);
    owner.does(|coordinator, ctx| coordinator.on_confirmed(ctx, *first, id.sequence));
    assert!(owner.coordinator.has(id.sequence));
    owner.does(|coordinator, ctx| coordinator.on_confirmed(ctx, *last, id.sequence));
    assert!(owner.coordinator.is_idle());
}

#[test]
fn a_write_refused_for_its_low_stamp_is_retried_above_it() {
    let mut owner = Owner::new(Ordering::Timestamp);
    owner.write_block();
    let prewrites = owner.take_sent();
    let (device, command) = prewrites.first_key_value().expect("two");
    let (lost, stamp) = id_of(command);
    let seen = Stamp { clock: stamp.clock.ahead(Duration::from_millis(3)), host: Generation(8) };
    let (step, refusal) = (Step::Prewrite, Refusal::TooLate { seen });
    owner.replies(*device, Reply::Refused { transaction: lost, step, refusal });
    assert_eq!(owner.outcome(), None);
    let told = owner.take_sent();
    let (other, _) = prewrites.last_key_value().expect("two");
    assert_eq!(told.keys().collect::<Vec<_>>(), [other], "the device that refused is not told");
    assert!(matches!(told[other], Command::Decide { outcome: Outcome::Abort, .. }));
    owner.replies(*other, taken(&told[other]));
    assert!(!owner.coordinator.has(lost.sequence), "all know that it is over");

    owner.pass(owner.settings.backoff_max);
    let again = owner.take_sent();
    for (device, command) in &again {
        let (id, stamp) = id_of(command);
        assert!(id.sequence > lost.sequence && stamp > seen, "{command:?} after {seen:?}");
        owner.replies(*device, taken(command));
    }
    for (device, command) in owner.take_sent() {
        owner.replies(device, taken(&command));
    }
    assert_eq!(owner.outcome(), Some(&Ok(HostSuccess::Done)));
    assert_eq!((owner.coordinator.counters().retries, owner.coordinator.counters().committed), (1, 1));
}

#[test]
fn an_operation_that_a_host_with_a_clock_ahead_overtakes_each_time_gets_a_head_start() {
    let (lead, round_trip) = (Duration::from_millis(20), Duration::from_millis(10));
    let mut owner = Owner::new(Ordering::Timestamp);
    owner.write_block();
    for attempt in 0..20 {
        while owner.sent.is_empty() {
            owner.pass(Duration::from_millis(1));
        }
        let commands = owner.take_sent();
        owner.pass(round_trip);
        // The other host has stamped its own write a few milliseconds ago.
        let age = Duration::from_millis(if attempt % 2 == 0 { 8 } else { 4 });
        let seen = Stamp { clock: Clock(owner.now.clock.ahead(lead).0 - age.as_nanos() as u64), host: Generation(8) };
        let (id, stamp) = id_of(commands.values().next().expect("a participant"));
        if stamp > seen {
            assert!(attempt > 10, "the operation waits first: {attempt}");
            return;
        }
        for (device, command) in &commands {
            let (step, refusal) = (Step::Prewrite, Refusal::TooLate { seen });
            assert!(matches!(command, Command::Prewrite { .. }), "{command:?}");
            owner.replies(*device, Reply::Refused { transaction: id, step, refusal });
        }
        for (device, command) in owner.take_sent() {
            owner.replies(device, taken(&command));
        }
    }
    panic!("refused each time");
}

#[test]
fn the_others_decide_what_a_device_does_not_answer_that_is_out_by_then() {
    let mut owner = Owner::new(Ordering::Timestamp);
    let writes = written(&mut owner);
    let (silent, command) = writes.first_key_value().expect("two");
    let (here, _) = writes.last_key_value().expect("two");
    let (id, _) = id_of(command);
    owner.replies(*here, taken(command));
    owner.pass(owner.settings.resend_min);
    let again = owner.take_sent();
    assert_eq!(again.keys().collect::<Vec<_>>(), [silent], "only the silent device is asked again");

    owner.membership.epoch.0 += 1;
    let epoch = owner.membership.epoch;
    let member = owner.membership.member_mut(*silent).expect("a device of the array");
    (member.member_state, member.since) = (MemberState::Out, epoch);
    owner.adopt();
    owner.does(|coordinator, ctx| coordinator.on_epoch(ctx, false));
    let asked = owner.take_sent();
    assert_eq!(asked.keys().collect::<Vec<_>>(), [here], "only this device has a vote");
    assert!(matches!(asked[here], Command::Resolve { .. }));
    owner.replies(*here, Reply::Vote { transaction: id, vote: Vote::Prepared });
    let told = owner.take_sent();
    assert!(matches!(told[here], Command::Decide { outcome: Outcome::Commit, .. }), "{told:?}");
    assert_eq!(owner.outcome(), None, "not answered before the outcome is durable");
    owner.replies(*here, taken(&told[here]));
    assert_eq!(owner.outcome(), Some(&Ok(HostSuccess::Done)));
    assert!(owner.coordinator.is_idle());
    assert_eq!(owner.coordinator.counters().resolved, 1);
}

#[test]
fn an_operation_ends_in_time_though_a_device_is_silent_and_its_pre_writes_are_given_up() {
    let mut owner = Owner::new(Ordering::Timestamp);
    owner.write_block();
    let prewrites = owner.take_sent();
    let (here, command) = prewrites.first_key_value().expect("two");
    let (silent, _) = prewrites.last_key_value().expect("two");
    owner.replies(*here, taken(command));
    owner.pass(owner.settings.request_timeout);
    let Some(Err(HostError::TimedOut { devices, .. })) = owner.outcome() else { panic!("{:?}", owner.outcome()) };
    assert_eq!(devices, &[*silent]);
    owner.replies(*here, Reply::Decided { transaction: id_of(command).0, outcome: Outcome::Abort });
    assert!(owner.coordinator.has_transactions(), "the silent device may have a pre-write");
    owner.pass(owner.settings.host_lease + 2 * owner.settings.resend_max);
    assert!(owner.coordinator.is_idle(), "a device drops pre-writes of a host that is silent for a lease");
}

#[test]
fn under_a_lock_server_devices_get_no_request_before_the_lock_is_granted() {
    let mut owner = Owner::new(Ordering::ServerLock);
    owner.write_block();
    assert!(owner.sent.is_empty());
    let Some(LockCommand::Lock { lock_id, .. }) = owner.asked.pop() else { panic!("{:?}", owner.asked) };
    let answer = LockAnswer { start: Generation(1), reply: LockReply::Granted { lock_id, waited: false } };
    let mut out = HostEffects::new();
    let mut number = || panic!("nothing more is asked for");
    let cx = &mut LockCtx { now: owner.now, settings: &owner.settings, number: &mut number, out: &mut out };
    owner.locks.on_answer(cx, LockServerId(0), answer);
    owner.perform(out);
    owner.does(Coordinator::on_lock_events);
    for _ in ["reads", "writes"] {
        for (device, command) in owner.take_sent() {
            owner.replies(device, taken(&command));
        }
    }
    assert_eq!(owner.outcome(), Some(&Ok(HostSuccess::Done)));
    assert!(matches!(owner.asked[..], [LockCommand::Unlock { .. }]), "{:?}", owner.asked);
}
