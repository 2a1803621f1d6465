//! The evaluation of a command. [`braid_wire::files`] defines the commands.

use crate::work::{Context, Stop, Work, ended};
use crate::{entries, extents, inodes, rename, space};
use braid_base::limits;
use braid_objects::{Change, NotHere, View};
use braid_wire::{FileCommand, FileReply, FileResult, OPENS};
use bytes::Bytes;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// What to answer once `changes`, and everything that the view returned, are durable.
    pub answer: FileReply,
    /// The changes, to be made atomically: each key once, ascending.
    pub changes: Vec<Change>,
    /// True if the answer need not be remembered, because the command can be evaluated again: it changes nothing, or no server ever
    /// accepts it.
    pub only_asks: bool,
}

/// The most keys that one command changes. For each extent that it frees: the extent, its rest, and three runs of free blocks; for each
/// extent that it attaches: three extents, and three runs of the allotment; and some records.
pub const CHANGES_MAX: usize = limits::FILE_EXTENTS_FREED_MAX * 5 + limits::FILE_EXTENTS_MAX * 6 + 16;

/// The most bytes of all values that one command assigns to keys: extents and runs, and some inodes, of which two may be symbolic links.
pub const CHANGED_BYTES_MAX: usize = CHANGES_MAX * 17 + 16 * 512 + 2 * limits::SYMBOLIC_LINK_BYTES_MAX;

/// Evaluates a command. `Err` if it needs keys that are not in memory.
///
/// The command is validated, too, because it comes from the network.
pub fn evaluate(command: &FileCommand, context: Context, view: &mut dyn View) -> Result<Evaluation, NotHere> {
    if let Err(error) = command.check() {
        return Ok(Evaluation { answer: Err(error), changes: Vec::new(), only_asks: true });
    }
    let mut work = Work::new(view, context);
    let answer = ended(execute(command, &mut work))?;
    let changes = if answer.is_ok() { work.map.into_changes() } else { Vec::new() };
    let bytes = |change: &Change| change.value.as_ref().map_or(0, Bytes::len);
    assert!(changes.len() <= CHANGES_MAX, "a command changes no more keys than its bound");
    assert!(
        changes.iter().map(bytes).sum::<usize>() <= CHANGED_BYTES_MAX,
        "a command changes no more bytes than its bound"
    );
    assert!(!command.only_asks() || changes.is_empty(), "a command that only asks changes nothing");
    Ok(Evaluation { answer, changes, only_asks: command.only_asks() })
}

fn execute(command: &FileCommand, work: &mut Work) -> Result<FileResult, Stop> {
    match command {
        FileCommand::Nothing => Ok(FileResult::Done),
        FileCommand::Lookup { parent, name } => entries::lookup(work, *parent, name),
        FileCommand::ReadDirectory { inode, after, most } => entries::list(work, *inode, *after, *most),
        FileCommand::Stat { inode } => Ok(FileResult::Attributes(work.attributes(*inode)?)),
        FileCommand::ReadLink { inode } => inodes::read_link(work, *inode),
        FileCommand::Create { parent, name, node, exclusive, owner, mode } => {
            let new = inodes::New { node, owner: *owner, mode: *mode & !OPENS };
            inodes::create(work, *parent, name, new, *exclusive)
        }
        FileCommand::Link { inode, parent, name } => inodes::link(work, *inode, *parent, name),
        FileCommand::Unlink { parent, name } => inodes::remove(work, *parent, name, false),
        FileCommand::RemoveDirectory { parent, name } => inodes::remove(work, *parent, name, true),
        FileCommand::Rename { parent, name, new_parent, new_name, no_replace } => {
            rename::rename(work, (*parent, name), (*new_parent, new_name), *no_replace)
        }
        FileCommand::SetAttributes { inode, change } => inodes::set_attributes(work, *inode, change),
        FileCommand::Truncate { inode, size } => extents::truncate(work, *inode, *size),
        FileCommand::Map { inode, from, most } => extents::map(work, *inode, *from, *most),
        FileCommand::Attach { inode, extents, size, mtime } => extents::attach(work, *inode, extents, *size, *mtime),
        FileCommand::Reserve { blocks } => space::reserve(work, *blocks),
        FileCommand::GiveBack { runs } => space::give_back(work, runs),
        FileCommand::StatFileSystem => space::status(work),
    }
}
