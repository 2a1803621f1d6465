//! The neighbours of a client: the other clients of the server that have the same export open.
//!
//! A client that has lost its connection reconnects. The server may not have noticed the end of the first connection yet: that connection's
//! task has not run since, or the server has stopped reading from the client because of its data in flight. So, before a connection starts
//! requests, it checks whether other connections of its export have ended, and abandons their requests.

use crate::Volume;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// The entry of a client, until it is dropped.
#[derive(Debug)]
pub(crate) struct NeighbourGuard<V> {
    neighbours: Arc<Neighbours<V>>,
    own: Arc<Neighbour<V>>,
}

impl<V> Default for Neighbours<V> {
    fn default() -> Self {
        Neighbours { clients: Mutex::default() }
    }
}

impl<V> Neighbours<V> {
    /// Adds a client that has opened an export.
    pub fn join(self: &Arc<Self>, export: &str, socket: OwnedFd, volume: Arc<V>) -> NeighbourGuard<V> {
        let own = Arc::new(Neighbour { export: export.to_string(), socket, volume });
        self.lock().push(own.clone());
        NeighbourGuard { neighbours: self.clone(), own }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Neighbour<V>>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V: Volume> NeighbourGuard<V> {
    /// Abandons the requests of other clients of the same export that have closed their connections.
    pub fn abandon_the_gone(&self) {
        let mut clients = self.neighbours.lock();
        if clients.len() < 2 {
            return;
        }
        let is_other = |other: &Arc<Neighbour<V>>| other.export == self.own.export && !Arc::ptr_eq(other, &self.own);
        let others: Vec<_> = clients.iter().filter(|other| is_other(other)).cloned().collect();
        let mut polled: Vec<_> = others.iter().map(|other| PollFd::new(&other.socket, PollFlags::RDHUP)).collect();
        // Poll fails only for want of memory: then each connection's task finds out by reading its socket.
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

impl<V> NeighbourGuard<V> {
    /// True if the client has closed its side of the connection. What it sent before may not have been read.
    pub fn has_closed(&self) -> bool {
        let mut polled = [PollFd::new(&self.own.socket, PollFlags::RDHUP)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// The client has disconnected in order: its requests are finished even though it closes its connection.
    pub fn take_leave(&self) {
        self.neighbours.lock().retain(|client| !Arc::ptr_eq(client, &self.own));
    }
}

impl<V> Drop for NeighbourGuard<V> {
    fn drop(&mut self) {
        self.take_leave();
    }
}
