//! Tests of fail-over: scenarios, every order of two machines' steps, and swarm runs.

use crate::bench::*;
use crate::written::{
    DATA, Hold, LOSSY, Log, OBJECT, Record, append, check, check_order, check_word, cut_off, is_had_again, old_copy,
    records, seconds, swarms_of, taken, two_in_every_order,
};
use braid_recipes::failover::{FailOver, FailOverError, FailOverOptions, LeaderStatus, Leadership};
use braid_recipes::fencing_token::RaiseError;
use braid_recipes::lock::Mode;

/// Represents data on another device, with a fence of its own.
const ELSEWHERE: ObjectId = ObjectId(3);
const WORD: AttributeName = AttributeName::new(1, 0);
const FENCE: AttributeName = AttributeName::new(5, 5);

fn options() -> FailOverOptions {
    FailOverOptions {
        lease: Duration::from_secs(3),
        first_pause: Duration::from_millis(5),
        longest_pause: Duration::from_millis(200),
        patience: Duration::from_secs(100),
    }
}

fn service() -> FailOver {
    FailOver::new(OBJECT, WORD, options())
}

fn world(seed: u64, rates: FaultRates) -> World<Log> {
    let mut world = World::new(seed, rates, &[OBJECT, DATA, ELSEWHERE], Log::default());
    world.after_each(|log, space| check_word(log, space, WORD));
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
        me.note(format!("{name} {} at {}", leader.term(), me.true_now().0 / 1_000_000_000));
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
        me.note("refused here");
        let answer = me.ask(fence.guard(append(ELSEWHERE, [1, 0, 0])).unwrap()).await;
        assert!(!taken(&answer));
        me.note("refused elsewhere");
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
    old_copy(|name| service().campaign(name), options().lease);
}

#[test]
fn a_backup_that_has_waited_enough_names_the_leader() {
    let mut world = world(1, CALM);
    noting(&mut world, "a", 20, true);
    world.run_for(Duration::from_millis(100));
    let hasty = FailOver::new(OBJECT, WORD, FailOverOptions { patience: seconds(5), ..options() });
    world.client(async move |me| {
        let leader = me.run(hasty.campaign("b")).await;
        assert_eq!(leader.unwrap_err(), FailOverError::TimedOut { leader: Some("a".into()) });
    });
    world.run();
}

/// A client that waits forever to lead, and then leads for a lease.
#[test]
fn a_leader_that_is_cut_off_learns_that_its_lease_expired() {
    let forever = FailOverOptions { lease: options().lease, ..FailOverOptions::default() };
    cut_off(|| FailOver::new(OBJECT, WORD, forever).campaign("a"), forever.lease);
    let mut world = world(1, SILENT);
    world.client(async |me| {
        let unknown = FailOverError::RequestFailure(RequestFailure::Unknown);
        assert_eq!(me.run(service().leader()).await, Err(unknown));
    });
    world.run();
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
    two_in_every_order(move || FailOver::new(OBJECT, WORD, options).campaign("x"), 5);
}

/// At most this many terms, each with some writes here and elsewhere.
async fn lives(me: Me<Log>, rounds: u64) {
    for _ in 0..rounds {
        let Ok(leader) = me.run(service().campaign("x")).await else { continue };
        me.note_hold(&leader, Mode::Exclusive);
        match me.run(leader.fence_at(ELSEWHERE, FENCE).raise()).await {
            Ok(()) => me.writes(leader, 4, guarded).await,
            Err(error) => me.observed().lost += u64::from(matches!(error, RaiseError::TooLate { .. })),
        }
    }
}

/// Writes here and elsewhere, by turns.
fn guarded(leader: &Leadership, record: Record) -> ObjectRequest {
    match record[2] % 2 {
        0 => leader.guarded(append(DATA, record)),
        _ => leader.fence_at(ELSEWHERE, FENCE).guard(append(ELSEWHERE, record)).unwrap(),
    }
}

fn swarm(seed: u64, rates: FaultRates) -> Log {
    let mut world = world(seed, rates);
    for _ in 0..4 {
        world.client(|me| lives(me, 8));
    }
    world.run();
    is_had_again(&mut world, service().campaign("last"), seconds(4));
    check(&mut world);
    check_order(&records(&world.space.bytes(ELSEWHERE)));
    std::mem::take(&mut *world.observed())
}

#[test]
fn swarms() {
    swarms_of(200, |seed| swarm(seed, ROUGH));
    (0..50).for_each(|seed| drop(swarm(seed, LOSSY)));
}
