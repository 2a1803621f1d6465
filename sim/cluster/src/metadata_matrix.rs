//! The crash matrix of metadata servers: two processes use a file system, and its metadata server loses power instead of its n-th input, for
//! each n; another one takes over.
//!
//! ```text
//!   first server serves ─► A and B work ─► power fails at the server ─► another one takes over (and may fail likewise) ─► every check
//! ```
//!
//! The inputs of a server are messages, such as the answers of devices about a write of its journal, and timers. So for each write of the
//! metadata volume there are points before it reaches the devices, between two devices, when it is durable and not known to be, and before and
//! after its answer. With [`Victim::Successor`] the first server dies at a fixed point, and the one that takes over at each of its inputs.

use crate::cluster::{Cluster, Failed, HostSlot, failed};
use crate::drawn_volume::MoreVolume;
use crate::file_checks::{Walker, release_advisory_locks};
use crate::file_options::{FileOptions, ShardOptions};
use crate::file_use::Files;
use crate::file_workload::FileWorkload;
use crate::files;
use crate::matrix::short_leases;
use crate::options::Options;
use crate::prelude::*;
use crate::role::Role;
use crate::swarm::caught;
use braid_metadata::MetadataService;

/// The operations of each process.
const OPERATIONS: usize = 24;
/// The input at which the first server dies if its successor dies, too.
const IN_BETWEEN: u64 = 150;
/// Everything ends within this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// The server that loses power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    First,
    /// The server that takes over from the first one.
    Successor,
}

/// A point at which a server loses power: instead of its input of this number, counted from 1 since the processes began to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataPoint {
    pub victim: Victim,
    /// The shard whose server it is.
    pub shard: usize,
    pub at: u64,
}

impl fmt::Display for MetadataPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} server of shard {}, instead of input {}", self.victim, self.shard, self.at)
    }
}

/// Runs the workload of this seed, with or without a crash. Returns the number of inputs of the victim: of the first server of the first
/// shard if none dies.
pub fn run_metadata_point(seed: u64, crash: Option<MetadataPoint>) -> Result<u64, Failed> {
    run_shard_point(seed, ShardOptions::ONE, crash)
}

/// The same for a file system with these shards.
pub fn run_shard_point(seed: u64, shards: ShardOptions, crash: Option<MetadataPoint>) -> Result<u64, Failed> {
    caught(|| Play::new(seed, shards).go(crash))
}

struct Play {
    cluster: Cluster,
    workload: FileWorkload,
    /// The operations that each process has issued.
    issued: BTreeMap<HostSlot, usize>,
    /// The point of the server that starts next.
    next: Option<u64>,
    /// The inputs that servers had taken when the processes began to work, or when they started.
    before: u64,
    /// The inputs that the last server took.
    taken: u64,
}

impl Play {
    fn new(seed: u64, shards: ShardOptions) -> Play {
        let settings = short_leases();
        let calm = Options::calm("raid5:2+1", 3, 1, 1);
        let layout = Layout::new("raid5:2+1".parse().expect("a level"), 3, 4).expect("a layout on three devices");
        let data = MoreVolume { layout, first: 0, ordering: Ordering::Timestamp, stripes: 512 };
        let files = FileOptions { share: 100, names: 50, data, every: Duration::from_secs(1), shards };
        let workload = FileWorkload::new(&files, Rng::new(seed));
        let options = Options { seed, hosts: 3, device_bytes: u64::from(shards.count) * (64 << 20), settings, ..calm };
        let options = options.with(Files::new(files, Rng::new(seed), Rng::new(seed)));
        let cluster = Cluster::new(options, Trace::keeping(0));
        Play { cluster, workload, issued: BTreeMap::new(), next: None, before: 0, taken: 0 }
    }

