//! Operations on several shards: the part of a metadata server that makes plans of commands, asks other servers, and runs the commit
//! protocols ([`braid_commit`]). It owns this state, and returns what the server is to do as [`ShardAction`]s, in order.
//!
//! ```text
//!   command ─► locks of names ─► plan ─┬─► this shard alone: the store executes it, as with one shard
//!                                      ├─► an inode elsewhere: ask its server, answer
//!                                      └─► several shards: locks of inodes ─► evaluation ─► transaction ─► answer
//! ```
//!
//! A command is known by its host and sequence until it is answered: copies of it are ignored meanwhile. Its answer is kept by the store, in the
//! record that commits it. A transaction that was abandoned, or whose worker found that the plan is outdated, is planned anew.
//!
//! Everything but the records is lost with the process. Hosts send their commands again, and the records bring back the transactions and
//! their locks before anything is served. In a file system with one shard there are no peers: the store executes each command at once.

mod commit_steps;
mod questions;

use crate::groups::Groups;
use crate::operation::{Operation, time_of};
use crate::operation_locks::{OperationLocks, Owner};
use crate::room::Room;
use crate::shard_operation::{
    Answered, EvaluateParts, Findings, MakePlan, RECORDS_TICKET, RunParts, ShardPayload, SharedOperation, Write,
    is_outdated,
};
use braid_base::{
    Backoff, FileSystemId, Generation, InodeId, Membership, NodeId, Now, Rng, ShardId, Time, Timers, TransactionId,
};
use braid_commit::{Commits, Event, Grouping, Protocol, RecordKind, Timing, Transaction, TransactionName};
use braid_machine::Ignored;
use braid_namespace::Context;
use braid_namespace::parts::{Lock, locks_of};
use braid_namespace::plan::{Known, Plan, locks_of_command, needs_plan};
use braid_objects::{Found, Procedure};
use braid_store::{OnBehalf, Storage, Store};
use braid_wire::{
    CoordinatorParts, FileAttributes, FileCommand, FileError, FileReply, ShardBody, ShardParts, ShardQuestion,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// The most commands, and questions of other servers, under way.
const COMMANDS_MAX: usize = 8192;
/// Bytes of a part of an operation, and of a request, without names.
const PART_BYTES: usize = 40;
/// How long locks are waited for while others are held.
const LOCKS_WITHIN: Duration = Duration::from_secs(1);
/// The first wait before a command is planned anew; it doubles, and each shard waits another time.
const AGAIN_MIN: Duration = Duration::from_millis(5);
const AGAIN_MAX: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
pub(crate) struct Shards {
    pub own: ShardId,
    /// The names of the metadata servers, by shard.
    peers: Vec<FileSystemId>,
    settings: ShardSettings,
    locks: OperationLocks,
    commits: Commits<ShardPayload>,
    commands: BTreeMap<TransactionId, Command>,
    groups: Groups,
    /// What other servers want done, until it is evaluated.
    evaluations: BTreeMap<TransactionName, Evaluating>,
    asking: Asking,
    /// The highest number that was chosen for a new inode.
    made: u64,
    timers: Timers<ShardTimer>,
}

/// What the server is to do.
#[derive(Debug)]
pub(crate) enum ShardAction {
    /// Evaluate this, which changes nothing: [`Shards::on_looked`] gets what it finds. If `is_durable`, not before that is durable.
    Look { ticket: u64, procedure: Box<dyn Procedure>, is_durable: bool },
    /// Execute a command of a host, and answer it.
    Run { name: TransactionId, settled: u64, procedure: Box<dyn Procedure> },
    /// Write this, and keep these answers with it. [`Event::Logged`] follows. These inodes lose names by it.
    Log { transaction: TransactionName, kind: RecordKind, lost: Vec<InodeId>, on_behalf: Vec<OnBehalf>, write: Write },
    /// Answer a host.
    Answer { name: TransactionId, reply: FileReply },
    /// Send this to another server.
    Send { to: ShardId, body: ShardBody },
    /// Serve: all records are read. The shard has received these transfers of free blocks.
    Serve { received: Vec<u64> },
    /// Never serve: a record is damaged.
    Refuse,
    /// Note that a message was ignored.
    Ignore(Ignored),
}

/// What the parts of a server see of it.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub store: &'a Store,
    /// The latest membership that was heard.
    pub membership: Option<&'a Membership>,
}

