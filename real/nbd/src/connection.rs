//! One client: the codec on a socket.
//!
//! Requests are answered in the order in which they end. One wake-up reads all that has come, starts it, gathers every
//! reply that is ready, and sends them in one go; no request gets a task of its own. A client may have only so much in
//! flight or unread; beyond that nothing more is read from it.

use crate::handshake::{Handshake, HandshakeError, Progress, Session};
use crate::neighbours::Neighbours;
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
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

/// How much is read at once.
const READ_BYTES: usize = 256 << 10;
/// With less room than this, a new buffer is better than another short read.
const ROOM_MIN: usize = 16 << 10;
/// How many buffers one write sends at most.
const SLICES: usize = 256;

/// Why a connection ended early. None of it concerns anybody else.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    DecodeError(#[from] DecodeError),
    #[error("the client did not choose an export in time")]
    HandshakeTimedOut,
    #[error("the export '{name}' went away while the client chose it")]
    ExportGone { name: String },
}

/// Serves a client until it leaves, or until `stop` says true: then what it has in flight is finished first.
///
/// `socket` is another handle of the stream's, to see whether the client has closed it. `has_chosen` becomes true once the client has chosen an
/// export.
pub(crate) async fn serve_client<S, B>(
    mut stream: S,
    socket: OwnedFd,
    neighbours: &Arc<Neighbours<B::Volume>>,
    backend: &B,
    settings: &Settings,
    has_chosen: &AtomicBool,
    mut stop: watch::Receiver<bool>,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Backend,
{
    let mut input = BytesMut::new();
    let negotiated = tokio::select! {
        negotiated = tokio::time::timeout(settings.handshake_timeout, negotiate(&mut stream, &mut input, backend, has_chosen)) => {
            negotiated.map_err(|_| ConnectionError::HandshakeTimedOut)??
        }
        _ = stop.wait_for(|stop| *stop) => None,
    };
    let Some(session) = negotiated else {
        return Ok(());
    };
    let name = &session.export.name;
    let volume = backend.open(name).await.ok_or_else(|| ConnectionError::ExportGone { name: name.clone() })?;
    tracing::debug!(export = name, structured = session.structured, "the client has chosen");

    let volume = Arc::new(volume);
    let place = neighbours.join(name, socket, volume.clone());
    let volume = &*volume;
    let mut transmission = Transmission {
        stream,
        input,
        requests: Requests::new(&session),
        begin: move |request| answer(volume, request),
        // Who comes back after a loss of its connection must not be overtaken by what it had asked for before.
        before: || place.abandon_the_gone(),
        on_end: |leave: Leave| match leave {
            Leave::Taken => place.take_leave(),
            Leave::Lost => volume.abandon(),
        },
        in_flight: FuturesUnordered::new(),
        bytes_in_flight: 0,
        output: Output::new(session.structured),
        reading: true,
        settings,
    };
    let mut stopping = pin!(async move {
        // The server's end without a word is as good as a word.
        let _ = stop.wait_for(|stop| *stop).await;
    });
    let mut stopped = false;
    let end = poll_fn(|cx| {
        if !stopped && stopping.as_mut().poll(cx).is_ready() {
            stopped = true;
            transmission.refuse_what_came()?;
        }
        transmission.poll(cx)
    })
    .await;
    if end.is_err() {
        volume.abandon();
    }
    // What is under way counts until it has ended, though nobody is left to hear of it.
    while transmission.in_flight.next().await.is_some() {}
    end
}

/// Speaks the handshake. No session: the client left.
async fn negotiate<S, B>(
    stream: &mut S,
    input: &mut BytesMut,
    backend: &B,
    has_chosen: &AtomicBool,
) -> Result<Option<Session>, ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Backend,
{
    let mut handshake = Handshake::default();
    let mut out = BytesMut::new();
    stream.write_all(&Handshake::greeting()).await?;
    loop {
        let exports = backend.exports().await;
        let progress = handshake.take(input, &exports, &mut out)?;
        // Before the client hears of it.
        has_chosen.store(matches!(progress, Progress::Chosen(_)), Ordering::Relaxed);
        stream.write_all_buf(&mut out).await?;
        match progress {
            Progress::Answered => {}
            Progress::Incomplete => {
                if stream.read_buf(input).await? == 0 {
                    return Ok(None);
                }
            }
            Progress::Chosen(session) => return Ok(Some(session)),
            Progress::Aborted => return Ok(None),
        }
    }
}

/// Performs one request. Returns its weight, too, which it no longer has.
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
        // Nothing is kept in this host that could be filled ahead of a read.
        Command::Cache => Ok(Outcome::Done),
        Command::Disconnect => unreachable!("a disconnect is no request to the volume"),
    }
}

