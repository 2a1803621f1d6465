//! The processes of metadata servers of the file systems that the store has: a supervisor starts one for each shard, and their course is that
//! of real processes (`braid_metadata::MetadataLifecycle`).

use super::store::Store;
use crate::cluster::{Cluster, Failed, failed};
use crate::file_options::ShardOptions;
use crate::file_records::{FileSystem, FileSystemShard};
use crate::hosts;
use crate::prelude::*;
use crate::role::{Role, metadata_server_of};
use crate::swarm::Run;
use braid_control_protocol::Announcement;
use braid_description::{FileSystemEntry, FileSystemState};
use braid_machine::ServerRequest;
use braid_metadata::{
    EntryState, LifecycleInput, LifecycleStep, MetadataLifecycle, MetadataService, Observation, Purpose,
};

/// A process that has ended is followed by another one within this time, in milliseconds.
const DOWN_MAX: u64 = 1_000;
/// One that dies soon after its start takes at most so many inputs.
const INPUTS_MAX: u64 = 40;
/// A process that was suspended begins with what it has read this long before, in milliseconds.
const LATE_MAX: u64 = 2_500;

/// A shard of a file system, and its process.
#[derive(Clone, Debug)]
struct Server {
    /// The file system as the process has read it.
    system: FileSystem,
    shard: usize,
    node: Option<NodeId>,
    process: MetadataLifecycle,
    /// When the process begins, or looks whether it may.
    at: Time,
    /// It will begin, whatever the store says now.
    begins: bool,
    release: Option<OpId>,
    quiesces: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Servers {
    servers: Vec<Server>,
    rng: Rng,
}

impl Server {
    fn id(&self) -> FileSystemId {
        self.system.shards[self.shard].id
    }
}

impl Servers {
    pub fn new(rng: Rng) -> Servers {
        Servers { servers: Vec::new(), rng }
    }

    /// All processes look at the store. Where a file system is new, some are started.
    pub fn look(&mut self, run: &mut Run, options: &dyn Fn(&FileSystemEntry) -> ShardOptions) -> Result<(), Failed> {
        let entries = store_of(&run.cluster).description().file_systems.clone();
        for entry in entries.iter().filter(|entry| entry.state == FileSystemState::Ready) {
            let Some(system) = system_of(store_of(&run.cluster), entry, options(entry)) else { continue };
            for shard in 0..system.shards.len() {
                if !self.servers.iter().any(|server| server.id() == system.shards[shard].id) {
                    let (system, process) = (system.clone(), MetadataLifecycle::default());
                    let at = run.cluster.world.now();
                    let (node, begins, release, quiesces) = (None, false, None, false);
                    self.servers.push(Server { system, shard, node, process, at, begins, release, quiesces });
                }
            }
        }
        let mut servers = std::mem::take(&mut self.servers);
        let mut looked = Ok(());
        servers.retain_mut(|server| {
            let is_ready =
                entries.iter().any(|entry| entry.id == server.system.id.0 && entry.state == FileSystemState::Ready);
            looked = looked.clone().and_then(|()| self.look_at(run, server, is_ready));
            is_ready || server.node.is_some() || server.begins
        });
        self.servers = servers;
        looked
    }

    fn look_at(&mut self, run: &mut Run, server: &mut Server, is_ready: bool) -> Result<(), Failed> {
        let now = run.cluster.world.now();
        if server.node.is_some_and(|node| !run.cluster.world.is_up(node)) {
            self.end(run, server);
        }
        let (id, file_system) = (server.id(), server.system.id);
        let is_checked = is_announced(&run.cluster, file_system, Announcement::Check);
        let entry = if is_ready { EntryState::Ready } else { EntryState::Gone };
        let seen = LifecycleInput::Observed(Observation { entry, is_checked });
        let Some(node) = server.node else {
            if now < server.at || !(server.begins || is_ready) {
                return Ok(());
            }
            if !server.begins && server.process.step(now, None, seen) == LifecycleStep::Begin {
                server.begins = true;
                let is_late = run.storming && self.rng.chance(1, 2);
                server.at = now.after(Duration::from_millis(if is_late { self.rng.below(LATE_MAX) } else { 0 }));
            }
            if server.begins && server.at <= now {
                run.count_fault("metadata server started");
                let role = server.system.process_role(&run.cluster, server.shard, Purpose::Serves);
                let node = start_process(run, role);
                run.cluster.world.speak_for(NodeId::MetadataServer(id), node);
                if run.storming && self.rng.chance(1, 2) {
                    run.cluster.world.crash_before(node, self.rng.between(1, INPUTS_MAX));
                    run.crash_plans.insert(node, (Duration::ZERO, false));
                }
                (server.node, server.begins) = (Some(node), false);
            }
            return Ok(());
        };
        if run.cluster.world.is_stalled(node) {
            return Ok(());
        }
        let Some(Role::Metadata(machine)) = run.cluster.world.machine(node) else { unreachable!("it is up") };
        let (state, owns_since) = (machine.state(), machine.owns_since());
        match (&state, metadata_server_of(&run.cluster.world, node).map(|server| server.service().clone())) {
            (NodeState::Owns, Some(MetadataService::Unusable(error))) if is_ready => {
                return failed("metadata-unusable", format!("{node}: {error}"));
            }
            (NodeState::Ended(HostError::Disconnecting), _) => {}
            (NodeState::Ended(error), _) => {
                let is_usual = matches!(error, HostError::Fenced | HostError::Ownership(_));
                if is_ready && !is_usual {
                    return failed("metadata-ended", format!("{node}: {error}"));
                }
                run.count_fault("metadata server of a file system ends");
                self.end(run, server);
                return Ok(());
            }
            (NodeState::Owns, _) => {
                run.cluster.world.set_service(NodeId::MetadataServer(id), node);
                let quiesces = is_announced(&run.cluster, file_system, Announcement::Quiesce);
                if quiesces != server.quiesces {
                    server.quiesces = quiesces;
                    let (evict_after, protocol) =
                        (run.cluster.options.settings.lock_eviction, server.system.options.protocol);
                    let follow = MountRequest::Server(ServerRequest::Follow { evict_after, protocol, quiesces });
                    let slot = run.cluster.slot(node).expect("it has a slot");
                    run.cluster.ask(slot, follow);
                }
            }
            (NodeState::TakesOver, _) => {}
        }
        for input in [seen, LifecycleInput::Wake] {
            let step = server.process.step(now, owns_since, input);
            self.follow(run, server, step);
        }
        Ok(())
    }

