//! A file system as simple as possible: each file has a map of its blocks, and links are counted when they are asked for. It does not
//! choose free blocks and cookies: it checks those that were chosen.

use crate::system::*;
use braid_wire::*;

pub struct Model {
    nodes: BTreeMap<u64, Node>,
    last: u64,
    blocks: u64,
    /// The blocks of each host.
    allotted: BTreeMap<u32, BTreeSet<u64>>,
}

#[derive(Clone, Default)]
struct Node {
    kind: Option<FileType>,
    mode: u16,
    owner: Owner,
    times: [i64; 3],
    size: u64,
    entries: BTreeMap<Bytes, u64>,
    blocks: BTreeMap<u64, u64>,
    target: Bytes,
    device: u32,
}

type Outcome<T> = Result<T, FileError>;

impl Model {
    pub fn new(blocks: u64) -> Model {
        let root = Node { kind: Some(FileType::Directory), mode: 0o755, ..Node::default() };
        Model { nodes: [(1, root)].into(), last: 1, blocks, allotted: BTreeMap::new() }
    }

    /// Takes a command, and the answer that was given to it. The answer of the model, which must be the same.
    pub fn answer(
        &mut self,
        host: u32,
        command: &FileCommand,
        now: i64,
        is_full: bool,
        given: &FileReply,
    ) -> FileReply {
        let may_grow = if is_full { Err(FileError::NoSpace) } else { Ok(()) };
        match command {
            FileCommand::Nothing => Ok(FileResult::Done),
            FileCommand::Lookup { parent, name } => {
                let inode = self.entry(parent.0, name)?.ok_or(FileError::NoSuchName)?;
                Ok(FileResult::Attributes(self.attributes(inode)))
            }
            FileCommand::Stat { inode } => {
                self.node(inode.0)?;
                Ok(FileResult::Attributes(self.attributes(inode.0)))
            }
            FileCommand::ReadDirectory { inode, after, most } => {
                self.directory(inode.0)?;
                self.check_list(inode.0, *after, *most, given);
                given.clone()
            }
            FileCommand::ReadLink { inode } => match self.node(inode.0)? {
                node if node.kind == Some(FileType::SymbolicLink) => Ok(FileResult::Target(node.target.clone())),
                _ => Err(FileError::NotALink),
            },
            FileCommand::Create { parent, name, node, exclusive, owner, mode } => {
                if let Some(inode) = self.entry(parent.0, name)? {
                    let attributes = self.attributes(inode);
                    return match node {
                        NewInode::Regular if !exclusive && attributes.file_type == FileType::Directory => {
                            Err(FileError::IsADirectory)
                        }
                        NewInode::Regular if !exclusive => Ok(FileResult::Created { attributes, is_new: false }),
                        _ => Err(FileError::Exists),
                    };
                }
                self.alive(parent.0)?;
                may_grow?;
                self.last += 1;
                let (kind, target, device) = match node {
                    NewInode::Regular => (FileType::Regular, Bytes::new(), 0),
                    NewInode::Directory => (FileType::Directory, Bytes::new(), 0),
                    NewInode::SymbolicLink { target } => (FileType::SymbolicLink, target.clone(), 0),
                    NewInode::Special { special, device } => (FileType::Special(*special), Bytes::new(), *device),
                };
                let (size, times) = (target.len() as u64, [now; 3]);
                let (mut mode, mut owner) = (*mode, *owner);
                let directory = &self.nodes[&parent.0];
                if directory.mode & 0o2000 != 0 {
                    owner.gid = directory.owner.gid;
                    mode |= if kind == FileType::Directory { 0o2000 } else { 0 };
                }
                let kind = Some(kind);
                self.nodes
                    .insert(self.last, Node { kind, mode, owner, times, size, target, device, ..Node::default() });
                self.set_entry(parent.0, name, Some(self.last), now);
                Ok(FileResult::Created { attributes: self.attributes(self.last), is_new: true })
            }
            FileCommand::Link { inode, parent, name } => {
                if self.node(inode.0)?.kind == Some(FileType::Directory) {
                    return Err(FileError::LinkToDirectory);
                }
                let existing = self.entry(parent.0, name)?;
                self.alive(parent.0)?;
                if existing.is_some() {
                    return Err(FileError::Exists);
                }
                if self.names(inode.0) == 0 {
                    return Err(FileError::NoSuchName);
                }
                may_grow?;
                self.set_entry(parent.0, name, Some(inode.0), now);
                self.changed(inode.0, now);
                Ok(FileResult::Attributes(self.attributes(inode.0)))
            }
            FileCommand::Unlink { parent, name } => {
                let inode = self.entry(parent.0, name)?.ok_or(FileError::NoSuchName)?;
                if self.is_directory(inode) {
                    return Err(FileError::IsADirectory);
                }
                self.set_entry(parent.0, name, None, now);
                self.changed(inode, now);
                Ok(FileResult::Removed(self.attributes(inode)))
            }
            FileCommand::RemoveDirectory { parent, name } => {
                let inode = self.entry(parent.0, name)?.ok_or(FileError::NoSuchName)?;
                if !self.is_directory(inode) {
                    return Err(FileError::NotADirectory);
                }
                if !self.nodes[&inode].entries.is_empty() {
                    return Err(FileError::NotEmpty);
                }
                let removed = self.attributes(inode);
                self.set_entry(parent.0, name, None, now);
                self.changed(inode, now);
                Ok(FileResult::Removed(FileAttributes { links: 0, ctime: FileTime(now), ..removed }))
            }
            FileCommand::Rename { parent, name, new_parent, new_name, no_replace } => {
                let from = (parent.0, name);
                self.rename(from, (new_parent.0, new_name), *no_replace, may_grow, now)
            }
            FileCommand::SetAttributes { inode, change } => {
                self.node(inode.0)?;
                let node = self.nodes.get_mut(&inode.0).expect("it exists");
                node.mode = change.mode.unwrap_or(node.mode);
                node.owner.uid = change.uid.unwrap_or(node.owner.uid);
                node.owner.gid = change.gid.unwrap_or(node.owner.gid);
                for (new, time) in [change.atime, change.mtime].into_iter().zip(&mut node.times) {
                    match new {
                        None => {}
                        Some(NewTime::Now) => *time = now,
                        Some(NewTime::At(at)) => *time = at.0,
                    }
                }
                self.changed(inode.0, now);
                Ok(FileResult::Attributes(self.attributes(inode.0)))
            }
            FileCommand::Truncate { inode, size } => {
                self.regular(inode.0)?;
                let node = self.nodes.get_mut(&inode.0).expect("it exists");
                node.blocks.retain(|at, _| *at * BLOCK < *size);
                node.size = *size;
                node.times[1] = now;
                self.changed(inode.0, now);
                Ok(FileResult::Truncated { attributes: self.attributes(inode.0), is_done: true })
            }
            FileCommand::Map { inode, from, most } => {
                self.regular(inode.0)?;
                let node = &self.nodes[&inode.0];
                let mut extents = extents_of(node.blocks.range(from..));
                let more = extents.len() > *most as usize;
                extents.truncate(*most as usize);
                Ok(FileResult::Extents { extents, more, size: node.size })
            }
            FileCommand::Reserve { .. } => {
                may_grow?;
                let free = self.free();
                if free.is_empty() {
                    return Err(FileError::NoSpace);
                }
                let Ok(FileResult::Reserved(runs)) = given else { panic!("there are free blocks, but: {given:?}") };
                assert!(!runs.is_empty(), "a reservation of nothing");
                let allotted: Vec<u64> = runs.iter().flat_map(|run| run.blocks()).collect();
                assert!(allotted.iter().all(|block| free.contains(block)), "{runs:?} are not all free");
                let count = allotted.len();
                let own = self.allotted.entry(host).or_default();
                let before = own.len();
                own.extend(allotted);
                assert_eq!(own.len(), before + count, "no block is given twice");
                given.clone()
            }
            FileCommand::Attach { inode, extents, size, mtime } => {
                self.regular(inode.0)?;
                may_grow?;
                let mut own = self.allotted.get(&host).cloned().unwrap_or_default();
                let mut blocks = self.nodes[&inode.0].blocks.clone();
                for (at, block) in extents.iter().flat_map(|extent| (extent.at..).zip(extent.blocks.blocks())) {
                    if !own.remove(&block) {
                        return Err(FileError::NotAllotted);
                    }
                    blocks.insert(at, block);
                }
                self.allotted.insert(host, own);
                let node = self.nodes.get_mut(&inode.0).expect("it exists");
                node.blocks = blocks;
                node.size = node.size.max(*size);
                node.times[1] = mtime.0;
                self.changed(inode.0, now);
                Ok(FileResult::Attached { attributes: self.attributes(inode.0), next: None })
            }
            FileCommand::GiveBack { runs } => {
                let mut own = self.allotted.get(&host).cloned().unwrap_or_default();
                let all_own = runs.iter().flat_map(|run| run.blocks()).all(|block| own.remove(&block));
                if !all_own {
                    return Err(FileError::NotAllotted);
                }
                self.allotted.insert(host, own);
                Ok(FileResult::Done)
            }
            FileCommand::StatFileSystem => Ok(FileResult::FileSystem(FileSystemStatus {
                blocks: self.blocks,
                free: self.free().len() as u64,
                allotted: self.allotted.values().map(|blocks| blocks.len() as u64).sum(),
                inodes: self.nodes.len() as u64,
            })),
        }
    }

