//! The machine of a metadata server. It checks who may speak, and routes each input to the part that handles it.

use crate::absent_hosts::AbsentHosts;
use crate::check::{CheckRun, Collected, Purpose};
use crate::disk::{DiskPart, forward, proof, store_config};
use crate::lease::Lease;
use crate::opening::Opening;
use crate::operation::{Operation, OwnOutcome, Replied, reply_of};
use crate::reclaim::{Need, Reclaim, Step};
use crate::room::Room;
use crate::shards::{Facts, ShardSettings, Shards};
use crate::space_requests::{SpaceRequests, SpaceStep};
use braid_base::limits::{self, Settings};
use braid_base::{
    ArrayId, FileSystemId, Generation, InodeId, LockServerId, Membership, NodeId, Now, ShardId, Time, TransactionId,
};
use braid_commit::{Event, Grouping, Protocol, RecordKind, TransactionName};
use braid_locks::{ListError, LockServer, LockServerConfig, LockService};
use braid_machine::{DiskResult, DiskTag, Effect, Effects, Ignored, Input, Machine, Never, OneDisk, ServerRequest};
use braid_namespace::Parameters;
use braid_namespace::check::Finding;
use braid_objects::{Found, Procedure};
use braid_store::{Medium, OnBehalf, Storage, Store, StoreError, StoreEvent};
use braid_wire::{
    FileAnswer, FileCommand, FileError, FileReply, FileRequest, FileResult, LockAnswer, LockReply, Message,
    MonitorAnswer, Owner, Rejection,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MetadataServerConfig {
    pub array: ArrayId,
    pub file_system: FileSystemId,
    /// The generation of this process as a host.
    pub generation: Generation,
    /// The start of the server, which is later than that of every earlier owner: the epoch of the take-over.
    pub start: Generation,
    pub volume_bytes: u64,
    /// The names of the metadata servers of the file system, one for each shard.
    pub peers: Vec<FileSystemId>,
    /// How operations on several shards are committed.
    pub commit_protocol: Protocol,
    /// What operations that are committed at the same time share.
    pub grouping: Grouping,
    /// What the file system is made with, if it is not made yet. If there are more blocks than it has, it gets them.
    pub parameters: Parameters,
    /// The owner of its root directory in that case.
    pub root: Owner,
    /// The server serves from this time on: when the lease of the owner before has passed.
    pub serve_from: Time,
    /// Time-outs, intervals and limits.
    pub settings: Settings,
}

#[derive(Clone, Debug)]
pub struct MetadataServer {
    pub(crate) config: MetadataServerConfig,
    pub(crate) service: MetadataService,
    pub(crate) store: Store,
    pub(crate) locks: LockServer,
    pub(crate) lease: Lease,
    pub(crate) reclaim: Reclaim,
    pub(crate) absent: AbsentHosts,
    pub(crate) own: OwnOperations,
    /// Operations on several shards.
    pub(crate) shards: Shards,
    /// The latest membership that was heard.
    pub(crate) membership: Option<Membership>,
    /// Effects of a part, on their way out.
    effects: Effects,
    counters: MetadataCounters,
}

/// Whether the server serves requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataService {
    Off,
    /// The store is being read, and what was found is written again.
    Recovering,
    /// The server logs its start, and makes the file system, if it is new.
    Opening {
        /// Whether that is under way.
        is_asked: bool,
    },
    /// It serves, from `serve_from` on.
    Serving,
    /// It checks the file system, and never serves it.
    Checking,
    /// It can't serve.
    Unusable(MetadataError),
}

/// The reason why a metadata server can't serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    #[error("the metadata volume: {0}")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Locks(#[from] ListError),
    #[error("the parameters of the file system are damaged: restore the metadata volume")]
    Damaged,
}

braid_base::counters! {
    pub struct MetadataCounters;
    /// Requests of hosts for files.
    requests,
    /// Answers sent or held.
    answers,
    /// Requests refused for want of space.
    refused_for_space,
    /// Reads that only prove the lease.
    proofs,
    /// Steps of the background job.
    steps,
}

