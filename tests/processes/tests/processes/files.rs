//! Files of the client library: two mounts compared with a folder of this machine, concurrent programs, and mounts and metadata servers that
//! are killed.

use super::files_model::{Facts, Model};
use super::shards::{NAME, RECOVERY, list, mount};
use crate::prelude::*;
use braid_client::{FileType, Files, FilesError, LockKind, Metadata, OpenOptions};

/// An array with a file system.
fn array() -> Array {
    let array = Array::up(&["--size", "512MiB", "--volume", "vol0:1MiB"]);
    array.braid(&["fs", "create", NAME, "--size", "512MiB"]).done();
    array
}

fn facts(metadata: Metadata) -> Facts {
    let kind = match metadata.file_type() {
        FileType::Regular => 'f',
        FileType::Directory => 'd',
        FileType::SymbolicLink => 'l',
        FileType::Special(_) => 's',
    };
    (kind, metadata.len(), metadata.links())
}

/// Both succeed with the same result, or both fail, and then for a reason of the operation.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: Result<T, FilesError>, expected: Option<T>) {
    match (found, expected) {
        (Ok(found), Some(expected)) => assert!(found == expected, "{what}: {found:?}, not {expected:?}"),
        (Err(error), None) => {
            let is_expected = matches!(
                error,
                FilesError::NotFound
                    | FilesError::Exists
                    | FilesError::NotADirectory
                    | FilesError::IsADirectory
                    | FilesError::NotALink
                    | FilesError::LinkToDirectory
                    | FilesError::NotEmpty
                    | FilesError::IntoItself
                    | FilesError::TooManySymbolicLinks
                    | FilesError::InvalidName
            );
            assert!(is_expected, "{what}: {error:?}");
        }
        (found, expected) => panic!("{what}: {found:?}, not {expected:?}"),
    }
}

#[test]
fn two_mounts_are_like_one_folder_of_this_machine() {
    let array = array();
    let mounts = [mount(&array), mount(&array)];
    let seed = seed();
    let mut rng = Rng::new(seed);
    let model = Model::new();
    wait(async {
        for step in 0..if soak() { 20_000 } else { 1_500 } {
            let files = &mounts[rng.below(2) as usize];
            operation(files, &model, &mut rng, &format!("seed {seed}, step {step}")).await;
        }
        for files in &mounts {
            compare(files, &model, "/").await;
        }
        mounts[1].remove_dir_all("/").await.expect_err("the root stays");
        for name in list(&mounts[0], "/").await.expect("the root can be read") {
            match mounts[1].remove_file(&name).await {
                Err(FilesError::IsADirectory) => mounts[1].remove_dir_all(&name).await.expect("it can be removed"),
                outcome => outcome.expect("it can be removed"),
            }
        }
        for files in &mounts {
            assert!(list(files, "/").await.expect("the root can be read").is_empty());
            files.close().await;
        }
    });
}

fn path(rng: &mut Rng) -> String {
    let mut path = if rng.chance(1, 2) { "/".to_string() } else { String::new() };
    for component in 0..=rng.below(3) {
        let name = if component > 0 && rng.chance(1, 12) { ".." } else { ["a", "b", "c", "d"][rng.below(4) as usize] };
        path += if path.is_empty() || path.ends_with('/') { "" } else { "/" };
        path += name;
    }
    path
}

