//! The experiments: the papers' figures, the papers' open assumptions, and experiments beyond the papers.

use crate::assumptions;
use crate::atomics;
use crate::commits;
use crate::experiment::{Base, Experiment, Point, Series, THROUGHPUT, Thoroughness};
use crate::range_locks;
use braid_benchkit::plot::{Axis, PlotKind};
use braid_ordering::Ordering;

const HOSTS: Axis = Axis { name: "hosts", title: "hosts" };
const LATENCY: Axis = Axis { name: "latency_ms", title: "mean latency (ms)" };
const DELAYED: Axis = Axis { name: "delayed_fraction", title: "fraction of operations delayed" };
const MESSAGES: Axis = Axis { name: "messages_per_op", title: "messages per operation" };
const ACTIVE: Axis = Axis { name: "active_percent", title: "part of the disks addressed (%)" };

const fn against_throughput(y_most: f64) -> PlotKind {
    PlotKind { x: Some(THROUGHPUT), y_most: Some(y_most), ..PlotKind::of("", LATENCY) }
}

/// All experiments, in the order in which they are listed and reported.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "shared-array-fig5a",
        title: "Figure 5(a): scaling of server and callback locking",
        about: "Hosts are added, four at a time, until saturation. The paper: centralized locking bottlenecks before half of the \
                greatest throughput (that holds for server locking, 600 of 1349.5; callback locking reaches 899.3).",
        base: Base::SharedArray,
        x: HOSTS,
        points: |thoroughness| {
            by_hosts(
                &[Ordering::None, Ordering::ServerLock, Ordering::CallbackLock],
                thoroughness.of(&[4, 8, 12, 14, 16, 18, 20, 22, 24, 28, 32, 34, 36], &[4, 16, 20, 34]),
            )
        },
        plots: &[against_throughput(120.0)],
        metrics: &["latency_ms", "throughput_ops"],
    },
    Experiment {
        name: "shared-array-fig5b",
        title: "Figure 5(b): server and callback locking under contention",
        about: "The addressed part of the disks shrinks. The paper: under high contention callback locking is as slow as \
                server locking; under moderate contention it still saves about half of the overhead.",
        base: Base::SharedArray,
        x: ACTIVE,
        points: |thoroughness| {
            by_activity(&[Ordering::None, Ordering::ServerLock, Ordering::CallbackLock], thoroughness)
        },
        plots: &[PlotKind::of("", LATENCY)],
        metrics: &["latency_ms", "delayed_fraction"],
    },
    Experiment {
        name: "shared-array-fig6",
        title: "Figure 6: the protocols under the baseline",
        about: "16 hosts, 20 devices: latency, throughput, messages, operations delayed, and the peak throughput when hosts \
                are added.",
        base: Base::SharedArray,
        x: HOSTS,
        points: |_| {
            let mut points = at(&Ordering::ALL, 16.0, "system.hosts=16");
            let name = "timestamp-implied".to_string();
            let series = Series { name, in_paper: false, ..Series::of(Ordering::Timestamp) };
            points.push(Point::of("", series, 16.0, "system.hosts=16 protocol.atomicity=implied"));
            points
        },
        plots: &[],
        metrics: &[
            "latency_ms",
            "throughput_ops",
            "messages_per_op",
            "delayed_fraction",
            "peak_ops",
            "latency_ratio",
            "peak_ratio",
            "extra_messages",
            "restarts_per_op",
            "disk_utilization",
            "lock_server_utilization",
        ],
    },
    Experiment {
        name: "shared-array-fig8",
        title: "Figure 8: delayed operations under contention",
        about: "The addressed part of the disks shrinks to 2 %. The paper: the fraction delayed spans 0.00036 to 0.596; at \
                2 % device-served locks collapse, because restarts after time-outs lengthen the queues without bound (here with more \
                hosts: shared-array-fig8-hosts).",
        base: Base::SharedArray,
        x: ACTIVE,
        points: |thoroughness| by_activity(&Ordering::ALL, thoroughness),
        plots: &[
            PlotKind { logarithmic: true, ..PlotKind::of("", DELAYED) },
            PlotKind { y_most: Some(400.0), ..PlotKind::of("-latency", LATENCY) },
        ],
        metrics: &["delayed_fraction", "latency_ms", "restarts_per_op"],
    },
    Experiment {
        name: "shared-array-fig8-hosts",
        title: "Figure 8, at 2 %: more hosts",
        about: "The collapse of device-served locks that the paper reports at 2 % of the disks: here hosts are added until the array is near \
                saturation.",
        base: Base::SharedArray,
        x: HOSTS,
        points: |thoroughness| {
            let hosts = thoroughness.of(&[16, 24, 28, 30, 32, 34], &[16, 32]);
            let orderings = [Ordering::None, Ordering::DeviceLock, Ordering::Timestamp];
            each(hosts, |hosts| {
                at(&orderings, *hosts as f64, &format!("system.hosts={hosts} workload.active_fraction=0.02"))
            })
        },
        plots: &[
            PlotKind { y_most: Some(400.0), ..PlotKind::of("", LATENCY) },
            PlotKind::of("-throughput", THROUGHPUT),
            PlotKind::of("-delayed", DELAYED),
        ],
        metrics: &["latency_ms", "throughput_ops", "delayed_fraction", "restarts_per_op"],
    },
    Experiment {
        name: "shared-array-fig10-left",
        title: "Figure 10, left: scaling of all protocols",
        about: "Hosts are added from 4 (149.9 operations/s) to 36 (1350). The paper: both device-based protocols stay near the \
                unprotected one, whose latency is at most 89.29 ms.",
        base: Base::SharedArray,
        x: HOSTS,
        points: |thoroughness| {
            by_hosts(&Ordering::ALL, thoroughness.of(&[4, 8, 12, 16, 18, 20, 24, 26, 28, 32, 34, 36], &[4, 16, 24, 34]))
        },
        plots: &[against_throughput(120.0)],
        metrics: &["latency_ms", "throughput_ops"],
    },
    Experiment {
        name: "shared-array-fig10-right",
        title: "Figure 10, right: messages and the mix of reads and writes",
        about: "The paper: timestamp ordering sends the fewest messages of the four protocols whatever the mix; the axis ends at \
                15.62, where 10 % are reads.",
        base: Base::SharedArray,
        x: Axis { name: "read_percent", title: "reads (%)" },
        points: |thoroughness| {
            let reads = thoroughness.of(&[10, 20, 30, 40, 50, 60, 70, 80, 90], &[10, 50, 90]);
            each(reads, |percent| {
                let fraction = *percent as f64 / 100.0;
                at(&Ordering::ALL, *percent as f64, &format!("workload.read_fraction={fraction}"))
            })
        },
        plots: &[PlotKind::of("", MESSAGES)],
        metrics: &["messages_per_op"],
    },
    Experiment {
        name: "shared-array-fig11",
        title: "Figure 11: latencies of messages that vary",
        about: "A message takes from 1 ms to the window's end, so that siblings arrive in different orders. The paper: device locks \
                and timestamps are then delayed more often, but this costs less latency than central locking.",
        base: Base::SharedArray,
        x: Axis { name: "window_ms", title: "greatest latency of a message (ms)" },
        points: |thoroughness| {
            let windows = thoroughness.of(&[2, 5, 10, 20, 30, 40, 50], &[2, 20, 50]);
            each(windows, |window| at(&Ordering::ALL, *window as f64, &format!("network.overhead_max_ms={window}")))
        },
        plots: &[PlotKind { logarithmic: true, ..PlotKind::of("", DELAYED) }, PlotKind::of("-latency", LATENCY)],
        metrics: &["delayed_fraction", "latency_ms"],
    },
    Experiment {
        name: "shared-array-fig12",
        title: "Figure 12: faster disks",
        about: "Of all reads, 20 % and 60 % hit the disks' caches. The paper: at 60 % and 58 hosts, device \
                locks restart 17 % of their operations, while timestamp ordering stays near the unprotected protocol.",
        base: Base::SharedArray,
        x: HOSTS,
        points: |thoroughness| {
            let hosts: &[&[u64]] = thoroughness
                .of(&[&[8, 16, 24, 32, 38, 42, 44], &[8, 16, 24, 32, 40, 48, 54, 58, 60, 62]], &[&[16, 40], &[24, 58]]);
            let orderings = [Ordering::None, Ordering::CallbackLock, Ordering::DeviceLock, Ordering::Timestamp];
            let panels = [("hits 20 %", 0.2), ("hits 60 %", 0.6)].into_iter().zip(hosts);
            panels
                .flat_map(|((panel, hits), hosts)| {
                    each(hosts, |hosts| {
                        let own = format!("system.hosts={hosts} disk.read_hit_ratio={hits}");
                        let points = orderings.map(|of| Point::of(panel, Series::of(of), *hosts as f64, &own));
                        points.to_vec()
                    })
                })
                .collect()
        },
        plots: &[against_throughput(150.0)],
        metrics: &["latency_ms", "throughput_ops", "delayed_fraction", "restarts_per_op", "disk_utilization"],
    },
    Experiment {
        name: "shared-array-assumptions",
        title: "What Table 1 leaves open",
        about: "One open assumption at a time gets another reading; everything else is as in the baseline. The paper's numbers \
                are those of figure 6.",
        base: Base::SharedArray,
        x: Axis { name: "reading", title: "reading" },
        points: |thoroughness| assumptions::points(Base::SharedArray, thoroughness, || at(&Ordering::ALL, 0.0, "")),
        plots: &[],
        metrics: &[
            "latency_ms",
            "latency_ratio",
            "messages_per_op",
            "extra_messages",
            "delayed_fraction",
            "disk_utilization",
        ],
    },
    Experiment {
        name: "scale",
        title: "Beyond the paper: up to 1,000 devices and 800 hosts",
        about: "Larger and larger arrays with the baseline's ratio of hosts to devices; each host issues 37.5 operations a second.",
        base: Base::SharedArray,
        x: HOSTS,
        points: |thoroughness| {
            let hosts = thoroughness.of(&[16, 48, 100, 200, 400, 800], &[16, 100]);
            each(hosts, |hosts| {
                // Warm-up grows with the array, so that clocks have drifted and lock caches are filled everywhere.
                let (devices, warm_up, operations) = (hosts * 5 / 4, hosts * 75, (hosts * 50).max(5_000));
                // The backlog is half a second of requests, so that saturated arrays settle sooner.
                let own = format!(
                    "system.hosts={hosts} system.devices={devices} run.warm_up_operations={warm_up} \
                     run.operations={operations} run.replications=2 run.backlog_per_host=20"
                );
                at(&Ordering::ALL, *hosts as f64, &own)
            })
        },
        plots: &[PlotKind::of("", THROUGHPUT), PlotKind { logarithmic: true, ..PlotKind::of("-latency", LATENCY) }],
        metrics: &["throughput_ops", "latency_ms", "delayed_fraction", "messages_per_op"],
    },
    Experiment {
        name: "today",
        title: "Beyond the paper: hardware of today",
        about: "Flash that answers in 80 us, 25 Gb/s, 5 us of processor time to send or receive a message: the same protocols at hundreds of \
                times the load.",
        base: Base::Today,
        x: HOSTS,
        points: |thoroughness| by_hosts(&Ordering::ALL, thoroughness.of(&[2, 4, 8, 12, 16, 24, 32], &[4, 16])),
        plots: &[against_throughput(2.0)],
        metrics: &["latency_ms", "throughput_ops", "messages_per_op", "delayed_fraction"],
    },
    atomics::FIGURE_3,
    atomics::CONTENTION,
    atomics::ASSUMPTIONS,
    commits::TABLE_1,
    commits::FIGURE_6,
    commits::ASSUMPTIONS,
    commits::MANY_SERVERS,
    commits::GROUPING,
    range_locks::FIGURE_3,
    range_locks::FIGURE_4,
    range_locks::FIGURE_5,
    range_locks::FIGURE_6,
    range_locks::FIGURE_7,
    range_locks::FIGURE_8,
    range_locks::ASSUMPTIONS,
    range_locks::WRITING_BACK,
    range_locks::WIDENING,
    range_locks::MANY_CLIENTS,
    range_locks::GROUPS,
    range_locks::PROMOTIONS,
    range_locks::TODAY,
];

