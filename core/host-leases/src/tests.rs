//! Explores all interleavings of small worlds: hosts are silent and continue, fencers die or are suspended at every step, also between two
//! writes of a transition, answers are lost, and questions take effect late.

mod world;

use crate::*;
use braid_base::Generation;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use world::{Budget, World};

const QUIET: Budget = Budget { lost: 0, deaths: 0, passes: 2, fencers: 1, starts: 0, ends: 0 };

/// Visits every world that can come about, and returns what was seen in them.
#[track_caller]
fn explore(what: &str, world: World, expected: &[&str]) {
    let fingerprint = |world: &World| {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        hasher.finish()
    };
    let mut visited = BTreeSet::from([fingerprint(&world)]);
    let mut seen = BTreeSet::new();
    let mut next = vec![world];
    while let Some(world) = next.pop() {
        seen.extend(world.seen.iter().copied());
        let events = world.events();
        if events.is_empty() {
            world.check_at_rest();
        }
        for event in events {
            let mut after = world.clone();
            after.happen(event);
            if visited.insert(fingerprint(&after)) {
                next.push(after);
            }
        }
    }
    println!("{what}: {} worlds, {seen:?}", visited.len());
    for end in expected {
        assert!(seen.contains(end), "{end} never happened: {seen:?}");
    }
}

#[test]
fn silent_hosts_are_fenced_and_no_others() {
    let seen = ["renewed", "refused", "fenced", "forgotten"];
    explore("silence", World::new(Budget { starts: 1, ..QUIET }), &seen);
}

#[test]
fn hosts_start_and_end_meanwhile_and_answers_to_starts_are_lost() {
    let seen = ["started", "start without an answer", "released", "fenced"];
    explore("starts", World::new(Budget { starts: 2, ends: 1, passes: 1, ..QUIET }), &seen);
}

#[test]
fn a_fencer_may_die_at_every_step_and_another_one_continues() {
    let seen = ["died within a transition", "fenced", "forgotten"];
    explore("deaths", World::new(Budget { deaths: 1, fencers: 2, ..QUIET }), &seen);
}

#[test]
fn two_fencers_do_no_harm_though_one_is_suspended() {
    explore("two", World::new(Budget { fencers: 2, ..QUIET }), &["fencer refused", "fenced", "forgotten"]);
}

#[test]
fn answers_may_be_lost_and_questions_take_effect_late() {
    let seen = ["without an answer", "late", "fenced", "forgotten"];
    explore("lost answers", World::new(Budget { lost: 2, ..QUIET }), &seen);
}

#[test]
fn deaths_and_lost_answers_may_come_together() {
    let budget = Budget { lost: 1, deaths: 1, fencers: 2, passes: 1, starts: 1, ends: 0 };
    explore("all at once", World::new(budget), &["without an answer", "died", "fenced"]);
}

const LENGTH: Duration = Duration::from_secs(4);

fn at(seconds: u64) -> LeaseTime {
    LeaseTime { boot: "this".into(), elapsed: Duration::from_secs(seconds) }
}

fn heartbeat(seconds: u64, confirmed: u64) -> Heartbeat<u64> {
    Heartbeat { renewed: Some(at(seconds)), confirmed: Version(confirmed), report: confirmed }
}

#[test]
fn a_fence_excepts_exactly_the_leases_that_are_not_over() {
    let mut table = LeaseTable::new(Generation(0));
    let [first, second, third] = [0, 0, 0].map(|report| table.take(&at(10), report).unwrap().0);
    table.renew(second, heartbeat(11, 3)).unwrap();
    let (expired, writes) = table.expire(second, &at(15), LENGTH).unwrap();
    let fence = Fence { below: Generation(4), except: vec![second] };
    assert_eq!(expired, Expired { gone: vec![first, third], fence, silent: Some(Duration::from_secs(4)) });
    let lease_then_heartbeat = |host| [Write::Lease(host), Write::RemoveHeartbeat(host)];
    assert_eq!(writes, [lease_then_heartbeat(first), lease_then_heartbeat(third)].concat());
    // Of others that are over, too, though they are not fenced yet.
    let (end, writes) = table.expire_one(third, &at(15), LENGTH);
    assert_eq!(end, LeaseEnd::Ended(Fence { below: Generation(4), except: vec![second] }));
    assert_eq!(writes, []);
    assert_eq!(table.expire_one(second, &at(15), LENGTH).0, LeaseEnd::Lives);
    assert_eq!(table.renew(first, heartbeat(15, 4)), Err(LeaseLost(first)));
    assert_eq!(table.expire(first, &at(15), LENGTH), Err(LeaseLost(first)));
}

#[test]
fn a_late_renewal_takes_nothing_back() {
    let mut table = LeaseTable::new(Generation(6));
    let (host, writes) = table.take(&at(10), 0).unwrap();
    assert_eq!(writes, [Write::Counter(Generation(7)), Write::Lease(Generation(7))]);
    table.renew(host, heartbeat(14, 5)).unwrap();
    table.renew(host, heartbeat(12, 4)).unwrap();
    let kept = &table.lease(host).unwrap().heartbeat;
    assert_eq!((kept, table.silent(host, &at(15))), (&heartbeat(14, 5), Some(Duration::from_secs(1))));
}

#[test]
fn a_generation_of_which_there_is_no_fence_is_neither_given_nor_read() {
    let now = LeaseTime::default();
    let mut table = LeaseTable::new(Generation(u32::MAX - 2));
    let last = table.take(&now, ()).expect("there is one more").0;
    assert!(table.take(&now, ()).is_none());
    let heartbeat = Heartbeat { renewed: None, confirmed: Version(0), report: () };
    table.insert(Generation(u32::MAX), Lease { is_over: false, is_renewed: false, heartbeat }, None);
    let later = LeaseTime { elapsed: Duration::from_secs(100), ..now };
    assert!(table.expire_one(last, &later, Duration::ZERO).1.len() == 2 && table.leases().count() == 1);
}

#[test]
fn a_counter_that_is_behind_the_leases_is_not_followed() {
    let mut table = LeaseTable::new(Generation(2));
    table.insert(Generation(5), Lease { is_over: true, is_renewed: true, heartbeat: heartbeat(1, 0) }, None);
    assert_eq!(table.take(&at(2), 0).unwrap().0, Generation(6));
}
