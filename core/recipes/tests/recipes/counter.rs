//! Tests of the delivery counter: scenarios, every order of two clients' steps, and swarm runs.

use crate::bench::{Budget, CALM, FaultRates, Me, ROUGH, SILENT, World, doing, explore, space};
use crate::written::{append, check_holds, check_order, check_reports, records, seconds, taken};
use braid_base::{ObjectId, Time};
use braid_recipes::counter::{CounterError, CounterOptions, DeliveryCounter, SLOTS, Turn};
use braid_recipes::{Answer, RequestFailure};
use braid_wire::{Action, AttributeName, CommandResult, SetAttribute};
use bytes::Bytes;
use std::time::Duration;

const COUNTERS: ObjectId = ObjectId(1);
const DATA: ObjectId = ObjectId(2);
const FIRST: AttributeName = AttributeName::new(10, 3);
const WORD: AttributeName = AttributeName::new(11, 3);
/// The fence beside the word.
const BESIDE: AttributeName = AttributeName::new(12, 3);

/// What the clients have observed.
#[derive(Default)]
struct Log {
    turn: u64,
    lines: Vec<String>,
    /// Ticket, client, beginning, and sure until; in true time.
    served: Vec<(u64, usize, Time, Time)>,
    happened: Vec<[u64; 3]>,
    not_happened: Vec<[u64; 3]>,
    taken: u64,
    refused: u64,
    skipped: u64,
}

fn options() -> CounterOptions {
    CounterOptions {
        lease: Duration::from_secs(3),
        poll: Duration::from_millis(700),
        first_pause: Duration::from_millis(5),
        longest_pause: Duration::from_millis(200),
        patience: Duration::from_secs(60),
    }
}

fn counter() -> DeliveryCounter {
    DeliveryCounter::new(COUNTERS, FIRST, options())
}

fn world(seed: u64, rates: FaultRates) -> World<Log> {
    let mut world = World::new(seed, rates, &[COUNTERS, DATA], Log::default());
    world.after_each(|log, space| {
        let word = space.value(COUNTERS, WORD);
        let turn = if word.is_empty() { 0 } else { u64::from_be_bytes(word[1..9].try_into().unwrap()) };
        assert!(turn == log.turn || turn == log.turn + 1, "the turn advances by one");
        assert!(turn <= space.number(COUNTERS, FIRST), "only tickets that were drawn are called");
        log.turn = turn;
        let held = word.len() > 10;
        let fence = if held { word.slice(1..9) } else { Bytes::new() };
        assert_eq!(space.value(COUNTERS, BESIDE), fence, "the fence contains the holder's ticket");
    });
    world
}

/// Enters, records that, stays for a given time, and leaves.
fn visits(world: &mut World<Log>, name: &'static str, stay: Duration) -> usize {
    world.client(async move |me| {
        let turn = me.run(counter().enter(name)).await.expect("it is served");
        me.observed().lines.push(format!("{name}{} {}", turn.ticket(), me.true_now().0 / 1_000_000_000));
        me.sleep(stay).await;
        me.run(turn.leave()).await.expect("it held its turn until the end");
    })
}

#[test]
fn alone_it_takes_two_round_trips_to_enter_and_one_to_leave() {
    let mut world = world(1, CALM);
    for round in 1..=3 {
        visits(&mut world, "a", Duration::ZERO);
        world.run();
        assert_eq!(world.trace().len(), 3 * round);
    }
    assert_eq!(world.observed().lines, ["a0 0", "a1 0", "a2 0"]);
}

#[test]
fn waiters_are_served_in_the_order_of_tickets_without_asking() {
    let mut world = world(1, CALM);
    for name in ["a", "b", "c", "d"] {
        visits(&mut world, name, Duration::from_millis(600));
        world.run_for(Duration::from_millis(50));
    }
    world.run();
    let served: Vec<String> = world.observed().lines.iter().map(|line| line[..2].to_string()).collect();
    assert_eq!(served, ["a0", "b1", "c2", "d3"]);
    // For each client: a ticket, its name written to the slot, the entry after the call, and the exit; the first needs no slot. The last in
    // line looks once more, since it has to wait for longer than two polls.
    let looks = world.trace().len() - 15;
    assert!(looks <= 1, "{looks} looks");
}

