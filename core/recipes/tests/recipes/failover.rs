//! Tests of fail-over: scenarios, every order of two machines' steps, and swarm runs.

use crate::bench::{
    Budget, CALM, Doing, FaultRates, Moment, ROUGH, SILENT, World, ask, explore, late, over, run, sleep,
};
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
fn leads(leader: Leadership, times: u32, resigns: bool) -> Doing<Log> {
    sleep(seconds(1), move |moment| {
        assert!(moment.now < leader.sure_until());
        match (times, resigns) {
            (0, true) => run(leader.resign(), |_, end| {
                end.expect("it led to the end");
                over()
            }),
            (0, false) => over(),
            _ => run(leader.progress(), move |_, leader| leads(leader.expect("it leads"), times - 1, resigns)),
        }
    })
}

fn noting(name: &'static str, times: u32, resigns: bool) -> Doing<Log> {
    run(service().campaign(name), move |moment: &mut Moment<Log>, leader| {
        let leader = leader.expect("it leads eventually");
        moment.observed.lines.push(format!("{name} {} at {}", leader.term(), moment.true_now.0 / 1_000_000_000));
        leads(leader, times, resigns)
    })
}

#[test]
fn the_backup_takes_over_a_lease_after_the_last_progress_and_at_once_after_a_resignation() {
    let mut world = world(1, CALM);
    world.client(noting("a", 10, false));
    world.run_for(Duration::from_millis(100));
    world.client(noting("b", 10, true));
    world.run_for(Duration::from_millis(100));
    world.client(run(service().leader(), |_, status| {
        assert_eq!(status, Ok(LeaderStatus { term: 1, leader: Some(("a".into(), 0)) }));
        over()
    }));
    world.run_for(seconds(15));
    world.client(noting("c", 0, true));
    world.run();
    // The first leader's progress until 10; three seconds; then 11 seconds of the other one's.
    assert_eq!(world.observed.lines, ["a 1 at 0", "b 2 at 13", "c 3 at 24"]);
}

#[test]
fn split_brain_a_paused_leader_writes_late_and_is_refused_here_and_elsewhere() {
    let mut world = world(1, CALM);
    world.client(run(service().campaign("paused"), |_, leader| {
        let leader = leader.unwrap();
        let fence = leader.fence_at(ELSEWHERE, FENCE);
        run(fence.raise(), move |_, raised| {
            assert_eq!(raised, Ok(()));
            // Two late writes: one here, and one elsewhere.
            late(
                seconds(10),
                leader.guard(append(DATA, [1, 0, 0])).unwrap(),
                move |moment: &mut Moment<Log>, answer| {
                    assert!(!taken(&answer));
                    moment.observed.lines.push("refused here".into());
                    ask(fence.guard(append(ELSEWHERE, [1, 0, 0])).unwrap(), move |moment: &mut Moment<Log>, answer| {
                        assert!(!taken(&answer));
                        moment.observed.lines.push("refused elsewhere".into());
                        run(fence.raise(), move |_, raised| {
                            assert_eq!(raised, Err(RaiseError::TooLate { token: 2 }));
                            run(leader.progress(), |_, progress| {
                                assert_eq!(
                                    progress.unwrap_err(),
                                    FailOverError::Deposed { term: 2, by: Some("next".into()) }
                                );
                                over()
                            })
                        })
                    })
                },
            )
        })
    }));
    world.run_for(Duration::from_millis(100));
    world.client(run(service().campaign("next"), |_, leader| {
        let leader = leader.unwrap();
        let fence = leader.fence_at(ELSEWHERE, FENCE);
        run(fence.raise(), move |_, raised| {
            assert_eq!(raised, Ok(()));
            ask(fence.guard(append(ELSEWHERE, [2, 1, 0])).unwrap(), move |_, answer| {
                assert!(taken(&answer));
                ask(leader.guard(append(DATA, [2, 1, 0])).unwrap(), move |_, answer| {
                    assert!(taken(&answer));
                    leads(leader, 20, false)
                })
            })
        })
    }));
    world.run();
    assert_eq!(world.observed.lines, ["refused here", "refused elsewhere"]);
    assert_eq!(
        (records(&world.space.bytes(DATA)), records(&world.space.bytes(ELSEWHERE))),
        (vec![[2, 1, 0]], vec![[2, 1, 0]])
    );
}

