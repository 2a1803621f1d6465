//! Swarm runs of the lock: writers, readers and single requests; some clients crash, some are late, and some receive no answers.

use crate::bench::{Doing, FaultRates, Moment, ROUGH, World, ask, over, run, sleep, space};
use crate::written::{append, check_reports, records};
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
fn lives(lock: &Lock, rounds: u64) -> Doing<Log> {
    let lock = lock.clone();
    sleep(Duration::from_millis(1), move |moment: &mut Moment<Log>| {
        if rounds == 0 {
            return over();
        }
        let name = format!("client {}", moment.client);
        let client = moment.client as u64;
        match moment.rng.below(4) {
            0 | 1 => run(lock.acquire(&name[..]), move |moment: &mut Moment<Log>, grant| match grant {
                Ok(grant) => {
                    note(moment, &grant);
                    writes(lock, grant, rounds, 0)
                }
                Err(_) => lives(&lock, rounds - 1),
            }),
            2 => run(lock.share(&name[..]), move |moment: &mut Moment<Log>, grant| match grant {
                Ok(grant) => {
                    note(moment, &grant);
                    reads(lock, grant, rounds)
                }
                Err(_) => lives(&lock, rounds - 1),
            }),
            _ => {
                // It does not know its token: its record consists of the client's number and the round.
                let record = [u64::MAX, client, rounds];
                run(lock.once(&name[..], append(DATA, record)).unwrap(), move |moment: &mut Moment<Log>, end| {
                    moment.observed.once += u64::from(matches!(end, Ok(Some(_))));
                    told(moment, record, end);
                    lives(&lock, rounds - 1)
                })
            }
        }
    })
}

fn note(moment: &mut Moment<Log>, grant: &Grant) {
    let sure = moment.true_now.after(grant.sure_until().since(moment.now));
    let (token, mode, client, from) = (grant.token(), grant.mode(), moment.client, moment.true_now);
    moment.observed.held.push(Held { token, mode, client, from, sure });
}

/// From now on it does not use the lock any more.
fn ends(moment: &mut Moment<Log>, grant: &Grant) {
    let now = moment.true_now;
    let held = held(moment, grant);
    held.sure = held.sure.min(now);
}

fn held<'a>(moment: &'a mut Moment<Log>, grant: &Grant) -> &'a mut Held {
    let client = moment.client;
    let mut held = moment.observed.held.iter_mut().rev();
    held.find(|held| (held.token, held.client) == (grant.token(), client)).expect("it was recorded")
}

/// Records the reported outcome of commands that were part of a release, or of a single request.
fn told(moment: &mut Moment<Log>, record: [u64; 3], end: Result<Option<Vec<CommandResult>>, LockError>) {
    match end {
        Ok(_) => moment.observed.happened.push(record),
        Err(LockError::RequestFailure(RequestFailure::Unknown)) => moment.observed.unknowns += 1,
        Err(_) => moment.observed.not_happened.push(record),
    }
}

/// Writes twice, or until it is refused; in between, it may pause for longer than its lease, or renew.
fn writes(lock: Lock, grant: Grant, rounds: u64, done: u64) -> Doing<Log> {
    sleep(Duration::from_millis(10), move |moment: &mut Moment<Log>| {
        let record = [grant.token(), moment.client as u64, done];
        if done == 2 {
            ends(moment, &grant);
            return match moment.rng.below(3) {
                0 => run(grant.release(), move |moment: &mut Moment<Log>, end| {
                    moment.observed.lost += u64::from(end == Err(LockError::Lost));
                    lives(&lock, rounds - 1)
                }),
                1 => run(grant.release_with(append(DATA, record)).unwrap(), move |moment: &mut Moment<Log>, end| {
                    told(moment, record, end);
                    lives(&lock, rounds - 1)
                }),
                // It forgets that it holds the lock.
                _ => lives(&lock, rounds - 1),
            };
        }
        if moment.rng.chance(1, 4) {
            return run(grant.renew(), move |moment: &mut Moment<Log>, renewed| match renewed {
                Ok(grant) => {
                    // If the outcome arrived in time.
                    let left = grant.sure_until().since(moment.now);
                    if !left.is_zero() {
                        held(moment, &grant).sure = moment.true_now.after(left);
                    }
                    writes(lock, grant, rounds, done)
                }
                Err(LockError::Lost) => {
                    moment.observed.lost += 1;
                    lives(&lock, rounds - 1)
                }
                Err(_) => lives(&lock, rounds - 1),
            });
        }
        let thinks = if moment.rng.chance(1, 10) { Duration::from_secs(5) } else { Duration::from_millis(20) };
        ask(grant.guard(append(DATA, record)).unwrap(), move |moment: &mut Moment<Log>, answer| {
            match answer {
                Answer::Results(results) if unguard(results.clone()).is_ok() => moment.observed.taken += 1,
                Answer::Results(_) => {
                    moment.observed.refused += 1;
                    return lives(&lock, rounds - 1);
                }
                _ => {}
            }
            sleep(thinks, move |_| writes(lock, grant, rounds, done + 1))
        })
    })
}

/// Reads twice: no client writes during a hold of readers.
fn reads(lock: Lock, grant: Grant, rounds: u64) -> Doing<Log> {
    let length = |answer: Answer| match answer {
        Answer::Results(results) => match unguard(results).ok()?.remove(0).action {
            ActionResult::Stat { length, .. } => Some(length),
            other => panic!("{other:?}"),
        },
        _ => None,
    };
    ask(grant.guard(read()).unwrap(), move |_, answer| {
        let first = length(answer);
        sleep(Duration::from_millis(300), move |_| {
            ask(grant.guard(read()).unwrap(), move |moment: &mut Moment<Log>, answer| {
                ends(moment, &grant);
                if let (Some(first), Some(second)) = (first, length(answer)) {
                    assert_eq!(first, second, "one hold at a time: no write takes effect while readers hold the lock");
                }
                run(grant.release(), move |_, _| lives(&lock, rounds - 1))
            })
        })
    })
}

fn swarm(seed: u64, rates: FaultRates, idempotency_records: bool) -> Log {
    let mut world = World::new(seed, rates, &[LOCKS, DATA], Log::default());
    world.after_each(|log, space| {
        let token = space.number(LOCKS, TOKEN);
        assert!(token >= log.token, "tokens grow");
        log.token = token;
    });
    for number in 0..5 {
        world.client(lives(&lock(idempotency_records.then_some(IdempotencyRecord(number))), 12));
    }
    world.run();
    // Whatever has happened, a new client gets the lock.
    world.rates = crate::bench::CALM;
    let came = world.now;
    world.immortal(run(lock(None).acquire("last"), move |moment: &mut Moment<Log>, grant| {
        let grant = grant.expect("no lock is lost forever");
        let waited = moment.true_now.since(came);
        assert!(waited < Duration::from_secs(4), "it is obtained after a lease at the latest, not {waited:?}");
        note(moment, &grant);
        run(grant.release(), |_, _| over())
    }));
    world.run();
    let data = world.space.bytes(DATA);
    check(&world.observed, &data);
    std::mem::take(&mut world.observed)
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
