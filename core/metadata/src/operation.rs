//! Operations on the namespace as procedures of the store: commands of hosts, and the server's own steps. The store evaluates them one
//! after the other, logs the changes with the answer, and reports the answer when it is durable.

use crate::reclaim::{Need, Progress, Step};
use braid_base::{Clock, Generation, InodeId};
use braid_namespace::{Context, Parameters, evaluate, format, grow, keys, reclaim};
use braid_objects::{Change, Evaluation, Found, NotHere, Obstacle, Procedure, View};
use braid_wire::{
    ActionResult, CommandResult, FileCommand, FileError, FileReply, FileTime, ObjectAnswer, ObjectFailure,
    ObjectRefusal, Owner, decode_reply, encode_reply,
};
use bytes::Bytes;
use std::any::Any;

/// The permission bits of a new root directory.
const ROOT_MODE: u16 = 0o755;
/// The version of the record of the owner.
const OWNER_VERSION: u8 = 1;
/// How many inodes, or hosts, one step finds.
const FOUND_MAX: usize = 256;

#[derive(Clone, Debug)]
pub(crate) struct Operation {
    work: Work,
    context: Context,
    /// A reservation for which no block is free has no effect: [`Replied::Short`].
    unless_short: bool,
}

#[derive(Clone, Debug)]
enum Work {
    /// A command of a host.
    Command(FileCommand),
    /// The new owner begins: makes the file system, if it is not made, or gives it the blocks of a volume that has grown, and logs its start.
    Open {
        start: Generation,
        parameters: Parameters,
        /// The owner of a new root.
        root: Owner,
    },
    Step(Step),
}

/// What has become of a command of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Replied {
    Reply(FileReply),
    /// It is a reservation for which no block is free here ([`Operation::unless_short`]).
    Short,
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
    /// These inodes were found.
    Inodes(Vec<(InodeId, Need)>),
    /// These hosts have allotments.
    Hosts(Vec<Generation>),
}

impl Operation {
    pub fn of_host(host: Generation, command: FileCommand, now: Clock, is_nearly_full: bool) -> Operation {
        let context = Context { host, now: time_of(now), is_nearly_full };
        Operation { work: Work::Command(command), context, unless_short: false }
    }

    /// The same, but a reservation for which no block is free has no effect.
    pub fn unless_short(self) -> Operation {
        Operation { unless_short: true, ..self }
    }

    pub fn open(start: Generation, parameters: Parameters, root: Owner, now: Clock) -> Operation {
        Operation::own(start, Work::Open { start, parameters, root }, now)
    }

    pub fn step(owner: Generation, step: Step, now: Clock) -> Operation {
        Operation::own(owner, Work::Step(step), now)
    }

    fn own(owner: Generation, work: Work, now: Clock) -> Operation {
        let context = Context { host: owner, now: time_of(now), is_nearly_full: false };
        Operation { work, context, unless_short: false }
    }

    fn open_in(
        &self,
        start: Generation,
        (parameters, root): (&Parameters, Owner),
        map: &mut dyn View,
    ) -> Result<Evaluation, NotHere> {
        let mut changes = Vec::new();
        match map.get(keys::PARAMETERS) {
            Ok(Some(_)) => match grow(parameters.blocks, map) {
                Ok(more) => changes = more,
                Err(Obstacle::NotHere) => return Err(NotHere),
                Err(Obstacle::Lost) => return Ok(own(OwnOutcome::Damaged, changes)),
            },
            Ok(None) => changes = format(parameters, root, ROOT_MODE, self.context.now),
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
                if self.unless_short && answer == Err(FileError::NoSpace) && !self.context.is_nearly_full {
                    return Ok(Evaluation::that_finds(Replied::Short));
                }
                Ok(replied(answer, changes, only_asks))
            }
            Work::Open { start, parameters, root } => self.open_in(*start, (parameters, *root), map),
            Work::Step(Step::Free(inode)) => Ok(stepped(reclaim::reclaim(*inode, map)?)),
            Work::Step(Step::Drop(host)) => Ok(stepped(reclaim::drop_host(*host, map)?)),
            Work::Step(Step::FreeTail(inode)) => Ok(stepped(reclaim::free_tail(*inode, map)?)),
            Work::Step(Step::FindInodes(after)) => find_inodes(*after, map),
            Work::Step(Step::FindHosts(after)) => found(reclaim::hosts(map, *after, FOUND_MAX).map(OwnOutcome::Hosts)),
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
            (OwnOutcome::Inodes(found), _) if found.len() == FOUND_MAX => {
                Progress::Goes(Step::FindInodes(found.last().map(|(inode, _)| *inode)))
            }
            (OwnOutcome::Hosts(found), _) if found.len() == FOUND_MAX => {
                Progress::Goes(Step::FindHosts(found.last().copied()))
            }
            _ => Progress::Done,
        }
    }
}

