//! Copies of the array's folder in the file of each device. They lie behind the store, which never accesses more of the file than its
//! original size. Therefore older arrays get copies at their next start, and older releases can open files with copies. A raw disk has no
//! space behind its store, and no copy.
//!
//! ```text
//!   0                       the store's size, rounded up to 4096
//!   ┌───────────────────────┬────────────────────┬────────────────────┐
//!   │ the device's store    │ copy A, 256 KiB    │ copy B, 256 KiB    │
//!   └───────────────────────┴────────────────────┴────────────────────┘
//!   a copy: magic 8, format 4, length 4, sequence 8, checksum 4 of all the rest, JSON
//! ```
//!
//! Of the two copies, the intact one with the higher sequence counts; the other one is written next. `braid up` writes copies whenever the
//! description or the epochs reported by devices have changed, and after every 1,000 starts of hosts.

use crate::failure::Failure;
use braid_base::checksum::crc32c;
use braid_base::{ArrayId, DeviceId, DiskId};
use braid_control::{ArrayDescription, ControlPlane, LocalFolder};
use braid_session::HEARTBEAT;
use braid_store::Superblock;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::oneshot::{Receiver, channel, error::TryRecvError};

const MAGIC: [u8; 8] = *b"BraidCpy";
const FORMAT: u32 = 1;
const HEADER_BYTES: usize = 28;
const CHECKSUM_AT: usize = 24;
const SLOT_BYTES: u64 = 256 << 10;
/// The size of both copies of the superblock.
const SUPERBLOCK_BYTES: usize = 8192;
/// The copies are written again after this many starts of hosts.
const GENERATIONS_PER_COPY: u32 = 1_000;

/// The content of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderCopy {
    pub description: ArrayDescription,
    /// The last generation that was taken.
    pub generation: u32,
    /// The epoch reported last by each device, and the disk that reported it.
    pub lived_by: BTreeMap<u16, (u32, Option<String>)>,
}

impl FolderCopy {
    /// The current content of the folder.
    pub async fn of(control: &ControlPlane) -> Result<FolderCopy, Failure> {
        let shown = control.monitor().await?.into_iter().flat_map(|entry| entry.report.devices);
        let lived_by = shown.filter_map(|report| Some((report.id, (report.lives_by?, report.disk))));
        Ok(FolderCopy {
            lived_by: lived_by.collect(),
            description: control.describe().await?,
            generation: control.leases().last_generation().await?.unwrap_or_default(),
        })
    }

    /// True if the folder has not changed enough since to require a new copy.
    fn is_good_for(&self, now: &FolderCopy) -> bool {
        let few = now.generation < self.generation.saturating_add(GENERATIONS_PER_COPY);
        few && self.description == now.description && self.lived_by == now.lived_by
    }

    fn encode(&self, sequence: u64) -> Option<Vec<u8>> {
        let body = serde_json::to_vec(self).expect("our own types have a JSON form");
        let mut bytes = MAGIC.to_vec();
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(sequence.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        let checksum = crc32c(&bytes);
        bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        (bytes.len() as u64 <= SLOT_BYTES).then_some(bytes)
    }

    fn decode(slot: &[u8]) -> Option<(u64, FolderCopy)> {
        let number = |at: usize| Some(u32::from_le_bytes(slot.get(at..at + 4)?.try_into().ok()?));
        if slot.get(..8)? != MAGIC || number(8)? != FORMAT {
            return None;
        }
        let mut bytes = slot.get(..HEADER_BYTES.checked_add(number(12)? as usize)?)?.to_vec();
        bytes[CHECKSUM_AT..HEADER_BYTES].fill(0);
        if crc32c(&bytes) != number(CHECKSUM_AT)? {
            return None;
        }
        let sequence = u64::from_le_bytes(slot[16..24].try_into().ok()?);
        Some((sequence, serde_json::from_slice(&bytes[HEADER_BYTES..]).ok()?))
    }
}

/// A device's file, with the copies behind its store.
struct CopyFile {
    file: File,
    superblock: Superblock,
}

impl CopyFile {
    /// None if there is no space for copies.
    fn open(path: &Path, write: bool) -> Result<Option<CopyFile>, Failure> {
        // Before it is opened: that would wait for the other end of a pipe.
        if !path.metadata()?.is_file() {
            return Ok(None);
        }
        let file = File::options().read(true).write(write).open(path)?;
        let mut start = vec![0; SUPERBLOCK_BYTES];
        file.read_exact_at(&mut start, 0)?;
        let superblock = Superblock::read(&start).map_err(|error| Failure::from(error).of(path.display()))?;
        Ok(Some(CopyFile { file, superblock }))
    }

