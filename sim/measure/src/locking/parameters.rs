//! All numbers that determine a run of the locking experiments. The file with comments is
//! `sim/experiments/parameters/device-atomics.toml`.

use crate::named::{Named, ParameterError, parameters};
use crate::parameters::{Disk, Network, Processor};
use braid_benchkit::locking::{Habit, LockOwner, Strategy, Unlock, Work};

parameters! {
    /// The parameters of a run. Together with the seed they determine it completely.
    parameters LockParameters {
        system: LockSystem,
        workload: LockWorkload,
        /// The disk of a device.
        disk: Disk,
        /// The disk of the lock manager.
        lock_server_disk: Disk,
        network: Network,
        processor: Processor,
        run: LockRun,
    }

    /// The numbers of nodes.
    section LockSystem {
        devices: u64 => 1.0..=1000.0,
        /// Processes, each on a computer of its own.
        processes: u64 => 1.0..=10_000.0,
        locks: LockOwner,
    }

    /// The steps of processes.
    section LockWorkload {
        /// The objects that are locked: they are distributed over the devices and chosen at random.
        objects: u64 => 1.0..=1e6,
        /// How to wait for a lock on a device.
        strategy: Strategy,
        /// The work under the lock.
        work: Work,
        /// How to unlock.
        unlock: Unlock,
        write_bytes: u64 => 0.0..=65536.0,
    }

    /// The length of the measurement.
    section LockRun {
        /// Locks that each process takes, one after the other.
        locks_per_process: u64 => 1.0..=1e9,
        /// Independent runs of each point.
        replications: u64 => 1.0..=1000.0,
    }
}

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
        self.network.check()
    }
}
