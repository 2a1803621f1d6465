//! What programs do with files, names and locks in a folder in which a file system is mounted: the same on both mounts. The checks of a test use
//! one array, each in a directory of its own. Without `/dev/fuse` the tests say that they are skipped.

use crate::killed_programs::await_request;
use crate::mounts::{Mounts, NAME, RECOVERY, append, open};
use crate::prelude::*;
use rustix::fs::{CWD, FileType, RenameFlags, SeekFrom, fcntl_lock, mknodat, renameat_with};
use rustix::process::{Flock, FlockType, fcntl_getlk};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek};
use std::os::unix::fs::{DirEntryExt, FileTypeExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::sync::Barrier;
use std::time::UNIX_EPOCH;

/// A directory of both mounts.
struct Place<'a> {
    mounts: &'a Mounts,
    name: &'a str,
}

impl Place<'_> {
    fn path(&self, mount: usize, name: &str) -> PathBuf {
        self.mounts.path(mount, self.name).join(name)
    }

    fn both(&self, name: &str) -> [PathBuf; 2] {
        [0, 1].map(|mount| self.path(mount, name))
    }
}

macro_rules! check_each {
    ($mounts:expr => $($check:ident)*) => {$(
        println!(stringify!($check));
        let begun = Instant::now();
        fs::create_dir($mounts.path(0, stringify!($check))).expect("it is new");
        $check(&Place { mounts: &$mounts, name: stringify!($check) });
        println!("{:.1?}", begun.elapsed());
    )*};
}

#[test]
fn files_names_and_locks_are_the_same_on_both_mounts() {
    let Some(mounts) = Mounts::new() else { return };
    check_each! { mounts =>
        a_mount_reads_writes_of_the_other
        names_are_the_same
        special_files_are_the_same
        a_file_that_both_create_at_once_is_opened
        a_directory_lists_what_both_create
        a_large_directory_lists_each_name_once
        an_append_goes_to_the_end_whatever_the_kernel_takes_for_it
        a_file_without_a_name_can_be_read_until_it_is_closed
        attributes_are_set
        locks_exclude_processes_on_each_mount_and_each_kind_its_own
        a_closed_file_has_no_locks
        signals_do_not_disturb_requests
    }
    mounts.end();
}

#[test]
fn bytes_that_both_mounts_read_append_and_lock_at_once_are_right() {
    let Some(mounts) = Mounts::new() else { return };
    check_each! { mounts =>
        every_way_of_reading_shows_what_either_mount_has_changed
        appends_of_two_mounts_never_interleave
        no_user_gets_the_privileges_of_another_owner
        bytes_that_are_locked_in_a_circle_cost_no_message_on_one_mount_and_are_passed_between_two
    }
    mounts.end();
}

/// Programs that lock the bytes of a file in a circle (`ping_pong.py`).
fn bytes_that_are_locked_in_a_circle_cost_no_message_on_one_mount_and_are_passed_between_two(place: &Place) {
    let [a, b] = place.both("circle");
    let lock = |file: &Path, locks: u64, own: u64| {
        let [bytes, locks, own] = [3, locks, own].map(|number| number.to_string());
        let said = tool("python3", &["-c", include_str!("ping_pong.py"), path_text(file), &bytes, &locks, &own]);
        said.trim().parse().unwrap_or_else(|_| panic!("locks for each second: {said}"))
    };
    // How many locks the metadata server was asked for, as of the last renewal of its lease.
    let asked = || {
        std::thread::sleep(Duration::from_secs(1));
        let status = place.mounts.array.status();
        let hosts = items(&status["hosts"]).iter();
        hosts.filter_map(|host| host["counters"]["metadata_lock_requests"].as_u64()).sum::<u64>()
    };
    fs::write(&a, [0; 3]).expect("it is written");
    let alone = if soak() { 200_000 } else { 2_000 };
    let kept_open = File::open(&a).expect("it is there");
    let before = asked();
    let rate: u64 = lock(&a, alone, 0);
    let messages = asked() - before;
    assert!(messages >= 3, "the locks are counted: {messages}");
    assert!(messages < 100, "{alone} locks on one mount, and {messages} were asked for");
    let both = if soak() { 20_000 } else { 100 };
    let rates: [u64; 2] = std::thread::scope(|scope| {
        let running = [(&a, 1), (&b, 2)].map(|(file, own)| scope.spawn(move || lock(file, both, own)));
        running.map(|thread| thread.join().expect("it ends"))
    });
    assert!(asked() - before > both, "the bytes are passed from mount to mount");
    eprintln!("locks for each second: {rate} alone, {rates:?} on two mounts with writes");
    drop(kept_open);
}

