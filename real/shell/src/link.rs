//! One connection: a task that reads frames off it, and the outbox that the driver fills and flushes.

use crate::counters::{Counters, add};
use crate::inbox::{Inbox, Refused};
use crate::outbox::Outbox;
use crate::stream::{ReadHalf, WriteHalf};
use crate::warning::Warning;
use braid_base::NodeId;
use braid_wire::{EncodedFrame, Message};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// A peer that has begun a frame, or not said who it is, must go on within this.
const STALL_MAX: Duration = Duration::from_secs(10);
/// A host that says nothing for so long is gone; living ones speak twice a second.
pub(crate) const HOST_SILENCE_MAX: Duration = Duration::from_secs(60);
/// A device that says nothing for so long may be behind a connection that is dead without knowing: a new one finds it
/// sooner than the system's own patience would.
pub(crate) const DEVICE_SILENCE_MAX: Duration = Duration::from_secs(5);

/// What connections tell the driver.
pub(crate) enum Event {
    /// From now on, what is for `peer` goes this way.
    Up { peer: NodeId, link: Arc<Link> },
    /// What one read brought.
    Messages { from: NodeId, messages: Vec<Message> },
}

/// The sending side of a connection.
pub(crate) struct Link {
    sending: Mutex<Sending>,
    /// Told when a flush had to leave something.
    stuck: Notify,
    /// Told when a write failed.
    broken: Notify,
    counters: Arc<Counters>,
}

struct Sending {
    outbox: Outbox,
    /// None once the connection is over.
    stream: Option<Arc<WriteHalf>>,
    dirty: bool,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It is in the outbox.
    Yes,
    /// It is, and it is the first since the last flush.
    First,
    /// It was dropped: the outbox is full.
    Full,
    /// It was dropped: the connection is over.
    Closed,
}

impl Link {
    pub fn new(stream: WriteHalf, counters: Arc<Counters>) -> Arc<Link> {
        let sending = Sending { outbox: Outbox::default(), stream: Some(Arc::new(stream)), dirty: false };
        Arc::new(Link { sending: Mutex::new(sending), stuck: Notify::new(), broken: Notify::new(), counters })
    }

    /// Puts a frame into the outbox; [`Link::flush`] writes it.
    pub fn push(&self, frame: impl FnOnce() -> EncodedFrame) -> Pushed {
        let mut sending = self.held();
        if sending.stream.is_none() {
            return Pushed::Closed;
        }
        if !sending.outbox.push(frame()) {
            return Pushed::Full;
        }
        match std::mem::replace(&mut sending.dirty, true) {
            true => Pushed::Yes,
            false => Pushed::First,
        }
    }

    /// Writes what the socket takes at once. What it does not take, the connection's task writes when it can.
    pub fn flush(&self) {
        let mut sending = self.held();
        let Sending { outbox, stream, dirty } = &mut *sending;
        *dirty = false;
        let Some(stream) = stream else { return };
        let flushed = outbox.flush(|slices| {
            add(&self.counters.socket_writes, 1);
            let written = stream.try_write(slices)?;
            add(&self.counters.bytes_sent, written);
            Ok(written)
        });
        match flushed {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.stuck.notify_one(),
            Err(_) => self.broken.notify_one(),
        }
    }

    pub fn is_closed(&self) -> bool {
        self.held().stream.is_none()
    }

    fn close(&self) {
        let mut sending = self.held();
        sending.stream = None;
        sending.outbox = Outbox::default();
    }

    /// Flushes whenever the socket has room again.
    async fn keep_flushing(&self) {
        loop {
            self.stuck.notified().await;
            let Some(stream) = self.held().stream.clone() else { return };
            if stream.writable().await.is_err() {
                return;
            }
            self.flush();
        }
    }

    fn held(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection as its task sees it.
pub(crate) struct Connection {
    /// What it is called in the log.
    pub name: String,
    pub read: ReadHalf,
    pub link: Arc<Link>,
    pub inbox: Inbox,
    /// Between frames, a silence of this length ends the connection.
    pub silence_max: Duration,
    pub events: mpsc::Sender<Event>,
    pub counters: Arc<Counters>,
    pub warning: Arc<Warning>,
}

impl Connection {
    /// Serves the connection until it ends. True if the peer had anything valid to say.
    pub async fn run(mut self) -> bool {
        let link = self.link.clone();
        // Dropping this future, too, closes the connection.
        let _closing = Closing(&link);
        let mut spoke = false;
        let ended = tokio::select! {
            ended = self.keep_reading(&mut spoke) => ended,
            () = link.keep_flushing() => Ok(()),
            () = link.broken.notified() => Ok(()),
        };
        if let Err(refused) = ended {
            add(&self.counters.connections_refused, 1);
            self.warning.say(|| format!("closing the connection with {}: {refused}", self.name));
        }
        spoke
    }

    async fn keep_reading(&mut self, spoke: &mut bool) -> Result<(), Refused> {
        let mut known = self.inbox.peer();
        loop {
            let waiting = self.inbox.is_waiting();
            let patience = if waiting { STALL_MAX } else { self.silence_max };
            let count = match tokio::time::timeout(patience, self.read.read(self.inbox.room())).await {
                Ok(count) => count,
                Err(_) if waiting && known.is_some() => return Err(Refused::Stalled { seconds: STALL_MAX.as_secs() }),
                // A stranger without a word, or a silence: not worth a warning.
                Err(_) => return Ok(()),
            };
            // A connection that breaks is no news: the protocols notice silence.
            let Ok(count @ 1..) = count else { return Ok(()) };
            add(&self.counters.socket_reads, 1);
            add(&self.counters.bytes_received, count);
            let mut messages = Vec::new();
            let cut = loop {
                match self.inbox.next() {
                    Ok(Some(message)) => messages.push(message),
                    Ok(None) => break Ok(()),
                    Err(refused) => break Err(refused),
                }
            };
            if let Some(from) = self.inbox.peer()
                && !messages.is_empty()
            {
                *spoke = true;
                add(&self.counters.frames_received, messages.len());
                if known.replace(from).is_none() {
                    self.tell(Event::Up { peer: from, link: self.link.clone() }).await;
                }
                self.tell(Event::Messages { from, messages }).await;
            }
            cut?;
        }
    }

    /// Waits while the driver is behind, and so makes the peer wait as well.
    async fn tell(&self, event: Event) {
        // Without a driver, this task is about to be ended too.
        let _ = self.events.send(event).await;
    }
}

struct Closing<'a>(&'a Link);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
