//! The requests of a host that wait because their volume is on hold.

use braid_base::VolumeId;
use braid_machine::{ArrayRequest, HostError, HostRequest, JobRequest, OpId};
use std::collections::BTreeSet;

/// The volumes on hold, and the requests that wait, in the order of their arrival.
#[derive(Clone, Debug, Default)]
pub struct HeldRequests {
    held: BTreeSet<VolumeId>,
    waiting: Vec<(VolumeId, OpId, HostRequest)>,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Admission {
    /// The host gets it now. When it has it, those that have waited for this volume are to follow ([`HeldRequests::end`]), and those that it
    /// abandons are answered with this error.
    Passed { request: HostRequest, ends_hold_of: Option<VolumeId>, abandoned: Vec<(OpId, HostError)> },
    /// It waits.
    Held,
}

impl HeldRequests {
    /// Puts a volume on hold.
    pub fn begin(&mut self, volume: VolumeId) {
        self.held.insert(volume);
    }

    /// Ends a volume's hold. Returns the requests that have waited.
    pub fn end(&mut self, volume: VolumeId) -> Vec<(OpId, HostRequest)> {
        self.held.remove(&volume);
        let released = self.waiting.extract_if(.., |(held, ..)| *held == volume);
        released.map(|(_, op, request)| (op, request)).collect()
    }

    pub fn contains(&self, volume: VolumeId) -> bool {
        self.held.contains(&volume)
    }

    /// All volumes on hold.
    pub fn volumes(&self) -> impl Iterator<Item = VolumeId> + '_ {
        self.held.iter().copied()
    }

    /// Decides what becomes of a request.
    pub fn admit(&mut self, op: OpId, request: HostRequest) -> Admission {
        let mut ends_hold_of = None;
        let mut abandoned = Vec::new();
        match &request {
            HostRequest::Array(ArrayRequest::AdoptVolume { volume }) => ends_hold_of = Some(volume.id),
            HostRequest::Array(ArrayRequest::DropVolume { volume }) => ends_hold_of = Some(*volume),
            HostRequest::Array(ArrayRequest::Abandon { ops }) => {
                let gone = self.waiting.extract_if(.., |(_, op, _)| ops.contains(op));
                abandoned.extend(gone.map(|(_, op, _)| (op, HostError::Abandoned)));
            }
            other => {
                let volume = match other {
                    // It consists of the host's own requests, which are not held back.
                    HostRequest::Job(JobRequest::Migrate { volume, .. }) => Some(*volume),
                    other => other.volume(),
                };
                if let Some(volume) = volume.filter(|volume| self.held.contains(volume)) {
                    self.waiting.push((volume, op, request));
                    return Admission::Held;
                }
            }
        }
        Admission::Passed { request, ends_hold_of, abandoned }
    }
}
