//! Advisory locks: single requests, and random ones compared with a plain model.

use crate::bench::*;
use braid_machine::AdvisoryOwner;
use braid_wire::LockMode::{self, Exclusive, Shared};
use std::ops::Range;

const ONE: Generation = Generation(1);
const TWO: Generation = Generation(2);
const LOCKED: HostError = HostError::Files(FilesError::Locked);
const DEADLOCK: HostError = HostError::Files(FilesError::Deadlock);
const TOO_MANY: HostError = HostError::Files(FilesError::TooManyLocks);
const DONE: HostOutcome = Ok(HostSuccess::Files(FilesSuccess::Done));

/// One owner on each host.
struct Pair {
    bench: Bench,
    handles: BTreeMap<Generation, FileHandle>,
    /// Locks that the mounts had asked for before.
    before: u64,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let mut bench = Bench::new(seed, 3, 8192, GOOD);
        let inode = bench.create(ONE, "a");
        let hosts = bench.clients.keys().copied().collect::<Vec<_>>();
        let handles = hosts.into_iter().map(|host| (host, bench.open(host, inode))).collect();
        let before = bench.server.locks().counters().locks;
        Pair { bench, handles, before }
    }

    fn ask(&mut self, host: Generation, owner: u64, range: Range<u64>, mode: LockMode, wait: bool) -> OpId {
        let (handle, owner) = (self.handles[&host], AdvisoryOwner(owner));
        self.bench.ask(host, FilesRequest::Lock { handle, owner, range, mode, wait })
    }

    fn lock(&mut self, host: Generation, range: Range<u64>, mode: LockMode) -> Result<(), HostError> {
        let op = self.ask(host, 1, range, mode, false);
        self.bench.finish(op).map(|_| ())
    }

    fn unlock(&mut self, host: Generation, range: Range<u64>) {
        self.unlock_of(host, 1, range);
    }

    fn unlock_of(&mut self, host: Generation, owner: u64, range: Range<u64>) {
        let (handle, owner) = (self.handles[&host], AdvisoryOwner(owner));
        let unlocked = self.bench.call(host, FilesRequest::Unlock { handle, owner, range });
        assert_eq!(unlocked, Ok(FilesSuccess::Done));
    }

    /// Asks for a lock, and asserts that it waits, or how it ends soon.
    fn waits(&mut self, host: Generation, owner: u64, range: Range<u64>, mode: LockMode) -> OpId {
        let op = self.ask(host, owner, range, mode, true);
        assert_eq!(self.soon(op), None);
        op
    }

    fn ends(&mut self, host: Generation, owner: u64, range: Range<u64>, mode: LockMode, outcome: HostOutcome) {
        let op = self.ask(host, owner, range, mode, true);
        assert_eq!(self.soon(op), Some(outcome));
    }

    fn soon(&mut self, op: OpId) -> Option<HostOutcome> {
        // What came to be wanted by a promotion is called back with the next repetition.
        self.bench.pass(Duration::from_millis(600));
        self.bench.ended.get(&op).map(|(_, outcome)| outcome.clone())
    }

    /// How many locks the mounts have asked the server for, on bytes.
    fn asked(&self) -> u64 {
        self.bench.server.locks().counters().locks - self.before
    }

    fn is_locked(&mut self, host: Generation, range: Range<u64>, mode: LockMode) -> bool {
        let (handle, owner) = (self.handles[&host], AdvisoryOwner(1));
        match self.bench.call(host, FilesRequest::TestLock { handle, owner, range, mode }) {
            Ok(FilesSuccess::Tested { is_locked }) => is_locked,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.bench.unmount_all();
        }
    }
}

