//! `braid device locate`.

use super::list::member_state;
use braid_admin::failure::Failure;
use braid_admin::{slots, volumes};
use braid_base::units::format_size;
use braid_base::{BLOCK_BYTES, DeviceId};
use braid_control::ArrayDescription;
use braid_layout::VolumeDescription;
use braid_terminal::Common;
use braid_terminal::arguments::size;
use braid_terminal::output::{self, table};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Show what lies on a device, or on which devices bytes of a volume lie
///
/// A volume lies on its devices in rows of units; a stripe is a row over adjacent devices of the
/// volume's ring. For each volume on the device, this shows the device's position on the ring, the
/// space used on the device, and the first bytes of the volume that lie on it: the rest follows the
/// same pattern, and `--volume V --offset B` locates any byte.
///
/// Examples:
///   braid device locate 3
///   braid device locate --volume vol0 --offset 1GiB
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// The number of the device
    #[arg(required_unless_present = "volume", conflicts_with_all = ["volume", "offset"])]
    device: Option<u16>,
    /// The volume
    #[arg(long, requires = "offset")]
    volume: Option<String>,
    /// An offset in the volume: 0, 1GiB, 4096
    #[arg(long, requires = "volume", value_parser = size)]
    offset: Option<u64>,
}

/// Stripes whose units are listed.
const STRIPES_NAMED: u64 = 3;

/// Prints the locations.
pub fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let description = common.folder().describe()?;
    match (arguments.device, arguments.volume, arguments.offset) {
        (Some(id), ..) => device(id, &description, common)?,
        (None, Some(name), Some(offset)) => bytes(&name, offset, &description, common)?,
        _ => unreachable!("the parser demands one or the other"),
    }
    Ok(ExitCode::SUCCESS)
}

fn device(id: u16, description: &ArrayDescription, common: &Common) -> Result<(), Failure> {
    let folder = common.folder();
    let entry = slots::find(description, id)?;
    let running = folder.running()?;
    let process = running.as_ref().and_then(|running| running.device(DeviceId(id)));
    let report = slots::report_of(&folder, id)?.filter(|_| running.is_some());
    let member_state = member_state(entry, report.as_ref());
    let mut lies = Vec::new();
    for entry in slots::volumes_on(description, id) {
        let volume = volumes::describe(entry)?;
        let target = volume.target();
        let sides = [(Some(volume), false), (target, true)].into_iter();
        let sides = sides.filter_map(|(volume, moving)| volume.map(|volume| (volume, moving)));
        lies.extend(sides.filter_map(|(volume, moving)| Located::of(&entry.name, volume, moving, DeviceId(id))));
    }
    let file = entry.path(&folder.absolute());
    let disk = entry.disk.map(|disk| disk.to_string());
    let address = process.map(|process| process.address.as_str()).or(entry.address.as_deref());
    output::print(
        common.json,
        || {
            json!({
                "schema": 2,
                "device": id,
                "state": entry.state,
                "member_state": report.as_ref().map(|report| report.member_state),
                "file": file,
                "size": entry.size,
                "disk": disk,
                "domain": entry.domain,
                "pid": process.and_then(|process| process.pid),
                "address": address,
                "volumes": lies.iter().map(Located::json).collect::<Vec<_>>(),
            })
        },
        || {
            let line = |name: &str, value: String| vec![name.to_string(), value];
            let pid = process.and_then(|process| process.pid).map_or("none".to_string(), |pid| pid.to_string());
            let mut text = table(&[
                line("device", format!("{id}, {member_state}")),
                line("file", format!("{}, {}", file.display(), format_size(entry.size))),
                line("disk", disk.clone().unwrap_or_default()),
                line("process", format!("{pid}, at {}", address.unwrap_or("no address"))),
            ]);
            if lies.is_empty() {
                text += "\nno volume lies on it\n";
            }
            lies.iter().for_each(|lie| text += &lie.text());
            text
        },
    );
    Ok(())
}

/// The part of a volume on a device.
struct Located<'a> {
    name: &'a str,
    volume: VolumeDescription,
    /// True if the volume is migrating to the device, so that the copy may be incomplete.
    moving: bool,
    position: usize,
    bytes: u64,
    /// For the first stripes: the first byte of the volume, the length, and the kind of unit.
    units: Vec<(u64, u64, &'static str)>,
}

