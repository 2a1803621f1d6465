//! Checks that every workload can be executed repeatedly, as the measuring programs do.

use braid_benches::{ROUNDS_MAX, workloads};
use std::collections::BTreeSet;

#[test]
fn names_say_subject_and_piece_and_are_unique() {
    let workloads = workloads();
    let names: BTreeSet<_> = workloads.iter().map(|workload| workload.name).collect();
    assert_eq!(names.len(), workloads.len());
    assert!(names.iter().all(|name| name.split('/').count() == 2), "{names:?}");
}

#[test]
fn each_workload_can_run_repeatedly() {
    for workload in workloads() {
        let mut rounds = workload.begin();
        for count in [1, ROUNDS_MAX, 3, ROUNDS_MAX] {
            rounds.prepare(count);
            rounds.run();
        }
    }
}