#[test]
fn progress_by_way_of_an_old_copy_counts_from_when_it_was_shown() {
    let mut world = world(1, CALM);
    world.client(run(service().campaign("a"), |_, leader| {
        let leader = leader.unwrap();
        let copy = leader.clone();
        sleep(seconds(1), move |_| {
            run(copy.progress(), move |_, _| {
                sleep(seconds(1), move |_| {
                    run(leader.progress(), |moment: &mut Moment<Log>, leader| {
                        let sure = leader.unwrap().sure_until().since(moment.now);
                        moment.observed.led.push((1, 0, moment.true_now, moment.true_now.after(sure)));
                        over()
                    })
                })
            })
        })
    }));
    world.run_for(Duration::from_millis(100));
    world.client(noting("b", 0, true));
    world.run();
    let (_, _, _, sure) = world.observed.led[0];
    assert!(sure > Time(4_500_000_000), "two seconds, and most of a lease");
    assert_eq!(world.observed.lines, ["b 2 at 5"]);
}

#[test]
fn a_backup_that_has_waited_enough_names_the_leader() {
    let mut world = world(1, CALM);
    world.client(noting("a", 20, true));
    world.run_for(Duration::from_millis(100));
    let hasty = FailOver::new(SERVICE, WORD, FailOverOptions { patience: seconds(5), ..options() });
    world.client(run(hasty.campaign("b"), |_, leader| {
        assert_eq!(leader.unwrap_err(), FailOverError::TimedOut { leader: Some("a".into()) });
        over()
    }));
    world.run();
}

