//! `braid fs`: creates, shows, checks and deletes file systems.

mod check;
mod create;
mod data;
mod delete;
mod listing;
mod status;
mod target;

use braid_admin::failure::Failure;
use braid_terminal::Common;
use std::process::ExitCode;

/// Create, show, check and delete file systems
#[derive(clap::Subcommand)]
pub enum Command {
    Create(create::Arguments),
    Status(status::Arguments),
    #[command(flatten)]
    Data(data::Command),
    Check(check::Arguments),
    Delete(delete::Arguments),
}

/// Runs one of the commands.
pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::Create(arguments) => create::run(arguments, common).await,
        Command::Status(arguments) => status::run(arguments, common).await,
        Command::Data(command) => data::run(command, common).await,
        Command::Check(arguments) => check::run(arguments, common).await,
        Command::Delete(arguments) => delete::run(arguments, common).await,
    }
}