    /// Inodes without names.
    pub fn unlinked_inodes(&self) -> Vec<InodeId> {
        let is_orphan = |inode: &&u64| **inode != 1 && self.names(**inode) == 0;
        self.nodes.keys().filter(is_orphan).map(|inode| InodeId(*inode)).collect()
    }

    pub fn reclaim(&mut self, inode: InodeId) {
        if self.unlinked_inodes().contains(&inode) {
            self.nodes.remove(&inode.0);
        }
    }

    pub fn drop_host(&mut self, host: u32) {
        self.allotted.remove(&host);
    }

    /// A host's blocks that follow each other, beginning with the block that `pick` selects.
    pub fn some_allotted(&self, host: u32, pick: usize, most: u64) -> Option<BlockRange> {
        let own = self.allotted.get(&host).filter(|own| !own.is_empty())?;
        let start = *own.iter().nth(pick % own.len())?;
        let count = (start..).take_while(|block| own.contains(block)).take(most as usize).count();
        Some(BlockRange::new(start, count as u64))
    }

    pub fn inodes(&self, is_wanted: impl Fn(FileType) -> bool) -> Vec<InodeId> {
        let wanted = self.nodes.iter().filter(|(_, node)| node.kind.is_some_and(&is_wanted));
        wanted.map(|(inode, _)| InodeId(*inode)).collect()
    }

