//! `braid recipe queue`: a work queue, from a shell.

use super::hold::status_of_signal;
use super::supervisor::ITSELF;
use super::{In, bytes, id, lease};
use crate::report;
use crate::values::Written;
use braid_admin::failure::Failure;
use braid_admin::held::consumer::{Consumed, Consumer};
use braid_admin::held::failure;
use braid_admin::held::running::HeldCommand;
use braid_client::Object;
use braid_client::recipes::queue::{Queue, STATES_PAGE};
use braid_terminal::Signals;
use braid_terminal::arguments::span;
use serde_json::json;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Put an item into the queue, and print its number
    Put {
        #[command(flatten)]
        place: In,
        /// text, int:N, hex:DIGITS, file:PATH, or - for standard input
        item: Written,
    },
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

impl Command {
    /// The object that holds the queue.
    pub fn place(&self) -> &In {
        match self {
            Command::Put { place, .. } | Command::Work(Work { place, .. }) | Command::Count(place) => place,
        }
    }

    /// Runs the command.
    pub async fn execute(&self, object: &Object, as_json: bool) -> Result<ExitCode, Failure> {
        match self {
            Command::Put { item, .. } => {
                let queue = Queue::new(id(object), Duration::ZERO);
                let item = object.space().run(queue.put(bytes(item)?)).await?.map_err(failure)?.0;
                report::done(as_json, json!({"item": item}), || format!("{item}\n"))
            }
            Command::Work(work) => work.work(object, as_json).await,
            Command::Count(_) => {
                let count = object.attributes(Some(STATES_PAGE)).await?.len();
                report::done(as_json, json!({"items": count}), || format!("{count}\n"))
            }
        }
    }
}

impl Work {
    async fn work(&self, object: &Object, as_json: bool) -> Result<ExitCode, Failure> {
        let Work { lease, items, patience, ref command, .. } = *self;
        let command = HeldCommand { words: command, itself: ITSELF };
        let consumer = Consumer { queue: Queue::new(id(object), lease), items, patience, command };
        let mut signals = Signals::catch()?;
        let Consumed { finished, returned, lost, asked } =
            consumer.work(object, &mut async || signals.which().await).await?;
        report::print(as_json, json!({"finished": finished, "given_back": returned, "lost": lost}), || {
            format!("{finished} finished, {returned} returned, {lost} lost to others\n")
        });
        Ok(match asked {
            Some(signal) => status_of_signal(signal),
            None if returned + lost == 0 => ExitCode::SUCCESS,
            None => ExitCode::FAILURE,
        })
    }
}
