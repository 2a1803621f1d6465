//! The history of operations on names through two real mounts, while a metadata server is killed: an order of them explains all answers.
//!
//! System calls look names up before they ask for a change, so an answer may combine two moments. Operations are chosen so that this does
//! not show: names are either of directories or of files, and what a thread renames has a name that no other thread uses. An inode is
//! known by its permissions.

use crate::mounts::{Mounts, RECOVERY};
use crate::prelude::*;
use braid_base::{InodeId, Time};
use braid_check::{Client, FileAction, FileFailure, FileHistory, FileValue, FileVerdict, check_names, file_line};
use braid_wire::{FileAttributes, FileCommand, FileError, FileResult, FileTime, FileType, NewInode, Owner};
use bytes::Bytes;
use rustix::fs::{CWD, Mode, mkdirat, mknodat};

const THREADS: u32 = 4;
/// The operations of a thread before a server is killed, and after that.
const OPERATIONS: u64 = 60;
/// The permissions that identify an inode are made of these bits.
const MODE_BITS: [u16; 7] = [0o400, 0o200, 0o100, 0o40, 0o10, 0o4, 0o1];

/// A name in the root, and its kind.
#[derive(Clone)]
struct Name {
    text: String,
    kind: NewInode,
}

struct Thread<'a> {
    directory: PathBuf,
    number: u32,
    umask: u16,
    begun: Instant,
    history: &'a Mutex<FileHistory>,
}

impl Thread<'_> {
    fn now(&self) -> Time {
        Time(self.begun.elapsed().as_nanos() as u64)
    }

    /// Makes a request, and records it with its answer.
    fn record(&self, command: FileCommand, call: impl FnOnce() -> Result<FileValue, Errno>) {
        let client = Client { host: self.number % 2, number: self.number as usize / 2 };
        let begin = |history: &mut FileHistory| history.begin(client, self.now(), FileAction::Command(command));
        let id = begin(&mut self.history.lock().expect("no thread panics while it records"));
        let refused = |error| Err(FileFailure::Refused(error));
        let answer = match call() {
            Ok(value) => Ok(value),
            Err(Errno::NOENT) => refused(FileError::NoSuchName),
            Err(Errno::EXIST) => refused(FileError::Exists),
            // The inode was removed after its name had been looked up.
            Err(Errno::STALE) => return,
            Err(error) => panic!("thread {}: {error}", self.number),
        };
        self.history.lock().expect("no thread panics while it records").end(id, self.now(), answer);
    }

    fn operate(&self, rng: &mut Rng) {
        let own = Name { text: format!("own{}", self.number), kind: NewInode::Regular };
        let shared = match rng.below(5) {
            number @ 0..2 => Name { text: format!("d{number}"), kind: NewInode::Directory },
            number => Name { text: format!("f{number}"), kind: NewInode::Regular },
        };
        match rng.below(8) {
            0..2 => self.make(rng, &shared),
            2 => self.make(rng, &own),
            3 => self.rename(&own, &Name { text: format!("f{}", 2 + rng.below(3)), kind: NewInode::Regular }),
            4 | 5 => self.remove(&shared),
            _ => self.look_up(&shared),
        }
    }

    fn make(&self, rng: &mut Rng, name: &Name) {
        let bits = MODE_BITS.iter().filter(|_| rng.below(2) == 0);
        let wanted = bits.fold(0, |mode, bit| mode | bit);
        let command = FileCommand::Create {
            parent: InodeId::ROOT,
            name: bytes(name),
            node: name.kind.clone(),
            exclusive: true,
            owner: Owner::default(),
            mode: wanted & !self.umask,
        };
        let (path, mode) = (self.directory.join(&name.text), Mode::from(u32::from(wanted)));
        self.record(command, || {
            match name.kind {
                NewInode::Directory => mkdirat(CWD, &path, mode),
                _ => mknodat(CWD, &path, rustix::fs::FileType::RegularFile, mode, 0),
            }
            .map(|()| FileValue::Succeeded)
        });
    }

    fn remove(&self, name: &Name) {
        let (parent, path) = (InodeId::ROOT, self.directory.join(&name.text));
        match name.kind {
            NewInode::Directory => {
                self.record(FileCommand::RemoveDirectory { parent, name: bytes(name) }, || done(fs::remove_dir(&path)));
            }
            _ => self.record(FileCommand::Unlink { parent, name: bytes(name) }, || done(fs::remove_file(&path))),
        }
    }

    fn rename(&self, from: &Name, to: &Name) {
        let command = FileCommand::Rename {
            parent: InodeId::ROOT,
            name: bytes(from),
            new_parent: InodeId::ROOT,
            new_name: bytes(to),
            no_replace: false,
        };
        let path = |name: &Name| self.directory.join(&name.text);
        self.record(command, || done(fs::rename(path(from), path(to))));
    }

    fn look_up(&self, name: &Name) {
        let path = self.directory.join(&name.text);
        let command = FileCommand::Lookup { parent: InodeId::ROOT, name: bytes(name) };
        self.record(command, || found(&path).map(|found| FileValue::Result(FileResult::Attributes(found))));
    }
}

