//! Every number that a run depends on, by name. They are read from a file, and any of them can be set from a command line.
//!
//! The files with their comments are `sim/experiments/parameters/*.toml`; [`LIMITS`] says what each number may be.

use crate::named::{Limit, Named, ParameterError, limit};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a run is decided by, besides its ordering and its seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// How many of what.
    pub system: System,
    /// What hosts are asked.
    pub workload: Workload,
    /// The device's disk.
    pub disk: Disk,
    /// What a message costs on its way.
    pub network: Network,
    /// What messages and requests cost where they are dealt with.
    pub processor: Processor,
    /// How wrong clocks are.
    pub clock: Clock,
    /// Choices and waits of the protocols.
    pub protocol: Protocol,
    /// How long to measure.
    pub run: Run,
}

/// How many of what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Storage devices.
    pub devices: u64,
    /// Hosts.
    pub hosts: u64,
    /// Lock servers, for the orderings that need any.
    pub lock_servers: u64,
    /// Data units of a stripe; a parity unit comes on top.
    pub data_units: u64,
    /// How claims at several lock servers are acquired.
    pub lock_acquisition: LockAcquisition,
    /// How parity groups lie on the devices.
    pub groups: Groups,
    /// KiB of a stripe unit.
    pub unit_kib: u64,
    /// Stripe units on each device.
    pub units_per_device: u64,
}

/// How parity groups lie on the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Groups {
    /// Each group of as many devices as a stripe has units is a volume of its own: one stripe follows the other on the same devices.
    Separate,
    /// One volume, whose stripes are dealt round all devices.
    Dealt,
}

/// How claims at several lock servers are acquired without deadlock (section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockAcquisition {
    /// One server after the other, in the order of their numbers.
    Ordered,
    /// All at once; who can't have all in time gives everything back and tries again.
    Timeout,
}

/// What hosts are asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Streams of requests at each host.
    pub streams_per_host: u64,
    /// Whether a stream waits for its answer.
    pub arrivals: Arrivals,
    /// Between two requests of a stream (closed: from the answer to the next request), in ms: mean.
    pub think_ms: f64,
    /// The same: standard deviation.
    pub think_deviation_ms: f64,
    /// Share of hostreads.
    pub read_fraction: f64,
    /// Least size of a request in stripe units.
    pub size_units_min: u64,
    /// Greatest size of a request in stripe units.
    pub size_units_max: u64,
    /// On what requests begin and end.
    pub alignment: Alignment,
    /// Share of the volume that is addressed.
    pub active_fraction: f64,
}

/// Whether a stream waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// It does not: requests come at their times.
    Open,
    /// It does.
    Closed,
}

/// On what requests begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Alignment {
    /// Stripe units; sizes are whole units.
    Unit,
    /// Half stripe units, sizes as well.
    HalfUnit,
    /// Requests begin at any block; sizes are whole units.
    Start,
    /// Requests begin at any block, and have any size in blocks.
    Block,
    /// Requests of whole units that never go beyond their stripe.
    Stripe,
}

/// The device's disk: one queue, first come, first served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Arms that serve the queue of one device.
    pub arms: u64,
    /// Positioning in ms: mean.
    pub positioning_ms: f64,
    /// The same: standard deviation.
    pub positioning_deviation_ms: f64,
    /// Transfer in microseconds a byte.
    pub transfer_us_per_byte: f64,
    /// Share of reads that need no positioning: they are in the disk's cache.
    pub read_hit_ratio: f64,
    /// Share of writes that need no positioning.
    pub write_hit_ratio: f64,
    /// Share of writes to blocks that were just read that need none (besides `write_hit_ratio`).
    pub update_hit_ratio: f64,
    /// When a write is answered.
    pub write_report: WriteReport,
}

/// When a write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteReport {
    /// When it is on the medium.
    OnMedium,
    /// At once; the disk is busy with it all the same, in its turn.
    AtOnce,
    /// At once, and the disk writes it when it has nothing else to do: free.
    Absorbed,
}

/// What a message costs on its way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Megabytes (10^6) a second.
    pub bandwidth_mb_s: f64,
    /// What the bandwidth is shared by.
    pub links: Links,
    /// Added to each message, at random between this, in ms…
    pub overhead_min_ms: f64,
    /// …and this.
    pub overhead_max_ms: f64,
    /// Bytes of a message besides its data.
    pub header_bytes: u64,
}

/// What the bandwidth is shared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Links {
    /// Each message has all of it.
    Unshared,
    /// All messages that a node sends.
    Sending,
    /// All messages that a node sends, and again all that it receives.
    Both,
}

/// What messages and requests cost where they are dealt with: one queue for each node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// For each request of an application, in microseconds.
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
    /// How these times vary.
    pub service: Service,
}

/// How service times vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// Not at all.
    Constant,
    /// Exponentially.
    Exponential,
}

/// How wrong clocks are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    /// Wall clocks are off by up to so much, either way, in ms.
    pub skew_ms: f64,
    /// Clocks run fast or slow by up to so many millionths.
    pub drift_ppm: f64,
}

