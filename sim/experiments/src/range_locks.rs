//! The experiments of the range-lock paper (section 4): the time to acquire new locks (figures 3 and 4), locks that another node keeps (5 and
//! 6), and the same with several clients on a node (7 and 8), the paper's open assumptions; and beyond the paper: writing back, locks of what is
//! likely to be wanted next, many clients, node groups, promotions, today's hardware.

use crate::assumptions;
use crate::experiment::{Base, Experiment, Point, Series, THROUGHPUT, Thoroughness};
use braid_benchkit::plot::{Axis, PlotKind};

const CLIENTS: Axis = Axis { name: "clients", title: "clients" };
const PER_NODE: Axis = Axis { name: "clients_per_node", title: "clients on a node (16 in all)" };
const LATENCY: Axis = Axis { name: "latency_ms", title: "mean time to acquire a lock (ms)" };
const MESSAGES: Axis = Axis { name: "messages_per_op", title: "messages per lock" };

const MODES: [&str; 2] = ["exclusive", "shared"];
/// When the clients lock: the parts of each figure.
const STARTS: [(&str, &str); 3] = [
    ("within 20 ms", "workload.spread_ms=20"),
    ("within 8 ms", "workload.spread_ms=8"),
    ("all at once", "workload.spread_ms=0"),
];

const fn figure(
    name: &'static str,
    title: &'static str,
    about: &'static str,
    x: Axis,
    points: fn(Thoroughness) -> Vec<Point>,
) -> Experiment {
    Experiment {
        name,
        title,
        about,
        base: Base::RangeLocks,
        x,
        points,
        plots: const { &[PlotKind::of("", LATENCY)] },
        metrics: &["latency_ms", "callbacks_per_op", "messages_per_op", "lock_server_utilization"],
    }
}

pub const FIGURE_3: Experiment = figure(
    "range-locks-fig3",
    "Range locks, figure 3: new locks, one GLM",
    "Each client locks its own 1 MiB of a new file. The paper: the time is small, and the same for both modes; no callback is sent. The \
     clients lock within 20 ms, within 8 ms, or all at once.",
    CLIENTS,
    |_| by_clients(1, 0),
);

pub const FIGURE_4: Experiment = figure(
    "range-locks-fig4",
    "Range locks, figure 4: new locks, four GLMs",
    "As figure 3. The paper: four GLMs instead of one make no difference. That holds while one GLM has little to do, not if all clients \
     lock at once.",
    CLIENTS,
    |_| by_clients(4, 0),
);

pub const FIGURE_5: Experiment = figure(
    "range-locks-fig5",
    "Range locks, figure 5: locks of neighbours, one GLM",
    "Each client goes on to the section that its neighbour locked in the step before. The paper: exclusive locks take much longer, because \
     they are called back; shared locks are not.",
    CLIENTS,
    |_| by_clients(1, 3),
);

pub const FIGURE_6: Experiment = figure(
    "range-locks-fig6",
    "Range locks, figure 6: locks of neighbours, four GLMs",
    "As figure 5. The paper: four GLMs need less time than one. That holds if one GLM has much to do. Within 8 ms, exclusive locks load one \
     GLM, and new and shared locks do not: then all shapes of figures 3 to 8 are there.",
    CLIENTS,
    |_| by_clients(4, 3),
);

pub const FIGURE_7: Experiment = figure(
    "range-locks-fig7",
    "Range locks, figure 7: clients that share a node, one GLM",
    "As figure 5, with 16 clients on 16, 8 or 4 nodes. The paper: with two clients on a node, every second lock is called back, with four \
     every fourth; so the time falls.",
    PER_NODE,
    |_| by_clients_per_node(1),
);

pub const FIGURE_8: Experiment = figure(
    "range-locks-fig8",
    "Range locks, figure 8: clients that share a node, four GLMs",
    "As figure 7.",
    PER_NODE,
    |_| by_clients_per_node(4),
);

