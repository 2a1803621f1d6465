//! Random commands of several hosts: each answer is that of the model, and the check finds nothing.

use crate::model::Model;
use crate::system::*;
use crate::views::evaluate_with_pauses;
use braid_namespace::reclaim::Step;
use braid_wire::*;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

/// What happens. Inodes, blocks and cookies are chosen among those that exist then.
#[derive(Clone, Debug)]
enum Event {
    /// A command of a host.
    Command(u32, FileCommand),
    /// Attaches blocks of the host, and sometimes one that is not.
    Attach { host: u32, inode: InodeId, at: u64, picks: Vec<(usize, u64)>, gap: u64, foreign: bool },
    /// A host gives back blocks that it has not attached.
    GiveBack { host: u32, pick: usize, most: u64 },
    /// A directory is listed in parts.
    Continue { inode: InodeId, most: u32 },
    /// An inode without a name is freed.
    Reclaim(usize),
    /// A host is gone for good.
    DropHost(u32),
    /// Whether few blocks are left.
    NearlyFull(bool),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let host = || 1..4u32;
    let attach = (host(), inode(), 0..12u64, vec((any::<usize>(), 1..6u64), 0..4), 0..3u64, prop::bool::weighted(0.05))
        .prop_map(|(host, inode, at, picks, gap, foreign)| Event::Attach { host, inode, at, picks, gap, foreign });
    let event = prop_oneof![
        24 => (host(), command()).prop_map(|(host, command)| Event::Command(host, command)),
        6 => attach,
        2 => (host(), any::<usize>(), 1..9u64).prop_map(|(host, pick, most)| Event::GiveBack { host, pick, most }),
        1 => (inode(), 0..4u32).prop_map(|(inode, most)| Event::Continue { inode, most }),
        2 => any::<usize>().prop_map(Event::Reclaim),
        1 => host().prop_map(Event::DropHost),
        1 => prop::bool::weighted(0.3).prop_map(Event::NearlyFull),
    ];
    vec(event, 1..150)
}

/// A number that stands for an inode.
fn inode() -> impl Strategy<Value = InodeId> {
    (0..10_000u64).prop_map(InodeId)
}

fn command() -> impl Strategy<Value = FileCommand> {
    let called = || (0..6u8).prop_map(|number| name(["a", "b", "c", "d", "e", "f"][usize::from(number)]));
    let node = prop_oneof![
        3 => Just(NewInode::Regular),
        3 => Just(NewInode::Directory),
        1 => called().prop_map(|target| NewInode::SymbolicLink { target }),
        1 => Just(NewInode::Special { special: SpecialType::BlockDevice, device: 0x801 }),
        1 => Just(NewInode::Special { special: SpecialType::Fifo, device: 0 }),
    ];
    let change = (of(0..0o10000u16), of(any::<u32>()), of(any::<u32>()), of(new_time()), of(new_time()))
        .prop_map(|(mode, uid, gid, atime, mtime)| AttributeChange { mode, uid, gid, atime, mtime });
    let create = (inode(), called(), node, any::<bool>()).prop_map(|(parent, name, node, exclusive)| {
        FileCommand::Create { parent, name, node, exclusive, owner: Owner { uid: 1, gid: 2 }, mode: 0o600 }
    });
    let rename = (inode(), called(), inode(), called(), any::<bool>()).prop_map(
        |(parent, name, new_parent, new_name, no_replace)| FileCommand::Rename {
            parent,
            name,
            new_parent,
            new_name,
            no_replace,
        },
    );
    prop_oneof![
        1 => Just(FileCommand::Nothing),
        2 => (inode(), called()).prop_map(|(parent, name)| FileCommand::Lookup { parent, name }),
        2 => inode().prop_map(|inode| FileCommand::Stat { inode }),
        2 => (inode(), 0..9u32).prop_map(|(inode, most)| FileCommand::ReadDirectory { inode, after: 0, most }),
        1 => inode().prop_map(|inode| FileCommand::ReadLink { inode }),
        8 => create,
        3 => (inode(), inode(), called()).prop_map(|(inode, parent, name)| FileCommand::Link { inode, parent, name }),
        3 => (inode(), called()).prop_map(|(parent, name)| FileCommand::Unlink { parent, name }),
        2 => (inode(), called()).prop_map(|(parent, name)| FileCommand::RemoveDirectory { parent, name }),
        6 => rename,
        2 => (inode(), change).prop_map(|(inode, change)| FileCommand::SetAttributes { inode, change }),
        3 => (inode(), 0..20 * BLOCK).prop_map(|(inode, size)| FileCommand::Truncate { inode, size }),
        3 => (inode(), 0..12u64, 0..5u32).prop_map(|(inode, from, most)| FileCommand::Map { inode, from, most }),
        4 => (1..30u64).prop_map(|blocks| FileCommand::Reserve { blocks }),
        2 => Just(FileCommand::StatFileSystem),
    ]
}

