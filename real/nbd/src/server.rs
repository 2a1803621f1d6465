//! The listener: one task for each client, and a graceful stop that finishes the requests in flight.

use crate::Backend;
use crate::connection::serve_client;
use crate::neighbours::Neighbours;
use crate::pressure::Activity;
use crate::protocol::REQUEST_BYTES_MAX;
use braid_shell::{Accepted, Address, Budget, Listener, Warning};
use rustix::net::sockopt;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tracing::Instrument;

/// After this time of silence, the system probes whether a client is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// The part of the budget that one request may take: one in so many.
const REQUEST_SHARE: u64 = 16;
/// The pause after the system could not accept a connection (usually for want of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits and time-outs of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many clients it serves at once. Beyond that, a new client replaces the one that has taken longest to choose an export; if all
    /// have chosen one, the one that has had no requests for longest; if all have requests, the new client is disconnected.
    pub clients_max: usize,
    /// For how long a client must have had no requests to be replaced.
    pub idle_min: Duration,
    /// How many requests a client may have in flight before the server stops reading from it.
    pub requests_max: usize,
    /// How many bytes of data a client may have in flight or unread. Its next request waits until it fits, or until there is no other.
    pub bytes_max: usize,
    /// The memory that all clients share with everything else in the process.
    pub budget: &'static Budget,
    /// How long a client may read none of its replies, or send nothing more of a request.
    pub stall_timeout: Duration,
    /// How long a client may take to choose an export.
    pub handshake_timeout: Duration,
    /// How long requests in flight may take to end when the server stops.
    pub stop_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            clients_max: 256,
            idle_min: Duration::from_secs(10),
            requests_max: 256,
            bytes_max: 64 << 20,
            budget: Budget::process(),
            stall_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(5),
        }
    }
}

impl Settings {
    /// The longest request that clients are told to make: several must fit into the budget. A longer one, of a client that does not ask, waits
    /// until there is room for it.
    pub(crate) fn request_bytes(&self) -> u32 {
        let part = (self.budget.limit() / REQUEST_SHARE).min(u64::from(REQUEST_BYTES_MAX));
        1 << part.max(1).ilog2()
    }
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens there.
    #[error("{address} is in use: choose another address, or end the process that listens there")]
    InUse { address: Address },
    /// The system refuses.
    #[error("can't listen on {address}")]
    Io { address: Address, source: io::Error },
}

/// A server that listens already, so that clients can connect, but that answers only once it runs.
#[derive(Debug)]
pub struct Server {
    /// At least one.
    listeners: Vec<Listener>,
    settings: Settings,
}

impl Server {
    /// Listens. The Unix socket of a dead server is replaced.
    pub async fn bind(address: &Address, settings: Settings) -> Result<Server, BindError> {
        Ok(Server { listeners: vec![bind(address).await?], settings })
    }

    /// Listens at another address, too.
    pub async fn also_bind(&mut self, address: &Address) -> Result<(), BindError> {
        self.listeners.push(bind(address).await?);
        Ok(())
    }

    /// The first address at which it listens, with the port that was assigned.
    pub fn address(&self) -> &Address {
        self.listeners[0].address()
    }

    /// Serves until `stop` completes. Then no new client is admitted, requests in flight are finished, and connections are closed.
    pub async fn run<B: Backend>(mut self, backend: Arc<B>, stop: impl Future<Output = ()>) {
        let (stopping, _) = watch::channel(false);
        let settings = Arc::new(self.settings);
        let mut clients = JoinSet::new();
        let accepting = accept(&mut self.listeners, &backend, &settings, &stopping, &mut clients);
        tokio::select! {
            never = accepting => match never {},
            () = stop => {}
        }
        drop(self.listeners);
        stopping.send_replace(true);
        let ended = async { while clients.join_next().await.is_some() {} };
        if tokio::time::timeout(settings.stop_timeout, ended).await.is_err() {
            tracing::warn!(clients = clients.len(), "clients had requests in flight for too long and were cut off");
        }
        clients.shutdown().await;
    }
}