/// What the store says about a command; `None` if it was not executed: the host sends it again. If there was no room, the store keeps that as
/// its answer.
pub(crate) fn reply_of(answer: ObjectAnswer, found: Option<Found>) -> Option<Replied> {
    if let Some(found) = found {
        return Some(found.take());
    }
    let reply = match answer.as_deref() {
        Err(ObjectRefusal { failure: ObjectFailure::NoSpace, .. }) => Err(FileError::NoSpace),
        Ok([CommandResult { action: ActionResult::Data { data }, .. }]) => {
            decode_reply(data).expect("the journal is checked by checksums")
        }
        _ => return None,
    };
    Some(Replied::Reply(reply))
}

/// The store keeps an answer as that to a command on objects: it is the data of one command.
pub(crate) fn as_answer(content: impl Into<Bytes>) -> ObjectAnswer {
    Ok(vec![CommandResult { action: ActionResult::Data { data: content.into() }, values: Vec::new() }])
}

/// The evaluation of a command of a host. What only asks is not kept.
pub(crate) fn replied(reply: FileReply, changes: Vec<Change>, only_asks: bool) -> Evaluation {
    let answer = if only_asks { Ok(Vec::new()) } else { as_answer(encode_reply(&reply)) };
    Evaluation { answer, changes, only_asks, found: Some(Found::new(Replied::Reply(reply))) }
}

/// The evaluation of an operation of the server itself, of which nobody asks for the answer that is kept.
pub(crate) fn own<T: Any + Send + Sync>(found: T, changes: Vec<Change>) -> Evaluation {
    let only_asks = changes.is_empty();
    Evaluation { answer: Ok(Vec::new()), changes, only_asks, found: Some(Found::new(found)) }
}

fn stepped(step: reclaim::Step) -> Evaluation {
    let outcome = match step.is_done {
        Ok(true) => OwnOutcome::Done,
        Ok(false) => OwnOutcome::Goes,
        Err(_) => OwnOutcome::Damaged,
    };
    own(outcome, step.changes)
}

fn find_inodes(after: Option<InodeId>, map: &mut dyn View) -> Result<Evaluation, NotHere> {
    let listed = reclaim::listed(map, after, FOUND_MAX);
    let mut inodes = Vec::new();
    for inode in listed.iter().flatten() {
        let need = if reclaim::is_linked(*inode, map)? { Need::Cut } else { Need::Removal };
        inodes.push((*inode, need));
    }
    found(listed.map(|_| OwnOutcome::Inodes(inodes)))
}

fn found(found: Result<OwnOutcome, Obstacle>) -> Result<Evaluation, NotHere> {
    match found {
        Ok(found) => Ok(own(found, Vec::new())),
        Err(Obstacle::NotHere) => Err(NotHere),
        Err(Obstacle::Lost) => Ok(own(OwnOutcome::Damaged, Vec::new())),
    }
}

pub(crate) fn time_of(clock: Clock) -> FileTime {
    FileTime(i64::try_from(clock.0).unwrap_or(i64::MAX))
}