/// What the server does by itself.
#[derive(Clone, Debug)]
pub(crate) struct OwnOperations {
    /// Free blocks of hosts and of other shards.
    pub space: SpaceRequests,
    /// Files that hosts create and open by one command.
    opening: Opening,
    /// The check of the file system, if this server checks it instead of serving it.
    check: Option<CheckRun>,
    /// The operations that are not durable yet.
    by_sequence: BTreeMap<u64, OwnOperation>,
    last_sequence: u64,
    /// When the work that waits for the next turn goes on.
    next_turn: Option<Time>,
}

impl OwnOperations {
    fn new(space: SpaceRequests, opening: Opening) -> OwnOperations {
        OwnOperations { space, opening, check: None, by_sequence: BTreeMap::new(), last_sequence: 0, next_turn: None }
    }
}

/// An operation of the server itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnOperation {
    /// Makes the file system, unless it is made, or gives it the blocks of a volume that has grown.
    Open,
    Step(Step),
    /// Free blocks are given to another shard, or received from one.
    Space(SpaceStep),
    /// A write of the commit protocol. These inodes lose names by it.
    Logged {
        transaction: TransactionName,
        kind: RecordKind,
        lost: Vec<InodeId>,
    },
}

/// How often orphans that are open give way to others.
const TURN: Duration = Duration::from_secs(1);

impl MetadataServer {
    /// A server that is off.
    pub fn new(config: MetadataServerConfig) -> MetadataServer {
        let medium = Medium { physical_sector: 4096, cached: false };
        let store = Store::new(store_config(config.array, config.file_system, config.volume_bytes));
        let locks = LockServerConfig {
            id: LockServerId(config.file_system.0),
            start: config.start,
            unlisted: Default::default(),
            evict_after: config.settings.lock_eviction,
            serves_volumes: false,
            ends_without_locks: true,
            settings: config.settings.clone(),
        };
        let number = config.peers.iter().position(|name| *name == config.file_system);
        let own = ShardId(number.expect("the server is one of the servers") as u8);
        let space = SpaceRequests::new(own, config.peers.len(), config.start, &config.settings);
        let commits = (config.commit_protocol, config.grouping);
        let shards = Shards::new(own, config.peers.clone(), commits, config.start, config.settings.resend());
        let mut store = store.on(medium).with_object_memory(config.settings.object_memory);
        if config.peers.len() > 1 && config.grouping == Grouping::None {
            store = store.with_requests_apart();
        }
        MetadataServer {
            service: MetadataService::Off,
            store,
            locks: LockServer::new(locks),
            lease: Lease::new(config.settings.host_lease),
            reclaim: Reclaim::default(),
            absent: AbsentHosts::default(),
            own: OwnOperations::new(space, Opening::new(own)),
            shards,
            membership: None,
            effects: Effects::new(),
            counters: MetadataCounters::default(),
            config,
        }
    }

    /// The same server for another purpose, which it follows once it has read the journal. If it is to check, it never serves.
    pub fn with_purpose(self, purpose: Purpose) -> MetadataServer {
        MetadataServer { own: OwnOperations { check: CheckRun::of(purpose), ..self.own }, ..self }
    }

    pub fn service(&self) -> &MetadataService {
        &self.service
    }

    /// True if the server serves: the lease of the owner before has passed, too.
    pub fn is_serving(&self) -> bool {
        self.service == MetadataService::Serving && self.absent.deadline().is_some()
    }

    /// What a check has found, and how much more it has found than is listed; `None` if it is not complete.
    pub fn findings(&self) -> Option<(Vec<Finding>, u64)> {
        self.own.check.as_ref().filter(|check| check.is_complete()).and_then(CheckRun::findings)
    }

    /// The map of this shard, if it was to be collected and that is complete.
    pub fn collected(&self) -> Option<Arc<Collected>> {
        self.own.check.as_ref().filter(|check| check.is_complete()).and_then(CheckRun::collected)
    }

    /// How many transactions with other shards this shard has begun so far.
    pub fn transactions(&self) -> u64 {
        self.shards.transactions()
    }

    pub fn store_counters(&self) -> Vec<(&'static str, u64)> {
        self.store.counters()
    }

    pub fn counters(&self) -> &MetadataCounters {
        &self.counters
    }

    /// The lock server of the inodes, for inspection.
    pub fn locks(&self) -> &LockServer {
        &self.locks
    }

