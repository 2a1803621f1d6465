//! One round of each part.

use super::Figure;
use super::copy::copy;
use crate::compare::array::{Array, DEVICES, device_bytes};
use crate::compare::fio::{Fio, Measured, Target};
use crate::compare::plan::{DEPTH, Load};
use crate::prelude::*;
use rustix::process::{Pid, Signal, kill_process};
use std::time::{SystemTime, UNIX_EPOCH};

pub const IDLE: &str = "rebuild, idle; beside: the same bytes read and written";
pub const IDLE_COPY: &str = "… beside: a file of that size copied";
pub const READS: &str = "4 KiB reads during a rebuild";
pub const READS_P99: &str = "… their 99th percentile";
pub const WRITES: &str = "4 KiB writes during a rebuild";
pub const WRITES_P99: &str = "… their 99th percentile ";
pub const READS_PAUSED: &str = "… compared with a paused rebuild";
pub const WRITES_PAUSED: &str = "… compared with a paused rebuild ";
pub const PACE: &str = "rebuild under that load";
pub const BACK: &str = "away for 10 s: back";
pub const SENT: &str = "away for 10 s: sent";

/// How long a rebuild, or a device's return, may take.
const HEAL_WAIT: Duration = Duration::from_secs(180);
const READ: Load = Load { rw: "randread", block: 4 << 10, depth: DEPTH };
const WRITE: Load = Load { rw: "randwrite", block: 4 << 10, depth: DEPTH };

/// Of a range of the volume, each of the four data units of a stripe holds a quarter; the parity unit has the same size.
const DATA_UNITS: u64 = DEVICES - 1;

const AWAY_DEVICE: u64 = 2;
const AWAY: Duration = Duration::from_secs(10);
const WRITES_PER_SECOND: u64 = 1000;
/// The time before it is suspended, and after it has returned.
const AROUND: Duration = Duration::from_secs(3);
/// Devices that a small write changes.
const WRITTEN_OF: u64 = 2;

pub struct Rounds<'a> {
    fio: &'a Fio<'a>,
    /// Bytes of the volume that a device holds.
    held: u64,
    /// A file of the same size as the volume.
    raw: PathBuf,
    /// The number of disks replaced so far.
    replaced: u64,
}

