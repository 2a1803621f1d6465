//! What is to be confirmed before an array is brought up: that it has no redundancy, that it may outgrow its file system, or that its folder is
//! a copy of one that is in use.

use crate::array_creation::{CreateOptions, DEFAULT_DEVICES, DEFAULT_SIZE};
use crate::failure::Failure;
use braid_base::units::format_size;
use braid_control::{ArrayDescription, ControlError, ControlPlane, LocalFolder, Original};
use braid_layout::RaidLevel;
use std::path::Path;

/// An array that grows to so many times the size of its file system is hardly meant.
const FAR: u64 = 2;
/// No device is chosen smaller than this.
const SMALLEST: u64 = 64 << 20;

/// Something that is asked about at a terminal.
#[derive(Clone, Debug)]
pub struct Confirmation {
    pub text: String,
    /// Without a terminal, it must be confirmed, too. Otherwise a warning will do.
    pub is_serious: bool,
}

/// What is to be confirmed before the array in `folder` is opened, or created as `asked`.
pub async fn required(control: &ControlPlane, asked: &CreateOptions) -> Result<Vec<Confirmation>, Failure> {
    let serious = |text| Confirmation { text, is_serious: true };
    match control.describe().await {
        Ok(description) => {
            let copied =
                control.local().original().map(|original| serious(copied(control.local(), &description, &original)));
            return Ok(copied.into_iter().collect());
        }
        Err(ControlError::NoArray { .. }) => {}
        // It can't be brought up, for a reason of its own.
        Err(_) => return Ok(Vec::new()),
    }
    let mut required = Vec::new();
    let creation = asked.creation()?;
    if let RaidLevel::Raid0 { data } = creation.layout.parse()? {
        let any = if data == 1 { "of its device" } else { "of any device" };
        let text = format!("the new array has no redundancy ({}): the loss {any} loses data", creation.layout);
        required.push(serious(text));
    }
    let bytes = creation.size.saturating_mul(creation.devices.into());
    if let Some((free, all)) = room_for(&control.local().absolute()).filter(|(free, _)| *free < bytes) {
        let is_serious = bytes / FAR > all;
        let [bytes, free] = [bytes, free].map(format_size);
        let text = format!(
            "the files of the new array grow up to {bytes}, and their file system has {free} free: when it is full, writes fail"
        );
        required.push(Confirmation { text, is_serious });
    }
    Ok(required)
}

/// The options of the user; for a new array without a named size, with devices for which the file system has room.
pub async fn fitting(control: &ControlPlane, asked: CreateOptions) -> CreateOptions {
    let is_new = matches!(control.describe().await, Err(ControlError::NoArray { .. }));
    match room_for(&control.local().absolute()) {
        Some((free, _)) if is_new && asked.size.is_none() => {
            CreateOptions { size: Some(size_within(free, asked.devices.unwrap_or(DEFAULT_DEVICES))), ..asked }
        }
        _ => asked,
    }
}

/// The size of each of these devices: the usual one, or less, a round number.
fn size_within(free: u64, devices: u16) -> u64 {
    let most = (free / u64::from(devices.max(1))).clamp(SMALLEST, DEFAULT_SIZE);
    let step = if most >= 1 << 30 { 1 << 30 } else { SMALLEST };
    most / step * step
}

/// Says that a folder is a copy of one that is in use.
pub fn copied(folder: &LocalFolder, description: &ArrayDescription, original: &Original) -> String {
    let place = original.dir.as_ref().map_or("another folder".to_string(), |dir| dir.display().to_string());
    let mut text = format!(
        "{} is a copy of the array in {place}, made while that was up (it still has {}): the files are of different moments, and acknowledged writes may be missing",
        folder.absolute().display(),
        original.process
    );
    let elsewhere = description.devices.iter().filter(|device| !device.lies_in_folder());
    let shared: Vec<_> = elsewhere.map(|device| format!("d{} ({})", device.id, device.file.display())).collect();
    if !shared.is_empty() {
        text += &format!("; both use the same files or disks for devices {}", shared.join(", "));
    }
    text
}

/// The free bytes, and all bytes, of the file system in which this folder is, or will be.
fn room_for(folder: &Path) -> Option<(u64, u64)> {
    let there = std::path::absolute(folder).ok()?;
    let found = rustix::fs::statvfs(there.ancestors().find(|path| path.exists())?).ok()?;
    let [free, all] = [found.f_bavail, found.f_blocks].map(|blocks| blocks.saturating_mul(found.f_frsize));
    Some((free, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_new_array_s_shortcomings_are_to_be_confirmed() {
        let control =
            ControlPlane::at(&std::env::temp_dir().join(format!("braid-confirmations-{}", std::process::id())));
        let text_of = async |devices: u16, size: u64, layout: Option<&str>| {
            let layout = layout.map(|layout| layout.parse().unwrap());
            let asked = CreateOptions { devices: Some(devices), size: Some(size), layout, ..CreateOptions::default() };
            let required = required(&control, &asked).await.unwrap();
            assert!(required.iter().all(|needed| needed.is_serious));
            required.into_iter().map(|needed| needed.text).collect::<Vec<_>>().join("; ")
        };
        let small = 32 << 20;
        assert_eq!((text_of(5, small, None).await, text_of(2, small, None).await), (String::new(), String::new()));
        assert!(text_of(1, small, None).await.contains("no redundancy (raid0:1): the loss of its device"));
        assert!(text_of(5, small, Some("raid0:5")).await.contains("the loss of any device"));
        assert!(text_of(5, 1 << 60, None).await.starts_with("the files of the new array grow up to"));
        let (free, _) = room_for(&control.local().absolute()).expect("it is on a file system");
        let more_than_free = (free / 2).next_multiple_of(SMALLEST) + SMALLEST;
        let asked = CreateOptions { devices: Some(2), size: Some(more_than_free), ..CreateOptions::default() };
        assert!(
            super::required(&control, &asked).await.unwrap().iter().all(|needed| !needed.is_serious),
            "a warning will do"
        );
        assert!(fitting(&control, CreateOptions::default()).await.size.is_some());
        let sizes = [(100 << 30, 5, 8 << 30), (27 << 30, 5, 5 << 30), (3 << 30, 5, 576 << 20), (1, 3, SMALLEST)];
        for (free, devices, size) in sizes {
            assert_eq!(size_within(free, devices), size, "{free} bytes for {devices} devices");
        }
    }
}
