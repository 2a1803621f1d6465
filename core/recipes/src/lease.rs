//! Leases: the entries of holders in words, and how other clients detect that a holder is lost.
//!
//! The clocks of different machines are never compared. A holder renews its entry by raising its *heartbeat*. A waiting client measures, by
//! its own clock, for how long it has seen the same heartbeat; after a whole lease, the holder is lost. The measurement begins when an
//! answer with that heartbeat arrives, and ends when the request is sent that takes the holder's place. That request compares the word: so
//! the holder has not renewed for a lease. The holder itself counts from when it *sent* its last renewal, and subtracts [`MARGIN`], since
//! clock rates differ: so it considers its lease expired before others do.

use braid_base::{Rng, Time};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use std::time::Duration;

pub const NAME_BYTES_MAX: usize = 64;
/// A longer lease in a word counts as this, since words are not trusted.
pub const LEASE_MAX: Duration = Duration::from_secs(3600);
/// A holder considers its lease expired this part of it early (one sixteenth): other clocks may run that much faster.
pub const MARGIN: u32 = 16;

/// A name of a holder: any bytes, [`NAME_BYTES_MAX`] at most. Longer names are truncated.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Name(Bytes);

impl Name {
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(name: &str) -> Name {
        Name(Bytes::copy_from_slice(&name.as_bytes()[..name.len().min(NAME_BYTES_MAX)]))
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// A holder or waiting client in a word.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub name: Name,
    /// Random for each operation: distinguishes this hold from any other, even of the same name.
    pub nonce: u64,
    /// Grows with each renewal.
    pub heartbeat: u64,
    pub lease: Duration,
}

impl Entry {
    pub fn new(name: Name, lease: Duration, rng: &mut Rng) -> Entry {
        Entry { name, nonce: rng.next_u64(), heartbeat: 0, lease: lease.min(LEASE_MAX) }
    }

    pub fn next_heartbeat(&self) -> Entry {
        // Another client may have written any number into the word.
        Entry { heartbeat: self.heartbeat.wrapping_add(1), ..self.clone() }
    }

    pub fn put(&self, word: &mut BytesMut) {
        word.put_u8(self.name.0.len() as u8);
        word.put_slice(&self.name.0);
        word.put_u64(self.nonce);
        word.put_u64(self.heartbeat);
        word.put_u64(self.lease.as_nanos() as u64);
    }

    pub fn take(word: &mut Bytes) -> Option<Entry> {
        let length = usize::from(word.try_get_u8().ok()?);
        if length > NAME_BYTES_MAX || word.len() < length {
            return None;
        }
        let name = Name(word.split_to(length));
        let nonce = word.try_get_u64().ok()?;
        let heartbeat = word.try_get_u64().ok()?;
        let lease = Duration::from_nanos(word.try_get_u64().ok()?).min(LEASE_MAX);
        Some(Entry { name, nonce, heartbeat, lease })
    }
}

/// Until when a holder that sent its last renewal at `sent` is sure to hold.
pub(crate) fn sure_until(sent: Time, lease: Duration) -> Time {
    sent.after(lease - lease / MARGIN)
}

/// Since when each heartbeat has been seen (of a nonce), by the watching client's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Watch(BTreeMap<(u64, u64), Time>);

impl Watch {
    /// The word contains these entries now, and no others.
    pub fn see<'a>(&mut self, now: Time, entries: impl Iterator<Item = &'a Entry>) {
        self.see_heartbeats(now, entries.map(|entry| (entry.nonce, entry.heartbeat)));
    }

    /// The same for heartbeats without an entry, given as pairs of numbers.
    pub fn see_heartbeats(&mut self, now: Time, heartbeats: impl Iterator<Item = (u64, u64)>) {
        let since = |heartbeat| (heartbeat, self.0.get(&heartbeat).copied().unwrap_or(now));
        self.0 = heartbeats.map(since).collect();
    }

    /// True if an entry has been unchanged for its whole lease.
    pub fn lost(&self, now: Time, entry: &Entry) -> bool {
        self.same_for(now, (entry.nonce, entry.heartbeat)) >= entry.lease.max(Duration::from_nanos(1))
    }

    /// For how long this heartbeat has been unchanged; zero if it was not seen.
    pub fn same_for(&self, now: Time, heartbeat: (u64, u64)) -> Duration {
        self.0.get(&heartbeat).map_or(Duration::ZERO, |since| now.since(*since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_heartbeat_that_is_in_a_word_has_a_next_one() {
        let last = Entry { heartbeat: u64::MAX, ..Entry::new("a".into(), Duration::ZERO, &mut Rng::new(1)) };
        assert_ne!(last.next_heartbeat().heartbeat, u64::MAX);
    }
}
