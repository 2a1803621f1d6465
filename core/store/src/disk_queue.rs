//! The disk queue: commands in flight to the disk, the purpose of each, and the places of the data area that it reads or writes.

use crate::block::{CHUNK_BLOCKS, STRIDE, places_of};
use crate::superblock::Geometry;
use braid_base::{BlockRange, RangeTable};
use braid_journal::Assembled;
use braid_machine::{DiskCommand, DiskError, DiskResult, DiskTag, Effects};
use braid_object_index::SlotRef;
use bytes::Bytes;
use std::collections::BTreeMap;

/// The purpose of a disk command.
#[derive(Clone, Debug)]
pub(crate) enum Io {
    /// The batch in flight.
    Batch,
    /// Reserves disk space for the slots up to this one.
    Reserve { frontier: u32 },
    /// Reads a part of a read.
    Read { operation: u64, part: usize, places: BlockRange },
    /// Writes whole chunks of an intent.
    Data { preparing: u64, written: Written },
    /// Writes dirty blocks to their slots.
    Home { places: BlockRange },
    /// A step of the checkpoint that consists of this one command.
    CheckpointStep,
    /// Writes map pages of the checkpoint; other such commands may be in flight.
    CheckpointPages,
    /// Reads a leaf of the object index for a lookup; `again` if that is the second attempt.
    Leaf { place: SlotRef, again: bool },
    /// Reads a leaf of the object index for merging.
    MergeRead { place: SlotRef, again: bool },
    /// Writes a leaf or index node that merging has made.
    MergeWrite { slot: u32 },
    /// Syncs all writes of a round of merging.
    MergeSync,
}

/// Whole chunks that are being written.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub places: BlockRange,
    /// The content with headers, as on the disk.
    pub data: Bytes,
    /// True for a single chunk that is written for the second time, or to another slot.
    pub alone: bool,
}

impl Io {
    /// The places that the command reads or writes, if they are in the data area.
    fn places(&self) -> Option<BlockRange> {
        match self {
            Io::Read { places, .. } | Io::Home { places } => Some(*places),
            Io::Data { written, .. } => Some(written.places),
            Io::Leaf { place, .. } | Io::MergeRead { place, .. } => Some(places_of(place.slot)),
            Io::MergeWrite { slot } => Some(places_of(*slot)),
            _ => None,
        }
    }

    /// True if the store can't continue when the command fails: the journal, the map or the index would be wrong.
    pub fn is_vital(&self) -> bool {
        !matches!(self, Io::Reserve { .. } | Io::Read { .. } | Io::Data { .. } | Io::Leaf { .. } | Io::MergeRead { .. })
    }
}

/// The commands in flight.
#[derive(Clone, Debug)]
pub(crate) struct DiskQueue {
    geometry: Geometry,
    next_id: u64,
    commands: BTreeMap<DiskTag, Io>,
    /// The places of the commands to the data area.
    places: RangeTable<u64, ()>,
    pub counters: DiskCounters,
}

impl DiskQueue {
    pub fn new(geometry: Geometry, next_id: u64) -> DiskQueue {
        let (commands, places) = (BTreeMap::new(), RangeTable::default());
        DiskQueue { geometry, next_id, commands, places, counters: DiskCounters::default() }
    }

    /// A fresh id for an operation.
    pub fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Sends a command to the disk, and remembers its purpose.
    pub fn submit(&mut self, io: Io, command: DiskCommand, out: &mut Effects) {
        let tag = DiskTag(self.next_id);
        self.next_id += 1;
        if let Some(places) = io.places() {
            self.places.insert(places, tag.0, ());
        }
        self.counters.count(&command);
        self.commands.insert(tag, io);
        out.disk(tag, command);
    }

    /// Reads blocks with their headers.
    pub fn read_places(&mut self, io: Io, places: BlockRange, out: &mut Effects) {
        let length = places.count as usize * STRIDE;
        self.submit(io, DiskCommand::Read { offset: self.offset_of(places.start), length }, out);
    }

    /// Writes from the place `first` on.
    pub fn write_places(&mut self, io: Io, first: u64, data: Bytes, durable: bool, out: &mut Effects) {
        let offset = self.offset_of(first);
        self.submit(io, DiskCommand::Write { offset, data: vec![data], durable }, out);
    }

