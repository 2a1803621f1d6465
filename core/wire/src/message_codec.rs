//! The encodings of values that are not declared with them: those of other crates, lists with their maximum lengths, and messages that are
//! valid under conditions only. With them the values that journals keep.

use crate::any::{Any, Source, sequence};
use crate::codec::{Reader, VERSION_OF_LEVELS, Wire, WireError, Writer};
use crate::declarations::{wire_enum, wire_fields, wire_newtype, wire_struct};
use crate::files::*;
use crate::locking::*;
use crate::message::*;
use crate::objects::*;
use crate::rejection::*;
use crate::shards::*;
use braid_base::{
    BLOCK_BYTES, BlockRange, Clock, DeviceId, DiskId, Epoch, FenceTable, FileSystemId, Generation, InodeId, Level,
    Member, MemberState, Membership, ObjectId, Ownership, ShardId, Stamp, Time, TransactionId, VolumeId,
};
use braid_base::{Encoded, limits};
use braid_blocks::{Base, Column, Content, Linkage, ParityRows, Piece, Sending, Sent, Want};
use braid_ordering::{Atomicity, Ordering, WriteMode};
use bytes::Bytes;
use std::collections::BTreeSet;

/// What the invented release of tests adds to each level: two versions differ in it.
const INVENTED: u16 = 0x17;

impl Wire for Level {
    fn put(&self, to: &mut Writer) {
        self.0.put(to);
        if to.version > VERSION_OF_LEVELS {
            INVENTED.put(to);
        }
    }
    fn take(from: &mut Reader) -> Result<Self, WireError> {
        let level = Level(u16::take(from)?);
        let is_sound = from.version <= VERSION_OF_LEVELS || u16::take(from)? == INVENTED;
        if is_sound { Ok(level) } else { Err(WireError::BadValue { what: "level" }) }
    }
}

impl Any for Level {
    fn any<S: Source>(of: &mut S, field: &'static str) -> Self {
        Level(of.number("Level", field) as _)
    }
}

/// Lists, each with its maximum length.
macro_rules! wire_list {
    ($($item:ty, $max:expr;)*) => {$(
        impl Wire for Vec<$item> {
            fn put(&self, to: &mut Writer) {
                to.put_list(self);
            }
            fn take(from: &mut Reader) -> Result<Self, WireError> {
                from.take_list($max)
            }
        }
    )*};
}

wire_newtype!(
    DeviceId,
    DiskId,
    FileSystemId,
    Generation,
    ObjectId,
    VolumeId,
    Epoch,
    Clock,
    Time,
    InodeId,
    FileTime,
    ShardId
);
wire_struct!(Ownership { since, owner });
wire_struct!(Linkage { first, last });
wire_struct!(Inspection { counters });
wire_struct!(LockExtent { position, range, mode });
wire_struct!(Member { device, member_state, since });
wire_struct!(Column { pieces, sends, parity });
wire_struct!(ParityRows { blocks, base, from, own });

wire_list! {
    u64, limits::COMMITS_PER_REQUEST_MAX;
    (u64, u64), limits::ABANDONED_MAX;
    BlockRange, limits::EXTENTS_MAX;
    Piece, limits::EXTENTS_MAX;
    Sending, limits::EXTENTS_MAX;
    ParityRows, limits::EXTENTS_MAX;
    DeviceId, limits::PARTICIPANTS_MAX;
    Orphan, limits::ORPHANS_PER_ANSWER_MAX;
    Suspect, limits::ORPHANS_PER_ANSWER_MAX;
    Generation, limits::FENCED_MAX;
    ObjectDescription, limits::OBJECTS_MAX;
    (String, u64), 1024;
    LockExtent, limits::EXTENTS_MAX;
    LockPart, LOCK_PARTS_MAX;
    SurveyedLock, LOCKS_SURVEYED_MAX;
    Member, limits::DEVICES_MAX;
    ObjectCommand, limits::OBJECT_COMMANDS_MAX;
    SetAttribute, limits::ATTRIBUTES_PER_COMMAND_MAX;
    AttributeName, limits::ATTRIBUTES_PER_COMMAND_MAX;
    CommandResult, limits::OBJECT_COMMANDS_MAX;
    Bytes, limits::ATTRIBUTES_PER_COMMAND_MAX;
    (AttributeName, u32), limits::OBJECT_LIST_MAX;
    ObjectId, limits::OBJECT_LIST_MAX;
    DirectoryEntry, limits::FILE_ENTRIES_MAX;
    FileExtent, limits::FILE_EXTENTS_MAX;
    ShardPart, SHARD_PARTS_MAX;
    FileAttributes, SHARD_PARTS_MAX;
}

