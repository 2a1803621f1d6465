//! The processes of metadata servers in swarm runs. They die and are followed by others, which take over; or another one takes over while
//! the last one is alive, and some hosts still speak to that one. All other faults happen to them as to other hosts.

use crate::activity::{Activity, Draw, Feature, Options, Run};
use crate::availability::Cause;
use crate::cluster::{Cluster, Failed, HostSlot, PendingOperation, failed};
use crate::fault_injection::both_ways;
use crate::files;
use crate::prelude::*;
use crate::role::Role;
use braid_check::FileAction;
use braid_metadata::MetadataService;

/// A process that has ended is followed by another one after this time, if there is none.
const RESTART_AFTER: Duration = Duration::from_millis(50);
/// A process that dies between two faults takes at most this many inputs more.
const INPUTS_MAX: u64 = 60;
/// The longest that hosts go on to speak to a process that was taken over from.
const DETOUR_MAX: u64 = 6_000;
/// How long the process that died is missing, in milliseconds.
const DOWN: [u64; 4] = [0, 5, 200, 3_000];

/// The metadata servers of a run with a file system.
#[derive(Clone, Debug)]
pub(crate) struct MetadataServers {
    rng: Rng,
    /// The mean time between two faults.
    every: Duration,
    /// Another process will be started.
    is_restart_planned: bool,
    /// The processes that hosts have heard of, by shard; the last one at the end.
    named: BTreeMap<usize, Vec<NodeId>>,
    /// When hosts last heard of another process.
    changed: Time,
    /// The file system is not used any more.
    pub is_over: bool,
}

impl Feature for MetadataServers {
    const NAME: &'static str = "metadata-servers";
    // They come with the file system.
    const KINDS: &'static [&'static str] = &[];

    fn draw(options: &mut Options, _: &mut Draw) -> Option<MetadataServers> {
        let (every, rng) = (options.files()?.every, options.source("files").named("servers"));
        let (named, changed) = (BTreeMap::new(), Time(0));
        Some(MetadataServers { rng, every, is_restart_planned: false, named, changed, is_over: false })
    }
}

impl Activity for MetadataServers {
    fn start(&mut self, run: &mut Run, _rng: &mut Rng) {
        self.plan_fault(run);
    }

    /// Ends processes that do not own the file system any more, and has another one started if there is none.
    fn look_after(&mut self, run: &mut Run) -> Result<(), Failed> {
        for slot in up_servers(&run.cluster) {
            let node = run.cluster.node(slot);
            if let Some(MetadataService::Unusable(error)) =
                run.cluster.role(slot).and_then(Role::metadata_server).map(|server| server.service().clone())
            {
                return failed("metadata-unusable", format!("{node}: {error}"));
            }
            match run.cluster.role(slot).and_then(Role::metadata_state) {
                Some(NodeState::Ended(HostError::Fenced | HostError::Ownership(_))) => {
                    run.count_fault("metadata server ends");
                    run.crash_plans.remove(&node);
                    run.crash(node);
                }
                Some(NodeState::Ended(error)) => {
                    return failed("metadata-ended", format!("{node}: {error}"));
                }
                _ => {}
            }
        }
        (0..run.cluster.files.servers.len()).for_each(|shard| self.name_owner(run, shard));
        let missing = slots_of_missing(&run.cluster);
        if missing.is_empty() || self.is_over {
            return Ok(());
        }
        if !run.storming {
            missing.into_iter().for_each(|slot| run.replace_if_down(slot));
        } else if !self.is_restart_planned {
            self.is_restart_planned = true;
            run.plan(RESTART_AFTER, |run| run.with(|servers: &mut MetadataServers, run, _| servers.start_missing(run)));
        }
        Ok(())
    }

    fn healed(&mut self, run: &mut Run) {
        end_detours(&mut run.cluster);
        self.start_missing(run);
    }

