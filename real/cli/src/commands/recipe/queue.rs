//! `braid recipe queue`.

use super::{In, bytes, id, lease, trouble};
use crate::commands::span;
use crate::failure::Failure;
use crate::output;
use crate::values::Written;
use braid_client::recipes::queue::{Claimed, Finished, Queue, Renewed, STATES_PAGE, Watch};
use braid_client::{Object, Space};
use serde_json::json;
use std::ffi::OsString;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command as Program;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Put an item in, and print its number
    Put(Put),
    /// Take items one after the other, and run a command for each
    ///
    /// The item comes on the command's standard input. If the command ends with status 0, the item is finished; if not, it is left to others.
    /// While the command runs, the claim is renewed; if this program dies, others take the item over after the lease.
    Work(Work),
    /// Print how many items there are
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
    /// A consumer that is not heard of for so long has lost its item; the same for all: 30s, 500ms
    #[arg(long, value_name = "SPAN", value_parser = lease, default_value = "30s")]
    lease: Duration,
    /// So many items, then no more [default: until none comes for --patience]
    #[arg(long, value_name = "COUNT")]
    items: Option<u64>,
    /// How long to wait for an item
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "1m")]
    patience: Duration,
    /// The command to run for each, behind `--`
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// What came of an item.
enum Worked {
    Finished,
    GivenBack(ExitStatus),
    Lost,
}

impl Command {
    /// Where it lies.
    pub fn place(&self) -> &In {
        match self {
            Command::Put(Put { place, .. }) | Command::Work(Work { place, .. }) | Command::Count(place) => place,
        }
    }

    /// Does it.
    pub async fn execute(&self, object: &Object, as_json: bool) -> Result<ExitCode, Failure> {
        match self {
            Command::Put(Put { item, .. }) => {
                let queue = Queue::new(id(object), Duration::ZERO);
                let item = object.space().run(queue.put(bytes(item)?)).await?.map_err(trouble)?.0;
                output::print(as_json, || json!({"schema": 1, "item": item}), || format!("{item}\n"));
                Ok(ExitCode::SUCCESS)
            }
            Command::Work(work) => work.work(object, as_json).await,
            Command::Count(_) => {
                let count = object.attributes(Some(STATES_PAGE)).await?.len();
                output::print(as_json, || json!({"schema": 1, "items": count}), || format!("{count}\n"));
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
        let mut watch = Watch::default();
        while self.items.is_none_or(|items| finished + failed + lost < items) {
            let end = space.run(queue.claim(consumer, watch, self.patience)).await?;
            watch = end.watch;
            let Some(claimed) = end.result.map_err(trouble)? else { break };
            match self.work_on(space, queue, claimed).await? {
                Worked::Finished => finished += 1,
                Worked::GivenBack(status) => {
                    failed += 1;
                    tracing::warn!("the command ended with {status}: the item is left to others");
                    // Not at once the same again.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                Worked::Lost => lost += 1,
            }
        }
        output::print(
            as_json,
            || json!({"schema": 1, "finished": finished, "given_back": failed, "lost": lost}),
            || format!("{finished} finished, {failed} given back, {lost} lost to others\n"),
        );
        Ok(if failed + lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn work_on(&self, space: &Space, queue: Queue, mut claimed: Claimed) -> Result<Worked, Failure> {
        let (program, arguments) = self.command.split_first().expect("the command line asks for a command");
        let mut command = Program::new(program);
        command.args(arguments).stdin(Stdio::piped()).kill_on_drop(true);
        command.env("BRAID_ITEM", claimed.item.0.to_string()).env("BRAID_TOKEN", claimed.token.to_string());
        let spawned = command.spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => {
                space.run(queue.give_back(claimed)).await?.map_err(trouble)?;
                return Err(Failure::from(error).of(program.to_string_lossy()));
            }
        };
        let (mut input, work) = (child.stdin.take().expect("it was asked for"), claimed.work.clone());
        let given = tokio::task::spawn_local(async move {
            // A command that does not read it all is none of our business.
            let _ = input.write_all(&work).await;
        });
        let status = loop {
            tokio::select! {
                status = child.wait() => break status?,
                () = tokio::time::sleep(self.lease / 3) => {
                    match space.run(queue.renew(claimed)).await?.map_err(trouble)? {
                        Renewed::Kept(kept) => claimed = kept,
                        Renewed::Lost => {
                            let _ = child.kill().await;
                            return Ok(Worked::Lost);
                        }
                    }
                }
            }
        };
        given.abort();
        if !status.success() {
            space.run(queue.give_back(claimed)).await?.map_err(trouble)?;
            return Ok(Worked::GivenBack(status));
        }
        match space.run(queue.finish(claimed, Vec::new())).await?.map_err(trouble)? {
            Finished::Finished => Ok(Worked::Finished),
            Finished::Lost => Ok(Worked::Lost),
        }
    }
}
