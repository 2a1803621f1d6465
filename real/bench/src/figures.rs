//! The metrics of a run: computed from the latencies of its operations, and from the counters of all processes before and after it.

use super::load::Driven;
use super::test_bed::Snapshot;
use crate::prelude::*;
use braid_session::{Metrics, ratio};
use serde_json::Map;

pub const METRICS: &[Metric] = &[
    metric("operations_per_second", "operations/s", |run| Some(run.driven.operations as f64 / run.seconds())),
    metric("mib_per_second", "MiB/s", |run| Some(run.mib() / run.seconds())),
    metric("latency_mean_us", "latency, mean, µs", |run| Some(run.driven.latency.mean() / 1e3)),
    metric("latency_p50_us", "latency, median, µs", |run| micros(run.driven.latency.value_at_quantile(0.5))),
    metric("latency_p99_us", "latency, 99 %, µs", |run| micros(run.driven.latency.value_at_quantile(0.99))),
    metric("latency_max_us", "latency, highest, µs", |run| micros(run.driven.latency.max())),
    metric("messages_per_operation", "messages/operation", |run| run.messages()),
    metric("lock_messages_per_operation", "  of lock servers", |run| run.each(&run.lock_servers, &MESSAGES)),
    metric("delayed_percent", "operations delayed, %", |run| Some(100.0 * run.each(&run.hosts, &["delayed"])?)),
    metric("journal_batches_per_operation", "journal batches/operation", |run| run.of_devices(&["journal_batches"])),
    metric("disk_reads_per_operation", "disk reads/operation", |run| run.of_devices(&["disk_reads"])),
    metric("disk_writes_per_operation", "disk writes/operation", |run| run.of_devices(&["disk_writes"])),
    metric("syncs_per_operation", "syncs/operation", |run| run.of_devices(&["disk_durable_writes", "disk_syncs"])),
    metric("device_calls_per_operation", "system calls of devices/operation", |run| run.of_devices(&CALLS)),
    metric("write_amplification", "bytes to disks/byte written", |run| {
        run.devices.per(&["disk_write_bytes"], Some(run.driven.bytes_written))
    }),
    metric("waits_per_operation", "waits/operation", |run| run.of_devices(&["waits"])),
    metric("refusals_per_operation", "refusals/operation", |run| {
        run.of_devices(&["refused_too_late", "refused_other"])
    }),
    metric("retries_per_operation", "retries/operation", |run| run.each(&run.hosts, &["retries"])),
    metric("cpu_us_per_operation", "CPU, µs/operation, all", |run| run.cpu()),
    metric("cpu_us_per_operation_devices", "  devices", |run| run.of_devices(&CPU)),
    metric("cpu_us_per_operation_server", "  braid up, nodes", |run| run.each(&run.server, &CPU)),
    metric("cpu_us_per_operation_hosts", "  hosts", |run| run.each(&run.hosts, &CPU).filter(|_| run.host_processes)),
    metric("cpu_us_per_operation_lock_servers", "  lock servers", |run| run.each(&run.lock_servers, &CPU)),
    metric("cpu_us_per_operation_client", "  bench", |run| ratio(run.client_cpu, run.driven.operations)),
    metric("device_resident_mib", "memory of a device, MiB", |run| Some(run.resident? as f64 / MIB)),
];

#[derive(Debug)]
pub struct Metric {
    /// The name for programs.
    pub name: &'static str,
    /// The name for display.
    pub label: &'static str,
    value: fn(&Counted<'_>) -> Option<f64>,
}

const fn metric(name: &'static str, label: &'static str, value: fn(&Counted<'_>) -> Option<f64>) -> Metric {
    Metric { name, label, value }
}

fn micros(nanos: u64) -> Option<f64> {
    Some(nanos as f64 / 1e3)
}

/// The values of a run in the order of [`METRICS`]; none where a counter is unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures(Vec<Option<f64>>);

/// A run: its operations, and the increase of all counters.
struct Counted<'a> {
    driven: &'a Driven,
    /// The sum over all devices.
    devices: Metrics,
    server: Metrics,
    /// The sum over all lock servers; zeros without lock servers.
    lock_servers: Metrics,
    /// The sum over all hosts that performed the operations.
    hosts: Metrics,
    /// True if each of those has a process of its own.
    host_processes: bool,
    /// CPU time of this process, in microseconds.
    client_cpu: u64,
    /// The most memory of a device, in bytes.
    resident: Option<u64>,
}

const MIB: f64 = (1 << 20) as f64;
const CPU: [&str; 1] = ["cpu_micros"];
/// Counters of system calls.
const CALLS: [&str; 3] = ["socket_reads", "socket_writes", "ring_enters"];

/// Counters of messages between hosts and the nodes that serve them.
const MESSAGES: [&str; 2] = ["messages_received", "messages_sent"];

/// Names that count events. Sizes, such as memory, may decrease during a run.
const COUNTED: [&str; 17] = [
    "messages_received",
    "messages_sent",
    "journal_batches",
    "disk_reads",
    "disk_writes",
    "disk_write_bytes",
    "disk_durable_writes",
    "disk_syncs",
    "waits",
    "refused_too_late",
    "refused_other",
    "cpu_micros",
    "retries",
    "delayed",
    "socket_reads",
    "socket_writes",
    "ring_enters",
];

impl Figures {
    /// The metrics of a run that began with `before` and ended with `after`; `client_cpu` is the CPU time of this process during the run,
    /// in microseconds.
    pub fn new(driven: &Driven, before: &Snapshot, after: &Snapshot, client_cpu: u64) -> Result<Figures, Failure> {
        let run = Counted::between(driven, before, after, client_cpu)?;
        Ok(Figures(METRICS.iter().map(|metric| (metric.value)(&run)).collect()))
    }

