//! A connection is a task that serves one client: it reads requests from the client's socket, and writes the replies (`docs/nbd.md`).
//!
//! Requests are answered in the order of completion. At each wake-up, the task reads everything that has arrived, starts the requests,
//! collects all replies that are ready, and sends them in one write. Requests have no tasks of their own. The requests and data that a
//! client has in flight or has not read yet are bounded. At the bound, the server stops reading from the client (back-pressure).

use crate::handshake::{Handshake, HandshakeError, Negotiated, Progress};
use crate::neighbours::{NeighbourGuard, Neighbours};
use crate::pressure::{Activity, Load, Pressure, TooSlow};
use crate::reply::{self, Outcome, Output, Reply};
use crate::request::{Command, DecodeError, Request, Requests};
use crate::server::Settings;
use crate::{Backend, Error, ErrorNumber, Volume};
use bytes::BytesMut;
use futures_util::stream::{FuturesUnordered, Stream, StreamExt};
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

/// How much is read at once, in bytes.
const READ_BYTES: usize = 256 << 10;
/// If a buffer has less room than this, in bytes, it is replaced by a new one.
const ROOM_MIN: usize = 16 << 10;
/// The most buffers in one write.
const SLICES: usize = 256;

/// Why a connection was ended by the server. Other connections are not affected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    DecodeError(#[from] DecodeError),
    #[error(transparent)]
    TooSlow(#[from] TooSlow),
    #[error("the client did not choose an export in time")]
    HandshakeTimedOut,
    #[error("the export {name:?} went away while the client chose it")]
    ExportGone { name: String },
}

/// Serves a client until it leaves, or until `stop` becomes true or the host behind the volume ends: then its requests in flight are
/// finished first. Those that have not begun, and those that the host gave up, get no answer: a client that reconnects repeats them.
///
/// `socket` is another handle of the stream's socket, by which it is checked whether the client has closed it. `activity` is kept up to
/// date.
pub(crate) async fn serve_client<S, B>(
    mut stream: S,
    socket: OwnedFd,
    neighbours: &Arc<Neighbours<B::Volume>>,
    backend: &B,
    settings: &Settings,
    activity: &Activity,
    mut stop: watch::Receiver<bool>,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Backend,
{
    let mut input = BytesMut::new();
    let joining = Joining { socket, neighbours, backend, activity, request_bytes: settings.request_bytes() };
    let opened = tokio::select! {
        opened = tokio::time::timeout(settings.handshake_timeout, negotiate(&mut stream, &mut input, joining)) => {
            opened.map_err(|_| ConnectionError::HandshakeTimedOut)??
        }
        _ = stop.wait_for(|stop| *stop) => None,
    };
    let Some(Opened { negotiated, volume, place }) = opened else { return Ok(()) };
    tracing::debug!(export = negotiated.export.name, structured = negotiated.structured, "the client has chosen");

    let volume = &*volume;
    let mut transmission = Transmission {
        stream,
        input,
        requests: Requests::new(&negotiated),
        volume,
        place: &place,
        begin: move |request| answer(volume, request),
        answered: Instant::now(),
        in_flight: FuturesUnordered::new(),
        bytes_in_flight: 0,
        output: Output::new(negotiated.structured),
        reading: true,
        settings,
        pressure: Pressure::new(settings, activity),
    };
    let mut stopping = pin!(async move {
        // If the sender is dropped, the server has ended, which counts as a stop.
        let _ = stop.wait_for(|stop| *stop).await;
    });
    let mut stopped = false;
    let end = poll_fn(|cx| {
        if !stopped && stopping.as_mut().poll(cx).is_ready() {
            stopped = true;
            transmission.reading = false;
        }
        transmission.poll(cx)
    })
    .await;
    if end.is_err() {
        volume.abandon();
    }
    // Operations in progress are awaited, even if the client is gone.
    while transmission.in_flight.next().await.is_some() {}
    end
}

/// What a client needs that chooses an export.
struct Joining<'a, B: Backend> {
    socket: OwnedFd,
    neighbours: &'a Arc<Neighbours<B::Volume>>,
    backend: &'a B,
    activity: &'a Activity,
    request_bytes: u32,
}

/// An export that a client has open.
struct Opened<V> {
    negotiated: Negotiated,
    volume: Arc<V>,
    place: NeighbourGuard<V>,
}

