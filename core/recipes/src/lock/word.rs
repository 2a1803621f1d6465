//! The format of a lock's word.
//!
//! ```text
//!   1  version, 1       1  mode: 1 exclusive, 2 shared      1  number of holders     the holders' entries      0 or 1, and the mark's entry
//! ```
//!
//! An entry is its name's length (1) and bytes, nonce (8), heartbeat (8) and lease in nanoseconds (8); numbers are big-endian. A lock that
//! is free and has no mark is a value of no bytes.

use super::Mode;
use crate::lease::Entry;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The most readers at once. Others wait.
pub const READERS_MAX: usize = 64;

const VERSION: u8 = 1;

/// The holders of a lock, and the writer that is next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// How `holders` hold it.
    pub mode: Mode,
    pub holders: Vec<Entry>,
    /// A writer that waits for the readers to end.
    pub mark: Option<Entry>,
}

impl Word {
    pub fn encode(&self) -> Bytes {
        if self.holders.is_empty() && self.mark.is_none() {
            return Bytes::new();
        }
        let mut word = BytesMut::new();
        word.put_u8(VERSION);
        word.put_u8(match self.mode {
            Mode::Exclusive => 1,
            Mode::Shared => 2,
        });
        word.put_u8(self.holders.len() as u8);
        self.holders.iter().for_each(|entry| entry.put(&mut word));
        word.put_u8(u8::from(self.mark.is_some()));
        self.mark.iter().for_each(|entry| entry.put(&mut word));
        word.freeze()
    }

    pub fn decode(word: &Bytes) -> Option<Word> {
        if word.is_empty() {
            return Some(Word { mode: Mode::Exclusive, holders: Vec::new(), mark: None });
        }
        let mut word = word.clone();
        let version = word.try_get_u8().ok()?;
        let (mode, most) = match word.try_get_u8().ok()? {
            1 => (Mode::Exclusive, 1),
            2 => (Mode::Shared, READERS_MAX),
            _ => return None,
        };
        let count = usize::from(word.try_get_u8().ok()?);
        if version != VERSION || count > most {
            return None;
        }
        let holders = (0..count).map(|_| Entry::take(&mut word)).collect::<Option<Vec<_>>>()?;
        let mark = match word.try_get_u8().ok()? {
            0 => None,
            1 => Some(Entry::take(&mut word)?),
            _ => return None,
        };
        word.is_empty().then_some(Word { mode, holders, mark })
    }

    pub fn holder(&self, nonce: u64) -> Option<&Entry> {
        self.holders.iter().find(|entry| entry.nonce == nonce)
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.holders.iter().chain(&self.mark)
    }
}
