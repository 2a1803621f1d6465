//! Connections within this process: who connects to a listener that is open to them gets a pipe in memory, where
//! others get a socket.

use crate::address::Address;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

/// Bytes that a pipe holds in each direction.
const PIPE_BYTES: usize = 256 << 10;
/// Connections that wait to be accepted.
const BACKLOG: usize = 64;

/// The listeners of this process that are open to it.
static OPEN: Mutex<BTreeMap<Address, mpsc::Sender<DuplexStream>>> = Mutex::new(BTreeMap::new());

/// Where connections from within the process come in. Closed when dropped.
#[derive(Debug)]
pub(crate) struct PipeListener {
    address: Address,
    pipes: mpsc::Receiver<DuplexStream>,
}

impl PipeListener {
    /// Opens what listens at `address`.
    pub fn open(address: Address) -> PipeListener {
        let (sender, pipes) = mpsc::channel(BACKLOG);
        open().insert(address.clone(), sender);
        PipeListener { address, pipes }
    }

    pub async fn accept(&mut self) -> DuplexStream {
        self.pipes.recv().await.expect("its sender is kept until it is dropped")
    }
}

impl Drop for PipeListener {
    fn drop(&mut self) {
        open().remove(&self.address);
    }
}

/// A pipe to what listens at `address`, if that is in this process and open to it.
pub(crate) fn connect(address: &Address) -> Option<DuplexStream> {
    let listener = open().get(address)?.clone();
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    listener.try_send(theirs).ok()?;
    Some(ours)
}

fn open() -> MutexGuard<'static, BTreeMap<Address, mpsc::Sender<DuplexStream>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}
