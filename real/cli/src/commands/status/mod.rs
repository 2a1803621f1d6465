//! `braid status`: what runs, and how it is; once, or live.

mod view;
mod watch;

use braid_admin::failure::{Exit, Failure};
use braid_admin::snapshot::SnapshotReader;
use braid_terminal::Common;
use braid_terminal::output;
use std::process::ExitCode;
use view::View;

/// Show the array: its monitor, devices, lock servers, volumes and hosts, and how they are
///
/// Asks each device, and says what is so now. A device is
///
///   healthy          it has everything, and serves
///   silent           it does not answer; it is waited for some seconds
///   away             the same for longer, and the others can't do without it
///   out              the others do without it; since when, and whether an operator wants that
///   catching up      it is back, and is resynchronised: how far, how long
///   rebuilding       its disk is a new one, and it is brought all that lies there: how far, how long
///   awaiting disk    it is out, and this disk is to take its place
///   refused          what is there may not serve; why
///
/// A volume is healthy; or degraded: all of it is served, with less redundancy, and it is said what one more failure would do; or
/// waiting for devices that just fell silent; or unavailable: what needs the devices named there ends in errors. What of it is known
/// to be lost (by a scrub or a rebuild) is said, too. Ends with status 0 if the array is up, however its devices are, and with 3
/// if it is not up; of --watch, which ends with Ctrl-C, with 0.
///
/// Examples: `braid status --watch`, `braid status --json --watch --interval 5`
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// Show what each device, lock server and host has counted since it started, and what that means for one operation
    #[arg(long, short)]
    verbose: bool,
    /// Show it live: on a terminal, the same page again and again; otherwise a line for each change; with --json an object a line
    #[arg(long, short)]
    watch: bool,
    /// Seconds between two looks
    #[arg(long, default_value_t = 1.0, value_parser = interval, value_name = "SECONDS", requires = "watch")]
    interval: f64,
}

/// Asks, and shows.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let mut reader = SnapshotReader::new(common.folder(), "status");
    if arguments.watch {
        return watch::run(reader, &arguments, common.json).await;
    }
    let look = reader.look().await?;
    reader.leave();
    let view = View::of(&look);
    output::print(common.json, || view.json(), || view.text(arguments.verbose));
    Ok(if look.running.is_some() { ExitCode::SUCCESS } else { ExitCode::from(Exit::Unreachable as u8) })
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is not a number of seconds"))?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("it is from 0.1 to 3600 seconds".to_string()) }
}
