//! `braid upgrade`: which programs are of an older release, and when the formats of the new one may be used.

use crate::report;
use braid_admin::Failure;
use braid_admin::array::Array;
use braid_base::Level;
use braid_control::UpgradeReport;
use braid_terminal::Common;
use serde_json::json;
use std::process::ExitCode;

/// Move an array to a new release, program by program
///
/// An array has a level. Each release knows one or two, and its programs write only what every release that knows the array's level can read.
/// So each program can be restarted with the next release while the others go on, and also put back. When all are of the new release,
/// `braid upgrade finish` raises the level. docs/upgrades.md describes it.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show the level of the array, and which programs do not know the next one
    Status,
    /// Raise the level, so that the new release may use its formats; there is no way back
    Finish,
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    match command {
        Command::Status => {
            let report = array.upgrade().await?;
            let (next, older) = (report.next(), array.older_monitors(&report).await?);
            let json = json!({
                "level": report.level, "next": next, "release_knows": Level::KNOWN, "monitor_knows": report.knows,
                "older_devices": report.older_devices, "older_hosts": report.older_hosts,
                "older_lock_servers": report.older_lock_servers, "older_monitors": older,
            });
            report::done(common.json, json, || status(&report, older))
        }
        Command::Finish => {
            let level = array.finish_upgrade().await?;
            report::done(common.json, json!({ "level": level }), || format!("the array has level {level}\n"))
        }
    }
}

fn status(report: &UpgradeReport, monitors: Vec<String>) -> String {
    let mut text = format!("the array has level {}, and this release knows level {}\n", report.level, Level::KNOWN);
    let Some(next) = report.next() else { return text + "nothing to finish\n" };
    if report.knows < next {
        text += &format!("the monitor does not know level {next}\n");
    }
    let devices = report.older_devices.iter().map(u16::to_string).collect::<Vec<_>>();
    let hosts = report.older_hosts.iter().map(u32::to_string).collect::<Vec<_>>();
    let is_ready = report.is_ready() && monitors.is_empty();
    for (kind, which) in [("devices", devices), ("hosts", hosts), ("machines with monitors", monitors)] {
        if !which.is_empty() {
            text += &format!("{kind} that do not know level {next}: {}\n", which.join(", "));
        }
    }
    if report.older_lock_servers > 0 {
        text += &format!("lock servers that do not know level {next}: {}\n", report.older_lock_servers);
    }
    let end = if is_ready { "ready: `braid upgrade finish`" } else { "restart these with the new release first" };
    text + end + "\n"
}
