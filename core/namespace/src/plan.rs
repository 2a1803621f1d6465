//! The plan of a command in a file system with several shards: which shards it concerns, and what each of them does.
//!
//! It is made under the locks of [`locks_of_command()`], so that the names refer to the same inodes until the command is executed.

use crate::entries;
use crate::inodes::{self, New, may_replace};
use crate::parts::Lock;
use crate::records::{Parameters, Placement};
use crate::work::{Context, Stop, Work, ended};
use braid_base::{InodeId, ShardId};
use braid_objects::{NotHere, View};
use braid_wire::{FileCommand, FileError, FileType, NewInode, ShardPart, ShardParts};
use bytes::Bytes;
use siphasher::sip::SipHasher13;
use std::collections::BTreeMap;
use std::hash::Hasher;

/// How a command is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The command concerns this shard alone. These inodes change, besides those that it names.
    Local { inodes: Vec<InodeId> },
    /// The command changes nothing, and its answer is an inode that is in another shard.
    Elsewhere { inode: InodeId },
    /// Several shards do something.
    Parts { own: ShardParts, others: Vec<(ShardId, ShardParts)> },
    /// A name in another shard has to be known first.
    NeedsName { parent: InodeId, name: Bytes },
    /// A directory is moved to another parent. It has to be known how often that was done, and then where the parents lead.
    NeedsWay { moved: InodeId },
}

/// What is known from other shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The inode that has the new name of a rename, if there is one.
    pub target: Option<Option<(InodeId, FileType)>>,
    /// The number of moves, before the parents of the new directory were found not to lead to the one that is moved.
    pub moves: Option<u64>,
}

/// The locks of the names of a command, and of the inodes that it names. Those of a name in another shard are held there.
pub fn locks_of_command(command: &FileCommand) -> Vec<Lock> {
    let changes = |parent: &InodeId, name: &Bytes| vec![Lock::Name(*parent, name.clone()), Lock::Entries(*parent)];
    match command {
        FileCommand::Nothing
        | FileCommand::Reserve { .. }
        | FileCommand::GiveBack { .. }
        | FileCommand::StatFileSystem => Vec::new(),
        // The directory may be one that a transaction is about to make.
        FileCommand::Lookup { parent, name } => {
            vec![Lock::NameToRead(*parent, name.clone()), Lock::Place(*parent)]
        }
        FileCommand::Stat { inode }
        | FileCommand::ReadLink { inode }
        | FileCommand::ReadDirectory { inode, .. }
        | FileCommand::Map { inode, .. } => vec![Lock::Read(*inode)],
        FileCommand::SetAttributes { inode, .. }
        | FileCommand::Truncate { inode, .. }
        | FileCommand::Attach { inode, .. } => vec![Lock::Inode(*inode)],
        FileCommand::Create { parent, name, .. }
        | FileCommand::Link { parent, name, .. }
        | FileCommand::Unlink { parent, name }
        | FileCommand::RemoveDirectory { parent, name } => changes(parent, name),
        FileCommand::Rename { parent, name, new_parent, new_name, .. } => {
            let mut locks = changes(parent, name);
            if new_parent.shard() == parent.shard() {
                locks.extend(changes(new_parent, new_name));
            }
            locks.sort();
            locks.dedup();
            locks
        }
    }
}

/// True if the command may concern several shards.
pub fn needs_plan(command: &FileCommand) -> bool {
    matches!(
        command,
        FileCommand::Lookup { .. }
            | FileCommand::Create { .. }
            | FileCommand::Link { .. }
            | FileCommand::Unlink { .. }
            | FileCommand::RemoveDirectory { .. }
            | FileCommand::Rename { .. }
    )
}

/// Makes the plan of a command that [`needs_plan()`]. What is invalid has a local plan: its execution finds the reason.
pub fn plan(
    command: &FileCommand,
    known: &Known,
    context: Context,
    view: &mut dyn View,
) -> Result<Result<Plan, FileError>, NotHere> {
    if command.check().is_err() {
        return Ok(Ok(Plan::Local { inodes: Vec::new() }));
    }
    ended(make(command, known, &mut Work::new(view, context)))
}

