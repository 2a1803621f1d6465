//! The removal of what removed objects left in the object index: some at a time, when nothing else is to be done, when somebody waits for the
//! room, and now and then.

use crate::leaves::Leaves;
use crate::record::Record;
use crate::request_record::changes_len;
use crate::view::View;
use braid_object_index::Growth;
use braid_objects::{Collected, collect};
use std::collections::BTreeSet;

/// The most keys that go at once.
const SWEPT_AT_ONCE: usize = 256;
/// For that, this part of the journal must be free besides.
const SWEEPING_LEAVES: u64 = 8;
/// Where there is always something else to do, some go with every so many batches.
const BATCHES_PER_SWEEP: u64 = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct ObjectGc {
    /// There may be something left of lives from this one on.
    pub from: Option<u64>,
    /// Somebody waits for the room.
    pub wanted: bool,
    /// Leaves that it waits for, by slot.
    pub awaited: BTreeSet<u32>,
    /// Batches when some went last.
    batches: u64,
    /// How many keys went.
    pub keys_collected: u64,
}

impl Default for ObjectGc {
    fn default() -> Self {
        ObjectGc { from: Some(0), wanted: false, awaited: BTreeSet::new(), batches: 0, keys_collected: 0 }
    }
}

impl ObjectGc {
    /// Has some go, if it is time; `is_idle` if no request waits.
    pub fn collect(&mut self, is_idle: bool, leaves: &mut Leaves, view: &mut View) {
        let Some(from) = self.from.filter(|_| self.awaited.is_empty()) else { return };
        let is_idle = is_idle && view.journal.noted() == 0;
        let batches = view.disk.counters.batches;
        let is_due = is_idle || self.wanted || batches - self.batches >= BATCHES_PER_SWEEP;
        if !is_due {
            return;
        }
        let length = (SWEPT_AT_ONCE * 32) as u64;
        if view.is_crowded(length) {
            return view.journal.hurry();
        }
        let kept = view.kept_room(view.state.object_index.needs(SWEPT_AT_ONCE, Growth::default()))
            + view.journal.capacity() / SWEEPING_LEAVES;
        if !view.journal.has_room(length, false, view.state.transactions.undecided(), kept) {
            if self.wanted {
                view.journal.want_room();
            }
            return;
        }
        let Ok(Collected { changes, next }) = collect(&mut view.state.object_index, from, SWEPT_AT_ONCE) else {
            self.awaited = leaves.read_wanted(view);
            return;
        };
        (self.from, self.wanted, self.batches) = (next, false, batches);
        if !changes.is_empty() {
            assert!(changes_len(&changes) <= length, "as much as there is room for");
            view.state.object_index.apply(&changes);
            self.keys_collected += changes.len() as u64;
            view.journal.note(&Record::Collected(changes));
            view.journal.hurry();
        }
    }
}
