//! How many slots merging can come to need, so that changes are let in only while those are to be had: a merge must never be stuck.
//!
//! The leaves of a stretch are packed as tightly as their entries in that order can be, so merging makes no more leaves than there
//! were, unless there are more bytes in some of them than before. A leaf to which bytes are added can become two, however few they are; and
//! as two neighbours together always fill one, so many bytes make at most twice as many leaves as they fill. A round that ends within a
//! leaf cuts it once more, and does so only where bytes are added. Changes that add nothing cost nothing: they must go on on a full disk.

use crate::contents::Contents;
use crate::leaf::{ENTRY, HEADER};
use crate::table::Table;
use crate::types::Growth;
use braid_objects::{Change, Key, Obstacle};
use std::ops::Add;

/// What merging can come to need at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Slots that must be free for it.
    pub free: u64,
    /// Slots that the object index has at once, those that it has now included.
    pub slots: u64,
    /// Index nodes that there are.
    pub nodes: u64,
    /// Rounds. Each notes the roots.
    pub rounds: u64,
}

struct Merge {
    leaves: u64,
    rounds: u64,
}

impl Contents {
    /// By how much changes may make the leaves grow, as far as that is known without the disk; else by all that they bring.
    pub fn growth_of<'a>(&self, changes: impl IntoIterator<Item = &'a Change>) -> Growth {
        let growth = |change: &Change| self.growth_by(change, self.known_len(change.key));
        changes.into_iter().map(growth).fold(Growth::default(), Growth::add)
    }

    /// The same, to the byte: for when room is scarce.
    pub fn exact_growth_of<'a>(&mut self, changes: impl IntoIterator<Item = &'a Change>) -> Result<Growth, Obstacle> {
        let mut growth = Growth::default();
        for change in changes {
            let known = match self.known_len(change.key) {
                Some(known) => Some(known),
                None => match self.get(change.key) {
                    Err(Obstacle::NotHere) => return Err(Obstacle::NotHere),
                    Err(Obstacle::Lost) => None,
                    Ok(value) => Some(value.map_or(0, |value| ENTRY + value.len())),
                },
            };
            growth = growth + self.growth_by(change, known);
        }
        Ok(growth)
    }

    /// What merging all changes so far can come to need, and so many more that make it grow by `more`, while a round has `held` slots. What is
    /// frozen is merged first.
    pub fn needs(&self, changes: usize, more: Growth, held: u64) -> Needs {
        let (used, nodes) = (self.used_slots(), self.index.nodes_on_disk() as u64);
        let pending = self.tables.active.len() + changes;
        if used == 0 && pending + self.tables.frozen.len() == 0 {
            return Needs::default();
        }
        let there = self.index.leaves() as u64;
        let first = self.merge_of(self.tables.frozen.len() as u64, self.tables.frozen.growth, there);
        let then = self.merge_of(pending as u64, self.tables.active.growth + more, there + first.leaves);
        let leaves = first.leaves + then.leaves;
        // Twice, as there may be two merges.
        let split = 2 * leaves.min(self.index.len() as u64) + 2 * leaves / self.settings.node_leaves as u64 + 2;
        let new_nodes = if leaves == 0 { 0 } else { split };
        let most = u64::from(self.settings.round_slots) + leaves + new_nodes;
        Needs {
            free: most.saturating_sub(held),
            slots: used + most,
            nodes: nodes + new_nodes,
            rounds: first.rounds + then.rounds,
        }
    }

    /// True if less may be needed when all changes so far are merged: what is kept for them is the worst, and some may take things away.
    pub fn may_need_less(&self) -> bool {
        let may = |table: &Table| table.shrinks || !table.growth.is_none();
        may(&self.tables.active) || may(&self.tables.frozen)
    }

    /// What one merge can come to need, of so many changes into so many leaves.
    fn merge_of(&self, changes: u64, growth: Growth, there: u64) -> Merge {
        if changes == 0 {
            return Merge { leaves: 0, rounds: 0 };
        }
        let payload = (self.settings.leaf_bytes - HEADER) as u64;
        // Leaves that come of others having no room for what is added.
        let split = growth.entries.min(there + 1) + (2 * growth.bytes).div_ceil(payload);
        // A round ends when the slots for one more leaf and its index node can't be had: so many it has taken or made by then.
        let each = (u64::from(self.settings.round_slots - 12) / 4).max(1);
        let rounds = 2 + (changes.min(there + 1) + split).div_ceil(each);
        // Where a round ends within a leaf, there is one more.
        Merge { leaves: split + growth.entries.min(rounds), rounds }
    }

    fn growth_by(&self, change: &Change, known: Option<usize>) -> Growth {
        let before = known.unwrap_or(0);
        let after = match &change.value {
            Some(value) => ENTRY + value.len(),
            // In a leaf that is lost it is put on record that a key has no value, and this one may be.
            None if known.is_none() || self.is_lost(change.key) => before + ENTRY,
            None => 0,
        };
        let bytes = after.saturating_sub(before) as u64;
        Growth { entries: u64::from(bytes > 0), bytes }
    }

    /// By how much a change may make the leaves grow; none if it says nothing new.
    pub fn weigh(&self, change: &Change) -> Option<Growth> {
        let known = self.known_len(change.key);
        let is_needless = change.value.is_none() && known == Some(0) && !self.is_lost(change.key);
        (!is_needless).then(|| self.growth_by(change, known))
    }

    fn is_lost(&self, key: Key) -> bool {
        self.index.has_lost() && self.index.at(self.index.find(key)).lost
    }

    /// Bytes of a key's entry as things stand, if that is known without the disk.
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
