//! What the host lends to its jobs, and what they tell it.

use crate::sides::Side;
use braid_base::{DeviceId, Generation, MemberState, Membership, Time, TransactionId, VolumeId};
use braid_layout::VolumeDescription;
use braid_machine::{HostOutcome, HostRequest, OpId};
use braid_wire::RecoveryThrottle;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// Names a step among those of this host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StepId(pub u64);

/// All volumes that a host knows.
pub type Volumes = BTreeMap<VolumeId, Rc<VolumeDescription>>;

/// What jobs see of their host.
#[derive(Debug)]
pub struct Ctx<'a> {
    /// When it is.
    pub now: Time,
    /// This host.
    pub host: Generation,
    /// Who is in; none before the first membership.
    pub membership: Option<&'a Membership>,
    /// Devices that are in, but unavailable: their lease has expired.
    pub unavailable: &'a BTreeSet<DeviceId>,
    /// The volumes that this host knows.
    pub volumes: &'a Volumes,
    /// How fast jobs may go, as the monitor last said.
    pub throttle: RecoveryThrottle,
    /// How often hosts and devices tell each other that they are there.
    pub heartbeat: Duration,
    /// A request of a user is under way here.
    pub has_users: bool,
    /// The array serves this host no more.
    pub fenced: bool,
    /// The host disconnects: it begins nothing for others any more.
    pub leaving: bool,
    /// What the jobs tell the host, to be taken up in this order.
    pub events: Vec<Event>,
}

/// What jobs tell their host.
#[derive(Clone, Debug)]
pub enum Event {
    /// Execute a step, and hand its outcome to [`Healing::answered`](crate::Healing::answered).
    Ask {
        /// Which step.
        step: StepId,
        /// What to do.
        request: HostRequest,
    },
    /// A request of a front end has ended.
    Ended {
        /// Which.
        op: OpId,
        /// How.
        outcome: HostOutcome,
    },
    /// These devices need not remember any more that a write was interrupted.
    Forget {
        /// Whose write.
        transaction: TransactionId,
        /// Which devices.
        devices: Vec<DeviceId>,
    },
    /// A parity resync is over, or was given up: what waits for it may go on.
    Resynced {
        /// After which transaction.
        transaction: TransactionId,
    },
    /// A device has everything that it missed: the monitor is to hear of it.
    Recovered,
}

impl Ctx<'_> {
    /// The membership, where there must be one.
    pub(crate) fn members(&self) -> &Membership {
        self.membership.expect("one has come")
    }

    fn member_state(&self, device: DeviceId) -> Option<MemberState> {
        Some(self.membership?.member(device)?.member_state)
    }

    /// True if a device is in, so that it has all that it should have.
    pub(crate) fn is_in(&self, device: DeviceId) -> bool {
        self.member_state(device) == Some(MemberState::In)
    }

    /// True if a device is out, or not of this array.
    pub(crate) fn is_out(&self, device: DeviceId) -> bool {
        self.member_state(device).is_none_or(|member_state| member_state == MemberState::Out)
    }

    /// True if a device is in, and is not known to have no lease.
    pub(crate) fn is_available(&self, device: DeviceId) -> bool {
        self.is_in(device) && !self.unavailable.contains(&device)
    }

    /// All devices that are in.
    pub(crate) fn devices_in(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.members().devices(|member_state| member_state == MemberState::In)
    }

    /// A side of a volume, as a volume of its own; none if the volume is not known, or does not move.
    pub(crate) fn side(&self, side: Side) -> Option<Rc<VolumeDescription>> {
        let volume = self.volumes.get(&side.volume)?;
        if side.target { volume.target().map(Rc::new) } else { Some(volume.clone()) }
    }

    /// The sides of redundant volumes that lie on a device, or are to.
    pub(crate) fn sides_on(&self, device: DeviceId) -> Vec<(Side, Rc<VolumeDescription>)> {
        let redundant = self.volumes.values().filter(|volume| volume.layout.redundancy_units() > 0);
        let sides = redundant.flat_map(|volume| [false, true].map(|target| Side { volume: volume.id, target }));
        let known = sides.filter_map(|side| Some((side, self.side(side)?)));
        known.filter(|(_, volume)| volume.devices.contains(&device)).collect()
    }
}
