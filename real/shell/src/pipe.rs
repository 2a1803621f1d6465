//! Connections within this process: a connection to a listener that is open to this process uses a pipe in memory instead of
//! a socket.

use crate::address::Address;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

/// The capacity of a pipe in each direction, in bytes.
const PIPE_BYTES: usize = 256 << 10;
/// The most connections that wait to be accepted.
const BACKLOG: usize = 64;

/// The listeners that are open to this process.
static OPEN: Mutex<BTreeMap<Address, mpsc::Sender<DuplexStream>>> = Mutex::new(BTreeMap::new());

/// A listener for connections from within this process. It is closed when dropped.
#[derive(Debug)]
pub(crate) struct PipeListener {
    address: Address,
    pipes: mpsc::Receiver<DuplexStream>,
}

impl PipeListener {
    /// Opens the listener at `address` to this process.
    pub fn open(address: Address) -> PipeListener {
        let (sender, pipes) = mpsc::channel(BACKLOG);
        open().insert(address.clone(), sender);
        PipeListener { address, pipes }
    }

    pub async fn accept(&mut self) -> DuplexStream {
        self.pipes.recv().await.expect("the listener keeps a sender until it is dropped")
    }
}

impl Drop for PipeListener {
    fn drop(&mut self) {
        open().remove(&self.address);
    }
}

/// A pipe to the listener at `address`, if it is in this process and open to it.
pub(crate) fn connect(address: &Address) -> Option<DuplexStream> {
    let listener = open().get(address)?.clone();
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    listener.try_send(theirs).ok()?;
    Some(ours)
}

fn open() -> MutexGuard<'static, BTreeMap<Address, mpsc::Sender<DuplexStream>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}
