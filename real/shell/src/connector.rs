//! Makes and takes connections, and hands them over to the [`Transport`](crate::transport::Transport).

use crate::address::Address;
use crate::connection::{Arrival, Slot};
use crate::stream::{self, Listener};
use crate::warning::Warning;
use braid_base::{NodeId, limits};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

/// The most connections at once: a new one of a host may come before its old one is seen to be gone.
const CONNECTIONS_MAX: usize = 2 * limits::HOSTS_MAX;
/// The first pause before connecting again; doubles up to `RECONNECT_MAX`.
const RECONNECT_MIN: Duration = Duration::from_millis(10);
const RECONNECT_MAX: Duration = Duration::from_millis(500);
/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// A host that says nothing for so long is gone; living ones speak twice a second.
const HOST_SILENCE_MAX: Duration = Duration::from_secs(60);
/// Who was asked and says nothing for so long may be behind a connection that is dead without knowing: a new one finds it
/// sooner than the system's own patience would.
const ANSWER_SILENCE_MAX: Duration = Duration::from_secs(5);

/// Where nodes listen.
pub type Addresses = BTreeMap<NodeId, Address>;

/// Takes connections from whoever comes.
pub(crate) async fn accept(mut listener: Listener, arrivals: mpsc::Sender<Arrival>, warning: Arc<Warning>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = room.clone().acquire_owned().await.expect("nobody closes it");
        match listener.accept().await {
            Ok((stream, name)) => {
                let slot = Slot::Accepted { _permit: permit };
                let arrival = Arrival { stream, name, peer: None, silence_max: HOST_SILENCE_MAX, slot };
                if arrivals.send(arrival).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                warning.say(|| format!("can't take a connection at {}: {error}", listener.address()));
                // Out of file descriptors, most likely: some must be given back first.
                tokio::time::sleep(RECONNECT_MAX).await;
            }
        }
    }
}

/// Stays connected to each of `nodes`, anew when its address changes.
pub(crate) async fn keep_connected(mut nodes: watch::Receiver<Addresses>, arrivals: mpsc::Sender<Arrival>) {
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
                let connector = connectors.spawn(stay_connected(node, address.clone(), arrivals.clone()));
                (address, connector)
            });
        }
        while connectors.try_join_next().is_some() {}
        if nodes.changed().await.is_err() {
            // Nobody can change the addresses any more.
            std::future::pending().await
        }
    }
}

async fn stay_connected(node: NodeId, address: Address, arrivals: mpsc::Sender<Arrival>) {
    let mut pause = RECONNECT_MIN;
    // Said once, until the node has spoken again.
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
                    slot: Slot::Made { ended },
                };
                if arrivals.send(arrival).await.is_err() {
                    return;
                }
                if end.await == Ok(true) {
                    (pause, complained) = (RECONNECT_MIN, false);
                    "the connection has ended".to_string()
                } else {
                    "it ends the connection without a word: does it belong to this array? Its log says".to_string()
                }
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it does not answer".to_string(),
        };
        if !std::mem::replace(&mut complained, true) {
            tracing::info!("{node} at {address}: {failure}; trying again");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RECONNECT_MAX);
    }
}
