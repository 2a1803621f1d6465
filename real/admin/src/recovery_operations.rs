//! Recovery of an array that has lost the monitor's state, or its folder.

use crate::array::Array;
use crate::failure::Failure;
use crate::state_from_devices::{self, Plan};
use braid_base::DeviceId;
use braid_control::{ArrayDescription, ControlError, MonitorEntry};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// The parameters of a recovery.
#[derive(Clone, Debug, Default)]
pub struct RecoverOptions {
    /// Only determine what would be done, without changing anything.
    pub dry_run: bool,
    /// Devices whose disks are lost: data that they alone hold is lost, too.
    pub without: BTreeSet<DeviceId>,
    /// The files of all devices, if `array.json` is lost, too: it is recreated from their newest copy.
    pub description_from: Vec<PathBuf>,
}

/// What was found, and done unless it was a dry run.
pub struct Recovery {
    /// The array's description.
    pub description: ArrayDescription,
    /// What each device said, and the resulting state.
    pub plan: Plan,
    /// True if `array.json` was lost, and is recreated.
    pub restores_description: bool,
}

/// A monitor whose last report is more recent may still be running.
const MONITOR_ALIVE: Duration = Duration::from_secs(10);

impl Array {
    /// Recreates the monitor's state from the devices, and the folder's description and generations if they are lost. The array must be
    /// down, and every device is read. Errors: `nothing-to-recover`, `devices-missing`, `device-outdated`, `devices-disagree`,
    /// `other-disk`, `copy-outdated`, `monitor-in-use`, `already-up`, `array-exists`.
    pub async fn recover(&self, options: &RecoverOptions) -> Result<Recovery, Failure> {
        let (control, from) = (self.control(), &options.description_from);
        let folder = control.local();
        let described = match control.describe().await {
            Err(ControlError::NoArray { .. }) if !from.is_empty() => None,
            Ok(_) if !from.is_empty() => {
                let message = format!("{} has an array.json", folder.dir().display());
                let hint = "omit --from: the existing file describes the array";
                return Err(Failure::usage("array-exists", message).hint(hint));
            }
            described => Some(described?),
        };
        let supervision = folder.supervise()?;
        let restores_description = described.is_none();
        let description = match described {
            Some(description) => description,
            None => state_from_devices::description_from(folder, from)?,
        };
        let monitor = control.monitor().await?;
        refuse_running_monitor(monitor.as_ref())?;
        let devices = state_from_devices::read_devices(folder, &description);
        let copies = state_from_devices::read_copies(&devices);
        let without = options.without.clone();
        let plan = state_from_devices::plan(
            (folder, monitor.as_ref()),
            &description,
            devices,
            &copies,
            without,
            restores_description,
        )?;
        if restores_description {
            state_from_devices::require_current(&description, &plan)?;
        }
        if !options.dry_run {
            if restores_description {
                supervision.restore_description(&description)?;
            }
            supervision.restore_generations(plan.last_generation)?;
            // Written last, because the array can be started as soon as it exists.
            supervision.restore_monitor_state(&plan.record.disk_image())?;
        }
        Ok(Recovery { description, plan, restores_description })
    }
}

/// A monitor that runs separately has its state file open, even if the file was removed.
fn refuse_running_monitor(monitor: Option<&MonitorEntry>) -> Result<(), Failure> {
    let alive =
        monitor.filter(|monitor| monitor.age.is_some_and(|age| age < MONITOR_ALIVE) && !monitor.process.has_ended());
    match alive {
        None => Ok(()),
        Some(monitor) => {
            let message = format!("the array's monitor is running ({})", monitor.process);
            Err(Failure::failed("monitor-in-use", message).hint("stop it first"))
        }
    }
}
