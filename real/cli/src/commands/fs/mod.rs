//! `braid fs`: creates, mounts, shows, checks and deletes file systems.

mod data;
mod lifecycle;
mod listing;
mod mount;
mod settings;
mod status;
mod target;

use super::growth;
use super::volume::settings::{UnavailableArgs, set_unavailable_of_file_system};
use braid_admin::Failure;
use braid_terminal::Common;
use std::process::ExitCode;

/// Create, mount, show, check and delete file systems
#[derive(clap::Subcommand)]
pub enum Command {
    Create(lifecycle::CreateArgs),
    Mount(mount::Mount),
    #[command(alias = "umount")]
    Unmount(mount::Unmount),
    Status(status::StatusArgs),
    #[command(flatten)]
    Data(data::Command),
    Resize(growth::FileSystemArgs),
    SetCommitProtocol(settings::CommitmentArgs),
    SetEviction(settings::EvictionArgs),
    /// Set what reads and writes on mounts do while devices are missing that they need
    ///
    /// fail:  they fail with EIO within seconds.
    /// wait:  they wait, however long. The default. A program that waits can be killed.
    /// TIME:  they wait for so long (60s, 5m), and then fail with EIO.
    ///
    /// It is for mounts that are made afterwards. `--unavailable` of `braid fs mount` overrides it for one mount.
    ///
    /// Example: `braid fs set-unavailable home 5m`
    #[command(verbatim_doc_comment)]
    SetUnavailable(UnavailableArgs),
    Check(status::CheckArgs),
    Delete(lifecycle::DeleteArgs),
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::Create(arguments) => lifecycle::create(arguments, common).await,
        Command::Mount(arguments) => Box::pin(mount::mount(arguments, common)).await,
        Command::Unmount(arguments) => mount::unmount(arguments, common).await,
        Command::Status(arguments) => status::status(arguments, common).await,
        Command::Data(command) => data::run(command, common).await,
        Command::Resize(arguments) => growth::of_file_system(arguments, common).await,
        Command::SetCommitProtocol(arguments) => settings::set_commitment(arguments, common).await,
        Command::SetEviction(arguments) => settings::set_eviction(arguments, common).await,
        Command::SetUnavailable(arguments) => set_unavailable_of_file_system(arguments, common).await,
        Command::Check(arguments) => status::check(arguments, common).await,
        Command::Delete(arguments) => lifecycle::delete(arguments, common).await,
    }
}
