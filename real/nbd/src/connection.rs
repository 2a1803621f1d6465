//! One client: the codec on a socket.
//!
//! Requests are answered in the order in which they end. One wake-up reads all that has come, starts it, gathers every
//! reply that is ready, and sends them in one go; no request gets a task of its own. A client may have only so much in
//! flight or unread; beyond that nothing more is read from it.

use crate::handshake::{Handshake, HandshakeError, Progress, Session};
use crate::reply::{self, Outcome, Output, Reply};
use crate::request::{Command, Garbage, Request, Requests};
use crate::server::Settings;
use crate::{Backend, Error, ErrorNumber, Volume};
use bytes::BytesMut;
use futures_util::stream::{FuturesUnordered, Stream, StreamExt};
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
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
    Garbage(#[from] Garbage),
    #[error("the client did not choose an export in time")]
    HandshakeTimedOut,
    #[error("the export '{name}' went away while the client chose it")]
    ExportGone { name: String },
}

/// Serves a client until it leaves, or until `stop` says true: then what it has in flight is finished first.
pub(crate) async fn serve_client<S, B>(
    mut stream: S,
    backend: &B,
    settings: &Settings,
    mut stop: watch::Receiver<bool>,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Backend,
{
    let mut input = BytesMut::new();
    let negotiated = tokio::select! {
        negotiated = tokio::time::timeout(settings.handshake_timeout, negotiate(&mut stream, &mut input, backend)) => {
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

    let volume = &volume;
    let mut transmission = Transmission {
        stream,
        input,
        requests: Requests::new(&session),
        begin: move |request| answer(volume, request),
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
    // The volume goes on with what it has begun even if nobody is left to hear of it, so it counts until it has ended.
    while transmission.in_flight.next().await.is_some() {}
    end
}

/// Speaks the handshake. No session: the client left.
async fn negotiate<S, B>(stream: &mut S, input: &mut BytesMut, backend: &B) -> Result<Option<Session>, ConnectionError>
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

/// The part of a connection behind the handshake.
struct Transmission<'a, S, A, F> {
    stream: S,
    input: BytesMut,
    requests: Requests,
    begin: A,
    in_flight: FuturesUnordered<F>,
    bytes_in_flight: usize,
    output: Output,
    /// False once the client has said its last.
    reading: bool,
    settings: &'a Settings,
}

impl<S, A, F> Transmission<'_, S, A, F>
where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Fn(Request) -> F,
    F: Future<Output = (usize, Reply)>,
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
        while self.has_room() {
            let Some(request) = self.next_request()? else {
                return Ok(());
            };
            self.bytes_in_flight += request.weight();
            self.in_flight.push((self.begin)(request));
        }
        Ok(())
    }

    fn next_request(&mut self) -> Result<Option<Request>, Garbage> {
        if !self.reading {
            return Ok(None);
        }
        let request = self.requests.take(&mut self.input)?;
        if let Some(Request { command: Ok(Command::Disconnect), .. }) = request {
            self.reading = false;
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
