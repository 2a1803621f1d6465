//! Tests of fail-over: scenarios, every order of two machines' steps, and swarm runs.

use crate::bench::{Budget, CALM, FaultRates, Me, ROUGH, SILENT, World, doing, explore};
use crate::written::{append, check_holds, check_order, check_reports, records, seconds, taken};
use braid_base::{ObjectId, Time};
use braid_recipes::failover::{FailOver, FailOverError, FailOverOptions, LeaderStatus, Leadership};
use braid_recipes::fencing_token::RaiseError;
use braid_recipes::{Answer, RequestFailure};
use braid_wire::{AttributeName, CommandResult};
use bytes::Bytes;
use std::time::Duration;

const SERVICE: ObjectId = ObjectId(1);
const DATA: ObjectId = ObjectId(2);
/// Represents data on another device, with a fence of its own.
const ELSEWHERE: ObjectId = ObjectId(3);
const WORD: AttributeName = AttributeName::new(1, 0);
const FENCE: AttributeName = AttributeName::new(5, 5);
/// The fence beside the word.
const BESIDE: AttributeName = AttributeName::new(2, 0);

/// What the machines have observed.
#[derive(Default)]
struct Log {
    term: u64,
    lines: Vec<String>,
    /// Term, client, beginning, and sure until; in true time.
    led: Vec<(u64, usize, Time, Time)>,
    happened: Vec<[u64; 3]>,
    not_happened: Vec<[u64; 3]>,
    taken: u64,
    refused: u64,
    deposed: u64,
}

fn options() -> FailOverOptions {
    FailOverOptions {
        lease: Duration::from_secs(3),
        first_pause: Duration::from_millis(5),
        longest_pause: Duration::from_millis(200),
        patience: Duration::from_secs(100),
    }
}

fn service() -> FailOver {
    FailOver::new(SERVICE, WORD, options())
}

fn world(seed: u64, rates: FaultRates) -> World<Log> {
    let mut world = World::new(seed, rates, &[SERVICE, DATA, ELSEWHERE], Log::default());
    world.after_each(|log, space| {
        let word = space.value(SERVICE, WORD);
        let term = if word.is_empty() { 0 } else { u64::from_be_bytes(word[1..9].try_into().unwrap()) };
        assert!(term == log.term || term == log.term + 1, "terms grow one by one");
        log.term = term;
        let held = word.len() > 10;
        let fence = if held { word.slice(1..9) } else { Bytes::new() };
        assert_eq!(space.value(SERVICE, BESIDE), fence, "the fence contains the leader's term");
    });
    world
}

/// Leads, shows progress once a second for this many times, and then falls silent, forever or until it resigns.
async fn leads(me: &Me<Log>, mut leader: Leadership, times: u32, resigns: bool) {
    for left in (0..=times).rev() {
        me.sleep(seconds(1)).await;
        assert!(me.now() < leader.sure_until());
        if left > 0 {
            leader = me.run(leader.progress()).await.expect("it leads");
        }
    }
    if resigns {
        me.run(leader.resign()).await.expect("it led to the end");
    }
}

fn noting(world: &mut World<Log>, name: &'static str, times: u32, resigns: bool) {
    world.client(async move |me| {
        let leader = me.run(service().campaign(name)).await.expect("it leads eventually");
        me.observed().lines.push(format!("{name} {} at {}", leader.term(), me.true_now().0 / 1_000_000_000));
        leads(&me, leader, times, resigns).await;
    });
}

#[test]
fn the_backup_takes_over_a_lease_after_the_last_progress_and_at_once_after_a_resignation() {
    let mut world = world(1, CALM);
    noting(&mut world, "a", 10, false);
    world.run_for(Duration::from_millis(100));
    noting(&mut world, "b", 10, true);
    world.run_for(Duration::from_millis(100));
    world.client(async |me| {
        let status = me.run(service().leader()).await;
        assert_eq!(status, Ok(LeaderStatus { term: 1, leader: Some(("a".into(), 0)) }));
    });
    world.run_for(seconds(15));
    noting(&mut world, "c", 0, true);
    world.run();
    // The first leader's progress until 10; three seconds; then 11 seconds of the other one's.
    assert_eq!(world.observed().lines, ["a 1 at 0", "b 2 at 13", "c 3 at 24"]);
}