wire_enum!(Want { 1 => Data, 2 => Allocation, 3 => Linkage, 4 => Salvage });
wire_enum!(WriteMode { 1 => Intent, 2 => Immediate });
wire_enum!(Atomicity { 1 => Implied, 2 => Consistent });
wire_enum!(Ordering { 1 => Timestamp, 2 => None, 3 => ServerLock, 4 => CallbackLock, 5 => DeviceLock });
wire_enum!(Sent { 1 => Old, 2 => New, 3 => Change });
wire_enum!(Base { 1 => Old, 2 => Zeros });
wire_enum!(Rejection { 1 => Fenced, 2 => WrongEpoch { current }, 3 => TooManyHosts });

wire_struct!(ObjectRequest { commands });
wire_struct!(ObjectCommand { object, when, action, sets, sets_when, gets });

wire_enum!(LockMode { 1 => Shared, 2 => Exclusive });
wire_enum!(MemberState { 1 => In, 2 => Returning { recovery_coordinator }, 3 => Out });

wire_struct!(FileAnswer { start, sequence, reply });
wire_struct!(FileSystemStatus { blocks, free, allotted, inodes });

wire_enum!(ShardFinding { 7 => Accepted { parts, inodes } });

wire_fields!(Stamp { clock, host });
// The highest sequence number is refused, so that there is a settled mark above every transaction and every request.
wire_fields!(TransactionId { host, sequence }, "sequence" if not |id| id.sequence < u64::MAX);
wire_fields!(
    FileRequest { host, settled, over, sequence, command },
    "sequence" if not |request| request.sequence < u64::MAX
);
wire_fields!(
    Request { host, epoch, settled, over, commits, command },
    "sequence" if not |request| !matches!(request.command, Command::Objects { sequence: u64::MAX, .. }),
    "intervals" if not |request| match &request.command {
        Command::Objects { abandoned, .. } => are_in_order(abandoned),
        _ => true,
    }
);
wire_fields!(BlockRange { start, count }, "block range" if not |range| has_offsets(range.start, range.count));
// The range of the receiver, too, is valid.
wire_fields!(
    Sending { blocks, to, at, what },
    "block range" if not |sending| has_offsets(sending.at, sending.blocks.count)
);
wire_fields!(Membership { epoch, members, fence }, "membership" if not is_consistent);

/// True if the last byte of the blocks has a 64-bit offset, so that no receiver need check for overflow.
fn has_offsets(start: u64, count: u64) -> bool {
    start.checked_add(count).is_some_and(|end| end <= u64::MAX / BLOCK_BYTES as u64)
}

/// True if the intervals are not empty, ascending, and do not touch.
fn are_in_order(intervals: &[(u64, u64)]) -> bool {
    intervals.iter().all(|(first, behind)| first < behind)
        && intervals.is_sorted_by(|(_, behind), (next, _)| behind < next)
}

/// True if each device is listed once, in ascending order, with a `since` of no later epoch, and each recovery coordinator has a generation
/// other than zero. No receiver need check it.
fn is_consistent(membership: &Membership) -> bool {
    let sound = |member: &Member| {
        member.since <= membership.epoch
            && member.member_state != MemberState::Returning { recovery_coordinator: Some(Generation::default()) }
    };
    membership.members.is_sorted_by(|one, next| one.device < next.device) && membership.members.iter().all(sound)
}

impl Any for FileRequest {
    fn any<S: Source>(of: &mut S, _field: &'static str) -> Self {
        let sequence = sequence(of);
        let (host, settled, over) = (Any::any(of, "host"), Any::any(of, "settled"), Any::any(of, "over"));
        FileRequest { host, settled, over, sequence, command: Any::any(of, "command") }
    }
}

/// What object requests list as abandoned are ascending intervals that do not touch.
impl Any for Request {
    fn any<S: Source>(of: &mut S, _field: &'static str) -> Self {
        let mut command = Command::any(of, "command");
        if let Command::Objects { sequence, abandoned, .. } = &mut command {
            *sequence = (*sequence).min(u64::MAX - 1);
            let mut last = 0;
            for (first, behind) in abandoned {
                *first = last + 1 + *first % (1 << 60);
                *behind = *first + 1 + *behind % (1 << 8);
                last = *behind;
            }
        }
        let (host, epoch, settled) = (Any::any(of, "host"), Any::any(of, "epoch"), Any::any(of, "settled"));
        Request { host, epoch, settled, over: Any::any(of, "over"), commits: Any::any(of, "commits"), command }
    }
}

