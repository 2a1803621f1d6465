//! Servers with a journal, locks and a network, in which the machines of the protocols are attacked. The network keeps every message that
//! was ever sent: any of them may be delivered at any time, again, or never. Writes to the journal become durable one by one, in order;
//! a crash loses the others, and everything in memory.

pub use braid_base::{ShardId, Time};
pub use braid_commit::{
    Commits, Evaluation, Event, LogWrite, Message, Operation, Outcome, Protocol, Record, RecordKey, RecordKind,
    Refusal, Step, Timing, Transaction, TransactionName,
};
pub use bytes::Bytes;
pub use std::collections::{BTreeMap, BTreeSet, VecDeque};
pub use std::hash::{DefaultHasher, Hash, Hasher};
pub use std::time::Duration;

/// What clients have heard about an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    Done,
    Refused,
}

/// An operation of a client: it adds its number to the content of one object at each server that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientOperation {
    pub number: u8,
    pub coordinator: ShardId,
    pub workers: Vec<ShardId>,
    pub object: u8,
    /// These workers refuse it.
    pub refusers: Vec<ShardId>,
}

#[derive(Clone, Debug)]
pub struct World {
    pub protocol: Protocol,
    pub servers: BTreeMap<ShardId, Server>,
    /// Every message that was sent: from whom, to whom, its bytes.
    pub network: BTreeSet<(ShardId, ShardId, Bytes)>,
    /// Messages that were sent since the last look, in order.
    pub fresh: Vec<(ShardId, ShardId, Bytes)>,
    pub operations: BTreeMap<u8, ClientOperation>,
    pub answers: BTreeMap<u8, Answer>,
    time: Time,
}

#[derive(Clone, Debug)]
pub struct Server {
    machine: Commits,
    pub durable: Map,
    memory: Map,
    pub journal: VecDeque<LogWrite>,
    /// The holder of each locked object.
    pub locks: BTreeMap<u8, TransactionName>,
    /// Requests that are to be evaluated.
    pub waiting: BTreeMap<TransactionName, Vec<Bytes>>,
    /// The client's operations that this server coordinates at present.
    under_way: BTreeMap<u8, TransactionName>,
}

/// What is in the map of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Map {
    pub records: BTreeMap<RecordKey, Bytes>,
    /// The operations that have taken effect on each object, in order.
    pub objects: BTreeMap<u8, Vec<u8>>,
    /// The answers to clients.
    pub answers: BTreeMap<u8, Answer>,
}

pub fn timing() -> Timing {
    Timing { resend: Duration::from_secs(1), patience: 1, tidy: Duration::from_secs(1) }
}

/// The part of an operation at a server: its number, its object, and whether it is refused.
fn part(operation: &ClientOperation, refused: bool) -> Bytes {
    Bytes::copy_from_slice(&[operation.number, operation.object, u8::from(refused)])
}

impl World {
    pub fn new(protocol: Protocol, servers: u8, operations: Vec<ClientOperation>) -> World {
        let server = |shard| {
            let shard = ShardId(shard);
            let mut machine = Commits::new(shard, timing());
            machine.recover(Time(0), &mut Vec::new());
            let server = Server {
                machine,
                durable: Map::default(),
                memory: Map::default(),
                journal: VecDeque::new(),
                locks: BTreeMap::new(),
                waiting: BTreeMap::new(),
                under_way: BTreeMap::new(),
            };
            (shard, server)
        };
        World {
            protocol,
            servers: (0..servers).map(server).collect(),
            network: BTreeSet::new(),
            fresh: Vec::new(),
            operations: operations.into_iter().map(|operation| (operation.number, operation)).collect(),
            answers: BTreeMap::new(),
            time: Time(0),
        }
    }

