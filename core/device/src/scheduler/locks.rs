//! The transactions that hold device-served locks, and the requests that wait for locks.

use super::waiting::ReadRequest;
use braid_base::{BlockRange, Generation, ObjectId, Stamp, Time, Timers, TransactionId};
use braid_locks::{LockState, LockTable, Locked};
use braid_wire::Step;
use braid_wire::locking::{LockExtent, LockMode};
use std::collections::{BTreeMap, VecDeque};

/// The most transactions that are remembered after their hosts declared them over, while an earlier one holds its
/// host's settled mark back.
const OVER_MAX: usize = 4096;

#[derive(Clone, Debug, Default)]
pub(crate) struct Locks {
    table: LockTable<TransactionId>,
    /// Requests that wait for their locks.
    waiting: BTreeMap<TransactionId, (Step, ReadRequest)>,
    /// The ends of these waits.
    timeouts: Timers<TransactionId>,
    /// Transactions that their hosts have declared over, above the settled mark. They are kept to refuse late copies of
    /// their requests. Some may be forgotten already.
    over: VecDeque<TransactionId>,
    /// The highest stamp with which each host requested locks. Once the host's lease has expired, the floor rises to
    /// it, since nothing else would refuse late copies.
    highest: BTreeMap<Generation, Stamp>,
}

impl Locks {
    /// Requests locks: exclusive ones of `prewrites`, shared ones of `reads`.
    pub fn ask(
        &mut self,
        id: TransactionId,
        stamp: Stamp,
        object: ObjectId,
        prewrites: &[BlockRange],
        reads: &[BlockRange],
    ) -> Locked<TransactionId> {
        let highest = self.highest.entry(id.host).or_insert(stamp);
        *highest = stamp.max(*highest);
        self.table.lock(id, object, &extents(prewrites, reads))
    }

    /// Puts the request aside until its locks are granted or its time is up.
    pub fn wait(&mut self, id: TransactionId, step: Step, reads: ReadRequest, until: Time) {
        self.waiting.insert(id, (step, reads));
        self.timeouts.set(id, until);
    }

    /// Takes the locks of an intent that was recovered after a restart.
    pub fn hold(&mut self, id: TransactionId, object: ObjectId, ranges: &[BlockRange]) {
        let held = self.table.hold(id, object, &extents(ranges, &[]));
        assert!(held, "undecided intents do not overlap: {id}");
    }

    /// Releases the locks of a transaction, or its place in the queue. Returns the transactions whose locks are granted
    /// by that, for [`Locks::take_granted`].
    pub fn release(&mut self, id: TransactionId) -> Vec<TransactionId> {
        self.waiting.remove(&id);
        self.timeouts.cancel(id);
        let mut granted = Vec::new();
        self.table.release(id, &mut granted);
        granted
    }

    /// Takes out the request that waited for these locks.
    pub fn take_granted(&mut self, id: TransactionId) -> (Step, ReadRequest) {
        self.timeouts.cancel(id);
        self.waiting.remove(&id).expect("a granted request was waiting")
    }

    /// The next request whose time is up.
    pub fn pop_timed_out(&mut self, now: Time) -> Option<(TransactionId, Step)> {
        let id = self.timeouts.pop_due(now)?;
        Some((id, self.waiting[&id].0))
    }

    /// When the next wait times out.
    pub fn deadline(&self) -> Option<Time> {
        self.timeouts.next().map(|(time, _)| time)
    }

    /// Remembers a transaction that is over. Returns the transactions that are to be forgotten in exchange.
    pub fn remember_over(&mut self, id: TransactionId) -> Vec<TransactionId> {
        self.over.push_back(id);
        let excess = if self.over.len() > OVER_MAX { OVER_MAX / 2 } else { 0 };
        self.over.drain(..excess).collect()
    }

    /// Handles the end of a host's lease. Returns the highest stamp with which the host requested locks.
    pub fn end(&mut self, host: Generation) -> Option<Stamp> {
        self.highest.remove(&host)
    }

    /// The number of transactions that hold locks or wait for them.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// The number of requests that wait for locks.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_waiting(&self, id: TransactionId) -> bool {
        self.waiting.contains_key(&id)
    }

    /// Asserts that every waiting request has a deadline.
    pub fn invariants(&self) {
        self.table.invariants();
        for id in self.waiting.keys() {
            assert_eq!(self.table.state(*id), Some(LockState::Waiting), "{id} waits for locks");
            assert!(self.timeouts.deadline_of(*id).is_some(), "every wait has a deadline: {id}");
        }
    }
}

fn extents(prewrites: &[BlockRange], reads: &[BlockRange]) -> Vec<LockExtent> {
    let extent = |range: &BlockRange, mode| LockExtent { position: 0, range: *range, mode };
    let exclusive = prewrites.iter().map(|range| extent(range, LockMode::Exclusive));
    exclusive.chain(reads.iter().map(|range| extent(range, LockMode::Shared))).collect()
}
