//! A device file is the file or raw disk that holds a device's store. This module creates, opens and checks device files
//! (`docs/disk-format.md`).

use crate::disk_facts::{ANSWER_WAIT, answer_of, refuse_dangling_link, refuse_system_folders};
use crate::failure::{Failure, UNTRUSTED, make_private};
use braid_base::{ArrayId, BlockRange, DeviceId, DiskId, ObjectId};
use braid_blocks::Content;
use braid_machine::{DiskCommand, DiskResult, Effects};
use braid_shell::{Disk, DiskOpenError, DiskOptions, blocking};
use braid_store::{Geometry, JournalView, Medium, Storage, Store, StoreConfig, StoreError, StoreEvent, Superblock};
use bytes::Bytes;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// A locked device file or disk, with its superblock.
pub struct DeviceFile {
    disk: Disk,
    superblock: Superblock,
}

/// The device number in the superblock of a disk that was made for any slot. It is replaced by the slot's number when the disk is first
/// served.
pub const UNASSIGNED: DeviceId = DeviceId(u16::MAX);

/// The device that a file must contain; none for any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The array that it must belong to.
    pub array: Option<ArrayId>,
    pub id: Option<DeviceId>,
}

/// Creates a device of `config`'s size at `path`: a sparse file that must not exist, or, with `overwrite`, in place of an existing file or
/// disk.
pub fn create(path: &Path, config: &StoreConfig, overwrite: bool) -> Result<DiskId, Failure> {
    // The store checks the size before a file is created.
    let (nonce, _) = Uuid::new_v4().as_u64_pair();
    let (name, _) = Uuid::new_v4().as_u64_pair();
    let name = DiskId(name);
    let parts = Store::format(config, name, nonce)?;
    refuse_dangling_link(path)?;
    if path.exists() && !overwrite {
        return Err(Failure::failed("file-exists", format!("{} already exists", path.display()))
            .hint("choose another file, or use --overwrite if its content is not needed"));
    }
    if !path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device()) {
        refuse_system_folders(path)?;
    }
    if path.is_file() {
        // Locked during its removal, so that no process is using it.
        let _old = open_disk(path, DiskOptions::default())?;
        std::fs::remove_file(path)?;
    }
    let create = (!path.exists()).then_some(config.size);
    let disk = open_disk(path, DiskOptions { create, ..DiskOptions::default() })?;
    if disk.size() < config.size {
        let message = format!("{} has {} bytes, fewer than {}", path.display(), disk.size(), config.size);
        return Err(Failure::usage("bad-size", message).hint("choose a smaller --size"));
    }
    write_and_sync(&disk, parts).map_err(|failure| failure.of(path.display()))?;
    Ok(name)
}

fn write_and_sync(disk: &Disk, parts: Vec<(u64, Bytes)>) -> Result<(), Failure> {
    parts.into_iter().try_for_each(|(offset, data)| {
        done(disk.perform(DiskCommand::Write { offset, data: vec![data], durable: false }))
    })?;
    done(disk.perform(DiskCommand::Sync))
}

impl DeviceFile {
    /// Opens and locks a device. Fails unless it is the expected one.
    pub fn open(path: &Path, expected: Expected) -> Result<DeviceFile, Failure> {
        let disk = open_once_free(path)?;
        let mut device = DeviceFile::identify(disk, path)?;
        if let (UNASSIGNED, Some(id)) = (device.superblock.device, expected.id)
            && expected.array.is_none_or(|array| array == device.superblock.array)
        {
            device.assign(id).map_err(|failure| failure.of(path.display()))?;
        }
        let Superblock { array, device: id, .. } = device.superblock;
        if let Some(expected) = expected.array.filter(|expected| *expected != array) {
            return Err(Failure::from(StoreError::OtherArray { found: array, expected }).of(path.display()));
        }
        if let Some(expected) = expected.id.filter(|expected| *expected != id) {
            return Err(Failure::from(StoreError::OtherDevice { found: id, expected }).of(path.display()));
        }
        Ok(device)
    }

    /// Opens a device for reading.
    pub fn open_to_look(path: &Path) -> Result<DeviceFile, Failure> {
        let disk = open_disk(path, DiskOptions { write: false, ..DiskOptions::default() })?;
        DeviceFile::identify(disk, path)
    }

