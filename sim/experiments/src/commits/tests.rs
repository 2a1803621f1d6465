//! Tests of Table I, which is exact, and of the ratios that follow from the counts.

use super::*;
use crate::paper;
use crate::testing::Results;

fn results(experiment: &Experiment, assignments: &str, keep: impl Fn(&Point) -> bool) -> Results {
    Results::of(experiment, Thoroughness::Full, 1, assignments, keep)
}

#[test]
fn table_1_is_exact() {
    let results = results(&TABLE_1, "", |_| true);
    let table = paper::TABLES.iter().find(|table| table.experiment == TABLE_1.name).expect("the paper has it");
    for (protocol, metric, stated) in table.numbers() {
        assert_eq!(results.value("", protocol, 1.0, metric), stated, "{protocol} {metric}");
    }
}

#[test]
fn the_lock_is_held_for_three_writes_and_with_one_phase_commit_for_two() {
    let results = results(&TABLE_1, "", |_| true);
    let of = |metric| PROTOCOLS.map(|protocol| results.value("", protocol, 1.0, metric));
    assert_eq!(of("writes_under_lock"), [3.0, 3.0, 3.0, 2.0]);
    assert_eq!(of("messages_under_lock"), [2.0, 2.0, 0.0, 0.0]);
}

#[test]
fn the_ratio_of_figure_6_is_that_of_the_writes_under_the_lock() {
    let free = LOGS[0].0;
    let results = results(&FIGURE_6, "", |point| point.panel == free && [4.0, 16.0].contains(&point.x));
    for x in [4.0, 16.0] {
        let ratio = |protocol| results.value(free, protocol, x, "throughput_ratio");
        assert!((1.48..1.53).contains(&ratio("1pc")), "three writes to two, and messages: {}", ratio("1pc"));
        assert!((1.0..1.02).contains(&ratio("ep")), "two messages of 100 us less: {}", ratio("ep"));
        assert!((0.99..1.01).contains(&ratio("prc")), "the same until the lock is released: {}", ratio("prc"));
    }
}

#[test]
fn a_group_of_operations_is_one_transaction() {
    let (one, count) = ("one directory", 64.0);
    let chosen = |point: &Point| point.panel == one && point.x == count;
    let results = results(&GROUPING, "run.operations=640", chosen);
    let of = |series: &str, metric: &str| results.value(one, series, count, metric);
    let grouped = of("1pc, operations", "operations_per_transaction");
    assert!(grouped > 30.0, "what waits for a directory is done together: {grouped}");
    assert!(of("1pc, operations", "protocol_messages") < 0.1, "one ACKNOWLEDGE for all of them");
    assert!(of("1pc, operations", "throughput_ops") > 5.0 * of("1pc, none", "throughput_ops"));
    assert_eq!(of("1pc, none", "operations_per_transaction"), 1.0);
}

#[test]
fn servers_add_throughput() {
    let part = "files on another server";
    let chosen = |point: &Point| point.panel == part && [2.0, 8.0].contains(&point.x);
    let results = results(&MANY_SERVERS, "run.operations=600", chosen);
    for protocol in PROTOCOLS {
        let of = |x| results.value(part, protocol, x, "throughput_ops");
        assert!(of(8.0) > 3.5 * of(2.0), "{protocol}: {} and {}", of(2.0), of(8.0));
    }
}