    /// Judges the answer to an operation on files. Hosts repeat everything until it succeeds: the only error that a fault causes is that the host
    /// is fenced. Other answers take long only while a fault has consequences.
    fn judge(&self, run: &Run, asked: &PendingOperation, outcome: &HostOutcome) -> Option<Result<(), Failed>> {
        let operation = files::file_operation_of(&run.cluster, &asked.record);
        let has_mounted = |node| run.cluster.slot(node).is_some_and(|slot| run.cluster.files.hosts.contains(&slot));
        // A host that disconnects ends its operations on files first.
        if operation.is_none() && !(run.is_disconnecting(asked.node) && has_mounted(asked.node)) {
            return None;
        }
        let settings = &run.cluster.options.settings;
        let lease = settings.host_lease;
        let now = run.cluster.world.now();
        // A new owner serves after a lease, and hears from hosts again; a host that is silent is fenced after some leases.
        let aftermath = 4 * lease + 2 * settings.resend_max + Duration::from_secs(2);
        let Cluster { files, .. } = &run.cluster;
        let quiet = run.availability.nothing_since(now).max(self.changed).max(files.disturbed).after(aftermath);
        let failed = |details| Some(failed("files-availability", details));
        if outcome == &Err(HostError::Fenced) && asked.since >= quiet {
            return failed(format!("{asked:?}: fenced, and nothing excuses that since {quiet:?}"));
        }
        let waits = operation.is_some_and(|it| matches!(it.action, FileAction::Lock { waits: true, .. }));
        let most = 11 * lease + 2 * settings.resend_max + Duration::from_secs(5);
        let took = now.since(asked.since.max(quiet));
        if quiet < now && took > most && !waits && run.cluster.volumes_on_hold().is_empty() {
            return failed(format!("{asked:?} took {took:?} since nothing excuses that ({quiet:?})"));
        }
        Some(Ok(()))
    }
}

impl MetadataServers {
    fn plan_fault(&mut self, run: &mut Run) {
        let pause = self.rng.below(2 * self.every.as_nanos() as u64) + 1;
        run.plan(Duration::from_nanos(pause), |run| run.with(MetadataServers::disturb));
    }

    /// A fault happens to metadata servers.
    fn disturb(&mut self, run: &mut Run, _: &mut Rng) {
        let shards = run.cluster.files.servers.len() as u64;
        let shard = if shards > 1 { self.rng.below(shards) as usize } else { 0 };
        let serves = up_servers_of(&run.cluster, shard).first().copied();
        if shards > 1 && self.rng.chance(1, 8) {
            // All servers die together, with whatever they have begun.
            let up = up_servers(&run.cluster);
            up.into_iter().for_each(|slot| self.let_die_soon(run, slot));
        }
        if self.rng.chance(1, 4) {
            self.cut_off_host(run);
        }
        match (serves, self.rng.below(10)) {
            (None, _) => {}
            (Some(slot), 0..3) => self.end_server(run, slot),
            (Some(slot), 3..6) => self.let_die_soon(run, slot),
            (Some(_), 6..8) => drop(self.take_over_from_the_living(run, shard)),
            (Some(slot), 8) => {
                self.end_server(run, slot);
                run.count_fault("metadata servers start together");
                run.cluster.files.servers[shard].into_iter().for_each(|slot| run.replace_if_down(slot));
            }
            (Some(_), _) => {
                if let Some(slot) = self.take_over_from_the_living(run, shard) {
                    self.let_die_soon(run, slot);
                }
            }
        }
        self.plan_fault(run);
    }

    fn end_server(&mut self, run: &mut Run, slot: HostSlot) {
        run.count_fault("metadata server crash");
        let (node, now) = (run.cluster.node(slot), run.cluster.world.now());
        let down = Duration::from_millis(DOWN[self.rng.below(4) as usize]);
        run.availability.begin(now, "metadata server crash", Cause::Host, down);
        run.crash_plans.remove(&node);
        run.crash(node);
        run.plan(down, move |run| run.bring_back(node, false));
    }

    /// Power fails at a process instead of one of its next inputs, such as the news that a write of its journal is durable.
    fn let_die_soon(&mut self, run: &mut Run, slot: HostSlot) {
        let node = run.cluster.node(slot);
        let down = Duration::from_millis(DOWN[self.rng.below(4) as usize]);
        let inputs = self.rng.between(1, INPUTS_MAX);
        run.cluster.world.crash_before(node, inputs);
        run.crash_plans.insert(node, (down, false));
    }

    /// Another process takes over; some hosts still take the last one for the owner.
    fn take_over_from_the_living(&mut self, run: &mut Run, shard: usize) -> Option<HostSlot> {
        let up = up_servers_of(&run.cluster, shard);
        let free = run.cluster.files.servers[shard].into_iter().find(|slot| !up.contains(slot))?;
        run.count_fault("metadata server taken over from");
        let now = run.cluster.world.now();
        let lease = run.cluster.options.settings.host_lease;
        let span = lease * self.rng.between(1, 4) as u32;
        run.availability.begin(now, "metadata server taken over from", Cause::Other, span);
        // So that it does not hear of the fence, while hosts still speak to it.
        if let Some(last) = up.first().filter(|_| self.rng.chance(1, 2)) {
            let last = run.cluster.node(*last);
            let devices = run.cluster.devices().into_iter().map(NodeId::Device);
            run.cut(both_ways(last, devices.chain([NodeId::Monitor])), span);
            run.count_fault("metadata server cut off");
        }
        run.replace_if_down(free);
        Some(free)
    }

