//! A record is a small piece of state that a machine keeps on its disk. It is always written as a whole, in two copies, so that
//! neither a crash nor corruption of one copy loses it.
//!
//! ```text
//!   0                copy 0: magic, format, length, sequence, the record …, checksum in the copy's last four bytes
//!   R::COPY_BYTES    copy 1: the same
//! ```
//!
//! The valid copy with the higher sequence is the current one; the other copy is written next. A new record is written to one copy after
//! the other, and is durable when both copies have it. Therefore one copy may be half-written by a crash, damaged or unreadable: the other
//! one has the record. A disk of zeros was never written: it holds the default record.

use braid_base::AlignedBuffer;
use braid_base::checksum::crc32c;
use braid_machine::{DiskCommand, DiskError, DiskResult, DiskTag, Effects};
use bytes::{Buf, BufMut, Bytes};

/// Bytes of a copy before the record.
const HEADER_BYTES: usize = 24;
/// Bytes of a copy after the record.
const CHECKSUM_BYTES: usize = 4;
/// The highest sequence of a record that is read.
const SEQUENCE_MAX: u64 = u64::MAX / 2;
/// Lengths are counted in words of this many bytes.
const WORD_BYTES: usize = 4;
const READ: DiskTag = DiskTag(0);

/// A type that can be stored as a record.
pub trait TwoCopyRecord: Clone + Default + PartialEq {
    /// The first bytes of a copy.
    const MAGIC: [u8; 8];
    /// The newest format that this release knows.
    const FORMAT: u32;
    /// The oldest format that this release reads.
    const OLDEST: u32 = 1;
    /// Bytes of a copy: a multiple of 512, at least the largest record plus [`TwoCopyRecord::EXTRA_BYTES`].
    const COPY_BYTES: usize;
    /// Bytes of a copy that are not available to the record.
    const EXTRA_BYTES: usize = HEADER_BYTES + CHECKSUM_BYTES;
    /// Bytes of the disk that the two copies take.
    const DISK_BYTES: u64 = 2 * Self::COPY_BYTES as u64;

    /// The format in which it is written.
    fn format(&self) -> u32 {
        Self::FORMAT
    }

    /// Encodes the record, in words of four bytes.
    fn put(&self, to: &mut Vec<u8>);

    /// Decodes a record of this format or an earlier one; `None` if it is invalid.
    fn take(format: u32, from: &mut &[u8]) -> Option<Self>;
}

/// Why a record can't be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("both copies are damaged")]
    Damaged,
    #[error("it has format {found}, which this release does not know: use a newer release")]
    NewerFormat { found: u32 },
    #[error("it has format {found}, which this release no longer reads: open it with the release before first")]
    OlderFormat { found: u32 },
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
    /// The record has been written to both copies.
    Written,
}

/// A record in memory, with its state on disk.
#[derive(Clone, Debug, Default)]
pub struct StoredRecord<R> {
    durable: R,
    /// Both copies have the durable record.
    twice: bool,
    writing: Option<Writing<R>>,
    sequence: u64,
    /// The copies read so far, if reading both at once failed and they are read one by one.
    copies: Option<Vec<Bytes>>,
}

#[derive(Clone, Debug)]
struct Writing<R> {
    record: R,
    /// One copy has the new record.
    once: bool,
}

impl<R: TwoCopyRecord> StoredRecord<R> {
    /// Begins to read the record.
    pub fn start<O>(&self, out: &mut Effects<O>) {
        out.disk(READ, DiskCommand::Read { offset: 0, length: R::DISK_BYTES as usize });
    }

    /// Handles the completion of a disk command.
    pub fn on_disk_done<O>(&mut self, result: DiskResult, out: &mut Effects<O>) -> Result<Progress, RecordError> {
        match result {
            DiskResult::Read(read) => self.on_read(read, out),
            DiskResult::Done(done) => {
                done.map_err(RecordError::Disk)?;
                let writing = self.writing.as_mut().expect("only this record is written");
                if !std::mem::replace(&mut writing.once, true) {
                    self.write_copy(out);
                    return Ok(Progress::Writing);
                }
                self.durable = self.writing.take().expect("a record is being written").record;
                self.twice = true;
                Ok(Progress::Written)
            }
        }
    }