#[test]
fn split_brain_a_paused_leader_writes_late_and_is_refused_here_and_elsewhere() {
    let mut world = world(1, CALM);
    world.client(async |me| {
        let leader = me.run(service().campaign("paused")).await.unwrap();
        let fence = leader.fence_at(ELSEWHERE, FENCE);
        assert_eq!(me.run(fence.raise()).await, Ok(()));
        // Two late writes: one here, and one elsewhere.
        let answer = me.late(seconds(10), leader.guard(append(DATA, [1, 0, 0])).unwrap()).await;
        assert!(!taken(&answer));
        me.observed().lines.push("refused here".into());
        let answer = me.ask(fence.guard(append(ELSEWHERE, [1, 0, 0])).unwrap()).await;
        assert!(!taken(&answer));
        me.observed().lines.push("refused elsewhere".into());
        assert_eq!(me.run(fence.raise()).await, Err(RaiseError::TooLate { token: 2 }));
        let deposed = FailOverError::Deposed { term: 2, by: Some("next".into()) };
        assert_eq!(me.run(leader.progress()).await.unwrap_err(), deposed);
    });
    world.run_for(Duration::from_millis(100));
    world.client(async |me| {
        let leader = me.run(service().campaign("next")).await.unwrap();
        let fence = leader.fence_at(ELSEWHERE, FENCE);
        assert_eq!(me.run(fence.raise()).await, Ok(()));
        assert!(taken(&me.ask(fence.guard(append(ELSEWHERE, [2, 1, 0])).unwrap()).await));
        assert!(taken(&me.ask(leader.guard(append(DATA, [2, 1, 0])).unwrap()).await));
        leads(&me, leader, 20, false).await;
    });
    world.run();
    assert_eq!(world.observed().lines, ["refused here", "refused elsewhere"]);
    assert_eq!(
        (records(&world.space.bytes(DATA)), records(&world.space.bytes(ELSEWHERE))),
        (vec![[2, 1, 0]], vec![[2, 1, 0]])
    );
}

#[test]
fn progress_by_way_of_an_old_copy_counts_from_when_it_was_shown() {
    let mut world = world(1, CALM);
    world.client(async |me| {
        let leader = me.run(service().campaign("a")).await.unwrap();
        let copy = leader.clone();
        me.sleep(seconds(1)).await;
        let _ = me.run(copy.progress()).await;
        me.sleep(seconds(1)).await;
        let leader = me.run(leader.progress()).await.unwrap();
        let sure = leader.sure_until().since(me.now());
        me.observed().led.push((1, 0, me.true_now(), me.true_now().after(sure)));
    });
    world.run_for(Duration::from_millis(100));
    noting(&mut world, "b", 0, true);
    world.run();
    let (_, _, _, sure) = world.observed().led[0];
    assert!(sure > Time(4_500_000_000), "two seconds, and most of a lease");
    assert_eq!(world.observed().lines, ["b 2 at 5"]);
}

#[test]
fn a_backup_that_has_waited_enough_names_the_leader() {
    let mut world = world(1, CALM);
    noting(&mut world, "a", 20, true);
    world.run_for(Duration::from_millis(100));
    let hasty = FailOver::new(SERVICE, WORD, FailOverOptions { patience: seconds(5), ..options() });
    world.client(async move |me| {
        let leader = me.run(hasty.campaign("b")).await;
        assert_eq!(leader.unwrap_err(), FailOverError::TimedOut { leader: Some("a".into()) });
    });
    world.run();
}

/// A client that waits forever to lead, and then leads for a lease.
#[test]
fn a_leader_that_is_cut_off_learns_that_its_lease_expired() {
    let mut world = world(1, CALM);
    let service =
        FailOver::new(SERVICE, WORD, FailOverOptions { lease: options().lease, ..FailOverOptions::default() });
    world.client(async move |me| {
        let leader = me.run(service.campaign("a")).await.unwrap();
        me.sleep(seconds(1)).await;
        assert_eq!(me.run(leader.progress()).await, Err(FailOverError::Uncertain));
        let (late, began) = (me.now().since(leader.sure_until()), me.now());
        assert!(me.now() >= leader.sure_until() && late < Duration::from_millis(10));
        let unknown = FailOverError::RequestFailure(RequestFailure::Unknown);
        assert_eq!(me.run(leader.resign()).await, Err(unknown.clone()));
        assert!(me.now().since(began) < options().lease + seconds(1));
        assert_eq!(me.run(service.leader()).await, Err(unknown));
        me.observed().lines.push("heard".into());
    });
    world.run_for(Duration::from_millis(100));
    world.rates = SILENT;
    world.run();
    assert_eq!(world.observed().lines, ["heard"]);
}

/// Two machines in every order of steps, with one lost answer or one crash.
#[test]
fn two_machines_in_every_order() {
    let options = FailOverOptions {
        lease: Duration::from_millis(1),
        first_pause: Duration::from_micros(300),
        longest_pause: Duration::from_micros(300),
        patience: Duration::from_secs(1),
    };
    let serves = move |client: u64| {
        doing(async move |me: Me<Log>| {
            let Ok(leader) = me.run(FailOver::new(SERVICE, WORD, options).campaign("x")).await else { return };
            let term = leader.term();
            me.ask(leader.guard(append(DATA, [term, client, 0])).unwrap()).await;
            let end = me.run(leader.resign_with(append(DATA, [term, client, 1])).unwrap()).await;
            told(&me, [term, client, 1], end);
        })
    };
    for budget in [Budget { unknown: 1, deaths: 0, waits: 5 }, Budget { unknown: 0, deaths: 1, waits: 5 }] {
        let begin = || (Log::default(), vec![serves(1), serves(2)]);
        let (runs, ended) = explore(budget, &[SERVICE, DATA, ELSEWHERE], begin, |_, _| (), check);
        println!("{budget:?}: {runs} runs, of which {ended} ended");
        assert!(ended > 100, "{runs} {ended}");
    }
}

