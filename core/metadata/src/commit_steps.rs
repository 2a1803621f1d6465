//! What a metadata server does for the commit protocols: it evaluates parts under locks, writes records, sends messages and answers hosts, as
//! [`Step`]s say.

use crate::operation::as_answer;
use crate::operation_locks::Owner;
use crate::reclaim;
use crate::server::{MetadataError, MetadataServer, MetadataService, OwnOperation};
use crate::shard_operation::{Findings, LoadRecords, RECORDS_TICKET, Records, Write, is_outdated, reply_of_parts};
use crate::sharded::{Evaluating, LOCKS_WITHIN, ShardTimer, Sharded};
use braid_base::{Generation, InodeId, Now, ShardId};
use braid_commit::{Evaluation, Event, LogWrite, Outcome, Parts, RecordKind, Refusal, Step, TransactionName};
use braid_machine::Effects;
use braid_namespace::parts::{locks_of, next_made};
use braid_objects::Key;
use braid_store::OnBehalf;
use braid_wire::{
    CoordinatorParts, FileAttributes, FileError, FileReply, ShardBody, ShardFinding, ShardPart, ShardParts,
    decode_reply, encode_reply,
};
use bytes::Bytes;

/// What became of an operation at its coordinator.
#[derive(Clone, Debug)]
enum Ended {
    Reply(FileReply),
    /// It has changed nothing, and is to be planned anew.
    Again,
}

impl Sharded {
    /// Takes the locks of a transaction again that was found after a restart, and the numbers that it has chosen.
    fn hold(&mut self, transaction: TransactionName, parts: &Parts) {
        for parts in parts_of(parts) {
            self.note_made(&parts);
            self.locks.hold(Owner::Transaction(transaction), locks_of(&parts));
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
                let next = next_made(self.shard, self.made)?;
                self.made = next.0;
                *inode = Some(next);
            }
        }
        Some(parts)
    }
}

impl MetadataServer {
    pub(crate) fn step_commits(&mut self, now: Now, event: Event, out: &mut Effects) {
        let mut steps = Vec::new();
        self.shards().commits.step(now.time, event, &mut steps);
        self.do_steps(now, steps, out);
    }

    pub(crate) fn do_steps(&mut self, now: Now, steps: Vec<Step>, out: &mut Effects) {
        for step in steps {
            match step {
                Step::Hold { transaction, parts } => self.shards().hold(transaction, &parts),
                Step::Evaluate { transaction, requests } => self.begin_evaluation(now, transaction, &requests, out),
                Step::Log(write) => self.log(now, write, out),
                Step::Send { to, message } => {
                    self.reply_to(now, to, ShardBody::Commit { message: message.encode() }, out);
                }
                Step::Release { transaction } => {
                    self.shards().evaluations.remove(&transaction);
                    self.shards().timers.cancel(ShardTimer::Locks(transaction));
                    self.release(now, Owner::Transaction(transaction), out);
                    if self.shards().groups.end(transaction) {
                        self.begin_groups(now, out);
                    }
                }
                Step::Answer { outcomes, .. } => {
                    for outcome in outcomes {
                        self.answer_outcome(now, &outcome, out);
                    }
                }
            }
        }
    }

    fn begin_evaluation(&mut self, now: Now, transaction: TransactionName, requests: &[Bytes], out: &mut Effects) {
        let refuse = |error| {
            let reason = encode_error(error);
            let evaluations = requests.iter().map(|_| Evaluation::Refused { reason: reason.clone() }).collect();
            Event::Evaluated { transaction, evaluations }
        };
        let own = self.shards().shard;
        let decoded = requests.iter().map(|it| ShardParts::decode(it).ok().filter(|parts| is_of(parts, own)));
        let Some(operations) = decoded.collect::<Option<Vec<ShardParts>>>() else {
            return self.step_commits(now, refuse(FileError::Malformed), out);
        };
        let numbered = operations.into_iter().map(|parts| self.shards().with_numbers(parts));
        let Some(operations) = numbered.collect::<Option<Vec<ShardParts>>>() else {
            return self.step_commits(now, refuse(FileError::NoSpace), out);
        };
        let locks = operations.iter().flat_map(locks_of).collect();
        self.shards().evaluations.insert(transaction, Evaluating { operations, ticket: None });
        if self.shards().locks.acquire(Owner::Transaction(transaction), locks) {
            self.evaluate_for(now, transaction, false, out);
        } else {
            self.shards().timers.set(ShardTimer::Locks(transaction), now.time.after(LOCKS_WITHIN));
        }
    }

