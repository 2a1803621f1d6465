//! Checks of the files and disks of devices: whether each is there, holds that device, and has its size. A device that runs has its file
//! locked, so only the name is compared with what its process has open; the file of one that does not run is opened and looked at.

use super::examination::Examination;
use super::finding::{Findings, Severity, Subject};
use crate::device_file::DeviceFile;
use crate::failure::Failure;
use crate::snapshot::ArraySnapshot;
use braid_base::DeviceId;
use braid_control::{DeviceEntry, Process, RunningSet};
use braid_store::StoreError;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What is wrong with the file or disk of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileFault {
    /// Its process has a file open that has lost its name: the content is gone when that process ends.
    Deleted { pid: u32 },
    /// Nothing has that name.
    Missing,
    /// It can't be served, for this reason.
    Unfit(String),
    /// It can't be looked at, for this reason.
    Unknown(String),
}

/// Looks at the file of a device.
pub fn fault_of(look: &ArraySnapshot, entry: &DeviceEntry) -> Option<FileFault> {
    let path = current_path(look, entry);
    let process = |running: &RunningSet| Some(running.process(running.device(DeviceId(entry.id))?.pid?));
    match look.running.as_ref().and_then(process) {
        Some(process) => of_running(&process, &path),
        None => of_stopped(look, entry, &path),
    }
}

/// The file that holds the disk which fills the device's slot.
fn current_path(look: &ArraySnapshot, entry: &DeviceEntry) -> std::path::PathBuf {
    let folder = look.folder.absolute();
    let fills = look.member_state(DeviceId(entry.id)).and_then(|report| report.disk.clone());
    let other = entry.others.iter().find(|other| Some(other.disk.to_string()) == fills);
    other.map_or_else(|| entry.path(&folder), |other| other.path(&folder))
}

/// The name must lead to a file that the process has open. A process of another user or container, or one that is gone, is not looked at.
fn of_running(process: &Process, path: &Path) -> Option<FileFault> {
    let open = std::fs::read_dir(process.in_proc()?.join("fd")).ok()?;
    let identity = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
    let ours = identity(path);
    let mut has_deleted = false;
    for link in open.flatten().map(|entry| entry.path()) {
        if identity(&link) == ours && ours.is_some() {
            return None;
        }
        let target = std::fs::read_link(&link).unwrap_or_default();
        has_deleted |=
            target.as_os_str().to_string_lossy().strip_suffix(" (deleted)").is_some_and(|name| Path::new(name) == path);
    }
    has_deleted.then_some(FileFault::Deleted { pid: process.pid })
}

fn of_stopped(look: &ArraySnapshot, entry: &DeviceEntry, path: &Path) -> Option<FileFault> {
    if !path.exists() {
        return Some(FileFault::Missing);
    }
    let unfit = |failure: Failure| Some(FileFault::Unfit(failure.message));
    let found = match DeviceFile::open_to_look(path) {
        Ok(found) => found,
        Err(failure) if failure.code == "device-in-use" => return None,
        Err(failure) if failure.code == "not-a-device" || failure.code == "not-a-disk" => return unfit(failure),
        Err(failure) => return Some(FileFault::Unknown(failure.message)),
    };
    let (superblock, array) = (found.superblock(), look.description.array);
    if superblock.array != array {
        return unfit(StoreError::OtherArray { found: superblock.array, expected: array }.into());
    }
    if !found.is_unassigned() && superblock.device.0 != entry.id {
        return unfit(StoreError::OtherDevice { found: superblock.device, expected: DeviceId(entry.id) }.into());
    }
    let (found, expected) = (found.store_config().size, superblock.geometry.size);
    if found < expected {
        return unfit(StoreError::Truncated { found, expected }.into());
    }
    None
}

/// Reports what is wrong with the files and disks of devices.
pub fn device_files(examination: &Examination, found: &mut Findings) {
    for (id, fault) in &examination.device_files {
        let subject = Subject::Device(*id);
        let instead = format!(
            "bring back its file or disk; or, if that is lost, `braid up --degraded` and `braid device replace {}`",
            id.0
        );
        match fault {
            FileFault::Deleted { pid } => {
                let text = format!("serves a file whose name was removed: its content is lost when process {pid} ends");
                let action = format!(
                    "give the device another disk while this one still serves: `braid device replace {}`",
                    id.0
                );
                found.found(Severity::Error, subject, text, action);
            }
            FileFault::Missing => {
                found.found(Severity::Error, subject, "has no file or disk: its name does not exist", instead)
            }
            FileFault::Unfit(why) => found.found(Severity::Error, subject, format!("can't be started: {why}"), instead),
            FileFault::Unknown(why) => found.not_checked(&subject, why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_that_lost_its_name_is_found_by_its_process() {
        let path = std::env::temp_dir().join(format!("braid-deleted-{}", std::process::id()));
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(b"x").unwrap();
        let us = Process::own();
        assert_eq!(of_running(&us, &path), None);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(of_running(&us, &path), Some(FileFault::Deleted { pid: us.pid }));
        std::fs::write(&path, "another").unwrap();
        assert_eq!(of_running(&us, &path), Some(FileFault::Deleted { pid: us.pid }), "replaced by another file");
        std::fs::remove_file(&path).unwrap();
    }
}
