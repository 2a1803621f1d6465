//! `braid recipe queue`: a work queue, from a shell.

use super::active_hold::{ActiveHold, Ended, Item, now};
use super::running::{Running, status_of_signal};
use super::supervisor::{NOT_FOUND, NOT_RUN};
use super::{In, bytes, failure, id, lease};
use crate::values::Written;
use braid_admin::failure::{Exit, Failure};
use braid_client::recipes::queue::{Finished, Queue, STATES_PAGE, Watch};
use braid_client::{Object, Space};
use braid_terminal::Signals;
use braid_terminal::arguments::span;
use braid_terminal::output;
use rustix::process::Signal;
use serde_json::json;
use std::ffi::OsString;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Put an item into the queue, and print its number
    Put(Put),
    /// Take items one after the other, and run a command for each
    ///
    /// The item is the command's standard input, its number is in BRAID_ITEM, and the number of claims so far in BRAID_TOKEN. If the
    /// command ends with status 0, the item is finished; otherwise it is returned to the queue. While the command runs, the claim is
    /// renewed. If this fails, the command is ended before others can claim the item. If this program is killed, the command is killed,
    /// too, and others claim the item after the lease.
    #[command(after_long_help = STATUS)]
    Work(Work),
    /// Print the number of items
    Count(In),
}

#[derive(clap::Args)]
pub struct Put {
    #[command(flatten)]
    place: In,
    /// text, int:N, hex:DIGITS, file:PATH, or - for standard input
    item: Written,
}

#[derive(clap::Args)]
pub struct Work {
    #[command(flatten)]
    place: In,
    /// The lease, such as 30s, at least 500ms, the same for all consumers: a consumer that is silent for longer loses its item
    #[arg(long, value_name = "SPAN", value_parser = lease, default_value = "30s")]
    lease: Duration,
    /// The number of items to work on [default: until no item comes for --patience]
    #[arg(long, value_name = "COUNT")]
    items: Option<u64>,
    /// How long to wait for an item
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "1m")]
    patience: Duration,
    /// The command to run for each item, after `--`
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

const STATUS: &str = "\
Exit status: 0 if all items were finished, 1 if some were returned or lost to others; 2 or 3, with an error message, if the queue
can't be used. When this program is asked to end (Ctrl-C, SIGTERM), it ends the command, returns the item, and ends with 130 or 143.";

/// The result of working on an item.
enum Worked {
    Finished,
    GivenBack(ExitStatus),
    Lost,
    /// It was returned, because this program was asked to end.
    AskedToEnd(Signal),
}

impl Command {
    /// The object that holds the queue.
    pub fn place(&self) -> &In {
        match self {
            Command::Put(Put { place, .. }) | Command::Work(Work { place, .. }) | Command::Count(place) => place,
        }
    }

