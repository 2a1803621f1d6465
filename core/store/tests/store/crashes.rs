//! Crash tests: the power fails at random, and at every single write and sync.

use crate::requests::Requests;
use crate::run::Run;
use braid_store::Storage;
use proptest::prelude::*;
use std::ops::Range;

const TINY: u64 = 384 << 10;

pub fn steps(run: &mut Run, steps: u64) {
    for _ in 0..steps {
        run.step();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn answered_writes_survive_crashes_at_any_time(
        seed in any::<u64>(),
        lives in prop::collection::vec(1u64..700, 1..6),
    ) {
        survives(Run::new(seed, TINY), lives);
    }

    #[test]
    fn answered_object_requests_survive_crashes_and_are_executed_once(
        seed in any::<u64>(),
        lives in prop::collection::vec(1u64..1500, 1..6),
    ) {
        let mut run = Run::new(seed, TINY);
        run.requests = Some(Requests::default());
        survives(run, lives);
    }
}

/// The power fails after each of these numbers of steps, and once more at rest.
fn survives(mut run: Run, lives: Vec<u64>) {
    for life in lives {
        steps(&mut run, life);
        run.crash();
    }
    run.finish();
    run.crash();
    run.finish();
}

#[test]
fn a_long_life_laps_the_journal_many_times() {
    let mut run = Run::new(7, TINY);
    steps(&mut run, 12_000);
    assert!(run.bench.counter("checkpoints") > 20, "{:?}", run.bench.store.counters());
    assert!(run.reads > 300);
    run.finish();
    run.crash();
    run.finish();
}

/// Runs a fixed workload until `reached` holds, and cuts the power then. False if the workload ended before.
fn crash_at(seed: u64, length: u64, reached: impl Fn(&Run) -> bool) -> bool {
    crash_run_at(Run::new(seed, TINY), length, reached)
}

fn crash_run_at(mut run: Run, length: u64, reached: impl Fn(&Run) -> bool) -> bool {
    for _ in 0..length {
        run.step();
        if reached(&run) {
            run.crash();
            run.finish();
            return true;
        }
    }
    false
}

/// Crashes at each of the commands that are counted, from this one on, in runs with each of the seeds. Returns how often.
fn crashes_at_every(count: fn(&Run) -> u64, first: u64, seeds: Range<u64>, length: u64) -> usize {
    let of_seed = |seed| (first..).take_while(|nth| crash_at(seed, length, |run| count(run) >= *nth)).count();
    seeds.map(of_seed).sum()
}

#[test]
fn a_crash_at_every_write_loses_nothing_answered() {
    let crashes = crashes_at_every(|run| run.bench.disk.writes, 3, 0..1, 700);
    assert!(crashes > 150, "{crashes}");
}

#[test]
fn a_crash_at_every_sync_loses_nothing_answered() {
    let crashes = crashes_at_every(|run| run.bench.disk.syncs, 1, 10..16, 1000);
    assert!(crashes > 20, "{crashes}");
}

#[test]
fn a_crash_at_every_write_and_sync_loses_nothing_answered_of_objects() {
    let run = || {
        let mut run = Run::new(21, TINY);
        run.requests = Some(Requests::default());
        // Most disk commands from here on are those of merging.
        steps(&mut run, 900);
        run
    };
    let begun = run();
    let (writes, syncs) = (begun.bench.disk.writes, begun.bench.disk.syncs);
    assert!(begun.bench.counter("leaves_written") > 0);
    let mut crashes = 0;
    while crash_run_at(run(), 400, |run| run.bench.disk.writes > writes + crashes) {
        crashes += 1;
    }
    let mut at_syncs = 0;
    while crash_run_at(run(), 400, |run| run.bench.disk.syncs > syncs + at_syncs) {
        at_syncs += 1;
    }
    assert!(crashes > 30 && at_syncs > 4, "{crashes} {at_syncs}");
}
