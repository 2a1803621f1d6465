//! Swarm runs of the lock: writers, readers and single requests; some clients crash, some are late, and some receive no answers.

use crate::bench::{FaultRates, Me, ROUGH, World, space};
use crate::written::{append, check_reports, records, taken};
use braid_base::{ObjectId, Time};
use braid_recipes::fencing_token::unguard;
use braid_recipes::idempotency_record::IdempotencyRecord;
use braid_recipes::lock::{Grant, Lock, LockError, LockOptions, Mode};
use braid_recipes::{Answer, RequestFailure};
use braid_wire::{Action, ActionResult, AttributeName, CommandResult, ObjectRequest};
use std::time::Duration;

const LOCKS: ObjectId = ObjectId(1);
const DATA: ObjectId = ObjectId(2);
const WORD: AttributeName = AttributeName::new(1, 7);
const TOKEN: AttributeName = AttributeName::new(2, 7);

/// A period in which a client held the lock.
#[derive(Debug)]
struct Held {
    token: u64,
    mode: Mode,
    client: usize,
    /// When it learned that, and until when it was sure; in true time.
    from: Time,
    sure: Time,
}

/// What the clients have observed.
#[derive(Default)]
struct Log {
    token: u64,
    held: Vec<Held>,
    taken: u64,
    refused: u64,
    lost: u64,
    once: u64,
    /// Last writes that were reported as executed, and those reported as not executed.
    happened: Vec<[u64; 3]>,
    not_happened: Vec<[u64; 3]>,
    /// How many have an unknown outcome.
    unknowns: u64,
}

fn lock(idempotency_record: Option<IdempotencyRecord>) -> Lock {
    Lock::new(
        LOCKS,
        WORD,
        LockOptions {
            lease: Duration::from_secs(3),
            first_pause: Duration::from_millis(5),
            longest_pause: Duration::from_millis(500),
            patience: Duration::from_secs(40),
            idempotency_record,
        },
    )
}

fn read() -> ObjectRequest {
    space::one(DATA, Action::Stat)
}

/// This many rounds of random operations.
async fn lives(me: Me<Log>, lock: Lock, rounds: u64) {
    for round in (1..=rounds).rev() {
        me.sleep(Duration::from_millis(1)).await;
        let name = format!("client {}", me.client());
        match me.below(4) {
            0 | 1 => {
                if let Ok(grant) = me.run(lock.acquire(&name[..])).await {
                    note(&me, &grant);
                    writes(&me, grant).await;
                }
            }
            2 => {
                if let Ok(grant) = me.run(lock.share(&name[..])).await {
                    note(&me, &grant);
                    reads(&me, grant).await;
                }
            }
            _ => {
                // It does not know its token: its record consists of the client's number and the round.
                let record = [u64::MAX, me.client() as u64, round];
                let end = me.run(lock.once(&name[..], append(DATA, record)).unwrap()).await;
                me.observed().once += u64::from(matches!(end, Ok(Some(_))));
                told(&me, record, end);
            }
        }
    }
    me.sleep(Duration::from_millis(1)).await;
}

fn note(me: &Me<Log>, grant: &Grant) {
    let sure = me.true_now().after(grant.sure_until().since(me.now()));
    let (token, mode, client, from) = (grant.token(), grant.mode(), me.client(), me.true_now());
    me.observed().held.push(Held { token, mode, client, from, sure });
}

/// From now on it does not use the lock any more.
fn ends(me: &Me<Log>, grant: &Grant) {
    let now = me.true_now();
    note_sure(me, grant, |sure| sure.min(now));
}

/// Sets until when the client was sure of its hold.
fn note_sure(me: &Me<Log>, grant: &Grant, sure: impl FnOnce(Time) -> Time) {
    let mut observed = me.observed();
    let mut held = observed.held.iter_mut().rev();
    let held = held.find(|held| (held.token, held.client) == (grant.token(), me.client())).expect("it was recorded");
    held.sure = sure(held.sure);
}

/// Records the reported outcome of commands that were part of a release, or of a single request.
fn told(me: &Me<Log>, record: [u64; 3], end: Result<Option<Vec<CommandResult>>, LockError>) {
    match end {
        Ok(_) => me.observed().happened.push(record),
        Err(LockError::RequestFailure(RequestFailure::Unknown)) => me.observed().unknowns += 1,
        Err(_) => me.observed().not_happened.push(record),
    }
}

/// Writes twice, or until it is refused; in between, it may pause for longer than its lease, or renew.
async fn writes(me: &Me<Log>, mut grant: Grant) {
    let note_lost = |is_lost: bool| me.observed().lost += u64::from(is_lost);
    let mut done = 0;
    loop {
        me.sleep(Duration::from_millis(10)).await;
        let record = [grant.token(), me.client() as u64, done];
        if done == 2 {
            ends(me, &grant);
            return match me.below(3) {
                0 => note_lost(me.run(grant.release()).await == Err(LockError::Lost)),
                1 => told(me, record, me.run(grant.release_with(append(DATA, record)).unwrap()).await),
                // It forgets that it holds the lock.
                _ => {}
            };
        }
        if me.chance(1, 4) {
            grant = match me.run(grant.renew()).await {
                Ok(grant) => grant,
                Err(error) => return note_lost(error == LockError::Lost),
            };
            // If the outcome arrived in time.
            let (now, left) = (me.true_now(), grant.sure_until().since(me.now()));
            if !left.is_zero() {
                note_sure(me, &grant, |_| now.after(left));
            }
            continue;
        }
        let thinks = if me.chance(1, 10) { Duration::from_secs(5) } else { Duration::from_millis(20) };
        let answer = me.ask(grant.guard(append(DATA, record)).unwrap()).await;
        if let Answer::Results(_) = &answer {
            if !taken(&answer) {
                me.observed().refused += 1;
                return;
            }
            me.observed().taken += 1;
        }
        me.sleep(thinks).await;
        done += 1;
    }
}

