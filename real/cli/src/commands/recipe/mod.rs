//! `braid recipe`: the structures that are built on objects with attributes, to try in a shell (`docs/recipes/`).
//!
//! | module | what |
//! | --- | --- |
//! | `hold` | lock, delivery counter, fail-over: a command that runs while something is held |
//! | `tenure` | what these three have in common |
//! | `list`, `queue`, `directory` | what many put in and take out |

mod directory;
mod hold;
mod list;
mod queue;
mod tenure;

use crate::commands::object::Trying;
use crate::commands::{Common, span};
use crate::failure::Failure;
use crate::values::{ObjectName, Written, attribute};
use braid_client::recipes::Trouble;
use braid_client::{AttributeName, Bytes, Error as ClientError, Object};
use std::process::ExitCode;
use std::time::Duration;

/// Locks, counters, lists, queues, directories and leaders, built on objects with attributes
///
/// No server keeps these structures: any number of programs, on any machines of the array, change them at once by atomic operations, and none
/// that dies leaves anything stuck. Each lies in an object: `braid object create 2` makes one on device 2; on a mirror all are there from the
/// first, such as locks:7. What each promises, and how it works: docs/recipes/.
#[derive(clap::Subcommand)]
#[command(after_long_help = EXAMPLES)]
pub enum Command {
    /// A lock for one that writes or many that read
    #[command(subcommand)]
    Lock(hold::Lock),
    /// A delivery counter: whoever comes draws a ticket, and is served in that order
    #[command(subcommand)]
    Counter(hold::Counter),
    /// Fail-over: one leads, others take over when it fails
    #[command(subcommand)]
    Leader(hold::Leader),
    /// A linked list
    #[command(subcommand)]
    List(list::Command),
    /// A queue of work, each item of which is done by one consumer
    #[command(subcommand)]
    Queue(queue::Command),
    /// A directory: names, and the objects that they stand for
    #[command(subcommand)]
    Directory(directory::Command),
}

const EXAMPLES: &str = "\
Examples, all with an object 2:1 (`braid object create 2` prints its name):
  braid recipe lock run 2:1 1.1 -- ./backup.sh          one at a time, on however many machines
  braid recipe counter run 2:1 9.1 -- ./print.sh        the same, in the order in which they came
  braid recipe leader run 2:1 8.1 -- ./serve.sh         as long as this one leads; start it on each machine
  braid recipe queue put 2:1 'resize photo-17'
  braid recipe queue work 2:1 -- ./resize.sh            the item comes on standard input
  braid recipe directory insert 2:1 photo-17 4711
  braid recipe list insert 2:1 apple --in-order

Exit status: that of the command that was run; 1 also if what was held was lost meanwhile, or could not be had in time.";

/// An object in which a structure lies.
#[derive(clap::Args)]
pub struct In {
    /// In which object: DEVICE:NUMBER or MIRROR:NUMBER
    object: ObjectName,
    #[command(flatten)]
    trying: Trying,
}

/// Runs one of them.
pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    let place = match &command {
        Command::Lock(command) => command.place(),
        Command::Counter(command) => command.place(),
        Command::Leader(command) => command.place(),
        Command::List(command) => command.place(),
        Command::Queue(command) => command.place(),
        Command::Directory(command) => command.place(),
    };
    let array = place.trying.connect("recipe", common).await?;
    let outcome = async {
        let object = place.object.find(&array).await?;
        match &command {
            Command::Lock(command) => command.execute(&object, common.json).await,
            Command::Counter(command) => command.execute(&object, common.json).await,
            Command::Leader(command) => command.execute(&object, common.json).await,
            Command::List(command) => command.execute(&object, common.json).await,
            Command::Queue(command) => command.execute(&object, common.json).await,
            Command::Directory(command) => command.execute(&object, common.json).await,
        }
    };
    let outcome = outcome.await.map_err(|failure| failure.of(&place.object));
    array.close().await;
    outcome
}

/// What a structure's trouble is to whoever typed the command.
fn trouble(trouble: Trouble) -> Failure {
    match trouble {
        Trouble::Refused(failure) => ClientError::from(failure).into(),
        Trouble::Unknown => Failure::unreachable("timed-out", trouble.to_string())
            .hint("`braid status` shows which devices serve; look before you try again"),
    }
}

fn bytes(written: &Written) -> Result<Bytes, Failure> {
    Ok(written.value()?.into_bytes())
}

fn id(object: &Object) -> braid_base::ObjectId {
    braid_base::ObjectId(object.number())
}

/// What a name stands for when none is said: this process on this machine.
fn own_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}-{}", host.trim(), std::process::id())
}

/// Reads a span that may be shorter than a second, for an argument.
fn lease(text: &str) -> Result<Duration, String> {
    match text.strip_suffix("ms") {
        Some(digits) => digits.parse().map(Duration::from_millis).map_err(|_| format!("'{text}' is no span")),
        None => span(text),
    }
}

fn attribute_of_user(text: &str) -> Result<AttributeName, String> {
    let name = attribute(text)?;
    // A delivery counter uses so many pages from there on.
    let last = AttributeName::RESERVED_PAGES - braid_client::recipes::counter::SLOTS as u32 - 4;
    if name.page < last { Ok(name) } else { Err(format!("'{text}' is too far up: pages below {last:#x} will do")) }
}
