//! Why a command failed: a code that stays the same, a sentence, a hint, an exit status.

use braid_terminal::output::ErrorReport;
use std::process::ExitCode;

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    code: &'static str,
    message: String,
    hint: Option<String>,
    exit: Exit,
}

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It could not be done.
    Failed = 1,
    /// It was asked for in a way that can't be.
    Usage = 2,
    /// Something is not there.
    Unreachable = 3,
    /// A check found something wrong.
    DataLost = 4,
}

impl Failure {
    /// It could not be done.
    pub fn failed(code: &'static str, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), hint: None, exit: Exit::Failed }
    }

    /// It was asked for in a way that can't be.
    pub fn usage(code: &'static str, message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Usage, ..Failure::failed(code, message) }
    }

    /// Something is not there.
    pub fn unreachable(code: &'static str, message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Unreachable, ..Failure::failed(code, message) }
    }

    /// The same, with advice.
    pub fn hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }

    /// A file that can't be read or written.
    pub fn file(path: &std::path::Path, error: &std::io::Error) -> Failure {
        let message = format!("{}: {error}", path.display());
        match error.kind() {
            std::io::ErrorKind::NotFound => Failure::unreachable("no-such-file", message),
            std::io::ErrorKind::PermissionDenied => Failure::failed("permission-denied", message),
            _ => Failure::failed("system", message),
        }
    }

    /// Reports it, to people or programs. The exit status.
    pub fn report(&self, as_json: bool) -> ExitCode {
        let Failure { code, message, hint, exit } = self;
        ErrorReport { code, message, hint: hint.as_deref(), status: *exit as u8 }.print(as_json)
    }
}
