//! Tests of memberships, case by case: writes that other devices have missed, and records that are dropped when this device has been out.

use crate::protocol::*;

/// The store's own device, and two other participants.
const OWN: DeviceId = DeviceId(2);
const OTHER: DeviceId = DeviceId(1);
const THIRD: DeviceId = DeviceId(3);
const NOT_REDUNDANT: ObjectId = ObjectId(8);
const RETURNING: MemberState = MemberState::Returning { recovery_coordinator: None };

/// A membership in which all devices are in since the first epoch, except `others`.
fn membership(epoch: u32, others: &[(DeviceId, MemberState, u32)]) -> Membership {
    let mut membership = Membership::first([OTHER, OWN, THIRD, DeviceId(4)]);
    membership.epoch = Epoch(epoch);
    for (device, member_state, since) in others {
        let member = Member { device: *device, member_state: *member_state, since: Epoch(*since) };
        *membership.member_mut(*device).expect("it is a member") = member;
    }
    membership
}

impl Bench {
    /// Adds a redundant object and one that is not, and adopts a membership in which all devices are in.
    fn with_members(mut self) -> Bench {
        for (object, redundant) in [(OBJECT, true), (NOT_REDUNDANT, false)] {
            let description = ObjectDescription { redundant, ..ObjectDescription::new(object, 100) };
            assert_eq!(self.create(description, 0), Ok(()));
        }
        assert_eq!(self.adopt(membership(1, &[])), []);
        self
    }

    fn adopt(&mut self, membership: Membership) -> Vec<u64> {
        self.store.adopt(9, membership, &mut self.out);
        self.run();
        match self.events.pop_front() {
            Some(StoreEvent::Adopted { ticket: 9, dropped }) => dropped.iter().map(|id| id.sequence).collect(),
            event => panic!("adopted a membership, but got {event:?}"),
        }
    }

    fn missed(&self, device: DeviceId, object: ObjectId) -> Vec<(u64, u64)> {
        let (extents, next) = self.store.missed(device, object, 0);
        assert_eq!(next, None);
        extents.iter().map(|extent| (extent.start, extent.count)).collect()
    }

    fn prepare_at(&mut self, sequence: u64, epoch: u32, first: u64, last: u64) {
        assert_eq!(self.prepare(written(sequence, epoch, first, last)), Ok(()));
    }

    fn write_at(&mut self, sequence: u64, epoch: u32, first: u64, last: u64) {
        self.prepare_at(sequence, epoch, first, last);
        self.commit(sequence);
    }
}

/// A write to block `sequence` in an epoch, part of a hostwrite from `first` to `last`. This device and another one are the participants.
fn written(sequence: u64, epoch: u32, first: u64, last: u64) -> Intent {
    Intent {
        epoch: Epoch(epoch),
        linkage: Linkage { first, last },
        ..intent(sequence, vec![data(sequence % 100, 1, sequence)])
    }
}

fn elsewhere(intent: Intent) -> Intent {
    Intent { object: NOT_REDUNDANT, ..intent }
}

#[test]
fn a_device_that_goes_out_has_not_missed_what_is_remembered_only_for_its_host() {
    let mut bench = Bench::new(1).with_members();
    bench.write_at(1, 1, 10, 10);
    bench.write_at(2, 1, 20, 20);
    bench.store.nobody_misses(transaction(2));
    bench.write_at(3, 1, 30, 30);
    for (restarts, member_state) in [(0, MemberState::Out), (1, RETURNING), (2, MemberState::Out)] {
        let epoch = 2 + restarts;
        bench.adopt(membership(epoch, &[(OTHER, member_state, epoch)]));
        assert_eq!(bench.missed(OTHER, OBJECT), [(10, 1), (30, 1)]);
        let recovered = bench.restart_here();
        assert_eq!(bench.missed(OTHER, OBJECT), [(10, 1), (30, 1)], "the same after a restart");
        let remembered = recovered.commits.iter().map(|commit| commit.transaction.sequence);
        assert_eq!(remembered.collect::<Vec<_>>(), [1, 2, 3]);
    }
}

#[test]
fn a_device_that_goes_out_has_missed_what_is_undecided_or_unconfirmed() {
    let mut bench = Bench::new(1).with_members();
    bench.write_at(1, 1, 10, 10);
    bench.write_at(2, 1, 20, 20);
    bench.store.forget(transaction(2));
    bench.prepare_at(3, 1, 30, 30);
    assert_eq!(bench.prepare(elsewhere(written(4, 1, 40, 40))), Ok(()));
    assert_eq!(bench.prepare(Intent { participants: vec![OWN, THIRD], ..written(5, 1, 50, 50) }), Ok(()));
    bench.adopt(membership(2, &[(OTHER, MemberState::Out, 2)]));
    // The device had no part in transaction 5, so it misses it only if that is committed.
    assert_eq!(bench.counter("extents_missed"), 2);
    assert_eq!(bench.missed(OTHER, OBJECT), [(10, 1), (30, 1), (50, 1)]);
    bench.abort(3);
    bench.abort(5);
    assert_eq!(bench.missed(OTHER, OBJECT), [(10, 1), (30, 1)], "a recorded extent stays");
}