/// The open assumptions of section 4.
pub const ASSUMPTIONS: Experiment = Experiment {
    plots: &[],
    ..figure(
        "range-locks-assumptions",
        "Range locks: what section 4 leaves open",
        "One open assumption at a time gets another reading, with 16 clients; everything else is as in figures 3 to 8.",
        Axis { name: "reading", title: "reading" },
        |thoroughness| {
            assumptions::points(Base::RangeLocks, thoroughness, || {
                READ.map(|(series, own)| point("", series, 0.0, own)).to_vec()
            })
        },
    )
};

/// Dirty data is written back.
pub const WRITING_BACK: Experiment = figure(
    "range-locks-writing-back",
    "Beyond the paper: locks of neighbours, and what was written under them",
    "As figure 5, exclusive. A node that is called back first writes 1 MiB back, at 100 Mb/s: the paper leaves this time out.",
    CLIENTS,
    |_| {
        let of = |(name, flush)| {
            let own = |clients| format!("system.clients={clients} workload.flush_ms={flush}");
            [4, 8, 16].map(|clients| point("", name, f64::from(clients), &own(clients)))
        };
        [("not counted", 0), ("counted", 84)].map(of).concat()
    },
);

/// Locks that are granted wider than requested.
pub const WIDENING: Experiment = Experiment {
    plots: &[PlotKind::of("", LATENCY), PlotKind::of("-messages", MESSAGES)],
    ..figure(
        "range-locks-widening",
        "Beyond the paper: locks of what is likely to be wanted next",
        "16 clients lock their section in pieces, one after the other. With foresight a node is granted up to 1 MiB more at once: twice as much \
         as the time before if pieces follow each other, and the next 16 if they lie at equal distances, among those of all others.",
        Axis { name: "pieces", title: "pieces of a section" },
        widening,
    )
};

/// More clients and GLMs.
pub const MANY_CLIENTS: Experiment = Experiment {
    plots: &[
        PlotKind { logarithmic: true, logarithmic_x: true, ..PlotKind::of("", LATENCY) },
        PlotKind { logarithmic: true, logarithmic_x: true, ..PlotKind::of("-throughput", THROUGHPUT) },
    ],
    metrics: &["latency_ms", "throughput_ops", "callbacks_per_op", "lock_server_utilization"],
    ..figure(
        "range-locks-clients",
        "Beyond the paper: up to 1,024 clients",
        "Exclusive locks of neighbours. Each client uses its section for 84 ms (deviation 10) and goes on at once. The time contains the wait \
         for a neighbour that still uses the section.",
        CLIENTS,
        many_clients,
    )
};

/// Node groups.
pub const GROUPS: Experiment = Experiment {
    plots: &[PlotKind::of("", LATENCY), PlotKind::of("-messages", MESSAGES)],
    ..figure(
        "range-locks-groups",
        "Beyond the paper's figures: callbacks to node groups",
        "Exclusive locks of neighbours, within 4 ms for each client. The paper calls on all nodes of the holder's group, one of eight; or only the \
         holder is called on.",
        CLIENTS,
        |_| {
            let of = |(name, callbacks)| {
                let own = |clients| {
                    format!(
                        "system.clients={clients} system.callbacks={callbacks} workload.spread_ms={} run.files=20",
                        4 * clients
                    )
                };
                [8, 16, 32, 64, 128].map(|clients| point("", name, f64::from(clients), &own(clients)))
            };
            [("holder", "holder"), ("node group", "group")].map(of).concat()
        },
    )
};

/// All clients promote the same lock.
pub const PROMOTIONS: Experiment = Experiment {
    plots: &[PlotKind::of("", LATENCY), PlotKind::of("-messages", MESSAGES)],
    metrics: &["latency_ms", "messages_per_op", "callbacks_per_op", "kept_fraction", "lock_server_utilization"],
    ..figure(
        "range-locks-promotions",
        "Beyond the paper: all clients promote the same lock",
        "All clients have the same section shared, and want it exclusively at once. The first one keeps what it has; the others give it up, and \
         have their turns.",
        CLIENTS,
        |_| {
            let own = |clients| {
                format!(
                    "workload.shifts=0 workload.step=promote workload.layout=same workload.spread_ms=0 system.clients={clients} run.files=20"
                )
            };
            [2, 4, 8, 16, 32, 64].map(|clients| point("", "exclusive", f64::from(clients), &own(clients))).to_vec()
        },
    )
};

