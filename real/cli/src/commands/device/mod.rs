//! `braid device`: adding, removing and replacing devices of an array; creating, serving, inspecting and checking single devices.

mod changes;
mod file;
mod location;
mod serve;

use braid_admin::Failure;
use braid_base::units::format_size;
use braid_terminal::Common;
use std::process::ExitCode;

/// Add, replace and remove devices of an array, show what lies on them; create, serve and check
/// single devices
///
/// A device is a numbered slot of the array. A disk, which is a file or a raw disk, fills the slot.
/// Volumes lie on slots. When a disk fails, another disk fills its slot, and is rebuilt from the
/// other devices while the volumes stay in use:
///
///   braid device replace 3                  replace device 3's disk by a new file in the array's folder
///   braid device add --spare                add a disk that will replace the next failed disk automatically
///   braid device locate 3                   show what lies on device 3
///
/// `braid up` creates and serves the devices of an array itself: `create` and `serve` are for devices
/// on other machines.
#[derive(clap::Subcommand)]
#[command(verbatim_doc_comment)]
pub enum Command {
    Add(changes::AddArgs),
    List(location::ListArgs),
    Fail(changes::FailArgs),
    Readmit(changes::ReadmitArgs),
    Replace(changes::ReplaceArgs),
    Remove(changes::RemoveArgs),
    Locate(location::LocateArgs),
    Create(file::CreateArgs),
    Serve(serve::Arguments),
    Inspect(file::InspectArgs),
    Check(file::CheckArgs),
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::Add(arguments) => changes::add(arguments, common).await,
        Command::List(arguments) => location::list(arguments, common).await,
        Command::Fail(arguments) => changes::fail(arguments, common).await,
        Command::Readmit(arguments) => changes::readmit(arguments, common).await,
        Command::Replace(arguments) => changes::replace(arguments, common).await,
        Command::Remove(arguments) => changes::remove(arguments, common).await,
        Command::Locate(arguments) => location::locate(arguments, common).await,
        Command::Create(arguments) => file::create(arguments, common),
        Command::Serve(arguments) => Box::pin(serve::run(arguments, common)).await,
        Command::Inspect(arguments) => file::inspect(arguments, common),
        Command::Check(arguments) => file::check(arguments, common),
    }
}

/// Parses the size of a device's cache for objects' content: at least what one request may need, except for the most scattered requests.
pub fn object_memory(text: &str) -> Result<u64, String> {
    const LEAST: u64 = 64 << 20;
    let bytes = braid_terminal::arguments::size(text)?;
    if bytes < LEAST { Err(format!("a device needs at least {}", format_size(LEAST))) } else { Ok(bytes) }
}
