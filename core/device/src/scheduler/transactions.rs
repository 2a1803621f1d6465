//! The transactions of a device: their states, and the blocks that undecided transactions claim.

use braid_base::{BlockRange, DeviceId, Epoch, Generation, ObjectId, RangeTable, Stamp, TransactionId};
use braid_blocks::Linkage;
use braid_ordering::{Admission, Policy};
use std::collections::BTreeMap;

/// A transaction, as far as this device takes part in it.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Its place in the order of transactions.
    pub stamp: Stamp,
    /// The object that it writes or holds locks of.
    pub object: ObjectId,
    /// The policy of the object's ordering. `None` if the object is unknown here: then the only thing known of the
    /// transaction is that it is over.
    pub policy: Option<&'static Policy>,
    /// The blocks that it pre-wrote: sorted, disjoint.
    pub ranges: Vec<BlockRange>,
    /// All devices that write in the transaction. Known once there is an intent.
    pub participants: Vec<DeviceId>,
    /// The epoch of its intent.
    pub epoch: Epoch,
    /// The extent of the hostwrite. Known once it is written, where writes take effect on arrival.
    pub linkage: Option<Linkage>,
    pub state: State,
    /// Another request waits for its decision or its locks.
    pub wanted: bool,
    /// It had to wait for another transaction.
    pub waited: bool,
    /// Its host was told that the pre-write is accepted, and was sent the old content.
    pub granted: bool,
    /// A resolver may know that its intent is durable.
    pub voted: bool,
    /// Hosts to answer once something is durable.
    pub askers: Vec<(Generation, Awaited)>,
}

/// A transaction, for inspection.
#[derive(Clone, Copy, Debug)]
pub struct TransactionView<'a> {
    pub id: TransactionId,
    /// Its place in the order of transactions; its clock was read when the attempt began.
    pub stamp: Stamp,
    /// The object that it writes or holds locks of.
    pub object: ObjectId,
    pub state: State,
    /// All devices that write in it. Known once there is an intent.
    pub participants: &'a [DeviceId],
}

/// What a host waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Its vote: whether it is prepared.
    Vote,
    /// Its durable outcome.
    Decision,
}

/// The state of a transaction on this device.
///
/// ```text
///   Prewritten ─► Preparing ─► Prepared ─► Committing ─► Committed ─► (settled: gone)
///        │            ├────────────┴─────► Aborting ─┐
///        └────────────┴───────────────────────────► Aborted ────────► (settled: gone)
///
///   Prewritten ─► Applying ─► Applied ──────────────────────────────► (settled: gone)
///        └────────────────────────┴──────► Suspect ─────────────────► (repaired: gone)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The pre-write was accepted. Under device locks, the transaction holds its locks or waits for them; under a lock
    /// server, its write waits. The state is volatile: after a restart no write of the transaction is ever accepted.
    Prewritten,
    /// Its intent is being written to disk.
    Preparing {
        /// An abort came meanwhile: the intent is undone once it is durable.
        abort: bool,
    },
    /// Its intent is durable, and undecided.
    Prepared,
    /// Committed and visible. The record of the commit is being written to disk.
    Committing,
    /// Committed durably. Remembered until every participant has confirmed that, too.
    Committed,
    /// Aborted. The record of the abort is being written to disk.
    Aborting,
    /// Aborted, or covered by an abort promise: all later requests of the transaction are refused.
    Aborted,
    /// An immediate write (without a decision) that is being written to disk. Without ordering it claims no blocks.
    Applying,
    /// An immediate write that is durable.
    Applied,
    /// Its host did not continue with it: a host has to find out whether all of its writes have taken effect.
    Suspect {
        /// Whether the write on this device has taken effect. If not, it never will.
        written: bool,
    },
}

impl Transaction {
    /// A transaction that is not being written, with no participants known yet.
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
            voted: false,
            askers,
        }
    }

    /// True if it holds locks of this device or waits for them.
    pub fn takes_locks(&self) -> bool {
        self.policy.is_some_and(|policy| policy.admission == Admission::ByLocks)
    }

    /// True if it takes locks, and writes nothing here.
    pub fn only_locks(&self) -> bool {
        self.takes_locks() && self.ranges.is_empty()
    }
}

impl State {
    /// True if the transaction may yet change its blocks, so that others wait for it.
    pub fn undecided(self) -> bool {
        matches!(self, State::Prewritten | State::Preparing { .. } | State::Prepared | State::Applying)
    }

    /// True if it has an intent, or one is being written, and its outcome is not durable.
    pub fn is_written_and_undecided(self) -> bool {
        matches!(self, State::Preparing { .. } | State::Prepared | State::Committing | State::Aborting)
    }
}