    fn go(&mut self, crash: Option<MetadataPoint>) -> Result<u64, Failed> {
        let servers: Vec<HostSlot> = self.cluster.files.servers.iter().map(|slots| slots[0]).collect();
        let server = servers[crash.map_or(0, |point| point.shard)];
        while !servers.iter().all(|server| self.serves(*server)) {
            self.pass()?;
        }
        self.before = self.inputs(server);
        let node = self.cluster.node(server);
        match crash {
            Some(MetadataPoint { victim: Victim::First, at, .. }) => self.cluster.world.crash_before(node, at),
            Some(MetadataPoint { victim: Victim::Successor, at, .. }) => {
                self.cluster.world.crash_before(node, IN_BETWEEN);
                self.next = Some(at);
            }
            None => {}
        }
        let hosts: Vec<HostSlot> = self.cluster.files.hosts.iter().copied().collect();
        hosts.iter().for_each(|slot| self.issue(*slot));
        self.until_all_is_answered()?;
        self.taken = self.inputs(server) - self.before;
        self.cluster.world.spare(self.cluster.node(server));
        let system = self.cluster.files.mounted().clone();
        let walker = system.add_host(&mut self.cluster);
        Walker { cluster: &mut self.cluster, slot: walker }.walk()?;
        for slot in hosts.into_iter().chain([walker]) {
            let op = self.cluster.ask(slot, ArrayRequest::Disconnect);
            self.cluster.answer(op, "a host does not unmount the file system")?;
            self.cluster.crash(self.cluster.node(slot));
        }
        for _ in 0..50 {
            self.pass()?;
        }
        servers.iter().for_each(|server| self.cluster.crash(self.cluster.node(*server)));
        system.check_metadata(&mut self.cluster)?;
        let judged = self.cluster.files.judge()?;
        match judged.undecided {
            0 => Ok(self.taken),
            _ => failed("files-undecided", "the search for an order was abandoned".into()),
        }
    }

    fn serves(&self, server: HostSlot) -> bool {
        let server = self.cluster.role(server).and_then(Role::metadata_server);
        server.is_some_and(|server| *server.service() == MetadataService::Serving)
    }

    fn inputs(&self, server: HostSlot) -> u64 {
        self.cluster.world.inputs(self.cluster.node(server))
    }

    fn issue(&mut self, slot: HostSlot) {
        let issued = self.issued.entry(slot).or_default();
        if *issued == OPERATIONS {
            return;
        }
        *issued += 1;
        let node = self.cluster.node(slot);
        let (open, held) = (self.cluster.files.open_files(node, 0), self.cluster.files.held_locks(node, 0));
        let call = self.workload.operation(0, &open, &held);
        if let FilesRequest::Close { handle } = call.0 {
            self.cluster.files.forget_handle(node, 0, handle);
        }
        files::file_operation(&mut self.cluster, slot, 0, call);
    }

    fn until_all_is_answered(&mut self) -> Result<(), Failed> {
        let until = self.cluster.world.now().after(PATIENCE);
        while self.cluster.requests.asked().next().is_some() {
            if self.cluster.world.now() > until {
                return failed("unanswered", format!("{:?}", self.cluster.requests.asked().collect::<Vec<_>>()));
            }
            self.pass()?;
            release_advisory_locks(&mut self.cluster);
        }
        Ok(())
    }

    /// Lets some time pass.
    fn pass(&mut self) -> Result<(), Failed> {
        let until = self.cluster.world.now().after(Duration::from_millis(100));
        while let Some(event) = self.cluster.world.next(until) {
            self.cluster.check_moment()?;
            match event {
                WorldEvent::Reply { op, outcome, .. } => {
                    let Some(asked) = self.cluster.on_reply(op, &outcome)? else { continue };
                    if let Err(error) = &outcome
                        && files::file_operation_of(&self.cluster, &asked.record)
                            .is_some_and(|it| it.answer().is_none())
                    {
                        return failed("files-error", format!("{asked:?}: {error}"));
                    }
                    if let Some(operation) = files::file_operation_of(&self.cluster, &asked.record) {
                        self.workload.learn(operation);
                        let slot = self.cluster.slot(asked.node).expect("no host dies");
                        self.issue(slot);
                    }
                }
                WorldEvent::PowerFailed(node) => self.restart(node),
                WorldEvent::Alarm(_) | WorldEvent::Suspended { .. } | WorldEvent::Stepped(_) => {}
            }
        }
        // The request of a server that died may have been executed after the next one had asked for the owner.
        for [server, _] in self.cluster.files.servers.clone() {
            if let Some(NodeState::Ended(HostError::Ownership(_))) =
                self.cluster.role(server).and_then(Role::metadata_state)
            {
                let node = self.cluster.node(server);
                self.cluster.crash(node);
                self.restart(node);
            }
        }
        Ok(())
    }

    /// Another server starts when one has died.
    fn restart(&mut self, node: NodeId) {
        let slot = self.cluster.slot(node).expect("servers have slots");
        self.cluster.replace_host(slot, LocalClock::exact(Time(0)));
        let (node, system) = (self.cluster.node(slot), self.cluster.files.mounted().clone());
        let shard = self.cluster.files.servers.iter().position(|slots| slots.contains(&slot)).expect("it is a server");
        self.cluster.world.set_service(system.service(shard), node);
        self.before = 0;
        if let Some(at) = self.next.take() {
            self.cluster.world.crash_before(node, at);
        }
    }
}
