//! Extents and blocks: what takes several steps, how blocks are chosen, and how many keys a command changes.

use crate::system::*;
use braid_wire::*;

const STEP: u64 = limits::FILE_EXTENTS_FREED_MAX as u64;

/// A file of so many extents of one block each. No two of them can be merged, because they lie in the volume in descending order.
fn scattered(system: &mut System, called: &str, extents: u64) -> InodeId {
    let file = system.file(called);
    let mut at = 0;
    while at < extents {
        let count = (extents - at).min(STEP);
        let [run] = system.reserve(count)[..] else { panic!("the volume is not fragmented") };
        let descending = (0..count).map(|nth| extent(at + nth, run.start + count - 1 - nth, 1)).collect();
        attached(system, attach(file, descending));
        at += count;
    }
    assert_eq!(system.attributes(file).blocks, extents);
    file
}

fn attached(system: &mut System, command: FileCommand) {
    match system.run(command) {
        Ok(FileResult::Attached { next: None, .. }) => {}
        other => panic!("{other:?}"),
    }
}

fn truncated(system: &mut System, inode: InodeId, size: u64) -> (u64, u64, bool) {
    match system.run(truncate(inode, size)) {
        Ok(FileResult::Truncated { attributes, is_done }) => (attributes.size, attributes.blocks, is_done),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_becomes_shorter_at_once_and_its_blocks_are_freed_in_steps() {
    let mut system = System::new(4096);
    let extents = 2 * STEP + 100;
    let file = scattered(&mut system, "f", extents);
    let free = system.status().free;
    let size = 10 * BLOCK + 1;
    assert_eq!(truncated(&mut system, file, size), (size, extents - STEP, false));
    assert_eq!(system.extents(file).len(), 11, "what is behind the size is not shown");
    assert_eq!(system.listed(), [file]);
    assert_eq!(system.findings(), []);
    // The file does not grow before everything is freed.
    assert_eq!(truncated(&mut system, file, 1 << 30), (size, extents - 2 * STEP, false));
    assert_eq!(truncated(&mut system, file, 1 << 30), (1 << 30, 11, true));
    assert_eq!((system.extents(file).len(), system.listed()), (11, vec![]));
    assert_eq!(system.status().free, free + extents - 11);
    assert_eq!(system.findings(), []);
}

#[test]
fn a_shorter_file_is_reclaimed_by_the_server_too() {
    let mut system = System::new(4096);
    let file = scattered(&mut system, "f", 2 * STEP);
    assert_eq!(truncated(&mut system, file, 0), (0, STEP, false));
    // Attaching frees the rest first.
    let [run] = system.reserve(8)[..] else { panic!("one run") };
    let blocks = vec![extent(0, run.start, 8)];
    assert!(matches!(system.run(attach(file, blocks.clone())), Ok(FileResult::Attached { next: None, .. })));
    assert_eq!((system.extents(file), system.listed()), (blocks, vec![]));

    let file = scattered(&mut system, "g", 3 * STEP);
    assert!(!truncated(&mut system, file, BLOCK).2);
    let reply = system.run(attach(file, vec![extent(1, run.end(), 1)]));
    let Ok(FileResult::Attached { next: Some(0), attributes }) = reply else { panic!("{reply:?}") };
    assert_eq!(attributes.size, BLOCK);
    assert!(system.reclaim(file));
    assert_eq!((system.attributes(file).blocks, system.listed()), (1, vec![]));
    assert!(system.reclaim(file), "an inode that is not listed stays");
    assert_eq!(system.attributes(file).size, BLOCK);
    assert_eq!(system.findings(), []);
}

#[test]
fn extents_that_replace_many_are_attached_in_steps() {
    let mut system = System::new(8192);
    let file = scattered(&mut system, "f", STEP + 50);
    assert!(system.drop_host(1));
    let free = system.status().free;
    let [run] = system.reserve(STEP + 50)[..] else { panic!("one run") };
    let whole = extent(0, run.start, STEP + 50);
    let Ok(FileResult::Attached { attributes, next: Some(next) }) = system.run(attach(file, vec![whole])) else {
        panic!("not all can be replaced at once");
    };
    assert_eq!((next, attributes.blocks), (STEP, STEP + 50));
    assert_eq!(system.findings(), []);
    attached(&mut system, attach(file, vec![extent(next, run.start + next, 50)]));
    assert_eq!(system.extents(file), [whole]);
    system.drop_host(1);
    assert_eq!(system.status().free, free);
    assert_eq!(system.findings(), []);
}

#[test]
fn an_orphan_is_reclaimed_in_steps_and_can_be_used_until_then() {
    let mut system = System::new(4096);
    let file = scattered(&mut system, "f", 2 * STEP + 1);
    assert!(system.run(unlink(ROOT, "f")).is_ok());
    assert_eq!(system.run(link(file, ROOT, "again")), Err(FileError::NoSuchName));
    let [run] = system.reserve(8)[..] else { panic!("one run") };
    attached(&mut system, attach(file, vec![extent(3000, run.start, 8)]));
    assert_eq!(system.listed(), [file]);
    let mut steps = 0;
    while !system.reclaim(file) {
        steps += 1;
        assert_eq!(system.findings(), []);
    }
    assert_eq!((steps, system.listed()), (2, vec![]));
    assert_eq!(system.run(FileCommand::Stat { inode: file }), Err(FileError::Stale));
    assert!(system.drop_host(1));
    assert_eq!(system.status().free, 4096);
    assert_eq!(system.map.len(), 4);
}

#[test]
fn allotments_of_a_host_are_dropped_in_steps() {
    let mut system = System::new(4096);
    let [run] = system.reserve(4096)[..] else { panic!("one run") };
    // Every second block is given back, so that a run of one block is left beside each.
    for first in (run.start..run.end()).step_by(2 * STEP as usize) {
        let runs = (0..STEP).map(|nth| BlockRange::new(first + 2 * nth, 1)).collect();
        assert_eq!(system.run(FileCommand::GiveBack { runs }), Ok(FileResult::Done));
    }
    assert!(matches!(system.run_for(9, FileCommand::Reserve { blocks: 1 }), Ok(FileResult::Reserved(_))));
    assert_eq!(hosts(&mut system.map, None, 10), Ok(vec![Generation(1), Generation(9)]));
    assert_eq!(hosts(&mut system.map, Some(Generation(1)), 10), Ok(vec![Generation(9)]));
    assert_eq!(hosts(&mut system.map, None, 1), Ok(vec![Generation(1)]));
    assert_eq!((0..4).map(|_| system.drop_host(1)).collect::<Vec<_>>(), [false, false, false, false]);
    assert!(system.drop_host(1), "there is nothing left");
    assert!(system.drop_host(9));
    assert_eq!(system.status().free, 4096);
    assert_eq!(system.map.len(), 4);
}

#[test]
fn reservations_are_whole_stripes_and_go_on_where_the_last_one_ended() {
    let mut system = System::new(100);
    assert_eq!(system.reserve(1), [BlockRange::new(0, 8)]);
    assert_eq!(system.reserve(9), [BlockRange::new(8, 16)]);
    let give_back = |runs: &[BlockRange]| FileCommand::GiveBack { runs: runs.to_vec() };
    system.run(give_back(&[BlockRange::new(0, 9)])).expect("they are allotted");
    assert_eq!(system.reserve(70), [BlockRange::new(24, 72)]);
    // The search begins again at the first block. The block behind the free stripe, and the last four, are in no free stripe.
    assert_eq!(system.reserve(20), [BlockRange::new(0, 8)]);
    assert_eq!(system.reserve(3), [BlockRange::new(8, 1), BlockRange::new(96, 2)]);
    assert_eq!(system.reserve(64), [BlockRange::new(98, 2)]);
    assert_eq!(system.run(FileCommand::Reserve { blocks: 1 }), Err(FileError::NoSpace));
    assert_eq!(system.status(), FileSystemStatus { blocks: 100, free: 0, allotted: 100, inodes: 1 });
    assert_eq!(system.findings(), []);
}

#[test]
fn the_size_covers_the_extents() {
    let mut system = System::new(100);
    let file = system.file("f");
    system.reserve(8);
    let put = |size| FileCommand::Attach { inode: file, extents: vec![extent(1, 0, 1)], size, mtime: FileTime(9) };
    assert_eq!(system.run(put(BLOCK)), Err(FileError::Malformed));
    assert!(system.run(put(BLOCK + 1)).is_ok());
    let attributes = system.attributes(file);
    assert_eq!((attributes.size, attributes.mtime), (BLOCK + 1, FileTime(9)));
    // An attachment without extents can make a file longer.
    let grow = FileCommand::Attach { inode: file, extents: vec![], size: limits::FILE_BYTES_MAX, mtime: FileTime(9) };
    assert!(system.run(grow).is_ok());
    assert_eq!(system.attributes(file).size, limits::FILE_BYTES_MAX);
}

/// The evaluation asserts that a command changes no more keys than its bound.
#[test]
fn the_largest_commands_stay_within_their_bounds() {
    let mut system = System::new(8192);
    let file = scattered(&mut system, "f", STEP);
    // Every second block of an allotment, each for one block of the file in the middle of extents of three.
    let [run] = system.reserve(3 * STEP)[..] else { panic!("one run") };
    let triples = (0..STEP).map(|nth| extent(3 * nth, run.start + 3 * (STEP - 1 - nth), 3)).collect();
    attached(&mut system, attach(file, triples));
    let [run] = system.reserve(2 * STEP)[..] else { panic!("one run") };
    let middles = (0..STEP).map(|nth| extent(3 * nth + 1, run.start + 2 * nth, 1)).collect();
    attached(
        &mut system,
        FileCommand::Attach { inode: file, extents: middles, size: 3 * STEP * BLOCK, mtime: FileTime(0) },
    );
    assert_eq!(system.map.keys().filter(|key| key.kind == Kind::Extent).count() as u64, 3 * STEP);
    let runs = (0..STEP).map(|nth| BlockRange::new(run.start + 2 * nth + 1, 1)).collect();
    assert_eq!(system.run(FileCommand::GiveBack { runs }), Ok(FileResult::Done));
    let extents = match system.run(FileCommand::Map { inode: file, from: 0, most: u32::MAX }) {
        Ok(FileResult::Extents { extents, more: true, .. }) => extents,
        other => panic!("{other:?}"),
    };
    assert_eq!(extents.len(), limits::FILE_EXTENTS_MAX);
    assert_eq!(system.findings(), []);
    let target = vec![b'x'; limits::SYMBOLIC_LINK_BYTES_MAX].into();
    assert!(system.run(create(ROOT, "link", NewInode::SymbolicLink { target }, true)).is_ok());
}

#[test]
fn blocks_listed_for_reclaim_are_found_in_parts() {
    let mut system = System::new(10);
    let files: Vec<InodeId> = (0..5).map(|number| system.file(&format!("{number}"))).collect();
    for number in 0..5 {
        system.run(unlink(ROOT, &format!("{number}"))).expect("it exists");
    }
    assert_eq!(listed(&mut system.map, None, 2), Ok(files[..2].to_vec()));
    assert_eq!(listed(&mut system.map, Some(files[1]), 9), Ok(files[2..].to_vec()));
    assert_eq!(listed(&mut system.map, Some(files[4]), 9), Ok(vec![]));
}
