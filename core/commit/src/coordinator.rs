//! One transaction at its coordinator: its phase, what it waits for, and the moves that the protocols are made of. Which move follows which
//! input is in the file of each protocol.

use crate::{
    Body, CoordinatorRecord, CoordinatorStage, LogWrite, Message, Operation, Outcome, Payload, Protocol, Record,
    RecordKey, RecordKind, Refusal, Step, Transaction, TransactionName, Verdict,
};
use braid_base::ShardId;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Coordinator<P: Payload> {
    pub name: TransactionName,
    pub protocol: Protocol,
    pub phase: Phase,
    workers: Vec<ShardId>,
    operations: Vec<Operation<P>>,
    /// How many of the workers have been asked by this process.
    asked: usize,
    /// How many of the workers may have been asked, also by an owner before: all of these have to hear of an abort.
    reached: usize,
    /// The workers whose answer in this phase is missing.
    missing: BTreeSet<ShardId>,
    verdicts: BTreeMap<ShardId, Vec<Verdict<P>>>,
    /// Whether the coordinator's own PREPARED is durable.
    pub is_own_prepared: bool,
    /// The stage of the record that was found after a restart.
    found: Option<CoordinatorStage>,
    /// Outcomes to return to those who asked, once they are durable.
    outcomes: Vec<Outcome<P>>,
}

/// What a coordinator is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    New,
    /// STARTED is being written.
    Beginning,
    /// Workers have UPDATE.
    Updating,
    /// Both sides prepare.
    Preparing,
    /// COMMITTED is being written.
    Committing,
    /// COMMITTED is durable, and workers have COMMIT.
    Committed,
    /// ABORTED is being written.
    Aborting,
    /// ABORTED is durable, and workers have ABORT.
    Aborted,
    /// Nothing is left to do.
    Over,
}

/// What happens to a transaction at its coordinator.
#[derive(Clone, Debug)]
pub(crate) enum Input<P: Payload> {
    Begin,
    Logged(RecordKind),
    Message(ShardId, Body<P>),
    /// A message is missing for some time. `is_last`: it need not be waited for any longer.
    Silence {
        is_last: bool,
    },
    /// This record was found after a restart.
    Found(CoordinatorStage),
}

/// Which operations a record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Workers,
    Operations,
}

impl<P: Payload> Coordinator<P> {
    pub fn operations(&self) -> &[Operation<P>] {
        &self.operations
    }

    pub fn new(name: TransactionName, transaction: Transaction<P>) -> Coordinator<P> {
        let Transaction { protocol, workers, operations } = transaction;
        Coordinator {
            name,
            protocol,
            phase: Phase::New,
            workers,
            operations,
            asked: 0,
            reached: 0,
            missing: BTreeSet::new(),
            verdicts: BTreeMap::new(),
            is_own_prepared: false,
            found: None,
            outcomes: Vec::new(),
        }
    }

    /// The transaction as its record says. Any of the workers may have been asked.
    pub fn restored(name: TransactionName, record: CoordinatorRecord<P>) -> Coordinator<P> {
        let CoordinatorRecord { protocol, stage, workers, operations } = record;
        let asked = workers.len();
        let is_own_prepared = stage == CoordinatorStage::Prepared;
        Coordinator {
            asked,
            reached: asked,
            is_own_prepared,
            found: Some(stage),
            ..Coordinator::new(name, Transaction { protocol, workers, operations })
        }
    }

    /// The stage of the record that was found.
    pub fn stage_found(&mut self) -> CoordinatorStage {
        self.found.take().expect("the transaction was restored")
    }

    pub fn has_worker(&self, shard: ShardId) -> bool {
        self.workers.contains(&shard)
    }

