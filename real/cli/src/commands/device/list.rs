//! `braid device list`: prints the devices and spares of an array.

use crate::report;
use braid_admin::location::{DeviceOverview, Devices};
use braid_admin::{Array, Failure};
use braid_base::units::format_size;
use braid_terminal::Common;
use braid_terminal::output::table;
use serde_json::json;
use std::process::ExitCode;

/// List the devices of an array and its spares: their membership, disks, files and volumes
#[derive(clap::Args)]
pub struct Arguments {}

/// Prints the list.
pub async fn run(_: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    let devices = array.devices().await?;
    report::done(common.json, json(&array, &devices), || text(&devices))
}

fn json(array: &Array, Devices { devices, spares }: &Devices) -> serde_json::Value {
    let device = |device: &DeviceOverview| {
        let (entry, report) = (&device.entry, device.report.as_ref());
        json!({
            "id": entry.id,
            "lifecycle": entry.state,
            "member_state": report.map(|report| report.member_state),
            "kept_out": report.is_some_and(|report| report.kept_out),
            "next_disk": report.and_then(|report| report.next_disk.as_ref()),
            "awaited_disk": report.and_then(|report| report.awaited_disk.as_ref()),
            "join_refused": report.and_then(|report| report.join_refused.as_ref()),
            "file": device.file,
            "size_bytes": entry.size,
            "disk": entry.disk.map(|disk| disk.to_string()),
            "domain": entry.domain,
            "volumes": device.volumes,
            "pid": device.pid,
            "address": device.address,
        })
    };
    let folder = array.control().local().absolute();
    let spares = spares
        .iter()
        .map(|spare| json!({"disk": spare.disk.to_string(), "file": spare.path(&folder), "size_bytes": spare.size}));
    json!({
        "devices": devices.iter().map(device).collect::<Vec<_>>(),
        "spares": spares.collect::<Vec<_>>(),
    })
}

fn text(Devices { devices, spares }: &Devices) -> String {
    let words = |words: [&str; 6]| words.map(str::to_string).to_vec();
    let mut rows = vec![words(["DEVICE", "MEMBERSHIP", "SIZE", "DISK", "VOLUMES", "FILE"])];
    for device in devices {
        let entry = &device.entry;
        let disk = entry.disk.map(|disk| disk.to_string()).unwrap_or_default();
        let (volumes, file) = (device.volumes.join(","), entry.file.display().to_string());
        let (id, size) = (entry.id.to_string(), format_size(entry.size));
        rows.push(words([&id, &device.words(), &size, &disk, &volumes, &file]));
    }
    for spare in spares {
        let (size, disk, file) = (format_size(spare.size), spare.disk.to_string(), spare.file.display().to_string());
        rows.push(words(["spare", "ready", &size, &disk, "", &file]));
    }
    table(&rows)
}