/// Today's hardware.
pub const TODAY: Experiment = Experiment {
    base: Base::RangeLocksToday,
    ..figure(
        "range-locks-today",
        "Range locks on today's hardware",
        "The locks of figures 3 to 6 within 1 ms, at 25 Gb/s with 5 us of a processor for a message, and at 100 Gb/s with 1 us, where programs send \
         without the kernel.",
        CLIENTS,
        |thoroughness| {
            let mut points = Vec::new();
            for (panel, hardware) in [("25 Gb/s", ""), ("100 Gb/s", FAST)] {
                for (series, own) in &READ[..5] {
                    points.extend(thoroughness.of(&[4, 16, 64, 256], &[4, 64]).iter().map(|clients| {
                        point(panel, series, f64::from(*clients), &format!("system.clients={clients} {own} {hardware}"))
                    }));
                }
            }
            points
        },
    )
};

const FAST: &str = "network.bandwidth_mb_s=12500 network.overhead_min_ms=0.001 network.overhead_max_ms=0.002 \
                    processor.host_send_us=1 processor.host_receive_us=1 processor.lock_server_send_us=1 \
                    processor.lock_server_receive_us=1";

fn point(panel: &str, series: &str, x: f64, assignments: &str) -> Point {
    Point::of(panel, Series::of_locks(series, None), x, assignments)
}

/// Both modes in both parts of a figure, at each horizontal value, with what `own` sets.
fn both_modes(values: [u64; 3], own: impl Fn(u64) -> String) -> Vec<Point> {
    let mut points = Vec::new();
    for (panel, start) in STARTS {
        for mode in MODES {
            let assignments = |value| format!("workload.mode={mode} {start} {}", own(value));
            points.extend(values.map(|value| point(panel, mode, value as f64, &assignments(value))));
        }
    }
    points
}

fn by_clients(lock_servers: u64, shifts: u64) -> Vec<Point> {
    both_modes([4, 8, 16], |clients| {
        format!("system.clients={clients} system.lock_servers={lock_servers} workload.shifts={shifts}")
    })
}

fn by_clients_per_node(lock_servers: u64) -> Vec<Point> {
    both_modes([1, 2, 4], |count| format!("system.clients_per_node={count} system.lock_servers={lock_servers}"))
}

/// Points of the figures at which every reading is run.
const READ: [(&str, &str); 6] = [
    ("new locks, 1 GLM", "workload.shifts=0"),
    ("new locks, 4 GLMs", "workload.shifts=0 system.lock_servers=4"),
    ("neighbours' locks, shared", "workload.mode=shared"),
    ("exclusive, 1 GLM", ""),
    ("exclusive, 4 GLMs", "system.lock_servers=4"),
    ("exclusive, 4 clients a node", "system.clients_per_node=4"),
];

fn widening(thoroughness: Thoroughness) -> Vec<Point> {
    let mut points = Vec::new();
    for (panel, layout) in [("pieces that follow each other", "apart"), ("pieces among those of others", "interleaved")]
    {
        for (series, width) in [("as requested", 0), ("with foresight", 1024)] {
            for pieces in thoroughness.of(&[1, 2, 4, 8, 16, 32, 64], &[1, 4, 16]) {
                let own = format!(
                    "workload.layout={layout} workload.widen_kib={width} workload.pieces={pieces} workload.shifts=0 run.files=20"
                );
                points.push(point(panel, series, *pieces as f64, &own));
            }
        }
    }
    points
}

fn many_clients(thoroughness: Thoroughness) -> Vec<Point> {
    let mut points = Vec::new();
    for servers in [1, 4, 16] {
        for clients in thoroughness.of(&[16, 64, 256, 512, 1024], &[16, 1024]) {
            // 1 MB takes 84 ms at 100 Mb/s.
            let own = format!(
                "system.clients={clients} system.lock_servers={servers} workload.start=alone workload.spread_ms=84 \
                 workload.use_ms=84 workload.use_deviation_ms=10 workload.shifts=10 run.files=1"
            );
            let series = format!("{servers} GLM{}", if servers == 1 { "" } else { "s" });
            points.push(point("", &series, *clients as f64, &own));
        }
    }
    points
}

#[cfg(test)]
mod tests;