#[test]
fn a_waiting_lock_is_granted_in_its_turn_or_abandoned() {
    let mut pair = Pair::new(2);
    assert_eq!(pair.lock(ONE, 0..10, Exclusive), Ok(()));
    let other_owner = pair.ask(ONE, 2, 5..6, Exclusive, true);
    let abandoned = pair.ask(TWO, 1, 5..6, Exclusive, true);
    pair.bench.pass(Duration::from_secs(30));
    assert!(!pair.bench.ended.contains_key(&other_owner) && !pair.bench.ended.contains_key(&abandoned));
    pair.bench.ask_host(TWO, ArrayRequest::Abandon { ops: vec![abandoned] });
    assert_eq!(pair.bench.finish(abandoned), Err(HostError::Abandoned));
    pair.unlock(ONE, 0..10);
    assert_eq!(pair.bench.finish(other_owner), DONE);
    assert_eq!(pair.lock(TWO, 5..6, Shared), Err(LOCKED));
    let handle = pair.handles[&ONE];
    let released = pair.bench.call(ONE, FilesRequest::ReleaseOwner { handle, owner: AdvisoryOwner(2) });
    assert_eq!(released, Ok(FilesSuccess::Done));
    assert_eq!(pair.lock(TWO, 5..6, Shared), Ok(()));
}

#[test]
fn an_upgrade_that_does_not_wait_passes_those_that_do_and_never_gives_the_bytes_up() {
    let mut pair = Pair::new(5);
    assert_eq!(pair.lock(ONE, 0..10, Shared), Ok(()));
    let waiting = pair.ask(TWO, 1, 5..6, Exclusive, true);
    pair.bench.pass(Duration::from_secs(1));
    // The other owner waits for the shared lock, which is kept.
    assert_eq!(pair.lock(Generation(3), 0..3, Shared), Ok(()));
    let before = pair.bench.now.time;
    assert_eq!(pair.lock(ONE, 0..6, Exclusive), Err(LOCKED));
    assert!(pair.bench.now.time.since(before) < Duration::from_millis(5), "it does not wait");
    assert_eq!(pair.lock(ONE, 4..6, Exclusive), Ok(()));
    pair.bench.pass(Duration::from_secs(1));
    assert!(!pair.bench.ended.contains_key(&waiting), "it was not granted in between");
    assert!(pair.is_locked(ONE, 0..10, Exclusive) && !pair.is_locked(ONE, 3..10, Exclusive));
    // What each of them has is reported to the next start of the server.
    pair.bench.restart_server();
    pair.bench.pass(Duration::from_secs(20));
    assert_eq!(pair.lock(Generation(3), 5..6, Shared), Err(LOCKED));
    assert_eq!(pair.lock(Generation(3), 7..8, Shared), Ok(()));
    pair.unlock(ONE, 4..6);
    assert_eq!(pair.bench.finish(waiting), DONE);
}

#[test]
fn empty_locks_locks_with_too_many_gaps_and_owners_with_too_many_pieces_are_refused() {
    let mut pair = Pair::new(12);
    let empty = HostError::Files(FilesError::Refused(braid_wire::FileError::Malformed));
    assert_eq!(pair.lock(ONE, 5..5, Shared), Err(empty));
    let lock_in_65_pieces = |pair: &mut Pair, start: u64| {
        assert_eq!(pair.lock(ONE, start..start + 131, Exclusive), Ok(()));
        (0..64).map(|piece| start + 2 * piece + 1).for_each(|byte| pair.unlock(ONE, byte..byte + 1));
    };
    (0..32).for_each(|part| lock_in_65_pieces(&mut pair, 1000 * part));
    assert_eq!(pair.lock(ONE, 0..32_000, Exclusive), Err(TOO_MANY));
    (32..63).for_each(|part| lock_in_65_pieces(&mut pair, 1000 * part));
    assert_eq!(pair.lock(ONE, 90_000..90_001, Exclusive), Ok(()));
    assert_eq!(pair.lock(ONE, 90_002..90_003, Exclusive), Err(TOO_MANY));
    assert_eq!(pair.lock(ONE, 90_001..90_002, Exclusive), Ok(()), "it is one piece with the byte before");
    let (handle, owner) = (pair.handles[&ONE], AdvisoryOwner(1));
    let cut = FilesRequest::Unlock { handle, owner, range: 129..130 };
    assert_eq!(pair.bench.call(ONE, cut), Err(TOO_MANY));
    pair.ends(ONE, 2, 90_002..90_003, Exclusive, DONE);
    pair.unlock(ONE, 0..1);
    assert_eq!(pair.lock(ONE, 0..20_000, Exclusive), Ok(()));
}

