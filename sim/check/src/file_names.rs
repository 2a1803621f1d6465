//! Are the operations on names and attributes linearizable? They are compared with a sequential model of a file system: a tree of names.
//!
//! The model shares nothing with the metadata server but the types of commands and answers. Where several errors apply to a command, any
//! of them fits. It assumes one thing about numbers if the file system has one shard: each new inode gets the next one. So the numbers in answers
//! show in which order inodes were made, and a gap shows that a create of unknown outcome has happened. With several shards, a create of unknown
//! outcome may have made any inode that is seen and that no other create has made, or one that is never seen.
//!
//! An inode without names, which nobody has open, may be removed at any time: from then on it is stale. An inode that a living host has
//! open must not be stale; [`check_names`] looks at that first.

use crate::file_history::{FileAction, FileFailure, FileHistory, FileOperation, FileValue};
use crate::file_search::{Found, Model, search};
use crate::prelude::*;
use braid_base::ShardId;
use braid_wire::{DirectoryEntry, FileTime, Owner};
use std::rc::Rc;

/// The verdict of a check of a history of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileVerdict {
    Linearizable {
        steps: u64,
    },
    /// No order explains the answers.
    Not(String),
    /// The search was abandoned.
    Undecided,
}

/// Decides whether the operations on names and attributes are linearizable.
pub fn check_names(history: &FileHistory) -> FileVerdict {
    if let Some(details) = open_but_stale(history) {
        return FileVerdict::Not(details);
    }
    let operations: Vec<&FileOperation> =
        history.operations().iter().filter(|operation| is_of_names(operation)).collect();
    let unclaimed = has_shards(&operations).then(|| unclaimed(&operations));
    if let Some(details) = made_twice(&operations) {
        return FileVerdict::Not(details);
    }
    match search(&Names { operations, unclaimed }, Tree::empty()) {
        Found::Order { steps } => FileVerdict::Linearizable { steps },
        Found::None(details) => FileVerdict::Not(format!("no order explains the answers about names\n{details}")),
        Found::Undecided => FileVerdict::Undecided,
    }
}

fn is_of_names(operation: &FileOperation) -> bool {
    let is_of = match &operation.action {
        FileAction::Command(command) => !matches!(command, FileCommand::StatFileSystem | FileCommand::Nothing),
        FileAction::Open { .. } | FileAction::Truncate { .. } => true,
        _ => false,
    };
    // What was refused for lack of room has changed nothing, and says nothing.
    let is_full = operation.answer() == Some(&Err(FileFailure::Refused(FileError::NoSpace)));
    let is_idle = operation.answer().is_none() && !changes_names(&operation.action);
    is_of && !is_full && !is_idle
}

fn changes_names(action: &FileAction) -> bool {
    matches!(action, FileAction::Command(command) if !command.only_asks())
}

/// An operation that found an inode stale while the same or another living host had it open.
fn open_but_stale(history: &FileHistory) -> Option<String> {
    let operations = history.operations();
    for stale in operations {
        let Some(Err(FileFailure::Refused(FileError::Stale))) = stale.answer() else { continue };
        let inode = match &stale.action {
            FileAction::Command(FileCommand::Stat { inode } | FileCommand::SetAttributes { inode, .. })
            | FileAction::Open { inode }
            | FileAction::Truncate { inode, .. } => *inode,
            _ => continue,
        };
        let ended = stale.ended().expect("it was answered");
        let opened = |open: &&FileOperation| {
            matches!(&open.action, FileAction::Open { inode: opened } if *opened == inode)
                && matches!(open.answer(), Some(Ok(_)))
                && open.ended().is_some_and(|at| at.number < stale.invoked.number)
        };
        for open in operations.iter().filter(opened) {
            // Until its process closes any file, or its host has anything of unknown outcome, which a dead host has.
            let ends = |other: &&FileOperation| {
                let is_close = matches!(other.action, FileAction::Close { .. }) && other.client == open.client;
                let is_dead = other.answer().is_none();
                other.client.host == open.client.host
                    && other.invoked.number > open.invoked.number
                    && other.invoked.number < ended.number
                    && (is_close || is_dead)
            };
            let lives = |other: &&FileOperation| {
                other.client.host == open.client.host
                    && other.invoked.number > ended.number
                    && matches!(other.answer(), Some(Ok(_)))
            };
            if operations.iter().find(ends).is_none() && operations.iter().any(|other| lives(&other)) {
                return Some(format!("an inode is stale although it is open:\n  {stale}\n  {open}"));
            }
        }
    }
    None
}

