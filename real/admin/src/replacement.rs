//! Replacing a device's disk, and determining what would be lost by that.

use crate::array::Array;
use crate::device_lifecycle::{self, ACT_WAIT};
use crate::failure::Failure;
use crate::new_disk::{self, NewDisk};
use crate::operation_driver::{self, Ended, Questions, Subject};
use crate::{array_creation, cluster, volumes};
use braid_base::DeviceId;
use braid_base::units::format_size;
use braid_control::{ArrayDescription, ControlPlane, DeviceReport, DiskEntry, ReportedState};
use braid_control_protocol::{Error, NextDisk, Timing};
use braid_layout::VolumeDescription;
use braid_session::Session;
use std::path::PathBuf;

#[derive(Clone, Debug, Default)]
pub struct Replacement {
    /// The new file or disk; none for a new file in the array's folder.
    pub path: Option<PathBuf>,
    /// Use the smallest spare that is large enough instead.
    pub with_spare: bool,
    /// Its raw size in bytes; none for the whole of a raw disk, or for the size of the previous disk.
    pub size: Option<u64>,
    /// True if an existing file or disk may be overwritten.
    pub overwrite: bool,
    /// True if data on the device that can't be reconstructed may be lost.
    pub lose: bool,
    /// Wait until the device is rebuilt.
    pub wait: bool,
}

impl Array {
    /// Gives a device another disk, which is rebuilt while the volumes stay in use. Returns when the device runs on that disk; with `wait`,
    /// when it is rebuilt. Returns the disk, the device's state, and where the previous disk lies, which is left as it is. Errors:
    /// `no-such-device`, `no-such-spare`, `disk-too-small`, `would-lose-data`, `other-devices-needed`, `disk-in-use`, `not-yet`, `not-up`.
    pub async fn replace_device(
        &self,
        id: u16,
        replacement: Replacement,
    ) -> Result<(DiskEntry, ReportedState, PathBuf), Failure> {
        let Replacement { path, with_spare, size, overwrite, lose, wait } = replacement;
        size.map_or(Ok(()), |size| array_creation::check_device_size("--size", size))?;
        self.with_host("device replace", async |session| {
            let control = session.control();
            let description = control.describe().await?;
            let entry = device_lifecycle::find(&description, id)?;
            cluster::require_here(control, entry)?;
            let previous = entry.path(&control.local().absolute());
            let needed = needed_blocks(&description, id)?;
            if !lose {
                refuse_to_lose(&description, id)?;
            }
            let made = |disk: DiskEntry| Ok::<_, Failure>((new_disk::room(disk.size)?, disk));
            let disk = if with_spare {
                let rooms = description.spares.iter().cloned().map(made).collect::<Result<Vec<_>, _>>()?;
                let fits = rooms.into_iter().filter(|(room, _)| *room >= needed).min_by_key(|(room, _)| *room);
                let Some((_, disk)) = fits else {
                    let message = match description.spares.len() {
                        0 => "there are no spares".to_string(),
                        count => format!("none of {count} spares is large enough for the content of device {id}"),
                    };
                    return Err(
                        Failure::unreachable("no-such-spare", message).hint("add one with `braid device add --spare`")
                    );
                };
                disk
            } else {
                let default_size = entry.size;
                // Checked before anything is created or overwritten.
                if new_disk::room(size.unwrap_or(default_size))? < needed {
                    return Err(too_small(id, size.unwrap_or(default_size)));
                }
                let wanted = NewDisk { path, stem: format!("device-{id}"), size, default_size, overwrite };
                new_disk::prepare(control.local(), &description, &wanted)?
            };
            if new_disk::room(disk.size)? < needed {
                return Err(too_small(id, disk.size));
            }
            let next = NextDisk {
                disk: disk.disk,
                blocks: new_disk::room(disk.size)?,
                is_spare: control.describe().await?.spares.contains(&disk),
                lose,
                until_rebuilt: wait,
            };
            if let Err(failure) = perform(session, id, &disk, next).await {
                return Err(if lose { failure } else { with_losses(control, id, failure).await? });
            }
            let member_state = device_lifecycle::report_of(control, id)
                .await?
                .map_or(ReportedState::Returning, |device| device.member_state);
            Ok((disk, member_state, previous))
        })
        .await
    }
}

/// Has the disk fill the slot, and waits until the device runs on it.
async fn perform(session: &Session, id: u16, disk: &DiskEntry, next: NextDisk) -> Result<(), Failure> {
    let (control, device) = (session.control(), DeviceId(id));
    let what = format!("the disk of device {id} can't be replaced");
    let questions = Questions::of(session, Subject::Device(device, Some(disk.clone())), what);
    let timing = Timing { device: ACT_WAIT, ..Timing::default() };
    let operation = braid_control_protocol::Replacement::of(device, next, timing);
    let Ended { result, reasons, .. } = operation_driver::run(operation.into(), &questions, None, |_| {}).await;
    match result {
        Ok(_) => Ok(()),
        // The device was removed meanwhile.
        Err(Error::NoDevice) => Err(device_lifecycle::find(&control.describe().await?, id)
            .err()
            .unwrap_or_else(|| Failure::unreachable("no-such-device", format!("the array has no device {id}")))),
        Err(Error::Lost) => {
            let message = format!("another disk was requested for device {id} since, and this one is not used");
            Err(Failure::failed("superseded", message).hint("`braid device list` shows the disk of each device"))
        }
        Err(error) => Err(operation_driver::explain(control, &format!("device {id}"), error, reasons).await?),
    }
}

