//! What a metadata server does for the commit protocols: it evaluates parts under locks, writes records, sends messages and answers hosts, as
//! [`Step`]s say.

use super::{Ctx, Evaluating, LOCKS_WITHIN, ShardAction, ShardTimer, Shards};
use crate::operation::as_answer;
use crate::operation_locks::Owner;
use crate::shard_operation::{
    Findings, LoadRecords, RECORDS_TICKET, Records, ShardPayload, Write, first_record, is_outdated, reply_of_parts,
};
use braid_base::{Generation, InodeId, ShardId};
use braid_commit::{Evaluation, Event, LogWrite, Message, Outcome, Refusal, Step, TransactionName};
use braid_machine::Ignored;
use braid_namespace::parts::{locks_of, next_made};
use braid_objects::Key;
use braid_store::OnBehalf;
use braid_wire::{
    CoordinatorParts, FileAttributes, FileError, FileReply, ShardBody, ShardFinding, ShardPart, ShardParts,
    encode_reply,
};
use bytes::Bytes;

impl Shards {
    /// Takes the locks of a transaction again that was found after a restart, and the numbers that it has chosen.
    fn hold(&mut self, transaction: TransactionName, own: &[CoordinatorParts], changes: &[ShardParts]) {
        for parts in own.iter().map(|own| &own.own).chain(changes) {
            self.note_made(parts);
            self.locks.hold(Owner::Transaction(transaction), locks_of(parts));
        }
    }

    /// New numbers must be higher than those that were chosen.
    fn note_made(&mut self, parts: &ShardParts) {
        for part in &parts.parts {
            if let ShardPart::Make { inode: Some(inode), .. } = part {
                self.made = self.made.max(inode.0);
            }
        }
    }

    /// Chooses the numbers of new inodes. `None` if there are no more.
    fn with_numbers(&mut self, mut parts: ShardParts) -> Option<ShardParts> {
        for part in &mut parts.parts {
            if let ShardPart::Make { inode: inode @ None, .. } = part {
                let next = next_made(self.own, self.made)?;
                self.made = next.0;
                *inode = Some(next);
            }
        }
        Some(parts)
    }

    /// The server of another shard has sent a message of the commit protocol.
    pub fn on_message(&mut self, from: ShardId, message: Bytes, cx: &mut Ctx) {
        match Message::decode(message) {
            Ok(message) => self.step(Event::Message { from, message }, cx),
            Err(_) => cx.ignore(Ignored::NotForUs),
        }
    }

    /// Something has happened to the transactions.
    pub fn step(&mut self, event: Event<ShardPayload>, cx: &mut Ctx) {
        let mut steps = Vec::new();
        self.commits.step(cx.now.time, event, &mut steps);
        self.do_steps(steps, cx);
    }

    pub(super) fn do_steps(&mut self, steps: Vec<Step<ShardPayload>>, cx: &mut Ctx) {
        for step in steps {
            match step {
                Step::Hold { transaction, own, changes } => self.hold(transaction, &own, &changes),
                Step::Evaluate { transaction, requests } => self.begin_evaluation(transaction, requests, cx),
                Step::Log(write) => cx.actions.push(logged(write)),
                Step::Send { to, message } => {
                    let body = ShardBody::Commit { message: message.encode() };
                    cx.actions.push(ShardAction::Send { to, body });
                }
                Step::Release { transaction } => {
                    self.evaluations.remove(&transaction);
                    self.timers.cancel(ShardTimer::Locks(transaction));
                    self.release(Owner::Transaction(transaction), cx);
                    if self.groups.end(transaction) {
                        self.begin_groups(cx);
                    }
                }
                Step::Answer { outcomes, .. } => {
                    for outcome in outcomes {
                        self.answer_outcome(&outcome, cx);
                    }
                }
            }
        }
    }

    fn begin_evaluation(
        &mut self,
        transaction: TransactionName,
        requests: Vec<Result<ShardParts, Bytes>>,
        cx: &mut Ctx,
    ) {
        let (own, count) = (self.own, requests.len());
        let refuse = |error| {
            let evaluations = vec![Evaluation::Refused { reason: Ok(error) }; count];
            Event::Evaluated { transaction, evaluations }
        };
        let valid = requests.into_iter().map(|request| request.ok().filter(|parts| is_of(parts, own)));
        let Some(operations) = valid.collect::<Option<Vec<ShardParts>>>() else {
            return self.step(refuse(FileError::Malformed), cx);
        };
        let numbered = operations.into_iter().map(|parts| self.with_numbers(parts));
        let Some(operations) = numbered.collect::<Option<Vec<ShardParts>>>() else {
            return self.step(refuse(FileError::NoSpace), cx);
        };
        let locks = operations.iter().flat_map(locks_of).collect();
        self.evaluations.insert(transaction, Evaluating { operations, ticket: None });
        if !self.acquire(Owner::Transaction(transaction), locks, cx) {
            self.timers.set(ShardTimer::Locks(transaction), cx.now.time.after(LOCKS_WITHIN));
        }
    }

    /// Another operation has the locks for too long: it may wait for the server that asks.
    pub(super) fn refuse_for_lack_of_locks(&mut self, transaction: TransactionName, cx: &mut Ctx) {
        if let Some(evaluating) = self.evaluations.get(&transaction) {
            let refused = evaluating.refused(FileError::Busy);
            self.on_worker_parts(transaction, refused, cx);
        }
    }

