//! The listener: one task for each client, and a graceful stop that finishes the requests in flight.

use crate::Backend;
use crate::connection::serve_client;
use crate::neighbours::Neighbours;
use braid_shell::Address;
use rustix::net::sockopt;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tracing::Instrument;

/// After this time of silence, the system probes whether a client is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// The pause after the system could not accept a connection (usually for want of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits and time-outs of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many clients it serves at once. Beyond that, a new client replaces the one that has taken longest to choose an export; if all
    /// have chosen one, the new client is disconnected.
    pub clients_max: usize,
    /// How many requests a client may have in flight before the server stops reading from it.
    pub requests_max: usize,
    /// How many bytes of data a client may have in flight or unread before the server stops reading requests from it. The last request may
    /// exceed the limit: by one request of maximum length, and another one in the receive buffer.
    pub bytes_max: usize,
    /// How long a client may take to choose an export.
    pub handshake_timeout: Duration,
    /// How long requests in flight may take to end when the server stops.
    pub stop_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            clients_max: 256,
            requests_max: 256,
            bytes_max: 64 << 20,
            handshake_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(5),
        }
    }
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens there.
    #[error("{address} is in use: choose another address, or end the process that listens there")]
    InUse {
        /// The address.
        address: Address,
    },
    /// The system refuses.
    #[error("can't listen on {address}")]
    Io {
        /// The address.
        address: Address,
        /// The system's error.
        source: io::Error,
    },
}

/// A server that listens already, so that clients can connect, but that answers only once it runs.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    address: Address,
    settings: Settings,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Server {
    /// Listens. The Unix socket of a dead server is replaced.
    pub async fn bind(address: &Address, settings: Settings) -> Result<Server, BindError> {
        let bound = match address {
            Address::Tcp { host, port } => bind_tcp(host, *port).await,
            Address::Unix(path) => bind_unix(path).await.map(|listener| (listener, address.clone())),
        };
        match bound {
            Ok((listener, address)) => Ok(Server { listener, address, settings }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(BindError::InUse { address: address.clone() })
            }
            Err(source) => Err(BindError::Io { address: address.clone(), source }),
        }
    }

    /// The address at which it listens, with the port that was assigned.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Serves until `stop` completes. Then no new client is admitted, requests in flight are finished, and connections are closed.
    pub async fn run<B: Backend>(self, backend: Arc<B>, stop: impl Future<Output = ()>) {
        let (stopping, _) = watch::channel(false);
        let settings = Arc::new(self.settings);
        let mut clients = JoinSet::new();
        let accepting = accept(&self.listener, &backend, &settings, &stopping, &mut clients);
        tokio::select! {
            never = accepting => match never {},
            () = stop => {}
        }
        drop(self.listener);
        if let Address::Unix(path) = &self.address {
            // The socket may have been removed already, which is fine.
            let _ = std::fs::remove_file(path);
        }
        stopping.send_replace(true);
        let ended = async { while clients.join_next().await.is_some() {} };
        if tokio::time::timeout(settings.stop_timeout, ended).await.is_err() {
            tracing::warn!(clients = clients.len(), "clients had requests in flight for too long and were cut off");
        }
        clients.shutdown().await;
    }
}

async fn accept<B: Backend>(
    listener: &Listener,
    backend: &Arc<B>,
    settings: &Arc<Settings>,
    stopping: &watch::Sender<bool>,
    clients: &mut JoinSet<()>,
) -> std::convert::Infallible {
    let neighbours: Arc<Neighbours<B::Volume>> = Arc::default();
    let mut choosing = Choosing::default();
    loop {
        let accepted = match listener {
            Listener::Tcp(listener) => listener.accept().await.and_then(|(stream, peer)| {
                // Both settings are optional: a client is served without them, too.
                let _ = stream.set_nodelay(true);
                let _ = keep_alive(stream.as_fd());
                let socket = stream.as_fd().try_clone_to_owned()?;
                Ok((Box::new(stream) as Box<dyn Stream>, socket, peer.to_string()))
            }),
            Listener::Unix(listener) => listener.accept().await.and_then(|(stream, _)| {
                let socket = stream.as_fd().try_clone_to_owned()?;
                Ok((Box::new(stream) as Box<dyn Stream>, socket, "local".to_string()))
            }),
        };
        let (stream, socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "can't accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        while clients.try_join_next().is_some() {}
        if clients.len() >= settings.clients_max {
            if !choosing.hang_up_on_the_first() {
                tracing::warn!(%peer, most = settings.clients_max, "too many clients: the new one was disconnected");
                continue;
            }
            tracing::warn!(
                most = settings.clients_max,
                "too many clients: one that had not chosen an export was disconnected"
            );
        }
        let chosen: Arc<AtomicBool> = Arc::default();
        let (backend, settings, stop) = (backend.clone(), settings.clone(), stopping.subscribe());
        let neighbours = neighbours.clone();
        let span = tracing::debug_span!("nbd", %peer);
        let has_chosen = chosen.clone();
        let client = async move {
            match serve_client(stream, socket, &neighbours, &*backend, &settings, &has_chosen, stop).await {
                Ok(()) => tracing::debug!("the client has left"),
                Err(error) => tracing::info!(%error, "the client was disconnected"),
            }
        };
        let client = clients.spawn(client.instrument(span));
        choosing.add(chosen, client);
    }
}

/// Clients that had not chosen an export when they were last checked, in the order of arrival. They make room for new clients when there
/// are too many; clients that have chosen an export may be silent for any time.
#[derive(Default)]
struct Choosing(VecDeque<(Arc<AtomicBool>, AbortHandle)>);

impl Choosing {
    fn add(&mut self, chosen: Arc<AtomicBool>, client: AbortHandle) {
        self.0.retain(is_choosing);
        self.0.push_back((chosen, client));
    }

    /// Disconnects the oldest one. False if there is none.
    fn hang_up_on_the_first(&mut self) -> bool {
        self.0.retain(is_choosing);
        let first = self.0.pop_front();
        first.inspect(|(_, client)| client.abort()).is_some()
    }
}

fn is_choosing((chosen, client): &(Arc<AtomicBool>, AbortHandle)) -> bool {
    !chosen.load(Ordering::Relaxed) && !client.is_finished()
}

/// A TCP or Unix socket.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

async fn bind_tcp(host: &str, port: u16) -> io::Result<(Listener, Address)> {
    let listener = TcpListener::bind((host, port)).await?;
    let port = listener.local_addr()?.port();
    Ok((Listener::Tcp(listener), Address::Tcp { host: host.to_string(), port }))
}

async fn bind_unix(path: &std::path::Path) -> io::Result<Listener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            // Only a socket on which no process accepts connections belongs to a dead server.
            match UnixStream::connect(path).await {
                Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused && is_socket(path) => {
                    std::fs::remove_file(path)?;
                    UnixListener::bind(path).map(Listener::Unix)
                }
                _ => Err(error),
            }
        }
        bound => bound.map(Listener::Unix),
    }
}

fn is_socket(path: &std::path::Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

/// Detects a client whose machine has vanished.
fn keep_alive(socket: impl AsFd) -> io::Result<()> {
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEPALIVE)?;
    Ok(())
}
