//! `braid device`: adding, removing and replacing devices of an array; creating, serving, inspecting and checking single devices.

mod add;
mod fail;
mod file;
mod list;
mod locate;
mod overwriting;
mod remove;
mod replace;
mod serve;

use braid_admin::failure::Failure;
use braid_base::ArrayId;
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
    Add(add::Arguments),
    List(list::Arguments),
    Fail(fail::Arguments),
    Readmit(fail::ReadmitArguments),
    Replace(replace::Arguments),
    Remove(remove::Arguments),
    Locate(locate::Arguments),
    Create(file::CreateArgs),
    Serve(serve::Arguments),
    Inspect(file::InspectArgs),
    Check(file::CheckArgs),
}

/// Runs one of the commands.
pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::Add(arguments) => add::run(arguments, common).await,
        Command::List(arguments) => list::run(arguments, common).await,
        Command::Fail(arguments) => fail::run(arguments, common).await,
        Command::Readmit(arguments) => fail::readmit(arguments, common).await,
        Command::Replace(arguments) => replace::run(arguments, common).await,
        Command::Remove(arguments) => remove::run(arguments, common).await,
        Command::Locate(arguments) => locate::run(arguments, common).await,
        Command::Create(arguments) => file::create(arguments, common),
        Command::Serve(arguments) => Box::pin(serve::run(arguments, common)).await,
        Command::Inspect(arguments) => file::inspect(arguments, common),
        Command::Check(arguments) => file::check(arguments, common),
    }
}

fn array_id(text: &str) -> Result<ArrayId, String> {
    braid_control::parse_array_id(text)
        .ok_or_else(|| format!("'{text}' is not a UUID; `braid status` shows that of the array"))
}

/// Parses the size of a device's cache for objects' content: at least what one request may need, except for the most scattered requests.
pub fn object_memory(text: &str) -> Result<u64, String> {
    const LEAST: u64 = 64 << 20;
    let bytes = braid_terminal::arguments::size(text)?;
    if bytes < LEAST { Err(format!("a device needs at least {}", format_size(LEAST))) } else { Ok(bytes) }
}
