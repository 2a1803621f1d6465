//! The first bytes of a connection, from each side: which versions of the wire format a release speaks, and which levels of an array it
//! knows. Both sides then speak the highest version that both know. This form never changes: a later release can only add bytes behind it.
//!
//! ```text
//!   0  magic "BRAH"            4      12  level of the array, as far as known    2
//!   4  bytes behind these 64   2      14  zeros                                  2
//!   6  lowest version          2      16  array id                              16
//!   8  highest version         2      32  release, UTF-8, then zeros            28
//!  10  highest level known     2      60  CRC32C over bytes 0 to 59              4
//! ```
//!
//! The node that makes a connection says it first, and sends no frame before the answer. All numbers are little endian.

use crate::frame::{MAGIC as FRAME_MAGIC, VERSION, VERSION_LOWEST, VERSION_OF_LEVELS, WireError};
use braid_base::checksum::crc32c;
use braid_base::{ArrayId, Level};
use bytes::{Buf, BufMut, Bytes};

/// The first bytes of a connection.
pub const MAGIC: [u8; 4] = *b"BRAH";
/// Bytes without those of later releases.
pub const HELLO_BYTES: usize = 64;
/// The most bytes that a later release may add.
pub const EXTRA_BYTES_MAX: usize = 1024;
const RELEASE_BYTES: usize = 28;
const CRC_AT: usize = 60;

/// What a program says of itself when it is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub array: ArrayId,
    /// The versions of the wire format that it speaks: the lowest and the highest.
    pub versions: (u16, u16),
    /// The highest level that it knows.
    pub knows: Level,
    /// The level of the array, as far as it has heard.
    pub level: Level,
    /// Its release, for people.
    pub release: String,
}

/// Why two programs can't speak to each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disagreement {
    #[error(
        "release {release} speaks versions {lowest} to {highest} of the protocol, and this release {VERSION_LOWEST} to {VERSION}: \
         use releases that follow each other"
    )]
    Versions {
        /// Theirs.
        release: String,
        lowest: u16,
        highest: u16,
    },
    #[error("the array has level {level}, and this release knows level {}: use a newer release", Level::KNOWN)]
    WeAreOld {
        /// The level of the array.
        level: Level,
    },
    #[error("the array has level {level}, and release {release} knows level {knows}: use a newer release there")]
    TheyAreOld {
        /// Theirs.
        release: String,
        knows: Level,
        /// The level of the array.
        level: Level,
    },
}

impl Disagreement {
    /// The level of the array has risen above what the peer knows.
    pub fn risen(knows: Level, level: Level) -> Disagreement {
        Disagreement::TheyAreOld { release: "at the other end".to_string(), knows, level }
    }
}

impl Hello {
    /// That of this release, in an array of this level.
    pub fn ours(array: ArrayId, level: Level) -> Hello {
        let release = env!("CARGO_PKG_VERSION").to_string();
        Hello { array, versions: (VERSION_LOWEST, VERSION), knows: Level::KNOWN, level, release }
    }

    /// The version that both speak.
    pub fn agree(&self, theirs: &Hello) -> Result<u16, Disagreement> {
        let release = || theirs.release.clone();
        let level = self.level.max(theirs.level);
        if level > self.knows {
            return Err(Disagreement::WeAreOld { level });
        }
        if level > theirs.knows {
            return Err(Disagreement::TheyAreOld { release: release(), knows: theirs.knows, level });
        }
        let ((lowest, highest), both) = (theirs.versions, self.versions.1.min(theirs.versions.1));
        let is_common = both >= self.versions.0.max(lowest);
        if is_common { Ok(both) } else { Err(Disagreement::Versions { release: release(), lowest, highest }) }
    }

    pub fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(HELLO_BYTES);
        bytes.put_slice(&MAGIC);
        bytes.put_u16_le(0);
        for number in [self.versions.0, self.versions.1, self.knows.0, self.level.0, 0] {
            bytes.put_u16_le(number);
        }
        bytes.put_slice(&self.array.0);
        // A longer name is cut between two characters.
        let end = (0..=RELEASE_BYTES.min(self.release.len())).rev().find(|end| self.release.is_char_boundary(*end));
        bytes.put_slice(&self.release.as_bytes()[..end.unwrap_or(0)]);
        bytes.resize(CRC_AT, 0);
        bytes.put_u32_le(crc32c(&bytes));
        bytes.into()
    }

    /// The hello at the beginning of `bytes`, and how many bytes it takes; `None` if there are too few yet.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Hello, usize)>, WireError> {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] == FRAME_MAGIC[..known] && bytes[..known] != MAGIC[..known] {
            // Up to version 15, a connection begins with a frame.
            let Some(version) = bytes.get(4..6) else { return Ok(None) };
            return Err(match u16::from_le_bytes([version[0], version[1]]) {
                version @ ..VERSION_OF_LEVELS => WireError::Version { version, features: 0 },
                _ => WireError::BadValue { what: "hello" },
            });
        }
        if bytes[..known] != MAGIC[..known] {
            return Err(WireError::NotBraid);
        }
        let Some(mut from) = bytes.get(MAGIC.len()..HELLO_BYTES) else { return Ok(None) };
        if crc32c(&bytes[..CRC_AT]) != u32::from_le_bytes(bytes[CRC_AT..HELLO_BYTES].try_into().expect("four bytes")) {
            return Err(WireError::Checksum);
        }
        let extra = usize::from(from.get_u16_le());
        if extra > EXTRA_BYTES_MAX {
            return Err(WireError::TooLong { length: extra, max: EXTRA_BYTES_MAX });
        }
        if bytes.len() < HELLO_BYTES + extra {
            return Ok(None);
        }
        let versions = (from.get_u16_le(), from.get_u16_le());
        let (knows, level) = (Level(from.get_u16_le()), Level(from.get_u16_le()));
        from.advance(2);
        let mut array = ArrayId([0; 16]);
        from.copy_to_slice(&mut array.0);
        let name = from[..RELEASE_BYTES].split(|byte| *byte == 0).next().unwrap_or_default();
        let release = std::str::from_utf8(name).map_err(|_| WireError::BadValue { what: "release" })?;
        // It is shown to people.
        if release.chars().any(char::is_control) {
            return Err(WireError::BadValue { what: "release" });
        }
        let hello = Hello { array, versions, knows, level, release: release.to_string() };
        Ok(Some((hello, HELLO_BYTES + extra)))
    }
}
