//! Tests of the checkers of file systems: histories that have an order, and histories that have none.

use crate::file_bytes::check_bytes;
use crate::file_history::{FileAction, FileFailure, FileHistory, FileTag, FileValue, UNIT_BYTES, Unit, parse_units};
use crate::file_names::{FileVerdict, check_names};
use crate::history::Client;
use crate::prelude::*;
use braid_base::Generation;
use braid_wire::{FileTime, Owner};

const A: Client = Client { host: 1, number: 0 };
const B: Client = Client { host: 2, number: 0 };
const FILE: InodeId = InodeId(2);

type Answer = Result<FileValue, FileFailure>;

/// One operation after the other.
fn one_by_one(operations: Vec<(Client, FileAction, Answer)>) -> FileHistory {
    let mut history = FileHistory::default();
    for (client, action, answer) in operations {
        let id = history.begin(client, Time(0), action);
        history.end(id, Time(0), answer);
    }
    history
}

fn is_linearizable(verdict: &FileVerdict) -> bool {
    matches!(verdict, FileVerdict::Linearizable { .. })
}

fn is_refuted(verdict: &FileVerdict) -> bool {
    matches!(verdict, FileVerdict::Not(_))
}

fn attributes(inode: u64, links: u32) -> FileAttributes {
    let time = FileTime::default();
    FileAttributes {
        inode: InodeId(inode),
        file_type: FileType::Regular,
        mode: 0o600,
        owner: Owner::default(),
        links,
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        parent: None,
        device: 0,
    }
}

