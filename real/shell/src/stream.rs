//! TCP and Unix sockets under one name.

use crate::address::Address;
use std::io::{self, IoSlice};
use std::path::PathBuf;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream, tcp, unix};

/// Where connections come in. A Unix socket's file goes away with it.
#[derive(Debug)]
pub struct Listener {
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
                Ok(Listener { socket: ListenerSocket::Tcp(listener), address })
            }
            Address::Unix(path) => {
                let listener = match UnixListener::bind(path) {
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_over(path).await => {
                        std::fs::remove_file(path)?;
                        UnixListener::bind(path)?
                    }
                    other => other?,
                };
                Ok(Listener { socket: ListenerSocket::Unix(listener), address: address.clone() })
            }
        }
    }

    /// Where it listens; with the port that the system chose, if it was to choose.
    pub fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) async fn accept(&self) -> io::Result<(ReadHalf, WriteHalf, String)> {
        match &self.socket {
            ListenerSocket::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                let (read, write) = split_tcp(stream)?;
                Ok((read, write, peer.to_string()))
            }
            ListenerSocket::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let (read, write) = stream.into_split();
                Ok((ReadHalf::Unix(read), WriteHalf::Unix(write), self.address.to_string()))
            }
        }
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
pub(crate) async fn connect(address: &Address) -> io::Result<(ReadHalf, WriteHalf)> {
    match address {
        Address::Tcp { host, port } => split_tcp(TcpStream::connect((host.as_str(), *port)).await?),
        Address::Unix(path) => {
            let (read, write) = UnixStream::connect(path).await?.into_split();
            Ok((ReadHalf::Unix(read), WriteHalf::Unix(write)))
        }
    }
}

/// What a connection brings.
pub(crate) enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
}

impl ReadHalf {
    /// Reads what there is, once there is something, into the room that `buffer` has; zero at the end.
    pub async fn read(&mut self, buffer: &mut bytes::BytesMut) -> io::Result<usize> {
        match self {
            ReadHalf::Tcp(half) => half.read_buf(buffer).await,
            ReadHalf::Unix(half) => half.read_buf(buffer).await,
        }
    }
}

/// What a connection takes.
pub(crate) enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
}

impl WriteHalf {
    /// Writes as much as fits without waiting.
    pub fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            WriteHalf::Tcp(half) => half.try_write_vectored(slices),
            WriteHalf::Unix(half) => half.try_write_vectored(slices),
        }
    }

    /// Ends when there may be room again.
    pub async fn writable(&self) -> io::Result<()> {
        match self {
            WriteHalf::Tcp(half) => half.writable().await,
            WriteHalf::Unix(half) => half.writable().await,
        }
    }
}

fn split_tcp(stream: TcpStream) -> io::Result<(ReadHalf, WriteHalf)> {
    // The driver coalesces by itself; waiting for more would only add delay.
    stream.set_nodelay(true)?;
    let (read, write) = stream.into_split();
    Ok((ReadHalf::Tcp(read), WriteHalf::Tcp(write)))
}

/// True if the socket's file is there and nobody listens.
async fn is_left_over(path: &PathBuf) -> bool {
    matches!(UnixStream::connect(path).await, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}