    pub(crate) fn on_server_request(&mut self, request: ServerRequest) {
        match request {
            ServerRequest::Follow { evict_after, protocol, quiesces } => {
                self.locks.set_evict_after(evict_after);
                self.shards.follow(ShardSettings { protocol, quiesces });
            }
            ServerRequest::RestartEvictionTimers => self.locks.restart_eviction_timers(),
        }
    }

    /// True if the server quiesces, and no operation on several shards is under way here. Once that is so for all servers, it stays so.
    pub fn is_quiescent(&self) -> bool {
        self.is_serving() && self.own.space.is_idle() && self.shards.is_quiescent()
    }

    /// True if the server serves, and nothing that a host has asked for happens any more: the host is fenced, and no transaction is under way
    /// for it. What was being committed when it was fenced still takes effect.
    pub fn is_done_with(&self, host: Generation) -> bool {
        self.is_serving() && self.is_fenced(host) && !self.shards.works_for(host)
    }

    /// Removed files that still take space.
    pub fn unlinked_inodes(&self) -> usize {
        self.reclaim.unlinked_inodes()
    }

    pub(crate) fn name(&self) -> NodeId {
        NodeId::MetadataServer(self.config.file_system)
    }

    fn on_message(&mut self, now: Now, from: NodeId, message: Message, out: &mut Effects) {
        match (from, message) {
            (NodeId::Host(host), Message::FileRequest(request)) if request.host == host => {
                self.on_request(now, request, out);
            }
            (NodeId::Host(host), message @ Message::LockRequest(_)) => {
                if !self.serves(now.time) {
                    out.ignore(Ignored::NotStarted);
                } else if self.is_fenced(host) {
                    self.refuse_locks(now, host, out);
                } else {
                    self.step_locks(now, Input::Message { to: self.name(), from: NodeId::Host(host), message }, out);
                }
            }
            (from @ NodeId::MetadataServer(_), Message::Shard(message)) => {
                self.on_shard_message(now, from, message, out);
            }
            (NodeId::Monitor, Message::MonitorAnswer(answer)) => self.on_monitor_answer(now, answer, out),
            _ => out.ignore(Ignored::NotForUs),
        }
    }

    pub(crate) fn serves(&self, now: Time) -> bool {
        self.service == MetadataService::Serving && now >= self.config.serve_from
    }

    fn on_request(&mut self, now: Now, request: FileRequest, out: &mut Effects) {
        let FileRequest { host, settled, over, sequence, mut command } = request;
        if !self.serves(now.time) {
            return out.ignore(Ignored::NotStarted);
        }
        self.counters.requests += 1;
        if host == self.config.generation || self.is_fenced(host) {
            return self.answer(now, host, sequence, Err(FileError::Rejected(Rejection::Fenced)), out);
        }
        if let Err(rejection) = self.with_locks(now, out, |locks, out| locks.admit(now, host, out)) {
            return self.answer(now, host, sequence, Err(FileError::Rejected(rejection)), out);
        }
        self.store.settle(host, settled);
        self.own.opening.settle(host, settled);
        for sequence in over {
            // Otherwise the answer is kept until the mark has passed it. A merge would end requests that the host waits for.
            if self.store.forgets_apart(host) {
                self.store.forget(TransactionId { host, sequence });
            }
        }
        if command == FileCommand::Nothing {
            return self.answer(now, host, sequence, Ok(FileResult::Done), out);
        }
        if sequence >= settled.saturating_add(limits::FILE_REQUESTS_MAX) {
            return self.answer(now, host, sequence, Err(FileError::Busy), out);
        }
        if let FileCommand::Reserve { .. } = command {
            self.reclaim.add_host(host);
        }
        let name = TransactionId { host, sequence };
        if command.opens() && command.check().is_ok() {
            self.own.opening.begin(name, !self.store.knows(name));
            command.make_plain();
        }
        if let FileCommand::GiveBack { runs } = &command {
            self.own.space.on_give_back(name, runs.is_empty());
        }
        if self.shards.quiesces() {
            return out.ignore(Ignored::NotStarted);
        }
        if let FileCommand::Reserve { blocks } = command
            && command.check().is_ok()
            && !self.store.knows(name)
        {
            return self.step_space(now, |space, actions| space.reserve(name, settled, blocks, actions), out);
        }
        self.step_shards(now, |shards, cx| shards.begin(name, settled, command, cx), out);
    }

