//! The clients of a server that have the same export open.
//!
//! A client that has lost its connection comes back on another. The end of the first one may not have been read yet, since its task had no
//! turn, or since the server reads no more from a client that has much in flight. So, before a connection begins what it was asked, it
//! looks whether others of its export have ended, and abandons these.

use crate::Volume;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All clients of a server.
#[derive(Debug)]
pub(crate) struct Neighbours<V> {
    clients: Mutex<Vec<Arc<Neighbour<V>>>>,
}

#[derive(Debug)]
struct Neighbour<V> {
    export: String,
    /// Another handle of its socket.
    socket: OwnedFd,
    volume: Arc<V>,
}

/// A client's place among them, until it is dropped.
#[derive(Debug)]
pub(crate) struct NeighbourSlot<V> {
    neighbours: Arc<Neighbours<V>>,
    own: Arc<Neighbour<V>>,
}

impl<V> Default for Neighbours<V> {
    fn default() -> Self {
        Neighbours { clients: Mutex::default() }
    }
}

impl<V: Volume> Neighbours<V> {
    /// A client has opened an export.
    pub fn join(self: &Arc<Self>, export: &str, socket: OwnedFd, volume: Arc<V>) -> NeighbourSlot<V> {
        let own = Arc::new(Neighbour { export: export.to_string(), socket, volume });
        self.lock().push(own.clone());
        NeighbourSlot { neighbours: self.clone(), own }
    }
}

impl<V> Neighbours<V> {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Neighbour<V>>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V: Volume> NeighbourSlot<V> {
    /// Abandons what is under way for others of the same export whose clients have closed their connections.
    pub fn abandon_the_gone(&self) {
        let mut clients = self.neighbours.lock();
        if clients.len() < 2 {
            return;
        }
        let is_other = |other: &Arc<Neighbour<V>>| other.export == self.own.export && !Arc::ptr_eq(other, &self.own);
        let others: Vec<_> = clients.iter().filter(|other| is_other(other)).cloned().collect();
        let mut polled: Vec<_> = others.iter().map(|other| PollFd::new(&other.socket, PollFlags::RDHUP)).collect();
        // An error would be for want of memory: what the sockets say of themselves is then read by their tasks.
        if polled.is_empty() || poll(&mut polled, Some(&Timespec::default())).unwrap_or(0) == 0 {
            return;
        }
        let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let gone = polled.iter().zip(&others).filter(|(polled, _)| polled.revents().intersects(ended));
        for (_, other) in gone {
            other.volume.abandon();
            clients.retain(|client| !Arc::ptr_eq(client, other));
        }
    }
}

impl<V> NeighbourSlot<V> {
    /// The client has taken leave: what it asked for is finished though it closes its connection.
    pub fn take_leave(&self) {
        self.neighbours.lock().retain(|client| !Arc::ptr_eq(client, &self.own));
    }
}

impl<V> Drop for NeighbourSlot<V> {
    fn drop(&mut self) {
        self.take_leave();
    }
}
