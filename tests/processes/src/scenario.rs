//! Commands and programs that use structures on one device, and are killed, as it is.

use crate::array::Array;
use crate::data::seed;
use crate::program::braid_bin;
use crate::wait_until;
use braid_base::Rng;
use braid_client::{ArrayOptions, Object};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// On which device the structures lie.
pub const DEVICE: usize = 1;
/// Longer than the device is unavailable.
pub const LEASE: Duration = Duration::from_secs(4);
/// Somebody comes after a lease, also on a busy machine.
pub const PROGRESS_MAX: Duration = Duration::from_secs(60);

/// An array, and who works on the object 1:1 there.
pub struct Scenario {
    dir: PathBuf,
    /// What commands say when they begin and end, in the order in which they do.
    log: PathBuf,
    rng: Mutex<Rng>,
    ends: AtomicBool,
    /// Commands under way, by their processes.
    running: Mutex<BTreeSet<u32>>,
    /// Those that were killed, or have lost what they held.
    lost: Mutex<BTreeSet<u32>>,
}

impl Scenario {
    /// A fresh array with the objects 1:1 and 1:2, and nobody at work there.
    pub fn new() -> (Array, Scenario) {
        let array = Array::small();
        array.braid(&["object", "create", "1:1"]).done();
        array.braid(&["object", "create", "1:2"]).done();
        let log = array.scratch().path("log");
        std::fs::write(&log, "").expect("a file can be written");
        let (ends, running, lost) = (AtomicBool::new(false), Mutex::default(), Mutex::default());
        let (dir, rng) = (array.dir().to_path_buf(), Mutex::new(Rng::new(seed())));
        (array, Scenario { dir, log, rng, ends, running, lost })
    }

    /// `braid recipe …`, in a process group with what it runs, until it ends. True if it ended well; else it was killed or has lost.
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

    /// `kill -9` of a command and what it runs.
    pub fn kill(&self, pid: u32) {
        println!("{pid} is killed");
        self.lost.lock().unwrap().insert(pid);
        // It may just have ended.
        let _ = kill_process_group(Pid::from_raw(pid as i32).expect("it is a process"), Signal::KILL);
    }

    /// Everybody should end when this is dropped, also by a test that fails.
    pub fn until_dropped(&self) -> Ending<'_> {
        Ending(self)
    }

    /// Everybody should end.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    /// The commands under way.
    pub fn running(&self) -> BTreeSet<u32> {
        self.running.lock().unwrap().clone()
    }

    /// The commands that were killed, or have lost what they held.
    pub fn lost(&self) -> BTreeSet<u32> {
        self.lost.lock().unwrap().clone()
    }

    /// The words of each line of the log.
    pub fn log(&self) -> Vec<Vec<String>> {
        let log = std::fs::read_to_string(&self.log).expect("it can be read");
        log.lines().map(|line| line.split(' ').map(str::to_string).collect()).collect()
    }

    /// Waits for somebody else to begin, and kills it while it holds what it holds.
    pub fn kill_holder(&self) {
        self.progress(1);
        let holder =
            || self.log().last().filter(|words| words[0] == "in").map(|words| words[3].parse().expect("a pid"));
        wait_until("one holds it", PROGRESS_MAX, || holder().is_some());
        self.pause(30);
        if let Some(pid) = holder() {
            self.kill(pid);
        }
    }

    /// Waits until so many more have begun and ended.
    pub fn progress(&self, count: usize) {
        let begun = self.log().len();
        wait_until("they go on", PROGRESS_MAX, || self.log().len() >= begun + 2 * count);
    }

    /// Up to so many milliseconds.
    pub fn pause(&self, most: u64) {
        let chosen = self.rng.lock().unwrap().next_u64() % (most + 1);
        std::thread::sleep(Duration::from_millis(chosen));
    }

    /// False: everybody should end.
    pub fn going(&self) -> bool {
        !self.ends.load(Ordering::Relaxed)
    }

    /// A host of its own.
    pub async fn object(&self, number: u64) -> Object {
        let options = ArrayOptions::at(&self.dir).name("recipes");
        let array = braid_client::Array::connect(options).await.expect("the array is up");
        array.device(DEVICE as u16).object(number)
    }
}

/// See [`Scenario::until_dropped`].
pub struct Ending<'a>(&'a Scenario);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