    /// The room in the metadata volume.
    pub fn room(&self) -> Room {
        self.facts().room()
    }

    /// A fenced host that waits for nothing but a lock has to hear of the fence here.
    fn refuse_locks(&mut self, now: Now, host: Generation, out: &mut Effects) {
        let reply = LockReply::Rejected { rejection: Rejection::Fenced };
        let message = Message::LockAnswer(LockAnswer { start: self.config.start, reply });
        self.lease.send(now.time, Effect::Send { to: NodeId::Host(host), message }, out);
    }

    pub(crate) fn answer(&mut self, now: Now, host: Generation, sequence: u64, reply: FileReply, out: &mut Effects) {
        self.counters.answers += 1;
        self.counters.refused_for_space += u64::from(reply == Err(FileError::NoSpace));
        let reply = match self.own.opening.end(TransactionId { host, sequence }, &reply) {
            Some(new) => self.with_locks(now, out, |locks, out| new.open(now, locks, out)),
            None => reply,
        };
        let answer = FileAnswer { start: self.config.start, sequence, reply };
        let send = Effect::Send { to: NodeId::Host(host), message: Message::FileAnswer(answer) };
        self.lease.send(now.time, send, out);
    }

    /// Takes note of a membership. Its fence counts from now on, also for hosts that an earlier owner had fenced.
    pub(crate) fn hear(&mut self, membership: &Membership) {
        if self.membership.as_ref().is_none_or(|known| known.epoch < membership.epoch) {
            self.membership = Some(membership.clone());
        }
    }

    /// True if the server refuses this host for good.
    pub fn is_fenced(&self, host: Generation) -> bool {
        self.facts().is_fenced(host)
    }

