//! Messages to and from metadata servers, and requests for objects.

use super::Grammar;
use braid_base::{Generation, ObjectId};
use braid_wire::{
    Action, ActionResult, AttributeChange, AttributeName, CommandResult, FileAnswer, FileCommand, FileError,
    FileExtent, FileRequest, FileResult, FileTime, NewInode, NewTime, OPENS, ObjectAnswer, ObjectCommand,
    ObjectFailure, ObjectRefusal, ObjectRequest, Owner, SetAttribute, SpecialType, Undefined, When,
};
use bytes::Bytes;

impl Grammar {
    pub(super) fn file_request(&mut self, host: Generation) -> FileRequest {
        let settled = self.number(40);
        let sequence =
            if self.choices.chance(95) { settled.saturating_add(self.choices.below(60)) } else { self.number(300) };
        let over = (0..self.choices.below(3)).map(|_| self.number(100)).collect();
        FileRequest { host, settled, over, sequence, command: self.file_command() }
    }

    fn file_command(&mut self) -> FileCommand {
        let (inode, parent, name) = (self.inode(), self.parent(), self.name());
        match self.choices.below(20) {
            0 => FileCommand::Nothing,
            1 => FileCommand::Lookup { parent, name },
            2 => FileCommand::Stat { inode },
            3 => FileCommand::ReadDirectory { inode: parent, after: self.number(999), most: self.number(9) as u32 },
            4 => FileCommand::ReadLink { inode },
            5..=7 => {
                let (node, exclusive) = (self.new_inode(), self.choices.chance(50));
                let owner = Owner { uid: self.number(9) as u32, gid: 0 };
                let opens = if self.choices.chance(50) { OPENS } else { 0 };
                FileCommand::Create { parent, name, node, exclusive, owner, mode: self.number(0o777) as u16 | opens }
            }
            8 => FileCommand::Link { inode, parent, name },
            9 => FileCommand::Unlink { parent, name },
            10 => FileCommand::RemoveDirectory { parent, name },
            11 => {
                let (new_parent, new_name) = (self.parent(), self.name());
                FileCommand::Rename { parent, name, new_parent, new_name, no_replace: self.choices.chance(30) }
            }
            12 => {
                let mtime = if self.choices.chance(50) {
                    Some(NewTime::Now)
                } else {
                    Some(NewTime::At(FileTime(self.number(99) as i64)))
                };
                let mode = if self.choices.chance(50) { Some(self.number(0o7777) as u16) } else { None };
                FileCommand::SetAttributes {
                    inode,
                    change: AttributeChange { mode, mtime, ..AttributeChange::default() },
                }
            }
            13 => FileCommand::Truncate { inode, size: self.number(1 << 20) },
            14 => FileCommand::Map { inode, from: self.number(99), most: self.number(9) as u32 },
            15 | 16 => FileCommand::Reserve { blocks: self.number(64) },
            17 => {
                let size = self.number(1 << 20);
                FileCommand::Attach { inode, extents: self.file_extents(), size, mtime: FileTime(1) }
            }
            18 => FileCommand::GiveBack { runs: self.ranges() },
            _ => FileCommand::StatFileSystem,
        }
    }

    pub(super) fn parent(&mut self) -> braid_base::InodeId {
        if self.choices.chance(70) { braid_base::InodeId(1) } else { self.inode() }
    }

    pub(super) fn name(&mut self) -> Bytes {
        if self.choices.chance(5) {
            return self.bytes(260);
        }
        let names: [&[u8]; 6] = [b"a", b"b", b"c", b"long name", b".", b"x/y"];
        Bytes::from_static(self.choices.pick(&names))
    }

    fn new_inode(&mut self) -> NewInode {
        match self.choices.below(5) {
            0 | 1 => NewInode::Regular,
            2 => NewInode::Directory,
            3 => NewInode::SymbolicLink { target: self.bytes(40) },
            _ => NewInode::Special { special: self.choices.pick(&SpecialType::ALL), device: self.number(9) as u32 },
        }
    }

    fn file_extents(&mut self) -> Vec<FileExtent> {
        let mut extents: Vec<FileExtent> =
            (0..self.choices.below(3)).map(|_| FileExtent { at: self.number(60), blocks: self.range() }).collect();
        if self.choices.chance(90) {
            extents.sort_by_key(|extent| extent.at);
        }
        extents
    }

