//! Messages among the metadata servers of a file system with several shards, and the parts of operations that concern several of them.
//!
//! A name is in the shard of its directory, and an inode may be in another one. The server that a host asks *coordinates* the operation: its
//! own *parts* are about names, those of the other servers mostly about inodes.
//!
//! ```text
//!   host            server of the directory                 server of the inode
//!    │ Create             │                                        │
//!    │───────────────────►│ locks the name                         │
//!    │                    │ Commit: make an inode                  │
//!    │                    │───────────────────────────────────────►│
//!    │                    │◄───────────────────── Commit: it is i7 │
//!    │◄─────────── Created│ the name refers to i7                  │
//! ```
//!
//! The commit protocol decides which messages there are in between; they are opaque here. A server asks another one only to read by
//! [`ShardBody::Read`], and for free blocks by [`ShardBody::SpaceRequest`].

use crate::declarations::wire;
use crate::files::{DirectoryEntry, FileAttributes, FileCommand, FileError, FileTime, FileType, NewInode, Owner};
use braid_base::{BlockRange, Generation, InodeId, ShardId, TransactionId};
use bytes::Bytes;

wire! {
    /// A message from one metadata server of a file system to another. The servers repeat a message until it is answered.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ShardMessage {
        /// The shard of the sender.
        pub from: ShardId,
        pub body: ShardBody,
    }

    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum ShardBody {
        /// A message of the commit protocol.
        Commit {
            message: Bytes,
        } = 1,
        Read {
            /// The start of the sender, which the answer repeats.
            start: Generation,
            /// Identifies the question among those of this start.
            number: u64,
            question: ShardQuestion,
        } = 2,
        ReadAnswer {
            start: Generation,
            number: u64,
            reply: Result<ShardReply, FileError>,
        } = 3,
        /// The sender needs free blocks.
        SpaceRequest {
            /// The start of the sender and its round of requests, which the answer repeats.
            start: Generation,
            round: u64,
            /// The number of the last transfer of the receiver that the sender has received.
            received: u64,
            /// How many blocks it needs: 0 if it only asks for what it has not received.
            blocks: u64,
        } = 4,
        /// Free blocks for the receiver.
        SpaceTransfer {
            start: Generation,
            round: u64,
            /// The number of the transfer.
            number: u64,
            /// Its blocks; none if the sender has nothing to give.
            runs: Vec<BlockRange>,
        } = 5,
    }

    /// What a metadata server asks another one, besides what it wants done.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum ShardQuestion {
        /// The attributes of an inode.
        Inode { inode: InodeId } = 1,
        /// What a name refers to.
        Name { parent: InodeId, name: Bytes } = 2,
        /// How often directories were moved to other parents.
        Moves = 3,
        /// The attributes of a directory, of which the parent counts.
        Place { inode: InodeId } = 4,
    }

    /// The answer to a question. What it says is durable.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum ShardReply {
        Inode(attributes: FileAttributes) = 1,
        Name(entry: Option<DirectoryEntry>) = 2,
        Moves(moves: u64) = 3,
    }

    /// What one shard does in an operation on several shards.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub enum ShardPart {
        /// Makes an inode, which has one name.
        Make {
            /// Its number; none until the shard has chosen one.
            inode: Option<InodeId>,
            parent: InodeId,
            node: NewInode,
            owner: Owner,
            mode: u16,
        } = 1,
        /// An inode that is no directory gets one more name.
        GainName { inode: InodeId } = 2,
        /// An inode that is no directory loses a name.
        LoseName { inode: InodeId } = 3,
        /// An empty directory loses its name.
        LoseDirectory { inode: InodeId } = 4,
        /// The name of an inode was moved. A directory has this new parent.
        Moved { inode: InodeId, parent: InodeId } = 5,
        /// A directory gets an entry for a name that does not exist.
        Insert {
            parent: InodeId,
            name: Bytes,
            /// None: the inode that another part of the operation makes.
            inode: Option<InodeId>,
            file_type: FileType,
        } = 6,
        /// A directory loses an entry, which must refer to this inode.
        Remove { parent: InodeId, name: Bytes, inode: InodeId } = 7,
        /// An entry that must refer to the inode `from` refers to `to` instead.
        Replace { parent: InodeId, name: Bytes, from: InodeId, to: InodeId, file_type: FileType } = 8,
        /// A directory is moved to another parent. Nothing but this changes the number of moves, which must be this one.
        CountMove { moves: u64 } = 9,
    }

    /// The parts of an operation that are of one shard.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct ShardParts {
        /// The time that the inodes get.
        pub now: FileTime,
        pub parts: Vec<ShardPart>,
    }

    /// What a coordinator commits itself, and for whom.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct CoordinatorParts {
        /// The request of the host.
        pub host: Generation,
        pub sequence: u64,
        pub command: FileCommand,
        pub own: ShardParts,
        /// The inodes that these parts are about, in order, as they are afterwards.
        pub inodes: Vec<FileAttributes>,
    }
}

impl ShardPart {
    /// Validates a part for this shard, independent of what the file system holds.
    pub fn check(&self, own: ShardId) -> Result<(), FileError> {
        let is_own = |inode: &InodeId| if inode.shard() == own { Ok(()) } else { Err(FileError::Malformed) };
        let entry = |parent: &InodeId, name: &Bytes| {
            is_own(parent)?;
            FileCommand::Lookup { parent: *parent, name: name.clone() }.check()
        };
        match self {
            ShardPart::Make { inode: Some(_), .. } => Err(FileError::Malformed),
            ShardPart::Make { inode: None, parent, node, owner, mode } => {
                let (name, node) = (Bytes::from_static(b"x"), node.clone());
                let (parent, owner, mode) = (*parent, *owner, *mode);
                FileCommand::Create { parent, name, node, exclusive: true, owner, mode }.check()
            }
            ShardPart::GainName { inode }
            | ShardPart::LoseName { inode }
            | ShardPart::LoseDirectory { inode }
            | ShardPart::Moved { inode, .. } => is_own(inode),
            // The inode of an entry at a worker is known.
            ShardPart::Insert { inode: None, .. } => Err(FileError::Malformed),
            ShardPart::Insert { parent, name, .. }
            | ShardPart::Remove { parent, name, .. }
            | ShardPart::Replace { parent, name, .. } => entry(parent, name),
            ShardPart::CountMove { .. } if own == ShardId::FIRST => Ok(()),
            ShardPart::CountMove { .. } => Err(FileError::Malformed),
        }
    }
}

/// The most parts of one shard: a rename within one directory, of an inode in the same shard that replaces another one there.
pub const SHARD_PARTS_MAX: usize = 6;

impl CoordinatorParts {
    /// The name of the request of the host.
    pub fn client(&self) -> TransactionId {
        TransactionId { host: self.host, sequence: self.sequence }
    }
}

/// What a server says about parts that it has evaluated for another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ShardFinding {
    /// They can be executed. `inodes` are those that they are about, in order, as they are afterwards.
    Accepted { parts: ShardParts, inodes: Vec<FileAttributes> },
}
