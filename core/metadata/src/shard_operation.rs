//! What operations on several shards do in the store of one, as its procedures: they make plans, evaluate parts, answer questions, and write
//! what the commit protocol wants written.

use crate::operation::{OwnOutcome, own, replied};
use braid_commit::{Payload, Record, RecordKey, WorkerStage};
use braid_namespace::parts::{answer, evaluate_parts, execute_parts, last_made};
use braid_namespace::plan::{Known, plan};
use braid_namespace::transfers::last_received;
use braid_namespace::{Context, keys};
use braid_objects::{Change, Evaluation, Key, Kind, NotHere, Obstacle, Procedure, View};
use braid_wire::{
    CoordinatorParts, FileAttributes, FileCommand, FileError, FileReply, FileResult, ShardFinding, ShardPart,
    ShardParts, ShardQuestion,
};
use bytes::Bytes;
use std::collections::BTreeMap;

/// The ticket of the pages of records.
pub(crate) const RECORDS_TICKET: u64 = 0;
/// How many records one page has.
const PAGE_MAX: usize = 64;
/// Records of transactions of other coordinators: from this number on.
const WORKED: u64 = 256;

/// What the commit protocols carry. What another server has sent, and this build can't read, is bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ShardPayload {}

impl Payload for ShardPayload {
    type Own = CoordinatorParts;
    type Request = Result<ShardParts, Bytes>;
    type Changes = ShardParts;
    type Answer = Result<ShardFinding, Bytes>;
    type Reason = Result<FileError, Bytes>;
}

pub(crate) type SharedOperation = braid_commit::Operation<ShardPayload>;

/// What is found about each operation of a transaction: the inodes that its parts are about, in order, as they are afterwards.
pub(crate) type Findings = Vec<Result<Vec<FileAttributes>, FileError>>;

/// Makes the plan of a command.
#[derive(Clone, Debug)]
pub(crate) struct MakePlan {
    pub command: FileCommand,
    pub known: Known,
    pub context: Context,
}

/// Evaluates the parts of each operation of a transaction, as if those before were done.
#[derive(Clone, Debug)]
pub(crate) struct EvaluateParts {
    pub operations: Vec<ShardParts>,
    pub is_nearly_full: bool,
}

/// Answers a question.
#[derive(Clone, Debug)]
pub(crate) struct AnswerQuestion(pub ShardQuestion);

/// A command that was executed otherwise: only its answer is left.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub reply: FileReply,
    pub only_asks: bool,
}

/// A command whose parts are all of this shard.
#[derive(Clone, Debug)]
pub(crate) struct RunParts {
    pub command: FileCommand,
    pub parts: ShardParts,
    pub is_nearly_full: bool,
}

/// Writes records of the commit protocol, and executes what is decided with them.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub records: Vec<(RecordKey, Option<Record<ShardPayload>>)>,
    /// The parts that are executed, and the inode in another shard that they refer to.
    pub parts: Vec<(ShardParts, Option<FileAttributes>)>,
}

/// Reads records from this key on.
#[derive(Clone, Debug)]
pub(crate) struct LoadRecords {
    pub from: Key,
}

impl Procedure for MakePlan {
    fn evaluate(&self, map: &mut dyn View) -> Result<Evaluation, NotHere> {
        Ok(Evaluation::that_finds(plan(&self.command, &self.known, self.context, map)?))
    }

    fn memory_bytes(&self) -> usize {
        size_of::<MakePlan>() + self.command.memory_bytes()
    }
}

impl Procedure for EvaluateParts {
    fn evaluate(&self, map: &mut dyn View) -> Result<Evaluation, NotHere> {
        let mut changes = BTreeMap::new();
        let mut findings = Vec::new();
        for parts in &self.operations {
            let view = &mut Changed { map, changes: &changes };
            findings.push(evaluate_parts(parts, self.is_nearly_full, view)?.map(|(changed, inodes)| {
                changes.extend(changed.into_iter().map(|change| (change.key, change.value)));
                inodes
            }));
        }
        Ok(Evaluation::that_finds::<Findings>(findings))
    }