/// The attributes of what has this name. The kernel looks the name up first: if that inode has lost its name by then, it still had it.
fn found(path: &Path) -> Result<FileAttributes, Errno> {
    let found = fs::symlink_metadata(path).map_err(|error| errno(&error))?;
    let is_directory = found.is_dir();
    let with_its_name = if is_directory { 2 } else { 1 };
    Ok(FileAttributes {
        inode: InodeId(0),
        file_type: if is_directory { FileType::Directory } else { FileType::Regular },
        mode: (found.mode() & 0o7777) as u16,
        owner: Owner::default(),
        links: if found.nlink() == 0 { with_its_name } else { found.nlink() as u32 },
        size: found.size(),
        blocks: 0,
        atime: FileTime::default(),
        mtime: FileTime::default(),
        ctime: FileTime::default(),
        parent: is_directory.then_some(InodeId::ROOT),
        device: 0,
    })
}

fn bytes(name: &Name) -> Bytes {
    Bytes::copy_from_slice(name.text.as_bytes())
}

fn done(result: std::io::Result<()>) -> Result<FileValue, Errno> {
    result.map(|()| FileValue::Succeeded).map_err(|error| errno(&error))
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).expect("it comes from a system call")
}

/// The permissions that this process does not give.
fn umask() -> u16 {
    let status = fs::read_to_string("/proc/self/status").expect("it can be read");
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:")).expect("it is listed");
    u16::from_str_radix(umask.trim(), 8).expect("it is octal")
}

#[test]
fn names_are_linearizable_on_two_mounts_while_a_server_is_killed() {
    let Some(mounts) = Mounts::on_two_servers() else { return };
    let (seed, umask, begun) = (seed(), umask(), Instant::now());
    let history = Mutex::new(FileHistory::default());
    let (operations, allowed) = (AtomicU64::new(0), AtomicU64::new(OPERATIONS));
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let directory = mounts.path(number as usize % 2, "");
            let thread = Thread { directory, number, umask, begun, history: &history };
            let (operations, allowed) = (&operations, &allowed);
            scope.spawn(move || {
                let mut rng = Rng::new(seed + u64::from(number));
                for done in 0.. {
                    if done == allowed.load(Ordering::Relaxed) {
                        break;
                    }
                    thread.operate(&mut rng);
                    operations.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Some are under way when the server dies.
        allowed.store(2 * OPERATIONS, Ordering::Relaxed);
        let most = u64::from(THREADS) * OPERATIONS;
        wait_until("half of the operations", RECOVERY, || operations.load(Ordering::Relaxed) >= most);
        signal(mounts.server_of(1).expect("it is served"), Signal::KILL);
    });
    let history = history.into_inner().expect("no thread has panicked");
    if let Some(path) = std::env::var_os("BRAID_HISTORY") {
        let lines: String = history.operations().iter().map(|one| format!("{}\n", file_line(seed, one))).collect();
        fs::write(path, lines).expect("it can be written");
    }
    match check_names(&history) {
        FileVerdict::Linearizable { steps } => println!("{} operations, {steps} steps", history.operations().len()),
        other => panic!("seed {seed}: {other:?}"),
    }
    mounts.end();
}
