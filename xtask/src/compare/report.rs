//! The report: a table for display, and all results for programs.

use super::Settings;
use super::fio::Measured;
use super::plan::{self, Comparison, Job, Part, Subject, Wanted};
use crate::prelude::*;

/// One run of one subject.
#[derive(Clone, Debug)]
pub struct Run {
    pub job: Part,
    pub subject: Subject,
    /// From 0.
    pub round: u32,
    pub bytes_per_second: f64,
    /// The results of fio; none for a run without fio.
    pub fio: Option<Measured>,
    /// Bytes that were written to the disk after the last acknowledgement.
    pub put_off_bytes: u64,
}

#[derive(Default)]
pub struct Report {
    /// All runs in order of time.
    pub runs: Vec<Run>,
    /// The peak memory of a device, in bytes.
    pub memory: Option<u64>,
    /// The CPU usage of the idle array, as a share of one core.
    pub rest: Option<f64>,
    parts: Vec<Part>,
    setting: Value,
    size: u64,
}

/// A comparison with its results.
struct Row {
    what: String,
    /// The subject and its median, for display.
    braid: String,
    reference: String,
    /// The median of the rounds' ratios, or the measured value itself if there is no reference.
    figure: f64,
    interval: Option<(f64, f64)>,
    wanted: Option<Wanted>,
    /// True if less is better.
    limit: bool,
    format: fn(f64) -> String,
}

