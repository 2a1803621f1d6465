//! Checks of the files and disks of devices: whether each is there, holds that device, and has its size. A device that runs has its file
//! locked, so only its name and length are compared with what its process has open; the file of one that does not run is opened and looked at.

use super::examination::Examination;
use super::finding::{Findings, Subject};
use crate::device_file::DeviceFile;
use crate::failure::Failure;
use crate::snapshot::ArraySnapshot;
use braid_base::DeviceId;
use braid_control::{DeviceEntry, Process, RunningSet};
use braid_store::StoreError;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is wrong with the file or disk of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileFault {
    /// Its process has a file open that has lost its name: the content is gone when that process ends.
    Deleted { pid: u32 },
    /// Its process has a file open that has another name now.
    Renamed { pid: u32 },
    /// Its process serves a file that has become shorter.
    Cut { found: u64, expected: u64 },
    /// Nothing has that name.
    Missing(PathBuf),
    /// It can't be served, for this reason.
    Unfit(String),
    /// It can't be looked at, for this reason.
    Unknown(String),
}

pub fn fault_of(look: &ArraySnapshot, entry: &DeviceEntry) -> Option<FileFault> {
    if look.control.cluster().is_some_and(|cluster| !cluster.has(entry)) {
        // Its machine looks after it.
        return None;
    }
    let (path, size) = current_file(look, entry);
    let process = |running: &RunningSet| Some(running.process(running.device(DeviceId(entry.id))?.pid?));
    match look.running.as_ref().and_then(process) {
        // While its disk is replaced, its process may serve the other one.
        Some(process) => of_running(&process, &path, size)
            .filter(|fault| entry.others.is_empty() || !matches!(fault, FileFault::Renamed { .. })),
        None => of_stopped(look, entry, &path),
    }
}

/// The file that holds the disk which fills the device's slot, and its size.
fn current_file(look: &ArraySnapshot, entry: &DeviceEntry) -> (PathBuf, u64) {
    let folder = look.control.local().absolute();
    let fills = look.member_state(DeviceId(entry.id)).and_then(|report| report.disk.clone());
    let other = entry.others.iter().find(|other| Some(other.disk.to_string()) == fills);
    other.map_or_else(|| (entry.path(&folder), entry.size), |other| (other.path(&folder), other.size))
}

/// The name must lead to a file that the process has open. A process of another user or container, or one that is gone, is not looked at.
fn of_running(process: &Process, path: &Path, size: u64) -> Option<FileFault> {
    let open = std::fs::read_dir(process.in_proc()?.join("fd")).ok()?;
    let identity = |found: &Metadata| (found.dev(), found.ino());
    let ours = path.metadata().ok();
    let (mut has_any, mut has_deleted) = (false, false);
    for link in open.flatten().map(|entry| entry.path()) {
        let Ok(theirs) = link.metadata() else { continue };
        has_any = true;
        if let Some(ours) = ours.as_ref().filter(|ours| identity(&theirs) == identity(ours)) {
            let cut = FileFault::Cut { found: ours.len(), expected: size };
            return (ours.is_file() && ours.len() < size).then_some(cut);
        }
        let target = std::fs::read_link(&link).unwrap_or_default();
        has_deleted |=
            target.as_os_str().to_string_lossy().strip_suffix(" (deleted)").is_some_and(|name| Path::new(name) == path);
    }
    let pid = process.pid;
    // A process that ends has nothing open.
    has_any.then_some(if has_deleted { FileFault::Deleted { pid } } else { FileFault::Renamed { pid } })
}

fn of_stopped(look: &ArraySnapshot, entry: &DeviceEntry, path: &Path) -> Option<FileFault> {
    if !path.exists() {
        return Some(FileFault::Missing(path.to_path_buf()));
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
        let first = if examination.look.running.is_some() { "" } else { "`braid up --degraded` and " };
        let instead =
            format!("bring back its file or disk; or, if that is lost, {first}`braid device replace {}`", id.0);
        let another =
            format!("give the device another disk while this one still serves: `braid device replace {}`", id.0);
        let (text, action) = match fault {
            FileFault::Deleted { pid } => {
                (format!("serves a file whose name was removed: its content is lost when process {pid} ends"), another)
            }
            FileFault::Renamed { pid } => (
                format!("serves a file that was moved: it can't be started again when process {pid} ends"),
                format!("give the file its name back; `ls -l /proc/{pid}/fd` shows the one that it has now"),
            ),
            FileFault::Cut { found, expected } => {
                (format!("serves a file that was cut short: {found} bytes of {expected} are left"), another)
            }
            FileFault::Missing(path) => (format!("has no file or disk: {} does not exist", path.display()), instead),
            FileFault::Unfit(why) => (format!("can't be started: {why}"), instead),
            FileFault::Unknown(why) => {
                found.not_checked(&subject, why);
                continue;
            }
        };
        found.error(subject, text, action);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_that_lost_its_name_or_its_end_is_found_by_its_process() {
        let path = std::env::temp_dir().join(format!("braid-deleted-{}", std::process::id()));
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(b"x").unwrap();
        let us = Process::own();
        let (fault, pid) = (|size| of_running(&us, &path, size), us.pid);
        assert_eq!((fault(1), fault(2)), (None, Some(FileFault::Cut { found: 1, expected: 2 })));
        let moved = path.with_extension("moved");
        std::fs::rename(&path, &moved).unwrap();
        assert_eq!(fault(1), Some(FileFault::Renamed { pid }));
        std::fs::write(&path, "another").unwrap();
        assert_eq!(fault(1), Some(FileFault::Renamed { pid }), "another file has its name");
        std::fs::rename(&moved, &path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(fault(1), Some(FileFault::Deleted { pid }));
        std::fs::write(&path, "another").unwrap();
        assert_eq!(fault(1), Some(FileFault::Deleted { pid }), "replaced by another file");
        std::fs::remove_file(&path).unwrap();
    }
}
