//! The interface between a host and its jobs: the view of the host that is lent to them, and the events that they return.

use crate::placements::Placement;
use braid_base::{DeviceId, Generation, MemberState, Membership, Time, TransactionId, VolumeId};
use braid_layout::VolumeDescription;
use braid_machine::{HostOutcome, HostRequest, OpId};
use braid_wire::RecoveryThrottle;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// The number of a step, unique in its host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StepId(pub u64);

pub type Volumes = BTreeMap<VolumeId, Rc<VolumeDescription>>;

/// A job's view of its host, for the duration of one call.
#[derive(Debug)]
pub struct Ctx<'a> {
    pub now: Time,
    pub host: Generation,
    /// The latest membership; none before the first one has arrived.
    pub membership: Option<&'a Membership>,
    /// Devices that are in, but unavailable: their lease has expired.
    pub unavailable: &'a BTreeSet<DeviceId>,
    pub volumes: &'a Volumes,
    /// The volumes on hold: their devices may be told of a change that this host does not know.
    pub held: &'a BTreeSet<VolumeId>,
    /// The recovery throttle that the monitor sent last.
    pub throttle: RecoveryThrottle,
    /// The interval of heartbeats between hosts and devices.
    pub heartbeat: Duration,
    /// True while a request of a user is under way at this host.
    pub has_users: bool,
    /// The host is fenced: the array does not serve it any more.
    pub fenced: bool,
    /// The host disconnects: its recoveries begin no further steps.
    pub leaving: bool,
    /// The events of this call, for the host to process in this order.
    pub events: Vec<Event>,
}

/// What jobs tell their host.
#[derive(Clone, Debug)]
pub enum Event {
    /// Execute a step, and hand its outcome to [`Healing::answered`](crate::Healing::answered).
    Ask { step: StepId, request: HostRequest },
    /// A request of a front end has ended.
    Ended { op: OpId, outcome: HostOutcome },
    /// These devices may forget that a write was interrupted.
    Forget { transaction: TransactionId, devices: Vec<DeviceId> },
    /// A parity resync has ended or was abandoned: operations that wait for it may continue.
    Resynced { transaction: TransactionId },
    /// A device has everything that it missed: report it to the monitor.
    Recovered,
}

impl Ctx<'_> {
    /// The membership, which must have arrived.
    pub(crate) fn members(&self) -> &Membership {
        self.membership.expect("a membership has arrived")
    }

    fn member_state(&self, device: DeviceId) -> Option<MemberState> {
        Some(self.membership?.member(device)?.member_state)
    }

    /// True if a device is in, so that it has everything that it should have.
    pub(crate) fn is_in(&self, device: DeviceId) -> bool {
        self.member_state(device) == Some(MemberState::In)
    }

    /// True if a device is in, and its lease is not known to have expired.
    pub(crate) fn is_available(&self, device: DeviceId) -> bool {
        self.is_in(device) && !self.unavailable.contains(&device)
    }

    /// All devices that are in.
    pub(crate) fn devices_in(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.members().devices(|member_state| member_state == MemberState::In)
    }

    /// A placement of a volume as a volume of its own; none if the volume is not known, or has no such placement.
    pub(crate) fn placement(&self, placement: Placement) -> Option<Rc<VolumeDescription>> {
        let volume = self.volumes.get(&placement.volume)?;
        if placement.target { volume.target().map(Rc::new) } else { Some(volume.clone()) }
    }

    /// The placements of redundant volumes that lie on a device, or will.
    pub(crate) fn placements_on(&self, device: DeviceId) -> Vec<(Placement, Rc<VolumeDescription>)> {
        let redundant = self.volumes.values().filter(|volume| volume.layout.redundancy_units() > 0);
        let placements =
            redundant.flat_map(|volume| [false, true].map(|target| Placement { volume: volume.id, target }));
        let known = placements.filter_map(|placement| Some((placement, self.placement(placement)?)));
        known.filter(|(_, volume)| volume.devices.contains(&device)).collect()
    }
}
