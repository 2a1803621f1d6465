//! Operations on the namespace as procedures of the store: commands of hosts, and the server's own steps. The store evaluates them one
//! after the other, logs the changes with the answer, and reports the answer when it is durable.

use crate::reclaim::{Need, Progress, Step};
use braid_base::{Clock, Generation, InodeId};
use braid_namespace::{Context, Parameters, evaluate, format, grow, keys, reclaim};
use braid_objects::{Change, Evaluation, NotHere, Obstacle, Procedure, View};
use braid_wire::{
    ActionResult, CommandResult, FileCommand, FileError, FileReply, FileTime, ObjectAnswer, ObjectFailure,
    ObjectRefusal, Owner, decode_reply, encode_reply,
};
use bytes::{Buf, BufMut, Bytes};

/// The permission bits of a new root directory.
const ROOT_MODE: u16 = 0o755;
/// The version of the record of the owner.
const OWNER_VERSION: u8 = 1;
/// How many inodes, or hosts, one step finds.
const FOUND_MAX: usize = 256;

/// An operation.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    work: Work,
    context: Context,
    /// A reservation for which no block is free has no effect: its answer is empty.
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
    /// A command of a host.
    pub fn of_host(host: Generation, command: FileCommand, now: Clock, is_nearly_full: bool) -> Operation {
        let context = Context { host, now: time_of(now), is_nearly_full };
        Operation { work: Work::Command(command), context, unless_short: false }
    }

    /// The same, but a reservation for which no block is free has no effect, and an empty answer.
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
                    return Ok(Evaluation { answer: as_answer(Bytes::new()), changes: Vec::new(), only_asks: true });
                }
                Ok(Evaluation { answer: as_answer(encode_reply(&answer)), changes, only_asks })
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

    fn encode(&self) -> Bytes {
        let mut bytes = Vec::new();
        match self {
            OwnOutcome::Done => bytes.put_u8(0),
            OwnOutcome::Goes => bytes.put_u8(1),
            OwnOutcome::Damaged => bytes.put_u8(2),
            OwnOutcome::Hosts(found) => {
                bytes.put_u8(3);
                found.iter().for_each(|host| bytes.put_u32_le(host.0));
            }
            OwnOutcome::Inodes(found) => {
                bytes.put_u8(4);
                for (inode, need) in found {
                    bytes.put_u64_le(inode.0);
                    bytes.put_u8(u8::from(*need == Need::Cut));
                }
            }
        }
        bytes.into()
    }

    fn decode(mut bytes: Bytes) -> Option<OwnOutcome> {
        Some(match bytes.try_get_u8().ok()? {
            0 => OwnOutcome::Done,
            1 => OwnOutcome::Goes,
            2 => OwnOutcome::Damaged,
            3 => OwnOutcome::Hosts(bytes.chunks_exact(4).map(|mut host| Generation(host.get_u32_le())).collect()),
            _ => {
                let need = |is_cut| if is_cut == 1 { Need::Cut } else { Need::Removal };
                let inode = |mut found: &[u8]| (InodeId(found.get_u64_le()), need(found.get_u8()));
                OwnOutcome::Inodes(bytes.chunks_exact(9).map(inode).collect())
            }
        })
    }
}

/// The reply to a command; `None` if it was not executed: the host sends it again. If there was no room, the store keeps that as its
/// answer.
pub(crate) fn reply_of(answer: &ObjectAnswer) -> Option<FileReply> {
    if let Err(ObjectRefusal { failure: ObjectFailure::NoSpace, .. }) = answer {
        return Some(Err(FileError::NoSpace));
    }
    let reply = decode_reply(&content(answer)?);
    Some(reply.expect("replies are encoded here, and the journal is checked by checksums"))
}

/// True if this is the answer to a reservation for which no block is free ([`Operation::unless_short`]).
pub(crate) fn is_short(answer: &ObjectAnswer) -> bool {
    content(answer).is_some_and(|content| content.is_empty())
}

/// The outcome of an operation of the server itself; `None` if it was not executed for lack of room.
pub(crate) fn outcome_of(answer: &ObjectAnswer) -> Option<OwnOutcome> {
    OwnOutcome::decode(content(answer)?)
}

/// The store keeps an answer as that to a command on objects: it is the data of one command.
pub(crate) fn as_answer(content: impl Into<Bytes>) -> ObjectAnswer {
    Ok(vec![CommandResult { action: ActionResult::Data { data: content.into() }, values: Vec::new() }])
}

/// The content of such an answer; `None` if the store had no room.
pub(crate) fn content(answer: &ObjectAnswer) -> Option<Bytes> {
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
