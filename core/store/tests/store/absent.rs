//! Tests of absent blocks: objects that are created on this device while other devices hold their content, and blocks that can't be
//! restored.

use crate::damage::home_of;
use crate::protocol::*;
use braid_blocks::Want;

const BLOCKS: u64 = 400;

fn with_absent(journal: u64, seed: u64) -> Bench {
    let mut bench = Bench::with_journal(journal, seed);
    assert_eq!(bench.create(ObjectDescription::new(OBJECT, BLOCKS), u64::MAX), Ok(()));
    bench
}

fn lost(start: u64, count: u64) -> Piece {
    Piece { range: BlockRange::new(start, count), content: Content::Lost }
}

fn absent(bench: &Bench) -> BTreeSet<u64> {
    let (extents, next) = bench.store.absent(OBJECT, 0);
    assert_eq!(next, None);
    extents.iter().flat_map(|extent| extent.blocks()).collect()
}

fn salvage(bench: &mut Bench, start: u64, count: u64) -> Vec<Piece> {
    bench.store.read_as(Want::Salvage, 5, OBJECT, &[BlockRange::new(start, count)], &mut bench.out);
    bench.run();
    match bench.events.pop_front() {
        Some(StoreEvent::Read { ticket: 5, result: Ok(pieces) }) => pieces,
        event => panic!("salvaged, but got {event:?}"),
    }
}

#[test]
fn absent_blocks_are_not_read_and_written_ones_are_there() {
    let mut bench = with_absent(1 << 20, 1);
    assert_eq!(bench.store.absent(OBJECT, 7), (vec![BlockRange::new(7, BLOCKS - 7)], None));
    assert_eq!(bench.read(3, 1), Err(Failure::Absent));
    bench.write(1, vec![data(3, 2, 50), hole(9, 1), data(32, 16, 70)]);
    assert_eq!(bench.read(3, 2), Ok(patterns([50, 51])));
    assert_eq!(bench.read(9, 1), Ok(vec![0; 4096]));
    assert_eq!(bench.read(32, 16), Ok(patterns(70..86)));
    for start in [2, 4, 8, 9, 31, 47] {
        assert_eq!(bench.read(start, 2), Err(Failure::Absent), "{start}");
    }
    // A block of an undecided or aborted intent stays absent.
    assert_eq!(bench.prepare(intent(2, vec![data(100, 1, 90)])), Ok(()));
    assert_eq!(bench.read(100, 1), Err(Failure::Absent));
    bench.abort(2);
    assert_eq!(bench.read(100, 1), Err(Failure::Absent));
    assert_eq!(bench.counter("blocks_absent"), BLOCKS - 19);
}

#[test]
fn possible_content_is_listed_by_chunks() {
    let mut bench = with_absent(1 << 20, 1);
    bench.write(1, vec![data(17, 1, 50), data(32, 16, 70), data(80, 1, 90), hole(96, 16)]);
    let told = |start, count| bench.store.allocated(OBJECT, BlockRange::new(start, count)).0;
    assert_eq!(told(0, BLOCKS), [BlockRange::new(16, 32), BlockRange::new(80, 16)]);
    assert_eq!(told(20, 65), [BlockRange::new(20, 28), BlockRange::new(80, 5)]);
    assert_eq!(told(300, 10_000), []);
}

