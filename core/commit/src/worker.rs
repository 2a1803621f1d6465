//! One transaction at a worker: its phase, and the moves that the protocols are made of. Which move follows which input is in the file of
//! each protocol.

use crate::{
    Body, Evaluation, LogWrite, Message, Payload, Protocol, Record, RecordKey, RecordKind, Step, TransactionName,
    Verdict, WorkerRecord, WorkerStage,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Worker<P: Payload> {
    pub name: TransactionName,
    pub protocol: Protocol,
    pub phase: Phase,
    /// How many operations are being evaluated.
    requested: usize,
    /// The changes of each accepted operation.
    changes: Vec<P::Changes>,
    verdicts: Vec<Verdict<P>>,
}

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// Nothing is known of the transaction.
    New,
    /// The server takes locks and computes.
    Evaluating,
    /// UPDATED was sent, and nothing is durable (PrN, PrC).
    Updated,
    /// PREPARED is being written.
    Preparing,
    Prepared,
    /// COMMITTED is being written.
    Committing,
    /// COMMITTED is written.
    Committed,
    /// ABORTED is being written.
    Aborting,
    Aborted,
    /// The coordinator has committed, too (1PC).
    Ended,
}

/// What happens to a transaction at a worker.
#[derive(Clone, Debug)]
pub(crate) enum Input<P: Payload> {
    Evaluated(Vec<Evaluation<P>>),
    Logged(RecordKind),
    Message(Body<P>),
    /// A message is missing for some time. `is_last`: it need not be waited for any longer.
    Silence {
        is_last: bool,
    },
    /// The record of the present phase was found after a restart.
    Found,
}

impl<P: Payload> Worker<P> {
    pub fn new(name: TransactionName, protocol: Protocol) -> Worker<P> {
        Worker { name, protocol, phase: Phase::New, requested: 0, changes: Vec::new(), verdicts: Vec::new() }
    }

    pub fn restored(name: TransactionName, record: WorkerRecord<P>) -> Worker<P> {
        let WorkerRecord { protocol, stage, changes, verdicts } = record;
        let phase = match stage {
            WorkerStage::Prepared => Phase::Prepared,
            WorkerStage::Committed => Phase::Committed,
            WorkerStage::Aborted => Phase::Aborted,
            WorkerStage::Ended => Phase::Ended,
        };
        Worker { name, protocol, phase, requested: 0, changes, verdicts }
    }

    /// True if the record only keeps late requests from being done again.
    pub fn is_over(&self) -> bool {
        match self.phase {
            Phase::Committed => self.protocol != Protocol::OnePhase,
            Phase::Aborted | Phase::Ended => true,
            _ => false,
        }
    }

    /// Whether a message of the coordinator is missing.
    pub fn awaits_message(&self) -> bool {
        match self.phase {
            Phase::Updated | Phase::Prepared => true,
            Phase::Committed => self.protocol == Protocol::OnePhase,
            _ => false,
        }
    }

    pub fn evaluate(&mut self, requests: Vec<P::Request>, out: &mut Vec<Step<P>>) {
        self.phase = Phase::Evaluating;
        self.requested = requests.len();
        out.push(Step::Evaluate { transaction: self.name, requests });
    }

    /// Takes in the findings; true if any operation was accepted.
    pub fn note_evaluations(&mut self, evaluations: Vec<Evaluation<P>>) -> bool {
        assert_eq!(evaluations.len(), self.requested, "each request has a finding");
        self.requested = 0;
        self.verdicts = evaluations.iter().map(Evaluation::verdict).collect();
        let changes = evaluations.into_iter().filter_map(|evaluation| match evaluation {
            Evaluation::Accepted { changes, .. } => Some(changes),
            Evaluation::Refused { .. } => None,
        });
        self.changes = changes.collect();
        !self.changes.is_empty()
    }

    /// True if the coordinator may have to hear the verdicts of what was refused or committed here.
    pub fn has_verdicts(&self) -> bool {
        !self.verdicts.is_empty()
    }

    pub fn log_prepared(&mut self, out: &mut Vec<Step<P>>) {
        self.phase = Phase::Preparing;
        let (changes, verdicts) = (self.changes.clone(), self.verdicts.clone());
        self.log(RecordKind::Prepared, WorkerStage::Prepared, (changes, verdicts), true, out);
    }

    /// COMMITTED: the changes take effect. If the coordinator has to be told again, the record has the verdicts.
    pub fn log_committed(&mut self, forced: bool, out: &mut Vec<Step<P>>) {
        self.phase = if forced { Phase::Committing } else { Phase::Committed };
        if self.protocol != Protocol::OnePhase {
            self.verdicts.clear();
        }
        let verdicts = self.verdicts.clone();
        self.log(RecordKind::Committed, WorkerStage::Committed, (Vec::new(), verdicts), forced, out);
        self.changes.clear();
    }

    /// The coordinator has aborted.
    pub fn log_aborted(&mut self, out: &mut Vec<Step<P>>) {
        self.verdicts.clear();
        self.log_refused(out);
    }

    /// Everything was refused here. The record has the verdicts, because the coordinator may ask again.
    pub fn log_refused(&mut self, out: &mut Vec<Step<P>>) {
        self.phase = Phase::Aborting;
        self.changes.clear();
        let verdicts = self.verdicts.clone();
        self.log(RecordKind::Aborted, WorkerStage::Aborted, (Vec::new(), verdicts), true, out);
    }

    /// ENDED. Nobody waits for that.
    pub fn log_ended(&mut self, out: &mut Vec<Step<P>>) {
        self.phase = Phase::Ended;
        self.verdicts.clear();
        self.log(RecordKind::Ended, WorkerStage::Ended, (Vec::new(), Vec::new()), false, out);
    }

    fn log(
        &self,
        kind: RecordKind,
        stage: WorkerStage,
        (changes, verdicts): (Vec<P::Changes>, Vec<Verdict<P>>),
        forced: bool,
        out: &mut Vec<Step<P>>,
    ) {
        let record = Record::Worked(WorkerRecord { protocol: self.protocol, stage, changes, verdicts });
        let records = vec![(RecordKey::Worked(self.name), Some(record))];
        let effective = if kind == RecordKind::Committed { self.changes.clone() } else { Vec::new() };
        let (transaction, outcomes) = (self.name, Vec::new());
        out.push(Step::Log(LogWrite { transaction, kind, records, changes: effective, outcomes, forced }));
    }

    pub fn send(&self, body: Body<P>, out: &mut Vec<Step<P>>) {
        let message = Message { protocol: self.protocol, transaction: self.name, settled: 0, body };
        out.push(Step::Send { to: self.name.shard, message });
    }

    pub fn send_updated(&self, out: &mut Vec<Step<P>>) {
        self.send(Body::Updated { verdicts: self.verdicts.clone() }, out);
    }

    pub fn send_prepared(&self, out: &mut Vec<Step<P>>) {
        self.send(Body::Prepared { verdicts: self.verdicts.clone() }, out);
    }

    pub fn hold(&self, out: &mut Vec<Step<P>>) {
        out.push(Step::Hold { transaction: self.name, own: Vec::new(), changes: self.changes.clone() });
    }

    pub fn release(&self, out: &mut Vec<Step<P>>) {
        out.push(Step::Release { transaction: self.name });
    }

    /// Gives the transaction up: nothing of it is durable.
    pub fn forget(&mut self, out: &mut Vec<Step<P>>) {
        self.phase = Phase::New;
        self.release(out);
    }
}