impl Report {
    pub fn new(settings: &Settings, program: &Path, folder: &Path) -> Report {
        let setting = json!({
            "rounds": settings.rounds,
            "seconds": settings.seconds,
            "size": settings.size,
            "dir": folder,
            "program": program,
            "tree": first_line(Command::new("git").args(["describe", "--always", "--dirty"]).current_dir(crate::root())),
            "braid": first_line(Command::new(program).arg("--version")),
            "fio": first_line(Command::new("fio").arg("--version")),
            "qemu-nbd": first_line(Command::new("qemu-nbd").arg("--version")),
            "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
            "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        });
        Report { parts: settings.parts.clone(), setting, size: settings.size, ..Report::default() }
    }

    /// True if nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.memory.is_none() && self.rest.is_none()
    }

    /// The report for display.
    pub fn text(&self) -> String {
        let titles = ["", "braid", "compared with", "ratio [95 %]", "floor", "goal", "reached"];
        let mut text = titled(titles, self.rows().iter().map(Row::cells));
        let latencies = self.latencies();
        if !latencies.is_empty() {
            text += "\n";
            text += &titled(["latency", "", "speed", "p50", "p99"], latencies);
        }
        text + "
Medians; the ratio is the median of the ratios of each round, with its 95 % interval, which takes six rounds or more.
raw: fio with O_DIRECT and io_uring on a file that was written full; its writes, and those of qemu-nbd, may still be in a cache of
the disk when they are acknowledged. O_DSYNC: the same, durable when acknowledged, as Braid's are. Small writes are compared with a quarter
of what raw does, large ones with 1/1.25: what RAID 5 costs at least. Braid and qemu-nbd are reached over loopback TCP.
"
    }

    /// The report for programs.
    pub fn json(&self) -> Value {
        let rows = self.rows();
        let rows = rows.iter().map(|row| {
            json!({
                "figure": row.what,
                "braid": row.braid,
                "reference": row.reference,
                "value": row.figure,
                "interval": row.interval.map(|(low, high)| [low, high]),
                "floor": row.wanted.map(|wanted| wanted.floor),
                "goal": row.wanted.map(|wanted| wanted.goal),
                "less_is_better": row.limit,
                "reached": row.reached(),
            })
        });
        let runs = self.runs.iter().map(|run| {
            json!({
                "job": run.job.name(),
                "subject": run.subject.name(),
                "round": run.round,
                "bytes_per_second": run.bytes_per_second,
                "p50_us": run.fio.as_ref().map(|fio| fio.p50_us),
                "p99_us": run.fio.as_ref().map(|fio| fio.p99_us),
                "put_off_bytes": run.put_off_bytes,
                "command": run.fio.as_ref().map(|fio| &fio.command),
            })
        });
        json!({
            "schema": 2,
            "setting": self.setting,
            "rows": rows.collect::<Vec<_>>(),
            "runs": runs.collect::<Vec<_>>(),
            "device_memory_peak_bytes": self.memory,
            "rest_cpu_share": self.rest,
        })
    }

    fn rows(&self) -> Vec<Row> {
        let jobs = plan::jobs(&self.parts);
        let compared = jobs.iter().flat_map(|job| job.comparisons.iter().map(move |comparison| (job, comparison)));
        let mut rows: Vec<Row> = compared.filter_map(|(job, comparison)| self.row(job, comparison)).collect();
        if let Some(memory) = self.memory {
            let what = format!("memory of a device process, {} and more written", format_size(self.size));
            rows.push(Row::limit(what, memory as f64, plan::MEMORY, |bytes| format_size(bytes as u64)));
        }
        if let Some(rest) = self.rest {
            let what = "CPU at rest, whole array, of one core".to_string();
            rows.push(Row::limit(what, rest, plan::REST, |share| format!("{:.2} %", share * 100.0)));
        }
        rows
    }

    /// None if a side has not run at all.
    fn row(&self, job: &Job, comparison: &Comparison) -> Option<Row> {
        let median_of = |subject: Subject| median(&self.speeds(job.part, subject).into_values().collect::<Vec<_>>());
        let references: Vec<(Subject, f64)> =
            comparison.against.iter().map(|subject| Some((*subject, median_of(*subject)?))).collect::<Option<_>>()?;
        let (reference, speed) = references.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let (ours, theirs) = (self.speeds(job.part, comparison.subject), self.speeds(job.part, reference));
        let pairs = ours.iter().filter_map(|(round, ours)| Some((*ours, theirs.get(round)? / comparison.divisor)));
        let ratio = Ratio::of(pairs);
        let divided = if comparison.divisor == 1.0 { String::new() } else { format!(" / {}", comparison.divisor) };
        Some(Row {
            what: job.what.to_string(),
            braid: speed_text(median_of(comparison.subject)?, job.load.block),
            reference: format!(
                "{}{divided}: {}",
                reference.name(),
                speed_text(speed / comparison.divisor, job.load.block)
            ),
            figure: ratio.median?,
            interval: ratio.interval.map(|found| (found.low, found.high)),
            wanted: comparison.wanted,
            limit: false,
            format: |ratio| format!("{ratio:.2}"),
        })
    }

    fn speeds(&self, job: Part, subject: Subject) -> BTreeMap<u32, f64> {
        let runs = self.runs.iter().filter(|run| run.job == job && run.subject == subject);
        runs.map(|run| (run.round, run.bytes_per_second)).collect()
    }

    fn latencies(&self) -> Vec<[String; 5]> {
        let mut rows = Vec::new();
        for job in plan::jobs(&self.parts) {
            for subject in job.subjects() {
                let runs: Vec<_> =
                    self.runs.iter().filter(|run| run.job == job.part && run.subject == subject).collect();
                let of = |figure: fn(&Measured) -> f64| {
                    let figures: Vec<f64> = runs.iter().filter_map(|run| run.fio.as_ref()).map(figure).collect();
                    median(&figures).map(|us| format!("{us:.0} µs")).unwrap_or_default()
                };
                let speeds: Vec<f64> = runs.iter().map(|run| run.bytes_per_second).collect();
                let Some(speed) = median(&speeds) else { continue };
                let (what, speed) = (job.what.to_string(), speed_text(speed, job.load.block));
                rows.push([what, subject.name().to_string(), speed, of(|fio| fio.p50_us), of(|fio| fio.p99_us)]);
            }
        }
        rows
    }
}

impl Row {
    fn limit(what: String, figure: f64, wanted: Wanted, format: fn(f64) -> String) -> Row {
        let (braid, reference) = (format(figure), String::new());
        Row { what, braid, reference, figure, interval: None, wanted: Some(wanted), limit: true, format }
    }

