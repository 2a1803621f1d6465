//! Are the bytes of each file linearizable? Reads see whole writes or nothing of them, appends do not overlap, and sizes fit.
//!
//! Files are independent of each other, so each has a search of its own. Its operations are reads, writes, appends, truncations, and the
//! sizes in attributes. The model is the file as units, each with the write that it comes from.
//!
//! A write whose outcome is unknown, because its host died, may have overwritten some of the blocks that the file had, but it has made the
//! file longer only as a whole: hosts make a file longer when all bytes are written.

use crate::file_history::{FileAction, FileHistory, FileOperation, FileTag, FileValue, UNIT_BYTES, Unit};
use crate::file_names::FileVerdict;
use crate::file_search::{Found, Model, search};
use crate::prelude::*;

const BLOCK_UNITS: usize = BLOCK_BYTES / UNIT_BYTES as usize;
/// A write of unknown outcome with more blocks is taken as a whole or not at all.
const TORN_BLOCKS_MAX: usize = 4;

/// Decides whether the bytes of all files are linearizable.
pub fn check_bytes(history: &FileHistory) -> FileVerdict {
    let (mut all_steps, mut is_undecided) = (0, false);
    for (inode, accesses) in accesses(history) {
        match search(&File { accesses }, Vec::new()) {
            Found::Order { steps } => all_steps += steps,
            Found::None(details) => {
                return FileVerdict::Not(format!("no order explains the bytes of {inode}\n{details}"));
            }
            Found::Undecided => is_undecided = true,
        }
    }
    if is_undecided { FileVerdict::Undecided } else { FileVerdict::Linearizable { steps: all_steps } }
}

/// The operations on each file.
fn accesses(history: &FileHistory) -> BTreeMap<InodeId, Vec<Access<'_>>> {
    let mut files: BTreeMap<InodeId, Vec<Access>> = BTreeMap::new();
    for operation in history.operations() {
        for attributes in operation.attributes() {
            if attributes.file_type == FileType::Regular {
                let what = What::Size(attributes.size / UNIT_BYTES);
                files.entry(attributes.inode).or_default().push(Access { operation, what });
            }
        }
        // What failed has changed nothing, and of what was never answered only changes count.
        let what = match (&operation.action, operation.answer()) {
            (_, Some(Err(_))) => continue,
            (FileAction::Read { offset, length, .. }, Some(Ok(FileValue::Data(units)))) => {
                What::Read { first: units_of(*offset), asked: units_of(*length), units }
            }
            (FileAction::Write { offset, length, tag, .. }, answer) => {
                let length = match answer {
                    Some(Ok(FileValue::Written { length })) => *length,
                    _ => *length,
                };
                What::Write { first: units_of(*offset), count: units_of(length), tag: *tag }
            }
            (FileAction::Append { length, tag, .. }, answer) => match answer {
                Some(Ok(FileValue::Appended { offset, length })) => {
                    What::Append { at: Some(units_of(*offset)), count: units_of(*length), tag: *tag }
                }
                _ => What::Append { at: None, count: units_of(*length), tag: *tag },
            },
            (FileAction::Truncate { size, .. }, _) => What::Truncate(units_of(*size)),
            _ => continue,
        };
        let (FileAction::Read { inode, .. }
        | FileAction::Write { inode, .. }
        | FileAction::Append { inode, .. }
        | FileAction::Truncate { inode, .. }) = operation.action
        else {
            continue;
        };
        files.entry(inode).or_default().push(Access { operation, what });
    }
    files
}

fn units_of(bytes: u64) -> usize {
    (bytes / UNIT_BYTES) as usize
}

struct File<'a> {
    accesses: Vec<Access<'a>>,
}

struct Access<'a> {
    operation: &'a FileOperation,
    what: What<'a>,
}

/// An operation in units.
enum What<'a> {
    Read {
        first: usize,
        asked: usize,
        units: &'a [Unit],
    },
    Size(u64),
    Write {
        first: usize,
        count: usize,
        tag: FileTag,
    },
    Append {
        /// Where it was, if it was answered.
        at: Option<usize>,
        count: usize,
        tag: FileTag,
    },
    Truncate(usize),
}

impl Model for File<'_> {
    type State = Vec<Unit>;

    fn apply(&self, file: &Vec<Unit>, number: usize) -> Vec<Vec<Unit>> {
        let Access { operation, what } = &self.accesses[number];
        match what {
            What::Read { first, asked, units } => {
                let end = file.len().min(first + asked);
                let expected = file.get(*first..end).unwrap_or_default();
                if expected == *units { vec![file.clone()] } else { Vec::new() }
            }
            What::Size(size) => {
                if file.len() as u64 == *size {
                    vec![file.clone()]
                } else {
                    Vec::new()
                }
            }
            What::Write { first, count, tag } if operation.answer().is_some() => {
                vec![written(file, *first, *count, *tag)]
            }
            What::Write { first, count, tag } => torn(file, *first, *count, *tag),
            What::Append { at: Some(at), .. } if *at != file.len() => Vec::new(),
            What::Append { count, tag, .. } => vec![written(file, file.len(), *count, *tag)],
            What::Truncate(size) => {
                let mut next = file.clone();
                next.resize(*size, Unit::ZEROS);
                vec![next]
            }
        }
    }

    fn only_observes(&self, number: usize) -> bool {
        matches!(self.accesses[number].what, What::Read { .. } | What::Size(_))
    }

    fn operation(&self, number: usize) -> &FileOperation {
        self.accesses[number].operation
    }

    fn len(&self) -> usize {
        self.accesses.len()
    }
}

/// The file after a write.
fn written(file: &[Unit], first: usize, count: usize, tag: FileTag) -> Vec<Unit> {
    let mut next = file.to_vec();
    if count > 0 {
        next.resize(file.len().max(first + count), Unit::ZEROS);
    }
    for number in 0..count {
        next[first + number] = Unit::of(tag, number as u64);
    }
    next
}

/// The file after a write whose host may have died in between: the whole write first, then parts of it.
fn torn(file: &[Unit], first: usize, count: usize, tag: FileTag) -> Vec<Vec<Unit>> {
    let mut possible = vec![written(file, first, count, tag)];
    let end = (first + count).min(file.len());
    let blocks: Vec<usize> =
        if first < end { (first / BLOCK_UNITS..end.div_ceil(BLOCK_UNITS)).collect() } else { Vec::new() };
    if blocks.len() > TORN_BLOCKS_MAX {
        return possible;
    }
    for chosen in 1_u32..1 << blocks.len() {
        let mut next = file.to_vec();
        for (_, block) in blocks.iter().enumerate().filter(|(number, _)| chosen & (1 << number) != 0) {
            let from = first.max(block * BLOCK_UNITS);
            let to = end.min((block + 1) * BLOCK_UNITS);
            for (at, unit) in next.iter_mut().enumerate().take(to).skip(from) {
                *unit = Unit::of(tag, (at - first) as u64);
            }
        }
        if !possible.contains(&next) {
            possible.push(next);
        }
    }
    possible
}