/// Performs the handshake. None if the client left.
async fn negotiate<S, B>(
    stream: &mut S,
    input: &mut BytesMut,
    joining: Joining<'_, B>,
) -> Result<Option<Opened<B::Volume>>, ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Backend,
{
    let Joining { socket, neighbours, backend, activity, request_bytes } = joining;
    let mut handshake = Handshake::new(request_bytes);
    let mut out = BytesMut::new();
    stream.write_all(&Handshake::greeting()).await?;
    loop {
        let exports = backend.exports().await;
        let progress = handshake.take(input, &exports, &mut out)?;
        activity.set_chosen(matches!(progress, Progress::Chosen(_)));
        if let Progress::Chosen(negotiated) = progress {
            let name = &negotiated.export.name;
            let gone = || ConnectionError::ExportGone { name: name.clone() };
            let volume = Arc::new(backend.open(name).await.ok_or_else(gone)?);
            // Before the client is told. It may then send a request, leave, and come back over another connection, before this one is served
            // again: the request must be known to be that of a client that has gone.
            let place = neighbours.join(name, socket, volume.clone());
            stream.write_all_buf(&mut out).await?;
            return Ok(Some(Opened { negotiated, volume, place }));
        }
        stream.write_all_buf(&mut out).await?;
        match progress {
            Progress::Answered => {}
            Progress::Incomplete => {
                if stream.read_buf(input).await? == 0 {
                    return Ok(None);
                }
            }
            Progress::Chosen(_) => unreachable!("it was returned"),
            Progress::Aborted => return Ok(None),
        }
    }
}

/// Executes one request. Returns its weight, which it no longer has afterwards, and the reply.
async fn answer<V: Volume>(volume: &V, request: Request) -> (usize, Reply) {
    let (weight, cookie) = (request.weight(), request.cookie);
    let outcome = match request.command {
        Ok(command) => perform(volume, command).await,
        Err(error) => Err(error),
    };
    (weight, Reply { cookie, outcome })
}

async fn perform<V: Volume>(volume: &V, command: Command) -> Result<Outcome, Error> {
    let done = |()| Outcome::Done;
    match command {
        Command::Read { offset, length } => {
            let buffers = if length == 0 { Vec::new() } else { volume.read(offset, length).await? };
            Ok(Outcome::Data { offset, length, buffers })
        }
        Command::Write { data, .. } if data.is_empty() => Ok(Outcome::Done),
        Command::Zero { length: 0, .. } | Command::Trim { length: 0, .. } => Ok(Outcome::Done),
        Command::Write { offset, data } => volume.write(offset, data).await.map(done),
        Command::Zero { offset, length, space } => volume.zero(offset, length, space).await.map(done),
        Command::Trim { offset, length } => volume.trim(offset, length).await.map(done),
        Command::Allocation { offset, length, only_first } => {
            reply::extents(volume.allocation(offset, length).await?, length, only_first)
        }
        Command::Flush => volume.flush().await.map(done),
        // This host has no cache that could be filled ahead of a read.
        Command::Cache => Ok(Outcome::Done),
        Command::Disconnect => unreachable!("a disconnect is not a request to the volume"),
    }
}

/// The part of a connection after the handshake.
struct Transmission<'a, S, V, A, F> {
    stream: S,
    input: BytesMut,
    requests: Requests,
    volume: &'a V,
    place: &'a NeighbourGuard<V>,
    begin: A,
    /// When a request was answered last.
    answered: Instant,
    in_flight: FuturesUnordered<F>,
    bytes_in_flight: usize,
    output: Output,
    /// False once the connection has ended on the client's side.
    reading: bool,
    settings: &'a Settings,
    pressure: Pressure<'a>,
}

