//! Recovering an array whose monitor's state, or whose folder, is lost.

use crate::array::Array;
use crate::failure::Failure;
use crate::recovery::{self, Plan};
use braid_base::DeviceId;
use braid_control::{ArrayDescription, ArrayFolder, ControlError, Moment};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// How to recover an array.
#[derive(Clone, Debug, Default)]
pub struct RecoverOptions {
    /// Find out what would be done, and change nothing.
    pub dry_run: bool,
    /// Devices whose disks are lost: what they alone held is lost then.
    pub without: BTreeSet<DeviceId>,
    /// The files of all devices, if `array.json` is lost, too: it is made from the newest copy that they have.
    pub description_from: Vec<PathBuf>,
}

/// What was found, and done unless it was a dry run.
pub struct Recovery {
    /// The array's description.
    pub description: ArrayDescription,
    /// What each device said, and what follows.
    pub plan: Plan,
    /// `array.json` was lost, and is made anew.
    pub restores_description: bool,
}

/// How long ago a monitor has said something that may still run.
const MONITOR_ALIVE: Duration = Duration::from_secs(10);

impl Array {
    /// Makes the monitor's state anew from what the devices know; and the folder's description and generations, if these are lost. The
    /// array must be down, and every device is read. Errors: `nothing-to-recover`, `devices-missing`, `device-outdated`,
    /// `devices-disagree`, `other-disk`, `copy-outdated`, `monitor-in-use`, `already-up`, `array-exists`.
    pub fn recover(&self, options: &RecoverOptions) -> Result<Recovery, Failure> {
        let (folder, from) = (self.folder(), &options.description_from);
        let described = match folder.describe() {
            Err(ControlError::NoArray { .. }) if !from.is_empty() => None,
            Ok(_) if !from.is_empty() => {
                let message = format!("{} has an array.json", folder.dir().display());
                let hint = "leave --from out: the array is as that file says";
                return Err(Failure::usage("array-exists", message).hint(hint));
            }
            described => Some(described?),
        };
        let supervision = folder.supervise()?;
        let restores_description = described.is_none();
        let description = match described {
            Some(description) => description,
            None => recovery::description_from(folder, from)?,
        };
        refuse_running_monitor(folder)?;
        let devices = recovery::read_devices(folder, &description);
        let copies = recovery::read_copies(&devices);
        let without = options.without.clone();
        let plan = recovery::plan(folder, &description, devices, &copies, without, restores_description)?;
        if restores_description {
            recovery::require_current(&description, &plan)?;
        }
        if !options.dry_run {
            if restores_description {
                supervision.restore_description(&description)?;
            }
            supervision.restore_generations(plan.last_generation)?;
            // Last: with it the array can be started again.
            supervision.restore_monitor_state(&plan.record.disk_image())?;
        }
        Ok(Recovery { description, plan, restores_description })
    }
}

/// A monitor that runs by itself has its state open, though it may have been removed.
fn refuse_running_monitor(folder: &ArrayFolder) -> Result<(), Failure> {
    let monitor = folder.monitor(&Moment::now())?;
    let alive = monitor.filter(|monitor| monitor.age.is_some_and(|age| age < MONITOR_ALIVE) && is_there(monitor.pid));
    match alive {
        None => Ok(()),
        Some(monitor) => {
            let message = format!("the array's monitor runs (process {})", monitor.pid);
            Err(Failure::failed("monitor-in-use", message).hint("end it first"))
        }
    }
}

/// True if the process runs; one that has ended and was not waited for yet does not.
fn is_there(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !['Z', 'X'].contains(&state))
}