#[test]
fn a_lock_makes_other_requests_of_its_owner_ask_again_only_if_they_overlap() {
    let mut pair = Pair::new(14);
    assert_eq!(pair.lock(TWO, 0..10, Exclusive), Ok(()));
    // From its first lock on, the owner passes others that wait.
    assert_eq!(pair.lock(ONE, 15..16, Exclusive), Ok(()));
    let [near, far] = [0..5, 8..9].map(|range| pair.waits(ONE, 1, range, Exclusive));
    let before = pair.asked();
    (1..10).for_each(|round| assert_eq!(pair.lock(ONE, 20 * round..20 * round + 1, Exclusive), Ok(())));
    assert_eq!(pair.asked(), before + 9);
    pair.unlock(TWO, 3..4);
    assert_eq!(pair.lock(ONE, 3..4, Exclusive), Ok(()));
    assert_eq!((pair.soon(near), pair.asked()), (None, before + 11), "it misses less now");
    pair.unlock(TWO, 0..10);
    assert_eq!((pair.soon(near), pair.soon(far)), (Some(DONE), Some(DONE)));
}

#[test]
fn a_mount_that_was_suspended_asks_again_for_what_was_granted_before() {
    let mut pair = Pair::new(18);
    assert_eq!(pair.lock(ONE, 0..10, Exclusive), Ok(()));
    let op = pair.waits(TWO, 1, 0..10, Exclusive);
    let before = pair.asked();
    pair.unlock(ONE, 0..10);
    let until = pair.bench.now.time.after(Duration::from_secs(1));
    while pair.bench.server.locks().engine().lock_counts().any(|(host, _, waiting)| host == TWO && waiting > 0) {
        assert!(pair.bench.happen(until));
    }
    assert!(!pair.bench.ended.contains_key(&op), "the answer is under way");
    pair.bench.now.time = pair.bench.now.time.after(Duration::from_secs(4));
    assert_eq!(pair.bench.finish(op), DONE);
    assert!(pair.asked() > before, "the server may have had it fenced, and granted the bytes to another one");
}

#[test]
fn an_upgrade_that_waits_keeps_the_shared_lock_and_the_second_of_two_is_a_deadlock() {
    for (host, owner) in [(ONE, 2), (TWO, 1)] {
        let mut pair = Pair::new(15);
        for (host, owner) in [(ONE, 1), (host, owner)] {
            pair.ends(host, owner, 0..10, Shared, DONE);
        }
        let first = pair.waits(ONE, 1, 3..15, Exclusive);
        assert_eq!(pair.lock(Generation(3), 3..4, Exclusive), Err(LOCKED), "it is shared still");
        // Not the same bytes: it waits for the other one, which does not wait for it.
        pair.ends(host, owner, 4..12, Exclusive, Err(DEADLOCK));
        assert_eq!(pair.lock(Generation(3), 9..10, Exclusive), Err(LOCKED), "what it had it has");
        pair.unlock_of(host, owner, 0..10);
        assert_eq!(pair.soon(first), Some(DONE));
        pair.unlock(ONE, 0..10);
        // By `flock`, each gives up what it shares, also if it is refused.
        let whole = (1 << 50) - 1..1 << 50;
        for (host, owner) in [(ONE, 1), (host, owner)] {
            pair.ends(host, owner, whole.clone(), Shared, DONE);
        }
        assert_eq!(pair.lock(ONE, whole.clone(), Exclusive), Err(LOCKED));
        pair.ends(host, owner, whole.clone(), Exclusive, DONE);
        [(host, owner), (ONE, 1)]
            .into_iter()
            .for_each(|(host, owner)| pair.ends(host, owner, whole.clone(), Shared, DONE));
        let first = pair.waits(ONE, 1, whole.clone(), Exclusive);
        pair.waits(host, owner, whole, Exclusive);
        assert_eq!(pair.soon(first), Some(DONE));
    }
}

