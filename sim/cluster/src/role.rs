//! The machines of an array as one type, so that one world can run them all.

use crate::candidacy::{Candidacy, MOST, node_of};
use crate::prelude::*;
use crate::surveyor::Surveyor;
use braid_files::FileClient;
use braid_leadership::Head;
use braid_locks::leased::Renewed;
use braid_locks::{LeasedLockServer, LockServer};
use braid_machine::one_type::{step_as, step_server};
use braid_machine::{
    ControlOutcome, ControlRequest, EffectsOf, FilesError, HostRequest, Input, InputOf, Machine, OneDisk,
};
use braid_metadata::{MetadataNode, MetadataServer};
use std::fmt::Debug;

/// A slot for a host. When the host there dies, a new generation takes the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostSlot(pub usize);

/// The machine of a node.
pub enum Role {
    Device(Box<Device>),
    Host(Box<HoldingHost<Host>>),
    /// A host that has a file system mounted.
    FileHost(Box<FileClient<HoldingHost<Host>>>),
    /// The process of a metadata server.
    Metadata(Box<MetadataNode<HoldingHost<Host>>>),
    LockServer(Box<LeasedLockServer>),
    Monitor(Box<Monitor>),
    /// One of several monitors.
    Candidate(Box<Candidacy>),
    /// Reads the components of a volume on the devices, for checks.
    Surveyor(Box<Surveyor>),
}

/// A request to a machine of an array.
#[derive(Clone, Debug)]
pub enum RoleRequest {
    /// To a host.
    Mount(MountRequest),
    /// To the monitor.
    Monitor(ControlRequest),
    /// What the registry, another candidate or another process tells a candidate.
    Registrar(Box<braid_registrar::Input>),
    /// To a lock server that moves: its lease.
    Renewed(Renewed),
}

impl From<MountRequest> for RoleRequest {
    fn from(request: MountRequest) -> RoleRequest {
        RoleRequest::Mount(request)
    }
}

impl From<HostRequest> for RoleRequest {
    fn from(request: HostRequest) -> RoleRequest {
        RoleRequest::Mount(request.into())
    }
}

impl From<ControlRequest> for RoleRequest {
    fn from(request: ControlRequest) -> RoleRequest {
        RoleRequest::Monitor(request)
    }
}

impl Role {
    /// The host that the machine is, or contains.
    pub fn host(&self) -> Option<&Host> {
        match self {
            Role::Host(host) => Some(host.host()),
            Role::FileHost(client) => Some(client.host().host()),
            Role::Metadata(node) => Some(node.host().host()),
            _ => None,
        }
    }

    /// The metadata server of a process that owns the file system.
    pub fn metadata_server(&self) -> Option<&MetadataServer> {
        match self {
            Role::Metadata(node) => node.server(),
            _ => None,
        }
    }

    /// Whether a process owns its file system.
    pub fn metadata_state(&self) -> Option<NodeState> {
        match self {
            Role::Metadata(node) => Some(node.state()),
            _ => None,
        }
    }

    /// How many blocks are reserved for the host of this process, and not used.
    pub fn idle_blocks(&self) -> u64 {
        match self {
            Role::FileHost(host) => host.allotted().map(|run| run.count).sum(),
            _ => 0,
        }
    }
}

/// The monitor, if it is up.
pub(crate) fn monitor_of(world: &World<Role>) -> Option<&Monitor> {
    match world.machine(NodeId::Monitor) {
        Some(Role::Monitor(monitor)) => Some(monitor),
        _ => leader(world).map(|(_, _, monitor)| monitor),
    }
}

/// The candidate that leads and serves; none if one that is up has seen a later term.
pub(crate) fn leader(world: &World<Role>) -> Option<(NodeId, &Head, &Monitor)> {
    let leads = |candidate| {
        let (head, monitor) = candidacy_of(world, node_of(candidate))?.registrar.leads()?;
        Some((node_of(candidate), head, monitor))
    };
    let seen = |candidate| Some(candidacy_of(world, node_of(candidate))?.registrar.seen()?.term);
    let latest = (0..MOST).filter_map(seen).max();
    (0..MOST).filter_map(leads).find(|(_, head, _)| Some(head.term) == latest)
}

fn candidacy_of(world: &World<Role>, node: NodeId) -> Option<&Candidacy> {
    match world.machine(node)? {
        Role::Candidate(candidacy) => Some(candidacy),
        _ => None,
    }
}

/// A device, if it is up.
pub(crate) fn device_of(world: &World<Role>, device: DeviceId) -> Option<&Device> {
    match world.machine(NodeId::Device(device))? {
        Role::Device(machine) => Some(machine),
        _ => None,
    }
}

/// A lock server, if it is up.
pub(crate) fn lock_server_of(world: &World<Role>, server: LockServerId) -> Option<&LockServer> {
    match world.machine(world.serving(NodeId::LockServer(server)))? {
        Role::LockServer(machine) => Some(machine.server()),
        _ => None,
    }
}