/// One input of the shards: what they see, and what the server is to do.
pub(crate) struct Ctx<'a> {
    pub now: Now,
    pub facts: Facts<'a>,
    pub actions: Vec<ShardAction>,
}

/// What a running server follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardSettings {
    pub protocol: Protocol,
    /// No further commands of hosts are begun.
    pub quiesces: bool,
}

/// A command of a host.
#[derive(Clone, Debug)]
struct Command {
    settled: u64,
    command: FileCommand,
    known: Known,
    stage: Stage,
    /// The request to the store whose answer counts.
    ticket: u64,
    again: Backoff,
}

#[derive(Clone, Debug)]
enum Stage {
    /// It waits for the locks of its names.
    AwaitsNames,
    Planning,
    /// It waits for locks of inodes.
    AwaitsInodes(Plan),
    /// Its own parts are being evaluated.
    Evaluating(ShardParts, Vec<(ShardId, ShardParts)>),
    /// Another server is asked.
    Asking(Want),
    /// It waits until it becomes a part of a transaction with this worker.
    Ready(ShardId, Box<SharedOperation>),
    Transaction,
    /// It is planned anew after a while.
    Paused,
}

/// A request to another server, for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// The inode that is the answer.
    Answer,
    /// The inode that has the new name.
    Target,
    /// How often directories were moved.
    Moves { moved: InodeId },
    /// The parent of a directory. `levels` are left.
    Parent { moved: InodeId, moves: u64, levels: usize },
}

/// Requests of a transaction of another server.
#[derive(Clone, Debug)]
struct Evaluating {
    /// The parts of each operation.
    operations: Vec<ShardParts>,
    /// The request to the store whose answer counts.
    ticket: Option<u64>,
}

/// Questions to other servers, and to the store, and those of other servers.
#[derive(Clone, Debug)]
struct Asking {
    /// The start of this server.
    start: Generation,
    /// The waits before a question is sent again.
    resend: Backoff,
    /// Those of other servers that wait for locks.
    received: BTreeMap<(ShardId, Generation, u64), ShardQuestion>,
    last: u64,
    questions: BTreeMap<u64, Question>,
    tickets: BTreeMap<u64, Ticket>,
}

#[derive(Clone, Debug)]
struct Question {
    command: TransactionId,
    to: ShardId,
    question: ShardQuestion,
    resend: Backoff,
}

/// What the store is asked for.
#[derive(Clone, Debug)]
enum Ticket {
    /// The plan of a command of a host.
    Plan(TransactionId),
    /// What the part of this server in a command finds.
    Own(TransactionId),
    /// `is_durable`: what the answer shows is durable.
    Worker { name: TransactionName, is_durable: bool },
    /// The answer to a question of another server.
    Question { from: ShardId, start: Generation, number: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ShardTimer {
    Resend(u64),
    Again(TransactionId),
    /// A command that has locks waits for more, or for the answer of another server.
    Wait(TransactionId),
    Locks(TransactionName),
}

/// How a command of this shard alone ends.
enum Ending {
    /// The store executes it, as with one shard.
    Execute,
    /// The store executes these parts.
    Parts(ShardParts),
    /// It changes nothing here. The answer waits until everything that it may show is durable.
    Reply(FileReply),
}

impl Evaluating {
    /// Each operation is refused.
    fn refused(&self, error: FileError) -> Findings {
        self.operations.iter().map(|_| Err(error)).collect()
    }
}

impl Facts<'_> {
    /// True if the server refuses this host for good.
    pub fn is_fenced(&self, host: Generation) -> bool {
        [self.membership, self.store.membership()].into_iter().flatten().any(|known| known.fence.refuses(host))
    }

    /// The room in the metadata volume.
    pub fn room(&self) -> Room {
        Room::of(self.store.blocks(), self.store.free_index_blocks())
    }
}

impl Ctx<'_> {
    /// True if the store knows a command, or is about to.
    fn knows(&self, name: TransactionId) -> bool {
        let keeps = |action: &ShardAction| match action {
            ShardAction::Log { on_behalf, .. } => on_behalf.iter().any(|kept| kept.name == name),
            _ => false,
        };
        self.facts.store.knows(name) || self.actions.iter().any(keeps)
    }