#[test]
fn owners_of_a_mount_that_would_wait_in_a_circle_are_refused() {
    let mut pair = Pair::new(16);
    (1..4).for_each(|owner| pair.ends(ONE, owner, owner..owner + 1, Shared, DONE));
    let [one, two] = [1, 2].map(|owner| pair.waits(ONE, owner, owner + 1..owner + 2, Exclusive));
    pair.ends(ONE, 3, 1..4, Exclusive, Err(DEADLOCK));
    pair.unlock_of(ONE, 3, 3..4);
    assert_eq!((pair.soon(one), pair.soon(two)), (None, Some(DONE)));
}

#[test]
fn a_lock_over_more_pieces_than_a_message_names_is_granted() {
    let mut pair = Pair::new(20);
    (0..600).for_each(|byte| assert_eq!(pair.lock(ONE, byte..byte + 1, Shared), Ok(())));
    pair.ends(ONE, 1, 0..600, Exclusive, DONE);
    assert_eq!(pair.lock(TWO, 599..600, Shared), Err(LOCKED));
}

#[test]
fn an_owner_that_gets_its_first_lock_passes_from_then_on() {
    let mut pair = Pair::new(22);
    assert_eq!(pair.lock(Generation(3), 15..16, Exclusive), Ok(()));
    let first = pair.waits(TWO, 1, 0..20, Exclusive);
    let behind = pair.waits(ONE, 2, 5..6, Exclusive);
    pair.ends(ONE, 2, 30..31, Exclusive, DONE);
    assert_eq!((pair.soon(first), pair.soon(behind)), (None, Some(DONE)));
}

#[test]
fn a_circle_that_a_grant_closes_is_a_deadlock() {
    let mut pair = Pair::new(23);
    for (owner, byte) in [(1, 9), (2, 0), (3, 5)] {
        pair.ends(ONE, owner, byte..byte + 1, Exclusive, DONE);
    }
    let [waits, granted, refused] =
        [(1, 0), (1, 5), (2, 5)].map(|(owner, byte)| pair.waits(ONE, owner, byte..byte + 1, Exclusive));
    pair.unlock_of(ONE, 3, 5..6);
    let outcomes = [waits, granted, refused].map(|op| pair.soon(op));
    assert_eq!(outcomes, [None, Some(DONE), Some(Err(DEADLOCK))]);
}

#[test]
fn the_last_close_ends_waits_and_locks_of_all_owners() {
    let mut pair = Pair::new(24);
    assert_eq!(pair.lock(ONE, 0..10, Exclusive), Ok(()));
    let waits = pair.waits(ONE, 2, 5..6, Exclusive);
    let handle = pair.handles[&ONE];
    assert_eq!(pair.bench.call(ONE, FilesRequest::Close { handle }), Ok(FilesSuccess::Done));
    assert_eq!(pair.soon(waits), Some(Err(HostError::Abandoned)));
    assert_eq!(pair.lock(TWO, 0..10, Exclusive), Ok(()));
}

