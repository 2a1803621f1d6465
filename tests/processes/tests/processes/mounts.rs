//! Mounts of a file system in folders: two mounts of one array, used by the system's calls, while mounts and metadata servers are killed
//! and suspended. Without `/dev/fuse` the tests say that they are skipped.

use crate::prelude::*;
use rustix::process::{Pid, kill_process};
use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom};

pub const NAME: &str = "home";
/// How long the array may take to recover from the death of a process.
pub const RECOVERY: Duration = Duration::from_secs(60);

/// The longest pauses with the default lease, which only the long forms of the tests check: other tests, which run at the same time, may
/// take all processors.
const SERVER_PAUSE_MAX: Duration = Duration::from_secs(7);
const MOUNT_PAUSE_MAX: Duration = Duration::from_secs(5);
const BOTH_PAUSE_MAX: Duration = Duration::from_secs(9);

/// An array whose file system is mounted in two folders; in the long forms of the tests, with the default lease. Whatever happens, no mount
/// remains.
pub struct Mounts {
    directories: [PathBuf; 2],
    pids: [u32; 2],
    pub array: Array,
}

impl Mounts {
    /// None if this machine can't mount.
    pub fn new() -> Option<Mounts> {
        Mounts::on(&["--fs", NAME], |_| {})
    }

    /// The same, with a file system of two shards, in which no inode is in the shard of its name.
    pub fn on_two_servers() -> Option<Mounts> {
        let create = ["fs", "create", NAME, "--size", "256MiB", "--servers", "2", "--placement", "spread"];
        Mounts::on(&[], |array| drop(array.braid(&create).done()))
    }

    fn on(arguments: &[&str], create: impl FnOnce(&Array)) -> Option<Mounts> {
        if !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: there is no /dev/fuse");
            return None;
        }
        let up = if soak() { Array::patient_up } else { Array::up };
        let array = up(&[&["--size", "512MiB", "--volume", "vol0:1MiB"], arguments].concat());
        create(&array);
        let directories = ["a", "b"].map(|name| array.scratch().path(name));
        directories.iter().for_each(|directory| fs::create_dir(directory).expect("it is new"));
        let mut mounts = Mounts { directories, pids: [0; 2], array };
        let [a, b] = mounts.directories.each_ref().map(|directory| path_text(directory));
        let mounted = mounts.array.braid(&["fs", "mount", NAME, a, b]).done().json();
        mounts.pids = [0, 1].map(|index| pid_of(&mounted["mounts"][index]));
        Some(mounts)
    }

    pub fn path(&self, mount: usize, name: &str) -> PathBuf {
        self.directories[mount].join(name)
    }

    pub fn directory(&self, mount: usize) -> &str {
        path_text(&self.directories[mount])
    }

    /// Mounts again what was unmounted.
    pub fn mount(&mut self, mount: usize) {
        let mounted = self.array.braid(&["fs", "mount", NAME, self.directory(mount)]).done().json();
        self.pids[mount] = pid_of(&mounted["mounts"][0]);
    }

    /// The directories that are mounted, according to the kernel.
    fn mounted(&self) -> Vec<bool> {
        let list = fs::read_to_string("/proc/self/mounts").expect("it can be read");
        let is_listed = |directory: &PathBuf| list.contains(&format!(" {} fuse.braid ", directory.display()));
        self.directories.iter().map(is_listed).collect()
    }

    /// The process that serves a shard.
    pub fn server_of(&self, shard: usize) -> Option<u32> {
        self.array.metadata_server(NAME, shard)
    }

    /// The processes of the file system's server and of all devices.
    pub fn servers_and_devices(&self) -> Vec<u32> {
        let status = self.array.status();
        let devices = items(&status["devices"]).iter();
        let server = self.server_of(0).expect("it serves");
        devices.map(pid_of).chain([server]).collect()
    }

    /// The file system contains no error, and all mounts end: also right after a check, their hosts disconnect.
    pub fn end(mut self) {
        let late = |array: &Array| {
            let logs = fs::read_dir(array.dir().join("logs")).into_iter().flatten().flatten();
            let said = logs.map(|log| fs::read_to_string(log.path()).expect("it can be read"));
            said.map(|said| said.matches("could not disconnect within 10s").count()).sum::<usize>()
        };
        let before = late(&self.array);
        self.array.assert_files_sound(NAME);
        self.array.down();
        assert_eq!(self.mounted(), [false, false]);
        gone(&self.pids);
        assert_eq!(late(&self.array), before, "hosts could not disconnect: {}", self.array.told(&["events"]));
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for pid in self.pids {
            // Only while it is still the process of a mount.
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if command.windows(5).any(|word| word == b"mount")
                && let Some(pid) = Pid::from_raw(pid as i32)
            {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        for (directory, is_mounted) in self.directories.iter().zip(self.mounted()) {
            if is_mounted {
                run("umount", &["--lazy", path_text(directory)]);
            }
        }
    }
}

pub fn append(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).expect("it can be opened")
}