    /// The same number for worlds that behave alike from here on.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for server in self.servers.values() {
            server.machine.state().hash(&mut hasher);
            (&server.durable, &server.journal, &server.locks, &server.waiting, &server.under_way).hash(&mut hasher);
        }
        (&self.network, &self.answers).hash(&mut hasher);
        hasher.finish()
    }

    /// A client asks for operations in one request: for the first time, or again. They have the same coordinator and workers.
    pub fn ask(&mut self, numbers: &[u8]) {
        let first = self.operations[&numbers[0]].clone();
        let server = self.servers.get_mut(&first.coordinator).expect("it is a server");
        let is_new = |number: &&u8| {
            let is_known = server.under_way.contains_key(*number) || server.memory.answers.contains_key(*number);
            !is_known && !server.locks.contains_key(&self.operations[*number].object)
        };
        let mut objects = BTreeSet::new();
        let new: Vec<u8> = numbers
            .iter()
            .filter(is_new)
            .filter(|number| objects.insert(self.operations[*number].object))
            .copied()
            .collect();
        for number in numbers {
            if let Some(answer) = server.durable.answers.get(number) {
                hear(&mut self.answers, *number, *answer);
            }
        }
        if new.is_empty() {
            return;
        }
        let operation = |number: &u8| {
            let operation = &self.operations[number];
            let requests = operation.workers.iter().map(|worker| part(operation, operation.refusers.contains(worker)));
            Operation { own: part(operation, false), requests: requests.collect() }
        };
        let transaction = Transaction {
            protocol: self.protocol.with_workers(first.workers.len()),
            workers: first.workers,
            operations: new.iter().map(operation).collect(),
        };
        let mut steps = Vec::new();
        let Ok(name) = server.machine.begin(self.time, transaction, &mut steps) else { return };
        for number in new {
            server.locks.insert(self.operations[&number].object, name);
            server.under_way.insert(number, name);
        }
        self.perform(first.coordinator, steps);
    }

    pub fn deliver(&mut self, message: &(ShardId, ShardId, Bytes)) {
        let (from, to, bytes) = message.clone();
        let message = Message::decode(bytes).expect("machines send valid messages");
        self.step(to, Event::Message { from, message });
    }

    /// Makes the first write of a journal durable.
    pub fn flush(&mut self, shard: ShardId) {
        let server = self.servers.get_mut(&shard).expect("it is a server");
        let Some(write) = server.journal.pop_front() else { return };
        server.durable.apply(&write);
        if write.kind != RecordKind::Dropped {
            self.step(shard, Event::Logged { transaction: write.transaction, kind: write.kind });
        }
    }

    /// Evaluates requests. Those that need a lock of another transaction are refused; `false` if `waits` and there is one.
    pub fn evaluate(&mut self, shard: ShardId, transaction: TransactionName, waits: bool) -> bool {
        let server = self.servers.get_mut(&shard).expect("it is a server");
        let Some(requests) = server.waiting.get(&transaction).cloned() else { return false };
        let is_locked = |object: u8| server.locks.get(&object).is_some_and(|holder| *holder != transaction);
        if waits && requests.iter().any(|request| is_locked(request[1])) {
            return false;
        }
        let evaluate = |request: &Bytes| match is_locked(request[1]) || request[2] == 1 {
            true => Evaluation::Refused { reason: request.slice(..1) },
            false => Evaluation::Accepted { changes: request.clone(), answer: request.slice(..1) },
        };
        let evaluations: Vec<Evaluation> = requests.iter().map(evaluate).collect();
        for evaluation in &evaluations {
            if let Evaluation::Accepted { changes, .. } = evaluation {
                server.locks.insert(changes[1], transaction);
            }
        }
        server.waiting.remove(&transaction);
        self.step(shard, Event::Evaluated { transaction, evaluations });
        true
    }

    /// Crashes a server; another process takes over its shard.
    pub fn crash(&mut self, shard: ShardId) {
        let server = self.servers.get_mut(&shard).expect("it is a server");
        server.machine = Commits::new(shard, timing());
        server.memory = server.durable.clone();
        server.journal.clear();
        server.locks.clear();
        server.waiting.clear();
        server.under_way.clear();
        for (key, bytes) in &server.durable.records {
            let record = Record::decode(bytes.clone()).expect("records are valid");
            assert!(server.machine.restore(*key, record), "a record is under a key of its kind");
        }
        let mut steps = Vec::new();
        server.machine.recover(self.time, &mut steps);
        self.perform(shard, steps);
    }

    /// Lets all time-outs of a server pass.
    pub fn wake(&mut self, shard: ShardId) {
        self.time = self.time.after(Duration::from_secs(1000));
        self.step(shard, Event::Wake);
    }

    fn step(&mut self, shard: ShardId, event: Event) {
        let server = self.servers.get_mut(&shard).expect("it is a server");
        let mut steps = Vec::new();
        server.machine.step(self.time, event, &mut steps);
        server.machine.invariants();
        self.perform(shard, steps);
    }

    fn perform(&mut self, shard: ShardId, steps: Vec<Step>) {
        for step in steps {
            let server = self.servers.get_mut(&shard).expect("it is a server");
            match step {
                Step::Hold { transaction, own, changes } => {
                    for part in own.iter().chain(&changes) {
                        let before = server.locks.insert(part[1], transaction);
                        assert_eq!(before, None, "{transaction} conflicts with what else is in doubt");
                        if changes.is_empty() {
                            server.under_way.insert(part[0], transaction);
                        }
                    }
                }
                Step::Evaluate { transaction, requests } => {
                    server.waiting.insert(transaction, requests);
                }
                Step::Log(write) => {
                    for part in applied(&write) {
                        let holder = server.locks.get(&part[1]);
                        assert_eq!(holder, Some(&write.transaction), "changes take effect under their locks");
                    }
                    server.memory.apply(&write);
                    server.journal.push_back(write);
                }
                Step::Send { to, message } => {
                    let message = (shard, to, message.encode());
                    self.fresh.push(message.clone());
                    self.network.insert(message);
                }
                Step::Release { transaction } => {
                    server.locks.retain(|_, holder| *holder != transaction);
                    server.waiting.remove(&transaction);
                }
                Step::Answer { transaction, outcomes } => self.on_answer(shard, transaction, outcomes),
            }
        }
    }

    fn on_answer(&mut self, shard: ShardId, transaction: TransactionName, outcomes: Vec<Outcome>) {
        for Outcome { own, result } in outcomes {
            let number = own[0];
            let before = self.servers.get_mut(&shard).expect("it is a server").under_way.remove(&number);
            assert!(before.is_none_or(|before| before == transaction), "each operation is under way once");
            let answer = match result {
                Ok(answers) => {
                    assert!(answers.iter().all(|answer| answer[0] == number), "the answers are those of the operation");
                    assert_eq!(answers.len(), self.operations[&number].workers.len());
                    Answer::Done
                }
                Err(Refusal::ByWorker { reason, .. }) => {
                    assert_eq!(reason[0], number, "the reason is that of the operation");
                    Answer::Refused
                }
                Err(Refusal::Abandoned) => continue,
            };
            hear(&mut self.answers, number, answer);
        }
    }

    /// What must hold at any time: nothing takes effect twice, and answers agree with what has taken effect.
    pub fn check(&self) {
        for server in self.servers.values() {
            for (object, content) in &server.durable.objects {
                let distinct: BTreeSet<u8> = content.iter().copied().collect();
                assert_eq!(distinct.len(), content.len(), "an operation took effect twice on {object}: {content:?}");
            }
        }
        for (number, answer) in &self.answers {
            let operation = &self.operations[number];
            let effects = |shard: &ShardId| self.has_effect(*shard, *number);
            match answer {
                Answer::Refused => {
                    let anywhere = operation.servers().any(|shard| effects(&shard));
                    assert!(!anywhere, "{number} was refused, and took effect");
                }
                // What a client hears is durable, or its outcome is.
                Answer::Done => {
                    let is_certain = operation.servers().any(|shard| effects(&shard));
                    assert!(is_certain, "{number} was answered before anything of it was durable");
                }
            }
        }
    }

    fn has_effect(&self, shard: ShardId, number: u8) -> bool {
        let objects = &self.servers[&shard].durable.objects;
        objects.get(&self.operations[&number].object).is_some_and(|content| content.contains(&number))
    }

    /// Lets everything come to its end, without further faults: each message arrives, each write ends. Returns false if that takes forever.
    pub fn settle(&mut self) -> bool {
        for round in 0..200 {
            let mut is_quiet = true;
            for shard in self.servers.keys().copied().collect::<Vec<_>>() {
                while !self.servers[&shard].journal.is_empty() {
                    self.flush(shard);
                    is_quiet = false;
                }
                for transaction in self.servers[&shard].waiting.keys().copied().collect::<Vec<_>>() {
                    // Locks are waited for, but not without end.
                    is_quiet &= !self.evaluate(shard, transaction, round % 8 != 7);
                }
            }
            for message in std::mem::take(&mut self.fresh) {
                self.deliver(&message);
                is_quiet = false;
            }
            if is_quiet {
                let has_waiting = self.servers.values().any(|server| !server.waiting.is_empty());
                if !has_waiting && self.servers.values().all(|server| server.machine.deadline().is_none()) {
                    return true;
                }
                self.servers.keys().copied().collect::<Vec<_>>().into_iter().for_each(|shard| self.wake(shard));
            }
        }
        false
    }

    /// What must hold once everything has come to its end.
    pub fn check_at_rest(&self) {
        self.check();
        for (shard, server) in &self.servers {
            assert!(server.locks.is_empty(), "{shard} holds locks: {:?}", server.locks);
            assert!(server.under_way.is_empty(), "{shard} waits for {:?}", server.under_way);
            let (_, coordinated, worked) = server.machine.state().sizes();
            assert_eq!((coordinated, worked), (0, 0), "{shard} has transactions: {:?}", server.machine);
            let left = |key: &&RecordKey| !matches!(key, RecordKey::Next | RecordKey::Mark(_));
            let left: Vec<_> = server.durable.records.keys().filter(left).collect();
            assert!(left.is_empty(), "{shard} has records: {left:?}");
            assert_eq!(server.memory, server.durable, "memory and disk are the same");
        }
        for (number, operation) in &self.operations {
            let effects: Vec<bool> = operation.servers().map(|shard| self.has_effect(shard, *number)).collect();
            assert!(effects.iter().all(|effect| *effect == effects[0]), "{number} took effect on some: {effects:?}");
            let kept = self.servers[&operation.coordinator].durable.answers.get(number).copied();
            let expected = if effects[0] { Some(Answer::Done) } else { kept.filter(|kept| *kept == Answer::Refused) };
            assert_eq!(kept, expected, "the answer to {number} says what became of it");
            if let Some(answer) = self.answers.get(number) {
                assert_eq!(*answer == Answer::Done, effects[0], "{number} was answered {answer:?}: {effects:?}");
            }
        }
        self.check_order();
    }

    /// Operations on the same objects took effect in the same order everywhere.
    fn check_order(&self) {
        let lists: Vec<(u8, &Vec<u8>)> =
            self.servers.values().flat_map(|server| &server.durable.objects).map(|(key, list)| (*key, list)).collect();
        for (object, one) in &lists {
            for (_, other) in lists.iter().filter(|(key, _)| key == object) {
                let common = |list: &Vec<u8>, beside: &Vec<u8>| -> Vec<u8> {
                    list.iter().filter(|number| beside.contains(number)).copied().collect()
                };
                assert_eq!(common(one, other), common(other, one), "operations on {object} have one order");
            }
        }
    }
}