    fn on_read<O>(&mut self, read: Result<Bytes, DiskError>, out: &mut Effects<O>) -> Result<Progress, RecordError> {
        let image = match (&mut self.copies, read) {
            (None, Ok(both)) => both.to_vec(),
            (None, Err(_)) => {
                self.copies = Some(Vec::new());
                self.read_copy(0, out);
                return Ok(Progress::Reading);
            }
            (Some(copies), read) => {
                // Not zeros, which would mean that the copy was never written.
                let damaged = |_| Bytes::from(vec![0xff; R::COPY_BYTES]);
                let is_readable = read.is_ok();
                copies.push(read.clone().unwrap_or_else(damaged));
                match copies.len() {
                    1 => {
                        self.read_copy(1, out);
                        return Ok(Progress::Reading);
                    }
                    _ if !is_readable && newest::<R>(&copies.concat()).is_err() => {
                        return Err(RecordError::Disk(read.expect_err("the copy is unreadable")));
                    }
                    _ => copies.concat(),
                }
            }
        };
        let (sequence, record, twice) = newest(&image)?;
        *self = StoredRecord { durable: record, twice, writing: None, sequence, copies: None };
        Ok(Progress::Read)
    }

    fn read_copy<O>(&self, copy: usize, out: &mut Effects<O>) {
        let offset = (copy * R::COPY_BYTES) as u64;
        out.disk(READ, DiskCommand::Read { offset, length: R::COPY_BYTES });
    }

    pub fn durable(&self) -> &R {
        &self.durable
    }

    /// The record that is being written, if any.
    pub fn writing(&self) -> Option<&R> {
        self.writing.as_ref().map(|writing| &writing.record)
    }

    /// Begins to write `record` if no record is being written, and the durable one is different or is in one copy alone. True if it does.
    pub fn update<O>(&mut self, record: R, out: &mut Effects<O>) -> bool {
        if self.writing.is_some() || (self.twice && self.durable == record) {
            return false;
        }
        self.writing = Some(Writing { record, once: false });
        self.write_copy(out);
        true
    }

    fn write_copy<O>(&mut self, out: &mut Effects<O>) {
        let writing = self.writing.as_ref().expect("there is something to write");
        self.sequence += 1;
        let offset = self.sequence % 2 * R::COPY_BYTES as u64;
        let data = vec![encode(self.sequence, &writing.record)];
        out.disk(DiskTag(self.sequence), DiskCommand::Write { offset, data, durable: true });
    }
}

/// The content of a disk that has this record in both copies.
pub fn disk_image<R: TwoCopyRecord>(record: &R) -> Vec<u8> {
    // The parity of the sequence selects the copy.
    [encode(2, record), encode(1, record)].concat()
}

/// Reads the record from the content of a disk.
pub fn read_image<R: TwoCopyRecord>(disk: &[u8]) -> Result<R, RecordError> {
    newest(disk).map(|(_, record, _)| record)
}

/// False if no record was ever durable on a disk with this content.
pub fn is_written<R: TwoCopyRecord>(disk: &[u8]) -> Result<bool, RecordError> {
    newest::<R>(disk).map(|(sequence, ..)| sequence > 0)
}

/// The newest valid copy, and whether the other one has the same record. A copy of zeros was never written.
fn newest<R: TwoCopyRecord>(disk: &[u8]) -> Result<(u64, R, bool), RecordError> {
    let mut copies = Vec::new();
    let mut unwritten = false;
    for copy in disk.chunks(R::COPY_BYTES) {
        unwritten |= copy.iter().all(|byte| *byte == 0);
        match decode(copy) {
            Err(RecordError::Damaged) => {}
            other => copies.push(other?),
        }
    }
    copies.sort_by_key(|(sequence, _)| *sequence);
    match copies.pop() {
        Some((sequence, record)) => {
            let twice = copies.pop().is_some_and(|(_, older)| older == record);
            Ok((sequence, record, twice))
        }
        // A half-written copy beside one that was never written: the first write of all was interrupted, and before it there was no
        // record.
        None if unwritten => Ok((0, R::default(), true)),
        None => Err(RecordError::Damaged),
    }
}

fn decode<R: TwoCopyRecord>(copy: &[u8]) -> Result<(u64, R), RecordError> {
    let checksum_at = R::COPY_BYTES - CHECKSUM_BYTES;
    let whole = copy.len() == R::COPY_BYTES && copy[..8] == R::MAGIC;
    if !whole || copy[checksum_at..] != crc32c(&copy[..checksum_at]).to_le_bytes() {
        return Err(RecordError::Damaged);
    }
    let mut from = &copy[8..checksum_at];
    let found = from.get_u32_le();
    if found > R::FORMAT {
        return Err(RecordError::NewerFormat { found });
    }
    if found < R::OLDEST {
        return Err(RecordError::OlderFormat { found });
    }
    let length = from.get_u32_le() as usize * WORD_BYTES;
    // A count of writes never gets there: only a forged record has such a number, and no number would be left for the next one.
    let sequence = Some(from.get_u64_le()).filter(|sequence| *sequence <= SEQUENCE_MAX).ok_or(RecordError::Damaged)?;
    let mut body = from.get(..length).ok_or(RecordError::Damaged)?;
    let record = R::take(found, &mut body).filter(|_| body.is_empty());
    Ok((sequence, record.ok_or(RecordError::Damaged)?))
}

