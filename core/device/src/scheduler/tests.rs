//! Tests of the scheduler alone. They play the hosts, the store and the monitor, and check its decisions.

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
use braid_wire::{Command, ObjectDescription, Outcome, Refusal, Reply, Step, Vote};
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
            monitor: MonitorClient::of_device(Some(Membership::first([DeviceId(0), DeviceId(1)])), DeviceId(0)),
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

/// A write whose pre-write is not there.
fn refused(transaction: TransactionId) -> Decision {
    Decision::Refuse { transaction, step: Step::Write, refusal: Refusal::NoPrewrite }
}

const BLOCK: BlockRange = BlockRange { start: 0, count: 1 };

#[test]
fn a_request_waits_until_its_stamp_is_reserved() {
    let mut bench = Bench::unreserved();
    let stamp = bench.stamp(FIRST, 1);
    let decided = bench.say(read(1, stamp));
    let [Decision::Reserve { until }] = decided[..] else { panic!("{decided:?}") };
    assert!(until >= stamp.clock);
    let mut deferred = Vec::new();
    bench.decide(|scheduler, cx| deferred = scheduler.on_reserved(cx));
    assert_eq!(deferred, [(FIRST, read(1, stamp))]);
    let decided = bench.say(read(1, stamp));
    assert!(matches!(decided[..], [Decision::Serve { step: Step::Read, .. }]), "{decided:?}");
}

#[test]
fn a_prewrite_below_a_read_is_refused_with_the_stamp_to_exceed() {
    let mut bench = Bench::new();
    let (early, late) = (bench.stamp(SECOND_HOST, 1), bench.stamp(FIRST, 2));
    bench.say(read(2, late));
    let refusal = Refusal::TooLate { seen: late };
    let refused = Decision::Refuse { transaction: id(1, early), step: Step::Prewrite, refusal };
    assert_eq!(bench.say(prewrite(STAMPED, 1, early, BLOCK)), [refused]);
}

#[test]
fn a_write_waits_for_a_lower_one_and_goes_on_when_that_is_committed() {
    let mut bench = Bench::new();
    let (low, high) = (bench.stamp(FIRST, 1), bench.stamp(SECOND_HOST, 2));
    bench.say(prewrite(STAMPED, 2, low, BLOCK));
    bench.say(prewrite(STAMPED, 1, high, BLOCK));
    assert_eq!(bench.say(write(STAMPED, 1, high, BLOCK)), []);
    assert_eq!(to_prepare(&bench.say(write(STAMPED, 2, low, BLOCK))), [id(2, low)]);
    let transaction = id(2, low);
    let told = |reply| Decision::Answer { host: FIRST, reply };
    let written = told(Reply::Written { transaction, waited: false });
    // Another request has waited for it since before it was prepared.
    assert_eq!(bench.prepared(transaction), [written, told(Reply::Blocked { transaction })]);
    let decided = bench.committed(transaction);
    assert_eq!(decided[0], Decision::Commit(transaction), "the commit comes before the requests that wait for it");
    assert_eq!(to_prepare(&decided), [id(1, high)]);
}

#[test]
fn a_resolved_prewrite_gets_an_abort_promise_against_its_write() {
    let (mut bench, stamp, transaction) = with_one();
    bench.say(prewrite(STAMPED, 2, stamp, BLOCK));
    let vote = Reply::Vote { transaction, vote: Vote::NeverPrepared };
    let decided = bench.say(Command::Resolve { transaction, stamp });
    assert_eq!(decided, [Decision::Answer { host: SECOND_HOST, reply: vote }]);
    assert_eq!(bench.say(write(STAMPED, 2, stamp, BLOCK)), [refused(transaction)]);
}

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

#[test]
fn an_intent_announces_its_write_and_is_refused_below_a_read() {
    let mut bench = Bench::new();
    let (low, read_at, high) = (bench.stamp(FIRST, 1), bench.stamp(SECOND_HOST, 2), bench.stamp(FIRST, 3));
    bench.say(read(5, read_at));
    let refusal = Refusal::TooLate { seen: read_at };
    let refused = Decision::Refuse { transaction: id(2, low), step: Step::Write, refusal };
    assert_eq!(bench.say(write(STAMPED, 2, low, BLOCK)), [refused]);
    assert_eq!(to_prepare(&bench.say(write(STAMPED, 3, high, BLOCK))), [id(3, high)]);
    let above = bench.stamp(SECOND_HOST, 4);
    assert_eq!(bench.say(read(6, above)), [], "it waits for the intent");
    assert_eq!(bench.say(write(STAMPED, 3, high, BLOCK)), [Decision::Ignore(Ignored::InProgress)]);
}

