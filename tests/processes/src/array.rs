//! A whole array in a temporary folder, run by `braid up`.

use crate::daemon::{Daemon, has_ended_within, signal};
use crate::program::{Outcome, braid, braid_bin};
use crate::scratch::path_text;
use crate::{Client, Scratch};
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Arguments for five devices that are small enough to be checked block by block quickly.
pub const SMALL: [&str; 4] = ["--size", "64MiB", "--volume", "vol0:32MiB"];
/// Bytes of a small array's volume.
pub const SMALL_BYTES: u64 = 32 << 20;

/// The lease of the tests' arrays. Tests about leases use the default ([`Array::patient`]).
pub const LEASE: Duration = Duration::from_secs(1);
/// The default lease.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(4);

/// How long devices may take to end after their supervisor, or to be restarted.
const LIMIT: Duration = Duration::from_secs(20);

/// Further options of every `braid up` that need not run devices in processes, as in `BRAID_UP_OPTIONS='--nodes 3'`.
const UP_OPTIONS: &str = "BRAID_UP_OPTIONS";

/// An array and the process that runs it. The process is killed when this is dropped.
#[derive(Debug)]
pub struct Array {
    // Fields are dropped in this order: the folder last.
    supervisor: Option<Daemon>,
    dir: PathBuf,
    /// True for short leases.
    hasty: bool,
    /// True if each device has a process of its own, which a test can kill. Otherwise one node runs all of them.
    in_processes: bool,
    scratch: Scratch,
}

impl Array {
    /// A small array.
    pub fn small() -> Array {
        Array::up(&SMALL)
    }

    /// A small array with the default lease.
    pub fn patient() -> Array {
        Array::patient_up(&SMALL)
    }

    /// A new array, started with these arguments.
    pub fn up(arguments: &[&str]) -> Array {
        Array::new(true, false).started(arguments)
    }

    /// The same, with the default lease.
    pub fn patient_up(arguments: &[&str]) -> Array {
        Array::new(false, false).started(arguments)
    }

    /// The same, with a process for each device.
    pub fn of_processes(arguments: &[&str]) -> Array {
        Array::new(true, true).started(arguments)
    }

    /// The same, with the default lease.
    pub fn patient_of_processes(arguments: &[&str]) -> Array {
        Array::new(false, true).started(arguments)
    }

    fn new(hasty: bool, in_processes: bool) -> Array {
        let scratch = Scratch::new();
        Array { supervisor: None, dir: scratch.path("array"), hasty, in_processes, scratch }
    }

    fn started(mut self, arguments: &[&str]) -> Array {
        self.start(arguments);
        self
    }

    /// An array that was packed ([`crate::kept`]), to be started.
    pub fn unpacked(file: &Path) -> Array {
        let array = Array::new(true, false);
        crate::kept::unpack(file, &array.dir);
        array
    }

    /// Starts it again, after `down`, `kill` or `try_start`.
    pub fn start(&mut self, arguments: &[&str]) {
        self.try_start(arguments).unwrap_or_else(|outcome| panic!("{outcome}"));
    }

    /// Like [`Array::start`], but may fail.
    pub fn try_start(&mut self, arguments: &[&str]) -> Result<(), Outcome> {
        self.try_start_by(&[], arguments)
    }

