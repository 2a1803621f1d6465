//! The machine of one shard: its transactions as a coordinator and as a worker, marks, time-outs, recovery.
//!
//! *Marks.* A coordinator says with each message below which sequence all of its transactions are settled: it asks nothing more for them,
//! and needs no record of them. A worker keeps the record of a transaction that is over until a mark has passed it, because a late UPDATE
//! would be done again otherwise. Then it drops the record, and logs the mark with that in one write. So marks outlive every process.
//! Records are dropped with the next write for the same coordinator. A worker that writes nothing for some time asks for the mark.
//!
//! *Questions without a record.* A coordinator that has no record of a transaction has settled it: committed (PrC, EP), or confirmed by
//! all (PrN), or committed at both (1PC). So it answers at once, and first of all after a restart.

use crate::coordinator::{self, Coordinator};
use crate::worker::{self, Worker};
use crate::{
    Body, Event, LogWrite, Message, Opaque, Payload, Protocol, Record, RecordKey, RecordKind, Step, Timing,
    Transaction, TransactionName, early_prepare, one_phase, prc, prn,
};
use braid_base::limits::{SHARD_OPERATIONS_MAX, SHARD_TRANSACTIONS_MAX, WORKERS_MAX};
use braid_base::{ShardId, Time, Timers};
use std::collections::BTreeMap;

/// The commit protocols of one shard.
#[derive(Clone, Debug)]
pub struct Commits<P: Payload = Opaque> {
    shard: ShardId,
    timing: Timing,
    state: State<P>,
    timers: Timers<TimerKey>,
    /// How often in a row a message was missed.
    silences: BTreeMap<TimerKey, u32>,
}

/// All that a machine knows, except for its time-outs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State<P: Payload> {
    next: u64,
    coordinated: BTreeMap<u64, Coordinator<P>>,
    worked: BTreeMap<TransactionName, Worker<P>>,
    peers: BTreeMap<ShardId, Peer>,
}

/// What a worker knows of a coordinator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Peer {
    /// The highest mark that was heard.
    heard: u64,
    /// The mark in the map.
    logged: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    Coordinated(u64),
    Worked(TransactionName),
    /// Records of transactions of this coordinator that are over.
    Over(ShardId),
}

/// Too many transactions of this shard are unfinished: begin this one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many transactions among metadata servers are unfinished")]
pub struct Busy;

/// The most doublings of a time-out: a server that comes back is found within a second, as hosts find it.
const DOUBLINGS_MAX: u32 = 2;

impl<P: Payload> Commits<P> {
    /// The machine of a shard whose map has no records.
    pub fn new(shard: ShardId, timing: Timing) -> Commits<P> {
        let (coordinated, worked, peers) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let state = State { next: 0, coordinated, worked, peers };
        Commits { shard, timing, state, timers: Timers::default(), silences: BTreeMap::new() }
    }

    /// Takes in a record of the map, before [`recover`](Commits::recover). False if it is under the key of another kind of record: then the
    /// map is damaged.
    #[must_use]
    pub fn restore(&mut self, key: RecordKey, record: Record<P>) -> bool {
        match (key, record) {
            (RecordKey::Next, Record::Next(next)) => self.state.next = next,
            (RecordKey::Mark(peer), Record::Mark(mark)) => {
                self.state.peers.insert(peer, Peer { heard: mark, logged: mark });
            }
            (RecordKey::Coordinated(sequence), Record::Coordinated(record)) => {
                let name = TransactionName { shard: self.shard, sequence };
                self.state.coordinated.insert(sequence, Coordinator::restored(name, record));
            }
            (RecordKey::Worked(name), Record::Worked(record)) => {
                self.state.worked.insert(name, Worker::restored(name, record));
                self.state.peers.entry(name.shard).or_default();
            }
            _ => return false,
        }
        true
    }

