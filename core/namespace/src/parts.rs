//! The parts of operations on several shards: their evaluation, before it is decided whether they happen, and their execution.
//!
//! Between the two, the server holds the locks of [`locks_of()`]. So what the evaluation has found is still so when the parts are executed,
//! except for what others change without these locks: the number and times of the entries of a directory. Therefore a part is executed by
//! the same rules again, and its changes are computed only then.

use crate::entries;
use crate::inodes::{self, MADE, New, lose_name, may_replace};
use crate::keys;
use crate::records::{Damaged, decode_number, encode_number};
use crate::work::{Context, Stop, Work, ended, sum};
use braid_base::{Generation, InodeId, ShardId, limits};
use braid_objects::{Change, NotHere, Obstacle, View};
use braid_wire::{FileAttributes, FileError, FileTime, FileType, ShardPart, ShardParts, ShardQuestion, ShardReply};
use bytes::Bytes;

/// Something that an operation locks, and how.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lock {
    /// A name in a directory: exclusive.
    Name(InodeId, Bytes),
    /// The same, to read what it refers to: shared.
    NameToRead(InodeId, Bytes),
    /// The entries of a directory change, one by one: shared by those who do that.
    Entries(InodeId),
    /// An inode is read: shared.
    Read(InodeId),
    /// Where a directory is: shared. Its entries may change.
    Place(InodeId),
    /// An inode changes otherwise: exclusive.
    Inode(InodeId),
    /// Directories are moved to other parents, one at a time.
    Moves,
}

impl Lock {
    /// True if two operations can't hold these at a time.
    pub fn conflicts(&self, other: &Lock) -> bool {
        self.rivals().contains(other)
    }

    /// All locks that conflict with this one.
    pub fn rivals(&self) -> Vec<Lock> {
        match self {
            Lock::Name(parent, name) => {
                vec![Lock::Name(*parent, name.clone()), Lock::NameToRead(*parent, name.clone())]
            }
            Lock::NameToRead(parent, name) => vec![Lock::Name(*parent, name.clone())],
            Lock::Inode(inode) => {
                vec![Lock::Entries(*inode), Lock::Read(*inode), Lock::Place(*inode), Lock::Inode(*inode)]
            }
            Lock::Entries(inode) => vec![Lock::Read(*inode), Lock::Inode(*inode)],
            Lock::Read(inode) => vec![Lock::Entries(*inode), Lock::Inode(*inode)],
            Lock::Place(inode) => vec![Lock::Inode(*inode)],
            Lock::Moves => vec![Lock::Moves],
        }
    }
}

/// The changes of parts that were executed, and the inodes that the parts are about.
pub type Executed = Result<(Vec<Change>, Vec<FileAttributes>), FileError>;

/// The locks under which parts are evaluated and executed.
pub fn locks_of(parts: &ShardParts) -> Vec<Lock> {
    let mut locks = Vec::new();
    for part in &parts.parts {
        match part {
            // The coordinator may tell others of the inode before it exists here.
            ShardPart::Make { inode: Some(inode), .. } => locks.push(Lock::Inode(*inode)),
            ShardPart::Make { inode: None, .. } => {}
            ShardPart::GainName { inode }
            | ShardPart::LoseName { inode }
            | ShardPart::LoseDirectory { inode }
            | ShardPart::Moved { inode, .. } => locks.push(Lock::Inode(*inode)),
            ShardPart::Insert { parent, name, .. }
            | ShardPart::Remove { parent, name, .. }
            | ShardPart::Replace { parent, name, .. } => {
                locks.extend([Lock::Name(*parent, name.clone()), Lock::Entries(*parent)]);
            }
            ShardPart::CountMove { .. } => locks.push(Lock::Moves),
        }
    }
    locks.sort();
    locks.dedup();
    locks
}

/// Finds out whether parts can be executed, and what they come to. They are refused with [`FileError::Busy`] if what they assume is not so
/// any more. The changes are for parts that concern this shard alone, and for the evaluation of further parts of the same transaction.
pub fn evaluate_parts(parts: &ShardParts, is_nearly_full: bool, view: &mut dyn View) -> Result<Executed, NotHere> {
    executed(work_of(parts, is_nearly_full, view), parts, None)
}

/// Executes parts that were evaluated, and whose locks are held since. `other` is the inode, in another shard, to which a new entry refers. An
/// error means that metadata is damaged.
pub fn execute_parts(
    parts: &ShardParts,
    other: Option<FileAttributes>,
    view: &mut dyn View,
) -> Result<Executed, NotHere> {
    let mut work = work_of(parts, false, view);
    work.is_decided = true;
    executed(work, parts, other)
}

fn executed(mut work: Work, parts: &ShardParts, other: Option<FileAttributes>) -> Result<Executed, NotHere> {
    let inodes = ended(apply_all(&mut work, parts, other))?;
    Ok(inodes.map(|inodes| (work.map.into_changes(), inodes)))
}

/// Answers a question of another shard.
pub fn answer(question: &ShardQuestion, view: &mut dyn View) -> Result<Result<ShardReply, FileError>, NotHere> {
    let nothing = ShardParts { now: FileTime::default(), parts: Vec::new() };
    let mut work = work_of(&nothing, false, view);
    ended(match question {
        ShardQuestion::Inode { inode } | ShardQuestion::Place { inode } => {
            work.attributes(*inode).map(ShardReply::Inode)
        }
        ShardQuestion::Name { parent, name } => inodes::find_or_admit(&mut work, *parent, name).map(ShardReply::Name),
        ShardQuestion::Moves => work.number(keys::MOVES).map(ShardReply::Moves),
    })
}

fn work_of<'a>(parts: &ShardParts, is_nearly_full: bool, view: &'a mut dyn View) -> Work<'a> {
    Work::new(view, Context { host: Generation::default(), now: parts.now, is_nearly_full })
}