    /// Like [`Array::try_start`], by a program that does something first ([`Daemon::start_by`]).
    pub fn try_start_by(&mut self, launcher: &[&str], arguments: &[&str]) -> Result<(), Outcome> {
        assert!(self.supervisor.is_none(), "it is running");
        let dir = path_text(&self.dir).to_string();
        let lease: &[&str] = if self.hasty { &["--lease", "1s"] } else { &[] };
        let more = if self.in_processes { "--processes".into() } else { std::env::var(UP_OPTIONS).unwrap_or_default() };
        let more: Vec<&str> = more.split_whitespace().collect();
        let all = [&["up", "--yes", "--dir", &dir, "--port", "0", "--json"], lease, &more, arguments].concat();
        self.supervisor = Some(Daemon::start_by(launcher, &all, &self.scratch.path("up.log"))?);
        Ok(())
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A folder for the test's own files.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// The process that runs it.
    pub fn supervisor(&self) -> &Daemon {
        self.supervisor.as_ref().expect("it is running")
    }

    /// The announcement of `braid up` that it is ready.
    pub fn ready(&self) -> &Value {
        &self.supervisor().ready
    }

    /// Makes a small attribute volume with two copies.
    pub fn create_attribute_volume(&self, name: &str, ordering: &str) -> Outcome {
        let create =
            ["volume", "create", name, "--attributes", "--layout", "raid1:2", "--size", "1MiB", "--unit", "128KiB"];
        self.braid(&[&create[..], &["--ordering", ordering]].concat()).done()
    }

    /// The address of the first volume on the supervisor's own NBD server.
    pub fn nbd(&self) -> String {
        text(&self.ready()["volumes"][0]["nbd"])
    }

    /// Starts another NBD server, with a host of its own. Returns it with the address of the first volume.
    pub fn host(&self) -> (Daemon, String) {
        let daemon = self.daemon("nbd", &["nbd", "--listen", "127.0.0.1:0"]);
        let uri = text(&daemon.ready["volumes"][0]["nbd"]);
        (daemon, uri)
    }

    /// Runs a command on it, with `--json`.
    pub fn braid(&self, arguments: &[&str]) -> Outcome {
        braid(&[arguments, &["--array", path_text(&self.dir), "--json"]].concat())
    }

    /// The output for people of a command on it, which must succeed.
    #[track_caller]
    pub fn told(&self, arguments: &[&str]) -> String {
        braid(&[arguments, &["--array", path_text(&self.dir)]].concat()).done().stdout
    }

    /// A command on it, not started yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(braid_bin());
        command.args(arguments).arg("--array").arg(&self.dir);
        command
    }

    /// The output of `braid status`, which must succeed.
    pub fn status(&self) -> Value {
        self.braid(&["status"]).done().json()
    }

    /// The events of a kind, in their order.
    pub fn events(&self, kind: &str) -> Vec<Value> {
        let told = self.braid(&["events"]).done().json();
        let all = items(&told["events"]).iter();
        all.filter(|event| event["kind"] == kind).cloned().collect()
    }

    /// The process that serves a shard of a file system; none while no process does.
    pub fn metadata_server(&self, file_system: &str, shard: usize) -> Option<u32> {
        let status = self.braid(&["fs", "status", file_system]).done().json();
        let server = &status["file_systems"][0]["servers"][shard];
        (server["state"] == "serving").then(|| pid_of(server))
    }

    /// Checks all of a file system.
    #[track_caller]
    pub fn assert_files_sound(&self, file_system: &str) {
        let checked = self.braid(&["fs", "check", file_system]).done().json();
        assert_eq!((&checked["sound"], number(&checked["omitted"])), (&Value::Bool(true), 0), "{checked}");
    }

    /// The current process of a device.
    pub fn device_pid(&self, device: usize) -> u32 {
        pid_of(&self.status()["devices"][device])
    }

    /// The current process of the monitor.
    pub fn monitor_pid(&self) -> u32 {
        pid_of(&self.status()["monitor"])
    }

    /// The membership state of a device: `in`, `unavailable`, `returning`, `out`.
    pub fn member_state(&self, device: usize) -> String {
        text(&self.status()["devices"][device]["member_state"])
    }

    /// Waits until a volume is in this state, such as `healthy` or `degraded`. Returns the status with that state.
    #[track_caller]
    pub fn await_volume(&self, volume: usize, state: &str) -> Value {
        self.await_status(&format!("volume {volume} is {state}"), |status| status["volumes"][volume]["state"] == state)
    }

    /// The processes of all devices when the array was ready.
    pub fn first_device_pids(&self) -> Vec<u32> {
        let devices = items(&self.ready()["devices"]);
        devices.iter().filter_map(|device| device["pid"].as_u64()).map(|pid| pid as u32).collect()
    }

