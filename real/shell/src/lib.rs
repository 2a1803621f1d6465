//! The shell runs any [`Machine`] in the real world: with sockets, one disk and timers. It knows no protocol: it transfers frames and
//! performs disk commands.
//!
//! * [`run_server`] runs a machine that has a disk, accepts connections and connects to others, and may be sent requests through a [`Client`].
//! * [`run_host`] runs a machine that connects to others, and is sent requests through a [`HostClient`].
//! * [`run_service`] runs a machine that is a host towards devices and a server towards other hosts.
//!
//! All are futures that own everything they use. Run each in a single-threaded tokio runtime (`new_current_thread`), alone or together
//! with its front end. Messages are datagrams: a message that can't be sent at once, because there is no connection or its queue is full,
//! is dropped and counted.

mod address;
pub mod blocking;
mod budget;
mod clock;
mod connection;
mod connector;
mod counters;
mod disk;
mod driver;
mod due;
mod host;
mod inbox;
mod outbox;
mod pipe;
mod places;
mod ready;
mod routes;
mod stream;
mod transport;
pub mod unix;
mod warning;
mod watched;

pub use address::{Address, AddressError};
pub use budget::{Account, BUDGET_MIN, Budget, Charge, DEFAULT_BUDGET};
pub use clock::now;
pub use connector::Addresses;
pub use counters::{Counters, StoppedRecording};
pub use disk::{Disk, DiskOpenError, DiskOptions, EngineChoice, file_behind};
pub use host::{Client, ClientOf, ClientSession, HostClient, Unanswered};
pub use inbox::Node;
pub use stream::{Accepted, Listener};
pub use warning::Warning;
pub use watched::{View, Watched};

use braid_base::NodeId;
use braid_machine::{Abandon, Machine, NoDisk, OneDisk};
use disk::Engine;
use driver::Driver;
use std::io;
use std::sync::Arc;
use tokio::sync::watch;
use transport::Transport;

/// Runs a machine that may be sent requests, on what is started first.
fn run_with_client<M: Machine<Request: Abandon>>(
    machine: M,
    counters: Arc<Counters>,
    start: impl FnOnce(Arc<Counters>) -> io::Result<(Transport, Option<Engine>)>,
    stop: impl Future<Output = ()>,
) -> (ClientOf<M>, impl Future<Output = io::Result<()>>) {
    let (client, calls) = Client::new();
    let running = async move {
        let (transport, engine) = start(counters.clone())?;
        Driver::new(machine, transport, engine, Some(calls), counters).run(stop).await
    };
    (client, running)
}

/// Runs a machine with a disk, which accepts connections, and keeps one to each of `nodes`; it reconnects when an address changes. The future
/// runs the machine until `stop` completes; then it receives no more messages, waits for its disk commands, and returns. The client sends it
/// requests, if it is a machine that takes any.
///
/// An error means that the operating system failed; the disk is then as after a crash.
pub fn run_server<M: Machine<Request: Abandon, Disk = OneDisk>>(
    machine: M,
    us: Node,
    (disk, engine): (Disk, EngineChoice),
    listener: Listener,
    nodes: watch::Receiver<Addresses>,
    counters: Arc<Counters>,
    stop: impl Future<Output = ()>,
) -> (ClientOf<M>, impl Future<Output = io::Result<()>>) {
    let start = move |counters: Arc<Counters>| {
        let engine = Engine::start(disk, engine, counters.clone())?;
        Ok((Transport::listen_and_connect(us, us.id, listener, nodes, counters), Some(engine)))
    };
    run_with_client(machine, counters, start, stop)
}

/// Prepares a host. The future runs it until `stop` completes; the client sends it requests. Then it accepts no more requests, completes
/// those it has, and further calls of the client end with `HostError::Stopped`.
///
/// The host keeps a connection to each of `nodes`, and reconnects when an address changes.
pub fn run_host<M: Machine<Request: Abandon, Disk = NoDisk>>(
    machine: M,
    us: Node,
    nodes: watch::Receiver<Addresses>,
    counters: Arc<Counters>,
    stop: impl Future<Output = ()>,
) -> (ClientOf<M>, impl Future<Output = io::Result<()>>) {
    run_with_client(machine, counters, move |counters| Ok((Transport::connect(us, nodes, counters), None)), stop)
}

/// Runs a machine that is the host `us` towards the array, and `service` towards the hosts that connect to `listener`, and towards metadata
/// servers among `nodes` if it is one. Otherwise as [`run_host`].
pub fn run_service<M: Machine<Request: Abandon, Disk = NoDisk>>(
    machine: M,
    us: Node,
    (service, listener): (NodeId, Listener),
    nodes: watch::Receiver<Addresses>,
    counters: Arc<Counters>,
    stop: impl Future<Output = ()>,
) -> (ClientOf<M>, impl Future<Output = io::Result<()>>) {
    let connect = move |counters| Transport::listen_and_connect(us, service, listener, nodes, counters);
    run_with_client(machine, counters, move |counters| Ok((connect(counters), None)), stop)
}
