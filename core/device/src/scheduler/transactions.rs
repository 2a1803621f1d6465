//! What a device holds of transactions: their states, and the claims of those that are undecided on blocks.

use braid_base::{BlockRange, DeviceId, Epoch, Generation, ObjectId, RangeTable, Stamp, TransactionId};
use braid_ordering::{Admission, Policy};
use braid_wire::Linkage;
use std::collections::BTreeMap;

/// One transaction, as far as this device takes part in it.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Where it stands in the order.
    pub stamp: Stamp,
    /// The object that it writes, or holds locks of.
    pub object: ObjectId,
    /// What the ordering of that decides. None if the object is not known here: then nothing of the transaction is, but that it is over.
    pub policy: Option<&'static Policy>,
    /// The blocks that it pre-wrote: sorted, disjoint.
    pub ranges: Vec<BlockRange>,
    /// All devices that write in it; known once there is an intent.
    pub participants: Vec<DeviceId>,
    /// The epoch of its intent.
    pub epoch: Epoch,
    /// The hostwrite's extent; known once it is written, where that takes effect on arrival.
    pub linkage: Option<Linkage>,
    /// How far it is.
    pub state: State,
    /// Somebody waits for its decision, or for its locks.
    pub wanted: bool,
    /// It had to wait for somebody.
    pub waited: bool,
    /// Its host was told that it is pre-written, and what was there before.
    pub granted: bool,
    /// Hosts to answer once something is durable.
    pub askers: Vec<(Generation, Awaited)>,
}

/// A transaction, to look at.
#[derive(Clone, Copy, Debug)]
pub struct TransactionView<'a> {
    /// Its name.
    pub id: TransactionId,
    /// The object that it writes, or holds locks of.
    pub object: ObjectId,
    /// How far it is.
    pub state: State,
    /// All devices that write in it; known once there is an intent.
    pub participants: &'a [DeviceId],
}

/// What a host waits to hear of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Whether it is prepared.
    Vote,
    /// That its outcome is durable.
    Decision,
}

/// How far a transaction is on this device.
///
/// ```text
///   Prewritten ─► Preparing ─► Prepared ─► Committing ─► Committed ─► (settled: gone)
///        │            │            └─────► Aborting ─┐
///        └────────────┴───────────────────────────► Aborted ────────► (settled: gone)
///
///   Prewritten ─► Applying ─► Applied ──────────────────────────────► (settled: gone)
///        └────────────────────────┴──────► Suspect ─────────────────► (repaired: gone)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its pre-write was accepted; ordered by device locks, it holds or waits for its locks; ordered by a lock server, its
    /// write waits. Volatile: lost in a restart, and then no write of it is ever taken.
    Prewritten,
    /// Its intent is on its way to the disk.
    Preparing {
        /// An abort came meanwhile: undo it once it is there.
        abort: bool,
    },
    /// Its intent is durable; undecided.
    Prepared,
    /// Committed, and visible; the record of that is on its way to the disk.
    Committing,
    /// Committed, durably. Remembered until every participant has confirmed that too.
    Committed,
    /// Aborted; the record of that is on its way to the disk.
    Aborting,
    /// Aborted, or refused for ever: whatever else comes of it is too late.
    Aborted,
    /// An immediate write (no decision) on its way to the disk. Without ordering it claims no blocks.
    Applying,
    /// An immediate write that is durable.
    Applied,
    /// Its host did not go on with it: whether all of its writes have taken effect is to be found out.
    Suspect {
        /// Whether this device's has; otherwise it never will.
        written: bool,
    },
}

impl Transaction {
    /// One that is not on its way to the disk, with no participants known yet.
    pub fn new(
        stamp: Stamp,
        object: ObjectId,
        policy: Option<&'static Policy>,
        ranges: Vec<BlockRange>,
        state: State,
    ) -> Transaction {
        let (participants, askers, epoch) = (Vec::new(), Vec::new(), Epoch(0));
        Transaction {
            stamp,
            object,
            policy,
            ranges,
            participants,
            epoch,
            linkage: None,
            state,
            wanted: false,
            waited: false,
            granted: false,
            askers,
        }
    }

