//! `braid up --background`: starts the same command in a process of its own, which has left the terminal, and returns when it is ready.

use braid_admin::parent_process::this_program;
use braid_admin::{Failure, launch};
use braid_base::units::format_size;
use braid_terminal::Signals;
use serde_json::Value;
use tokio::process::Command;

/// Starts the array in the background. Returns what it announces. If this command is interrupted before that, the array ends.
pub async fn start(has_json: bool, signals: &mut Signals) -> Result<Value, Failure> {
    let mut command = Command::from(this_program());
    // What was to be confirmed is confirmed.
    let given = std::env::args_os().skip(1).filter(|word| word != "--background" && word != "--yes");
    command.args(given).args(["--detached", "--yes"]).args((!has_json).then_some("--json"));
    tokio::select! {
        started = launch::start(command) => Ok(started?.1),
        () = signals.asked_to_end() => Err(Failure::failed("interrupted", "the array was not brought up")),
    }
}

pub fn text_of(said: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let how = if said["created"] == true { "was created" } else { "was opened" };
    let dir = text(&said["dir"]);
    let mut all = format!("the array in {dir} {how}, and is up in the background (process {})\n\n", said["pid"]);
    for volume in said["volumes"].as_array().into_iter().flatten() {
        let size = format_size(volume["size_bytes"].as_u64().unwrap_or_default());
        all += &format!("  volume {}  {size}  {}\n", text(&volume["name"]), text(&volume["nbd"]));
    }
    for entry in said["file_systems"].as_array().into_iter().flatten() {
        all += &format!("  file system {}\n", text(&entry["name"]));
    }
    all + &format!("\nIt logs to {}. Stop it with `braid down --array {dir}`.\n", text(&said["log"]))
}
