//! Advisory locks of two processes: this one, and another, which runs the test `helper_locks_a_file_in_another_process` of this program.

use crate::array::Array;
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const FILE: &str = "BRAID_TEST_FILE";
const KIND: &str = "BRAID_TEST_KIND";
const DEADLINE: Duration = Duration::from_secs(20);

/// A process that locks a file, and holds the lock until it is told to end.
pub struct Other {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Other {
    pub fn start(file: &Path, kind: &str) -> Other {
        let mut process = Command::new(std::env::current_exe().expect("this program has a file"))
            .args(["--exact", "locks::helper_locks_a_file_in_another_process", "--nocapture"])
            .envs([(FILE, file.as_os_str()), (KIND, kind.as_ref())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdout = process.stdout.take().expect("it is piped");
        let mut other = Other { process, lines: BufReader::new(stdout).lines() };
        other.await_word("locking");
        other
    }

    pub fn await_word(&mut self, word: &str) {
        let found = self.lines.by_ref().any(|line| line.expect("text").ends_with(word));
        assert!(found, "the process ended before it said `{word}`");
    }

    pub fn end(mut self) {
        drop(self.process.stdin.take());
        assert!(self.process.wait().expect("it ends").success());
    }

    pub fn kill(mut self) {
        self.process.kill().expect("it is there");
        until("a signal ends its wait", || self.process.try_wait().expect("it is a child").is_some());
    }
}

pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What the other process does. In a usual run of the tests, nothing.
#[test]
fn helper_locks_a_file_in_another_process() {
    let (Ok(path), Ok(kind)) = (std::env::var(FILE), std::env::var(KIND)) else { return };
    let file = open(Path::new(&path));
    println!("\nlocking");
    match kind.as_str() {
        "fcntl" => fcntl_lock(&file, FlockOperation::LockExclusive).expect("it is locked"),
        "flock" => flock(&file, FlockOperation::LockExclusive).expect("it is locked"),
        other => panic!("{other}"),
    }
    println!("locked");
    std::io::stdin().lines().for_each(drop);
}

pub fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("it is opened")
}

#[test]
fn a_closed_file_has_no_locks() {
    let Some(array) = Array::new() else { return };
    let path = array.path(0, "file");
    let file = open(&path);
    fcntl_lock(&file, FlockOperation::LockExclusive).expect("it is locked");
    // A process that closes any descriptor of a file loses its locks on it.
    drop(open(&path));
    let mut other = Other::start(&path, "fcntl");
    other.await_word("locked");
    other.end();
}