impl<'a> Located<'a> {
    fn of(name: &'a str, volume: VolumeDescription, moving: bool, device: DeviceId) -> Option<Located<'a>> {
        let layout = &volume.layout;
        let position = volume.devices.iter().position(|other| *other == device)?;
        let block = BLOCK_BYTES as u64;
        let (unit, stripe_bytes) = (layout.unit_blocks() * block, layout.stripe_blocks() * block);
        let mut units = Vec::new();
        let mut named = 0;
        for stripe in 0..volume.stripes() {
            let before = units.len();
            let data = (0..layout.data_units()).find(|data| layout.data_unit(stripe, *data).position == position);
            if let Some(data) = data {
                let first = stripe * stripe_bytes + data as u64 * unit;
                if first < volume.bytes {
                    units.push((first, unit.min(volume.bytes - first), "data"));
                }
            } else if (0..layout.redundancy_units())
                .any(|unit| layout.redundancy_unit(stripe, unit).position == position)
            {
                let what = if layout.data_units() == 1 { "copy" } else { "parity of" };
                let first = stripe * stripe_bytes;
                units.push((first, stripe_bytes.min(volume.bytes - first), what));
            }
            named += u64::from(units.len() > before);
            if named == STRIPES_NAMED {
                break;
            }
        }
        let bytes = volume.component_blocks() * block;
        Some(Located { name, volume, moving, position, bytes, units })
    }

    fn json(&self) -> Value {
        let units = self.units.iter();
        let units = units.map(|(offset, length, what)| json!({"what": what, "offset": offset, "length": length}));
        json!({
            "name": self.name,
            "moving_there": self.moving,
            "layout": self.volume.layout.scheme().to_string(),
            "position": self.position,
            "of": self.volume.devices.len(),
            "bytes": self.bytes,
            "unit": self.unit(),
            "first_units": units.collect::<Vec<_>>(),
        })
    }

    fn unit(&self) -> u64 {
        self.volume.layout.unit_blocks() * BLOCK_BYTES as u64
    }

    fn text(&self) -> String {
        let Located { name, volume, moving, position, bytes, units } = self;
        let (of, moving) = (volume.devices.len(), if *moving { ", as target of a migration" } else { "" });
        let (scheme, bytes) = (volume.layout.scheme(), format_size(*bytes));
        let mut text = format!(
            "\nvolume {name}: {scheme}, position {position} of {of} on its ring{moving}, {bytes} of the device\n"
        );
        for (offset, length, what) in units {
            text += &format!("  {what} bytes {offset} to {}\n", offset + length - 1);
        }
        text + "  and so on, in units of " + &format_size(self.unit()) + "\n"
    }
}

fn bytes(name: &str, offset: u64, description: &ArrayDescription, common: &Common) -> Result<(), Failure> {
    let volume = volumes::describe(volumes::find(description, name)?)?;
    if offset >= volume.bytes {
        let message = format!("volume '{name}' has {} bytes, so offset {offset} is beyond its end", volume.bytes);
        return Err(Failure::usage("bad-offset", message));
    }
    let block = BLOCK_BYTES as u64;
    let (device, at, others) = slots::devices_of_block(&volume, offset / block);
    let within = offset % block;
    output::print(
        common.json,
        || {
            let other = |(device, at, what): &(DeviceId, u64, &str)| json!({"device": device.0, "what": what, "component_offset": at * block});
            json!({
                "schema": 2,
                "volume": name,
                "offset": offset,
                "device": device.0,
                "component_offset": at * block + within,
                "object": volume.id.object().0,
                "others": others.iter().map(other).collect::<Vec<_>>(),
            })
        },
        || {
            let mut text = format!(
                "byte {offset} of volume {name}: device {}, byte {} of its component\n",
                device.0,
                at * block + within
            );
            for (device, at, what) in &others {
                text += &format!("  {what}: device {}, byte {} of its component\n", device.0, at * block);
            }
            text
        },
    );
    Ok(())
}