/// The ways and the model are in `coherence.py`, since mapped memory can't be read here without `unsafe`.
fn every_way_of_reading_shows_what_either_mount_has_changed(place: &Place) {
    let [a, b] = place.both("");
    let (seeds, seconds) = if soak() { (99, 60) } else { (1, 1) };
    let seconds = std::env::var("BRAID_CONTEND_SECONDS").unwrap_or(seconds.to_string());
    for round in 0..seeds {
        let (script, seed) = (include_str!("coherence.py"), (seed() + round).to_string());
        tool("python3", &["-c", script, path_text(&a), path_text(&b), &seed, "30", &seconds]);
    }
}

fn appends_of_two_mounts_never_interleave(place: &Place) {
    const RECORD_MAX: u64 = (1 << 20) - 4096;
    let rounds = if soak() { 400 } else { 40 };
    std::thread::scope(|scope| {
        for writer in 0..4_u8 {
            let path = place.path(usize::from(writer % 2), "log");
            scope.spawn(move || {
                let mut log = append(&path);
                let mut rng = Rng::new(u64::from(writer));
                for round in 0..rounds {
                    // The longest write that the kernel passes on as one wherever its memory begins, and others.
                    let length = if round == 0 { RECORD_MAX } else { 16 + rng.below(40_000) };
                    let mut record = vec![b'a' + writer; length as usize];
                    record[..8].copy_from_slice(&length.to_le_bytes());
                    assert_eq!(log.write(&record).expect("there is space"), record.len());
                }
            });
        }
    });
    let log = fs::read(place.path(0, "log")).expect("it exists");
    let (mut rest, mut records) = (&log[..], 0);
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().expect("eight bytes")) as usize;
        let (record, after) = rest.split_at_checked(length).expect("a record is whole");
        assert!(record[8..].iter().all(|byte| *byte == record[8]), "a record is not interrupted");
        (rest, records) = (after, records + 1);
    }
    assert_eq!(records, 4 * rounds);
}

fn no_user_gets_the_privileges_of_another_owner(place: &Place) {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can be another user");
    }
    let (array, of) = (&place.mounts.array, |name: &str| format!("{NAME}:/{}/{name}", place.name));
    let mode = |path: &Path| fs::metadata(path).expect("it exists").mode() & 0o7777;
    let set_mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is set");
    let (program, elsewhere) = (place.path(0, "program"), place.path(1, "program"));
    fs::write(&program, "content").expect("it is written");
    for (before, after) in [(0o6777, 0o777), (0o6767, 0o2767)] {
        set_mode(&program, before);
        // The file is reached through its descriptor: the folders above are the test's own.
        let file = OpenOptions::new().append(true).open(&program).expect("it can be opened");
        let nobody = Command::new("/bin/sh").args(["-c", "echo more"]).uid(65534).gid(65534).stdout(file).status();
        assert!(nobody.expect("there is a shell").success());
        assert_eq!(mode(&elsewhere), after, "{before:o}");
    }
    assert_eq!(fs::read(&elsewhere).expect("it can be read"), b"contentmore\nmore\n");
    // Copies belong to whoever makes them.
    set_mode(&program, 0o6755);
    let local = array.scratch().path("copy");
    array.braid(&["fs", "cp", &of("program"), path_text(&local)]).done();
    assert_eq!(mode(&local), 0o755);
    set_mode(&local, 0o4711);
    array.braid(&["fs", "cp", path_text(&local), &of("second")]).done();
    assert_eq!(mode(&place.path(0, "second")), 0o711);
}

