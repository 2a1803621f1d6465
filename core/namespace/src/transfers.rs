//! Transfers of free blocks between shards: a shard that has none left gets some of another one, so that a file system is not full while any
//! shard has space. Blocks that a file has come back to the shard of the file. So each shard may have blocks of the whole volume.
//!
//! ```text
//!   receiver                                      giver
//!      │ request (number of the last transfer)      │
//!      │───────────────────────────────────────────►│ logs: the blocks are not free; transfer n has these blocks
//!      │◄──────────────────── transfer n (blocks) ──│
//!      │ logs: the blocks are free; n is received   │
//! ```
//!
//! Each step is one record of one shard. The giver keeps its last transfer to each shard, and repeats it until a request shows that it is
//! received. The receiver accepts the transfer that follows its last one. So each transfer takes effect once, whichever of the two restarts,
//! and no commit protocol is needed. Between the two records the blocks are *in transit*: in the giver's record alone.

use crate::keys;
use crate::reclaim::{Step, step};
pub use crate::records::Transfer;
use crate::records::{decode_number, decode_transfer, encode_number, encode_transfer};
use crate::runs::Runs;
use crate::space;
use crate::work::{Stop, Work, difference, sum};
use braid_base::{BlockRange, Generation, ShardId};
use braid_objects::{Change, Key, NotHere, Obstacle, View};
use braid_wire::FileError;

/// The most runs of a transfer: its record is small.
pub const TRANSFER_RUNS_MAX: usize = 64;
/// A giver gives this part of its free blocks, if no more are needed.
const GIVEN_PART: u64 = 4;

/// What a giver answers to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The changes, to be made atomically: each key once, ascending.
    pub changes: Vec<Change>,
    /// The transfer that the receiver lacks; without runs if there is none. An error: damage prevents it.
    pub transfer: Result<Transfer, FileError>,
}

/// Answers a request of another shard, which has received the transfers up to this number. If it lacks one, that is repeated; otherwise a
/// transfer of about `wanted` blocks is made.
pub fn give(to: ShardId, received: u64, wanted: u64, view: &mut dyn View) -> Result<Given, NotHere> {
    let mut transfer = Transfer::default();
    let step = step(Generation::default(), view, |work| {
        transfer = transfer_to(work, to, received, wanted)?;
        Ok(true)
    })?;
    Ok(Given { changes: step.changes, transfer: step.is_done.map(|_| transfer) })
}

fn transfer_to(work: &mut Work, to: ShardId, received: u64, wanted: u64) -> Result<Transfer, Stop> {
    let shards = work.parameters()?.shards;
    if to == shards.own || to.0 >= shards.count {
        return Err(FileError::Malformed.into());
    }
    let key = keys::given(shards.own, to);
    let last = work.map.get(key)?.map_or(Ok(Transfer::default()), |value| decode_transfer(&value))?;
    let none = Transfer { number: last.number, runs: Vec::new() };
    if received < last.number {
        return Ok(last);
    }
    let mut counters = work.counters()?;
    if wanted == 0 || received > last.number || counters.free == 0 {
        return Ok(none);
    }
    let blocks = wanted.max(counters.free / GIVEN_PART).min(counters.free);
    let runs = space::find_free(work, &mut counters, blocks, TRANSFER_RUNS_MAX)?;
    for run in &runs {
        if !Runs::Free.remove(work, *run)? {
            return Err(FileError::Lost.into());
        }
        counters.free = difference(counters.free, run.count)?;
    }
    work.put_counters(counters);
    let transfer = Transfer { number: sum(last.number, 1)?, runs };
    work.map.put(key, Some(encode_transfer(&transfer)));
    Ok(transfer)
}

/// Makes the blocks of a transfer from another shard free here. Nothing happens if the transfer is received already.
pub fn receive(from: ShardId, transfer: &Transfer, view: &mut dyn View) -> Result<Step, NotHere> {
    step(Generation::default(), view, |work| {
        let parameters = work.parameters()?;
        let own = parameters.shards.own;
        let is_sound =
            |run: &BlockRange| !run.is_empty() && run.start < parameters.blocks && run.end() <= parameters.blocks;
        let is_of_peer = from != own && from.0 < parameters.shards.count;
        if !is_of_peer || transfer.runs.len() > TRANSFER_RUNS_MAX || !transfer.runs.iter().all(is_sound) {
            return Err(FileError::Malformed.into());
        }
        let key = keys::received(from, own);
        if Some(transfer.number) != work.number(key)?.checked_add(1) {
            return Ok(true);
        }
        for run in &transfer.runs {
            space::free(work, *run)?;
        }
        work.map.put(key, Some(encode_number(transfer.number)));
        Ok(true)
    })
}

/// The numbers of the last transfers that this shard has received, by shard.
pub fn last_received(view: &mut dyn View) -> Result<Vec<u64>, Obstacle> {
    let mut numbers = Vec::new();
    let step = step(Generation::default(), view, |work| {
        let shards = work.parameters()?.shards;
        for from in (0..shards.count).map(ShardId) {
            numbers.push(work.number(keys::received(from, shards.own))?);
        }
        Ok(true)
    });
    match step.map(|step| step.is_done) {
        Ok(Ok(_)) => Ok(numbers),
        Ok(Err(_)) => Err(Obstacle::Lost),
        Err(NotHere) => Err(Obstacle::NotHere),
    }
}

/// The blocks in transit of this record of a giver, in the maps of all shards together.
pub(crate) fn in_transit(key: Key, transfer: &Transfer, view: &mut dyn View) -> Result<Vec<BlockRange>, Obstacle> {
    let received = match view.get(keys::received_of_given(key))? {
        Some(value) => decode_number(&value).map_err(|_| Obstacle::Lost)?,
        None => 0,
    };
    Ok(if received < transfer.number { transfer.runs.clone() } else { Vec::new() })
}