#[test]
fn the_dead_are_skipped_and_one_that_comes_back_learns_it() {
    let mut world = world(1, CALM);
    let dies = world.client(async |me| {
        let _turn = me.run(counter().enter("dies")).await;
        me.sleep(seconds(99)).await;
    });
    world.run_for(seconds(1));
    let dies_waiting = visits(&mut world, "never", Duration::ZERO);
    world.run_for(Duration::from_millis(50));
    // Its request to enter will be late by more than a lease.
    world.client(async |me| {
        let turn = me.run(counter().enter("paused")).await.unwrap();
        assert_eq!(turn.ticket(), 2);
        me.observed().lines.push(format!("paused2 {}", me.true_now().0 / 1_000_000_000));
        let answer = me.late(seconds(8), turn.guard(append(DATA, [2, 2, 2])).unwrap()).await;
        assert!(!taken(&answer));
        me.observed().lines.push("refused".into());
        assert_eq!(me.run(turn.renew()).await.unwrap_err(), CounterError::Skipped { turn: 4 });
        let left = me.run(turn.leave_with(append(DATA, [2, 2, 2])).unwrap()).await;
        assert_eq!(left.unwrap_err(), CounterError::Skipped { turn: 4 });
    });
    world.run_for(Duration::from_millis(50));
    visits(&mut world, "last", seconds(1));
    world.kill(dies);
    world.kill(dies_waiting);
    world.run();
    // The first lease began when a client saw that heartbeat, at 1; then that of the client that was called and did not come; then that of
    // the paused one.
    let lines = world.observed().lines.clone();
    let [paused, last, refused] = &lines[..] else { panic!("{lines:?}") };
    assert!(paused.starts_with("paused2 ") && last.starts_with("last3 ") && refused == "refused", "{lines:?}");
    assert!(records(&world.space.bytes(DATA)).is_empty());
    assert_eq!(
        world.space.value(COUNTERS, AttributeName::new(14, 3)),
        Bytes::new(),
        "the slots of crashed clients are cleared"
    );
}

#[test]
fn a_client_that_gives_up_is_skipped() {
    let mut world = world(1, CALM);
    // Renews once a second, and leaves.
    world.client(async |me| {
        let mut turn = me.run(counter().enter("long")).await.unwrap();
        for _ in 0..10 {
            me.sleep(seconds(1)).await;
            assert!(me.now() < turn.sure_until());
            turn = me.run(turn.renew()).await.expect("it has renewed");
        }
        me.sleep(seconds(1)).await;
        me.run(turn.leave()).await.expect("it has renewed");
    });
    world.run_for(seconds(1));
    let hasty = CounterOptions { patience: seconds(2), ..options() };
    world.client(async move |me| {
        let turn = me.run(DeliveryCounter::new(COUNTERS, FIRST, hasty).enter("hasty")).await;
        assert_eq!(turn.unwrap_err(), CounterError::TimedOut { ticket: 1, turn: 0 });
    });
    world.run_for(seconds(1));
    visits(&mut world, "patient", Duration::ZERO);
    world.run();
    assert_eq!(world.observed().lines.len(), 1);
    assert!(world.observed().lines[0].starts_with("patient2"));
}

#[test]
fn a_slot_that_is_anothers_is_done_without() {
    let mut world = World::new(1, CALM, &[COUNTERS], Log::default());
    // As if 65537 tickets had been served, and the late request of a crashed client with ticket 1 had arrived.
    let turn = [&[1][..], &SLOTS.to_be_bytes(), &[0]].concat();
    let mut request = space::one(COUNTERS, Action::Nothing);
    for (page, value) in [(0, &SLOTS.to_be_bytes()[..]), (1, &turn), (5, b"late")] {
        let name = AttributeName::new(FIRST.page + page, FIRST.number);
        request.commands[0].sets.push(SetAttribute { name, value: Bytes::copy_from_slice(value) });
    }
    world.space.execute(&request).unwrap();
    visits(&mut world, "a", seconds(2));
    world.run_for(Duration::from_millis(100));
    visits(&mut world, "b", seconds(1));
    world.run();
    assert_eq!(world.observed().lines, ["a65536 0", "b65537 2"]);
    assert_eq!(world.trace().len(), 3 + 4 + 3, "it looks three times");
    assert_eq!(world.space.value(COUNTERS, AttributeName::new(FIRST.page + 5, FIRST.number)), Bytes::new());
}

