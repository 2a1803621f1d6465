//! Swarm runs of the lock: writers, readers and single requests; some clients crash, some are late, and some receive no answers.

use crate::bench::*;
use crate::written::{
    DATA, Hold, LOSSY, Log, OBJECT, append, check_holds, check_reports, is_had_again, records, swarms_of,
};
use braid_recipes::fencing_token::unguard;
use braid_recipes::lock::{Grant, Lock, LockOptions};
use braid_wire::ActionResult;

const WORD: AttributeName = AttributeName::new(1, 7);
const TOKEN: AttributeName = AttributeName::new(2, 7);
/// Stands for the token, which a single request does not know: its record consists of the client's number and the round.
const ONCE: u64 = u64::MAX;

fn lock(idempotency_record: Option<IdempotencyRecord>) -> Lock {
    Lock::new(
        OBJECT,
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
                    me.note_hold(&grant, grant.mode());
                    me.writes(grant, 2, |grant: &Grant, record| grant.guarded(append(DATA, record))).await;
                }
            }
            2 => {
                if let Ok(grant) = me.run(lock.share(&name[..])).await {
                    me.note_hold(&grant, grant.mode());
                    reads(&me, grant).await;
                }
            }
            _ => {
                let record = [ONCE, me.client() as u64, round];
                let end = me.run(lock.once(&name[..], append(DATA, record)).unwrap()).await;
                me.told::<Grant>(record, end);
            }
        }
    }
    me.sleep(Duration::from_millis(1)).await;
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
    me.note_end(&grant);
    if let (Some(first), Some(second)) = (first, second) {
        assert_eq!(first, second, "one hold at a time: no write takes effect while readers hold the lock");
    }
    let _ = me.run(grant.release()).await;
}

fn swarm(seed: u64, rates: FaultRates, idempotency_records: bool) -> Log {
    let mut world = World::new(seed, rates, &[OBJECT, DATA], Log::default());
    world.after_each(|log, space| {
        let token = space.number(OBJECT, TOKEN);
        assert!(token >= log.number, "tokens grow");
        log.number = token;
    });
    for number in 0..5 {
        let lock = lock(idempotency_records.then_some(IdempotencyRecord(number)));
        world.client(|me| lives(me, lock, 12));
    }
    world.run();
    is_had_again(&mut world, lock(None).acquire("last"), Duration::from_secs(4));
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
        assert!(!records[..at].contains(record) || token != ONCE, "once is once: {record:?}");
        if token == ONCE {
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
    check_reports(&records, log);
    check_holds(&log.held);
}

#[test]
fn swarms() {
    let log = swarms_of(300, |seed| swarm(seed, ROUGH, seed.is_multiple_of(2)));
    let once = log.happened.iter().filter(|record| record[0] == ONCE).count();
    assert!(once > 100, "{once}");
}

#[test]
fn swarm_runs_with_no_deaths_and_many_lost_messages() {
    let (mut known, mut unknowns, mut left) = (0, 0, 0);
    for seed in 0..100 {
        let log = swarm(seed, LOSSY, false);
        known += log.happened.len() + log.not_happened.len();
        unknowns += log.unknowns;
        left += swarm(seed, LOSSY, true).unknowns;
    }
    assert!(
        left * 10 < unknowns,
        "{left} unknown outcomes in spite of an idempotency record: only if the device is silent to the end"
    );
    assert!(known as u64 > 4 * unknowns, "the fate of {known} last writes was known, and of {unknowns} not");
}