/// True if the file system has several shards: then the numbers of inodes do not follow each other.
fn has_shards(operations: &[&FileOperation]) -> bool {
    seen(operations).into_iter().any(|inode| inode.0 >= 1 << (ShardId::SHIFT - 1))
}

/// The inodes in all answers.
fn seen(operations: &[&FileOperation]) -> BTreeSet<InodeId> {
    let mut seen = BTreeSet::new();
    for operation in operations {
        seen.extend(operation.attributes().into_iter().map(|attributes| attributes.inode));
        if let Some(Ok(FileValue::Result(FileResult::Entries { entries, .. }))) = operation.answer() {
            seen.extend(entries.iter().map(|entry| entry.inode));
        }
    }
    seen.remove(&UNKNOWN);
    seen
}

/// The inodes that creates are known to have made.
fn made<'a>(operations: &'a [&FileOperation]) -> impl Iterator<Item = InodeId> + 'a {
    operations.iter().filter_map(|operation| match operation.answer() {
        Some(Ok(FileValue::Result(FileResult::Created { attributes, is_new: true }))) => Some(attributes.inode),
        _ => None,
    })
}

/// The inodes that were seen, and that none of these creates has made.
fn unclaimed(operations: &[&FileOperation]) -> Vec<InodeId> {
    let made: BTreeSet<InodeId> = made(operations).chain([InodeId::ROOT]).collect();
    seen(operations).difference(&made).copied().collect()
}

/// Two inodes never have the same number.
fn made_twice(operations: &[&FileOperation]) -> Option<String> {
    let mut seen = BTreeSet::new();
    made(operations).find(|inode| !seen.insert(*inode)).map(|inode| format!("{inode} was made twice"))
}

struct Names<'a> {
    operations: Vec<&'a FileOperation>,
    /// With several shards: the inodes that creates of unknown outcome may have made.
    unclaimed: Option<Vec<InodeId>>,
}

impl Names<'_> {
    /// The numbers that a new inode of this operation may have.
    fn numbers(&self, tree: &Tree, operation: &FileOperation) -> Vec<InodeId> {
        let is_create = matches!(operation.action, FileAction::Command(FileCommand::Create { .. }));
        let Some(unclaimed) = self.unclaimed.as_ref().filter(|_| is_create) else {
            return vec![InodeId(tree.last + 1)];
        };
        match operation.answer() {
            Some(Ok(FileValue::Result(FileResult::Created { attributes, .. }))) => vec![attributes.inode],
            Some(_) => vec![InodeId(UNSEEN)],
            None => {
                let free = unclaimed.iter().copied().filter(|inode| !tree.nodes.contains_key(inode));
                free.chain([InodeId(UNSEEN + tree.last)]).collect()
            }
        }
    }

    fn apply_with(&self, tree: &Tree, operation: &FileOperation, new: InodeId) -> Vec<Tree> {
        let done = tree.execute(&operation.action, new);
        match (operation.answer(), done) {
            (None, Ok((next, _))) => vec![next],
            (None, Err(_)) => Vec::new(),
            (Some(Ok(value)), Ok((next, expected))) if fits(value, &expected) => vec![next],
            (Some(Ok(_)), _) => Vec::new(),
            (Some(Err(FileFailure::Refused(error))), Err(errors)) if errors.contains(error) => vec![tree.clone()],
            (Some(Err(FileFailure::Refused(FileError::Stale))), _) => {
                let orphans = ids(&operation.action).into_iter().filter(|id| tree.is_orphan(*id));
                orphans.map(|id| tree.without(id)).collect()
            }
            (Some(Err(_)), _) => Vec::new(),
        }
    }
}