    /// Goes on with what the records say: first locks, then messages.
    pub fn recover(&mut self, now: Time, out: &mut Vec<Step<P>>) {
        assert!(self.state.coordinated.keys().all(|sequence| *sequence < self.state.next), "a name has a successor");
        let mut steps = Vec::new();
        for sequence in self.state.coordinated.keys().copied().collect::<Vec<_>>() {
            let transaction = self.state.coordinated.get_mut(&sequence).expect("it is in the table");
            let stage = transaction.stage_found();
            self.coordinate(now, sequence, coordinator::Input::Found(stage), &mut steps);
        }
        for name in self.state.worked.keys().copied().collect::<Vec<_>>() {
            self.work(now, name, None, worker::Input::Found, &mut steps);
        }
        for shard in self.state.peers.keys().copied().collect::<Vec<_>>() {
            self.await_mark(now, shard);
        }
        let (locks, others): (Vec<_>, Vec<_>) = steps.into_iter().partition(|step| matches!(step, Step::Hold { .. }));
        out.extend(locks.into_iter().chain(others));
    }

    /// Begins a transaction under the locks of its parts; returns its name.
    pub fn begin(
        &mut self,
        now: Time,
        transaction: Transaction<P>,
        out: &mut Vec<Step<P>>,
    ) -> Result<TransactionName, Busy> {
        let Transaction { protocol, workers, operations } = &transaction;
        assert!((1..=WORKERS_MAX).contains(&workers.len()), "a transaction has workers");
        assert!((1..=SHARD_OPERATIONS_MAX).contains(&operations.len()), "a transaction has operations");
        assert!(!workers.contains(&self.shard), "a coordinator is not a worker of its own");
        assert!(*protocol != Protocol::OnePhase || workers.len() == 1, "one-phase commit has one worker");
        assert!(workers.len() == 1 || operations.len() == 1, "operations are grouped for one worker");
        let is_asked_of_all = operations.iter().all(|operation| operation.requests.len() == workers.len());
        assert!(is_asked_of_all, "each worker has its part of each operation");
        if self.is_busy() {
            return Err(Busy);
        }
        let name = TransactionName { shard: self.shard, sequence: self.state.next };
        self.state.next += 1;
        self.state.coordinated.insert(name.sequence, Coordinator::new(name, transaction));
        self.coordinate(now, name.sequence, coordinator::Input::Begin, out);
        Ok(name)
    }

    /// True if no transaction can begin.
    pub fn is_busy(&self) -> bool {
        self.state.next - self.state.settled() >= SHARD_TRANSACTIONS_MAX
    }

    pub fn step(&mut self, now: Time, event: Event<P>, out: &mut Vec<Step<P>>) {
        match event {
            Event::Evaluated { transaction, evaluations } => {
                self.work(now, transaction, None, worker::Input::Evaluated(evaluations), out);
            }
            Event::Logged { transaction, kind } if transaction.shard == self.shard => {
                self.coordinate(now, transaction.sequence, coordinator::Input::Logged(kind), out);
            }
            Event::Logged { transaction, kind } => self.work(now, transaction, None, worker::Input::Logged(kind), out),
            Event::Message { from, message } if message.transaction.shard == self.shard => {
                self.on_message_of_worker(now, from, message, out);
            }
            Event::Message { from, message } if message.transaction.shard == from => {
                self.on_message_of_coordinator(now, message, out);
            }
            // It is about a transaction in which neither takes part as it should.
            Event::Message { .. } => {}
            Event::Wake => self.wake(now, out),
        }
    }

    /// When to give [`Event::Wake`].
    pub fn deadline(&self) -> Option<Time> {
        self.timers.next().map(|(time, _)| time)
    }

    /// What the machine knows, for inspection.
    pub fn state(&self) -> &State<P> {
        &self.state
    }