#[test]
fn blocks_written_as_lost_are_lost_until_written_again() {
    let mut bench = with_absent(1 << 20, 1);
    bench.write(1, vec![data(3, 1, 50), lost(4, 1), data(5, 1, 60), lost(16, 16), lost(40, 2)]);
    for _ in 0..2 {
        assert_eq!(bench.read(3, 3), Err(Failure::Lost { block: 4 }));
        assert_eq!(bench.read(5, 1), Ok(pattern(60)));
        assert_eq!(bench.read(20, 1), Err(Failure::Lost { block: 20 }));
        assert_eq!(bench.read(41, 1), Err(Failure::Lost { block: 41 }));
        assert_eq!(bench.read(42, 1), Err(Failure::Absent));
        // The other blocks can be salvaged.
        let left = salvage(&mut bench, 3, 3);
        let expected = [data(3, 1, 50), lost(4, 1), data(5, 1, 60)];
        assert_eq!(left, expected);
        // A checkpoint writes it to its slot as lost, and it is found as lost.
        for sequence in 100..160 {
            bench.write(sequence, vec![data(60, 3, sequence)]);
        }
        bench = bench.restart().expect("nothing is damaged").0;
    }
    bench.write(2, vec![data(4, 1, 55), data(16, 16, 80)]);
    assert_eq!(bench.read(3, 3), Ok(patterns([50, 55, 60])));
    assert_eq!(bench.read(16, 16), Ok(patterns(80..96)));
}

#[test]
fn a_corrupt_block_is_salvaged_as_lost_and_its_neighbours_are_read() {
    let mut bench = with_absent(1 << 20, 1);
    bench.write(1, vec![data(32, 16, 70)]);
    // A whole chunk is written to its slot at once.
    let home = home_of(&bench, 75);
    bench.disk.corrupt(home + 100);
    assert_eq!(bench.read(32, 16), Err(Failure::Lost { block: 37 }));
    let left = salvage(&mut bench, 36, 3);
    assert_eq!(left, [data(36, 1, 74), lost(37, 1), data(38, 1, 76)]);
}

/// Writes, checkpoints and power failures at any moment: committed blocks are present, and all others stay absent.
#[test]
fn no_power_failure_makes_a_block_absent_again_or_invents_content() {
    for seed in 0..10 {
        let mut rng = Rng::new(seed);
        let mut bench = with_absent(if seed % 2 == 0 { 512 << 10 } else { 1 << 20 }, seed);
        // Blocks that are certainly present, and blocks that may be.
        let (mut here, mut perhaps) = (BTreeSet::new(), BTreeSet::new());
        for sequence in 1..200 {
            let (start, count) = (rng.below(BLOCKS - 40), rng.between(1, 12));
            let (start, count) = if rng.chance(1, 4) { (start / 16 * 16, 32) } else { (start, count) };
            let piece = if rng.chance(1, 5) { hole(start, count) } else { data(start, count, sequence * 1000) };
            let blocks: Vec<u64> = piece.range.blocks().collect();
            assert_eq!(bench.prepare(intent(sequence, vec![piece])), Ok(()));
            match rng.below(4) {
                0 => bench.abort(sequence),
                1 => {
                    // It may be durable.
                    bench.store.commit(bench.now, transaction(sequence), &mut bench.out);
                    perhaps.extend(blocks);
                    for _ in 0..rng.below(4) {
                        bench.end_one();
                    }
                    for intent in bench.restart_here().intents {
                        bench.abort(intent.transaction.sequence);
                    }
                }
                _ => {
                    bench.commit(sequence);
                    here.extend(blocks);
                }
            }
            bench.events.clear();
            let absent = absent(&bench);
            assert!(absent.is_disjoint(&here), "seed {seed}, write {sequence}: a written block is absent again");
            let brought: BTreeSet<u64> = here.union(&perhaps).copied().collect();
            assert!((0..BLOCKS).all(|block| brought.contains(&block) || absent.contains(&block)), "seed {seed}");
        }
    }
}

#[test]
fn an_object_that_is_removed_and_made_again_is_absent_only_if_that_is_said() {
    let mut bench = with_absent(1 << 20, 1);
    bench.write(1, vec![data(3, 1, 50)]);
    let description = *bench.store.object(OBJECT).expect("it is there");
    for absent in [0, BLOCKS, 30] {
        bench.store.log(2, Logged::Removed(OBJECT), &mut bench.out);
        bench.store.log(3, Logged::Created { description, absent }, &mut bench.out);
        bench.settle();
        bench.events.clear();
        for _ in 0..2 {
            assert_eq!(bench.counter("blocks_absent"), absent);
            bench.restart_here();
        }
    }
}
