//! The metrics of a run: computed from the latencies of its operations, and from the counters of all processes before and after it.

use super::load::Driven;
use super::test_bed::Snapshot;
use braid_admin::failure::Failure;
use braid_session::{Metrics, ratio};
use serde_json::{Map, Value, json};

/// All metrics of a run.
pub const METRICS: &[Metric] = &[
    metric("operations_per_second", "operations/s"),
    metric("mib_per_second", "MiB/s"),
    metric("latency_mean_us", "latency, mean, µs"),
    metric("latency_p50_us", "latency, median, µs"),
    metric("latency_p99_us", "latency, 99 %, µs"),
    metric("latency_max_us", "latency, highest, µs"),
    metric("messages_per_operation", "messages/operation"),
    metric("lock_messages_per_operation", "  of lock servers"),
    metric("delayed_percent", "operations delayed, %"),
    metric("journal_batches_per_operation", "journal batches/operation"),
    metric("disk_reads_per_operation", "disk reads/operation"),
    metric("disk_writes_per_operation", "disk writes/operation"),
    metric("syncs_per_operation", "syncs/operation"),
    metric("device_calls_per_operation", "system calls of devices/operation"),
    metric("write_amplification", "bytes to disks/byte written"),
    metric("waits_per_operation", "waits/operation"),
    metric("refusals_per_operation", "refusals/operation"),
    metric("retries_per_operation", "retries/operation"),
    metric("cpu_us_per_operation", "CPU, µs/operation, all"),
    metric("cpu_us_per_operation_devices", "  devices"),
    metric("cpu_us_per_operation_server", "  braid up"),
    metric("cpu_us_per_operation_hosts", "  hosts"),
    metric("cpu_us_per_operation_lock_servers", "  lock servers"),
    metric("cpu_us_per_operation_client", "  bench"),
    metric("device_resident_mib", "memory of a device, MiB"),
];

/// A metric.
#[derive(Debug)]
pub struct Metric {
    /// The name for programs.
    pub name: &'static str,
    /// The name for display.
    pub label: &'static str,
}

const fn metric(name: &'static str, label: &'static str) -> Metric {
    Metric { name, label }
}

/// The values of a run in the order of [`METRICS`]; none where a counter is unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures(Vec<Option<f64>>);