    pub fn invariants(&self) {
        let State { next, coordinated, worked, peers } = &self.state;
        assert!(next - self.state.settled() <= SHARD_TRANSACTIONS_MAX, "the unfinished transactions are few");
        assert!(coordinated.values().all(|transaction| transaction.phase != coordinator::Phase::Over));
        assert!(worked.values().all(|transaction| transaction.phase != worker::Phase::New));
        assert!(worked.keys().all(|name| peers.contains_key(&name.shard) && name.shard != self.shard));
        assert!(peers.values().all(|peer| peer.logged <= peer.heard));
    }

    fn on_message_of_worker(&mut self, now: Time, from: ShardId, message: Message<P>, out: &mut Vec<Step<P>>) {
        let Message { protocol, transaction, body, .. } = message;
        if transaction.sequence >= self.state.next || from == self.shard {
            return;
        }
        if body == Body::Inquire {
            return self.reply(protocol, transaction, from, Body::Settled, out);
        }
        match self.state.coordinated.get(&transaction.sequence) {
            Some(known) if known.has_worker(from) && known.protocol == protocol => {
                self.coordinate(now, transaction.sequence, coordinator::Input::Message(from, body), out);
            }
            Some(_) => {}
            None => match (protocol, body) {
                (Protocol::PresumeCommit | Protocol::EarlyPrepare, Body::Ask) => {
                    self.reply(protocol, transaction, from, Body::Commit, out);
                }
                (Protocol::OnePhase, Body::Updated { .. }) => {
                    self.reply(protocol, transaction, from, Body::Acknowledge, out);
                }
                _ => {}
            },
        }
    }

    /// A message about a transaction of this shard that has no record.
    fn reply(
        &mut self,
        protocol: Protocol,
        transaction: TransactionName,
        to: ShardId,
        body: Body<P>,
        out: &mut Vec<Step<P>>,
    ) {
        let settled = self.state.settled();
        out.push(Step::Send { to, message: Message { protocol, transaction, settled, body } });
    }

    fn on_message_of_coordinator(&mut self, now: Time, message: Message<P>, out: &mut Vec<Step<P>>) {
        let Message { protocol, transaction, settled, body } = message;
        let peer = self.state.peers.get(&transaction.shard).copied().unwrap_or_default();
        if settled > peer.heard {
            self.state.peers.insert(transaction.shard, Peer { heard: settled, ..peer });
            self.note_settled(now, transaction.shard, out);
        }
        let heard = settled.max(peer.heard);
        let is_known = self.state.worked.get(&transaction).map(|worker| worker.protocol == protocol);
        let is_settled = transaction.sequence < heard;
        match (is_known, body) {
            (_, Body::Settled) => self.drop_records(transaction.shard, transaction, out),
            (Some(false), _) => {}
            (Some(true), body) => self.work(now, transaction, None, worker::Input::Message(body), out),
            // It was aborted here before, and the record is dropped. Late requests are not done any more.
            (None, Body::Abort) if is_settled => {
                let message = Message { protocol, transaction, settled: 0, body: Body::Acknowledge };
                out.push(Step::Send { to: transaction.shard, message });
            }
            (None, Body::Update { .. }) if is_settled => {}
            (None, Body::Update { .. } | Body::Abort) if transaction.sequence - heard >= SHARD_TRANSACTIONS_MAX => {}
            (None, Body::Update { requests }) if requests.len() > SHARD_OPERATIONS_MAX || requests.is_empty() => {}
            (None, body) => self.work(now, transaction, Some(protocol), worker::Input::Message(body), out),
        }
        self.await_mark(now, transaction.shard);
    }

    /// The mark has passed transactions. Where the coordinator waits for nothing, that is its acknowledgement (1PC).
    fn note_settled(&mut self, now: Time, shard: ShardId, out: &mut Vec<Step<P>>) {
        let heard = self.state.peers[&shard].heard;
        let is_acknowledged = |(name, worker): &(&TransactionName, &Worker<P>)| {
            let is_committed = worker.phase == worker::Phase::Committed && worker.protocol == Protocol::OnePhase;
            name.shard == shard && name.sequence < heard && is_committed
        };
        let names: Vec<_> = self.state.worked.iter().filter(is_acknowledged).map(|(name, _)| *name).collect();
        for name in names {
            self.work(now, name, None, worker::Input::Message(Body::Acknowledge), out);
        }
    }

