//! Messages to and from other nodes, as datagrams: connections are made, lost and made again behind this, and what
//! can't be sent is dropped.

use crate::address::Address;
use crate::counters::{Counters, add};
use crate::inbox::{Inbox, Node};
use crate::link::{Connection, DEVICE_SILENCE_MAX, Event, HOST_SILENCE_MAX, Link, Pushed};
use crate::stream::{self, Listener, ReadHalf, WriteHalf};
use crate::warning::Warning;
use braid_base::{DeviceId, NodeId, limits};
use braid_wire::{Frame, Message};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

/// Reads that wait for the driver at most, over all connections.
const EVENTS_MAX: usize = 64;
/// The most connections at once: a new one of a host may come before its old one is seen to be gone.
const CONNECTIONS_MAX: usize = 2 * limits::HOSTS_MAX;
/// The first pause before connecting again; doubles up to `RECONNECT_MAX`.
const RECONNECT_MIN: Duration = Duration::from_millis(10);
const RECONNECT_MAX: Duration = Duration::from_millis(500);
/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// Where devices listen.
pub type DeviceAddresses = BTreeMap<DeviceId, Address>;

pub(crate) struct Transport {
    us: Node,
    routes: HashMap<NodeId, Arc<Link>>,
    /// Connections with something to flush.
    dirty: Vec<Arc<Link>>,
    events: mpsc::Receiver<Event>,
    counters: Arc<Counters>,
    /// Ends, with all connections, when this is dropped.
    _tasks: JoinSet<()>,
}

impl Transport {
    /// Takes connections from whoever comes. Call it within a tokio runtime.
    pub fn listen(us: Node, listener: Listener, counters: Arc<Counters>) -> Transport {
        Transport::new(us, counters, |shared| accept(listener, shared))
    }

    /// Keeps connections to devices. Call it within a tokio runtime.
    pub fn connect(us: Node, devices: watch::Receiver<DeviceAddresses>, counters: Arc<Counters>) -> Transport {
        Transport::new(us, counters, |shared| keep_connected(devices, shared))
    }

    fn new<T>(us: Node, counters: Arc<Counters>, task: impl FnOnce(Shared) -> T) -> Transport
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let shared = Shared { us, events: sender, counters: counters.clone(), warning: Arc::default() };
        let mut tasks = JoinSet::new();
        tasks.spawn(task(shared));
        Transport { us, routes: HashMap::new(), dirty: Vec::new(), events, counters, _tasks: tasks }
    }

    /// Sends a message with the next flush, or drops it.
    pub fn send(&mut self, to: NodeId, message: Message) {
        let Some(link) = self.routes.get(&to) else {
            return add(&self.counters.dropped_unconnected, 1);
        };
        let frame = Frame { array: self.us.array, from: self.us.id, to, message };
        match link.push(|| frame.encode()) {
            Pushed::Yes => add(&self.counters.frames_sent, 1),
            Pushed::First => {
                add(&self.counters.frames_sent, 1);
                self.dirty.push(link.clone());
            }
            Pushed::Full => add(&self.counters.dropped_full, 1),
            Pushed::Closed => {
                add(&self.counters.dropped_unconnected, 1);
                self.routes.remove(&to);
            }
        }
    }

    /// Writes what was sent.
    pub fn flush(&mut self) {
        for link in self.dirty.drain(..) {
            link.flush();
        }
    }

    /// What came in next. Dropped unfinished, it loses nothing.
    pub async fn receive(&mut self) -> Event {
        match self.events.recv().await {
            Some(event) => event,
            // The tasks have ended: only a panic does that, and it has been reported.
            None => std::future::pending().await,
        }
    }

    /// What has come in already.
    pub fn try_receive(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// Takes the newest way to a peer.
    pub fn up(&mut self, peer: NodeId, link: Arc<Link>) {
        self.routes.retain(|_, link| !link.is_closed());
        self.routes.insert(peer, link);
    }
}

/// What every connection's task needs.
#[derive(Clone)]
struct Shared {
    us: Node,
    events: mpsc::Sender<Event>,
    counters: Arc<Counters>,
    warning: Arc<Warning>,
}

impl Shared {
    fn connection(
        &self,
        name: String,
        read: ReadHalf,
        write: WriteHalf,
        inbox: Inbox,
        silence_max: Duration,
    ) -> Connection {
        let Shared { events, counters, warning, .. } = self.clone();
        let link = Link::new(write, counters.clone());
        Connection { name, read, link, inbox, silence_max, events, counters, warning }
    }
}

async fn accept(listener: Listener, shared: Shared) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() == CONNECTIONS_MAX {
            connections.join_next().await;
            continue;
        }
        match listener.accept().await {
            Ok((read, write, name)) => {
                let inbox = Inbox::new(shared.us, None);
                connections.spawn(shared.connection(name, read, write, inbox, HOST_SILENCE_MAX).run());
            }
            Err(error) => {
                shared.warning.say(|| format!("can't take a connection at {}: {error}", listener.address()));
                // Out of file descriptors, most likely: some must be given back first.
                tokio::time::sleep(RECONNECT_MAX).await;
            }
        }
    }
}

/// Runs a connector for every device, and a new one when a device's address changes.
async fn keep_connected(mut devices: watch::Receiver<DeviceAddresses>, shared: Shared) {
    let mut connectors = JoinSet::new();
    let mut running: BTreeMap<DeviceId, (Address, AbortHandle)> = BTreeMap::new();
    loop {
        let wanted = devices.borrow_and_update().clone();
        running.retain(|device, (address, connector)| {
            let same = wanted.get(device) == Some(address);
            if !same {
                connector.abort();
            }
            same
        });
        for (device, address) in wanted {
            running.entry(device).or_insert_with(|| {
                let connector = connectors.spawn(stay_connected(device, address.clone(), shared.clone()));
                (address, connector)
            });
        }
        while connectors.try_join_next().is_some() {}
        if devices.changed().await.is_err() {
            // Nobody can change the addresses any more.
            std::future::pending().await
        }
    }
}

async fn stay_connected(device: DeviceId, address: Address, shared: Shared) {
    let peer = NodeId::Device(device);
    let mut pause = RECONNECT_MIN;
    // Said once, until the device has spoken again.
    let mut complained = false;
    loop {
        let failure = match tokio::time::timeout(CONNECT_MAX, stream::connect(&address)).await {
            Ok(Ok((read, write))) => {
                let inbox = Inbox::new(shared.us, Some(peer));
                let name = format!("{device} at {address}");
                let connection = shared.connection(name, read, write, inbox, DEVICE_SILENCE_MAX);
                // Nobody hears it when the driver has ended; then so does this task.
                let _ = shared.events.send(Event::Up { peer, link: connection.link.clone() }).await;
                if connection.run().await {
                    (pause, complained) = (RECONNECT_MIN, false);
                    "the connection has ended".to_string()
                } else {
                    "it ends the connection without a word: is it a device of this array? Its log says".to_string()
                }
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it does not answer".to_string(),
        };
        if !std::mem::replace(&mut complained, true) {
            tracing::info!("{device} at {address}: {failure}; trying again");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RECONNECT_MAX);
    }
}