    /// Runs the command.
    pub async fn execute(&self, object: &Object, as_json: bool) -> Result<ExitCode, Failure> {
        match self {
            Command::Put(Put { item, .. }) => {
                let queue = Queue::new(id(object), Duration::ZERO);
                let item = object.space().run(queue.put(bytes(item)?)).await?.map_err(failure)?.0;
                output::print(as_json, || json!({"schema": 2, "item": item}), || format!("{item}\n"));
                Ok(ExitCode::SUCCESS)
            }
            Command::Work(work) => work.work(object, as_json).await,
            Command::Count(_) => {
                let count = object.attributes(Some(STATES_PAGE)).await?.len();
                output::print(as_json, || json!({"schema": 2, "items": count}), || format!("{count}\n"));
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl Work {
    async fn work(&self, object: &Object, as_json: bool) -> Result<ExitCode, Failure> {
        let (space, queue) = (object.space(), Queue::new(id(object), self.lease));
        let consumer = (u64::from(object.space().array().generation()) << 32) | u64::from(std::process::id());
        let (mut finished, mut failed, mut lost) = (0, 0, 0);
        let (mut watch, mut signals, mut asked) = (Watch::default(), Signals::catch()?, None);
        while self.items.is_none_or(|items| finished + failed + lost < items) {
            let sent = now();
            let end = tokio::select! {
                end = space.run(queue.claim(consumer, watch, self.patience)) => end?,
                signal = signals.which() => {
                    asked = Some(signal);
                    break;
                }
            };
            watch = end.watch;
            let Some(claimed) = end.result.map_err(failure)? else { break };
            match self.work_on(space, Item { queue, claimed, sent }, &mut signals).await? {
                Worked::Finished => finished += 1,
                Worked::GivenBack(status) => {
                    failed += 1;
                    tracing::warn!("the command ended with {status}: the item is returned to the queue");
                    // A pause, because the next item may be the same one.
                    tokio::select! {
                        () = tokio::time::sleep(Duration::from_secs(1)) => {}
                        signal = signals.which() => {
                            asked = Some(signal);
                            break;
                        }
                    }
                }
                Worked::Lost => lost += 1,
                Worked::AskedToEnd(signal) => {
                    failed += 1;
                    asked = Some(signal);
                    break;
                }
            }
        }
        output::print(
            as_json,
            || json!({"schema": 2, "finished": finished, "given_back": failed, "lost": lost}),
            || format!("{finished} finished, {failed} returned, {lost} lost to others\n"),
        );
        Ok(match asked {
            Some(signal) => status_of_signal(signal),
            None if failed + lost == 0 => ExitCode::SUCCESS,
            None => ExitCode::FAILURE,
        })
    }

    async fn work_on(&self, space: &Space, mut item: Item, signals: &mut Signals) -> Result<Worked, Failure> {
        // If the item had to be waited for, the time of the claim is unknown: renew it.
        if now().since(item.sent) >= self.lease / 3 {
            match ActiveHold::Item(item).renew(space).await {
                Ok(ActiveHold::Item(renewed)) => item = renewed,
                Ok(_) => unreachable!("the hold is an item"),
                Err(failure) if failure.exit == Exit::LostMeanwhile => return Ok(Worked::Lost),
                Err(failure) => return Err(failure),
            }
        }
        let work = item.claimed.work.clone();
        let variables =
            [("BRAID_ITEM", item.claimed.item.0.to_string()), ("BRAID_TOKEN", item.claimed.token.to_string())];
        let mut active_hold = ActiveHold::Item(item);
        let mut running = match Running::start(&self.command, &variables, true) {
            Ok(running) => running,
            Err(failure) => {
                active_hold.give_back(space, signals).await?;
                return Err(failure);
            }
        };
        let mut input = running.input().expect("its input is a pipe");
        let given = tokio::task::spawn_local(async move {
            // The command need not read all of its input.
            let _ = input.write_all(&work).await;
        });
        let ended = active_hold.supervise(space, &mut running, signals).await;
        given.abort();
        let status = match ended? {
            Ended::Itself(status) => status,
            Ended::AskedToEnd(signal) => {
                active_hold.give_back(space, signals).await?;
                return Ok(Worked::AskedToEnd(signal));
            }
            Ended::Lost(failure) if failure.exit == Exit::LostMeanwhile => {
                tracing::warn!("{failure}");
                return Ok(Worked::Lost);
            }
            Ended::Lost(failure) => return Err(failure),
        };
        if !status.success() {
            active_hold.give_back(space, signals).await?;
            if let Some(NOT_RUN | NOT_FOUND) = status.code() {
                return Err(Failure::failed(
                    "no-command",
                    "the command can't be executed, and the item was returned to the queue",
                ));
            }
            return Ok(Worked::GivenBack(status));
        }
        let ActiveHold::Item(Item { queue, claimed, .. }) = active_hold else { unreachable!("the hold is an item") };
        match space.run(queue.finish(claimed, Vec::new())).await?.map_err(failure)? {
            Finished::Finished => Ok(Worked::Finished),
            Finished::Lost => Ok(Worked::Lost),
        }
    }
}
