//! Clients that create files, and the servers of directories and files. Each server has the machine of `core/commit`, a log and directories.
//!
//! ```text
//!   client ─► queue of the directory ─► lock ─► update computed ─► Commits::begin ─► … ─► Release: the next one ─► Answer: the client
//! ```
//!
//! Computing an update, and sending or receiving a message, occupies the processor of a server. Clients are at their servers: their
//! requests and answers take no time. An operation whose directory and file are on one server is one
//! record of its log. Nothing fails here, so no time-out passes.

use super::locks::{Directories, Waiting};
use super::log::{Log, Pending};
use super::parameters::{CommitParameters, Coordinators, Grouping, Placement};
use crate::hardware;
use crate::prelude::*;
use crate::tally::{CommitCounts, Latencies, Measured};
use braid_base::ShardId;
use braid_commit::{
    Body, Commits, Evaluation, Event, LogWrite, Message, Operation, Outcome, Protocol, Record, RecordKind, Step,
    Timing, Transaction, TransactionName,
};
use braid_world::EventQueue;

/// No message is lost: nothing must be sent twice, whatever the load.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// Clients and servers.
pub struct CommitSystem {
    parameters: CommitParameters,
    servers: Vec<Server>,
    /// What will happen, by time, and then in the order in which it was foreseen.
    events: EventQueue<SystemEvent>,
    now: Time,
    rng: Rng,
    operations: BTreeMap<u64, Issued>,
    counts: Counts,
}

struct Server {
    commits: Commits,
    log: Log<Logged>,
    directories: Directories,
    processor: hardware::Server,
    /// The directory that a transaction or a local operation has locked.
    locked: BTreeMap<TransactionName, u64>,
    /// Operations whose directory is locked, and that wait until fewer transactions are unfinished.
    deferred: VecDeque<(u64, Vec<Waiting>)>,
    /// Operations that its clients have not asked for yet.
    left: u64,
}

/// An operation that a client has asked for.
#[derive(Clone, Copy)]
struct Issued {
    at: Time,
    directory: u64,
}

/// What is told when a record is durable.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Logged {
    Protocol(TransactionName, RecordKind),
    /// An operation on one server.
    Local(u64),
}

enum SystemEvent {
    /// A message arrives at the processor of a server.
    Arrives { from: ShardId, to: ShardId, message: Message },
    /// The processor has received it.
    Received { from: ShardId, to: ShardId, message: Message },
    /// The first write under way at a server is durable.
    Durable { server: u8 },
    /// The coordinator's update is computed.
    Computed { server: u8, directory: u64, chosen: Vec<Waiting> },
    /// The worker's updates are computed.
    Evaluated { server: u8, transaction: TransactionName, requests: Vec<Bytes> },
}

#[derive(Default)]
struct Counts {
    events: u64,
    done: u64,
    forced: u64,
    unforced: u64,
    messages: u64,
    transactions: u64,
    latencies: Latencies,
    /// When the first operation was answered, and when its lock was released.
    first_answer: Option<Time>,
    first_release: Option<Time>,
}

/// When a single operation was answered, and when its coordinator had released the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleOperation {
    pub answered: Duration,
    pub unlocked: Duration,
}

impl CommitSystem {
    pub fn new(parameters: &CommitParameters, seed: u64) -> CommitSystem {
        let timing = Timing { resend: NEVER, patience: u32::MAX, tidy: NEVER };
        let server = |number: u64| {
            let mut commits = Commits::new(ShardId(number as u8), timing);
            commits.recover(Time(0), &mut Vec::new());
            let coordinates = number == 0 || parameters.workload.coordinators == Coordinators::Each;
            let left = if coordinates { parameters.run.operations } else { 0 };
            Server {
                commits,
                log: Log::default(),
                directories: Directories::default(),
                processor: hardware::Server::default(),
                locked: BTreeMap::new(),
                deferred: VecDeque::new(),
                left,
            }
        };
        CommitSystem {
            servers: (0..parameters.system.servers).map(server).collect(),
            parameters: parameters.clone(),
            events: EventQueue::default(),
            now: Time(0),
            rng: Rng::new(seed),
            operations: BTreeMap::new(),
            counts: Counts::default(),
        }
    }

