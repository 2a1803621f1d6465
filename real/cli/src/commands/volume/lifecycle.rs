//! `braid volume create`, `list`, `info` and `delete`: volumes of a running array.

use crate::commands::confirmation::confirm_deletion;
use crate::report;
use braid_admin::{Array, Failure, NewVolume, volumes};
use braid_base::units::format_size;
use braid_control::{VolumeEntry, VolumeState};
use braid_layout::{Atomicity, RaidLevel, SitePolicy};
use braid_ordering::Ordering;
use braid_terminal::Common;
use braid_terminal::arguments::{self, atomicity, ordering, size};
use braid_terminal::output::{named, table};
use serde_json::json;
use std::process::ExitCode;

/// Create a volume on all devices of a running array
///
/// The volume's space is reserved on the devices, but not written: the volume reads as zeros. Running
/// servers (`braid up`, `braid nbd`) serve it at once. `braid status` shows the free space of each
/// device. An array that was created without --volume has half of its space left: the other half is
/// its first volume, vol0.
///
/// Examples: `braid up --volume db:4GiB`, and later
///   braid volume create scratch --size 2GiB --layout raid1:2
///   braid volume create fast --size 1GiB --layout raid1:2 --devices 4,5
///   braid volume create locks --attributes --size 64MiB --layout raid1:2 --unit 128KiB
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct CreateArgs {
    /// The name of the volume
    name: String,
    /// Its usable size, a multiple of 4 KiB: 512MiB, 10G
    #[arg(long = "size", value_name = "SIZE", value_parser = size)]
    bytes: u64,
    /// raid5:4+1, raid1:2, raid0:5, … [default: the layout of the array's creation]
    #[arg(long = "layout", value_name = "LAYOUT")]
    scheme: Option<RaidLevel>,
    /// Stripe unit, 4KiB to 1MiB [default: the unit of the array's creation]
    #[arg(long, value_parser = size, value_name = "SIZE")]
    unit: Option<u64>,
    /// The ordering, which serializes concurrent hosts: docs/orderings.md. With none, use one host at a time: otherwise parity is corrupted
    #[arg(long, value_parser = ordering(), default_value = "timestamp")]
    ordering: Ordering,
    /// The part of a write that may remain after a failure: all or nothing (implied); any part, with a parity resync afterwards (consistent)
    #[arg(long, value_parser = atomicity(), default_value = "implied", value_name = "KIND")]
    atomicity: Atomicity,
    /// Where parity is computed: at the host that writes (originator); at the devices that hold it, from what the others send them
    /// (at-parity); at these except for large writes (adaptive): docs/parallel-raid.md [default: adaptive where devices can
    /// compute parity, otherwise originator]
    #[arg(long, value_parser = arguments::parity_site(), value_name = "SITE")]
    parity_site: Option<SitePolicy>,
    /// Create an attribute volume. It holds no blocks, but attributes of objects (`braid attr`), each on several devices:
    /// docs/attribute-volumes.md
    #[arg(long = "attributes", alias = "mirror")]
    attribute_volume: bool,
    /// The devices that it lies on: 0,1,2 [default: all devices]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = braid_terminal::arguments::device)]
    devices: Option<Vec<u16>>,
}

pub async fn create(arguments: CreateArgs, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    let CreateArgs { name, bytes, scheme, unit, ordering, atomicity, parity_site, attribute_volume, devices } =
        arguments;
    let new = NewVolume { name, bytes, scheme, unit, ordering, atomicity, parity_site, attribute_volume, devices };
    let volume = array.create_volume(&new).await?;
    let layout: Option<RaidLevel> = volume.layout.parse().ok();
    if volume.attribute_volume && matches!(layout, Some(RaidLevel::Raid0 { .. })) {
        braid_terminal::tell!(
            "warning: {} has no redundancy: its attributes are unavailable while a device is down, and lost with its disk; --layout raid1:2 avoids that",
            volume.layout
        );
    }
    if parity_site.is_some_and(|site| site != SitePolicy::Originator) {
        super::note_without_effect(volumes::without_effect(&volume)?);
    }
    let uri = array.nbd_uri(&volume.name).await?.filter(|_| !volume.attribute_volume);
    report::done(common.json, json!({"volume": super::json(&volume), "nbd": uri}), || {
        let size = format_size(volume.bytes);
        let (name, layout) = (&volume.name, &volume.layout);
        if volume.attribute_volume {
            return format!(
                "attribute volume {name}: {size}, {layout}\nset an attribute with `braid attr set {name}:1 1.1 hello`\n"
            );
        }
        let place = uri.as_deref().unwrap_or("serve it with `braid nbd`");
        format!("volume {name}: {size}, {layout}\n{place}\n")
    })
}

