//! `braid volume create`: creates a volume on the devices of a running array.

use crate::report;
use braid_admin::{Array, Failure, NewVolume, volumes};
use braid_base::units::format_size;
use braid_layout::{Atomicity, RaidLevel, SitePolicy};
use braid_ordering::Ordering;
use braid_terminal::Common;
use braid_terminal::arguments::{self, atomicity, ordering, size};
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
pub struct Arguments {
    /// The name of the volume
    name: String,
    /// Its usable size, a multiple of 4 KiB: 512MiB, 10G
    #[arg(long, value_parser = size)]
    size: u64,
    /// raid5:4+1, raid1:2, raid0:5, … [default: the layout of the array's creation]
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<RaidLevel>,
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

/// Creates the volume.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    let new = NewVolume {
        name: arguments.name,
        bytes: arguments.size,
        scheme: arguments.layout,
        unit: arguments.unit,
        ordering: arguments.ordering,
        atomicity: arguments.atomicity,
        parity_site: arguments.parity_site,
        attribute_volume: arguments.attribute_volume,
        devices: arguments.devices,
    };
    let volume = array.create_volume(&new).await?;
    let layout: Option<RaidLevel> = volume.layout.parse().ok();
    if volume.attribute_volume && matches!(layout, Some(RaidLevel::Raid0 { .. })) {
        braid_terminal::tell!(
            "warning: {} has no redundancy: its attributes are unavailable while a device is down, and lost with its disk; --layout raid1:2 avoids that",
            volume.layout
        );
    }
    if arguments.parity_site.is_some_and(|site| site != SitePolicy::Originator) {
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
