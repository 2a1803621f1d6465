//! Leaves of the catalogue that lookups need, and that are not in memory: they are read, and who needs them asks again.

use crate::block::places_of;
use crate::serving::{Io, Serving};
use braid_catalogue::Place;
use braid_machine::{DiskCommand, Effects};
use bytes::Bytes;
use std::collections::BTreeSet;

/// The most that are read at once.
const IN_FLIGHT_MAX: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Leaves {
    in_flight: usize,
    /// What the first request waits for, by slot.
    pub by_request: BTreeSet<u32>,
    /// What the sweep waits for.
    pub by_sweep: BTreeSet<u32>,
}

impl Serving {
    /// Begins to read what the last lookups wanted, as far as that may be at once. Tells which slots are being read of it.
    pub fn read_wanted(&mut self, out: &mut Effects) -> BTreeSet<u32> {
        let mut awaited = BTreeSet::new();
        for wanted in self.state.catalogue.take_wanted() {
            if self.leaves.in_flight >= IN_FLIGHT_MAX {
                break;
            }
            if self.state.catalogue.begin_read(wanted) {
                self.leaves.in_flight += 1;
                let io = Io::Leaf { place: wanted.place, again: false };
                self.read_place(io, wanted.place, out);
            }
            if self.state.catalogue.is_being_read(wanted) {
                awaited.insert(wanted.place.slot);
            }
        }
        awaited
    }

    /// Reads a leaf.
    pub fn read_place(&mut self, io: Io, place: Place, out: &mut Effects) {
        let offset = self.offset_of(places_of(place.slot).start);
        self.disk(io, DiskCommand::Read { offset, length: place.read_len() }, out);
    }

    /// A leaf has come, or can't be read. Before it counts as damaged it is read once more: on its way here, too, bits may flip.
    pub fn on_leaf(&mut self, place: Place, again: bool, bytes: Option<Bytes>, out: &mut Effects) {
        let whole = bytes.is_some_and(|bytes| self.state.catalogue.on_read(place.slot, Some(&bytes)));
        if !whole && !again {
            return self.read_place(Io::Leaf { place, again: true }, place, out);
        }
        if !whole {
            self.state.catalogue.on_read(place.slot, None);
        }
        self.leaves.in_flight -= 1;
        self.leaves.by_request.remove(&place.slot);
        self.leaves.by_sweep.remove(&place.slot);
    }
}