impl ClientOperation {
    pub fn servers(&self) -> impl Iterator<Item = ShardId> {
        std::iter::once(self.coordinator).chain(self.workers.iter().copied())
    }
}

fn hear(answers: &mut BTreeMap<u8, Answer>, number: u8, answer: Answer) {
    let before = answers.insert(number, answer);
    assert!(before.is_none_or(|before| before == answer), "the answer to {number} was reversed");
}

/// The parts that take effect with a write.
fn applied(write: &LogWrite) -> impl Iterator<Item = &Bytes> {
    let own = write.outcomes.iter().filter(|outcome| outcome.result.is_ok()).map(|outcome| &outcome.own);
    own.chain(&write.changes)
}

impl Map {
    fn apply(&mut self, write: &LogWrite) {
        for (key, record) in &write.records {
            match record {
                Some(record) => self.records.insert(*key, record.encode()),
                None => self.records.remove(key),
            };
        }
        for part in applied(write) {
            self.objects.entry(part[1]).or_default().push(part[0]);
        }
        for Outcome { own, result } in &write.outcomes {
            match result {
                Ok(_) => self.answers.insert(own[0], Answer::Done),
                Err(Refusal::ByWorker { .. }) => self.answers.insert(own[0], Answer::Refused),
                Err(Refusal::Abandoned) => None,
            };
        }
    }
}