fn new_time() -> impl Strategy<Value = NewTime> {
    prop_oneof![Just(NewTime::Now), any::<i64>().prop_map(|time| NewTime::At(FileTime(time)))]
}

/// The system and its model.
struct Pair {
    system: System,
    model: Model,
    pauses: u64,
}

impl Pair {
    fn take(&mut self, event: &Event) {
        match event {
            Event::Command(host, command) => self.run(*host, resolved(command.clone(), &self.model)),
            Event::Attach { host, inode, at, picks, gap, foreign } => {
                let mut extents: Vec<FileExtent> = Vec::new();
                for (pick, most) in picks {
                    let at = extents.last().map_or(*at, |last| last.end() + gap);
                    if let Some(blocks) = self.model.some_allotted(*host, *pick, *most) {
                        extents.push(FileExtent { at, blocks });
                    }
                }
                if *foreign {
                    let at = extents.last().map_or(*at, FileExtent::end);
                    extents.push(FileExtent { at, blocks: BlockRange::new(at * 7 % 120, 1 + at % 3) });
                }
                let size = (extents.last().map_or(0, FileExtent::end) * BLOCK).saturating_sub(at * 100);
                let command = FileCommand::Attach { inode: *inode, extents, size, mtime: FileTime(-3) };
                self.run(*host, resolved(command, &self.model));
            }
            Event::GiveBack { host, pick, most } => {
                let run = self.model.some_allotted(*host, *pick, *most).unwrap_or(BlockRange::new(1, *most));
                self.run(*host, FileCommand::GiveBack { runs: vec![run] });
            }
            Event::Continue { inode, most } => {
                let directories = self.model.inodes(|file_type| file_type == FileType::Directory);
                self.list_in_parts(one_of(*inode, &directories, self.model.last()), most + 1);
            }
            Event::Reclaim(pick) => {
                let listed = self.system.listed();
                assert_eq!(listed, self.model.unlinked_inodes());
                if let Some(inode) = listed.get(pick % listed.len().max(1)) {
                    self.step(|view| reclaim(*inode, view));
                    self.model.reclaim(*inode);
                }
            }
            Event::DropHost(host) => {
                self.step(|view| drop_host(Generation(*host), view));
                self.model.drop_host(*host);
            }
            Event::NearlyFull(full) => self.system.is_nearly_full = *full,
        }
    }

    fn run(&mut self, host: u32, command: FileCommand) {
        self.system.now += 1;
        let context = self.system.context(host);
        let evaluation =
            evaluate_with_pauses(&mut self.system.map, &mut self.pauses, |view| evaluate(&command, context, view));
        apply(&evaluation.changes, &mut self.system.map);
        let (now, is_full) = (self.system.now, self.system.is_nearly_full);
        let expected = self.model.answer(host, &command, now, is_full, &evaluation.answer);
        assert_eq!(without_parents(evaluation.answer), without_parents(expected), "{command:?}");
    }

    /// A step of the server. There is not so much that it would need several.
    fn step(&mut self, step: impl Fn(&mut dyn View) -> Result<Step, NotHere>) {
        let step = evaluate_with_pauses(&mut self.system.map, &mut self.pauses, step);
        apply(&step.changes, &mut self.system.map);
        assert_eq!(step.is_done, Ok(true));
    }

    /// A list in parts is the list as a whole.
    fn list_in_parts(&mut self, inode: InodeId, most: u32) {
        if let Ok(FileResult::Entries { entries, more: false }) =
            self.system.run(FileCommand::ReadDirectory { inode, after: 0, most: u32::MAX })
        {
            assert_eq!(self.system.list(inode, most), entries);
        }
    }

