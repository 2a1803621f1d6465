//! Operations on several shards: the part of a metadata server that makes plans of commands, asks other servers, and runs the commit
//! protocols ([`braid_commit`]). A file system with one shard has none of this.
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
//! their locks before anything is served.

mod questions;

use crate::groups::Groups;
use crate::operation::Operation;
use crate::operation_locks::{OperationLocks, Owner};
use crate::server::MetadataServer;
use crate::shard_operation::{Answered, EvaluateParts, Findings, MakePlan, RunParts, is_outdated};
use braid_base::{Backoff, FileSystemId, Generation, InodeId, NodeId, Now, Rng, ShardId, Time, Timers, TransactionId};
use braid_commit::{Commits, Event, Grouping, Protocol, Timing, Transaction, TransactionName};
use braid_machine::{Effects, Ignored};
use braid_namespace::Context;
use braid_namespace::parts::{Lock, locks_of};
use braid_namespace::plan::{Known, Plan, locks_of_command, needs_plan};
use braid_objects::{Found, Procedure};
use braid_wire::{
    CoordinatorParts, FileAttributes, FileCommand, FileError, FileReply, ShardBody, ShardParts, ShardQuestion,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// The most commands, and questions of other servers, under way.
const COMMANDS_MAX: usize = 8192;
/// How long locks are waited for while others are held.
pub(crate) const LOCKS_WITHIN: Duration = Duration::from_secs(1);
/// The first wait before a command is planned anew; it doubles, and each shard waits another time.
const AGAIN_MIN: Duration = Duration::from_millis(5);
const AGAIN_MAX: Duration = Duration::from_millis(500);

/// The state.
#[derive(Clone, Debug)]
pub(crate) struct Sharded {
    pub shard: ShardId,
    /// The names of the metadata servers, by shard.
    pub peers: Vec<FileSystemId>,
    pub settings: ShardSettings,
    pub locks: OperationLocks,
    pub commits: Commits,
    pub commands: BTreeMap<TransactionId, Command>,
    pub groups: Groups,
    /// What other servers want done, until it is evaluated.
    pub evaluations: BTreeMap<TransactionName, Evaluating>,
    asking: Asking,
    /// The highest number that was chosen for a new inode.
    pub made: u64,
    pub timers: Timers<ShardTimer>,
}

/// What a running server follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardSettings {
    pub protocol: Protocol,
    /// No further commands of hosts are begun.
    pub settles: bool,
}

/// A command of a host.
#[derive(Clone, Debug)]
pub(crate) struct Command {
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
    Ready(ShardId, braid_commit::Operation),
    Transaction,
    /// It is planned anew after a while.
    Paused,
}

/// What is asked of another server for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// The inode that is the answer.
    Answer,
    /// The inode that has the new name.
    Target,
    Moves {
        moved: InodeId,
    },
    /// The parent of a directory. `levels` are left.
    Parent {
        moved: InodeId,
        moves: u64,
        levels: usize,
    },
}

/// Requests of a transaction of another server.
#[derive(Clone, Debug)]
pub(crate) struct Evaluating {
    /// The parts of each operation.
    pub operations: Vec<ShardParts>,
    /// The request to the store whose answer counts.
    pub ticket: Option<u64>,
}