fn name(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

fn create(text: &str) -> FileAction {
    let node = NewInode::Regular;
    let (parent, name, owner) = (InodeId::ROOT, name(text), Owner::default());
    FileAction::Command(FileCommand::Create { parent, name, node, exclusive: true, owner, mode: 0o600 })
}

fn created(inode: u64) -> Answer {
    Ok(FileValue::Result(FileResult::Created { attributes: attributes(inode, 1), is_new: true }))
}

fn lookup(text: &str) -> FileAction {
    FileAction::Command(FileCommand::Lookup { parent: InodeId::ROOT, name: name(text) })
}

fn found(inode: u64, links: u32) -> Answer {
    Ok(FileValue::Result(FileResult::Attributes(attributes(inode, links))))
}

fn unlink(text: &str) -> FileAction {
    FileAction::Command(FileCommand::Unlink { parent: InodeId::ROOT, name: name(text) })
}

fn removed(inode: u64) -> Answer {
    Ok(FileValue::Result(FileResult::Removed(attributes(inode, 0))))
}

fn refused(error: FileError) -> Answer {
    Err(FileFailure::Refused(error))
}

fn stat(inode: u64) -> FileAction {
    FileAction::Command(FileCommand::Stat { inode: InodeId(inode) })
}

#[test]
fn names_are_found_when_they_exist() {
    let rename = |from: &str, to: &str| {
        let (parent, new_parent) = (InodeId::ROOT, InodeId::ROOT);
        let command =
            FileCommand::Rename { parent, name: name(from), new_parent, new_name: name(to), no_replace: false };
        FileAction::Command(command)
    };
    let moved = Ok(FileValue::Result(FileResult::Renamed { moved: attributes(2, 1), replaced: None }));
    let story = vec![
        (A, create("a"), created(2)),
        (B, create("a"), refused(FileError::Exists)),
        (A, rename("a", "b"), moved),
        (B, lookup("a"), refused(FileError::NoSuchName)),
        (B, lookup("b"), found(2, 1)),
        (A, unlink("b"), removed(2)),
        (B, stat(2), found(2, 0)),
        (B, stat(2), refused(FileError::Stale)),
        (B, create("b"), created(3)),
    ];
    assert!(is_linearizable(&check_names(&one_by_one(story.clone()))));
    // An inode that is gone does not come back.
    let mut wrong = story.clone();
    wrong.swap(6, 7);
    assert!(is_refuted(&check_names(&one_by_one(wrong))));
    // A name that was moved is not found any more.
    let mut wrong = story.clone();
    wrong[3].2 = found(2, 1);
    assert!(is_refuted(&check_names(&one_by_one(wrong))));
    // Numbers leave no gap unless a create of unknown outcome fills it.
    let mut wrong = story;
    wrong[8].2 = created(4);
    assert!(is_refuted(&check_names(&one_by_one(wrong))));
}

#[test]
fn an_operation_of_unknown_outcome_happens_at_any_time_or_never() {
    let story = |until: bool, answer: Answer| {
        let mut history = FileHistory::default();
        history.begin(A, Time(0), create("a"));
        let early = history.begin(B, Time(0), lookup("a"));
        history.end(early, Time(0), refused(FileError::NoSuchName));
        if until {
            history.is_kept_out(Generation(A.host), Time(0));
        }
        for answer in [refused(FileError::NoSuchName), answer] {
            let late = history.begin(B, Time(0), lookup("a"));
            history.end(late, Time(0), answer);
        }
        check_names(&history)
    };
    assert!(is_linearizable(&story(false, found(2, 1))));
    assert!(is_linearizable(&story(false, refused(FileError::NoSuchName))));
    assert!(is_linearizable(&story(true, refused(FileError::NoSuchName))));
    assert!(is_refuted(&story(true, found(2, 1))), "its host was fenced before the second lookup");
}

#[test]
fn an_open_file_is_not_stale() {
    let open = FileAction::Open { inode: FILE };
    let opened = Ok(FileValue::Opened(attributes(2, 1)));
    let close = (A, FileAction::Close { inode: FILE }, Ok(FileValue::Done));
    let mut story = vec![
        (A, create("a"), created(2)),
        (A, open, opened),
        (B, unlink("a"), removed(2)),
        (B, stat(2), refused(FileError::Stale)),
        // Its host is alive.
        (A, FileAction::Sync { inode: FILE }, Ok(FileValue::Done)),
    ];
    assert!(is_refuted(&check_names(&one_by_one(story.clone()))));
    story.insert(3, close);
    assert!(is_linearizable(&check_names(&one_by_one(story))));
}

fn write(tag: u64, offset: u64, units: u64) -> FileAction {
    let (offset, length) = (offset * UNIT_BYTES, units * UNIT_BYTES);
    FileAction::Write { inode: FILE, offset, length, tag: FileTag(tag) }
}

fn read() -> FileAction {
    FileAction::Read { inode: FILE, offset: 0, length: 1 << 20 }
}

fn written(units: u64) -> Answer {
    Ok(FileValue::Written { length: units * UNIT_BYTES })
}

fn data(units: &[(u64, u64)]) -> Answer {
    let unit = |(tag, number): &(u64, u64)| if *tag == 0 { Unit::ZEROS } else { Unit::of(FileTag(*tag), *number) };
    Ok(FileValue::Data(units.iter().map(unit).collect()))
}

#[test]
fn reads_see_whole_writes() {
    let append = |tag, units: u64| {
        let length = units * UNIT_BYTES;
        FileAction::Append { inode: FILE, length, tag: FileTag(tag) }
    };
    let appended =
        |at: u64, units: u64| Ok(FileValue::Appended { offset: at * UNIT_BYTES, length: units * UNIT_BYTES });
    let story = vec![
        (A, write(1, 1, 2), written(2)),
        (B, read(), data(&[(0, 0), (1, 0), (1, 1)])),
        (B, append(2, 2), appended(3, 2)),
        (A, write(3, 2, 2), written(2)),
        (A, read(), data(&[(0, 0), (1, 0), (3, 0), (3, 1), (2, 1)])),
        (A, FileAction::Truncate { inode: FILE, size: 2 * UNIT_BYTES }, Ok(FileValue::Done)),
        (A, read(), data(&[(0, 0), (1, 0)])),
    ];
    assert!(is_linearizable(&check_bytes(&one_by_one(story.clone()))));
    let mut half = story.clone();
    half[4].2 = data(&[(0, 0), (1, 0), (3, 0), (2, 0), (2, 1)]);
    assert!(is_refuted(&check_bytes(&one_by_one(half))), "half of a write");
    let mut over = story.clone();
    over[2].2 = appended(2, 2);
    assert!(is_refuted(&check_bytes(&one_by_one(over))), "an append over other bytes");
    let mut stale = story;
    stale[6].2 = data(&[(0, 0), (1, 0), (3, 0)]);
    assert!(is_refuted(&check_bytes(&one_by_one(stale))), "bytes that were cut off");
}

#[test]
fn a_write_whose_host_died_may_be_torn_between_blocks_only() {
    let block = 32;
    let torn = |new: &dyn Fn(u64) -> bool| {
        let mut history = one_by_one(vec![(A, write(1, 0, 2 * block), written(2 * block))]);
        history.begin(A, Time(0), write(2, 0, 2 * block));
        let units: Vec<_> = (0..2 * block).map(|unit| (if new(unit) { 2 } else { 1 }, unit)).collect();
        let id = history.begin(B, Time(0), read());
        history.end(id, Time(0), data(&units));
        check_bytes(&history)
    };
    assert!(is_linearizable(&torn(&|_| true)) && is_linearizable(&torn(&|_| false)));
    assert!(is_linearizable(&torn(&|unit| unit >= block)));
    assert!(is_refuted(&torn(&|unit| unit == 3)), "a part of a block");
}

#[test]
fn bytes_tell_which_write_they_are_from() {
    let bytes = [FileTag(7).fill(2 * UNIT_BYTES), Bytes::from(vec![0; UNIT_BYTES as usize])].concat();
    let units = parse_units(&bytes).unwrap();
    assert_eq!(units, [Unit::of(FileTag(7), 0), Unit::of(FileTag(7), 1), Unit::ZEROS]);
    assert!(parse_units(&bytes[..200]).is_err(), "half a unit");
    let mut mixed = bytes;
    mixed[16..32].fill(0);
    assert!(parse_units(&mixed).is_err(), "zeros in a unit");
}
