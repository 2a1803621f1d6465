//! Arbitrary values of all that has an encoding, for property tests. The macros of `message_codec` choose the variant of an enum and the
//! fields of a struct; here are numbers, bytes and lists, and all that is valid under conditions only.

use crate::files::FileRequest;
use crate::frame::Frame;
use crate::message::{Command, Request};
use braid_base::{
    ArrayId, BLOCK_BYTES, BlockRange, DeviceId, Epoch, FenceTable, FileSystemId, Generation, LockServerId, MemberState,
    Membership, NodeId, TransactionId,
};
use braid_blocks::{Content, Piece, Sending};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// The first block behind those whose bytes have 64-bit offsets.
const END: u64 = u64::MAX / BLOCK_BYTES as u64;

/// The numbers from which a value is made. After the last one come zeros: fewer and smaller numbers make simpler values, so that a
/// failing case can be made smaller.
pub(crate) struct Choices<'a>(pub &'a [u64]);

/// A valid value that depends on the choices alone.
pub(crate) trait Any {
    fn any(of: &mut Choices) -> Self;
}

impl Choices<'_> {
    fn next(&mut self) -> u64 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A number of any size, the extreme ones often.
    fn number(&mut self) -> u64 {
        match self.below(3) {
            0 => self.below(100),
            1 => self.next(),
            _ => u64::MAX,
        }
    }

    /// The highest sequence number is none.
    fn sequence(&mut self) -> u64 {
        self.number().min(u64::MAX - 1)
    }
}

macro_rules! any_number {
    ($($number:ty),*) => {$(
        impl Any for $number {
            fn any(of: &mut Choices) -> Self {
                of.number() as $number
            }
        }
    )*};
}
any_number!(u8, u16, u32, u64, i64);

impl Any for bool {
    fn any(of: &mut Choices) -> Self {
        of.below(2) == 1
    }
}

impl Any for Duration {
    fn any(of: &mut Choices) -> Self {
        Duration::from_nanos(Any::any(of))
    }
}

/// Characters of any length, so that 64 have at most 256 bytes.
impl Any for String {
    fn any(of: &mut Choices) -> Self {
        (0..of.below(65)).map(|_| char::from_u32(of.below(0x11_0000) as u32).unwrap_or('?')).collect()
    }
}

/// Mostly short values, and some on both sides of the length from which on a value is in the payload.
impl Any for Bytes {
    fn any(of: &mut Choices) -> Self {
        let length = match of.below(8) {
            0 => 0,
            1 => 1020 + of.below(10),
            2 => 1030 + of.below(2000),
            _ => of.below(40),
        };
        let first = of.below(256);
        (0..length).map(|at| (first ^ at) as u8).collect()
    }
}

impl Any for () {
    fn any(_: &mut Choices) -> Self {}
}

impl<A: Any, B: Any> Any for (A, B) {
    fn any(of: &mut Choices) -> Self {
        (A::any(of), B::any(of))
    }
}

impl<T: Any> Any for Box<T> {
    fn any(of: &mut Choices) -> Self {
        Box::new(T::any(of))
    }
}

impl<T: Any> Any for Vec<T> {
    fn any(of: &mut Choices) -> Self {
        (0..of.below(5)).map(|_| T::any(of)).collect()
    }
}

impl<T: Any> Any for Option<T> {
    fn any(of: &mut Choices) -> Self {
        bool::any(of).then(|| T::any(of))
    }
}

impl<T: Any, E: Any> Any for Result<T, E> {
    fn any(of: &mut Choices) -> Self {
        if of.below(4) == 1 { Err(E::any(of)) } else { Ok(T::any(of)) }
    }
}

impl Any for NodeId {
    fn any(of: &mut Choices) -> Self {
        match of.below(5) {
            0 => NodeId::Monitor,
            1 => NodeId::Host(Generation::any(of)),
            2 => NodeId::Device(DeviceId::any(of)),
            3 => NodeId::LockServer(LockServerId(Any::any(of))),
            _ => NodeId::MetadataServer(FileSystemId::any(of)),
        }
    }
}

impl Any for TransactionId {
    fn any(of: &mut Choices) -> Self {
        TransactionId { host: Any::any(of), sequence: of.sequence() }
    }
}

/// The longest and the last ranges are among them.
impl Any for BlockRange {
    fn any(of: &mut Choices) -> Self {
        let start = of.number().min(END);
        BlockRange::new(start, of.number().min(END - start))
    }
}

impl Any for Sending {
    fn any(of: &mut Choices) -> Self {
        let blocks = BlockRange::any(of);
        Sending { blocks, to: Any::any(of), at: of.number().min(END - blocks.count), what: Any::any(of) }
    }
}

impl Any for Piece {
    fn any(of: &mut Choices) -> Self {
        let content = match of.below(5) {
            0 => Content::Hole,
            1 => Content::Present,
            2 => Content::Lost,
            3 => Content::Header { transaction: Any::any(of), linkage: Any::any(of) },
            _ => {
                let range = BlockRange::new(of.below(1 << 40), of.below(3));
                let data = vec![of.below(256) as u8; range.count as usize * BLOCK_BYTES];
                return Piece { range, content: Content::Data(data.into()) };
            }
        };
        Piece { range: Any::any(of), content }
    }
}

impl Any for FenceTable {
    fn any(of: &mut Choices) -> Self {
        let mut hosts = || Vec::any(of).into_iter().collect();
        FenceTable { except: hosts(), also: hosts(), below: Any::any(of) }
    }
}

/// A membership that a monitor may create: each device once, present since some epoch up to this one.
impl Any for Membership {
    fn any(of: &mut Choices) -> Self {
        let epoch = Epoch::any(of);
        let mut members: BTreeMap<DeviceId, braid_base::Member> = BTreeMap::new();
        for mut member in Vec::<braid_base::Member>::any(of) {
            member.since = member.since.min(epoch);
            if let MemberState::Returning { recovery_coordinator: Some(coordinator) } = &mut member.member_state {
                coordinator.0 = coordinator.0.max(1);
            }
            members.insert(member.device, member);
        }
        Membership { epoch, members: members.into_values().collect(), fence: Any::any(of) }
    }
}

impl Any for FileRequest {
    fn any(of: &mut Choices) -> Self {
        let sequence = of.sequence();
        FileRequest { host: Any::any(of), settled: Any::any(of), over: Any::any(of), sequence, command: Any::any(of) }
    }
}

/// What object requests list as abandoned are ascending intervals that do not touch.
impl Any for Request {
    fn any(of: &mut Choices) -> Self {
        let mut command = Command::any(of);
        if let Command::Objects { sequence, abandoned, .. } = &mut command {
            *sequence = (*sequence).min(u64::MAX - 1);
            let mut last = 0;
            for (first, behind) in abandoned {
                *first = last + 1 + *first % (1 << 60);
                *behind = *first + 1 + *behind % (1 << 8);
                last = *behind;
            }
        }
        let (host, epoch, settled) = (Any::any(of), Any::any(of), Any::any(of));
        Request { host, epoch, settled, over: Any::any(of), commits: Any::any(of), command }
    }
}

impl Any for Frame {
    fn any(of: &mut Choices) -> Self {
        let array = ArrayId(std::array::from_fn(|_| of.below(256) as u8));
        Frame { message: Any::any(of), array, from: Any::any(of), to: Any::any(of) }
    }
}
