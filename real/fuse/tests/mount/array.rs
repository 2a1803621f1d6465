//! Two hosts mount the file system of an array, each in a directory of its own.

use crate::locks::{Other, open, until};
use crate::two_hosts::{Controls, TwoHosts};
use crate::{echoed, empty_directory, mount_if_possible, signals};
use braid_base::{ArrayId, Generation, NodeId};
use braid_fuse::HostFiles;
use braid_machine::{ArrayRequest, MountRequest};
use braid_shell::{Node, run_host};
use rustix::fs::{CWD, FileType, FlockOperation, RenameFlags, SeekFrom, fcntl_lock, flock, mknodat, renameat_with};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use tokio::sync::{oneshot, watch};

const NODE: Node = Node { array: ArrayId([7; 16]), id: NodeId::Host(Generation(1)) };

/// Both mounts, and the thread that serves them.
pub struct Array {
    pub directories: [PathBuf; 2],
    pub controls: Controls,
    stop: Option<oneshot::Sender<()>>,
    pub thread: Option<JoinHandle<()>>,
}

impl Array {
    /// None if this machine can't mount.
    pub fn new() -> Option<Array> {
        let directories = [empty_directory(), empty_directory()];
        let controls = Controls::default();
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (named, of_machine) = (directories.clone(), controls.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it starts");
            runtime.block_on(serve(named, of_machine, ready, stopped));
        });
        let array = Array { directories, controls, stop: Some(stop), thread: Some(thread) };
        is_ready.recv().expect("the thread does not panic").then_some(array)
    }

    pub fn path(&self, host: usize, name: &str) -> PathBuf {
        self.directories[host].join(name)
    }

    /// Unmounts, and waits for the end.
    pub fn stop(&mut self) {
        drop(self.stop.take());
        self.thread.take().into_iter().for_each(|thread| thread.join().expect("the mounts are served to their end"));
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(ended.is_none_or(|ended| ended.is_ok()), "the thread does not panic");
        }
        self.directories.iter().for_each(|directory| drop(fs::remove_dir(directory)));
    }
}

/// Files of a host that serves nobody.
pub fn files_of_nobody() -> HostFiles {
    let (client, _) =
        run_host(TwoHosts::new(Controls::default()), NODE, watch::channel(BTreeMap::new()).1, Arc::default(), async {});
    HostFiles::new(TwoHosts::file_system(0), client)
}

async fn serve(
    directories: [PathBuf; 2],
    controls: Controls,
    ready: std::sync::mpsc::Sender<bool>,
    stopped: oneshot::Receiver<()>,
) {
    let (_addresses, followed) = watch::channel(BTreeMap::new());
    let (stop_host, host_stopped) = oneshot::channel::<()>();
    let (stop_mounts, mounts_stopped) = watch::channel(());
    let ended = async {
        let _ = host_stopped.await;
    };
    let (client, driver) = run_host(TwoHosts::new(controls), NODE, followed, Arc::default(), ended);
    let mount = |host: usize| {
        mount_if_possible(&directories[host], HostFiles::new(TwoHosts::file_system(host), client.clone()))
    };
    let Some((one, other)) = mount(0).and_then(|one| Some((one, mount(1)?))) else {
        ready.send(false).expect("the test waits");
        return;
    };
    ready.send(true).expect("the test waits");
    let until_stopped = || {
        let mut stopped = mounts_stopped.clone();
        async move {
            let _ = stopped.changed().await;
        }
    };
    let mounts = async {
        let mut served = std::pin::pin!(async { tokio::join!(one.run(until_stopped()), other.run(until_stopped())) });
        let (one, other) = tokio::select! {
            ended = &mut served => ended,
            _ = stopped => {
                drop(stop_mounts);
                served.await
            }
        };
        one.and(other).expect("the mounts are served to their end");
        let disconnect = MountRequest::Host(ArrayRequest::Disconnect.into());
        // One that is fenced has left.
        let _ = client.session().call(disconnect).await;
        drop(stop_host);
    };
    let (driven, ()) = tokio::join!(driver, mounts);
    driven.expect("the driver runs to its end");
}

