//! The events of an array as a stream, as printed by `braid events --follow`.

use crate::failure::Failure;
use braid_control::{ControlPlane, EventCursor};
use std::collections::VecDeque;
use std::time::Duration;

pub use braid_control::{Event, EventKind};

/// The interval at which the log is read.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The events of an array in the order of its log. The log is bounded: a stream that is not read for a long time may miss events that the
/// log no longer contains.
#[derive(Debug)]
pub struct Events {
    control: ControlPlane,
    cursor: EventCursor,
    read: VecDeque<Event>,
}

impl Events {
    /// First the events in `read`, then those after `cursor`.
    pub fn after(control: ControlPlane, cursor: EventCursor, read: Vec<Event>) -> Events {
        Events { control, cursor, read: read.into() }
    }

    /// The next event, for which it waits without a limit. Dropping the future loses no event.
    pub async fn next(&mut self) -> Result<Event, Failure> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Ok(event);
            }
            self.read_on().await?;
            if self.read.is_empty() {
                self.control.changed(LOOK_EVERY).await;
            }
        }
    }

    /// The events in the log that were not returned yet; none if there are none now.
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
            self.control.changed(LOOK_EVERY).await;
        }
    }

    async fn read_on(&mut self) -> Result<(), Failure> {
        let (events, cursor) = self.control.events_since(self.cursor).await?;
        self.cursor = cursor;
        self.read.extend(events);
        Ok(())
    }
}
