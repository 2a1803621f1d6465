//! Replay of the journal's records at the start, and the report of the recovered state to the device.

use crate::block::Attribution;
use crate::journal_format::{Decision, IntentRecord, Part, Record};
use crate::state::State;
use crate::{Recovered, RecoveredWrite};
use braid_base::{BlockRange, DeviceId, DiskId, ObjectId};

impl State {
    pub fn replay(&mut self, record: Record) {
        // Free slots are determined after replay.
        let mut released = Vec::new();
        match record {
            Record::Intent(intent)
                if self.fits(&intent)
                    && !self.is_stale(&intent)
                    && !self.transactions.is_undecided(intent.by.transaction) =>
            {
                self.chunk_reservations.reserve(&intent);
                self.insert_intent(intent);
            }
            Record::Applied(intent) if self.fits(&intent) => {
                self.chunk_reservations.reserve(&intent);
                self.apply_at_once(&intent, &mut released);
            }
            // The object has been removed since, or the intent is from before this device was out, or the intent was carried along in a
            // snapshot while it was still in the journal.
            Record::Intent(_) | Record::Applied(_) => {}
            Record::Commit(transaction) => {
                self.commit(transaction, &mut released);
            }
            Record::Abort(transaction) => {
                self.abort(transaction, &mut released);
            }
            Record::Decided(Decision { by, participants, object }) => {
                self.transactions.remember(by, participants, object);
            }
            Record::Forget(transaction) => {
                self.forget(transaction);
            }
            Record::Settled { host, sequence } => {
                self.settle(host, sequence);
            }
            Record::Objects(executed) => self.executed(executed),
            Record::Collected(changes) => self.object_index.apply(&changes),
            // The last roots were looked up before replay. Older changes are applied over what they were merged into, with the same
            // result.
            Record::Rooted(_) => {}
            Record::Answers { host, settled, kept } => self.answers.carry_on(host, settled, kept),
            Record::Over { host, settled, intervals } => self.answers.over(host, settled, &intervals),
            Record::Retired(slots) => self.bad.extend(slots),
            Record::Stamps(until) => self.stamps_reserved = self.stamps_reserved.max(until),
            Record::Adopted(membership) => {
                self.adopt(membership, &mut released);
            }
            Record::Missed { device, object, extents } => {
                extents.into_iter().for_each(|extent| self.missed.insert(device, object, extent));
            }
            Record::Absent { object, extents } => {
                extents.into_iter().for_each(|extent| self.absent.insert(object, extent));
            }
            Record::Created { object, absent } => {
                self.create(object, absent);
            }
            // Objects were taken in before replay, so that the map could be loaded. The membership of a later snapshot would come too
            // early: records of decisions made before it may follow.
            Record::Object(_) | Record::Membership { .. } => {}
            Record::Resized { object, absent } => {
                self.resize(object, absent, &mut released);
            }
            Record::Removed(object) => {
                self.remove(object, &mut released);
            }
            Record::Reordered { object, ordering } => {
                self.objects.set_ordering(object, ordering);
            }
        }
    }

    /// True if, after replay, every chunk that has content has a slot.
    pub fn is_sound(&self) -> bool {
        let extents = self.objects.iter().flat_map(|object| &object.extents);
        let mut indices = extents.flat_map(|extent| extent.start..extent.start + extent.count);
        indices.all(|index| {
            let entry = self.map.get(index as usize);
            entry.blocks == 0 || entry.slot.is_some()
        })
    }

    /// The state that recovery from this disk reports to the device.
    pub fn recovered(&self, disk: DiskId) -> Recovered {
        let ranges = |pieces: &[Part]| {
            let mut ranges: Vec<BlockRange> = Vec::new();
            for part in pieces {
                match ranges.last_mut() {
                    Some(last) if last.end() == part.range.start => last.count += part.range.count,
                    _ => ranges.push(part.range),
                }
            }
            ranges
        };
        let write = |by: &Attribution, participants: &[DeviceId], object: ObjectId, ranges: Vec<BlockRange>| {
            let Attribution { transaction, stamp, epoch, linkage } = *by;
            RecoveredWrite { transaction, stamp, epoch, participants: participants.to_vec(), linkage, object, ranges }
        };
        let intent = |it: &IntentRecord| write(&it.by, &it.participants, it.object, ranges(&it.pieces));
        let commit = |it: &Decision| write(&it.by, &it.participants, it.object, Vec::new());
        Recovered {
            disk,
            intents: self.transactions.intents().map(intent).collect(),
            commits: self.transactions.decisions().map(commit).collect(),
            stamps_reserved: self.stamps_reserved,
            membership: self.presence.membership.clone(),
        }
    }
}
