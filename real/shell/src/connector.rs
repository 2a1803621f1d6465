//! The connector makes and accepts connections, and passes them to the [`Transport`](crate::transport::Transport).

use crate::address::Address;
use crate::connection::{Arrival, Origin};
use crate::places::CONNECTIONS_MAX;
use crate::stream::{self, Listener, Stream};
use crate::warning::Warning;
use braid_base::{Backoff, NodeId};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

/// Connections that may be accepted before the end of others that lose their places to them is noticed.
const CONNECTIONS_SPARE: usize = 16;
/// File descriptors beside those of connections.
const FILES_BESIDE: usize = 512;
/// The first back-off before reconnecting; it doubles up to `RECONNECT_MAX`.
const RECONNECT_MIN: Duration = Duration::from_millis(10);
const RECONNECT_MAX: Duration = Duration::from_millis(500);
/// Time limit for establishing a connection.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// How often a connection to a seldom needed node is tried: for about a second.
const CONNECTS_MAX: u32 = 7;
/// A host that is silent for so long is presumed dead; live hosts send something twice a second.
const HOST_SILENCE_MAX: Duration = Duration::from_secs(60);
/// Silence that ends a connection on which an answer is due: the connection may be dead without the system having noticed. A new
/// connection finds that out sooner than the system's own time-outs.
const ANSWER_SILENCE_MAX: Duration = Duration::from_secs(5);

/// Addresses of nodes.
pub type Addresses = BTreeMap<NodeId, Address>;

/// Accepts connections.
pub(crate) async fn accept(mut listener: Listener, arrivals: mpsc::Sender<Arrival>, warning: Arc<Warning>) {
    raise_file_limit();
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX + CONNECTIONS_SPARE));
    loop {
        let permit = room.clone().acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, name)) => {
                let origin = Origin::Accepted { _permit: permit };
                let arrival = Arrival { stream, name, peer: None, silence_max: HOST_SILENCE_MAX, origin };
                if arrivals.send(arrival).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                warning.say(|| format!("can't accept a connection at {}: {error}", listener.address()));
                // Most likely the process has no free file descriptors: wait until some are released.
                tokio::time::sleep(RECONNECT_MAX).await;
            }
        }
    }
}

/// Lets this process have a file descriptor for each connection, and some for everything else, as far as the system permits.
fn raise_file_limit() {
    let needed = Some((CONNECTIONS_MAX + FILES_BESIDE) as u64);
    let limit = getrlimit(Resource::Nofile);
    let enough = |current: Option<u64>| current.is_none_or(|current| Some(current) >= needed);
    if enough(limit.current) {
        return;
    }
    let raised = Rlimit { current: if enough(limit.maximum) { needed } else { limit.maximum }, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::info!("can't raise the limit of open files, which is {:?}: {error}", limit.current);
    }
}

/// Connections that are wanted although none was made: a device connects to another only when it has something to send, and so does a
/// metadata server.
pub(crate) type Wanted = watch::Receiver<BTreeMap<NodeId, u64>>;

/// The node that this process is towards `node`: metadata servers of one file system speak to each other as such, and as hosts to
/// everybody else.
pub(crate) fn us_towards(us: NodeId, serves_as: NodeId, node: NodeId) -> NodeId {
    match (serves_as, node) {
        (NodeId::MetadataServer(_), NodeId::MetadataServer(_)) => serves_as,
        _ => us,
    }
}

/// Stays connected to each of `nodes`, and reconnects when an address changes. To those that get no answers from this process, which is
/// `us` and serves as `serves_as`, it connects each time that this is `wanted`.
pub(crate) async fn keep_connected(
    (us, serves_as): (NodeId, NodeId),
    mut nodes: watch::Receiver<Addresses>,
    wanted_now: Wanted,
    arrivals: mpsc::Sender<Arrival>,
) {
    let mut connectors = JoinSet::new();
    let mut running: BTreeMap<NodeId, (Address, AbortHandle)> = BTreeMap::new();
    loop {
        let wanted = nodes.borrow_and_update().clone();
        running.retain(|node, (address, connector)| {
            let same = wanted.get(node) == Some(address);
            if !same {
                connector.abort();
            }
            same
        });
        for (node, address) in wanted {
            running.entry(node).or_insert_with(|| {
                let (address_, arrivals) = (address.clone(), arrivals.clone());
                let connector = match is_one_way(us_towards(us, serves_as, node), node) {
                    true => connectors.spawn(connect_when_wanted(node, address_, wanted_now.clone(), arrivals)),
                    false => connectors.spawn(stay_connected(node, address_, arrivals)),
                };
                (address, connector)
            });
        }
        while connectors.try_join_next().is_some() {}
        if nodes.changed().await.is_err() {
            // The sender is gone, so that addresses can no longer change.
            std::future::pending().await
        }
    }
}

