//! What a metadata server does by itself. It frees the blocks of files that nobody can reach any more, and the allotments of hosts that are
//! gone. Each step changes a bounded number of keys, and is logged like a command; a server that restarts finds out from the map what is
//! left to do.

use crate::extents::free_behind_size;
use crate::keys;
use crate::runs::Runs;
use crate::space;
use crate::work::{Context, Stop, Work, difference, ended};
use braid_base::{Generation, InodeId, limits};
use braid_objects::{Change, Key, Kind, NotHere, Obstacle, View};
use braid_wire::{FileError, FileTime};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The changes, to be made atomically: each key once, ascending.
    pub changes: Vec<Change>,
    /// True if nothing is left to do. An error: damage prevents it; there are no changes.
    pub is_done: Result<bool, FileError>,
}

/// Frees extents behind the size of an inode that is listed for reclaim. An orphan is removed with all its extents: the server must know
/// that no host has it open. Nothing happens if the inode is not listed.
pub fn reclaim(inode: InodeId, view: &mut dyn View) -> Result<Step, NotHere> {
    step(Generation::default(), view, |work| {
        if work.map.get(keys::reclaim(inode))?.is_none() {
            return Ok(true);
        }
        let mut attributes = work.attributes(inode)?;
        if attributes.links == 0 {
            attributes.size = 0;
        }
        let is_done = free_behind_size(work, &mut attributes, &mut { limits::FILE_EXTENTS_FREED_MAX })?;
        if is_done && attributes.links == 0 {
            work.map.put(keys::inode(inode), None);
            work.map.put(keys::reclaim(inode), None);
            let mut counters = work.counters()?;
            counters.inodes = difference(counters.inodes, 1)?;
            work.put_counters(counters);
        } else {
            work.put_attributes(attributes)?;
        }
        Ok(is_done)
    })
}

/// Frees extents behind the size of a file that has a name. Nothing happens if it has none, or is not listed for reclaim.
pub fn free_tail(inode: InodeId, view: &mut dyn View) -> Result<Step, NotHere> {
    match is_linked(inode, view) {
        Ok(true) => reclaim(inode, view),
        Ok(false) => Ok(Step { changes: Vec::new(), is_done: Ok(true) }),
        Err(NotHere) => Err(NotHere),
    }
}

/// True if the inode has a name. A damaged one counts as one without.
pub fn is_linked(inode: InodeId, view: &mut dyn View) -> Result<bool, NotHere> {
    let mut links = 0;
    step(Generation::default(), view, |work| {
        links = work.attributes(inode)?.links;
        Ok(true)
    })?;
    Ok(links > 0)
}

/// Frees blocks that are allotted to a host. The server must know that the host has no writes under way.
pub fn drop_host(host: Generation, view: &mut dyn View) -> Result<Step, NotHere> {
    step(host, view, |work| {
        for _ in 0..limits::FILE_EXTENTS_FREED_MAX {
            let Some(run) = Runs::AllottedTo(host).first(work, 0)? else { return Ok(true) };
            space::take_allotted(work, run)?;
            space::free(work, run)?;
        }
        Ok(false)
    })
}

/// The inodes that are listed for reclaim, after `after`: at most `most`.
pub fn listed(view: &mut dyn View, after: Option<InodeId>, most: usize) -> Result<Vec<InodeId>, Obstacle> {
    let mut found = Vec::new();
    let mut next = after.map_or(Some(0), |inode| inode.0.checked_add(1));
    while let Some(from) = next.filter(|_| found.len() < most) {
        let Some((key, _)) = view.first(keys::same_from(keys::reclaim(InodeId(from))))? else { break };
        found.push(InodeId(key.index));
        next = key.index.checked_add(1);
    }
    Ok(found)
}

/// The hosts that have allotments, after `after`: at most `most`.
pub fn hosts(view: &mut dyn View, after: Option<Generation>, most: usize) -> Result<Vec<Generation>, Obstacle> {
    let mut found = Vec::new();
    let mut next = after.map_or(Some(0), |host| host.0.checked_add(1));
    while let Some(from) = next.filter(|_| found.len() < most) {
        let all = keys::allotment(Generation(from))..=*keys::all(Kind::Allotment).end();
        let Some((Key { of, .. }, _)) = view.first(all)? else { break };
        let host = u32::try_from(of).map_err(|_| Obstacle::Lost)?;
        found.push(Generation(host));
        next = host.checked_add(1);
    }
    Ok(found)
}

pub(crate) fn step(
    host: Generation,
    view: &mut dyn View,
    act: impl FnOnce(&mut Work) -> Result<bool, Stop>,
) -> Result<Step, NotHere> {
    let mut work = Work::new(view, Context { host, now: FileTime::default(), is_nearly_full: false });
    let is_done = ended(act(&mut work))?;
    let changes = if is_done.is_ok() { work.map.into_changes() } else { Vec::new() };
    Ok(Step { changes, is_done })
}
