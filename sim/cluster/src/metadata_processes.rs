//! The processes of metadata servers in swarm runs. They die and are followed by others, which take over; or another one takes over while
//! the last one is alive, and some hosts still speak to that one. All other faults happen to them as to other hosts.

use crate::availability::Cause;
use crate::cluster::{Failed, HostSlot, PendingOperation, failed};
use crate::file_system_checks::FileSystemChecks;
use crate::swarm::Run;
use braid_base::{NodeId, Rng, Time};
use braid_check::FileAction;
use braid_machine::{HostError, HostOutcome};
use braid_metadata::{MetadataService, NodeState, ProcessInput};
use std::collections::BTreeMap;
use std::time::Duration;

/// A process that has ended is followed by another one after this time, if there is none.
const RESTART_AFTER: Duration = Duration::from_millis(50);
/// A process that dies between two faults takes at most this many inputs more.
const INPUTS_MAX: u64 = 60;
/// The longest that hosts go on to speak to a process that was taken over from.
const DETOUR_MAX: u64 = 6_000;
/// How long the process that died is missing, in milliseconds.
const DOWN: [u64; 4] = [0, 5, 200, 3_000];

/// The state of these faults.
#[derive(Debug)]
pub(crate) struct MetadataFaults {
    rng: Rng,
    /// Another process will be started.
    is_restart_planned: bool,
    /// The processes that hosts have heard of, by shard; the last one at the end.
    named: BTreeMap<usize, Vec<NodeId>>,
    /// When hosts last heard of another process.
    changed: Time,
    /// The file system is not used any more.
    pub is_over: bool,
    /// Checks of the file system, in runs that have them.
    pub checks: FileSystemChecks,
}

impl MetadataFaults {
    pub fn new(files: &Rng) -> MetadataFaults {
        let rng = files.named("servers");
        let checks = FileSystemChecks::new(files);
        MetadataFaults {
            rng,
            is_restart_planned: false,
            named: BTreeMap::new(),
            changed: Time(0),
            is_over: false,
            checks,
        }
    }
}

impl Run {
    /// Schedules faults of metadata servers, if the run has a file system.
    pub(crate) fn plan_metadata_fault(&mut self) {
        if let Some(files) = self.cluster.options.files() {
            let pause = self.metadata.rng.below(2 * files.every.as_nanos() as u64) + 1;
            self.plan(Duration::from_nanos(pause), Run::disturb_metadata_and_plan_next);
        }
    }

    pub(crate) fn disturb_metadata_and_plan_next(&mut self) {
        let shards = self.cluster.files.servers.len() as u64;
        let shard = if shards > 1 { self.metadata.rng.below(shards) as usize } else { 0 };
        let serves = self.up_servers_of(shard).first().copied();
        if shards > 1 && self.metadata.rng.chance(1, 8) {
            // All servers die together, with whatever they have begun.
            let up = self.up_servers();
            up.into_iter().for_each(|slot| self.let_server_die_soon(slot));
        }
        if self.metadata.rng.chance(1, 4) {
            self.cut_off_host();
        }
        match (serves, self.metadata.rng.below(10)) {
            (None, _) => {}
            (Some(slot), 0..3) => self.end_server(slot),
            (Some(slot), 3..6) => self.let_server_die_soon(slot),
            (Some(_), 6..8) => drop(self.take_over_from_the_living(shard)),
            (Some(slot), 8) => {
                self.end_server(slot);
                self.count_fault("metadata servers start together");
                self.cluster.files.servers[shard].into_iter().for_each(|slot| self.replace_if_down(slot));
            }
            (Some(_), _) => {
                if let Some(slot) = self.take_over_from_the_living(shard) {
                    self.let_server_die_soon(slot);
                }
            }
        }
        self.plan_metadata_fault();
    }

    /// Everybody speaks to the present process.
    pub(crate) fn end_detours(&mut self) {
        if let Some(system) = &self.cluster.files.system {
            (0..system.shards.len()).for_each(|shard| self.cluster.world.end_detours(system.service(shard)));
        }
    }

    fn end_server(&mut self, slot: HostSlot) {
        self.count_fault("metadata server crash");
        let (node, now) = (self.cluster.node(slot), self.cluster.world.now());
        let down = Duration::from_millis(DOWN[self.metadata.rng.below(4) as usize]);
        self.availability.begin(now, "metadata server crash", Cause::Host, down);
        self.crash_plans.remove(&node);
        self.crash(node);
        self.plan(down, move |run| run.bring_back(node, false));
    }