/// True if nothing comes back over a connection to a node: devices do not answer each other, and each of two metadata servers sends over a
/// connection of its own.
pub(crate) fn is_one_way(us: NodeId, node: NodeId) -> bool {
    use NodeId::{Device, MetadataServer};
    matches!((us, node), (Device(_), Device(_)) | (MetadataServer(_), MetadataServer(_)))
}

async fn connect_when_wanted(node: NodeId, address: Address, mut wanted: Wanted, arrivals: mpsc::Sender<Arrival>) {
    let mut seen = None;
    loop {
        let is_wanted = |wanted: &BTreeMap<NodeId, u64>| wanted.get(&node).copied() != seen;
        let Ok(now) = wanted.wait_for(is_wanted).await.map(|wanted| wanted.get(&node).copied()) else { return };
        seen = now;
        let Some(stream) = connect_soon(&address).await else { continue };
        if let Err(error) = stream.end_if_unacknowledged_for(ANSWER_SILENCE_MAX) {
            tracing::warn!("{node} at {address}: can't limit the wait for acknowledgements: {error}");
        }
        let (ended, end) = oneshot::channel();
        let arrival = Arrival {
            stream,
            name: format!("{node} at {address}"),
            peer: Some(node),
            silence_max: Duration::MAX,
            origin: Origin::Made { ended },
        };
        if arrivals.send(arrival).await.is_err() {
            return;
        }
        // Whether it has answered does not matter. A message that was sent since it ended wants another one.
        let _ = end.await;
    }
}

/// Connects, and tries again for as long as messages wait for the connection: the node may be starting.
async fn connect_soon(address: &Address) -> Option<Stream> {
    let mut backoff = Backoff::new(RECONNECT_MIN, RECONNECT_MAX);
    for _ in 0..CONNECTS_MAX {
        if let Ok(Ok(stream)) = tokio::time::timeout(CONNECT_MAX, stream::connect(address)).await {
            return Some(stream);
        }
        tokio::time::sleep(backoff.next_wait()).await;
    }
    None
}

async fn stay_connected(node: NodeId, address: Address, arrivals: mpsc::Sender<Arrival>) {
    let mut backoff = Backoff::new(RECONNECT_MIN, RECONNECT_MAX);
    // The failure is logged once, until the node has sent something again.
    let mut complained = false;
    loop {
        let failure = match tokio::time::timeout(CONNECT_MAX, stream::connect(&address)).await {
            Ok(Ok(stream)) => {
                let (ended, end) = oneshot::channel();
                let arrival = Arrival {
                    stream,
                    name: format!("{node} at {address}"),
                    peer: Some(node),
                    silence_max: ANSWER_SILENCE_MAX,
                    origin: Origin::Made { ended },
                };
                if arrivals.send(arrival).await.is_err() {
                    return;
                }
                if end.await == Ok(true) {
                    backoff.reset();
                    complained = false;
                    "the connection was closed".to_string()
                } else {
                    "it closes the connection without an answer: does it belong to this array? See its log".to_string()
                }
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it does not answer".to_string(),
        };
        if !std::mem::replace(&mut complained, true) {
            tracing::info!("{node} at {address}: {failure}; trying again");
        }
        tokio::time::sleep(backoff.next_wait()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::DeviceId;
    use tokio::net::TcpListener;
    use tokio::sync::watch;

    #[tokio::test]
    async fn a_message_sent_when_a_connection_has_just_ended_gets_another_one() {
        let node = NodeId::Device(DeviceId(1));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = Address::loopback(listener.local_addr().expect("it has one").port());
        let (want, wanted) = watch::channel(BTreeMap::new());
        let (arrived, mut arrivals) = mpsc::channel(1);
        let connector = tokio::spawn(connect_when_wanted(node, address, wanted, arrived));
        for _ in 0..3 {
            want.send_modify(|wanted| *wanted.entry(node).or_default() += 1);
            let next = tokio::time::timeout(CONNECT_MAX, arrivals.recv()).await.expect("it is wanted");
            let Origin::Made { ended } = next.expect("the connector lives").origin else { panic!("it was made") };
            // The next message is sent before the connector knows.
            ended.send(true).expect("the connector waits for it");
        }
        connector.abort();
    }

    #[test]
    fn the_limit_of_open_files_is_raised_and_never_lowered() {
        let before = getrlimit(Resource::Nofile);
        let few = Rlimit { current: Some(256), ..before };
        setrlimit(Resource::Nofile, few).expect("a limit can be lowered");
        raise_file_limit();
        let raised = getrlimit(Resource::Nofile).current;
        assert!(raised == before.maximum || raised >= Some(CONNECTIONS_MAX as u64), "{raised:?}");
        setrlimit(Resource::Nofile, before).expect("the former limit is allowed");
        raise_file_limit();
        assert!(getrlimit(Resource::Nofile).current >= before.current);
    }
}
