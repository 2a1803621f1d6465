//! A connection: its socket, the received bytes that are not yet decoded, and the frames that wait to be written. A pipe needs none of that:
//! messages pass as they are.

use crate::budget::{Account, Budget};
use crate::counters::{Counters, add};
use crate::due::Due;
use crate::inbox::{Inbox, Node, Refused};
use crate::outbox::{OUTBOX_BYTES_MAX, Outbox, Pushed};
use crate::ready::Notice;
use crate::routes::Side;
use crate::stream::Stream;
use braid_base::{Level, NodeId, limits};
use braid_wire::frame::VERSION;
use braid_wire::{Disagreement, Frame, Hello, Message};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

/// How long a peer may take for its first frame, and for a later one if it is short.
const STALL_MAX: Duration = Duration::from_secs(10);
/// The slowest peer that is served, in bytes per second: a longer frame may take the more time.
const RATE_MIN: usize = 64 << 10;
/// Requests of a peer that has so much to read, in bytes, wait until it has read some of it. Otherwise it could have a device read its disk
/// at any rate, for answers that would be dropped. The answer to the largest read is enough to keep a connection busy.
const UNREAD_BYTES_MAX: usize = OUTBOX_BYTES_MAX / 8;
/// How long a peer may read next to nothing of what waits for it: less than at [`RATE_MIN`], and not all of it.
const UNREAD_MAX: Duration = Duration::from_secs(10);
/// The most messages that are received from a pipe before others are.
const MESSAGES_PER_TURN: usize = 256;
/// How long a connection may wait for the route to its node.
const CLAIM_MAX: Duration = Duration::from_secs(10);

/// A new connection.
pub(crate) struct Arrival {
    pub stream: Stream,
    /// Its name in the log.
    pub name: String,
    /// The node at the other end, if known.
    pub peer: Option<NodeId>,
    /// Longest silence between frames before the connection is closed. On a connection that we made, silence counts only while an answer
    /// is due.
    pub silence_max: Duration,
    pub origin: Origin,
}

/// How a connection came about, and what its end releases.
pub(crate) enum Origin {
    /// Accepted: a permit to accept another connection.
    Accepted { _permit: OwnedSemaphorePermit },
    /// Made by us: a notice to the connector, false if the peer owed an answer and sent nothing valid.
    Made { ended: oneshot::Sender<bool> },
}

pub(crate) struct Connection {
    name: String,
    stream: Stream,
    inbox: Inbox,
    outbox: Outbox,
    /// The answers that are not in the outbox yet.
    due: Due,
    silence_max: Duration,
    account: Account,
    last_read: Instant,
    /// The frame that is being received: since when, and its length as far as known.
    receiving: Option<(Instant, usize)>,
    /// Since when the peer has read next to nothing, although something waits for it, and how much of it has been written since.
    unread: Option<(Instant, usize)>,
    /// When the first message since the last read was sent.
    asked: Option<Instant>,
    /// True once it has received a valid frame.
    spoke: bool,
    /// A message that was received while another connection owned the route, and since when it waits. Nothing is read meanwhile.
    held: Option<(Instant, NodeId, Message)>,
    /// True if it was not read from because of what its peer has not read.
    is_paused: bool,
    /// Its entries in the lists of connections that can be read from and written to.
    readable: Arc<Notice>,
    writable: Arc<Notice>,
    /// The last turn in which it was read from.
    turn: u64,
    origin: Origin,
}

/// Why a connection has ended.
pub(crate) enum Ended {
    /// It broke or was closed. Nothing is reported, because the protocols notice silence.
    Quietly,
    /// We close it, for this reason.
    Refused(Refused),
}

