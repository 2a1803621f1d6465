//! The crash matrix of metadata servers: a server loses power instead of each of its inputs.

use braid_cluster::ShardOptions;
use braid_cluster::metadata_matrix::{MetadataPoint, Victim, run_metadata_point, run_shard_point};
use braid_metadata::{Grouping, Protocol};
use braid_namespace::Placement;
use rayon::prelude::*;

/// Simulation allocates millions of times: with this allocator it takes a fifth less time than with the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Which points are tried: every n-th, or all with `BRAID_SOAK`.
fn stride(every: u64) -> u64 {
    if std::env::var_os("BRAID_SOAK").is_some() { 1 } else { every }
}

/// Tries every `every`-th point of a server. Returns how many.
fn try_all(seed: u64, victim: Victim, every: u64) -> u64 {
    try_shard(seed, ShardOptions::ONE, (victim, 0), every)
}

/// The same with these shards.
fn try_shard(seed: u64, shards: ShardOptions, (victim, shard): (Victim, usize), every: u64) -> u64 {
    let every = stride(every);
    let inputs = run_shard_point(seed, shards, None).unwrap_or_else(|failed| panic!("no crash: {failed:?}"));
    (1..=inputs).step_by(every as usize).par_bridge().for_each(|at| {
        let point = MetadataPoint { victim, shard, at };
        if let Err(failed) = run_shard_point(seed, shards, Some(point)) {
            panic!("seed {seed}, {shards:?}, {point}: {}\n{}", failed.check, failed.details);
        }
    });
    inputs / every
}

#[test]
fn a_server_that_dies_at_any_input_loses_nothing() {
    let tried: u64 = (1..=3).map(|seed| try_all(seed, Victim::First, 7)).sum();
    assert!(tried > 70, "only {tried} points were tried");
}

#[test]
fn the_matrix_holds_for_the_server_that_takes_over() {
    let tried: u64 = (1..=2).map(|seed| try_all(seed, Victim::Successor, 7)).sum();
    assert!(tried > 35, "only {tried} points were tried");
}

/// Two servers, with names and inodes in different shards: each dies at each point, with each protocol.
fn with_two_servers(victim: Victim, every: u64) {
    for protocol in Protocol::ALL {
        let shards = ShardOptions { count: 2, placement: Placement::Spread, protocol, grouping: Grouping::Operations };
        for shard in [0, 1] {
            let tried = try_shard(1, shards, (victim, shard), every);
            assert!(tried > 2, "only {tried} points were tried");
        }
    }
}

#[test]
fn either_of_two_servers_that_dies_at_any_input_loses_nothing() {
    with_two_servers(Victim::First, 29);
}

#[test]
fn the_matrix_holds_for_the_server_that_takes_over_from_one_of_two() {
    with_two_servers(Victim::Successor, 31);
}

#[test]
fn a_point_is_one_run() {
    let point = MetadataPoint { victim: Victim::First, shard: 0, at: 100 };
    assert_eq!(run_metadata_point(1, Some(point)), run_metadata_point(1, Some(point)));
}
