//! Random numbers: a seed gives the same sequence in every release.

use braid_base::Rng;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// The reference values of SplitMix64. A change here would change the meaning of every recorded seed.
#[test]
fn a_seed_means_the_same_for_ever() {
    let mut rng = Rng::new(0);
    let first = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
    assert_eq!(first, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
}

#[test]
fn every_number_within_the_bounds_comes_up() {
    let mut rng = Rng::new(8);
    let below: BTreeSet<u64> = (0..1000).map(|_| rng.below(5)).collect();
    assert_eq!(below, BTreeSet::from([0, 1, 2, 3, 4]));
    let between: BTreeSet<u64> = (0..1000).map(|_| rng.between(3, 6)).collect();
    assert_eq!(between, BTreeSet::from([3, 4, 5, 6]));
}

#[test]
fn chance_comes_up_as_often_as_it_says() {
    let mut rng = Rng::new(9);
    assert!((0..1000).all(|_| !rng.chance(0, 7) && rng.chance(7, 7)));
    let often = (0..70_000).filter(|_| rng.chance(2, 7)).count();
    assert!((19_000..21_000).contains(&often), "{often} of 70000 where 20000 are expected");
}

#[test]
fn a_fork_goes_its_own_way() {
    let mut rng = Rng::new(1);
    let mut fork = rng.fork();
    let numbers: BTreeSet<u64> = (0..100).flat_map(|_| [rng.next_u64(), fork.next_u64()]).collect();
    assert_eq!(numbers.len(), 200);
}

proptest! {
    #[test]
    fn numbers_stay_within_their_bounds(seed: u64, bound in 1..=u64::MAX, low: u64, high: u64) {
        let mut rng = Rng::new(seed);
        prop_assert!(rng.below(bound) < bound);
        prop_assert_eq!(rng.below(1), 0);
        let (low, high) = (low.min(high), low.max(high).min(u64::MAX - 1));
        prop_assume!(low <= high);
        prop_assert!((low..=high).contains(&rng.between(low, high)));
        prop_assert_eq!(rng.between(low, low), low);
    }
}
