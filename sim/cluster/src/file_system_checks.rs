//! Checks of a file system during a run: as long as one is announced, the processes of metadata servers release the file system, and begin anew
//! after it. The course of a process is that of real arrays (`braid_metadata::ServerProcess`).

use crate::availability::Cause;
use crate::cluster::HostSlot;
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
#[derive(Debug)]
pub(crate) struct FileSystemChecks {
    rng: Rng,
    is_drawn: bool,
    is_announced: bool,
    processes: BTreeMap<NodeId, ServerProcess>,
    /// The releases under way.
    releases: BTreeMap<OpId, NodeId>,
}

impl FileSystemChecks {
    pub fn new(files: &Rng) -> FileSystemChecks {
        let mut rng = files.named("checks");
        let is_drawn = rng.below(ONE_IN) == 0;
        FileSystemChecks { rng, is_drawn, is_announced: false, processes: BTreeMap::new(), releases: BTreeMap::new() }
    }

    /// What a process sees.
    fn seen(&self) -> ProcessInput {
        ProcessInput::Observed(Observation { entry: EntryState::Ready, is_checked: self.is_announced })
    }
}

impl Run {
    /// Schedules checks of the file system, if the run has them.
    pub(crate) fn plan_checks_of_files(&mut self) {
        if self.metadata.checks.is_drawn {
            self.plan_next_check();
            self.plan(OBSERVE_EVERY, Run::observe_check);
        }
    }

    fn plan_next_check(&mut self) {
        let pause = Duration::from_millis(self.metadata.checks.rng.below(2 * EVERY) + 1);
        self.plan(pause, Run::announce_check);
    }

    /// A check of the file system begins.
    pub(crate) fn announce_check(&mut self) {
        let span = Duration::from_millis(CHECKED[self.metadata.checks.rng.below(4) as usize]);
        self.count_fault("file system checked");
        self.metadata.checks.is_announced = true;
        // A server that is to release waits for that, and then another one has to start.
        let until = span + RELEASE_WAIT;
        self.availability.begin(self.cluster.world.now(), "file system checked", Cause::Other, until);
        self.plan(span, Run::end_check);
    }

    pub(crate) fn end_check(&mut self) {
        self.metadata.checks.is_announced = false;
        self.plan_next_check();
    }

    /// Everything heals: no check is under way any more.
    pub(crate) fn end_checks(&mut self) {
        self.metadata.checks.is_announced = false;
    }

    /// The processes look whether a check is announced.
    pub(crate) fn observe_check(&mut self) {
        for slot in self.up_servers() {
            let seen = self.metadata.checks.seen();
            self.step_process(slot, seen);
            self.step_process(slot, ProcessInput::Wake);
        }
        self.plan(OBSERVE_EVERY, Run::observe_check);
    }

    /// True if a process that is started now takes over at once. Otherwise it is started later.
    pub(crate) fn may_serve(&mut self) -> bool {
        let seen = self.metadata.checks.seen();
        ServerProcess::default().step(self.cluster.world.now(), None, seen) == ProcessStep::Begin
    }

    /// A release was answered, or has failed. Returns false if the request was not a release.
    pub(crate) fn on_release(&mut self, op: OpId) -> bool {
        let Some(node) = self.metadata.checks.releases.remove(&op) else { return false };
        if let Some(slot) = self.cluster.slot(node).filter(|_| self.cluster.world.machine(node).is_some()) {
            self.step_process(slot, ProcessInput::Released);
        }
        true
    }

    pub(crate) fn step_process(&mut self, slot: HostSlot, input: ProcessInput) {
        let (node, now) = (self.cluster.node(slot), self.cluster.world.now());
        let Some((file_system, owns_since)) = self.owned_by(node) else { return };
        if self.cluster.world.is_stalled(node) {
            return;
        }
        let process = self.metadata.checks.processes.entry(node).or_insert_with(|| {
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
                self.count_fault("metadata server releases");
                let request = OwnershipRequest::Release { since };
                let op = self.cluster.ask(slot, ArrayRequest::Ownership { file_system, request });
                self.metadata.checks.releases.insert(op, node);
            }
            ProcessStep::End(pause) => {
                assert_eq!(pause, Pause::Check, "nothing else pauses it");
                self.metadata.checks.processes.remove(&node);
                self.crash_plans.remove(&node);
                self.crash(node);
            }
        }
    }

    /// The file system of a process, and since when it owns it, if it does.
    fn owned_by(&self, node: NodeId) -> Option<(FileSystemId, Option<Epoch>)> {
        match self.cluster.world.machine(node)? {
            Role::Metadata(process) => Some((process.file_system(), process.owns_since())),
            _ => None,
        }
    }
}
