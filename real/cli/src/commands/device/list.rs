//! `braid device list`.

use braid_admin::failure::Failure;
use braid_admin::slots;
use braid_base::DeviceId;
use braid_base::units::format_size;
use braid_control::{DeviceEntry, DeviceReport, DeviceState, Moment};
use braid_terminal::Common;
use braid_terminal::output::{self, table};
use serde_json::json;
use std::process::ExitCode;

/// List the devices of an array and its spares: their states, disks, files and volumes
#[derive(clap::Args)]
pub struct Arguments {}

/// Prints the list.
pub fn run(_: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let folder = common.folder();
    let (description, running) = (folder.describe()?, folder.running()?);
    // The report of a monitor that no longer runs is obsolete.
    let monitor = folder.monitor(&Moment::now())?.filter(|_| running.is_some());
    let reports = monitor.map(|monitor| monitor.report.devices).unwrap_or_default();
    let report = |entry: &DeviceEntry| reports.iter().find(|report| report.id == entry.id);
    let process = |entry: &DeviceEntry| running.as_ref().and_then(|running| running.device(DeviceId(entry.id)));
    let volumes = |entry: &DeviceEntry| {
        slots::volumes_on(&description, entry.id).map(|volume| volume.name.as_str()).collect::<Vec<_>>()
    };
    let absolute = folder.absolute();
    output::print(
        common.json,
        || {
            let device = |entry: &DeviceEntry| {
                json!({
                    "id": entry.id,
                    "state": entry.state,
                    "member_state": report(entry).map(|report| report.member_state),
                    "held": report(entry).is_some_and(|report| report.held),
                    "leaves_to": report(entry).and_then(|report| report.leaves_to.as_ref()),
                    "awaits": report(entry).and_then(|report| report.awaits.as_ref()),
                    "join_refused": report(entry).and_then(|report| report.join_refused.as_ref()),
                    "file": entry.path(&absolute),
                    "size": entry.size,
                    "disk": entry.disk.map(|disk| disk.to_string()),
                    "domain": entry.domain,
                    "volumes": volumes(entry),
                    "pid": process(entry).and_then(|process| process.pid),
                    "address": process(entry).map(|process| &process.address).or(entry.address.as_ref()),
                })
            };
            let spares = description.spares.iter().map(
                |spare| json!({"disk": spare.disk.to_string(), "file": spare.path(&absolute), "size": spare.size}),
            );
            json!({
                "schema": 2,
                "devices": description.devices.iter().map(device).collect::<Vec<_>>(),
                "spares": spares.collect::<Vec<_>>(),
            })
        },
        || {
            let words = |words: [&str; 6]| words.map(str::to_string).to_vec();
            let mut rows = vec![words(["DEVICE", "STANDING", "SIZE", "DISK", "VOLUMES", "FILE"])];
            for entry in &description.devices {
                let disk = entry.disk.map(|disk| disk.to_string()).unwrap_or_default();
                let (member_state, size) = (member_state(entry, report(entry)), format_size(entry.size));
                let (volumes, file) = (volumes(entry).join(","), entry.file.display().to_string());
                rows.push(words([&entry.id.to_string(), &member_state, &size, &disk, &volumes, &file]));
            }
            for spare in &description.spares {
                let (size, disk, file) =
                    (format_size(spare.size), spare.disk.to_string(), spare.file.display().to_string());
                rows.push(words(["spare", "ready", &size, &disk, "", &file]));
            }
            table(&rows)
        },
    );
    Ok(ExitCode::SUCCESS)
}

/// The state of a device as text.
pub fn member_state(entry: &DeviceEntry, report: Option<&DeviceReport>) -> String {
    match (entry.state, report) {
        (DeviceState::Adding, _) => "being added".to_string(),
        (DeviceState::Removing, _) => "being removed".to_string(),
        (DeviceState::Ready, None) => "unknown".to_string(),
        (DeviceState::Ready, Some(report)) => {
            let more = match report {
                DeviceReport { awaits: Some(_), .. } => ", awaits its new disk",
                DeviceReport { leaves_to: Some(_), .. } => ", to be replaced",
                DeviceReport { held: true, .. } => ", taken out",
                DeviceReport { join_refused: Some(_), .. } => ", refused",
                _ => "",
            };
            format!("{}{more}", report.member_state.name())
        }
    }
}
