//! Swarm runs. A seed decides the number of candidates, the rates of clocks, the kinds of faults and everything else. After the faults a leader
//! must be there within a bound, and stay. In some runs the registry alone fails, and no device may be without a lease.

use crate::checks::RATE_MAX;
use crate::faults::{ALL, Kind};
use crate::world::{Event, World};
use braid_base::Rng;
use std::collections::BTreeMap;
use std::time::Duration;

const FAULTS: Duration = Duration::from_secs(25);
/// The first leader is there: a start, the silence, and a write.
const FIRST: Duration = Duration::from_secs(6);
/// A leader is there again after all faults.
const HEALED: Duration = Duration::from_secs(7);

/// Prints the seed of a run that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("FAILED in the run of seed {}", self.0);
        }
    }
}

/// One run. Returns what happened how often.
pub fn run(seed: u64) -> BTreeMap<&'static str, u64> {
    let _named = Seed(seed);
    let mut rng = Rng::new(seed).fork();
    let candidates = rng.between(2, 3) as usize;
    let (is_extreme, is_exact) = (rng.chance(1, 2), rng.chance(1, 4));
    let rate = |rng: &mut Rng| match rng.below(3) {
        _ if is_exact => 0,
        0 => RATE_MAX,
        1 if is_extreme => -RATE_MAX,
        _ => rng.below(2 * RATE_MAX as u64) as i64 - RATE_MAX,
    };
    let mut world = World::new(rng.fork(), candidates, rate);
    world.queue.push(world.now, Event::Request);
    match rng.below(8) {
        0 => only_the_registry(&mut world, &mut rng),
        1 => many_faults(&mut world, &mut rng, &[Kind::GoesBack]),
        _ => many_faults(&mut world, &mut rng, &[]),
    }
}

/// Faults of a few kinds, and then none.
fn many_faults(world: &mut World, rng: &mut Rng, also: &[Kind]) -> BTreeMap<&'static str, u64> {
    world.run(FIRST);
    let mut kinds: Vec<Kind> = (0..rng.between(1, 5)).map(|_| ALL[rng.below(ALL.len() as u64) as usize]).collect();
    kinds.extend(also);
    let often = rng.between(300, 4_000);
    let end = world.now.after(FAULTS);
    while world.now < end {
        world.run(Duration::from_millis(rng.below(often)));
        world.begin(kinds[rng.below(kinds.len() as u64) as usize]);
    }
    world.heal();
    world.run(HEALED);
    // What has seen a later state leads no more.
    if !world.checks.has_gone_back {
        assert!(world.granting().is_some(), "there is a leader again");
        let losses = world.checks.counts.get("losses").copied();
        let leader = world.leader();
        world.run(Duration::from_secs(6));
        assert_eq!((world.leader(), world.checks.counts.get("losses").copied()), (leader, losses), "and it stays");
    }
    std::mem::take(&mut world.checks.counts)
}

/// The registry has no quorum again and again, or is full; everything else is well.
fn only_the_registry(world: &mut World, rng: &mut Rng) -> BTreeMap<&'static str, u64> {
    world.run(FIRST);
    assert!(world.granting().is_some(), "there is a first leader");
    let (leader, kind) = (world.leader(), if rng.chance(2, 3) { Kind::NoQuorum } else { Kind::Full });
    for _ in 0..3 {
        world.begin(kind);
        world.run(Duration::from_secs(14));
        assert!(kind == Kind::Full || world.leader() == leader, "an outage of the registry changes no leader");
    }
    for (device, place) in world.devices.iter().enumerate() {
        assert_eq!(place.pause, Duration::ZERO, "device {device} was without a lease");
    }
    world.checks.count("runs in which the registry alone failed");
    std::mem::take(&mut world.checks.counts)
}

#[test]
fn five_hundred_seeds_keep_every_promise() {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..500 {
        for (what, count) in run(seed) {
            *counts.entry(what).or_default() += count;
        }
    }
    let reached = "won after following, won after a start, promises, grants under a pact, writes, current answers, orderly ends, losses, \
                   stops, devices taken for free, runs in which the registry alone failed";
    for what in reached.split(", ") {
        assert!(counts.get(what).is_some_and(|count| *count >= 20), "{what}: {counts:?}");
    }
}
