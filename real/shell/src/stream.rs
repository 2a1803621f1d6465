//! TCP and Unix sockets, and pipes within the process, under one name.

use crate::address::Address;
use crate::pipe::{self, PipeListener};
use bytes::BytesMut;
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use tokio::io::{AsyncReadExt, AsyncWrite, DuplexStream};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Where connections come in. A Unix socket's file goes away with it.
#[derive(Debug)]
pub struct Listener {
    /// Closed before the address is free for another.
    within: Option<PipeListener>,
    socket: ListenerSocket,
    address: Address,
}

#[derive(Debug)]
enum ListenerSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Listens at `address`.
    pub async fn bind(address: &Address) -> io::Result<Listener> {
        match address {
            Address::Tcp { host, port } => {
                let listener = TcpListener::bind((host.as_str(), *port)).await?;
                let port = listener.local_addr()?.port();
                let address = Address::Tcp { host: host.clone(), port };
                Ok(Listener { socket: ListenerSocket::Tcp(listener), address, within: None })
            }
            Address::Unix(path) => {
                let listener = match UnixListener::bind(path) {
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_over(path).await => {
                        std::fs::remove_file(path)?;
                        UnixListener::bind(path)?
                    }
                    other => other?,
                };
                Ok(Listener { socket: ListenerSocket::Unix(listener), address: address.clone(), within: None })
            }
        }
    }

    /// Where it listens; with the port that the system chose, if it was to choose.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Lets those in this process connect without the network: same address, less to pay.
    pub fn open_to_this_process(&mut self) {
        self.within = Some(PipeListener::open(self.address.clone()));
    }

    /// The next connection, and what its other end is called.
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

async fn accept_socket(socket: &ListenerSocket, address: &Address) -> io::Result<(Stream, String)> {
    match socket {
        ListenerSocket::Tcp(listener) => {
            let (stream, peer) = listener.accept().await?;
            Ok((Stream::tcp(stream)?, peer.to_string()))
        }
        ListenerSocket::Unix(listener) => Ok((Stream::Unix(listener.accept().await?.0), address.to_string())),
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.address {
            // Somebody may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Connects to whoever listens at `address`.
pub(crate) async fn connect(address: &Address) -> io::Result<Stream> {
    if let Some(pipe) = pipe::connect(address) {
        return Ok(Stream::Pipe(pipe));
    }
    match address {
        Address::Tcp { host, port } => Stream::tcp(TcpStream::connect((host.as_str(), *port)).await?),
        Address::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path).await?)),
    }
}

/// A connection's socket or pipe.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Pipe(DuplexStream),
}

impl Stream {
    fn tcp(stream: TcpStream) -> io::Result<Stream> {
        // The driver coalesces by itself; waiting for more would only add delay.
        stream.set_nodelay(true)?;
        Ok(Stream::Tcp(stream))
    }

    /// True if the other end is in this process.
    pub fn is_pipe(&self) -> bool {
        matches!(self, Stream::Pipe(_))
    }

    /// Reads what there is, once there is something, into the room that `buffer` has; zero at the end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut BytesMut) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => pin!(stream.read_buf(buffer)).poll(cx),
            Stream::Unix(stream) => pin!(stream.read_buf(buffer)).poll(cx),
            Stream::Pipe(pipe) => pin!(pipe.read_buf(buffer)).poll(cx),
        }
    }

    /// Writes as much as fits, once something does.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Stream::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Stream::Pipe(pipe) => poll_write_each(pipe, cx, slices),
        }
    }
}

/// A pipe takes one slice at a time.
fn poll_write_each(pipe: &mut DuplexStream, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
    let mut written = 0;
    for slice in slices {
        match Pin::new(&mut *pipe).poll_write(cx, slice) {
            Poll::Ready(Ok(count)) => {
                written += count;
                if count < slice.len() {
                    break;
                }
            }
            // What was written counts; how it goes on is seen the next time.
            _ if written > 0 => break,
            other => return other,
        }
    }
    Poll::Ready(Ok(written))
}

/// True if the socket's file is there and nobody listens.
async fn is_left_over(path: &PathBuf) -> bool {
    matches!(UnixStream::connect(path).await, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}