    /// Executes a command as with one shard.
    fn execute(&mut self, name: TransactionId, settled: u64, command: FileCommand) {
        let is_nearly_full = self.facts.room().refuses(&command);
        let procedure = Box::new(Operation::of_host(name.host, command, self.now.clock, is_nearly_full));
        self.actions.push(ShardAction::Run { name, settled, procedure });
    }

    fn answer(&mut self, name: TransactionId, reply: FileReply) {
        self.actions.push(ShardAction::Answer { name, reply });
    }

    fn ignore(&mut self, why: Ignored) {
        self.actions.push(ShardAction::Ignore(why));
    }
}

impl Shards {
    /// `start`: that of this server. `resend`: the waits before a question is sent again.
    pub fn new(
        own: ShardId,
        peers: Vec<FileSystemId>,
        (protocol, grouping): (Protocol, Grouping),
        start: Generation,
        resend: Backoff,
    ) -> Shards {
        let (received, questions, tickets) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Shards {
            own,
            peers,
            settings: ShardSettings { protocol, quiesces: false },
            locks: OperationLocks::default(),
            commits: Commits::new(own, Timing::default()),
            commands: BTreeMap::new(),
            groups: Groups::new(grouping),
            evaluations: BTreeMap::new(),
            asking: Asking { start, resend, received, last: 0, questions, tickets },
            made: 0,
            timers: Timers::default(),
        }
    }

    fn has_peers(&self) -> bool {
        self.peers.len() > 1
    }

    /// Follows the settings of operations on several shards, if there are several.
    pub fn follow(&mut self, settings: ShardSettings) {
        if self.has_peers() {
            self.settings = settings;
        }
    }

    pub fn deadline(&self) -> Option<Time> {
        let timers = self.timers.next().map(|(time, _)| time);
        [timers, self.commits.deadline()].into_iter().flatten().min()
    }

    /// True if no command is begun any more.
    pub fn quiesces(&self) -> bool {
        self.settings.quiesces
    }

    /// True if no command is begun or under way, and no transaction is undecided.
    pub fn is_quiescent(&self) -> bool {
        self.quiesces() && self.commands.is_empty() && self.evaluations.is_empty() && self.commits.state().is_quiet()
    }

    /// How many transactions this shard has begun so far.
    pub fn transactions(&self) -> u64 {
        self.commits.state().sizes().0
    }

    /// True if a command of this host is under way, or its transaction.
    pub fn works_for(&self, host: Generation) -> bool {
        self.commands.keys().any(|name| name.host == host) || self.commits_for(host)
    }

    /// The server of a shard.
    pub fn peer(&self, shard: ShardId) -> Option<NodeId> {
        self.peers.get(usize::from(shard.0)).map(|name| NodeId::MetadataServer(*name))
    }

    /// Asks the store. Of its requests for a command, or for a transaction of another server, only the last one counts.
    fn read_map(&mut self, ticket: Ticket, procedure: impl Procedure + 'static, cx: &mut Ctx) {
        self.asking.last += 1;
        let number = self.asking.last;
        match &ticket {
            Ticket::Plan(name) | Ticket::Own(name) => {
                self.commands.get_mut(name).expect("it is under way").ticket = number;
            }
            Ticket::Worker { name, .. } => {
                self.evaluations.get_mut(name).expect("it is to be evaluated").ticket = Some(number);
            }
            Ticket::Question { .. } => {}
        }
        let is_durable = matches!(ticket, Ticket::Worker { is_durable: true, .. } | Ticket::Question { .. });
        self.asking.tickets.insert(number, ticket);
        cx.actions.push(ShardAction::Look { ticket: number, procedure: Box::new(procedure), is_durable });
    }