/// Checks the writes that the devices have accepted, and what clients were told.
fn check(world: &mut World<Log>) {
    let written = |object| records(&world.space.bytes(object));
    let log = world.observed();
    [DATA, ELSEWHERE].iter().for_each(|object| check_order(&written(*object)));
    check_reports(&written(DATA), &log.happened, &log.not_happened);
    check_holds(&log.led);
}

/// Records the reported outcome of a last write.
fn told(me: &Me<Log>, record: [u64; 3], end: Result<Option<Vec<CommandResult>>, FailOverError>) {
    match end {
        Ok(_) => me.observed().happened.push(record),
        Err(FailOverError::RequestFailure(RequestFailure::Unknown)) => {}
        Err(_) => me.observed().not_happened.push(record),
    }
}

/// At most this many terms, each with some writes here and elsewhere.
async fn lives(me: Me<Log>, rounds: u64) {
    for _ in 0..rounds {
        let Ok(leader) = me.run(service().campaign("x")).await else { continue };
        let sure = me.true_now().after(leader.sure_until().since(me.now()));
        me.observed().led.push((leader.term(), me.client(), me.true_now(), sure));
        match me.run(leader.fence_at(ELSEWHERE, FENCE).raise()).await {
            Ok(()) => serves(&me, leader).await,
            Err(error) => me.observed().deposed += u64::from(matches!(error, RaiseError::TooLate { .. })),
        }
    }
}

/// Sets until when a client was sure that it led.
fn note_sure(me: &Me<Log>, term: u64, sure: impl FnOnce(Time) -> Time) {
    let mut observed = me.observed();
    let mine = observed.led.iter_mut().find(|led| led.0 == term).expect("it was recorded");
    mine.3 = sure(mine.3);
}

async fn serves(me: &Me<Log>, mut leader: Leadership) {
    let mut done = 0;
    loop {
        me.sleep(Duration::from_millis(50)).await;
        let record = [leader.term(), me.client() as u64, done];
        if done == 4 {
            let now = me.true_now();
            note_sure(me, leader.term(), |sure| sure.min(now));
            return match me.below(3) {
                0 => {}
                1 => drop(me.run(leader.resign()).await),
                _ => {
                    let end = me.run(leader.resign_with(append(DATA, record)).unwrap()).await;
                    told(me, record, end);
                }
            };
        }
        if me.chance(1, 3) {
            leader = match me.run(leader.progress()).await {
                Ok(leader) => leader,
                Err(error) => {
                    me.observed().deposed += u64::from(matches!(error, FailOverError::Deposed { .. }));
                    return;
                }
            };
            // If the outcome arrived in time.
            let (now, left) = (me.true_now(), leader.sure_until().since(me.now()));
            note_sure(me, leader.term(), |sure| if left.is_zero() { sure } else { now.after(left) });
            continue;
        }
        let thinks = if me.chance(1, 10) { seconds(5) } else { Duration::from_millis(100) };
        let write = match done % 2 {
            0 => leader.guard(append(DATA, record)),
            _ => leader.fence_at(ELSEWHERE, FENCE).guard(append(ELSEWHERE, record)),
        };
        let answer = me.ask(write.unwrap()).await;
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

fn swarm(seed: u64, rates: FaultRates) -> Log {
    let mut world = world(seed, rates);
    for _ in 0..4 {
        world.client(|me| lives(me, 8));
    }
    world.run();
    world.rates = CALM;
    let came = world.now;
    world.immortal(async move |me| {
        let leader = me.run(service().campaign("last")).await.expect("there is a leader again");
        assert!(me.true_now().since(came) < seconds(4));
        let _ = me.run(leader.resign()).await;
    });
    world.run();
    check(&mut world);
    std::mem::take(&mut *world.observed())
}

#[test]
fn swarms() {
    let (mut taken, mut refused, mut deposed) = (0, 0, 0);
    for seed in 0..200 {
        let log = swarm(seed, ROUGH);
        taken += log.taken;
        refused += log.refused;
        deposed += log.deposed;
    }
    println!("{taken} writes taken, {refused} refused, {deposed} times a leader learned that it was deposed");
    assert!(taken > 1000 && refused > 20 && deposed > 20, "{taken} {refused} {deposed}");
}

#[test]
fn swarm_runs_with_no_deaths_and_many_lost_messages() {
    for seed in 0..50 {
        swarm(seed, FaultRates { death: 0, unknown: 200, awaits: 500, straggling: 5, ..ROUGH });
    }
}
