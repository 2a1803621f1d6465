//! A set of blocks, kept as the smallest number of runs. Devices keep missed blocks and absent blocks in such sets.

use crate::BlockRange;
use std::collections::BTreeMap;

/// Disjoint runs of blocks that do not touch each other, as a map from the first block of a run to the block after its last.
#[derive(Clone, Debug, Default)]
pub struct Extents {
    runs: BTreeMap<u64, u64>,
}

impl Extents {
    /// The number of runs.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Adds blocks.
    pub fn insert(&mut self, blocks: BlockRange) {
        if blocks.is_empty() {
            return;
        }
        let (mut start, mut end) = (blocks.start, blocks.end());
        while let Some((first, behind)) = self.runs.range(..=end).next_back().map(|(first, behind)| (*first, *behind)) {
            if behind < start {
                break;
            }
            self.runs.remove(&first);
            (start, end) = (start.min(first), end.max(behind));
        }
        self.runs.insert(start, end);
    }

    /// Merges the runs with the smallest gaps between them, until at most `count` runs are left. The blocks in the gaps become part of
    /// the set.
    pub fn coarsen(&mut self, count: usize) {
        let excess = self.len().saturating_sub(count.max(1));
        let pairs = self.runs.iter().zip(self.runs.keys().skip(1));
        let mut gaps: Vec<(u64, u64)> = pairs.map(|((_, behind), next)| (next - behind, *next)).collect();
        if excess == 0 || gaps.is_empty() {
            return;
        }
        gaps.select_nth_unstable(excess - 1);
        for (gap, next) in &gaps[..excess] {
            self.insert(BlockRange::new(next - gap, *gap));
        }
    }

    /// The runs from block `from` on, in ascending order. A run that contains `from` is cut off there.
    pub fn from(&self, from: u64) -> impl Iterator<Item = BlockRange> {
        let before = self.runs.range(..from).next_back().filter(|(_, behind)| **behind > from);
        let cut = before.map(|(_, behind)| BlockRange::between(from, *behind));
        let rest = self.runs.range(from..).map(|(first, behind)| BlockRange::between(*first, *behind));
        cut.into_iter().chain(rest)
    }

    pub fn remove(&mut self, blocks: BlockRange) {
        if blocks.is_empty() {
            return;
        }
        let (start, end) = (blocks.start, blocks.end());
        while let Some((first, behind)) = self.runs.range(..end).next_back().map(|(first, behind)| (*first, *behind)) {
            if behind <= start {
                break;
            }
            self.runs.remove(&first);
            if behind > end {
                self.runs.insert(end, behind);
            }
            if first < start {
                self.runs.insert(first, start);
            }
        }
    }

    /// The number of blocks in the set.
    pub fn blocks(&self) -> u64 {
        self.runs.iter().map(|(first, behind)| behind - first).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn extents_that_are_taken_out_are_out_and_the_rest_stays(
            steps in prop::collection::vec((any::<bool>(), 0u64..300, 1u64..40), 0..60),
        ) {
            let (mut extents, mut naive) = (Extents::default(), BTreeSet::new());
            for (takes_in, start, count) in steps {
                let blocks = BlockRange::new(start, count);
                if takes_in {
                    extents.insert(blocks);
                    naive.extend(blocks.blocks());
                } else {
                    extents.remove(blocks);
                    naive.retain(|block| !blocks.blocks().contains(block));
                }
                let runs: Vec<_> = extents.from(0).collect();
                let left: Vec<u64> = runs.iter().flat_map(|run| run.blocks()).collect();
                prop_assert_eq!(left, naive.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(extents.blocks(), naive.len() as u64);
                prop_assert!(runs.iter().all(|run| !run.is_empty()));
            }
        }
    }
}
