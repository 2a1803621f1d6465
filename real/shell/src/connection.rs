//! One connection: its socket, what has come and is not yet cut, and what waits to be written.

use crate::counters::{Counters, add};
use crate::inbox::{Inbox, Refused};
use crate::outbox::Outbox;
use crate::stream::Stream;
use braid_base::NodeId;
use braid_wire::{EncodedFrame, Message};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

/// A peer that has begun a frame, or not said who it is, must go on within this.
const STALL_MAX: Duration = Duration::from_secs(10);

/// A connection that was just made.
pub(crate) struct Arrival {
    pub stream: Stream,
    /// What it is called in the log.
    pub name: String,
    /// Who is at the other end, as far as is known.
    pub peer: Option<NodeId>,
    /// Between frames, a silence of this length ends it; one that we made is silent only if we have asked something.
    pub silence_max: Duration,
    pub slot: Slot,
}

/// What the end of a connection gives back.
pub(crate) enum Slot {
    /// Room for another one.
    Accepted { _permit: OwnedSemaphorePermit },
    /// Word to whoever made it: false if the peer was asked and had nothing valid to say.
    Made { ended: oneshot::Sender<bool> },
}

pub(crate) struct Connection {
    name: String,
    stream: Stream,
    inbox: Inbox,
    outbox: Outbox,
    silence_max: Duration,
    last_read: Instant,
    /// When something was first asked since the last read.
    asked: Option<Instant>,
    /// It has brought a valid frame.
    spoke: bool,
    slot: Slot,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It is in the outbox.
    Behind,
    /// It is, and it is the only one there.
    First,
    /// It was dropped: the outbox is full.
    Full,
}

/// Why a connection is over.
pub(crate) enum Ended {
    /// It broke or was closed. No news: the protocols notice silence.
    Quietly,
    /// We close it.
    Refused(Refused),
}

impl Connection {
    pub fn new(arrival: Arrival, inbox: Inbox, now: Instant) -> Connection {
        let Arrival { stream, name, silence_max, slot, .. } = arrival;
        let outbox = Outbox::default();
        Connection { name, stream, inbox, outbox, silence_max, last_read: now, asked: None, spoke: false, slot }
    }

    /// What it is called in the log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Who is at the other end, once known.
    pub fn peer(&self) -> Option<NodeId> {
        self.inbox.peer()
    }

    /// Puts a frame into the outbox; [`Connection::poll_flush`] writes it.
    pub fn push(&mut self, frame: EncodedFrame) -> Pushed {
        let first = self.outbox.is_empty();
        if matches!(self.slot, Slot::Made { .. }) {
            self.asked.get_or_insert_with(Instant::now);
        }
        match self.outbox.push(frame) {
            false => Pushed::Full,
            true if first => Pushed::First,
            true => Pushed::Behind,
        }
    }

    /// Writes what waits, as far as the socket takes it.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>, counters: &Counters) -> Poll<Result<(), Ended>> {
        let Connection { outbox, stream, .. } = self;
        let flushed = outbox.poll_flush(|slices| {
            let written = stream.poll_write(cx, slices);
            if let Poll::Ready(Ok(count)) = &written {
                add(&counters.socket_writes, usize::from(!stream.is_pipe()));
                add(&counters.bytes_sent, *count);
            }
            written
        });
        flushed.map_err(|_| Ended::Quietly)
    }

    /// Reads once, and tells `take` each message that is whole.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        counters: &Counters,
        mut take: impl FnMut(NodeId, Message),
    ) -> Poll<Result<(), Ended>> {
        let count = match ready!(self.stream.poll_read(cx, self.inbox.room())) {
            Ok(count @ 1..) => count,
            _ => return Poll::Ready(Err(Ended::Quietly)),
        };
        (self.last_read, self.asked) = (now, None);
        add(&counters.socket_reads, usize::from(!self.stream.is_pipe()));
        add(&counters.bytes_received, count);
        loop {
            match self.inbox.next() {
                Ok(Some((from, message))) => {
                    self.spoke = true;
                    add(&counters.frames_received, 1);
                    take(from, message);
                }
                Ok(None) => return Poll::Ready(Ok(())),
                Err(refused) => return Poll::Ready(Err(Ended::Refused(refused))),
            }
        }
    }

    /// Whether it has been silent for too long, or is not wanted any more.
    pub fn check(&self, now: Instant) -> Result<(), Ended> {
        if let Slot::Made { ended } = &self.slot
            && ended.is_closed()
        {
            return Err(Ended::Quietly);
        }
        let waiting = self.inbox.is_waiting();
        let patience = if waiting { STALL_MAX } else { self.silence_max };
        let since = match (&self.slot, waiting) {
            (Slot::Made { .. }, false) => match self.asked {
                Some(asked) => asked,
                // Nobody has to speak unasked.
                None => return Ok(()),
            },
            _ => self.last_read,
        };
        match now.saturating_duration_since(since) >= patience {
            false => Ok(()),
            true if waiting && self.spoke => Err(Ended::Refused(Refused::Stalled { seconds: STALL_MAX.as_secs() })),
            // A stranger without a word, or a silence: not worth a warning.
            true => Err(Ended::Quietly),
        }
    }

    /// Closes it.
    pub fn end(self) {
        if let Slot::Made { ended } = self.slot {
            // Whoever made it may have gone.
            let _ = ended.send(self.spoke || self.asked.is_none());
        }
    }
}
