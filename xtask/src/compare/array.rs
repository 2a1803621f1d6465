//! The Braid array under test: five devices and one NBD host on this machine.

use super::process::printed_json;
use super::system;
use crate::prelude::*;
use std::collections::BTreeSet;

pub const DEVICES: u64 = 5;

/// How long it may take to start.
const UP_WAIT: Duration = Duration::from_secs(180);
/// How long `braid status` may take.
const STATUS_WAIT: Duration = Duration::from_secs(30);
/// How long its deferred writes may take after a load.
const SETTLE_WAIT: Duration = Duration::from_secs(30);
/// The array is settled when it writes fewer bytes than the limit in this time.
const SETTLE_STEP: Duration = Duration::from_millis(250);
const SETTLED_BYTES: u64 = 256 << 10;

/// The array, running or not. It is stopped when dropped.
pub struct Array<'a> {
    program: PathBuf,
    folder: PathBuf,
    size: u64,
    interrupt: &'a Interrupt,
    running: Option<Running>,
}

struct Running {
    process: Process,
    uri: String,
    devices: BTreeSet<u32>,
}

/// The size of each device for a volume of `size` bytes: the device's share with parity and headers is 0.29 of the volume's size, and
/// there is space to write elsewhere.
pub fn device_bytes(size: u64) -> u64 {
    (size / 100 * 36 + (1 << 30)).next_multiple_of(1 << 20)
}

impl<'a> Array<'a> {
    /// An array that is not running, with a volume of `size` bytes.
    pub fn new(program: &Path, folder: &Path, size: u64, interrupt: &'a Interrupt) -> Array<'a> {
        Array { program: program.to_path_buf(), folder: folder.to_path_buf(), size, interrupt, running: None }
    }

    /// Starts the array in so many nodes, or with 0 as processes, and waits until it serves and has settled.
    pub fn start(&mut self, nodes: u16) -> Result<()> {
        assert!(self.running.is_none(), "the array is already running");
        let mut command = self.braid(&["up"]);
        command.arg("--yes");
        command.args(["--devices", &DEVICES.to_string(), "--size", &device_bytes(self.size).to_string()]);
        command.args(["--volume", &format!("vol0:{}", self.size), "--port", "0"]);
        command.args(["--nodes", &nodes.to_string()]);
        let mut process = Process::start(&mut command, &self.folder.join("braid.log"))?;
        let status = process.until(UP_WAIT, self.interrupt, "the array did not start", |_| {
            Ok(self.status()?.filter(|status| status["ready"] == true))
        })?;
        let uri = status["volumes"][0]["nbd"].as_str().context("`braid status` has no address of the volume")?;
        let devices = device_processes(&status)?;
        self.running = Some(Running { process, uri: uri.to_string(), devices });
        self.settle().map(|_| ())
    }

    /// The address of the volume.
    pub fn uri(&self) -> Result<String> {
        Ok(self.running()?.uri.clone())
    }

    pub fn devices(&self) -> Result<&BTreeSet<u32>> {
        Ok(&self.running()?.devices)
    }

    pub fn processes(&self) -> Result<BTreeSet<u32>> {
        let running = self.running()?;
        Ok(running.devices.iter().copied().chain([running.process.id()]).collect())
    }

    /// Fails unless all devices still run in the processes of the start: a restart would make the results meaningless.
    pub fn check(&mut self) -> Result<()> {
        let status = self.status()?.context("the array is no longer up")?;
        let running = self.running.as_mut().context("the array is not up")?;
        running.process.check()?;
        if device_processes(&status)? != running.devices {
            bail!("a device has ended and was restarted:\n{}", running.process.said());
        }
        Ok(())
    }

    /// Waits until its deferred writes are done. Returns how many bytes they were.
    pub fn settle(&self) -> Result<u64> {
        // A device whose disk was replaced runs in another process than at the start.
        let devices = device_processes(&self.told(&["status"])?)?;
        let processes: BTreeSet<u32> = devices.into_iter().chain([self.running()?.process.id()]).collect();
        let written = || -> Result<u64> { processes.iter().map(|pid| system::written_bytes(*pid)).sum() };
        let (begun, before) = (Instant::now(), written()?);
        let (mut last, mut quiet) = (before, 0);
        while quiet < 2 && begun.elapsed() < SETTLE_WAIT {
            self.interrupt.pause(SETTLE_STEP)?;
            let now = written()?;
            quiet = if now - last < SETTLED_BYTES { quiet + 1 } else { 0 };
            last = now;
        }
        Ok(last - before)
    }

    pub fn stop(&mut self) -> Result<()> {
        let running = self.running.take().context("the array is not up")?;
        let mut down = self.braid(&["down"]);
        Process::start(&mut down, &self.folder.join("down.log"))?.ended(UP_WAIT, self.interrupt)?;
        running.process.ended(UP_WAIT, self.interrupt)
    }

    fn running(&self) -> Result<&Running> {
        self.running.as_ref().context("the array is not up")
    }

    fn braid(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--array").arg(self.folder()).env_remove("BRAID_ARRAY");
        command
    }

    pub fn folder(&self) -> PathBuf {
        self.folder.join("array")
    }

    /// The output of a command of `braid` with `--json`, which must succeed.
    pub fn told(&self, words: &[&str]) -> Result<Value> {
        printed_json(self.braid(words).arg("--json"), &self.folder, STATUS_WAIT, self.interrupt)
    }

    /// All events that the log still contains.
    pub fn events(&self) -> Result<Vec<Value>> {
        let mut told = self.told(&["events"])?;
        serde_json::from_value(told["events"].take()).context("`braid events` lists no events")
    }

    /// The output of `braid status`; none if there is no array, or it is not running.
    fn status(&self) -> Result<Option<Value>> {
        match self.told(&["status"]) {
            Ok(status) => Ok(Some(status)),
            Err(_) => self.interrupt.check().map(|()| None),
        }
    }
}

fn device_processes(status: &Value) -> Result<BTreeSet<u32>> {
    let devices = status["devices"].as_array().context("`braid status` lists no devices")?;
    let process = |device: &Value| {
        let pid = device["pid"].as_u64().with_context(|| format!("a device is down: {device}"))?;
        Ok(u32::try_from(pid)?)
    };
    devices.iter().map(process).collect()
}
