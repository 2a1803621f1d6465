//! A record is a small piece of state that a machine keeps on its disk. It is always written as a whole, in two copies (slots), so that
//! neither a crash nor corruption of one slot loses it.
//!
//! ```text
//!   0                slot 0: magic, format, length, sequence, the record …, checksum in the slot's last four bytes
//!   R::SLOT_BYTES    slot 1: the same
//! ```
//!
//! The valid slot with the higher sequence is the current one; the other slot is written next. A new record is written to one slot after
//! the other, and is durable when both slots have it. Therefore one slot may be half-written by a crash, damaged or unreadable: the other
//! one has the record. A disk of zeros was never written: it holds the default record.

use braid_base::AlignedBuffer;
use braid_base::checksum::crc32c;
use braid_machine::{DiskCommand, DiskError, DiskResult, DiskTag, Effects};
use bytes::{Buf, BufMut, Bytes};

/// Bytes of a slot before the record.
const HEADER_BYTES: usize = 24;
/// Bytes of a slot after the record.
const CHECKSUM_BYTES: usize = 4;
/// Lengths are counted in words of this many bytes.
const WORD_BYTES: usize = 4;
const READ: DiskTag = DiskTag(0);

/// A type that can be stored as a record.
pub trait TwoCopyRecord: Clone + Default + PartialEq {
    /// The first bytes of a slot.
    const MAGIC: [u8; 8];
    /// The format that this release writes.
    const FORMAT: u32;
    /// Bytes of a slot: a multiple of 512, at least the largest record plus [`TwoCopyRecord::EXTRA_BYTES`].
    const SLOT_BYTES: usize;
    /// Bytes of a slot that are not available to the record.
    const EXTRA_BYTES: usize = HEADER_BYTES + CHECKSUM_BYTES;
    /// Bytes of the disk that the two slots take.
    const DISK_BYTES: u64 = 2 * Self::SLOT_BYTES as u64;

    /// Encodes the record, in words of four bytes.
    fn put(&self, to: &mut Vec<u8>);

    /// Decodes a record; `None` if it is invalid.
    fn take(from: &mut &[u8]) -> Option<Self>;

    /// Decodes a record of an earlier format; `None` if it is invalid.
    fn take_older(format: u32, from: &mut &[u8]) -> Option<Self> {
        let _ = format;
        Self::take(from)
    }
}

/// Why a record can't be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Neither slot holds a valid record.
    #[error("both copies are damaged")]
    Damaged,
    /// A newer release wrote the record.
    #[error("it has format {found}, which this release does not know: use a newer release")]
    NewerFormat { found: u32 },
    /// The disk can't be read or written.
    #[error(transparent)]
    Disk(DiskError),
}

/// The state after a disk command has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The record is still being read.
    Reading,
    /// The record has been read.
    Read,
    /// The record is still being written.
    Writing,
    /// The record has been written to both slots.
    Written,
}

/// A record in memory, with its state on disk.
#[derive(Debug, Default)]
pub struct Kept<R> {
    durable: R,
    /// Both slots have the durable record.
    twice: bool,
    writing: Option<Writing<R>>,
    sequence: u64,
    /// The slots read so far, if reading both at once failed and they are read one by one.
    slots: Option<Vec<Bytes>>,
}

#[derive(Debug)]
struct Writing<R> {
    record: R,
    /// One slot has the new record.
    once: bool,
}

impl<R: TwoCopyRecord> Kept<R> {
    /// Begins to read the record.
    pub fn start(&self, out: &mut Effects) {
        out.disk(READ, DiskCommand::Read { offset: 0, length: R::DISK_BYTES as usize });
    }

    /// Handles the completion of a disk command.
    pub fn on_disk_done(&mut self, result: DiskResult, out: &mut Effects) -> Result<Progress, RecordError> {
        match result {
            DiskResult::Read(read) => self.on_read(read, out),
            DiskResult::Done(done) => {
                done.map_err(RecordError::Disk)?;
                let writing = self.writing.as_mut().expect("only this record is written");
                if !std::mem::replace(&mut writing.once, true) {
                    self.write_slot(out);
                    return Ok(Progress::Writing);
                }
                self.durable = self.writing.take().expect("a record is being written").record;
                self.twice = true;
                Ok(Progress::Written)
            }
        }
    }