fn encode<R: TwoCopyRecord>(sequence: u64, record: &R) -> Bytes {
    let mut body = Vec::new();
    record.put(&mut body);
    assert!(body.len().is_multiple_of(WORD_BYTES), "a record consists of whole words");
    assert!(body.len() + R::EXTRA_BYTES <= R::COPY_BYTES, "the record is larger than a copy");
    let mut copy = AlignedBuffer::zeroed(R::COPY_BYTES);
    let mut to = &mut copy[..];
    to.put_slice(&R::MAGIC);
    to.put_u32_le(record.format());
    to.put_u32_le((body.len() / WORD_BYTES) as u32);
    to.put_u64_le(sequence);
    to.put_slice(&body);
    let checksum_at = R::COPY_BYTES - CHECKSUM_BYTES;
    let checksum = crc32c(&copy[..checksum_at]);
    copy[checksum_at..].copy_from_slice(&checksum.to_le_bytes());
    copy.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_machine::Effect;
    use braid_machine::Never;
    use proptest::prelude::*;

    #[derive(Clone, Debug, Default, PartialEq)]
    struct Numbers(Vec<u32>);

    impl TwoCopyRecord for Numbers {
        const MAGIC: [u8; 8] = *b"BraidTst";
        const FORMAT: u32 = 1;
        const COPY_BYTES: usize = 512;

        fn put(&self, to: &mut Vec<u8>) {
            to.put_u32_le(self.0.len() as u32);
            self.0.iter().for_each(|number| to.put_u32_le(*number));
        }

        fn take(_format: u32, from: &mut &[u8]) -> Option<Numbers> {
            let count = from.try_get_u32_le().ok()?;
            let number = |_| from.try_get_u32_le().ok();
            (0..count).map(number).collect::<Option<_>>().map(Numbers)
        }
    }

    const COPY: usize = Numbers::COPY_BYTES;

    fn numbers(numbers: &[u32]) -> Numbers {
        Numbers(numbers.to_vec())
    }

    fn read(disk: &[u8]) -> Result<(u64, Numbers, bool), RecordError> {
        newest(disk)
    }

    #[test]
    fn the_newest_whole_copy_counts() {
        let mut disk = [encode(8, &numbers(&[1])), encode(9, &numbers(&[1, 2]))].concat();
        assert_eq!(read(&disk), Ok((9, numbers(&[1, 2]), false)));
        disk[COPY + 20] ^= 1;
        assert_eq!(read(&disk), Ok((8, numbers(&[1]), false)));
        disk[20] ^= 1;
        assert_eq!(read(&disk), Err(RecordError::Damaged), "neither copy is valid");
        let disk = [encode(8, &numbers(&[1])), encode(u64::MAX, &numbers(&[1, 2]))].concat();
        assert_eq!(read(&disk), Ok((8, numbers(&[1]), false)), "no record could follow the other copy");
    }

    #[test]
    fn a_disk_of_zeros_is_the_default_even_after_a_torn_first_write() {
        let mut disk = vec![0; Numbers::DISK_BYTES as usize];
        assert_eq!(read(&disk), Ok((0, numbers(&[]), true)));
        disk[COPY..][..100].copy_from_slice(&encode(1, &numbers(&[1]))[..100]);
        assert_eq!(read(&disk), Ok((0, numbers(&[]), true)));
    }

    #[test]
    fn no_record_that_was_written_is_lost_with_a_copy() {
        let mut disk = vec![0; Numbers::DISK_BYTES as usize];
        let mut stored = StoredRecord::default();
        for round in 1..5 {
            let written = numbers(&[round]);
            let mut out = Effects::<Never>::new();
            assert!(stored.update(written.clone(), &mut out));
            for progress in [Progress::Writing, Progress::Written] {
                assert_eq!((stored.writing(), stored.durable() == &written), (Some(&written), false));
                let write = out.drain().next();
                let Some(Effect::Disk { command: DiskCommand::Write { offset, data, .. }, .. }) = write else {
                    panic!("each copy is written");
                };
                disk[offset as usize..][..COPY].copy_from_slice(&data[0]);
                assert_eq!(stored.on_disk_done(DiskResult::Done(Ok(())), &mut out), Ok(progress));
            }
            assert_eq!((stored.writing(), stored.durable()), (None, &written));
            assert_eq!(read(&disk).map(|(_, found, twice)| (found, twice)), Ok((written.clone(), true)));
            for copy in [0, COPY] {
                disk[copy + 28] ^= 1;
                assert_eq!(read(&disk).map(|(_, found, _)| found), Ok(written.clone()));
                disk[copy + 28] ^= 1;
            }
        }
    }

    #[test]
    fn a_record_that_only_one_copy_has_is_written_again() {
        let disk = [encode(8, &numbers(&[1])), vec![1; COPY].into()].concat();
        let mut stored = StoredRecord::default();
        let mut out = Effects::<Never>::new();
        assert_eq!(stored.on_disk_done(DiskResult::Read(Ok(disk.into())), &mut out), Ok(Progress::Read));
        assert!(stored.update(numbers(&[1]), &mut out));
        let mut commands = out.drain();
        let Some(Effect::Disk { command: DiskCommand::Write { offset, .. }, .. }) = commands.next() else {
            panic!("the record is written");
        };
        assert_eq!(offset, COPY as u64, "to the copy that does not have the record");
    }

    fn start_on(disk: &[u8], unreadable: usize) -> Result<Numbers, RecordError> {
        let (mut stored, mut out) = (StoredRecord::<Numbers>::default(), Effects::<Never>::new());
        stored.start(&mut out);
        loop {
            let Some(Effect::Disk { command: DiskCommand::Read { offset, length }, .. }) = out.drain().next() else {
                panic!("the machine reads until it has finished");
            };
            let range = offset as usize..offset as usize + length;
            let is_hurt = range.start < (unreadable + 1) * COPY && range.end > unreadable * COPY;
            let read = if is_hurt { Err(DiskError::Failed) } else { Ok(Bytes::copy_from_slice(&disk[range])) };
            match stored.on_disk_done(DiskResult::Read(read), &mut out)? {
                Progress::Reading => {}
                Progress::Read => return Ok(stored.durable().clone()),
                progress => panic!("nothing is written: {progress:?}"),
            }
        }
    }

    #[test]
    fn a_copy_that_can_not_be_read_costs_nothing_while_the_other_is_whole() {
        let mut disk = [encode(8, &numbers(&[1])), encode(9, &numbers(&[1]))].concat();
        for unreadable in [0, 1] {
            assert_eq!(start_on(&disk, unreadable), Ok(numbers(&[1])));
        }
        disk[30] ^= 1;
        assert_eq!(start_on(&disk, 1), Err(RecordError::Disk(DiskError::Failed)), "neither copy is valid");
        // The first write of all, with one copy still empty: the new record was never durable.
        disk[..COPY].fill(0);
        assert_eq!(start_on(&disk, 1), Ok(numbers(&[])));
    }

    #[test]
    fn a_format_that_is_not_read_is_refused_by_name() {
        for (found, error) in [(9, RecordError::NewerFormat { found: 9 }), (0, RecordError::OlderFormat { found: 0 })] {
            let mut copy = encode(1, &numbers(&[])).to_vec();
            copy[8] = found;
            seal(&mut copy);
            assert_eq!(read(&[copy, vec![0; COPY]].concat()), Err(error));
        }
    }

    fn seal(copy: &mut [u8]) {
        let at = COPY - CHECKSUM_BYTES;
        let checksum = crc32c(&copy[..at]).to_le_bytes();
        copy[at..].copy_from_slice(&checksum);
    }

    proptest! {
        /// A checksum detects corruption, but not a record that was encoded wrongly.
        #[test]
        fn an_inconsistent_copy_is_damaged(words in prop::collection::vec(0u32..200, 4..8)) {
            let mut copy = encode(1, &numbers(&[7; 5])).to_vec();
            for (index, word) in words.iter().enumerate().filter(|(index, _)| !matches!(index, 1 | 2)) {
                copy[12 + 4 * index..][..4].copy_from_slice(&word.to_le_bytes());
            }
            seal(&mut copy);
            let sound = words[0] == words[3] + 1 && words[3] < 120;
            prop_assert_eq!(decode::<Numbers>(&copy).is_ok(), sound);
        }
    }
}
