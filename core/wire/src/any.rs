//! Values of all that has an encoding, made by a [`Source`]: arbitrary ones for property tests, hostile ones for attacks. The macros of
//! `declarations` make structs and enums; here are numbers, bytes and lists, and what of other crates is valid under conditions only.

use braid_base::{
    BLOCK_BYTES, BlockRange, DeviceId, Epoch, FenceTable, FileSystemId, LockServerId, MemberState, Membership, NodeId,
    Stamp, TransactionId,
};
use braid_blocks::{Content, Piece, Sending};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// The first block behind those whose bytes have 64-bit offsets.
const END: u64 = u64::MAX / BLOCK_BYTES as u64;

/// Chooses the values of which a message is made. Each choice is told the type, and the field that the value is for.
pub trait Source: Sized {
    fn below(&mut self, bound: u64) -> u64;

    /// A number of any size.
    fn number(&mut self, kind: &'static str, field: &'static str) -> u64;

    /// The index of one of an enum's variants.
    fn variant(&mut self, _kind: &'static str, variants: &[&'static str]) -> usize {
        self.below(variants.len() as u64) as usize
    }

    /// Whether a flag is set, or an optional value is there.
    fn is_there(&mut self, _field: &'static str) -> bool {
        self.below(2) == 1
    }

    /// The length of a list.
    fn length(&mut self, _field: &'static str) -> u64 {
        self.below(5)
    }

    /// Mostly short values, and some on both sides of the length from which on a value is in the payload.
    fn bytes(&mut self, _field: &'static str) -> Bytes {
        let length = match self.below(8) {
            0 => 0,
            1 => 1020 + self.below(10),
            2 => 1030 + self.below(2000),
            _ => self.below(40),
        };
        let first = self.below(256);
        (0..length).map(|at| (first ^ at) as u8).collect()
    }

    fn transaction(&mut self) -> TransactionId {
        TransactionId { host: Any::any(self, "host"), sequence: sequence(self) }
    }

    fn stamp(&mut self) -> Stamp {
        Stamp { clock: Any::any(self, "clock"), host: Any::any(self, "host") }
    }

    /// The longest and the last ranges are among them.
    fn range(&mut self, field: &'static str) -> BlockRange {
        let start = self.number("start", field).min(END);
        BlockRange { start, count: self.number("count", field).min(END - start) }
    }

    /// A range of blocks whose data is there.
    fn data_range(&mut self) -> BlockRange {
        BlockRange::new(self.below(1 << 40), self.below(3))
    }
}

/// The numbers from which a value is made. After the last one come zeros: fewer and smaller numbers make simpler values, so that a
/// failing case can be made smaller.
pub(crate) struct Choices<'a>(pub &'a [u64]);

impl Choices<'_> {
    fn next(&mut self) -> u64 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }
}

/// The extreme numbers often.
impl Source for Choices<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn number(&mut self, _kind: &'static str, _field: &'static str) -> u64 {
        match self.below(3) {
            0 => self.below(100),
            1 => self.next(),
            _ => u64::MAX,
        }
    }
}