    /// Whether a message of a worker is missing.
    pub fn awaits_message(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Changes whenever a message has brought the transaction forward.
    pub fn progress(&self) -> (Phase, usize, usize) {
        (self.phase, self.asked, self.missing.len())
    }

    // ---- records

    /// STARTED, with the next sequence.
    pub fn log_begun(&mut self, content: Content, out: &mut Vec<Step<P>>) {
        self.phase = Phase::Beginning;
        let next = (RecordKey::Next, Some(Record::Next(self.name.sequence + 1)));
        let record = self.record(CoordinatorStage::Begun, content);
        self.log(RecordKind::Begun, vec![record, next], true, out);
    }

    /// The coordinator's PREPARED.
    pub fn log_prepared(&mut self, out: &mut Vec<Step<P>>) {
        self.phase = Phase::Preparing;
        let record = self.record(CoordinatorStage::Prepared, Content::Operations);
        self.log(RecordKind::Prepared, vec![record], true, out);
    }

    /// COMMITTED: what all workers have accepted takes effect. The record stays if workers have to confirm.
    pub fn log_committed(&mut self, stays: bool, out: &mut Vec<Step<P>>) {
        self.phase = Phase::Committing;
        self.outcomes = self.decided();
        self.log_outcomes(RecordKind::Committed, stays.then_some(CoordinatorStage::Committed), out);
    }

    /// ABORTED. The record stays if workers have to confirm.
    pub fn log_aborted(&mut self, stays: bool, out: &mut Vec<Step<P>>) {
        self.phase = Phase::Aborting;
        self.outcomes = self.decided();
        for outcome in self.outcomes.iter_mut().filter(|outcome| outcome.result.is_ok()) {
            outcome.result = Err(Refusal::Abandoned);
        }
        self.log_outcomes(RecordKind::Aborted, stays.then_some(CoordinatorStage::Aborted), out);
    }

    /// The record of this stage stays, or none does.
    fn log_outcomes(&self, kind: RecordKind, stays: Option<CoordinatorStage>, out: &mut Vec<Step<P>>) {
        let record = stays.map_or_else(|| self.removal(), |stage| self.record(stage, Content::Workers));
        self.log(kind, vec![record], true, out);
    }

    /// ENDED: the record is removed. Nobody waits for that.
    pub fn log_ended(&mut self, out: &mut Vec<Step<P>>) {
        self.phase = Phase::Over;
        let removal = self.removal();
        self.log(RecordKind::Ended, vec![removal], false, out);
    }

    fn record(&self, stage: CoordinatorStage, content: Content) -> (RecordKey, Option<Record<P>>) {
        let operations = match content {
            Content::Operations => self.operations.clone(),
            Content::Workers => Vec::new(),
        };
        let record = CoordinatorRecord { protocol: self.protocol, stage, workers: self.workers.clone(), operations };
        (RecordKey::Coordinated(self.name.sequence), Some(Record::Coordinated(record)))
    }

    fn removal(&self) -> (RecordKey, Option<Record<P>>) {
        (RecordKey::Coordinated(self.name.sequence), None)
    }

    fn log(
        &self,
        kind: RecordKind,
        records: Vec<(RecordKey, Option<Record<P>>)>,
        forced: bool,
        out: &mut Vec<Step<P>>,
    ) {
        let outcomes = match kind {
            RecordKind::Committed | RecordKind::Aborted => self.outcomes.clone(),
            _ => Vec::new(),
        };
        out.push(Step::Log(LogWrite { transaction: self.name, kind, records, changes: Vec::new(), outcomes, forced }));
    }

    // ---- messages

    /// Sends UPDATE to the next worker; false if all have it.
    pub fn ask_next(&mut self, out: &mut Vec<Step<P>>) -> bool {
        let Some(worker) = self.workers.get(self.asked).copied() else { return false };
        self.asked += 1;
        self.reached = self.reached.max(self.asked);
        self.missing.insert(worker);
        self.send_update(worker, out);
        true
    }

    /// Sends UPDATE to all workers again, one after the other.
    pub fn ask_anew(&mut self, out: &mut Vec<Step<P>>) {
        self.asked = 0;
        self.ask_next(out);
    }

    /// Sends UPDATE to the workers that have not answered.
    pub fn ask_missing(&mut self, out: &mut Vec<Step<P>>) {
        for worker in self.missing.clone() {
            self.send_update(worker, out);
        }
    }

    fn send_update(&self, worker: ShardId, out: &mut Vec<Step<P>>) {
        let index = self.workers.iter().position(|other| *other == worker).expect("only workers are asked");
        let requests = self.operations.iter().map(|operation| operation.requests[index].clone()).collect();
        self.send(worker, Body::Update { requests }, out);
    }

    /// Sends a message to every worker that may have been asked, and waits for their answers.
    pub fn tell_all(&mut self, body: &Body<P>, out: &mut Vec<Step<P>>) {
        self.missing = self.workers[..self.reached].iter().copied().collect();
        self.tell_missing(body, out);
    }

    /// Sends a message to every worker, and waits for nothing.
    pub fn announce(&self, body: &Body<P>, out: &mut Vec<Step<P>>) {
        for worker in &self.workers {
            self.send(*worker, body.clone(), out);
        }
    }

    pub fn tell_missing(&self, body: &Body<P>, out: &mut Vec<Step<P>>) {
        for worker in &self.missing {
            self.send(*worker, body.clone(), out);
        }
    }

    pub fn send(&self, to: ShardId, body: Body<P>, out: &mut Vec<Step<P>>) {
        // The mark is set when the message leaves the machine.
        let message = Message { protocol: self.protocol, transaction: self.name, settled: 0, body };
        out.push(Step::Send { to, message });
    }

    /// Takes in a worker's verdicts; false if they were not waited for, or are not valid.
    pub fn note_verdicts(&mut self, from: ShardId, verdicts: &[Verdict<P>]) -> bool {
        if verdicts.len() != self.operations.len() || !self.missing.remove(&from) {
            return false;
        }
        self.verdicts.insert(from, verdicts.to_vec());
        true
    }

    /// Takes in that a worker has confirmed; true if all have.
    pub fn note_confirmed(&mut self, from: ShardId) -> bool {
        self.missing.remove(&from) && self.missing.is_empty()
    }

    // ---- decisions

    /// True if both sides have prepared.
    pub fn is_prepared(&self) -> bool {
        self.is_own_prepared && self.missing.is_empty() && self.asked == self.workers.len()
    }

    /// True if no operation is left that all workers asked so far have accepted.
    pub fn is_refused(&self) -> bool {
        self.decided().iter().all(|outcome| outcome.result.is_err())
    }

    /// The end of each operation by what the workers have said.
    fn decided(&self) -> Vec<Outcome<P>> {
        let decide = |(index, operation): (usize, &Operation<P>)| {
            let result = self.workers[..self.asked].iter().map(|worker| self.answer_of(*worker, index)).collect();
            Outcome { own: operation.own.clone(), result }
        };
        self.operations.iter().enumerate().map(decide).collect()
    }

    fn answer_of(&self, worker: ShardId, index: usize) -> Result<P::Answer, Refusal<P>> {
        match self.verdicts.get(&worker).map(|verdicts| &verdicts[index]) {
            Some(Verdict::Accepted { answer }) => Ok(answer.clone()),
            Some(Verdict::Refused { reason }) => Err(Refusal::ByWorker { worker, reason: reason.clone() }),
            None => Err(Refusal::Abandoned),
        }
    }

    pub fn hold(&self, out: &mut Vec<Step<P>>) {
        let own = self.operations.iter().map(|operation| operation.own.clone()).collect();
        out.push(Step::Hold { transaction: self.name, own, changes: Vec::new() });
    }

    pub fn release(&self, out: &mut Vec<Step<P>>) {
        out.push(Step::Release { transaction: self.name });
    }

    /// Answers whoever has asked. After a restart nobody may be known: then the answer is in the map, or the operation is tried again.
    pub fn answer(&mut self, out: &mut Vec<Step<P>>) {
        if !self.outcomes.is_empty() {
            let outcomes = std::mem::take(&mut self.outcomes);
            out.push(Step::Answer { transaction: self.name, outcomes });
        }
    }

    // ---- the end of an abort, which is the same in all protocols with two phases

    /// ABORTED is durable: the workers that may have prepared have to confirm it, because they would presume a commit otherwise.
    pub fn on_aborted(&mut self, refusals_are_durable: bool, out: &mut Vec<Step<P>>) {
        self.phase = Phase::Aborted;
        self.release(out);
        self.answer(out);
        self.missing = self.workers[..self.reached].iter().copied().collect();
        if refusals_are_durable {
            let refused = |worker: &ShardId| {
                self.verdicts.get(worker).is_some_and(|verdicts| !verdicts.iter().any(Verdict::is_accepted))
            };
            self.missing = self.missing.iter().copied().filter(|worker| !refused(worker)).collect();
        }
        self.tell_missing(&Body::Abort, out);
        if self.missing.is_empty() {
            self.log_ended(out);
        }
    }
}
