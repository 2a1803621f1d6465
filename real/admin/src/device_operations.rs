//! The operations of the library on devices and spares of a running array: adding, taking out, readmitting and removing them. Each starts
//! a session, and waits for the outcome; the steps are in `device_lifecycle.rs`.

use crate::array::Array;
use crate::device_lifecycle::{self, ACT_WAIT};
use crate::failure::Failure;
use crate::health::VolumeHealth;
use crate::new_disk::{self, NewDisk};
use crate::volumes;
use crate::{array_creation, cluster};
use braid_base::DeviceId;
use braid_control::{ArrayDescription, DeviceReport, DiskEntry, MonitorEntry, ReportedState};
use braid_session::Session;
use braid_wire::Administration;
use std::path::PathBuf;

#[derive(Clone, Debug, Default)]
pub struct NewDevice {
    /// Its file or disk; none for a new file in the array's folder.
    pub path: Option<PathBuf>,
    /// Its raw size in bytes; none for the whole of a raw disk, or for the size of the array's creation.
    pub size: Option<u64>,
    /// True if an existing file or disk may be overwritten.
    pub overwrite: bool,
}

impl Array {
    /// Adds a device, and waits until it is in. No two units of a stripe lie on devices of the same failure `domain`; none for a domain of
    /// its own. Returns its number and its disk. Errors: `bad-size`, `file-exists`, `disk-in-use`, `not-yet`, `not-up`.
    pub async fn add_device(&self, new: NewDevice, domain: Option<String>) -> Result<(u16, DiskEntry), Failure> {
        check_size(&new)?;
        if domain.is_some() {
            cluster::refuse(self.control(), "other failure domains than its machines")?;
        }
        self.with_host("device add", async |session| {
            let stem = format!("device-{}", session.control().describe().await?.unused_device());
            let disk = prepare(session, new, stem).await?;
            let id = device_lifecycle::add(session, disk.clone(), domain).await?;
            Ok((id, disk))
        })
        .await
    }

    /// Adds a spare: a disk that fills the slot of the first device that stays out for long.
    pub async fn add_spare(&self, new: NewDevice) -> Result<DiskEntry, Failure> {
        check_size(&new)?;
        cluster::refuse(self.control(), "spares")?;
        self.with_host("device add", async |session| {
            let disk = prepare(session, new, "spare".to_string()).await?;
            device_lifecycle::add_spare(session, disk.clone()).await?;
            Ok(disk)
        })
        .await
    }

    /// Takes a device out, and keeps it out. Returns when it is out. A volume without redundancy is unavailable from then on, which
    /// `accept_unavailable` allows. Errors: `no-such-device`, `other-devices-needed` (the others can't serve without it),
    /// `would-stop-volumes`, `not-yet`, `not-up`.
    pub async fn fail_device(&self, id: u16, accept_unavailable: bool) -> Result<(), Failure> {
        self.with_host("device fail", async |session| {
            let description = session.control().describe().await?;
            device_lifecycle::find(&description, id)?;
            if !accept_unavailable {
                refuse_to_stop_volumes(&description, session.control().monitor().await?.as_ref(), DeviceId(id))?;
            }
            let asked = device_lifecycle::administer_soon(session, Administration::Fail { device: DeviceId(id) }).await;
            if let Err(error) = asked {
                return Err(device_lifecycle::explain(session.control(), error).await);
            }
            let is_out = |device: Option<&DeviceReport>| device.is_some_and(|it| it.member_state == ReportedState::Out);
            device_lifecycle::await_report(session.control(), id, Some(ACT_WAIT), is_out).await
        })
        .await
    }

    /// Allows a device that was taken out to return. Waits until it returns; with `wait`, until it is resynchronised. Returns its state
    /// then.
    pub async fn readmit_device(&self, id: u16, wait: bool) -> Result<ReportedState, Failure> {
        self.with_host("device readmit", async |session| {
            let control = session.control();
            device_lifecycle::find(&control.describe().await?, id)?;
            device_lifecycle::administer(session.client(), Administration::Readmit { device: DeviceId(id) }).await?;
            let is_settled = |device: Option<&DeviceReport>| {
                let there = |member_state| {
                    member_state == ReportedState::In || (!wait && member_state == ReportedState::Returning)
                };
                device
                    .is_some_and(|device| !device.kept_out && device.next_disk.is_none() && there(device.member_state))
            };
            device_lifecycle::await_report(control, id, (!wait).then_some(ACT_WAIT), is_settled).await?;
            Ok(device_lifecycle::report_of(control, id).await?.map_or(ReportedState::In, |device| device.member_state))
        })
        .await
    }

    /// Removes a device, named by its number, or a spare, named by its disk or its file. No volume may lie on it. Returns its file, which
    /// is not removed. Errors: `no-such-device`, `no-such-spare`, `holds-volumes`, `not-up`.
    pub async fn remove_device(&self, which: &str) -> Result<PathBuf, Failure> {
        self.with_host("device remove", async |session| {
            let control = session.control();
            let description = control.describe().await?;
            let absolute = control.local().absolute();
            if let Ok(id) = which.strip_prefix('d').unwrap_or(which).parse() {
                let path = device_lifecycle::find(&description, id)?.path(&absolute);
                device_lifecycle::remove(session, id).await?;
                return Ok(path);
            }
            let named = |path: PathBuf| {
                path == absolute.join(which) || std::path::absolute(which).is_ok_and(|named| named == path)
            };
            let mut spares = description.spares.iter();
            let spare = spares.find(|spare| spare.disk.to_string() == which || named(spare.path(&absolute)));
            let Some(spare) = spare else {
                let message = format!("'{which}' is neither the number of a device nor a spare");
                return Err(
                    Failure::unreachable("no-such-spare", message).hint("`braid device list` lists devices and spares")
                );
            };
            device_lifecycle::remove_spare(session, spare).await?;
            Ok(spare.path(&absolute))
        })
        .await
    }
}

/// Fails if volumes that can be used now would be unavailable without this device. The monitor refuses that for redundant volumes, but not for
/// volumes without redundancy, which any change of the array's devices would stop.
fn refuse_to_stop_volumes(
    description: &ArrayDescription,
    monitor: Option<&MonitorEntry>,
    device: DeviceId,
) -> Result<(), Failure> {
    let mut stopped = Vec::new();
    for entry in description.volumes_on(device.0) {
        let volume = volumes::describe(entry)?;
        let health = VolumeHealth::of(&volume, monitor, |_| true);
        if volume.layout.redundancy_units() == 0 && !matches!(health, VolumeHealth::Unavailable(_)) {
            stopped.push(format!("'{}' ({})", entry.name, entry.layout));
        }
    }
    if stopped.is_empty() {
        return Ok(());
    }
    let noun = if stopped.len() == 1 { "volume" } else { "volumes" };
    let message = format!("without device {} {noun} {} would be unavailable", device.0, stopped.join(", "));
    Err(Failure::failed("would-stop-volumes", message)
        .hint("confirm with --yes; or first migrate to a redundant layout or to other devices, or delete the volumes"))
}

fn check_size(new: &NewDevice) -> Result<(), Failure> {
    new.size.map_or(Ok(()), |size| array_creation::check_device_size("--size", size))
}

async fn prepare(session: &Session, new: NewDevice, stem: String) -> Result<DiskEntry, Failure> {
    let description = session.control().describe().await?;
    let NewDevice { path, size, overwrite } = new;
    let default_size = description.creation.size;
    let wanted = NewDisk { path, stem, size, default_size, overwrite };
    new_disk::prepare(session.control().local(), &description, &wanted)
}