    /// The operation of a command that still waits for a transaction with this worker.
    fn take_ready(&mut self, worker: ShardId, name: TransactionId) -> Option<SharedOperation> {
        let begun = self.commands.get_mut(&name)?;
        match std::mem::replace(&mut begun.stage, Stage::Transaction) {
            Stage::Ready(of, operation) if of == worker => Some(*operation),
            stage => {
                begun.stage = stage;
                None
            }
        }
    }

    /// Whether the answer to this request counts: for nobody, or it was asked again meanwhile.
    fn counts(&self, ticket: &Ticket, number: u64) -> bool {
        match ticket {
            Ticket::Plan(name) | Ticket::Own(name) => {
                self.commands.get(name).is_some_and(|begun| begun.ticket == number)
            }
            Ticket::Worker { name, .. } => self.evaluations.get(name).is_some_and(|it| it.ticket == Some(number)),
            Ticket::Question { .. } => true,
        }
    }

    pub fn invariants(&self) {
        self.locks.invariants();
        self.commits.invariants();
        assert!(self.commands.len() <= COMMANDS_MAX, "commands are bounded");
    }

    pub fn begin(&mut self, name: TransactionId, settled: u64, command: FileCommand, cx: &mut Ctx) {
        let locks = if self.has_peers() { locks_of_command(&command) } else { Vec::new() };
        if locks.is_empty() || cx.knows(name) {
            return cx.execute(name, settled, command);
        }
        if self.commands.contains_key(&name) {
            return cx.ignore(Ignored::NotAwaited);
        }
        if command.inode().is_some_and(|inode| inode.shard() != self.own) {
            return cx.answer(name, Err(FileError::Malformed));
        }
        if self.commands.len() >= COMMANDS_MAX {
            return cx.answer(name, Err(FileError::Busy));
        }
        let again = Backoff::new(AGAIN_MIN * u32::from(self.own.0 + 1), AGAIN_MAX);
        let (known, stage) = (Known::default(), Stage::AwaitsNames);
        self.commands.insert(name, Command { settled, command, known, stage, ticket: 0, again });
        self.acquire(Owner::Command(name), locks, cx);
    }

    /// Requests locks. True if they are granted at once.
    fn acquire(&mut self, owner: Owner, locks: Vec<Lock>, cx: &mut Ctx) -> bool {
        let is_granted = self.locks.acquire(owner, locks);
        if is_granted {
            self.on_locked(owner, cx);
        }
        is_granted
    }

    fn on_locked(&mut self, owner: Owner, cx: &mut Ctx) {
        match owner {
            Owner::Command(name) => self.advance(name, cx),
            Owner::Transaction(name) => {
                self.timers.cancel(ShardTimer::Locks(name));
                if self.evaluations.contains_key(&name) {
                    self.evaluate_for(name, false, cx);
                }
            }
            Owner::Question(from, start, number) => self.answer_question((from, start, number), cx),
        }
    }

    /// A command has the locks that it has waited for.
    fn advance(&mut self, name: TransactionId, cx: &mut Ctx) {
        let Some(begun) = self.commands.get_mut(&name) else { return };
        match std::mem::replace(&mut begun.stage, Stage::Planning) {
            // A copy may have waited for the locks of a transaction that was found after a restart.
            Stage::AwaitsNames if !needs_plan(&begun.command) || cx.knows(name) => {
                self.finish(name, Ending::Execute, cx);
            }
            Stage::AwaitsNames => self.make_plan(name, cx),
            Stage::AwaitsInodes(Plan::Local { .. }) => self.finish(name, Ending::Execute, cx),
            Stage::AwaitsInodes(Plan::Parts { own, others }) => {
                begun.stage = Stage::Evaluating(own.clone(), others);
                let is_nearly_full = cx.facts.room().refuses_names();
                self.read_map(Ticket::Own(name), EvaluateParts { operations: vec![own], is_nearly_full }, cx);
            }
            stage => begun.stage = stage,
        }
    }

