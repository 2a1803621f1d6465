//! The doctor examines an array, and says in plain words what is wrong and what to do (`braid doctor`).
//!
//! The checks are data: each has a name, says what it looks at, and turns an [`Examination`] into findings. A finding is a note (nothing has
//! to be done), a warning (something should be done) or an error (something does not work, or soon will not). What a check could not look
//! at is listed with the reason: silence must not look like health.
//!
//! | module | what |
//! | --- | --- |
//! | [`finding`] | findings, and what could not be checked |
//! | [`examination`] | everything that checks look at: a snapshot of the array, its files, and the processes on this machine |
//! | `services` | monitor, devices, lock servers, metadata servers, their crashes, mounts, and volumes |
//! | `time` | clocks, leases, and transactions that nobody decides |
//! | `capacity` | tables, journals, memory and file systems that are nearly full |
//! | `device_files` | the files and disks of devices |
//! | `files` | the start, bad slots, file modes and program files |

mod capacity;
mod device_files;
pub mod examination;
mod files;
pub mod finding;
mod services;
#[cfg(test)]
mod tests;
mod time;

pub use examination::Examination;
pub use finding::{CheckReport, Finding, Findings, Severity, Subject};

use crate::array::Array;
use crate::failure::Failure;
use crate::snapshot::{ArraySnapshot, SnapshotReader};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Clone, Copy)]
pub struct Check {
    /// Its name, for programs and people.
    pub name: &'static str,
    pub looks_at: &'static str,
    look: fn(&Examination, &mut Findings),
    /// True if it looks at processes, so that it needs an array that is up.
    needs_up: bool,
}

/// All checks, in the order of their report.
pub const CHECKS: [Check; 17] = [
    Check::of_files(
        "folder",
        "whether the array's folder can be written, who holds its lock, and whether it is a copy of one in use",
        files::folder,
    ),
    Check::of_files(
        "start",
        "whether an array that is down was killed, and could be started: its files, compared with what its devices say",
        files::start,
    ),
    Check::of_processes(
        "daemons",
        "whether the monitor, the devices, the lock servers and the metadata servers serve",
        services::daemons,
    ),
    Check::of_files(
        "volumes",
        "whether volumes are served with full redundancy, and ranges that are lost",
        services::volumes,
    ),
    Check::of_files("mounts", "folders of this machine whose mount is dead", services::mounts),
    Check::of_files("crashes", "daemons whose processes crashed within the last day", services::crashes),
    Check::of_processes("clocks", "the wall clocks of devices and hosts", time::clocks),
    Check::of_processes("leases", "leases that are not renewed", time::leases),
    Check::of_processes(
        "transactions",
        "transactions that stay undecided on devices, though their hosts are gone or should have ended them",
        time::transactions,
    ),
    Check::of_processes("tables", "the fill of journals and of tables with a bound", capacity::tables),
    Check::of_files(
        "space",
        "the free space of devices and of the file systems that hold their files, and requests refused for want of space",
        capacity::space,
    ),
    Check::of_processes("memory", "the memory of each process, and what it holds for its peers", capacity::memory),
    Check::of_processes(
        "disks",
        "slots that can't be written, corrupt blocks, and damaged leaves of object indexes",
        files::disks,
    ),
    Check::of_files(
        "device-files",
        "whether the file or disk of each device is there, is that device's, and has its size",
        device_files::device_files,
    ),
    Check::of_processes("speed", "devices that answer more slowly than the others", time::speed),
    Check::of_files("modes", "who can read and change the array's files", files::modes),
    Check::of_processes("versions", "whether all processes run the program that is installed now", files::versions),
];

/// The doctor's report. Its JSON form is that of `braid doctor --json`; later releases only add fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The version of this format.
    pub schema: u32,
    pub dir: PathBuf,
    /// The array's UUID.
    pub array: String,
    #[serde(flatten)]
    pub summary: Summary,
    pub checks: Vec<CheckReport>,
}

/// How much the doctor has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub errors: usize,
    pub warnings: usize,
    pub notes: usize,
    pub not_checked: usize,
}

impl Array {
    /// Examines the array. An array that is not up is no error: what can be checked then is checked.
    pub async fn diagnose(&self) -> Result<Diagnosis, Failure> {
        let mut reader = SnapshotReader::new(self.control().clone(), "doctor");
        let look = reader.look().await;
        reader.leave().await;
        Ok(Diagnosis::of(&look?))
    }
}

impl Diagnosis {
    /// The diagnosis of an array in this state. It reads the array's folder and the processes of this machine.
    pub fn of(look: &ArraySnapshot) -> Diagnosis {
        Diagnosis::from(&Examination::of(look))
    }

    fn from(examination: &Examination) -> Diagnosis {
        let checks: Vec<_> = CHECKS.iter().map(|check| check.report(examination)).collect();
        let count = |severity| {
            checks.iter().flat_map(|check| &check.findings).filter(|found| found.severity == severity).count()
        };
        let summary = Summary {
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            notes: count(Severity::Note),
            not_checked: checks.iter().map(|check| check.not_checked.len()).sum(),
        };
        let look = examination.look;
        let (dir, array) = (look.control.local().absolute(), look.description.array.to_string());
        Diagnosis { schema: 2, dir, array, summary, checks }
    }

    /// All findings, the most severe first.
    pub fn findings(&self) -> Vec<(&CheckReport, &Finding)> {
        let all = self.checks.iter().flat_map(|check| check.findings.iter().map(move |finding| (check, finding)));
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|(_, finding)| std::cmp::Reverse(finding.severity));
        all
    }

    /// True if something about this part of the array is a warning or an error.
    pub fn concerns(&self, subject: &Subject) -> bool {
        let findings = self.checks.iter().flat_map(|check| &check.findings);
        findings.into_iter().any(|finding| finding.severity > Severity::Note && finding.subject == *subject)
    }
}

impl Summary {
    /// True if there is nothing to do.
    pub fn is_healthy(self) -> bool {
        self.errors + self.warnings == 0
    }

    pub fn words(self) -> String {
        let counted = |count: usize, noun: &str| match count {
            0 => None,
            1 => Some(format!("1 {noun}")),
            _ => Some(format!("{count} {noun}s")),
        };
        let parts = [counted(self.errors, "error"), counted(self.warnings, "warning"), counted(self.notes, "note")];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "nothing is wrong".to_string() } else { parts.join(", ") }
    }
}

impl Check {
    const fn of_files(name: &'static str, looks_at: &'static str, look: fn(&Examination, &mut Findings)) -> Check {
        Check { name, looks_at, look, needs_up: false }
    }

    const fn of_processes(name: &'static str, looks_at: &'static str, look: fn(&Examination, &mut Findings)) -> Check {
        Check { needs_up: true, ..Check::of_files(name, looks_at, look) }
    }

    fn report(&self, examination: &Examination) -> CheckReport {
        let mut findings = Findings::default();
        match self.needs_up && examination.look.running.is_none() {
            true => findings.not_checked(&Subject::Array, services::NOT_UP),
            false => (self.look)(examination, &mut findings),
        }
        findings.report(self.name, self.looks_at)
    }
}
