//! The state of leaves: cached, wanted, being read, damaged.

use crate::cache::Cache;
use crate::index::{Index, LeafEntry};
use crate::leaf::Leaf;
use crate::types::SlotRef;
use braid_objects::{Key, Obstacle};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// A leaf that a lookup needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    first: Key,
    /// The leaf's location on the disk.
    pub place: SlotRef,
}

/// The leaves of an object index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaves {
    pub cache: Cache,
    /// Slots whose leaf can't be read, or is damaged.
    damaged: BTreeSet<u32>,
    /// Leaves that are being read, by slot.
    pub reading: BTreeMap<u32, Wanted>,
    /// Those that lookups lacked since they were last taken out.
    pub wanted: Vec<Wanted>,
    /// The numbers of leaves that were read for lookups, written, and found damaged.
    pub read: u64,
    pub written: u64,
    pub found_damaged: u64,
}

impl Leaves {
    pub fn new(cache_bytes: usize) -> Leaves {
        Leaves { cache: Cache::new(cache_bytes), ..Leaves::default() }
    }

    /// Notes that the caller reads a leaf. Returns false if it is being read already, or was replaced.
    pub fn begin_read(&mut self, wanted: Wanted, index: &Index) -> bool {
        if index.at(index.find(wanted.first)).place != Some(wanted.place) {
            return false;
        }
        let begins = self.reading.insert(wanted.place.slot, wanted).is_none();
        self.read += u64::from(begins);
        begins
    }

    /// See [`ObjectIndex::on_read`](crate::ObjectIndex::on_read).
    pub fn on_read(&mut self, slot: u32, bytes: Option<&Bytes>, index: &Index) -> bool {
        let Some(Wanted { first, place }) = self.reading.get(&slot).copied() else { return true };
        let leaf = bytes.and_then(|bytes| Leaf::decode(bytes, place));
        if leaf.is_none() && bytes.is_some() {
            return false;
        }
        self.reading.remove(&slot);
        // The leaf may have been replaced while it was read.
        if index.at(index.find(first)).place == Some(place) {
            match leaf {
                Some(leaf) => self.cache.insert(slot, leaf),
                None => self.mark_damaged(slot),
            }
        }
        true
    }

    pub fn mark_damaged(&mut self, slot: u32) {
        self.found_damaged += u64::from(self.damaged.insert(slot));
    }

    pub fn is_damaged(&self, slot: u32) -> bool {
        self.damaged.contains(&slot)
    }

    /// The slot no longer holds a leaf.
    pub fn drop_slot(&mut self, slot: u32) {
        self.cache.remove(slot);
        self.damaged.remove(&slot);
    }

    /// A leaf from memory; none if no leaf is on the disk.
    pub fn get(&mut self, entry: LeafEntry) -> Result<Option<&Leaf>, Obstacle> {
        let Some(place) = entry.place else { return Ok(None) };
        if self.damaged.contains(&place.slot) {
            return Err(Obstacle::Lost);
        }
        match self.cache.get(place.slot) {
            Some(leaf) => Ok(Some(leaf)),
            None => {
                let wanted = Wanted { first: entry.first, place };
                if self.wanted.last() != Some(&wanted) {
                    self.wanted.push(wanted);
                }
                Err(Obstacle::NotHere)
            }
        }
    }
}
