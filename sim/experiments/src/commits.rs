//! The experiments of the one-phase-commit paper (section IV): what each protocol writes and sends (Table I), how fast files are created in one
//! directory (figure 6), the paper's open assumptions; and beyond the paper: many servers, and many operations in one transaction.

use crate::assumptions;
use crate::experiment::{Base, Experiment, Point, Series, THROUGHPUT, Thoroughness};
use braid_benchkit::plot::{Axis, PlotKind};

const RECORD: Axis = Axis { name: "record_kib", title: "bytes of a record (KiB)" };
const SERVERS: Axis = Axis { name: "servers", title: "metadata servers" };
const OUTSTANDING: Axis = Axis { name: "outstanding", title: "operations outstanding at a server" };
const RATIO: Axis = Axis { name: "throughput_ratio", title: "throughput, ratio to PrN" };

/// The protocols in the paper's order; the first is the one that the others are compared with.
const PROTOCOLS: [&str; 4] = ["prn", "prc", "ep", "1pc"];
const PRN: &str = "prn";
/// A log on flash: 20 us for a write, 2 GB/s; small records. Processors: 10 us for an object, 5 us for a message at either end.
const FLASH: &str = "log.latency_us=20 log.bandwidth_kb_s=2000000 log.record_bytes=512 log.update_bytes=512 network.latency_us=20 \
                     workload.object_us=10 workload.message_us=5 log.queue=one log.unforced=carried";

/// Table I.
pub const TABLE_1: Experiment = Experiment {
    name: "one-phase-commit-table1",
    title: "One-phase commit, Table I: log writes and messages",
    about: "One operation on two servers: the records that the servers wait for (forced) and those that they don't, and the messages \
            beyond UPDATE and UPDATED, in all and one after the other until the client is answered (critical). The paper counts one \
            more write in PrN's critical path, which is not forced: nothing waits for it.",
    base: Base::OnePhaseCommit,
    x: Axis { name: "operation", title: "operation" },
    points: |_| {
        let point = |protocol| point("", protocol, 1.0, "run.operations=1 workload.outstanding=1");
        PROTOCOLS.into_iter().map(point).collect()
    },
    plots: &[],
    metrics: &[
        "forced_writes",
        "unforced_writes",
        "critical_writes",
        "protocol_messages",
        "critical_messages",
        "writes_under_lock",
        "messages_under_lock",
    ],
};

pub const FIGURE_6: Experiment = Experiment {
    name: "one-phase-commit-fig6",
    title: "One-phase commit, figure 6: distributed operations a second",
    about: "100 clients create a file each in one directory, at the same time; the files are on a second server. The size of a \
            record is not in the paper, so it is varied: the paper's rates hold for one size only, its ratios for all. The paper: 15, 15, 16 \
            and 24 operations/s; PrC 0.39 %, EP 6.60 % and 1PC over 55 % above PrN. Three readings of the log: a write takes its \
            time, however many are under way (the paper gives a latency); or each log is a disk with one write at a time, and records that \
            nobody waits for cost nothing, or are writes like others.",
    base: Base::OnePhaseCommit,
    x: RECORD,
    points: figure_6,
    plots: &[
        PlotKind { logarithmic: true, logarithmic_x: true, ..PlotKind::of("", THROUGHPUT) },
        PlotKind::of("-ratio", RATIO),
    ],
    metrics: &["throughput_ops", "throughput_ratio", "disk_utilization"],
};

/// The open assumptions of section IV.
pub const ASSUMPTIONS: Experiment = Experiment {
    name: "one-phase-commit-assumptions",
    title: "One-phase commit: what section IV leaves open",
    about: "One open assumption at a time gets another reading; everything else is as in figure 6 with records of 8 KiB. The paper's three \
            ratios to PrN (1.0039, 1.066, over 1.55) are reached together if a message takes 2 ms instead of 100 us. 1PC gains nothing if \
            a log does one write at a time: the next STARTED waits for COMMITTED.",
    base: Base::OnePhaseCommit,
    x: Axis { name: "reading", title: "reading" },
    points: other_readings,
    plots: &[],
    metrics: &["throughput_ops", "throughput_ratio"],
};

