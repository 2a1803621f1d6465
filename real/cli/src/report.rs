//! Output about failures, and announcements of servers that this program runs.

use braid_admin::Failure;
use braid_base::DeviceId;
use braid_shell::Address;
use braid_terminal::output::{self, ErrorReport};
use serde_json::Value;
use std::process::ExitCode;

/// Reports a failure: as text on standard error, or as JSON on standard output. Returns the exit status.
pub fn failure(failure: &Failure, as_json: bool) -> ExitCode {
    let Failure { code, message, hint, exit } = failure;
    ErrorReport { code, message, hint: hint.as_deref(), status: *exit as u8 }.print(as_json)
}

/// Prints a result of a command: `json` with the version of its format for programs, or `text` for people.
pub fn print(as_json: bool, mut json: Value, text: impl FnOnce() -> String) {
    json["schema"] = 2.into();
    output::print(as_json, || json, text);
}

/// Prints the result of a command that is done.
pub fn done(as_json: bool, json: Value, text: impl FnOnce() -> String) -> Result<ExitCode, Failure> {
    print(as_json, json, text);
    Ok(ExitCode::SUCCESS)
}

/// The names of devices in one line.
pub fn device_list(devices: &[u16]) -> String {
    devices.iter().map(|id| DeviceId(*id).to_string()).collect::<Vec<_>>().join(" ")
}

/// Announces that a server serves, to the program that started it, or to the user.
pub fn announce(as_json: bool, name: &str, address: &Address, mut more: Value) {
    more["ready"] = true.into();
    more["address"] = address.to_string().into();
    more["pid"] = std::process::id().into();
    print(as_json, more, || format!("{name} serves at {address}\n"));
}
