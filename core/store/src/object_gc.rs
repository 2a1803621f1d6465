//! Garbage collection of removed objects: their entries in the object index are removed in small portions. A portion is collected when
//! the store is idle, when a request waits for the room, and every few batches.

use crate::ctx::Ctx;
use crate::journal_format::Record;
use crate::journal_format::request::changes_len;
use crate::leaves::Leaves;
use braid_object_index::Growth;
use braid_objects::{Collected, collect};
use std::collections::BTreeSet;

/// The most keys that are collected at once.
const KEYS_PER_COLLECTION: usize = 256;
/// A portion is collected only if the journal's length divided by this is free besides.
const FREE_PART_FOR_COLLECTION: u64 = 8;
/// While the store is never idle, a portion is collected every so many batches.
const BATCHES_PER_COLLECTION: u64 = 8;

/// The progress of garbage collection.
#[derive(Clone, Debug)]
pub(crate) struct ObjectGc {
    /// Incarnations from this one on may have left garbage.
    pub from: Option<u64>,
    /// A request waits for the room.
    pub wanted: bool,
    /// The leaves that collection waits for, by slot.
    pub awaited: BTreeSet<u32>,
    /// The number of batches when a portion was last collected.
    batches: u64,
    pub keys_collected: u64,
}

impl Default for ObjectGc {
    fn default() -> Self {
        ObjectGc { from: Some(0), wanted: false, awaited: BTreeSet::new(), batches: 0, keys_collected: 0 }
    }
}

impl ObjectGc {
    /// Collects a portion if it is time. `is_idle`: no request waits.
    pub fn collect(&mut self, is_idle: bool, leaves: &mut Leaves, ctx: &mut Ctx) {
        let Some(from) = self.from.filter(|_| self.awaited.is_empty()) else { return };
        let is_idle = is_idle && ctx.journal.noted() == 0;
        let batches = ctx.disk.counters.batches;
        let is_due = is_idle || self.wanted || batches - self.batches >= BATCHES_PER_COLLECTION;
        if !is_due {
            return;
        }
        let length = (KEYS_PER_COLLECTION * 32) as u64;
        if ctx.is_crowded(length) {
            return ctx.journal.hurry();
        }
        let kept = ctx.kept_room(ctx.state.object_index.needs(KEYS_PER_COLLECTION, Growth::default()))
            + ctx.journal.capacity() / FREE_PART_FOR_COLLECTION;
        if !ctx.journal.has_room(length, false, ctx.state.transactions.undecided(), kept) {
            if self.wanted {
                ctx.journal.want_room();
            }
            return;
        }
        let Ok(Collected { changes, next }) = collect(&mut ctx.state.object_index, from, KEYS_PER_COLLECTION) else {
            self.awaited = leaves.read_wanted(ctx);
            return;
        };
        (self.from, self.wanted, self.batches) = (next, false, batches);
        if !changes.is_empty() {
            assert!(changes_len(&changes) <= length, "the changes fit into the room that was checked");
            ctx.state.object_index.apply(&changes);
            self.keys_collected += changes.len() as u64;
            ctx.journal.note(&Record::Collected(changes));
            ctx.journal.hurry();
        }
    }
}
