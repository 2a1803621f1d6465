//! The queue of requests for objects that wait for room.

use braid_base::{Generation, Time, TransactionId, limits};
use braid_objects::Procedure;
use braid_wire::ObjectAnswer;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// The most requests that wait for room.
const WAITING_MAX: usize = 8192;
/// How long a request may wait for room before it is refused.
const PATIENCE: Duration = Duration::from_secs(1);

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A host, with its mark when it sent the request.
    Host { name: TransactionId, settled: u64 },
    /// The device itself, whose requests only read.
    Device { ticket: u64 },
    /// The same; the answer may come before what it shows is durable.
    Uncommitted { ticket: u64 },
    /// The owner of the store, whose request must be executed, in its turn.
    Owner { own: TransactionId },
}

/// Requests that wait for room, first come, first served.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitingRequests {
    queue: VecDeque<Requested>,
    /// The requests of hosts that are to be executed. Other requests of hosts are over, and are dropped at their turn.
    wanted: BTreeSet<TransactionId>,
    /// The requests of hosts whose answers are kept with requests of the owner.
    answered: BTreeSet<TransactionId>,
    /// Bytes of memory that the requests take.
    bytes: usize,
}

impl WaitingRequests {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The first requests of the queue.
    pub fn first(&mut self, count: usize) -> impl Iterator<Item = &mut Requested> {
        self.queue.iter_mut().take(count)
    }

    /// When the first request has waited too long.
    pub fn patience_ends(&self) -> Option<Time> {
        let first = self.queue.front().filter(|requested| !matches!(requested.asker, Asker::Owner { .. }));
        first.map(|requested| requested.since.after(PATIENCE))
    }

    pub fn has_room(&self, requested: &Requested) -> bool {
        self.queue.len() < WAITING_MAX && self.bytes + requested.bytes <= limits::WAITING_BYTES_MAX
    }

    pub fn push_back(&mut self, requested: Requested) {
        if let Asker::Host { name, .. } = requested.asker {
            self.wanted.insert(name);
        }
        self.answered.extend(requested.on_behalf.iter().map(|kept| kept.name));
        self.bytes += requested.bytes;
        self.queue.push_back(requested);
    }

    /// Puts a request back that was taken out. It has been looked at.
    pub fn push_front(&mut self, requested: Requested) {
        self.bytes += requested.bytes;
        self.queue.push_front(Requested { looked: true, ..requested });
    }

    pub fn pop_front(&mut self) -> Option<Requested> {
        let requested = self.queue.pop_front()?;
        self.bytes -= requested.bytes;
        Some(requested)
    }

    /// Ends a request that was taken out.
    pub fn end(&mut self, requested: &Requested) {
        if let Asker::Host { name, .. } = requested.asker {
            self.wanted.remove(&name);
        }
        for kept in &requested.on_behalf {
            self.answered.remove(&kept.name);
        }
    }

    /// Drops a request that its host has declared over.
    pub fn drop_one(&mut self, name: TransactionId) {
        self.wanted.remove(&name);
    }

    /// Drops all requests of a host below its mark.
    pub fn drop_below(&mut self, host: Generation, sequence: u64) {
        let (from, below) = (TransactionId { host, sequence: 0 }, TransactionId { host, sequence });
        while let Some(name) = self.wanted.range(from..below).next().copied() {
            self.wanted.remove(&name);
        }
    }

    /// True if the request of a host is to be executed, or its answer is to be kept.
    pub fn knows(&self, name: TransactionId) -> bool {
        self.wanted.contains(&name) || self.answered.contains(&name)
    }

    pub fn is_over(&self, requested: &Requested) -> bool {
        matches!(requested.asker, Asker::Host { name, .. } if !self.wanted.contains(&name))
    }

    /// Asserts what must hold between steps.
    pub fn invariants(&self) {
        assert!(self.wanted.len() <= self.queue.len(), "every wanted request waits");
    }

    /// Drops all requests of fenced hosts.
    pub fn drop_fenced(&mut self, is_fenced: impl Fn(TransactionId) -> bool) {
        self.wanted.retain(|name| !is_fenced(*name));
        self.queue.retain(|requested| {
            let stays = !matches!(requested.asker, Asker::Host { name, .. } if is_fenced(name));
            self.bytes -= if stays { 0 } else { requested.bytes };
            stays
        });
    }
}

/// An answer that the owner of a store has kept as that to the request of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnBehalf {
    pub name: TransactionId,
    /// The host's mark.
    pub settled: u64,
    pub answer: ObjectAnswer,
}

/// A request that waits for room.
#[derive(Clone, Debug)]
pub(crate) struct Requested {
    pub asker: Asker,
    /// The answers of hosts that are kept with it.
    pub on_behalf: Vec<OnBehalf>,
    /// The intervals of requests that the host had abandoned when it sent this one.
    pub abandoned: Vec<(u64, u64)>,
    pub request: Box<dyn Procedure>,
    /// Bytes of memory that it takes.
    bytes: usize,
    since: Time,
    /// The leaves that it needs are being read, or were read.
    pub looked: bool,
}

impl Requested {
    pub fn new(asker: Asker, abandoned: Vec<(u64, u64)>, request: Box<dyn Procedure>, since: Time) -> Requested {
        let bytes = request.memory_bytes() + size_of_val(&abandoned[..]);
        Requested { asker, on_behalf: Vec::new(), abandoned, request, bytes, since, looked: false }
    }

    /// A request of the owner of the store.
    pub fn of_owner(
        own: TransactionId,
        on_behalf: Vec<OnBehalf>,
        request: Box<dyn Procedure>,
        since: Time,
    ) -> Requested {
        let requested = Requested::new(Asker::Owner { own }, Vec::new(), request, since);
        Requested { bytes: requested.bytes + size_of_val(&on_behalf[..]), on_behalf, ..requested }
    }

    /// True if it has waited too long.
    pub fn is_too_old(&self, now: Time) -> bool {
        !matches!(self.asker, Asker::Owner { .. }) && now.since(self.since) >= PATIENCE
    }
}