/// A valid value that depends on the source alone.
pub trait Any {
    fn any<S: Source>(of: &mut S, field: &'static str) -> Self;
}

/// The highest sequence number is none.
pub(crate) fn sequence<S: Source>(of: &mut S) -> u64 {
    of.number("u64", "sequence").min(u64::MAX - 1)
}

macro_rules! any_number {
    ($($number:ident),*) => {$(
        impl Any for $number {
            fn any<S: Source>(of: &mut S, field: &'static str) -> Self {
                of.number(stringify!($number), field) as $number
            }
        }
    )*};
}
any_number!(u8, u16, u32, u64, i64);

impl Any for bool {
    fn any<S: Source>(of: &mut S, field: &'static str) -> Self {
        of.is_there(field)
    }
}

impl Any for Duration {
    fn any<S: Source>(of: &mut S, field: &'static str) -> Self {
        Duration::from_nanos(of.number("Duration", field))
    }
}

/// Characters of any length, so that 64 have at most 256 bytes.
impl Any for String {
    fn any<S: Source>(of: &mut S, _field: &'static str) -> Self {
        (0..of.below(65)).map(|_| char::from_u32(of.below(0x11_0000) as u32).unwrap_or('?')).collect()
    }
}

impl Any for Bytes {
    fn any<S: Source>(of: &mut S, field: &'static str) -> Self {
        of.bytes(field)
    }
}

impl Any for () {
    fn any<S: Source>(_of: &mut S, _field: &'static str) -> Self {}
}

impl<A: Any, B: Any> Any for (A, B) {
    fn any<S: Source>(of: &mut S, field: &'static str) -> Self {
        (A::any(of, field), B::any(of, field))
    }
}

impl<T: Any> Any for Box<T> {
    fn any<S: Source>(of: &mut S, field: &'static str) -> Self {
        Box::new(T::any(of, field))
    }
}

impl<T: Any> Any for Vec<T> {
    fn any<S: Source>(of: &mut S, field: &'static str) -> Self {
        (0..of.length(field)).map(|_| T::any(of, field)).collect()
    }
}

impl<T: Any> Any for Option<T> {
    fn any<S: Source>(of: &mut S, field: &'static str) -> Self {
        of.is_there(field).then(|| T::any(of, field))
    }
}

impl<T: Any, E: Any> Any for Result<T, E> {
    fn any<S: Source>(of: &mut S, field: &'static str) -> Self {
        if of.below(4) == 1 { Err(E::any(of, field)) } else { Ok(T::any(of, field)) }
    }
}

impl Any for NodeId {
    fn any<S: Source>(of: &mut S, field: &'static str) -> Self {
        match of.below(5) {
            0 => NodeId::Monitor,
            1 => NodeId::Host(Any::any(of, field)),
            2 => NodeId::Device(Any::any(of, field)),
            3 => NodeId::LockServer(LockServerId(of.number("LockServerId", field) as u16)),
            _ => NodeId::MetadataServer(FileSystemId::any(of, field)),
        }
    }
}

impl Any for TransactionId {
    fn any<S: Source>(of: &mut S, _field: &'static str) -> Self {
        of.transaction()
    }
}

impl Any for Stamp {
    fn any<S: Source>(of: &mut S, _field: &'static str) -> Self {
        of.stamp()
    }
}

impl Any for BlockRange {
    fn any<S: Source>(of: &mut S, field: &'static str) -> Self {
        of.range(field)
    }
}

impl Any for Sending {
    fn any<S: Source>(of: &mut S, field: &'static str) -> Self {
        let blocks = BlockRange::any(of, field);
        let at = of.number("u64", "at").min(END.saturating_sub(blocks.count));
        Sending { blocks, to: Any::any(of, "to"), at, what: Any::any(of, "what") }
    }
}

impl Any for Piece {
    fn any<S: Source>(of: &mut S, field: &'static str) -> Self {
        let content = match of.variant("Content", &["Hole", "Present", "Lost", "Header", "Data"]) {
            0 => Content::Hole,
            1 => Content::Present,
            2 => Content::Lost,
            3 => Content::Header { transaction: Any::any(of, field), linkage: Any::any(of, field) },
            _ => {
                let range = of.data_range();
                let data = vec![of.below(256) as u8; range.count as usize * BLOCK_BYTES];
                return Piece { range, content: Content::Data(data.into()) };
            }
        };
        Piece { range: Any::any(of, field), content }
    }
}

impl Any for FenceTable {
    fn any<S: Source>(of: &mut S, _field: &'static str) -> Self {
        let mut hosts = |field| Vec::any(of, field).into_iter().collect();
        FenceTable { except: hosts("except"), also: hosts("also"), below: Any::any(of, "below") }
    }
}

/// A membership that a monitor may create: each device once, present since some epoch up to this one.
impl Any for Membership {
    fn any<S: Source>(of: &mut S, field: &'static str) -> Self {
        let epoch = Epoch::any(of, field);
        let mut members: BTreeMap<DeviceId, braid_base::Member> = BTreeMap::new();
        for mut member in Vec::<braid_base::Member>::any(of, "members") {
            member.since = member.since.min(epoch);
            if let MemberState::Returning { recovery_coordinator: Some(coordinator) } = &mut member.member_state {
                coordinator.0 = coordinator.0.max(1);
            }
            members.insert(member.device, member);
        }
        Membership { epoch, members: members.into_values().collect(), fence: Any::any(of, "fence") }
    }
}