    pub fn value(&self, metric: usize) -> Option<f64> {
        self.0[metric]
    }

    /// The values by name, for programs.
    pub fn to_json(&self) -> Value {
        let named = METRICS.iter().zip(&self.0).map(|(metric, value)| (metric.name.to_string(), json!(value)));
        named.collect::<Map<_, _>>().into()
    }
}

impl<'a> Counted<'a> {
    fn seconds(&self) -> f64 {
        self.driven.elapsed.as_secs_f64()
    }

    fn mib(&self) -> f64 {
        (self.driven.bytes_read + self.driven.bytes_written) as f64 / MIB
    }

    /// The sum of these counters, for each operation.
    fn each(&self, counts: &Metrics, names: &[&str]) -> Option<f64> {
        counts.per(names, Some(self.driven.operations))
    }

    fn of_devices(&self, names: &[&str]) -> Option<f64> {
        self.each(&self.devices, names)
    }

    fn messages(&self) -> Option<f64> {
        Some(self.of_devices(&MESSAGES)? + self.each(&self.lock_servers, &MESSAGES)?)
    }

    /// The CPU time of all processes, for each operation.
    fn cpu(&self) -> Option<f64> {
        let (devices, server) = (self.of_devices(&CPU), self.each(&self.server, &CPU));
        // Devices within the server's process have no CPU time of their own: the server's includes them.
        let devices = if server.is_some() { Some(devices.unwrap_or(0.0)) } else { devices };
        // Hosts within the bench are included in its CPU time; lock servers within the server's process in that of the server.
        let hosts = if self.host_processes { self.each(&self.hosts, &CPU) } else { Some(0.0) };
        let lock_servers = self.each(&self.lock_servers, &CPU).unwrap_or(0.0);
        Some(devices? + server? + ratio(self.client_cpu, self.driven.operations)? + hosts? + lock_servers)
    }

    fn between(
        driven: &'a Driven,
        before: &Snapshot,
        after: &Snapshot,
        client_cpu: u64,
    ) -> Result<Counted<'a>, Failure> {
        let restarted = || {
            Failure::failed("restarted", "a part of the array was restarted during a measurement")
                .hint("`braid status` shows which; measure again when the array is idle")
        };
        if before.restarts != after.restarts {
            return Err(restarted());
        }
        let since = |after: &Metrics, before: &Metrics| {
            after.since(before, |name| COUNTED.contains(&name)).ok_or_else(restarted)
        };
        let sum = |after: &[Metrics], before: &[Metrics]| {
            let mut sum: Option<Metrics> = None;
            for (after, before) in after.iter().zip(before) {
                let counts = since(after, before)?;
                sum.get_or_insert_default().add(&counts);
            }
            Ok::<_, Failure>(sum)
        };
        let server = since(&after.server, &before.server)?;
        let none = || MESSAGES.iter().map(|name| (name.to_string(), 0)).collect();
        let lock_servers = sum(&after.lock_servers, &before.lock_servers)?.unwrap_or_else(none);
        // With NBD, the server's host performs the operations.
        let hosts = sum(&after.hosts, &before.hosts)?.unwrap_or_else(|| server.clone());
        let devices = sum(&after.devices, &before.devices)?.unwrap_or_default();
        let resident = after.devices.iter().filter_map(|device| device.get("resident_bytes")).max();
        let host_processes = after.host_processes;
        Ok(Counted { driven, devices, server, lock_servers, hosts, host_processes, client_cpu, resident })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;
    use std::time::Duration;

