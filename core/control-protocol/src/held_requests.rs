//! The requests of a host that wait because their volume is on hold. A hold ends when the host adopts the volume's new description, or is
//! told that the volume has been deleted.

use braid_base::{Now, VolumeId};
use braid_machine::{
    ArrayRequest, HostEffects, HostError, HostInput, HostMachine, HostOutcome, HostRequest, Input, JobRequest, Machine,
    NoDisk, OpId,
};
use std::collections::BTreeSet;

/// A host that starts no operation on volumes that are on hold: requests for them begin when the hold ends, in the order of their arrival.
#[derive(Clone, Debug)]
pub struct HoldingHost<H> {
    host: H,
    held: BTreeSet<VolumeId>,
    waiting: Vec<(VolumeId, OpId, HostRequest)>,
}

impl<H> HoldingHost<H> {
    /// A host, and the volumes that are on hold when it starts.
    pub fn new(host: H, held: BTreeSet<VolumeId>) -> HoldingHost<H> {
        HoldingHost { host, held, waiting: Vec::new() }
    }

    pub fn host(&self) -> &H {
        &self.host
    }

    /// The volume on hold for which the request has to wait, if there is one.
    fn awaited(&self, request: &HostRequest) -> Option<VolumeId> {
        let volume = match request {
            // It consists of the host's own requests, which are not held back.
            HostRequest::Job(JobRequest::Migrate { volume, .. }) => Some(*volume),
            other => other.volume(),
        };
        volume.filter(|volume| self.held.contains(volume))
    }
}

impl<H: Machine<Request = HostRequest, Outcome = HostOutcome, Disk = NoDisk>> Machine for HoldingHost<H> {
    type Request = HostRequest;
    type Outcome = HostOutcome;
    type Disk = NoDisk;

    fn step(&mut self, now: Now, input: HostInput, out: &mut HostEffects) {
        let Input::Request { op, request } = input else { return self.host.step(now, input, out) };
        if let Some(volume) = self.awaited(&request) {
            return self.waiting.push((volume, op, request));
        }
        let mut ends_hold_of = None;
        match &request {
            HostRequest::Array(ArrayRequest::HoldVolume { volume }) => drop(self.held.insert(*volume)),
            HostRequest::Array(ArrayRequest::AdoptVolume { volume }) => ends_hold_of = Some(volume.id),
            HostRequest::Array(ArrayRequest::DropVolume { volume }) => ends_hold_of = Some(*volume),
            HostRequest::Array(ArrayRequest::Abandon { ops }) => {
                let gone = self.waiting.extract_if(.., |(_, op, _)| ops.contains(op));
                gone.for_each(|(_, op, _)| out.reply(op, Err(HostError::Abandoned)));
            }
            _ => {}
        }
        self.host.step(now, Input::Request { op, request }, out);
        if let Some(volume) = ends_hold_of {
            self.held.remove(&volume);
            let released: Vec<_> = self.waiting.extract_if(.., |(held, ..)| *held == volume).collect();
            for (_, op, request) in released {
                self.host.step(now, Input::Request { op, request }, out);
            }
        }
    }

    braid_machine::held_machine!(host);
}

impl<H: HostMachine> HostMachine for HoldingHost<H> {
    fn knows(&self, volume: VolumeId) -> bool {
        self.host.knows(volume)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{Clock, DeviceId, Time};
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
