//! Findings of the doctor's checks: what is wrong with which part of the array, and what to do; and what could not be checked.

use braid_base::{DeviceId, Generation, LockServerId};
use serde::{Serialize, Serializer};
use std::fmt;
use std::path::PathBuf;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing has to be done.
    Note,
    /// Something should be done.
    Warning,
    /// Something does not work, or soon will not.
    Error,
}

braid_base::names!(Severity { Note => "note", Warning => "warning", Error => "error" });

/// The part of the array that a finding concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Array,
    Monitor,
    Device(DeviceId),
    LockServer(LockServerId),
    /// The metadata server of this file system.
    MetadataServer(String),
    FileSystem(String),
    Volume(String),
    /// A node, or a process that is none of these any more, by its name.
    Process(String),
    Host(Generation, String),
    File(PathBuf),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Array => f.write_str("the array"),
            Subject::Monitor => f.write_str("the monitor"),
            Subject::Device(id) => write!(f, "device {id}"),
            Subject::LockServer(id) => write!(f, "lock server {id}"),
            Subject::MetadataServer(name) => write!(f, "the metadata server of {name}"),
            Subject::FileSystem(name) => write!(f, "file system {name}"),
            Subject::Volume(name) => write!(f, "volume {name}"),
            Subject::Process(name) => f.write_str(name),
            Subject::Host(generation, role) => write!(f, "host {generation} ({role})"),
            Subject::File(path) => write!(f, "{}", path.display()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    #[serde(serialize_with = "subject_text")]
    pub subject: Subject,
    /// What is wrong, as a part of a sentence that begins with the subject.
    pub text: String,
    /// What to do; none if nothing has to be done.
    pub action: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    pub name: &'static str,
    pub looks_at: &'static str,
    pub findings: Vec<Finding>,
    /// What could not be checked, and why.
    pub not_checked: Vec<String>,
}

/// What a check finds while it looks.
#[derive(Debug, Default)]
pub struct Findings {
    findings: Vec<Finding>,
    not_checked: Vec<String>,
}

impl Findings {
    /// Something is worth knowing; nothing has to be done.
    pub fn note(&mut self, subject: Subject, text: impl Into<String>) {
        self.findings.push(Finding { severity: Severity::Note, subject, text: text.into(), action: None });
    }

    /// Something is wrong, and this is to be done.
    pub fn found(&mut self, severity: Severity, subject: Subject, text: impl Into<String>, action: impl Into<String>) {
        self.findings.push(Finding { severity, subject, text: text.into(), action: Some(action.into()) });
    }

    /// Something should be done.
    pub fn warning(&mut self, subject: Subject, text: impl Into<String>, action: impl Into<String>) {
        self.found(Severity::Warning, subject, text, action);
    }

    /// Something does not work, or soon will not.
    pub fn error(&mut self, subject: Subject, text: impl Into<String>, action: impl Into<String>) {
        self.found(Severity::Error, subject, text, action);
    }

    /// A part of the array could not be checked, for this reason.
    pub fn not_checked(&mut self, subject: &Subject, why: &str) {
        self.not_checked.push(format!("{subject}: {why}"));
    }

    pub fn report(self, name: &'static str, looks_at: &'static str) -> CheckReport {
        CheckReport { name, looks_at, findings: self.findings, not_checked: self.not_checked }
    }
}

fn subject_text<S: Serializer>(subject: &Subject, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(subject)
}
