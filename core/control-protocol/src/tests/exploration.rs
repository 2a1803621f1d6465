//! Visiting every world that can come about.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A small world.
pub trait Explored: Clone + Debug {
    type Event: Copy;

    /// What may happen next.
    fn events(&self) -> Vec<Self::Event>;

    fn happen(&mut self, event: Self::Event);

    /// Takes out how operations have ended: what was seen before does not distinguish worlds.
    fn take_ends(&mut self) -> BTreeSet<String>;
}

/// Visits every world that can come about, and checks those in which nothing can happen any more. Returns how operations ended, and which
/// stages they reached.
pub fn explore<W: Explored>(world: W, at_rest: impl Fn(&W)) -> BTreeSet<String> {
    let look = |world: &W| {
        let mut world = world.clone();
        let ends = world.take_ends();
        let mut hasher = DefaultHasher::new();
        format!("{world:?}").hash(&mut hasher);
        (hasher.finish(), ends)
    };
    let (fingerprint, mut ends) = look(&world);
    let (mut visited, mut next) = (BTreeSet::from([fingerprint]), vec![world]);
    while let Some(world) = next.pop() {
        let events = world.events();
        if events.is_empty() {
            at_rest(&world);
        }
        for event in events {
            let mut after = world.clone();
            after.happen(event);
            let (fingerprint, seen) = look(&after);
            ends.extend(seen);
            if visited.insert(fingerprint) {
                next.push(after);
            }
        }
    }
    println!("{} worlds, {ends:?}", visited.len());
    ends
}

#[track_caller]
pub fn ends_with(ends: &BTreeSet<String>, expected: &[&str]) {
    for end in expected {
        assert!(ends.iter().any(|found| found.contains(end)), "{end} never happened: {ends:?}");
    }
}
