//! A volume: a sequence of bytes, spread over several devices.

use crate::array::Array;
use crate::error::Error;
use braid_base::{BLOCK_BYTES, VolumeId, limits};
use braid_layout::{VolumeDescription, pieces};
use braid_machine::{HostSuccess, Patience, VolumeRequest};
use bytes::{Bytes, BytesMut};
use std::time::Duration;

/// The longest range that one transaction zeroes, in bytes.
const ZERO_BYTES_MAX: u64 = 64 << 20;

/// A volume of the array. Clones refer to the same volume.
///
/// A read or write of up to 4 MiB is one storage transaction: it takes effect as a whole or not at all, whichever process crashes, and is
/// ordered before or after every other read and write. A longer one is split into several transactions, one after the other, at multiples
/// of the largest whole number of stripes in 4 MiB.
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

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.bytes
    }

    /// The same volume with another deadline for each transaction.
    pub fn within(&self, deadline: Duration) -> Volume {
        Volume { array: self.array.within(deadline), ..self.clone() }
    }

    /// Reads `length` bytes at `offset`, both in bytes. Ranges that were never written read as zeros.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::Unavailable`] or [`Error::TimedOut`] while too many devices are unavailable.
    pub async fn read(&self, offset: u64, length: usize) -> Result<Bytes, Error> {
        let mut data = BytesMut::new();
        for (offset, length) in self.pieces(offset, length as u64, limits::TRANSACTION_BYTES_MAX as u64)? {
            let (volume, length, patience) = (self.id, length as usize, Patience::Host);
            let read = self.array.call_within(VolumeRequest::Read { volume, offset, length, patience }).await?;
            let HostSuccess::Data(buffers) = read else { return Err(Error::ProtocolError) };
            buffers.iter().for_each(|buffer| data.extend_from_slice(buffer));
        }
        if data.len() == length { Ok(data.freeze()) } else { Err(Error::ProtocolError) }
    }

    /// Writes bytes at `offset`, which is in bytes. They are durable when this returns.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], and nothing is written. After any other error, each transaction of the write has taken effect as a whole or
    /// not at all: repeat the write.
    pub async fn write(&self, offset: u64, data: impl Into<Bytes>) -> Result<(), Error> {
        let data = data.into();
        for (at, length) in self.pieces(offset, data.len() as u64, limits::TRANSACTION_BYTES_MAX as u64)? {
            let start = (at - offset) as usize;
            let data = data.slice(start..start + length as usize);
            self.array
                .call_within(VolumeRequest::Write { volume: self.id, offset: at, data, patience: Patience::Host })
                .await?;
        }
        Ok(())
    }

    /// Zeroes a range, in bytes, and releases the space of whole blocks.
    ///
    /// # Errors
    /// The same as those of [`Volume::write`].
    pub async fn zero(&self, offset: u64, length: u64) -> Result<(), Error> {
        // The range on one device has at most one extent in each stripe.
        let most = ZERO_BYTES_MAX.min(self.stripe * (limits::EXTENTS_MAX as u64 - 1));
        for (offset, length) in self.pieces(offset, length, most)? {
            self.array
                .call_within(VolumeRequest::Zero { volume: self.id, offset, length, patience: Patience::Host })
                .await?;
        }
        Ok(())
    }

    /// Does nothing: acknowledged writes are already durable. It is there for programs that expect such a call.
    pub async fn flush(&self) -> Result<(), Error> {
        self.array.call_within(VolumeRequest::Flush { volume: self.id }).await.map(|_| ())
    }

    /// Splits a range into transactions of whole stripes, so that parity need not be read. A range that fits into one transaction is not
    /// split.
    fn pieces(&self, offset: u64, length: u64, most: u64) -> Result<Vec<(u64, u64)>, Error> {
        let end = offset.checked_add(length).filter(|end| *end <= self.bytes).ok_or(Error::OutOfRange)?;
        let whole = if self.stripe <= most { most / self.stripe * self.stripe } else { most };
        Ok(pieces(offset, end, most, whole))
    }
}