async fn operation(files: &Files, model: &Model, rng: &mut Rng, step: &str) {
    let (path, other) = (path(rng), path(rng));
    let kind = rng.below(18);
    let what = &format!("{step}: operation {kind} on {path} and {other}");
    match kind {
        0 => same(what, files.create_file(&path).await.map(|_| ()), model.create_file(&path)),
        1 | 2 => same(what, files.create_dir(&path).await, model.create_dir(&path)),
        3 => same(what, files.symlink(&other, &path).await, model.symlink(&other, &path)),
        4 => {
            let target = files.read_link(&path).await.map(|target| target.to_string_lossy().into_owned());
            same(what, target, model.read_link(&path));
        }
        5 => same(what, files.hard_link(&other, &path).await, model.hard_link(&other, &path)),
        6 | 7 => {
            let (offset, length) = (rng.below(60_000) as usize, 1 + rng.below(20_000) as usize);
            let byte = rng.below(256) as u8;
            let written = async {
                let file = files.open(&path, OpenOptions::new().write(true).create(true)).await?;
                file.write_at(offset as u64, vec![byte; length]).await?;
                file.close().await
            };
            let change = |bytes: &mut Vec<u8>| {
                let end = bytes.len().max(offset + length);
                bytes.resize(end, 0);
                bytes[offset..offset + length].fill(byte);
            };
            same(what, written.await, model.change(&path, change));
        }
        8 => {
            let length = 1 + rng.below(9_000) as usize;
            let appended = async {
                let file = files.open(&path, OpenOptions::new().append(true).create(true)).await?;
                file.append(vec![7; length]).await?;
                file.close().await
            };
            same(what, appended.await, model.change(&path, |bytes| bytes.resize(bytes.len() + length, 7)));
        }
        9 => {
            let length = rng.below(80_000);
            let cut = async {
                let file = files.open(&path, OpenOptions::new().write(true).create(true)).await?;
                file.set_len(length).await?;
                file.close().await
            };
            same(what, cut.await, model.change(&path, |bytes| bytes.resize(length as usize, 0)));
        }
        10 => same(what, files.write(&path, &b"new"[..]).await, model.change(&path, |bytes| *bytes = b"new".to_vec())),
        11 => same(what, files.read(&path).await.map(|bytes| bytes.to_vec()), model.read(&path)),
        12 => same(what, files.remove_file(&path).await, model.remove_file(&path)),
        13 => same(what, files.remove_dir(&path).await, model.remove_dir(&path, false)),
        14 if rng.chance(1, 5) => same(what, files.remove_dir_all(&path).await, model.remove_dir(&path, true)),
        14 | 15 => same(what, files.rename(&path, &other).await, model.rename(&path, &other)),
        16 => same(what, files.metadata(&path).await.map(facts), model.facts(&path, true)),
        _ => same(what, list(files, &path).await.map(Vec::from_iter), model.list(&path)),
    }
}

/// Compares a directory and all below it.
async fn compare(files: &Files, model: &Model, root: &str) {
    let mut directories = vec![root.to_string()];
    while let Some(directory) = directories.pop() {
        let names = Vec::from_iter(list(files, &directory).await.expect("it can be read"));
        assert_eq!(Some(&names), model.list(&directory).as_ref(), "{directory}");
        for name in names {
            let path = format!("{directory}/{name}");
            let found = facts(files.symlink_metadata(&path).await.expect("it was listed"));
            assert_eq!(Some(found), model.facts(&path, false), "{path}");
            match found.0 {
                'f' => assert!(files.read(&path).await.ok().map(|bytes| bytes.to_vec()) == model.read(&path), "{path}"),
                'd' => directories.push(path),
                _ => {}
            }
        }
    }
}

#[test]
fn programs_on_two_mounts_use_the_same_files_concurrently() {
    const RECORD: usize = 100;
    const ROUNDS: u64 = 40;
    let array = array();
    let mounts = [mount(&array), mount(&array)];
    let won = AtomicU64::new(0);
    wait(mounts[0].write("/count", &b"0"[..])).expect("it can be written");
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (files, won) = (mounts[worker % 2].clone(), &won);
            scope.spawn(move || {
                wait(async move {
                    let owner = files.lock_owner();
                    let options = OpenOptions::new().read(true).write(true);
                    let count = files.open("/count", options).await.expect("it exists");
                    let log = files.open("/log", OpenOptions::new().append(true).create(true)).await.expect("it opens");
                    for round in 0..ROUNDS {
                        match files.create_file(format!("/only-{round}")).await {
                            Ok(_) => won.fetch_add(1, Ordering::Relaxed),
                            Err(FilesError::Exists) => 0,
                            Err(error) => panic!("{error:?}"),
                        };
                        log.append(vec![b'a' + worker as u8; RECORD]).await.expect("it can be appended to");
                        count.lock(owner, 0..u64::MAX, LockKind::Exclusive).await.expect("the lock is granted");
                        let text = count.read_at(0, 100).await.expect("it can be read");
                        let before: u64 = String::from_utf8_lossy(&text).parse().expect("it is a number");
                        count.write_at(0, format!("{}", before + 1)).await.expect("it can be written");
                        count.unlock(owner, 0..u64::MAX).await.expect("it was locked");
                    }
                    count.close().await.expect("it is open");
                    log.close().await.expect("it is open");
                });
            });
        }
    });
    wait(async {
        let [files, other] = &mounts;
        assert_eq!(won.load(Ordering::Relaxed), ROUNDS, "each name is created once");
        assert_eq!(files.read("/count").await.expect("it exists"), format!("{}", 4 * ROUNDS));
        let log = files.read("/log").await.expect("it exists");
        assert_eq!(log.len() as u64, 4 * ROUNDS * RECORD as u64, "no append is lost");
        assert!(log.chunks(RECORD).all(|record| record.iter().all(|byte| *byte == record[0])), "records are whole");

        // A file without a name stays usable, and a lock keeps out the other mount until the file is closed.
        let open = OpenOptions::new().read(true).write(true);
        let (one, two) =
            (files.open("/log", open).await.expect("it exists"), other.open("/log", open).await.expect("it exists"));
        let (owner, stranger) = (files.lock_owner(), other.lock_owner());
        one.try_lock(owner, 0..10, LockKind::Exclusive).await.expect("nobody has it");
        assert!(matches!(two.try_lock(stranger, 5..6, LockKind::Shared).await, Err(FilesError::Locked)));
        assert!(two.is_locked(stranger, 5..6, LockKind::Shared).await.expect("the server answers"));
        let waits = two.within(Duration::from_millis(300)).lock(stranger, 5..6, LockKind::Shared).await;
        assert!(matches!(waits, Err(FilesError::TimedOut { .. })), "{waits:?}");
        two.try_lock(stranger, 10..20, LockKind::Exclusive).await.expect("nobody has these bytes");
        one.close().await.expect("it is open");
        assert!(matches!(one.read_at(0, 1).await, Err(FilesError::NotOpen)));
        two.lock(stranger, 5..6, LockKind::Exclusive).await.expect("it was released by the end of the file");
        files.remove_file("/log").await.expect("it exists");
        assert_eq!(two.read_at(0, 1).await.expect("it is open").len(), 1);
        assert_eq!(two.metadata().await.expect("it is open").links(), 0);
        drop(two);
        files.close().await;
        assert!(matches!(files.read("/count").await, Err(FilesError::Closed)));
        assert_eq!(other.read("/count").await.expect("the other mount goes on"), format!("{}", 4 * ROUNDS));
        other.close().await;
    });
}