    /// Gives a disk that was made for any slot the number of its slot. The disk has never been served, so it is empty; its store is created
    /// again, with the same disk name. The superblocks are written last: an interruption leaves either the old or the new store.
    fn assign(&mut self, id: DeviceId) -> Result<(), Failure> {
        let Superblock { array, disk, geometry, .. } = self.superblock;
        let (nonce, _) = Uuid::new_v4().as_u64_pair();
        let parts = Store::format(&StoreConfig { array, device: id, size: geometry.size }, disk, nonce)?;
        let is_superblock = |part: &(u64, Bytes)| part.0 < SUPERBLOCK_BYTES as u64;
        let (superblocks, rest) = parts.into_iter().partition(is_superblock);
        write_and_sync(&self.disk, rest)?;
        write_and_sync(&self.disk, superblocks)?;
        self.superblock = DeviceFile::read_superblock(&self.disk)?;
        Ok(())
    }

    /// Properties of the disk that the store needs.
    pub fn medium(&self) -> Medium {
        Medium { physical_sector: self.disk.physical_sector(), cached: !self.disk.is_direct() }
    }

    /// True if it was made for any slot, and has never been served.
    pub fn is_unassigned(&self) -> bool {
        self.superblock.device == UNASSIGNED
    }

    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The disk, still locked, to be served.
    pub fn into_disk(self) -> Disk {
        self.disk
    }

    /// Reads what the journal says of the array, without changing anything.
    pub fn look(&self) -> Result<JournalView, Failure> {
        let Geometry { journal_offset, journal_length, .. } = self.superblock.geometry;
        let mut journal = Vec::with_capacity(journal_length as usize);
        while (journal.len() as u64) < journal_length {
            let length = (journal_length as usize - journal.len()).min(LOOK_BYTES);
            match self.disk.perform(DiskCommand::Read { offset: journal_offset + journal.len() as u64, length }) {
                DiskResult::Read(read) => journal.extend_from_slice(&read.map_err(StoreError::Disk)?),
                DiskResult::Done(_) => unreachable!("a read ends as a read"),
            }
        }
        let view = JournalView::read(&self.superblock, &journal.into());
        view.map_err(|error| Failure::from(error).of(self.disk.path().display()))
    }

    /// Recovers the store, and reads every block that it holds. `progress` is called with the number of blocks read and their total.
    pub fn check(self, mut progress: impl FnMut(u64, u64)) -> Result<Findings, Failure> {
        let mut store = Store::new(self.store_config()).on(self.medium());
        let mut effects = Effects::new();
        store.start(&mut effects);
        let recovered = match self.await_event(&mut store, &mut effects)? {
            StoreEvent::Ready(recovered) => recovered,
            StoreEvent::Unusable(error) => return Err(Failure::from(error).of(self.disk.path().display())),
            other => unreachable!("a start ends in readiness or not, not in {other:?}"),
        };
        let objects = store.objects();
        let mut held: Vec<(ObjectId, BlockRange)> = Vec::new();
        for object in &objects {
            for piece in store.allocation(object.object, &[BlockRange::new(0, object.blocks)]) {
                if piece.content != Content::Hole {
                    held.push((object.object, piece.range));
                }
            }
        }
        let all = held.iter().map(|(_, range)| range.count).sum();
        let mut found =
            Findings { objects: objects.len(), blocks: 0, damaged: Vec::new(), undecided: recovered.intents.len() };
        for (object, range) in held {
            for part in parts(range, BLOCKS_AT_ONCE) {
                // A failed read names one block only: read each block separately.
                if self.read(&mut store, &mut effects, object, part)?.is_err() {
                    for block in parts(part, 1) {
                        if self.read(&mut store, &mut effects, object, block)?.is_err() {
                            found.damaged.push((object, block.start));
                        }
                    }
                }
                found.blocks += part.count;
                progress(found.blocks, all);
            }
        }
        Ok(found)
    }

