//! What holds for commands of every kind.

use crate::system::*;
use braid_wire::*;

#[test]
fn a_nearly_full_map_refuses_what_makes_it_grow_and_nothing_else() {
    let mut system = System::new(100);
    let file = system.file("f");
    system.directory(ROOT, "d");
    system.create(ROOT, "l", NewInode::SymbolicLink { target: name("f") });
    system.reserve(16);
    system.run(attach(file, vec![extent(0, 0, 4)])).expect("the blocks are allotted");
    system.is_nearly_full = true;
    for command in [
        create(ROOT, "x", NewInode::Regular, true),
        link(file, ROOT, "x"),
        rename(ROOT, "f", ROOT, "x"),
        attach(file, vec![extent(4, 4, 1)]),
        FileCommand::Reserve { blocks: 1 },
    ] {
        assert_eq!(system.run(command.clone()), Err(FileError::NoSpace), "{command:?}");
    }
    let change = AttributeChange { mode: Some(0), ..AttributeChange::default() };
    for command in [
        lookup(ROOT, "f"),
        create(ROOT, "f", NewInode::Regular, false),
        FileCommand::SetAttributes { inode: file, change },
        truncate(file, 2),
        truncate(file, 1 << 40),
        FileCommand::GiveBack { runs: vec![BlockRange::new(8, 8)] },
        unlink(ROOT, "f"),
        unlink(ROOT, "l"),
        remove_directory(ROOT, "d"),
    ] {
        assert!(system.run(command.clone()).is_ok(), "{command:?}");
    }
    system.settle();
    assert_eq!(system.map.len(), 4);
}

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
fn inodes_of_the_wrong_type_are_refused() {
    let mut system = System::new(10);
    let (file, directory) = (system.file("f"), system.directory(ROOT, "d"));
    let symbolic = system.create(ROOT, "l", NewInode::SymbolicLink { target: name("/there") });
    let read_link = |inode| FileCommand::ReadLink { inode };
    assert_eq!(system.run(read_link(symbolic)), Ok(FileResult::Target(name("/there"))));
    for (command, error) in [
        (read_link(file), FileError::NotALink),
        (read_link(directory), FileError::NotALink),
        (lookup(file, "x"), FileError::NotADirectory),
        (FileCommand::ReadDirectory { inode: symbolic, after: 0, most: 1 }, FileError::NotADirectory),
        (truncate(directory, 0), FileError::IsADirectory),
        (truncate(symbolic, 0), FileError::NotAFile),
        (attach(directory, vec![]), FileError::IsADirectory),
        (unlink(ROOT, "d"), FileError::IsADirectory),
        (remove_directory(ROOT, "f"), FileError::NotADirectory),
        (link(directory, ROOT, "x"), FileError::LinkToDirectory),
        (create(ROOT, "d", NewInode::Regular, false), FileError::IsADirectory),
        (create(ROOT, "d", NewInode::Directory, false), FileError::Exists),
        (rename(ROOT, "d", ROOT, "f"), FileError::NotADirectory),
        (rename(ROOT, "f", ROOT, "d"), FileError::IsADirectory),
    ] {
        assert_eq!(system.run(command.clone()), Err(error), "{command:?}");
    }
}

#[test]
fn numbers_of_inodes_are_bounded_and_never_reused() {
    let mut system = System::new(10);
    let first = system.file("f");
    system.run(unlink(ROOT, "f")).expect("it exists");
    system.settle();
    assert_eq!(system.file("f"), InodeId(first.0 + 1));
    // The counter of numbers is the first of the counters.
    let counters = Key { kind: Kind::FileSystem, of: 0, index: 1 };
    let mut value = system.map[&counters].to_vec();
    value[1..9].copy_from_slice(&(limits::INODE_MAX - 1).to_be_bytes());
    system.map.insert(counters, value.into());
    assert_eq!(system.file("g"), InodeId(limits::INODE_MAX));
    assert_eq!(system.run(create(ROOT, "h", NewInode::Regular, true)), Err(FileError::NoSpace));
}

#[test]
fn times_are_those_of_the_command() {
    let mut system = System::new(10);
    let file = system.file("f");
    let created = system.attributes(file);
    assert_eq!((created.atime, created.mtime, created.ctime), (FileTime(1), FileTime(1), FileTime(1)));
    assert_eq!(system.attributes(ROOT).mtime, FileTime(1));
    system.now = 99;
    let change =
        AttributeChange { atime: Some(NewTime::Now), mtime: Some(NewTime::At(FileTime(-5))), ..Default::default() };
    system.run(FileCommand::SetAttributes { inode: file, change }).expect("the file exists");
    let set = system.attributes(file);
    assert_eq!((set.atime, set.mtime, set.ctime), (FileTime(100), FileTime(-5), FileTime(100)));
    assert_eq!(set.owner, created.owner);
}
