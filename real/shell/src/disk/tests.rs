//! Tests of the guarantees of a disk, with both engines, and with and without direct I/O.

use super::*;
use crate::clock;
use crate::counters::Counters;
use braid_machine::DiskTag;
use proptest::prelude::*;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Instant;

const BLOCK: usize = 4096;

/// A file that is removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(content: &[u8]) -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("braid-disk-{}-{number}", std::process::id()));
        std::fs::write(&path, content).expect("a file to write");
        Scratch(path)
    }

    fn open(&self, direct: bool) -> Disk {
        Disk::open(&self.0, &DiskOptions { direct, ..DiskOptions::default() }).expect("a disk")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs the same test body with every combination of engine and I/O mode.
fn for_each_way(content: &[u8], body: impl AsyncFn(&Scratch, &mut Engine)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for choice in [EngineChoice::Uring, EngineChoice::Threads] {
        for direct in [true, false] {
            let scratch = Scratch::new(content);
            runtime.block_on(async {
                let disk = scratch.open(direct);
                let mut engine = Engine::start(disk, choice, Arc::new(Counters::default())).expect("an engine");
                body(&scratch, &mut engine).await;
                assert_eq!(engine.in_flight(), 0);
            });
        }
    }
}

/// Runs all commands concurrently, and returns their results in the same order.
async fn perform(engine: &mut Engine, commands: impl IntoIterator<Item = DiskCommand>) -> Vec<DiskResult> {
    let mut results = Vec::new();
    for (number, command) in commands.into_iter().enumerate() {
        engine.push(DiskTag(number as u64), command);
        results.push(None);
    }
    let mut done = Vec::new();
    while engine.in_flight() > 0 {
        std::future::poll_fn(|cx| {
            engine.submit(clock::now().time).expect("submitted");
            engine.poll_take(cx, clock::now().time, &mut done).expect("taken");
            if done.is_empty() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        for (tag, result) in done.drain(..) {
            assert!(results[tag.0 as usize].replace(result).is_none(), "a command completes once");
        }
    }
    results.into_iter().map(|result| result.expect("each command completes")).collect()
}

async fn read(engine: &mut Engine, offset: u64, length: usize) -> Bytes {
    match perform(engine, [DiskCommand::Read { offset, length }]).await.remove(0) {
        DiskResult::Read(Ok(data)) => data,
        other => panic!("a read brings data, not {other:?}"),
    }
}

/// Bytes that identify their position.
fn pattern(offset: u64, length: usize) -> Vec<u8> {
    (offset..offset + length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

const DONE: DiskResult = DiskResult::Done(Ok(()));

#[test]
fn beyond_the_end_of_a_file_there_are_zeros() {
    let content = pattern(0, 5000);
    for_each_way(&content, async |_, engine| {
        let first = read(engine, 0, 2 * BLOCK).await;
        assert_eq!(first[..5000], content);
        assert!(first[5000..].iter().all(|byte| *byte == 0));
        assert!(read(engine, 1 << 40, 3 * BLOCK).await.iter().all(|byte| *byte == 0));
        assert_eq!(read(engine, 0, 0).await.len(), 0);
    });
}

#[test]
fn thousands_of_commands_at_once_all_end() {
    for_each_way(&[], async |_, engine| {
        const MANY: u64 = 3000;
        let write = |number: u64| DiskCommand::Write {
            offset: number * 512,
            data: vec![Bytes::from(pattern(number * 512, 512))],
            durable: false,
        };
        assert!(perform(engine, (0..MANY).map(write)).await.iter().all(|result| *result == DONE));
        let reads = (0..MANY).map(|number| DiskCommand::Read { offset: number * 512, length: 512 });
        for (number, result) in perform(engine, reads).await.into_iter().enumerate() {
            assert_eq!(result, DiskResult::Read(Ok(pattern(number as u64 * 512, 512).into())));
        }
    });
}

#[test]
fn reserved_space_is_there_and_what_was_in_it_stays() {
    let content = pattern(0, BLOCK);
    for_each_way(&content, async |scratch, engine| {
        let reserve = DiskCommand::Reserve { offset: 0, length: 8 << 20 };
        assert_eq!(perform(engine, [reserve]).await, [DONE]);
        let facts = std::fs::metadata(&scratch.0).expect("the file");
        assert!(facts.blocks() * 512 >= 8 << 20, "only {} sectors are set aside", facts.blocks());
        assert_eq!(read(engine, 0, BLOCK).await, content);
        assert!(read(engine, 1 << 20, BLOCK).await.iter().all(|byte| *byte == 0));
        assert_eq!(perform(engine, [DiskCommand::Reserve { offset: 0, length: 0 }]).await, [DONE]);
    });
}

#[test]
fn more_than_a_file_can_hold_is_no_space() {
    for_each_way(&[], async |_, engine| {
        let reserve = DiskCommand::Reserve { offset: 0, length: 1 << 62 };
        assert_eq!(perform(engine, [reserve]).await, [DiskResult::Done(Err(DiskError::NoSpace))]);
    });
}

#[test]
fn a_disk_that_may_not_be_written_fails_writes_and_only_those() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for choice in [EngineChoice::Uring, EngineChoice::Threads] {
        let scratch = Scratch::new(&pattern(0, BLOCK));
        runtime.block_on(async {
            let disk = Disk::open(&scratch.0, &DiskOptions { write: false, ..DiskOptions::default() }).expect("a disk");
            let mut engine = Engine::start(disk, choice, Arc::default()).expect("an engine");
            let write = DiskCommand::Write { offset: 0, data: vec![Bytes::from(vec![1; 512])], durable: false };
            assert_eq!(perform(&mut engine, [write]).await, [DiskResult::Done(Err(DiskError::Failed))]);
            assert_eq!(read(&mut engine, 0, BLOCK).await, pattern(0, BLOCK));
        });
    }
}

/// If the disk needs longer than the end of an engine waits, the kernel may give writes up. Then fewer writes are tried.
#[test]
fn an_engine_that_is_dropped_first_ends_what_it_began() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for choice in [EngineChoice::Uring, EngineChoice::Threads] {
        let is_ended_in_time = |writes: u64| {
            let scratch = Scratch::new(&[]);
            let ended = runtime.block_on(async {
                let mut engine = Engine::start(scratch.open(true), choice, Arc::default()).expect("an engine");
                for number in 0..writes {
                    let data = vec![Bytes::from(pattern(number * 8192, 8192))];
                    engine.push(DiskTag(number), DiskCommand::Write { offset: number * 8192, data, durable: false });
                }
                engine.submit(clock::now().time).expect("submitted");
                let begun = Instant::now();
                drop(engine);
                begun.elapsed()
            });
            if ended >= DRAIN_MAX {
                return false;
            }
            assert!(std::fs::read(&scratch.0).expect("the file") == pattern(0, writes as usize * 8192), "{choice:?}");
            // The lock is released, too.
            scratch.open(true);
            true
        };
        assert!([200, 20, 2, 2, 2].into_iter().any(is_ended_in_time), "{choice:?}: the disk is too slow for this test");
    }
}

#[test]
fn a_disk_has_one_user() {
    let scratch = Scratch::new(&[]);
    let _first = scratch.open(true);
    let second = Disk::open(&scratch.0, &DiskOptions::default());
    assert!(matches!(second, Err(DiskOpenError::InUse { .. })), "{second:?}");
}

#[test]
fn a_new_disk_never_takes_the_place_of_an_old_one() {
    let scratch = Scratch::new(b"precious");
    let options = DiskOptions { create: Some(1 << 20), ..DiskOptions::default() };
    let made = Disk::open(&scratch.0, &options);
    assert!(matches!(made, Err(DiskOpenError::System { .. })), "{made:?}");
    assert_eq!(std::fs::read(&scratch.0).expect("the file"), b"precious");
    std::fs::remove_file(&scratch.0).expect("removed");
    assert_eq!(Disk::open(&scratch.0, &options).expect("a disk").size(), 1 << 20);
}

#[test]
fn only_files_and_disks_are_disks() {
    for path in ["/dev/null", "/tmp"] {
        let opened = Disk::open(Path::new(path), &DiskOptions { write: false, ..DiskOptions::default() });
        assert!(matches!(opened, Err(DiskOpenError::NotADisk { .. })), "{path}: {opened:?}");
    }
}

/// A random command on one of 64 positions, a sector each.
#[derive(Clone, Debug)]
enum Act {
    Read { sector: usize, sectors: usize },
    Write { sector: usize, data: Vec<u8>, cuts: Vec<usize>, is_aligned: bool, durable: bool },
    Sync,
    Reserve { sector: usize, sectors: usize },
}

fn act() -> impl Strategy<Value = Act> {
    let range = (0..64_usize, 1..24_usize);
    // Also more parts than the kernel takes at once.
    let cuts = prop_oneof![
        9 => prop::collection::vec(0..12_000_usize, 0..4),
        1 => prop::collection::vec(0..12_000_usize, 2000..3000),
    ];
    prop_oneof![
        range.clone().prop_map(|(sector, sectors)| Act::Read { sector, sectors }),
        (range.clone(), any::<u8>(), cuts, any::<[bool; 2]>()).prop_map(
            |((sector, sectors), salt, mut cuts, [is_aligned, durable])| {
                let data: Vec<u8> =
                    (0..sectors * 512).map(|at| (at as u8).wrapping_mul(31).wrapping_add(salt)).collect();
                cuts.retain(|cut| *cut < data.len());
                cuts.iter_mut().filter(|_| is_aligned).for_each(|cut| *cut -= *cut % 512);
                cuts.sort_unstable();
                Act::Write { sector, data, cuts, is_aligned, durable }
            }
        ),
        Just(Act::Sync),
        range.prop_map(|(sector, sectors)| Act::Reserve { sector, sectors }),
    ]
}

impl Act {
    fn sectors(&self) -> std::ops::Range<usize> {
        match self {
            Act::Read { sector, sectors } | Act::Reserve { sector, sectors } => *sector..sector + sectors,
            Act::Write { sector, data, .. } => *sector..sector + data.len() / 512,
            Act::Sync => 0..0,
        }
    }

    fn command(&self) -> DiskCommand {
        match self {
            Act::Read { sector, sectors } => DiskCommand::Read { offset: *sector as u64 * 512, length: sectors * 512 },
            Act::Write { sector, data, cuts, is_aligned, durable } => {
                let mut whole = Bytes::from([&[0; 13], &data[..]].concat()).slice(13..);
                if *is_aligned {
                    let mut buffer = AlignedBuffer::zeroed(data.len());
                    buffer.copy_from_slice(data);
                    whole = buffer.freeze();
                }
                let mut parts = Vec::new();
                let mut start = 0;
                for end in cuts.iter().copied().chain([whole.len()]) {
                    parts.push(whole.slice(start..end));
                    start = end;
                }
                DiskCommand::Write { offset: *sector as u64 * 512, data: parts, durable: *durable }
            }
            Act::Sync => DiskCommand::Sync,
            Act::Reserve { sector, sectors } => {
                DiskCommand::Reserve { offset: *sector as u64 * 512, length: *sectors as u64 * 512 }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Compared with a plain array of bytes. Commands that do not overlap are in flight together.
    #[test]
    fn a_disk_is_an_array_of_bytes(acts in prop::collection::vec(act(), 1..40)) {
        for_each_way(&[], async |scratch, engine| {
            let mut model = vec![0_u8; 96 * 512];
            let mut rest = &acts[..];
            while !rest.is_empty() {
                let mut taken: Vec<std::ops::Range<usize>> = Vec::new();
                let together = rest.iter().take_while(|act| {
                    let range = act.sectors();
                    let apart = taken.iter().all(|other| range.end <= other.start || other.end <= range.start);
                    taken.push(range);
                    apart
                }).count();
                let (batch, later) = rest.split_at(together);
                rest = later;
                let results = perform(engine, batch.iter().map(Act::command)).await;
                for (act, result) in batch.iter().zip(results) {
                    let bytes = act.sectors().start * 512..act.sectors().end * 512;
                    match (act, result) {
                        (Act::Read { .. }, DiskResult::Read(Ok(data))) => assert_eq!(data, model[bytes]),
                        (Act::Write { data, .. }, DiskResult::Done(Ok(()))) => model[bytes].copy_from_slice(data),
                        (Act::Sync | Act::Reserve { .. }, DiskResult::Done(Ok(()))) => {}
                        other => panic!("{other:?}"),
                    }
                }
            }
            let file = File::open(&scratch.0).expect("the file");
            let mut content = vec![0; file.metadata().expect("facts").len() as usize];
            file.read_exact_at(&mut content, 0).expect("read");
            content.resize(model.len(), 0);
            assert_eq!(content, model);
        });
    }

    /// A write that the kernel completes only in part is continued where it stopped, at any position.
    #[test]
    fn the_rest_of_a_short_write_is_its_end(lengths in prop::collection::vec(1..2000_usize, 1..6), share in 1..1000_usize) {
        let scratch = Scratch::new(&[]);
        let disk = scratch.open(false);
        let whole = pattern(0, lengths.iter().sum());
        let mut parts = Vec::new();
        let mut rest = Bytes::from(whole.clone());
        for length in lengths {
            parts.push(rest.split_to(length));
        }
        let count = (whole.len() * share / 1000).max(1);
        prop_assert_eq!(disk.advance(&mut parts, count), Ok(()));
        prop_assert_eq!(parts.concat(), &whole[count..]);
        prop_assert!(parts.iter().all(|part| !part.is_empty()));
    }
}

#[test]
fn a_new_file_is_private_and_one_that_others_can_change_is_not_written() {
    let scratch = Scratch::new(&[]);
    std::fs::remove_file(&scratch.0).expect("it is there");
    let create = DiskOptions { create: Some(8192), ..DiskOptions::default() };
    drop(Disk::open(&scratch.0, &create).expect("it is created"));
    assert_eq!(scratch.0.metadata().expect("it is there").mode() & 0o7777, 0o600);
    for mode in [0o620, 0o602] {
        std::fs::set_permissions(&scratch.0, std::fs::Permissions::from_mode(mode)).expect("it is ours");
        let refused = Disk::open(&scratch.0, &DiskOptions::default());
        assert!(matches!(refused, Err(DiskOpenError::WritableByOthers { mode: found, .. }) if found == mode));
        let looked = Disk::open(&scratch.0, &DiskOptions { write: false, ..DiskOptions::default() });
        assert!(looked.is_ok(), "it may be read: {looked:?}");
    }
}

#[test]
fn a_file_is_locked_while_a_loop_device_on_it_is_used() {
    let scratch = Scratch::new(&[0; 4 << 20]);
    let losetup = |words: &[&str]| {
        let said = std::process::Command::new("losetup").args(words).output().ok().filter(|said| said.status.success());
        said.map(|said| String::from_utf8(said.stdout).expect("it is text").trim().to_string())
    };
    let file = scratch.0.to_str().expect("it is text");
    let attach = |more: &[&str]| losetup(&[more, &["--find", "--show", file]].concat());
    let Some(whole) = attach(&[]) else {
        eprintln!("skipped: only root can make loop devices");
        return;
    };
    let [low, high] = [["--offset", "0", "--sizelimit", "2M"], ["--offset", "2M", "--sizelimit", "2M"]]
        .map(|part| attach(&part).expect("another one"));
    let open = |path: &str| Disk::open(Path::new(path), &DiskOptions::default());
    let is_in_use = |path: &str| matches!(open(path), Err(DiskOpenError::InUse { path }) if path == scratch.0);
    let mut outcomes = Vec::new();
    for (used, refused) in [
        (&[&whole][..], &[file, low.as_str()][..]),
        (&[&low, &high], &[file, &whole]),
        (&[&file.to_string()], &[&whole, &high]),
    ] {
        let disks: Vec<_> = used.iter().map(|path| open(path)).collect();
        outcomes.push((disks.iter().all(Result::is_ok), refused.iter().all(|path| is_in_use(path))));
    }
    for device in [&whole, &low, &high] {
        losetup(&["--detach", device]).expect("it is attached");
    }
    assert_eq!(outcomes, [(true, true); 3]);
}