    pub fn names_in(&self, directory: InodeId) -> Vec<Bytes> {
        self.nodes.get(&directory.0).map_or(Vec::new(), |node| node.entries.keys().cloned().collect())
    }

    pub fn last(&self) -> u64 {
        self.last
    }

    /// Every directory with its names: those to remove first come first.
    pub fn all_names(&self) -> Vec<(InodeId, Bytes, bool)> {
        let mut found = Vec::new();
        let mut next = vec![1];
        while let Some(directory) = next.pop() {
            for (name, inode) in &self.nodes[&directory].entries {
                found.push((InodeId(directory), name.clone(), self.is_directory(*inode)));
                next.extend(Some(*inode).filter(|inode| self.is_directory(*inode)));
            }
        }
        found.reverse();
        found
    }

    fn rename(
        &mut self,
        from: (u64, &Bytes),
        to: (u64, &Bytes),
        no_replace: bool,
        may_grow: Outcome<()>,
        now: i64,
    ) -> FileReply {
        let moved = self.entry(from.0, from.1)?.ok_or(FileError::NoSuchName)?;
        let target = self.entry(to.0, to.1)?;
        self.alive(to.0)?;
        if from.0 != to.0 && self.is_below(to.0, moved) {
            return Err(FileError::IntoItself);
        }
        if no_replace && target.is_some() {
            return Err(FileError::Exists);
        }
        if target == Some(moved) {
            return Ok(FileResult::Renamed { moved: self.attributes(moved), replaced: None });
        }
        if let Some(target) = target {
            match (self.is_directory(moved), self.is_directory(target)) {
                (true, false) => return Err(FileError::NotADirectory),
                (false, true) => return Err(FileError::IsADirectory),
                (true, true) if !self.nodes[&target].entries.is_empty() => return Err(FileError::NotEmpty),
                _ => {}
            }
        }
        may_grow?;
        let parent_before = target.map(|target| self.attributes(target).parent);
        self.set_entry(from.0, from.1, None, now);
        self.set_entry(to.0, to.1, Some(moved), now);
        self.changed(moved, now);
        if let Some(target) = target {
            self.changed(target, now);
        }
        let replaced = target.map(|target| self.attributes(target));
        let replaced = replaced.map(|attributes| FileAttributes { parent: parent_before.flatten(), ..attributes });
        Ok(FileResult::Renamed { moved: self.attributes(moved), replaced })
    }

    /// True if a directory is `ancestor`, or below it.
    fn is_below(&self, directory: u64, ancestor: u64) -> bool {
        directory == ancestor
            || directory != 1 && self.parent(directory).is_some_and(|parent| self.is_below(parent, ancestor))
    }

