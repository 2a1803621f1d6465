//! Tests of the shapes of figure 3 and of known results of the contention benchmark.

use super::*;
use crate::testing::Results;

fn results(experiment: &Experiment, locks: u64, keep: impl Fn(&Point) -> bool) -> Results {
    Results::of(experiment, Thoroughness::Full, 2, &format!("run.locks_per_process={locks}"), keep)
}

#[test]
fn figure_3_has_the_papers_shapes() {
    const PANEL: &str = "10 processes";
    let few = [1, 5, 20, 100, 1000];
    let results = results(&FIGURE_3, 150, |point| point.panel == PANEL && few.contains(&(point.x as u64)));
    let of = |series: &str, objects: u64| results.value(PANEL, series, objects as f64, "throughput_ops");
    for line in BY_DEVICES.iter().chain([&MANAGER, &WITH_WRITE]) {
        let seen = few.map(|objects| of(line.0, objects));
        assert!(seen.windows(2).all(|pair| pair[1] > 0.97 * pair[0]), "{} rises: {seen:?}", line.0);
        assert!(
            seen[4] > 1.5 * seen[0] && seen[4] < 1.1 * seen[3],
            "{} is low at first and flat at the end: {seen:?}",
            line.0
        );
    }
    let by_devices = BY_DEVICES.map(|line| of(line.0, 1000));
    assert!(by_devices.windows(2).all(|pair| pair[1] > 1.1 * pair[0]), "more devices do more: {by_devices:?}");
    let (one, manager, with_write) = (of(ONE_DEVICE, 1000), of(MANAGER.0, 1000), of(WITH_WRITE.0, 1000));
    assert!(manager > 1.2 * one, "a lock manager is faster than a device: {manager} {one}");
    assert!(
        (with_write / manager - 1.0).abs() < 0.1,
        "with one trip less, a device is as fast as a lock manager: {with_write} {manager}"
    );
}

#[test]
fn ten_devices_that_have_enough_to_do_are_nine_times_one() {
    const PANEL: &str = "10 processes a device";
    let few = [ONE_DEVICE, "10 devices"];
    let keep = |point: &Point| point.panel == PANEL && point.x == 5000.0 && few.contains(&point.series.name.as_str());
    let results = results(&FIGURE_3, 500, keep);
    let of = |series: &str| results.value(PANEL, series, 5000.0, "throughput_ops");
    let (one, ten) = (of(ONE_DEVICE), of("10 devices"));
    assert!(ten >= 9.0 * one, "{ten} are {} times {one}", ten / one);
}

#[test]
fn efficiency_is_one_without_contention_and_least_for_spinning() {
    let work = WORKS[0].0;
    let results = results(&CONTENTION, 20, |point| point.panel == work && [1.0, 25.0].contains(&point.x));
    let efficiency = |strategy: Strategy, processes: f64| results.value(work, strategy.name(), processes, "efficiency");
    for strategy in Strategy::ALL {
        assert_eq!(efficiency(strategy, 1.0), 1.0, "{strategy:?} alone");
        let crowded = efficiency(strategy, 25.0);
        match strategy {
            Strategy::Uncontended => assert_eq!(crowded, 1.0),
            Strategy::BusyWait => assert!(crowded < 0.15, "{crowded}"),
            _ => assert!(crowded > efficiency(Strategy::BusyWait, 25.0) && crowded < 1.0, "{strategy:?}: {crowded}"),
        }
    }
}