    fn follow(&mut self, run: &mut Run, server: &mut Server, step: LifecycleStep) {
        let Some(node) = server.node else { return };
        match step {
            LifecycleStep::Nothing => {}
            LifecycleStep::Begin => unreachable!("a process that is up has begun"),
            LifecycleStep::Release { since } => {
                let slot = run.cluster.slot(node).expect("it has a slot");
                server.release = Some(run.cluster.own(slot, server.id(), OwnershipRequest::Release { since }));
            }
            LifecycleStep::End(_) => {
                end_process(run, node);
                server.node = None;
                (server.quiesces, server.release) = (false, None);
            }
        }
    }

    /// The process has died, or ends because of an error: another one follows.
    fn end(&mut self, run: &mut Run, server: &mut Server) {
        if let Some(node) = server.node.take().filter(|node| run.cluster.world.is_up(*node)) {
            run.crash_plans.remove(&node);
            run.crash(node);
        }
        server.process = MetadataLifecycle::default();
        (server.quiesces, server.release) = (false, None);
        let down = if run.storming { self.rng.below(DOWN_MAX) } else { 0 };
        server.at = run.cluster.world.now().after(Duration::from_millis(down));
    }

    /// A request was answered; true if it was the release of a shard.
    pub fn on_reply(&mut self, run: &mut Run, op: OpId) -> bool {
        let Some(place) = self.servers.iter().position(|server| server.release == Some(op)) else { return false };
        let mut server = self.servers.remove(place);
        server.release = None;
        let step = server.process.step(run.cluster.world.now(), None, LifecycleInput::Released);
        self.follow(run, &mut server, step);
        self.servers.push(server);
        true
    }

    /// Ends all processes, as with the power.
    pub fn crash(&mut self, run: &mut Run) {
        self.servers.drain(..).filter_map(|server| server.node).for_each(|node| run.crash(node));
    }
}

pub(super) fn store_of(cluster: &Cluster) -> &Store {
    &cluster.control.as_ref().expect("the run has a control plane").store
}

/// A file system as the store has it; none if one of its volumes is missing.
pub(super) fn system_of(store: &Store, entry: &FileSystemEntry, options: ShardOptions) -> Option<FileSystem> {
    let volume = |name: String| store.volume_named(&name);
    let shard = |(number, id)| Some(FileSystemShard { id, metadata: volume(entry.metadata_volume(number))? });
    let shards = entry.servers().into_iter().enumerate().map(shard).collect::<Option<Vec<_>>>()?;
    Some(FileSystem { id: entry.id(), shards, options, data: volume(entry.data_volume())? })
}

/// True if a living process announces this.
fn is_announced(cluster: &Cluster, file_system: FileSystemId, announcement: Announcement) -> bool {
    let control = cluster.control.as_ref().expect("the run has a control plane");
    control.announced(&cluster.context(), file_system).contains(&announcement)
}

/// Starts a process of its own with a host, in a slot that no other one takes when it ends.
pub(super) fn start_process(run: &mut Run, role: impl FnOnce(HoldingHost<Host>, Generation) -> Role) -> NodeId {
    let cluster = &mut run.cluster;
    let clock = hosts::clock(cluster);
    let is_free = |slot| !cluster.world.is_up(cluster.node(slot));
    let free = cluster.files.processes.iter().copied().find(|slot| is_free(*slot));
    match free {
        Some(slot) => {
            let node = hosts::new_host_in(cluster, clock, role);
            cluster.hosts[slot.0] = node;
            node
        }
        None => {
            let slot = hosts::add_host_in(cluster, role);
            cluster.files.processes.insert(slot);
            cluster.node(slot)
        }
    }
}

/// A process ends in order, if it is up.
pub(super) fn end_process(run: &mut Run, node: NodeId) {
    let NodeId::Host(host) = node else { unreachable!("processes are hosts") };
    if run.cluster.world.is_up(node) {
        run.cluster.with_control(|control, cx| control.release_lease(cx, host));
        run.crash_plans.remove(&node);
        run.crash(node);
    }
}