#[test]
fn a_slot_that_goes_to_another_one_is_not_waited_for() {
    let mut world = World::new(1, CALM, &[COUNTERS], Log::default());
    visits(&mut world, "a", seconds(2));
    world.run_for(Duration::from_millis(100));
    // As if there were so many tickets between them that the next has the same slot.
    let mut request = space::one(COUNTERS, Action::Nothing);
    let value = Bytes::copy_from_slice(&SLOTS.to_be_bytes());
    request.commands[0].sets.push(SetAttribute { name: FIRST, value });
    world.space.execute(&request).unwrap();
    world.client(async |me| {
        let turn = me.run(counter().enter("far")).await;
        assert!(matches!(turn, Err(CounterError::TimedOut { ticket: SLOTS, .. })));
    });
    world.run();
    let looks = world.trace().len();
    assert!(looks < 100, "it looks now and then, {looks} times in a minute");
}

/// Two clients in every order of steps, with one lost answer or one crash.
#[test]
fn two_clients_in_every_order() {
    let options = CounterOptions {
        lease: Duration::from_millis(2),
        poll: Duration::from_millis(1),
        first_pause: Duration::from_micros(300),
        longest_pause: Duration::from_micros(300),
        patience: Duration::from_secs(1),
    };
    let visits = move |client: u64| {
        doing(async move |me: Me<Log>| {
            let turn = match me.run(DeliveryCounter::new(COUNTERS, FIRST, options).enter("x")).await {
                Ok(turn) => turn,
                Err(error) => return assert_ne!(error, CounterError::NoCounter),
            };
            let ticket = turn.ticket();
            me.ask(turn.guard(append(DATA, [ticket, client, 0])).unwrap()).await;
            let left = me.run(turn.leave_with(append(DATA, [ticket, client, 1])).unwrap()).await;
            told(&me, [ticket, client, 1], left);
        })
    };
    for budget in [Budget { unknown: 1, deaths: 0, waits: 2 }, Budget { unknown: 0, deaths: 1, waits: 4 }] {
        let begin = || (Log::default(), vec![visits(1), visits(2)]);
        let (runs, ended) = explore(budget, &[COUNTERS, DATA], begin, |_, _| (), check);
        println!("{budget:?}: {runs} runs, of which {ended} ended");
        assert!(ended > 100, "{runs} {ended}");
    }
}

/// Checks the writes that the device has accepted, and what clients were told.
fn check(world: &mut World<Log>) {
    let (records, log) = (records(&world.space.bytes(DATA)), world.observed());
    check_order(&records);
    check_reports(&records, &log.happened, &log.not_happened);
    check_holds(&log.served);
}

/// Records the reported outcome of a last write.
fn told(me: &Me<Log>, record: [u64; 3], left: Result<Option<Vec<CommandResult>>, CounterError>) {
    match left {
        Ok(_) => me.observed().happened.push(record),
        Err(CounterError::RequestFailure(RequestFailure::Unknown)) => {}
        Err(_) => me.observed().not_happened.push(record),
    }
}

/// This many turns, each of which may be cut short, too long, or renewed.
async fn lives(me: Me<Log>, rounds: u64) {
    for _ in 0..rounds {
        match me.run(counter().enter("x")).await {
            Ok(turn) => {
                let sure = me.true_now().after(turn.sure_until().since(me.now()));
                me.observed().served.push((turn.ticket(), me.client(), me.true_now(), sure));
                writes(&me, turn).await;
            }
            Err(error) => {
                assert_ne!(error, CounterError::NoCounter);
                note_skipped(&me, error);
            }
        }
    }
}

fn note_skipped(me: &Me<Log>, error: CounterError) {
    me.observed().skipped += u64::from(matches!(error, CounterError::Skipped { .. }));
}

