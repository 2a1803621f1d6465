//! The real world for any [`Machine`]: sockets, one disk, timers. It knows no protocol: it moves frames and performs
//! disk commands.
//!
//! * [`run_device`] drives a machine that has a disk and is connected to by hosts.
//! * [`run_server`] drives one that connects to others besides, and may be asked through a [`HostClient`].
//! * [`run_host`] drives a machine that connects to others and is asked through a [`HostClient`].
//!
//! All are futures that own everything; run each in a tokio runtime of one thread (`new_current_thread`), or in one
//! that it shares with its front end. What a caller must know of the losses: messages are datagrams. One that can't be
//! sent at once, because no connection is there or its queue is full, is dropped and counted.

mod address;
pub mod blocking;
mod clock;
mod connection;
mod connector;
mod counters;
mod disk;
mod driver;
mod host;
mod inbox;
mod outbox;
mod pipe;
mod stream;
mod transport;
mod warning;

pub use address::{Address, AddressError};
pub use clock::now;
pub use connector::Addresses;
pub use counters::Counters;
pub use disk::{Disk, DiskOpenError, DiskOptions, EngineChoice};
pub use host::{ClientSession, HostClient};
pub use inbox::Node;
pub use stream::Listener;
pub use warning::Warning;

use braid_machine::Machine;
use disk::Engine;
use driver::Driver;
use std::io;
use std::sync::Arc;
use tokio::sync::watch;
use transport::Transport;

/// Serves a device until `stop` ends. Then it hears no more messages, lets its disk finish, and returns.
///
/// An error means that the system no longer lets it work; the disk is as after a crash.
pub async fn run_device<M: Machine>(
    machine: M,
    us: Node,
    disk: Disk,
    engine: EngineChoice,
    listener: Listener,
    counters: Arc<Counters>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let engine = Engine::start(disk, engine, counters.clone())?;
    let transport = Transport::listen(us, listener, counters.clone());
    Driver::device(machine, transport, engine, counters).run(stop).await
}

/// The same for a machine that also speaks to others of its own accord: it keeps a connection to each of `nodes`, and
/// when an address changes, it connects there. The future drives it until `stop` ends; the client asks it, if it is a machine
/// that takes requests.
pub fn run_server<M: Machine>(
    machine: M,
    us: Node,
    (disk, engine): (Disk, EngineChoice),
    listener: Listener,
    nodes: watch::Receiver<Addresses>,
    counters: Arc<Counters>,
    stop: impl Future<Output = ()>,
) -> (HostClient, impl Future<Output = io::Result<()>>) {
    let (client, calls) = HostClient::new();
    let running = async move {
        let engine = Engine::start(disk, engine, counters.clone())?;
        let transport = Transport::listen_and_connect(us, listener, nodes, counters.clone());
        Driver::server(machine, transport, engine, calls, counters).run(stop).await
    };
    (client, running)
}

/// A host to be run: the future drives it until `stop` ends; the client asks it. Then it takes no more requests,
/// finishes those it has, and the client's calls end with `HostError::Stopped`.
///
/// The host keeps a connection to each of `nodes`; when an address changes, it connects there.
pub fn run_host<M: Machine>(
    machine: M,
    us: Node,
    nodes: watch::Receiver<Addresses>,
    counters: Arc<Counters>,
    stop: impl Future<Output = ()>,
) -> (HostClient, impl Future<Output = io::Result<()>>) {
    let (client, calls) = HostClient::new();
    let running = async move {
        let transport = Transport::connect(us, nodes, counters.clone());
        Driver::host(machine, transport, calls, counters).run(stop).await
    };
    (client, running)
}