#[test]
fn missed_blocks_stay_on_record_until_the_object_is_removed() {
    let mut bench = Bench::new(1).with_members();
    bench.prepare_at(1, 1, 500, 500);
    bench.adopt(membership(2, &[(OTHER, MemberState::Out, 2)]));
    // More extents than one record holds.
    let mut expected: Vec<(u64, u64)> = vec![(500, 1)];
    for sequence in 2..700 {
        bench.write_at(sequence, 2, sequence * 1000, sequence * 1000);
        expected.push((sequence * 1000, 1));
    }
    assert!(bench.counter("checkpoints") > 0);
    for _ in 0..2 {
        assert_eq!(bench.missed(OTHER, OBJECT), expected);
        let recovered = bench.restart_here();
        assert_eq!(recovered.membership.as_ref(), bench.store.membership());
        assert_eq!(recovered.membership.map(|membership| membership.epoch), Some(Epoch(2)));
        assert_eq!(recovered.intents[0].epoch, Epoch(1));
        assert_eq!(recovered.intents[0].linkage, Linkage { first: 500, last: 500 });
    }
    bench.store.log(5, Logged::Removed(OBJECT), &mut bench.out);
    bench.settle();
    bench.events.clear();
    assert_eq!(bench.counter("extents_missed"), 0);
    let (bench, _) = bench.restart().expect("nothing is wrong");
    assert_eq!(bench.counter("extents_missed"), 0);
}

#[test]
fn a_long_answer_comes_in_parts() {
    let mut bench = Bench::with_journal(4 << 20, 1).with_members();
    bench.adopt(membership(2, &[(OTHER, MemberState::Out, 2)]));
    let count = limits::EXTENTS_MAX as u64 + 60;
    for sequence in 1..=count {
        bench.write_at(sequence, 2, sequence * 10, sequence * 10);
    }
    let mut expected: BTreeSet<u64> = (1..=count).map(|sequence| sequence * 10).collect();
    let parts = |bench: &Bench, expected: &BTreeSet<u64>| {
        let (mut found, mut parts, mut from) = (Vec::new(), Vec::new(), Some(0));
        while let Some(at) = from {
            let (extents, next) = bench.store.missed(OTHER, OBJECT, at);
            assert!(extents.windows(2).all(|pair| pair[0].end() < pair[1].start));
            found.extend(extents.iter().flat_map(|extent| extent.blocks()));
            parts.push(extents.len());
            from = next;
        }
        assert_eq!(found, expected.iter().copied().collect::<Vec<_>>());
        parts
    };
    assert_eq!(parts(&bench, &expected), [limits::EXTENTS_MAX, 60]);
    // Undecided intents behind, between and over the recorded extents.
    let undecided = [(0, 3), (93, 95), (15_000, 16_000), (20_473, 20_478), (20_495, 20_505), (90_000, 90_100)];
    for (sequence, (first, last)) in (count + 1..).zip(undecided) {
        let intent = Intent { participants: vec![OWN, THIRD], ..written(sequence, 2, first, last) };
        assert_eq!(bench.prepare(intent), Ok(()));
        expected.extend(first..=last);
    }
    assert_eq!(parts(&bench, &expected), [limits::EXTENTS_MAX - 100 + 3, 60 + 1]);
    let (extents, next) = bench.store.missed(OTHER, OBJECT, 15_500);
    assert_eq!((extents[0], next), (BlockRange::new(15_500, 501), None));
}

#[test]
fn the_first_membership_drops_nothing_and_an_old_one_changes_nothing() {
    let mut bench = Bench::with_object(100);
    bench.prepare_at(1, 1, 10, 10);
    assert_eq!(bench.adopt(membership(7, &[(OWN, MemberState::In, 5)])), []);
    bench.prepare_at(2, 1, 10, 10);
    for epoch in [7, 6] {
        assert_eq!(bench.adopt(membership(epoch, &[(OWN, MemberState::In, 6), (OTHER, MemberState::Out, 6)])), []);
        assert_eq!(bench.missed(OTHER, OBJECT), []);
    }
    let (bench, recovered) = bench.restart().expect("nothing is wrong");
    assert_eq!(recovered.intents.len(), 2);
    assert_eq!(bench.store.membership(), Some(&membership(7, &[(OWN, MemberState::In, 5)])));
}

#[test]
fn the_journal_does_not_fill_with_what_is_missed() {
    let mut bench = Bench::new(1).with_members();
    bench.adopt(membership(2, &[(OTHER, MemberState::Out, 2), (THIRD, MemberState::Out, 2)]));
    let count = 12_000;
    for sequence in 1..=count {
        assert_eq!(bench.prepare(written(sequence, 2, sequence * 10, sequence * 10)), Ok(()));
        bench.store.commit(bench.now, transaction(sequence), &mut bench.out);
        bench.run();
        bench.events.clear();
        bench.store.forget(transaction(sequence));
    }
    let kept = bench.counter("extents_missed") * 16;
    assert!((JOURNAL / 64..JOURNAL / 32).contains(&kept), "{kept} bytes");
    for device in [OTHER, THIRD] {
        let (extents, _) = bench.store.missed(device, OBJECT, 0);
        let held = |block| extents.iter().any(|extent| extent.contains(BlockRange::new(block, 1)));
        assert!((1..=count).all(|sequence| held(sequence * 10)));
    }
    assert!(bench.counter("journal_bytes_used") < JOURNAL * 3 / 4);
}