    /// Runs until all operations are answered, and all that they have left is done.
    pub fn run(mut self) -> Measured {
        let answered = self.run_all();
        let Counts { events, done, forced, unforced, messages, transactions, latencies, .. } = self.counts;
        let per = done as f64;
        let seconds = answered.since(Time(0)).as_secs_f64();
        let totals = self.servers.iter().map(|server| server.log.totals());
        let (busy, writes) = totals.fold((Duration::ZERO, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
        let processors: Duration = self.servers.iter().map(|server| server.processor.busy(self.now)).sum();
        Measured {
            messages_per_op: messages as f64 / per,
            disk_utilization: busy.as_secs_f64() / seconds / self.servers.len() as f64,
            lock_server_utilization: processors.as_secs_f64() / seconds / self.servers.len() as f64,
            events,
            commits: Some(CommitCounts {
                forced_writes: forced as f64 / per,
                unforced_writes: unforced as f64 / per,
                log_writes: writes as f64 / per,
                // UPDATE and UPDATED are needed without a commit protocol, too.
                protocol_messages: (messages - 2 * transactions) as f64 / per,
                operations_per_transaction: if transactions == 0 { 1.0 } else { per / transactions as f64 },
                ..CommitCounts::default()
            }),
            ..latencies.measured(seconds)
        }
    }

    pub fn run_one(mut self) -> SingleOperation {
        self.run_all();
        let since = |time: Option<Time>| time.expect("the operation has ended").since(Time(0));
        SingleOperation { answered: since(self.counts.first_answer), unlocked: since(self.counts.first_release) }
    }

    /// Returns when the last operation was answered.
    fn run_all(&mut self) -> Time {
        for server in 0..self.servers.len() as u8 {
            for _ in 0..self.parameters.workload.outstanding {
                self.issue(server);
            }
        }
        let mut answered = self.now;
        let mut done = 0;
        while let Some((at, event)) = self.events.pop() {
            self.now = at;
            self.counts.events += 1;
            self.take(event);
            if self.counts.done > done {
                (answered, done) = (self.now, self.counts.done);
            }
        }
        assert!(self.servers.iter().all(|server| server.left == 0), "all operations were asked for");
        assert!(self.operations.is_empty(), "all operations are answered");
        for server in &self.servers {
            server.commits.invariants();
            assert_eq!(server.commits.state().sizes().1, 0, "all transactions are over");
        }
        answered
    }

    fn take(&mut self, event: SystemEvent) {
        match event {
            SystemEvent::Arrives { from, to, message } => {
                let at = self.process(to.0, self.parameters.processor_time());
                self.foresee(at, SystemEvent::Received { from, to, message });
            }
            SystemEvent::Received { from, to, message } => self.step(to.0, Event::Message { from, message }),
            SystemEvent::Durable { server } => {
                let log = &mut self.servers[usize::from(server)].log;
                let (records, next) = log.finish(self.now, &self.parameters);
                if let Some(at) = next {
                    self.foresee(at, SystemEvent::Durable { server });
                }
                for Pending { tag, .. } in records {
                    match tag {
                        Logged::Protocol(transaction, kind) => self.step(server, Event::Logged { transaction, kind }),
                        Logged::Local(operation) => {
                            let directory = self.operations[&operation].directory;
                            self.unlock(server, directory);
                            self.answer(server, operation);
                        }
                    }
                }
            }
            SystemEvent::Computed { server, directory, chosen } => {
                self.servers[usize::from(server)].deferred.push_back((directory, chosen));
                self.begin_deferred(server);
            }
            SystemEvent::Evaluated { server, transaction, requests } => {
                let evaluate = |request: Bytes| Evaluation::Accepted { changes: request, answer: Bytes::new() };
                let evaluations = requests.into_iter().map(evaluate).collect();
                self.step(server, Event::Evaluated { transaction, evaluations });
            }
        }
    }

    /// A client asks for its next operation, if there is one.
    fn issue(&mut self, server: u8) {
        let left = &mut self.servers[usize::from(server)].left;
        if *left == 0 {
            return;
        }
        *left -= 1;
        let operation = *left << 8 | u64::from(server);
        let directory = self.rng.below(self.parameters.workload.directories);
        let servers = self.parameters.system.servers;
        let worker = match self.parameters.system.placement {
            Placement::Other => (u64::from(server) + 1) % servers,
            Placement::Anywhere => self.rng.below(servers),
        };
        self.operations.insert(operation, Issued { at: self.now, directory });
        let waiting = Waiting { operation, worker: worker as u8 };
        self.servers[usize::from(server)].directories.add(directory, waiting);
        self.serve(server, directory);
    }

    /// Locks a directory for what waits for it, if it is free.
    fn serve(&mut self, server: u8, directory: u64) {
        let most = match self.parameters.system.grouping {
            Grouping::Operations => self.parameters.system.group_max as usize,
            Grouping::None | Grouping::Log => 1,
        };
        let chosen = self.servers[usize::from(server)].directories.lock(directory, most);
        if !chosen.is_empty() {
            let at = self.process(server, self.parameters.object_time() * chosen.len() as u32);
            self.foresee(at, SystemEvent::Computed { server, directory, chosen });
        }
    }

    fn begin_deferred(&mut self, server: u8) {
        while !self.servers[usize::from(server)].commits.is_busy() {
            let Some((directory, chosen)) = self.servers[usize::from(server)].deferred.pop_front() else { break };
            self.begin(server, directory, &chosen);
        }
    }

    fn begin(&mut self, server: u8, directory: u64, chosen: &[Waiting]) {
        let worker = chosen[0].worker;
        if worker == server {
            let bytes = self.parameters.log.record_bytes + self.parameters.log.update_bytes;
            for waiting in chosen {
                self.counts.forced += 1;
                self.log(server, Pending { bytes, forced: true, tag: Logged::Local(waiting.operation) });
            }
            return;
        }
        let operation = |waiting: &Waiting| {
            let own = Bytes::copy_from_slice(&waiting.operation.to_le_bytes());
            Operation { requests: vec![own.clone()], own }
        };
        let transaction = Transaction {
            protocol: self.parameters.system.protocol,
            workers: vec![ShardId(worker)],
            operations: chosen.iter().map(operation).collect(),
        };
        let mut steps = Vec::new();
        let this = &mut self.servers[usize::from(server)];
        let name = this.commits.begin(self.now, transaction, &mut steps).expect("few are unfinished");
        this.locked.insert(name, directory);
        self.counts.transactions += 1;
        self.perform(server, steps);
    }

    fn step(&mut self, server: u8, event: Event) {
        let mut steps = Vec::new();
        self.servers[usize::from(server)].commits.step(self.now, event, &mut steps);
        self.perform(server, steps);
        self.begin_deferred(server);
    }

    fn perform(&mut self, server: u8, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Evaluate { transaction, requests } => {
                    let at = self.process(server, self.parameters.object_time() * requests.len() as u32);
                    self.foresee(at, SystemEvent::Evaluated { server, transaction, requests });
                }
                Step::Log(write) => {
                    let counter = if write.forced { &mut self.counts.forced } else { &mut self.counts.unforced };
                    *counter += 1;
                    let bytes = bytes_of(&write, &self.parameters);
                    let tag = Logged::Protocol(write.transaction, write.kind);
                    self.log(server, Pending { bytes, forced: write.forced, tag });
                }
                Step::Send { to, message } => {
                    assert!(!matches!(message.body, Body::Ask | Body::Inquire), "nothing is late");
                    self.counts.messages += 1;
                    let sent = self.process(server, self.parameters.processor_time());
                    let at = sent.after(self.parameters.message_time());
                    self.foresee(at, SystemEvent::Arrives { from: ShardId(server), to, message });
                }
                Step::Release { transaction } => {
                    // A worker's locks are those of new files, for which nobody waits.
                    if let Some(directory) = self.servers[usize::from(server)].locked.remove(&transaction) {
                        self.unlock(server, directory);
                    }
                }
                Step::Answer { outcomes, .. } => {
                    for Outcome { own, result } in outcomes {
                        assert!(result.is_ok(), "nothing is refused");
                        let number = own.as_ref().try_into().expect("the number of an operation");
                        self.answer(server, u64::from_le_bytes(number));
                    }
                }
                Step::Hold { .. } => unreachable!("no server restarts"),
            }
        }
    }