    /// True if it holds locks of the device, or waits for them.
    pub fn takes_locks(&self) -> bool {
        self.policy.is_some_and(|policy| policy.admission == Admission::ByLocks)
    }

    /// True if it does that, and writes nothing here.
    pub fn only_locks(&self) -> bool {
        self.takes_locks() && self.ranges.is_empty()
    }
}

impl State {
    /// True if the transaction may yet change its blocks: others wait for it.
    pub fn undecided(self) -> bool {
        matches!(self, State::Prewritten | State::Preparing { .. } | State::Prepared | State::Applying)
    }

    /// True if it has an intent, or is about to, of which it is not durable how it ended.
    pub fn is_written_and_undecided(self) -> bool {
        matches!(self, State::Preparing { .. } | State::Prepared | State::Committing | State::Aborting)
    }
}

/// All transactions of a device, and the blocks that the undecided ones claim.
#[derive(Clone, Debug)]
pub struct Transactions {
    most: usize,
    by_id: BTreeMap<TransactionId, Transaction>,
    claims: BTreeMap<ObjectId, RangeTable<TransactionId, Stamp>>,
    /// Claims were released since waiting requests were last looked at.
    released: bool,
}

impl Transactions {
    /// None yet, and never more than `most`, but for what is recovered.
    pub fn new(most: usize) -> Transactions {
        Transactions { most, by_id: BTreeMap::new(), claims: BTreeMap::new(), released: false }
    }

    /// True if no further one can be taken.
    pub fn is_full(&self) -> bool {
        self.by_id.len() >= self.most
    }

    /// Takes in a transaction; an undecided one claims its blocks.
    pub fn insert(&mut self, id: TransactionId, transaction: Transaction) {
        if transaction.state.undecided() {
            let claims = self.claims.entry(transaction.object).or_default();
            for range in &transaction.ranges {
                claims.insert(*range, id, transaction.stamp);
            }
        }
        let before = self.by_id.insert(id, transaction);
        assert!(before.is_none(), "a transaction is taken in once");
    }

    /// Looks one up.
    pub fn get(&self, id: TransactionId) -> Option<&Transaction> {
        self.by_id.get(&id)
    }

    /// Looks one up to note something in it; its state is changed by [`Transactions::advance`] alone.
    pub fn get_mut(&mut self, id: TransactionId) -> Option<&mut Transaction> {
        self.by_id.get_mut(&id)
    }

    /// Moves a transaction on. True if that released its claims, so that others may go ahead.
    pub fn advance(&mut self, id: TransactionId, to: State) -> bool {
        let transaction = self.by_id.get_mut(&id).expect("only a known transaction is moved on");
        let was = std::mem::replace(&mut transaction.state, to);
        let released = was.undecided() && !to.undecided();
        assert!(was.undecided() || !to.undecided(), "a decision is never undone: {was:?} to {to:?}");
        if released {
            let (object, ranges) = (transaction.object, transaction.ranges.clone());
            self.release(id, object, &ranges);
            self.released = true;
        }
        released
    }

    /// True if claims were released since [`Transactions::take_released`] was last called.
    pub fn have_released(&self) -> bool {
        self.released
    }

    /// The same; waiting requests are looked at now.
    pub fn take_released(&mut self) -> bool {
        std::mem::take(&mut self.released)
    }

    /// Forgets a transaction that is decided.
    pub fn remove(&mut self, id: TransactionId) {
        let transaction = self.by_id.remove(&id).expect("only a known transaction is forgotten");
        assert!(!transaction.state.undecided(), "only a decided transaction is forgotten");
    }