impl Connection {
    pub fn new(
        arrival: Arrival,
        inbox: Inbox,
        account: Account,
        (readable, writable): (Arc<Notice>, Arc<Notice>),
        level: Level,
        now: Instant,
    ) -> Connection {
        let Arrival { stream, name, silence_max, origin, .. } = arrival;
        let ours = Hello::ours(inbox.us().array, level);
        let mut outbox = match origin {
            Origin::Accepted { .. } => Outbox::new(&account, ours),
            Origin::Made { .. } => Outbox::new(&Account::new(Budget::outgoing()), ours),
        };
        match (&stream, &origin) {
            // Both ends are of this release.
            (Stream::Pipe(_), _) => _ = outbox.agree(VERSION, Level::KNOWN),
            (Stream::Socket(_), Origin::Made { .. }) => outbox.say_hello(),
            (Stream::Socket(_), Origin::Accepted { .. }) => {}
        }
        let due = Due::new(&account);
        let (unread, asked, spoke, held) = (None, None, false, None);
        // A node that connects has to identify itself, and one that is connected to has to answer our hello.
        let receiving =
            (!matches!(stream, Stream::Pipe(_)) || matches!(origin, Origin::Accepted { .. })).then_some((now, 0));
        Connection {
            name,
            stream,
            inbox,
            outbox,
            due,
            silence_max,
            account,
            last_read: now,
            receiving,
            unread,
            asked,
            spoke,
            held,
            is_paused: false,
            readable,
            writable,
            turn: 0,
            origin,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node at the other end, if known.
    pub fn peer(&self) -> Option<NodeId> {
        self.inbox.peer()
    }

    /// True if the other end is in this process.
    pub fn is_pipe(&self) -> bool {
        matches!(self.stream, Stream::Pipe(_))
    }

    pub fn side(&self) -> Side {
        match self.origin {
            Origin::Accepted { .. } => Side::Accepted,
            Origin::Made { .. } => Side::Made,
        }
    }

    /// This node, as the peer knows it.
    pub fn us(&self) -> Node {
        self.inbox.us()
    }

    /// The answer to a request of the peer is made, whether or not it is sent.
    pub fn has_answered(&mut self, sequence: u64) {
        self.due.end(sequence);
    }

    /// Sends a frame through a pipe, or puts it into the outbox, which [`Connection::flush`] writes.
    pub fn push(&mut self, frame: Frame) -> Pushed {
        if self.side() == Side::Made {
            self.asked.get_or_insert_with(Instant::now);
        }
        if let Stream::Pipe(pipe) = &self.stream {
            return if pipe.send(frame) { Pushed::Behind } else { Pushed::Full };
        }
        self.outbox.push(frame)
    }

    /// The peer has said hello: answers it, and lets go of the frames that waited for it. An error if the two releases can't speak to
    /// each other.
    fn agree(&mut self, theirs: &Hello, now: Instant, counters: &Counters) -> Result<(), Ended> {
        let Some(ours) = self.outbox.hello().cloned() else { return Ok(()) };
        if self.side() == Side::Accepted {
            self.outbox.say_hello();
        }
        let agreed = ours.agree(theirs);
        if let Ok(version) = &agreed {
            let (sent, lost) = self.outbox.agree(*version, theirs.knows);
            add(&counters.dropped_full, lost);
            self.asked = (sent > 0).then_some(now);
        }
        // If they don't agree, the peer learns from our hello why.
        let flushed = self.flush(counters);
        agreed.map_err(|why| Ended::Refused(why.into()))?;
        flushed.map(drop)
    }

    /// Writes as much of the outbox as the socket accepts. If that is not all, the connection is put into its list when it accepts more.
    /// Returns true if it can be read from again.
    pub fn flush(&mut self, counters: &Counters) -> Result<bool, Ended> {
        let waker = Waker::from(self.writable.clone());
        let cx = &mut Context::from_waker(&waker);
        let Connection { outbox, stream, unread, .. } = self;
        let Stream::Socket(socket) = stream else { return Ok(false) };
        let waiting = outbox.bytes();
        let flushed = outbox.poll_flush(|slices| {
            let written = socket.poll_write(cx, slices);
            if let Poll::Ready(Ok(count)) = &written {
                add(&counters.socket_writes, 1);
                add(&counters.bytes_sent, *count);
            }
            written
        });
        *unread = flushed.is_pending().then(|| {
            let (since, written) = unread.unwrap_or_else(|| (Instant::now(), 0));
            let written = written + waiting - outbox.bytes();
            let has_read = written >= RATE_MIN * UNREAD_MAX.as_secs() as usize;
            if has_read { (Instant::now(), 0) } else { (since, written) }
        });
        match flushed {
            Poll::Ready(Err(_)) => Err(Ended::Quietly),
            Poll::Ready(Ok(())) | Poll::Pending => {
                let resumes = self.is_paused && !self.is_congested();
                if resumes {
                    self.is_paused = false;
                    self.queue();
                }
                Ok(resumes)
            }
        }
    }

    /// Reads once, and passes each complete message to `take`. `may_pass` says whether the connection owns the route to the node at its other
    /// end; if not, it reads nothing more, and keeps what came until it does. Returns true if there may be more to read; otherwise the
    /// connection is put into its list when there is.
    pub fn read(
        &mut self,
        now: Instant,
        counters: &Counters,
        mut may_pass: impl FnMut(NodeId) -> bool,
        mut take: impl FnMut(NodeId, Message),
    ) -> Result<bool, Ended> {
        let (mut passes, mut took_any) = (None, false);
        match self.held.take() {
            Some((_, from, message)) if may_pass(from) => {
                (passes, took_any) = (Some(true), true);
                take(from, message);
            }
            Some(held) => {
                self.held = Some(held);
                return Ok(false);
            }
            None if self.is_congested() => {
                self.is_paused = true;
                return Ok(false);
            }
            None => {}
        }
        if self.is_pipe() {
            return self.receive(now, counters, passes, may_pass, take);
        }
        if let (None, Stream::Socket(socket)) = (passes, &mut self.stream) {
            let waker = Waker::from(self.readable.clone());
            let count = match socket.poll_read(&mut Context::from_waker(&waker), self.inbox.room()) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(count @ 1..)) => count,
                Poll::Ready(_) => return Err(Ended::Quietly),
            };
            (self.last_read, self.asked) = (now, None);
            add(&counters.socket_reads, 1);
            add(&counters.bytes_received, count);
        }
        if self.outbox.hello().is_some() {
            match self.inbox.hello().map_err(Ended::Refused)? {
                Some(theirs) => self.agree(&theirs, now, counters)?,
                None => return Ok(true),
            }
        }
        loop {
            let next = self.inbox.next();
            add(&counters.dropped_memory, self.inbox.take_discarded());
            match next {
                Ok(Some((from, message))) => {
                    (self.spoke, took_any) = (true, true);
                    add(&counters.frames_received, 1);
                    if let Some(demand) = message.demand().filter(|demand| !self.due.admit(*demand, now)) {
                        tracing::trace!("no memory for the answer to {demand:?} of {from}");
                        add(&counters.dropped_memory, 1);
                        continue;
                    }
                    if !*passes.get_or_insert_with(|| may_pass(from)) {
                        self.held = Some((now, from, message));
                        return Ok(false);
                    }
                    take(from, message);
                }
                Ok(None) => {
                    self.note_progress(now, took_any);
                    return Ok(true);
                }
                Err(refused) => return Err(Ended::Refused(refused)),
            }
        }
    }

