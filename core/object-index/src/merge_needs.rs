//! The slots that merging may need in the worst case. Changes are admitted only if these slots are available, because a merge must never
//! get stuck.
//!
//! The leaves of a run are packed as tightly as the order of their entries permits. So merging makes no more leaves than there were,
//! unless some of them get more bytes than before. A leaf that gets even a few more bytes may become two. Two neighbours together always
//! hold more than one full leaf, so added bytes make at most twice as many leaves as they would fill. A round that ends within a leaf
//! cuts it once more, which happens only where bytes are added. Changes that add no bytes need no slots: they must succeed on a full
//! disk.

use crate::contents::Contents;
use crate::leaf::{ENTRY, HEADER};
use crate::object_index::ObjectIndex;
use crate::table::{Table, Tables};
use crate::types::Growth;
use braid_objects::{Change, Key, Obstacle};
use std::ops::Add;

/// The worst-case needs of merging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Slots that must be free.
    pub free: u64,
    /// Slots that the object index may have at the same time, its present ones included.
    pub slots: u64,
    /// Index nodes that there may be.
    pub nodes: u64,
    /// Rounds. The roots are noted after each.
    pub rounds: u64,
}

#[derive(Clone, Debug)]
struct Merge {
    leaves: u64,
    rounds: u64,
}

impl ObjectIndex {
    /// How much these changes may make the leaves grow. The size of the old values counts only if it is known without the disk.
    pub fn growth_of<'a>(&self, changes: impl IntoIterator<Item = &'a Change>) -> Growth {
        let contents = &self.contents;
        let growth = |change: &Change| contents.growth_by(change, contents.known_len(change.key));
        changes.into_iter().map(growth).fold(Growth::default(), Growth::add)
    }

    /// Like [`ObjectIndex::growth_of`], exact to the byte: for use when room is scarce.
    pub fn exact_growth_of<'a>(&mut self, changes: impl IntoIterator<Item = &'a Change>) -> Result<Growth, Obstacle> {
        let mut growth = Growth::default();
        for change in changes {
            let known = match self.contents.known_len(change.key) {
                Some(known) => Some(known),
                None => match self.contents.get(change.key) {
                    Err(Obstacle::NotHere) => return Err(Obstacle::NotHere),
                    Err(Obstacle::Lost) => None,
                    Ok(value) => Some(value.map_or(0, |value| ENTRY + value.len())),
                },
            };
            growth = growth + self.contents.growth_by(change, known);
        }
        Ok(growth)
    }

    /// The worst-case needs of merging all changes so far, and `changes` more that make the leaves grow by `more`. Frozen changes are
    /// merged first.
    pub fn needs(&self, changes: usize, more: Growth) -> Needs {
        let Contents { settings, tables: Tables { active, frozen, .. }, index, .. } = &self.contents;
        let (used, nodes) = (self.used_slots(), index.nodes_on_disk() as u64);
        let pending = active.len() + changes;
        if used == 0 && pending + frozen.len() == 0 {
            return Needs::default();
        }
        let there = index.leaves() as u64;
        let first = self.contents.merge_of(frozen.len() as u64, frozen.growth, there);
        let then = self.contents.merge_of(pending as u64, active.growth + more, there + first.leaves);
        let leaves = first.leaves + then.leaves;
        // Twice, because there may be two merges.
        let split = 2 * leaves.min(index.len() as u64) + 2 * leaves / settings.node_leaves as u64 + 2;
        let new_nodes = if leaves == 0 { 0 } else { split };
        let held = self.round.as_ref().map_or(0, |round| round.held());
        let most = u64::from(settings.round_slots) + leaves + new_nodes;
        Needs {
            free: most.saturating_sub(held),
            slots: used + most,
            nodes: nodes + new_nodes,
            rounds: first.rounds + then.rounds,
        }
    }

    /// The slots in use when all changes so far are merged, estimated by their bytes. The worst case, in which each change splits a leaf
    /// of its own, takes many more.
    pub fn estimated_slots(&self) -> u64 {
        let Contents { settings, tables: Tables { active, frozen, .. }, .. } = &self.contents;
        let payload = (settings.leaf_bytes - HEADER) as u64;
        let bytes = frozen.growth.bytes + active.growth.bytes;
        self.used_slots() + (2 * bytes).div_ceil(payload)
    }

    /// True if less may be needed once all changes so far are merged: the worst case is reserved for them, and some may remove values.
    pub fn may_need_less(&self) -> bool {
        let may = |table: &Table| table.shrinks || !table.growth.is_none();
        may(&self.contents.tables.active) || may(&self.contents.tables.frozen)
    }
}

impl Contents {
    /// The worst-case needs of one merge of `changes` changes into `there` leaves.
    fn merge_of(&self, changes: u64, growth: Growth, there: u64) -> Merge {
        if changes == 0 {
            return Merge { leaves: 0, rounds: 0 };
        }
        let payload = (self.settings.leaf_bytes - HEADER) as u64;
        // Leaves that must be split because they have no room for the added bytes.
        let split = growth.entries.min(there + 1) + (2 * growth.bytes).div_ceil(payload);
        // A round ends when its slots do not suffice for one more leaf and its index node. By then it has taken or made this many leaves.
        let each = (u64::from(self.settings.round_slots - 12) / 4).max(1);
        let rounds = 2 + (changes.min(there + 1) + split).div_ceil(each);
        // A round that ends within a leaf makes one leaf more.
        Merge { leaves: split + growth.entries.min(rounds), rounds }
    }

    fn growth_by(&self, change: &Change, known: Option<usize>) -> Growth {
        let before = known.unwrap_or(0);
        let after = match &change.value {
            Some(value) => ENTRY + value.len(),
            // A leaf that has lost entries records that a key has no value, and this leaf may be such a leaf.
            None if known.is_none() || self.is_lost(change.key) => before + ENTRY,
            None => 0,
        };
        let bytes = after.saturating_sub(before) as u64;
        Growth { entries: u64::from(bytes > 0), bytes }
    }

    /// How much a change may make the leaves grow; none if it changes nothing.
    pub fn weigh(&self, change: &Change) -> Option<Growth> {
        let known = self.known_len(change.key);
        let is_needless = change.value.is_none() && known == Some(0) && !self.is_lost(change.key);
        (!is_needless).then(|| self.growth_by(change, known))
    }

    fn is_lost(&self, key: Key) -> bool {
        self.index.has_lost() && self.index.at(self.index.find(key)).lost
    }

    /// Bytes of a key's present entry, if they are known without the disk.
    fn known_len(&self, key: Key) -> Option<usize> {
        if let Some(value) = self.tables.get(key) {
            return Some(value.as_ref().map_or(0, |value| ENTRY + value.len()));
        }
        match self.index.at(self.index.find(key)).place {
            None => Some(0),
            Some(place) => self.leaves.cache.peek(place.slot).map(|leaf| leaf.entry_len(key).unwrap_or(0)),
        }
    }
}