fn a_mount_reads_writes_of_the_other(place: &Place) {
    let [one, other] = place.both("file");
    let content: Vec<u8> = (0..1_500_001u32).map(|number| (number * 7 / 8) as u8).collect();
    fs::write(&one, &content).expect("it is written");
    assert!(fs::read(&other).expect("it is read") == content);
    let file = open(&other);
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
    let mut echoed = Vec::new();
    wait_until("the program runs", RECOVERY, || match Command::new(&other).arg("hello").output() {
        // Another test may just start a process, which has all descriptors of this one for a moment.
        Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => false,
        ended => {
            echoed = ended.expect("it runs").stdout;
            true
        }
    });
    assert_eq!(echoed, b"hello\n");
}

fn names_are_the_same(place: &Place) {
    let [one, other] = [0, 1].map(|mount| move |name: &str| place.path(mount, name));
    let set_mode = || fs::set_permissions(one("a"), fs::Permissions::from_mode(0o2775)).expect("the mode is set");
    fs::create_dir(one("a")).expect("it is created");
    set_mode();
    rustix::fs::chown(other("a"), None, Some(rustix::fs::Gid::from_raw(12))).expect("the group is set");
    set_mode();
    fs::create_dir(other("a/b")).expect("it is created");
    let below = fs::metadata(one("a/b")).expect("it exists");
    assert_eq!((below.gid(), below.mode() & 0o2000), (12, 0o2000), "a directory inherits its group");
    File::create_new(one("a/file")).expect("it is new").write_all(b"1").expect("it is written");
    assert_eq!(File::create_new(other("a/file")).expect_err("it exists").kind(), ErrorKind::AlreadyExists);

    fs::write(one("old"), b"2").expect("it is written");
    assert_eq!(fs::create_dir(other("a")).expect_err("it exists").kind(), ErrorKind::AlreadyExists);
    let rename = |from, to, flags| renameat_with(CWD, other(from), CWD, other(to), flags);
    assert_eq!(rename("a/file", "a/b", RenameFlags::EXCHANGE), Err(Errno::INVAL));
    assert_eq!(rename("a/file", "old", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("a/file", "old", RenameFlags::empty()).expect("it is replaced");
    assert!(!one("a/file").exists());
    rename("old", "a/b/moved", RenameFlags::NOREPLACE).expect("the name is new");
    assert_eq!(fs::read(one("a/b/moved")).expect("it is read"), b"1");
    assert_eq!(fs::rename(one("a"), one("a/b/c")).expect_err("into itself").kind(), ErrorKind::InvalidInput);
    fs::hard_link(one("a/b/moved"), one("second")).expect("it is linked");
    assert_eq!(fs::metadata(other("second")).expect("it exists").nlink(), 2);
    std::os::unix::fs::symlink("a/b/moved", one("link")).expect("it is created");
    assert_eq!(fs::read_link(other("link")).expect("it is read").to_str(), Some("a/b/moved"));
    assert_eq!(fs::read(other("link")).expect("it is followed"), b"1");

    let mut held = File::open(one("second")).expect("it is opened");
    fs::remove_file(other("second")).expect("it is removed");
    fs::remove_file(other("a/b/moved")).expect("it is removed");
    let mut content = String::new();
    held.read_to_string(&mut content).expect("it is read without a name");
    assert_eq!(content, "1");
    assert_eq!(fs::read(one("link")).expect_err("it leads nowhere").kind(), ErrorKind::NotFound);
    assert_eq!(fs::remove_dir(one("a")).expect_err("not empty").kind(), ErrorKind::DirectoryNotEmpty);
    fs::rename(one("a/b"), one("b")).expect("it is moved");
    fs::remove_dir(other("b")).expect("it is removed");
    assert_eq!(fs::read_dir(one("b")).expect_err("it is gone").kind(), ErrorKind::NotFound);
    assert_eq!(File::create(one(&"x".repeat(256))).expect_err("too long").raw_os_error(), Some(36));
}

fn special_files_are_the_same(place: &Place) {
    let device = rustix::fs::makedev(0x1_05, 0x3_07);
    let kinds = [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("character", FileType::CharacterDevice, device),
        ("block", FileType::BlockDevice, device),
    ];
    for (name, kind, device) in kinds {
        let [one, other] = place.both(name);
        mknodat(CWD, &one, kind, 0o640.into(), device).expect("it is created");
        let found = rustix::fs::lstat(&other).expect("it exists");
        assert_eq!(FileType::from_raw_mode(found.st_mode), kind);
        assert_eq!((found.st_mode & 0o7777, found.st_rdev, found.st_size), (0o640, device, 0));
        assert_eq!(mknodat(CWD, &other, kind, 0o640.into(), device), Err(Errno::EXIST));
        fs::hard_link(other, place.path(1, "second")).expect("it is linked");
        fs::rename(place.path(0, "second"), place.path(0, "third")).expect("it is moved");
        fs::remove_file(place.path(1, "third")).expect("it is removed");
    }
    let listed = fs::read_dir(place.path(1, "")).expect("it can be listed");
    let types = listed.map(|entry| entry.expect("it is listed").file_type().expect("it is known"));
    assert_eq!(types.filter(FileTypeExt::is_fifo).count(), 1);

    // On one host, processes talk through it.
    let fifo = place.path(0, "fifo");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| fs::read(&fifo).expect("it is read"));
        fs::write(&fifo, b"words").expect("it is written");
        assert_eq!(reader.join().expect("it ends"), b"words");
    });
}

