//! `braid volume migrate`: moves a volume to other devices or another layout while it is in use.

use crate::report;
use braid_admin::migration::{Migrated, MigrationTarget, Watcher};
use braid_admin::{Array, Failure};
use braid_base::units::format_size;
use braid_layout::RaidLevel;
use braid_terminal::arguments::size;
use braid_terminal::{Common, output};
use indicatif::ProgressBar;
use serde_json::json;
use std::cell::RefCell;
use std::process::ExitCode;
use std::time::Instant;

/// Migrate a volume to other devices or another layout, while it is in use
///
/// During the migration, every write goes to both source and target, in one transaction, and the existing content is copied. Clients see
/// two pauses of about a second, and no error. If the command is interrupted, the volume stays fully usable: the same command continues the
/// migration, and --abort moves the volume back. Without --devices, the target is all devices of the array; other properties that are not
/// given stay the same. Volumes with atomicity `consistent`, with ordering `none`, or with locks on several lock servers can't be migrated.
///
/// Example: `braid volume migrate vol0 --layout raid5:4+1 --devices 0,1,2,5,6`
#[derive(clap::Args)]
pub struct Arguments {
    /// The name of the volume
    name: String,
    /// The new layout: raid5:4+1, raid1:2, …
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<RaidLevel>,
    /// The new stripe unit, 4KiB to 1MiB
    #[arg(long, value_parser = size, value_name = "SIZE")]
    unit: Option<u64>,
    /// The new devices
    #[arg(long, value_delimiter = ',', value_name = "IDS", value_parser = braid_terminal::arguments::device)]
    devices: Option<Vec<u16>>,
    /// The maximal copy rate [default: as fast as a rebuild]
    #[arg(long, value_parser = braid_terminal::arguments::rate, value_name = "RATE")]
    rate: Option<u64>,
    /// Go back to the source, and discard what was copied
    #[arg(long, conflicts_with_all = ["layout", "unit", "devices", "rate"])]
    abort: bool,
}

/// The progress shown: a line with the current step, or a bar of the bytes copied.
struct Bars(RefCell<Shown>);

enum Shown {
    Stage(ProgressBar),
    Copying(ProgressBar),
}

impl Watcher for Bars {
    fn stage(&self, what: &str) {
        if matches!(&*self.0.borrow(), Shown::Copying(_)) {
            self.0.replace(Shown::Stage(output::waiting()));
        }
        if let Shown::Stage(bar) = &*self.0.borrow() {
            bar.set_message(what.to_string());
        }
    }

    fn progress(&self, bytes: u64, looked: u64, _: u64) {
        if matches!(&*self.0.borrow(), Shown::Stage(_)) {
            self.0.replace(Shown::Copying(output::bytes(bytes, "examined")));
        }
        if let Shown::Copying(bar) = &*self.0.borrow() {
            bar.set_position(looked);
        }
    }
}

pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    let Arguments { name, layout: scheme, unit, devices, rate, abort } = arguments;
    let begun = Instant::now();
    let bars = Bars(RefCell::new(Shown::Stage(output::waiting())));
    let outcome = match abort {
        true => array.abort_migration(&name, &bars).await,
        false => {
            array.migrate_volume(&name, &MigrationTarget { scheme, unit, devices }, rate.unwrap_or(0), &bars).await
        }
    };
    drop(bars);
    let Migrated { volume: after, copied } = outcome?;
    let seconds = begun.elapsed().as_secs_f64();
    let json = json!({"volume": super::json(&after), "copied_bytes": copied, "seconds": seconds});
    report::done(common.json, json, || {
        let place = format!("{} on devices {}", after.layout, report::device_list(&after.devices));
        match copied {
            None => format!("volume {}: stays {place}\n", after.name),
            Some(bytes) => {
                format!("volume {}: now {place}; copied {} in {seconds:.1} s\n", after.name, format_size(bytes))
            }
        }
    })
}
