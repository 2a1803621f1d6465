//! The requests of a host that wait because their volume is on hold. A hold ends when the host adopts the volume's new description, or is
//! told that the volume has been deleted.

use braid_base::{Now, Time, VolumeId};
use braid_machine::{
    ArrayRequest, HostEffects, HostError, HostInput, HostOutcome, HostRequest, Input, JobRequest, Machine, NoDisk, OpId,
};
use std::collections::BTreeSet;

/// A host that starts no operation on volumes that are on hold: requests for them begin when the hold ends.
#[derive(Clone, Debug)]
pub struct HoldingHost<H> {
    host: H,
    held: HeldRequests,
}

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

impl<H> HoldingHost<H> {
    /// A host, and the volumes that are on hold when it starts.
    pub fn new(host: H, held: BTreeSet<VolumeId>) -> HoldingHost<H> {
        HoldingHost { host, held: HeldRequests { held, waiting: Vec::new() } }
    }

    pub fn host(&self) -> &H {
        &self.host
    }

    /// The volumes on hold.
    pub fn held(&self) -> &HeldRequests {
        &self.held
    }
}

impl<H: Machine<Request = HostRequest, Outcome = HostOutcome, Disk = NoDisk>> Machine for HoldingHost<H> {
    type Request = HostRequest;
    type Outcome = HostOutcome;
    type Disk = NoDisk;

    fn step(&mut self, now: Now, input: HostInput, out: &mut HostEffects) {
        let Input::Request { op, request } = input else { return self.host.step(now, input, out) };
        let Admission::Passed { request, ends_hold_of, abandoned } = self.held.admit(op, request) else { return };
        abandoned.into_iter().for_each(|(op, error)| out.reply(op, Err(error)));
        self.host.step(now, Input::Request { op, request }, out);
        for (op, request) in ends_hold_of.into_iter().flat_map(|volume| self.held.end(volume)) {
            self.host.step(now, Input::Request { op, request }, out);
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.host.deadline()
    }

    fn invariants(&self) {
        self.host.invariants();
    }
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
            HostRequest::Array(ArrayRequest::HoldVolume { volume }) => self.begin(*volume),
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

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{Clock, DeviceId};
    use braid_layout::{Layout, RaidLevel, VolumeDescription};
    use braid_machine::{HostSuccess, Patience, VolumeRequest};

    /// A host that answers each request at once.
    struct Ready;

    impl Machine for Ready {
        type Request = HostRequest;
        type Outcome = HostOutcome;
        type Disk = NoDisk;

        fn step(&mut self, _: Now, input: HostInput, out: &mut HostEffects) {
            if let Input::Request { op, .. } = input {
                out.reply(op, Ok(HostSuccess::Done));
            }
        }

        fn deadline(&self) -> Option<Time> {
            None
        }

        fn invariants(&self) {}
    }

    #[test]
    fn requests_of_a_volume_on_hold_begin_when_its_description_is_renewed() {
        let adopts = |id: u64| {
            let layout = Layout::new(RaidLevel::Raid0 { data: 1 }, 1, 16).unwrap();
            let volume = VolumeDescription::new(VolumeId(id), 1 << 20, layout, vec![DeviceId(0)]);
            HostRequest::from(ArrayRequest::AdoptVolume { volume })
        };
        let holds = |id: u64| HostRequest::from(ArrayRequest::HoldVolume { volume: VolumeId(id) });
        let drops = |id: u64| HostRequest::from(ArrayRequest::DropVolume { volume: VolumeId(id) });
        let (offset, length, patience) = (0, 4096, Patience::Host);
        let read = |id: u64| VolumeRequest::Read { volume: VolumeId(id), offset, length, patience }.into();
        let mut host = HoldingHost::new(Ready, [VolumeId(3)].into());
        let mut out = HostEffects::new();
        let mut answered = |number: u64, request: HostRequest| {
            let op = OpId::front_end(number);
            host.step(Now { time: Time(1), clock: Clock(1) }, Input::Request { op, request }, &mut out);
            out.drain().count()
        };
        assert_eq!(answered(1, read(1)), 1);
        assert_eq!(answered(2, holds(1)), 1);
        assert_eq!(answered(3, read(1)), 0, "it waits");
        assert_eq!(answered(4, read(2)), 1, "a request for another volume does not wait");
        assert_eq!(answered(5, adopts(2)), 1, "its volume is not on hold");
        assert_eq!(answered(6, adopts(1)), 2, "now it begins");
        assert_eq!(answered(7, read(1)), 1);
        assert_eq!(answered(8, read(3)), 0, "its volume was on hold from the start");
        let ops = vec![OpId::front_end(8)];
        assert_eq!(answered(9, ArrayRequest::Abandon { ops }.into()), 2);
        assert_eq!(answered(10, drops(3)), 1, "nothing waits");
        assert_eq!(answered(11, read(3)), 1, "the host says that there is no such volume");
    }
}