    /// Moves a transaction of this shard.
    fn coordinate(&mut self, now: Time, sequence: u64, input: coordinator::Input<P>, out: &mut Vec<Step<P>>) {
        let Some(this) = self.state.coordinated.get_mut(&sequence) else { return };
        let is_silence = matches!(input, coordinator::Input::Silence { .. });
        let (before, first) = (this.progress(), out.len());
        match this.protocol {
            Protocol::PresumeNothing => prn::coordinate(this, input, out),
            Protocol::PresumeCommit => prc::coordinate(this, input, out),
            Protocol::EarlyPrepare => early_prepare::coordinate(this, input, out),
            Protocol::OnePhase => one_phase::coordinate(this, input, out),
        }
        let (is_over, awaits) = (this.phase == coordinator::Phase::Over, this.awaits_message());
        let has_moved = this.progress() != before;
        if is_over {
            self.state.coordinated.remove(&sequence);
        }
        self.set_timer(now, TimerKey::Coordinated(sequence), awaits && !is_over, has_moved, is_silence);
        // The mark may have moved with this step.
        let settled = self.state.settled();
        for step in &mut out[first..] {
            if let Step::Send { message, .. } = step {
                message.settled = settled;
            }
        }
    }

    /// Moves a transaction of another shard. One that is not known begins if a protocol is named.
    fn work(
        &mut self,
        now: Time,
        name: TransactionName,
        begins: Option<Protocol>,
        input: worker::Input<P>,
        out: &mut Vec<Step<P>>,
    ) {
        let mut this = match (self.state.worked.remove(&name), begins) {
            (Some(this), _) => this,
            (None, Some(protocol)) => Worker::new(name, protocol),
            (None, None) => return,
        };
        let is_silence = matches!(input, worker::Input::Silence { .. });
        let (before, first) = (this.phase, out.len());
        match this.protocol {
            Protocol::PresumeNothing => prn::work(&mut this, input, out),
            Protocol::PresumeCommit => prc::work(&mut this, input, out),
            Protocol::EarlyPrepare => early_prepare::work(&mut this, input, out),
            Protocol::OnePhase => one_phase::work(&mut this, input, out),
        }
        let (awaits, has_moved) = (this.awaits_message(), this.phase != before);
        if this.phase != worker::Phase::New {
            self.state.peers.entry(name.shard).or_default();
            self.state.worked.insert(name, this);
        }
        self.set_timer(now, TimerKey::Worked(name), awaits, has_moved, is_silence);
        for step in &mut out[first..] {
            if let Step::Log(write) = step {
                self.state.drop_settled(name.shard, write);
            }
        }
        self.await_mark(now, name.shard);
    }

    /// Drops the records that the mark has passed in a write of their own, if there are any.
    fn drop_records(&mut self, shard: ShardId, transaction: TransactionName, out: &mut Vec<Step<P>>) {
        let mut write = LogWrite {
            transaction,
            kind: RecordKind::Dropped,
            records: Vec::new(),
            changes: Vec::new(),
            outcomes: Vec::new(),
            forced: false,
        };
        self.state.drop_settled(shard, &mut write);
        if !write.records.is_empty() {
            out.push(Step::Log(write));
        }
    }

    fn set_timer(&mut self, now: Time, key: TimerKey, awaits: bool, has_moved: bool, is_silence: bool) {
        if !awaits {
            self.timers.cancel(key);
            self.silences.remove(&key);
            return;
        }
        if has_moved {
            self.silences.remove(&key);
        }
        if has_moved || is_silence || self.timers.deadline_of(key).is_none() {
            let doublings = self.silences.get(&key).copied().unwrap_or_default().min(DOUBLINGS_MAX);
            self.timers.set(key, now.after(self.timing.resend * (1 << doublings)));
        }
    }

