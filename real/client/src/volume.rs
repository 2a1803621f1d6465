//! A volume: bytes at offsets, on all devices at once.

use crate::array::Array;
use crate::error::Error;
use braid_base::{BLOCK_BYTES, VolumeId, limits};
use braid_layout::VolumeDescription;
use braid_machine::{HostRequest, HostSuccess};
use bytes::{Bytes, BytesMut};
use std::time::Duration;

/// The longest range that one transaction zeroes.
const ZERO_BYTES_MAX: u64 = 64 << 20;

/// A volume of the array. Clones are of the same.
///
/// What fits into 4 MiB is one storage transaction: it happens wholly or not at all, whoever crashes, and all other readers and writers
/// come before it or after it. More is cut at multiples of (about) that, and done one after the other.
#[derive(Clone, Debug)]
pub struct Volume {
    array: Array,
    id: VolumeId,
    bytes: u64,
    stripe: u64,
}

impl Volume {
    pub(crate) fn new(array: Array, volume: VolumeDescription) -> Volume {
        let stripe = volume.layout.stripe_blocks() * BLOCK_BYTES as u64;
        Volume { array, id: volume.id, bytes: volume.bytes, stripe }
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.bytes
    }

    /// The same volume, where each transaction may take so long.
    pub fn within(&self, deadline: Duration) -> Volume {
        Volume { array: self.array.within(deadline), ..self.clone() }
    }

    /// Reads `length` bytes at `offset`. What was never written is zeros.
    pub async fn read(&self, offset: u64, length: usize) -> Result<Bytes, Error> {
        let mut data = BytesMut::new();
        for (offset, length) in self.pieces(offset, length as u64, limits::TRANSACTION_BYTES_MAX as u64)? {
            let volume = self.id;
            let buffers =
                match self.array.call_within(HostRequest::Read { volume, offset, length: length as usize }).await? {
                    HostSuccess::Data(buffers) => buffers,
                    _ => return Err(Error::ProtocolError),
                };
            buffers.iter().for_each(|buffer| data.extend_from_slice(buffer));
        }
        if data.len() == length { Ok(data.freeze()) } else { Err(Error::ProtocolError) }
    }

    /// Writes bytes at `offset`. They are durable when this ends. If it ends in an error, they may be found written or not, each transaction's wholly:
    /// write them again.
    pub async fn write(&self, offset: u64, data: impl Into<Bytes>) -> Result<(), Error> {
        let data = data.into();
        for (at, length) in self.pieces(offset, data.len() as u64, limits::TRANSACTION_BYTES_MAX as u64)? {
            let start = (at - offset) as usize;
            let data = data.slice(start..start + length as usize);
            self.array.call_within(HostRequest::Write { volume: self.id, offset: at, data }).await?;
        }
        Ok(())
    }

    /// Makes a range zeros, and gives the room of whole blocks back. An error means as much as one of [`Volume::write`].
    pub async fn zero(&self, offset: u64, length: u64) -> Result<(), Error> {
        // A device's part has at most one extent in each stripe.
        let most = ZERO_BYTES_MAX.min(self.stripe * (limits::EXTENTS_MAX as u64 - 1));
        for (offset, length) in self.pieces(offset, length, most)? {
            self.array.call_within(HostRequest::Zero { volume: self.id, offset, length }).await?;
        }
        Ok(())
    }

    /// Ends when everything that was answered is durable, which it is anyhow.
    pub async fn flush(&self) -> Result<(), Error> {
        self.array.call_within(HostRequest::Flush { volume: self.id }).await.map(|_| ())
    }

    /// Cuts a range into transactions of whole stripes, whose parity need not be read; what fits into one is one.
    fn pieces(&self, offset: u64, length: u64, most: u64) -> Result<Vec<(u64, u64)>, Error> {
        let end = offset.checked_add(length).filter(|end| *end <= self.bytes).ok_or(Error::OutOfRange)?;
        let whole = if self.stripe <= most { most / self.stripe * self.stripe } else { most };
        Ok(pieces(offset, end, most, whole))
    }
}

/// Pieces of at most `most`, cut at multiples of `whole`.
fn pieces(offset: u64, end: u64, most: u64, whole: u64) -> Vec<(u64, u64)> {
    if end - offset <= most {
        return if offset == end { Vec::new() } else { vec![(offset, end - offset)] };
    }
    let mut pieces = Vec::new();
    let mut at = offset;
    while at < end {
        let next = end.min((at / whole + 1) * whole);
        pieces.push((at, next - at));
        at = next;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::pieces;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_cover_the_range_and_none_is_too_long(
            offset in 0..1000_u64,
            length in 0..1000_u64,
            whole in 1..100_u64,
            more in 0..50_u64,
        ) {
            let most = whole + more;
            let pieces = pieces(offset, offset + length, most, whole);
            let covered: Vec<u64> = pieces.iter().flat_map(|&(start, count)| start..start + count).collect();
            prop_assert_eq!(covered, (offset..offset + length).collect::<Vec<_>>());
            prop_assert!(pieces.iter().all(|&(_, count)| count > 0 && count <= most));
            prop_assert!(length > most || pieces.len() <= 1, "what fits into one is one");
        }
    }
}
