//! The memory budget of a process: what its peers may make it hold, all together.
//!
//! Every peer has an account: received frames until the last reference to their content is dropped, messages that wait to be sent, requests of
//! NBD clients and of the kernel. A peer may hold as much as would then still be free. So one peer alone gets half of the budget, and of many
//! greedy peers each gets the same, and so does the next one that comes. An eighth is kept for what is small, such as the buffers into which
//! peers' first bytes are read. Peers that have not identified themselves share half of the budget among them. The rule is the dynamic threshold that switches use for shared buffers (Choudhury and Hahne, IEEE/ACM Transactions on
//! Networking, 1998).
//!
//! What a process asks others for itself, and their answers, are not in it: its requests are limited already, by those who made them. A read
//! of an NBD client is charged to that client, from its request until the client has its reply; the answers of devices, of which the reply
//! consists, would be charged a second time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The budget unless another one is set, in bytes.
pub const DEFAULT_BUDGET: u64 = 512 << 20;
/// The smallest budget, in bytes: some frames of maximum length.
pub const BUDGET_MIN: u64 = 64 << 20;

/// A peer that holds no more than this, in bytes, may hold a frame of any length besides, while a quarter of the budget stays free.
const MODEST: u64 = 64 << 10;

/// The part of the budget that is kept for small things: one in so many.
const KEPT_SHARE: u64 = 8;

/// A memory budget.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicU64,
    used: AtomicU64,
}

/// The budget of this process.
static PROCESS: Budget = Budget::new(DEFAULT_BUDGET);
/// Counts what this process asks others for.
static OWN: Budget = Budget::new(u64::MAX);

impl Budget {
    /// A budget of its own, for tests and for parts of a process.
    pub const fn new(limit: u64) -> Budget {
        Budget { limit: AtomicU64::new(limit), used: AtomicU64::new(0) }
    }

    /// The budget of this process.
    pub fn process() -> &'static Budget {
        &PROCESS
    }

    /// What this process asks others for: counted, without a limit.
    pub(crate) fn own() -> &'static Budget {
        &OWN
    }

    /// Changes the budget, at least to [`BUDGET_MIN`].
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes.max(BUDGET_MIN), Relaxed);
    }

    /// The budget in bytes.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// How many bytes are charged.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
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
        let limit = self.0.budget.limit();
        let kept = if bytes as u64 > MODEST { limit / KEPT_SHARE } else { 0 };
        self.fits(bytes, limit - kept)
    }

    /// As [`Account::has_room_for`], for a peer that has not identified itself.
    pub fn has_room_for_a_stranger(&self, bytes: usize) -> bool {
        self.fits(bytes, self.0.budget.limit() / 2)
    }

    fn fits(&self, bytes: usize, limit: u64) -> bool {
        let (own, bytes) = (self.used() as u64, bytes as u64);
        let Some(free) = limit.checked_sub(self.0.budget.used() + bytes) else { return false };
        own + bytes <= free || (own <= MODEST && free >= limit / 4)
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
    fn strangers_together_get_half() {
        let budget = leaked(512 << 20);
        let accounts: Vec<_> = (0..1000).map(|_| Account::new(budget)).collect();
        let takers = accounts.iter().filter(|account| account.has_room_for_a_stranger(8 * MIB));
        let held: Vec<_> = takers.map(|account| account.charge(8 * MIB)).collect();
        assert_eq!(held.len(), 31);
        assert!(Account::new(budget).has_room_for(8 * MIB));
    }

    #[test]
    fn what_is_charged_is_given_back() {
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
