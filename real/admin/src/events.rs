//! The events of an array, as a stream: what `braid events --follow` prints.

use crate::failure::Failure;
use braid_control::{ArrayFolder, EventCursor};
use braid_session::blocking;
use std::collections::VecDeque;
use std::time::Duration;

pub use braid_control::{Event, EventKind};

/// How often the log is read for new events.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The events of an array, one after the other, in the order of its log. The log is bounded: a stream that is not read for long may miss
/// events that were dropped from it.
#[derive(Debug)]
pub struct Events {
    folder: ArrayFolder,
    cursor: EventCursor,
    read: VecDeque<Event>,
}

impl Events {
    /// First the events that were `read` already, then those behind `cursor`.
    pub fn after(folder: ArrayFolder, cursor: EventCursor, read: Vec<Event>) -> Events {
        Events { folder, cursor, read: read.into() }
    }

    /// The next event; waits for it if need be, without a limit. Dropping this future loses no event.
    pub async fn next(&mut self) -> Result<Event, Failure> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Ok(event);
            }
            self.read_on().await?;
            if self.read.is_empty() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }

    /// The events that are on the log already and were not returned yet; none if there are none now.
    pub async fn pending(&mut self) -> Result<Vec<Event>, Failure> {
        self.read_on().await?;
        Ok(self.read.drain(..).collect())
    }

    /// All events that have come since the last were returned; waits until there is one. Dropping this future loses no event.
    pub async fn next_batch(&mut self) -> Result<Vec<Event>, Failure> {
        loop {
            let come = self.pending().await?;
            if !come.is_empty() {
                return Ok(come);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn read_on(&mut self) -> Result<(), Failure> {
        let mut cursor = self.cursor;
        let (events, cursor) = blocking(&self.folder, move |folder| {
            let events = folder.events_since(&mut cursor)?;
            Ok::<_, braid_control::ControlError>((events, cursor))
        })
        .await?;
        self.cursor = cursor;
        self.read.extend(events);
        Ok(())
    }
}