    /// The operations of another server's transaction are evaluated.
    pub(super) fn on_worker_parts(&mut self, transaction: TransactionName, findings: Findings, cx: &mut Ctx) {
        // It may have ended meanwhile.
        let Some(Evaluating { operations, .. }) = self.evaluations.remove(&transaction) else { return };
        if findings.iter().all(Result::is_err) {
            // Nothing is going to be done under these locks.
            self.release(Owner::Transaction(transaction), cx);
        }
        let evaluation = |(parts, finding): (ShardParts, Result<_, FileError>)| match finding {
            Ok(inodes) => {
                let changes = parts.clone();
                Evaluation::Accepted { changes, answer: Ok(ShardFinding::Accepted { parts, inodes }) }
            }
            Err(error) => Evaluation::Refused { reason: Ok(error) },
        };
        let evaluations = operations.into_iter().zip(findings).map(evaluation).collect();
        self.step(Event::Evaluated { transaction, evaluations }, cx);
    }

    /// Tells a host what became of its command, or plans it anew.
    fn answer_outcome(&mut self, outcome: &Outcome<ShardPayload>, cx: &mut Ctx) {
        let name = outcome.own.client();
        match reply_of(outcome) {
            Some(reply) => {
                if !cx.facts.is_fenced(name.host) {
                    cx.answer(name, reply);
                }
                self.end_command(name, cx);
            }
            None => self.pause(name, cx),
        }
    }

    /// Reads the records of transactions, before the server serves. There are none without peers.
    pub fn recover(&mut self, cx: &mut Ctx) {
        if self.has_peers() {
            load_records(first_record(), cx);
        } else {
            cx.actions.push(ShardAction::Serve { received: Vec::new() });
        }
    }

    /// A page of records is there. After the last one, transactions go on, and the server serves.
    pub(super) fn on_records(&mut self, records: Option<Records>, cx: &mut Ctx) {
        let Some(Records { found, next, made, received }) = records else {
            return cx.actions.push(ShardAction::Refuse);
        };
        self.made = self.made.max(made);
        if !found.into_iter().all(|(key, record)| self.commits.restore(key, record)) {
            return cx.actions.push(ShardAction::Refuse);
        }
        if let Some(next) = next {
            return load_records(next, cx);
        }
        let mut steps = Vec::new();
        self.commits.recover(cx.now.time, &mut steps);
        cx.actions.push(ShardAction::Serve { received });
        self.do_steps(steps, cx);
    }

    /// True if a transaction that is not over has an operation for this host.
    pub(super) fn commits_for(&self, host: Generation) -> bool {
        self.commits.state().coordinated().any(|operation| operation.own.host == host)
    }
}

fn load_records(from: Key, cx: &mut Ctx) {
    let (ticket, procedure) = (RECORDS_TICKET, Box::new(LoadRecords { from }));
    cx.actions.push(ShardAction::Look { ticket, procedure, is_durable: true });
}

/// Writes records, with what is decided by them.
fn logged(write: LogWrite<ShardPayload>) -> ShardAction {
    let LogWrite { transaction, kind, records, changes, outcomes, .. } = write;
    let on_behalf = outcomes.iter().filter_map(answer_kept).collect();
    let committed = outcomes.into_iter().filter(|outcome| outcome.result.is_ok());
    let own = committed.map(|outcome| (other_inode(&outcome), outcome.own.own)).map(|(other, parts)| (parts, other));
    let parts: Vec<_> = own.chain(changes.into_iter().map(|parts| (parts, None))).collect();
    let lost = parts.iter().flat_map(|(parts, _)| names_lost(parts)).collect();
    ShardAction::Log { transaction, kind, lost, on_behalf, write: Write { records, parts } }
}

/// What the workers have done: none of it if an answer is not valid.
fn done_by_workers(outcome: &Outcome<ShardPayload>) -> Vec<(&ShardParts, &[FileAttributes])> {
    let answers = outcome.result.as_deref().unwrap_or_default();
    let done = answers.iter().map(|answer| {
        let ShardFinding::Accepted { parts, inodes } = answer.as_ref().ok()?;
        Some((parts, &inodes[..]))
    });
    done.collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// The inode in another shard to which a new entry refers.
fn other_inode(outcome: &Outcome<ShardPayload>) -> Option<FileAttributes> {
    done_by_workers(outcome).first().and_then(|(_, inodes)| inodes.first().copied())
}

/// The answer that is kept for a host.
fn answer_kept(outcome: &Outcome<ShardPayload>) -> Option<OnBehalf> {
    let answer = as_answer(encode_reply(&reply_of(outcome)?));
    Some(OnBehalf { name: outcome.own.client(), settled: 0, answer })
}

/// What a host hears of an operation. `None`: it has changed nothing, and is to be planned anew.
fn reply_of(outcome: &Outcome<ShardPayload>) -> Option<FileReply> {
    let CoordinatorParts { command, own, inodes, .. } = &outcome.own;
    match &outcome.result {
        Ok(_) => {
            let all = done_by_workers(outcome).into_iter().chain([(own, &inodes[..])]);
            Some(reply_of_parts(command, all))
        }
        Err(Refusal::Abandoned) => None,
        Err(Refusal::ByWorker { reason: Ok(error), .. }) => (!is_outdated(command, *error)).then_some(Err(*error)),
        Err(Refusal::ByWorker { reason: Err(_), .. }) => Some(Err(FileError::Lost)),
    }
}

/// The inodes that lose a name.
fn names_lost(parts: &ShardParts) -> impl Iterator<Item = InodeId> + '_ {
    parts.parts.iter().filter_map(|part| match part {
        ShardPart::LoseName { inode } | ShardPart::LoseDirectory { inode } => Some(*inode),
        _ => None,
    })
}

/// True if the parts are valid for this shard.
fn is_of(parts: &ShardParts, own: ShardId) -> bool {
    parts.parts.iter().all(|part| part.check(own).is_ok())
}