impl<S, V, A, F> Transmission<'_, S, V, A, F>
where
    S: AsyncRead + AsyncWrite + Unpin,
    V: Volume,
    A: Fn(Request) -> F,
    F: Future<Output = (usize, Reply)>,
{
    /// Makes all progress that is possible now. Ready when the client has left and all its replies were sent.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        loop {
            self.take_requests()?;
            let mut progress = self.poll_read(cx)?;
            progress |= self.poll_answers(cx);
            progress |= self.poll_write(cx)?;
            if !self.reading && self.in_flight.is_empty() && self.output.bytes() == 0 {
                return Poll::Ready(Ok(()));
            }
            if progress {
                self.pressure.charge(self.bytes());
                continue;
            }
            let load = self.load();
            if !self.pressure.poll(cx, &load)? {
                return Poll::Pending;
            }
            // Once in a while, so that a client that reads as replies come pays nothing for it.
            self.output.compact();
            if self.is_left_waiting() {
                self.reading = false;
                self.volume.abandon();
                continue;
            }
            if load.bytes == self.input.capacity() && self.input.is_empty() {
                // An idle client needs no buffer. What it sends next wakes the task.
                self.input = BytesMut::new();
                self.pressure.charge(0);
                return Poll::Pending;
            }
        }
    }

    /// What the client holds.
    fn bytes(&self) -> usize {
        self.input.capacity() + self.bytes_in_flight + self.output.bytes()
    }

    fn load(&self) -> Load {
        let (reads, may_hold) = (self.reading && self.is_below_limits(), self.has_memory());
        let unfinished = (reads && may_hold && !self.input.is_empty()).then(|| self.requests.missing(&self.input));
        Load {
            bytes: self.bytes(),
            unfinished,
            has_replies: self.output.bytes() > 0,
            has_requests: !self.in_flight.is_empty(),
            is_throttled: reads && !may_hold,
        }
    }

    /// True if the server does not read because of requests that wait, and the client that asked for them is gone. Its farewell may be
    /// among what was not read; so it is waited for as long as requests are answered.
    fn is_left_waiting(&self) -> bool {
        let waits = self.reading && !self.is_below_limits() && !self.in_flight.is_empty();
        waits && self.answered.elapsed() >= self.settings.stall_timeout && self.place.has_closed()
    }

    fn take_requests(&mut self) -> Result<(), ConnectionError> {
        let mut is_first = true;
        while self.has_room() {
            let Some(request) = self.next_request()? else { return Ok(()) };
            if std::mem::take(&mut is_first) {
                // A client that reconnects after losing its connection must not be overtaken by its own earlier requests.
                self.place.abandon_the_gone();
            }
            self.pressure.has_sent();
            self.bytes_in_flight += request.weight();
            self.pressure.charge(self.bytes());
            self.in_flight.push((self.begin)(request));
        }
        Ok(())
    }

    fn next_request(&mut self) -> Result<Option<Request>, DecodeError> {
        if !self.reading {
            return Ok(None);
        }
        let request = self.requests.take(&mut self.input)?;
        if let Some(Request { command: Ok(Command::Disconnect), .. }) = request {
            self.reading = false;
            self.place.take_leave();
            return Ok(None);
        }
        Ok(request)
    }

    fn has_room(&self) -> bool {
        self.is_below_limits() && self.has_memory()
    }

    fn is_below_limits(&self) -> bool {
        let held = self.bytes_in_flight + self.output.bytes();
        self.in_flight.len() < self.settings.requests_max
            && (held == 0 || held + self.requests.weight(&self.input).max(1) <= self.settings.bytes_max)
    }

    /// True if there is memory for the next request: for its data, or for that of its reply.
    fn has_memory(&self) -> bool {
        let needed = self.requests.memory(&self.input);
        needed == 0 || self.pressure.has_room_for(needed)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if !self.reading || !self.has_room() {
            return Ok(false);
        }
        let missing = self.requests.missing(&self.input);
        // The end of long data needs no room for what follows: to grow a long buffer once more doubles it.
        let room_min = if self.input.len() < READ_BYTES { ROOM_MIN } else { 1 };
        if self.input.capacity() - self.input.len() < missing.max(room_min) {
            let usual = if self.pressure.has_room_for(READ_BYTES) { READ_BYTES } else { ROOM_MIN };
            // A new buffer, and not `reserve`: that doubles it, or takes back all the memory of an earlier request, without a check.
            let mut input = BytesMut::with_capacity(self.input.len() + missing.max(usual));
            input.extend_from_slice(&self.input);
            self.input = input;
            self.pressure.charge(self.bytes());
        }
        let Poll::Ready(read) = pin!(self.stream.read_buf(&mut self.input)).poll(cx)? else { return Ok(false) };
        if read == 0 {
            self.reading = false;
            self.volume.abandon();
        }
        Ok(true)
    }

    fn poll_answers(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        while let Poll::Ready(Some((weight, reply))) = Pin::new(&mut self.in_flight).poll_next(cx) {
            self.bytes_in_flight -= weight;
            self.answered = Instant::now();
            progress = true;
            if matches!(&reply.outcome, Err(error) if error.number == ErrorNumber::Shutdown) {
                self.reading = false;
            } else {
                self.output.put(reply);
            }
        }
        progress
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut progress = false;
        while self.output.bytes() > 0 {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = self.output.peek(&mut slices);
            let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..filled])? else {
                break;
            };
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.output.advance(written);
            self.pressure.has_read(written);
            progress = true;
        }
        Ok(progress)
    }
}