pub fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("it can be opened")
}

pub fn errno(error: &std::io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

/// The content of files, by their paths.
type Kept = BTreeMap<PathBuf, Vec<u8>>;

/// Programs that write files through both mounts until they are told to end, and what was acknowledged.
struct Writers<'scope> {
    threads: Vec<std::thread::ScopedJoinHandle<'scope, (Kept, Duration)>>,
}

impl<'scope> Writers<'scope> {
    fn start<'env: 'scope>(
        scope: &'scope std::thread::Scope<'scope, 'env>,
        directories: &'env [PathBuf],
        done: &'env AtomicBool,
        acknowledged: &'env AtomicU64,
    ) -> Writers<'scope> {
        let write = |directory: &'env PathBuf, writer: u64| {
            move || {
                let own = directory.join(format!("of-{writer}"));
                fs::create_dir(&own).expect("it is new");
                let (mut kept, mut longest) = (BTreeMap::new(), Duration::ZERO);
                let mut rng = Rng::new(writer);
                for number in 0_u64.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let begun = Instant::now();
                    let path = own.join(number.to_string());
                    let content = vec![number as u8; 1 + rng.below(9_000) as usize];
                    let mut file = File::create(&path).expect("it goes on after a pause");
                    file.write_all(&content).expect("it goes on after a pause");
                    file.sync_all().expect("it goes on after a pause");
                    kept.insert(path, content);
                    if number % 3 == 0 {
                        let (old, _) = kept.pop_first().expect("there is one");
                        fs::remove_file(&old).expect("it is removed once");
                    }
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                    let took = begun.elapsed();
                    longest = longest.max(took);
                    rest(took);
                }
                (kept, longest)
            }
        };
        let numbered = directories.iter().cycle().zip(0..4);
        Writers { threads: numbered.map(|(directory, writer)| scope.spawn(write(directory, writer))).collect() }
    }

    /// What the writers have kept, and their longest pause.
    fn join(self) -> (Kept, Duration) {
        let ended = self.threads.into_iter().map(|thread| thread.join().expect("it sees no error"));
        ended.fold((BTreeMap::new(), Duration::ZERO), |(mut all, longest), (kept, pause)| {
            all.extend(kept);
            (all, longest.max(pause))
        })
    }
}

/// Compares all files with what was acknowledged, through another mount than that by which they were written.
fn compare(mounts: &Mounts, kept: &Kept) {
    let [a, b] = &mounts.directories;
    for (path, content) in kept {
        let other = match path.strip_prefix(a) {
            Ok(inner) => b.join(inner),
            Err(_) => a.join(path.strip_prefix(b).expect("it is in one of them")),
        };
        assert!(fs::read(&other).expect("it exists") == *content, "{}", other.display());
    }
    let count =
        |writer: u64| fs::read_dir(mounts.path(0, &format!("of-{writer}"))).map_or(0, |entries| entries.count());
    assert_eq!((0..4).map(count).sum::<usize>(), kept.len(), "nothing else is there");
}

#[test]
fn programs_go_on_when_a_metadata_server_is_killed() {
    // The short form of this with two servers is the test of the library, in `shards`.
    let pair = soak().then(|| (Mounts::on_two_servers(), 2));
    for (mounts, shards) in [(Mounts::new(), 1)].into_iter().chain(pair) {
        if let Some(mounts) = mounts {
            servers_are_killed(mounts, shards);
        }
    }
}

