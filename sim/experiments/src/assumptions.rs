//! The open assumptions of the shared-array paper's baseline, with alternative readings of each.

use crate::catalogue::at;
use crate::experiment::{Point, Thoroughness};
use braid_ordering::Ordering;

/// A parameter that a paper does not specify.
pub struct Assumption {
    pub name: &'static str,
    /// The readings: the name of each, and the parameters that it sets, separated by blanks. The first is the baseline.
    pub readings: &'static [(&'static str, &'static str)],
}

pub const ASSUMPTIONS: &[Assumption] = &[
    Assumption {
        name: "arrivals",
        readings: &[
            ("three open streams a host", ""),
            ("three closed streams a host", "workload.arrivals=closed"),
            ("one closed stream a host", "workload.arrivals=closed workload.streams_per_host=1"),
        ],
    },
    Assumption {
        name: "parity groups and alignment",
        readings: &[
            ("separate groups, whole units", ""),
            ("separate groups, within a stripe", "workload.alignment=stripe"),
            ("separate groups, whole units from any block", "workload.alignment=start"),
            ("separate groups, any block", "workload.alignment=block"),
            ("dealt round, whole units", "system.groups=dealt"),
            ("dealt round, any block", "system.groups=dealt workload.alignment=block"),
        ],
    },
    Assumption {
        name: "stripe unit",
        readings: &[
            ("8 KiB", ""),
            ("4 KiB", "system.unit_kib=4"),
            ("16 KiB", "system.unit_kib=16"),
            ("32 KiB", "system.unit_kib=32"),
            ("64 KiB", "system.unit_kib=64"),
        ],
    },
    Assumption {
        name: "service of disks",
        readings: &[
            ("two arms a device", ""),
            ("8 ms for each access", "disk.arms=1"),
            ("half of all accesses hit", "disk.arms=1 disk.read_hit_ratio=0.5 disk.write_hit_ratio=0.5"),
            ("4 ms for each access", "disk.arms=1 disk.positioning_ms=4"),
            ("writes reported at once", "disk.write_report=at-once"),
            ("writes absorbed, one arm", "disk.arms=1 disk.write_report=absorbed"),
            ("no positioning after a read", "disk.arms=1 disk.update_hit_ratio=1"),
        ],
    },
    Assumption {
        name: "links",
        readings: &[
            ("a message has all bandwidth", ""),
            ("shared by what a node sends", "network.links=sending"),
            ("shared both ways", "network.links=both"),
        ],
    },
    Assumption {
        name: "processors of hosts and devices",
        readings: &[
            ("host: 750 us a message", ""),
            ("host: nothing", "processor.host_send_us=0 processor.host_receive_us=0"),
            (
                "host: 750 us an operation",
                "processor.host_request_us=750 processor.host_send_us=0 processor.host_receive_us=0",
            ),
            ("device: 750 us a request", "processor.device_receive_us=750"),
        ],
    },
    Assumption {
        name: "processor of the lock server",
        readings: &[
            ("750 us a request, exponential", ""),
            ("750 us a request, constant", "processor.service=constant"),
            ("375 us a message", "processor.lock_server_receive_us=375 processor.lock_server_send_us=375"),
            ("750 us a message", "processor.lock_server_send_us=750"),
        ],
    },
    Assumption {
        name: "time-out of device locks",
        readings: &[
            ("50 ms", ""),
            ("20 ms", "protocol.lock_timeout_ms=20"),
            ("100 ms", "protocol.lock_timeout_ms=100"),
            ("200 ms", "protocol.lock_timeout_ms=200"),
        ],
    },
    Assumption {
        name: "lingering of commits and unlocks",
        readings: &[("2 ms", ""), ("none", "protocol.commit_linger_ms=0"), ("50 ms", "protocol.commit_linger_ms=50")],
    },
    Assumption {
        name: "\"variance\" of normal times",
        readings: &[
            ("standard deviation", ""),
            ("its square", "workload.think_deviation_ms=3.162 disk.positioning_deviation_ms=1"),
        ],
    },
    Assumption {
        name: "clocks",
        readings: &[
            ("2 ms apart", ""),
            ("exact", "clock.skew_ms=0"),
            ("5 ms apart", "clock.skew_ms=5"),
            ("20 ms apart", "clock.skew_ms=20"),
        ],
    },
];

pub fn points(thoroughness: Thoroughness) -> Vec<Point> {
    readings(ASSUMPTIONS, thoroughness, || at(&Ordering::ALL, 0.0, &[]))
}

/// A panel for each assumption, and a horizontal value for each reading, or only for the first two: at each, the points of the baseline, which
/// `of` makes, with what the reading sets.
pub fn readings(open: &[Assumption], thoroughness: Thoroughness, of: impl Fn() -> Vec<Point>) -> Vec<Point> {
    let mut points = Vec::new();
    for assumption in open {
        let chosen = thoroughness.of(assumption.readings, &assumption.readings[..2]);
        for (index, (label, assignments)) in chosen.iter().enumerate() {
            for mut point in of() {
                point.assignments.extend(assignments.split_whitespace().map(str::to_string));
                let (panel, label) = (assumption.name.to_string(), Some(label.to_string()));
                points.push(Point { panel, label, x: index as f64, ..point });
            }
        }
    }
    points
}