#[test]
fn a_device_that_is_in_costs_a_commit_nothing() {
    let cost = |out: &[(DeviceId, MemberState, u32)]| {
        let mut bench = Bench::new(1).with_members();
        bench.adopt(membership(2, out));
        bench.settle();
        let before = bench.counter("disk_write_bytes");
        bench.write_at(1, 2, 10, 10);
        bench.counter("disk_write_bytes") - before
    };
    assert_eq!(cost(&[]), cost(&[(OTHER, MemberState::Out, 2)]), "a device that is out costs no more");
}

/// A membership shows that this device was out, a commit and an intent come just before it, and a checkpoint takes its snapshot at the
/// same time. After a crash, the records before that snapshot are replayed through it; if the checkpoint has ended, only the later ones.
fn adopted_as_a_checkpoint_begins(mut bench: Bench, memberships: &[Membership], ended: bool) {
    bench.prepare_at(1, 1, 10, 10);
    bench.prepare_at(2, 1, 20, 20);
    bench.fill_half_the_journal();
    bench.store.commit(bench.now, transaction(1), &mut bench.out);
    bench.store.prepare(bench.now, written(4, 1, 40, 40), &mut bench.out);
    for membership in memberships {
        bench.store.adopt(9, membership.clone(), &mut bench.out);
    }
    bench.perform();
    let dropped = StoreEvent::Adopted { ticket: 9, dropped: vec![transaction(2)] };
    while !bench.events.contains(&dropped) {
        assert!(bench.end_one(), "{:?}", bench.events);
    }
    assert!(bench.counter("journal_bytes_used") > JOURNAL / 2, "the checkpoint has not yet freed the old records");
    if ended {
        while bench.counter("checkpoints") == 0 {
            assert!(bench.end_one());
        }
        let refused = StoreEvent::Prepared { transaction: transaction(4), result: Err(Failure::Absent) };
        assert!(bench.events.contains(&refused), "{:?}", bench.events);
    }
    bench.disk.crash_hard();
    let (mut bench, recovered) = Bench::start(bench.disk, 1).expect("nothing is wrong");
    assert_eq!(recovered.membership.as_ref(), memberships.last());
    assert_eq!(recovered.intents, []);
    assert_eq!(bench.read(1, 1), Ok(pattern(1)), "it was committed before");
    assert_eq!(bench.read(2, 1), Ok(vec![0; 4096]));
}

#[test]
fn a_commit_just_before_this_device_was_out_stays_also_if_the_first_membership_is_in_the_same_batch() {
    let memberships = [membership(1, &[]), membership(4, &[(OWN, RETURNING, 3)])];
    for ended in [false, true] {
        adopted_as_a_checkpoint_begins(Bench::new(1).with_members(), &memberships[1..], ended);
        adopted_as_a_checkpoint_begins(Bench::with_object(100), &memberships, ended);
    }
}

#[test]
fn a_full_journal_takes_a_membership_with_all_that_follows_from_it() {
    let mut bench = Bench::new(1).with_members();
    let mut sequence = 0;
    // First decisions that must be remembered, then undecided intents, until no more are admitted.
    let refused = loop {
        sequence += 1;
        let participants = vec![OTHER, OWN, THIRD];
        bench.store.prepare(
            bench.now,
            Intent { participants, ..written(sequence, 1, sequence * 10, sequence * 10) },
            &mut bench.out,
        );
        bench.settle();
        let answer = bench.events.drain(..).find_map(|event| match event {
            StoreEvent::Prepared { result, .. } => Some(result),
            _ => None,
        });
        let result = answer.expect("it is answered");
        if result.is_err() {
            break result;
        }
        if bench.counter("commits_remembered") < 1000 {
            bench.store.commit(bench.now, transaction(sequence), &mut bench.out);
        }
    };
    assert_eq!(refused, Err(Failure::Busy));
    assert!(bench.counter("intents_undecided") > 10);
    bench.events.clear();
    bench.adopt(membership(2, &[(OTHER, MemberState::Out, 2), (THIRD, MemberState::Out, 2)]));
    for sequence in sequence - bench.counter("intents_undecided")..sequence {
        bench.store.commit(bench.now, transaction(sequence), &mut bench.out);
        bench.settle();
    }
    assert_eq!(bench.counter("intents_undecided"), 0);
    let (mut bench, recovered) = bench.restart().expect("nothing is wrong");
    assert_eq!(recovered.commits.len() as u64, sequence - 1);
    assert!(bench.counter("extents_missed") > 100);
    bench.store.settle(transaction(0).host, sequence);
    bench.write_at(sequence, 2, 5, 5);
}