    fn make_plan(&mut self, name: TransactionId, cx: &mut Ctx) {
        let is_nearly_full = cx.facts.room().refuses_names();
        let context = Context { host: name.host, now: time_of(cx.now.clock), is_nearly_full };
        let begun = self.commands.get_mut(&name).expect("it is under way");
        begun.stage = Stage::Planning;
        let plan = MakePlan { command: begun.command.clone(), known: begun.known.clone(), context };
        self.read_map(Ticket::Plan(name), plan, cx);
    }

    /// The store has an answer to one of this part's requests.
    pub fn on_looked(&mut self, number: u64, found: Option<Found>, cx: &mut Ctx) {
        if number == RECORDS_TICKET {
            return self.on_records(found.and_then(Found::take), cx);
        }
        let Some(ticket) = self.asking.tickets.remove(&number).filter(|ticket| self.counts(ticket, number)) else {
            return;
        };
        match (ticket, found) {
            (Ticket::Question { from, start, number }, Some(found)) => {
                self.reply((from, start, number), found.take(), cx);
            }
            // It was not executed: the other server asks again.
            (Ticket::Question { .. }, None) => {}
            (Ticket::Plan(name), Some(found)) => self.on_plan(name, found.take(), cx),
            (Ticket::Own(name), Some(found)) => {
                let finding = found.take::<Findings>().pop().expect("the command has one finding");
                self.on_own_parts(name, finding, cx);
            }
            // There was no room: the host sends the command again.
            (Ticket::Plan(name) | Ticket::Own(name), None) => self.end_command(name, cx),
            (Ticket::Worker { name, is_durable }, found) => {
                let refused = || self.evaluations[&name].refused(FileError::Busy);
                let findings = found.map_or_else(refused, Found::take);
                if !is_durable && findings.iter().any(Result::is_err) {
                    // The other server passes on the reason, which must not be undone by a crash.
                    self.evaluate_for(name, true, cx);
                } else {
                    self.on_worker_parts(name, findings, cx);
                }
            }
        }
    }

    fn on_plan(&mut self, name: TransactionId, plan: Result<Plan, FileError>, cx: &mut Ctx) {
        let Some(begun) = self.commands.get_mut(&name) else { return };
        match plan {
            Ok(Plan::Local { inodes }) => {
                begun.stage = Stage::AwaitsInodes(Plan::Local { inodes: inodes.clone() });
                let locks = match begun.command {
                    // These only read the inode, and the store evaluates in order.
                    FileCommand::Lookup { .. } | FileCommand::Create { .. } => {
                        let is_changed = |inode: &InodeId| self.locks.is_changed_from_elsewhere(self.own, *inode);
                        inodes.into_iter().filter(is_changed).map(Lock::Read).collect()
                    }
                    _ => inodes.into_iter().map(Lock::Inode).collect(),
                };
                self.lock_inodes(name, locks, cx);
            }
            Ok(Plan::Parts { own, others }) => {
                let locks = locks_of(&own);
                begun.stage = Stage::AwaitsInodes(Plan::Parts { own, others });
                self.lock_inodes(name, locks, cx);
            }
            Ok(Plan::Elsewhere { inode }) => {
                self.ask(name, Want::Answer, inode.shard(), ShardQuestion::Inode { inode }, cx);
            }
            Ok(Plan::NeedsName { parent, name: entry }) => {
                let question = ShardQuestion::Name { parent, name: entry };
                self.ask(name, Want::Target, parent.shard(), question, cx);
            }
            Ok(Plan::NeedsWay { moved }) => {
                self.ask(name, Want::Moves { moved }, ShardId::FIRST, ShardQuestion::Moves, cx);
            }
            Err(error) => self.refuse(name, error, cx),
        }
    }