/// The kernel looks the name up, finds nothing, and asks for its creation: by then it may exist.
fn a_file_that_both_create_at_once_is_opened(place: &Place) {
    for round in 0..if soak() { 3000 } else { 60 } {
        let (paths, barrier) = (place.both(&format!("file-{round}")), Barrier::new(2));
        let create = |path: &Path| {
            barrier.wait();
            match round % 3 {
                0 => OpenOptions::new().create(true).truncate(false).write(true).open(path),
                1 => File::create(path),
                _ => File::create_new(path),
            }
        };
        let created = std::thread::scope(|scope| {
            let both = paths.each_ref().map(|path| scope.spawn(|| create(path)));
            both.map(|thread| thread.join().expect("it ends").map_err(|error| error.kind()))
        });
        let failed: Vec<_> = created.into_iter().filter_map(Result::err).collect();
        assert_eq!(failed, vec![ErrorKind::AlreadyExists; usize::from(round % 3 == 2)], "round {round}");
    }
}

fn a_directory_lists_what_both_create(place: &Place) {
    std::thread::scope(|scope| {
        for mount in 0..2 {
            scope.spawn(move || {
                for number in 0..60 {
                    File::create(place.path(mount, &format!("{mount}-{number}"))).expect("it is created");
                }
            });
        }
    });
    let listed = [0, 1].map(|mount| {
        let entries = fs::read_dir(place.path(mount, "")).expect("it can be listed");
        entries.map(|entry| entry.expect("it is listed").file_name()).collect::<Vec<_>>()
    });
    assert_eq!(listed.each_ref().map(Vec::len), [120; 2]);
    let [names, of_other] = listed.map(BTreeSet::from_iter);
    assert!(names == of_other && names.len() == 120);
}

fn a_large_directory_lists_each_name_once(place: &Place) {
    // Several buffers of the kernel.
    const NAMES: usize = 200;
    let (directory, file) = (place.path(0, "large"), place.path(0, "file"));
    fs::create_dir(&directory).expect("it is created");
    let name = |number: usize| format!("{number}{}", "-".repeat(number % 40));
    let names: BTreeSet<String> = (0..NAMES).map(name).collect();
    // Each is a link to one file, which is faster to create than a file.
    fs::write(&file, b"").expect("it is created");
    names.iter().for_each(|name| fs::hard_link(&file, directory.join(name)).expect("it is linked"));
    let listed: Vec<_> = fs::read_dir(&directory).expect("it can be listed").collect::<Result<_, _>>().expect("listed");
    let inode = fs::metadata(&file).expect("it exists").ino();
    assert!(listed.iter().all(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()) && entry.ino() == inode));
    let found: BTreeSet<String> = listed.iter().map(|entry| entry.file_name().into_string().expect("text")).collect();
    assert_eq!((listed.len(), found == names), (NAMES, true));

    // Names that are removed while the directory is listed shift no others.
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(&directory).expect("it can be listed") {
        let name = entry.expect("it is listed").file_name().into_string().expect("text");
        fs::remove_file(directory.join(&name)).expect("it is removed");
        assert!(found.insert(name), "it was removed already");
    }
    assert!(found == names);
    let listed = tool("ls", &["-ai", path_text(&directory)]);
    let inode = |path: &Path| fs::metadata(path).expect("it exists").ino().to_string();
    let dots: Vec<&str> = listed.split_whitespace().collect();
    assert_eq!(dots, [inode(&directory).as_str(), ".", &inode(&place.path(1, "")), ".."]);
}