    /// Power fails at a process instead of one of its next inputs, such as the news that a write of its journal is durable.
    fn let_server_die_soon(&mut self, slot: HostSlot) {
        let node = self.cluster.node(slot);
        let down = Duration::from_millis(DOWN[self.metadata.rng.below(4) as usize]);
        let inputs = self.metadata.rng.between(1, INPUTS_MAX);
        self.cluster.world.crash_before(node, inputs);
        self.crash_plans.insert(node, (down, false));
    }

    /// Another process takes over; some hosts still take the last one for the owner.
    fn take_over_from_the_living(&mut self, shard: usize) -> Option<HostSlot> {
        let up = self.up_servers_of(shard);
        let free = self.cluster.files.servers[shard].into_iter().find(|slot| !up.contains(slot))?;
        if !self.may_serve() {
            // A process that starts during a check waits for its end.
            return None;
        }
        self.count_fault("metadata server taken over from");
        let now = self.cluster.world.now();
        let lease = self.cluster.options.settings.host_lease;
        let span = lease * self.metadata.rng.between(1, 4) as u32;
        self.availability.begin(now, "metadata server taken over from", Cause::Other, span);
        // So that it does not hear of the fence, while hosts still speak to it.
        if let Some(last) = up.first().filter(|_| self.metadata.rng.chance(1, 2)) {
            let last = self.cluster.node(*last);
            let others = self.cluster.devices().into_iter().map(NodeId::Device).chain([NodeId::Monitor]);
            let pairs: Vec<_> = others.flat_map(|other| [(last, other), (other, last)]).collect();
            pairs.iter().for_each(|(from, to)| self.cluster.world.network.cut(*from, *to));
            self.plan(span, move |run| run.join(&pairs));
            self.count_fault("metadata server cut off");
        }
        self.replace_if_down(free);
        Some(free)
    }

    /// A host that has the file system mounted reaches nobody for some leases, and may lose its locks without hearing of it.
    fn cut_off_host(&mut self) {
        let hosts: Vec<HostSlot> = self.cluster.files.hosts.iter().copied().collect();
        let slot = hosts[self.metadata.rng.below(hosts.len() as u64) as usize];
        let (node, now) = (self.cluster.node(slot), self.cluster.world.now());
        let span = self.cluster.options.settings.host_lease * self.metadata.rng.between(1, 6) as u32;
        self.count_fault("host of files cut off");
        self.availability.begin(now, "host of files cut off", Cause::Other, span);
        let others = self.cluster.world.up().into_iter().filter(|other| *other != node);
        let pairs: Vec<_> = others.flat_map(|other| [(node, other), (other, node)]).collect();
        pairs.iter().for_each(|(from, to)| self.cluster.world.network.cut(*from, *to));
        self.plan(span, move |run| run.join(&pairs));
    }

    /// The slots with a process that is up.
    pub(crate) fn up_servers(&self) -> Vec<HostSlot> {
        (0..self.cluster.files.servers.len()).flat_map(|shard| self.up_servers_of(shard)).collect()
    }

    /// Those of one shard.
    fn up_servers_of(&self, shard: usize) -> Vec<HostSlot> {
        let servers = self.cluster.files.servers.get(shard).into_iter().flatten().copied();
        servers.filter(|slot| self.cluster.world.machine(self.cluster.node(*slot)).is_some()).collect()
    }

    /// The slots of shards that have no process.
    fn slots_of_missing(&self) -> Vec<HostSlot> {
        let shards = 0..self.cluster.files.servers.len();
        let missing = shards.filter(|shard| self.up_servers_of(*shard).is_empty());
        missing.map(|shard| self.cluster.files.servers[shard][0]).collect()
    }

    /// True if a shard has no owner yet, or may have another one soon.
    pub(crate) fn is_one_taking_over(&self) -> bool {
        let takes_over = |slot: HostSlot| self.cluster.metadata_state(slot) == Some(NodeState::TakesOver);
        self.up_servers().into_iter().any(takes_over) || !self.slots_of_missing().is_empty()
    }

