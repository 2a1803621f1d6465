//! The memory budget of a process: what its peers may make it hold, all together.
//!
//! Every peer has an account: received frames until the last reference to their content is dropped, messages that wait to be sent, requests of
//! NBD clients and of the kernel. A peer may hold as much as would then still be free. So one peer alone gets half of the budget, and of many
//! greedy peers each gets the same, and so does the next one that comes. An eighth is kept for peers that hold little: so an honest one is
//! served, however many are greedy. Peers that have not identified themselves share half of the budget among them. The rule is the dynamic threshold that switches use for shared buffers (Choudhury and Hahne, IEEE/ACM Transactions on
//! Networking, 1998).
//!
//! The answer to a request for content is charged to the peer from the moment when the request is taken, since it is in memory before the
//! peer reads it ([`Due`]).
//!
//! What a process asks others for itself, and their answers, are not charged to anybody: its requests are limited already, by those who
//! made them. A read of an NBD client is charged to that client, from its request until the client has its reply; the answers of devices,
//! of which the reply consists, would be charged a second time. What waits to be sent to nodes that do not read it has a budget of its own,
//! half as large, since the same memory waits for several nodes.
//!
//! The budget is what the process takes, and not only what is charged. What it takes beside that (code, caches, the allocator's free
//! memory, answers under way) is measured ([`Budget::note_resident`]), and peers get the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The budget unless another one is set, in bytes.
pub const DEFAULT_BUDGET: u64 = 512 << 20;
/// The smallest budget, in bytes: some frames of maximum length.
pub const BUDGET_MIN: u64 = 64 << 20;

/// A peer that holds no more than this, in bytes, may hold a frame of any length besides, while a quarter of the budget stays free.
const MODEST: u64 = 64 << 10;

/// The part of the budget that is kept for peers that hold little: one in so many. And what is little.
const KEPT_SHARE: u64 = 8;
const LITTLE_SHARE: u64 = 128;
/// The part that peers get in any case, however much the process takes beside: one in so many. With the smallest budget, it is enough for a
/// frame of maximum length.
const FLOOR_SHARE: u64 = 4;

/// A memory budget.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicU64,
    used: AtomicU64,
    /// What the process takes that is not charged, when it was looked at last.
    beside: AtomicU64,
}

/// The budget of this process.
static PROCESS: Budget = Budget::new(DEFAULT_BUDGET);
/// For what waits to be sent to nodes that this process asks.
static OUTGOING: Budget = Budget::new(DEFAULT_BUDGET / 2);
/// Counts what this process asks others for.
static OWN: Budget = Budget::new(u64::MAX);

impl Budget {
    /// A budget of its own, for tests and for parts of a process.
    pub const fn new(limit: u64) -> Budget {
        Budget { limit: AtomicU64::new(limit), used: AtomicU64::new(0), beside: AtomicU64::new(0) }
    }

    /// The budget of this process.
    pub fn process() -> &'static Budget {
        &PROCESS
    }

    /// What this process asks others for: counted, without a limit.
    pub(crate) fn own() -> &'static Budget {
        &OWN
    }

    /// For what waits to be sent to nodes that this process asks.
    pub(crate) fn outgoing() -> &'static Budget {
        &OUTGOING
    }

    /// Changes the budget of this process, at least to [`BUDGET_MIN`].
    pub fn set_process(bytes: u64) {
        PROCESS.limit.store(bytes.max(BUDGET_MIN), Relaxed);
        OUTGOING.limit.store(bytes.max(BUDGET_MIN) / 2, Relaxed);
    }

    /// Notes how much memory the process takes now.
    pub fn note_resident(&self, bytes: u64) {
        self.beside.store(bytes.saturating_sub(self.used()), Relaxed);
    }

    /// The budget in bytes.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// How many bytes are charged.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// What all peers may hold together that hold much.
    fn for_peers(&self) -> u64 {
        let limit = self.limit();
        limit.saturating_sub(self.beside.load(Relaxed) + limit / KEPT_SHARE).max(limit / FLOOR_SHARE)
    }
}

/// The part of the budget that one peer uses. Clones are the same account.
#[derive(Clone, Debug)]
pub struct Account(Arc<Held>);

#[derive(Debug)]
struct Held {
    budget: &'static Budget,
    used: AtomicUsize,
}

impl Account {
    /// The account of a new peer.
    pub fn new(budget: &'static Budget) -> Account {
        Account(Arc::new(Held { budget, used: AtomicUsize::new(0) }))
    }

    /// How many bytes the peer holds.
    pub fn used(&self) -> usize {
        self.0.used.load(Relaxed)
    }

