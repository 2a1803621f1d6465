//! Errors of commands: a stable code, a message, a hint, an exit status.

use braid_terminal::output::ErrorReport;
use std::process::ExitCode;

/// An error of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    code: &'static str,
    message: String,
    hint: Option<String>,
    exit: Exit,
}

/// The exit status of a failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The operation failed.
    Failed = 1,
    /// The request is invalid.
    Usage = 2,
    /// A file or folder does not exist.
    Unreachable = 3,
    /// A check found lost or wrong data.
    DataLost = 4,
}

impl Failure {
    pub fn failed(code: &'static str, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), hint: None, exit: Exit::Failed }
    }

    pub fn usage(code: &'static str, message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Usage, ..Failure::failed(code, message) }
    }

    pub fn unreachable(code: &'static str, message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Unreachable, ..Failure::failed(code, message) }
    }

    pub fn hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }

    /// An error of reading or writing a file.
    pub fn file(path: &std::path::Path, error: &std::io::Error) -> Failure {
        let message = format!("{}: {error}", path.display());
        match error.kind() {
            std::io::ErrorKind::NotFound => Failure::unreachable("no-such-file", message),
            std::io::ErrorKind::PermissionDenied => Failure::failed("permission-denied", message),
            _ => Failure::failed("system", message),
        }
    }

    /// Reports the error, for readers or as JSON. Returns the exit status.
    pub fn report(&self, as_json: bool) -> ExitCode {
        let Failure { code, message, hint, exit } = self;
        ErrorReport { code, message, hint: hint.as_deref(), status: *exit as u8 }.print(as_json)
    }
}