/// Choices and waits of the protocols.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// What becomes of a hostwrite that is cut short.
    pub atomicity: Atomicity,
    /// When a request for a lock in a device is taken for a deadlock, in ms.
    pub lock_timeout_ms: f64,
    /// How long an unused lock is kept (callback locking), in ms.
    pub lock_lease_ms: f64,
    /// Least and greatest back-off before another attempt, in ms.
    pub backoff_min_ms: f64,
    /// See `backoff_min_ms`.
    pub backoff_max_ms: f64,
    /// How long a commit waits for a request to ride on, in ms.
    pub commit_linger_ms: f64,
}

/// What becomes of a hostwrite that is cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Atomicity {
    /// It may be left half done: the paper's.
    Consistent,
    /// It happens whole or not at all: Braid's own.
    Implied,
}

/// How long to measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Operations that are dropped first.
    pub warm_up_operations: u64,
    /// Operations that are measured.
    pub operations: u64,
    /// Independent runs of each point.
    pub replications: u64,
    /// An array that leaves so many operations waiting, on average over hosts, does not keep up. Applications then ask for no more
    /// than that, and what is measured begins when all that waited is answered.
    pub backlog_per_host: u64,
}

/// What each number may be.
pub const LIMITS: &[Limit] = &[
    limit("system.devices", 3.0, 1024.0),
    limit("system.hosts", 1.0, 1000.0),
    limit("system.lock_servers", 1.0, 16.0),
    limit("system.data_units", 2.0, 64.0),
    limit("system.unit_kib", 4.0, 1024.0),
    limit("system.units_per_device", 1.0, 1e9),
    limit("workload.streams_per_host", 1.0, 1000.0),
    limit("workload.think_ms", 0.001, 1e6),
    limit("workload.think_deviation_ms", 0.0, 1e6),
    limit("workload.read_fraction", 0.0, 1.0),
    limit("workload.size_units_min", 1.0, 64.0),
    limit("workload.size_units_max", 1.0, 64.0),
    limit("workload.active_fraction", 0.0001, 1.0),
    limit("disk.arms", 1.0, 64.0),
    limit("disk.positioning_ms", 0.0, 1000.0),
    limit("disk.positioning_deviation_ms", 0.0, 1000.0),
    limit("disk.transfer_us_per_byte", 0.0, 10.0),
    limit("disk.read_hit_ratio", 0.0, 1.0),
    limit("disk.write_hit_ratio", 0.0, 1.0),
    limit("disk.update_hit_ratio", 0.0, 1.0),
    limit("network.bandwidth_mb_s", 0.1, 1e6),
    limit("network.overhead_min_ms", 0.0, 1000.0),
    limit("network.overhead_max_ms", 0.0, 1000.0),
    limit("network.header_bytes", 0.0, 65536.0),
    limit("processor.host_request_us", 0.0, 1e6),
    limit("processor.host_send_us", 0.0, 1e6),
    limit("processor.host_receive_us", 0.0, 1e6),
    limit("processor.device_send_us", 0.0, 1e6),
    limit("processor.device_receive_us", 0.0, 1e6),
    limit("processor.lock_server_send_us", 0.0, 1e6),
    limit("processor.lock_server_receive_us", 0.0, 1e6),
    limit("clock.skew_ms", 0.0, 1000.0),
    limit("clock.drift_ppm", 0.0, 1000.0),
    limit("protocol.lock_timeout_ms", 0.1, 1e6),
    limit("protocol.lock_lease_ms", 0.0, 1e6),
    limit("protocol.backoff_min_ms", 0.001, 1e6),
    limit("protocol.backoff_max_ms", 0.001, 1e6),
    limit("protocol.commit_linger_ms", 0.0, 1e6),
    limit("run.warm_up_operations", 0.0, 1e9),
    limit("run.operations", 100.0, 1e9),
    limit("run.replications", 1.0, 1000.0),
    limit("run.backlog_per_host", 10.0, 4000.0),
];

impl Parameters {
    /// The operations a second that hosts are asked for, if streams do not wait for answers.
    pub fn offered(&self) -> f64 {
        (self.system.hosts * self.workload.streams_per_host) as f64 * 1e3 / self.workload.think_ms
    }

    /// Volumes that share the devices out among them.
    pub fn volumes(&self) -> u64 {
        match self.system.groups {
            Groups::Separate => self.system.devices / (self.system.data_units + 1),
            Groups::Dealt => 1,
        }
    }

    /// Stripes of each volume.
    pub fn stripes(&self) -> u64 {
        self.system.devices * self.system.units_per_device / (self.system.data_units + 1) / self.volumes()
    }

    /// Stripes of each volume that are addressed: at least one.
    pub fn active_stripes(&self) -> u64 {
        ((self.stripes() as f64 * self.workload.active_fraction) as u64).max(1)
    }
}

impl Named for Parameters {
    const LIMITS: &'static [Limit] = LIMITS;

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
                "system.devices={} are no whole number of groups of {}: choose a multiple, or system.groups=dealt",
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
                "units of system.unit_kib={} are blocks, which have no halves: choose 8 at least, or another workload.alignment",
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
            return wrong(format!("requests of up to {bytes} bytes are larger than a storage transaction may be"));
        }
        if self.active_stripes() * system.data_units < workload.size_units_max + 1 {
            return wrong("the part of the volume that is addressed is smaller than a request: make system.units_per_device or workload.active_fraction larger".to_string());
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

/// A span of so many milliseconds.
pub fn milliseconds(count: f64) -> Duration {
    Duration::from_nanos((count * 1e6).round() as u64)
}

#[cfg(test)]
mod tests;