    /// A list has entries of the directory, ascending, none before or at the cookie, and says whether it is complete.
    fn check_list(&self, directory: u64, after: u64, most: u32, given: &FileReply) {
        let Ok(FileResult::Entries { entries, more }) = given else { panic!("a list failed: {given:?}") };
        assert!(entries.len() <= most as usize && (!more || entries.len() == most as usize));
        assert!(entries.is_sorted_by(|one, next| one.cookie < next.cookie));
        let present = &self.nodes[&directory].entries;
        for entry in entries {
            assert!(entry.cookie > after && entry.cookie >= FIRST_COOKIE);
            assert_eq!(present.get(&entry.name), Some(&entry.inode.0));
            assert_eq!(self.nodes[&entry.inode.0].kind, Some(entry.file_type));
        }
        assert!(after > 0 || *more || entries.len() == present.len(), "the list is complete");
    }

    fn node(&self, inode: u64) -> Outcome<&Node> {
        self.nodes.get(&inode).ok_or(FileError::Stale)
    }

    fn directory(&self, inode: u64) -> Outcome<&Node> {
        Some(self.node(inode)?).filter(|node| node.kind == Some(FileType::Directory)).ok_or(FileError::NotADirectory)
    }

    fn regular(&self, inode: u64) -> Outcome<()> {
        match self.node(inode)?.kind {
            Some(FileType::Regular) => Ok(()),
            Some(FileType::Directory) => Err(FileError::IsADirectory),
            _ => Err(FileError::NotAFile),
        }
    }

    fn is_directory(&self, inode: u64) -> bool {
        self.nodes[&inode].kind == Some(FileType::Directory)
    }

    fn entry(&self, directory: u64, name: &Bytes) -> Outcome<Option<u64>> {
        Ok(self.directory(directory)?.entries.get(name).copied())
    }

    /// A removed directory takes no names.
    fn alive(&self, directory: u64) -> Outcome<()> {
        if directory == 1 || self.names(directory) > 0 { Ok(()) } else { Err(FileError::NoSuchName) }
    }

    fn set_entry(&mut self, directory: u64, name: &Bytes, inode: Option<u64>, now: i64) {
        let node = self.nodes.get_mut(&directory).expect("it exists");
        match inode {
            Some(inode) => node.entries.insert(name.clone(), inode),
            None => node.entries.remove(name),
        };
        node.times[1] = now;
        node.times[2] = now;
    }

    fn changed(&mut self, inode: u64, now: i64) {
        self.nodes.get_mut(&inode).expect("it exists").times[2] = now;
    }

    fn names(&self, inode: u64) -> usize {
        self.nodes.values().flat_map(|node| node.entries.values()).filter(|named| **named == inode).count()
    }

    fn parent(&self, directory: u64) -> Option<u64> {
        self.nodes
            .iter()
            .find(|(_, node)| node.entries.values().any(|inode| *inode == directory))
            .map(|(inode, _)| *inode)
    }

    fn free(&self) -> BTreeSet<u64> {
        let in_files = self.nodes.values().flat_map(|node| node.blocks.values());
        let used: BTreeSet<u64> = in_files.chain(self.allotted.values().flatten()).copied().collect();
        (0..self.blocks).filter(|block| !used.contains(block)).collect()
    }

    /// The attributes of an inode. A directory without a name has no parent here, but in fact keeps its last one: callers know.
    pub fn attributes(&self, inode: u64) -> FileAttributes {
        let node = &self.nodes[&inode];
        let names = self.names(inode);
        let is_directory = self.is_directory(inode);
        let directories = node.entries.values().filter(|inode| self.is_directory(**inode)).count();
        let links = if is_directory && (names > 0 || inode == 1) { 2 + directories } else { names };
        let [atime, mtime, ctime] = node.times.map(FileTime);
        let parent = if inode == 1 { Some(1) } else { self.parent(inode) };
        FileAttributes {
            inode: InodeId(inode),
            file_type: node.kind.expect("every node has one"),
            mode: node.mode,
            owner: node.owner,
            links: links as u32,
            size: if is_directory { node.entries.len() as u64 } else { node.size },
            blocks: node.blocks.len() as u64,
            atime,
            mtime,
            ctime,
            parent: parent.filter(|_| is_directory).map(InodeId),
            device: node.device,
        }
    }
}

/// The longest extents of some blocks.
fn extents_of<'a>(blocks: impl Iterator<Item = (&'a u64, &'a u64)>) -> Vec<FileExtent> {
    let mut extents: Vec<FileExtent> = Vec::new();
    for (at, block) in blocks {
        match extents.last_mut().filter(|last| last.end() == *at && last.blocks.end() == *block) {
            Some(last) => last.blocks.count += 1,
            None => extents.push(FileExtent { at: *at, blocks: BlockRange::new(*block, 1) }),
        }
    }
    extents
}