    fn cells(&self) -> [String; 7] {
        let dash = || "-".to_string();
        let format = self.format;
        let sign = if self.limit { "≤ " } else { "" };
        let wanted =
            |pick: fn(Wanted) -> f64| self.wanted.map_or_else(dash, |wanted| format!("{sign}{}", format(pick(wanted))));
        [
            self.what.clone(),
            self.braid.clone(),
            self.reference.clone(),
            match self.interval {
                _ if self.limit => String::new(),
                Some((low, high)) => format!("{} [{} to {}]", format(self.figure), format(low), format(high)),
                None => format!("{} [-]", format(self.figure)),
            },
            wanted(|wanted| wanted.floor),
            wanted(|wanted| wanted.goal),
            self.reached().unwrap_or("-").to_string(),
        ]
    }

    /// `goal`, `floor` or `no`; none if nothing is required.
    fn reached(&self) -> Option<&'static str> {
        let Wanted { floor, goal } = self.wanted?;
        let reaches = |mark: f64| if self.limit { self.figure <= mark } else { self.figure >= mark };
        Some(match (reaches(floor), reaches(goal)) {
            (_, true) => "goal",
            (true, false) => "floor",
            (false, false) => "no",
        })
    }
}

/// Requests a second for small requests, bytes a second for large ones.
fn speed_text(bytes_per_second: f64, block: u64) -> String {
    if block < 64 << 10 {
        format!("{:.0} IOPS", bytes_per_second / block as f64)
    } else {
        format!("{:.0} MiB/s", bytes_per_second / (1 << 20) as f64)
    }
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Speeds in bytes a second, one for each round.
    fn report(part: Part, speeds: &[(Subject, &[f64])]) -> Report {
        let mut report = Report { parts: vec![part], size: 1 << 30, ..Report::default() };
        for (subject, speeds) in speeds {
            for (round, speed) in (0..).zip(*speeds) {
                let (subject, bytes_per_second) = (*subject, *speed);
                report.runs.push(Run { job: part, subject, round, bytes_per_second, fio: None, put_off_bytes: 0 });
            }
        }
        report
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // The machine slows down threefold and recovers: that affects the ratio of medians, but not the median of ratios.
        let found =
            report(Part::Read4k, &[(Subject::Braid, &[50.0, 10.0, 30.0]), (Subject::Raw, &[100.0, 20.0, 100.0])]);
        let rows = found.rows();
        assert_eq!(rows.len(), 1, "qemu-nbd did not run, so there is no row for it");
        assert_eq!((rows[0].figure, rows[0].interval, rows[0].reached()), (0.5, None, Some("floor")));
    }

    #[test]
    fn small_writes_are_compared_with_a_quarter() {
        let found = report(Part::Write4k, &[(Subject::Braid, &[86.0; 6]), (Subject::Raw, &[400.0; 6])]);
        let row = &found.rows()[0];
        assert_eq!((row.figure, row.interval, row.reached()), (0.86, Some((0.86, 0.86)), Some("goal")));
        assert!(found.text().contains("0.86 [0.86 to 0.86]"), "{}", found.text());
    }

    #[test]
    fn reads_are_compared_with_the_network_where_that_is_slower() {
        let speeds = |loopback: &'static [f64]| {
            let runs: [(Subject, &[f64]); 3] =
                [(Subject::Braid, &[100.0]), (Subject::Raw, &[400.0]), (Subject::Loopback, loopback)];
            report(Part::Read1m, &runs).rows()[0].figure
        };
        assert_eq!(speeds(&[200.0]), 0.5);
        assert_eq!(speeds(&[1000.0]), 0.25);
    }

    #[test]
    fn limits_are_reached_from_above() {
        let mut found = report(Part::Memory, &[]);
        for (mib, reached) in [(50, "goal"), (51, "floor"), (101, "no")] {
            found.memory = Some(mib << 20);
            assert_eq!(found.rows()[0].reached(), Some(reached), "{mib} MiB");
        }
    }
}