#[test]
fn a_host_reads_writes_of_another() {
    let Some(array) = Array::new() else { return };
    let [one, other] = [0, 1].map(|host| array.path(host, "file"));
    let content: Vec<u8> = (0..1_500_001u32).map(|number| (number * 7 / 8) as u8).collect();
    fs::write(&one, &content).expect("it is written");
    assert!(fs::read(&other).expect("it is read") == content);
    let file = OpenOptions::new().read(true).write(true).open(&other).expect("it is opened");
    file.write_all_at(b"other", 700_000).expect("it is written");
    let mut part = [0; 7];
    File::open(&one).expect("it is opened").read_exact_at(&mut part, 699_999).expect("it is read");
    assert_eq!((&part[1..6], part[0]), (&b"other"[..], content[699_999]));
    assert_eq!(file.read_at(&mut part, 1_500_000).expect("it is read"), 1, "reading ends at the end of the file");
    file.set_len(5).expect("it is cut");
    file.set_len(9000).expect("it grows");
    file.sync_all().expect("it is synced");
    assert_eq!(fs::read(&one).expect("it is read"), [&content[..5], &[0; 8995]].concat());
    assert_eq!(fs::metadata(&one).expect("it exists").len(), 9000);
    File::create(&one).expect("it is opened, and cut");
    assert_eq!(fs::metadata(&other).expect("it exists").len(), 0);

    file.write_all_at(b"data", 20_000).expect("it is written");
    let [one_file, other_file] = [&one, &other].map(|path| File::open(path).expect("it is opened"));
    let seek = |file: &File, to| rustix::fs::seek(file, to);
    let end = seek(&one_file, SeekFrom::Data(20_004));
    let found = [0, 5, 17_000, 20_000]
        .map(|from| [seek(&one_file, SeekFrom::Data(from)), seek(&other_file, SeekFrom::Hole(from))].map(Result::ok));
    let [begin, size] = [16_384, 20_004].map(Some);
    assert_eq!(found, [[begin, Some(0)], [begin, Some(5)], [Some(17_000), size], [Some(20_000), size]]);
    assert_eq!([end, seek(&other_file, SeekFrom::Hole(20_004))], [Err(Errno::NXIO); 2]);

    drop(file);
    fs::copy("/bin/echo", &one).expect("it is copied");
    assert_eq!(echoed(&other), "hello\n");
}

#[test]
fn appends_of_two_hosts_are_all_there() {
    let Some(array) = Array::new() else { return };
    let append = |host: usize| {
        let path = array.path(host, "log");
        std::thread::spawn(move || {
            let mut log = OpenOptions::new().create(true).append(true).open(path).expect("it is opened");
            for number in 0..50 {
                log.write_all(format!("{host} {number}\n").as_bytes()).expect("it is written");
            }
        })
    };
    [append(0), append(1)].into_iter().for_each(|thread| thread.join().expect("it ends"));
    let log = fs::read_to_string(array.path(0, "log")).expect("it is read");
    for host in 0..2 {
        let own: Vec<&str> = log.lines().filter(|line| line.starts_with(&format!("{host} "))).collect();
        let expected: Vec<String> = (0..50).map(|number| format!("{host} {number}")).collect();
        assert_eq!(own, expected);
    }
    assert_eq!(log.lines().count(), 100);
}

