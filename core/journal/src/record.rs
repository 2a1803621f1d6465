//! What the owner of a journal must be able to do with its records. Decoding trusts nothing: a record that makes no sense is damage.

use braid_base::BLOCK_BYTES;
use bytes::{Bytes, TryGetError};

/// A record or batch that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError;

impl From<TryGetError> for DecodeError {
    fn from(_: TryGetError) -> DecodeError {
        DecodeError
    }
}

/// One record, as it is read.
pub trait Record: Sized {
    /// Appends the record, without a payload that it may have.
    fn encode(&self, to: &mut Vec<u8>);
    /// Takes the next record of a batch's description.
    fn decode(from: &mut &[u8], payload: &mut Payload) -> Result<Self, DecodeError>;
}

/// A record that waits for its batch on its own. It may bring blocks: its payload.
pub trait Entry {
    /// Appends the record, without its payload.
    fn encode(&self, to: &mut Vec<u8>);
    /// Its room in the journal, description and payload; it may be a little more than the truth.
    fn room(&self) -> u64;
    /// Bytes of its payload: whole blocks.
    fn payload_len(&self) -> usize;
    /// True if snapshots repeat it until it is decided.
    fn is_carried(&self) -> bool;
    /// Its payload.
    fn payload(&self) -> impl Iterator<Item = &Bytes>;
    /// The same, to be had refer to the batch that it is in.
    fn payload_mut(&mut self) -> impl Iterator<Item = &mut Bytes>;
}

/// The payload of a batch while its records are decoded.
#[derive(Debug)]
pub struct Payload {
    bytes: Bytes,
    whole: bool,
}

impl Payload {
    /// All of a batch's payload.
    pub fn new(bytes: Bytes) -> Payload {
        Payload { bytes, whole: true }
    }

    /// Takes the next `blocks`.
    pub fn take(&mut self, blocks: u64) -> Result<Bytes, DecodeError> {
        let blocks = usize::try_from(blocks).map_err(|_| DecodeError)?;
        let fits = blocks <= self.bytes.len() / BLOCK_BYTES;
        fits.then(|| self.bytes.split_to(blocks * BLOCK_BYTES)).ok_or(DecodeError)
    }

    /// A block of it is not what its record says.
    pub fn is_damaged(&mut self) {
        self.whole = false;
    }

    /// True if no block was found damaged.
    pub fn is_whole(&self) -> bool {
        self.whole
    }
}