/// How a client says its last.
enum Leave {
    /// It disconnects in order.
    Taken,
    /// Its end of the connection is closed.
    Lost,
}

/// The part of a connection behind the handshake.
struct Transmission<'a, S, A, F, N, L> {
    stream: S,
    input: BytesMut,
    requests: Requests,
    begin: A,
    /// Called before any request that has just come is begun.
    before: N,
    on_end: L,
    in_flight: FuturesUnordered<F>,
    bytes_in_flight: usize,
    output: Output,
    /// False once the client has said its last.
    reading: bool,
    settings: &'a Settings,
}

impl<S, A, F, N, L> Transmission<'_, S, A, F, N, L>
where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Fn(Request) -> F,
    F: Future<Output = (usize, Reply)>,
    N: Fn(),
    L: Fn(Leave),
{
    /// Goes on until nothing more can be done now. Ready when the client has left and has got all its answers.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        loop {
            self.take_requests()?;
            let mut progress = self.poll_read(cx)?;
            progress |= self.poll_answers(cx);
            progress |= self.poll_write(cx)?;
            if !self.reading && self.in_flight.is_empty() && self.output.bytes() == 0 {
                return Poll::Ready(Ok(()));
            }
            if !progress {
                return Poll::Pending;
            }
        }
    }

    /// The server stops: what has come is refused, what was begun is finished, and nothing more is read.
    fn refuse_what_came(&mut self) -> Result<(), ConnectionError> {
        while let Some(request) = self.next_request()? {
            let error = Error::new(ErrorNumber::Shutdown, "the server is stopping");
            self.output.put(Reply { cookie: request.cookie, outcome: Err(error) });
        }
        self.reading = false;
        Ok(())
    }

    fn take_requests(&mut self) -> Result<(), ConnectionError> {
        let mut is_first = true;
        while self.has_room() {
            let Some(request) = self.next_request()? else {
                return Ok(());
            };
            if std::mem::take(&mut is_first) {
                (self.before)();
            }
            self.bytes_in_flight += request.weight();
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
            (self.on_end)(Leave::Taken);
            return Ok(None);
        }
        Ok(request)
    }

    fn has_room(&self) -> bool {
        self.in_flight.len() < self.settings.requests_max
            && self.bytes_in_flight + self.output.bytes() < self.settings.bytes_max
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if !self.reading || !self.has_room() {
            return Ok(false);
        }
        let missing = self.requests.missing(&self.input);
        if self.input.capacity() - self.input.len() < missing.max(ROOM_MIN) {
            self.input.reserve(missing.max(READ_BYTES));
        }
        let Poll::Ready(read) = pin!(self.stream.read_buf(&mut self.input)).poll(cx)? else {
            return Ok(false);
        };
        if read == 0 {
            self.reading = false;
            (self.on_end)(Leave::Lost);
        }
        Ok(true)
    }

    fn poll_answers(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        while let Poll::Ready(Some((weight, reply))) = Pin::new(&mut self.in_flight).poll_next(cx) {
            self.bytes_in_flight -= weight;
            self.output.put(reply);
            progress = true;
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
            progress = true;
        }
        Ok(progress)
    }
}