    /// Reads a leaf of the object index.
    pub fn read_leaf(&mut self, io: Io, place: SlotRef, out: &mut Effects) {
        let offset = self.offset_of(places_of(place.slot).start);
        self.submit(io, DiskCommand::Read { offset, length: place.read_len() }, out);
    }

    /// Writes a batch of the journal.
    pub fn write_batch(&mut self, batch: Assembled, out: &mut Effects) {
        self.counters.batches += 1;
        self.counters.journal_bytes += batch.buffer.len() as u64;
        self.counters.journal_blocks += u64::from(batch.blocks);
        let offset = self.geometry.journal_offset + batch.offset;
        self.submit(Io::Batch, DiskCommand::Write { offset, data: vec![batch.buffer], durable: true }, out);
    }

    /// Reserves disk space for `slots` slots from `frontier` on.
    pub fn reserve(&mut self, frontier: u32, slots: u32, out: &mut Effects) {
        let offset = self.offset_of(places_of(frontier).start);
        let length = self.offset_of(places_of(frontier + slots).start) - offset;
        self.submit(Io::Reserve { frontier: frontier + slots }, DiskCommand::Reserve { offset, length }, out);
    }

    /// A command has ended: returns its purpose, and the places of the data area that it read or wrote.
    pub fn take(&mut self, tag: DiskTag, result: &DiskResult) -> Option<(Io, Option<BlockRange>)> {
        let io = self.commands.remove(&tag)?;
        let places = io.places();
        if let Some(places) = places {
            self.places.remove(places.start, tag.0);
        }
        self.counters.count_result(result);
        Some((io, places))
    }

    /// True if a command in flight touches these places.
    pub fn is_busy(&self, places: BlockRange) -> bool {
        self.places.overlapping(places).next().is_some()
    }

    /// The byte on the device where a place begins.
    fn offset_of(&self, place: u64) -> u64 {
        self.geometry.data_offset + place * STRIDE as u64
    }
}

/// The slots that these places lie in.
pub(crate) fn slots_of(places: BlockRange) -> std::ops::Range<u32> {
    (places.start / CHUNK_BLOCKS) as u32..places.end().div_ceil(CHUNK_BLOCKS) as u32
}

/// Counters of disk commands since the store started.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiskCounters {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
    durable_writes: u64,
    syncs: u64,
    reservations: u64,
    /// Commands that the disk failed, other than for lack of space.
    read_errors: u64,
    write_errors: u64,
    pub batches: u64,
    pub journal_bytes: u64,
    pub journal_blocks: u64,
}

impl DiskCounters {
    fn count(&mut self, command: &DiskCommand) {
        match command {
            DiskCommand::Read { length, .. } => {
                self.reads += 1;
                self.read_bytes += *length as u64;
            }
            DiskCommand::Write { data, durable, .. } => {
                self.writes += 1;
                self.durable_writes += u64::from(*durable);
                self.write_bytes += data.iter().map(|part| part.len() as u64).sum::<u64>();
            }
            DiskCommand::Sync => self.syncs += 1,
            DiskCommand::Reserve { .. } => self.reservations += 1,
        }
    }

    fn count_result(&mut self, result: &DiskResult) {
        match result {
            DiskResult::Read(Err(_)) => self.read_errors += 1,
            DiskResult::Done(Err(DiskError::Failed)) => self.write_errors += 1,
            DiskResult::Read(Ok(_)) | DiskResult::Done(_) => {}
        }
    }

    /// The counters of commands, with their names, in a fixed order.
    pub fn list(&self) -> [(&'static str, u64); 9] {
        [
            ("disk_reads", self.reads),
            ("disk_read_bytes", self.read_bytes),
            ("disk_writes", self.writes),
            ("disk_write_bytes", self.write_bytes),
            ("disk_durable_writes", self.durable_writes),
            ("disk_syncs", self.syncs),
            ("disk_reservations", self.reservations),
            ("read_errors", self.read_errors),
            ("write_errors", self.write_errors),
        ]
    }
}
