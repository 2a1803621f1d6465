//! The encoding of each message: a struct is its fields in the order of their declaration; an enum is one byte for the variant, then the
//! fields of that variant. The macros also make arbitrary values, for property tests.

use crate::administration::*;
use crate::any::{Any, Source};
use crate::codec::{Reader, Wire, Writer};
use crate::files::*;
use crate::frame::{VERSION_OF_LEVELS, WireError};
use crate::locking::*;
use crate::message::*;
use crate::monitoring::*;
use crate::objects::*;
use crate::ownership::*;
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

/// The encoding of a struct: its fields. What is decoded must be sound.
macro_rules! wire_fields {
    ($name:ident { $($field:ident),* } $(, $what:literal if not $is_sound:expr)*) => {
        impl Wire for $name {
            fn put(&self, to: &mut Writer) {
                $(self.$field.put(to);)*
            }
            fn take(from: &mut Reader) -> Result<Self, WireError> {
                let value = $name { $($field: Wire::take(from)?),* };
                $(
                    let is_sound: fn(&$name) -> bool = $is_sound;
                    if !is_sound(&value) {
                        return Err(WireError::BadValue { what: $what });
                    }
                )*
                Ok(value)
            }
        }
    };
}

/// A struct of which any fields are sound.
macro_rules! wire_struct {
    ($name:ident { $($field:ident),* }) => {
        wire_fields!($name { $($field),* });
        impl Any for $name {
            fn any<S: Source>(of: &mut S, _field: &'static str) -> Self {
                $name { $($field: Any::any(of, stringify!($field))),* }
            }
        }
    };
}

/// A struct around one number.
macro_rules! wire_newtype {
    ($($name:ident),*) => {$(
        impl Wire for $name {
            fn put(&self, to: &mut Writer) {
                self.0.put(to);
            }
            fn take(from: &mut Reader) -> Result<Self, WireError> {
                Ok($name(Wire::take(from)?))
            }
        }
        impl Any for $name {
            fn any<S: Source>(of: &mut S, field: &'static str) -> Self {
                $name(of.number(stringify!($name), field) as _)
            }
        }
    )*};
}

/// An enum: a byte for the variant, then its fields.
macro_rules! wire_enum {
    ($name:ident { $($byte:literal => $choice:ident $({ $($field:ident),* })? $(( $inner:ident ))?),* $(,)? }) => {
        impl Wire for $name {
            fn put(&self, to: &mut Writer) {
                match self {
                    $($name::$choice $({ $($field),* })? $(($inner))? => {
                        ($byte as u8).put(to);
                        $($($field.put(to);)*)?
                        $($inner.put(to);)?
                    })*
                }
            }
            fn take(from: &mut Reader) -> Result<Self, WireError> {
                match u8::take(from)? {
                    $($byte => Ok($name::$choice
                        $({ $($field: Wire::take(from)?),* })?
                        $(({ let $inner = Wire::take(from)?; $inner }))?
                    ),)*
                    _ => Err(WireError::BadValue { what: stringify!($name) }),
                }
            }
        }
        impl Any for $name {
            fn any<S: Source>(of: &mut S, _field: &'static str) -> Self {
                let variants: &[fn(&mut S) -> Self] = &[$(|_of| $name::$choice
                    $({ $($field: Any::any(_of, stringify!($field))),* })?
                    $(({ let $inner = Any::any(_of, stringify!($inner)); $inner }))?
                ),*];
                variants[of.variant(stringify!($name), &[$(stringify!($choice)),*])](of)
            }
        }
    };
}

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
wire_struct!(Orphan { transaction, stamp, participants });
wire_struct!(ObjectDescription { object, first, blocks, ordering, redundant, atomicity });
wire_struct!(Suspect { transaction, object, blocks });
wire_struct!(Inspection { counters });
wire_struct!(Answer { epoch, confirmed, reply });
wire_struct!(LockRequest { host, start, dropped, command });
wire_struct!(LockAnswer { start, reply });
wire_struct!(LockExtent { position, range, mode });
wire_struct!(LockPart { lock_id, extents });
wire_struct!(LockName { host, lock_id });
wire_struct!(LockSurvey { locks, next, is_recovered });
wire_struct!(SurveyedLock { name, object, extents, all_extents, millis, behind });
wire_struct!(MonitorRequest { epoch, command });
wire_struct!(MonitorAnswer { membership, unavailable, reply });
wire_struct!(Member { device, member_state, since });
wire_struct!(HealingProgress { done, left, lost });
wire_struct!(Partial { epoch, transaction, object, pieces });
wire_struct!(Column { pieces, sends, parity });
wire_struct!(ParityRows { blocks, base, from, own });
wire_struct!(RecoveryThrottle { bytes_per_second, share, paused });

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