fn make(command: &FileCommand, known: &Known, work: &mut Work) -> Result<Plan, Stop> {
    let parameters = work.parameters()?;
    let own = parameters.shards.own;
    let nothing = Plan::Local { inodes: Vec::new() };
    match command {
        FileCommand::Lookup { parent, name } => match entries::find(work, *parent, name)? {
            Some(entry) => Ok(found(entry.inode, own)),
            None => Ok(nothing),
        },
        FileCommand::Create { parent, name, node, exclusive, owner, mode } => {
            if let Some(entry) = inodes::find_or_admit(work, *parent, name)? {
                let is_refused = *exclusive || *node != NewInode::Regular || entry.file_type == FileType::Directory;
                return Ok(if is_refused { nothing } else { found(entry.inode, own) });
            }
            let new = New { node, owner: *owner, mode: *mode }.below(&work.directory(*parent)?);
            let (parent, node, owner, mode) = (*parent, node.clone(), new.owner, new.mode);
            let shard = place(&parameters, parent, name, &node);
            let mut parts = Assembly::new(work, own);
            parts.add(shard, ShardPart::Make { inode: None, parent, node: node.clone(), owner, mode });
            let (name, file_type) = (name.clone(), node.file_type());
            parts.add(own, ShardPart::Insert { parent, name, inode: None, file_type });
            Ok(if shard == own { nothing } else { parts.plan() })
        }
        FileCommand::Link { inode, parent, name } => {
            if inode.shard() == own {
                return Ok(Plan::Local { inodes: vec![*inode] });
            }
            if inodes::find_or_admit(work, *parent, name)?.is_some() {
                return Err(FileError::Exists.into());
            }
            if inode.shard().0 >= parameters.shards.count {
                return Err(FileError::Stale.into());
            }
            let mut parts = Assembly::new(work, own);
            parts.add(inode.shard(), ShardPart::GainName { inode: *inode });
            // The shard of the inode says what it is.
            let (parent, name, file_type) = (*parent, name.clone(), FileType::Regular);
            parts.add(own, ShardPart::Insert { parent, name, inode: None, file_type });
            Ok(parts.plan())
        }
        FileCommand::Unlink { parent, name } | FileCommand::RemoveDirectory { parent, name } => {
            let entry = entries::find(work, *parent, name)?.ok_or(FileError::NoSuchName)?;
            let wants_directory = matches!(command, FileCommand::RemoveDirectory { .. });
            if wants_directory != (entry.file_type == FileType::Directory) || entry.inode.shard() == own {
                return Ok(Plan::Local { inodes: vec![entry.inode] });
            }
            let mut parts = Assembly::new(work, own);
            parts.add(entry.inode.shard(), lose(&entry.inode, entry.file_type));
            parts.add(own, ShardPart::Remove { parent: *parent, name: name.clone(), inode: entry.inode });
            Ok(parts.plan())
        }
        FileCommand::Rename { parent, name, new_parent, new_name, no_replace } => {
            rename(work, (*parent, name), (*new_parent, new_name), *no_replace, known)
        }
        _ => Ok(nothing),
    }
}

/// The plan of a command that is answered by an inode.
fn found(inode: InodeId, own: ShardId) -> Plan {
    if inode.shard() == own { Plan::Local { inodes: vec![inode] } } else { Plan::Elsewhere { inode } }
}

