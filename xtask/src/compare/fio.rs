//! Runs fio, and extracts the results from its JSON output.

use super::plan::{DEPTH, Load};
use super::process::line_of;
use crate::prelude::*;

/// How much longer than its duration a run may take.
const RUN_MARGIN: Duration = Duration::from_secs(60);
/// The speed of filling, in bytes a second, below which we give up.
const FILL_SPEED_MIN: u64 = 8 << 20;

#[derive(Clone, Debug)]
pub enum Target {
    /// A file, with O_DIRECT and io_uring.
    File(PathBuf),
    /// A file, with O_DIRECT, O_DSYNC and io_uring.
    SyncedFile(PathBuf),
    /// An export, with fio's nbd engine.
    Nbd(String),
}

/// The results of one run of fio.
#[derive(Clone, Debug)]
pub struct Measured {
    pub bytes_per_second: f64,
    pub p50_us: f64,
    /// 99th percentile of the latency in microseconds.
    pub p99_us: f64,
    pub command: String,
}

/// fio, with the parameters common to all runs.
pub struct Fio<'a> {
    pub folder: &'a Path,
    /// The duration of a run.
    pub seconds: u32,
    /// Bytes of each target.
    pub size: u64,
    pub interrupt: &'a Interrupt,
}

impl<'a> Fio<'a> {
    /// One run. Runs with the same seed access the same blocks.
    pub fn run(&self, target: &Target, load: Load, seed: u64) -> Result<Measured> {
        let mut command = self.command(target, load);
        command.args(["--time_based", &format!("--runtime={}", self.seconds), &format!("--randseed={seed}")]);
        let deadline = Duration::from_secs(self.seconds.into()) + RUN_MARGIN;
        let said = self.said(&mut command, deadline)?;
        let direction = if load.writes() { "write" } else { "read" };
        measured(&said, direction)
            .with_context(|| format!("from: {}", line_of(&command)))
            .map(|found| Measured { command: line_of(&command), ..found })
    }

    /// Writes the whole target once, because reads of unwritten blocks would not reach a disk.
    pub fn fill(&self, target: &Target) -> Result<()> {
        let mut command = self.command(target, Load { rw: "write", block: 1 << 20, depth: DEPTH });
        command.arg("--end_fsync=1");
        let deadline = Duration::from_secs(self.size / FILL_SPEED_MIN) + RUN_MARGIN;
        self.said(&mut command, deadline).map(|_| ())
    }

    /// The command of a load without a duration.
    pub fn command(&self, target: &Target, load: Load) -> Command {
        let mut command = Command::new("fio");
        command.current_dir(self.folder);
        command.args(["--name=compare", "--output-format=json", "--eta=never", "--direct=1", "--norandommap=1"]);
        command.args([&format!("--rw={}", load.rw), &format!("--bs={}", load.block)]);
        command.args([&format!("--iodepth={}", load.depth), &format!("--size={}", self.size)]);
        match target {
            Target::File(file) | Target::SyncedFile(file) => {
                command.arg("--ioengine=io_uring").arg(format!("--filename={}", file.display()));
            }
            Target::Nbd(uri) => {
                command.arg("--ioengine=nbd").arg(format!("--uri={uri}"));
            }
        }
        if matches!(target, Target::SyncedFile(_)) {
            command.arg("--sync=dsync");
        }
        command
    }

    /// Runs the command, and returns the single job of its JSON output.
    fn said(&self, command: &mut Command, deadline: Duration) -> Result<Value> {
        let output = self.folder.join("fio.json");
        command.arg(format!("--output={}", output.display()));
        Process::start(command, &self.folder.join("fio.log"))?.ended(deadline, self.interrupt)?;
        let text = std::fs::read_to_string(&output).with_context(|| format!("can't read {}", output.display()))?;
        // Warnings precede the JSON.
        let begin = text.find('{').unwrap_or(0);
        let said: Value = serde_json::from_str(&text[begin..]).context("fio's output is not JSON")?;
        let job = &said["jobs"][0];
        ensure!(job["error"] == json!(0), "fio reported an error: {}\n{}", job["error"], line_of(command));
        Ok(job.clone())
    }
}

fn measured(job: &Value, direction: &str) -> Result<Measured> {
    let side = &job[direction];
    let number = |value: &Value, what: &str| value.as_f64().with_context(|| format!("fio's JSON has no {what}"));
    let percentiles = &side["clat_ns"]["percentile"];
    let found = Measured {
        bytes_per_second: number(&side["bw_bytes"], "bw_bytes")?,
        p50_us: number(&percentiles["50.000000"], "median latency")? / 1e3,
        p99_us: number(&percentiles["99.000000"], "99th percentile of latency")? / 1e3,
        command: String::new(),
    };
    ensure!(found.bytes_per_second > 0.0, "fio transferred nothing");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_the_side_that_was_measured() {
        let side = |bytes: u64| json!({"bw_bytes": bytes, "clat_ns": {"percentile": {"50.000000": 150_000, "99.000000": 2_000_000}}});
        let job = json!({"read": side(0), "write": side(4096)});
        let found = measured(&job, "write").expect("it is complete");
        assert_eq!((found.bytes_per_second, found.p50_us, found.p99_us), (4096.0, 150.0, 2000.0));
        assert!(measured(&job, "read").is_err(), "nothing was read");
    }
}