    fn driven() -> Driven {
        let mut latency = Histogram::new(3).unwrap();
        latency.record_n(100_000, 99).unwrap();
        latency.record(2_000_000).unwrap();
        let elapsed = Duration::from_millis(500);
        Driven { operations: 100, bytes_read: 0, bytes_written: 100 << 12, elapsed, latency }
    }

    fn device(factor: u64, cpu: Option<u64>) -> Metrics {
        let mut values = vec![
            ("messages_received", 200 * factor),
            ("messages_sent", 200 * factor),
            ("disk_writes", 60 * factor),
            ("disk_durable_writes", 50 * factor),
            ("disk_syncs", 10 * factor),
            ("disk_write_bytes", (500 << 12) * factor),
            ("resident_bytes", (30 << 20) / (factor + 1)),
        ];
        values.extend(cpu.map(|cpu| ("cpu_micros", cpu * factor)));
        Metrics::from_iter(values)
    }

    fn figure(figures: &Figures, name: &str) -> Option<f64> {
        figures.value(METRICS.iter().position(|metric| metric.name == name).expect("there is such a metric"))
    }

    fn figures(devices_cpu: Option<u64>) -> Figures {
        let snapshot = |factor| Snapshot {
            devices: vec![device(factor, devices_cpu), device(factor, devices_cpu)],
            server: Metrics::from_iter([("cpu_micros", 700 * factor), ("retries", 20 * factor)]),
            ..Snapshot::default()
        };
        Figures::new(&driven(), &snapshot(1), &snapshot(2), 300).unwrap()
    }

    #[test]
    fn figures_are_what_was_counted_in_between_by_operation() {
        let figures = figures(Some(1000));
        for (name, value) in [
            ("operations_per_second", 200.0),
            ("mib_per_second", 0.78125),
            ("messages_per_operation", 8.0),
            ("disk_writes_per_operation", 1.2),
            ("syncs_per_operation", 1.2),
            ("write_amplification", 10.0),
            ("retries_per_operation", 0.2),
            ("cpu_us_per_operation_devices", 20.0),
            ("cpu_us_per_operation_server", 7.0),
            ("cpu_us_per_operation_client", 3.0),
            ("cpu_us_per_operation", 30.0),
            ("device_resident_mib", 10.0),
        ] {
            assert_eq!(figure(&figures, name), Some(value), "{name}");
        }
        let near = |name: &str, micros: f64| (figure(&figures, name).unwrap() / micros - 1.0).abs() < 0.001;
        assert!(near("latency_p50_us", 100.0) && near("latency_p99_us", 100.0) && near("latency_max_us", 2000.0));
        assert_eq!(figure(&figures, "disk_reads_per_operation"), None, "the counter is unknown");
    }

    #[test]
    fn messages_of_lock_servers_count_and_so_do_processes_of_hosts() {
        let snapshot = |factor| Snapshot {
            devices: vec![device(factor, Some(1000)); 2],
            server: Metrics::from_iter([("cpu_micros", 700 * factor)]),
            lock_servers: vec![Metrics::from_iter([
                ("messages_received", 100 * factor),
                ("messages_sent", 50 * factor),
                ("cpu_micros", 100 * factor),
            ])],
            hosts: vec![Metrics::from_iter([("delayed", 2 * factor), ("cpu_micros", 200 * factor)]); 2],
            host_processes: true,
            ..Snapshot::default()
        };
        let figures = Figures::new(&driven(), &snapshot(1), &snapshot(2), 300).unwrap();
        for (name, value) in [
            ("messages_per_operation", 9.5),
            ("lock_messages_per_operation", 1.5),
            ("delayed_percent", 4.0),
            ("cpu_us_per_operation_hosts", 4.0),
            ("cpu_us_per_operation_lock_servers", 1.0),
            ("cpu_us_per_operation", 35.0),
        ] {
            assert_eq!(figure(&figures, name), Some(value), "{name}");
        }
    }

    #[test]
    fn devices_inside_are_part_of_their_process() {
        let figures = figures(None);
        assert_eq!(figure(&figures, "cpu_us_per_operation_devices"), None);
        assert_eq!(figure(&figures, "cpu_us_per_operation"), Some(10.0));
    }

    #[test]
    fn a_device_that_was_started_again_spoils_the_run() {
        let snapshot = |factor| Snapshot { devices: vec![device(factor, None)], ..Snapshot::default() };
        let code = |before: &Snapshot, after: &Snapshot| Figures::new(&driven(), before, after, 0).unwrap_err().code;
        assert_eq!(code(&snapshot(2), &snapshot(1)), "restarted");
        let again = Snapshot { restarts: vec![1], ..snapshot(2) };
        let before = Snapshot { restarts: vec![0], ..snapshot(1) };
        assert_eq!(code(&before, &again), "restarted", "its counters have increased");
    }
}
