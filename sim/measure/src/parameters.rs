//! All numbers that determine a run, by name. They are read from a file, and each can be set on the command line.
//!
//! The files with their comments are `sim/experiments/parameters/*.toml`.

use crate::named::{Limit, Named, ParameterError, limit};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The parameters of a run. Together with the ordering and the seed they determine it completely.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    pub system: System,
    pub workload: Workload,
    pub disk: Disk,
    pub network: Network,
    pub processor: Processor,
    pub clock: Clock,
    pub protocol: Protocol,
    pub run: Run,
}

/// The numbers of nodes and the layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    pub devices: u64,
    pub hosts: u64,
    /// Lock servers, for the orderings that use them.
    pub lock_servers: u64,
    /// Data units of a stripe; a parity unit is added.
    pub data_units: u64,
    /// How locks at several lock servers are acquired.
    pub lock_acquisition: LockAcquisition,
    /// How parity groups are placed on the devices.
    pub groups: Groups,
    /// Size of a stripe unit in KiB.
    pub unit_kib: u64,
    pub units_per_device: u64,
}

/// How parity groups are placed on the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Groups {
    /// Each group of as many devices as a stripe has units is a volume of its own: all its stripes lie on the same devices.
    Separate,
    /// One volume, whose stripes are distributed over all devices.
    Dealt,
}

/// How locks at several lock servers are acquired without deadlock (shared-array paper, section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockAcquisition {
    /// One server after the other, in the order of their numbers.
    Ordered,
    /// All at once; a host that does not get all locks in time releases those that it has and retries.
    Timeout,
}

/// The requests of hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Streams of requests at each host.
    pub streams_per_host: u64,
    pub arrivals: Arrivals,
    /// Mean time between two requests of a stream (if closed: from the answer to the next request), in ms.
    pub think_ms: f64,
    /// Standard deviation of that time, in ms.
    pub think_deviation_ms: f64,
    /// Share of hostreads.
    pub read_fraction: f64,
    /// Smallest size of a request in stripe units.
    pub size_units_min: u64,
    /// Largest size of a request in stripe units.
    pub size_units_max: u64,
    pub alignment: Alignment,
    /// Share of the volume that is addressed.
    pub active_fraction: f64,
}

/// Whether a stream waits for its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// No: requests are issued at their times.
    Open,
    /// Yes: a stream has at most one request in progress.
    Closed,
}

/// The boundaries at which requests begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Alignment {
    /// Stripe units; sizes are whole units.
    Unit,
    /// Half stripe units; sizes are multiples of half a unit.
    HalfUnit,
    /// Requests begin at any block; sizes are whole units.
    Start,
    /// Requests begin at any block and have any size in blocks.
    Block,
    /// Whole units, within one stripe.
    Stripe,
}

/// The disk of a device: one first-come, first-served queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Arms that serve the queue of one device.
    pub arms: u64,
    /// Mean positioning time, in ms.
    pub positioning_ms: f64,
    /// Standard deviation of the positioning time, in ms.
    pub positioning_deviation_ms: f64,
    /// Transfer time, in microseconds a byte.
    pub transfer_us_per_byte: f64,
    /// Share of reads that need no positioning because they hit the disk's cache.
    pub read_hit_ratio: f64,
    /// Share of writes that need no positioning.
    pub write_hit_ratio: f64,
    /// Share of writes to recently read blocks that need no positioning (in addition to `write_hit_ratio`).
    pub update_hit_ratio: f64,
    pub write_report: WriteReport,
}

/// When a write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteReport {
    /// When it is on the medium.
    OnMedium,
    /// At once; the disk still executes it in its turn.
    AtOnce,
    /// At once; the disk executes it when it is idle, at no cost.
    Absorbed,
}

/// The cost of a message in transit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Bandwidth in megabytes (10^6 bytes) a second.
    pub bandwidth_mb_s: f64,
    pub links: Links,
    /// The smallest latency added to each message, in ms. The added latency is uniformly distributed.
    pub overhead_min_ms: f64,
    /// The largest latency added to each message, in ms.
    pub overhead_max_ms: f64,
    /// Bytes of a message in addition to its data.
    pub header_bytes: u64,
}

