//! Tests of the scheduler alone: what the stories of devices (`core/device/tests`) can't show. They play the hosts, the store and the monitor,
//! and check its decisions.

mod any_host;

use super::Scheduler;
use super::ctx::{Ctx, Objects};
use super::decision::Decision;
use crate::sessions::Sessions;
use braid_base::limits::Settings;
use braid_base::{BlockRange, Clock, DeviceId, Generation, Membership, Now, ObjectId, Stamp, Time, TransactionId};
use braid_blocks::{Content, Linkage, Piece, Want};
use braid_machine::Ignored;
use braid_membership::client::MonitorClient;
use braid_ordering::{Atomicity, Ordering, WriteMode};
use braid_wire::{Command, ObjectDescription, Outcome, Reply, Step, Vote};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const STAMPED: ObjectId = ObjectId(1);
const LOCKED: ObjectId = ObjectId(2);
const ARRIVING: ObjectId = ObjectId(3);
const SECOND: u64 = 1_000_000_000;
const FIRST: Generation = Generation(1);
const SECOND_HOST: Generation = Generation(2);

impl Objects for BTreeMap<ObjectId, ObjectDescription> {
    fn object(&self, object: ObjectId) -> Option<&ObjectDescription> {
        self.get(&object)
    }
}

#[derive(Clone, Debug)]
struct Bench {
    scheduler: Scheduler,
    settings: Settings,
    objects: BTreeMap<ObjectId, ObjectDescription>,
    monitor: MonitorClient,
    hosts: Sessions,
    now: Now,
}

impl Bench {
    /// A bench that accepts stamps near the clock.
    fn new() -> Bench {
        let mut bench = Bench::unreserved();
        assert_eq!(bench.say(read(1, bench.stamp(FIRST, 0))).len(), 1);
        let deferred = bench.decide(|scheduler, cx| assert_eq!(scheduler.on_reserved(cx).len(), 1));
        assert_eq!(deferred, []);
        bench
    }

    /// A bench without reserved stamps.
    fn unreserved() -> Bench {
        let settings = Settings::default();
        let now = Now { time: Time(SECOND), clock: Clock(1_000 * SECOND) };
        let mut hosts = Sessions::default();
        for host in [FIRST, SECOND_HOST] {
            assert!(hosts.hear(host, now.time, 2));
        }
        let description = |(object, ordering, atomicity)| {
            (object, ObjectDescription { object, first: 0, blocks: 64, ordering, redundant: true, atomicity })
        };
        let objects = [
            (STAMPED, Ordering::Timestamp, Atomicity::Implied),
            (LOCKED, Ordering::DeviceLock, Atomicity::Implied),
            (ARRIVING, Ordering::Timestamp, Atomicity::Consistent),
        ];
        Bench {
            scheduler: Scheduler::new(&settings),
            settings,
            objects: objects.map(description).into_iter().collect(),
            monitor: MonitorClient::of_device(Some(Membership::first([DeviceId(0), DeviceId(1)])), DeviceId(0), None),
            hosts,
            now,
        }
    }

    /// Runs one step, and returns its decisions.
    fn decide(&mut self, step: impl FnOnce(&mut Scheduler, &mut Ctx)) -> Vec<Decision> {
        let mut decisions = VecDeque::new();
        let mut cx = Ctx {
            now: self.now,
            settings: &self.settings,
            device: DeviceId(0),
            objects: &self.objects,
            view: self.monitor.view(),
            hosts: &self.hosts,
            decisions: &mut decisions,
        };
        step(&mut self.scheduler, &mut cx);
        self.scheduler.resume_waiting(&mut cx);
        self.scheduler.invariants(std::iter::empty());
        decisions.into()
    }

    fn say(&mut self, command: Command) -> Vec<Decision> {
        let host = match &command {
            Command::Read { transaction, .. }
            | Command::Prewrite { transaction, .. }
            | Command::Write { transaction, .. }
            | Command::Retract { transaction, .. }
            | Command::Decide { transaction, .. } => transaction.host,
            _ => SECOND_HOST,
        };
        self.decide(|scheduler, cx| {
            scheduler.on_command(cx, host, command);
        })
    }

    fn prepared(&mut self, id: TransactionId) -> Vec<Decision> {
        self.decide(|scheduler, cx| scheduler.on_prepared(cx, id, Ok(())))
    }

    fn committed(&mut self, id: TransactionId) -> Vec<Decision> {
        self.decide(|scheduler, cx| scheduler.on_commit_ride(cx, id))
    }

    fn stamp(&self, host: Generation, micros: u64) -> Stamp {
        Stamp { clock: Clock(self.now.clock.0 + micros * 1_000), host }
    }
}