    /// The devices of a volume, in their order.
    pub fn devices_of(&self, volume: &str) -> Vec<usize> {
        let info = self.braid(&["volume", "info", volume]).done().json();
        items(&info["volume"]["devices"]).iter().map(|device| number(device) as usize).collect()
    }

    pub fn device_file(&self, device: usize) -> PathBuf {
        self.dir.join(format!("device-{device}.braid"))
    }

    /// `kill -9` of a device's process. Waits until the device serves again, and returns how long that took.
    pub fn kill_device(&self, device: usize) -> Duration {
        let pid = self.device_pid(device);
        let begun = Instant::now();
        signal(pid, Signal::KILL);
        self.await_status(&format!("device {device} serves again"), |status| {
            let entry = &status["devices"][device];
            entry["state"] == "serving" && pid_of(entry) != pid
        });
        begun.elapsed()
    }

    /// Waits until a device has this membership state. Returns the status with that state.
    #[track_caller]
    pub fn await_member(&self, device: usize, state: &str) -> Value {
        self.await_status(&format!("device {device} is {state}"), |status| {
            status["devices"][device]["member_state"] == state
        })
    }

    /// Waits until no device is out.
    #[track_caller]
    pub fn await_all_in(&self) {
        self.await_status("all devices are in", |status| {
            items(&status["devices"]).iter().all(|device| device["member_state"] == "in")
        });
    }

    /// Polls the status until the condition holds. Returns that status.
    #[track_caller]
    pub fn await_status(&self, what: &str, wished: impl Fn(&Value) -> bool) -> Value {
        crate::poll_until(LIMIT, || {
            let status = self.status();
            if wished(&status) { Ok(status) } else { Err(format!("{what}: {status:#}")) }
        })
    }

    /// Waits until the supervisor's host has renewed its lease this many times: at each renewal, it checks for expired leases.
    #[track_caller]
    pub fn await_renewals(&self, times: u32) {
        let is_supervisor = |host: &&Value| pid_of(host) == self.supervisor().pid();
        let status = self.status();
        let host = items(&status["hosts"]).iter().find(is_supervisor);
        let generation = number(&host.expect("it has a lease")["generation"]);
        let file = self.dir.join(format!("hosts/{generation}.renewals"));
        let look = || std::fs::read(&file).expect("it renews its lease");
        for _ in 0..times {
            let before = look();
            crate::wait_until("the supervisor renews its lease", LIMIT, || look() != before);
        }
    }

    /// The first volume contains this.
    #[track_caller]
    pub fn assert_reads(&self, offset: u64, content: &[u8]) {
        let there = Client::open(&self.nbd()).read(offset, content.len()).expect("a read works");
        assert!(there == content, "the written data is readable, from {offset} on");
    }

    /// Compares every stripe of a volume with its parity, and every unit with its reconstruction from the others.
    #[track_caller]
    pub fn assert_sound(&self, volume: &str) {
        let stripes = number(&self.braid(&["volume", "info", volume]).done().json()["stripes"]);
        let found = self.braid(&["volume", "check", volume, "--reconstruct"]).done().json();
        assert!(stripes > 0, "the volume has stripes");
        assert_eq!(number(&found["stripes"]), stripes, "every stripe is checked: {found}");
        assert_eq!(number(&found["bad"]), 0, "{found}");
        assert_eq!(number(&found["unreadable"]), 0, "{found}");
        assert_eq!(number(&found["unchecked"]), 0, "{found}");
    }

    /// `braid down`: all processes must end successfully.
    #[track_caller]
    pub fn down(&mut self) {
        let pids = self.first_device_pids();
        self.braid(&["down"]).done();
        let supervisor = self.supervisor.take().expect("it was up");
        assert_eq!(supervisor.ended(), Some(0), "`up` succeeds when it is told to end");
        gone(&pids);
    }

    /// Ends `braid up`, and starts the monitor, a lock server and the devices one by one instead. Nothing restarts them, and interrupted
    /// changes are settled by commands alone. The devices are the last ones.
    #[track_caller]
    pub fn start_daemons(&mut self) -> Vec<Daemon> {
        let addresses = self.give_addresses();
        let mut daemons = vec![self.daemon("monitord", &["monitord"]), self.daemon("lockd", &["lockd"])];
        let serve = |(device, address): (usize, &String)| self.serve_device(device, address, &[]);
        daemons.extend(addresses.iter().enumerate().map(serve));
        daemons
    }