/// The number of the next inode that a shard makes for a name in another one, if `last` was the last; `None` if there are no more. They are
/// chosen before it is decided whether they are made.
pub fn next_made(own: ShardId, last: u64) -> Option<InodeId> {
    let first = own.base() | MADE;
    let next = last.max(first) + 1;
    (next < first + MADE).then_some(InodeId(next))
}

/// The last of these numbers in the map.
pub fn last_made(view: &mut dyn View) -> Result<u64, Obstacle> {
    let last = view.get(keys::LAST_MADE)?.map(|value| decode_number(&value));
    last.transpose().map(Option::unwrap_or_default).map_err(|Damaged| Obstacle::Lost)
}

fn apply_all(work: &mut Work, parts: &ShardParts, other: Option<FileAttributes>) -> Result<Vec<FileAttributes>, Stop> {
    let mut inodes = Vec::new();
    for part in &parts.parts {
        inodes.extend(apply(work, part, other)?);
    }
    // An inode may be the subject of several parts, or a directory of another one.
    inodes.iter().map(|found: &FileAttributes| work.attributes(found.inode)).collect()
}

/// Executes a part. Returns the inode that it is about, if it is not about a name.
fn apply(work: &mut Work, part: &ShardPart, other: Option<FileAttributes>) -> Result<Option<FileAttributes>, Stop> {
    match part {
        ShardPart::Make { inode, parent, node, owner, mode } => {
            work.grow()?;
            let inode = inode.ok_or(FileError::Malformed)?;
            let mut counters = work.counters()?;
            counters.inodes = sum(counters.inodes, 1)?;
            work.put_counters(counters);
            let last = work.number(keys::LAST_MADE)?.max(inode.0);
            work.map.put(keys::LAST_MADE, Some(encode_number(last)));
            let inode = inodes::new_inode(inode, *parent, &New { node, owner: *owner, mode: *mode }, work.context.now);
            work.put_inode(&inode);
            Ok(Some(inode.attributes))
        }
        ShardPart::GainName { inode } => {
            let mut attributes = work.attributes(*inode)?;
            inodes::check_may_gain_name(&attributes)?;
            attributes.links += 1;
            put(work, attributes)
        }
        ShardPart::LoseName { inode } => {
            let attributes = work.attributes(*inode)?;
            if attributes.file_type == FileType::Directory {
                return Err(FileError::Lost.into());
            }
            Ok(Some(lose_name(work, attributes)?))
        }
        ShardPart::LoseDirectory { inode } => {
            let attributes = work.attributes(*inode)?;
            may_replace(true, attributes.file_type, || Ok(attributes.size))?;
            Ok(Some(lose_name(work, attributes)?))
        }
        ShardPart::Moved { inode, parent } => {
            let attributes = work.attributes(*inode)?;
            let parent = attributes.parent.map(|_| *parent);
            put(work, FileAttributes { parent, ..attributes })
        }
        ShardPart::Insert { parent, name, inode, file_type } => {
            work.grow()?;
            if inodes::find_or_admit(work, *parent, name)?.is_some() {
                return Err(FileError::Busy.into());
            }
            let other = other.map(|other| (other.inode, other.file_type));
            // While it is evaluated, the number of the inode is not known yet.
            let unknown = (InodeId(u64::MAX), *file_type);
            let (inode, file_type) = inode.map(|inode| (inode, *file_type)).or(other).unwrap_or(unknown);
            entries::insert(work, *parent, name, inode, file_type)?;
            Ok(None)
        }
        ShardPart::Remove { parent, name, inode } => {
            let entry = entries::find(work, *parent, name)?.filter(|entry| entry.inode == *inode);
            entries::remove(work, *parent, &entry.ok_or(FileError::Busy)?)?;
            Ok(None)
        }
        ShardPart::Replace { parent, name, from, to, file_type } => {
            let entry = entries::find(work, *parent, name)?.filter(|entry| entry.inode == *from);
            entries::replace(work, *parent, &entry.ok_or(FileError::Busy)?, *to, *file_type)?;
            Ok(None)
        }
        ShardPart::CountMove { moves } => {
            if work.number(keys::MOVES)? != *moves {
                return Err(FileError::Busy.into());
            }
            work.map.put(keys::MOVES, Some(encode_number(moves + 1)));
            Ok(None)
        }
    }
}

fn put(work: &mut Work, attributes: FileAttributes) -> Result<Option<FileAttributes>, Stop> {
    let attributes = FileAttributes { ctime: work.context.now, ..attributes };
    work.put_attributes(attributes)?;
    Ok(Some(attributes))
}

const _: () = assert!(braid_wire::SHARD_PARTS_MAX * 8 <= limits::FILE_EXTENTS_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_are_mutual_and_within_one_inode_or_name() {
        let name = |text: &'static str| Bytes::from_static(text.as_bytes());
        let of = |inode: u64| {
            let inode = InodeId(inode);
            [
                Lock::Name(inode, name("a")),
                Lock::NameToRead(inode, name("a")),
                Lock::Name(inode, name("b")),
                Lock::Entries(inode),
                Lock::Read(inode),
                Lock::Place(inode),
                Lock::Inode(inode),
                Lock::Moves,
            ]
        };
        let conflicts = |one: &Lock| of(1).iter().filter(|other| one.conflicts(other)).count();
        assert_eq!(of(1).each_ref().map(conflicts), [2, 1, 1, 2, 2, 1, 4, 1]);
        for one in &of(1) {
            assert!(of(1).iter().all(|other| one.conflicts(other) == other.conflicts(one)), "{one:?}");
            assert!(of(2)[..7].iter().all(|other| !one.conflicts(other)), "{one:?}");
        }
    }
}
