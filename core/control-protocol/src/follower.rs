//! The part of a host: it follows the records of volumes, and confirms a version when it has no operation under way on volumes that are on
//! hold there, nor on volumes that are gone.

use crate::record::{Version, VolumeRecord, VolumeState};
use braid_base::VolumeId;
use braid_layout::VolumeDescription;
use braid_machine::ArrayRequest;
use std::collections::{BTreeMap, BTreeSet};

/// The volumes as one host knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follower {
    /// The version that is being applied, or was applied last. Lower versions are ignored.
    version: Version,
    known: BTreeMap<VolumeId, VolumeDescription>,
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
    /// Forget the volume; operations that have waited fail, and those under way end.
    Drop(VolumeId),
    /// The volume was deleted while it was on hold.
    EndHold(VolumeId),
}

impl HostStep {
    /// The request with which the host performs it.
    pub fn request(&self) -> ArrayRequest {
        match self {
            HostStep::Hold(volume) => ArrayRequest::HoldVolume { volume: *volume },
            HostStep::Adopt(volume) => ArrayRequest::AdoptVolume { volume: volume.clone() },
            HostStep::Drop(volume) | HostStep::EndHold(volume) => ArrayRequest::DropVolume { volume: *volume },
        }
    }
}

impl Follower {
    /// A host that was started with the usable volumes of these records. It must have taken its lease before the records were read: an
    /// administrator that holds a volume afterwards waits for it.
    pub fn new<'a>(version: Version, records: impl IntoIterator<Item = &'a VolumeRecord>) -> Follower {
        let mut follower =
            Follower { version, known: BTreeMap::new(), held: BTreeSet::new(), leaving: BTreeSet::new() };
        for record in records.into_iter().filter(|record| record.is_usable()) {
            let id = record.volume.id;
            follower.known.insert(id, record.volume.clone());
            if record.held_by().is_some() {
                follower.held.insert(id);
            }
        }
        follower
    }

    /// The volumes on hold.
    pub fn held(&self) -> &BTreeSet<VolumeId> {
        &self.held
    }

    /// The version that is being applied, or was applied last.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The description of a volume, as the host has adopted it.
    pub fn known(&self, volume: VolumeId) -> Option<&VolumeDescription> {
        self.known.get(&volume)
    }

    /// The steps that bring the host to this version. Each is to be reported when it is done ([`Follower::did`]). None for a version that
    /// is older than the one before.
    pub fn follow(&mut self, version: Version, records: &[VolumeRecord]) -> Vec<HostStep> {
        if version < self.version {
            return Vec::new();
        }
        self.version = version;
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
        let gone = self.known.keys().filter(|id| !stays.contains(id)).copied().map(HostStep::Drop);
        let ended = self.held.iter().filter(|id| !stays.contains(id)).copied().map(HostStep::EndHold);
        hold.chain(adopt).chain(gone).chain(ended).collect()
    }

    /// The host has performed a step.
    pub fn did(&mut self, step: &HostStep) {
        match step {
            HostStep::Hold(volume) => drop(self.held.insert(*volume)),
            HostStep::Adopt(volume) => {
                self.held.remove(&volume.id);
                self.known.insert(volume.id, volume.clone());
            }
            HostStep::Drop(volume) => {
                self.known.remove(volume);
                self.leaving.insert(*volume);
            }
            HostStep::EndHold(volume) => drop(self.held.remove(volume)),
        }
    }

    /// The version to confirm with the lease, when all steps up to `version` are done. None while an operation is under way on a volume
    /// that is on hold, or gone.
    pub fn confirmable(&mut self, version: Version, is_idle: impl Fn(VolumeId) -> bool) -> Option<Version> {
        assert!(version <= self.version, "a host confirms what it has applied");
        self.leaving.retain(|volume| !is_idle(*volume));
        let is_drained = self.leaving.is_empty() && self.held.iter().all(|volume| is_idle(*volume));
        is_drained.then_some(version)
    }
}