/// The increase of all counters during a run.
struct Span {
    /// The sum over all devices.
    devices: Metrics,
    server: Metrics,
    /// The sum over all lock servers; zeros without lock servers.
    lock_servers: Metrics,
    /// The sum over all hosts that performed the operations.
    hosts: Metrics,
}

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
        let Span { devices, server, lock_servers, hosts } = Span::between(before, after)?;
        let seconds = driven.elapsed.as_secs_f64();
        let operations = Some(driven.operations);
        let micros = |nanos: u64| Some(nanos as f64 / 1e3);
        let cpu = [
            devices.per(&["cpu_micros"], operations),
            server.per(&["cpu_micros"], operations),
            ratio(client_cpu, driven.operations),
        ];
        // Hosts within the bench are included in its CPU time; lock servers within the server's process in that of the server.
        let of_hosts = if after.host_processes { hosts.per(&["cpu_micros"], operations) } else { Some(0.0) };
        let of_lock_servers = lock_servers.per(&["cpu_micros"], operations).unwrap_or(0.0);
        // Devices within the server's process have no CPU time of their own: the server's includes them.
        let devices_are_inside = server.get("cpu_micros").is_some() && cpu[0].is_none();
        let all: Option<f64> =
            if devices_are_inside { cpu[1..].iter().copied().sum() } else { cpu.iter().copied().sum() };
        let all = all.and_then(|all| Some(all + of_hosts? + of_lock_servers));
        let both = [&devices, &lock_servers].into_iter().map(|counts| counts.per(&MESSAGES, operations));
        let resident = after.devices.iter().filter_map(|device| device.get("resident_bytes")).max();
        let value = |name: &str| match name {
            "operations_per_second" => Some(driven.operations as f64 / seconds),
            "mib_per_second" => Some((driven.bytes_read + driven.bytes_written) as f64 / seconds / f64::from(1 << 20)),
            "latency_mean_us" => Some(driven.latency.mean() / 1e3),
            "latency_p50_us" => micros(driven.latency.value_at_quantile(0.5)),
            "latency_p99_us" => micros(driven.latency.value_at_quantile(0.99)),
            "latency_max_us" => micros(driven.latency.max()),
            "messages_per_operation" => both.clone().sum(),
            "lock_messages_per_operation" => lock_servers.per(&MESSAGES, operations),
            "delayed_percent" => hosts.per(&["delayed"], operations).map(|share| share * 100.0),
            "journal_batches_per_operation" => devices.per(&["journal_batches"], operations),
            "disk_reads_per_operation" => devices.per(&["disk_reads"], operations),
            "disk_writes_per_operation" => devices.per(&["disk_writes"], operations),
            "syncs_per_operation" => devices.per(&["disk_durable_writes", "disk_syncs"], operations),
            "device_calls_per_operation" => devices.per(&["socket_reads", "socket_writes", "ring_enters"], operations),
            "write_amplification" => devices.per(&["disk_write_bytes"], Some(driven.bytes_written)),
            "waits_per_operation" => devices.per(&["waits"], operations),
            "refusals_per_operation" => devices.per(&["refused_too_late", "refused_other"], operations),
            "retries_per_operation" => hosts.per(&["retries"], operations),
            "cpu_us_per_operation" => all,
            "cpu_us_per_operation_devices" => cpu[0],
            "cpu_us_per_operation_server" => cpu[1],
            "cpu_us_per_operation_hosts" => of_hosts.filter(|_| after.host_processes),
            "cpu_us_per_operation_lock_servers" => lock_servers.per(&["cpu_micros"], operations),
            "cpu_us_per_operation_client" => cpu[2],
            "device_resident_mib" => resident.map(|bytes| bytes as f64 / f64::from(1 << 20)),
            _ => unreachable!("{name} is a metric without a meaning"),
        };
        Ok(Figures(METRICS.iter().map(|metric| value(metric.name)).collect()))
    }

    pub fn value(&self, metric: usize) -> Option<f64> {
        self.0[metric]
    }

    /// For tests: only the first metric has a value.
    #[cfg(test)]
    pub fn of_first(value: f64) -> Figures {
        Figures(std::iter::once(Some(value)).chain(METRICS[1..].iter().map(|_| None)).collect())
    }

    /// The values by name, for programs.
    pub fn to_json(&self) -> Value {
        METRICS
            .iter()
            .zip(&self.0)
            .map(|(metric, value)| (metric.name.to_string(), json!(value)))
            .collect::<Map<_, _>>()
            .into()
    }
}

impl Span {
    fn between(before: &Snapshot, after: &Snapshot) -> Result<Span, Failure> {
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
        Ok(Span { devices: sum(&after.devices, &before.devices)?.unwrap_or_default(), server, lock_servers, hosts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;
    use std::time::Duration;

    fn counts(values: &[(&str, u64)]) -> Metrics {
        values.iter().map(|(name, value)| (name.to_string(), *value)).collect()
    }

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
        counts(&values)
    }

    fn figure(figures: &Figures, name: &str) -> Option<f64> {
        figures.value(METRICS.iter().position(|metric| metric.name == name).expect("there is such a metric"))
    }

    fn figures(devices_cpu: Option<u64>) -> Figures {
        let snapshot = |factor| Snapshot {
            devices: vec![device(factor, devices_cpu), device(factor, devices_cpu)],
            server: counts(&[("cpu_micros", 700 * factor), ("retries", 20 * factor)]),
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
            server: counts(&[("cpu_micros", 700 * factor)]),
            lock_servers: vec![counts(&[
                ("messages_received", 100 * factor),
                ("messages_sent", 50 * factor),
                ("cpu_micros", 100 * factor),
            ])],
            hosts: vec![counts(&[("delayed", 2 * factor), ("cpu_micros", 200 * factor)]); 2],
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
        assert_eq!(Figures::new(&driven(), &snapshot(2), &snapshot(1), 0).unwrap_err().code, "restarted");
        let again = Snapshot { restarts: vec![1], ..snapshot(2) };
        let before = Snapshot { restarts: vec![0], ..snapshot(1) };
        assert_eq!(
            Figures::new(&driven(), &before, &again, 0).unwrap_err().code,
            "restarted",
            "its counters have increased"
        );
    }
}