/// Kills the servers of so many shards, one at a time, while programs write through both mounts.
fn servers_are_killed(mounts: Mounts, shards: usize) {
    let (done, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let more = |what: &str| {
        let before = acknowledged.load(Ordering::Relaxed);
        wait_until(what, RECOVERY, || acknowledged.load(Ordering::Relaxed) > before + 40);
    };
    let (kept, pause) = std::thread::scope(|scope| {
        let writers = Writers::start(scope, &mounts.directories, &done, &acknowledged);
        for kill in 0..if soak() { 10 } else { 2 } {
            more("work under way");
            let shard = kill % shards;
            let pid = mounts.server_of(shard).expect("it is served");
            signal(pid, Signal::KILL);
            wait_until("another server", RECOVERY, || mounts.server_of(shard).is_some_and(|other| other != pid));
            more("work after the pause");
        }
        done.store(true, Ordering::Relaxed);
        writers.join()
    });
    println!("the longest pause was {pause:?}");
    assert!(!soak() || pause < SERVER_PAUSE_MAX, "{pause:?}");
    compare(&mounts, &kept);
    mounts.end();
}

#[test]
fn other_mounts_go_on_when_one_is_killed_alone_or_with_the_metadata_server_or_suspended() {
    let Some(mut mounts) = Mounts::new() else { return };
    others_go_on(&mut mounts, false);
    (0..4).for_each(|writer| fs::remove_dir_all(mounts.path(0, &format!("of-{writer}"))).expect("it is removed"));
    others_go_on(&mut mounts, true);
    a_mount_that_was_suspended_is_fenced_and_goes_on(&mounts);
    mounts.end();
}

/// Kills a mount, and perhaps the metadata server, while the other mount is in use.
fn others_go_on(mounts: &mut Mounts, kills_server: bool) {
    // The mount has locks on a file that the other one wants.
    let (wanted, other) = (mounts.path(0, "wanted"), mounts.path(1, "wanted"));
    let mut file = open(&wanted);
    file.write_all(b"acknowledged").expect("it is written");
    flock(&file, FlockOperation::LockExclusive).expect("nobody has it");
    let (done, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let (kept, pause, waited) = std::thread::scope(|scope| {
        let writers = Writers::start(scope, &mounts.directories[1..], &done, &acknowledged);
        wait_until("work under way", RECOVERY, || acknowledged.load(Ordering::Relaxed) > 20);
        let server = mounts.server_of(0).expect("it is served");
        signal(mounts.pids[0], Signal::KILL);
        if kills_server {
            signal(server, Signal::KILL);
        }
        let begun = Instant::now();
        let same = open(&other);
        flock(&same, FlockOperation::LockExclusive).expect("the lock of the dead mount is released");
        same.write_all_at(b"A", 0).expect("so is the other one");
        let waited = begun.elapsed();
        let before = acknowledged.load(Ordering::Relaxed);
        wait_until("work after that", RECOVERY, || acknowledged.load(Ordering::Relaxed) > before + 20);
        done.store(true, Ordering::Relaxed);
        let (kept, pause) = writers.join();
        (kept, pause, waited)
    });
    println!(
        "with the server {kills_server}: the lock of the dead mount was released after {waited:?}; the longest pause of others was {pause:?}"
    );
    // An array of tests has leases of a second.
    let most = match (soak(), kills_server) {
        (false, _) => Duration::from_secs(15),
        (true, false) => MOUNT_PAUSE_MAX,
        (true, true) => BOTH_PAUSE_MAX,
    };
    assert!(waited.max(pause) < most, "{waited:?}, {pause:?}");
    assert_eq!(fs::read_to_string(&other).expect("it exists"), "Acknowledged");
    assert_eq!(errno(&file.write_all(b"x").expect_err("its mount is dead")), Some(Errno::NOTCONN));
    drop(file);
    mounts.mount(0);
    compare(mounts, &kept);
}

fn a_mount_that_was_suspended_is_fenced_and_goes_on(mounts: &Mounts) {
    let is_named = |event: &Value| text(&event["text"]).contains(mounts.directory(0));
    let told = |kind: &str| mounts.array.events(kind).into_iter().filter(is_named).count();
    let before = ["host-fenced", "mount-replaced"].map(|kind| (kind, told(kind)));
    let (path, other) = (mounts.path(0, "file"), mounts.path(1, "file"));
    let mut file = open(&path);
    file.write_all(b"old").expect("it is written");
    flock(&file, FlockOperation::LockExclusive).expect("nobody has it");
    signal(mounts.pids[0], Signal::STOP);
    let begun = Instant::now();
    let same = open(&other);
    flock(&same, FlockOperation::LockExclusive).expect("the lock of the suspended mount is released");
    same.write_all_at(b"new", 0).expect("so is the other one");
    println!("the suspended mount was fenced after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    signal(mounts.pids[0], Signal::CONT);

    // Files that were open stay dead; names, and files that are opened now, work.
    let mut bytes = [0; 3];
    wait_until("the mount goes on", RECOVERY, || fs::read_to_string(&path).is_ok_and(|content| content == "new"));
    for _ in 0..3 {
        assert_eq!(errno(&file.read_exact_at(&mut bytes, 0).expect_err("it is dead")), Some(Errno::IO));
        assert_eq!(errno(&file.write_all_at(b"x", 0).expect_err("it is dead")), Some(Errno::IO));
        assert_eq!(errno(&file.sync_all().expect_err("it is dead")), Some(Errno::IO));
        assert_eq!(errno(&file.set_len(1).expect_err("it is dead")), Some(Errno::IO));
        assert_eq!(errno(&file.seek(SeekFrom::End(0)).expect_err("it is dead")), Some(Errno::IO));
        assert_eq!(flock(&file, FlockOperation::LockShared), Err(Errno::IO));
    }
    assert_eq!(fs::read_to_string(&other).expect("it exists"), "new", "a dead file changes nothing");
    drop(file);
    let again = open(&path);
    assert_eq!(flock(&again, FlockOperation::NonBlockingLockExclusive), Err(Errno::AGAIN), "the other one has it");
    drop(same);
    flock(&again, FlockOperation::LockExclusive).expect("it is released");
    again.write_all_at(b"now", 0).expect("it is open");
    let mut content = String::new();
    open(&other).read_to_string(&mut content).expect("it can be read");
    assert_eq!(content, "now");
    for (kind, before) in before {
        wait_until(kind, RECOVERY, || told(kind) > before);
    }
}
