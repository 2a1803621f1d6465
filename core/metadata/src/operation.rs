//! Operations on the namespace as procedures of the store: commands of hosts, and the server's own steps. The store evaluates them one
//! after the other, logs the changes with the answer, and reports the answer when it is durable.

use crate::reclaim::{Progress, Step};
use braid_base::{Clock, Generation, InodeId};
use braid_namespace::{Context, Parameters, evaluate, format, keys, reclaim};
use braid_objects::{Change, Evaluation, NotHere, Obstacle, Procedure, View};
use braid_wire::{
    ActionResult, CommandResult, FileCommand, FileReply, FileTime, ObjectAnswer, Owner, decode_reply, encode_reply,
};
use bytes::{Buf, BufMut, Bytes};

/// The permission bits of a new root directory.
const ROOT_MODE: u16 = 0o755;
/// The version of the record of the owner.
const OWNER_VERSION: u8 = 1;
/// How many orphans, or hosts, one step finds.
const FOUND_MAX: usize = 256;

/// An operation.
#[derive(Debug)]
pub(crate) struct Operation {
    work: Work,
    context: Context,
}

#[derive(Debug)]
enum Work {
    /// A command of a host.
    Command(FileCommand),
    /// The new owner begins: makes the file system, if it is not made, and logs its start.
    Open {
        start: Generation,
        parameters: Parameters,
    },
    Step(Step),
}

/// The outcome of an operation of the server itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnOutcome {
    /// Nothing is left to do.
    Done,
    /// There is more to do.
    Goes,
    /// Metadata is damaged. Nothing was changed.
    Damaged,
    /// These inodes or hosts were found.
    Found(Vec<u64>),
}

impl Operation {
    /// A command of a host.
    pub fn of_host(host: Generation, command: FileCommand, now: Clock, is_nearly_full: bool) -> Operation {
        Operation { work: Work::Command(command), context: Context { host, now: time_of(now), is_nearly_full } }
    }

    pub fn open(start: Generation, parameters: Parameters, now: Clock) -> Operation {
        Operation::own(start, Work::Open { start, parameters }, now)
    }

    pub fn step(owner: Generation, step: Step, now: Clock) -> Operation {
        Operation::own(owner, Work::Step(step), now)
    }

    fn own(owner: Generation, work: Work, now: Clock) -> Operation {
        Operation { work, context: Context { host: owner, now: time_of(now), is_nearly_full: false } }
    }

    fn open_in(&self, start: Generation, parameters: &Parameters, map: &mut dyn View) -> Result<Evaluation, NotHere> {
        let mut changes = Vec::new();
        match map.get(keys::PARAMETERS) {
            Ok(Some(_)) => {}
            Ok(None) => changes = format(parameters, Owner::default(), ROOT_MODE, self.context.now),
            Err(Obstacle::NotHere) => return Err(NotHere),
            Err(Obstacle::Lost) => return Ok(own(OwnOutcome::Damaged, changes)),
        }
        let owner = [&[OWNER_VERSION][..], &start.0.to_le_bytes()].concat();
        changes.push(Change { key: keys::OWNER, value: Some(owner.into()) });
        changes.sort_by_key(|change| change.key);
        Ok(own(OwnOutcome::Done, changes))
    }
}

impl Procedure for Operation {
    fn evaluate(&self, map: &mut dyn View) -> Result<Evaluation, NotHere> {
        match &self.work {
            Work::Command(command) => {
                let braid_namespace::Evaluation { answer, changes, only_asks } = evaluate(command, self.context, map)?;
                Ok(Evaluation { answer: as_answer(encode_reply(&answer)), changes, only_asks })
            }
            Work::Open { start, parameters } => self.open_in(*start, parameters, map),
            Work::Step(Step::Free(inode)) => Ok(stepped(reclaim::reclaim(*inode, map)?)),
            Work::Step(Step::Drop(host)) => Ok(stepped(reclaim::drop_host(*host, map)?)),
            Work::Step(Step::FindOrphans(after)) => {
                found(reclaim::listed(map, *after, FOUND_MAX).map(|found| found.iter().map(|inode| inode.0).collect()))
            }
            Work::Step(Step::FindHosts(after)) => {
                let hosts = reclaim::hosts(map, *after, FOUND_MAX);
                found(hosts.map(|found| found.iter().map(|host| u64::from(host.0)).collect()))
            }
        }
    }