    fn memory_bytes(&self) -> usize {
        size_of::<EvaluateParts>() + size_of_val(&self.operations[..])
    }
}

impl Procedure for AnswerQuestion {
    fn evaluate(&self, map: &mut dyn View) -> Result<Evaluation, NotHere> {
        Ok(Evaluation::that_finds(answer(&self.0, map)?))
    }

    fn memory_bytes(&self) -> usize {
        size_of::<AnswerQuestion>()
    }
}

impl Procedure for Answered {
    fn evaluate(&self, _: &mut dyn View) -> Result<Evaluation, NotHere> {
        Ok(replied(self.reply.clone(), Vec::new(), self.only_asks))
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Answered>()
    }
}

impl Procedure for RunParts {
    fn evaluate(&self, map: &mut dyn View) -> Result<Evaluation, NotHere> {
        let (reply, changes) = match evaluate_parts(&self.parts, self.is_nearly_full, map)? {
            Ok((changes, inodes)) => (reply_of_parts(&self.command, [(&self.parts, &inodes[..])]), changes),
            Err(error) => (Err(error), Vec::new()),
        };
        Ok(replied(reply, changes, false))
    }

    fn memory_bytes(&self) -> usize {
        size_of::<RunParts>() + self.command.memory_bytes()
    }
}

impl Procedure for Write {
    fn evaluate(&self, map: &mut dyn View) -> Result<Evaluation, NotHere> {
        let mut changes = BTreeMap::new();
        for (parts, other) in &self.parts {
            let Ok((changed, _)) = execute_parts(parts, *other, &mut Changed { map, changes: &changes })? else {
                return Ok(own(OwnOutcome::Damaged, Vec::new()));
            };
            changes.extend(changed.into_iter().map(|change| (change.key, change.value)));
        }
        changes.extend(self.records.iter().map(|(key, record)| (key_of(*key), record.as_ref().map(Record::encode))));
        let changes = changes.into_iter().map(|(key, value)| Change { key, value }).collect();
        Ok(own(OwnOutcome::Done, changes))
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Write>()
    }
}

/// The map with changes that the same record makes.
struct Changed<'a> {
    map: &'a mut dyn View,
    changes: &'a BTreeMap<Key, Option<Bytes>>,
}

impl View for Changed<'_> {
    fn get(&mut self, key: Key) -> Result<Option<Bytes>, Obstacle> {
        match self.changes.get(&key) {
            Some(value) => Ok(value.clone()),
            None => self.map.get(key),
        }
    }

    fn first(&mut self, keys: std::ops::RangeInclusive<Key>) -> Result<Option<(Key, Bytes)>, Obstacle> {
        let mut overlay = braid_objects::Overlay::new(self.map);
        self.changes.iter().for_each(|(key, value)| overlay.put(*key, value.clone()));
        overlay.first(keys)
    }
}

impl Procedure for LoadRecords {
    fn evaluate(&self, map: &mut dyn View) -> Result<Evaluation, NotHere> {
        let records = match load(self.from, map) {
            Ok(records) => Some(records),
            Err(Obstacle::NotHere) => return Err(NotHere),
            Err(Obstacle::Lost) => None,
        };
        Ok(Evaluation::that_finds(records))
    }

    fn memory_bytes(&self) -> usize {
        size_of::<LoadRecords>()
    }
}

/// Reads a page of records.
fn load(from: Key, map: &mut dyn View) -> Result<Records, Obstacle> {
    let last = *keys::all(Kind::Transaction).end();
    let (page, more) = braid_objects::Overlay::new(map).some_of(Some(from), last, PAGE_MAX)?;
    let next = page.last().filter(|_| more).and_then(|(key, _)| key.after());
    let record = |(key, value): (Key, Bytes)| Some((record_key_of(key)?, Record::decode(value).ok()?));
    let found = page.into_iter().map(record).collect::<Option<_>>().ok_or(Obstacle::Lost)?;
    Ok(Records { found, next, made: last_made(map)?, received: last_received(map)? })
}