    fn facts(&self) -> Facts<'_> {
        Facts { store: &self.store, membership: self.membership.as_ref() }
    }

    fn awaits_turn(&self) -> bool {
        let is_checking = self.service == MetadataService::Checking;
        let check_waits = is_checking && self.own.check.as_ref().is_some_and(CheckRun::awaits_turn);
        check_waits || self.reclaim.awaits_turn() || self.service == (MetadataService::Opening { is_asked: false })
    }

    /// The monitor's answers are for the lock server, which has hosts fenced. The store drops the state of fenced hosts.
    fn on_monitor_answer(&mut self, now: Now, answer: MonitorAnswer, out: &mut Effects) {
        if let Some(membership) = &answer.membership {
            self.hear(membership);
            let membership = membership.clone();
            self.with_store(now, out, |store, out| store.adopt(0, membership, out));
        }
        if self.own.check.is_some() {
            return;
        }
        let message = Message::MonitorAnswer(answer);
        self.step_locks(now, Input::Message { to: self.name(), from: NodeId::Monitor, message }, out);
        self.fence_for_good(now, out);
        let reserving: Vec<TransactionId> = self.own.space.names().filter(|name| self.is_fenced(name.host)).collect();
        self.own.space.end(|name| reserving.contains(&name));
        self.step_shards(now, Shards::end_fenced, out);
        let fenced: BTreeSet<Generation> = self.own.opening.hosts().filter(|host| self.is_fenced(*host)).collect();
        self.own.opening.retain(|host| !fenced.contains(&host));
    }

    fn on_disk_done(&mut self, now: Now, tag: DiskTag, result: DiskResult, out: &mut Effects) {
        let is_ok = matches!(result, DiskResult::Read(Ok(_)) | DiskResult::Done(Ok(())));
        self.lease.on_done(tag, is_ok);
        let (part, tag) = DiskPart::of(tag);
        match part {
            DiskPart::Store => self.with_store(now, out, |store, out| store.on_disk_done(now, tag, result, out)),
            DiskPart::Locks => self.step_locks(now, Input::DiskDone { tag, result }, out),
            DiskPart::Lease => {}
        }
    }

    fn on_store_event(&mut self, now: Now, event: StoreEvent, out: &mut Effects) {
        match event {
            StoreEvent::Ready(_) if self.own.check.is_some() => {
                self.service = MetadataService::Checking;
                self.run_check(now, out);
            }
            StoreEvent::ObjectsRead { found, .. } if self.own.check.is_some() => self.on_page(now, found, out),
            StoreEvent::ObjectsRead { ticket, found, .. } => {
                self.step_shards(now, |shards, cx| shards.on_looked(ticket, found, cx), out);
            }
            StoreEvent::Ready(_) => {
                self.service = MetadataService::Opening { is_asked: true };
                if let Some(membership) = self.membership.clone() {
                    self.with_store(now, out, |store, out| store.adopt(0, membership, out));
                }
                self.run_own(now, OwnOperation::Open, out);
            }
            StoreEvent::Unusable(error) => self.service = MetadataService::Unusable(error.into()),
            StoreEvent::Executed { name, found, .. } if name.host == self.config.generation => {
                if let Some(own) = self.own.by_sequence.remove(&name.sequence) {
                    self.store.forget(name);
                    match own {
                        OwnOperation::Space(step) => {
                            self.step_space(now, |space, actions| space.on_step(now, step, found, actions), out);
                        }
                        own => self.on_own_done(now, own, found.map(Found::take), out),
                    }
                }
            }
            StoreEvent::Executed { name, answer, found } => {
                let replied = reply_of(answer, found);
                let is_short = replied == Some(Replied::Short);
                self.step_space(now, |space, actions| space.on_evaluated(now, name, is_short, actions), out);
                // If the operation was not executed, the host sends it again.
                let Some(Replied::Reply(reply)) = replied else { return };
                if let Ok(result) = &reply {
                    orphaned(result).for_each(|inode| self.reclaim.add_inode(inode, Need::Removal));
                }
                let is_done = reply.is_ok();
                self.answer(now, name.host, name.sequence, reply, out);
                self.step_space(now, |space, actions| space.on_given_back(now, name, is_done, actions), out);
            }
            _ => {}
        }
    }

    /// One of the server's own operations is durable, or could not be done.
    fn on_own_done(&mut self, now: Now, own: OwnOperation, outcome: Option<OwnOutcome>, out: &mut Effects) {
        match (own, outcome) {
            // There was no room: it is tried again at the next turn.
            (OwnOperation::Open, None) => self.service = MetadataService::Opening { is_asked: false },
            (OwnOperation::Open, Some(OwnOutcome::Damaged))
            | (OwnOperation::Logged { .. }, None | Some(OwnOutcome::Damaged)) => {
                self.service = MetadataService::Unusable(MetadataError::Damaged);
            }
            (OwnOperation::Open, Some(_)) => self.step_shards(now, Shards::recover, out),
            (OwnOperation::Logged { transaction, kind, lost }, Some(_)) => {
                for inode in lost {
                    // It may have other names.
                    self.reclaim.add_step(Step::FindInodes(inode.0.checked_sub(1).map(InodeId)));
                }
                self.step_shards(now, |shards, cx| shards.step(Event::Logged { transaction, kind }, cx), out);
            }
            (OwnOperation::Space(_), _) => unreachable!("its end is not an outcome"),
            (OwnOperation::Step(step), outcome) => {
                match &outcome {
                    Some(OwnOutcome::Inodes(found)) => {
                        found.iter().for_each(|(inode, need)| self.reclaim.add_inode(*inode, *need));
                    }
                    Some(OwnOutcome::Hosts(found)) => {
                        found.iter().for_each(|host| self.on_host_found(now, *host, out));
                    }
                    _ => {}
                }
                self.reclaim.on_step(step, outcome.map(|outcome| outcome.progress(step)));
            }
        }
    }

    /// The store has read a page for the check, or had no room for that: then the next turn continues.
    fn on_page(&mut self, now: Now, found: Option<Found>, out: &mut Effects) {
        if self.own.check.as_mut().is_some_and(|check| check.on_page(found)) {
            self.run_check(now, out);
        }
    }

    /// Continues the check, with the next part of the map.
    fn run_check(&mut self, now: Now, out: &mut Effects) {
        if let Some(read) = self.own.check.as_mut().and_then(CheckRun::advance) {
            self.with_store(now, out, |store, out| store.read_durable(now, 0, read, out));
        }
    }

    /// Runs an operation of the server itself.
    pub(crate) fn run_own(&mut self, now: Now, own: OwnOperation, out: &mut Effects) {
        self.own.last_sequence += 1;
        let (sequence, settled) = (self.own.last_sequence, self.own.by_sequence.keys().next().copied());
        let name = TransactionId { host: self.config.generation, sequence };
        let operation: Box<dyn Procedure> = match &own {
            OwnOperation::Open => {
                let (start, parameters, root) = (self.config.start, self.config.parameters.clone(), self.config.root);
                Box::new(Operation::open(start, parameters, root, now.clock))
            }
            OwnOperation::Step(step) => Box::new(Operation::step(name.host, *step, now.clock)),
            OwnOperation::Space(step) => Box::new(step.clone()),
            OwnOperation::Logged { .. } => unreachable!("it is mandatory"),
        };
        self.own.by_sequence.insert(sequence, own);
        self.counters.steps += 1;
        if !self.run(now, name, settled.unwrap_or(sequence), operation, out) {
            // This process is fenced: it gets no further.
            self.own.by_sequence.remove(&sequence);
        }
    }

    /// Runs an operation of the server itself that must take effect, and keeps these answers to requests of hosts with it.
    pub(crate) fn run_mandatory(
        &mut self,
        now: Now,
        own: OwnOperation,
        on_behalf: Vec<OnBehalf>,
        procedure: Box<dyn Procedure>,
        out: &mut Effects,
    ) {
        self.own.last_sequence += 1;
        let sequence = self.own.last_sequence;
        let name = TransactionId { host: self.config.generation, sequence };
        self.own.by_sequence.insert(sequence, own);
        let is_asked =
            self.with_store(now, out, |store, out| store.run_mandatory(now, name, on_behalf, procedure, out));
        if !is_asked {
            // This process is fenced: it gets no further.
            self.own.by_sequence.remove(&sequence);
        }
    }

    pub(crate) fn run(
        &mut self,
        now: Now,
        name: TransactionId,
        settled: u64,
        operation: Box<dyn Procedure>,
        out: &mut Effects,
    ) -> bool {
        self.with_store(now, out, |store, out| store.run(now, name, settled, operation, out))
    }

    /// Lends the store to `act`, and passes on its disk commands.
    pub(crate) fn with_store<R>(
        &mut self,
        now: Now,
        out: &mut Effects,
        act: impl FnOnce(&mut Store, &mut Effects) -> R,
    ) -> R {
        let result = act(&mut self.store, &mut self.effects);
        let MetadataServer { lease, effects, .. } = self;
        let unexpected = |effect, _: &mut Effects| panic!("a store sends no messages: {effect:?}");
        forward(DiskPart::Store, effects, out, |tag| lease.on_issue(now.time, tag), unexpected);
        result
    }

    /// Lends the lock server to `act`, and passes on its disk commands and messages. Those to hosts need the lease.
    pub(crate) fn with_locks<R>(
        &mut self,
        now: Now,
        out: &mut Effects,
        act: impl FnOnce(&mut LockServer, &mut Effects) -> R,
    ) -> R {
        let result = act(&mut self.locks, &mut self.effects);
        let MetadataServer { lease, effects, .. } = self;
        let mut sent = Vec::new();
        forward(DiskPart::Locks, effects, out, |tag| lease.on_issue(now.time, tag), |effect, _| sent.push(effect));
        for effect in sent {
            match effect {
                Effect::Send { to: NodeId::Host(_), .. } => self.lease.send(now.time, effect, out),
                effect => out.push(effect),
            }
        }
        self.locks.take_own_granted().into_iter().for_each(|lock| self.reclaim.on_granted(lock));
        result
    }

    fn step_locks(&mut self, now: Now, input: Input, out: &mut Effects) {
        self.with_locks(now, out, |locks, out| locks.step(now, input, out));
        if let LockService::Unusable(error) = self.locks.service() {
            self.service = MetadataService::Unusable(error.into());
        }
    }

    /// Does whatever follows from what the parts have done.
    fn pump(&mut self, now: Now, out: &mut Effects) {
        loop {
            if let Some(event) = self.store.pop_event() {
                self.on_store_event(now, event, out);
            } else if self.locks.service() == LockService::Serving
                && let Some(action) = self.reclaim.pop_action()
            {
                self.act(now, action, out);
            } else {
                break;
            }
        }
        self.lease.release(now.time, out);
        if let Some(tag) = self.lease.next_proof() {
            let (tag, command) = DiskPart::Lease.place(tag, proof());
            self.lease.on_issue(now.time, tag);
            self.lease.on_proof(tag);
            self.counters.proofs += 1;
            out.disk(tag, command);
        }
        let turn = self.own.next_turn.unwrap_or_else(|| now.time.after(TURN));
        self.own.next_turn = self.awaits_turn().then_some(turn);
    }

    fn wake(&mut self, now: Now, out: &mut Effects) {
        if self.store.deadline().is_some_and(|deadline| deadline <= now.time) {
            self.with_store(now, out, |store, out| store.wake(now, out));
        }
        if self.serves(now.time) {
            if self.locks.deadline().is_some_and(|deadline| deadline <= now.time) {
                if self.lease.is_stuck(now.time) {
                    // Hosts may wait for answers before they can give back a lock.
                    self.locks.restart_eviction_timers();
                }
                self.step_locks(now, Input::Wake, out);
            }
            self.look_for_absent(now, out);
            self.step_space(now, |space, actions| space.wake(now, actions), out);
            self.step_shards(now, Shards::wake, out);
        }
        if self.own.next_turn.is_some_and(|turn| turn <= now.time) {
            self.own.next_turn = None;
            self.reclaim.turn();
            if self.service == MetadataService::Checking {
                self.run_check(now, out);
            }
            if self.service == (MetadataService::Opening { is_asked: false }) {
                self.service = MetadataService::Opening { is_asked: true };
                self.run_own(now, OwnOperation::Open, out);
            }
        }
    }
}

