//! Evaluations over a map of which some keys are not in memory.

use crate::system::*;
use std::fmt::Debug;

/// A view that has some keys only when it is asked again.
struct Paused<'a> {
    map: &'a mut Map,
    rng: Rng,
    read: BTreeSet<Key>,
}

impl Paused<'_> {
    fn pause(&mut self, key: Key) -> Result<(), Obstacle> {
        if self.read.insert(key) && self.rng.below(3) == 0 { Err(Obstacle::NotHere) } else { Ok(()) }
    }
}

impl View for Paused<'_> {
    fn get(&mut self, key: Key) -> Result<Option<Bytes>, Obstacle> {
        self.pause(key)?;
        self.map.get(key)
    }

    fn first(&mut self, keys: RangeInclusive<Key>) -> Result<Option<(Key, Bytes)>, Obstacle> {
        self.pause(*keys.start())?;
        self.map.first(keys)
    }
}

/// Evaluates something until all keys that it needs are in memory. The result is that over a map in memory.
pub fn evaluate_with_pauses<T: PartialEq + Debug>(
    map: &mut Map,
    seed: &mut u64,
    evaluate: impl Fn(&mut dyn View) -> Result<T, NotHere>,
) -> T {
    *seed = seed.wrapping_add(1);
    let expected = evaluate(map).expect("all is in memory");
    let mut paused = Paused { map, rng: Rng::new(*seed), read: BTreeSet::new() };
    let evaluation = loop {
        if let Ok(evaluation) = evaluate(&mut paused) {
            break evaluation;
        }
    };
    assert_eq!(evaluation, expected);
    evaluation
}

#[test]
fn a_check_goes_on_where_a_key_was_not_in_memory() {
    let mut system = System::new(100);
    for number in 0..20 {
        let directory = system.directory(ROOT, &format!("d{number}"));
        system.create(directory, "file", NewInode::Regular);
    }
    let mut check = Check::new(Windows { inodes: 4, blocks: 30 });
    let mut paused = Paused { map: &mut system.map, rng: Rng::new(7), read: BTreeSet::new() };
    let mut pauses = 0;
    loop {
        match check.step(&mut paused, 5) {
            Ok(true) => break,
            Ok(false) => {}
            Err(NotHere) => pauses += 1,
        }
    }
    assert_eq!(check.findings(), (&[][..], 0));
    assert!(pauses > 10, "{pauses}");
}
