//! Directories: lists that are read while the directory changes, names with the same hash, and trees.

use crate::system::*;
use braid_base::Rng;
use braid_wire::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Entries that stay are listed exactly once, whatever is added and removed between two parts of the list.
    #[test]
    fn a_list_neither_skips_nor_repeats_what_stays(
        seed in any::<u64>(),
        hash_bits in prop_oneof![Just(0u8), Just(2), Just(5), Just(55)],
        most in 1..6u32,
    ) {
        let mut rng = Rng::new(seed);
        let mut system = System::with(&parameters(10, hash_bits));
        let called = |number: u64| format!("file {number}");
        let mut present = BTreeSet::new();
        for number in 0..60 {
            if rng.chance(2, 3) {
                system.file(&called(number));
                present.insert(number);
            }
        }
        // Numbers that are a multiple of three stay as they are.
        let stays: BTreeSet<u64> = present.iter().copied().filter(|number| number % 3 == 0).collect();
        let mut listed: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        let mut after = 0;
        loop {
            let (entries, more) = system.list_after(ROOT, after, most);
            for entry in &entries {
                prop_assert!(entry.cookie > after);
                after = entry.cookie;
                *listed.entry(entry.name.to_vec()).or_default() += 1;
            }
            if !more {
                break;
            }
            for _ in 0..rng.below(6) {
                let number = rng.below(60);
                if number.is_multiple_of(3) {
                    continue;
                }
                if present.remove(&number) {
                    system.run(unlink(ROOT, &called(number))).expect("it is present");
                } else {
                    system.file(&called(number));
                    present.insert(number);
                }
            }
        }
        for number in stays {
            prop_assert_eq!(listed.get(called(number).as_bytes()), Some(&1), "file {}", number);
        }
        prop_assert_eq!(system.findings(), []);
    }
}

#[test]
fn a_group_of_names_with_the_same_hash_is_bounded() {
    let mut system = System::with(&parameters(10, 0));
    for number in 0..256 {
        system.file(&format!("{number}"));
    }
    let refused = Err(FileError::DirectoryFull);
    assert_eq!(system.run(create(ROOT, "x", NewInode::Regular, true)), refused);
    let inode = system.list(ROOT, 1000)[7].inode;
    assert_eq!(system.run(link(inode, ROOT, "x")), refused);
    // A name that is removed makes room, and so does the old name of the same entry.
    assert!(system.run(rename(ROOT, "3", ROOT, "x")).is_ok());
    assert!(system.run(rename(ROOT, "x", ROOT, "4")).is_ok());
    assert_eq!(system.run(lookup(ROOT, "x")), Err(FileError::NoSuchName));
    system.file("y");
    assert_eq!(system.list(ROOT, 100).len(), 256);
    assert_eq!(system.findings(), []);
    assert_eq!(system.status().inodes, 1 + 256 + 1, "one inode was replaced, and is an orphan");
}

#[test]
fn a_replaced_name_keeps_its_cookie() {
    let mut system = System::with(&parameters(10, 1));
    let (old, new) = (system.file("old"), system.file("new"));
    let cookie = |system: &mut System, called: &str| {
        let entry = system.list(ROOT, 10).into_iter().find(|entry| entry.name == name(called)).expect("it is listed");
        (entry.cookie, entry.inode)
    };
    let before = cookie(&mut system, "old");
    assert_eq!(before.1, old);
    system.run(rename(ROOT, "new", ROOT, "old")).expect("a file replaces a file");
    assert_eq!(cookie(&mut system, "old"), (before.0, new));
}

#[test]
fn cookies_leave_room_for_the_entries_that_hosts_add() {
    let mut system = System::with(&parameters(10, 3));
    for number in 0..40 {
        system.file(&format!("{number}"));
    }
    assert!(system.list(ROOT, 7).iter().all(|entry| (FIRST_COOKIE..1 << 63).contains(&entry.cookie)));
    assert_eq!(system.list_after(ROOT, u64::MAX, 10), (vec![], false));
    assert_eq!(system.list_after(ROOT, FIRST_COOKIE - 1, 100).0.len(), 40);
}

#[test]
fn a_list_is_bounded() {
    let mut system = System::new(10);
    for number in 0..=limits::FILE_ENTRIES_MAX {
        system.file(&format!("{number}"));
    }
    let (entries, more) = system.list_after(ROOT, 0, u32::MAX);
    assert_eq!((entries.len(), more), (limits::FILE_ENTRIES_MAX, true));
    assert_eq!(system.list_after(ROOT, 0, 0), (vec![], true));
}

#[test]
fn a_directory_is_not_moved_too_deep() {
    let mut system = System::new(10);
    let moved = system.directory(ROOT, "moved");
    let mut deep = ROOT;
    for _ in 1..limits::DIRECTORY_DEPTH_MAX {
        deep = system.directory(deep, "d");
    }
    assert!(system.run(rename(ROOT, "moved", deep, "moved")).is_ok());
    assert!(system.run(rename(deep, "moved", ROOT, "moved")).is_ok());
    let deeper = system.directory(deep, "d");
    assert_eq!(system.run(rename(ROOT, "moved", deeper, "moved")), Err(FileError::TooDeep));
    // A file can't contain itself, and nor can a directory that stays where it is.
    system.file("file");
    assert!(system.run(rename(ROOT, "file", deeper, "file")).is_ok());
    system.directory(deeper, "x");
    assert!(system.run(rename(deeper, "x", deeper, "y")).is_ok());
    assert_eq!(system.attributes(moved).parent, Some(ROOT));
    assert_eq!(system.findings(), []);
}

#[test]
fn links_are_bounded() {
    let mut system = System::new(10);
    let (file, directory) = (system.file("f"), system.directory(ROOT, "d"));
    let inner = system.directory(ROOT, "inner");
    for inode in [file, directory] {
        set_links(&mut system, inode, limits::LINKS_MAX);
    }
    let refused = Err(FileError::TooManyLinks);
    assert_eq!(system.run(link(file, ROOT, "g")), refused);
    assert_eq!(system.run(create(directory, "x", NewInode::Directory, true)), refused);
    assert_eq!(system.run(rename(ROOT, "inner", directory, "inner")), refused);
    assert!(system.run(create(directory, "x", NewInode::Regular, true)).is_ok());
    set_links(&mut system, directory, limits::LINKS_MAX - 1);
    assert!(system.run(rename(ROOT, "inner", directory, "inner")).is_ok());
    assert_eq!(system.attributes(inner).parent, Some(directory));
    // One directory replaces another one: their number stays.
    system.directory(ROOT, "other");
    assert!(system.run(rename(ROOT, "other", directory, "inner")).is_ok());
}

/// Changes the number of links in the record of an inode: its bytes 12 to 15.
fn set_links(system: &mut System, inode: InodeId, links: u32) {
    overwrite(system, inode_key(inode), 12, &links.to_be_bytes());
    assert_eq!(system.attributes(inode).links, links);
}
