//! The encoding of numbers, lists and payloads: little endian, every length explicit, every value checked when it is decoded.

use braid_base::Level;
use bytes::Bytes;
use std::time::Duration;

/// The version of the protocol. The crate's documentation has the history.
pub const VERSION: u16 = VERSION_OF_LEVELS - Level::FIRST.0 + Level::KNOWN.0;
/// The lowest version that this release speaks.
pub const VERSION_LOWEST: u16 = VERSION_OF_LEVELS - Level::FIRST.0 + Level::LOWEST.0;
/// The version that came with the first level, and with the hello.
pub(crate) const VERSION_OF_LEVELS: u16 = 16;

/// Why bytes are not a valid frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("these bytes are not a Braid frame")]
    NotBraid,
    /// They have a version or a feature that this release does not know.
    #[error(
        "the peer speaks version {version} of the protocol with features {features:#x}; this one speaks version {VERSION}: bring both to the same release"
    )]
    Version {
        /// The peer's version.
        version: u16,
        /// The peer's features.
        features: u16,
    },
    /// The frame is longer than [`FRAME_BYTES_MAX`](braid_base::limits::FRAME_BYTES_MAX).
    #[error("a frame of {bytes} bytes is longer than allowed")]
    FrameTooLong {
        /// The length according to the header.
        bytes: usize,
    },
    #[error("the frame's checksum does not match")]
    Checksum,
    #[error("the frame ends in the middle of its message")]
    Truncated,
    #[error("a list of {length} items where at most {max} are allowed")]
    TooLong {
        /// The length of the list.
        length: usize,
        max: usize,
    },
    #[error("the frame has an invalid value for {what}")]
    BadValue {
        /// What the value should have been.
        what: &'static str,
    },
    #[error("the frame has more bytes than its message")]
    Trailing,
}

/// Encodes a message into its description and, separately, the bulk data that follows the description on the wire.
pub(crate) struct Writer {
    pub version: u16,
    pub description: Vec<u8>,
    pub payload: Vec<Bytes>,
}

/// Decodes a message.
pub(crate) struct Reader<'a> {
    pub version: u16,
    pub description: &'a [u8],
    pub payload: Bytes,
}

/// A value with an encoding on the wire.
pub(crate) trait Wire: Sized {
    fn put(&self, to: &mut Writer);
    fn take(from: &mut Reader) -> Result<Self, WireError>;
}

impl Writer {
    /// Adds bulk data to the payload. The description holds only its length.
    pub fn put_payload(&mut self, bytes: &Bytes) {
        (bytes.len() as u32).put(self);
        self.payload.push(bytes.clone());
    }

    pub fn put_list<T: Wire>(&mut self, list: &[T]) {
        (list.len() as u32).put(self);
        for item in list {
            item.put(self);
        }
    }
}

impl Reader<'_> {
    pub fn take_payload(&mut self) -> Result<Bytes, WireError> {
        let length = u32::take(self)? as usize;
        if length > self.payload.len() {
            return Err(WireError::Truncated);
        }
        Ok(self.payload.split_to(length))
    }

    /// A list of at most `max` items.
    pub fn take_list<T: Wire>(&mut self, max: usize) -> Result<Vec<T>, WireError> {
        let length = u32::take(self)? as usize;
        if length > max {
            return Err(WireError::TooLong { length, max });
        }
        // Every item takes at least one byte, so that a length beyond the remaining bytes is invalid: no memory is allocated for it.
        if length > self.description.len() {
            return Err(WireError::Truncated);
        }
        (0..length).map(|_| T::take(self)).collect()
    }

    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (array, rest) = self.description.split_first_chunk().ok_or(WireError::Truncated)?;
        self.description = rest;
        Ok(*array)
    }
}

macro_rules! wire_numbers {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            fn put(&self, to: &mut Writer) {
                to.description.extend_from_slice(&self.to_le_bytes());
            }
            fn take(from: &mut Reader) -> Result<Self, WireError> {
                Ok(<$number>::from_le_bytes(from.take_array()?))
            }
        }
    )*};
}
wire_numbers!(u8, u16, u32, u64, i64);

/// Values shorter than this are copied into the description. A separate buffer would cost more, and would keep the whole frame in memory
/// for as long as a small value is in use.
const ASIDE_BYTES: usize = 1024;

/// Long values go into the payload: see [`Writer::put_payload`].
impl Wire for Bytes {
    fn put(&self, to: &mut Writer) {
        if self.len() >= ASIDE_BYTES {
            return to.put_payload(self);
        }
        (self.len() as u32).put(to);
        to.description.extend_from_slice(self);
    }
    fn take(from: &mut Reader) -> Result<Self, WireError> {
        let mut ahead = Reader { version: from.version, description: from.description, payload: Bytes::new() };
        let length = u32::take(&mut ahead)? as usize;
        if length >= ASIDE_BYTES {
            return from.take_payload();
        }
        let (value, rest) = ahead.description.split_at_checked(length).ok_or(WireError::Truncated)?;
        from.description = rest;
        Ok(Bytes::copy_from_slice(value))
    }
}

impl Wire for Duration {
    fn put(&self, to: &mut Writer) {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX).put(to);
    }
    fn take(from: &mut Reader) -> Result<Self, WireError> {
        Ok(Duration::from_nanos(u64::take(from)?))
    }
}

impl Wire for bool {
    fn put(&self, to: &mut Writer) {
        u8::from(*self).put(to);
    }
    fn take(from: &mut Reader) -> Result<Self, WireError> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::BadValue { what: "flag" }),
        }
    }
}

impl Wire for String {
    fn put(&self, to: &mut Writer) {
        to.put_list(self.as_bytes());
    }
    fn take(from: &mut Reader) -> Result<Self, WireError> {
        String::from_utf8(from.take_list(256)?).map_err(|_| WireError::BadValue { what: "text" })
    }
}

impl<T: Wire> Wire for Box<T> {
    fn put(&self, to: &mut Writer) {
        (**self).put(to);
    }
    fn take(from: &mut Reader) -> Result<Self, WireError> {
        Ok(Box::new(T::take(from)?))
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, to: &mut Writer) {
        self.0.put(to);
        self.1.put(to);
    }
    fn take(from: &mut Reader) -> Result<Self, WireError> {
        Ok((A::take(from)?, B::take(from)?))
    }
}