wire_enum!(Message { 1 => Request(request), 2 => Answer(answer), 3 => LockRequest(request), 4 => LockAnswer(answer), 5 => MonitorRequest(request), 6 => MonitorAnswer(answer), 7 => Partial(partial), 8 => FileRequest(request), 9 => FileAnswer(answer), 10 => Shard(message) });
wire_enum!(Want { 1 => Data, 2 => Allocation, 3 => Linkage, 4 => Salvage });
wire_enum!(WriteMode { 1 => Intent, 2 => Immediate });
wire_enum!(Outcome { 1 => Commit, 2 => Abort, 3 => Interrupted });
wire_enum!(Atomicity { 1 => Implied, 2 => Consistent });
wire_enum!(SuspectBlocks { 1 => Written(linkage), 2 => Announced(range) });
wire_enum!(Ordering { 1 => Timestamp, 2 => None, 3 => ServerLock, 4 => CallbackLock, 5 => DeviceLock });
wire_enum!(Step { 1 => Read, 2 => Prewrite, 3 => Write, 4 => Execute });
wire_enum!(Progress { 1 => Waiting, 2 => Gathering { missing } });
wire_enum!(Sent { 1 => Old, 2 => New, 3 => Change });
wire_enum!(Base { 1 => Old, 2 => Zeros });
wire_enum!(Vote { 1 => Prepared, 2 => Committed, 3 => NeverPrepared, 4 => TooFarAhead { clock } });
wire_enum!(Rejection { 1 => Fenced, 2 => WrongEpoch { current }, 3 => TooManyHosts });
wire_enum!(Managed {
    1 => Done,
    2 => Objects(objects),
    3 => Inspected(inspection),
    4 => Missed { extents, next },
    5 => Extents { extents, next },
});
wire_enum!(Refusal {
    1 => TooLate { seen },
    2 => TooFarAhead { clock },
    3 => NoPrewrite,
    4 => Busy,
    5 => LockTimeout,
    6 => Suspect,
});
wire_enum!(Failure {
    1 => NoSuchObject,
    2 => ObjectExists,
    3 => OutOfRange,
    4 => NoSpace,
    5 => Lost { block },
    6 => Disk,
    7 => WrongOrdering,
    8 => Malformed,
    9 => InUse,
    10 => Busy,
    11 => Absent,
});
wire_enum!(Task {
    1 => CreateObject { object, first, blocks, ordering, redundant, atomicity, absent },
    2 => RemoveObject { object },
    3 => ListObjects,
    4 => Flush,
    // 5 fenced hosts, up to version 2.
    6 => Inspect,
    7 => SetOrdering { object, ordering },
    8 => ListMissed { device, object, from },
    9 => ListAbsent { object, from },
    10 => ListAllocated { object, range },
    11 => ResizeObject { object, range, absent },
});
wire_enum!(Command {
    1 => Heartbeat,
    2 => Read { transaction, stamp, object, ordering, extents, want },
    3 => Prewrite { transaction, stamp, object, ordering, prewrites, reads },
    4 => Write { transaction, stamp, object, ordering, participants, linkage, mode, pieces },
    5 => Decide { transaction, stamp, outcome },
    6 => Resolve { transaction, stamp },
    7 => Forget { transaction },
    8 => Manage { ticket, task },
    9 => Objects { sequence, abandoned, request },
    10 => Await { ticket, object, name, seen, patience },
    11 => Retract { transaction, stamp },
    12 => Execute { transaction, stamp, object, ordering, participants, linkage, column },
});
wire_enum!(Reply {
    1 => Heartbeat { orphans, suspects, busy },
    2 => Data { transaction, waited, pieces },
    3 => Accepted { transaction, waited },
    4 => Written { transaction, waited },
    5 => Refused { transaction, step, refusal },
    6 => Failed { transaction, step, failure },
    7 => Blocked { transaction },
    8 => Decided { transaction, outcome },
    9 => Vote { transaction, vote },
    10 => Forgotten { transaction },
    11 => Managed { ticket, result },
    12 => Rejected { rejection },
    13 => Objects { sequence, answer },
    14 => Changed { ticket, value },
    15 => Executing { transaction, progress },
});