    /// Another operation has the locks for too long: it may wait for the server that asks.
    pub(crate) fn refuse_for_lack_of_locks(&mut self, now: Now, transaction: TransactionName, out: &mut Effects) {
        if let Some(evaluating) = self.shards().evaluations.get(&transaction) {
            let refused = evaluating.refused(FileError::Busy);
            self.on_worker_parts(now, transaction, refused, out);
        }
    }

    /// The operations of another server's transaction are evaluated.
    pub(crate) fn on_worker_parts(
        &mut self,
        now: Now,
        transaction: TransactionName,
        findings: Findings,
        out: &mut Effects,
    ) {
        // It may have ended meanwhile.
        let Some(Evaluating { operations, .. }) = self.shards().evaluations.remove(&transaction) else { return };
        if findings.iter().all(Result::is_err) {
            // Nothing is going to be done under these locks.
            self.release(now, Owner::Transaction(transaction), out);
        }
        let evaluation = |(parts, finding): (ShardParts, Result<_, FileError>)| match finding {
            Ok(inodes) => Evaluation::Accepted {
                changes: parts.encode(),
                answer: ShardFinding::Accepted { parts, inodes }.encode(),
            },
            Err(error) => Evaluation::Refused { reason: encode_error(error) },
        };
        let evaluations = operations.into_iter().zip(findings).map(evaluation).collect();
        self.step_commits(now, Event::Evaluated { transaction, evaluations }, out);
    }

    /// Writes records, with what is decided by them.
    fn log(&mut self, now: Now, write: LogWrite, out: &mut Effects) {
        let LogWrite { transaction, kind, records, applies, outcomes, .. } = write;
        let on_behalf = outcomes.iter().filter_map(answer_kept).collect();
        let mut parts = Vec::new();
        match &applies {
            Some(Parts::Coordinator(all)) => {
                for own in all {
                    let other = outcomes.iter().find(|outcome| outcome.own == *own).and_then(other_inode);
                    parts.push((coordinator_parts(own).own, other));
                }
            }
            Some(Parts::Worker(all)) => parts.extend(all.iter().map(|own| (decoded(own), None))),
            None => {}
        }
        let lost = parts.iter().flat_map(|(parts, _)| names_lost(parts)).collect();
        self.run_surely(
            now,
            OwnOperation::Logged { transaction, kind, lost },
            on_behalf,
            Box::new(Write { records, parts }),
            out,
        );
    }

    /// A write of records is durable.
    pub(crate) fn on_logged(
        &mut self,
        now: Now,
        (transaction, kind): (TransactionName, RecordKind),
        lost: Vec<InodeId>,
        out: &mut Effects,
    ) {
        for inode in lost {
            // It may have other names.
            self.reclaim.add_step(reclaim::Step::FindInodes(inode.0.checked_sub(1).map(InodeId)));
        }
        self.step_commits(now, Event::Logged { transaction, kind }, out);
    }

    /// Tells a host what became of its command, or plans it anew.
    fn answer_outcome(&mut self, now: Now, outcome: &Outcome, out: &mut Effects) {
        let own = coordinator_parts(&outcome.own);
        let name = own.client();
        match ended(&own, outcome) {
            Ended::Reply(reply) => {
                if !self.is_fenced(name.host) {
                    self.answer(now, name.host, name.sequence, reply, out);
                }
                self.end_command(now, name, out);
            }
            Ended::Again => self.pause(now, name, out),
        }
    }

    /// Reads the records of transactions, before the server serves.
    pub(crate) fn load_records(&mut self, now: Now, from: Key, out: &mut Effects) {
        let load = Box::new(LoadRecords { from });
        self.with_store(now, out, |store, out| store.inspect(now, RECORDS_TICKET, load, out));
    }

