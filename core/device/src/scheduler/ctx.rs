//! The scheduler's view of the rest of the device during one step, and the queue for its decisions.

use super::decision::Decision;
use super::waiting::ReadRequest;
use crate::sessions::Sessions;
use braid_base::limits::{self, Settings};
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId, Epoch, Generation, MemberState, Now, ObjectId, TransactionId};
use braid_blocks::Want;
use braid_machine::Ignored;
use braid_membership::client::MembershipView;
use braid_ordering::{Policy, UnannouncedWrite};
use braid_wire::{Failure, ObjectDescription, Refusal, Reply, Step};
use std::collections::VecDeque;

pub(crate) trait Objects {
    fn object(&self, object: ObjectId) -> Option<&ObjectDescription>;
}

/// The context of one step.
pub(crate) struct Ctx<'a> {
    pub now: Now,
    pub settings: &'a Settings,
    pub device: DeviceId,
    pub objects: &'a dyn Objects,
    pub view: &'a MembershipView,
    /// The hosts whose leases run.
    pub hosts: &'a Sessions,
    /// The decisions of this step, in order.
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

    /// True if the transaction's host is alive and has not declared it over.
    pub fn is_looked_after(&self, id: TransactionId) -> bool {
        self.hosts.settled(id.host).is_some_and(|settled| id.sequence >= settled)
    }

    /// True if the device is returning, or new, and not resynchronised yet.
    pub fn is_returning(&self) -> bool {
        matches!(self.view.state(self.device), Some(MemberState::Returning { .. }))
    }

    /// The epoch since which the same devices are in.
    pub fn devices_since(&self) -> Epoch {
        let membership = self.view.membership().into_iter();
        membership.flat_map(|held| held.members.iter().map(|member| member.since)).max().unwrap_or_default()
    }

    /// True if a device takes part in writes.
    pub fn is_member(&self, device: DeviceId) -> bool {
        self.view.state(device).is_some_and(|state| state != MemberState::Out)
    }

    /// True if an interrupted write on this object leaves its stripes suspect.
    pub fn can_be_suspect(&self, object: ObjectId) -> bool {
        self.object(object).is_some_and(|object| object.can_be_suspect())
    }

    /// True if writes of this object come without a pre-write and take effect on arrival. Their hosts send them again
    /// until the device accepts them.
    pub fn is_unannounced(&self, object: ObjectId) -> bool {
        let admits = |policy: &Policy| policy.unannounced_write == UnannouncedWrite::Admit;
        self.object(object).is_some_and(|object| admits(object.ordering.policy()) && object.can_be_suspect())
    }

    /// True if the device may have missed writes to this object, so that it must not be read.
    pub fn is_absent(&self, object: ObjectId) -> bool {
        self.is_returning() && self.object(object).is_some_and(|object| object.redundant)
    }

    /// Checks the ranges: they lie within the object and, if content is transferred (`moves`), are within the size
    /// limit. Returns the policy of the object's ordering.
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
        // Bytes that do not begin at a block boundary touch one block more.
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
