//! Streams: TCP sockets, Unix sockets, and pipes within the process, behind one type.

use crate::address::Address;
use crate::pipe::{self, Pipe, PipeListener};
use crate::unix;
use crate::warning::Warning;
use bytes::BytesMut;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};

/// Limits the rate of warnings.
static FOREIGN: LazyLock<Warning> = LazyLock::new(Warning::default);

/// A listener. Dropping it removes the file of a Unix socket, which is made again if somebody else removes it.
#[derive(Debug)]
pub struct Listener {
    /// Closed before the address becomes free for another listener.
    within: Option<PipeListener>,
    socket: ListenerSocket,
    address: Address,
}

#[derive(Debug)]
enum ListenerSocket {
    Tcp(TcpListener),
    Unix(unix::Listener),
}

/// A connection by a socket that was accepted.
pub enum Accepted {
    /// With the address of its other end.
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Listener {
    pub async fn bind(address: &Address) -> io::Result<Listener> {
        match address {
            Address::Tcp { host, port } => {
                let listener = TcpListener::bind((host.as_str(), *port)).await?;
                let port = listener.local_addr()?.port();
                let address = Address::Tcp { host: host.clone(), port };
                Ok(Listener { socket: ListenerSocket::Tcp(listener), address, within: None })
            }
            Address::Unix(path) => {
                let listener = unix::Listener::bind(path)?;
                Ok(Listener { socket: ListenerSocket::Unix(listener), address: address.clone(), within: None })
            }
        }
    }

    /// The address, with the port that the system has chosen if port 0 was requested.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Lets connections from this process bypass the network: the address is the same, the cost is lower.
    pub fn open_to_this_process(&mut self) {
        self.within = Some(PipeListener::open(self.address.clone()));
    }

    /// The next connection by a socket.
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        self.socket.poll_accept(cx)
    }

    /// The next connection, and the name of its other end.
    pub(crate) async fn accept(&mut self) -> io::Result<(Stream, String)> {
        let Listener { socket, address, within } = self;
        let piped = async {
            match within {
                Some(within) => within.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            pipe = piped => Ok((Stream::Pipe(pipe), "this process".to_string())),
            accepted = accept_socket(socket, address) => accepted,
        }
    }
}

impl ListenerSocket {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        match self {
            ListenerSocket::Tcp(listener) => {
                listener.poll_accept(cx).map_ok(|(stream, peer)| Accepted::Tcp(stream, peer))
            }
            ListenerSocket::Unix(listener) => listener.poll_accept(cx).map_ok(Accepted::Unix),
        }
    }
}

async fn accept_socket(socket: &mut ListenerSocket, address: &Address) -> io::Result<(Stream, String)> {
    loop {
        match poll_fn(|cx| socket.poll_accept(cx)).await? {
            Accepted::Tcp(stream, peer) => return Ok((Stream::tcp(stream)?, peer.to_string())),
            Accepted::Unix(stream) if unix::is_of_our_user(&stream) => {
                let process = stream.peer_cred().ok().and_then(|peer| peer.pid()).unwrap_or_default();
                return Ok((Stream::unix(stream)?, format!("process {process} at {address}")));
            }
            Accepted::Unix(_) => FOREIGN.say(|| format!("{address}: refusing a process of another user")),
        }
    }
}

/// Connects to the listener at `address`.
pub(crate) async fn connect(address: &Address) -> io::Result<Stream> {
    if let Some(pipe) = pipe::connect(address) {
        return Ok(Stream::Pipe(pipe));
    }
    match address {
        Address::Tcp { host, port } => Stream::tcp(TcpStream::connect((host.as_str(), *port)).await?),
        Address::Unix(path) => Stream::unix(unix::connect(path).await?),
    }
}

/// A connection, by a socket or within this process.
pub(crate) enum Stream {
    Socket(Socket),
    Pipe(Pipe),
}

pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(unix::Stream),
}

impl Stream {
    fn tcp(stream: TcpStream) -> io::Result<Stream> {
        // The driver combines small writes itself; Nagle's algorithm would only add delay.
        stream.set_nodelay(true)?;
        Ok(Stream::Socket(Socket::Tcp(stream)))
    }

    fn unix(stream: UnixStream) -> io::Result<Stream> {
        Ok(Stream::Socket(Socket::Unix(unix::Stream::new(stream)?)))
    }

    /// Ends the connection if the other end does not acknowledge what is sent for so long. Needed where nothing is answered.
    pub fn end_if_unacknowledged_for(&self, span: Duration) -> io::Result<()> {
        let Stream::Socket(Socket::Tcp(stream)) = self else { return Ok(()) };
        Ok(rustix::net::sockopt::set_tcp_user_timeout(stream, span.as_millis() as u32)?)
    }
}

impl Socket {
    /// Reads available bytes into the free capacity of `buffer`, once there are any. Returns zero at the end of the stream.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut BytesMut) -> Poll<io::Result<usize>> {
        match self {
            Socket::Tcp(stream) => pin!(stream.read_buf(buffer)).poll(cx),
            Socket::Unix(stream) => stream.poll_read(cx, buffer),
        }
    }

    /// Writes as many bytes as the stream accepts, once it accepts any.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Socket::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Socket::Unix(stream) => stream.poll_write(cx, slices),
        }
    }
}
