//! Connections within this process: a connection to a listener that is open to this process passes messages through memory, as they are:
//! they are neither encoded nor copied.

use crate::address::Address;
use braid_wire::Frame;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// The most messages that wait in a pipe. Further ones are dropped, as those that a socket does not accept; the protocols send them again.
/// Their content is in memory anyway, since it is not copied.
const MESSAGES_MAX: usize = 4096;
/// The most connections that wait to be accepted.
const BACKLOG: usize = 64;

/// The listeners that are open to this process.
static OPEN: Mutex<BTreeMap<Address, mpsc::Sender<Pipe>>> = Mutex::new(BTreeMap::new());

/// One end of a connection within this process.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) sender: mpsc::Sender<Frame>,
    receiver: mpsc::Receiver<Frame>,
}

impl Pipe {
    /// Both ends of a connection.
    fn new() -> (Pipe, Pipe) {
        let (ours, theirs) = (mpsc::channel(MESSAGES_MAX), mpsc::channel(MESSAGES_MAX));
        (Pipe { sender: ours.0, receiver: theirs.1 }, Pipe { sender: theirs.0, receiver: ours.1 })
    }

    /// Sends a message. Returns false if it is dropped because too many wait. If the other end is gone, the next receive says so.
    pub fn send(&self, frame: Frame) -> bool {
        !matches!(self.sender.try_send(frame), Err(TrySendError::Full(_)))
    }

    /// The next message; none if the other end is gone.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        self.receiver.poll_recv(cx)
    }
}

/// A listener for connections from within this process. It is closed when dropped.
#[derive(Debug)]
pub(crate) struct PipeListener {
    address: Address,
    pipes: mpsc::Receiver<Pipe>,
}

impl PipeListener {
    /// Opens the listener at `address` to this process.
    pub fn open(address: Address) -> PipeListener {
        let (sender, pipes) = mpsc::channel(BACKLOG);
        open().insert(address.clone(), sender);
        PipeListener { address, pipes }
    }

    pub async fn accept(&mut self) -> Pipe {
        self.pipes.recv().await.expect("the listener keeps a sender until it is dropped")
    }
}

impl Drop for PipeListener {
    fn drop(&mut self) {
        open().remove(&self.address);
    }
}

/// A pipe to the listener at `address`, if it is in this process and open to it.
pub(crate) fn connect(address: &Address) -> Option<Pipe> {
    let listener = open().get(address)?.clone();
    let (ours, theirs) = Pipe::new();
    listener.try_send(theirs).ok()?;
    Some(ours)
}

fn open() -> MutexGuard<'static, BTreeMap<Address, mpsc::Sender<Pipe>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}
