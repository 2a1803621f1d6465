//! Tests of the lock: scenarios with crashed, late and waiting clients; and every order of two clients' steps.

use crate::bench::world::Fate;
use crate::bench::{
    Budget, CALM, Doing, FaultRates, Moment, SILENT, World, ask, explore, late, over, run, sleep, space,
};
use braid_base::ObjectId;
use braid_recipes::fencing_token::{Fence, Unguardable, unguard};
use braid_recipes::lock::{Grant, Lock, LockError, LockOptions, LockStatus, Mode, READERS_MAX};
use braid_recipes::{Answer, RequestFailure};
use braid_wire::{Action, ActionResult, AttributeName, CommandResult, ObjectRequest, SetAttribute, Undefined, When};
use bytes::Bytes;
use std::time::Duration;

const LOCKS: ObjectId = ObjectId(1);
const DATA: ObjectId = ObjectId(2);
const WORD: AttributeName = AttributeName::new(1, 7);
const TOKEN: AttributeName = AttributeName::new(2, 7);
const ELSEWHERE: AttributeName = AttributeName::new(9, 9);

fn options() -> LockOptions {
    LockOptions { lease: Duration::from_secs(10), patience: Duration::from_secs(60), ..LockOptions::default() }
}

fn lock() -> Lock {
    Lock::new(LOCKS, WORD, options())
}

fn append(text: &str) -> ObjectRequest {
    space::one(DATA, Action::Append { data: Bytes::copy_from_slice(text.as_bytes()) })
}

fn world() -> World<Vec<String>> {
    World::new(1, CALM, &[LOCKS, DATA], Vec::new())
}