    fn on_read(&mut self, read: Result<Bytes, DiskError>, out: &mut Effects) -> Result<Progress, RecordError> {
        let image = match (&mut self.slots, read) {
            (None, Ok(both)) => both.to_vec(),
            (None, Err(_)) => {
                self.slots = Some(Vec::new());
                self.read_slot(0, out);
                return Ok(Progress::Reading);
            }
            (Some(slots), read) => {
                // Not zeros, which would mean that the slot was never written.
                let damaged = |_| Bytes::from(vec![0xff; R::SLOT_BYTES]);
                let is_readable = read.is_ok();
                slots.push(read.clone().unwrap_or_else(damaged));
                match slots.len() {
                    1 => {
                        self.read_slot(1, out);
                        return Ok(Progress::Reading);
                    }
                    _ if !is_readable && newest::<R>(&slots.concat()).is_err() => {
                        return Err(RecordError::Disk(read.expect_err("the slot is unreadable")));
                    }
                    _ => slots.concat(),
                }
            }
        };
        let (sequence, record, twice) = newest(&image)?;
        *self = Kept { durable: record, twice, writing: None, sequence, slots: None };
        Ok(Progress::Read)
    }

    fn read_slot(&self, slot: usize, out: &mut Effects) {
        let offset = (slot * R::SLOT_BYTES) as u64;
        out.disk(READ, DiskCommand::Read { offset, length: R::SLOT_BYTES });
    }

    /// The record that is durable.
    pub fn durable(&self) -> &R {
        &self.durable
    }

    /// The record that is being written, if any.
    pub fn writing(&self) -> Option<&R> {
        self.writing.as_ref().map(|writing| &writing.record)
    }

    /// Begins to write `record` if no record is being written, and the durable one is different or is in one slot alone. True if it does.
    pub fn update(&mut self, record: R, out: &mut Effects) -> bool {
        if self.writing.is_some() || (self.twice && self.durable == record) {
            return false;
        }
        self.writing = Some(Writing { record, once: false });
        self.write_slot(out);
        true
    }

    fn write_slot(&mut self, out: &mut Effects) {
        let writing = self.writing.as_ref().expect("there is something to write");
        self.sequence += 1;
        let offset = self.sequence % 2 * R::SLOT_BYTES as u64;
        let data = vec![encode(self.sequence, &writing.record)];
        out.disk(DiskTag(self.sequence), DiskCommand::Write { offset, data, durable: true });
    }
}

/// The content of a disk that has this record in both slots.
pub fn disk_image<R: TwoCopyRecord>(record: &R) -> Vec<u8> {
    // The parity of the sequence selects the slot.
    [encode(2, record), encode(1, record)].concat()
}

/// Reads the record from the content of a disk.
pub fn read_image<R: TwoCopyRecord>(disk: &[u8]) -> Result<R, RecordError> {
    newest(disk).map(|(_, record, _)| record)
}

/// The newest valid slot, and whether the other one has the same record. A slot of zeros was never written.
fn newest<R: TwoCopyRecord>(disk: &[u8]) -> Result<(u64, R, bool), RecordError> {
    let mut slots = Vec::new();
    let mut unwritten = false;
    for slot in disk.chunks(R::SLOT_BYTES) {
        unwritten |= slot.iter().all(|byte| *byte == 0);
        match decode(slot) {
            Err(RecordError::Damaged) => {}
            other => slots.push(other?),
        }
    }
    slots.sort_by_key(|(sequence, _)| *sequence);
    match slots.pop() {
        Some((sequence, record)) => {
            let twice = slots.pop().is_some_and(|(_, older)| older == record);
            Ok((sequence, record, twice))
        }
        // A half-written slot beside one that was never written: the first write of all was interrupted, and before it there was no
        // record.
        None if unwritten => Ok((0, R::default(), true)),
        None => Err(RecordError::Damaged),
    }
}