wire_struct!(ObjectRequest { commands });
wire_struct!(ObjectCommand { object, when, action, sets, sets_when, gets });
wire_struct!(AttributeName { page, number });
wire_struct!(SetAttribute { name, value });
wire_struct!(CommandResult { action, values });
wire_struct!(ObjectRefusal { command, failure });
wire_enum!(When { 1 => Always, 2 => IfSwapped, 3 => IfNotSwapped });
wire_enum!(Undefined { 1 => Matches, 2 => IsEmpty });
wire_enum!(Action {
    1 => Nothing,
    2 => Create,
    3 => Remove,
    4 => Read { offset, length },
    5 => Write { offset, data },
    6 => Append { data },
    7 => Truncate { length },
    8 => Flush,
    9 => Stat,
    10 => CompareAndSwap { name, compare, swap, undefined, original },
    11 => FetchAndAdd { name, add, original },
    12 => ListAttributes { after, page, most },
    13 => List { after, most },
});
wire_enum!(ActionResult {
    1 => Skipped,
    2 => Done,
    3 => Created { object },
    4 => Data { data },
    5 => Appended { offset },
    6 => Stat { length, incarnation },
    7 => Compared { swapped, original },
    8 => Added { original },
    9 => Attributes { found, more },
    10 => Objects { found, more },
});
wire_enum!(ObjectFailure {
    1 => NoSuchObject,
    2 => ObjectExists,
    3 => NotANumber { length },
    4 => Overflow,
    5 => ValueTooLong { length },
    6 => ReservedPage { page },
    7 => TooLong,
    8 => NoSpace,
    9 => Lost,
    10 => Busy,
    11 => Malformed,
    12 => NotTogether,
    13 => CutsTooMuch,
    14 => NotInAttributeVolume,
    15 => NotAnAttributeVolume,
    16 => NumberTooHigh,
});

wire_enum!(LockCommand {
    1 => Heartbeat { sent },
    2 => Lock { lock_id, object, extents, term },
    3 => Unlock { lock_id },
    4 => Yield { lock_ids },
    6 => LockRange { lock_id, object, extents, width, ahead, over, patience },
    7 => Shrink { rest, in_use },
    8 => Survey { ticket, from, object, waiting },
});
wire_enum!(Patience { 1 => InTurn, 2 => ForHeld, 3 => Upgrade, 4 => Impatient });
wire_enum!(LockTerm { 1 => Transaction { impatient }, 2 => Cached, 3 => Held { start, cached }, 4 => HeldRange { start }, 5 => Lease });
wire_enum!(LockMode { 1 => Shared, 2 => Exclusive });
wire_enum!(LockReply {
    1 => Heartbeat { sent },
    2 => Granted { lock_id, waited },
    3 => Unlocked { lock_id },
    4 => Revoke { lock_ids },
    5 => Refused { lock_id, refusal },
    6 => Rejected { rejection },
    7 => GrantedRange { lock_id, extents, waited },
    8 => Recall { wanted, asks },
    9 => Surveyed { ticket, survey },
    10 => RecallGroup { object, extents },
});
wire_enum!(MonitorCommand {
    1 => Renew { sent, silent, disk, bad_slots, failing, undecided, stamps, knows },
    2 => Fence { ticket, below, except, also },
    3 => Resynchronised { device, since },
    4 => Healing { device, progress },
    5 => Administer { ticket, request },
    6 => Ownership { ticket, file_system, request },
});
wire_enum!(MonitorReply {
    1 => Lease { sent, length, throttle, stamps, level },
    2 => Fenced { ticket },
    3 => Changed,
    4 => JoinRefused(why),
    5 => Administered { ticket, result },
    6 => Ownership { ticket, result },
});
wire_enum!(Administration {
    1 => Fail { device },
    2 => Readmit { device },
    3 => Replace { device, disk, blocks, lose },
    4 => AddSpare { disk, blocks },
    5 => RemoveSpare { disk },
    6 => RecoveryThrottle(throttle),
    7 => AddDevice { device, disk },
    8 => RemoveDevice { device },
    9 => RaiseLevel { level },
});
wire_enum!(AdminError {
    1 => NoSuchDevice,
    2 => NeedsOthers { others },
    3 => NothingGained,
    4 => DiskInUse { device },
    5 => TooSmall { blocks, needed },
    6 => WouldLose { volume },
    7 => TooManySpares,
    8 => NoSuchSpare,
    9 => TooManyChanges,
    10 => DeviceExists { device },
    11 => TooManyDevices,
    12 => HoldsVolume { volume },
    13 => LevelUnknown { devices, hosts, lock_servers },
});
wire_enum!(OwnershipRequest { 1 => Inquire, 2 => TakeOver { from }, 3 => Release { since } });
wire_enum!(OwnershipRefused { 1 => Differs(present), 2 => Fenced, 3 => TooManyFileSystems });
wire_enum!(JoinRefused { 1 => OtherDisk { expected }, 2 => Used { epoch } });
wire_enum!(MemberState { 1 => In, 2 => Returning { recovery_coordinator }, 3 => Out });
wire_enum!(LockRefusal { 1 => Timeout, 2 => Busy, 3 => Malformed });

