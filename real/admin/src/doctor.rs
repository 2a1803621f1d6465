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
//! | `services` | monitor, devices, lock servers, metadata servers, their crashes, and volumes |
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

/// One check.
#[derive(Clone, Copy)]
pub struct Check {
    /// Its name, for programs and people.
    pub name: &'static str,
    /// What it looks at.
    pub looks_at: &'static str,
    look: fn(&Examination, &mut Findings),
}

/// All checks, in the order of their report.
pub const CHECKS: [Check; 16] = [
    Check {
        name: "folder",
        looks_at: "whether the array's folder can be written, who holds its lock, and whether it is a copy of one in use",
        look: files::folder,
    },
    Check {
        name: "start",
        looks_at: "whether an array that is down could be started: its files, compared with what its devices say",
        look: files::start,
    },
    Check {
        name: "daemons",
        looks_at: "whether the monitor, the devices, the lock servers and the metadata servers serve",
        look: services::daemons,
    },
    Check {
        name: "volumes",
        looks_at: "whether volumes are served with full redundancy, and ranges that are lost",
        look: services::volumes,
    },
    Check { name: "crashes", looks_at: "daemons whose processes crashed within the last day", look: services::crashes },
    Check { name: "clocks", looks_at: "the wall clocks of devices and hosts", look: time::clocks },
    Check { name: "leases", looks_at: "leases that are not renewed", look: time::leases },
    Check {
        name: "transactions",
        looks_at: "transactions that stay undecided on devices, though their hosts are gone or should have ended them",
        look: time::transactions,
    },
    Check { name: "tables", looks_at: "the fill of journals and of tables with a bound", look: capacity::tables },
    Check {
        name: "space",
        looks_at: "the free space of devices and of the file systems that hold their files, and requests refused for want of space",
        look: capacity::space,
    },
    Check {
        name: "memory",
        looks_at: "the memory of each process, and what it holds for its peers",
        look: capacity::memory,
    },
    Check {
        name: "disks",
        looks_at: "slots that can't be written, corrupt blocks, and damaged leaves of object indexes",
        look: files::disks,
    },
    Check {
        name: "device-files",
        looks_at: "whether the file or disk of each device is there, is that device's, and has its size",
        look: device_files::device_files,
    },
    Check { name: "speed", looks_at: "devices that answer more slowly than the others", look: time::speed },
    Check { name: "modes", looks_at: "who can read and change the array's files", look: files::modes },
    Check {
        name: "versions",
        looks_at: "whether all processes run the program that is installed now",
        look: files::versions,
    },
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
    /// What could not be checked.
    pub not_checked: usize,
}

impl Array {
    /// Examines the array. An array that is not up is no error: what can be checked then is checked.
    pub async fn diagnose(&self) -> Result<Diagnosis, Failure> {
        let mut reader = SnapshotReader::new(self.folder().clone(), "doctor");
        let look = reader.look().await;
        reader.leave();
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
        Diagnosis { schema: 2, dir: look.folder.absolute(), array: look.description.array.to_string(), summary, checks }
    }

    /// All findings, the most severe first.
    pub fn findings(&self) -> Vec<(&CheckReport, &Finding)> {
        let of = |check| -> Vec<_> { CheckReport::findings(check).map(|finding| (check, finding)).collect() };
        let mut all: Vec<_> = self.checks.iter().flat_map(of).collect();
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

    /// The summary as text.
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
    fn report(&self, examination: &Examination) -> CheckReport {
        let mut findings = Findings::default();
        (self.look)(examination, &mut findings);
        findings.report(self.name, self.looks_at)
    }
}
