//! The commands on an object's bytes, which are stored in pieces. A missing piece, and the rest of a piece after its end, are zeros.
//! Nothing is stored after the object's end, so that an extension reads as zeros.

use crate::evaluate::{EvaluationError, Work};
use crate::header::Header;
use crate::key::{Key, PIECE_BYTES};
use braid_base::{ObjectId, limits};
use braid_wire::ObjectFailure;
use bytes::{BufMut, Bytes, BytesMut};
use std::ops::Range;

impl Work<'_> {
    pub fn read(&mut self, header: Header, offset: u64, length: u32) -> Result<Bytes, EvaluationError> {
        let end = offset.saturating_add(u64::from(length)).min(header.length);
        self.tell(end.saturating_sub(offset) as usize)?;
        let parts: Vec<_> = pieces(offset, end).collect();
        let held = self.held(header, parts.iter().map(|(piece, _)| *piece))?;
        let mut data = BytesMut::with_capacity(end.saturating_sub(offset) as usize);
        for ((_, part), held) in parts.into_iter().zip(held) {
            let there = &held[part.start.min(held.len())..part.end.min(held.len())];
            data.put_slice(there);
            data.put_bytes(0, part.len() - there.len());
        }
        Ok(data.freeze())
    }

    pub fn write(
        &mut self,
        object: ObjectId,
        header: Header,
        offset: u64,
        data: &Bytes,
    ) -> Result<(), EvaluationError> {
        let end = offset.saturating_add(data.len() as u64);
        if end > limits::OBJECT_BYTES_MAX {
            return Err(ObjectFailure::TooLong.into());
        }
        if data.is_empty() {
            return Ok(());
        }
        let whole = |part: &Range<usize>| part.len() as u64 == PIECE_BYTES;
        let parts: Vec<_> = pieces(offset, end).collect();
        let in_part = parts.iter().filter(|(_, part)| !whole(part));
        let mut held = self.held(header, in_part.map(|(piece, _)| *piece))?.into_iter();
        let mut rest = &data[..];
        for (piece, part) in parts {
            let held = if whole(&part) { Bytes::new() } else { held.next().expect("one for each part") };
            let (new, behind) = rest.split_at(part.len());
            rest = behind;
            let mut value = BytesMut::with_capacity(part.end.max(held.len()));
            value.put_slice(&held[..part.start.min(held.len())]);
            value.put_bytes(0, part.start - value.len());
            value.put_slice(new);
            value.put_slice(&held[part.end.min(held.len())..]);
            self.map.put(Key::piece(header.incarnation, piece), Some(value.freeze()));
        }
        if end > header.length {
            self.put_header(object, Header { length: end, ..header });
        }
        Ok(())
    }

    /// Sets the length. The number of pieces that are cut off is bounded, so that more takes several requests.
    pub fn truncate(&mut self, object: ObjectId, header: Header, length: u64) -> Result<(), EvaluationError> {
        if length < header.length {
            self.cut(header, length)?;
        }
        self.put_header(object, Header { length, ..header });
        Ok(())
    }

    fn cut(&mut self, header: Header, length: u64) -> Result<(), EvaluationError> {
        let (first, within) = (length / PIECE_BYTES, (length % PIECE_BYTES) as usize);
        if within > 0 {
            let held = self.held(header, [first])?.remove(0);
            if held.len() > within {
                self.map.put(Key::piece(header.incarnation, first), Some(held.slice(..within)));
            }
        }
        let from = Key::piece(header.incarnation, length.div_ceil(PIECE_BYTES));
        let last = Key::piece(header.incarnation, u64::MAX);
        let (found, more) = self.map.some_of(Some(from), last, limits::OBJECT_PIECES_CUT_MAX - self.cut)?;
        if more {
            return Err(ObjectFailure::CutsTooMuch.into());
        }
        self.cut += found.len();
        for (key, _) in found {
            self.map.put(key, None);
        }
        Ok(())
    }

    /// The stored content of some pieces.
    fn held(&mut self, header: Header, pieces: impl IntoIterator<Item = u64>) -> Result<Vec<Bytes>, EvaluationError> {
        let held = self.map.get_all(pieces.into_iter().map(|piece| Key::piece(header.incarnation, piece)))?;
        let held: Vec<_> = held.into_iter().map(Option::unwrap_or_default).collect();
        if held.iter().any(|held| held.len() as u64 > PIECE_BYTES) {
            return Err(ObjectFailure::Lost.into());
        }
        Ok(held)
    }
}

/// The pieces of a range of bytes, and the part of each.
fn pieces(offset: u64, end: u64) -> impl Iterator<Item = (u64, Range<usize>)> {
    let count = if offset < end { end.div_ceil(PIECE_BYTES) - offset / PIECE_BYTES } else { 0 };
    (0..count).map(move |index| {
        let piece = offset / PIECE_BYTES + index;
        let start = offset.max(piece * PIECE_BYTES) - piece * PIECE_BYTES;
        let behind = end.min((piece + 1) * PIECE_BYTES) - piece * PIECE_BYTES;
        (piece, start as usize..behind as usize)
    })
}