wire_struct!(FileAnswer { start, sequence, reply });
wire_struct!(FileAttributes {
    inode,
    file_type,
    mode,
    owner,
    links,
    size,
    blocks,
    atime,
    mtime,
    ctime,
    parent,
    device
});
wire_struct!(Owner { uid, gid });
wire_struct!(AttributeChange { mode, uid, gid, atime, mtime });
wire_struct!(DirectoryEntry { cookie, inode, file_type, name });
wire_struct!(FileExtent { at, blocks });
wire_struct!(FileSystemStatus { blocks, free, allotted, inodes });
wire_enum!(FileType { 1 => Regular, 2 => Directory, 3 => SymbolicLink, 4 => Special(special) });
wire_enum!(SpecialType { 1 => Fifo, 2 => Socket, 3 => CharacterDevice, 4 => BlockDevice });
wire_enum!(NewInode { 1 => Regular, 2 => Directory, 3 => SymbolicLink { target }, 4 => Special { special, device } });
wire_enum!(NewTime { 1 => Now, 2 => At(time) });
wire_enum!(FileCommand {
    1 => Nothing,
    2 => Lookup { parent, name },
    3 => Stat { inode },
    4 => ReadDirectory { inode, after, most },
    5 => ReadLink { inode },
    6 => Create { parent, name, node, exclusive, owner, mode },
    7 => Link { inode, parent, name },
    8 => Unlink { parent, name },
    9 => RemoveDirectory { parent, name },
    10 => Rename { parent, name, new_parent, new_name, no_replace },
    11 => SetAttributes { inode, change },
    12 => Truncate { inode, size },
    13 => Map { inode, from, most },
    14 => Reserve { blocks },
    15 => Attach { inode, extents, size, mtime },
    16 => GiveBack { runs },
    17 => StatFileSystem,
});
wire_enum!(FileResult {
    1 => Done,
    2 => Attributes(attributes),
    3 => Entries { entries, more },
    4 => Target(target),
    5 => Created { attributes, is_new },
    6 => Removed(attributes),
    7 => Renamed { moved, replaced },
    8 => Truncated { attributes, is_done },
    9 => Extents { extents, more, size },
    10 => Reserved(runs),
    11 => Attached { attributes, next },
    12 => FileSystem(status),
    13 => Opened(attributes),
});
wire_enum!(FileError {
    1 => Stale,
    2 => NoSuchName,
    3 => Exists,
    4 => NotADirectory,
    5 => IsADirectory,
    6 => NotAFile,
    7 => NotALink,
    8 => LinkToDirectory,
    9 => NotEmpty,
    10 => IntoItself,
    11 => TooDeep,
    12 => NameTooLong,
    13 => InvalidName,
    14 => TooManyLinks,
    15 => TooLarge,
    16 => NoSpace,
    17 => DirectoryFull,
    18 => NotAllotted,
    19 => Lost,
    20 => Busy,
    21 => Malformed,
    22 => Rejected(rejection),
});

wire_struct!(ShardMessage { from, body });
wire_enum!(ShardBody {
    1 => Commit { message },
    2 => Read { start, number, question },
    3 => ReadAnswer { start, number, reply },
    4 => SpaceRequest { start, round, received, blocks },
    5 => SpaceTransfer { start, round, number, runs },
});
wire_enum!(ShardQuestion { 1 => Inode { inode }, 2 => Name { parent, name }, 3 => Moves, 4 => Place { inode } });
wire_enum!(ShardReply { 1 => Inode(attributes), 2 => Name(entry), 3 => Moves(moves) });
wire_enum!(ShardPart {
    1 => Make { inode, parent, node, owner, mode },
    2 => GainName { inode },
    3 => LoseName { inode },
    4 => LoseDirectory { inode },
    5 => Moved { inode, parent },
    6 => Insert { parent, name, inode, file_type },
    7 => Remove { parent, name, inode },
    8 => Replace { parent, name, from, to, file_type },
    9 => CountMove { moves },
});
wire_struct!(ShardParts { now, parts });
wire_enum!(ShardFinding { 7 => Accepted { parts, inodes } });
wire_struct!(CoordinatorParts { host, sequence, command, own, inodes });

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