/// Which messages share the bandwidth of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Links {
    /// None: each message has all of it.
    Unshared,
    /// All messages that a node sends.
    Sending,
    /// All messages that a node sends and, separately, all that it receives.
    Both,
}

/// Processor times of messages and requests, in microseconds. Each node has one queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// For each request of an application.
    pub host_request_us: f64,
    /// For each message that a host sends.
    pub host_send_us: f64,
    /// For each message that a host receives.
    pub host_receive_us: f64,
    /// For each message that a device sends.
    pub device_send_us: f64,
    /// For each message that a device receives.
    pub device_receive_us: f64,
    /// For each message that a lock server sends.
    pub lock_server_send_us: f64,
    /// For each message that a lock server receives.
    pub lock_server_receive_us: f64,
    pub service: Service,
}

/// The distribution of service times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    Constant,
    Exponential,
}

/// Errors of clocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    /// The largest skew of wall clocks in either direction, in ms.
    pub skew_ms: f64,
    /// The largest drift of clocks in either direction, in millionths.
    pub drift_ppm: f64,
}

/// Choices and waiting times of the protocols.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    pub atomicity: Atomicity,
    /// How long a lock request at a device waits until it counts as deadlocked, in ms.
    pub lock_timeout_ms: f64,
    /// How long an unused lock stays cached (callback locking), in ms.
    pub lock_lease_ms: f64,
    /// The shortest back-off before a retry, in ms.
    pub backoff_min_ms: f64,
    /// The longest back-off before a retry, in ms.
    pub backoff_max_ms: f64,
    /// How long a commit waits to be sent together with a request, in ms.
    pub commit_linger_ms: f64,
}

/// The atomicity of hostwrites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Atomicity {
    /// An interrupted hostwrite may take effect in part, as in the paper.
    Consistent,
    /// A hostwrite takes effect completely or not at all: Braid's own mode.
    Implied,
}

/// The length of the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Operations of the warm-up, which are not measured.
    pub warm_up_operations: u64,
    /// Measured operations.
    pub operations: u64,
    /// Independent runs of each point.
    pub replications: u64,
    /// An array whose backlog reaches this number of operations, on average over the hosts, counts as saturated. Applications then
    /// keep the backlog at that limit, and the measurement begins when the present backlog is answered.
    pub backlog_per_host: u64,
}

/// The limits of each number that only arrays have.
const LIMITS: &[Limit] = &[
    limit(&["system.devices"], 3.0, 1024.0),
    limit(&["system.hosts"], 1.0, 1000.0),
    limit(&["system.lock_servers"], 1.0, 16.0),
    limit(&["system.data_units"], 2.0, 64.0),
    limit(&["system.unit_kib"], 4.0, 1024.0),
    limit(&["system.units_per_device"], 1.0, 1e9),
    limit(&["workload.streams_per_host"], 1.0, 1000.0),
    limit(&["workload.think_ms"], 0.001, 1e6),
    limit(&["workload.think_deviation_ms"], 0.0, 1e6),
    limit(&["workload.read_fraction"], 0.0, 1.0),
    limit(&["workload.size_units_min", "workload.size_units_max"], 1.0, 64.0),
    limit(&["workload.active_fraction"], 0.0001, 1.0),
    limit(&["clock.skew_ms", "clock.drift_ppm"], 0.0, 1000.0),
    limit(&["protocol.lock_timeout_ms"], 0.1, 1e6),
    limit(&["protocol.lock_lease_ms", "protocol.commit_linger_ms"], 0.0, 1e6),
    limit(&["protocol.backoff_min_ms", "protocol.backoff_max_ms"], 0.001, 1e6),
    limit(&["run.warm_up_operations"], 0.0, 1e9),
    limit(&["run.operations"], 100.0, 1e9),
    limit(&["run.replications"], 1.0, 1000.0),
    limit(&["run.backlog_per_host"], 10.0, 4000.0),
];

