//! Commands that use structures on one device and are killed, as is the device.

use crate::array::{Array, text};
use crate::data::seed;
use crate::program::braid_bin;
use crate::wait_until;
use braid_base::Rng;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The device that holds the structures.
pub const DEVICE: usize = 1;
/// Longer than the device is unavailable.
pub const LEASE: Duration = Duration::from_secs(4);
/// After a lease another process must get its turn, even on a busy machine.
pub const PROGRESS_MAX: Duration = Duration::from_secs(60);

/// The commands that work on an object of an array.
pub struct Scenario {
    /// The object.
    pub object: String,
    dir: PathBuf,
    /// Entries of commands when they begin and end, in order of time.
    log: PathBuf,
    rng: Mutex<Rng>,
    ends: AtomicBool,
    /// Commands under way, by their PIDs.
    running: Mutex<BTreeSet<u32>>,
    /// Commands that were killed, or lost what they held.
    lost: Mutex<BTreeSet<u32>>,
}

impl Scenario {
    /// With a new object, and no command under way.
    pub fn new(array: &Array) -> Scenario {
        let object = text(&array.braid(&["object", "create", &DEVICE.to_string()]).done().json()["object"]);
        let log = array.scratch().path(&format!("log-{object}"));
        std::fs::write(&log, "").expect("a file can be written");
        let (ends, running, lost) = (AtomicBool::new(false), Mutex::default(), Mutex::default());
        let (dir, rng) = (array.dir().to_path_buf(), Mutex::new(Rng::new(seed())));
        Scenario { object, dir, log, rng, ends, running, lost }
    }

    /// Runs `braid recipe …` in its own process group until it ends. Returns true if it succeeded; otherwise it was killed or has lost
    /// its hold.
    pub fn command(&self, arguments: &[&str]) -> bool {
        let mut command = Command::new(braid_bin());
        command.arg("recipe").args(arguments).env("BRAID_ARRAY", &self.dir).env("LOG", &self.log);
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("braid can be started");
        let pid = child.id();
        self.running.lock().unwrap().insert(pid);
        let output = child.wait_with_output().expect("it can be waited for");
        self.running.lock().unwrap().remove(&pid);
        if output.status.success() {
            return true;
        }
        let (killed, said) =
            (self.lost.lock().unwrap().replace(pid).is_some(), String::from_utf8_lossy(&output.stderr));
        assert!(killed || output.status.code() == Some(1) && said.contains("lost"), "{arguments:?}: {said}");
        false
    }

    /// `kill -9` of a command and the processes it has started.
    pub fn kill(&self, pid: u32) {
        println!("{pid} is killed");
        self.lost.lock().unwrap().insert(pid);
        // The command may just have ended.
        let _ = kill_process_group(Pid::from_raw(pid as i32).expect("it is a process"), Signal::KILL);
    }

    /// Ends all commands when the returned value is dropped, also if the test fails.
    pub fn until_dropped(&self) -> Ending<'_> {
        Ending(self)
    }

    /// Tells all commands to end.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    /// The commands under way.
    pub fn running(&self) -> BTreeSet<u32> {
        self.running.lock().unwrap().clone()
    }

    /// The commands that were killed, or lost what they held.
    pub fn lost(&self) -> BTreeSet<u32> {
        self.lost.lock().unwrap().clone()
    }

    /// The lines of the log, split into words.
    pub fn log(&self) -> Vec<Vec<String>> {
        let log = std::fs::read_to_string(&self.log).expect("it can be read");
        log.lines().map(|line| line.split(' ').map(str::to_string).collect()).collect()
    }

    /// Waits until another command holds the structure, and kills it.
    pub fn kill_holder(&self) {
        self.progress(1);
        let holder =
            || self.log().last().filter(|words| words[0] == "in").map(|words| words[3].parse().expect("a pid"));
        wait_until("a command holds it", PROGRESS_MAX, || holder().is_some());
        self.pause(30);
        if let Some(pid) = holder() {
            self.kill(pid);
        }
    }

    /// Waits until `count` more commands have begun and ended.
    pub fn progress(&self, count: usize) {
        let begun = self.log().len();
        wait_until("operations continue", PROGRESS_MAX, || self.log().len() >= begun + 2 * count);
    }

    /// Waits for a random time of up to `most` milliseconds.
    pub fn pause(&self, most: u64) {
        let chosen = self.rng.lock().unwrap().next_u64() % (most + 1);
        std::thread::sleep(Duration::from_millis(chosen));
    }

    /// False if all commands should end.
    pub fn going(&self) -> bool {
        !self.ends.load(Ordering::Relaxed)
    }
}

pub struct Ending<'a>(&'a Scenario);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