#[test]
fn owners_with_locks_and_locks_that_do_not_wait_pass_requests_that_wait() {
    for (host, owner) in [(ONE, 2), (TWO, 1)] {
        let mut pair = Pair::new(17);
        assert_eq!(pair.lock(ONE, 0..10, Exclusive), Ok(()));
        assert_eq!(pair.lock(Generation(3), 30..31, Exclusive), Ok(()));
        let all = pair.waits(host, owner, 0..40, Exclusive);
        pair.ends(ONE, 1, 10..20, Exclusive, DONE);
        let held = pair.waits(ONE, 1, 25..31, Exclusive);
        let before = pair.bench.now.time;
        for (host, owner, range, outcome) in [
            (TWO, 5, 20..21, DONE),
            (ONE, 5, 21..22, DONE),
            (ONE, 6, 19..20, Err(LOCKED)),
            (TWO, 6, 21..22, Err(LOCKED)),
        ] {
            let op = pair.ask(host, owner, range, Exclusive, false);
            assert_eq!(pair.bench.finish(op), outcome);
        }
        assert!(pair.bench.now.time.since(before) < Duration::from_millis(5), "none of them waits");
        pair.unlock(Generation(3), 30..31);
        assert_eq!((pair.soon(held), pair.soon(all)), (Some(DONE), None));
        pair.unlock(ONE, 0..40);
        pair.unlock_of(TWO, 5, 0..40);
        assert_eq!(pair.soon(all), None);
        pair.unlock_of(ONE, 5, 0..40);
        assert_eq!(pair.soon(all), Some(DONE));
    }
}

#[test]
fn two_requests_of_one_owner_do_not_wait_for_each_other() {
    let mut pair = Pair::new(4);
    assert_eq!(pair.lock(TWO, 0..10, Exclusive), Ok(()));
    let ops = [pair.ask(ONE, 1, 0..5, Exclusive, true), pair.ask(ONE, 1, 3..8, Shared, true)];
    pair.unlock(TWO, 0..10);
    for op in ops {
        assert_eq!(pair.bench.finish(op), DONE);
    }
    pair.bench.pass(Duration::from_millis(5));
}

#[test]
fn a_mount_keeps_what_was_unlocked_until_another_one_wants_it_or_the_file_is_closed() {
    let mut pair = Pair::new(7);
    for byte in 0..5 {
        assert_eq!(pair.lock(ONE, byte..byte + 1, Exclusive), Ok(()));
        pair.unlock(ONE, byte..byte + 1);
    }
    assert_eq!(pair.asked(), 5);
    for byte in (0..5).chain(0..5) {
        assert_eq!(pair.lock(ONE, byte..5, Exclusive), Ok(()));
        let other_owner = pair.ask(ONE, 2, byte..byte + 1, Shared, false);
        assert_eq!(pair.bench.finish(other_owner), Err(LOCKED));
        pair.unlock(ONE, 0..5);
    }
    assert_eq!(pair.asked(), 5, "all of it was kept");
    assert_eq!(pair.lock(ONE, 1..4, Exclusive), Ok(()));
    pair.unlock(ONE, 2..3);
    assert_eq!(pair.lock(TWO, 2..3, Exclusive), Ok(()), "it was only kept");
    assert_eq!((pair.lock(TWO, 0..1, Shared), pair.lock(ONE, 0..1, Shared)), (Ok(()), Ok(())));
    assert_eq!(pair.asked(), 7, "the mount still may share what another one shares");
    let before = pair.bench.now.time;
    assert_eq!((pair.lock(TWO, 3..4, Shared), pair.lock(ONE, 2..3, Shared)), (Err(LOCKED), Err(LOCKED)));
    assert!(pair.bench.now.time.since(before) < Duration::from_millis(5), "the other mount says that it is in use");
    pair.unlock(ONE, 0..5);
    pair.bench.cut = Some(ONE);
    let before = pair.bench.now.time;
    assert_eq!(pair.lock(TWO, 4..5, Shared), Err(LOCKED), "a silent mount has not given it back");
    assert!(pair.bench.now.time.since(before) < Duration::from_secs(1));
    pair.bench.cut = None;
    for host in [ONE, TWO] {
        let handle = pair.handles[&host];
        pair.unlock(host, 0..5);
        assert_eq!(pair.bench.call(host, FilesRequest::Close { handle }), Ok(FilesSuccess::Done));
    }
    pair.bench.pass(Duration::from_secs(2));
    let advisory = |(_, extent): &(_, braid_wire::LockExtent)| extent.position == braid_wire::ADVISORY_LOCKS;
    let kept = |host| pair.bench.clients[&host].held_locks().filter(advisory).count();
    assert_eq!((kept(ONE), kept(TWO)), (0, 0));
    let recalls = pair.bench.server.locks().counters().recalls;
    assert_eq!(pair.lock(Generation(3), 0..u64::MAX, Exclusive), Ok(()));
    assert_eq!(pair.bench.server.locks().counters().recalls, recalls, "nothing had to be given back");
}

