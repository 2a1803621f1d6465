//! The check finds each violation of an invariant that is planted in a map.

use crate::system::*;

/// Root with directories a (2), in which is b (3); file f (4) with blocks 0 to 3 at blocks 1 to 4 of the file; an orphan (5); blocks 4 to
/// 15 are allotted.
fn sample() -> System {
    let mut system = System::new(200);
    let a = system.directory(ROOT, "a");
    system.directory(a, "b");
    let file = system.file("f");
    system.file("orphan");
    system.reserve(16);
    system.run(attach(file, vec![extent(1, 0, 4)])).expect("the blocks are allotted");
    system.run(unlink(ROOT, "orphan")).expect("it exists");
    assert_eq!(system.findings(), []);
    system
}

const A: InodeId = InodeId(2);
const B: InodeId = InodeId(3);
const FILE: InodeId = InodeId(4);
const ORPHAN: InodeId = InodeId(5);

fn only(system: &System, kind: Kind, of: u64) -> Key {
    let mut keys = system.map.keys().filter(|key| key.kind == kind && key.of == of);
    let key = *keys.next().expect("there is one");
    assert_eq!(keys.next(), None, "there is only one");
    key
}

/// Puts what is at a key at another one, too.
fn copy(system: &mut System, from: fn(&System) -> Key, to: impl Fn(Key) -> Key) {
    let key = from(system);
    let value = system.map[&key].clone();
    system.map.insert(to(key), value);
}

fn remove(system: &mut System, key: Key) {
    system.map.remove(&key).expect("it is there");
}

fn planted(plant: impl FnOnce(&mut System)) -> Vec<Finding> {
    let mut system = sample();
    plant(&mut system);
    system.findings()
}

#[test]
fn wrong_entries_are_found() {
    let entry_of_b: fn(&System) -> Key = |system| only(system, Kind::Name, A.0);
    let links = |inode, links, expected| Finding::WrongLinks { inode, links, expected };
    let size = |expected| Finding::WrongSize { inode: A, size: 1, expected };
    let found = planted(|system| remove(system, entry_of_b(system)));
    assert_eq!(found, [links(A, 3, 2), size(0), links(B, 2, 0)], "a lost entry");

    let found = planted(|system| {
        let key = entry_of_b(system);
        overwrite(system, key, 2, &77u64.to_be_bytes());
    });
    assert_eq!(found, [links(B, 2, 0), Finding::EntryWithoutInode { directory: A, inode: InodeId(77) }]);

    let found = planted(|system| copy(system, entry_of_b, |key| Key { index: key.index + 1, ..key }));
    let (double, several) =
        (Finding::DoubleName { directory: A, inode: B }, Finding::SeveralNames { inode: B, names: 2 });
    assert_eq!(found, [double, links(A, 3, 4), size(2), several], "the same name twice");

    let found = planted(|system| {
        let key = entry_of_b(system);
        copy(system, entry_of_b, |key| Key { index: key.index ^ 1 << 40, ..key });
        remove(system, key);
    });
    assert_eq!(found, [Finding::MisplacedEntry { directory: A, inode: B }]);

    let found = planted(|system| copy(system, entry_of_b, |key| Key { of: FILE.0, ..key }));
    assert!(found.contains(&Finding::EntryWithoutDirectory { directory: FILE }), "{found:?}");
    assert!(found.contains(&Finding::WrongParent { inode: B, directory: FILE }), "{found:?}");
}

#[test]
fn a_detached_cycle_is_found() {
    let found = planted(|system| {
        // Directory a moves into b, which is in it; nothing else is wrong.
        let root_entry = system
            .map
            .iter()
            .find(|(key, value)| key.kind == Kind::Name && key.of == ROOT.0 && value[2..10] == A.0.to_be_bytes());
        let (key, value) = root_entry.map(|(key, value)| (*key, value.clone())).expect("it is there");
        system.map.remove(&key);
        system.map.insert(Key { of: B.0, ..key }, value);
        // Links and size are at bytes 12 and 16, the parent at 56.
        overwrite(system, inode_key(A), 56, &B.0.to_be_bytes());
        overwrite(system, inode_key(B), 12, &3u32.to_be_bytes());
        overwrite(system, inode_key(B), 16, &1u64.to_be_bytes());
        overwrite(system, inode_key(ROOT), 12, &2u32.to_be_bytes());
        overwrite(system, inode_key(ROOT), 16, &1u64.to_be_bytes());
    });
    assert_eq!(found, [Finding::Detached { inode: A }, Finding::Detached { inode: B }]);
}

