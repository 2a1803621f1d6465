//! Transfers of free blocks from one shard to another: each takes effect once, and every block is in one place all the time.

use crate::system::*;
use braid_base::ShardId;
use braid_namespace::transfers::{TRANSFER_RUNS_MAX, Transfer, give, last_received, receive};
use braid_namespace::{Placement, grow, keys, sum_of_counters};
use braid_wire::{FileCommand, FileResult};

const FIRST: ShardId = ShardId(0);
const SECOND: ShardId = ShardId(1);
const BLOCKS: u64 = 1_000;

fn shard(own: ShardId) -> System {
    shard_of(Shards { own, count: 2, placement: Placement::Parent }, BLOCKS)
}

fn shard_of(shards: Shards, blocks: u64) -> System {
    System::with(&Parameters { stripe_blocks: 10, shards, ..parameters(blocks, Parameters::HASH_BITS_MAX) })
}

fn given(giver: &mut System, to: ShardId, received: u64, wanted: u64) -> Transfer {
    let given = give(to, received, wanted, &mut giver.map).expect("all keys are in memory");
    apply(&given.changes, &mut giver.map);
    given.transfer.expect("the map is sound")
}

fn received(receiver: &mut System, from: ShardId, transfer: &Transfer) -> Result<bool, FileError> {
    let step = receive(from, transfer, &mut receiver.map).expect("all keys are in memory");
    apply(&step.changes, &mut receiver.map);
    step.is_done.map(|_| !step.changes.is_empty())
}

/// Checks the maps of both shards as one. The counters of blocks lack those in transit.
fn findings(shards: [&System; 2]) -> Vec<Finding> {
    let mut united: Map = shards.into_iter().rev().flat_map(|shard| shard.map.clone()).collect();
    let counters = shards.map(|shard| shard.map[&keys::COUNTERS].clone());
    united.insert(keys::COUNTERS, sum_of_counters(&counters).expect("they are sound"));
    System { map: united, now: 0, is_nearly_full: false }.findings()
}

#[test]
fn a_transfer_is_repeated_until_it_is_received_and_takes_effect_once() {
    let (mut giver, mut receiver) = (shard(FIRST), shard(SECOND));
    let first = given(&mut giver, SECOND, 0, 40);
    assert_eq!((first.number, first.runs.iter().map(|run| run.count).sum::<u64>()), (1, 130), "a quarter, as stripes");
    assert_eq!((giver.status().free, receiver.status().free), (370, 500));
    assert_eq!(findings([&giver, &receiver]), [], "in transit");
    assert_eq!(given(&mut giver, SECOND, 0, 40), first, "it is not received");
    assert_eq!(given(&mut giver, SECOND, 0, 0), first);
    assert_eq!(giver.status().free, 370);
    assert_eq!(received(&mut receiver, FIRST, &first), Ok(true));
    assert_eq!(findings([&giver, &receiver]), []);
    assert_eq!(received(&mut receiver, FIRST, &first), Ok(false), "a copy");
    assert_eq!(last_received(&mut receiver.map), Ok(vec![1, 0]));
    assert_eq!(receiver.status().free, 630);
    assert_eq!(given(&mut giver, SECOND, 1, 0), Transfer { number: 1, runs: Vec::new() }, "nothing is wanted");
    let second = given(&mut giver, SECOND, 1, 400);
    assert_eq!((second.number, giver.status().free), (2, 0), "all that there is");
    assert_eq!(given(&mut giver, SECOND, 2, 1).runs, [], "there is no more");
    let third = Transfer { number: 3, ..second.clone() };
    assert_eq!(received(&mut receiver, FIRST, &third), Ok(false), "not the next one");
    assert_eq!(received(&mut receiver, FIRST, &second), Ok(true));
    assert_eq!(receiver.status().free, BLOCKS);
    assert_eq!(findings([&giver, &receiver]), []);
}

#[test]
fn a_transfer_of_scattered_blocks_has_a_bounded_number_of_runs() {
    let (mut giver, mut receiver) = (shard(FIRST), shard(SECOND));
    assert_eq!(giver.reserve(500), [BlockRange::new(0, 500)]);
    let every_third = (0..160).map(|number| BlockRange::new(number * 3, 1)).collect();
    assert_eq!(giver.run(FileCommand::GiveBack { runs: every_third }), Ok(FileResult::Done));
    let transfer = given(&mut giver, SECOND, 0, 300);
    assert_eq!((transfer.runs.len(), giver.status().free), (TRANSFER_RUNS_MAX, 160 - TRANSFER_RUNS_MAX as u64));
    assert_eq!(received(&mut receiver, FIRST, &transfer), Ok(true));
    assert_eq!(findings([&giver, &receiver]), []);
}