async fn accept<B: Backend>(
    listeners: &mut [Listener],
    backend: &Arc<B>,
    settings: &Arc<Settings>,
    stopping: &watch::Sender<bool>,
    clients: &mut JoinSet<()>,
) -> std::convert::Infallible {
    let neighbours: Arc<Neighbours<B::Volume>> = Arc::default();
    let mut known = Clients::default();
    let crowded = Warning::default();
    loop {
        let accepted = poll_fn(|cx| poll_accept(&mut *listeners, cx)).await;
        let (stream, socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                crowded.say(|| format!("can't accept a connection: {error}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        while clients.try_join_next().is_some() {}
        if clients.len() >= settings.clients_max {
            if !known.make_room(settings.idle_min) {
                crowded.say(|| format!("more than {} clients: {peer} was disconnected", settings.clients_max));
                continue;
            }
            crowded.say(|| format!("more than {} clients: an idle one was disconnected", settings.clients_max));
        }
        let activity: Arc<Activity> = Arc::default();
        let (backend, settings, stop) = (backend.clone(), settings.clone(), stopping.subscribe());
        let neighbours = neighbours.clone();
        let span = tracing::debug_span!("nbd", %peer);
        let own = activity.clone();
        let client = async move {
            match serve_client(stream, socket, &neighbours, &*backend, &settings, &own, stop).await {
                Ok(()) => tracing::debug!("the client has left"),
                Err(error) => tracing::info!(%error, "the client was disconnected"),
            }
        };
        let client = clients.spawn(client.instrument(span));
        known.add(activity, client);
    }
}

/// Clients in the order of arrival. Those that do nothing make room for new clients when there are too many.
#[derive(Default)]
struct Clients(Vec<(Arc<Activity>, AbortHandle)>);

impl Clients {
    fn add(&mut self, activity: Arc<Activity>, client: AbortHandle) {
        self.0.retain(|(_, client)| !client.is_finished());
        self.0.push((activity, client));
    }

    /// Disconnects the one that has taken longest to choose an export, or else the one that has been idle for longest. False if there is none.
    fn make_room(&mut self, idle_min: Duration) -> bool {
        self.0.retain(|(_, client)| !client.is_finished());
        let choosing = self.0.iter().position(|(activity, _)| !activity.has_chosen());
        let idle = || {
            let clients = self.0.iter().enumerate();
            let idle = clients.filter_map(|(index, (activity, _))| Some((activity.idle()?, index)));
            idle.filter(|(span, _)| *span >= idle_min).max().map(|(_, index)| index)
        };
        let Some(index) = choosing.or_else(idle) else { return false };
        self.0.remove(index).1.abort();
        true
    }
}

/// A TCP or Unix socket.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A new client: its stream, another handle of its socket, and its name in the log.
type Client = (Box<dyn Stream>, OwnedFd, String);

fn poll_accept(listeners: &mut [Listener], cx: &mut Context<'_>) -> Poll<io::Result<Client>> {
    let mut accepted = listeners.iter_mut().map(|listener| listener.poll_accept(cx));
    accepted.find(Poll::is_ready).unwrap_or(Poll::Pending).map(|accepted| client_of(accepted?))
}

async fn bind(address: &Address) -> Result<Listener, BindError> {
    Listener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { address: address.clone() },
        _ => BindError::Io { address: address.clone(), source: error },
    })
}

fn client_of(accepted: Accepted) -> io::Result<Client> {
    match accepted {
        Accepted::Tcp(stream, peer) => {
            // Both settings are optional: a client is served without them, too.
            let _ = stream.set_nodelay(true);
            let _ = keep_alive(stream.as_fd());
            let socket = stream.as_fd().try_clone_to_owned()?;
            Ok((Box::new(stream), socket, peer.to_string()))
        }
        Accepted::Unix(stream) => {
            let socket = stream.as_fd().try_clone_to_owned()?;
            Ok((Box::new(stream), socket, "local".to_string()))
        }
    }
}

/// Detects a client whose machine has vanished.
fn keep_alive(socket: impl AsFd) -> io::Result<()> {
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEPALIVE)?;
    Ok(())
}
