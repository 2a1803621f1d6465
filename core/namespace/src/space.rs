//! Free blocks, and the allotments of hosts.
//!
//! A host reserves blocks before it writes to them, so that it can write without asking, and so that its writes find space later. Other
//! hosts do not get these blocks until the host gives them back, frees what it has attached, or is gone.

use crate::records::Counters;
use crate::runs::Runs;
use crate::work::{Stop, Work, difference, sum};
use braid_base::{BlockRange, limits};
use braid_wire::{FileError, FileResult, FileSystemStatus};

/// The most free runs that a reservation looks at for whole stripes.
const RUNS_SEARCHED_MAX: usize = 256;

pub fn status(work: &mut Work) -> Result<FileResult, Stop> {
    let (blocks, counters) = (work.parameters()?.blocks, work.counters()?);
    let (free, allotted, inodes) = (counters.free, counters.allotted, counters.inodes);
    Ok(FileResult::FileSystem(FileSystemStatus { blocks, free, allotted, inodes }))
}

/// Allots free blocks to the host.
pub fn reserve(work: &mut Work, blocks: u64) -> Result<FileResult, Stop> {
    work.grow()?;
    let mut counters = work.counters()?;
    let runs = find_free(work, &mut counters, blocks, limits::FILE_EXTENTS_MAX)?;
    if runs.is_empty() {
        return Err(FileError::NoSpace.into());
    }
    for run in &runs {
        move_blocks(work, *run, Runs::Free, Runs::AllottedTo(work.context.host), FileError::Lost)?;
    }
    let count = runs.iter().map(|run| run.count).sum();
    counters.free = difference(counters.free, count)?;
    counters.allotted = sum(counters.allotted, count)?;
    work.put_counters(counters);
    Ok(FileResult::Reserved(runs))
}

/// Finds whole free stripes if there are some; otherwise what there is, in at most so many runs. The search goes on where the last one
/// ended, so that the blocks of a host follow each other, and blocks that were freed are left alone for long.
pub fn find_free(work: &mut Work, counters: &mut Counters, blocks: u64, most: usize) -> Result<Vec<BlockRange>, Stop> {
    let stripe = work.parameters()?.stripe_blocks;
    let wanted = blocks.div_ceil(stripe).saturating_mul(stripe);
    let mut runs = search(work, counters.next_block, (wanted, most), |run| whole_stripes(run, stripe))?;
    if runs.is_empty() {
        runs = search(work, counters.next_block, (blocks, most), |run| run)?;
    }
    if let Some(last) = runs.last() {
        counters.next_block = last.end();
    }
    Ok(runs)
}

pub fn give_back(work: &mut Work, runs: &[BlockRange]) -> Result<FileResult, Stop> {
    let mut counters = work.counters()?;
    for run in runs {
        move_blocks(work, *run, Runs::AllottedTo(work.context.host), Runs::Free, FileError::NotAllotted)?;
        counters.free = sum(counters.free, run.count)?;
        counters.allotted = difference(counters.allotted, run.count)?;
    }
    work.put_counters(counters);
    Ok(FileResult::Done)
}

/// Makes blocks free that were in no set of runs.
pub fn free(work: &mut Work, run: BlockRange) -> Result<(), Stop> {
    Runs::Free.add(work, run)?;
    let mut counters = work.counters()?;
    counters.free = sum(counters.free, run.count)?;
    work.put_counters(counters);
    Ok(())
}

/// Removes blocks from the allotment of the host.
pub fn take_allotted(work: &mut Work, run: BlockRange) -> Result<(), Stop> {
    if !Runs::AllottedTo(work.context.host).remove(work, run)? {
        return Err(FileError::NotAllotted.into());
    }
    let mut counters = work.counters()?;
    counters.allotted = difference(counters.allotted, run.count)?;
    work.put_counters(counters);
    Ok(())
}

/// Moves a run from one set to another; `missing` if it is not in the first one.
fn move_blocks(work: &mut Work, run: BlockRange, from: Runs, to: Runs, missing: FileError) -> Result<(), Stop> {
    if !from.remove(work, run)? {
        return Err(missing.into());
    }
    to.add(work, run)
}

/// At most `most` free runs with at most `wanted` blocks together, from block `start` on and then from the first block on. `usable` is the
/// part of a run that may be used.
fn search(
    work: &mut Work,
    start: u64,
    (wanted, most): (u64, usize),
    usable: impl Fn(BlockRange) -> BlockRange,
) -> Result<Vec<BlockRange>, Stop> {
    let mut found = Vec::new();
    let (mut left, mut searched) = (wanted, 0);
    for part in [BlockRange::between(start, u64::MAX), BlockRange::between(0, start)] {
        let mut next = part.start;
        while left > 0 && searched < RUNS_SEARCHED_MAX && found.len() < most {
            let Some(run) = Runs::Free.first(work, next)?.filter(|run| run.start < part.end()) else { break };
            let usable = usable(run.intersection(part));
            if !usable.is_empty() {
                let taken = BlockRange::new(usable.start, usable.count.min(left));
                left -= taken.count;
                found.push(taken);
            }
            searched += 1;
            next = run.end();
        }
    }
    Ok(found)
}

fn whole_stripes(run: BlockRange, stripe: u64) -> BlockRange {
    let first = run.start.div_ceil(stripe).saturating_mul(stripe);
    BlockRange::between(first, run.end() / stripe * stripe)
}
