//! `braid device list` and `locate`: the devices and spares of an array, and which bytes of volumes lie on which device.

use crate::report;
use braid_admin::location::{
    ByteLocation, DeviceContent, DeviceOverview, Devices, LocatedUnit, RelatedBlock, VolumePart,
};
use braid_admin::{Array, Failure};
use braid_base::units::format_size;
use braid_control::DiskEntry;
use braid_terminal::Common;
use braid_terminal::arguments::size;
use braid_terminal::output::{named, titled};
use serde_json::{Value, json};
use std::process::ExitCode;

/// List the devices of an array and its spares: their membership, disks, files and volumes
#[derive(clap::Args)]
pub struct ListArgs {}

pub async fn list(_: ListArgs, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    let devices = array.devices().await?;
    report::done(common.json, json_of_devices(&array, &devices), || text_of_devices(&devices))
}

fn json_of_devices(array: &Array, Devices { devices, spares }: &Devices) -> Value {
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

fn text_of_devices(Devices { devices, spares }: &Devices) -> String {
    let of_device = |device: &DeviceOverview| {
        let entry = &device.entry;
        let disk = entry.disk.map(|disk| disk.to_string()).unwrap_or_default();
        let (volumes, file) = (device.volumes.join(","), entry.file.display().to_string());
        [entry.id.to_string(), device.words(), format_size(entry.size), disk, volumes, file]
    };
    let of_spare = |spare: &DiskEntry| {
        let (size, disk, file) = (format_size(spare.size), spare.disk.to_string(), spare.file.display().to_string());
        ["spare".to_string(), "ready".to_string(), size, disk, String::new(), file]
    };
    let titles = ["DEVICE", "MEMBERSHIP", "SIZE", "DISK", "VOLUMES", "FILE"];
    titled(titles, devices.iter().map(of_device).chain(spares.iter().map(of_spare)))
}

/// Show what lies on a device, or on which devices bytes of a volume lie
///
/// A volume lies on a ring of devices; a stripe has one unit on each of some adjacent devices. For
/// each volume on the device, this shows the device's position on the ring, the space that the
/// volume uses on the device, and the first bytes of the volume that lie there. The rest follows the
/// same pattern: `--volume V --offset B` locates any byte.
///
/// Examples:
///   braid device locate 3
///   braid device locate --volume vol0 --offset 1GiB
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct LocateArgs {
    /// The number of the device
    #[arg(value_parser = braid_terminal::arguments::device, required_unless_present = "volume", conflicts_with_all = ["volume", "offset"])]
    device: Option<u16>,
    /// The volume
    #[arg(long, requires = "offset")]
    volume: Option<String>,
    /// An offset in the volume: 0, 1GiB, 4096
    #[arg(long, requires = "volume", value_parser = size)]
    offset: Option<u64>,
}

pub async fn locate(arguments: LocateArgs, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    match (arguments.device, arguments.volume, arguments.offset) {
        (Some(id), ..) => {
            let content = array.content_of_device(id).await?;
            report::print(common.json, json_of_device(&content), || text_of_device(&content));
        }
        (None, Some(name), Some(offset)) => {
            let location = array.locate(&name, offset).await?;
            let json = json_of_byte(&name, offset, &location);
            report::print(common.json, json, || text_of_byte(&name, offset, &location));
        }
        _ => unreachable!("the parser demands one or the other"),
    }
    Ok(ExitCode::SUCCESS)
}

fn json_of_device(DeviceContent { device, parts }: &DeviceContent) -> Value {
    json!({
        "device": device.entry.id,
        "lifecycle": device.entry.state,
        "member_state": device.report.as_ref().map(|report| report.member_state),
        "file": device.file,
        "size_bytes": device.entry.size,
        "disk": device.entry.disk.map(|disk| disk.to_string()),
        "domain": device.entry.domain,
        "pid": device.pid,
        "address": device.address,
        "volumes": parts.iter().map(json_of_part).collect::<Vec<_>>(),
    })
}

fn text_of_device(DeviceContent { device, parts }: &DeviceContent) -> String {
    let pid = device.pid.map_or("none".to_string(), |pid| pid.to_string());
    let mut text = named([
        ("device", format!("{}, {}", device.entry.id, device.words())),
        ("file", format!("{}, {}", device.file.display(), format_size(device.entry.size))),
        ("disk", device.entry.disk.map(|disk| disk.to_string()).unwrap_or_default()),
        ("pid", format!("{pid}, at {}", device.address.as_deref().unwrap_or("no address"))),
    ]);
    if parts.is_empty() {
        text += "\nno volume lies on it\n";
    }
    text + &parts.iter().map(text_of_part).collect::<String>()
}

fn json_of_part(part: &VolumePart) -> Value {
    json!({
        "name": part.name,
        "migration_target": part.moving,
        "layout": part.volume.layout.scheme().to_string(),
        "position": part.position,
        "ring_length": part.volume.devices.len(),
        "component_bytes": part.bytes,
        "unit_bytes": part.unit(),
        "first_units": part.first_units,
    })
}

fn text_of_part(part: &VolumePart) -> String {
    let VolumePart { name, volume, moving, position, bytes, first_units } = part;
    let (of, moving) = (volume.devices.len(), if *moving { ", as target of a migration" } else { "" });
    let (scheme, bytes) = (volume.layout.scheme(), format_size(*bytes));
    let mut text =
        format!("\nvolume {name}: {scheme}, position {position} of {of} on its ring{moving}, {bytes} of the device\n");
    for LocatedUnit { kind, offset, length } in first_units {
        let kind = if *kind == "parity" { "parity of" } else { kind };
        text += &format!("  {kind} bytes {offset} to {}\n", offset + length - 1);
    }
    text + "  and so on, in units of " + &format_size(part.unit()) + "\n"
}

fn json_of_byte(name: &str, offset: u64, location: &ByteLocation) -> Value {
    json!({
        "volume": name,
        "offset": offset,
        "device": location.device.0,
        "component_offset": location.component_offset,
        "object": location.volume.id.object().0,
        "others": location.others,
    })
}

fn text_of_byte(name: &str, offset: u64, location: &ByteLocation) -> String {
    let (device, at) = (location.device.0, location.component_offset);
    let mut text = format!("byte {offset} of volume {name}: device {device}, byte {at} of its component\n");
    for RelatedBlock { device, component_offset, kind } in &location.others {
        let kind = if *kind == "data" { "data of the same stripe" } else { kind };
        text += &format!("  {kind}: device {}, byte {component_offset} of its component\n", device.0);
    }
    text
}