fn an_append_goes_to_the_end_whatever_the_kernel_takes_for_it(place: &Place) {
    let path = place.path(0, "log");
    let mut log = append(&path);
    log.write_all(b"one ").expect("it is written");
    append(&path).write_all(b"two ").expect("it is written");
    log.write_all(b"three").expect("it is written");
    assert_eq!(fs::read(&path).expect("it is read"), b"one two three");
}

fn a_file_without_a_name_can_be_read_until_it_is_closed(place: &Place) {
    let path = place.path(0, "short-lived");
    fs::write(&path, b"content").expect("it is written");
    let mut file = File::open(&path).expect("it is opened");
    fs::remove_file(&path).expect("it is removed");
    assert_eq!(File::open(&path).expect_err("it has no name").kind(), ErrorKind::NotFound);
    let mut content = String::new();
    file.seek(std::io::SeekFrom::Start(3)).expect("it has places");
    file.read_to_string(&mut content).expect("it is read");
    assert_eq!((content.as_str(), file.metadata().expect("it exists").nlink()), ("tent", 0));
}

fn attributes_are_set(place: &Place) {
    let path = place.path(0, "file");
    let created = OpenOptions::new().write(true).create_new(true).mode(0o640).open(&path).expect("it is created");
    assert_eq!(created.metadata().expect("it exists").mode(), 0o100_640);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4711)).expect("the mode is set");
    let (early, late) = (UNIX_EPOCH - Duration::from_millis(1500), UNIX_EPOCH + Duration::new(7, 8));
    created.set_times(fs::FileTimes::new().set_accessed(early).set_modified(late)).expect("the times are set");
    let found = fs::metadata(&path).expect("it exists");
    assert_eq!(found.mode(), 0o104_711);
    assert_eq!((found.accessed().ok(), found.modified().ok()), (Some(early), Some(late)));
    assert_eq!((found.mtime(), found.mtime_nsec(), found.atime(), found.atime_nsec()), (7, 8, -2, 500_000_000));

    let status = rustix::fs::statvfs(&path).expect("it is mounted");
    assert_eq!((status.f_bsize, status.f_namemax), (4096, 255));
    assert!(0 < status.f_bfree && status.f_bfree < status.f_blocks, "{} blocks are free", status.f_bfree);
}