    /// True if the peer may hold so many bytes more.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.fits_beside_greedy_ones(bytes) || self.fits(bytes, self.0.budget.for_peers()) || self.fits_alone(bytes)
    }

    /// As [`Account::has_room_for`], for a peer that has not identified itself.
    pub fn has_room_for_a_stranger(&self, bytes: usize) -> bool {
        self.fits(bytes, self.0.budget.for_peers() / 2)
    }

    /// True if there is room in the part that is kept for peers that hold little.
    fn fits_beside_greedy_ones(&self, bytes: usize) -> bool {
        let (budget, limit) = (self.0.budget, self.0.budget.limit());
        let is_little = (self.used() + bytes) as u64 <= limit / LITTLE_SHARE;
        is_little && budget.used() + bytes as u64 <= budget.for_peers() + limit / KEPT_SHARE
    }

    fn fits(&self, bytes: usize, limit: u64) -> bool {
        let (own, bytes) = (self.used() as u64, bytes as u64);
        let Some(free) = limit.checked_sub(self.0.budget.used() + bytes) else { return false };
        own + bytes <= free || (own <= MODEST && free >= limit / 4)
    }

    /// True if there is room since others hold next to nothing. So a request that is larger than a peer's part is served at some time.
    fn fits_alone(&self, bytes: usize) -> bool {
        let Budget { limit, used, .. } = self.0.budget;
        let (limit, used) = (limit.load(Relaxed), used.load(Relaxed));
        self.used() as u64 <= MODEST && used <= limit / KEPT_SHARE && used + bytes as u64 <= limit / 4 * 3
    }

    /// Charges bytes to the peer, whether or not there is room.
    pub fn charge(&self, bytes: usize) -> Charge {
        self.add(bytes);
        Charge { account: self.clone(), bytes }
    }

    fn add(&self, bytes: usize) {
        self.0.used.fetch_add(bytes, Relaxed);
        self.0.budget.used.fetch_add(bytes as u64, Relaxed);
    }

    fn subtract(&self, bytes: usize) {
        self.0.used.fetch_sub(bytes, Relaxed);
        self.0.budget.used.fetch_sub(bytes as u64, Relaxed);
    }
}

/// Bytes that are charged to a peer until this is dropped.
#[derive(Debug)]
pub struct Charge {
    account: Account,
    bytes: usize,
}

impl Charge {
    /// Changes the number of bytes.
    pub fn resize(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.account.add(bytes - self.bytes);
        } else if bytes < self.bytes {
            self.account.subtract(self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// How many bytes are charged.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.subtract(self.bytes);
    }
}

#[cfg(test)]
pub(crate) fn leaked(limit: u64) -> &'static Budget {
    Box::leak(Box::new(Budget::new(limit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Takes MiB after MiB while there is room.
    fn fill(account: &Account) -> Vec<Charge> {
        let one = || account.has_room_for(MIB).then(|| account.charge(MIB));
        std::iter::from_fn(one).collect()
    }

    #[test]
    fn one_greedy_peer_gets_half_and_many_leave_the_same_for_the_next() {
        let budget = leaked(512 << 20);
        let alone = fill(&Account::new(budget));
        assert_eq!(alone.len(), 224, "half of the rest");
        drop(alone);
        assert_eq!(budget.used(), 0);
        let accounts: Vec<_> = (0..31).map(|_| Account::new(budget)).collect();
        let mut held: Vec<Charge> = Vec::new();
        while accounts.iter().any(|account| account.has_room_for(MIB)) {
            let takers = accounts.iter().filter(|account| account.has_room_for(MIB));
            held.extend(takers.map(|account| account.charge(MIB)).collect::<Vec<_>>());
        }
        let least = accounts.iter().map(Account::used).min().expect("some");
        assert!(least >= 13 * MIB, "{least}");
        let next = fill(&Account::new(budget));
        assert!(next.len() >= 7, "{}", next.len());
        assert!(budget.used() <= budget.limit() / 8 * 7);
        assert!(Account::new(budget).has_room_for(MODEST as usize), "there is room for what is small");
    }

    #[test]
    fn peers_get_what_the_process_does_not_take_beside_and_an_honest_one_is_served_in_any_case() {
        let budget = leaked(512 << 20);
        let charge = Account::new(budget).charge(10 * MIB);
        budget.note_resident(330 << 20);
        assert_eq!(fill(&Account::new(budget)).len(), (512 - 320 - 64 - 10) / 2);
        budget.note_resident(4 << 30);
        assert_eq!(fill(&Account::new(budget)).len(), (128 - 10) / 2, "a part is for peers in any case");
        budget.note_resident(0);
        drop(charge);
        let smallest = leaked(BUDGET_MIN);
        smallest.note_resident(4 << 30);
        let accounts: Vec<_> = (0..100).map(|_| Account::new(smallest)).collect();
        let greedy: Vec<_> = accounts.iter().flat_map(fill).collect();
        let honest = Account::new(smallest);
        let little: Vec<_> =
            (0..7).map(|_| honest.has_room_for(MODEST as usize).then(|| honest.charge(MODEST as usize))).collect();
        assert!(little.iter().all(Option::is_some));
        drop((greedy, little));
        // The longest request of all is served while there is no other.
        let account = Account::new(smallest);
        assert!(account.has_room_for(32 * MIB));
        let _held = account.charge(32 * MIB);
        assert!(!Account::new(smallest).has_room_for(32 * MIB));
    }

    #[test]
    fn strangers_together_get_half() {
        let budget = leaked(512 << 20);
        let accounts: Vec<_> = (0..1000).map(|_| Account::new(budget)).collect();
        let takers = accounts.iter().filter(|account| account.has_room_for_a_stranger(8 * MIB));
        let held: Vec<_> = takers.map(|account| account.charge(8 * MIB)).collect();
        assert_eq!(held.len(), 27);
        assert!(Account::new(budget).has_room_for(8 * MIB));
    }

    #[test]
    fn charged_bytes_are_given_back() {
        let budget = leaked(BUDGET_MIN);
        let account = Account::new(budget);
        let mut charge = account.charge(5);
        charge.resize(9);
        assert_eq!((account.used(), budget.used()), (9, 9));
        charge.resize(2);
        assert_eq!((account.used(), charge.bytes()), (2, 2));
        drop(charge);
        assert_eq!((account.used(), budget.used()), (0, 0));
    }
}