    fn offset(&self, slot: u64) -> u64 {
        self.superblock.geometry.size.next_multiple_of(4096) + slot * SLOT_BYTES
    }

    fn newest(&self) -> Option<(u64, FolderCopy)> {
        let copies = (0..2).filter_map(|slot| {
            let (mut file, mut bytes) = (&self.file, Vec::new());
            file.seek(SeekFrom::Start(self.offset(slot))).ok()?;
            // The second copy may be shorter than its slot, and end before what can't be read.
            let _ = file.take(SLOT_BYTES).read_to_end(&mut bytes);
            FolderCopy::decode(&bytes)
        });
        copies.max_by_key(|(sequence, _)| *sequence)
    }

    fn write(&self, copy: &FolderCopy) -> Result<(), Failure> {
        let newest = self.newest();
        if newest.as_ref().is_some_and(|(_, known)| known.is_good_for(copy)) {
            return Ok(());
        }
        if let Some((_, known)) =
            newest.as_ref().filter(|(_, known)| known.description.revision > copy.description.revision)
        {
            let (known, ours) = (known.description.revision, copy.description.revision);
            let message = format!("its copy has revision {known}, and was not replaced by revision {ours}");
            return Err(Failure::failed("description-old", message));
        }
        let sequence = newest.map_or(0, |(sequence, _)| sequence) + 1;
        let too_large =
            || Failure::failed("too-large", "the array's description is too large for the copies on devices");
        let mut bytes = copy.encode(sequence).ok_or_else(too_large)?;
        bytes.resize(bytes.len().next_multiple_of(4096), 0);
        self.file.write_all_at(&bytes, self.offset(sequence % 2))?;
        Ok(self.file.sync_data()?)
    }
}

/// A device's file, and what it says of the folder.
pub struct Source {
    pub array: ArrayId,
    pub device: DeviceId,
    pub disk: DiskId,
    /// Its newest copy of the folder, if it has one.
    pub copy: Option<FolderCopy>,
}

/// Reads the superblock and the copy in a device's file.
pub fn read(path: &Path) -> Result<Source, Failure> {
    let file = CopyFile::open(path, false).map_err(|failure| failure.of(path.display()))?;
    let Some(file) = file else {
        let message = format!("{} is not a regular file, and has no copy of the folder", path.display());
        return Err(Failure::failed("no-copy", message));
    };
    let Superblock { array, device, disk, .. } = file.superblock;
    let copy = file.newest().map(|(_, copy)| copy).filter(|copy| copy.description.array == array);
    Ok(Source { array, device, disk, copy })
}

/// Refuses a description that is older than a copy in one of its devices' files: with such a description, volumes would be looked for in
/// the wrong places, and numbers be reused.
pub fn require_newest(folder: &LocalFolder, description: &ArrayDescription) -> Result<(), Failure> {
    let files = description.devices.iter().map(|entry| entry.path(folder.dir())).filter(|path| path.is_file());
    // Errors of a file are left to those that need the file.
    let copies = files.filter_map(|path| Some((read(&path).ok()?.copy?, path)));
    let ours = copies.filter(|(copy, _)| copy.description.array == description.array);
    let Some((newest, path)) = ours.max_by_key(|(copy, _)| copy.description.revision) else { return Ok(()) };
    if newest.description.revision <= description.revision {
        return Ok(());
    }
    let (path, own, copied) = (path.display(), description.revision, newest.description.revision);
    let message = format!("the array's description has revision {own}, and {path} has a copy of revision {copied}");
    Err(Failure::data_lost("description-old", message).hint(
        "restore the newer array.json; or move the present one away, and recreate it from the devices' files with `braid monitor recover --from FILE...`",
    ))
}

/// Writes a copy to a device, if its file is here and belongs to this array.
fn write(path: &Path, copy: &FolderCopy) -> Result<(), Failure> {
    match CopyFile::open(path, true)? {
        Some(file) if file.superblock.array == copy.description.array => file.write(copy),
        _ => Ok(()),
    }
}

/// Receives the result of writing a copy.
type Outcome = Receiver<Result<(), Failure>>;

/// The copies written to one device.
#[derive(Default)]
struct DeviceCopies {
    copied: Option<Arc<FolderCopy>>,
    /// The thread that writes a copy, and its content. Threads are used so that a disk that does not answer delays no other one.
    writing: Option<(Arc<FolderCopy>, Outcome)>,
    last_warning: Option<String>,
}

impl DeviceCopies {
    fn keep(&mut self, path: &Path, now: &Arc<FolderCopy>) {
        if let Some((copy, outcome)) = &mut self.writing {
            match outcome.try_recv() {
                Err(TryRecvError::Empty) => return,
                Ok(Ok(())) => self.copied = Some(copy.clone()),
                Ok(Err(failure)) if self.last_warning.as_ref() != Some(&failure.message) => {
                    tracing::warn!("{} has no copy of the current array.json: {failure}", path.display());
                    self.last_warning = Some(failure.message);
                }
                Ok(Err(_)) | Err(TryRecvError::Closed) => {}
            }
            self.writing = None;
        }
        if self.copied.as_ref().is_some_and(|copied| copied.is_good_for(now)) {
            return;
        }
        let (done, outcome) = channel();
        let (path, copy) = (path.to_path_buf(), now.clone());
        std::thread::spawn(move || done.send(write(&path, &copy)));
        self.writing = Some((now.clone(), outcome));
    }
}

/// Runs until dropped: keeps the copies in the devices' files up to date.
pub async fn keep_copied(control: ControlPlane) {
    let mut devices: BTreeMap<PathBuf, DeviceCopies> = BTreeMap::new();
    let mut last_warning = None;
    loop {
        match FolderCopy::of(&control).await {
            Ok(now) => {
                let now = Arc::new(now);
                // The file of a device that others run may be elsewhere.
                let ours = now.description.devices.iter().map(|entry| (entry, entry.path(control.local().dir())));
                let ours = ours.filter(|(entry, path)| control.runs(entry) || path.exists());
                let ours: BTreeSet<PathBuf> = ours.map(|(_, path)| path).collect();
                devices.retain(|path, _| ours.contains(path));
                for path in ours {
                    devices.entry(path.clone()).or_default().keep(&path, &now);
                }
            }
            Err(failure) if last_warning.as_ref() != Some(&failure.message) => {
                tracing::warn!("can't copy the folder to the devices: {failure}");
                last_warning = Some(failure.message);
            }
            Err(_) => {}
        }
        control.changed_or_rests(HEARTBEAT).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(generation: u32) -> FolderCopy {
        let creation = serde_json::json!({"devices": 0, "size": 1, "layout": "raid1:2", "unit": 65536, "volumes": []});
        let creation = serde_json::from_value(creation).expect("it is a creation");
        FolderCopy {
            description: ArrayDescription::new(braid_base::ArrayId([7; 16]), Vec::new(), creation),
            generation,
            lived_by: BTreeMap::new(),
        }
    }

    #[test]
    fn a_copy_that_is_cut_or_changed_is_none() {
        let copy = copy(7);
        let bytes = copy.encode(3).expect("it is small");
        assert_eq!(FolderCopy::decode(&[&bytes[..], &[9; 50]].concat()), Some((3, copy)));
        for at in 0..bytes.len() {
            assert_eq!(FolderCopy::decode(&bytes[..at]), None);
            let mut other = bytes.clone();
            other[at] ^= 4;
            assert_eq!(FolderCopy::decode(&other), None, "byte {at}");
        }
    }

    #[test]
    fn a_copy_is_written_anew_after_many_starts_of_hosts() {
        let known = copy(7);
        let later = |generation| FolderCopy { generation, ..known.clone() };
        assert!(known.is_good_for(&later(1_006)) && !known.is_good_for(&later(1_007)));
    }
}