/// The limits of the numbers of modelled hardware.
pub const HARDWARE_LIMITS: &[Limit] = &[
    limit(&["*.arms"], 1.0, 64.0),
    limit(&["*.positioning_ms", "*.positioning_deviation_ms"], 0.0, 1000.0),
    limit(&["*.transfer_us_per_byte"], 0.0, 10.0),
    limit(&["*.read_hit_ratio", "*.write_hit_ratio", "*.update_hit_ratio"], 0.0, 1.0),
    limit(&["network.bandwidth_mb_s"], 0.1, 1e6),
    limit(&["network.overhead_min_ms", "network.overhead_max_ms"], 0.0, 1000.0),
    limit(&["network.header_bytes"], 0.0, 65536.0),
    limit(&["processor.host_request_us", "processor.host_send_us", "processor.host_receive_us"], 0.0, 1e6),
    limit(&["processor.device_send_us", "processor.device_receive_us"], 0.0, 1e6),
    limit(&["processor.lock_server_send_us", "processor.lock_server_receive_us"], 0.0, 1e6),
];

impl Parameters {
    /// The operations a second that hosts are offered, if streams do not wait for answers.
    pub fn offered(&self) -> f64 {
        (self.system.hosts * self.workload.streams_per_host) as f64 * 1e3 / self.workload.think_ms
    }

    /// The number of volumes, which divide the devices among them.
    pub fn volumes(&self) -> u64 {
        match self.system.groups {
            Groups::Separate => self.system.devices / (self.system.data_units + 1),
            Groups::Dealt => 1,
        }
    }

    pub fn stripes(&self) -> u64 {
        self.system.devices * self.system.units_per_device / (self.system.data_units + 1) / self.volumes()
    }

    /// Stripes of each volume that are addressed; at least one.
    pub fn active_stripes(&self) -> u64 {
        ((self.stripes() as f64 * self.workload.active_fraction) as u64).max(1)
    }
}

impl Named for Parameters {
    const LIMITS: &'static [&'static [Limit]] = &[LIMITS, HARDWARE_LIMITS];

    fn check_together(&self) -> Result<(), ParameterError> {
        let (system, workload) = (&self.system, &self.workload);
        let wrong = |text: String| Err(ParameterError::Together(text));
        if !system.unit_kib.is_power_of_two() {
            return wrong(format!("system.unit_kib can't be {}: choose a power of two, such as 8", system.unit_kib));
        }
        if system.data_units + 1 > system.devices {
            return wrong(format!(
                "stripes of system.data_units={} and a parity unit don't fit on system.devices={}: choose fewer units or more devices",
                system.data_units, system.devices
            ));
        }
        if system.groups == Groups::Separate && !system.devices.is_multiple_of(system.data_units + 1) {
            return wrong(format!(
                "system.devices={} is not a multiple of the group size {}: choose a multiple, or system.groups=dealt",
                system.devices,
                system.data_units + 1
            ));
        }
        if workload.size_units_min > workload.size_units_max {
            return wrong(format!(
                "workload.size_units_min={} is above workload.size_units_max={}",
                workload.size_units_min, workload.size_units_max
            ));
        }
        if workload.alignment == Alignment::HalfUnit && system.unit_kib * 1024 < 2 * braid_base::BLOCK_BYTES as u64 {
            return wrong(format!(
                "units of system.unit_kib={} are single blocks, which have no halves: choose at least 8, or another workload.alignment",
                system.unit_kib
            ));
        }
        if workload.alignment == Alignment::Stripe && workload.size_units_max > system.data_units {
            return wrong(format!(
                "requests of up to workload.size_units_max={} units don't fit into a stripe of system.data_units={}",
                workload.size_units_max, system.data_units
            ));
        }
        let bytes = workload.size_units_max * system.unit_kib * 1024;
        if bytes > braid_base::limits::TRANSACTION_BYTES_MAX as u64 {
            return wrong(format!("requests of up to {bytes} bytes exceed the limit of a storage transaction"));
        }
        if self.active_stripes() * system.data_units < workload.size_units_max + 1 {
            return wrong("the addressed part of the volume is smaller than a request: increase system.units_per_device or workload.active_fraction".to_string());
        }
        if self.network.overhead_min_ms > self.network.overhead_max_ms {
            return wrong("network.overhead_min_ms is above network.overhead_max_ms".to_string());
        }
        if self.protocol.backoff_min_ms > self.protocol.backoff_max_ms {
            return wrong("protocol.backoff_min_ms is above protocol.backoff_max_ms".to_string());
        }
        Ok(())
    }
}

pub fn milliseconds(count: f64) -> Duration {
    Duration::from_nanos((count * 1e6).round() as u64)
}

#[cfg(test)]
mod tests;