/// Reads twice: no client writes during a hold of readers.
async fn reads(me: &Me<Log>, grant: Grant) {
    let length = |answer: Answer| match answer {
        Answer::Results(results) => match unguard(results).ok()?.remove(0).action {
            ActionResult::Stat { length, .. } => Some(length),
            other => panic!("{other:?}"),
        },
        _ => None,
    };
    let first = length(me.ask(grant.guard(read()).unwrap()).await);
    me.sleep(Duration::from_millis(300)).await;
    let second = length(me.ask(grant.guard(read()).unwrap()).await);
    ends(me, &grant);
    if let (Some(first), Some(second)) = (first, second) {
        assert_eq!(first, second, "one hold at a time: no write takes effect while readers hold the lock");
    }
    let _ = me.run(grant.release()).await;
}

fn swarm(seed: u64, rates: FaultRates, idempotency_records: bool) -> Log {
    let mut world = World::new(seed, rates, &[LOCKS, DATA], Log::default());
    world.after_each(|log, space| {
        let token = space.number(LOCKS, TOKEN);
        assert!(token >= log.token, "tokens grow");
        log.token = token;
    });
    for number in 0..5 {
        let lock = lock(idempotency_records.then_some(IdempotencyRecord(number)));
        world.client(|me| lives(me, lock, 12));
    }
    world.run();
    // Whatever has happened, a new client gets the lock.
    world.rates = crate::bench::CALM;
    let came = world.now;
    world.immortal(async move |me| {
        let grant = me.run(lock(None).acquire("last")).await.expect("no lock is lost forever");
        let waited = me.true_now().since(came);
        assert!(waited < Duration::from_secs(4), "it is obtained after a lease at the latest, not {waited:?}");
        note(&me, &grant);
        let _ = me.run(grant.release()).await;
    });
    world.run();
    let data = world.space.bytes(DATA);
    check(&world.observed(), &data);
    std::mem::take(&mut *world.observed())
}

/// Checks by the accepted writes that there was one hold at a time.
fn check(log: &Log, data: &[u8]) {
    let records = records(data);
    let mut tokens = 0;
    for (at, record) in records.iter().enumerate() {
        let [token, client, write] = *record;
        assert!(!records[..at].contains(record) || token != u64::MAX, "once is once: {record:?}");
        if token == u64::MAX {
            // A single request under the lock: the hold before it is over.
            tokens += 1;
            continue;
        }
        assert!(token >= tokens, "one hold at a time: {record:?} after {:?}", records[at - 1]);
        tokens = token;
        for [token, other, before] in records[..at].iter().filter(|record| record[0] == token) {
            assert!(*other == client, "token {token} is {client}'s, and {other}'s");
            assert!(*before < write, "each write once, and in order: token {token}");
        }
    }
    check_reports(&records, &log.happened, &log.not_happened);
    for (at, held) in log.held.iter().enumerate() {
        for other in &log.held[at + 1..] {
            if (held.mode, other.mode) == (Mode::Shared, Mode::Shared) {
                continue;
            }
            assert!(held.token != other.token, "a token belongs to one hold");
            // The clients learned of their holds in some order; the tokens give the order of the holds.
            let (former, later) = if held.token < other.token { (held, other) } else { (other, held) };
            assert!(former.sure <= later.from.max(former.from), "{later:?} was granted while {former:?} was sure");
        }
    }
}

#[test]
fn swarms() {
    let (mut taken, mut refused, mut lost, mut once) = (0, 0, 0, 0);
    for seed in 0..300 {
        let log = swarm(seed, ROUGH, seed % 2 == 0);
        taken += log.taken;
        refused += log.refused;
        lost += log.lost;
        once += log.once;
    }
    assert!(taken > 1000 && refused > 20 && lost > 20 && once > 100, "{taken} {refused} {lost} {once}");
}

#[test]
fn swarm_runs_with_no_deaths_and_many_lost_messages() {
    let (mut known, mut unknowns, mut left) = (0, 0, 0);
    for seed in 0..100 {
        let rates = FaultRates { death: 0, unknown: 200, straggling: 5, ..ROUGH };
        let log = swarm(seed, rates, false);
        known += log.happened.len() + log.not_happened.len();
        unknowns += log.unknowns;
        left += swarm(seed, rates, true).unknowns;
    }
    assert!(
        left * 10 < unknowns,
        "{left} unknown outcomes in spite of an idempotency record: only if the device is silent to the end"
    );
    assert!(known as u64 > 4 * unknowns, "the fate of {known} last writes was known, and of {unknowns} not");
}
