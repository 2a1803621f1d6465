//! Output about failures, and announcements of servers that this program runs.

use braid_admin::failure::Failure;
use braid_shell::Address;
use braid_terminal::output::{self, ErrorReport};
use serde_json::json;
use std::process::ExitCode;

/// Reports a failure: as text on standard error, or as JSON on standard output. Returns the exit status.
pub fn failure(failure: &Failure, as_json: bool) -> ExitCode {
    let Failure { code, message, hint, exit } = failure;
    ErrorReport { code, message, hint: hint.as_deref(), status: *exit as u8 }.print(as_json)
}

/// Prints the result of a command that is done, for people or for programs.
pub fn done(
    as_json: bool,
    json: impl FnOnce() -> serde_json::Value,
    text: impl FnOnce() -> String,
) -> Result<ExitCode, Failure> {
    output::print(as_json, json, text);
    Ok(ExitCode::SUCCESS)
}

/// Announces that a server serves, to the program that started it, or to the user.
pub fn announce(as_json: bool, name: &str, address: &Address, more: serde_json::Value) {
    output::print(
        as_json,
        || {
            let mut said =
                json!({"schema": 2, "ready": true, "address": address.to_string(), "pid": std::process::id()});
            let more = more.as_object().cloned().unwrap_or_default();
            said.as_object_mut().expect("it is an object").extend(more);
            said
        },
        || format!("{name} serves at {address}\n"),
    );
}
