//! What the control plane is lent for a step: what it sees of the array, and the actions that follow.

use super::administrator_state::Name;
use crate::file_records::FileRecords;
use crate::leader_clients::Administrator;
use crate::prelude::*;
use crate::role::{self, Role, monitor_of};
use braid_control_protocol::{Answer, Command, HostEvent, Tag, VolumeRecord};
use braid_description::ArrayDescription;
use braid_host_leases::{Answer as FencerAnswer, Heartbeat, LeaseTime, Question as FencerQuestion};
use braid_machine::HostRequest;

/// What a lease says of the metadata server in its process, if it owns a shard.
pub(super) type Report = Option<braid_control_protocol::ServerLease>;

/// Something that happens later.
pub(crate) enum Event {
    /// Something happens to the control part of a host.
    Host(Generation, HostEvent),
    /// A renewal arrives at the store.
    Renewal { host: Generation, heartbeat: Heartbeat<Report> },
    /// A host that looked at its lease before writes its heartbeat.
    LateHeartbeat { host: Generation, heartbeat: Heartbeat<Report> },
    /// A fencer begins, if there is none.
    LookForFencer,
    /// A fencer begins a round.
    FencerTick(Generation),
    /// A question of a fencer arrives.
    FencerQuestion { by: Generation, number: u64, question: FencerQuestion },
    /// An answer arrives at a fencer.
    FencerAnswer { to: Generation, number: u64, answer: FencerAnswer },
    /// A command arrives at the store. Its answer goes back, unless it is lost.
    Command { by: Name, subject: Subject, command: Command, answered: Option<Tag> },
    /// An answer arrives.
    Answer { to: Name, tag: Tag, answer: Answer },
    /// The deadline of an administrator has passed.
    Wake(Name),
}

/// What a request to a host is for.
pub(crate) enum Purpose {
    Step(Generation),
    Question(Name, Tag),
    /// Are these devices in?
    Members(Name, Tag, BTreeSet<DeviceId>),
    /// The fence of a fencer, in its question of this number.
    Fencing(Generation, u64),
}

/// What follows from a step of the control plane, in this order.
pub(crate) enum Action {
    /// After this time something happens to it.
    Later(Duration, Event),
    /// A host is asked for something. Without a purpose, the answer is lost.
    Ask(Generation, HostRequest, Option<Purpose>),
    /// A host dies.
    End(Generation),
    Suspend(Generation, Duration),
    /// For so long something may delay operations.
    Disturb(Duration),
    /// The leader of several monitors is asked to replace the description, for an administrator.
    Replace(Box<ArrayDescription>, Administrator),
    /// The record of a volume was replaced, or removed.
    Follow(VolumeId, Option<VolumeRecord>),
}

/// The array around the control plane, and what the control plane does there.
pub(crate) struct Context<'a> {
    pub world: &'a World<Role>,
    /// The nodes in the slots of hosts.
    pub hosts: &'a [NodeId],
    pub devices: Vec<DeviceId>,
    pub disks: &'a BTreeMap<DeviceId, DiskId>,
    pub lock_servers: Vec<LockServerId>,
    pub files: &'a FileRecords,
    /// The description is in the registry of several monitors, whose leader replaces it.
    pub asks_leader: bool,
    /// A host that is silent for longer is presumed dead.
    pub lease: Duration,
    /// How long a host may be silent before it is fenced.
    pub silence_allowed: Duration,
    pub actions: Vec<Action>,
}

impl Context<'_> {
    pub fn now(&self) -> Time {
        self.world.now()
    }

    /// The time of leases: all processes of a real array read the same clock.
    pub fn lease_time(&self) -> LeaseTime {
        lease_time(self.now())
    }

    /// True if a host is in a slot, and up.
    pub fn is_up(&self, host: Generation) -> bool {
        let node = NodeId::Host(host);
        self.hosts.contains(&node) && self.world.is_up(node)
    }

    pub fn is_stalled(&self, host: Generation) -> bool {
        self.world.is_stalled(NodeId::Host(host))
    }

    pub fn host(&self, host: Generation) -> Option<&Host> {
        self.world.machine(NodeId::Host(host)).and_then(Role::host)
    }

    /// The membership that the monitor last made durable; `None` while it is down.
    pub fn membership(&self) -> Option<&Membership> {
        monitor_of(self.world).map(|monitor| monitor.membership())
    }

    /// True if some device would execute requests of this host.
    pub fn is_served(&self, host: Generation) -> bool {
        role::is_served(self.world, &self.devices, host)
    }

    /// The pause between two heartbeats of a host, or of a fencer.
    pub fn heartbeat(&self) -> Duration {
        self.lease / 8
    }

    pub fn later(&mut self, span: Duration, event: Event) {
        self.actions.push(Action::Later(span, event));
    }

    pub fn ask(&mut self, host: Generation, request: impl Into<HostRequest>, purpose: Option<Purpose>) {
        self.actions.push(Action::Ask(host, request.into(), purpose));
    }

    pub fn end(&mut self, host: Generation) {
        self.actions.push(Action::End(host));
    }

    pub fn suspend(&mut self, host: Generation, span: Duration) {
        self.actions.push(Action::Suspend(host, span));
    }
}

pub(crate) fn lease_time(now: Time) -> LeaseTime {
    LeaseTime { boot: String::new(), elapsed: now.since(Time(0)) }
}
