//! `braid monitor`: what an operator does about the array's monitor.

mod recover;

use super::Common;
use braid_admin::failure::Failure;
use std::process::ExitCode;

/// Look after the array's monitor, which decides which devices are in
#[derive(clap::Subcommand)]
pub enum Command {
    Recover(recover::Arguments),
}

/// Runs one of them.
pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::Recover(arguments) => recover::run(arguments, common),
    }
}