    fn log(&mut self, server: u8, record: Pending<Logged>) {
        let log = &mut self.servers[usize::from(server)].log;
        if let Some(at) = log.add(self.now, record, &self.parameters) {
            self.foresee(at, SystemEvent::Durable { server });
        }
    }

    fn unlock(&mut self, server: u8, directory: u64) {
        self.counts.first_release.get_or_insert(self.now);
        self.servers[usize::from(server)].directories.unlock(directory);
        self.serve(server, directory);
    }

    fn answer(&mut self, server: u8, operation: u64) {
        let issued = self.operations.remove(&operation).expect("an operation is answered once");
        self.counts.done += 1;
        self.counts.first_answer.get_or_insert(self.now);
        self.counts.latencies.record(self.now.since(issued.at));
        self.issue(server);
    }

    /// Occupies the processor of a server; returns when it is done.
    fn process(&mut self, server: u8, takes: Duration) -> Time {
        self.servers[usize::from(server)].processor.serve(self.now, takes)
    }

    fn foresee(&mut self, at: Time, event: SystemEvent) {
        self.events.push(at, event);
    }
}

/// The bytes of a record. Updates are in the record that makes them durable: PREPARED, or COMMITTED in one-phase commit.
fn bytes_of(write: &LogWrite, parameters: &CommitParameters) -> u64 {
    let is_one_phase = parameters.system.protocol == Protocol::OnePhase;
    let updates = match write.kind {
        RecordKind::Committed if is_one_phase => write.changes.len() + write.outcomes.len(),
        RecordKind::Prepared => write.records.iter().map(|(_, record)| updates_of(record.as_ref())).sum(),
        _ => 0,
    };
    parameters.log.record_bytes + parameters.log.update_bytes * updates as u64
}

fn updates_of(record: Option<&Record>) -> usize {
    match record {
        Some(Record::Coordinated(record)) => record.operations.len(),
        Some(Record::Worked(record)) => record.changes.len(),
        _ => 0,
    }
}
