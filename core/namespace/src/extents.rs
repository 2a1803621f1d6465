//! The extents of regular files: map, attach, truncate.
//!
//! An extent maps consecutive blocks of a file to consecutive blocks of the volume. Extents that follow each other in both are one. Blocks
//! that no extent covers are holes.
//!
//! A file that becomes shorter has its new size at once, but only a limited number of extents are freed at a time. Those that are left
//! behind the size are never shown, and the file does not grow until they are freed; until then it is listed for reclaim.

use crate::keys;
use crate::records::{decode_extent, encode_extent, mark};
use crate::space;
use crate::work::{Stop, Work, difference, sum};
use braid_base::{BLOCK_BYTES, BlockRange, InodeId, limits};
use braid_wire::{FileAttributes, FileExtent, FileResult, FileTime};

pub fn map(work: &mut Work, inode: InodeId, from: u64, most: u32) -> Result<FileResult, Stop> {
    let FileAttributes { size, .. } = work.file(inode)?;
    let shown = BlockRange::between(from, end_block(size));
    let most = (most as usize).min(limits::FILE_EXTENTS_MAX);
    let all = keys::same_from(keys::extent(inode, from));
    let (found, _) = work.map.some_of(Some(*all.start()), *all.end(), most + 1)?;
    let mut extents = Vec::with_capacity(found.len());
    for (key, value) in &found {
        extents.push(clip(decode_extent(*key, value)?, shown));
    }
    extents.retain(|extent| !extent.blocks.is_empty());
    let more = extents.len() > most;
    extents.truncate(most);
    Ok(FileResult::Extents { extents, more, size })
}

pub fn attach(
    work: &mut Work,
    inode: InodeId,
    extents: &[FileExtent],
    size: u64,
    mtime: FileTime,
) -> Result<FileResult, Stop> {
    let mut attributes = work.file(inode)?;
    work.grow()?;
    let mut may_free = limits::FILE_EXTENTS_FREED_MAX;
    let mut next = if free_behind_size(work, &mut attributes, &mut may_free)? { None } else { Some(0) };
    for extent in extents {
        if next.is_some() {
            break;
        }
        let replaced = BlockRange::between(extent.at, extent.end());
        let until = free_blocks(work, &mut attributes, replaced, &mut may_free)?;
        let attached = clip(*extent, BlockRange::between(extent.at, until));
        if !attached.blocks.is_empty() {
            space::take_allotted(work, attached.blocks)?;
            insert(work, inode, attached)?;
            attributes.blocks = sum(attributes.blocks, attached.blocks.count)?;
        }
        next = Some(until).filter(|until| *until < extent.end());
    }
    let size = next.map_or(size, |next| size.min(next * BLOCK_BYTES as u64));
    attributes.size = attributes.size.max(size);
    attributes.mtime = mtime;
    attributes.ctime = work.context.now;
    work.put_attributes(attributes)?;
    Ok(FileResult::Attached { attributes, next })
}

pub fn truncate(work: &mut Work, inode: InodeId, size: u64) -> Result<FileResult, Stop> {
    let mut attributes = work.file(inode)?;
    attributes.mtime = work.context.now;
    attributes.ctime = work.context.now;
    let mut may_free = limits::FILE_EXTENTS_FREED_MAX;
    attributes.size = attributes.size.min(size);
    let is_done = free_behind_size(work, &mut attributes, &mut may_free)?;
    if is_done {
        attributes.size = size;
    }
    work.put_attributes(attributes)?;
    Ok(FileResult::Truncated { attributes, is_done })
}

/// Frees extents behind the size of a file, as many as may be freed. True if none are left. Otherwise the file is listed for reclaim.
pub fn free_behind_size(work: &mut Work, attributes: &mut FileAttributes, may_free: &mut usize) -> Result<bool, Stop> {
    let behind = BlockRange::between(end_block(attributes.size), u64::MAX);
    let is_done = free_blocks(work, attributes, behind, may_free)? == behind.end();
    let key = keys::reclaim(attributes.inode);
    let is_listed = work.map.get(key)?.is_some();
    if is_listed && is_done && attributes.links > 0 {
        work.map.put(key, None);
    }
    if !is_listed && !is_done {
        work.map.put(key, Some(mark()));
    }
    Ok(is_done)
}

/// Frees some blocks of a file, of as many extents as may be freed. Returns the block up to which they are freed.
fn free_blocks(
    work: &mut Work,
    attributes: &mut FileAttributes,
    range: BlockRange,
    may_free: &mut usize,
) -> Result<u64, Stop> {
    let (inode, mut next) = (attributes.inode, range.start);
    while let Some(extent) = first(work, inode, next)?
        && extent.at < range.end()
    {
        if *may_free == 0 {
            return Ok(next.max(extent.at));
        }
        *may_free -= 1;
        work.map.put(keys::extent(inode, extent.end() - 1), None);
        let freed = clip(extent, range);
        for rest in [BlockRange::between(extent.at, freed.at), BlockRange::between(freed.end(), extent.end())] {
            if !rest.is_empty() {
                put(work, inode, clip(extent, rest));
            }
        }
        space::free(work, freed.blocks)?;
        attributes.blocks = difference(attributes.blocks, freed.blocks.count)?;
        next = freed.end();
    }
    Ok(range.end())
}

/// Adds an extent where the file has a hole.
fn insert(work: &mut Work, inode: InodeId, extent: FileExtent) -> Result<(), Stop> {
    let mut united = extent;
    if let Some(last) = extent.at.checked_sub(1)
        && let Some(value) = work.map.get(keys::extent(inode, last))?
    {
        let before = decode_extent(keys::extent(inode, last), &value)?;
        if before.blocks.end() == extent.blocks.start {
            work.map.put(keys::extent(inode, last), None);
            united =
                FileExtent { at: before.at, blocks: BlockRange::between(before.blocks.start, extent.blocks.end()) };
        }
    }
    if let Some(after) = first(work, inode, extent.end())?
        && after.at == extent.end()
        && after.blocks.start == extent.blocks.end()
    {
        united.blocks.count += after.blocks.count;
    }
    put(work, inode, united);
    Ok(())
}

/// The extent that contains a block of a file, or the next one.
fn first(work: &mut Work, inode: InodeId, from: u64) -> Result<Option<FileExtent>, Stop> {
    let found = work.map.first(keys::same_from(keys::extent(inode, from)))?;
    Ok(found.map(|(key, value)| decode_extent(key, &value)).transpose()?)
}

fn put(work: &mut Work, inode: InodeId, extent: FileExtent) {
    work.map.put(keys::extent(inode, extent.end() - 1), Some(encode_extent(extent)));
}

/// The part of an extent in a range of blocks of the file.
fn clip(extent: FileExtent, range: BlockRange) -> FileExtent {
    let kept = BlockRange::new(extent.at, extent.blocks.count).intersection(range);
    let skipped = kept.start.saturating_sub(extent.at);
    FileExtent { at: kept.start, blocks: BlockRange::new(extent.blocks.start.saturating_add(skipped), kept.count) }
}

/// The block behind the last one of a file of this size.
fn end_block(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES as u64)
}