    /// Asks for the mark of a coordinator some time after records of its transactions are over.
    fn await_mark(&mut self, now: Time, shard: ShardId) {
        let key = TimerKey::Over(shard);
        match self.state.first_over(shard) {
            None => self.timers.cancel(key),
            Some(_) if self.timers.deadline_of(key).is_some() => {}
            Some(_) => self.timers.set(key, now.after(self.timing.tidy)),
        }
    }

    fn wake(&mut self, now: Time, out: &mut Vec<Step<P>>) {
        let mut due = Vec::new();
        while let Some(key) = self.timers.pop_due(now) {
            due.push(key);
        }
        for key in due {
            let silences = self.silences.entry(key).or_default();
            *silences = silences.saturating_add(1);
            let is_last = *silences >= self.timing.patience;
            match key {
                TimerKey::Coordinated(sequence) => {
                    self.coordinate(now, sequence, coordinator::Input::Silence { is_last }, out);
                }
                TimerKey::Worked(name) => self.work(now, name, None, worker::Input::Silence { is_last }, out),
                TimerKey::Over(shard) => {
                    self.silences.remove(&key);
                    if let Some((name, protocol)) = self.state.first_over(shard) {
                        let message = Message { protocol, transaction: name, settled: 0, body: Body::Inquire };
                        out.push(Step::Send { to: shard, message });
                    }
                    self.await_mark(now, shard);
                }
            }
        }
    }
}

impl<P: Payload> State<P> {
    /// The next sequence, and how many transactions of this shard are unfinished, and of others.
    pub fn sizes(&self) -> (u64, usize, usize) {
        (self.next, self.coordinated.len(), self.worked.len())
    }

    /// The operations of transactions that this shard coordinates, and that are not over.
    pub fn coordinated(&self) -> impl Iterator<Item = &crate::Operation<P>> {
        self.coordinated.values().flat_map(Coordinator::operations)
    }

    /// True if the outcome of every transaction is known here and, as far as this shard has to tell it, to the others.
    pub fn is_quiet(&self) -> bool {
        self.coordinated.is_empty() && self.worked.values().all(Worker::is_over)
    }

    /// The mark: all transactions of this shard below it are settled.
    fn settled(&self) -> u64 {
        self.coordinated.keys().next().copied().unwrap_or(self.next)
    }

    /// The first transaction of a coordinator that is over here.
    fn first_over(&self, shard: ShardId) -> Option<(TransactionName, Protocol)> {
        let range = TransactionName { shard, sequence: 0 }..=TransactionName { shard, sequence: u64::MAX };
        let over = self.worked.range(range).find(|(_, worker)| worker.is_over());
        over.map(|(name, worker)| (*name, worker.protocol))
    }

    /// Lets a write drop the records of this coordinator's transactions that its mark has passed, and log the mark.
    fn drop_settled(&mut self, shard: ShardId, write: &mut LogWrite<P>) {
        let Some(peer) = self.peers.get(&shard).copied() else { return };
        let range = TransactionName { shard, sequence: 0 }..TransactionName { shard, sequence: peer.heard };
        let over = self.worked.range(range).filter(|(_, worker)| worker.is_over());
        let over: Vec<TransactionName> = over.map(|(name, _)| *name).collect();
        if over.is_empty() {
            return;
        }
        for name in over {
            self.worked.remove(&name);
            let key = RecordKey::Worked(name);
            write.records.retain(|(other, _)| *other != key);
            write.records.push((key, None));
        }
        if peer.heard > peer.logged {
            write.records.push((RecordKey::Mark(shard), Some(Record::Mark(peer.heard))));
            self.peers.insert(shard, Peer { logged: peer.heard, ..peer });
        }
    }
}
