//! Tests of the delivery counter: scenarios, every order of two clients' steps, and swarm runs.

use crate::bench::{
    Budget, CALM, Doing, FaultRates, Moment, ROUGH, SILENT, World, ask, explore, late, over, run, sleep, space,
};
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
fn visits(name: &'static str, stay: Duration) -> Doing<Log> {
    run(counter().enter(name), move |moment: &mut Moment<Log>, turn| {
        let turn = turn.expect("it is served");
        moment.observed.lines.push(format!("{name}{} {}", turn.ticket(), moment.true_now.0 / 1_000_000_000));
        sleep(stay, move |_| {
            run(turn.leave(), |_, left| {
                left.expect("it held its turn until the end");
                over()
            })
        })
    })
}

#[test]
fn alone_it_takes_two_round_trips_to_enter_and_one_to_leave() {
    let mut world = world(1, CALM);
    for round in 1..=3 {
        world.client(visits("a", Duration::ZERO));
        world.run();
        assert_eq!(world.trace().len(), 3 * round);
    }
    assert_eq!(world.observed.lines, ["a0 0", "a1 0", "a2 0"]);
}

#[test]
fn they_are_served_in_the_order_of_tickets_and_called_and_do_not_ask() {
    let mut world = world(1, CALM);
    for name in ["a", "b", "c", "d"] {
        world.client(visits(name, Duration::from_millis(600)));
        world.run_for(Duration::from_millis(50));
    }
    world.run();
    let served: Vec<&str> = world.observed.lines.iter().map(|line| &line[..2]).collect();
    assert_eq!(served, ["a0", "b1", "c2", "d3"]);
    // For each client: a ticket, its name written to the slot, the entry after the call, and the exit; the first needs no slot. The last in
    // line looks once more, since it has to wait for longer than two polls.
    let looks = world.trace().len() - 15;
    assert!(looks <= 1, "{looks} looks");
}

#[test]
fn the_dead_are_skipped_and_one_that_comes_back_learns_it() {
    let mut world = world(1, CALM);
    let dies = world.client(run(counter().enter("dies"), |_, _| sleep(seconds(99), |_| over())));
    world.run_for(seconds(1));
    let dies_waiting = world.client(visits("never", Duration::ZERO));
    world.run_for(Duration::from_millis(50));
    // Its request to enter will be late by more than a lease.
    world.client(run(counter().enter("paused"), |moment: &mut Moment<Log>, turn| {
        let turn = turn.unwrap();
        assert_eq!(turn.ticket(), 2);
        moment.observed.lines.push(format!("paused2 {}", moment.true_now.0 / 1_000_000_000));
        late(seconds(8), turn.guard(append(DATA, [2, 2, 2])).unwrap(), move |moment: &mut Moment<Log>, answer| {
            assert!(!taken(&answer));
            moment.observed.lines.push("refused".into());
            run(turn.renew(), move |_, renewed| {
                assert_eq!(renewed.unwrap_err(), CounterError::Skipped { turn: 4 });
                run(turn.leave_with(append(DATA, [2, 2, 2])).unwrap(), |_, left| {
                    assert_eq!(left.unwrap_err(), CounterError::Skipped { turn: 4 });
                    over()
                })
            })
        })
    }));
    world.run_for(Duration::from_millis(50));
    world.client(visits("last", seconds(1)));
    world.kill(dies);
    world.kill(dies_waiting);
    world.run();
    // The first lease began when a client saw that heartbeat, at 1; then that of the client that was called and did not come; then that of
    // the paused one.
    let [paused, last, refused] = &world.observed.lines[..] else { panic!("{:?}", world.observed.lines) };
    assert!(
        paused.starts_with("paused2 ") && last.starts_with("last3 ") && refused == "refused",
        "{:?}",
        world.observed.lines
    );
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
    world.client(run(counter().enter("long"), |_, turn| stays(turn.unwrap(), 10)));
    world.run_for(seconds(1));
    let hasty = CounterOptions { patience: seconds(2), ..options() };
    world.client(run(DeliveryCounter::new(COUNTERS, FIRST, hasty).enter("hasty"), |_, turn| {
        assert_eq!(turn.unwrap_err(), CounterError::TimedOut { ticket: 1, turn: 0 });
        over()
    }));
    world.run_for(seconds(1));
    world.client(visits("patient", Duration::ZERO));
    world.run();
    assert_eq!(world.observed.lines.len(), 1);
    assert!(world.observed.lines[0].starts_with("patient2"));
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
    world.client(visits("a", seconds(2)));
    world.run_for(Duration::from_millis(100));
    world.client(visits("b", seconds(1)));
    world.run();
    assert_eq!(world.observed.lines, ["a65536 0", "b65537 2"]);
    assert_eq!(world.trace().len(), 3 + 4 + 3, "it looks three times");
    assert_eq!(world.space.value(COUNTERS, AttributeName::new(FIRST.page + 5, FIRST.number)), Bytes::new());
}

