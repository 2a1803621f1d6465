//! `braid device`: makes, serves, shows and checks single devices.

mod check;
mod create;
mod inspect;
mod serve;

use crate::commands::Common;
use crate::failure::Failure;
use braid_base::ArrayId;
use std::process::ExitCode;

/// Make, serve, show and check single devices
///
/// `braid up` does all of this for the devices of an array on one machine.
#[derive(clap::Subcommand)]
pub enum Command {
    Create(create::Arguments),
    Serve(serve::Arguments),
    Inspect(inspect::Arguments),
    Check(check::Arguments),
}

/// Runs one of them.
pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::Create(arguments) => create::run(arguments, common),
        Command::Serve(arguments) => serve::run(arguments, common).await,
        Command::Inspect(arguments) => inspect::run(arguments, common),
        Command::Check(arguments) => check::run(arguments, common),
    }
}

fn array_id(text: &str) -> Result<ArrayId, String> {
    braid_control::parse_array_id(text)
        .ok_or_else(|| format!("'{text}' is not a UUID; `braid status` shows the array's"))
}