    fn lock_inodes(&mut self, name: TransactionId, locks: Vec<Lock>, cx: &mut Ctx) {
        if !self.acquire(Owner::Command(name), locks, cx) {
            self.timers.set(ShardTimer::Wait(name), cx.now.time.after(LOCKS_WITHIN));
        }
    }

    /// The own parts of a command are evaluated: begins the transaction.
    fn on_own_parts(&mut self, name: TransactionId, finding: Result<Vec<FileAttributes>, FileError>, cx: &mut Ctx) {
        let Some(begun) = self.commands.get_mut(&name) else { return };
        let Stage::Evaluating(own, others) = std::mem::replace(&mut begun.stage, Stage::Transaction) else {
            unreachable!("its parts were being evaluated");
        };
        let inodes = match finding {
            Ok(inodes) => inodes,
            Err(error) if is_outdated(&begun.command, error) => return self.pause(name, cx),
            Err(error) => return self.refuse(name, error, cx),
        };
        if others.is_empty() {
            return self.finish(name, Ending::Parts(own), cx);
        }
        let command = begun.command.clone();
        let workers: Vec<ShardId> = others.iter().map(|(shard, _)| *shard).collect();
        let own = CoordinatorParts { host: name.host, sequence: name.sequence, command, own, inodes };
        let requests = others.into_iter().map(|(_, parts)| Ok(parts)).collect();
        let operation = SharedOperation { own, requests };
        if let ([worker], true) = (&workers[..], self.groups.are_operations()) {
            let (worker, bytes) = (*worker, bytes_of(&operation));
            self.commands.get_mut(&name).expect("it is under way").stage = Stage::Ready(worker, Box::new(operation));
            self.groups.add(worker, name, bytes);
            return self.begin_groups(cx);
        }
        self.begin_transaction(workers, vec![(name, operation)], cx);
    }

    /// Begins a transaction with each worker that has none, of the operations that wait for it.
    fn begin_groups(&mut self, cx: &mut Ctx) {
        while let Some((worker, names)) = self.groups.next() {
            let taken = names.into_iter().filter_map(|name| Some((name, self.take_ready(worker, name)?)));
            let operations: Vec<_> = taken.collect();
            if !operations.is_empty() {
                self.begin_transaction(vec![worker], operations, cx);
            }
        }
    }

    fn begin_transaction(
        &mut self,
        workers: Vec<ShardId>,
        operations: Vec<(TransactionId, SharedOperation)>,
        cx: &mut Ctx,
    ) {
        if self.commits.is_busy() {
            return operations.into_iter().for_each(|(name, _)| self.pause(name, cx));
        }
        let protocol = self.settings.protocol.with_workers(workers.len());
        let (names, operations): (Vec<TransactionId>, Vec<_>) = operations.into_iter().unzip();
        let worker = workers[0];
        let transaction = Transaction { protocol, workers, operations };
        let mut steps = Vec::new();
        let begun = self.commits.begin(cx.now.time, transaction, &mut steps).expect("it is not busy");
        for name in names {
            self.commands.get_mut(&name).expect("it is under way").stage = Stage::Transaction;
            self.locks.pass(Owner::Command(name), Owner::Transaction(begun));
        }
        self.groups.begin(worker, begun);
        self.do_steps(steps, cx);
    }

    /// Plans a command anew after a while.
    fn pause(&mut self, name: TransactionId, cx: &mut Ctx) {
        if cx.facts.is_fenced(name.host) {
            // Nothing more of this host is executed.
            return self.end_command(name, cx);
        }
        let Some(begun) = self.commands.get_mut(&name) else { return };
        (begun.stage, begun.known) = (Stage::Paused, Known::default());
        // Random: commands that were waiting for each other, and pause at the same moment, must not meet again.
        let rng = &mut Rng::new((u64::from(name.host.0) << 40) ^ name.sequence ^ cx.now.time.0);
        let wait = begun.again.next_random_wait(AGAIN_MIN, rng);
        self.timers.set(ShardTimer::Again(name), cx.now.time.after(wait));
        self.asking.questions.retain(|_, question| question.command != name);
        self.release(Owner::Command(name), cx);
    }