/// Questions to other servers, and to the store, and those of other servers.
#[derive(Clone, Debug, Default)]
struct Asking {
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
    Plan(TransactionId),
    Own(TransactionId),
    /// `is_durable`: what the answer shows is durable.
    Worker {
        name: TransactionName,
        is_durable: bool,
    },
    Question {
        from: ShardId,
        start: Generation,
        number: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ShardTimer {
    Resend(u64),
    Again(TransactionId),
    /// A command that has locks waits for more, or for the answer of another server.
    Wait(TransactionId),
    Locks(TransactionName),
}

impl Evaluating {
    /// Each operation is refused.
    pub fn refused(&self, error: FileError) -> Findings {
        self.operations.iter().map(|_| Err(error)).collect()
    }
}

impl Sharded {
    pub fn new(shard: ShardId, peers: Vec<FileSystemId>, protocol: Protocol, grouping: Grouping) -> Sharded {
        Sharded {
            shard,
            peers,
            settings: ShardSettings { protocol, settles: false },
            locks: OperationLocks::default(),
            commits: Commits::new(shard, Timing::default()),
            commands: BTreeMap::new(),
            groups: Groups::new(grouping),
            evaluations: BTreeMap::new(),
            asking: Asking::default(),
            made: 0,
            timers: Timers::default(),
        }
    }

    pub fn deadline(&self) -> Option<Time> {
        let timers = self.timers.next().map(|(time, _)| time);
        [timers, self.commits.deadline()].into_iter().flatten().min()
    }

    /// True if no command is begun or under way, and no transaction is undecided.
    pub fn is_settled(&self) -> bool {
        self.settings.settles
            && self.commands.is_empty()
            && self.evaluations.is_empty()
            && self.commits.state().is_quiet()
    }

    pub fn peer(&self, shard: ShardId) -> Option<NodeId> {
        self.peers.get(usize::from(shard.0)).map(|name| NodeId::MetadataServer(*name))
    }

    fn ticket(&mut self, ticket: Ticket) -> u64 {
        self.asking.last += 1;
        self.asking.tickets.insert(self.asking.last, ticket);
        self.asking.last
    }

    /// A request to the store of which only the last answer counts for a command.
    fn ticket_of(&mut self, name: TransactionId, ticket: Ticket) -> u64 {
        let ticket = self.ticket(ticket);
        self.commands.get_mut(&name).expect("it is under way").ticket = ticket;
        ticket
    }

    /// The operation of a command that still waits for a transaction with this worker.
    fn take_ready(&mut self, worker: ShardId, name: TransactionId) -> Option<braid_commit::Operation> {
        let begun = self.commands.get_mut(&name)?;
        match std::mem::replace(&mut begun.stage, Stage::Transaction) {
            Stage::Ready(of, operation) if of == worker => Some(operation),
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
}

impl MetadataServer {
    pub(crate) fn shards(&mut self) -> &mut Sharded {
        self.sharded.as_mut().expect("the file system has several shards")
    }

    /// Begins a command of a host.
    pub(crate) fn begin_command(
        &mut self,
        now: Now,
        name: TransactionId,
        settled: u64,
        command: FileCommand,
        out: &mut Effects,
    ) {
        if self.shards().settings.settles {
            return out.ignore(Ignored::NotStarted);
        }
        if let FileCommand::Reserve { blocks } = command
            && command.check().is_ok()
            && !self.store.knows(name)
        {
            return self.step_space(now, |space, actions| space.reserve(name, settled, blocks, actions), out);
        }
        let locks = locks_of_command(&command);
        if locks.is_empty() || self.store.knows(name) {
            return self.execute(now, name, settled, command, out);
        }
        if self.shards().commands.contains_key(&name) {
            return out.ignore(Ignored::NotAwaited);
        }
        let is_elsewhere = command.inode().is_some_and(|inode| inode.shard() != self.shards().shard);
        if is_elsewhere {
            return self.answer(now, name.host, name.sequence, Err(FileError::Malformed), out);
        }
        if self.shards().commands.len() >= COMMANDS_MAX {
            return self.answer(now, name.host, name.sequence, Err(FileError::Busy), out);
        }
        let again = Backoff::new(AGAIN_MIN * u32::from(self.shards().shard.0 + 1), AGAIN_MAX);
        let known = Known::default();
        let begun = Command { settled, command, known, stage: Stage::AwaitsNames, ticket: 0, again };
        self.shards().commands.insert(name, begun);
        if self.shards().locks.acquire(Owner::Command(name), locks) {
            self.on_locked(now, Owner::Command(name), out);
        }
    }

    /// Locks are granted.
    fn on_locked(&mut self, now: Now, owner: Owner, out: &mut Effects) {
        match owner {
            Owner::Command(name) => self.go_on_with(now, name, out),
            Owner::Transaction(name) => {
                self.shards().timers.cancel(ShardTimer::Locks(name));
                if self.shards().evaluations.contains_key(&name) {
                    self.evaluate_for(now, name, false, out);
                }
            }
            Owner::Question(from, start, number) => self.answer_question(now, (from, start, number), out),
        }
    }

    fn go_on_with(&mut self, now: Now, name: TransactionId, out: &mut Effects) {
        // A copy may have waited for the locks of a transaction that was found after a restart.
        let is_known = self.store.knows(name);
        let Some(begun) = self.shards().commands.get_mut(&name) else { return };
        match std::mem::replace(&mut begun.stage, Stage::Planning) {
            Stage::AwaitsNames if is_known => self.execute_and_end(now, name, out),
            Stage::AwaitsNames if !needs_plan(&begun.command) => self.execute_and_end(now, name, out),
            Stage::AwaitsNames => self.make_plan(now, name, out),
            Stage::AwaitsInodes(Plan::Local { .. }) => self.execute_and_end(now, name, out),
            Stage::AwaitsInodes(Plan::Parts { own, others }) => {
                begun.stage = Stage::Evaluating(own.clone(), others);
                let evaluation = EvaluateParts { operations: vec![own], is_nearly_full: self.room().refuses_names() };
                let ticket = self.shards().ticket_of(name, Ticket::Own(name));
                self.glance(now, ticket, Box::new(evaluation), out);
            }
            stage => begun.stage = stage,
        }
    }

    fn make_plan(&mut self, now: Now, name: TransactionId, out: &mut Effects) {
        let is_nearly_full = self.room().refuses_names();
        let context = Context { host: name.host, now: crate::operation::time_of(now.clock), is_nearly_full };
        let begun = self.shards().commands.get_mut(&name).expect("it is under way");
        begun.stage = Stage::Planning;
        let plan = MakePlan { command: begun.command.clone(), known: begun.known.clone(), context };
        let ticket = self.shards().ticket_of(name, Ticket::Plan(name));
        self.glance(now, ticket, Box::new(plan), out);
    }

    fn glance(&mut self, now: Now, ticket: u64, procedure: Box<dyn Procedure>, out: &mut Effects) {
        self.with_store(now, out, |store, out| store.glance(now, ticket, procedure, out));
    }

    /// The store has an answer to one of this part's requests.
    pub(crate) fn on_looked(&mut self, now: Now, ticket: u64, found: Option<Found>, out: &mut Effects) {
        let number = ticket;
        let Some(ticket) = self.shards().asking.tickets.remove(&number) else { return };
        if let Ticket::Question { from, start, number } = ticket {
            // Without a reply it was not executed: the other server asks again.
            if let Some(reply) = found.map(Found::take) {
                self.reply_to(now, from, ShardBody::ReadAnswer { start, number, reply }, out);
            }
            return;
        }
        if !self.shards().counts(&ticket, number) {
            return;
        }
        match (ticket, found) {
            (Ticket::Plan(name), Some(found)) => self.on_plan(now, name, found.take(), out),
            (Ticket::Own(name), Some(found)) => {
                let finding = found.take::<Findings>().pop().expect("the command has one finding");
                self.on_own_parts(now, name, finding, out);
            }
            // There was no room: the host sends the command again.
            (Ticket::Plan(name) | Ticket::Own(name), None) => self.end_command(now, name, out),
            (Ticket::Worker { name, is_durable }, found) => {
                let evaluating = self.shards().evaluations.get(&name).expect("its evaluation counts");
                let findings = found.map_or_else(|| evaluating.refused(FileError::Busy), Found::take);
                if !is_durable && findings.iter().any(Result::is_err) {
                    // The other server passes on the reason, which must not be undone by a crash.
                    self.evaluate_for(now, name, true, out);
                } else {
                    self.on_worker_parts(now, name, findings, out);
                }
            }
            (Ticket::Question { .. }, _) => unreachable!("handled above"),
        }
    }

    fn on_plan(&mut self, now: Now, name: TransactionId, plan: Result<Plan, FileError>, out: &mut Effects) {
        let Some(begun) = self.shards().commands.get_mut(&name) else { return };
        match plan {
            Ok(Plan::Local { inodes }) => {
                begun.stage = Stage::AwaitsInodes(Plan::Local { inodes: inodes.clone() });
                let locks = match begun.command {
                    // These only read the inode, and the store evaluates in order.
                    FileCommand::Lookup { .. } | FileCommand::Create { .. } => {
                        let sharded = self.shards();
                        let is_changed =
                            |inode: &InodeId| sharded.locks.is_changed_from_elsewhere(sharded.shard, *inode);
                        inodes.into_iter().filter(is_changed).map(Lock::Read).collect()
                    }
                    _ => inodes.into_iter().map(Lock::Inode).collect(),
                };
                self.lock_inodes(now, name, locks, out);
            }
            Ok(Plan::Parts { own, others }) => {
                let locks = locks_of(&own);
                begun.stage = Stage::AwaitsInodes(Plan::Parts { own, others });
                self.lock_inodes(now, name, locks, out);
            }
            Ok(Plan::Elsewhere { inode }) => {
                self.ask(now, name, Want::Answer, inode.shard(), ShardQuestion::Inode { inode }, out);
            }
            Ok(Plan::NeedsName { parent, name: entry }) => {
                let question = ShardQuestion::Name { parent, name: entry };
                self.ask(now, name, Want::Target, parent.shard(), question, out);
            }
            Ok(Plan::NeedsWay { moved }) => {
                self.ask(now, name, Want::Moves { moved }, ShardId::FIRST, ShardQuestion::Moves, out);
            }
            Err(error) => self.end_with(now, name, Err(error), out),
        }
    }

    fn lock_inodes(&mut self, now: Now, name: TransactionId, locks: Vec<Lock>, out: &mut Effects) {
        if self.shards().locks.acquire(Owner::Command(name), locks) {
            self.go_on_with(now, name, out);
        } else {
            self.shards().timers.set(ShardTimer::Wait(name), now.time.after(LOCKS_WITHIN));
        }
    }

    /// The own parts of a command are evaluated: begins the transaction.
    fn on_own_parts(
        &mut self,
        now: Now,
        name: TransactionId,
        finding: Result<Vec<FileAttributes>, FileError>,
        out: &mut Effects,
    ) {
        let Some(begun) = self.shards().commands.get_mut(&name) else { return };
        let Stage::Evaluating(own, others) = std::mem::replace(&mut begun.stage, Stage::Transaction) else {
            unreachable!("its parts were being evaluated");
        };
        let inodes = match finding {
            Ok(inodes) => inodes,
            Err(error) if is_outdated(&begun.command, error) => return self.pause(now, name, out),
            Err(error) => return self.end_with(now, name, Err(error), out),
        };
        let command = begun.command.clone();
        if others.is_empty() {
            let is_nearly_full = self.room().refuses_names();
            let run = RunParts { command, parts: own, is_nearly_full };
            return self.run_and_end(now, name, Box::new(run), out);
        }
        let workers: Vec<ShardId> = others.iter().map(|(shard, _)| *shard).collect();
        let own = CoordinatorParts { host: name.host, sequence: name.sequence, command, own, inodes };
        let requests = others.iter().map(|(_, parts)| parts.encode()).collect();
        let operation = braid_commit::Operation { own: own.encode(), requests };
        if let ([worker], true) = (&workers[..], self.shards().groups.are_operations()) {
            let (worker, bytes) = (*worker, bytes_of(&operation));
            self.shards().commands.get_mut(&name).expect("it is under way").stage = Stage::Ready(worker, operation);
            self.shards().groups.add(worker, name, bytes);
            return self.begin_groups(now, out);
        }
        self.begin_transaction(now, workers, vec![(name, operation)], out);
    }

    /// Begins a transaction with each worker that has none, of the operations that wait for it.
    pub(crate) fn begin_groups(&mut self, now: Now, out: &mut Effects) {
        while let Some((worker, names)) = self.shards().groups.next() {
            let sharded = self.shards();
            let taken = names.into_iter().filter_map(|name| Some((name, sharded.take_ready(worker, name)?)));
            let operations: Vec<_> = taken.collect();
            if !operations.is_empty() {
                self.begin_transaction(now, vec![worker], operations, out);
            }
        }
    }

    fn begin_transaction(
        &mut self,
        now: Now,
        workers: Vec<ShardId>,
        operations: Vec<(TransactionId, braid_commit::Operation)>,
        out: &mut Effects,
    ) {
        if self.shards().commits.is_busy() {
            return operations.into_iter().for_each(|(name, _)| self.pause(now, name, out));
        }
        let sharded = self.shards();
        let protocol = sharded.settings.protocol.with_workers(workers.len());
        let (names, operations): (Vec<TransactionId>, Vec<_>) = operations.into_iter().unzip();
        let worker = workers[0];
        let transaction = Transaction { protocol, workers, operations };
        let mut steps = Vec::new();
        let begun = sharded.commits.begin(now.time, transaction, &mut steps).expect("it is not busy");
        for name in names {
            sharded.commands.get_mut(&name).expect("it is under way").stage = Stage::Transaction;
            sharded.locks.pass(Owner::Command(name), Owner::Transaction(begun));
        }
        sharded.groups.begin(worker, begun);
        self.do_steps(now, steps, out);
    }

    /// Plans a command anew after a while.
    pub(crate) fn pause(&mut self, now: Now, name: TransactionId, out: &mut Effects) {
        if self.is_fenced(name.host) {
            // Nothing more of this host is executed.
            return self.end_command(now, name, out);
        }
        let Some(begun) = self.shards().commands.get_mut(&name) else { return };
        (begun.stage, begun.known) = (Stage::Paused, Known::default());
        // Random: commands that were waiting for each other, and pause at the same moment, must not meet again.
        let rng = &mut Rng::new((u64::from(name.host.0) << 40) ^ name.sequence ^ now.time.0);
        let wait = begun.again.next_random_wait(AGAIN_MIN, rng);
        self.shards().timers.set(ShardTimer::Again(name), now.time.after(wait));
        self.shards().asking.questions.retain(|_, question| question.command != name);
        self.release(now, Owner::Command(name), out);
    }

    /// Executes a command as with one shard.
    fn execute(&mut self, now: Now, name: TransactionId, settled: u64, command: FileCommand, out: &mut Effects) {
        let is_nearly_full = self.room().refuses(&command);
        let operation = Operation::of_host(name.host, command, now.clock, is_nearly_full);
        if !self.run(now, name, settled, Box::new(operation), out) {
            out.ignore(Ignored::Settled);
        }
    }

    fn execute_and_end(&mut self, now: Now, name: TransactionId, out: &mut Effects) {
        let Some(begun) = self.shards().commands.get(&name) else { return };
        let (settled, command) = (begun.settled, begun.command.clone());
        self.execute(now, name, settled, command, out);
        self.end_command(now, name, out);
    }

    fn run_and_end(&mut self, now: Now, name: TransactionId, procedure: Box<dyn Procedure>, out: &mut Effects) {
        let Some(begun) = self.shards().commands.get(&name) else { return };
        let settled = begun.settled;
        if !self.run(now, name, settled, procedure, out) {
            out.ignore(Ignored::Settled);
        }
        self.end_command(now, name, out);
    }

    /// Answers a command that changes nothing here. The answer waits until everything that it may show is durable.
    fn end_with(&mut self, now: Now, name: TransactionId, reply: FileReply, out: &mut Effects) {
        let Some(begun) = self.shards().commands.get(&name) else { return };
        let only_asks = begun.command.only_asks();
        self.run_and_end(now, name, Box::new(Answered { reply, only_asks }), out);
    }

    /// A command needs this part no more.
    pub(crate) fn end_command(&mut self, now: Now, name: TransactionId, out: &mut Effects) {
        self.shards().commands.remove(&name);
        self.shards().timers.cancel(ShardTimer::Again(name));
        self.shards().asking.questions.retain(|_, question| question.command != name);
        self.release(now, Owner::Command(name), out);
    }

    pub(crate) fn release(&mut self, now: Now, owner: Owner, out: &mut Effects) {
        let granted = self.shards().locks.release(owner);
        for owner in granted {
            self.on_locked(now, owner, out);
        }
    }

    /// Ends the commands of fenced hosts, unless they are being committed.
    pub(crate) fn end_fenced_commands(&mut self, now: Now, out: &mut Effects) {
        let reserving: Vec<TransactionId> = self.own.space.names().filter(|name| self.is_fenced(name.host)).collect();
        self.own.space.end(|name| reserving.contains(&name));
        let Some(sharded) = &self.sharded else { return };
        let is_over = |(name, begun): &(&TransactionId, &Command)| {
            self.is_fenced(name.host) && !matches!(begun.stage, Stage::Transaction)
        };
        let over: Vec<TransactionId> = sharded.commands.iter().filter(is_over).map(|(name, _)| *name).collect();
        over.into_iter().for_each(|name| self.end_command(now, name, out));
    }

    /// The locks for the parts of another server's transaction are granted.
    pub(crate) fn evaluate_for(&mut self, now: Now, name: TransactionName, is_durable: bool, out: &mut Effects) {
        let is_nearly_full = self.room().refuses_names();
        let ticket = self.shards().ticket(Ticket::Worker { name, is_durable });
        let evaluating = self.shards().evaluations.get_mut(&name).expect("it is to be evaluated");
        evaluating.ticket = Some(ticket);
        let evaluation = Box::new(EvaluateParts { operations: evaluating.operations.clone(), is_nearly_full });
        match is_durable {
            true => self.with_store(now, out, |store, out| store.inspect(now, ticket, evaluation, out)),
            false => self.glance(now, ticket, evaluation, out),
        }
    }

    /// Handles all timers that are due.
    pub(crate) fn wake_shards(&mut self, now: Now, out: &mut Effects) {
        while let Some(timer) = self.shards().timers.pop_due(now.time) {
            match timer {
                ShardTimer::Resend(number) => self.send_question(now, number, out),
                ShardTimer::Again(name) => {
                    let Some(begun) = self.shards().commands.get_mut(&name) else { continue };
                    begun.stage = Stage::AwaitsNames;
                    let locks = locks_of_command(&begun.command);
                    if self.shards().locks.acquire(Owner::Command(name), locks) {
                        self.on_locked(now, Owner::Command(name), out);
                    }
                }
                ShardTimer::Wait(name) => {
                    let sharded = self.shards();
                    let is_waiting = match sharded.commands.get(&name).map(|begun| &begun.stage) {
                        Some(Stage::AwaitsInodes(_)) => sharded.locks.is_waiting(Owner::Command(name)),
                        Some(Stage::Asking(_)) => true,
                        _ => false,
                    };
                    if is_waiting {
                        self.pause(now, name, out);
                    }
                }
                ShardTimer::Locks(name) => self.refuse_for_lack_of_locks(now, name, out),
            }
        }
        if self.shards().commits.deadline().is_some_and(|deadline| deadline <= now.time) {
            self.step_commits(now, Event::Wake, out);
        }
    }
}

fn bytes_of(operation: &braid_commit::Operation) -> usize {
    operation.own.len() + operation.requests.iter().map(bytes::Bytes::len).sum::<usize>()
}