    /// A host that has the file system mounted reaches nobody for some leases, and may lose its locks without hearing of it.
    fn cut_off_host(&mut self, run: &mut Run) {
        let hosts: Vec<HostSlot> = run.cluster.files.hosts.iter().copied().collect();
        let slot = hosts[self.rng.below(hosts.len() as u64) as usize];
        let (node, now) = (run.cluster.node(slot), run.cluster.world.now());
        let span = run.cluster.options.settings.host_lease * self.rng.between(1, 6) as u32;
        run.count_fault("host of files cut off");
        run.availability.begin(now, "host of files cut off", Cause::Other, span);
        let up = run.cluster.world.up().into_iter().filter(|other| *other != node);
        run.cut(both_ways(node, up), span);
    }

    /// Starts a process for each shard that has none.
    fn start_missing(&mut self, run: &mut Run) {
        self.is_restart_planned = false;
        slots_of_missing(&run.cluster).into_iter().for_each(|slot| run.replace_if_down(slot));
    }

    /// Hosts hear of a process when it owns the file system; some of them hear of it late, if the one before is alive.
    fn name_owner(&mut self, run: &mut Run, shard: usize) {
        let Some(system) = &run.cluster.files.system else { return };
        let service = system.service(shard);
        let named = self.named.get(&shard).cloned().unwrap_or_default();
        let owns = |slot: &HostSlot| run.cluster.role(*slot).and_then(Role::metadata_state) == Some(NodeState::Owns);
        let owners: Vec<NodeId> =
            up_servers_of(&run.cluster, shard).into_iter().filter(owns).map(|slot| run.cluster.node(slot)).collect();
        let last = named.last().copied();
        let is_up = |node: NodeId| run.cluster.world.is_up(node);
        let fresh = owners.iter().copied().find(|node| !named.contains(node));
        // The one that was named last may have died before another one that still owns the file system.
        let other = owners.first().copied().filter(|_| !last.is_some_and(is_up));
        let Some(owner) = fresh.or(other) else { return };
        let alive = last.filter(|last| is_up(*last) && run.storming);
        let others = named.into_iter().filter(|node| *node != owner);
        let named = others.chain([owner]).collect();
        self.named.insert(shard, named);
        self.changed = run.cluster.world.now();
        run.cluster.world.set_service(service, owner);
        if let Some(last) = alive {
            for slot in &run.cluster.files.hosts {
                if self.rng.chance(1, 2) {
                    run.cluster.world.detour(run.cluster.hosts[slot.0], service, last);
                }
            }
            let span = Duration::from_millis(self.rng.between(1, DETOUR_MAX));
            run.plan(span, |run| end_detours(&mut run.cluster));
        }
    }
}

/// Everybody speaks to the present processes.
fn end_detours(cluster: &mut Cluster) {
    if let Some(system) = &cluster.files.system {
        (0..system.shards.len()).for_each(|shard| cluster.world.end_detours(system.service(shard)));
    }
}

/// The slots with a process that is up.
pub(crate) fn up_servers(cluster: &Cluster) -> Vec<HostSlot> {
    (0..cluster.files.servers.len()).flat_map(|shard| up_servers_of(cluster, shard)).collect()
}

/// Those of one shard.
fn up_servers_of(cluster: &Cluster, shard: usize) -> Vec<HostSlot> {
    let servers = cluster.files.servers.get(shard).into_iter().flatten().copied();
    servers.filter(|slot| cluster.world.is_up(cluster.node(*slot))).collect()
}

/// The slots of shards that have no process.
fn slots_of_missing(cluster: &Cluster) -> Vec<HostSlot> {
    let shards = 0..cluster.files.servers.len();
    let missing = shards.filter(|shard| up_servers_of(cluster, *shard).is_empty());
    missing.map(|shard| cluster.files.servers[shard][0]).collect()
}

/// True if a shard has no owner yet, or may have another one soon.
pub(crate) fn is_one_taking_over(cluster: &Cluster) -> bool {
    let takes_over = |slot: HostSlot| cluster.role(slot).and_then(Role::metadata_state) == Some(NodeState::TakesOver);
    up_servers(cluster).into_iter().any(takes_over) || !slots_of_missing(cluster).is_empty()
}