/// A client that waits forever to lead, and then leads for a lease.
#[test]
fn a_leader_that_is_cut_off_learns_that_its_lease_expired() {
    let mut world = world(1, CALM);
    let service =
        FailOver::new(SERVICE, WORD, FailOverOptions { lease: options().lease, ..FailOverOptions::default() });
    world.client(run(service.campaign("a"), |_, leader| {
        let leader = leader.unwrap();
        sleep(seconds(1), move |_| {
            run(leader.progress(), move |moment: &mut Moment<Log>, progress| {
                assert_eq!(progress, Err(FailOverError::Uncertain));
                let (late, began) = (moment.now.since(leader.sure_until()), moment.now);
                assert!(moment.now >= leader.sure_until() && late < Duration::from_millis(10));
                run(leader.resign(), move |moment: &mut Moment<Log>, end| {
                    assert_eq!(end, Err(FailOverError::RequestFailure(RequestFailure::Unknown)));
                    assert!(moment.now.since(began) < options().lease + seconds(1));
                    run(service.leader(), |moment: &mut Moment<Log>, status| {
                        assert_eq!(status, Err(FailOverError::RequestFailure(RequestFailure::Unknown)));
                        moment.observed.lines.push("heard".into());
                        over()
                    })
                })
            })
        })
    }));
    world.run_for(Duration::from_millis(100));
    world.rates = SILENT;
    world.run();
    assert_eq!(world.observed.lines, ["heard"]);
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
        run(FailOver::new(SERVICE, WORD, options).campaign("x"), move |_, leader| {
            let Ok(leader) = leader else { return over() };
            let term = leader.term();
            ask(leader.guard(append(DATA, [term, client, 0])).unwrap(), move |_, _| {
                run(
                    leader.resign_with(append(DATA, [term, client, 1])).unwrap(),
                    move |moment: &mut Moment<Log>, end| {
                        told(moment, [term, client, 1], end);
                        over()
                    },
                )
            })
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
    let log = &world.observed;
    [DATA, ELSEWHERE].iter().for_each(|object| check_order(&written(*object)));
    check_reports(&written(DATA), &log.happened, &log.not_happened);
    check_holds(&log.led);
}

/// Records the reported outcome of a last write.
fn told(moment: &mut Moment<Log>, record: [u64; 3], end: Result<Option<Vec<CommandResult>>, FailOverError>) {
    match end {
        Ok(_) => moment.observed.happened.push(record),
        Err(FailOverError::RequestFailure(RequestFailure::Unknown)) => {}
        Err(_) => moment.observed.not_happened.push(record),
    }
}

/// At most this many terms, each with some writes here and elsewhere.
fn lives(rounds: u64) -> Doing<Log> {
    if rounds == 0 {
        return over();
    }
    run(service().campaign("x"), move |moment: &mut Moment<Log>, leader| {
        let Ok(leader) = leader else { return lives(rounds - 1) };
        let sure = moment.true_now.after(leader.sure_until().since(moment.now));
        moment.observed.led.push((leader.term(), moment.client, moment.true_now, sure));
        run(leader.fence_at(ELSEWHERE, FENCE).raise(), move |moment: &mut Moment<Log>, raised| match raised {
            Ok(()) => serves(leader, rounds, 0),
            Err(error) => {
                moment.observed.deposed += u64::from(matches!(error, RaiseError::TooLate { .. }));
                lives(rounds - 1)
            }
        })
    })
}

fn serves(leader: Leadership, rounds: u64, done: u64) -> Doing<Log> {
    sleep(Duration::from_millis(50), move |moment: &mut Moment<Log>| {
        let record = [leader.term(), moment.client as u64, done];
        if done == 4 {
            let mine = moment.observed.led.iter_mut().find(|led| led.0 == record[0]).expect("it was recorded");
            mine.3 = mine.3.min(moment.true_now);
            return match moment.rng.below(3) {
                0 => lives(rounds - 1),
                1 => run(leader.resign(), move |_, _| lives(rounds - 1)),
                _ => run(leader.resign_with(append(DATA, record)).unwrap(), move |moment: &mut Moment<Log>, end| {
                    told(moment, record, end);
                    lives(rounds - 1)
                }),
            };
        }
        if moment.rng.chance(1, 3) {
            return run(leader.progress(), move |moment: &mut Moment<Log>, leader| match leader {
                Ok(leader) => {
                    // If the outcome arrived in time.
                    let left = leader.sure_until().since(moment.now);
                    let mine =
                        moment.observed.led.iter_mut().find(|led| led.0 == leader.term()).expect("it was recorded");
                    if !left.is_zero() {
                        mine.3 = moment.true_now.after(left);
                    }
                    serves(leader, rounds, done)
                }
                Err(error) => {
                    moment.observed.deposed += u64::from(matches!(error, FailOverError::Deposed { .. }));
                    lives(rounds - 1)
                }
            });
        }
        let thinks = if moment.rng.chance(1, 10) { seconds(5) } else { Duration::from_millis(100) };
        let write = match done % 2 {
            0 => leader.guard(append(DATA, record)),
            _ => leader.fence_at(ELSEWHERE, FENCE).guard(append(ELSEWHERE, record)),
        };
        ask(write.unwrap(), move |moment: &mut Moment<Log>, answer| {
            if let Answer::Results(_) = &answer {
                if !taken(&answer) {
                    moment.observed.refused += 1;
                    return lives(rounds - 1);
                }
                moment.observed.taken += 1;
            }
            sleep(thinks, move |_| serves(leader, rounds, done + 1))
        })
    })
}

fn swarm(seed: u64, rates: FaultRates) -> Log {
    let mut world = world(seed, rates);
    for _ in 0..4 {
        world.client(lives(8));
    }
    world.run();
    world.rates = CALM;
    let came = world.now;
    world.immortal(run(service().campaign("last"), move |moment: &mut Moment<Log>, leader| {
        let leader = leader.expect("there is a leader again");
        assert!(moment.true_now.since(came) < seconds(4));
        run(leader.resign(), |_, _| over())
    }));
    world.run();
    check(&mut world);
    std::mem::take(&mut world.observed)
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
