//! The bytes of numbers, lists, verdicts and operations, which messages and records share. Decoding checks every length against what is
//! there and against the bounds.

use crate::{Operation, Payload, Protocol, TransactionName, Verdict};
use braid_base::limits::SHARD_OPERATIONS_MAX;
use braid_base::{Encoded, ShardId};
use bytes::{Buf, BufMut, Bytes, TryGetError};

/// A message or record is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid message or record of the commit protocols")]
pub struct DecodeError;

impl From<TryGetError> for DecodeError {
    fn from(_: TryGetError) -> DecodeError {
        DecodeError
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub fn finish(self) -> Bytes {
        self.0.into()
    }

    pub fn byte(&mut self, byte: u8) {
        self.0.put_u8(byte);
    }

    pub fn number(&mut self, number: u64) {
        self.0.put_u64_le(number);
    }

    pub fn shard(&mut self, shard: &ShardId) {
        self.byte(shard.0);
    }

    pub fn name(&mut self, name: TransactionName) {
        self.shard(&name.shard);
        self.number(name.sequence);
    }

    pub fn value(&mut self, value: &impl Encoded) {
        let bytes = value.encode();
        self.0.put_u32_le(u32::try_from(bytes.len()).expect("an operation is smaller than 4 GiB"));
        self.0.put_slice(&bytes);
    }

    pub fn list<T>(&mut self, list: &[T], mut each: impl FnMut(&mut Writer, &T)) {
        self.0.put_u32_le(u32::try_from(list.len()).expect("lists are bounded"));
        list.iter().for_each(|item| each(self, item));
    }

    pub fn verdict<P: Payload>(&mut self, verdict: &Verdict<P>) {
        match verdict {
            Verdict::Accepted { answer } => {
                self.byte(1);
                self.value(answer);
            }
            Verdict::Refused { reason } => {
                self.byte(2);
                self.value(reason);
            }
        }
    }

    pub fn operation<P: Payload>(&mut self, operation: &Operation<P>) {
        self.value(&operation.own);
        self.list(&operation.requests, Writer::value);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Reader(Bytes);

impl Reader {
    pub fn new(bytes: Bytes) -> Reader {
        Reader(bytes)
    }

    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.0.try_get_u8()?)
    }

    pub fn number(&mut self) -> Result<u64, DecodeError> {
        Ok(self.0.try_get_u64_le()?)
    }

    pub fn protocol(&mut self) -> Result<Protocol, DecodeError> {
        Protocol::of_number(self.byte()?).ok_or(DecodeError)
    }

    pub fn shard(&mut self) -> Result<ShardId, DecodeError> {
        Ok(ShardId(self.byte()?))
    }

    pub fn name(&mut self) -> Result<TransactionName, DecodeError> {
        Ok(TransactionName { shard: self.shard()?, sequence: self.number()? })
    }

    pub fn value<T: Encoded>(&mut self) -> Result<T, DecodeError> {
        let length = self.0.try_get_u32_le()? as usize;
        if length > self.0.remaining() {
            return Err(DecodeError);
        }
        T::decode(&self.0.split_to(length)).ok_or(DecodeError)
    }

    /// A list of at most as many items as a transaction has operations.
    pub fn list<T>(&mut self, each: impl Fn(&mut Reader) -> Result<T, DecodeError>) -> Result<Vec<T>, DecodeError> {
        let length = self.0.try_get_u32_le()? as usize;
        if length > SHARD_OPERATIONS_MAX {
            return Err(DecodeError);
        }
        (0..length).map(|_| each(self)).collect()
    }

    pub fn verdict<P: Payload>(&mut self) -> Result<Verdict<P>, DecodeError> {
        match self.byte()? {
            1 => Ok(Verdict::Accepted { answer: self.value()? }),
            2 => Ok(Verdict::Refused { reason: self.value()? }),
            _ => Err(DecodeError),
        }
    }

    pub fn operation<P: Payload>(&mut self) -> Result<Operation<P>, DecodeError> {
        Ok(Operation { own: self.value()?, requests: self.list(Reader::value)? })
    }

    /// Nothing may follow.
    pub fn end(&self) -> Result<(), DecodeError> {
        if self.0.has_remaining() { Err(DecodeError) } else { Ok(()) }
    }
}