#[test]
fn wrong_inodes_are_found() {
    let found = planted(|system| overwrite(system, inode_key(FILE), 12, &2u32.to_be_bytes()));
    assert_eq!(found, [Finding::WrongLinks { inode: FILE, links: 2, expected: 1 }]);
    let found = planted(|system| overwrite(system, inode_key(FILE), 24, &9u64.to_be_bytes()));
    assert_eq!(found, [Finding::WrongBlocks { inode: FILE, blocks: 9, expected: 4 }]);
    let found = planted(|system| overwrite(system, inode_key(FILE), 16, &1u64.to_be_bytes()));
    assert_eq!(found, [Finding::NotListed { inode: FILE }], "extents behind the size");
    let found = planted(|system| remove(system, Key { kind: Kind::Reclaim, of: 0, index: ORPHAN.0 }));
    assert_eq!(found, [Finding::NotListed { inode: ORPHAN }]);
    let found = planted(|system| {
        system.map.insert(Key { kind: Kind::Reclaim, of: 0, index: 99 }, vec![1].into());
    });
    assert_eq!(found, [Finding::ListedWithoutInode { inode: InodeId(99) }]);
    let found = planted(|system| overwrite(system, inode_key(FILE), 0, &[9]));
    assert!(found.contains(&Finding::Damaged { key: inode_key(FILE) }), "{found:?}");
    assert!(found.contains(&Finding::ExtentWithoutFile { inode: FILE, at: 1 }), "{found:?}");
}

#[test]
fn wrong_blocks_are_found() {
    let file_extent: fn(&System) -> Key = |system| only(system, Kind::Extent, FILE.0);
    let lost = Finding::Leaked { blocks: BlockRange::new(0, 4) };
    let found = planted(|system| remove(system, file_extent(system)));
    assert_eq!(found, [Finding::WrongBlocks { inode: FILE, blocks: 4, expected: 0 }, lost]);

    // The first blocks of the allotment, which begins at block 4.
    let found = planted(|system| {
        let key = file_extent(system);
        overwrite(system, key, 1, &2u64.to_be_bytes());
    });
    assert_eq!(found, [Finding::UsedTwice { block: 4 }, Finding::Leaked { blocks: BlockRange::new(0, 2) }]);

    let found = planted(|system| {
        let key = file_extent(system);
        overwrite(system, key, 1, &198u64.to_be_bytes());
    });
    let lost = Finding::Leaked { blocks: BlockRange::new(0, 4) };
    let outside = Finding::OutsideVolume { blocks: BlockRange::new(200, 2) };
    assert_eq!(found, [outside, lost, Finding::UsedTwice { block: 198 }]);

    let found = planted(|system| copy(system, file_extent, |key| Key { index: key.index + 1, ..key }));
    assert!(found.contains(&Finding::OverlappingExtents { inode: FILE, at: 2 }), "{found:?}");
    assert!(found.contains(&Finding::UsedTwice { block: 0 }), "{found:?}");
}

#[test]
fn wrong_counters_are_found() {
    let counters = Key { kind: Kind::FileSystem, of: 0, index: 1 };
    for (at, what, right) in
        [(1, "numbers of inodes", 5), (9, "inodes", 5), (17, "free blocks", 184), (25, "allotted blocks", 12)]
    {
        let found = planted(|system| overwrite(system, counters, at, &3u64.to_be_bytes()));
        assert_eq!(found, [Finding::WrongCounter { what, counter: 3, expected: right }]);
    }
    let found = planted(|system| {
        system.map.remove(&counters);
    });
    assert_eq!(found, [Finding::Missing { key: counters }]);
    let found = planted(|system| {
        system.map.remove(&Key { index: 0, ..counters });
    });
    assert_eq!(found[1..], [Finding::NoFileSystem]);
}

#[test]
fn the_list_of_findings_is_bounded() {
    let mut system = System::new(10);
    for number in 0..1500 {
        system.create(ROOT, &format!("{number}"), NewInode::Regular);
    }
    let names: Vec<Key> = system.map.keys().filter(|key| key.kind == Kind::Name).copied().collect();
    names.iter().for_each(|key| drop(system.map.remove(key)));
    let mut check = Check::new(Windows::default());
    while !check.step(&mut system.map, 1000).expect("all is in memory") {}
    let (findings, omitted) = check.findings();
    // The root has the wrong size, and each file the wrong number of links, and is not listed.
    assert_eq!((findings.len(), omitted), (1000, 501));
    assert!(system.run(create(ROOT, "0", NewInode::Regular, true)).is_ok());
}
