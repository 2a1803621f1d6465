//! `braid fs`: creates, shows, checks and deletes file systems.

mod status;

use braid_admin::failure::Failure;
use braid_terminal::Common;
use std::process::ExitCode;

/// Create, show, check and delete file systems
#[derive(clap::Subcommand)]
pub enum Command {
    Status(status::Arguments),
}

/// Runs one of the commands.
pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::Status(arguments) => status::run(arguments, common).await,
    }
}
