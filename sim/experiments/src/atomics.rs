//! The experiments of the device-atomics paper: locks kept by devices compared with locks kept by a manager, strategies of waiting
//! for a lock, and the paper's open assumptions.

use crate::assumptions;
use crate::experiment::{Base, Experiment, Point, Series, THROUGHPUT, Thoroughness};
use braid_benchkit::locking::Strategy;
use braid_benchkit::plot::{Axis, PlotKind};

const OBJECTS: Axis = Axis { name: "objects", title: "objects that are locked" };
const PROCESSES: Axis = Axis { name: "processes", title: "processes" };
const EFFICIENCY: Axis = Axis { name: "efficiency", title: "efficiency (2 / requests per lock)" };

const ONE_DEVICE: &str = "1 device";

pub const FIGURE_3: Experiment = Experiment {
    name: "device-atomics-fig3",
    title: "Device atomics, figure 3: throughput of locks",
    about: "Processes choose an object at random, lock it (compare-and-swap of an attribute, truncated binary exponential \
            back-off), write 256 bytes to it and unlock it. The paper: throughput is low with one object, rises with more, and \
            flattens; it grows almost linearly with devices; one lock manager that commits every change is faster than one device; \
            with an unlock in the request of the write, one device is about as fast. The paper's ten processes can't load ten \
            devices, so there is a second part, with ten processes for each device.",
    base: Base::DeviceAtomics,
    x: OBJECTS,
    points: figure_3,
    plots: &[PlotKind { logarithmic_x: true, ..PlotKind::of("", THROUGHPUT) }],
    metrics: &["throughput_ops", "throughput_ratio", "delayed_fraction", "disk_utilization", "lock_server_utilization"],
};

/// The contention benchmark of the same authors.
pub const CONTENTION: Experiment = Experiment {
    name: "device-atomics-contention",
    title: "Device atomics: ways of waiting for a lock",
    about: "All processes take the same lock of a device 100 times each. The work under the lock is nothing, a sleep of 1 to \
            600 us, or a request for an attribute. Efficiency is the number of requests needed (one to lock, one to unlock), \
            divided by the number sent.",
    base: Base::DeviceAtomics,
    x: PROCESSES,
    points: contention,
    plots: &[PlotKind::of("", EFFICIENCY), PlotKind::of("-throughput", THROUGHPUT)],
    metrics: &["efficiency", "throughput_ops", "latency_p99_ms"],
};

/// The open assumptions of section 8.
pub const ASSUMPTIONS: Experiment = Experiment {
    name: "device-atomics-assumptions",
    title: "Device atomics: what section 8 leaves open",
    about: "One open assumption at a time gets another reading, with 500 objects for each device; everything else is as in figure 3 \
            with ten processes for each device.",
    base: Base::DeviceAtomics,
    x: Axis { name: "reading", title: "reading" },
    points: other_readings,
    plots: &[],
    metrics: &["throughput_ops", "throughput_ratio"],
};

/// A line of figure 3: its name, its number of devices, and the other parameters that it sets.
type Line = (&'static str, u64, &'static str);

const BY_DEVICES: [Line; 4] = [(ONE_DEVICE, 1, ""), ("2 devices", 2, ""), ("5 devices", 5, ""), ("10 devices", 10, "")];
const MANAGER: Line = ("lock manager", 10, "system.locks=manager");
const MANAGER_OF_ONE: Line = ("lock manager of 1 device", 1, "system.locks=manager");
const WITH_WRITE: Line = ("1 device with one-trip unlock", 1, "workload.unlock=with-write");
const ONE_REQUEST: Line = ("1 device with one request", 1, "workload.unlock=one-request");

fn figure_3(thoroughness: Thoroughness) -> Vec<Point> {
    let as_in_paper = thoroughness.of(&[1, 2, 3, 5, 7, 10, 20, 50, 100, 200, 500, 1000], &[1, 5, 20, 500]);
    let for_each =
        thoroughness.of(&[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000], &[1, 20, 500, 10_000]);
    let mut points = Vec::new();
    let lines = BY_DEVICES.into_iter().chain([MANAGER, MANAGER_OF_ONE, WITH_WRITE, ONE_REQUEST]);
    for line in lines {
        points.extend(as_in_paper.iter().map(|objects| figure_3_point("10 processes", line, 10, *objects)));
    }
    for line in BY_DEVICES.into_iter().chain([MANAGER]) {
        let processes = 10 * line.1;
        points
            .extend(for_each.iter().map(|objects| figure_3_point("10 processes a device", line, processes, *objects)));
    }
    points
}

fn figure_3_point(panel: &str, (name, devices, more): Line, processes: u64, objects: u64) -> Point {
    let own = format!("system.devices={devices} system.processes={processes} workload.objects={objects} {more}");
    Point::of(panel, Series::of_locks(name, Some(ONE_DEVICE)), objects as f64, &own)
}

/// The kinds of work under a lock, and the parameters that each sets.
const WORKS: [(&str, &str); 4] = [
    ("no work", "workload.work=none"),
    ("a sleep of 1 to 600 us", "workload.work=sleep"),
    ("a request to the same device", "workload.work=get"),
    ("a request to another device", "system.devices=2 workload.work=get-elsewhere"),
];

fn contention(thoroughness: Thoroughness) -> Vec<Point> {
    let processes = thoroughness.of(&[1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25], &[1, 5, 25]);
    let mut points = Vec::new();
    for (panel, work) in WORKS {
        for strategy in Strategy::ALL {
            for count in processes {
                let own = format!(
                    "run.locks_per_process=100 workload.objects=1 system.processes={count} workload.strategy={} {work}",
                    strategy.name()
                );
                points.push(Point::of(panel, Series::of_locks(strategy.name(), None), *count as f64, &own));
            }
        }
    }
    points
}

fn other_readings(thoroughness: Thoroughness) -> Vec<Point> {
    let point = |line: Line| {
        let (_, devices, _) = line;
        // A lock manager gets as many processes as one device.
        let processes = if line == MANAGER { 10 } else { 10 * devices };
        figure_3_point("", line, processes, 500 * devices)
    };
    assumptions::points(Base::DeviceAtomics, thoroughness, || {
        [BY_DEVICES[0], BY_DEVICES[3], MANAGER, WITH_WRITE].map(point).to_vec()
    })
}

#[cfg(test)]
mod tests;