type Owner = (Generation, u64);

/// What each owner has locked, byte by byte, and what it waits for.
#[derive(Default)]
struct Model {
    locked: BTreeMap<Owner, BTreeMap<u64, LockMode>>,
    waits: BTreeMap<Owner, (OpId, Range<u64>, LockMode)>,
}

impl Model {
    fn conflicts(&self, owner: Owner, range: &Range<u64>, mode: LockMode) -> bool {
        let others = self.locked.iter().filter(|(other, _)| **other != owner).flat_map(|(_, bytes)| bytes);
        others.into_iter().any(|(byte, held)| range.contains(byte) && held.conflicts(mode))
    }

    /// The same, also with what others wait for.
    fn may_conflict(&self, owner: Owner, range: &Range<u64>, mode: LockMode) -> bool {
        let mut others = self.waits.iter().filter(|(other, _)| **other != owner);
        others.any(|(_, (_, other, wanted))| range.clone().any(|byte| other.contains(&byte)) && mode.conflicts(*wanted))
            || self.conflicts(owner, range, mode)
    }

    /// Takes in what has ended of what was waited for.
    fn look(&mut self, seed: u64, bench: &Bench) {
        let ended: Vec<_> = self.waits.extract_if(.., |_, (op, ..)| bench.ended.contains_key(op)).collect();
        let granted = || ended.iter().filter(|(_, (op, ..))| bench.ended[op].1 == DONE);
        for (owner, (_, range, mode)) in granted() {
            self.locked.entry(*owner).or_default().extend(range.clone().map(|byte| (byte, *mode)));
        }
        let is_right =
            |(owner, (_, range, mode)): &(Owner, (_, Range<u64>, LockMode))| !self.conflicts(*owner, range, *mode);
        assert!(granted().all(is_right), "seed {seed}: {ended:?}");
    }
}