pub(crate) fn first_record() -> Key {
    *keys::all(Kind::Transaction).start()
}

#[derive(Clone, Debug)]
pub(crate) struct Records {
    pub found: Vec<(RecordKey, Record<ShardPayload>)>,
    /// The key from which to continue.
    pub next: Option<Key>,
    /// The last number of an inode that was made for another shard.
    pub made: u64,
    /// The numbers of the last transfers of free blocks that were received, by shard.
    pub received: Vec<u64>,
}

/// True if this is the record of a transaction that is not decided, or of which other servers may not know the outcome.
pub fn is_undecided(key: Key, value: &Bytes) -> bool {
    if key.kind != Kind::Transaction {
        return false;
    }
    match <Record>::decode(value.clone()) {
        Ok(Record::Coordinated(_)) => true,
        Ok(Record::Worked(record)) => record.stage == WorkerStage::Prepared,
        Ok(Record::Next(_) | Record::Mark(_)) => false,
        Err(_) => true,
    }
}

fn key_of(key: RecordKey) -> Key {
    let (of, index) = match key {
        RecordKey::Next => (0, 0),
        RecordKey::Coordinated(sequence) => (1, sequence),
        RecordKey::Mark(shard) => (2, u64::from(shard.0)),
        RecordKey::Worked(name) => (WORKED + u64::from(name.shard.0), name.sequence),
    };
    Key { kind: Kind::Transaction, of, index }
}

fn record_key_of(Key { of, index, .. }: Key) -> Option<RecordKey> {
    let shard = |number: u64| u8::try_from(number).ok().map(braid_base::ShardId);
    Some(match of {
        0 => RecordKey::Next,
        1 => RecordKey::Coordinated(index),
        2 => RecordKey::Mark(shard(index)?),
        _ => {
            let shard = shard(of.checked_sub(WORKED)?)?;
            RecordKey::Worked(braid_commit::TransactionName { shard, sequence: index })
        }
    })
}

/// True if a plan of the command may have been refused because what it knew of another shard has changed since.
pub(crate) fn is_outdated(command: &FileCommand, error: FileError) -> bool {
    match (command, error) {
        (_, FileError::Busy) => true,
        // The inode with the new name is read before that name is locked: it may have lost the name meanwhile, and be gone.
        (FileCommand::Rename { parent, new_parent, .. }, FileError::Stale | FileError::Lost) => {
            parent.shard() != new_parent.shard()
        }
        _ => false,
    }
}

/// The reply to a command that was executed in parts, from what the parts have come to.
pub(crate) fn reply_of_parts<'a>(
    command: &FileCommand,
    done: impl IntoIterator<Item = (&'a ShardParts, &'a [FileAttributes])>,
) -> FileReply {
    let (mut moved, mut other) = (None, None);
    for (parts, inodes) in done {
        let about = |part: &&ShardPart| {
            !matches!(
                part,
                ShardPart::Insert { .. }
                    | ShardPart::Remove { .. }
                    | ShardPart::Replace { .. }
                    | ShardPart::CountMove { .. }
            )
        };
        for (part, inode) in parts.parts.iter().filter(about).zip(inodes) {
            match part {
                ShardPart::Moved { .. } => moved = Some(*inode),
                _ => other = Some(*inode),
            }
        }
    }
    match (command, moved, other) {
        (FileCommand::Create { .. }, _, Some(attributes)) => Ok(FileResult::Created { attributes, is_new: true }),
        (FileCommand::Link { .. }, _, Some(attributes)) => Ok(FileResult::Attributes(attributes)),
        (FileCommand::Unlink { .. } | FileCommand::RemoveDirectory { .. }, _, Some(attributes)) => {
            Ok(FileResult::Removed(attributes))
        }
        (FileCommand::Rename { .. }, Some(moved), replaced) => Ok(FileResult::Renamed { moved, replaced }),
        _ => Err(FileError::Lost),
    }
}