#[test]
fn a_slot_that_goes_to_another_one_is_not_waited_for() {
    let mut world = World::new(1, CALM, &[COUNTERS], Log::default());
    world.client(visits("a", seconds(2)));
    world.run_for(Duration::from_millis(100));
    // As if there were so many tickets between them that the next has the same slot.
    let mut request = space::one(COUNTERS, Action::Nothing);
    let value = Bytes::copy_from_slice(&SLOTS.to_be_bytes());
    request.commands[0].sets.push(SetAttribute { name: FIRST, value });
    world.space.execute(&request).unwrap();
    world.client(run(counter().enter("far"), |_, turn| {
        assert!(matches!(turn, Err(CounterError::TimedOut { ticket: SLOTS, .. })));
        over()
    }));
    world.run();
    let looks = world.trace().len();
    assert!(looks < 100, "it looks now and then, {looks} times in a minute");
}

/// Renews once a second, this many times, and leaves.
fn stays(turn: Turn, times: u32) -> Doing<Log> {
    sleep(seconds(1), move |moment| {
        assert!(moment.now < turn.sure_until());
        match times {
            0 => run(turn.leave(), |_, left| {
                left.expect("it has renewed");
                over()
            }),
            _ => run(turn.renew(), move |_, turn| stays(turn.expect("it has renewed"), times - 1)),
        }
    })
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
        run(DeliveryCounter::new(COUNTERS, FIRST, options).enter("x"), move |_, turn| {
            let turn = match turn {
                Ok(turn) => turn,
                Err(error) => {
                    assert_ne!(error, CounterError::NoCounter);
                    return over();
                }
            };
            let ticket = turn.ticket();
            ask(turn.guard(append(DATA, [ticket, client, 0])).unwrap(), move |_, _| {
                run(
                    turn.leave_with(append(DATA, [ticket, client, 1])).unwrap(),
                    move |moment: &mut Moment<Log>, left| {
                        told(moment, [ticket, client, 1], left);
                        over()
                    },
                )
            })
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
    let (records, log) = (records(&world.space.bytes(DATA)), &world.observed);
    check_order(&records);
    check_reports(&records, &log.happened, &log.not_happened);
    check_holds(&log.served);
}

/// Records the reported outcome of a last write.
fn told(moment: &mut Moment<Log>, record: [u64; 3], left: Result<Option<Vec<CommandResult>>, CounterError>) {
    match left {
        Ok(_) => moment.observed.happened.push(record),
        Err(CounterError::RequestFailure(RequestFailure::Unknown)) => {}
        Err(_) => moment.observed.not_happened.push(record),
    }
}

/// This many turns, each of which may be cut short, too long, or renewed.
fn lives(rounds: u64) -> Doing<Log> {
    if rounds == 0 {
        return over();
    }
    run(counter().enter("x"), move |moment: &mut Moment<Log>, turn| {
        let turn = match turn {
            Ok(turn) => turn,
            Err(error) => {
                assert_ne!(error, CounterError::NoCounter);
                moment.observed.skipped += u64::from(matches!(error, CounterError::Skipped { .. }));
                return lives(rounds - 1);
            }
        };
        let sure = moment.true_now.after(turn.sure_until().since(moment.now));
        moment.observed.served.push((turn.ticket(), moment.client, moment.true_now, sure));
        writes(turn, rounds, 0)
    })
}

fn writes(turn: Turn, rounds: u64, done: u64) -> Doing<Log> {
    sleep(Duration::from_millis(10), move |moment: &mut Moment<Log>| {
        let record = [turn.ticket(), moment.client as u64, done];
        if done == 2 {
            let mine = moment.observed.served.iter_mut().find(|served| served.0 == record[0]).expect("it was recorded");
            mine.3 = mine.3.min(moment.true_now);
            return match moment.rng.below(4) {
                0 => lives(rounds - 1),
                1 => run(turn.leave(), move |_, _| lives(rounds - 1)),
                _ => run(turn.leave_with(append(DATA, record)).unwrap(), move |moment: &mut Moment<Log>, left| {
                    told(moment, record, left);
                    lives(rounds - 1)
                }),
            };
        }
        if moment.rng.chance(1, 4) {
            return run(turn.renew(), move |moment: &mut Moment<Log>, turn| match turn {
                Ok(turn) => {
                    // If the outcome arrived in time.
                    let left = turn.sure_until().since(moment.now);
                    let mine = moment
                        .observed
                        .served
                        .iter_mut()
                        .find(|served| served.0 == turn.ticket())
                        .expect("it was recorded");
                    if !left.is_zero() {
                        mine.3 = moment.true_now.after(left);
                    }
                    writes(turn, rounds, done)
                }
                Err(error) => {
                    moment.observed.skipped += u64::from(matches!(error, CounterError::Skipped { .. }));
                    lives(rounds - 1)
                }
            });
        }
        let thinks = if moment.rng.chance(1, 15) { seconds(5) } else { Duration::from_millis(20) };
        ask(turn.guard(append(DATA, record)).unwrap(), move |moment: &mut Moment<Log>, answer| {
            if let Answer::Results(_) = &answer {
                if !taken(&answer) {
                    moment.observed.refused += 1;
                    return lives(rounds - 1);
                }
                moment.observed.taken += 1;
            }
            sleep(thinks, move |_| writes(turn, rounds, done + 1))
        })
    })
}

fn swarm(seed: u64, rates: FaultRates) -> Log {
    let mut world = world(seed, rates);
    for _ in 0..5 {
        world.client(lives(10));
    }
    world.run();
    let left = world.space.number(COUNTERS, FIRST) - world.observed.turn;
    world.rates = CALM;
    let came = world.now;
    let patient = CounterOptions { patience: seconds(1000), ..options() };
    let last = DeliveryCounter::new(COUNTERS, FIRST, patient).enter("last");
    world.immortal(run(last, move |moment: &mut Moment<Log>, turn| {
        let turn = turn.expect("the counter continues");
        let waited = moment.true_now.since(came);
        let most = (options().lease + 4 * options().poll + seconds(1)) * (left as u32 + 1);
        assert!(waited < most, "{left} tickets were left, and it waited {waited:?}");
        run(turn.leave(), |_, _| over())
    }));
    world.run();
    check(&mut world);
    std::mem::take(&mut world.observed)
}

#[test]
fn a_client_that_is_cut_off_learns_that_its_lease_expired() {
    let mut world = world(1, CALM);
    world.client(run(counter().enter("a"), |_, turn| {
        let turn = turn.expect("no client is before it");
        sleep(seconds(1), move |_| {
            run(turn.renew(), move |moment: &mut Moment<Log>, renewed| {
                assert_eq!(renewed, Err(CounterError::Uncertain));
                let (late, began) = (moment.now.since(turn.sure_until()), moment.now);
                assert!(moment.now >= turn.sure_until() && late < Duration::from_millis(10));
                run(turn.leave(), move |moment: &mut Moment<Log>, left| {
                    assert_eq!(left, Err(CounterError::RequestFailure(RequestFailure::Unknown)));
                    assert!(moment.now.since(began) < options().lease + seconds(1));
                    moment.observed.lines.push("heard".into());
                    over()
                })
            })
        })
    }));
    world.run_for(Duration::from_millis(100));
    world.rates = SILENT;
    world.run();
    assert_eq!(world.observed.lines, ["heard"]);
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
