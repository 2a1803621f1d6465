//! `braid lock`: run a command while a range is locked.

use super::recipe::hold::{ITSELF, status_of_held, status_of_signal};
use braid_admin::Failure;
use braid_admin::held::range::{of_range, run as run_under};
use braid_admin::held::running::{HeldCommand, UNATTENDED};
use braid_client::{Array, ArrayOptions, LockMode};
use braid_terminal::arguments::{size, span};
use braid_terminal::{Common, Signals};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// As long as the name of a file.
const SPACE_BYTES_MAX: usize = 255;

/// Lock ranges that programs on any hosts of the array share
///
/// A range belongs to a space: a name that programs agree on. It needs no volume. Lock servers grant ranges in the order of the requests; a
/// host keeps what it was granted until another one wants it. docs/range-locks.md describes it.
#[derive(clap::Subcommand)]
pub enum Command {
    Range(Range),
}

/// Run a command while holding a range, shared or exclusive
///
/// Examples:
///   braid lock range inventory 0 4KiB --exclusive -- ./update.sh
///   braid lock range inventory 1MiB 1MiB --shared --wait 5s -- ./report.sh
///
/// BRAID_TOKEN contains a fencing token: a number that is higher than those of all locks that ended before this one was granted. Objects with a
/// fence refuse lower ones (`braid recipe fence`); nothing else of what the command does is refused. If the lock is lost, because a lock server
/// or this program was silent for too long or the host was fenced, the command and its processes are killed. Processes that a command leaves in
/// the background when it ends go on without the lock.
///
/// Exit status: that of the command, or 128 plus the signal that ended it; 124 if the range was not free in time; 125 if the lock was lost;
/// 126 or 127 if the command can't be started; 3 if a lock server does not answer; 1 and 2 for other errors.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
#[command(group = clap::ArgGroup::new("mode").required(true).args(["shared", "exclusive"]))]
pub struct Range {
    /// The name of the space
    space: String,
    /// The first byte, such as 0 or 1MiB
    #[arg(value_parser = size)]
    offset: u64,
    /// The number of bytes
    #[arg(value_parser = size)]
    length: u64,
    /// Others may hold the range shared
    #[arg(long)]
    shared: bool,
    /// No other program may hold any of the range
    #[arg(long)]
    exclusive: bool,
    /// How long to wait for the range; 0s: no longer than a host takes to give up what it does not use
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "1m")]
    wait: Duration,
    /// The command to run, after `--`
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub async fn run(Command::Range(range): Command, common: &Common) -> Result<ExitCode, Failure> {
    let mut signals = Signals::catch()?;
    let end = range.offset.checked_add(range.length).filter(|end| *end > range.offset);
    let end = end.ok_or_else(|| of_range(braid_client::Error::OutOfRange))?;
    if range.space.is_empty() || range.space.len() > SPACE_BYTES_MAX {
        let message = format!("the name of a space has 1 to {SPACE_BYTES_MAX} bytes");
        return Err(Failure::usage("bad-space", message));
    }
    let array = Array::connect(ArrayOptions::at(&common.array).name(format!("lock {}", range.space))).await?;
    let outcome = range.hold(&array, end, &mut signals).await;
    // Processes of the command may still run. So the host does not say that it is gone: others wait until its lease is over.
    if !outcome.as_ref().is_err_and(|failure| failure.code == UNATTENDED) {
        array.close().await;
    }
    outcome
}

impl Range {
    async fn hold(&self, array: &Array, end: u64, signals: &mut Signals) -> Result<ExitCode, Failure> {
        let ranges = array.within(self.wait).ranges(&self.space);
        let mode = if self.shared { LockMode::Shared } else { LockMode::Exclusive };
        let lock = if self.wait.is_zero() {
            let lock = ranges.try_lock(self.offset..end, mode).await.map_err(of_range)?;
            lock.ok_or_else(|| of_range(braid_client::Error::RangeTaken { waited: Duration::ZERO }))?
        } else {
            tokio::select! {
                lock = ranges.lock(self.offset..end, mode) => lock.map_err(of_range)?,
                signal = signals.which() => return Ok(status_of_signal(signal)),
            }
        };
        let command = HeldCommand { words: &self.command, itself: ITSELF };
        // The time to wait was that for the range.
        let lock = lock.within(array.deadline());
        run_under(lock, &command, &mut async || signals.which().await).await.map(status_of_held)
    }
}