    fn memory_bytes(&self) -> usize {
        let content = match &self.work {
            Work::Command(command) => command.memory_bytes(),
            Work::Open { .. } | Work::Step(_) => 0,
        };
        size_of::<Operation>() + content
    }
}

impl OwnOutcome {
    /// What follows a step with this outcome.
    pub fn progress(&self, step: Step) -> Progress {
        match (self, step) {
            (OwnOutcome::Goes, step) => Progress::Goes(step),
            (OwnOutcome::Found(found), Step::FindOrphans(_)) if found.len() == FOUND_MAX => {
                Progress::Goes(Step::FindOrphans(found.last().map(|inode| InodeId(*inode))))
            }
            (OwnOutcome::Found(found), Step::FindHosts(_)) if found.len() == FOUND_MAX => {
                Progress::Goes(Step::FindHosts(found.last().map(|host| Generation(*host as u32))))
            }
            _ => Progress::Done,
        }
    }

    fn encode(&self) -> Bytes {
        let mut bytes = Vec::new();
        match self {
            OwnOutcome::Done => bytes.put_u8(0),
            OwnOutcome::Goes => bytes.put_u8(1),
            OwnOutcome::Damaged => bytes.put_u8(2),
            OwnOutcome::Found(found) => {
                bytes.put_u8(3);
                found.iter().for_each(|number| bytes.put_u64_le(*number));
            }
        }
        bytes.into()
    }

    fn decode(mut bytes: Bytes) -> Option<OwnOutcome> {
        Some(match bytes.try_get_u8().ok()? {
            0 => OwnOutcome::Done,
            1 => OwnOutcome::Goes,
            2 => OwnOutcome::Damaged,
            _ => OwnOutcome::Found(bytes.chunks_exact(8).map(|mut number| number.get_u64_le()).collect()),
        })
    }
}

/// The reply to a command; `None` if it was not executed for lack of room.
pub(crate) fn reply_of(answer: &ObjectAnswer) -> Option<FileReply> {
    let reply = decode_reply(&content(answer)?);
    Some(reply.expect("replies are encoded here, and the journal is checked by checksums"))
}

/// The outcome of an operation of the server itself; `None` if it was not executed for lack of room.
pub(crate) fn outcome_of(answer: &ObjectAnswer) -> Option<OwnOutcome> {
    OwnOutcome::decode(content(answer)?)
}

/// The store keeps an answer as that to a command on objects: it is the data of one command.
fn as_answer(content: impl Into<Bytes>) -> ObjectAnswer {
    Ok(vec![CommandResult { action: ActionResult::Data { data: content.into() }, values: Vec::new() }])
}

fn content(answer: &ObjectAnswer) -> Option<Bytes> {
    match answer.as_deref() {
        Ok([CommandResult { action: ActionResult::Data { data }, .. }]) => Some(data.clone()),
        _ => None,
    }
}

fn own(outcome: OwnOutcome, changes: Vec<Change>) -> Evaluation {
    Evaluation { answer: as_answer(outcome.encode()), only_asks: changes.is_empty(), changes }
}

fn stepped(step: reclaim::Step) -> Evaluation {
    let outcome = match step.is_done {
        Ok(true) => OwnOutcome::Done,
        Ok(false) => OwnOutcome::Goes,
        Err(_) => OwnOutcome::Damaged,
    };
    own(outcome, step.changes)
}

fn found(found: Result<Vec<u64>, Obstacle>) -> Result<Evaluation, NotHere> {
    match found {
        Ok(found) => Ok(own(OwnOutcome::Found(found), Vec::new())),
        Err(Obstacle::NotHere) => Err(NotHere),
        Err(Obstacle::Lost) => Ok(own(OwnOutcome::Damaged, Vec::new())),
    }
}

fn time_of(clock: Clock) -> FileTime {
    FileTime(i64::try_from(clock.0).unwrap_or(i64::MAX))
}
