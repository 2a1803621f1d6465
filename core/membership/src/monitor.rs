//! The monitor's machine: who may speak, and where each message goes.

use crate::MonitorCounters;
use braid_base::limits::Settings;
use braid_base::{ArrayId, DeviceId, Epoch, Membership, Now, Time};
use braid_machine::{DiskError, Effects, Input, Machine};

/// Bytes of a monitor's disk.
pub const DISK_BYTES: u64 = 2 * (64 << 10);

/// How a monitor is to run.
#[derive(Clone, Debug)]
pub struct MonitorConfig {
    /// Whose monitor it is.
    pub array: ArrayId,
    /// All devices of the array. No two processes may be its monitor at a time.
    pub devices: Vec<DeviceId>,
    /// Waits and spans.
    pub settings: Settings,
}

/// The array's monitor. The volumes that there are must be adopted (`HostRequest::AdoptVolume`) at once after its start: before
/// it can take a device out, it has to know all that the device has a part in.
pub struct Monitor {
    config: MonitorConfig,
    service: MonitorService,
    membership: Membership,
    counters: MonitorCounters,
}

/// Whether the monitor serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonitorService {
    /// Not started.
    Off,
    /// It reads the membership.
    Reading,
    /// It serves.
    Serving,
    /// It can't.
    Unusable(MonitorError),
}

/// Why a monitor can't serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MonitorError {
    /// The disk can't be read or written.
    #[error("the monitor's disk: {0}")]
    Disk(DiskError),
}

/// What the monitor knows of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLease {
    /// Which device.
    pub device: DeviceId,
    /// When it was last heard; none if it never was since the monitor's start.
    pub heard: Option<Time>,
    /// The epoch that it said it lives by, when it was last heard.
    pub epoch: Epoch,
    /// Until when its lease runs, by the monitor's clock; none if it has run out.
    pub runs_until: Option<Time>,
}

impl Monitor {
    /// A monitor that is off.
    pub fn new(config: MonitorConfig) -> Monitor {
        Monitor {
            config,
            service: MonitorService::Off,
            membership: Membership::default(),
            counters: MonitorCounters::default(),
        }
    }

    /// Whether it serves.
    pub fn service(&self) -> MonitorService {
        self.service
    }

    /// Who is in, as it is durable; of epoch zero until it has been read.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Devices that are in and whose leases have run out, but that can't be taken out.
    pub fn away(&self) -> Vec<DeviceId> {
        Vec::new()
    }

    /// What it knows of each device of the array, ascending.
    pub fn leases(&self) -> impl Iterator<Item = DeviceLease> + '_ {
        let lease = |device: &DeviceId| DeviceLease { device: *device, heard: None, epoch: Epoch(0), runs_until: None };
        self.config.devices.iter().map(lease)
    }

    /// What it has done.
    pub fn counters(&self) -> &MonitorCounters {
        &self.counters
    }
}

impl Machine for Monitor {
    fn step(&mut self, _: Now, _: Input, _: &mut Effects) {}

    fn deadline(&self) -> Option<Time> {
        None
    }

    fn invariants(&self) {}
}
