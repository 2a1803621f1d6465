//! All numbers that determine a run of the locking experiments. The file with comments is
//! `sim/experiments/parameters/device-atomics.toml`.

use crate::named::{Limit, Named, ParameterError, limit};
use crate::parameters::{Disk, HARDWARE_LIMITS, Network, Processor};
use braid_benchkit::locking::{Habit, LockOwner, Strategy, Unlock, Work};
use serde::{Deserialize, Serialize};

/// The parameters of a run. Together with the seed they determine it completely.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockParameters {
    pub system: LockSystem,
    pub workload: LockWorkload,
    /// The disk of a device.
    pub disk: Disk,
    /// The disk of the lock manager.
    pub lock_server_disk: Disk,
    pub network: Network,
    pub processor: Processor,
    pub run: LockRun,
}

/// The numbers of nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockSystem {
    pub devices: u64,
    /// Processes, each on a computer of its own.
    pub processes: u64,
    pub locks: LockOwner,
}

/// The steps of processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockWorkload {
    /// The objects that are locked: they are distributed over the devices and chosen at random.
    pub objects: u64,
    /// How to wait for a lock on a device.
    pub strategy: Strategy,
    /// The work under the lock.
    pub work: Work,
    /// How to unlock.
    pub unlock: Unlock,
    pub write_bytes: u64,
}

/// The length of the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockRun {
    /// Locks that each process takes, one after the other.
    pub locks_per_process: u64,
    /// Independent runs of each point.
    pub replications: u64,
}

const LIMITS: &[Limit] = &[
    limit(&["system.devices"], 1.0, 1000.0),
    limit(&["system.processes"], 1.0, 10_000.0),
    limit(&["workload.objects"], 1.0, 1e6),
    limit(&["workload.write_bytes"], 0.0, 65536.0),
    limit(&["run.locks_per_process"], 1.0, 1e9),
    limit(&["run.replications"], 1.0, 1000.0),
];

impl LockParameters {
    /// The steps that each process repeats.
    pub fn habit(&self) -> Habit {
        Habit {
            keeper: self.system.locks,
            strategy: self.workload.strategy,
            work: self.workload.work,
            unlock: self.workload.unlock,
            write_bytes: self.workload.write_bytes as usize,
        }
    }

    /// The number of objects. If each process has its own object, there is no contention.
    pub fn objects(&self) -> u64 {
        match self.workload.strategy {
            Strategy::Uncontended => self.system.processes,
            _ => self.workload.objects,
        }
    }
}

impl Named for LockParameters {
    const LIMITS: &'static [&'static [Limit]] = &[LIMITS, HARDWARE_LIMITS];

    fn check_together(&self) -> Result<(), ParameterError> {
        let wrong = |text: &str| Err(ParameterError::Together(text.to_string()));
        if self.workload.unlock != Unlock::Apart {
            if self.workload.work != Work::Write {
                return wrong(
                    "unlocking with a write requires a write: set workload.work=write, or workload.unlock=apart",
                );
            }
            if self.system.locks == LockOwner::Manager {
                return wrong(
                    "a write to a device can't release a lock of a lock manager: set workload.unlock=apart, or system.locks=devices",
                );
            }
        }
        if self.workload.work == Work::GetElsewhere && self.system.devices < 2 {
            return wrong("workload.work=get-elsewhere needs another device: set system.devices to at least 2");
        }
        if self.network.overhead_min_ms > self.network.overhead_max_ms {
            return wrong("network.overhead_min_ms is above network.overhead_max_ms");
        }
        Ok(())
    }
}
