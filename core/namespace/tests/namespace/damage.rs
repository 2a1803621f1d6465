//! Damaged values: commands and the check neither panic nor run without end.

use crate::system::*;
use braid_base::Rng;
use braid_objects::Known;
use braid_wire::*;
use proptest::prelude::*;

/// Directories, links, files with extents, an orphan, allotments.
fn sample() -> System {
    let mut system = System::new(500);
    let a = system.directory(ROOT, "a");
    let b = system.directory(a, "b");
    let (file, other) = (system.file("f"), system.create(b, "g", NewInode::Regular));
    system.create(b, "l", NewInode::SymbolicLink { target: Bytes::from_static(b"f") });
    system.run(link(file, b, "h")).expect("the file has one link");
    system.reserve(64);
    system.run(attach(file, vec![extent(1, 0, 4), extent(9, 6, 2)])).expect("the blocks are allotted");
    system.run(attach(other, vec![extent(0, 20, 4)])).expect("the blocks are allotted");
    system.run(unlink(b, "g")).expect("it exists");
    system.run_for(2, FileCommand::Reserve { blocks: 8 }).expect("there is space");
    system
}

fn commands() -> Vec<FileCommand> {
    let mut all = vec![
        rename(ROOT, "a", InodeId(3), "a"),
        rename(InodeId(2), "b", ROOT, "f"),
        rename(ROOT, "f", InodeId(3), "l"),
        FileCommand::Reserve { blocks: 100 },
        FileCommand::GiveBack { runs: vec![BlockRange::new(30, 2)] },
        FileCommand::StatFileSystem,
    ];
    for inode in (1..8).map(InodeId) {
        let change = AttributeChange { uid: Some(1), ..AttributeChange::default() };
        all.extend([
            FileCommand::Stat { inode },
            FileCommand::ReadLink { inode },
            FileCommand::ReadDirectory { inode, after: 0, most: 9 },
            FileCommand::Map { inode, from: 2, most: 9 },
            FileCommand::SetAttributes { inode, change },
            create(inode, "new", NewInode::Directory, true),
            attach(inode, vec![extent(2, 40, 9)]),
            truncate(inode, 5000),
            truncate(inode, 0),
        ]);
        for name in ["a", "b", "f", "h", "l"] {
            all.extend([
                lookup(inode, name),
                link(InodeId(4), inode, name),
                unlink(inode, name),
                remove_directory(inode, name),
            ]);
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_changed_value_leads_to_no_panic(seed in any::<u64>()) {
        let mut rng = Rng::new(seed);
        let mut system = sample();
        let nth = rng.below(system.map.len() as u64) as usize;
        let value = system.map.values_mut().nth(nth).expect("it is there");
        let mut bytes = value.to_vec();
        let at = rng.below(bytes.len() as u64) as usize;
        let length = 1 + rng.below(8) as usize;
        let byte = [0, 1, 0x7f, 0xff][rng.below(4) as usize];
        bytes.iter_mut().skip(at).take(length).for_each(|other| *other = byte);
        *value = bytes.into();

        for command in commands() {
            let _ = evaluate(&command, system.context(1), &mut system.map.clone());
            let _ = system.run(command);
        }
        for inode in (1..8).map(InodeId) {
            let _ = reclaim(inode, &mut system.map);
        }
        let _ = drop_host(Generation(2), &mut system.map);
        let mut check = Check::new(Windows { inodes: 2, blocks: 70 });
        let complete = (0..1000).any(|_| check.step(&mut system.map, 10).expect("all is in memory"));
        // With a wrong number of blocks, there are too many windows.
        let parameters = Key { kind: Kind::FileSystem, of: 0, index: 0 };
        prop_assert!(complete || system.map[&parameters] != sample().map[&parameters]);
    }
}

/// A view with one damaged key.
struct OneLost(Map, Key);

impl View for OneLost {
    fn get(&mut self, key: Key) -> Result<Option<Bytes>, Obstacle> {
        if key == self.1 { Err(Obstacle::Lost) } else { View::get(&mut self.0, key) }
    }

    fn first(&mut self, keys: RangeInclusive<Key>) -> Result<Option<(Key, Bytes)>, Obstacle> {
        match View::first(&mut self.0, keys)? {
            Some((key, _)) if key == self.1 => Err(Obstacle::Lost),
            found => Ok(found),
        }
    }

    fn first_known(&mut self, keys: RangeInclusive<Key>) -> Result<Known, Obstacle> {
        let passed_damage = keys.contains(&self.1);
        let key = self.0.range(keys).map(|(key, _)| *key).find(|key| *key != self.1);
        Ok(Known { key, passed_damage })
    }
}

#[test]
fn a_command_that_needs_a_damaged_key_fails() {
    let system = sample();
    let mut view = OneLost(system.map.clone(), inode_key(ROOT));
    let reply = evaluate(&create(ROOT, "new", NewInode::Regular, true), system.context(1), &mut view);
    assert_eq!(reply.expect("a reply").answer, Err(FileError::Lost));
}

#[test]
fn a_check_reports_damage_and_passes_it() {
    let keys: Vec<Key> = sample().map.keys().copied().collect();
    for lost in keys {
        let mut view = OneLost(sample().map, lost);
        let mut check = Check::new(Windows { inodes: 3, blocks: 100 });
        while !check.step(&mut view, 1).expect("all is in memory") {}
        let (found, _) = check.findings();
        let is_damage = |finding: &&Finding| matches!(finding, Finding::Damaged { .. });
        assert!(found.iter().any(|finding| is_damage(&finding)), "{lost:?}: {found:?}");
        if lost.kind == Kind::Inode && lost.of == 1 {
            // The other inodes were checked nevertheless: the entries of the root lie in no directory.
            assert!(found.contains(&Finding::EntryWithoutDirectory { directory: ROOT }), "{found:?}");
            assert!(!found.iter().any(|finding| matches!(finding, Finding::EntryWithoutInode { .. })), "{found:?}");
        }
    }
}

/// The values of a small file system. What this build writes must be readable by later ones: see `records.rs` for the fields.
#[test]
fn values_have_the_bytes_that_are_written_down() {
    let mut system = sample();
    let value = |system: &mut System, kind: Kind, of: u64, index: u64| {
        let (_, value) = View::first(&mut system.map, Key { kind, of, index }..=Key { kind, of, index: u64::MAX })
            .expect("all is in memory")
            .expect("it is there");
        value.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    for (kind, of, index, expected) in GOLDEN {
        let expected: String = expected.split_whitespace().collect();
        assert_eq!(value(&mut system, kind, of, index), expected, "{kind:?} {of}");
    }
}

const GOLDEN: [(Kind, u64, u64, &str); 11] = [
    (Kind::FileSystem, 0, 0, "01 00000000000001f4 0000000000000008 7369787465656e2062797465732e2e2e 37"),
    (Kind::FileSystem, 0, 1, "01 0000000000000006 0000000000000006 00000000000001ac 000000000000003e 0000000000000048"),
    (
        Kind::Inode,
        2,
        0,
        "01 02 01a4 00000007 00000008 00000003 0000000000000001 0000000000000000 \
         0000000000000001 0000000000000002 0000000000000002 0000000000000001",
    ),
    (
        Kind::Inode,
        4,
        0,
        "01 01 01a4 00000007 00000008 00000002 000000000000b000 0000000000000006 \
         0000000000000003 0000000000000005 0000000000000008 0000000000000000",
    ),
    (
        Kind::Inode,
        6,
        0,
        "01 03 01a4 00000007 00000008 00000001 0000000000000001 0000000000000000 \
         0000000000000005 0000000000000005 0000000000000005 0000000000000000 66",
    ),
    (Kind::Extent, 4, 0, "01 0000000000000000 0000000000000004"),
    (Kind::Name, 1, 0, "01 01 0000000000000004 66"),
    (Kind::FreeRun, 0, 0, "01 00000000000001ac"),
    (Kind::Allotment, 1, 0, "01 0000000000000002"),
    (Kind::Allotment, 2, 0, "01 0000000000000008"),
    (Kind::Reclaim, 0, 0, "01"),
];