impl Machine for MetadataServer {
    type Request = Never;
    type Outcome = Never;
    type Disk = OneDisk;

    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
        if let MetadataService::Unusable(_) = self.service {
            return out.ignore(Ignored::NotStarted);
        }
        if self.absent.deadline().is_none() {
            // No host can be heard before the server serves, so none is silent. Its lock server may have other inputs before.
            self.locks.hear_all(now.time);
        }
        match input {
            Input::Start => {
                assert_eq!(self.service, MetadataService::Off, "a metadata server is started once");
                self.service = MetadataService::Recovering;
                self.with_store(now, out, |store, out| store.start(out));
                // A check hears no hosts: it must not take them for silent.
                if self.own.check.is_none() {
                    self.step_locks(now, Input::Start, out);
                }
            }
            Input::Message { from, message, .. } => self.on_message(now, from, message, out),
            Input::DiskDone { tag, result } => self.on_disk_done(now, tag, result, out),
            Input::Wake => {}
        }
        self.wake(now, out);
        self.pump(now, out);
    }

    fn deadline(&self) -> Option<Time> {
        if let MetadataService::Unusable(_) = self.service {
            return None;
        }
        let is_serving = self.service == MetadataService::Serving;
        // Before the server serves, no host can be heard, so none is silent.
        let locks = self.locks.deadline().map(|deadline| deadline.max(self.config.serve_from)).filter(|_| is_serving);
        let first = (is_serving && !self.is_serving()).then_some(self.config.serve_from);
        let absent = self.absent.deadline();
        let parts = self.shards.deadline().into_iter().chain(self.own.space.deadline()).min();
        let parts = parts.map(|deadline| deadline.max(self.config.serve_from)).filter(|_| is_serving);
        [self.store.deadline(), locks, first, self.own.next_turn, absent, parts].into_iter().flatten().min()
    }

    fn invariants(&self) {
        self.store.invariants();
        self.locks.invariants();
        self.lease.invariants();
        self.reclaim.invariants();
        self.own.space.invariants();
        self.shards.invariants();
    }
}

/// The inodes that have lost their last name.
fn orphaned(result: &FileResult) -> impl Iterator<Item = InodeId> {
    let attributes = match result {
        FileResult::Removed(attributes) => Some(attributes),
        FileResult::Renamed { replaced, .. } => replaced.as_ref(),
        _ => None,
    };
    attributes.filter(|attributes| attributes.links == 0).map(|attributes| attributes.inode).into_iter()
}
