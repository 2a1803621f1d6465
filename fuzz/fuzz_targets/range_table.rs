//! The range table, compared with a plain list.
#![no_main]

use arbitrary::Arbitrary;
use braid_base::{BlockRange, RangeTable};

#[derive(Arbitrary, Debug)]
enum Step {
    Insert { start: u8, count: u16, owner: u8 },
    Remove { start: u8, owner: u8 },
    Find { start: u16, count: u16 },
}

libfuzzer_sys::fuzz_target!(|steps: Vec<Step>| {
    let mut table = RangeTable::default();
    let mut list: Vec<(BlockRange, u8)> = Vec::new();
    for step in steps {
        match step {
            Step::Insert { start, count, owner } => {
                let range = BlockRange::new(start.into(), count.into());
                if !range.is_empty() && list.iter().all(|(held, by)| (held.start, *by) != (range.start, owner)) {
                    table.insert(range, owner, count);
                    list.push((range, owner));
                }
            }
            Step::Remove { start, owner } => {
                let index = list.iter().position(|(held, by)| (held.start, *by) == (start.into(), owner));
                let removed = index.map(|index| list.swap_remove(index).0.count);
                assert_eq!(table.remove(start.into(), owner).map(u64::from), removed);
            }
            Step::Find { start, count } => {
                let range = BlockRange::new(start.into(), count.into());
                let mut found: Vec<_> = table.overlapping(range).map(|(held, owner, _)| (held, owner)).collect();
                let mut expected: Vec<_> =
                    list.iter().copied().filter(|(held, _)| shares_a_block(*held, range)).collect();
                found.sort();
                expected.sort();
                assert_eq!(found, expected);
            }
        }
        assert_eq!(table.len(), list.len());
    }
});

fn shares_a_block(one: BlockRange, other: BlockRange) -> bool {
    other.count > 0 && one.start < other.start + other.count && other.start < one.start + one.count
}
