//! The traits that the records of a journal's owner implement. Decoding checks everything: an invalid record is reported as damage.

use braid_base::BLOCK_BYTES;
use bytes::{Bytes, TryGetError};

/// A record or batch is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError;

impl From<TryGetError> for DecodeError {
    fn from(_: TryGetError) -> DecodeError {
        DecodeError
    }
}

/// A record of the journal.
pub trait Record: Sized {
    /// Appends the record, without its payload.
    fn encode(&self, to: &mut Vec<u8>);
    /// Decodes the next record of a batch.
    fn decode(from: &mut &[u8], payload: &mut Payload) -> Result<Self, DecodeError>;
}

/// A record that is queued individually for a batch, and may have a payload of blocks.
pub trait Entry {
    /// Appends the record, without its payload.
    fn encode(&self, to: &mut Vec<u8>);
    /// An upper bound of the bytes that it takes in the journal, including the payload.
    fn room(&self) -> u64;
    /// Bytes of its payload: whole blocks.
    fn payload_len(&self) -> usize;
    /// True if snapshots repeat the entry until it is decided.
    fn is_carried(&self) -> bool;
    fn payload(&self) -> impl Iterator<Item = &Bytes>;
    /// The payload, to replace its buffers by slices of the batch's buffer.
    fn payload_mut(&mut self) -> impl Iterator<Item = &mut Bytes>;
}

/// The payload of a batch, from which records take their blocks when they are decoded.
#[derive(Clone, Debug)]
pub struct Payload {
    bytes: Bytes,
    whole: bool,
}

impl Payload {
    pub fn new(bytes: Bytes) -> Payload {
        Payload { bytes, whole: true }
    }

    /// Takes the next `blocks` blocks.
    pub fn take(&mut self, blocks: u64) -> Result<Bytes, DecodeError> {
        let blocks = usize::try_from(blocks).map_err(|_| DecodeError)?;
        let fits = blocks <= self.bytes.len() / BLOCK_BYTES;
        fits.then(|| self.bytes.split_to(blocks * BLOCK_BYTES)).ok_or(DecodeError)
    }

    /// Notes that a block does not match the checksum in its record.
    pub fn is_damaged(&mut self) {
        self.whole = false;
    }

    /// True if no block was found damaged.
    pub fn is_whole(&self) -> bool {
        self.whole
    }
}