/// The two sets are ascending lists on the wire.
impl Wire for FenceTable {
    fn put(&self, to: &mut Writer) {
        self.below.put(to);
        to.put_list(&self.except.iter().copied().collect::<Vec<_>>());
        to.put_list(&self.also.iter().copied().collect::<Vec<_>>());
    }
    fn take(from: &mut Reader) -> Result<Self, WireError> {
        let below = Wire::take(from)?;
        let mut set = || -> Result<BTreeSet<Generation>, WireError> {
            let hosts: Vec<Generation> = Wire::take(from)?;
            if !hosts.is_sorted_by(|one, next| one < next) {
                return Err(WireError::BadValue { what: "set of hosts" });
            }
            Ok(hosts.into_iter().collect())
        };
        Ok(FenceTable { below, except: set()?, also: set()? })
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, to: &mut Writer) {
        self.is_some().put(to);
        if let Some(value) = self {
            value.put(to);
        }
    }
    fn take(from: &mut Reader) -> Result<Self, WireError> {
        Ok(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}

impl Wire for Piece {
    fn put(&self, to: &mut Writer) {
        self.range.put(to);
        match &self.content {
            Content::Hole => 1u8.put(to),
            Content::Present => 2u8.put(to),
            Content::Data(bytes) => {
                3u8.put(to);
                to.put_payload(bytes);
            }
            Content::Header { transaction, linkage } => {
                4u8.put(to);
                transaction.put(to);
                linkage.put(to);
            }
            Content::Lost => 5u8.put(to),
        }
    }
    /// Data must be 4096 bytes for each block.
    fn take(from: &mut Reader) -> Result<Self, WireError> {
        let range = BlockRange::take(from)?;
        let content = match u8::take(from)? {
            1 => Content::Hole,
            2 => Content::Present,
            3 => Content::Data(from.take_payload()?),
            4 => Content::Header { transaction: Wire::take(from)?, linkage: Wire::take(from)? },
            5 => Content::Lost,
            _ => return Err(WireError::BadValue { what: "content" }),
        };
        match &content {
            Content::Data(bytes) if bytes.len() as u64 != range.count * BLOCK_BYTES as u64 => {
                Err(WireError::BadValue { what: "length of data" })
            }
            _ => Ok(Piece { range, content }),
        }
    }
}

impl<T: Wire, E: Wire> Wire for Result<T, E> {
    fn put(&self, to: &mut Writer) {
        match self {
            Ok(value) => {
                1u8.put(to);
                value.put(to);
            }
            Err(error) => {
                2u8.put(to);
                error.put(to);
            }
        }
    }
    fn take(from: &mut Reader) -> Result<Self, WireError> {
        match u8::take(from)? {
            1 => Ok(Ok(Wire::take(from)?)),
            2 => Ok(Err(Wire::take(from)?)),
            _ => Err(WireError::BadValue { what: "result" }),
        }
    }
}

impl Wire for () {
    fn put(&self, _to: &mut Writer) {}
    fn take(_from: &mut Reader) -> Result<Self, WireError> {
        Ok(())
    }
}

/// Encodes an answer, for the journal.
pub fn encode_answer(answer: &ObjectAnswer) -> Vec<u8> {
    encode_alone(answer)
}

/// Decodes an answer of the journal.
pub fn decode_answer(bytes: &Bytes) -> Result<ObjectAnswer, WireError> {
    decode_alone(bytes)
}

/// Encodes the reply of a metadata server, for the journal.
pub fn encode_reply(reply: &FileReply) -> Vec<u8> {
    encode_alone(reply)
}

/// Decodes a reply of the journal.
pub fn decode_reply(bytes: &Bytes) -> Result<FileReply, WireError> {
    decode_alone(bytes)
}

/// Parts of operations on several shards, which servers keep in their journals and send each other within messages.
macro_rules! encoded_alone {
    ($($name:ident),*) => {$(
        impl Encoded for $name {
            fn encode(&self) -> Bytes {
                encode_alone(self).into()
            }

            fn decode(bytes: &Bytes) -> Option<$name> {
                decode_alone(bytes).ok()
            }
        }
    )*};
}
encoded_alone!(ShardParts, CoordinatorParts, ShardFinding);

/// As the reply that it is.
impl Encoded for FileError {
    fn encode(&self) -> Bytes {
        encode_reply(&Err(*self)).into()
    }

    fn decode(bytes: &Bytes) -> Option<FileError> {
        decode_reply(bytes).ok()?.err()
    }
}

/// The version of what journals keep, and of what one server passes to another within a message: it has no version of its own. It stays, until
/// the values name theirs.
const KEPT: u16 = VERSION_OF_LEVELS;

/// A value that no frame surrounds: the length of its description, the description, the payload.
fn encode_alone(value: &impl Wire) -> Vec<u8> {
    let mut writer = Writer { version: KEPT, description: vec![0; 4], payload: Vec::new() };
    value.put(&mut writer);
    let Writer { description: mut bytes, payload, .. } = writer;
    let length = bytes.len() as u32 - 4;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    payload.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

fn decode_alone<T: Wire>(bytes: &Bytes) -> Result<T, WireError> {
    let (length, rest) = bytes.split_first_chunk().ok_or(WireError::Truncated)?;
    let (description, _) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(WireError::Truncated)?;
    let mut reader = Reader { version: KEPT, description, payload: bytes.slice(4 + description.len()..) };
    let value = T::take(&mut reader)?;
    if reader.description.is_empty() && reader.payload.is_empty() { Ok(value) } else { Err(WireError::Trailing) }
}