/// True if a device is up, and finds that it can serve.
pub(crate) fn can_serve(world: &World<Role>, device: DeviceId) -> bool {
    device_of(world, device).is_some_and(|machine| *machine.service() == Service::Serving)
}

/// True if one of these devices would execute requests of this host.
pub(crate) fn is_served(world: &World<Role>, devices: &[DeviceId], host: Generation) -> bool {
    devices.iter().filter(|device| can_serve(world, **device)).any(|device| {
        let now = world.local(NodeId::Device(*device)).expect("the node is in the world").time;
        device_of(world, *device).is_some_and(|machine| machine.has_lease(now) && !machine.keeps_out(host))
    })
}

/// True if the monitor has fenced a host, or may have: while the monitor is down it is not known.
pub(crate) fn is_fenced_at_monitor(world: &World<Role>, node: NodeId) -> bool {
    let NodeId::Host(host) = node else { return false };
    monitor_of(world).is_none_or(|monitor| monitor.membership().fence.refuses(host))
}

/// The metadata server of a process, if it owns the file system.
pub(crate) fn metadata_server_of(world: &World<Role>, node: NodeId) -> Option<&MetadataServer> {
    world.machine(node).and_then(Role::metadata_server)
}

impl Machine for Role {
    type Request = RoleRequest;
    type Outcome = HostOutcome;
    type Disk = OneDisk;

    fn step(&mut self, now: Now, input: InputOf<Self>, out: &mut EffectsOf<Self>) {
        match self {
            Role::Device(device) => step_server(&mut **device, now, input, out),
            Role::Surveyor(surveyor) => step_server(&mut **surveyor, now, input, out),
            Role::Host(host) => step_host(host, now, input, out),
            Role::Metadata(node) => step_as(&mut **node, now, input, out, RoleRequest::into_host, |outcome| outcome),
            Role::FileHost(client) => {
                step_as(&mut **client, now, input, out, RoleRequest::into_host, |outcome| outcome);
            }
            Role::Monitor(monitor) => {
                let done = |outcome: ControlOutcome| outcome.map(|()| HostSuccess::Done);
                step_as(&mut **monitor, now, input, out, RoleRequest::into_monitor, done);
            }
            Role::LockServer(server) => {
                let done = |outcome: ControlOutcome| outcome.map(|()| HostSuccess::Done);
                step_as(&mut **server, now, input, out, RoleRequest::into_renewed, done);
            }
            Role::Candidate(candidacy) => {
                let done = |outcome: ControlOutcome| outcome.map(|()| HostSuccess::Done);
                step_as(&mut **candidacy, now, input, out, RoleRequest::into_registrar, done);
            }
        }
    }

    braid_machine::held_machine!(Role { Device, Host, FileHost, Metadata, LockServer, Monitor, Candidate, Surveyor });
}

/// The machines of the protocols can be cloned and shown, as a replay or a fork of a run needs.
const _: () = {
    const fn can_be_cloned_and_shown<M: Machine + Clone + Debug>() {}
    can_be_cloned_and_shown::<Device>();
    can_be_cloned_and_shown::<HoldingHost<Host>>();
    can_be_cloned_and_shown::<FileClient<HoldingHost<Host>>>();
    can_be_cloned_and_shown::<MetadataNode<HoldingHost<Host>>>();
    can_be_cloned_and_shown::<LeasedLockServer>();
    can_be_cloned_and_shown::<Monitor>();
    can_be_cloned_and_shown::<Candidacy>();
};

/// Steps a host that has no file system mounted.
fn step_host(host: &mut HoldingHost<Host>, now: Now, input: InputOf<Role>, out: &mut EffectsOf<Role>) {
    if let Input::Request { op, request: RoleRequest::Mount(MountRequest::Files { .. } | MountRequest::Server(_)) } =
        input
    {
        return out.reply(op, Err(HostError::Files(FilesError::NotMounted)));
    }
    let request = |request: RoleRequest| match request.into_host() {
        MountRequest::Host(request) => request,
        other => unreachable!("just seen: {other:?}"),
    };
    step_as(host, now, input, out, request, |outcome| outcome);
}

impl RoleRequest {
    fn into_host(self) -> MountRequest {
        match self {
            RoleRequest::Mount(request) => request,
            request => panic!("a host is not asked for {request:?}"),
        }
    }

    fn into_registrar(self) -> braid_registrar::Input {
        match self {
            RoleRequest::Registrar(input) => *input,
            request => panic!("a candidate is not asked for {request:?}"),
        }
    }

    fn into_renewed(self) -> Renewed {
        match self {
            RoleRequest::Renewed(renewed) => renewed,
            request => panic!("a lock server is not asked for {request:?}"),
        }
    }

    fn into_monitor(self) -> ControlRequest {
        match self {
            RoleRequest::Monitor(request) => request,
            request => panic!("a monitor is not asked for {request:?}"),
        }
    }
}
