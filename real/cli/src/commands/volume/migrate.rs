//! `braid volume migrate`.

use braid_admin::migration::{Migrated, MigrationTarget, Watcher};
use braid_admin::{Array, Failure};
use braid_base::DeviceId;
use braid_base::units::format_size;
use braid_layout::Scheme;
use braid_terminal::arguments::size;
use braid_terminal::{Common, output};
use indicatif::ProgressBar;
use serde_json::json;
use std::cell::RefCell;
use std::process::ExitCode;
use std::time::Instant;

/// Move a volume to other devices or another layout, while it is used
///
/// While it moves, everything is written both where it lies and where it is to lie, in one transaction, and the rest is copied. Clients
/// see two pauses of about a second, and no error. If this is cut short, the volume stays as good as it was; the same command
/// goes on, and --abort goes back. What is not said stays as it is; but without --devices, a volume comes to lie on all
/// devices of the array. Atomicity `consistent`, ordering `none`, and locks of several lock servers can't move.
///
/// Example: `braid volume migrate vol0 --layout raid5:4+1 --devices 0,1,2,5,6`
#[derive(clap::Args)]
pub struct Arguments {
    /// Which volume
    name: String,
    /// To raid5:4+1, raid1:2, …
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<Scheme>,
    /// To stripe units of 4KiB to 1MiB
    #[arg(long, value_parser = size, value_name = "SIZE")]
    unit: Option<u64>,
    /// To these devices
    #[arg(long, value_delimiter = ',', value_name = "IDS")]
    devices: Option<Vec<u16>>,
    /// Copy so many bytes a second at most [default: as a rebuild]
    #[arg(long, value_parser = size, value_name = "BYTES")]
    rate: Option<u64>,
    /// Go back to where it lies, and give up what was copied
    #[arg(long, conflicts_with_all = ["layout", "unit", "devices", "rate"])]
    abort: bool,
}

/// What lasts: a line that says what is being done, or a bar of what is copied.
struct Bars(RefCell<Shown>);

enum Shown {
    Stage(ProgressBar),
    Copying(ProgressBar),
}

impl Bars {
    fn clear(&self) {
        let (Shown::Stage(bar) | Shown::Copying(bar)) = &*self.0.borrow();
        bar.finish_and_clear();
    }
}

impl Watcher for Bars {
    fn stage(&self, what: &str) {
        if matches!(&*self.0.borrow(), Shown::Copying(_)) {
            self.clear();
            self.0.replace(Shown::Stage(output::waiting()));
        }
        if let Shown::Stage(bar) = &*self.0.borrow() {
            bar.set_message(what.to_string());
        }
    }

    fn progress(&self, bytes: u64, looked: u64, _: u64) {
        if matches!(&*self.0.borrow(), Shown::Stage(_)) {
            self.clear();
            self.0.replace(Shown::Copying(output::bytes(bytes, "looked through")));
        }
        if let Shown::Copying(bar) = &*self.0.borrow() {
            bar.set_position(looked);
        }
    }
}

/// Moves it.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.folder());
    let Arguments { name, layout: scheme, unit, devices, rate, abort } = arguments;
    let begun = Instant::now();
    let bars = Bars(RefCell::new(Shown::Stage(output::waiting())));
    let outcome = match abort {
        true => array.abort_migration(&name, &bars).await,
        false => {
            array.migrate_volume(&name, &MigrationTarget { scheme, unit, devices }, rate.unwrap_or(0), &bars).await
        }
    };
    bars.clear();
    let Migrated { volume: after, copied } = outcome?;
    let seconds = begun.elapsed().as_secs_f64();
    output::print(
        common.json,
        || json!({"schema": 2, "volume": super::json(&after), "copied": copied, "seconds": seconds}),
        || {
            let devices: Vec<String> = after.devices.iter().map(|id| DeviceId(*id).to_string()).collect();
            let place = format!("{} on devices {}", after.layout, devices.join(" "));
            match copied {
                None => format!("volume {}: stays {place}\n", after.name),
                Some(bytes) => {
                    format!("volume {}: now {place}; copied {} in {seconds:.1} s\n", after.name, format_size(bytes))
                }
            }
        },
    );
    Ok(ExitCode::SUCCESS)
}