#[test]
fn blocks_that_are_in_transit_and_elsewhere_are_found() {
    let (mut giver, mut receiver) = (shard(FIRST), shard(SECOND));
    let transfer = given(&mut giver, SECOND, 0, 40);
    let key = keys::given(FIRST, SECOND);
    let (mut forgotten, mut damaged) = (giver.clone(), giver.clone());
    forgotten.map.remove(&key);
    damaged.map.insert(key, Bytes::from_static(&[1, 2]));
    let leaked = |found: &[Finding]| found.iter().any(|found| matches!(found, Finding::Leaked { .. }));
    assert!(leaked(&findings([&forgotten, &receiver])));
    let found = findings([&damaged, &receiver]);
    assert!(leaked(&found) && found.contains(&Finding::Damaged { key }), "{found:?}");
    // The receiver does not remember that it has received the transfer.
    received(&mut receiver, FIRST, &transfer).unwrap();
    receiver.map.remove(&keys::received(FIRST, SECOND));
    let twice = |found: &Finding| matches!(found, Finding::UsedTwice { .. });
    assert!(findings([&giver, &receiver]).iter().any(twice));
}

#[test]
fn transfers_that_no_shard_may_make_are_refused() {
    let (mut giver, mut receiver) = (shard(FIRST), shard(SECOND));
    for to in [FIRST, ShardId(2), ShardId(255)] {
        let given = give(to, 0, 10, &mut giver.map).unwrap();
        assert_eq!((given.changes, given.transfer), (Vec::new(), Err(FileError::Malformed)), "{to:?}");
    }
    let of = |run| Transfer { number: 1, runs: vec![run] };
    let sound = of(BlockRange::new(100, 10));
    for from in [SECOND, ShardId(2)] {
        assert_eq!(received(&mut receiver, from, &sound), Err(FileError::Malformed), "{from:?}");
    }
    let many = Transfer { number: 1, runs: (0..65).map(|number| BlockRange::new(2 * number, 1)).collect() };
    for wrong in [of(BlockRange::new(BLOCKS, 1)), of(BlockRange::new(999, 2)), of(BlockRange::new(5, 0)), many] {
        assert_eq!(received(&mut receiver, FIRST, &wrong), Err(FileError::Malformed), "{wrong:?}");
    }
    assert_eq!(received(&mut receiver, FIRST, &of(BlockRange::new(600, 10))), Err(FileError::Lost), "its own block");
    assert_eq!(receiver.status().free, 500);
    assert!(receiver.map.keys().all(|key| key.kind != Kind::FileSystem || key.of == 0), "nothing was recorded");
}

#[test]
fn each_shard_gets_its_part_of_the_blocks_of_a_volume_that_has_grown() {
    let (mut first, mut second) = (shard(FIRST), shard(SECOND));
    // One is transferred, and one is in transit.
    let transfer = given(&mut first, SECOND, 0, 10);
    assert_eq!(received(&mut second, FIRST, &transfer), Ok(true));
    given(&mut first, SECOND, transfer.number, 20);
    let before = (first.status().free, second.status().free);
    for blocks in [BLOCKS + 501, BLOCKS + 501, BLOCKS] {
        for System { map, .. } in [&mut first, &mut second] {
            apply(&grow(blocks, map).expect("the map is sound"), map);
        }
        let added = (first.status().free - before.0, second.status().free - before.1);
        assert_eq!(added.0 + added.1, 501);
        assert!(added.0.abs_diff(added.1) < 32, "{added:?}");
        assert_eq!(findings([&first, &second]), []);
    }
}

#[test]
fn each_added_block_is_in_one_shard_whichever_steps_the_shards_see() {
    let growths = [
        (2, [100, 140, 200]),
        (2, [2, 3, 5]),
        (3, [1_000, 1_025, 4_097]),
        (3, [77, 131, 30_011]),
        (8, [4_096, 5_001, 9_999]),
    ];
    for (count, [first, second, third]) in growths {
        for hasty in 0..count {
            let mut owners = BTreeMap::<u64, usize>::new();
            for own in 0..count {
                let shards = Shards { own: ShardId(own), count, placement: Placement::Parent };
                let System { mut map, .. } = shard_of(shards, first);
                let steps = if own == hasty { vec![third] } else { vec![second, third] };
                for blocks in steps {
                    apply(&grow(blocks, &mut map).expect("the map is sound"), &mut map);
                }
                for (key, value) in map.iter().filter(|(key, _)| key.kind == Kind::FreeRun) {
                    let length = u64::from_be_bytes(value[1..].try_into().expect("a length"));
                    (key.index + 1 - length..=key.index).for_each(|block| *owners.entry(block).or_default() += 1);
                }
            }
            let wrong = (0..third).find(|block| owners.get(block) != Some(&1));
            let found = (wrong, owners.len() as u64);
            assert_eq!(found, (None, third), "{count} shards, {first} to {third} blocks, {hasty}");
        }
    }
    let shards = Shards { own: FIRST, count: 2, placement: Placement::Parent };
    let runs = shards.added(BlockRange::between(BLOCKS, 1 << 50)).len();
    assert!(runs < 1_000, "{runs} runs fit in one record");
}