    /// Removes everything. Nothing may be left.
    fn clear(&mut self) {
        self.system.is_nearly_full = true;
        for (parent, name, is_directory) in self.model.all_names() {
            let command = if is_directory {
                FileCommand::RemoveDirectory { parent, name }
            } else {
                FileCommand::Unlink { parent, name }
            };
            self.system.run(command).expect("it is there");
        }
        self.system.settle();
        assert_eq!(self.system.findings(), []);
        let status = self.system.status();
        assert_eq!((status.free, status.allotted, status.inodes), (status.blocks, 0, 1));
        assert_eq!(self.system.map.len(), 4, "parameters, counters, the root, one run of free blocks");
    }
}

/// The inode that a number stands for: mostly one of a type, sometimes any that exists, existed, or never did.
fn one_of(number: InodeId, of_type: &[InodeId], last: u64) -> InodeId {
    let (pick, number) = (number.0 / 8, number.0 % 8);
    match of_type.get(pick as usize % of_type.len().max(1)) {
        Some(inode) if number > 0 => *inode,
        _ => InodeId(1 + pick % (last + 1)),
    }
}

/// A command on what exists. The name of an entry to remove or to move is mostly one that the directory has.
fn resolved(mut command: FileCommand, model: &Model) -> FileCommand {
    let of_type = |file_type| model.inodes(|other| other == file_type);
    let last = model.last();
    let directory = |inode: &mut InodeId| *inode = one_of(*inode, &of_type(FileType::Directory), last);
    let file = |inode: &mut InodeId| *inode = one_of(*inode, &of_type(FileType::Regular), last);
    let entry = |parent: &mut InodeId, name: &mut Bytes| {
        let number = parent.0 as usize;
        directory(parent);
        let names = model.names_in(*parent);
        if !names.is_empty() && !number.is_multiple_of(5) {
            *name = names[number % names.len()].clone();
        }
    };
    match &mut command {
        FileCommand::Lookup { parent, name }
        | FileCommand::Unlink { parent, name }
        | FileCommand::RemoveDirectory { parent, name } => entry(parent, name),
        FileCommand::Create { parent, .. } => directory(parent),
        FileCommand::Rename { parent, name, new_parent, .. } => {
            entry(parent, name);
            directory(new_parent);
        }
        FileCommand::Link { inode, parent, .. } => {
            *inode = one_of(*inode, &model.inodes(|other| other != FileType::Directory), last);
            directory(parent);
        }
        FileCommand::ReadDirectory { inode, .. } => directory(inode),
        FileCommand::ReadLink { inode } => *inode = one_of(*inode, &of_type(FileType::SymbolicLink), last),
        FileCommand::Stat { inode } | FileCommand::SetAttributes { inode, .. } => *inode = one_of(*inode, &[], last),
        FileCommand::Truncate { inode, .. } | FileCommand::Map { inode, .. } | FileCommand::Attach { inode, .. } => {
            file(inode);
        }
        FileCommand::Nothing
        | FileCommand::Reserve { .. }
        | FileCommand::GiveBack { .. }
        | FileCommand::StatFileSystem => {}
    }
    command
}

/// Removed directories keep their last parent, which the model does not know.
fn without_parents(mut reply: FileReply) -> FileReply {
    let clear = |attributes: &mut FileAttributes| {
        if attributes.links == 0 {
            attributes.parent = None;
        }
    };
    match &mut reply {
        Ok(FileResult::Attributes(attributes) | FileResult::Removed(attributes)) => clear(attributes),
        Ok(FileResult::Renamed { replaced: Some(replaced), .. }) => clear(replaced),
        _ => {}
    }
    reply
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_answer_is_that_of_the_model(
        events in events(),
        blocks in 20..150u64,
        hash_bits in prop_oneof![Just(1u8), Just(3), Just(55)],
        pauses in any::<u64>(),
    ) {
        let mut pair =
            Pair { system: System::with(&parameters(blocks, hash_bits)), model: Model::new(blocks), pauses };
        for event in &events {
            pair.take(event);
        }
        prop_assert_eq!(pair.system.findings(), []);
        pair.clear();
    }
}