    /// The store has the command: this part needs it no more.
    fn finish(&mut self, name: TransactionId, ending: Ending, cx: &mut Ctx) {
        let Some(Command { settled, command, .. }) = self.commands.remove(&name) else { return };
        let procedure: Box<dyn Procedure> = match ending {
            Ending::Execute => {
                cx.execute(name, settled, command);
                return self.end_command(name, cx);
            }
            Ending::Parts(parts) => {
                Box::new(RunParts { command, parts, is_nearly_full: cx.facts.room().refuses_names() })
            }
            Ending::Reply(reply) => Box::new(Answered { reply, only_asks: command.only_asks() }),
        };
        cx.actions.push(ShardAction::Run { name, settled, procedure });
        self.end_command(name, cx);
    }

    fn refuse(&mut self, name: TransactionId, error: FileError, cx: &mut Ctx) {
        self.finish(name, Ending::Reply(Err(error)), cx);
    }

    /// A command needs this part no more.
    fn end_command(&mut self, name: TransactionId, cx: &mut Ctx) {
        self.commands.remove(&name);
        self.timers.cancel(ShardTimer::Again(name));
        self.asking.questions.retain(|_, question| question.command != name);
        self.release(Owner::Command(name), cx);
    }

    fn release(&mut self, owner: Owner, cx: &mut Ctx) {
        let granted = self.locks.release(owner);
        for owner in granted {
            self.on_locked(owner, cx);
        }
    }

    /// Ends the commands of fenced hosts, unless they are being committed.
    pub fn end_fenced(&mut self, cx: &mut Ctx) {
        let is_over = |(name, begun): &(&TransactionId, &Command)| {
            cx.facts.is_fenced(name.host) && !matches!(begun.stage, Stage::Transaction)
        };
        let over: Vec<TransactionId> = self.commands.iter().filter(is_over).map(|(name, _)| *name).collect();
        over.into_iter().for_each(|name| self.end_command(name, cx));
    }

    /// The locks for the parts of another server's transaction are granted.
    fn evaluate_for(&mut self, name: TransactionName, is_durable: bool, cx: &mut Ctx) {
        let operations = self.evaluations[&name].operations.clone();
        let evaluation = EvaluateParts { operations, is_nearly_full: cx.facts.room().refuses_names() };
        self.read_map(Ticket::Worker { name, is_durable }, evaluation, cx);
    }

    /// Handles all timers that are due.
    pub fn wake(&mut self, cx: &mut Ctx) {
        while let Some(timer) = self.timers.pop_due(cx.now.time) {
            match timer {
                ShardTimer::Resend(number) => self.send_question(number, cx),
                ShardTimer::Again(name) => {
                    let Some(begun) = self.commands.get_mut(&name) else { continue };
                    begun.stage = Stage::AwaitsNames;
                    let locks = locks_of_command(&begun.command);
                    self.acquire(Owner::Command(name), locks, cx);
                }
                ShardTimer::Wait(name) => {
                    let is_waiting = match self.commands.get(&name).map(|begun| &begun.stage) {
                        Some(Stage::AwaitsInodes(_)) => self.locks.is_waiting(Owner::Command(name)),
                        Some(Stage::Asking(_)) => true,
                        _ => false,
                    };
                    if is_waiting {
                        self.pause(name, cx);
                    }
                }
                ShardTimer::Locks(name) => self.refuse_for_lack_of_locks(name, cx),
            }
        }
        if self.commits.deadline().is_some_and(|deadline| deadline <= cx.now.time) {
            self.step(Event::Wake, cx);
        }
    }
}

/// About as many bytes as an operation has in a record.
fn bytes_of(SharedOperation { own, requests }: &SharedOperation) -> usize {
    let asked = requests.iter().flatten().map(|request| request.parts.len()).sum::<usize>();
    let parts = PART_BYTES * (1 + own.own.parts.len() + asked);
    parts + size_of_val(&own.inodes[..]) + 2 * own.command.memory_bytes()
}