/// List the volumes of the array
#[derive(clap::Args)]
pub struct ListArgs {}

pub async fn list(_: ListArgs, common: &Common) -> Result<ExitCode, Failure> {
    let description = common.control().describe().await?;
    let json = json!({"volumes": description.volumes.iter().map(super::json).collect::<Vec<_>>()});
    let row = |volume: &VolumeEntry| {
        let state = match &volume.state {
            VolumeState::Ready => match &volume.moving {
                Some(target) => format!("moving to {}", target.layout),
                None if volume.attribute_volume => "attribute volume".to_string(),
                None => String::new(),
            },
            VolumeState::Creating => "being created".to_string(),
            VolumeState::Draining { to, .. } | VolumeState::Reordering { to, .. } => format!("changing to {to}"),
            VolumeState::Deleting => "being deleted".to_string(),
        };
        [volume.name.clone(), format_size(volume.bytes), volume.layout.clone(), volume.ordering.clone(), state]
    };
    report::done(common.json, json, || table(&description.volumes.iter().map(row).collect::<Vec<_>>()))
}

/// Show a volume: its size, layout and location
#[derive(clap::Args)]
pub struct InfoArgs {
    /// The name of the volume
    name: String,
}

pub async fn info(arguments: InfoArgs, common: &Common) -> Result<ExitCode, Failure> {
    let description = common.control().describe().await?;
    let entry = volumes::find(&description, &arguments.name)?;
    let volume = volumes::describe(entry)?;
    let component = volume.component_blocks() * braid_base::BLOCK_BYTES as u64;
    let json = json!({"volume": super::json(entry), "stripes": volume.stripes(), "bytes_per_device": component});
    report::done(common.json, json, || {
        let keeps = match entry.attribute_volume {
            true => "attributes of objects: it is an attribute volume",
            false => "blocks",
        };
        let mut lines = vec![
            ("name", entry.name.clone()),
            ("size", format!("{} ({} bytes)", format_size(entry.bytes), entry.bytes)),
            ("layout", entry.layout.clone()),
            ("stripe unit", format_size(entry.unit)),
            ("stripes", volume.stripes().to_string()),
            ("ordering", entry.ordering.clone()),
            ("atomicity", entry.atomicity.clone()),
            ("parity site", entry.parity_site.clone()),
            ("while unavailable", entry.unavailable().to_string()),
            ("keeps", keeps.to_string()),
            ("devices", report::device_list(&entry.devices)),
            ("on each device", format_size(component)),
        ];
        if let Some(target) = &entry.moving {
            let copied = target.copied_to * braid_base::BLOCK_BYTES as u64;
            lines.extend([
                ("moving to", format!("{}, stripe unit {}", target.layout, format_size(target.unit))),
                ("on devices", report::device_list(&target.devices)),
                ("copied", format!("at least {} of {}", format_size(copied), format_size(entry.bytes))),
            ]);
        }
        named(lines)
    })
}

/// Delete a volume with its content
///
/// Clients that still have it open get errors from then on. This can't be undone. Other volumes can use its space; the files of devices
/// stay as large as they are (docs/operations.md, "Room on the host").
#[derive(clap::Args)]
pub struct DeleteArgs {
    /// The name of the volume
    name: String,
    /// Don't ask for confirmation
    #[arg(long)]
    yes: bool,
}

pub async fn delete(arguments: DeleteArgs, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    let name = &arguments.name;
    array.check_deletable(name).await?;
    if !arguments.yes {
        confirm_deletion("volume", "its content", name)?;
    }
    array.delete_volume(name).await?;
    report::done(common.json, json!({"deleted": name}), || format!("volume {name} is deleted\n"))
}