    pub(super) fn file_answer(&mut self) -> FileAnswer {
        let reply = match self.choices.below(4) {
            0 => Err(FileError::Busy),
            1 => Ok(FileResult::Done),
            2 => Ok(FileResult::Reserved(self.ranges())),
            _ => Ok(FileResult::Target(self.bytes(9))),
        };
        FileAnswer { start: self.known.start, sequence: self.ticket(), reply }
    }

    pub(super) fn attribute(&mut self) -> AttributeName {
        let page = if self.choices.chance(95) { self.choices.below(2) as u32 } else { self.number(1 << 31) as u32 };
        AttributeName::new(page, self.number(4) as u32)
    }

    /// The number of an object that holds bytes and attributes.
    pub(super) fn object_number(&mut self) -> ObjectId {
        ObjectId(self.number(5))
    }

    pub(super) fn object_request(&mut self) -> ObjectRequest {
        ObjectRequest { commands: (0..self.choices.below(4)).map(|_| self.object_command()).collect() }
    }

    fn object_command(&mut self) -> ObjectCommand {
        let when = [When::Always, When::Always, When::IfSwapped, When::IfNotSwapped];
        let (when, sets_when) = (self.choices.pick(&when), self.choices.pick(&when));
        let name = self.attribute();
        let action = match self.choices.below(14) {
            0 => Action::Nothing,
            1 | 2 => Action::Create,
            3 => Action::Remove,
            4 => Action::Read { offset: self.number(9_000), length: self.number(9_000) as u32 },
            5 => Action::Write { offset: self.number(9_000), data: self.bytes(5_000) },
            6 => Action::Append { data: self.bytes(200) },
            7 => Action::Truncate { length: self.number(9_000) },
            8 => Action::Flush,
            9 => Action::Stat,
            10 => {
                let undefined = self.choices.pick(&[Undefined::Matches, Undefined::IsEmpty]);
                Action::CompareAndSwap {
                    name,
                    compare: self.bytes(9),
                    swap: self.bytes(9),
                    undefined,
                    original: self.choices.chance(50),
                }
            }
            11 => Action::FetchAndAdd { name, add: self.number(9) as i64, original: self.choices.chance(50) },
            12 => {
                let after = if self.choices.chance(50) { Some(name) } else { None };
                Action::ListAttributes { after, page: None, most: self.number(9) as u32 }
            }
            _ => Action::List { after: self.object_number(), most: self.number(9) as u32 },
        };
        let takes_none = matches!(action, Action::Remove | Action::List { .. });
        let sets = if takes_none { 0 } else { self.choices.below(3) };
        let sets = (0..sets).map(|_| SetAttribute { name: self.attribute(), value: self.bytes(30) }).collect();
        let gets = if takes_none { 0 } else { self.choices.below(3) };
        let gets = (0..gets).map(|_| self.attribute()).collect();
        ObjectCommand { object: self.object_number(), when, action, sets, sets_when, gets }
    }

    pub(super) fn object_answer(&mut self) -> ObjectAnswer {
        if self.choices.chance(30) {
            let failure = self.choices.pick(&[
                ObjectFailure::NoSuchObject,
                ObjectFailure::Busy,
                ObjectFailure::Lost,
                ObjectFailure::Malformed,
            ]);
            return Err(ObjectRefusal { command: self.number(3) as u32, failure });
        }
        let result = |grammar: &mut Grammar| {
            let action = match grammar.choices.below(6) {
                0 => ActionResult::Skipped,
                1 => ActionResult::Done,
                2 => ActionResult::Created { object: grammar.object_number() },
                3 => ActionResult::Data { data: grammar.bytes(99) },
                4 => ActionResult::Compared { swapped: grammar.choices.chance(50), original: Some(grammar.bytes(9)) },
                _ => ActionResult::Added { original: Some(grammar.number(9) as i64) },
            };
            CommandResult { action, values: (0..grammar.choices.below(3)).map(|_| grammar.bytes(9)).collect() }
        };
        Ok((0..self.choices.below(4)).map(|_| result(self)).collect())
    }
}