/// The plan of a rename. Its coordinator has the old name.
fn rename(
    work: &mut Work,
    from: (InodeId, &Bytes),
    to: (InodeId, &Bytes),
    no_replace: bool,
    known: &Known,
) -> Result<Plan, Stop> {
    let shards = work.parameters()?.shards;
    let source = entries::find(work, from.0, from.1)?.ok_or(FileError::NoSuchName)?;
    if to.0.shard().0 >= shards.count {
        return Err(FileError::Stale.into());
    }
    let target = if to.0.shard() == shards.own {
        inodes::find_or_admit(work, to.0, to.1)?.map(|entry| (entry.inode, entry.file_type))
    } else {
        let Some(target) = known.target else {
            return Ok(Plan::NeedsName { parent: to.0, name: to.1.clone() });
        };
        target
    };
    let is_directory = source.file_type == FileType::Directory;
    let is_move = is_directory && from.0 != to.0;
    let concerned = [Some(to.0), Some(source.inode), target.map(|(inode, _)| inode)];
    let is_local = concerned.into_iter().flatten().all(|inode| inode.shard() == shards.own);
    if is_local && !is_move {
        let inodes = concerned.into_iter().flatten().skip(1).collect();
        return Ok(Plan::Local { inodes });
    }
    match target {
        Some(_) if no_replace => return Err(FileError::Exists.into()),
        Some((inode, _)) if inode == source.inode => return Ok(Plan::Elsewhere { inode }),
        // Its part looks at the entries. But it would find none in the directory of the old name, which has left it by then.
        Some((inode, file_type)) => may_replace(is_directory, file_type, || Ok(u64::from(inode == from.0)))?,
        None => {}
    }
    let mut parts = Assembly::new(work, shards.own);
    if is_move {
        let Some(moves) = known.moves else { return Ok(Plan::NeedsWay { moved: source.inode }) };
        parts.add(ShardId::FIRST, ShardPart::CountMove { moves });
    }
    parts.add(shards.own, ShardPart::Remove { parent: from.0, name: from.1.clone(), inode: source.inode });
    let (parent, name, file_type) = (to.0, to.1.clone(), source.file_type);
    match target {
        Some((inode, replaced)) => {
            let part = ShardPart::Replace { parent, name, from: inode, to: source.inode, file_type };
            parts.add(to.0.shard(), part);
            parts.add(inode.shard(), lose(&inode, replaced));
        }
        None => {
            let part = ShardPart::Insert { parent, name, inode: Some(source.inode), file_type };
            parts.add(to.0.shard(), part);
        }
    }
    parts.add(source.inode.shard(), ShardPart::Moved { inode: source.inode, parent: to.0 });
    Ok(parts.plan())
}

fn lose(inode: &InodeId, file_type: FileType) -> ShardPart {
    match file_type {
        FileType::Directory => ShardPart::LoseDirectory { inode: *inode },
        _ => ShardPart::LoseName { inode: *inode },
    }
}

/// Where a new inode is to be.
fn place(parameters: &Parameters, parent: InodeId, name: &Bytes, node: &NewInode) -> ShardId {
    let shards = parameters.shards;
    let mut hasher = SipHasher13::new_with_key(&parameters.hash_key);
    hasher.write_u64(parent.0);
    hasher.write(name);
    let hash = hasher.finish();
    match (shards.placement, node) {
        (Placement::Parent, NewInode::Directory) => ShardId((hash % u64::from(shards.count)) as u8),
        (Placement::Spread, _) if shards.count > 1 => {
            let others = u64::from(shards.count) - 1;
            ShardId(((u64::from(shards.own.0) + 1 + hash % others) % u64::from(shards.count)) as u8)
        }
        _ => shards.own,
    }
}

/// The parts of each shard.
#[derive(Clone, Debug)]
struct Assembly {
    own: ShardParts,
    shard: ShardId,
    others: BTreeMap<ShardId, ShardParts>,
}

impl Assembly {
    fn new(work: &Work, shard: ShardId) -> Assembly {
        Assembly { own: ShardParts { now: work.context.now, parts: Vec::new() }, shard, others: BTreeMap::new() }
    }

    fn add(&mut self, shard: ShardId, part: ShardPart) {
        let now = self.own.now;
        match shard == self.shard {
            true => self.own.parts.push(part),
            false => self.others.entry(shard).or_insert(ShardParts { now, parts: Vec::new() }).parts.push(part),
        }
    }

    fn plan(self) -> Plan {
        Plan::Parts { own: self.own, others: self.others.into_iter().collect() }
    }
}
