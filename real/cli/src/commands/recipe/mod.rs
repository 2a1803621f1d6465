//! `braid recipe`: structures built on objects with attributes, for use in a shell (`docs/recipes/`).
//!
//! | module | what |
//! | --- | --- |
//! | `hold` | lock, delivery counter, fail-over: run a command while something is held |
//! | `structures` | list, queue, directory: structures that many processes change; fence: refusing late requests of former holders |

pub mod hold;
mod structures;

use crate::commands::object::Trying;
use crate::values::{ObjectName, Written, attribute};
use braid_admin::Failure;
use braid_client::{AttributeName, Bytes, Object};
use braid_terminal::Common;
use braid_terminal::arguments::span;
use std::process::ExitCode;
use std::time::Duration;

/// Locks, counters, lists, queues, directories and leaders, built on objects with attributes
///
/// No server keeps these structures: any number of programs, on any machines of the array, change them concurrently by atomic operations.
/// A program that dies blocks no other program. Each structure lies in an object. `braid object create 2` creates an object on device 2; on
/// an attribute volume all objects exist from the beginning, such as locks:7. docs/recipes/ describes guarantees and algorithms.
#[derive(clap::Subcommand)]
#[command(after_long_help = EXAMPLES)]
pub enum Command {
    /// A lock for one writer or many readers
    ///
    /// It uses the attribute PAGE.NUMBER, and the attributes of the same number on the next two pages.
    #[command(subcommand)]
    Lock(hold::Lock),
    /// A delivery counter: clients draw tickets, and get their turns in that order
    ///
    /// It uses the attribute PAGE.NUMBER, and the attributes of the same number on the next 65539 pages: give it an object of its own.
    #[command(subcommand)]
    Counter(hold::Counter),
    /// Fail-over: one process leads, others take over when it fails
    ///
    /// It uses the attribute PAGE.NUMBER, and the attributes of the same number on the next two pages.
    #[command(subcommand)]
    Leader(hold::Leader),
    /// A linked list
    ///
    /// It uses the pages 0x40000, 0x10000000 to 0x1fffffff and 0x20000000 to 0x2fffffff of its object, which nothing else may use.
    #[command(subcommand)]
    List(structures::ListCommand),
    /// A work queue, each item of which is executed by one consumer
    ///
    /// It uses the pages 0x30001 to 0x30003 of its object, which nothing else may use.
    #[command(subcommand)]
    Queue(structures::QueueCommand),
    /// A directory: names of objects
    ///
    /// It uses the pages 0x20001 to 0x20004 of its object, which nothing else may use.
    #[command(subcommand)]
    Directory(structures::DirectoryCommand),
    /// Fences: refuse late writes of former holders
    #[command(subcommand)]
    Fence(structures::FenceCommand),
    #[command(hide = true)]
    Supervise(hold::Supervise),
    #[command(hide = true)]
    Become(hold::Become),
}

const EXAMPLES: &str = "\
Each structure needs an object of its own, which nothing else uses (`braid object create 2:11` creates the first of these):
  braid recipe lock run 2:11 1.1 -- ./backup.sh         one at a time, on any number of machines
  braid recipe counter run 2:12 1.1 -- ./print.sh       the same, in the order of arrival
  braid recipe leader run 2:13 1.1 -- ./serve.sh        while this process leads; start it on each machine
  braid recipe queue put 2:14 'resize photo-17'
  braid recipe queue work 2:14 -- ./resize.sh           the item is the standard input
  braid recipe directory insert 2:15 photo-17 4711
  braid recipe list insert 2:16 apple --in-order

Late writes of a former holder are refused if they are guarded by its token, as in ./backup.sh:
  braid object append 2:11 'copied' --guard 2.1=$BRAID_TOKEN

The pages that each structure uses are listed in docs/recipes/README.md.

Exit status of `run`: that of the command; 124 if the hold was not acquired in time, 125 if it was lost. See `braid recipe lock run --help`.";

/// An object that holds a structure.
#[derive(clap::Args)]
pub struct In {
    /// The object: DEVICE:NUMBER or VOLUME:NUMBER
    object: ObjectName,
    #[command(flatten)]
    trying: Trying,
}

/// A command on the object that holds a structure.
trait OnObject {
    fn place(&self) -> &In;

    async fn execute(&self, object: &Object, as_json: bool) -> Result<ExitCode, Failure>;
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::Lock(command) => on_object(&command, common).await,
        Command::Counter(command) => on_object(&command, common).await,
        Command::Leader(command) => on_object(&command, common).await,
        Command::List(command) => on_object(&command, common).await,
        Command::Queue(command) => on_object(&command, common).await,
        Command::Directory(command) => on_object(&command, common).await,
        Command::Fence(command) => on_object(&command, common).await,
        Command::Supervise(supervisor) => supervisor.run().await,
        Command::Become(command) => command.run(),
    }
}

async fn on_object(command: &impl OnObject, common: &Common) -> Result<ExitCode, Failure> {
    let In { object, trying } = command.place();
    let array = trying.connect("recipe", common).await?;
    let outcome = async { command.execute(&object.find(&array, common).await?, common.json).await };
    let outcome = outcome.await.map_err(|failure| failure.of(object));
    array.close().await;
    outcome
}

fn bytes(written: &Written) -> Result<Bytes, Failure> {
    Ok(written.value()?.into_bytes())
}

/// The default name of a holder: this process on this machine.
fn own_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}-{}", host.trim(), std::process::id())
}

/// The shortest lease: it is renewed three times per lease, and must not be lost by a short pause.
const LEASE_MIN: Duration = Duration::from_millis(500);

/// Parses a lease, which may be shorter than a second.
fn lease(text: &str) -> Result<Duration, String> {
    let lease = match text.strip_suffix("ms") {
        Some(digits) => digits.parse().map(Duration::from_millis).map_err(|_| format!("'{text}' is not a duration"))?,
        None => span(text)?,
    };
    if lease < LEASE_MIN {
        return Err(format!("'{text}' is too short: a short pause would lose the hold; use at least 500ms"));
    }
    Ok(lease)
}

fn attribute_of_user(text: &str) -> Result<AttributeName, String> {
    let name = attribute(text)?;
    // A delivery counter uses this many pages from there on.
    let last = AttributeName::RESERVED_PAGES - braid_client::recipes::counter::SLOTS as u32 - 4;
    if name.page < last {
        Ok(name)
    } else {
        Err(format!("the page of '{text}' is too high: use a page below {last:#x}"))
    }
}