pub fn find(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS.iter().find(|experiment| experiment.name == name)
}

fn each<T>(values: &[T], points: impl Fn(&T) -> Vec<Point>) -> Vec<Point> {
    values.iter().flat_map(points).collect()
}

/// Points of several orderings with the same horizontal value, and assignments that are separated by blanks.
fn at(orderings: &[Ordering], x: f64, assignments: &str) -> Vec<Point> {
    orderings.iter().map(|ordering| Point::of("", Series::of(*ordering), x, assignments)).collect()
}

fn by_hosts(orderings: &[Ordering], hosts: &[u64]) -> Vec<Point> {
    each(hosts, |hosts| at(orderings, *hosts as f64, &format!("system.hosts={hosts}")))
}

fn by_activity(orderings: &[Ordering], thoroughness: Thoroughness) -> Vec<Point> {
    let percents = thoroughness.of(&[0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0], &[2.0, 20.0, 100.0]);
    each(percents, |percent| at(orderings, *percent, &format!("workload.active_fraction={}", percent / 100.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_of_every_experiment_has_sound_parameters_and_a_place_of_its_own() {
        for experiment in EXPERIMENTS {
            for thoroughness in [Thoroughness::Full, Thoroughness::Quick] {
                let points = (experiment.points)(thoroughness);
                assert!(!points.is_empty(), "{}", experiment.name);
                let mut places = std::collections::BTreeSet::new();
                for point in points {
                    let place = (point.panel.clone(), point.series.name.clone(), point.x.to_bits());
                    assert!(places.insert(place), "{}: {point:?} is there twice", experiment.name);
                    if let Err(error) = experiment.base.parameters(&point.assignments) {
                        panic!("{}: {error}", experiment.name);
                    }
                }
            }
        }
    }

    #[test]
    fn figures_of_the_paper_are_measured() {
        for table in crate::paper::TABLES {
            let experiment = find(table.experiment).expect("the experiment exists");
            let points = (experiment.points)(Thoroughness::Full);
            for (name, _) in table.series {
                let is_it = |point: &&Point| point.series.in_paper && point.series.name == *name;
                let measured = points.iter().filter(is_it).any(|point| table.x.is_none_or(|x| point.x == x));
                assert!(measured, "{name} of {table:?}");
            }
        }
    }
}
