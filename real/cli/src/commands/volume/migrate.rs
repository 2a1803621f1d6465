//! `braid volume migrate`.

use braid_admin::failure::Failure;
use braid_admin::migration::{self, MigrationTarget, Watcher};
use braid_admin::volumes;
use braid_base::units::format_size;
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId};
use braid_control::VolumeEntry;
use braid_layout::Scheme;
use braid_machine::MigrationReport;
use braid_session::{Session, require_up};
use braid_terminal::Common;
use braid_terminal::arguments::size;
use braid_terminal::output;
use indicatif::ProgressBar;
use serde_json::json;
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

/// Bars, of what lasts.
struct Bars {
    stages: ProgressBar,
    copying: ProgressBar,
}

impl Watcher for Bars {
    fn stage(&self, what: &str) {
        self.stages.set_message(what.to_string());
    }

    fn progress(&self, looked: u64, _: u64) {
        self.copying.set_position(looked);
    }
}

/// Moves it.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let folder = common.folder();
    let description = folder.describe()?;
    let entry = volumes::find(&description, &arguments.name)?.clone();
    let wish = MigrationTarget { scheme: arguments.layout, unit: arguments.unit, devices: arguments.devices };
    if arguments.abort && entry.moving.is_none() {
        return Err(Failure::usage("not-moving", format!("volume '{}' does not move", entry.name)));
    }
    let to = match &entry.moving {
        Some(target) if !wish.is_none() => {
            let message = format!("volume '{}' moves already, to {}", entry.name, target.layout);
            let hint =
                format!("`braid volume migrate {0}` goes on, `braid volume migrate {0} --abort` goes back", entry.name);
            return Err(Failure::failed("already-moving", message).hint(hint));
        }
        Some(_) => None,
        None if wish.is_none() => {
            return Err(Failure::usage("no-target", "say where to with --layout, --unit or --devices"));
        }
        None => Some(migration::target(&description, &entry, &wish)?),
    };
    require_up(&folder)?;
    let begun = Instant::now();
    let session = Session::start(&folder, "volume migrate").await?;
    let bars = Bars { stages: output::waiting(), copying: ProgressBar::hidden() };
    let outcome = if arguments.abort {
        migration::give_up(&session, &entry.name, &bars).await.map(|()| None)
    } else {
        migrate(&session, &entry, to, arguments.rate.unwrap_or(0), bars).await.map(Some)
    };
    session.end().await;
    let report = outcome?;
    let after = volumes::find(&folder.describe()?, &entry.name)?.clone();
    let seconds = begun.elapsed().as_secs_f64();
    let copied = report.map(|report| report.copied * BLOCK_BYTES as u64);
    output::print(
        common.json,
        || json!({"schema": 1, "volume": super::json(&after), "copied": copied, "seconds": seconds}),
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

async fn migrate(
    session: &Session,
    entry: &VolumeEntry,
    to: Option<braid_control::PlacementEntry>,
    rate: u64,
    mut bars: Bars,
) -> Result<MigrationReport, Failure> {
    if let Some(to) = to {
        migration::begin(session, entry, to, &bars).await?;
    }
    bars.stages.finish_and_clear();
    bars.copying = output::bytes(entry.bytes, "looked through");
    let copied = migration::copy(session, &entry.name, rate, &bars).await;
    bars.copying.finish_and_clear();
    let report = copied?;
    if report.lost > 0 {
        let bytes = BLOCK_BYTES as u64;
        let places: Vec<String> = runs(&report.lost_blocks)
            .iter()
            .take(8)
            .map(|run| format!("bytes {} to {}", run.start * bytes, run.end() * bytes))
            .collect();
        let message = format!(
            "{} of volume '{}' can't be read: {}",
            format_size(report.lost * bytes),
            entry.name,
            places.join(", ")
        );
        let hint = format!(
            "overwrite them, or bring their devices back, and go on with `braid volume migrate {0}`; --abort goes back",
            entry.name
        );
        return Err(Failure::data_lost("block-lost", message).hint(hint));
    }
    bars.stages = output::waiting();
    let ended = migration::end(session, &entry.name, &bars).await;
    bars.stages.finish_and_clear();
    ended.map(|()| report)
}

/// Neighbouring blocks together.
fn runs(blocks: &[u64]) -> Vec<BlockRange> {
    let mut sorted = blocks.to_vec();
    sorted.sort_unstable();
    let mut runs: Vec<BlockRange> = Vec::new();
    for block in sorted {
        match runs.last_mut() {
            Some(run) if run.end() == block => run.count += 1,
            _ => runs.push(BlockRange::new(block, 1)),
        }
    }
    runs
}