#[test]
fn a_write_that_takes_effect_on_arrival_is_refused_without_its_prewrite() {
    let (mut bench, stamp, transaction) = with_one();
    assert_eq!(bench.say(write(ARRIVING, 2, stamp, BLOCK)), [refused(transaction)]);
}

fn retract(sequence: u64, stamp: Stamp) -> Command {
    Command::Retract { transaction: id(sequence, stamp), stamp }
}

fn aborted(transaction: TransactionId) -> Decision {
    Decision::Answer { host: FIRST, reply: Reply::Decided { transaction, outcome: Outcome::Abort } }
}

#[test]
fn a_retracted_intent_is_undone_and_a_late_copy_of_its_write_refused() {
    let (mut bench, stamp, transaction) = with_one();
    bench.say(write(STAMPED, 2, stamp, BLOCK));
    bench.prepared(transaction);
    assert_eq!(bench.say(retract(2, stamp)), [Decision::Abort(transaction)]);
    assert_eq!(bench.decide(|scheduler, cx| scheduler.on_aborted(cx, transaction)), [aborted(transaction)]);
    assert_eq!(bench.say(write(STAMPED, 2, stamp, BLOCK)), [refused(transaction)]);
    // Its write may be later than the retraction.
    let stamp = bench.stamp(FIRST, 2);
    let transaction = id(3, stamp);
    assert_eq!(bench.say(retract(3, stamp)), [aborted(transaction)]);
    assert_eq!(bench.say(write(STAMPED, 3, stamp, BLOCK)), [refused(transaction)]);
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

#[test]
fn an_intent_that_another_host_knows_of_is_not_retracted() {
    let (mut bench, stamp, transaction) = with_one();
    bench.say(write(STAMPED, 2, stamp, BLOCK));
    bench.prepared(transaction);
    bench.say(Command::Resolve { transaction, stamp });
    let vote = Reply::Vote { transaction, vote: Vote::Prepared };
    assert_eq!(bench.say(retract(2, stamp)), [Decision::Answer { host: FIRST, reply: vote }]);
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

#[test]
fn a_lock_that_is_not_had_in_time_is_refused() {
    let mut bench = Bench::new();
    let (holder, waiter) = (bench.stamp(FIRST, 1), bench.stamp(SECOND_HOST, 2));
    bench.say(prewrite(LOCKED, 2, holder, BLOCK));
    assert_eq!(bench.say(read_of(LOCKED, 1, waiter)), []);
    let deadline = bench.scheduler.deadline().expect("every wait has a deadline");
    assert_eq!(deadline, bench.now.time.after(bench.settings.lock_timeout));
    bench.now.time = deadline;
    let refusal = Refusal::LockTimeout;
    let refused = Decision::Refuse { transaction: id(1, waiter), step: Step::Read, refusal };
    assert_eq!(bench.decide(|scheduler, cx| scheduler.time_out(cx)), [refused]);
    assert_eq!((bench.scheduler.waiting(), bench.scheduler.deadline()), (0, None));
}

#[test]
fn lease_expiry_turns_intents_into_orphans_and_arrival_writes_into_suspects() {
    let mut bench = Bench::new();
    let (prepared, announced, arrived) = (bench.stamp(FIRST, 1), bench.stamp(FIRST, 2), bench.stamp(FIRST, 3));
    bench.say(prewrite(STAMPED, 2, prepared, BLOCK));
    bench.say(write(STAMPED, 2, prepared, BLOCK));
    bench.prepared(id(2, prepared));
    bench.say(prewrite(STAMPED, 3, announced, BlockRange::new(8, 1)));
    bench.say(prewrite(ARRIVING, 4, arrived, BLOCK));
    bench.hosts.end(FIRST);
    assert_eq!(bench.decide(|scheduler, cx| scheduler.expire(cx, FIRST)), []);
    bench.decide(|scheduler, cx| {
        let (orphans, suspects) = scheduler.name_unresolved(cx);
        assert_eq!(orphans.iter().map(|orphan| orphan.transaction).collect::<Vec<_>>(), [id(2, prepared)]);
        assert_eq!(suspects.iter().map(|suspect| suspect.transaction).collect::<Vec<_>>(), [id(4, arrived)]);
    });
    assert!(bench.scheduler.ledger().views().all(|held| held.id != id(3, announced)), "nothing of it is left");
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
