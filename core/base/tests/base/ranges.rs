//! Block ranges, compared with sets of block numbers.

use braid_base::BlockRange;
use proptest::prelude::*;
use std::collections::BTreeSet;

proptest! {
    #[test]
    fn ranges_are_the_sets_of_their_blocks(a in (0..20u64, 0..10u64), b in (0..20u64, 0..10u64)) {
        let (a, b) = (BlockRange::new(a.0, a.1), BlockRange::new(b.0, b.1));
        let set = |range: BlockRange| (range.start..range.start + range.count).collect::<BTreeSet<u64>>();
        prop_assert_eq!(a.blocks().collect::<BTreeSet<_>>(), set(a));
        prop_assert_eq!(a.is_empty(), set(a).is_empty());
        prop_assert_eq!(a.overlaps(b), !set(a).is_disjoint(&set(b)));
        prop_assert_eq!(set(a.intersection(b)), &set(a) & &set(b));
        prop_assert_eq!(a.contains(b), set(a).is_superset(&set(b)));
        prop_assert_eq!(set(BlockRange::between(a.start, b.start)), (a.start..b.start).collect());
    }

    /// Ranges that have not been checked yet: no sum may wrap around.
    #[test]
    fn ranges_at_the_end_of_all_numbers_stay_there(start: u64, count: u64, other: u64) {
        let range = BlockRange::new(start, count);
        prop_assert!(range.end() >= start);
        prop_assert!(range.contains(range.intersection(BlockRange::new(other, u64::MAX))));
        prop_assert!(!range.overlaps(BlockRange::between(range.end(), u64::MAX)));
    }
}
