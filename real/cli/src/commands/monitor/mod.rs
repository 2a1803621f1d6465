//! `braid monitor`: operations on the array's monitor.

mod recover;

use super::Common;
use braid_admin::failure::Failure;
use std::process::ExitCode;

/// Recover the state of the array's monitor, which decides which devices are in
#[derive(clap::Subcommand)]
pub enum Command {
    Recover(recover::Arguments),
}

/// Runs one of the commands.
pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::Recover(arguments) => recover::run(arguments, common).await,
    }
}