    /// Starts the daemon of a device, with these further arguments.
    #[track_caller]
    pub fn serve_device(&self, device: usize, address: &str, more: &[&str]) -> Daemon {
        let file = self.device_file(device);
        let serve = ["device", "serve", path_text(&file), "--listen", address];
        self.daemon(&format!("device-{device}"), &[&serve, more].concat())
    }

    /// Ends `braid up`, and gives each device a fixed address, which is returned.
    pub fn give_addresses(&mut self) -> Vec<String> {
        self.down();
        let address = |device| format!("unix:{}", self.scratch.text(&format!("d{device}.sock")));
        let addresses: Vec<_> = (0..items(&self.description()["devices"]).len()).map(address).collect();
        addresses.iter().enumerate().for_each(|(device, address)| self.set_address(device, address));
        addresses
    }

    /// Gives a device a fixed address.
    pub fn set_address(&self, device: usize, address: &str) {
        self.describe(|description| description["devices"][device]["address"] = address.into());
    }

    /// What the array's folder says of it.
    #[track_caller]
    pub fn description(&self) -> Value {
        let description = std::fs::read(self.dir.join("array.json")).expect("it is always there");
        serde_json::from_slice(&description).expect("it is replaced as a whole")
    }

    /// Replaces what the array's folder says of it.
    pub fn describe(&self, change: impl FnOnce(&mut Value)) {
        let (mut description, next) = (self.description(), self.dir.join("array.json.next"));
        change(&mut description);
        std::fs::write(&next, description.to_string()).expect("it can be written");
        std::fs::rename(next, self.dir.join("array.json")).expect("it can be replaced");
    }

    /// Starts a daemon of the array. Its log gets this name.
    #[track_caller]
    pub fn daemon(&self, name: &str, arguments: &[&str]) -> Daemon {
        let log = self.scratch.path(&format!("{name}.log"));
        let all = [arguments, &["--array", path_text(&self.dir), "--json"]].concat();
        Daemon::start(&all, &log).unwrap_or_else(|outcome| panic!("{outcome}"))
    }

    /// `kill -9` of all processes.
    pub fn kill(&mut self) {
        let status = self.status();
        let devices = items(&status["devices"]);
        let pids: Vec<u32> = devices
            .iter()
            .chain([&status["monitor"]])
            .filter_map(|daemon| daemon["pid"].as_u64())
            .map(|pid| pid as u32)
            .collect();
        let supervisor = self.supervisor.take().expect("it was up");
        for pid in pids.iter().filter(|pid| **pid != supervisor.pid()) {
            signal(*pid, Signal::KILL);
        }
        supervisor.kill();
        gone(&pids);
    }

    /// Takes the supervisor out of this array's care.
    pub fn give_away_supervisor(&mut self) -> Daemon {
        self.supervisor.take().expect("it is up")
    }
}

/// Checks that all of these processes end soon.
#[track_caller]
pub fn gone(pids: &[u32]) {
    for pid in pids {
        assert!(has_ended_within(*pid, LIMIT), "process {pid} is still running");
    }
}

/// The elements of a list in a command's output.
#[track_caller]
pub fn items(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("a list was expected, not {value}"))
}

/// What a check of `braid doctor` has found, in its report.
#[track_caller]
pub fn findings<'a>(report: &'a Value, check: &str) -> &'a [Value] {
    let found = items(&report["checks"]).iter().find(|entry| entry["name"] == check);
    items(&found.expect("there is such a check")["findings"])
}

/// The process of an entry in a command's output.
#[track_caller]
pub fn pid_of(entry: &Value) -> u32 {
    number(&entry["pid"]) as u32
}

/// A number in a command's output.
#[track_caller]
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number was expected, not {value}"))
}

/// A string in a command's output.
#[track_caller]
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("a text was expected, not {value}")).to_string()
}