    /// The undecided transactions, other than `own`, that a request of it on these blocks waits for: by timestamps, those
    /// below it; by locks, which keep all others away, those whose host gave its lock back before their commit came.
    pub fn blockers(
        &self,
        own: TransactionId,
        stamp: Stamp,
        policy: &Policy,
        object: ObjectId,
        ranges: &[BlockRange],
    ) -> Vec<TransactionId> {
        let mut blockers: Vec<_> = self.in_the_way(own, stamp, policy, object, ranges).collect();
        blockers.sort_unstable();
        blockers.dedup();
        blockers
    }

    /// True if there is any of these. It stops at the first one: each request that waits is asked about whenever claims are released,
    /// and thousands may wait for thousands on one block.
    pub fn is_blocked(
        &self,
        own: TransactionId,
        stamp: Stamp,
        policy: &Policy,
        object: ObjectId,
        ranges: &[BlockRange],
    ) -> bool {
        self.in_the_way(own, stamp, policy, object, ranges).next().is_some()
    }

    /// The blockers, once for each range that they share with the request.
    fn in_the_way(
        &self,
        own: TransactionId,
        stamp: Stamp,
        policy: &Policy,
        object: ObjectId,
        ranges: &[BlockRange],
    ) -> impl Iterator<Item = TransactionId> {
        let by_stamps = policy.admission == Admission::ByStamps;
        let is_first = move |held: Stamp, owner: TransactionId| match by_stamps {
            true => (held, owner) < (stamp, own),
            false => owner != own && self.by_id[&owner].state != State::Prewritten,
        };
        let claims = self.claims.get(&object).into_iter();
        claims
            .flat_map(move |claims| ranges.iter().flat_map(|range| claims.overlapping(*range)))
            .filter(move |(_, owner, held)| is_first(**held, *owner))
            .map(|(_, owner, _)| owner)
    }

    /// True if an undecided transaction is on `object`.
    pub fn touch(&self, object: ObjectId) -> bool {
        self.by_id.values().any(|held| held.state.undecided() && held.object == object)
    }

    /// The transactions of `host` with sequences below `end`.
    pub fn of_host_below(&self, host: Generation, end: u64) -> Vec<TransactionId> {
        let first = TransactionId { host, sequence: 0 };
        let last = TransactionId { host, sequence: end };
        self.by_id.range(first..last).map(|(id, _)| *id).collect()
    }

    /// All of them, to look at.
    pub fn views(&self) -> impl Iterator<Item = TransactionView<'_>> {
        self.by_id.iter().map(|(id, held)| {
            let Transaction { object, state, participants, .. } = held;
            TransactionView { id: *id, object: *object, state: *state, participants }
        })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&TransactionId, &Transaction)> {
        self.by_id.iter()
    }

    /// Asserts that the claims are those of the undecided transactions, and that no block has two intents.
    pub fn invariants(&self) {
        let claimed: usize = self.claims.values().map(RangeTable::len).sum();
        let undecided = || self.by_id.iter().filter(|(_, transaction)| transaction.state.undecided());
        let expected: usize = undecided().map(|(_, transaction)| transaction.ranges.len()).sum();
        assert_eq!(claimed, expected, "claims are those of the undecided");
        for (id, transaction) in undecided() {
            if transaction.state == State::Prewritten {
                continue;
            }
            for range in &transaction.ranges {
                for (_, owner, _) in self.claims[&transaction.object].overlapping(*range) {
                    let other = &self.by_id[&owner];
                    let second = owner != *id && other.state != State::Prewritten;
                    assert!(!second, "one undecided intent a block: {id} and {owner} at {range}");
                }
            }
        }
    }

    fn release(&mut self, id: TransactionId, object: ObjectId, ranges: &[BlockRange]) {
        let Some(claims) = self.claims.get_mut(&object) else {
            return assert!(ranges.is_empty(), "an undecided transaction has claims");
        };
        for range in ranges {
            claims.remove(range.start, id).expect("every range was claimed");
        }
        if claims.is_empty() {
            self.claims.remove(&object);
        }
    }
}