/// More servers.
pub const MANY_SERVERS: Experiment = Experiment {
    name: "one-phase-commit-servers",
    title: "Beyond the paper: 1 to 64 metadata servers",
    about: "Each server has 32 clients, which create files in 256 directories. A write of the log takes 20 us and shares what waits; \
            messages take 20 us, and 5 us of each processor; an object takes 10 us. In the first part every file is on another server than its directory, in the second on any server.",
    base: Base::OnePhaseCommit,
    x: SERVERS,
    points: many_servers,
    plots: &[PlotKind { logarithmic: true, logarithmic_x: true, ..PlotKind::of("", THROUGHPUT) }],
    metrics: &[
        "throughput_ops",
        "throughput_ratio",
        "latency_ms",
        "log_writes",
        "disk_utilization",
        "processor_utilization",
    ],
};

/// Many operations in one write, or in one transaction.
pub const GROUPING: Experiment = Experiment {
    name: "one-phase-commit-grouping",
    title: "Beyond the paper: many operations a commit",
    about: "The paper's future work. Clients create files on two servers with logs on flash; what waits while a write is under way \
            shares the next (log), or operations that wait for a directory become one transaction, with a verdict each (operations). In \
            one directory only the latter helps, because its lock is held for the length of a transaction.",
    base: Base::OnePhaseCommit,
    x: OUTSTANDING,
    points: grouping,
    plots: &[PlotKind { logarithmic: true, logarithmic_x: true, ..PlotKind::of("", THROUGHPUT) }],
    metrics: &[
        "throughput_ops",
        "throughput_ratio",
        "latency_ms",
        "operations_per_transaction",
        "log_writes",
        "protocol_messages",
    ],
};

/// A point of a protocol; `more` are assignments, separated by blanks.
fn point(panel: &str, protocol: &str, x: f64, more: &str) -> Point {
    Point::of(panel, Series::of_commits(protocol, Some(PRN)), x, &format!("system.protocol={protocol} {more}"))
}

/// The readings of the log in figure 6: the name of each, and what it sets.
const LOGS: [(&str, &str); 3] = [
    ("writes only take their time", "log.queue=none log.unforced=written"),
    ("one write at a time", "log.queue=one log.unforced=free"),
    ("one write at a time, unforced ones, too", "log.queue=one log.unforced=written"),
];

fn figure_6(thoroughness: Thoroughness) -> Vec<Point> {
    let sizes = thoroughness.of(&[1, 2, 4, 6, 8, 9, 10, 12, 16], &[1, 4, 8, 16]);
    let mut points = Vec::new();
    for (panel, log) in LOGS {
        for protocol in PROTOCOLS {
            let of = |size: &u64| format!("log.record_bytes={} {log}", size * 1024);
            points.extend(sizes.iter().map(|size| point(panel, protocol, *size as f64, &of(size))));
        }
    }
    points
}

fn other_readings(thoroughness: Thoroughness) -> Vec<Point> {
    assumptions::points(Base::OnePhaseCommit, thoroughness, || {
        PROTOCOLS.map(|protocol| point("", protocol, 0.0, "")).to_vec()
    })
}

fn many_servers(thoroughness: Thoroughness) -> Vec<Point> {
    let counts = thoroughness.of(&[1, 2, 4, 8, 16, 32, 64], &[1, 2, 16]);
    let mut points = Vec::new();
    for (panel, placement) in [("files on another server", "other"), ("files on any server", "anywhere")] {
        for protocol in PROTOCOLS {
            for count in counts {
                let more = format!(
                    "{FLASH} system.grouping=log system.servers={count} system.placement={placement} workload.coordinators=each \
                     workload.outstanding=32 workload.directories=256 run.operations=300 run.replications=2"
                );
                points.push(point(panel, protocol, *count as f64, &more));
            }
        }
    }
    points
}

fn grouping(thoroughness: Thoroughness) -> Vec<Point> {
    let outstanding = thoroughness.of(&[1, 2, 4, 8, 16, 32, 64, 128, 256], &[1, 16, 256]);
    let mut points = Vec::new();
    for (panel, directories) in [("one directory", 1), ("256 directories", 256)] {
        for protocol in ["prn", "1pc"] {
            for grouping in ["none", "log", "operations"] {
                for count in outstanding {
                    let more = format!(
                        "{FLASH} system.grouping={grouping} workload.outstanding={count} \
                         workload.directories={directories} run.operations=2000"
                    );
                    let name = format!("{protocol}, {grouping}");
                    let series = Series { in_paper: false, ..Series::of_commits(&name, Some("prn, none")) };
                    points.push(Point { series, ..point(panel, protocol, *count as f64, &more) });
                }
            }
        }
    }
    points
}

#[cfg(test)]
mod tests;
