//! The changes that make an empty file system, or an empty shard of one: the root directory, which is in the first shard, and the shard's blocks
//! free. And those that give it more blocks, when the volume has grown.

use crate::inodes::{New, new_inode};
use crate::keys;
use crate::records::{Counters, Parameters, encode_run};
use crate::space;
use crate::work::{Context, Stop, Work};
use braid_base::{BlockRange, Generation, InodeId, ShardId};
use braid_objects::{Change, Key, Kind, Obstacle, View};
use braid_wire::{FileTime, NewInode, Owner};
use bytes::Bytes;

/// Makes an empty file system in an empty map. `owner` and `mode` are those of the root.
pub fn format(parameters: &Parameters, owner: Owner, mode: u16, now: FileTime) -> Vec<Change> {
    let Parameters { blocks, stripe_blocks, hash_bits, .. } = *parameters;
    assert!(blocks > 0 && stripe_blocks > 0, "a file system has blocks, and so have its stripes");
    assert!(hash_bits <= Parameters::HASH_BITS_MAX, "a cookie has space for the hash");
    let (shards, share) = (parameters.shards, parameters.shards.share(blocks));
    if shards.own != ShardId::FIRST {
        let counters = Counters { last_inode: shards.own.base(), free: share.count, ..Counters::default() };
        let mut changes = vec![(keys::PARAMETERS, parameters.encode()), (keys::COUNTERS, counters.encode())];
        if !share.is_empty() {
            changes.push((Key { kind: Kind::FreeRun, of: 0, index: share.end() - 1 }, encode_run(share)));
        }
        return changes.into_iter().map(|(key, value)| Change { key, value: Some(value) }).collect();
    }
    assert!(!share.is_empty(), "the first shard has blocks");
    let root = new_inode(InodeId::ROOT, InodeId::ROOT, &New { node: &NewInode::Directory, owner, mode }, now);
    let counters = Counters { last_inode: InodeId::ROOT.0, inodes: 1, free: share.count, ..Counters::default() };
    let change = |key: Key, value: Bytes| Change { key, value: Some(value) };
    vec![
        change(keys::PARAMETERS, parameters.encode()),
        change(keys::COUNTERS, counters.encode()),
        change(keys::inode(InodeId::ROOT), root.encode()),
        change(Key { kind: Kind::FreeRun, of: 0, index: share.end() - 1 }, encode_run(share)),
    ]
}

/// Gives a file system the blocks of a volume that has grown to so many: each shard has its part of those that were added, whichever
/// sizes the shards have seen in between. No changes if it has them.
pub fn grow(blocks: u64, view: &mut dyn View) -> Result<Vec<Change>, Obstacle> {
    let context = Context { host: Generation::default(), now: FileTime::default(), is_nearly_full: false };
    let mut work = Work::new(view, context);
    match try_grow(blocks, &mut work) {
        Ok(()) => Ok(work.map.into_changes()),
        Err(Stop::NotHere) => Err(Obstacle::NotHere),
        Err(Stop::Fails(_)) => Err(Obstacle::Lost),
    }
}

fn try_grow(blocks: u64, work: &mut Work) -> Result<(), Stop> {
    let before = work.parameters()?;
    if blocks <= before.blocks {
        return Ok(());
    }
    for run in before.shards.added(BlockRange::between(before.blocks, blocks)) {
        space::free(work, run)?;
    }
    work.map.put(keys::PARAMETERS, Some(Parameters { blocks, ..before }.encode()));
    Ok(())
}
