//! Values that the messages and records of others carry without knowing them: they are typed in memory, and bytes on disk and on the wire.

use bytes::Bytes;

/// A value with bytes of its own.
pub trait Encoded: Sized {
    fn encode(&self) -> Bytes;

    /// `None` if this build can't read the bytes.
    fn decode(bytes: &Bytes) -> Option<Self>;
}

impl Encoded for Bytes {
    fn encode(&self) -> Bytes {
        self.clone()
    }

    fn decode(bytes: &Bytes) -> Option<Bytes> {
        Some(bytes.clone())
    }
}

/// A value of another node, or the bytes of one that this build can't read.
impl<T: Encoded> Encoded for Result<T, Bytes> {
    fn encode(&self) -> Bytes {
        self.as_ref().map_or_else(Bytes::clone, T::encode)
    }

    fn decode(bytes: &Bytes) -> Option<Result<T, Bytes>> {
        Some(T::decode(bytes).ok_or_else(|| bytes.clone()))
    }
}