#[test]
fn names_are_the_same_on_both_hosts() {
    let Some(array) = Array::new() else { return };
    let [one, other] = [0, 1].map(|host| move |array: &Array, name: &str| array.path(host, name));
    fs::create_dir(one(&array, "a")).expect("it is created");
    fs::set_permissions(one(&array, "a"), fs::Permissions::from_mode(0o2775)).expect("the mode is set");
    rustix::fs::chown(other(&array, "a"), None, Some(rustix::fs::Gid::from_raw(12))).expect("the group is set");
    fs::set_permissions(one(&array, "a"), fs::Permissions::from_mode(0o2775)).expect("the mode is set");
    fs::create_dir(other(&array, "a/b")).expect("it is created");
    let below = fs::metadata(one(&array, "a/b")).expect("it exists");
    assert_eq!((below.gid(), below.mode() & 0o2000), (12, 0o2000), "a directory inherits its group");
    let exclusively = |path| OpenOptions::new().write(true).create_new(true).open(path);
    exclusively(one(&array, "a/file")).expect("it is new").write_all(b"1").expect("it is written");
    assert_eq!(exclusively(other(&array, "a/file")).expect_err("it exists").kind(), ErrorKind::AlreadyExists);

    fs::write(one(&array, "old"), b"2").expect("it is written");
    assert_eq!(fs::create_dir(other(&array, "a")).expect_err("it exists").kind(), ErrorKind::AlreadyExists);
    let rename = |to, flags| renameat_with(CWD, other(&array, "a/file"), CWD, other(&array, to), flags);
    assert_eq!(rename("a/b", RenameFlags::EXCHANGE), Err(Errno::INVAL));
    assert_eq!(rename("old", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("old", RenameFlags::empty()).expect("it is replaced");
    assert!(!one(&array, "a/file").exists());
    let (from, to) = (other(&array, "old"), other(&array, "a/b/moved"));
    renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE).expect("the name is new");
    assert_eq!(fs::read(one(&array, "a/b/moved")).expect("it is read"), b"1");
    assert_eq!(
        fs::rename(one(&array, "a"), one(&array, "a/b/c")).expect_err("into itself").kind(),
        ErrorKind::InvalidInput
    );
    fs::hard_link(one(&array, "a/b/moved"), one(&array, "second")).expect("it is linked");
    assert_eq!(fs::metadata(other(&array, "second")).expect("it exists").nlink(), 2);
    std::os::unix::fs::symlink("a/b/moved", one(&array, "link")).expect("it is created");
    assert_eq!(fs::read_link(other(&array, "link")).expect("it is read").to_str(), Some("a/b/moved"));
    assert_eq!(fs::read(other(&array, "link")).expect("it is followed"), b"1");

    let mut held = File::open(one(&array, "second")).expect("it is opened");
    fs::remove_file(other(&array, "second")).expect("it is removed");
    fs::remove_file(other(&array, "a/b/moved")).expect("it is removed");
    let mut content = String::new();
    held.read_to_string(&mut content).expect("it is read without a name");
    assert_eq!(content, "1");
    assert_eq!(fs::read(one(&array, "link")).expect_err("it leads nowhere").kind(), ErrorKind::NotFound);
    assert_eq!(fs::remove_dir(one(&array, "a")).expect_err("not empty").kind(), ErrorKind::DirectoryNotEmpty);
    fs::rename(one(&array, "a/b"), one(&array, "b")).expect("it is moved");
    fs::remove_dir(other(&array, "b")).expect("it is removed");
    assert_eq!(fs::read_dir(one(&array, "b")).expect_err("it is gone").kind(), ErrorKind::NotFound);
    let file = std::ffi::OsString::from("x".repeat(256));
    assert_eq!(File::create(array.directories[0].join(file)).expect_err("too long").raw_os_error(), Some(36));
    let status = rustix::fs::statvfs(&array.directories[1]).expect("it is mounted");
    assert_eq!((status.f_bsize, status.f_blocks), (4096, 4096));
    assert!(status.f_bfree > 3000 && status.f_bfree < 4096, "{} blocks are free", status.f_bfree);
}

#[test]
fn special_files_are_the_same_on_both_hosts() {
    let Some(array) = Array::new() else { return };
    let [one, other] = [0, 1].map(|host| move |array: &Array, name: &str| array.path(host, name));
    let device = rustix::fs::makedev(0x1_05, 0x3_07);
    let kinds = [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("character", FileType::CharacterDevice, device),
        ("block", FileType::BlockDevice, device),
    ];
    for (name, kind, device) in kinds {
        mknodat(CWD, one(&array, name), kind, 0o640.into(), device).expect("it is created");
        let found = rustix::fs::lstat(other(&array, name)).expect("it exists");
        assert_eq!(FileType::from_raw_mode(found.st_mode), kind);
        assert_eq!((found.st_mode & 0o7777, found.st_rdev, found.st_size), (0o640, device, 0));
        let exists = mknodat(CWD, other(&array, name), kind, 0o640.into(), device);
        assert_eq!(exists, Err(Errno::EXIST));
        fs::hard_link(other(&array, name), other(&array, "second")).expect("it is linked");
        fs::rename(one(&array, "second"), one(&array, "third")).expect("it is moved");
        fs::remove_file(other(&array, "third")).expect("it is removed");
    }
    let listed = fs::read_dir(&array.directories[1]).expect("it can be listed");
    let types = listed.map(|entry| entry.expect("it is listed").file_type().expect("it is known"));
    assert_eq!(types.filter(FileTypeExt::is_fifo).count(), 1);

    // On one host, processes talk through it.
    let reader = std::thread::spawn({
        let path = one(&array, "fifo");
        move || fs::read(path).expect("it is read")
    });
    fs::write(one(&array, "fifo"), b"words").expect("it is written");
    assert_eq!(reader.join().expect("it ends"), b"words");
}

#[test]
fn a_directory_lists_what_both_hosts_create() {
    let Some(array) = Array::new() else { return };
    let create = |host: usize| {
        let directory = array.directories[host].clone();
        std::thread::spawn(move || {
            for number in 0..400 {
                File::create(directory.join(format!("{host}-{number}"))).expect("it is created");
            }
        })
    };
    [create(0), create(1)].into_iter().for_each(|thread| thread.join().expect("it ends"));
    let listed = |host: usize| {
        let entries = fs::read_dir(&array.directories[host]).expect("it can be listed");
        entries.map(|entry| entry.expect("it is listed").file_name().into_string().expect("text")).collect::<Vec<_>>()
    };
    let names: BTreeSet<String> = listed(0).into_iter().collect();
    assert_eq!((names.len(), listed(1).len()), (800, 800));
    assert!(names == listed(1).into_iter().collect());
}

#[test]
fn locks_exclude_processes_on_each_host_and_each_kind_its_own() {
    let Some(array) = Array::new() else { return };
    let file = open(&array.path(0, "file"));
    // The last byte of the longest file stands for the locks of whole files.
    for (start, refused) in [(0, None), ((1 << 50) - 2, None), ((1 << 50) - 1, Some(Errno::INVAL))] {
        let lock = Flock { start, length: 1, ..Flock::from(FlockType::WriteLock) };
        assert_eq!(fcntl_getlk(&file, &lock).err(), refused, "{start}");
    }
    let test = || fcntl_getlk(&file, &Flock::from(FlockType::ReadLock)).expect("it is tested");
    for (host, kind, other_kind) in
        [(0, "fcntl", "flock"), (0, "flock", "fcntl"), (1, "fcntl", "flock"), (1, "flock", "fcntl")]
    {
        let other = array.path(host, "file");
        let lock = |kind: &str, operation| {
            if kind == "fcntl" { fcntl_lock(&file, operation) } else { flock(&file, operation) }
        };
        let start = || {
            let before = array.controls.lock_requests.load(Ordering::SeqCst);
            let waiter = Other::start(&other, kind);
            until("it waits for the lock", || array.controls.lock_requests.load(Ordering::SeqCst) > before);
            waiter
        };
        lock(kind, FlockOperation::LockExclusive).expect("it is locked");
        start().kill();
        let mut waiter = start();
        lock(kind, FlockOperation::Unlock).expect("it is unlocked");
        waiter.await_word("locked");
        assert_eq!(lock(kind, FlockOperation::NonBlockingLockShared), Err(Errno::AGAIN), "host {host}, {kind}");
        assert_eq!(test().is_some(), kind == "fcntl", "host {host}: F_GETLK finds locks of its kind");
        lock(other_kind, FlockOperation::NonBlockingLockExclusive).expect("the kinds don't conflict");
        lock(other_kind, FlockOperation::Unlock).expect("it is unlocked");
        waiter.end();
        // Of both processes nothing is left, though shortly after: neither of the one that ended, nor of the one that was killed.
        lock(kind, FlockOperation::LockExclusive).expect("it is locked");
        lock(kind, FlockOperation::Unlock).expect("it is unlocked");
        assert!(test().is_none(), "host {host}, {kind}");
    }
}

#[test]
fn signals_do_not_disturb_requests() {
    let Some(array) = Array::new() else { return };
    open(&array.path(0, "file"));
    signals::disturb_a_shell(&array.path(1, "file"));
}

#[test]
fn files_of_a_fenced_host_are_dead() {
    let Some(array) = Array::new() else { return };
    let mut file = open(&array.path(0, "file"));
    file.write_all(b"before").expect("it is written");
    fcntl_lock(&file, FlockOperation::LockExclusive).expect("it is locked");
    array.controls.fence.store(true, Ordering::SeqCst);
    // The server refuses the first request, or does not hear of any but this one.
    let is_dead = || file.sync_all().is_err_and(|error| error.raw_os_error() == Some(5));
    until("the host is told that it is fenced", is_dead);
    for _ in 0..2 {
        assert_eq!(file.write(b"after").expect_err("it is dead").raw_os_error(), Some(5));
        assert_eq!(file.read_at(&mut [0; 6], 0).expect_err("it is dead").raw_os_error(), Some(5));
        assert_eq!(file.sync_all().expect_err("it is dead").raw_os_error(), Some(5));
    }
    assert_eq!(fs::read(array.path(1, "file")).expect("it is read"), b"before");
}