/// A bench, and a transaction of the first host.
fn with_one() -> (Bench, Stamp, TransactionId) {
    let bench = Bench::new();
    let stamp = bench.stamp(FIRST, 1);
    (bench, stamp, id(2, stamp))
}

fn id(sequence: u64, stamp: Stamp) -> TransactionId {
    TransactionId { host: stamp.host, sequence }
}

fn read(sequence: u64, stamp: Stamp) -> Command {
    read_of(STAMPED, sequence, stamp)
}

fn read_of(object: ObjectId, sequence: u64, stamp: Stamp) -> Command {
    let (ordering, extents) = (ordering_of(object), vec![BlockRange::new(0, 1)]);
    Command::Read { transaction: id(sequence, stamp), stamp, object, ordering, extents, want: Want::Data }
}

fn prewrite(object: ObjectId, sequence: u64, stamp: Stamp, range: BlockRange) -> Command {
    let (ordering, prewrites) = (ordering_of(object), vec![range]);
    Command::Prewrite { transaction: id(sequence, stamp), stamp, object, ordering, prewrites, reads: Vec::new() }
}

fn write(object: ObjectId, sequence: u64, stamp: Stamp, range: BlockRange) -> Command {
    Command::Write {
        transaction: id(sequence, stamp),
        stamp,
        object,
        ordering: ordering_of(object),
        participants: vec![DeviceId(0), DeviceId(1)],
        linkage: Linkage { first: range.start, last: range.end() - 1 },
        mode: if object == ARRIVING { WriteMode::Immediate } else { WriteMode::Intent },
        pieces: vec![Piece { range, content: Content::Hole }],
    }
}

fn ordering_of(object: ObjectId) -> Ordering {
    if object == LOCKED { Ordering::DeviceLock } else { Ordering::Timestamp }
}

/// The transactions whose intents are to be made durable.
fn to_prepare(decisions: &[Decision]) -> Vec<TransactionId> {
    let prepared = |decision: &Decision| match decision {
        Decision::Prepare(intent) => Some(intent.transaction),
        _ => None,
    };
    decisions.iter().filter_map(prepared).collect()
}

const BLOCK: BlockRange = BlockRange { start: 0, count: 1 };

#[test]
fn an_abort_that_overtakes_its_intent_is_decided_when_that_is_there() {
    let (mut bench, stamp, transaction) = with_one();
    bench.say(prewrite(STAMPED, 2, stamp, BLOCK));
    bench.say(write(STAMPED, 2, stamp, BLOCK));
    assert_eq!(bench.say(Command::Decide { transaction, stamp, outcome: Outcome::Abort }), []);
    assert_eq!(bench.prepared(transaction), [Decision::Abort(transaction)]);
    let decided = bench.decide(|scheduler, cx| scheduler.on_aborted(cx, transaction));
    let reply = Reply::Decided { transaction, outcome: Outcome::Abort };
    assert_eq!(decided, [Decision::Answer { host: FIRST, reply }]);
}

fn retract(sequence: u64, stamp: Stamp) -> Command {
    Command::Retract { transaction: id(sequence, stamp), stamp }
}

fn aborted(transaction: TransactionId) -> Decision {
    Decision::Answer { host: FIRST, reply: Reply::Decided { transaction, outcome: Outcome::Abort } }
}

/// Two hosts must not hear different things of one intent.
#[test]
fn a_resolver_that_waits_for_an_intent_hears_of_its_retraction() {
    let (mut bench, stamp, transaction) = with_one();
    bench.say(write(STAMPED, 2, stamp, BLOCK));
    assert_eq!(bench.say(Command::Resolve { transaction, stamp }), []);
    assert_eq!(bench.say(retract(2, stamp)), []);
    assert_eq!(bench.prepared(transaction), [Decision::Abort(transaction)]);
    let vote = Reply::Vote { transaction, vote: Vote::NeverPrepared };
    let decided = bench.decide(|scheduler, cx| scheduler.on_aborted(cx, transaction));
    assert_eq!(decided, [Decision::Answer { host: SECOND_HOST, reply: vote }, aborted(transaction)]);
}

/// A device did not agree to the retraction, so that the host has become a resolver and counts on all votes.
#[test]
fn a_late_copy_of_a_retraction_does_not_undo_what_its_host_has_heard_to_be_prepared() {
    for asks_early in [false, true] {
        let (mut bench, stamp, transaction) = with_one();
        let ask = |scheduler: &mut Scheduler, cx: &mut Ctx| {
            scheduler.on_command(cx, FIRST, Command::Resolve { transaction, stamp });
        };
        let vote = Decision::Answer { host: FIRST, reply: Reply::Vote { transaction, vote: Vote::Prepared } };
        bench.say(write(STAMPED, 2, stamp, BLOCK));
        if asks_early {
            assert_eq!(bench.decide(ask), []);
            assert!(bench.prepared(transaction).contains(&vote));
        } else {
            bench.prepared(transaction);
            assert_eq!(bench.decide(ask), std::slice::from_ref(&vote));
        }
        assert_eq!(bench.say(retract(2, stamp)), [vote]);
    }
}

