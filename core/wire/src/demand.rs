//! A demand is what the answer to a request will bring, before there is an answer. A server needs that much memory to answer; it has to
//! know so before it begins, because whoever asked may ask faster than it reads.

use crate::{Action, Command, Message, ObjectCommand, ObjectRequest, Reply, Request};
use braid_base::{BLOCK_BYTES, BlockRange, limits};
use braid_blocks::Want;

/// What a block takes beside its content: its header on the disk, and its place in the answer.
const BESIDE_BLOCK_BYTES: usize = 640;

/// A demand of a host at a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The sequence number of the request, which its answer names.
    pub sequence: u64,
    /// The most bytes that the answer brings.
    pub bytes: usize,
}

impl Message {
    /// What the answer to this message will bring. None if that is little.
    pub fn demand(&self) -> Option<Demand> {
        let Message::Request(Request { command, .. }) = self else { return None };
        let (sequence, bytes) = match command {
            // Whether blocks have content is known without reading them.
            Command::Read { want: Want::Allocation, .. } => return None,
            Command::Read { transaction, extents, .. } => (transaction.sequence, of_blocks(extents)),
            Command::Prewrite { transaction, reads, .. } if !reads.is_empty() => {
                (transaction.sequence, of_blocks(reads))
            }
            Command::Objects { sequence, request, .. } => (*sequence, of_objects(request)),
            _ => return None,
        };
        // So whoever notes demands notes no more of them than its memory has blocks.
        (bytes >= BLOCK_BYTES).then_some(Demand { sequence, bytes })
    }

    /// The sequence number of the request that this message answers, whose demand it ends.
    pub fn ends_demand(&self) -> Option<u64> {
        let Message::Answer(answer) = self else { return None };
        match &answer.reply {
            Reply::Data { transaction, .. }
            | Reply::Accepted { transaction, .. }
            | Reply::Refused { transaction, .. }
            | Reply::Failed { transaction, .. } => Some(transaction.sequence),
            Reply::Objects { sequence, .. } => Some(*sequence),
            _ => None,
        }
    }
}

fn of_blocks(extents: &[BlockRange]) -> usize {
    // A device refuses to read more.
    let most = (limits::DEVICE_BYTES_MAX / BLOCK_BYTES) as u64;
    let blocks = extents.iter().fold(0u64, |sum, extent| sum.saturating_add(extent.count)).min(most);
    blocks as usize * (BLOCK_BYTES + BESIDE_BLOCK_BYTES)
}

fn of_objects(request: &ObjectRequest) -> usize {
    let read = |command: &ObjectCommand| match command.action {
        Action::Read { length, .. } => length as usize,
        _ => 0,
    };
    let values = |command: &ObjectCommand| command.gets.len() * limits::ATTRIBUTE_BYTES_MAX;
    let bytes: usize = request.commands.iter().map(|command| read(command) + values(command)).sum();
    bytes.min(limits::OBJECT_REQUEST_BYTES_MAX)
}