/// A python program that says something when it is ready, and reads its standard input.
struct Python {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Python {
    fn start(program: &str, arguments: &[&str]) -> Python {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-u", "-c", program]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 is there");
        let lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        Python { child, lines }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it says next.
    fn hear(&mut self) -> String {
        self.lines.next().expect("it goes on").expect("text")
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Locks bytes 10 to 20 of a file exclusively, and says so. A signal interrupts the wait, which it says, too.
const LOCKER: &str = r#"
import fcntl, signal, sys
class Interrupted(Exception): pass
def on_signal(*_): raise Interrupted()
signal.signal(signal.SIGUSR1, on_signal)
file = open(sys.argv[1], "r+b")
try:
    print("ready")
    if sys.argv[2] == "flock":
        fcntl.flock(file, fcntl.LOCK_EX)
    else:
        fcntl.lockf(file, fcntl.LOCK_EX, 10, 10)
    print("locked")
    sys.stdin.read()
except Interrupted:
    print("interrupted")
"#;

fn locker(path: &Path, kind: &str) -> Python {
    let mut python = Python::start(LOCKER, &[path_text(path), kind]);
    assert_eq!(python.hear(), "ready");
    python
}

fn locks_exclude_processes_on_each_mount_and_each_kind_its_own(place: &Place) {
    let file = open(&place.path(0, "file"));
    // The last byte of the longest file stands for the locks of whole files.
    for (start, refused) in [(0, None), ((1 << 50) - 2, None), ((1 << 50) - 1, Some(Errno::INVAL))] {
        let lock = Flock { start, length: 1, ..Flock::from(FlockType::WriteLock) };
        assert_eq!(fcntl_getlk(&file, &lock).err(), refused, "{start}");
    }
    let test = || fcntl_getlk(&file, &Flock::from(FlockType::ReadLock)).expect("it is tested");
    for (mount, kind, other_kind) in
        [(0, "fcntl", "flock"), (0, "flock", "fcntl"), (1, "fcntl", "flock"), (1, "flock", "fcntl")]
    {
        let path = place.path(mount, "file");
        let lock = |kind: &str, operation| {
            if kind == "fcntl" { fcntl_lock(&file, operation) } else { flock(&file, operation) }
        };
        let start = || {
            let waiter = locker(&path, kind);
            await_request(waiter.pid());
            waiter
        };
        lock(kind, FlockOperation::LockExclusive).expect("it is locked");
        // A waiter that is interrupted, and one that is killed, leave nothing behind.
        let mut waiter = start();
        signal(waiter.pid(), Signal::USR1);
        assert_eq!(waiter.hear(), "interrupted", "mount {mount}, {kind}");
        drop(start());
        let mut waiter = start();
        lock(kind, FlockOperation::Unlock).expect("it is unlocked");
        assert_eq!(waiter.hear(), "locked", "mount {mount}, {kind}");
        assert_eq!(lock(kind, FlockOperation::NonBlockingLockShared), Err(Errno::AGAIN), "mount {mount}, {kind}");
        assert_eq!(test().is_some(), kind == "fcntl", "mount {mount}: F_GETLK finds locks of its kind");
        lock(other_kind, FlockOperation::NonBlockingLockExclusive).expect("the kinds don't conflict");
        lock(other_kind, FlockOperation::Unlock).expect("it is unlocked");
        // The next one gets it as soon as the holder is killed.
        let begun = Instant::now();
        drop(waiter);
        lock(kind, FlockOperation::LockExclusive).expect("it is locked");
        assert!(begun.elapsed() < Duration::from_secs(2), "mount {mount}, {kind}: {:?}", begun.elapsed());
        lock(kind, FlockOperation::Unlock).expect("it is unlocked");
        assert!(test().is_none(), "mount {mount}, {kind}");
    }
}

fn a_closed_file_has_no_locks(place: &Place) {
    let path = place.path(0, "file");
    let file = open(&path);
    fcntl_lock(&file, FlockOperation::LockExclusive).expect("it is locked");
    // A process that closes any descriptor of a file loses its locks on it.
    drop(open(&path));
    assert_eq!(locker(&path, "fcntl").hear(), "locked");
}

/// A shell asks for a file again and again: each `[ -e … ]` is a system call, which fails if a signal ends it.
const ASKER: &str = r#"
    trap : USR1
    echo ready
    for number in {1..1000}; do
        [ -e "$1" ] || { echo "the file was not there at attempt $number"; exit 1; }
    done
"#;

fn signals_do_not_disturb_requests(place: &Place) {
    let [one, other] = place.both("file");
    open(&one);
    let mut shell = Command::new("bash");
    let shell = shell.args(["-c", ASKER, "bash"]).arg(other).stdout(Stdio::piped());
    let mut shell = shell.spawn().expect("there is a shell");
    let mut stdout = shell.stdout.take().expect("it is piped");
    stdout.read_exact(&mut [0; 6]).expect("it says `ready`");
    while shell.try_wait().expect("it is a child").is_none() {
        signal(shell.id(), Signal::USR1);
        std::thread::sleep(Duration::from_micros(50));
    }
    let mut text = String::new();
    stdout.read_to_string(&mut text).expect("it is text");
    assert!(shell.wait().expect("it has ended").success(), "{text}");
}