    /// As [`Connection::read`], from a pipe. What this process asks of itself is not limited here: it is for whoever asked the process.
    fn receive(
        &mut self,
        now: Instant,
        counters: &Counters,
        mut passes: Option<bool>,
        mut may_pass: impl FnMut(NodeId) -> bool,
        mut take: impl FnMut(NodeId, Message),
    ) -> Result<bool, Ended> {
        let Stream::Pipe(pipe) = &mut self.stream else { return Ok(false) };
        let waker = Waker::from(self.readable.clone());
        for _ in 0..MESSAGES_PER_TURN {
            let Frame { from, message, .. } = match pipe.poll_receive(&mut Context::from_waker(&waker)) {
                Poll::Pending => return Ok(false),
                Poll::Ready(None) => return Err(Ended::Quietly),
                Poll::Ready(Some(frame)) => frame,
            };
            (self.spoke, self.last_read, self.asked, self.receiving) = (true, now, None, None);
            self.inbox.identify(from);
            add(&counters.frames_received, 1);
            if !*passes.get_or_insert_with(|| may_pass(from)) {
                self.held = Some((now, from, message));
                return Ok(false);
            }
            take(from, message);
        }
        Ok(true)
    }

    /// True if its peer has too much to read, or could not be answered for want of memory.
    fn is_congested(&self) -> bool {
        let unread = self.outbox.bytes();
        let is_refused = || !self.account.has_room_for(limits::FRAME_BYTES_MAX);
        self.side() == Side::Accepted && unread > 0 && (unread >= UNREAD_BYTES_MAX || is_refused())
    }

