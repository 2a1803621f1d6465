//! All numbers that determine a run, by name. They are read from a file, and each can be set on the command line.
//!
//! The files with their comments are `sim/experiments/parameters/*.toml`.

use crate::named::{Named, ParameterError, parameters};
use braid_host::Acquisition;
use braid_layout::Atomicity;
use std::time::Duration;

parameters! {
    /// The parameters of a run. Together with the ordering and the seed they determine it completely.
    parameters Parameters {
        system: System,
        workload: Workload,
        disk: Disk,
        network: Network,
        processor: Processor,
        clock: Clock,
        protocol: Protocol,
        run: Run,
    }

    /// The numbers of nodes and the layout.
    section System {
        devices: u64 => 3.0..=1024.0,
        hosts: u64 => 1.0..=1000.0,
        /// Lock servers, for the orderings that use them.
        lock_servers: u64 => 1.0..=16.0,
        /// Data units of a stripe; a parity unit is added.
        data_units: u64 => 2.0..=64.0,
        /// How locks at several lock servers are acquired.
        lock_acquisition: Acquisition,
        /// How parity groups are placed on the devices.
        groups: Groups,
        /// Size of a stripe unit in KiB.
        unit_kib: u64 => 4.0..=1024.0,
        units_per_device: u64 => 1.0..=1e9,
    }

    /// How parity groups are placed on the devices.
    words Groups {
        /// Each group of as many devices as a stripe has units is a volume of its own: all its stripes lie on the same devices.
        Separate,
        /// One volume, whose stripes are distributed over all devices.
        Dealt,
    }

    /// The requests of hosts.
    section Workload {
        /// Streams of requests at each host.
        streams_per_host: u64 => 1.0..=1000.0,
        arrivals: Arrivals,
        /// Mean time between two requests of a stream (if closed: from the answer to the next request), in ms.
        think_ms: f64 => 0.001..=1e6,
        /// Standard deviation of that time, in ms.
        think_deviation_ms: f64 => 0.0..=1e6,
        /// Share of hostreads.
        read_fraction: f64 => 0.0..=1.0,
        /// Smallest size of a request in stripe units.
        size_units_min: u64 => 1.0..=64.0,
        /// Largest size of a request in stripe units.
        size_units_max: u64 => 1.0..=64.0,
        alignment: Alignment,
        /// Share of the volume that is addressed.
        active_fraction: f64 => 0.0001..=1.0,
    }

    /// Whether a stream waits for its answers.
    words Arrivals {
        /// No: requests are issued at their times.
        Open,
        /// Yes: a stream has at most one request in progress.
        Closed,
    }

    /// The boundaries at which requests begin and end.
    words Alignment {
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
    section Disk {
        /// Arms that serve the queue of one device.
        arms: u64 => 1.0..=64.0,
        /// Mean positioning time, in ms.
        positioning_ms: f64 => 0.0..=1000.0,
        /// Standard deviation of the positioning time, in ms.
        positioning_deviation_ms: f64 => 0.0..=1000.0,
        /// Transfer time, in microseconds a byte.
        transfer_us_per_byte: f64 => 0.0..=10.0,
        /// Share of reads that need no positioning because they hit the disk's cache.
        read_hit_ratio: f64 => 0.0..=1.0,
        /// Share of writes that need no positioning.
        write_hit_ratio: f64 => 0.0..=1.0,
        /// Share of writes to recently read blocks that need no positioning (in addition to `write_hit_ratio`).
        update_hit_ratio: f64 => 0.0..=1.0,
        write_report: WriteReport,
    }

    /// When a write is answered.
    words WriteReport {
        /// When it is on the medium.
        OnMedium,
        /// At once; the disk still executes it in its turn.
        AtOnce,
        /// At once; the disk executes it when it is idle, at no cost.
        Absorbed,
    }

    /// The cost of a message in transit.
    section Network {
        /// Bandwidth in megabytes (10^6 bytes) a second.
        bandwidth_mb_s: f64 => 0.1..=1e6,
        links: Links,
        /// The smallest latency added to each message, in ms. The added latency is uniformly distributed.
        overhead_min_ms: f64 => 0.0..=1000.0,
        /// The largest latency added to each message, in ms.
        overhead_max_ms: f64 => 0.0..=1000.0,
        /// Bytes of a message in addition to its data.
        header_bytes: u64 => 0.0..=65536.0,
    }

    /// Which messages share the bandwidth of a link.
    words Links {
        /// None: each message has all of it.
        Unshared,
        /// All messages that a node sends.
        Sending,
        /// All messages that a node sends and, separately, all that it receives.
        Both,
    }

    /// Processor times of messages and requests, in microseconds. Each node has one queue.
    section Processor {
        /// For each request of an application.
        host_request_us: f64 => 0.0..=1e6,
        /// For each message that a host sends.
        host_send_us: f64 => 0.0..=1e6,
        /// For each message that a host receives.
        host_receive_us: f64 => 0.0..=1e6,
        /// For each message that a device sends.
        device_send_us: f64 => 0.0..=1e6,
        /// For each message that a device receives.
        device_receive_us: f64 => 0.0..=1e6,
        /// For each message that a lock server sends.
        lock_server_send_us: f64 => 0.0..=1e6,
        /// For each message that a lock server receives.
        lock_server_receive_us: f64 => 0.0..=1e6,
        service: Service,
    }

    /// The distribution of service times.
    words Service {
        Constant,
        Exponential,
    }

    /// Errors of clocks.
    section Clock {
        /// The largest skew of wall clocks in either direction, in ms.
        skew_ms: f64 => 0.0..=1000.0,
        /// The largest drift of clocks in either direction, in millionths.
        drift_ppm: f64 => 0.0..=1000.0,
    }

    /// Choices and waiting times of the protocols.
    section Protocol {
        #[serde(with = "AtomicityName")]
        atomicity: Atomicity,
        /// How long a lock request at a device waits until it counts as deadlocked, in ms.
        lock_timeout_ms: f64 => 0.1..=1e6,
        /// How long an unused lock stays cached (callback locking), in ms.
        lock_lease_ms: f64 => 0.0..=1e6,
        /// The shortest back-off before a retry, in ms.
        backoff_min_ms: f64 => 0.001..=1e6,
        /// The longest back-off before a retry, in ms.
        backoff_max_ms: f64 => 0.001..=1e6,
        /// How long a commit waits to be sent together with a request, in ms.
        commit_linger_ms: f64 => 0.0..=1e6,
    }

    /// The atomicity of hostwrites.
    #[serde(remote = "Atomicity")]
    words AtomicityName {
        /// An interrupted hostwrite may take effect in part, as in the paper.
        Consistent,
        /// A hostwrite takes effect completely or not at all: Braid's own mode.
        Implied,
    }

    /// The length of the measurement.
    section Run {
        /// Operations of the warm-up, which are not measured.
        warm_up_operations: u64 => 0.0..=1e9,
        /// Measured operations.
        operations: u64 => 100.0..=1e9,
        /// Independent runs of each point.
        replications: u64 => 1.0..=1000.0,
        /// An array whose backlog reaches this number of operations, on average over the hosts, counts as saturated. Applications then
        /// keep the backlog at that limit, and the measurement begins when the present backlog is answered.
        backlog_per_host: u64 => 10.0..=4000.0,
    }
}

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

impl Network {
    pub fn check(&self) -> Result<(), ParameterError> {
        if self.overhead_min_ms > self.overhead_max_ms {
            let text = "network.overhead_min_ms is above network.overhead_max_ms";
            return Err(ParameterError::Together(text.to_string()));
        }
        Ok(())
    }
}

impl Named for Parameters {
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
        if self.protocol.backoff_min_ms > self.protocol.backoff_max_ms {
            return wrong("protocol.backoff_min_ms is above protocol.backoff_max_ms".to_string());
        }
        self.network.check()
    }
}

pub fn milliseconds(count: f64) -> Duration {
    Duration::from_nanos((count * 1e6).round() as u64)
}

#[cfg(test)]
mod tests;