    /// Ends processes that do not own the file system any more, and has another one started if there is none.
    pub(crate) fn look_after_metadata(&mut self) -> Result<(), Failed> {
        for slot in self.up_servers() {
            let node = self.cluster.node(slot);
            if let Some(MetadataService::Unusable(error)) =
                self.cluster.metadata_server(slot).map(|server| server.service().clone())
            {
                return failed("metadata-unusable", format!("{node}: {error}"));
            }
            match self.cluster.metadata_state(slot) {
                Some(NodeState::Ended(HostError::Fenced | HostError::Ownership(_))) => {
                    self.count_fault("metadata server ends");
                    self.crash_plans.remove(&node);
                    self.crash(node);
                }
                // It releases the file system.
                Some(NodeState::Ended(HostError::Disconnecting)) => self.step_process(slot, ProcessInput::Wake),
                Some(NodeState::Ended(error)) => {
                    return failed("metadata-ended", format!("{node}: {error}"));
                }
                _ => {}
            }
        }
        (0..self.cluster.files.servers.len()).for_each(|shard| self.name_owner(shard));
        let missing = self.slots_of_missing();
        if missing.is_empty() || self.metadata.is_over {
            return Ok(());
        }
        if !self.storming {
            missing.into_iter().for_each(|slot| self.replace_if_down(slot));
        } else if !self.metadata.is_restart_planned {
            self.metadata.is_restart_planned = true;
            self.plan(RESTART_AFTER, Run::start_metadata_if_none);
        }
        Ok(())
    }

    /// Starts a process for each shard that has none.
    pub(crate) fn start_metadata_if_none(&mut self) {
        self.metadata.is_restart_planned = false;
        self.slots_of_missing().into_iter().for_each(|slot| self.replace_if_down(slot));
    }

    /// Hosts hear of a process when it owns the file system; some of them hear of it late, if the one before is alive.
    fn name_owner(&mut self, shard: usize) {
        let Some(system) = &self.cluster.files.system else { return };
        let service = system.service(shard);
        let named = self.metadata.named.get(&shard).cloned().unwrap_or_default();
        let owns = |slot: &HostSlot| self.cluster.metadata_state(*slot) == Some(NodeState::Owns);
        let owners: Vec<NodeId> =
            self.up_servers_of(shard).into_iter().filter(owns).map(|slot| self.cluster.node(slot)).collect();
        let last = named.last().copied();
        let is_up = |node: NodeId| self.cluster.world.machine(node).is_some();
        let fresh = owners.iter().copied().find(|node| !named.contains(node));
        // The one that was named last may have died before another one that still owns the file system.
        let other = owners.first().copied().filter(|_| !last.is_some_and(is_up));
        let Some(owner) = fresh.or(other) else { return };
        let alive = last.filter(|last| is_up(*last) && self.storming);
        let others = named.into_iter().filter(|node| *node != owner);
        let named = others.chain([owner]).collect();
        self.metadata.named.insert(shard, named);
        self.metadata.changed = self.cluster.world.now();
        self.cluster.world.set_service(service, owner);
        if let Some(last) = alive {
            for slot in &self.cluster.files.hosts {
                if self.metadata.rng.chance(1, 2) {
                    self.cluster.world.detour(self.cluster.hosts[slot.0], service, last);
                }
            }
            let span = Duration::from_millis(self.metadata.rng.between(1, DETOUR_MAX));
            self.plan(span, Run::end_detours);
        }
    }

    /// Judges the answer to an operation on files. Hosts repeat everything until it succeeds: the only error that a fault causes is that the host
    /// is fenced. Other answers take long only while a fault has consequences.
    pub(crate) fn judge_files(&self, asked: &PendingOperation, outcome: &HostOutcome) -> Result<(), Failed> {
        let settings = &self.cluster.options.settings;
        let lease = settings.host_lease;
        let now = self.cluster.world.now();
        // A new owner serves after a lease, and hears from hosts again; a host that is silent is fenced after some leases.
        let aftermath = 4 * lease + 2 * settings.resend_max + Duration::from_secs(2);
        let quiet = self.availability.nothing_since(now).max(self.metadata.changed).after(aftermath);
        let failed = |details| failed("files-availability", details);
        if outcome == &Err(HostError::Fenced) && asked.since >= quiet {
            return failed(format!("{asked:?}: fenced, and nothing excuses that since {quiet:?}"));
        }
        let waits = self
            .cluster
            .file_operation_of(&asked.record)
            .is_some_and(|operation| matches!(operation.action, FileAction::Lock { waits: true, .. }));
        let most = 11 * lease + 2 * settings.resend_max + Duration::from_secs(5);
        let took = now.since(asked.since.max(quiet));
        if quiet < now && took > most && !waits {
            return failed(format!("{asked:?} took {took:?} since nothing excuses that ({quiet:?})"));
        }
        Ok(())
    }
}
