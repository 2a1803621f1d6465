//! `braid device`: the devices of an array come, go, and get other disks; and single devices are made, served, shown and checked.

mod add;
mod check;
mod create;
mod fail;
mod inspect;
mod list;
mod locate;
mod remove;
mod replace;
mod serve;

use braid_admin::failure::Failure;
use braid_base::ArrayId;
use braid_base::units::format_size;
use braid_terminal::Common;
use std::process::ExitCode;

/// Add, replace and remove devices of an array, see what lies on them; make, serve and check single devices
///
/// A device is a slot of the array, with a number, that a disk fills: a file or a raw disk. Volumes lie on slots. When a disk dies, another one
/// takes its slot, and the others bring it what it has to have, while the volumes stay in use:
///
///   braid device replace 3                  a new file of the array's folder takes the place of device 3's disk
///   braid device add --spare                a disk that will do so by itself, next time
///   braid device locate 3                   what lies on device 3
///
/// `braid up` makes and serves the devices of an array by itself: `create` and `serve` are for devices on other machines.
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
    Create(create::Arguments),
    Serve(serve::Arguments),
    Inspect(inspect::Arguments),
    Check(check::Arguments),
}

/// Runs one of them.
pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::Add(arguments) => add::run(arguments, common).await,
        Command::List(arguments) => list::run(arguments, common),
        Command::Fail(arguments) => fail::run(arguments, common).await,
        Command::Readmit(arguments) => fail::readmit(arguments, common).await,
        Command::Replace(arguments) => replace::run(arguments, common).await,
        Command::Remove(arguments) => remove::run(arguments, common).await,
        Command::Locate(arguments) => locate::run(arguments, common),
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

/// Reads how much memory a device has for what its objects hold: enough for what one request may need at once, but for the most scattered.
pub fn object_memory(text: &str) -> Result<u64, String> {
    const LEAST: u64 = 64 << 20;
    let bytes = braid_terminal::arguments::size(text)?;
    if bytes < LEAST { Err(format!("a device needs {} at least", format_size(LEAST))) } else { Ok(bytes) }
}