/// The number of blocks in use on a device.
fn needed_blocks(description: &ArrayDescription, id: u16) -> Result<u64, Failure> {
    let blocks = |volume| {
        let there = volumes::describe(volume)?.object_on(DeviceId(id)).map_or(0, |range| range.count);
        Ok(there.next_multiple_of(volumes::CHUNK_BLOCKS))
    };
    description.volumes_on(id).map(blocks).sum()
}

fn refuse_to_lose(description: &ArrayDescription, id: u16) -> Result<(), Failure> {
    for volume in description.volumes_on(id) {
        if volumes::describe(volume)?.layout.redundancy_units() == 0 {
            let message =
                format!("volume '{}' has no redundancy: its data on device {id} would be lost for good", volume.name);
            return Err(Failure::failed("would-lose-data", message)
                .hint("use --lose if that data is not needed; otherwise delete or migrate the volume first"));
        }
    }
    Ok(())
}

/// Completes the failure if the others can't serve without the device. If the device and others are dead, it says what would be lost.
async fn with_losses(control: &ControlPlane, id: u16, failure: Failure) -> Result<Failure, Failure> {
    let is_dead = device_lifecycle::report_of(control, id)
        .await?
        .is_some_and(|report| report.member_state == ReportedState::Unavailable);
    if failure.code != "other-devices-needed" || !is_dead {
        return Ok(failure);
    }
    let description = control.describe().await?;
    let (mut losses, mut missing) = (Vec::new(), Vec::new());
    for entry in description.volumes_on(id) {
        let volume = volumes::describe(entry)?;
        let mut gone = vec![DeviceId(id)];
        for device in volume.holders() {
            let is_whole = |report: DeviceReport| report.member_state == ReportedState::In;
            if !device_lifecycle::report_of(control, device.0).await?.is_some_and(is_whole) && !gone.contains(&device) {
                gone.push(device);
            }
        }
        missing.extend(gone[1..].iter().copied());
        let (lost, all) = stripes_lost(&volume, DeviceId(id), &gone);
        if lost > 0 {
            losses.push(format!("{lost} of the {all} stripes of volume '{}'", entry.name));
        }
    }
    if losses.is_empty() {
        return Ok(failure);
    }
    let message =
        format!("{}: the data of {} on device {id} can't be reconstructed", failure.message, losses.join(", "));
    let first = device_lifecycle::readmit_first(control, &missing).await;
    let first = first.unwrap_or_else(|| "bring another one of these devices back".to_string());
    Ok(Failure::failed("would-lose-data", message).hint(format!(
        "{first}; or, if they are lost for good, use --lose to give these stripes up: data on dead devices only is lost, and its \
         blocks are listed; everything else is rebuilt"
    )))
}

/// The number of stripes with a unit on a device and more units on `gone` devices than they have redundancy units; and the number of
/// stripes.
fn stripes_lost(volume: &VolumeDescription, device: DeviceId, gone: &[DeviceId]) -> (u64, u64) {
    let (layout, all) = (volume.layout, volume.stripes());
    let is_lost = |stripe: Vec<DeviceId>| {
        let missing = stripe.iter().filter(|held| gone.contains(held)).count();
        stripe.contains(&device) && layout.redundancy_units() > 0 && missing > layout.redundancy_units()
    };
    // Stripes begin in turn at each of the ring's starting positions.
    let turns = layout.stripes_of_the_ring().count() as u64;
    let width = layout.scheme().width();
    let lost = (0..turns).filter(|turn| {
        let start = *turn as usize * width;
        is_lost((start..start + width).map(|place| volume.devices[place % layout.devices()]).collect())
    });
    (lost.map(|turn| all / turns + u64::from(turn < all % turns)).sum(), all)
}

fn too_small(id: u16, size: u64) -> Failure {
    let message = format!("a disk of {} is too small for the content of device {id}", format_size(size));
    Failure::failed("disk-too-small", message).hint("choose one at least as large as the device's disk")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_are_lost_that_lie_on_more_dead_devices_than_they_do_without() {
        let lost = |scheme: &str, devices: u16, stripes: u64, gone: &[u16]| {
            let volume = crate::health::tests::volume(scheme.parse().expect("the scheme is valid"), devices);
            let volume = VolumeDescription { bytes: stripes * volume.layout.stripe_blocks() * 4096, ..volume };
            let gone: Vec<_> = gone.iter().copied().map(DeviceId).collect();
            stripes_lost(&volume, gone[0], &gone)
        };
        // Stripes lie on 0 1 2, 3 4 0, 1 2 3, 4 0 1, 2 3 4, and so on.
        assert_eq!(lost("raid5:2+1", 5, 7, &[1, 2]), (3, 7));
        assert_eq!(lost("raid5:2+1", 5, 7, &[1, 2, 0]), (4, 7));
        assert_eq!(lost("raid1:2", 4, 10, &[1, 2]), (0, 10));
        assert_eq!(lost("raid1:2", 4, 10, &[1, 0]), (5, 10));
        assert_eq!(lost("raid1:3", 3, 10, &[1, 2]), (0, 10));
    }
}
