//! What a device holds of transactions: their states, and the claims of those that are undecided on blocks.

use braid_base::{BlockRange, DeviceId, Generation, ObjectId, RangeTable, Stamp, TransactionId, limits};
use std::collections::BTreeMap;

/// One transaction, as far as this device takes part in it.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Where it stands in the order.
    pub stamp: Stamp,
    /// The object that it writes.
    pub object: ObjectId,
    /// The blocks that it pre-wrote: sorted, disjoint.
    pub ranges: Vec<BlockRange>,
    /// All devices that write in it; known once there is an intent.
    pub participants: Vec<DeviceId>,
    /// How far it is.
    pub state: State,
    /// Somebody waits for its decision.
    pub wanted: bool,
    /// Hosts to answer once something is durable.
    pub askers: Vec<(Generation, Asked)>,
}

/// What a host waits to hear of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
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
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its pre-write was accepted. Volatile: lost in a restart, and then no write of it is ever taken.
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
    /// An immediate write (no decision) on its way to the disk.
    Applying,
    /// An immediate write that is durable.
    Applied,
}

impl Transaction {
    /// One that is not on its way to the disk, with no participants known yet.
    pub fn new(stamp: Stamp, object: ObjectId, ranges: Vec<BlockRange>, state: State) -> Transaction {
        Transaction { stamp, object, ranges, participants: Vec::new(), state, wanted: false, askers: Vec::new() }
    }
}

impl State {
    /// True if the transaction may yet change its blocks: requests with higher stamps wait for it.
    pub fn undecided(self) -> bool {
        matches!(self, State::Prewritten | State::Preparing { .. } | State::Prepared)
    }
}

/// All transactions of a device, and the blocks that the undecided ones claim.
#[derive(Clone, Debug, Default)]
pub struct Transactions {
    by_id: BTreeMap<TransactionId, Transaction>,
    claims: BTreeMap<ObjectId, RangeTable<TransactionId, Stamp>>,
}

impl Transactions {
    /// True if no further one can be taken.
    pub fn is_full(&self) -> bool {
        self.by_id.len() >= limits::DEVICE_TRANSACTIONS_MAX
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
        }
        released
    }

    /// Forgets a transaction that is decided.
    pub fn remove(&mut self, id: TransactionId) {
        let transaction = self.by_id.remove(&id).expect("only a known transaction is forgotten");
        assert!(!transaction.state.undecided(), "only a decided transaction is forgotten");
    }

    /// The undecided transactions below `stamp`, other than `own`, on any of these blocks.
    pub fn blockers(
        &self,
        own: TransactionId,
        stamp: Stamp,
        object: ObjectId,
        ranges: &[BlockRange],
    ) -> Vec<TransactionId> {
        let Some(claims) = self.claims.get(&object) else { return Vec::new() };
        let mut blockers: Vec<_> = ranges
            .iter()
            .flat_map(|range| claims.overlapping(*range))
            .filter(|(_, owner, held)| (**held, *owner) < (stamp, own))
            .map(|(_, owner, _)| owner)
            .collect();
        blockers.sort_unstable();
        blockers.dedup();
        blockers
    }

    /// True if an undecided transaction claims any block of `object`, or an immediate write to it is on its way.
    pub fn touch(&self, object: ObjectId) -> bool {
        let applying = |held: &Transaction| held.state == State::Applying && held.object == object;
        self.claims.get(&object).is_some_and(|claims| !claims.is_empty()) || self.by_id.values().any(applying)
    }

    /// The transactions of `host` with sequences below `end`.
    pub fn of_host_below(&self, host: Generation, end: u64) -> Vec<TransactionId> {
        let first = TransactionId { host, sequence: 0 };
        let last = TransactionId { host, sequence: end };
        self.by_id.range(first..last).map(|(id, _)| *id).collect()
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
        let claims = self.claims.get_mut(&object).expect("an undecided transaction has claims");
        for range in ranges {
            claims.remove(range.start, id).expect("every range was claimed");
        }
        if claims.is_empty() {
            self.claims.remove(&object);
        }
    }
}
