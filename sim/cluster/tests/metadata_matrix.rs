//! The crash matrix of metadata servers: a server loses power instead of each of its inputs.

use braid_cluster::metadata_matrix::{MetadataPoint, Victim, run_metadata_point};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Simulation allocates millions of times: with this allocator it takes a fifth less time than with the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tries every `every`-th point. Returns how many.
fn try_all(seed: u64, victim: Victim, every: u64) -> u64 {
    let inputs = run_metadata_point(seed, None).unwrap_or_else(|failed| panic!("no crash: {failed:?}"));
    let next = AtomicU64::new(1);
    let work = || {
        loop {
            let at = next.fetch_add(every, Ordering::Relaxed);
            if at > inputs {
                return;
            }
            let point = MetadataPoint { victim, at };
            if let Err(failed) = run_metadata_point(seed, Some(point)) {
                panic!("seed {seed}, {point}: {}\n{}", failed.check, failed.details);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    inputs / every
}

#[test]
fn a_server_that_dies_at_any_input_loses_nothing() {
    let tried: u64 = (1..=3).map(|seed| try_all(seed, Victim::First, 3)).sum();
    assert!(tried > 200, "only {tried} points were tried");
}

#[test]
fn so_it_is_with_the_server_that_takes_over() {
    let tried: u64 = (1..=2).map(|seed| try_all(seed, Victim::Successor, 3)).sum();
    assert!(tried > 100, "only {tried} points were tried");
}

#[test]
fn a_point_is_one_run() {
    let point = MetadataPoint { victim: Victim::First, at: 100 };
    assert_eq!(run_metadata_point(1, Some(point)), run_metadata_point(1, Some(point)));
}
