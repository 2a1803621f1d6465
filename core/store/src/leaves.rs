//! Reads of those leaves of the object index that lookups need and that are not in memory. A lookup is repeated when its leaves have
//! arrived.

use crate::ctx::Ctx;
use crate::disk_queue::Io;
use braid_object_index::SlotRef;
use bytes::Bytes;
use std::collections::BTreeSet;

/// The most leaves that are read at once.
const IN_FLIGHT_MAX: usize = 64;

#[derive(Clone, Debug, Default)]
pub(crate) struct Leaves {
    in_flight: usize,
}

impl Leaves {
    /// Begins to read the leaves that the last lookups lacked, up to the limit. Returns the slots that are being read for them.
    pub fn read_wanted(&mut self, ctx: &mut Ctx) -> BTreeSet<u32> {
        let mut awaited = BTreeSet::new();
        for wanted in ctx.state.object_index.take_wanted() {
            if self.in_flight >= IN_FLIGHT_MAX {
                break;
            }
            if ctx.state.object_index.begin_read(wanted) {
                self.in_flight += 1;
                ctx.disk.read_leaf(Io::Leaf { place: wanted.place, again: false }, wanted.place, ctx.out);
            }
            if ctx.state.object_index.is_being_read(wanted) {
                awaited.insert(wanted.place.slot);
            }
        }
        awaited
    }

    /// A leaf has arrived, or can't be read. It is read once more before it counts as damaged, because bits may also flip on the way from
    /// the disk. Returns false if it is read again.
    pub fn on_leaf(&mut self, place: SlotRef, again: bool, bytes: Option<Bytes>, ctx: &mut Ctx) -> bool {
        let whole = bytes.is_some_and(|bytes| ctx.state.object_index.on_read(place.slot, Some(&bytes)));
        if !whole && !again {
            ctx.disk.read_leaf(Io::Leaf { place, again: true }, place, ctx.out);
            return false;
        }
        if !whole {
            ctx.state.object_index.on_read(place.slot, None);
        }
        self.in_flight -= 1;
        true
    }
}
