//! Checks of a file system during a run: as long as one is announced, the processes of metadata servers release the file system, and begin anew
//! after it. The course of a process is that of real arrays (`braid_metadata::ServerProcess`).

use crate::availability::Cause;
use crate::cluster::{Cluster, HostSlot};
use crate::metadata_processes::{MetadataServers, up_servers};
use crate::role::Role;
use crate::swarm::Run;
use braid_base::{Epoch, FileSystemId, NodeId, Rng};
use braid_machine::{ArrayRequest, OpId};
use braid_metadata::{EntryState, Observation, Pause, ProcessInput, ProcessStep, RELEASE_WAIT, ServerProcess};
use braid_wire::OwnershipRequest;
use std::collections::BTreeMap;
use std::time::Duration;

/// One run with a file system of so many has checks.
const ONE_IN: u64 = 3;
/// How often processes look whether a check is announced.
const OBSERVE_EVERY: Duration = Duration::from_millis(100);
/// The mean time between two checks, in milliseconds.
const EVERY: u64 = 3_000;
/// How long a check is announced, in milliseconds.
const CHECKED: [u64; 4] = [50, 500, 2_000, 6_000];

/// The checks of a run, and the courses of its metadata servers.
#[derive(Clone, Debug)]
pub(crate) struct FileSystemChecks {
    rng: Rng,
    is_drawn: bool,
    processes: BTreeMap<NodeId, ServerProcess>,
    /// The releases under way.
    releases: BTreeMap<OpId, NodeId>,
}

impl FileSystemChecks {
    pub fn new(files: &Rng) -> FileSystemChecks {
        let mut rng = files.named("checks");
        let is_drawn = rng.below(ONE_IN) == 0;
        FileSystemChecks { rng, is_drawn, processes: BTreeMap::new(), releases: BTreeMap::new() }
    }

    /// Schedules checks of the file system, if the run has them.
    pub fn start(&mut self, run: &mut Run) {
        if self.is_drawn {
            self.plan_next(run);
            run.plan(OBSERVE_EVERY, |run| run.with(FileSystemChecks::observe));
        }
    }

    fn plan_next(&mut self, run: &mut Run) {
        let pause = Duration::from_millis(self.rng.below(2 * EVERY) + 1);
        run.plan(pause, |run| run.with(FileSystemChecks::announce));
    }

    /// A check of the file system begins.
    fn announce(servers: &mut MetadataServers, run: &mut Run, _: &mut Rng) {
        let span = Duration::from_millis(CHECKED[servers.checks.rng.below(4) as usize]);
        run.count_fault("file system checked");
        run.cluster.files.is_checked = true;
        // A server that is to release waits for that, and then another one has to start.
        run.availability.begin(run.cluster.world.now(), "file system checked", Cause::Other, span + RELEASE_WAIT);
        run.plan(span, |run| {
            run.cluster.files.is_checked = false;
            run.with(|servers: &mut MetadataServers, run, _| servers.checks.plan_next(run));
        });
    }

    /// The processes look whether a check is announced.
    fn observe(servers: &mut MetadataServers, run: &mut Run, _: &mut Rng) {
        for slot in up_servers(&run.cluster) {
            let seen = run.cluster.files.seen_by_servers();
            servers.checks.step(run, slot, seen);
            servers.checks.step(run, slot, ProcessInput::Wake);
        }
        run.plan(OBSERVE_EVERY, |run| run.with(FileSystemChecks::observe));
    }

    /// A release was answered, or has failed. Returns false if the request was not a release.
    pub fn on_release(&mut self, run: &mut Run, op: OpId) -> bool {
        let Some(node) = self.releases.remove(&op) else { return false };
        if let Some(slot) = run.cluster.slot(node).filter(|_| run.cluster.world.machine(node).is_some()) {
            self.step(run, slot, ProcessInput::Released);
        }
        true
    }

    pub fn step(&mut self, run: &mut Run, slot: HostSlot, input: ProcessInput) {
        let (node, now) = (run.cluster.node(slot), run.cluster.world.now());
        let Some((file_system, owns_since)) = owned_by(&run.cluster, node) else { return };
        // A node that is slow counts as suspended while it takes an input, and has its answer.
        if input != ProcessInput::Released && run.cluster.world.is_stalled(node) {
            return;
        }
        let process = self.processes.entry(node).or_insert_with(|| {
            let mut process = ServerProcess::default();
            // It was started when there was no check.
            let none = Observation { entry: EntryState::Ready, is_checked: false };
            assert_eq!(process.step(now, None, ProcessInput::Observed(none)), ProcessStep::Begin);
            process
        });
        match process.step(now, owns_since, input) {
            ProcessStep::Nothing => {}
            ProcessStep::Begin => unreachable!("a process that is up has begun"),
            ProcessStep::Release { since } => {
                run.count_fault("metadata server releases");
                let request = OwnershipRequest::Release { since };
                let op = run.cluster.ask(slot, ArrayRequest::Ownership { file_system, request });
                self.releases.insert(op, node);
            }
            ProcessStep::End(pause) => {
                assert_eq!(pause, Pause::Check, "nothing else pauses it");
                self.processes.remove(&node);
                run.crash_plans.remove(&node);
                run.crash(node);
            }
        }
    }
}

/// The file system of a process, and since when it owns it, if it does.
fn owned_by(cluster: &Cluster, node: NodeId) -> Option<(FileSystemId, Option<Epoch>)> {
    match cluster.world.machine(node)? {
        Role::Metadata(process) => Some((process.file_system(), process.owns_since())),
        _ => None,
    }
}