fn decode<R: TwoCopyRecord>(slot: &[u8]) -> Result<(u64, R), RecordError> {
    let checksum_at = R::SLOT_BYTES - CHECKSUM_BYTES;
    let whole = slot.len() == R::SLOT_BYTES && slot[..8] == R::MAGIC;
    if !whole || slot[checksum_at..] != crc32c(&slot[..checksum_at]).to_le_bytes() {
        return Err(RecordError::Damaged);
    }
    let mut from = &slot[8..checksum_at];
    let found = from.get_u32_le();
    if found > R::FORMAT {
        return Err(RecordError::NewerFormat { found });
    }
    let length = from.get_u32_le() as usize * WORD_BYTES;
    let sequence = from.get_u64_le();
    let mut body = from.get(..length).ok_or(RecordError::Damaged)?;
    let record = if found < R::FORMAT { R::take_older(found, &mut body) } else { R::take(&mut body) };
    let record = record.filter(|_| body.is_empty());
    Ok((sequence, record.ok_or(RecordError::Damaged)?))
}

fn encode<R: TwoCopyRecord>(sequence: u64, record: &R) -> Bytes {
    let mut body = Vec::new();
    record.put(&mut body);
    assert!(body.len().is_multiple_of(WORD_BYTES), "a record consists of whole words");
    assert!(body.len() + R::EXTRA_BYTES <= R::SLOT_BYTES, "the record is larger than a slot");
    let mut slot = AlignedBuffer::zeroed(R::SLOT_BYTES);
    let mut to = &mut slot[..];
    to.put_slice(&R::MAGIC);
    to.put_u32_le(R::FORMAT);
    to.put_u32_le((body.len() / WORD_BYTES) as u32);
    to.put_u64_le(sequence);
    to.put_slice(&body);
    let checksum_at = R::SLOT_BYTES - CHECKSUM_BYTES;
    let checksum = crc32c(&slot[..checksum_at]);
    slot[checksum_at..].copy_from_slice(&checksum.to_le_bytes());
    slot.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_machine::Effect;
    use proptest::prelude::*;

    #[derive(Clone, Debug, Default, PartialEq)]
    struct Numbers(Vec<u32>);

    impl TwoCopyRecord for Numbers {
        const MAGIC: [u8; 8] = *b"BraidTst";
        const FORMAT: u32 = 1;
        const SLOT_BYTES: usize = 512;

        fn put(&self, to: &mut Vec<u8>) {
            to.put_u32_le(self.0.len() as u32);
            self.0.iter().for_each(|number| to.put_u32_le(*number));
        }

        fn take(from: &mut &[u8]) -> Option<Numbers> {
            let count = from.try_get_u32_le().ok()?;
            let number = |_| from.try_get_u32_le().ok();
            (0..count).map(number).collect::<Option<_>>().map(Numbers)
        }
    }

    const SLOT: usize = Numbers::SLOT_BYTES;

    fn numbers(numbers: &[u32]) -> Numbers {
        Numbers(numbers.to_vec())
    }

    fn read(disk: &[u8]) -> Result<(u64, Numbers, bool), RecordError> {
        newest(disk)
    }

    #[test]
    fn the_newest_whole_slot_counts() {
        let mut disk = [encode(8, &numbers(&[1])), encode(9, &numbers(&[1, 2]))].concat();
        assert_eq!(read(&disk), Ok((9, numbers(&[1, 2]), false)));
        disk[SLOT + 20] ^= 1;
        assert_eq!(read(&disk), Ok((8, numbers(&[1]), false)));
        disk[20] ^= 1;
        assert_eq!(read(&disk), Err(RecordError::Damaged), "neither slot is valid");
    }

    #[test]
    fn a_disk_of_zeros_is_the_default_even_after_a_torn_first_write() {
        let mut disk = vec![0; Numbers::DISK_BYTES as usize];
        assert_eq!(read(&disk), Ok((0, numbers(&[]), true)));
        disk[SLOT..][..100].copy_from_slice(&encode(1, &numbers(&[1]))[..100]);
        assert_eq!(read(&disk), Ok((0, numbers(&[]), true)));
    }

    #[test]
    fn no_record_that_was_written_is_lost_with_a_slot() {
        let mut disk = vec![0; Numbers::DISK_BYTES as usize];
        let mut kept = Kept::default();
        for round in 1..5 {
            let written = numbers(&[round]);
            let mut out = Effects::new();
            assert!(kept.update(written.clone(), &mut out));
            for progress in [Progress::Writing, Progress::Written] {
                assert_eq!((kept.writing(), kept.durable() == &written), (Some(&written), false));
                let write = out.drain().next();
                let Some(Effect::Disk { command: DiskCommand::Write { offset, data, .. }, .. }) = write else {
                    panic!("each slot is written");
                };
                disk[offset as usize..][..SLOT].copy_from_slice(&data[0]);
                assert_eq!(kept.on_disk_done(DiskResult::Done(Ok(())), &mut out), Ok(progress));
            }
            assert_eq!((kept.writing(), kept.durable()), (None, &written));
            assert_eq!(read(&disk).map(|(_, found, twice)| (found, twice)), Ok((written.clone(), true)));
            for slot in [0, SLOT] {
                disk[slot + 28] ^= 1;
                assert_eq!(read(&disk).map(|(_, found, _)| found), Ok(written.clone()));
                disk[slot + 28] ^= 1;
            }
        }
    }

    #[test]
    fn a_record_that_only_one_slot_has_is_written_again() {
        let disk = [encode(8, &numbers(&[1])), vec![1; SLOT].into()].concat();
        let mut kept = Kept::default();
        let mut out = Effects::new();
        assert_eq!(kept.on_disk_done(DiskResult::Read(Ok(disk.into())), &mut out), Ok(Progress::Read));
        assert!(kept.update(numbers(&[1]), &mut out));
        let mut commands = out.drain();
        let Some(Effect::Disk { command: DiskCommand::Write { offset, .. }, .. }) = commands.next() else {
            panic!("the record is written");
        };
        assert_eq!(offset, SLOT as u64, "to the slot that does not have the record");
    }

    /// Starts on a disk with one unreadable slot.
    fn start_on(disk: &[u8], unreadable: usize) -> Result<Numbers, RecordError> {
        let (mut kept, mut out) = (Kept::<Numbers>::default(), Effects::new());
        kept.start(&mut out);
        loop {
            let Some(Effect::Disk { command: DiskCommand::Read { offset, length }, .. }) = out.drain().next() else {
                panic!("the machine reads until it has finished");
            };
            let range = offset as usize..offset as usize + length;
            let is_hurt = range.start < (unreadable + 1) * SLOT && range.end > unreadable * SLOT;
            let read = if is_hurt { Err(DiskError::Failed) } else { Ok(Bytes::copy_from_slice(&disk[range])) };
            match kept.on_disk_done(DiskResult::Read(read), &mut out)? {
                Progress::Reading => {}
                Progress::Read => return Ok(kept.durable().clone()),
                progress => panic!("nothing is written: {progress:?}"),
            }
        }
    }

    #[test]
    fn a_slot_that_can_not_be_read_costs_nothing_while_the_other_is_whole() {
        let mut disk = [encode(8, &numbers(&[1])), encode(9, &numbers(&[1]))].concat();
        for unreadable in [0, 1] {
            assert_eq!(start_on(&disk, unreadable), Ok(numbers(&[1])));
        }
        disk[30] ^= 1;
        assert_eq!(start_on(&disk, 1), Err(RecordError::Disk(DiskError::Failed)), "neither slot is valid");
        // The first write of all, with one slot still empty: the new record was never durable.
        disk[..SLOT].fill(0);
        assert_eq!(start_on(&disk, 1), Ok(numbers(&[])));
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let mut slot = encode(1, &numbers(&[])).to_vec();
        slot[8] = 9;
        seal(&mut slot);
        assert_eq!(read(&[slot, vec![0; SLOT]].concat()), Err(RecordError::NewerFormat { found: 9 }));
    }

    fn seal(slot: &mut [u8]) {
        let at = SLOT - CHECKSUM_BYTES;
        let checksum = crc32c(&slot[..at]).to_le_bytes();
        slot[at..].copy_from_slice(&checksum);
    }

    proptest! {
        /// A checksum detects corruption, but not a record that was encoded wrongly.
        #[test]
        fn what_makes_no_sense_is_damaged(words in prop::collection::vec(0u32..200, 4..8)) {
            let mut slot = encode(1, &numbers(&[7; 5])).to_vec();
            for (index, word) in words.iter().enumerate().filter(|(index, _)| !matches!(index, 1 | 2)) {
                slot[12 + 4 * index..][..4].copy_from_slice(&word.to_le_bytes());
            }
            seal(&mut slot);
            let sound = words[0] == words[3] + 1 && words[3] < 120;
            prop_assert_eq!(decode::<Numbers>(&slot).is_ok(), sound);
        }
    }
}