/// In attributes that were found: their process did not say of which inode.
const UNKNOWN: InodeId = InodeId(0);
/// The first number of inodes that no answer shows.
const UNSEEN: u64 = 1 << 63;

impl Model for Names<'_> {
    type State = Tree;

    fn apply(&self, tree: &Tree, number: usize) -> Vec<Tree> {
        let operation = self.operations[number];
        let numbers = self.numbers(tree, operation).into_iter();
        numbers.flat_map(|new| self.apply_with(tree, operation, new)).collect()
    }

    fn only_observes(&self, number: usize) -> bool {
        let operation = self.operations[number];
        let is_refused = matches!(operation.answer(), Some(Err(_)));
        is_refused || !changes_names(&operation.action)
    }

    fn operation(&self, number: usize) -> &FileOperation {
        self.operations[number]
    }

    fn len(&self) -> usize {
        self.operations.len()
    }
}

/// The inodes that an operation names.
fn ids(action: &FileAction) -> Vec<InodeId> {
    match action {
        FileAction::Open { inode } | FileAction::Truncate { inode, .. } => vec![*inode],
        FileAction::Command(command) => match command {
            FileCommand::Lookup { parent, .. }
            | FileCommand::Create { parent, .. }
            | FileCommand::Unlink { parent, .. }
            | FileCommand::RemoveDirectory { parent, .. } => vec![*parent],
            FileCommand::Link { inode, parent, .. } => vec![*inode, *parent],
            FileCommand::Rename { parent, new_parent, .. } => vec![*parent, *new_parent],
            FileCommand::Stat { inode }
            | FileCommand::ReadDirectory { inode, .. }
            | FileCommand::ReadLink { inode }
            | FileCommand::SetAttributes { inode, .. } => vec![*inode],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// A file system, as far as names and attributes go.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Tree {
    nodes: BTreeMap<InodeId, Rc<Node>>,
    /// The number of the last new inode, if they follow each other.
    last: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Node {
    file_type: FileType,
    mode: u16,
    names: u32,
    /// Of a directory: its entries, and where it is or was.
    entries: BTreeMap<Bytes, InodeId>,
    parent: InodeId,
    /// Of a symbolic link.
    target: Bytes,
    device: u32,
}

/// The next state with what is to be answered, or the errors of which one is.
type Executed<T> = Result<(Tree, T), Vec<FileError>>;

/// What is to be answered.
enum Expected {
    Done,
    Opened(FileAttributes),
    Result(FileResult),
}

/// A rename may find that both names belong to one inode, and change nothing. With several shards it reads the attributes later than the
/// names: of an inode with other names only the number must be right.
fn fits(value: &FileValue, expected: &Expected) -> bool {
    match (value, expected) {
        (FileValue::Done, Expected::Done) | (FileValue::Succeeded, Expected::Result(_)) => true,
        (FileValue::Result(FileResult::Attributes(found)), Expected::Result(FileResult::Attributes(attributes)))
            if found.inode == UNKNOWN =>
        {
            plain(FileAttributes { inode: attributes.inode, ..*found }) == *attributes
        }
        (
            FileValue::Result(FileResult::Renamed { moved: found, replaced: None }),
            Expected::Result(FileResult::Renamed { moved, replaced: None }),
        ) if moved.links > 1 && moved.file_type != FileType::Directory => found.inode == moved.inode,
        (FileValue::Opened(found), Expected::Opened(attributes)) => plain(*found) == *attributes,
        (FileValue::Result(found), Expected::Result(result)) => plain_result(found) == *result,
        _ => false,
    }
}

/// The attributes that the model knows; the size of a file is a matter of its bytes.
fn plain(found: FileAttributes) -> FileAttributes {
    let time = FileTime::default();
    let size = if found.file_type == FileType::Regular { 0 } else { found.size };
    FileAttributes { owner: Owner::default(), size, blocks: 0, atime: time, mtime: time, ctime: time, ..found }
}

fn plain_result(found: &FileResult) -> FileResult {
    match found {
        FileResult::Attributes(attributes) => FileResult::Attributes(plain(*attributes)),
        FileResult::Created { attributes, is_new } => {
            FileResult::Created { attributes: plain(*attributes), is_new: *is_new }
        }
        FileResult::Removed(attributes) => FileResult::Removed(plain(*attributes)),
        FileResult::Renamed { moved, replaced } => {
            FileResult::Renamed { moved: plain(*moved), replaced: replaced.map(plain) }
        }
        FileResult::Entries { entries, more } => {
            let mut entries: Vec<_> =
                entries.iter().map(|entry| DirectoryEntry { cookie: 0, ..entry.clone() }).collect();
            entries.sort_by(|one, other| one.name.cmp(&other.name));
            FileResult::Entries { entries, more: *more }
        }
        other => other.clone(),
    }
}

impl Tree {
    fn empty() -> Tree {
        let root = Node {
            file_type: FileType::Directory,
            mode: 0o755,
            names: 1,
            entries: BTreeMap::new(),
            parent: InodeId::ROOT,
            target: Bytes::new(),
            device: 0,
        };
        Tree { nodes: BTreeMap::from([(InodeId::ROOT, Rc::new(root))]), last: InodeId::ROOT.0 }
    }

    fn is_orphan(&self, id: InodeId) -> bool {
        self.nodes.get(&id).is_some_and(|node| node.names == 0)
    }

    fn without(&self, id: InodeId) -> Tree {
        let mut next = self.clone();
        next.nodes.remove(&id);
        next
    }

    fn node_mut(&mut self, id: InodeId) -> &mut Node {
        Rc::make_mut(self.nodes.get_mut(&id).expect("just looked up"))
    }

    fn directories_in(&self, node: &Node) -> u32 {
        let is_directory = |id: &&InodeId| self.nodes[*id].file_type == FileType::Directory;
        node.entries.values().filter(is_directory).count() as u32
    }

    fn attributes(&self, id: InodeId) -> FileAttributes {
        let node = &self.nodes[&id];
        let is_directory = node.file_type == FileType::Directory;
        let links = match (is_directory, node.names) {
            (true, 0) => 0,
            (true, _) => 2 + self.directories_in(node),
            (false, names) => names,
        };
        let time = FileTime::default();
        FileAttributes {
            inode: id,
            file_type: node.file_type,
            mode: node.mode,
            owner: Owner::default(),
            links,
            size: (node.entries.len() + node.target.len()) as u64,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            parent: is_directory.then_some(node.parent),
            device: node.device,
        }
    }

    /// What prevents the use of an inode as a directory.
    fn directory_errors(&self, id: InodeId) -> Option<FileError> {
        match self.nodes.get(&id) {
            None => Some(FileError::Stale),
            Some(node) if node.file_type != FileType::Directory => Some(FileError::NotADirectory),
            Some(_) => None,
        }
    }

    /// What prevents a new name in a directory.
    fn entry_errors(&self, id: InodeId) -> Option<FileError> {
        self.directory_errors(id).or_else(|| self.is_orphan(id).then_some(FileError::NoSuchName))
    }

    fn entry(&self, parent: InodeId, name: &Bytes) -> Option<InodeId> {
        self.nodes.get(&parent)?.entries.get(name).copied()
    }

    fn file_type(&self, id: InodeId) -> FileType {
        self.nodes[&id].file_type
    }

    /// Executes an operation. A new inode gets the number `new`.
    fn execute(&self, action: &FileAction, new: InodeId) -> Executed<Expected> {
        match action {
            FileAction::Command(command) => {
                let (next, result) = self.command(command, new)?;
                Ok((next, Expected::Result(result)))
            }
            FileAction::Open { inode } | FileAction::Truncate { inode, .. } => {
                match self.nodes.get(inode).map(|node| node.file_type) {
                    None => Err(vec![FileError::Stale]),
                    Some(FileType::Directory) => Err(vec![FileError::IsADirectory]),
                    Some(FileType::SymbolicLink | FileType::Special(_)) => Err(vec![FileError::NotAFile]),
                    Some(FileType::Regular) if matches!(action, FileAction::Open { .. }) => {
                        Ok((self.clone(), Expected::Opened(self.attributes(*inode))))
                    }
                    Some(FileType::Regular) => Ok((self.clone(), Expected::Done)),
                }
            }
            _ => Err(Vec::new()),
        }
    }

    fn command(&self, command: &FileCommand, new: InodeId) -> Executed<FileResult> {
        match command {
            FileCommand::Lookup { parent, name } => {
                refuse(self.directory_errors(*parent))?;
                let found = self.entry(*parent, name).ok_or(vec![FileError::NoSuchName])?;
                self.asked(FileResult::Attributes(self.attributes(found)))
            }
            FileCommand::Stat { inode } => {
                self.existing(*inode)?;
                self.asked(FileResult::Attributes(self.attributes(*inode)))
            }
            FileCommand::ReadDirectory { inode, .. } => {
                refuse(self.directory_errors(*inode))?;
                let entry = |(name, inode): (&Bytes, &InodeId)| DirectoryEntry {
                    cookie: 0,
                    inode: *inode,
                    file_type: self.file_type(*inode),
                    name: name.clone(),
                };
                let entries = self.nodes[inode].entries.iter().map(entry).collect();
                self.asked(FileResult::Entries { entries, more: false })
            }
            FileCommand::ReadLink { inode } => {
                let node = self.existing(*inode)?;
                refuse((node.file_type != FileType::SymbolicLink).then_some(FileError::NotALink))?;
                self.asked(FileResult::Target(node.target.clone()))
            }
            FileCommand::Create { parent, name, node, exclusive, mode, .. } => {
                self.create((*parent, name), node, (*exclusive, *mode), new)
            }
            FileCommand::Link { inode, parent, name } => self.link(*inode, *parent, name),
            FileCommand::Unlink { parent, name } => {
                refuse(self.directory_errors(*parent))?;
                let found = self.entry(*parent, name).ok_or(vec![FileError::NoSuchName])?;
                refuse((self.file_type(found) == FileType::Directory).then_some(FileError::IsADirectory))?;
                self.remove(*parent, name, found)
            }
            FileCommand::RemoveDirectory { parent, name } => {
                refuse(self.directory_errors(*parent))?;
                let found = self.entry(*parent, name).ok_or(vec![FileError::NoSuchName])?;
                refuse((self.file_type(found) != FileType::Directory).then_some(FileError::NotADirectory))?;
                refuse((!self.nodes[&found].entries.is_empty()).then_some(FileError::NotEmpty))?;
                self.remove(*parent, name, found)
            }
            FileCommand::Rename { parent, name, new_parent, new_name, no_replace } => {
                self.rename((*parent, name), (*new_parent, new_name), *no_replace)
            }
            FileCommand::SetAttributes { inode, change } => {
                self.existing(*inode)?;
                let mut next = self.clone();
                let node = next.node_mut(*inode);
                node.mode = change.mode.unwrap_or(node.mode);
                let attributes = next.attributes(*inode);
                Ok((next, FileResult::Attributes(attributes)))
            }
            _ => Err(Vec::new()),
        }
    }

    fn asked(&self, result: FileResult) -> Executed<FileResult> {
        Ok((self.clone(), result))
    }

    fn existing(&self, id: InodeId) -> Result<&Rc<Node>, Vec<FileError>> {
        self.nodes.get(&id).ok_or(vec![FileError::Stale])
    }

    fn create(
        &self,
        (parent, name): (InodeId, &Bytes),
        new: &NewInode,
        (exclusive, mode): (bool, u16),
        id: InodeId,
    ) -> Executed<FileResult> {
        refuse(self.entry_errors(parent))?;
        if let Some(found) = self.entry(parent, name) {
            refuse((exclusive || *new != NewInode::Regular).then_some(FileError::Exists))?;
            refuse((self.file_type(found) == FileType::Directory).then_some(FileError::IsADirectory))?;
            return self.asked(FileResult::Created { attributes: self.attributes(found), is_new: false });
        }
        let (file_type, target, device) = (new.file_type(), Bytes::copy_from_slice(new.target()), new.device());
        let mut next = self.clone();
        next.last += 1;
        let node = Node { file_type, mode, names: 1, entries: BTreeMap::new(), parent, target, device };
        next.nodes.insert(id, Rc::new(node));
        next.node_mut(parent).entries.insert(name.clone(), id);
        let attributes = next.attributes(id);
        Ok((next, FileResult::Created { attributes, is_new: true }))
    }

    fn link(&self, inode: InodeId, parent: InodeId, name: &Bytes) -> Executed<FileResult> {
        let mut errors: Vec<FileError> = self.entry_errors(parent).into_iter().collect();
        match self.nodes.get(&inode) {
            None => errors.push(FileError::Stale),
            Some(node) if node.file_type == FileType::Directory => errors.push(FileError::LinkToDirectory),
            Some(node) if node.names == 0 => errors.push(FileError::NoSuchName),
            Some(_) => {}
        }
        if self.entry(parent, name).is_some() {
            errors.push(FileError::Exists);
        }
        refuse(errors)?;
        let mut next = self.clone();
        next.node_mut(parent).entries.insert(name.clone(), inode);
        next.node_mut(inode).names += 1;
        let attributes = next.attributes(inode);
        Ok((next, FileResult::Attributes(attributes)))
    }

    fn remove(&self, parent: InodeId, name: &Bytes, found: InodeId) -> Executed<FileResult> {
        let mut next = self.clone();
        next.node_mut(parent).entries.remove(name);
        next.node_mut(found).names -= 1;
        let attributes = next.attributes(found);
        Ok((next, FileResult::Removed(attributes)))
    }

    fn rename(&self, from: (InodeId, &Bytes), to: (InodeId, &Bytes), no_replace: bool) -> Executed<FileResult> {
        let mut errors: Vec<FileError> =
            self.directory_errors(from.0).into_iter().chain(self.entry_errors(to.0)).collect();
        let source = self.entry(from.0, from.1);
        let target = self.entry(to.0, to.1);
        errors.extend(source.is_none().then_some(FileError::NoSuchName));
        errors.extend((target.is_some() && no_replace).then_some(FileError::Exists));
        if let Some(source) = source {
            let is_directory = self.file_type(source) == FileType::Directory;
            if is_directory && from.0 != to.0 && self.is_in(to.0, source) {
                errors.push(FileError::IntoItself);
            }
            if let Some(target) = target.filter(|target| *target != source) {
                let onto_directory = self.file_type(target) == FileType::Directory;
                match (is_directory, onto_directory) {
                    (true, false) => errors.push(FileError::NotADirectory),
                    (false, true) => errors.push(FileError::IsADirectory),
                    (true, true) if !self.nodes[&target].entries.is_empty() => errors.push(FileError::NotEmpty),
                    _ => {}
                }
            }
        }
        refuse(errors)?;
        let source = source.expect("otherwise there is an error");
        if target == Some(source) {
            return self.asked(FileResult::Renamed { moved: self.attributes(source), replaced: None });
        }
        let mut next = self.clone();
        if let Some(target) = target {
            next.node_mut(target).names -= 1;
        }
        next.node_mut(from.0).entries.remove(from.1);
        next.node_mut(to.0).entries.insert(to.1.clone(), source);
        if next.file_type(source) == FileType::Directory {
            next.node_mut(source).parent = to.0;
        }
        let (moved, replaced) = (next.attributes(source), target.map(|target| next.attributes(target)));
        Ok((next, FileResult::Renamed { moved, replaced }))
    }

    /// True if a directory is another one, or lies below it.
    fn is_in(&self, directory: InodeId, other: InodeId) -> bool {
        let mut at = directory;
        while at != other {
            let Some(node) = self.nodes.get(&at).filter(|_| at != InodeId::ROOT) else { return false };
            at = node.parent;
        }
        true
    }
}

fn refuse(errors: impl IntoIterator<Item = FileError>) -> Result<(), Vec<FileError>> {
    let errors: Vec<FileError> = errors.into_iter().collect();
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}
