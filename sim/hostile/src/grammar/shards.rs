//! Messages between metadata servers: questions, and the commit protocols.

use super::Grammar;
use braid_base::{Encoded, InodeId, ShardId};
use braid_commit::{Body, Message as CommitMessage, Protocol, TransactionName, Verdict};
use braid_wire::{
    DirectoryEntry, FileAttributes, FileError, FileTime, FileType, NewInode, Owner, ShardBody, ShardFinding,
    ShardMessage, ShardPart, ShardParts, ShardQuestion, ShardReply,
};
use bytes::Bytes;

impl Grammar {
    pub(super) fn shard_message(&mut self) -> ShardMessage {
        let from = if self.choices.chance(95) { ShardId(1) } else { self.shard() };
        let start = if self.choices.chance(90) { self.known.start } else { self.generation() };
        let body = match self.choices.below(10) {
            0 => ShardBody::Read { start, number: self.ticket(), question: self.question() },
            1 => ShardBody::ReadAnswer { start, number: self.ticket(), reply: self.shard_reply() },
            2 => ShardBody::Commit { message: self.bytes(60) },
            3 => {
                let (round, received) = (self.number(3), self.number(3));
                ShardBody::SpaceRequest { start, round, received, blocks: self.number(2_000) }
            }
            4 => {
                let (round, number) = (self.number(3), self.number(3));
                let runs = (0..self.choices.below(3)).map(|_| self.range()).collect();
                ShardBody::SpaceTransfer { start, round, number, runs }
            }
            _ => ShardBody::Commit { message: self.commit_message().encode() },
        };
        ShardMessage { from, body }
    }

    fn shard(&mut self) -> ShardId {
        ShardId(self.choices.pick(&[0, 1, 7, 8, u8::MAX]))
    }

    /// An inode of the other shard, or any.
    fn inode_elsewhere(&mut self) -> InodeId {
        let inode = self.inode();
        if self.choices.chance(50) { InodeId(inode.0 | (1 << 56)) } else { inode }
    }

    fn question(&mut self) -> ShardQuestion {
        let (inode, parent, name) = (self.inode_elsewhere(), self.parent(), self.name());
        match self.choices.below(4) {
            0 => ShardQuestion::Inode { inode },
            1 => ShardQuestion::Name { parent, name },
            2 => ShardQuestion::Moves,
            _ => ShardQuestion::Place { inode },
        }
    }

    fn shard_reply(&mut self) -> Result<ShardReply, FileError> {
        match self.choices.below(4) {
            0 => Err(FileError::Stale),
            1 => Ok(ShardReply::Inode(self.attributes())),
            2 => {
                let (inode, name) = (self.inode_elsewhere(), self.name());
                let entry = DirectoryEntry { cookie: self.number(999), name, inode, file_type: FileType::Regular };
                Ok(ShardReply::Name(if self.choices.chance(50) { Some(entry) } else { None }))
            }
            _ => Ok(ShardReply::Moves(self.number(3))),
        }
    }

    fn attributes(&mut self) -> FileAttributes {
        FileAttributes {
            inode: self.inode_elsewhere(),
            file_type: self.choices.pick(&[FileType::Regular, FileType::Directory]),
            mode: 0o644,
            owner: Owner::default(),
            links: self.number(4) as u32,
            size: self.number(1 << 20),
            blocks: self.number(9),
            atime: FileTime(1),
            mtime: FileTime(1),
            ctime: FileTime(1),
            parent: if self.choices.chance(50) { Some(self.inode_elsewhere()) } else { None },
            device: 0,
        }
    }

    /// About a transaction of this machine, of the other server, or of any.
    fn commit_message(&mut self) -> CommitMessage {
        let known: Vec<CommitMessage> = self.known.commits.iter().cloned().collect();
        let (protocol, transaction) = if !known.is_empty() && self.choices.chance(70) {
            let about = known[self.choices.below(known.len() as u64) as usize].clone();
            (about.protocol, about.transaction)
        } else {
            let shard = if self.choices.chance(80) { ShardId(1) } else { self.shard() };
            (self.choices.pick(&Protocol::ALL), TransactionName { shard, sequence: self.number(12) })
        };
        let protocol = if self.choices.chance(95) { protocol } else { self.choices.pick(&Protocol::ALL) };
        let settled = if self.choices.chance(80) { 0 } else { self.number(12) };
        CommitMessage { protocol, transaction, settled, body: self.commit_body() }
    }

    fn commit_body(&mut self) -> Body {
        match self.choices.below(15) {
            0..4 => Body::Update { requests: vec![self.shard_request()] },
            4 => Body::Update { requests: (0..self.choices.below(4)).map(|_| self.shard_request()).collect() },
            5 => Body::Updated { verdicts: self.verdicts() },
            6 => Body::Prepare,
            7 => Body::Prepared { verdicts: self.verdicts() },
            8 => Body::NotPrepared,
            9 => Body::Commit,
            10 => Body::Abort,
            11 => Body::Acknowledge,
            12 => Body::Ask,
            13 => Body::Inquire,
            _ => Body::Settled,
        }
    }

    fn shard_request(&mut self) -> Bytes {
        if self.choices.chance(5) {
            return self.bytes(60);
        }
        let parts = (0..=self.choices.below(3)).map(|_| self.shard_part()).collect();
        ShardParts { now: FileTime(self.number(99) as i64), parts }.encode()
    }

    fn shard_part(&mut self) -> ShardPart {
        let (inode, parent, name) = (self.inode(), self.parent(), self.name());
        let (elsewhere, file_type) = (self.inode_elsewhere(), FileType::Regular);
        match self.choices.below(9) {
            0 | 1 => {
                ShardPart::Make { inode: None, parent, node: NewInode::Regular, owner: Owner::default(), mode: 0o600 }
            }
            2 => ShardPart::GainName { inode },
            3 => ShardPart::LoseName { inode },
            4 => ShardPart::LoseDirectory { inode },
            5 => ShardPart::Moved { inode, parent: elsewhere },
            6 => ShardPart::Insert { parent, name, inode: Some(elsewhere), file_type },
            7 => ShardPart::Remove { parent, name, inode: elsewhere },
            _ => ShardPart::CountMove { moves: self.number(3) },
        }
    }

    fn verdicts(&mut self) -> Vec<Verdict> {
        (0..=self.choices.below(2)).map(|_| self.verdict()).collect()
    }

    fn verdict(&mut self) -> Verdict {
        match self.choices.below(4) {
            0 => Verdict::Refused { reason: FileError::Exists.encode() },
            1 => Verdict::Refused { reason: self.bytes(9) },
            2 => Verdict::Accepted { answer: self.bytes(40) },
            _ => {
                let parts = ShardParts { now: FileTime(1), parts: vec![self.shard_part()] };
                let inodes = (0..self.choices.below(3)).map(|_| self.attributes()).collect();
                Verdict::Accepted { answer: ShardFinding::Accepted { parts, inodes }.encode() }
            }
        }
    }
}