/// Locks that are granted never conflict, whatever is granted, refused, unlocked and cut, and who waits; no request waits for nothing; and at
/// the end everything can be locked.
#[test]
fn granted_locks_never_conflict() {
    for seed in 0..60 {
        let (mut pair, mut rng, mut model) = (Pair::new(seed), Rng::new(seed), Model::default());
        let is_bad = seed % 2 == 1;
        pair.bench.network = if is_bad { BAD } else { GOOD };
        for step in 0..80 {
            let (host, owner) = (Generation(rng.between(1, 3) as u32), rng.between(1, 2));
            let start = rng.below(20);
            let range = start..start + rng.between(1, 8);
            let key = (host, owner);
            let handle = pair.handles[&host];
            model.look(seed, &pair.bench);
            if model.waits.contains_key(&key) {
                continue;
            }
            let mode = if rng.chance(1, 2) { Shared } else { Exclusive };
            match rng.below(6) {
                5 => {
                    let op = pair.ask(host, owner, range.clone(), mode, true);
                    model.waits.insert(key, (op, range, mode));
                    pair.bench.pass(Duration::from_micros(rng.below(1000)));
                }
                0..3 => {
                    let op = pair.ask(host, owner, range.clone(), mode, false);
                    match pair.bench.finish(op) {
                        Ok(_) => {
                            model.look(seed, &pair.bench);
                            assert!(!model.conflicts(key, &range, mode), "seed {seed}, step {step}: {key:?} {range:?}");
                            model.locked.entry(key).or_default().extend(range.map(|byte| (byte, mode)));
                        }
                        Err(error) => {
                            assert_eq!(error, LOCKED, "seed {seed}");
                            let is_right = is_bad || model.may_conflict(key, &range, mode);
                            assert!(is_right, "seed {seed}, step {step}: {key:?} {range:?} is only kept elsewhere");
                        }
                    }
                }
                3 => {
                    let unlock = FilesRequest::Unlock { handle, owner: AdvisoryOwner(owner), range: range.clone() };
                    assert_eq!(pair.bench.call(host, unlock), Ok(FilesSuccess::Done));
                    model.locked.entry(key).or_default().retain(|byte, _| !range.contains(byte));
                }
                _ if rng.chance(1, 3) => {
                    let release = FilesRequest::ReleaseOwner { handle, owner: AdvisoryOwner(owner) };
                    assert_eq!(pair.bench.call(host, release), Ok(FilesSuccess::Done));
                    model.locked.remove(&key);
                }
                _ => {
                    let (owner, range_asked) = (AdvisoryOwner(owner), range.clone());
                    let test = FilesRequest::TestLock { handle, owner, range: range_asked, mode };
                    let tested = pair.bench.call(host, test);
                    model.look(seed, &pair.bench);
                    let conflicts = model.conflicts(key, &range, mode);
                    let is_free = tested == Ok(FilesSuccess::Tested { is_locked: false });
                    assert!(!(is_free && conflicts), "seed {seed}, step {step}: {key:?} {range:?}");
                    let is_right = is_bad || is_free || model.may_conflict(key, &range, mode);
                    assert!(is_right, "seed {seed}, step {step}: {key:?} {range:?}");
                }
            }
        }
        pair.bench.network = GOOD;
        for (host, owner) in [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)] {
            let host = Generation(host);
            pair.bench.pass(Duration::from_secs(5));
            model.look(seed, &pair.bench);
            let is_right = |(key, (_, range, mode)): (&Owner, &(_, _, _))| model.may_conflict(*key, range, *mode);
            assert!(model.waits.iter().all(is_right), "seed {seed}: none waits for nothing: {:?}", model.waits);
            let release = FilesRequest::ReleaseOwner { handle: pair.handles[&host], owner: AdvisoryOwner(owner) };
            assert_eq!(pair.bench.call(host, release), Ok(FilesSuccess::Done));
            model.locked.remove(&(host, owner));
        }
        pair.bench.pass(Duration::from_secs(5));
        assert_eq!(pair.lock(ONE, 0..u64::MAX, Exclusive), Ok(()), "seed {seed}");
    }
}

/// As on one mount: owner 1 waits for owner 5 alone, and passes owner 3, which is queued before it or asks the server first.
#[test]
fn an_owner_that_has_locks_passes_another_one_of_its_mount_that_waits_for_a_second_mount() {
    for (shared, asks) in [(0..4, [(3, 1..6), (1, 5..9)]), (9..10, [(1, 5..9), (3, 8..10)])] {
        let mut pair = Pair::new(40);
        let shares = [(TWO, 5, 5..8), (TWO, 1, 22..24), (ONE, 2, shared), (TWO, 3, 11..12)];
        shares.into_iter().for_each(|(host, owner, range)| pair.ends(host, owner, range, Shared, DONE));
        let asked = BTreeMap::from(asks.map(|(owner, range)| (owner, pair.waits(TWO, owner, range, Exclusive))));
        let second = pair.waits(ONE, 2, 22..23, Exclusive);
        for (host, owner, then) in [(TWO, 5, asked[&1]), (TWO, 1, second), (ONE, 2, asked[&3])] {
            pair.unlock_of(host, owner, 0..100);
            assert_eq!(pair.soon(then), Some(DONE));
        }
    }
}

#[test]
fn an_upgrade_that_wants_nothing_of_what_another_one_shares_is_no_deadlock() {
    let mut pair = Pair::new(41);
    let shares = [(ONE, 0..1), (TWO, 9..21), (Generation(3), 22..23)];
    shares.into_iter().for_each(|(host, range)| pair.ends(host, 1, range, Shared, DONE));
    pair.waits(ONE, 1, 0..10, Exclusive);
    // It waits for the third one.
    pair.waits(TWO, 1, 5..25, Exclusive);
}
