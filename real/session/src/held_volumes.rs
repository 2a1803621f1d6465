//! The volumes on hold: a host starts no operation on them for now. Requests for them are queued, and started when the hold ends.

use crate::host_view::HostView;
use braid_base::{Now, Time, VolumeId};
use braid_control_protocol::{Admission, HeldRequests};
use braid_host::Host;
use braid_machine::{HostEffects, HostInput, HostOutcome, HostRequest, Input, Machine, NoDisk};
use braid_recording::Recording;
use braid_shell::Counters;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A host that runs in a task of this thread, and starts no operation on volumes that are on hold.
pub struct ObservedHost {
    host: Rc<RefCell<Host>>,
    holds: Holds,
}

/// The volumes on hold, with the requests that wait for them. A hold ends when the host adopts the volume's new description, or is told that
/// the volume has been deleted.
#[derive(Clone, Debug, Default)]
pub struct Holds {
    requests: Arc<Mutex<HeldRequests>>,
    recording: Option<Recording>,
}

/// A change of an observed host, or of the machine around it, that is not an input of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Adjustment {
    /// A volume is put on hold.
    Hold(VolumeId),
    /// The hold of a volume that is gone ends.
    EndHold(VolumeId),
    /// Of the machine around the host, as its role encodes it.
    Around(Vec<u8>),
}

impl ObservedHost {
    /// Wraps a host, and returns it with its view. A recording gets its adjustments, and its steps from the caller.
    pub fn new(host: Host, recording: Option<Recording>, shell: Arc<Counters>) -> (ObservedHost, HostView) {
        let host = Rc::new(RefCell::new(host));
        let holds = Holds { requests: Arc::default(), recording };
        let view = HostView::new(host.clone(), holds.clone(), shell);
        (ObservedHost { host, holds }, view)
    }
}

impl Machine for ObservedHost {
    type Request = HostRequest;
    type Outcome = HostOutcome;
    type Disk = NoDisk;

    fn step(&mut self, now: Now, input: HostInput, out: &mut HostEffects) {
        let mut host = self.host.borrow_mut();
        let Input::Request { op, request } = input else { return host.step(now, input, out) };
        let admission = self.holds.lock().admit(op, request);
        match admission {
            Admission::Held => {}
            Admission::Passed { request, ends_hold_of, abandoned } => {
                abandoned.into_iter().for_each(|(op, error)| out.reply(op, Err(error)));
                host.step(now, Input::Request { op, request }, out);
                for (op, request) in ends_hold_of.into_iter().flat_map(|volume| self.holds.lock().end(volume)) {
                    host.step(now, Input::Request { op, request }, out);
                }
            }
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.host.borrow().deadline()
    }

    fn invariants(&self) {
        self.host.borrow().invariants();
    }
}

impl Holds {
    /// Puts a volume on hold.
    pub fn begin(&self, volume: VolumeId) {
        self.adjust(&Adjustment::Hold(volume));
    }

    /// Ends the hold of a volume that is gone. No request waits for it: the host was told so.
    pub(crate) fn end(&self, volume: VolumeId) {
        self.adjust(&Adjustment::EndHold(volume));
    }

    /// Changes the holds, and records that.
    pub fn adjust(&self, adjustment: &Adjustment) {
        if let Some(recording) = &self.recording {
            recording.put_adjustment(adjustment);
        }
        match adjustment {
            Adjustment::Hold(volume) => self.lock().begin(*volume),
            Adjustment::EndHold(volume) => drop(self.lock().end(*volume)),
            Adjustment::Around(_) => {}
        }
    }

    pub fn contains(&self, volume: VolumeId) -> bool {
        self.lock().contains(volume)
    }

    /// True if no volume is on hold.
    pub fn is_empty(&self) -> bool {
        self.lock().volumes().next().is_none()
    }

    fn lock(&self) -> MutexGuard<'_, HeldRequests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::limits::Settings;
    use braid_base::{DeviceId, Generation, Membership};
    use braid_host::HostConfig;
    use braid_layout::{Layout, RaidLevel, VolumeDescription};
    use braid_machine::{ArrayRequest, Effect, OpId, Patience, VolumeRequest};
    use braid_ordering::Ordering;

    #[test]
    fn requests_of_a_volume_on_hold_begin_when_its_description_is_renewed() {
        let volume = |id: u64, ordering: Ordering| VolumeDescription {
            ordering,
            ..VolumeDescription::new(
                VolumeId(id),
                1 << 20,
                Layout::new(RaidLevel::Raid0 { data: 1 }, 1, 16).unwrap(),
                vec![DeviceId(0)],
            )
        };
        let host = Host::new(HostConfig {
            generation: Generation(1),
            membership: Some(Membership::first([DeviceId(0)])),
            devices: vec![DeviceId(0)],
            lock_servers: Vec::new(),
            acquisition: Default::default(),
            volumes: vec![volume(1, Ordering::Timestamp), volume(2, Ordering::Timestamp)],
            held: Default::default(),
            settings: Settings::default(),
            seed: 1,
        });
        let (mut observed, view) = ObservedHost::new(host, None, Arc::default());
        let mut ask = |op: u64, request: HostRequest| {
            let mut out = HostEffects::new();
            let input = Input::Request { op: OpId::front_end(op), request };
            observed.step(Now { time: Time(1), clock: braid_base::Clock(1) }, input, &mut out);
            let effects = out.drain();
            effects.filter(|effect| matches!(effect, Effect::Send { .. })).count()
        };
        let (offset, length, patience) = (0, 4096, Patience::Host);
        let read = |volume| VolumeRequest::Read { volume: VolumeId(volume), offset, length, patience }.into();
        assert_eq!(ask(1, read(1)), 1);
        view.holds().begin(VolumeId(1));
        assert!(!view.is_idle_for(VolumeId(1)), "an operation is still under way");
        assert_eq!(ask(2, read(1)), 0, "it waits");
        assert_eq!(ask(3, read(2)), 1, "a request for another volume does not wait");
        assert_eq!(
            ask(4, ArrayRequest::AdoptVolume { volume: volume(2, Ordering::None) }.into()),
            0,
            "its volume is not on hold"
        );
        assert_eq!(ask(5, ArrayRequest::AdoptVolume { volume: volume(1, Ordering::None) }.into()), 1, "now it begins");
        assert!(!view.holds().contains(VolumeId(1)));
        assert!(view.is_idle_for(VolumeId(7)), "no operation is under way on another volume");
    }
}
