//! Tests of whole runs: the seed determines them, and their figures match the arithmetic of the layout.

use braid_measure::{Measured, Named, Parameters, measure};
use braid_ordering::Ordering;

fn baseline(assignments: &[&str]) -> Parameters {
    let text = include_str!("../../experiments/parameters/shared-array.toml");
    let mut parameters = Parameters::parse(text).expect("the baseline is valid");
    for assignment in ["run.operations=2000", "run.warm_up_operations=200"].iter().chain(assignments) {
        parameters = parameters.set(assignment).expect("the assignment is valid");
    }
    parameters
}

fn close(seen: f64, expected: f64, tolerance: f64) -> bool {
    (seen / expected - 1.0).abs() <= tolerance
}

#[test]
fn a_run_is_decided_by_its_seed() {
    let parameters = baseline(&[]);
    for ordering in [Ordering::None, Ordering::Timestamp] {
        let runs: Vec<Measured> = [1, 1, 2].iter().map(|seed| measure(&parameters, ordering, *seed)).collect();
        assert_eq!(runs[0], runs[1]);
        assert_ne!(runs[0], runs[2]);
    }
}

#[test]
fn open_streams_get_what_they_ask_for() {
    let parameters = baseline(&[]);
    assert_eq!(parameters.offered(), 600.0);
    let seen = measure(&parameters, Ordering::None, 3);
    assert!(close(seen.throughput_ops, 600.0, 0.01) && seen.kept_up && seen.failed == 0, "{seen:?}");
}

#[test]
fn messages_without_ordering_are_those_of_the_plans() {
    // Aligned requests of one unit: a read is one request, a small write two reads and two writes.
    let one = ["workload.size_units_max=1", "workload.read_fraction=1"];
    assert!(close(measure(&baseline(&one), Ordering::None, 1).messages_per_op, 2.0, 0.01));
    let one = ["workload.size_units_max=1", "workload.read_fraction=0"];
    assert!(close(measure(&baseline(&one), Ordering::None, 1).messages_per_op, 8.0, 0.01));
    // Four units that are a stripe: five writes.
    let four = ["workload.size_units_min=4", "workload.alignment=stripe", "workload.read_fraction=0"];
    assert!(close(measure(&baseline(&four), Ordering::None, 1).messages_per_op, 10.0, 0.01));
}

#[test]
fn an_operation_takes_what_its_parts_take() {
    // One read of one unit at a time, nothing random: 0.75 to send, 0.5 + 0.01 on the way, 8 + 0.24 on the disk, 0.5 + 0.41 back,
    // 0.75 to receive (in ms; 4,096 bytes, no headers).
    let parameters = baseline(&[
        "system.hosts=1",
        "system.unit_kib=4",
        "workload.streams_per_host=1",
        "workload.arrivals=closed",
        "workload.read_fraction=1",
        "workload.size_units_max=1",
        "disk.positioning_deviation_ms=0",
        "processor.service=constant",
        "disk.arms=1",
        "disk.read_hit_ratio=0",
        "network.overhead_min_ms=0.5",
        "network.overhead_max_ms=0.5",
        "network.header_bytes=0",
    ]);
    let seen = measure(&parameters, Ordering::None, 1);
    let expected = 0.75 + 0.5 + 8.0 + 4096.0 * 0.06e-3 + 0.5 + 4096.0 / 10e3 + 0.75;
    assert!((seen.latency_ms - expected).abs() < 1e-3, "{} for {expected}", seen.latency_ms);
    assert!(close(seen.throughput_ops, 1e3 / (80.0 + expected), 0.01), "{seen:?}");
    assert!(close(seen.disk_utilization, seen.throughput_ops * 8.24576e-3 / 20.0, 0.01), "{seen:?}");
}

#[test]
fn an_overloaded_array_shows_what_its_disks_can_do() {
    let seen = measure(&baseline(&["system.hosts=80", "run.backlog_per_host=20"]), Ordering::None, 1);
    assert!(!seen.kept_up && close(seen.throughput_ops, 1400.0, 0.05), "{seen:?}");
    assert!(close(seen.disk_utilization, 1.0, 0.05), "{seen:?}");
}

#[test]
fn a_run_that_falls_behind_in_its_warm_up_shows_the_saturated_array() {
    // 750 us for each request are 1,333 a second, and an operation claims and releases.
    let parameters = baseline(&[
        "system.hosts=80",
        "system.units_per_device=100000",
        "run.backlog_per_host=20",
        "run.warm_up_operations=100000",
    ]);
    let seen = measure(&parameters, Ordering::ServerLock, 1);
    assert!(!seen.kept_up && close(seen.throughput_ops, 667.0, 0.1), "{seen:?}");
    assert!(close(seen.lock_server_utilization, 1.0, 0.02), "{seen:?}");
    assert!(seen.delayed_fraction <= 1.0 && seen.latency_ms > 500.0 && seen.messages_per_op < 20.0, "{seen:?}");
}

#[test]
fn contention_delays_operations_under_timestamp_ordering() {
    let calm = measure(&baseline(&[]), Ordering::Timestamp, 1);
    let crowded = measure(&baseline(&["workload.active_fraction=0.01"]), Ordering::Timestamp, 1);
    assert!(calm.delayed_fraction < 0.01 && crowded.delayed_fraction > 0.01, "{calm:?} {crowded:?}");
    assert_eq!(measure(&baseline(&["workload.active_fraction=0.01"]), Ordering::None, 1).delayed_fraction, 0.0);
}