    fn read(
        &self,
        store: &mut Store,
        effects: &mut Effects,
        object: ObjectId,
        range: BlockRange,
    ) -> Result<Result<(), braid_wire::Failure>, Failure> {
        store.read(0, object, &[range], effects);
        loop {
            if let StoreEvent::Read { result, .. } = self.await_event(store, effects)? {
                return Ok(result.map(|_| ()));
            }
        }
    }

    /// The store's next event; performs disk commands until there is one.
    fn await_event(&self, store: &mut Store, effects: &mut Effects) -> Result<StoreEvent, Failure> {
        loop {
            if let Some(event) = store.pop_event() {
                return Ok(event);
            }
            if effects.is_empty() {
                return Err(Failure::failed("internal", "the store has stopped without an event"));
            }
            blocking::perform_all(&self.disk, effects, |now, tag, result, out| {
                store.on_disk_done(now, tag, result, out)
            });
        }
    }

    fn identify(disk: Disk, path: &Path) -> Result<DeviceFile, Failure> {
        let read = |_: &Path| DeviceFile::read_superblock(&disk).map(|superblock| DeviceFile { disk, superblock });
        answer_of(path, ANSWER_WAIT, read)?.map_err(|error| Failure::from(error).of(path.display()))
    }

    fn read_superblock(disk: &Disk) -> Result<Superblock, StoreError> {
        let start = match disk.perform(DiskCommand::Read { offset: 0, length: SUPERBLOCK_BYTES }) {
            DiskResult::Read(read) => read.map_err(StoreError::Disk)?,
            DiskResult::Done(_) => unreachable!("a read ends as a read"),
        };
        Superblock::read(&start)
    }

    /// Properties of the device that the store needs.
    pub fn store_config(&self) -> StoreConfig {
        StoreConfig { array: self.superblock.array, device: self.superblock.device, size: self.disk.size() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    pub objects: usize,
    /// The number of blocks with content; all were read.
    pub blocks: u64,
    /// Blocks whose content is lost.
    pub damaged: Vec<(ObjectId, u64)>,
    /// Intents that are not decided yet; normal after a crash.
    pub undecided: usize,
}

/// Blocks that a check reads at a time.
const BLOCKS_AT_ONCE: u64 = 256;

/// How long a disk may stay locked after the process that used it has ended.
const RELEASE_WAIT: Duration = Duration::from_secs(2);

/// Bytes of the journal read at a time.
const LOOK_BYTES: usize = 1 << 20;

/// The size of both copies of the superblock.
const SUPERBLOCK_BYTES: usize = 8192;

fn parts(range: BlockRange, length: u64) -> impl Iterator<Item = BlockRange> {
    let starts = (range.start..range.end()).step_by(length as usize);
    starts.map(move |start| BlockRange::new(start, length.min(range.end() - start)))
}

/// Opens and locks a disk, or creates its file.
pub fn open_disk(path: &Path, options: DiskOptions) -> Result<Disk, Failure> {
    answer_of(path, ANSWER_WAIT, move |path| Disk::open(path, &options))?.map_err(open_failure)
}

/// Opens and locks a disk. The disk of a killed process stays locked until the kernel has completed its I/O, so this retries for a while.
pub fn open_once_free(path: &Path) -> Result<Disk, Failure> {
    let begun = Instant::now();
    loop {
        match answer_of(path, ANSWER_WAIT, |path| Disk::open(path, &DiskOptions::default()))? {
            Err(DiskOpenError::InUse { .. }) if begun.elapsed() < RELEASE_WAIT => {
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => return opened.map_err(open_failure),
        }
    }
}

fn open_failure(error: DiskOpenError) -> Failure {
    let message = error.to_string();
    match error {
        DiskOpenError::InUse { .. } => Failure::failed("device-in-use", message),
        DiskOpenError::NotADisk { .. } => Failure::usage("not-a-disk", message),
        DiskOpenError::WritableByOthers { path, .. } => Failure::failed(UNTRUSTED, message).hint(make_private(&path)),
        DiskOpenError::System { source, .. } => Failure::from(source).of(message),
    }
}

fn done(result: DiskResult) -> Result<(), Failure> {
    match result {
        DiskResult::Done(done) => Ok(done.map_err(StoreError::Disk)?),
        DiskResult::Read(_) => unreachable!("a write does not end as a read"),
    }
}