#[test]
fn the_blocks_of_a_mount_that_is_killed_or_suspended_for_too_long_come_back_and_it_is_fenced_for_good() {
    let array = array();
    let files = mount(&array);
    wait(files.write("/first", vec![1; 1 << 20])).expect("there is space");
    let before = wait(files.space()).expect("the server answers");
    let mut command = array.command(&["fs", "cp", "/dev/stdin", "home:/second"]);
    let mut copy = command.stdin(Stdio::piped()).spawn().expect("it starts");
    let input = copy.stdin.as_mut().expect("it is a pipe");
    input.write_all(&vec![2; 24 << 20]).expect("it reads");
    let reserved = || wait(files.space()).expect("the server answers").reserved;
    wait_until("another allotment", RECOVERY, || reserved() > before.reserved);
    wait_until("some bytes", RECOVERY, || wait(files.metadata("/second")).is_ok_and(|second| second.len() > 0));
    copy.kill().expect("it runs");
    copy.wait().expect("it was killed");
    // Its locks are in the way until the array fences it.
    let second = wait(files.within(RECOVERY).read("/second")).expect("the file is whole again");
    assert!(!second.is_empty() && second.iter().all(|byte| *byte == 2), "only what was written is there");
    wait_until("its allotment", RECOVERY, || reserved() == before.reserved);
    wait(async {
        files.remove_file("/second").await.expect("it exists");
        let space = || async { files.space().await.expect("the server answers") };
        let begun = Instant::now();
        while space().await.free != before.free {
            assert!(begun.elapsed() < RECOVERY, "{:?}, not {before:?}", space().await);
            std::thread::sleep(Duration::from_millis(50));
        }
    });

    // A mount that was suspended for too long is fenced for good.
    let before = wait(files.space()).expect("the server answers").reserved;
    let mut command = array.command(&["fs", "cp", "/dev/stdin", "home:/copy", "--json"]);
    let mut copy = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut input = copy.stdin.take().expect("it is a pipe");
    input.write_all(&vec![3; 16 << 20]).expect("it reads");
    wait_until("some bytes", RECOVERY, || wait(files.metadata("/copy")).is_ok_and(|copy| copy.len() > 0));
    signal(copy.id(), Signal::STOP);
    wait(files.within(RECOVERY).write("/copy", &b"ours"[..])).expect("its locks become free");
    wait_until("its allotment", RECOVERY, || {
        wait(files.space()).is_ok_and(|space| space.reserved <= before + (1 << 20))
    });
    signal(copy.id(), Signal::CONT);
    // It may have ended before it reads everything.
    let _ = input.write_all(&vec![3; 16 << 20]);
    drop(input);
    let output = copy.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("\"fenced\""), "{said}");
    assert_eq!(wait(files.read("/copy")).expect("it exists"), "ours", "nothing of it was written after that");
    wait(async {
        files.close().await;
        // The volumes of a file system are not for programs.
        let library = braid_client::Array::connect(ArrayOptions::at(array.dir())).await.expect("the array is up");
        for name in ["home.data", "home.meta"] {
            assert!(matches!(library.volume(name).await, Err(Error::Array(_))), "{name}");
        }
        library.close().await;
    });
}