fn text(world: &World<Vec<String>>) -> String {
    String::from_utf8(world.space.bytes(DATA).to_vec()).expect("what was written")
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Makes a request under a grant, and records whether the device accepted it.
fn guarded(
    grant: &Grant,
    text: &'static str,
    then: impl FnOnce() -> Doing<Vec<String>> + 'static,
) -> Doing<Vec<String>> {
    ask(grant.guard(append(text)).expect("it can be guarded"), move |moment: &mut Moment<Vec<String>>, answer| {
        moment.observed.push(format!("{text} {}", if taken(answer) { "taken" } else { "refused" }));
        then()
    })
}

fn taken(answer: Answer) -> bool {
    match answer {
        Answer::Results(results) => unguard(results).is_ok(),
        other => panic!("{other:?}"),
    }
}

fn held(taken: Result<Grant, LockError>) -> Grant {
    taken.expect("it is granted")
}

#[test]
fn a_lock_is_taken_and_given_back_in_one_round_trip_each() {
    let mut world = world();
    for round in 1..=3_u64 {
        let before = world.trace().len();
        world.client(run(lock().acquire("a"), move |_, grant| {
            let grant = held(grant);
            assert_eq!((grant.token(), grant.mode()), (2 * round - 1, Mode::Exclusive));
            guarded(&grant.clone(), "x", move || {
                run(grant.release(), |_, end| {
                    assert_eq!(end, Ok(()));
                    over()
                })
            })
        }));
        world.run();
        assert_eq!(world.trace().len() - before, 3, "acquire, write, release");
    }
    assert_eq!((text(&world).as_str(), world.space.value(LOCKS, WORD)), ("xxx", Bytes::new()));
}

#[test]
fn the_last_write_releases_and_a_free_lock_costs_one_round_trip_in_all() {
    let mut world = world();
    world.client(run(lock().acquire("a"), |_, grant| {
        run(held(grant).release_with(append("last")).unwrap(), |_, end| {
            assert_eq!(end.unwrap().unwrap()[0].action, ActionResult::Appended { offset: 0 });
            over()
        })
    }));
    world.run();
    assert_eq!(world.trace().len(), 2);
    world.client(run(lock().once("b", append(" and once")).unwrap(), |_, end| {
        assert_eq!(end.unwrap().unwrap()[0].action, ActionResult::Appended { offset: 4 });
        over()
    }));
    world.run();
    assert_eq!(world.trace().len(), 3);
    assert_eq!((text(&world).as_str(), world.space.value(LOCKS, WORD)), ("last and once", Bytes::new()));
    assert_eq!(world.space.number(LOCKS, TOKEN), 4);
}

#[test]
fn a_paused_holder_that_writes_late_is_refused() {
    let mut world = world();
    world.client(run(lock().acquire("paused"), |_, grant| {
        let grant = held(grant);
        let write = grant.guard(append("late")).unwrap();
        // Its request is delayed by more than its lease.
        late(seconds(15), write, |moment: &mut Moment<Vec<String>>, answer| {
            assert!(!taken(answer));
            moment.observed.push("late refused".into());
            run(grant.renew(), |_, renewed| {
                assert_eq!(renewed.unwrap_err(), LockError::Lost);
                run(grant.release_with(append("later")).unwrap(), |_, end| {
                    assert_eq!(end.unwrap_err(), LockError::Lost);
                    over()
                })
            })
        })
    }));
    world.run_for(seconds(1));
    world.client(run(lock().acquire("next"), |moment: &mut Moment<Vec<String>>, grant| {
        let grant = held(grant);
        assert_eq!(grant.token(), 2, "higher than the paused one's");
        moment.observed.push("granted".into());
        guarded(&grant.clone(), "next", move || sleep(seconds(8), move |_| run(grant.release(), |_, _| over())))
    }));
    world.run();
    assert_eq!(
        (text(&world).as_str(), world.observed.join(", ").as_str()),
        ("next", "granted, next taken, late refused")
    );
}

#[test]
fn a_write_that_comes_after_its_holder_has_released_is_refused() {
    let mut world = world();
    world.client(run(lock().acquire("a"), |_, grant| {
        let grant = held(grant);
        let write = grant.guard(append("late")).unwrap();
        run(grant.release(), move |_, _| {
            ask(write, |_, answer| {
                assert!(!taken(answer));
                over()
            })
        })
    }));
    world.run();
    assert_eq!(text(&world), "");
}

#[test]
fn a_holder_that_renews_keeps_the_lock_and_one_that_dies_loses_it_after_its_lease() {
    let mut world = world();
    fn keeps(grant: Grant, times: u32) -> Doing<Vec<String>> {
        sleep(seconds(4), move |moment| {
            assert!(moment.now <= grant.sure_until());
            run(
                grant.renew(),
                move |_, grant| {
                    if times == 0 { sleep(seconds(999), |_| over()) } else { keeps(held(grant), times - 1) }
                },
            )
        })
    }
    let holder = world.client(run(lock().acquire("a"), |_, grant| keeps(held(grant), 10)));
    world.run_for(seconds(1));
    let hasty = Lock::new(LOCKS, WORD, LockOptions { patience: seconds(30), ..options() });
    world.client(run(hasty.acquire("b"), |moment: &mut Moment<Vec<String>>, grant| {
        assert_eq!(grant.unwrap_err(), LockError::TimedOut { holder: Some("a".into()) });
        moment.observed.push(format!("given up at {}", moment.true_now.0 / 1_000_000_000));
        over()
    }));
    world.run_for(seconds(40));
    assert_eq!(world.observed, ["given up at 31"]);
    world.kill(holder);
    world.client(run(lock().acquire("c"), |moment: &mut Moment<Vec<String>>, grant| {
        moment.observed.push(format!("granted at {}", moment.true_now.0 / 1_000_000_000));
        run(held(grant).release(), |_, _| over())
    }));
    world.run();
    assert_eq!(world.observed[1], "granted at 51", "a lease after it came, since it had seen no heartbeat before");
}

#[test]
fn a_renewal_by_way_of_an_old_copy_counts_from_when_it_was_sent() {
    let mut world = world();
    world.client(run(lock().acquire("a"), |_, grant| {
        let grant = held(grant);
        let copy = grant.clone();
        sleep(seconds(4), move |_| {
            run(copy.renew(), move |_, _| {
                sleep(seconds(4), move |_| {
                    run(grant.renew(), |_, grant| {
                        held(grant);
                        over()
                    })
                })
            })
        })
    }));
    world.run_for(seconds(1));
    world.client(run(lock().acquire("b"), |moment: &mut Moment<Vec<String>>, grant| {
        held(grant);
        moment.observed.push(format!("granted at {}", moment.true_now.0 / 1_000_000_000));
        over()
    }));
    world.run();
    assert_eq!(world.observed, ["granted at 18"]);
}

#[test]
fn readers_share_and_a_waiting_writer_is_next() {
    let mut world = world();
    fn reads(name: &'static str, span: u64) -> Doing<Vec<String>> {
        run(lock().share(name), move |moment: &mut Moment<Vec<String>>, grant| {
            let grant = held(grant);
            assert_eq!(grant.mode(), Mode::Shared);
            moment.observed.push(format!("{name}{}", grant.token()));
            sleep(seconds(span), move |_| {
                run(grant.release(), |_, end| {
                    assert_eq!(end, Ok(()));
                    over()
                })
            })
        })
    }
    world.client(reads("r", 4));
    world.client(reads("s", 6));
    world.run_for(seconds(1));
    world.client(run(lock().acquire("w"), |moment: &mut Moment<Vec<String>>, grant| {
        moment.observed.push(format!("w{}", held(grant.clone()).token()));
        run(held(grant).release(), |_, _| over())
    }));
    world.run_for(seconds(1));
    // These come while the writer waits, together with one more writer.
    world.client(reads("t", 1));
    world.client(reads("u", 1));
    world.client(run(lock().status(), |_, status| {
        let LockStatus { mode, holders, waiting, token } = status.unwrap();
        assert_eq!((mode, holders.len(), waiting, token), (Some(Mode::Shared), 2, Some("w".into()), 1));
        over()
    }));
    world.run();
    let order: String = world.observed.join(" ");
    assert!(
        ["r1 s1 w3 t5 u5", "s1 r1 w3 t5 u5", "r1 s1 w3 u5 t5", "s1 r1 w3 u5 t5"].contains(&order.as_str()),
        "{order}"
    );
}

#[test]
fn a_mark_that_is_renewed_keeps_readers_out_for_longer_than_a_lease() {
    let mut world = world();
    fn reads(grant: Grant, times: u32) -> Doing<Vec<String>> {
        match times {
            0 => run(grant.release(), |_, _| over()),
            _ => sleep(seconds(3), move |_| run(grant.renew(), move |_, grant| reads(held(grant), times - 1))),
        }
    }
    fn notes(
        name: &'static str,
    ) -> impl FnOnce(&mut Moment<Vec<String>>, Result<Grant, LockError>) -> Doing<Vec<String>> {
        move |moment, grant| {
            moment.observed.push(format!("{name} at {}", moment.true_now.0 / 1_000_000_000));
            run(held(grant).release(), |_, _| over())
        }
    }
    world.client(run(lock().share("r"), |_, grant| reads(held(grant), 10)));
    world.run_for(seconds(1));
    world.client(run(lock().acquire("w"), notes("writer")));
    world.run_for(seconds(2));
    world.client(run(lock().share("s"), notes("reader")));
    world.run();
    assert_eq!(world.observed, ["writer at 30", "reader at 30"]);
}

#[test]
fn a_dead_writers_mark_and_dead_readers_are_not_in_the_way_for_ever() {
    let mut world = world();
    let dead: Vec<usize> =
        ["r", "s"].map(|name| world.client(run(lock().share(name), |_, _| sleep(seconds(99), |_| over())))).into();
    world.run_for(seconds(1));
    let writer = world.client(run(lock().acquire("w"), |_, _| panic!("it dies before")));
    world.run_for(seconds(2));
    dead.into_iter().chain([writer]).for_each(|client| world.kill(client));
    let share = |moment: &mut Moment<Vec<String>>, grant| {
        moment.observed.push(format!("granted at {}", moment.true_now.0 / 1_000_000_000));
        run(held(grant).release(), |_, _| over())
    };
    world.client(run(lock().share("t"), share));
    world.run();
    assert_eq!(world.observed, ["granted at 13"]);
    assert_eq!(world.space.value(LOCKS, WORD), Bytes::new());
}

#[test]
fn a_full_table_of_readers_admits_no_other_until_one_ends() {
    let mut world = world();
    for _ in 0..READERS_MAX {
        world.client(run(lock().share("r"), |_, grant| {
            sleep(seconds(8), move |_| run(held(grant).release(), |_, _| over()))
        }));
        world.run_for(Duration::from_millis(50));
    }
    world.client(run(lock().share("one more"), |moment: &mut Moment<Vec<String>>, grant| {
        assert_eq!(held(grant).token(), 1, "the hold goes on");
        moment.observed.push(format!("granted at {}", moment.true_now.0 / 1_000_000_000));
        over()
    }));
    world.run();
    assert_eq!(world.observed, ["granted at 8"]);
}

#[test]
fn a_client_that_gives_up_removes_its_mark() {
    let mut world = world();
    world.client(run(lock().share("r"), |_, grant| {
        sleep(seconds(5), move |_| run(held(grant).release(), |_, _| over()))
    }));
    world.run_for(seconds(1));
    let hasty = Lock::new(LOCKS, WORD, LockOptions { patience: seconds(1), ..options() });
    world.client(run(hasty.acquire("w"), |_, grant| {
        assert_eq!(grant.unwrap_err(), LockError::TimedOut { holder: Some("r".into()) });
        run(lock().status(), |_, status| {
            assert_eq!(status.unwrap().waiting, None);
            over()
        })
    }));
    world.run();
}

#[test]
fn a_fence_elsewhere_keeps_the_former_holder_out_and_never_falls() {
    let mut world = world();
    let guard = |fence: &Fence, text| fence.guard(append(text)).unwrap();
    let first = Fence { object: DATA, name: ELSEWHERE, token: 3 };
    let second = Fence { token: 8, ..first.clone() };
    let (early, late) = (guard(&first, "early "), guard(&first, "late "));
    let next = guard(&second, "next ");
    let again = first.clone();
    world.client(run(first.raise(), move |_, raised| {
        assert_eq!(raised, Ok(()));
        ask(early, move |_, answer| {
            assert!(taken(answer));
            run(second.raise(), move |_, raised| {
                assert_eq!(raised, Ok(()));
                ask(late, move |_, answer| {
                    assert!(!taken(answer));
                    ask(next, move |_, answer| {
                        assert!(taken(answer));
                        run(again.raise(), |_, raised| {
                            assert!(raised.unwrap_err().to_string().contains("of token 8"));
                            over()
                        })
                    })
                })
            })
        })
    }));
    world.run();
    assert_eq!(text(&world), "early next ");
}

#[test]
fn what_cannot_be_guarded_is_not() {
    let fence = Fence { object: LOCKS, name: TOKEN, token: 1 };
    let command = |action| space::command(DATA, action);
    let swap = || {
        let (name, compare, swap) = (ELSEWHERE, Bytes::new(), Bytes::from_static(b"x"));
        command(Action::CompareAndSwap { name, compare, swap, undefined: Undefined::IsEmpty, original: false })
    };
    let mut after = command(Action::Flush);
    let guard = |commands: &[_]| fence.guard(ObjectRequest { commands: commands.to_vec() });
    assert_eq!(guard(&[swap(), after.clone()]), Err(Unguardable::Always(1)));
    after.when = When::IfSwapped;
    assert!(guard(&[swap(), after.clone()]).is_ok());
    after.when = When::IfNotSwapped;
    assert_eq!(guard(&[swap(), after.clone()]), Err(Unguardable::IfNotSwapped(1)));
    let mut setting = swap();
    setting.sets = vec![SetAttribute { name: ELSEWHERE, value: Bytes::new() }];
    assert_eq!(guard(&[setting.clone()]), Err(Unguardable::Always(0)));
    setting.sets_when = When::IfNotSwapped;
    assert_eq!(guard(&[setting]), Err(Unguardable::IfNotSwapped(0)));
    assert_eq!(guard(&vec![command(Action::Flush); 64]), Err(Unguardable::TooMany(64)));
    assert!(unguard(vec![CommandResult { action: ActionResult::Done, values: vec![] }]).is_err());
}

#[test]
fn what_is_no_lock_is_left_alone() {
    for junk in [&b"x"[..], &[1, 1, 2], &[1, 3, 0, 0], &[1, 1, 0, 0, 0], &[1, 2, 1, 200]] {
        let mut world = world();
        let set = SetAttribute { name: WORD, value: Bytes::copy_from_slice(junk) };
        let mut request = space::one(LOCKS, Action::Nothing);
        request.commands[0].sets.push(set);
        world.space.execute(&request).unwrap();
        world.client(run(lock().acquire("a"), |_, grant| {
            assert_eq!(grant.unwrap_err(), LockError::NoLock);
            run(lock().status(), |_, status| {
                assert_eq!(status, Err(LockError::NoLock));
                over()
            })
        }));
        world.run();
        assert_eq!(world.space.value(LOCKS, WORD), junk);
    }
    let mut world = world();
    world.client(run(Lock::new(ObjectId(99), WORD, options()).acquire("a"), |_, grant| {
        assert!(matches!(grant, Err(LockError::RequestFailure(RequestFailure::Refused(_)))));
        over()
    }));
    world.run();
}

/// One client, of which every answer may be lost.
#[test]
fn without_contenders_the_lock_is_never_reported_as_lost() {
    let client = || {
        run(lock().acquire("a"), |_, grant| {
            run(held(grant).renew(), |_, grant| {
                run(held(grant).release(), |_, end| {
                    assert_eq!(end, Ok(()));
                    run(lock().share("a"), |_, grant| {
                        run(held(grant).release_with(append("x")).unwrap(), |moment: &mut Moment<Vec<String>>, end| {
                            moment
                                .observed
                                .push(end.map(|_| "done").expect("no other client has held it since").into());
                            over()
                        })
                    })
                })
            })
        })
    };
    let budget = Budget { unknown: 2, deaths: 0, waits: 0 };
    let begin = || (Vec::new(), vec![client()]);
    let (runs, ended) = explore(
        budget,
        &[LOCKS, DATA],
        begin,
        |_, _| (),
        |world| {
            assert_eq!((text(world).as_str(), &world.observed[..]), ("x", &["done".to_string()][..]));
        },
    );
    assert!(runs == ended && runs > 50, "{runs} {ended}");
}

/// Two clients write under the lock, in every order of their steps, with one lost answer or one crash.
#[test]
fn two_clients_in_every_order() {
    let options = LockOptions {
        lease: Duration::from_millis(1),
        first_pause: Duration::from_micros(600),
        longest_pause: Duration::from_micros(600),
        patience: Duration::from_secs(1),
        idempotency_record: None,
    };
    let writes = move |text: &'static str, last: &'static str| {
        run(Lock::new(LOCKS, WORD, options).acquire(text), move |_, grant| {
            let Ok(grant) = grant else { return over() };
            ask(grant.guard(append(text)).unwrap(), move |_, _| {
                run(grant.release_with(append(last)).unwrap(), move |moment: &mut Moment<Vec<String>>, end| {
                    match end {
                        Ok(_) => moment.observed.push(last.into()),
                        Err(LockError::Lost) => moment.observed.push(format!("not {last}")),
                        Err(error) => assert_eq!(error, LockError::RequestFailure(RequestFailure::Unknown)),
                    }
                    over()
                })
            })
        })
    };
    for budget in [Budget { unknown: 1, deaths: 0, waits: 5 }, Budget { unknown: 0, deaths: 1, waits: 5 }] {
        let begin = || (Vec::new(), vec![writes("a", "A"), writes("b", "B")]);
        let (runs, ended) = explore(
            budget,
            &[LOCKS, DATA],
            begin,
            |_, _| (),
            |world| {
                let text = text(world);
                // A client's writes are contiguous unless it has lost the lock, and then it writes no more.
                assert!(!text.contains("ab") || !text.contains('A'), "{text}");
                assert!(!text.contains("ba") || !text.contains('B'), "{text}");
                for said in &world.observed {
                    let (last, times) = said.strip_prefix("not ").map_or((&said[..], 1), |last| (last, 0));
                    assert_eq!(text.matches(last).count(), times, "the reported outcome is true: {said}: {text}");
                }
                if (0..2).all(|client| world.fate(client) == Fate::Through) && budget.unknown == 0 {
                    assert!(text.contains('A') || text.contains('B'), "a client held it: {text}");
                }
            },
        );
        println!("{budget:?}: {runs} runs, of which {ended} ended");
        assert!(ended > 100, "{runs} {ended}");
    }
}

/// One client that makes a single request under the lock, and of which every answer may be lost.
#[test]
fn without_contenders_every_outcome_is_known() {
    let once = |then: fn() -> Doing<Vec<String>>| {
        run(lock().once("a", append("x")).unwrap(), move |_, end| {
            end.expect("no other client has held it");
            then()
        })
    };
    let budget = Budget { unknown: 2, deaths: 0, waits: 0 };
    let begin = || (Vec::new(), vec![once(over)]);
    let at_end = |world: &mut World<Vec<String>>| assert_eq!(text(world), "x");
    let (runs, ended) = explore(budget, &[LOCKS, DATA], begin, |_, _| (), at_end);
    assert!(runs == ended && runs > 5, "{runs} {ended}");
}

#[test]
fn a_client_that_is_cut_off_learns_that_its_lease_expired() {
    for rates in [SILENT, FaultRates { busy: 1000, ..CALM }] {
        let mut world = world();
        world.client(run(lock().acquire("a"), |_, grant| {
            let grant = held(grant);
            sleep(seconds(3), move |_| {
                run(grant.renew(), move |moment: &mut Moment<Vec<String>>, renewed| {
                    assert_eq!(renewed, Err(LockError::Uncertain));
                    assert_eq!(moment.now.max(grant.sure_until()), moment.now);
                    assert!(moment.now.since(grant.sure_until()) < Duration::from_millis(10));
                    let began = moment.now;
                    run(grant.renew(), move |moment: &mut Moment<Vec<String>>, renewed| {
                        assert_eq!(renewed, Err(LockError::Uncertain), "begun late, it still tries for a while");
                        assert!(moment.now.since(began) < options().lease / 2);
                        let began = moment.now;
                        run(grant.release(), move |moment: &mut Moment<Vec<String>>, end| {
                            assert!(matches!(end, Err(LockError::RequestFailure(_))), "{end:?}");
                            assert!(moment.now.since(began) < options().lease + seconds(1));
                            moment.observed.push("heard".into());
                            over()
                        })
                    })
                })
            })
        }));
        world.run_for(seconds(1));
        world.rates = rates;
        world.run();
        assert_eq!(world.observed, ["heard"]);
    }
}

#[test]
fn an_observer_of_a_silent_device_learns_that_it_is_silent() {
    let mut world = world();
    world.client(run(lock().status(), |moment: &mut Moment<Vec<String>>, status| {
        assert_eq!(status, Err(LockError::RequestFailure(RequestFailure::Unknown)));
        moment.observed.push("heard".into());
        over()
    }));
    world.rates = SILENT;
    world.run();
    assert_eq!(world.observed, ["heard"]);
}

/// Whatever length the pauses are configured to have: no client sees the same mark for a lease.
#[test]
fn a_short_lease_makes_for_short_pauses() {
    let short = LockOptions { lease: Duration::from_millis(500), longest_pause: seconds(5), ..options() };
    for seed in 0..20 {
        let mut world = World::new(seed, CALM, &[LOCKS, DATA], Vec::new());
        fn reads(grant: Grant, times: u32) -> Doing<Vec<String>> {
            match times {
                0 => run(grant.release(), |_, _| over()),
                _ => sleep(Duration::from_millis(100), move |_| {
                    run(grant.renew(), move |_, grant| reads(held(grant), times - 1))
                }),
            }
        }
        let lock = Lock::new(LOCKS, WORD, short);
        world.client(run(lock.share("r"), |_, grant| reads(held(grant), 100)));
        world.run_for(Duration::from_millis(100));
        world.client(run(lock.acquire("w"), |moment: &mut Moment<Vec<String>>, grant| {
            moment.observed.push("writer".into());
            run(held(grant).release(), |_, _| over())
        }));
        world.run_for(Duration::from_millis(100));
        world.client(run(lock.share("s"), |moment: &mut Moment<Vec<String>>, grant| {
            moment.observed.push("reader".into());
            run(held(grant).release(), |_, _| over())
        }));
        world.run();
        assert_eq!(world.observed, ["writer", "reader"], "seed {seed}: the mark keeps readers out");
    }
}

#[test]
fn a_client_without_patience_tries_once() {
    let mut world = world();
    let hasty = Lock::new(LOCKS, WORD, LockOptions { patience: Duration::ZERO, ..options() });
    world.client(run(hasty.acquire("a"), move |_, grant| {
        let first = held(grant);
        run(hasty.acquire("b"), move |_, grant| {
            assert!(matches!(grant, Err(LockError::TimedOut { holder: Some(_) })), "{grant:?}");
            run(first.release(), move |_, end| {
                assert_eq!(end, Ok(()));
                run(hasty.share("c"), move |_, grant| {
                    held(grant);
                    run(hasty.share("d"), |_, grant| {
                        assert_eq!(held(grant).mode(), Mode::Shared, "it joins at once");
                        over()
                    })
                })
            })
        })
    }));
    world.run();
}