impl<'a> Rounds<'a> {
    /// Writes the file that is copied.
    pub fn new(fio: &'a Fio<'a>) -> Result<Rounds<'a>> {
        let raw = fio.folder.join("raw.img");
        fio.fill(&Target::File(raw.clone()))?;
        Ok(Rounds { fio, held: fio.size / DATA_UNITS, raw, replaced: 0 })
    }

    /// A rebuild, followed by the same transfer without an array.
    pub fn idle(&mut self, round: u32, array: &Array<'_>, figures: &mut Vec<Figure>) -> Result<()> {
        let (mut rebuilt, mut moved, mut copied) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        for step in 0..2 {
            if (step + round).is_multiple_of(2) {
                let to = self.fio.folder.join("copy.img");
                moved = copy(&self.raw, DATA_UNITS, &to, self.held)?;
                copied = copy(&self.raw, 1, &to, self.held)?;
                std::fs::remove_file(&to)?;
            } else {
                let old = self.replace(array)?;
                rebuilt = self.rebuilt(array, &old)?;
                array.settle()?;
            }
        }
        let speed = |took: Duration| self.held as f64 / (1 << 20) as f64 / took.as_secs_f64();
        let (found, moved, copied) = (speed(rebuilt), speed(moved), speed(copied));
        figures.push(Figure { what: IDLE, round, found, beside: moved });
        figures.push(Figure { what: IDLE_COPY, round, found, beside: copied });
        Ok(())
    }

    /// Clients alone, during a rebuild, and during a paused rebuild: then they have the same devices, and nothing is restored.
    pub fn clients(&mut self, round: u32, array: &Array<'_>, figures: &mut Vec<Figure>) -> Result<()> {
        let (mut alone, mut during) = (None, None);
        for step in 0..2 {
            if (step + round).is_multiple_of(2) {
                alone = Some(self.load(array, round)?);
                array.settle()?;
                continue;
            }
            let old = self.replace(array)?;
            array.told(&["rebuild", "pause"])?;
            let paused = self.load(array, round)?;
            array.told(&["rebuild", "resume"])?;
            let (before, begun) = (restored(array, &old)?, Instant::now());
            let beside = self.load(array, round)?;
            let (after, took) = (restored(array, &old)?, begun.elapsed());
            let found = (after - before) / (1 << 20) as f64 / took.as_secs_f64();
            figures.push(Figure { what: PACE, round, found, beside: 1.0 });
            during = Some((paused, beside));
            self.rebuilt(array, &old)?;
            array.settle()?;
        }
        let alone = alone.context("both ran")?;
        let (paused, beside) = during.context("both ran")?;
        let per_second = |found: &Measured| found.bytes_per_second / 4096.0;
        let millis = |found: &Measured| found.p99_us / 1000.0;
        let mut figure = |what, found, beside| figures.push(Figure { what, round, found, beside });
        figure(READS, per_second(&beside.reads), per_second(&alone.reads));
        figure(READS_PAUSED, per_second(&beside.reads), per_second(&paused.reads));
        figure(READS_P99, millis(&beside.reads), millis(&alone.reads));
        figure(WRITES, per_second(&beside.writes), per_second(&alone.writes));
        figure(WRITES_PAUSED, per_second(&beside.writes), per_second(&paused.writes));
        figure(WRITES_P99, millis(&beside.writes), millis(&alone.writes));
        Ok(())
    }

    /// A device is suspended for a while, and returns.
    pub fn unavailable(&mut self, round: u32, array: &Array<'_>, figures: &mut Vec<Figure>) -> Result<()> {
        let status = array.told(&["status"])?;
        let pid = status["devices"][AWAY_DEVICE as usize]["pid"].as_u64().context("the device is down")?;
        let pid = Pid::from_raw(i32::try_from(pid)?).context("a process has a number")?;
        let log = self.fio.folder.join("unavailable");
        let mut command = self.fio.command(&Target::Nbd(array.uri()?), WRITE);
        let all = AROUND + AWAY + AROUND * 3;
        command.args(["--time_based", &format!("--runtime={}", all.as_secs()), &format!("--randseed={}", round + 1)]);
        command.args([&format!("--rate_iops={WRITES_PER_SECOND}"), "--log_avg_msec=250"]);
        command.arg(format!("--write_iops_log={}", log.display()));
        let load = Process::start(&mut command, &self.fio.folder.join("fio.log"))?;
        let begun = Instant::now();
        self.fio.interrupt.pause(AROUND)?;
        let from = begun.elapsed();
        kill_process(pid, Signal::STOP)?;
        let waited = self.fio.interrupt.pause(AWAY);
        kill_process(pid, Signal::CONT)?;
        waited?;
        let returned = now_millis();
        let back = self.await_event(array, "device-in", AWAY_DEVICE, returned)?;
        let until = begun.elapsed();
        load.ended(all + HEAL_WAIT, self.fio.interrupt)?;
        let written = self.writes_within(&log, from, until)? * 4096.0 * WRITTEN_OF as f64 / DEVICES as f64;
        let sent = back["figures"]["bytes"].as_u64().context("the event has no number of bytes")? as f64;
        let seconds = (back["unix_millis"].as_u64().unwrap_or_default() - returned) as f64 / 1e3;
        let mib = (1 << 20) as f64;
        figures.push(Figure { what: BACK, round, found: seconds, beside: 1.0 });
        figures.push(Figure { what: SENT, round, found: sent / mib, beside: written / mib });
        array.settle().map(|_| ())
    }

    fn load(&self, array: &Array<'_>, round: u32) -> Result<Clients> {
        let (target, seed) = (Target::Nbd(array.uri()?), u64::from(round) + 1);
        Ok(Clients { reads: self.fio.run(&target, READ, seed)?, writes: self.fio.run(&target, WRITE, seed)? })
    }

    /// Replaces a device's disk with an empty one. Returns when the rebuild has begun.
    fn replace(&mut self, array: &Array<'_>) -> Result<Replaced> {
        let device = self.replaced % DEVICES;
        self.replaced += 1;
        let status = array.told(&["status"])?;
        let file = status["devices"][device as usize]["file"].as_str().context("a device has a file")?;
        let old = array.folder().join(file);
        let new = self.fio.folder.join(format!("disk-{}.braid", self.replaced));
        let since = now_millis();
        let (device_text, new, size) =
            (device.to_string(), new.display().to_string(), device_bytes(self.fio.size).to_string());
        array.told(&["device", "replace", &device_text, &new, "--size", &size])?;
        let begun = self.await_event(array, "rebuild-begun", device, since)?;
        let begun = begun["unix_millis"].as_u64().context("an event has a time")?;
        Ok(Replaced { device, begun, old })
    }

    /// Waits until a rebuild has ended. Returns its duration.
    fn rebuilt(&self, array: &Array<'_>, replaced: &Replaced) -> Result<Duration> {
        let ended = self.await_event(array, "rebuild-ended", replaced.device, replaced.begun)?;
        let ended = ended["unix_millis"].as_u64().context("an event has a time")?;
        std::fs::remove_file(&replaced.old)
            .with_context(|| format!("can't remove the disk that was replaced, {}", replaced.old.display()))?;
        Ok(Duration::from_millis(ended - replaced.begun))
    }

    /// Waits for an event of this kind, about this device, at or after `since`.
    fn await_event(&self, array: &Array<'_>, kind: &str, device: u64, since: u64) -> Result<Value> {
        let is_it = |event: &Value| {
            event["kind"] == kind && event["device"] == device && event["unix_millis"].as_u64() >= Some(since)
        };
        let what = format!("there was no event {kind} of device {device}");
        self.fio.interrupt.until(HEAL_WAIT, &what, || Ok(array.events()?.into_iter().find(is_it)))
    }

    /// The number of writes in fio's log between two times.
    fn writes_within(&self, log: &Path, from: Duration, until: Duration) -> Result<f64> {
        // The name that fio gives to the log of its first job.
        let path = PathBuf::from(format!("{}_iops.1.log", log.display()));
        let text = std::fs::read_to_string(&path).with_context(|| format!("can't read {}", path.display()))?;
        let (mut last, mut writes) = (0.0, 0.0);
        for line in text.lines() {
            let mut fields = line.split(',').map(str::trim);
            let mut next = || fields.next().and_then(|field| field.parse::<f64>().ok());
            let (Some(millis), Some(rate)) = (next(), next()) else { continue };
            if Duration::from_secs_f64(millis / 1e3) > from && Duration::from_secs_f64(last / 1e3) < until {
                writes += rate * (millis - last) / 1e3;
            }
            last = millis;
        }
        Ok(writes)
    }
}

/// A disk that is being rebuilt in place of another one.
struct Replaced {
    device: u64,
    /// When the rebuild began, in milliseconds since 1970.
    begun: u64,
    /// The file of the previous disk.
    old: PathBuf,
}

struct Clients {
    reads: Measured,
    writes: Measured,
}

/// The bytes of the disk that are restored so far.
fn restored(array: &Array<'_>, replaced: &Replaced) -> Result<f64> {
    let status = array.told(&["status"])?;
    let done = status["devices"][replaced.device as usize]["healing"]["bytes_done"].as_f64();
    done.context("the rebuild ended before the load did: use a larger --size")
}

fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
