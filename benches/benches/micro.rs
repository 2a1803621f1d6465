//! Times every workload. `cargo bench --package braid-benches -- wire` times the workloads of one subject.

use braid_benches::{Rounds, Workload, workloads};
use criterion::{BenchmarkId, Criterion, Throughput};
use std::time::{Duration, Instant};

/// Rounds that are prepared and then timed together: few enough to stay in the cache, enough that reading the clock takes a
/// negligible part of the time.
const BATCH: u64 = 64;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for workload in workloads() {
        time(&mut criterion, &workload);
    }
    criterion.final_summary();
}

fn time(criterion: &mut Criterion, workload: &Workload) {
    let (subject, piece) = workload.name.split_once('/').expect("a workload is called subject/piece");
    let mut group = criterion.benchmark_group(subject);
    if workload.bytes > 0 {
        group.throughput(Throughput::Bytes(workload.bytes as u64));
    }
    group.bench_function(BenchmarkId::from_parameter(piece), |bencher| {
        let mut rounds = workload.begin();
        bencher.iter_custom(|count| time_rounds(&mut *rounds, count));
    });
    group.finish();
}

fn time_rounds(rounds: &mut dyn Rounds, mut count: u64) -> Duration {
    let mut spent = Duration::ZERO;
    while count > 0 {
        let batch = count.min(BATCH);
        rounds.prepare(batch as usize);
        let begin = Instant::now();
        rounds.run();
        spent += begin.elapsed();
        count -= batch;
    }
    spent
}