/// The transactions of a device. An undecided transaction *claims* its blocks: later requests on them wait.
#[derive(Clone, Debug, Default)]
pub struct Transactions {
    most: usize,
    by_id: BTreeMap<TransactionId, Transaction>,
    /// How many each host has. No entry is zero.
    of_hosts: BTreeMap<Generation, usize>,
    claims: BTreeMap<ObjectId, RangeTable<TransactionId, Stamp>>,
    /// Claims were released since the waiting requests were last examined.
    released: bool,
}

impl Transactions {
    /// An empty table for at most `most` transactions; recovered ones may exceed that.
    pub fn new(most: usize) -> Transactions {
        Transactions { most, ..Transactions::default() }
    }

    /// True if no further transaction of this host is accepted. A host has at most as many as are left: so one host takes half of the table
    /// at most, and a host that has none is refused only if the table is full.
    pub fn is_full_for(&self, host: Generation) -> bool {
        let left = self.most.saturating_sub(self.by_id.len());
        left == 0 || self.of_hosts.get(&host).is_some_and(|own| *own >= left)
    }

    /// Adds a transaction. An undecided one claims its blocks.
    pub fn insert(&mut self, id: TransactionId, transaction: Transaction) {
        if transaction.state.undecided() {
            let claims = self.claims.entry(transaction.object).or_default();
            for range in &transaction.ranges {
                claims.insert(*range, id, transaction.stamp);
            }
        }
        *self.of_hosts.entry(id.host).or_default() += 1;
        let before = self.by_id.insert(id, transaction);
        assert!(before.is_none(), "a transaction is taken in once");
    }

    pub fn get(&self, id: TransactionId) -> Option<&Transaction> {
        self.by_id.get(&id)
    }

    /// For notes on a transaction; only [`Transactions::advance`] changes its state.
    pub fn get_mut(&mut self, id: TransactionId) -> Option<&mut Transaction> {
        self.by_id.get_mut(&id)
    }

    /// Moves a transaction to another state. True if that released its claims, so that other requests may proceed.
    pub fn advance(&mut self, id: TransactionId, to: State) -> bool {
        let transaction = self.by_id.get_mut(&id).expect("only a known transaction changes its state");
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

    /// The same; resets the mark, because waiting requests are examined now.
    pub fn take_released(&mut self) -> bool {
        std::mem::take(&mut self.released)
    }

    /// Forgets a transaction that is decided.
    pub fn remove(&mut self, id: TransactionId) {
        let transaction = self.by_id.remove(&id).expect("only a known transaction is forgotten");
        assert!(!transaction.state.undecided(), "only a decided transaction is forgotten");
        let own = self.of_hosts.get_mut(&id.host).expect("every transaction is counted");
        *own -= 1;
        if *own == 0 {
            self.of_hosts.remove(&id.host);
        }
    }

    /// The undecided transactions, other than `own`, that a request on these blocks waits for; once for each range that
    /// they share with it. With timestamps these are all with lower stamps. With locks, which exclude other transactions,
    /// they are those whose host released its lock before their commit arrived.
    ///
    /// They are found one by one: each waiting request is tested whenever claims are released, and thousands of requests
    /// may wait for thousands of transactions on one block.
    pub fn blockers(
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

    /// True if the object has an undecided transaction.
    pub fn touch(&self, object: ObjectId) -> bool {
        self.by_id.values().any(|held| held.state.undecided() && held.object == object)
    }

    /// The transactions of `host` with sequences below `end`.
    pub fn of_host_below(&self, host: Generation, end: u64) -> Vec<TransactionId> {
        let first = TransactionId { host, sequence: 0 };
        let last = TransactionId { host, sequence: end };
        self.by_id.range(first..last).map(|(id, _)| *id).collect()
    }

    /// All transactions, for inspection.
    pub fn views(&self) -> impl Iterator<Item = TransactionView<'_>> {
        self.by_id.iter().map(|(id, held)| {
            let Transaction { stamp, object, state, participants, .. } = held;
            TransactionView { id: *id, stamp: *stamp, object: *object, state: *state, participants }
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = (&TransactionId, &Transaction)> {
        self.by_id.iter()
    }

    /// Asserts that exactly the undecided transactions have claims, and that no block has two intents.
    pub fn invariants(&self) {
        let claimed: usize = self.claims.values().map(RangeTable::len).sum();
        let undecided = || self.by_id.iter().filter(|(_, transaction)| transaction.state.undecided());
        let expected: usize = undecided().map(|(_, transaction)| transaction.ranges.len()).sum();
        assert_eq!(claimed, expected, "exactly the undecided transactions have claims");
        assert_eq!(
            self.of_hosts.values().sum::<usize>(),
            self.by_id.len(),
            "the transactions of each host are counted"
        );
        for (id, transaction) in undecided() {
            if transaction.state == State::Prewritten {
                continue;
            }
            for range in &transaction.ranges {
                for (_, owner, _) in self.claims[&transaction.object].overlapping(*range) {
                    let other = &self.by_id[&owner];
                    let second = owner != *id && other.state != State::Prewritten;
                    assert!(!second, "a block has at most one undecided intent: {id} and {owner} at {range}");
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