    /// A page of records is there. After the last one, transactions go on, and the server serves.
    pub(crate) fn on_records(&mut self, now: Now, records: Option<Records>, out: &mut Effects) {
        let Some(Records { found, next, made, received }) = records else {
            self.service = MetadataService::Unusable(MetadataError::Damaged);
            return;
        };
        self.shards().made = self.shards().made.max(made);
        let commits = &mut self.shards().commits;
        if !found.into_iter().all(|(key, record)| commits.restore(key, record)) {
            self.service = MetadataService::Unusable(MetadataError::Damaged);
            return;
        }
        if let Some(next) = next {
            return self.load_records(now, next, out);
        }
        let mut steps = Vec::new();
        self.shards().commits.recover(now.time, &mut steps);
        self.begin_service();
        self.own.space.begin(now, &received);
        self.do_steps(now, steps, out);
    }
}

/// True if a server serves, and nothing that a host has asked for happens any more: the host is fenced, and no transaction is under way for it.
/// What was being committed when it was fenced still takes effect.
pub fn is_done_with(server: &MetadataServer, host: Generation) -> bool {
    let is_under_way = |sharded: &Sharded| {
        let mut coordinated = sharded.commits.state().coordinated();
        sharded.commands.keys().any(|name| name.host == host)
            || coordinated.any(|operation| coordinator_parts(&operation.own).client().host == host)
    };
    server.is_serving() && server.is_fenced(host) && !server.sharded.as_deref().is_some_and(is_under_way)
}

fn coordinator_parts(own: &Bytes) -> CoordinatorParts {
    CoordinatorParts::decode(own).expect("it is encoded here, and the journal is checked by checksums")
}

fn decoded(parts: &Bytes) -> ShardParts {
    ShardParts::decode(parts).expect("they are encoded here, and the journal is checked by checksums")
}

fn parts_of(parts: &Parts) -> Vec<ShardParts> {
    match parts {
        Parts::Coordinator(all) => all.iter().map(|own| coordinator_parts(own).own).collect(),
        Parts::Worker(all) => all.iter().map(decoded).collect(),
    }
}

fn encode_error(error: FileError) -> Bytes {
    encode_reply(&Err(error)).into()
}

/// What the workers have done: none of it if an answer is not valid.
fn done_by_workers(outcome: &Outcome) -> Vec<(ShardParts, Vec<FileAttributes>)> {
    let answers = outcome.result.as_deref().unwrap_or_default();
    let found = answers.iter().map(ShardFinding::decode);
    let done = found.map(|found| match found {
        Ok(ShardFinding::Accepted { parts, inodes }) => Some((parts, inodes)),
        Err(_) => None,
    });
    done.collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// The inode in another shard to which a new entry refers.
fn other_inode(outcome: &Outcome) -> Option<FileAttributes> {
    done_by_workers(outcome).first().and_then(|(_, inodes)| inodes.first().copied())
}

/// The answer that is kept for a host.
fn answer_kept(outcome: &Outcome) -> Option<OnBehalf> {
    let own = coordinator_parts(&outcome.own);
    match ended(&own, outcome) {
        Ended::Reply(reply) => {
            Some(OnBehalf { name: own.client(), settled: 0, answer: as_answer(encode_reply(&reply)) })
        }
        Ended::Again => None,
    }
}

/// What a host hears of an operation.
fn ended(own: &CoordinatorParts, outcome: &Outcome) -> Ended {
    match &outcome.result {
        Ok(_) => {
            let done = done_by_workers(outcome);
            let all = done.iter().map(|(parts, inodes)| (parts, &inodes[..]));
            Ended::Reply(reply_of_parts(&own.command, all.chain([(&own.own, &own.inodes[..])])))
        }
        Err(Refusal::Abandoned) => Ended::Again,
        Err(Refusal::ByWorker { reason, .. }) => match decode_reply(reason) {
            Ok(Err(error)) if is_outdated(&own.command, error) => Ended::Again,
            Ok(Err(error)) => Ended::Reply(Err(error)),
            _ => Ended::Reply(Err(FileError::Lost)),
        },
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
