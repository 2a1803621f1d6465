//! What holds for commands of every kind.

use crate::system::*;
use braid_wire::*;

#[test]
fn only_answers_to_changes_and_refusals_of_them_are_remembered() {
    let mut system = System::new(10);
    let file = system.file("f");
    let map = FileCommand::Map { inode: file, from: 0, most: 1 };
    for (command, only_asks) in [
        (FileCommand::Nothing, true),
        (lookup(ROOT, "f"), true),
        (lookup(ROOT, "x"), true),
        (map, true),
        (FileCommand::StatFileSystem, true),
        (create(ROOT, "f", NewInode::Regular, false), false),
        (create(ROOT, "f", NewInode::Regular, true), false),
        (create(ROOT, "..", NewInode::Regular, true), true),
        (unlink(ROOT, "x"), false),
        (FileCommand::Reserve { blocks: 0 }, true),
    ] {
        let evaluation = evaluate(&command, system.context(1), &mut system.map).expect("all is in memory");
        assert_eq!(evaluation.only_asks, only_asks, "{command:?}");
    }
}

#[test]
fn a_malformed_command_is_refused() {
    let mut system = System::new(10);
    let file = system.file("f");
    for (command, error) in [
        (create(ROOT, "", NewInode::Regular, true), FileError::InvalidName),
        (create(ROOT, &"x".repeat(256), NewInode::Regular, true), FileError::NameTooLong),
        (truncate(file, u64::MAX), FileError::TooLarge),
        (attach(file, vec![extent(0, u64::MAX - 1, 1 << 30)]), FileError::NotAllotted),
        (FileCommand::GiveBack { runs: vec![BlockRange::new(u64::MAX, u64::MAX)] }, FileError::NotAllotted),
        (FileCommand::Map { inode: ROOT, from: u64::MAX, most: 1 }, FileError::IsADirectory),
    ] {
        let Evaluation { answer, changes, .. } =
            evaluate(&command, system.context(1), &mut system.map).expect("all is in memory");
        assert_eq!((answer, changes), (Err(error), vec![]), "{command:?}");
    }
    let none = FileResult::Extents { extents: vec![], more: false, size: 0 };
    assert_eq!(system.run(FileCommand::Map { inode: file, from: u64::MAX, most: 1 }), Ok(none));
    assert_eq!(system.run(FileCommand::Stat { inode: InodeId(u64::MAX) }), Err(FileError::Stale));
}

#[test]
fn numbers_of_inodes_are_bounded() {
    let mut system = System::new(10);
    // The counter of numbers is the first of the counters.
    let counters = Key { kind: Kind::FileSystem, of: 0, index: 1 };
    overwrite(&mut system, counters, 1, &(limits::INODE_MAX - 1).to_be_bytes());
    assert_eq!(system.file("g"), InodeId(limits::INODE_MAX));
    assert_eq!(system.run(create(ROOT, "h", NewInode::Regular, true)), Err(FileError::NoSpace));
}
