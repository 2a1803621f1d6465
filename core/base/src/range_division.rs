//! Several lock servers: how they divide the ranges of a space among themselves, which all hosts must compute alike in every release; and how
//! locks of several of them are acquired. And which hosts a lock server calls on.

use crate::units::{format_size, parse_size};
use crate::{BlockRange, ObjectId, Rng};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// How locks of several lock servers are acquired without deadlock (shared-array paper, section 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Acquisition {
    /// One server after the other, in the order of their numbers: no deadlock, at the cost of one round trip for each.
    #[default]
    Ordered,
    /// All servers at once. A server that can't grant in time refuses; then all locks are released, and the attempt is
    /// repeated.
    Timeout,
}

crate::names!(Acquisition { Ordered => "ordered", Timeout => "timeout" });

/// Which hosts a lock server calls on to give back ranges that others want.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Callbacks {
    /// Those that hold the ranges.
    #[default]
    Holder,
    /// All hosts of the node groups of those (range-lock paper, section 3.1).
    Group,
}

crate::names!(Callbacks { Holder => "holder", Group => "group" });

impl FromStr for Callbacks {
    type Err = String;

    fn from_str(text: &str) -> Result<Callbacks, String> {
        Callbacks::from_name(text).ok_or_else(|| format!("'{text}' is neither holder nor group"))
    }
}

/// Which lock servers grant a range. As text: `space`, `round-robin:1MiB`, `hash:64KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RangeDivision {
    /// One server grants all ranges of a space.
    Space,
    /// Pieces of so many bytes are dealt to the servers, one after the other.
    RoundRobin(u64),
    /// Pieces of so many bytes are given to servers by a hash.
    Hash(u64),
}

/// The size of pieces, in bytes.
const PIECE_BYTES: RangeInclusive<u64> = 1..=1 << 40;
/// A range of more pieces than this for each server concerns all servers.
const PIECES_PER_SERVER_MAX: u64 = 16;

impl RangeDivision {
    /// The servers that have to grant a range of bytes of an object, by their indices: those of its pieces, or more. Each of them grants the
    /// whole range, so that locks that overlap meet at the server of each piece that they share.
    pub fn servers(self, object: ObjectId, range: BlockRange, servers: usize) -> BTreeSet<usize> {
        let count = servers as u64;
        let hash = |seed| Rng::new(seed).next_u64();
        let bytes = match self {
            RangeDivision::Space => return [(hash(object.0) % count) as usize].into(),
            RangeDivision::RoundRobin(bytes) | RangeDivision::Hash(bytes) => bytes,
        };
        let (first, last) = (range.start / bytes, (range.end() - 1) / bytes);
        if last - first >= PIECES_PER_SERVER_MAX * count {
            return (0..servers).collect();
        }
        let server_of = |piece: u64| match self {
            RangeDivision::Hash(_) => hash(hash(object.0) ^ piece) % count,
            _ => (object.0 % count + piece % count) % count,
        };
        (first..=last).map(|piece| server_of(piece) as usize).collect()
    }
}

impl Default for RangeDivision {
    fn default() -> RangeDivision {
        RangeDivision::RoundRobin(1 << 20)
    }
}

impl fmt::Display for RangeDivision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |bytes: u64| {
            let short = format_size(bytes).replace(' ', "");
            if parse_size(&short) == Ok(bytes) { short } else { bytes.to_string() }
        };
        match *self {
            RangeDivision::Space => write!(f, "space"),
            RangeDivision::RoundRobin(bytes) => write!(f, "round-robin:{}", exact(bytes)),
            RangeDivision::Hash(bytes) => write!(f, "hash:{}", exact(bytes)),
        }
    }
}

impl From<RangeDivision> for String {
    fn from(division: RangeDivision) -> String {
        division.to_string()
    }
}

impl TryFrom<String> for RangeDivision {
    type Error = String;

    fn try_from(text: String) -> Result<RangeDivision, String> {
        text.parse()
    }
}

impl FromStr for RangeDivision {
    type Err = String;

    fn from_str(text: &str) -> Result<RangeDivision, String> {
        let bytes = |size| parse_size(size).ok().filter(|bytes| PIECE_BYTES.contains(bytes));
        let division = match text.split_once(':') {
            None if text == "space" => Some(RangeDivision::Space),
            Some(("round-robin", size)) => bytes(size).map(RangeDivision::RoundRobin),
            Some(("hash", size)) => bytes(size).map(RangeDivision::Hash),
            _ => None,
        };
        division
            .ok_or_else(|| format!("'{text}' is not space, round-robin:SIZE or hash:SIZE, with a SIZE of at most 1TiB"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_overlap_meet_at_a_server_and_pieces_are_spread() {
        let mut rng = Rng::new(7);
        for division in [RangeDivision::Space, RangeDivision::RoundRobin(10), RangeDivision::Hash(10)] {
            let servers_of = |range| division.servers(ObjectId(1 << 63 | 5), range, 3);
            for _ in 0..2_000 {
                let mut any = || BlockRange::new(rng.below(800), rng.between(1, 600));
                let (one, other) = (any(), any());
                let meet = servers_of(one).intersection(&servers_of(other)).next().is_some();
                assert!(meet || !one.overlaps(other), "{division}: {one:?} {other:?}");
            }
            assert_eq!(servers_of(BlockRange::new(20, 10)).len(), 1);
            let used: BTreeSet<_> = (0..30).flat_map(|piece| servers_of(BlockRange::new(piece * 10, 10))).collect();
            assert_eq!(used.len(), if division == RangeDivision::Space { 1 } else { 3 }, "{division}");
        }
        assert_eq!(RangeDivision::Hash(1).servers(ObjectId(4), BlockRange::new(0, 1 << 52), 16).len(), 16);
        // It can't be changed: hosts of other releases must agree.
        let servers_of = |division: RangeDivision| {
            (0..6).flat_map(|piece| division.servers(ObjectId(4), BlockRange::new(piece, 1), 16)).collect::<Vec<_>>()
        };
        assert_eq!(servers_of(RangeDivision::RoundRobin(1)), [4, 5, 6, 7, 8, 9]);
        assert_eq!(servers_of(RangeDivision::Hash(1)), [11, 7, 7, 6, 12, 8]);
    }

    #[test]
    fn divisions_are_read_as_they_are_written() {
        for text in ["space", "round-robin:1MiB", "hash:65KiB", "hash:4097", "round-robin:1TiB"] {
            assert_eq!(text.parse::<RangeDivision>().map(|division| division.to_string()), Ok(text.to_string()));
        }
        for wrong in ["", "space:1", "hash", "hash:0", "hash:2TiB", "round-robin:x", "random:1MiB"] {
            assert!(wrong.parse::<RangeDivision>().is_err(), "{wrong}");
        }
        assert_eq!(RangeDivision::default().to_string(), "round-robin:1MiB");
    }
}
