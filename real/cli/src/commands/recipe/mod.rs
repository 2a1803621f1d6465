//! `braid recipe`: the structures that are built on objects with attributes, to try in a shell (`docs/recipes/`).
//!
//! | module | what |
//! | --- | --- |
//! | `hold` | lock, delivery counter, fail-over: a command that runs while something is held |
//! | `active_hold` | what these three, and the work on a queue's items, have in common |
//! | `running` | the command, which does not outlive this program |
//! | `supervisor` | the process between, which sees to that |
//! | `list`, `queue`, `directory` | what many put in and take out |
//! | `fence` | refusing what comes too late |

mod active_hold;
mod directory;
mod fence;
mod hold;
mod list;
mod queue;
mod running;
mod supervisor;

use crate::commands::object::Trying;
use crate::values::{ObjectName, Written, attribute};
use braid_admin::failure::Failure;
use braid_client::recipes::RequestFailure;
use braid_client::{AttributeName, Bytes, Error as ClientError, Object};
use braid_terminal::Common;
use braid_terminal::arguments::span;
use std::process::ExitCode;
use std::time::Duration;

/// Locks, counters, lists, queues, directories and leaders, built on objects with attributes
///
/// No server keeps these structures: any number of programs, on any machines of the array, change them at once by atomic operations, and none
/// that dies leaves anything stuck. Each lies in an object: `braid object create 2` makes one on device 2; on an attribute volume all are there from the
/// first, such as locks:7. What each promises, and how it works: docs/recipes/.
#[derive(clap::Subcommand)]
#[command(after_long_help = EXAMPLES)]
pub enum Command {
    /// A lock for one that writes or many that read
    ///
    /// It uses the attribute PAGE.NUMBER, and those of the same number on the next two pages.
    #[command(subcommand)]
    Lock(hold::Lock),
    /// A delivery counter: whoever comes draws a ticket, and is served in that order
    ///
    /// It uses the attribute PAGE.NUMBER, and those of the same number on the next 65539 pages: give it an object of its own.
    #[command(subcommand)]
    Counter(hold::Counter),
    /// Fail-over: one leads, others take over when it fails
    ///
    /// It uses the attribute PAGE.NUMBER, and those of the same number on the next two pages.
    #[command(subcommand)]
    Leader(hold::Leader),
    /// A linked list
    ///
    /// It uses the pages 0x40000, 0x10000000 to 0x1fffffff and 0x20000000 to 0x2fffffff of its object: nothing else may.
    #[command(subcommand)]
    List(list::Command),
    /// A queue of work, each item of which is done by one consumer
    ///
    /// It uses the pages 0x30001 to 0x30003 of its object: nothing else may.
    #[command(subcommand)]
    Queue(queue::Command),
    /// A directory: names, and the objects that they stand for
    ///
    /// It uses the pages 0x20001 to 0x20004 of its object: nothing else may.
    #[command(subcommand)]
    Directory(directory::Command),
    /// Fences: how the late writes of a former holder are refused
    #[command(subcommand)]
    Fence(fence::Command),
    #[command(hide = true)]
    Supervise(supervisor::Supervise),
    #[command(hide = true)]
    Become(supervisor::Become),
}

const EXAMPLES: &str = "\
Each structure has an object of its own, which nothing else uses (`braid object create 2:11` makes the first of these):
  braid recipe lock run 2:11 1.1 -- ./backup.sh         one at a time, on however many machines
  braid recipe counter run 2:12 1.1 -- ./print.sh       the same, in the order in which they came
  braid recipe leader run 2:13 1.1 -- ./serve.sh        as long as this one leads; start it on each machine
  braid recipe queue put 2:14 'resize photo-17'
  braid recipe queue work 2:14 -- ./resize.sh           the item comes on standard input
  braid recipe directory insert 2:15 photo-17 4711
  braid recipe list insert 2:16 apple --in-order

Writes of a holder that comes too late are refused where they are guarded by its token, as in ./backup.sh:
  braid object append 2:11 'copied' --guard 2.1=$BRAID_TOKEN

Which pages each structure uses: docs/recipes/README.md.

Exit status of `run`: that of the command; 124 if what it needs was not to be had in time, 125 if it was lost meanwhile. See `braid recipe lock run --help`.";

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
        Command::Fence(command) => command.place(),
        Command::Supervise(supervisor) => return supervisor.run().await,
        Command::Become(command) => return command.run(),
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
            Command::Fence(command) => command.execute(&object, common.json).await,
            Command::Supervise(_) | Command::Become(_) => unreachable!("they have run"),
        }
    };
    let outcome = outcome.await.map_err(|failure| failure.of(&place.object));
    array.close().await;
    outcome
}

/// What a structure's trouble is to whoever typed the command.
fn failure(failure: RequestFailure) -> Failure {
    match failure {
        RequestFailure::Refused(failure) => ClientError::from(failure).into(),
        RequestFailure::TooLong { .. } => Failure::usage("too-long", failure.to_string()),
        RequestFailure::NoName => Failure::usage("no-name", failure.to_string()),
        RequestFailure::Unknown => Failure::unreachable("timed-out", failure.to_string())
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

/// No lease is shorter: what is renewed three times in it must not be lost by any small pause.
const LEASE_MIN: Duration = Duration::from_millis(500);

/// Reads a lease, which may be shorter than a second, for an argument.
fn lease(text: &str) -> Result<Duration, String> {
    let lease = match text.strip_suffix("ms") {
        Some(digits) => digits.parse().map(Duration::from_millis).map_err(|_| format!("'{text}' is no span"))?,
        None => span(text)?,
    };
    if lease < LEASE_MIN {
        return Err(format!("'{text}' is too short: who is paused for a moment would lose it; 500ms at least"));
    }
    Ok(lease)
}

fn attribute_of_user(text: &str) -> Result<AttributeName, String> {
    let name = attribute(text)?;
    // A delivery counter uses so many pages from there on.
    let last = AttributeName::RESERVED_PAGES - braid_client::recipes::counter::SLOTS as u32 - 4;
    if name.page < last { Ok(name) } else { Err(format!("'{text}' is too far up: pages below {last:#x} will do")) }
}
