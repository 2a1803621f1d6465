//! What the scheduler knows of the rest of the device during one step, and where its decisions go.

use super::decision::Decision;
use super::waiting::ReadRequest;
use crate::sessions::Sessions;
use braid_base::limits::{self, Settings};
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId, Generation, MemberState, Now, ObjectId, TransactionId};
use braid_machine::Ignored;
use braid_membership::client::MembershipView;
use braid_ordering::{Policy, UnannouncedWrite};
use braid_wire::{Failure, ObjectDescription, Refusal, Reply, Step, Want};
use std::collections::VecDeque;

/// A look-up of the objects that the device has.
pub(crate) trait Objects {
    /// An object, if there is one of that name.
    fn object(&self, object: ObjectId) -> Option<&ObjectDescription>;
}

/// One step's surroundings.
pub(crate) struct Ctx<'a> {
    pub now: Now,
    pub settings: &'a Settings,
    /// The device itself.
    pub device: DeviceId,
    pub objects: &'a dyn Objects,
    pub view: &'a MembershipView,
    /// The hosts whose leases run.
    pub hosts: &'a Sessions,
    /// What has been decided, in order.
    pub decisions: &'a mut VecDeque<Decision>,
}

impl<'a> Ctx<'a> {
    pub fn decide(&mut self, decision: Decision) {
        self.decisions.push_back(decision);
    }

    pub fn answer(&mut self, host: Generation, reply: Reply) {
        self.decide(Decision::Answer { host, reply });
    }

    pub fn refuse(&mut self, transaction: TransactionId, step: Step, refusal: Refusal) {
        self.decide(Decision::Refuse { transaction, step, refusal });
    }

    pub fn fail(&mut self, transaction: TransactionId, step: Step, failure: Failure) {
        self.decide(Decision::Fail { transaction, step, failure });
    }

    pub fn ignore(&mut self, why: Ignored) {
        self.decide(Decision::Ignore(why));
    }

    pub fn object(&self, object: ObjectId) -> Option<&'a ObjectDescription> {
        self.objects.object(object)
    }

    /// True if the host of a transaction may still ask for it.
    pub fn is_looked_after(&self, id: TransactionId) -> bool {
        self.hosts.settled(id.host).is_some_and(|settled| id.sequence >= settled)
    }

    /// True if the device is back, or new, and lacks something yet.
    pub fn is_returning(&self) -> bool {
        matches!(self.view.state(self.device), Some(MemberState::Returning { .. }))
    }

    /// True if what is cut short on this object leaves its stripes suspect.
    pub fn can_be_suspect(&self, object: ObjectId) -> bool {
        self.object(object).is_some_and(|object| object.can_be_suspect())
    }

    /// True if a write may be the first thing that is heard of a transaction on this object, and takes effect on arrival: so its host sends it
    /// again until it is taken.
    pub fn is_unannounced(&self, object: ObjectId) -> bool {
        let admits = |policy: &Policy| policy.unannounced_write == UnannouncedWrite::Admit;
        self.object(object).is_some_and(|object| admits(object.ordering.policy()) && object.can_be_suspect())
    }

    /// True if the device may have missed writes to this object, and so must not be read.
    pub fn is_absent(&self, object: ObjectId) -> bool {
        self.is_returning() && self.object(object).is_some_and(|object| object.redundant)
    }

    /// The policy of the object's ordering, if the ranges are within it and, where content moves, not too much.
    pub fn check_ranges(
        &self,
        object: ObjectId,
        ranges: &[BlockRange],
        moves: bool,
    ) -> Result<&'static Policy, Failure> {
        let description = self.object(object).ok_or(Failure::NoSuchObject)?;
        let whole = description.range();
        if ranges.is_empty() || ranges.len() > limits::EXTENTS_MAX || ranges.iter().any(|range| range.is_empty()) {
            return Err(Failure::Malformed);
        }
        if !ranges.iter().all(|range| whole.contains(*range)) {
            return Err(Failure::OutOfRange);
        }
        let blocks: u64 = ranges.iter().map(|range| range.count).sum();
        // Bytes that do not begin with a block touch one more.
        if moves && blocks > (limits::DEVICE_BYTES_MAX / BLOCK_BYTES) as u64 + 2 {
            return Err(Failure::Malformed);
        }
        Ok(description.ordering.policy())
    }

    pub fn check_read(&self, read: &ReadRequest) -> Result<&'static Policy, Failure> {
        let policy = self.check_ranges(read.object, &read.extents, matches!(read.want, Want::Data | Want::Salvage))?;
        if self.is_absent(read.object) {
            return Err(Failure::Absent);
        }
        if are_disjoint(&read.extents) { Ok(policy) } else { Err(Failure::Malformed) }
    }

    pub fn check_prewrite(&self, prewrites: &[BlockRange], reads: &ReadRequest) -> Result<&'static Policy, Failure> {
        if !reads.extents.is_empty() {
            self.check_read(reads)?;
        }
        let policy = self.check_ranges(reads.object, prewrites, false)?;
        if are_disjoint(prewrites) { Ok(policy) } else { Err(Failure::Malformed) }
    }
}

/// True if the ranges are sorted and share no block.
pub(super) fn are_disjoint(ranges: &[BlockRange]) -> bool {
    ranges.windows(2).all(|pair| pair[0].end() <= pair[1].start)
}