    /// Notes since when the frame is being received that has not arrived completely.
    fn note_progress(&mut self, now: Instant, took_any: bool) {
        self.receiving = match (self.inbox.unfinished(), self.receiving) {
            // A node that connects has to say who it is, too.
            (0, _) if self.spoke || self.side() == Side::Made => None,
            (bytes, Some((since, length))) if !took_any => Some((since, length.max(bytes))),
            (bytes, _) => Some((now, bytes)),
        };
    }

    /// Forgets how long the peer has taken so far: this node did not run.
    pub fn excuse(&mut self, now: Instant) {
        self.receiving = self.receiving.map(|(_, bytes)| (now, bytes));
        self.unread = self.unread.map(|_| (now, 0));
        self.last_read = now;
        self.held = self.held.take().map(|(_, from, message)| (now, from, message));
    }

    /// Releases memory that a silent connection does not need.
    pub fn release(&mut self) {
        self.inbox.release();
    }

    /// Forgets the answers that will not be made.
    pub fn look(&mut self, now: Instant) {
        self.due.look(now);
    }

    /// Puts the connection into the list of those that can be read from. Does not wake the task.
    pub fn queue(&self) {
        self.readable.queue();
    }

    /// As [`Connection::queue`], and wakes the task.
    pub fn wake(&self) {
        self.readable.wake_by_ref();
    }

    /// True at the first call with this turn.
    pub fn begins_turn(&mut self, turn: u64) -> bool {
        std::mem::replace(&mut self.turn, turn) != turn
    }

    /// True if it keeps a message until it owns the route to its node.
    pub fn awaits_route(&self) -> bool {
        self.held.is_some()
    }

    /// When something was received last.
    pub fn last_read(&self) -> Instant {
        self.last_read
    }

    /// Fails if the connection has been silent for too long, is no longer wanted, or if the peer does not know the level of the array.
    pub fn check(&self, now: Instant, level: Level) -> Result<(), Ended> {
        if let Some(knows) = self.outbox.known_level().filter(|knows| *knows < level) {
            return Err(Ended::Refused(Disagreement::risen(knows, level).into()));
        }
        if let Origin::Made { ended } = &self.origin
            && ended.is_closed()
        {
            return Err(Ended::Quietly);
        }
        if let Some((since, node, _)) = &self.held {
            let is_over = now.saturating_duration_since(*since) >= CLAIM_MAX;
            return if is_over { Err(Ended::Refused(Refused::Taken { node: *node })) } else { Ok(()) };
        }
        if self.unread.is_some_and(|(since, _)| now.saturating_duration_since(since) >= UNREAD_MAX) {
            return Err(Ended::Refused(Refused::DoesNotRead { seconds: UNREAD_MAX.as_secs() }));
        }
        if let Some((since, bytes)) = self.receiving {
            let patience = STALL_MAX + Duration::from_secs((bytes / RATE_MIN) as u64);
            return match now.saturating_duration_since(since) >= patience {
                false => Ok(()),
                // A peer that never identified itself is not worth a warning.
                true if self.spoke => Err(Ended::Refused(Refused::Stalled { bytes })),
                true => Err(Ended::Quietly),
            };
        }
        let since = match self.side() {
            Side::Accepted => self.last_read,
            Side::Made => match self.asked {
                Some(asked) => asked,
                // No answer is due, so silence is normal.
                None => return Ok(()),
            },
        };
        let is_silent = now.saturating_duration_since(since) >= self.silence_max;
        if is_silent { Err(Ended::Quietly) } else { Ok(()) }
    }

    pub fn end(self) {
        if let Origin::Made { ended } = self.origin {
            // The connector may have ended.
            let is_greeted = self.outbox.known_level().is_some();
            let _ = ended.send(self.spoke || (is_greeted && self.asked.is_none()));
        }
    }
}
