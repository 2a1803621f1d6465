//! The reader of a recovery. A part that can't be read is read again in halves, down to the sector. An unreadable sector counts as zeros,
//! which no checksum accepts. So it has the same effect as corruption of that sector.

use crate::StoreError;
use braid_journal::SECTOR;
use braid_machine::{DiskCommand, DiskError, DiskTag, Effects};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Bytes that one command reads at most, and the most commands in flight.
pub(crate) const READ_MAX: usize = 1 << 20;
const IN_FLIGHT_MAX: usize = 8;

/// The most unreadable sectors. If there are more, the disk has failed.
const UNREADABLE_MAX: usize = 64;

/// A part of the device to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub offset: u64,
    pub length: usize,
}

impl Span {
    /// Splits a long span into parts that one command reads.
    pub fn cut(offset: u64, length: usize) -> impl Iterator<Item = Span> {
        let part = move |at| Span { offset: offset + at as u64, length: READ_MAX.min(length - at) };
        (0..length).step_by(READ_MAX).map(part)
    }
}

/// A span that could not be read as a whole.
#[derive(Clone, Debug)]
struct Salvage {
    bytes: Vec<u8>,
    /// Bytes that have not been read yet, and are not known to be unreadable.
    missing: usize,
}

/// The reads of a recovery.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    last_tag: u64,
    /// The span that each command reads, and the requested span that it belongs to.
    reading: BTreeMap<DiskTag, (Span, Span)>,
    to_read: VecDeque<(Span, Span)>,
    salvages: BTreeMap<Span, Salvage>,
    unreadable: usize,
}

impl Default for Reader {
    fn default() -> Self {
        let (reading, to_read, salvages) = (BTreeMap::new(), VecDeque::new(), BTreeMap::new());
        Reader { last_tag: 1, reading, to_read, salvages, unreadable: 0 }
    }
}

impl Reader {
    /// A fresh tag for a command.
    pub fn tag(&mut self) -> DiskTag {
        self.last_tag += 1;
        DiskTag(self.last_tag)
    }

    /// The first unused tag.
    pub fn next_tag(&self) -> u64 {
        self.last_tag + 1
    }

    /// Begins to read.
    pub fn read(&mut self, spans: impl IntoIterator<Item = Span>, out: &mut Effects) {
        self.to_read.extend(spans.into_iter().map(|span| (span, span)));
        self.read_on(out);
    }

    fn read_on(&mut self, out: &mut Effects) {
        while self.reading.len() < IN_FLIGHT_MAX
            && let Some((span, whole)) = self.to_read.pop_front()
        {
            let tag = self.tag();
            self.reading.insert(tag, (span, whole));
            out.disk(tag, DiskCommand::Read { offset: span.offset, length: span.length });
        }
    }

    /// True if no read is in flight.
    pub fn is_idle(&self) -> bool {
        self.reading.is_empty()
    }

    /// True if some sector could not be read.
    pub fn has_unreadable(&self) -> bool {
        self.unreadable > 0
    }

    /// A read has ended. Returns a requested span when all of its readable sectors have arrived, and sends the next reads.
    pub fn take(
        &mut self,
        tag: DiskTag,
        result: Result<Bytes, DiskError>,
        out: &mut Effects,
    ) -> Result<Option<(Span, Bytes)>, StoreError> {
        let (span, whole) = self.reading.remove(&tag).ok_or(DiskError::Failed)?;
        let bytes = self.salvage(span, whole, result)?;
        self.read_on(out);
        Ok(bytes.map(|bytes| (whole, bytes)))
    }

    fn salvage(
        &mut self,
        span: Span,
        whole: Span,
        result: Result<Bytes, DiskError>,
    ) -> Result<Option<Bytes>, StoreError> {
        let arrived = match result {
            Ok(bytes) if bytes.len() != span.length => Err(DiskError::Failed),
            result => result,
        };
        if span == whole && arrived.is_ok() {
            return Ok(Some(arrived?));
        }
        let salvage = self
            .salvages
            .entry(whole)
            .or_insert_with(|| Salvage { bytes: vec![0; whole.length], missing: whole.length });
        match arrived {
            Ok(bytes) => {
                let at = (span.offset - whole.offset) as usize;
                salvage.bytes[at..at + span.length].copy_from_slice(&bytes);
                salvage.missing -= span.length;
            }
            Err(_) if span.length > SECTOR => {
                let half = (span.length / 2).next_multiple_of(SECTOR);
                let second = Span { offset: span.offset + half as u64, length: span.length - half };
                self.to_read.push_front((second, whole));
                self.to_read.push_front((Span { length: half, ..span }, whole));
            }
            Err(error) => {
                salvage.missing -= span.length;
                self.unreadable += 1;
                if self.unreadable > UNREADABLE_MAX {
                    return Err(error.into());
                }
            }
        }
        if salvage.missing > 0 {
            return Ok(None);
        }
        Ok(self.salvages.remove(&whole).map(|salvage| salvage.bytes.into()))
    }
}
