//! The volumes as one host knows them, and the steps that keep them as the store has them. A version is confirmed when its steps are done and
//! the host has no operation under way on volumes that are on hold there, nor on volumes that are gone.
//!
//! The host takes steps in the order in which they are asked for. Whether it has taken one is known from its answer alone. Until then, and for
//! ever if the answer is lost, the volume counts as one that may be on hold: the version is not confirmed, and the next one has a step
//! for the volume again, whatever its state is there.

use crate::record::{Version, VolumeRecord, VolumeState};
use braid_base::VolumeId;
use braid_layout::VolumeDescription;
use braid_machine::ArrayRequest;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The volumes as one host knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Follower {
    /// The version that is being applied, or was applied last. Lower versions are ignored.
    version: Version,
    /// What is left of it. The first step has been asked for.
    steps: VecDeque<HostStep>,
    /// True when all of its steps are done.
    is_applied: bool,
    known: BTreeMap<VolumeId, VolumeDescription>,
    /// Volumes that are on hold, or may be: a step for them has been asked for, and is not known to be done.
    held: BTreeSet<VolumeId>,
    /// Volumes that the host has forgotten, and on which it may still have operations under way.
    leaving: BTreeSet<VolumeId>,
}

/// A step that the host performs, in this order, before it confirms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostStep {
    /// Begin no operation on the volume, and end the migration of it: that is the host's own, and not held back with those of users. Nor
    /// complete the survey of a device that returns meanwhile.
    Hold(VolumeId),
    /// Adopt this description, and begin the operations that have waited.
    Adopt(VolumeDescription),
    /// Forget the volume, which may be on hold; operations that have waited fail, and those under way end.
    Drop(VolumeId),
}

impl HostStep {
    /// The request with which the host performs it.
    pub fn request(&self) -> ArrayRequest {
        match self {
            HostStep::Hold(volume) => ArrayRequest::HoldVolume { volume: *volume },
            HostStep::Adopt(volume) => ArrayRequest::AdoptVolume { volume: volume.clone() },
            HostStep::Drop(volume) => ArrayRequest::DropVolume { volume: *volume },
        }
    }

    fn volume(&self) -> VolumeId {
        match self {
            HostStep::Hold(volume) | HostStep::Drop(volume) => *volume,
            HostStep::Adopt(volume) => volume.id,
        }
    }
}

impl Follower {
    /// A host that was started with the usable volumes of these records. It must have taken its lease before the records were read: an
    /// administrator that holds a volume afterwards waits for it.
    pub fn new<'a>(version: Version, records: impl IntoIterator<Item = &'a VolumeRecord>) -> Follower {
        let usable: Vec<_> = records.into_iter().filter(|record| record.is_usable()).collect();
        let on_hold = usable.iter().filter(|record| record.held_by().is_some());
        Follower {
            version,
            steps: VecDeque::new(),
            is_applied: true,
            held: on_hold.map(|record| record.volume.id).collect(),
            known: usable.iter().map(|record| (record.volume.id, record.volume.clone())).collect(),
            leaving: BTreeSet::new(),
        }
    }

    /// True if a volume is on hold, or may be.
    pub fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// The last version, if all of its steps are done.
    pub fn applied(&self) -> Option<Version> {
        self.is_applied.then_some(self.version)
    }

    /// The first of the steps that bring the host to this version, if there is one. None for a version that is older than the one before.
    pub fn follow(&mut self, version: Version, records: &[VolumeRecord]) -> Option<HostStep> {
        if version < self.version {
            return None;
        }
        (self.version, self.is_applied) = (version, false);
        let usable = || records.iter().filter(|record| record.is_usable());
        let on_hold: BTreeSet<VolumeId> =
            usable().filter(|record| record.held_by().is_some()).map(|record| record.volume.id).collect();
        // Also volumes that are known to be on hold: a migration may have begun since.
        let hold = on_hold.iter().copied().map(HostStep::Hold);
        let is_new =
            |volume: &VolumeDescription| self.held.contains(&volume.id) || self.known.get(&volume.id) != Some(volume);
        let ready = records.iter().filter(|record| record.state == VolumeState::Ready);
        let adopt = ready.map(|record| &record.volume).filter(|volume| is_new(volume)).cloned().map(HostStep::Adopt);
        let stays: BTreeSet<VolumeId> = usable().map(|record| record.volume.id).collect();
        let gone: BTreeSet<VolumeId> =
            self.known.keys().chain(&self.held).copied().filter(|id| !stays.contains(id)).collect();
        self.steps = hold.chain(adopt).chain(gone.into_iter().map(HostStep::Drop)).collect();
        self.ask()
    }

    /// The host has performed the step that was asked for. The next one, if there is one.
    pub fn did(&mut self) -> Option<HostStep> {
        match self.steps.pop_front().expect("a step was asked for") {
            HostStep::Hold(_) => {}
            HostStep::Adopt(volume) => {
                self.held.remove(&volume.id);
                self.known.insert(volume.id, volume);
            }
            HostStep::Drop(volume) => {
                self.held.remove(&volume);
                self.known.remove(&volume);
                self.leaving.insert(volume);
            }
        }
        self.ask()
    }

    /// It is not known whether the host has performed the step that was asked for, or will. The version is to be followed again.
    pub fn lost(&mut self) {
        self.steps.clear();
    }

    fn ask(&mut self) -> Option<HostStep> {
        let step = self.steps.front().cloned();
        self.is_applied = step.is_none();
        self.held.extend(step.iter().map(HostStep::volume));
        step
    }

    /// The version to confirm with the lease. None while a step of it is not done, or an operation is under way on a volume that is on hold,
    /// or gone.
    pub fn confirmable(&mut self, is_idle: impl Fn(VolumeId) -> bool) -> Option<Version> {
        self.leaving.retain(|volume| !is_idle(*volume));
        let is_drained = self.leaving.is_empty() && self.held.iter().all(|volume| is_idle(*volume));
        self.applied().filter(|_| is_drained)
    }
}
