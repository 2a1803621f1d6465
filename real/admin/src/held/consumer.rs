//! A consumer of a queue: takes items one after the other, and runs a command for each.

use super::HeldOutcome;
use super::active_hold::{ActiveHold, Item, now};
use super::failure;
use super::running::{HeldCommand, Running};
use super::supervisor::{NOT_FOUND, NOT_RUN};
use crate::failure::{Exit, Failure};
use braid_client::recipes::queue::{Finished, Queue, Watch};
use braid_client::{Object, Space};
use rustix::process::Signal;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

#[derive(Clone, Copy, Debug)]
pub struct Consumer<'a> {
    pub queue: Queue,
    /// The number of items to work on; none to work until none comes for `patience`.
    pub items: Option<u64>,
    /// How long to wait for an item.
    pub patience: Duration,
    /// The command to run for each item, which is its standard input. It finds the item's number in `BRAID_ITEM`, and the number of claims
    /// in `BRAID_TOKEN`.
    pub command: HeldCommand<'a>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consumed {
    /// Items whose command has succeeded.
    pub finished: u64,
    /// Items that were returned to the queue.
    pub returned: u64,
    /// Items that other consumers have taken over.
    pub lost: u64,
    /// The signal that asked this program to end.
    pub asked: Option<Signal>,
}

/// The result of working on an item.
enum Worked {
    Finished,
    GivenBack(ExitStatus),
    Lost,
    /// It was returned, because this program was asked to end.
    AskedToEnd(Signal),
}

impl Consumer<'_> {
    /// Works on items. `stop` waits for a signal that asks this program to end: then the command is ended, and the item returned.
    pub async fn work(&self, object: &Object, stop: &mut impl AsyncFnMut() -> Signal) -> Result<Consumed, Failure> {
        let (space, queue) = (object.space(), self.queue);
        let consumer = (u64::from(space.array().generation()) << 32) | u64::from(std::process::id());
        let (mut consumed, mut watch) = (Consumed::default(), Watch::default());
        while self.items.is_none_or(|items| consumed.finished + consumed.returned + consumed.lost < items) {
            let sent = now();
            let end = tokio::select! {
                end = space.run(queue.claim(consumer, watch, self.patience)) => end?,
                signal = stop() => {
                    consumed.asked = Some(signal);
                    break;
                }
            };
            watch = end.watch;
            let Some(claimed) = end.result.map_err(failure)? else { break };
            match self.work_on(space, Item { queue, claimed, sent }, stop).await? {
                Worked::Finished => consumed.finished += 1,
                Worked::GivenBack(status) => {
                    consumed.returned += 1;
                    tracing::warn!("the command ended with {status}: the item is returned to the queue");
                    // A pause, because the next item may be the same one.
                    tokio::select! {
                        () = tokio::time::sleep(Duration::from_secs(1)) => {}
                        signal = stop() => {
                            consumed.asked = Some(signal);
                            break;
                        }
                    }
                }
                Worked::Lost => consumed.lost += 1,
                Worked::AskedToEnd(signal) => {
                    consumed.returned += 1;
                    consumed.asked = Some(signal);
                    break;
                }
            }
        }
        Ok(consumed)
    }

    async fn work_on(
        &self,
        space: &Space,
        mut item: Item,
        stop: &mut impl AsyncFnMut() -> Signal,
    ) -> Result<Worked, Failure> {
        // If the item had to be waited for, the time of the claim is unknown: renew it.
        if now().since(item.sent) >= self.queue.lease / 3 {
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
            Err(failure) => return active_hold.give_back(space, stop).await.and(Err(failure)),
        };
        let mut input = running.input().expect("its input is a pipe");
        let given = tokio::task::spawn_local(async move {
            // The command need not read all of its input.
            let _ = input.write_all(&work).await;
        });
        let ended = active_hold.supervise(space, &mut running, stop).await;
        given.abort();
        let status = match ended? {
            Ok(HeldOutcome::Ended(status)) => status,
            Ok(HeldOutcome::AskedToEnd(signal)) => {
                active_hold.give_back(space, stop).await?;
                return Ok(Worked::AskedToEnd(signal));
            }
            Err(failure) if failure.exit == Exit::LostMeanwhile => {
                tracing::warn!("{failure}");
                return Ok(Worked::Lost);
            }
            Err(failure) => return Err(failure),
        };
        if !status.success() {
            active_hold.give_back(space, stop).await?;
            if let Some(NOT_RUN | NOT_FOUND) = status.code() {
                let message = "the command can't be executed, and the item was returned to the queue";
                return Err(Failure::failed("no-command", message));
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