#[test]
fn a_retraction_that_can_not_be_remembered_is_not_answered_unless_the_others_wait_for_it() {
    let mut bench = Bench::new();
    let full = bench.settings.device_transactions_max as u64;
    let stamp = bench.stamp(FIRST, 1);
    bench.decide(|scheduler, cx| {
        for sequence in 0..full {
            scheduler.on_command(cx, FIRST, retract(10 + sequence, stamp));
        }
        cx.decisions.clear();
    });
    assert_eq!(bench.say(retract(2, stamp)), [Decision::Ignore(Ignored::InProgress)]);
    bench.hosts.settle(FIRST, 2);
    let aborted = Reply::Decided { transaction: id(2, stamp), outcome: Outcome::Abort };
    assert_eq!(bench.say(retract(2, stamp)), [Decision::Answer { host: FIRST, reply: aborted }]);
}

#[test]
fn stamps_are_reserved_ahead_of_writes_that_nothing_announces() {
    let mut bench = Bench::new();
    let mut waits = 0;
    for write_number in 0..400 {
        bench.now.clock = bench.now.clock.ahead(Duration::from_millis(10));
        bench.now.time = bench.now.time.after(Duration::from_millis(10));
        let stamp = bench.stamp(FIRST, 0);
        let sequence = 2 + write_number;
        let decided = bench.say(write(STAMPED, sequence, stamp, BLOCK));
        waits += usize::from(to_prepare(&decided).is_empty());
        if decided.iter().any(|decision| matches!(decision, Decision::Reserve { .. })) {
            bench.decide(|scheduler, cx| drop(scheduler.on_reserved(cx)));
        }
        if to_prepare(&decided) == [id(sequence, stamp)] {
            bench.prepared(id(sequence, stamp));
            bench.committed(id(sequence, stamp));
            bench.decide(|scheduler, cx| scheduler.on_committed(cx, id(sequence, stamp)));
        }
    }
    assert_eq!(waits, 0, "a reservation is under way before the last one is used up");
}

proptest! {
    /// The intents of a block are made in the order of their stamps, and no write waits indefinitely, in whatever order
    /// writes arrive and disk operations end.
    #[test]
    fn intents_of_a_block_are_made_in_the_order_of_their_stamps(
        extents in prop::collection::vec((0u64..6, 1u64..4), 2..9),
        order in any::<prop::sample::Index>(),
        turns in prop::collection::vec(any::<prop::sample::Index>(), 32),
    ) {
        let mut bench = Bench::new();
        let count = extents.len() as u64;
        let of = |n: u64| BlockRange::new(extents[n as usize].0, extents[n as usize].1);
        let first = order.index(count as usize) as u64;
        let mut to_write: Vec<u64> = (0..count).map(|n| (n + first) % count).collect();
        // All writes are announced before the first is sent, since that one would refuse lower pre-writes.
        for n in to_write.iter().copied() {
            let stamp = bench.stamp(FIRST, n + 1);
            let decided = bench.say(prewrite(STAMPED, n + 2, stamp, of(n)));
            prop_assert!(matches!(decided[..], [Decision::Answer { .. }]), "{:?}", decided);
        }
        let (mut preparing, mut prepared) = (Vec::new(), Vec::new());
        let mut turns = turns.into_iter().cycle();
        while prepared.len() < count as usize {
            let choices = to_write.len() + preparing.len();
            prop_assert!(choices > 0, "every waiter has a blocker that goes on");
            let choice = turns.next().expect("they come again").index(choices);
            let decided = if choice < to_write.len() {
                let n = to_write.remove(choice);
                let stamp = bench.stamp(FIRST, n + 1);
                bench.say(write(STAMPED, n + 2, stamp, of(n)))
            } else {
                let transaction: TransactionId = preparing.remove(choice - to_write.len());
                prepared.push(transaction);
                let mut decided = bench.prepared(transaction);
                decided.extend(bench.committed(transaction));
                decided
            };
            for transaction in to_prepare(&decided) {
                let n = transaction.sequence - 2;
                let below = (0..n).filter(|lower| of(*lower).overlaps(of(n)));
                for lower in below {
                    let done = prepared.iter().any(|other: &TransactionId| other.sequence == lower + 2);
                    prop_assert!(done, "{} is to be committed before {}", lower, n);
                }
                preparing.push(transaction);
            }
        }
        prop_assert_eq!(bench.scheduler.waiting(), 0);
    }
}