/// Sets until when a client was sure of its turn.
fn note_sure(me: &Me<Log>, ticket: u64, sure: impl FnOnce(Time) -> Time) {
    let mut observed = me.observed();
    let mine = observed.served.iter_mut().find(|served| served.0 == ticket).expect("it was recorded");
    mine.3 = sure(mine.3);
}

async fn writes(me: &Me<Log>, mut turn: Turn) {
    let mut done = 0;
    loop {
        me.sleep(Duration::from_millis(10)).await;
        let record = [turn.ticket(), me.client() as u64, done];
        if done == 2 {
            let now = me.true_now();
            note_sure(me, turn.ticket(), |sure| sure.min(now));
            return match me.below(4) {
                0 => {}
                1 => drop(me.run(turn.leave()).await),
                _ => {
                    let left = me.run(turn.leave_with(append(DATA, record)).unwrap()).await;
                    told(me, record, left);
                }
            };
        }
        if me.chance(1, 4) {
            turn = match me.run(turn.renew()).await {
                Ok(turn) => turn,
                Err(error) => return note_skipped(me, error),
            };
            // If the outcome arrived in time.
            let (now, left) = (me.true_now(), turn.sure_until().since(me.now()));
            note_sure(me, turn.ticket(), |sure| if left.is_zero() { sure } else { now.after(left) });
            continue;
        }
        let thinks = if me.chance(1, 15) { seconds(5) } else { Duration::from_millis(20) };
        let answer = me.ask(turn.guard(append(DATA, record)).unwrap()).await;
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
    for _ in 0..5 {
        world.client(|me| lives(me, 10));
    }
    world.run();
    let left = world.space.number(COUNTERS, FIRST) - world.observed().turn;
    world.rates = CALM;
    let came = world.now;
    let patient = CounterOptions { patience: seconds(1000), ..options() };
    let last = DeliveryCounter::new(COUNTERS, FIRST, patient).enter("last");
    world.immortal(async move |me| {
        let turn = me.run(last).await.expect("the counter continues");
        let waited = me.true_now().since(came);
        let most = (options().lease + 4 * options().poll + seconds(1)) * (left as u32 + 1);
        assert!(waited < most, "{left} tickets were left, and it waited {waited:?}");
        let _ = me.run(turn.leave()).await;
    });
    world.run();
    check(&mut world);
    std::mem::take(&mut *world.observed())
}

#[test]
fn a_client_that_is_cut_off_learns_that_its_lease_expired() {
    let mut world = world(1, CALM);
    world.client(async |me| {
        let turn = me.run(counter().enter("a")).await.expect("no client is before it");
        me.sleep(seconds(1)).await;
        assert_eq!(me.run(turn.renew()).await, Err(CounterError::Uncertain));
        let (late, began) = (me.now().since(turn.sure_until()), me.now());
        assert!(me.now() >= turn.sure_until() && late < Duration::from_millis(10));
        let left = me.run(turn.leave()).await;
        assert_eq!(left, Err(CounterError::RequestFailure(RequestFailure::Unknown)));
        assert!(me.now().since(began) < options().lease + seconds(1));
        me.observed().lines.push("heard".into());
    });
    world.run_for(Duration::from_millis(100));
    world.rates = SILENT;
    world.run();
    assert_eq!(world.observed().lines, ["heard"]);
}

#[test]
fn swarms() {
    let (mut taken, mut refused, mut skipped) = (0, 0, 0);
    for seed in 0..200 {
        let log = swarm(seed, ROUGH);
        taken += log.taken;
        refused += log.refused;
        skipped += log.skipped;
    }
    println!("{taken} writes taken, {refused} refused, {skipped} times a client learned that it was skipped");
    assert!(taken > 1000 && refused > 20 && skipped > 20, "{taken} {refused} {skipped}");
}

#[test]
fn swarm_runs_with_no_deaths_and_many_lost_messages() {
    for seed in 0..50 {
        swarm(seed, FaultRates { death: 0, unknown: 200, awaits: 500, straggling: 5, ..ROUGH });
    }
}
