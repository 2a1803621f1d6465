//! The locks of operations in a file system with several shards: strict two-phase locking within one shard. The locks that an operation needs
//! at a time are granted together; what conflicts waits, first come, first served.
//!
//! ```text
//!   command ─► names, directories ─► plan ─► inodes ─► at one shard: evaluated by the store, and released
//!                                                 └──► at several:   held until the transaction says so
//! ```
//!
//! A command that has locks and needs more does not queue behind those that have none: they may wait for it. Still two may wait for each
//! other, also at different servers. So a command that has locks waits for more, or for the answer of another server, for a limited time only, and is
//! then planned anew; the parts of another server's transaction are refused then.
//!
//! The store evaluates in order. Therefore an operation of one shard alone holds its locks only until the store has it.

use braid_base::{Generation, InodeId, ShardId, TransactionId};
use braid_commit::TransactionName;
use braid_namespace::parts::Lock;
use std::collections::BTreeMap;

/// The holder of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// A command of a host.
    Command(TransactionId),
    Transaction(TransactionName),
    /// A question of a server.
    Question(ShardId, Generation, u64),
}

/// The locks that are held, and requests for some.
#[derive(Clone, Debug, Default)]
pub(crate) struct OperationLocks {
    held: BTreeMap<Owner, Vec<Lock>>,
    waiting: Vec<(Owner, Vec<Lock>)>,
    /// How often each lock is held, and is waited for.
    held_counts: Counts,
    waiting_counts: Counts,
}

impl OperationLocks {
    /// Requests locks, besides those that the owner holds. True if they are granted at once. Otherwise [`OperationLocks::release`] of others
    /// returns the owner when they are.
    pub fn acquire(&mut self, owner: Owner, locks: Vec<Lock>) -> bool {
        let is_free = self.is_free(owner, &locks, &self.waiting_counts);
        if is_free {
            self.grant(owner, locks);
        } else {
            self.waiting_counts.add(&locks);
            self.waiting.push((owner, locks));
        }
        is_free
    }

    /// Takes locks that no other owner has: before the server serves.
    pub fn hold(&mut self, owner: Owner, locks: Vec<Lock>) {
        let is_free = self.held_counts.allow(&locks, self.held_by(owner));
        assert!(is_free, "undecided transactions have their locks: {owner:?}");
        self.grant(owner, locks);
    }

    /// Releases all locks of an owner, and ends its waits. Returns those whose locks are granted now, in order.
    pub fn release(&mut self, owner: Owner) -> Vec<Owner> {
        let mut freed = self.held.remove(&owner).unwrap_or_default();
        self.held_counts.remove(&freed);
        for (_, locks) in self.waiting.extract_if(.., |(waiting, _)| *waiting == owner) {
            self.waiting_counts.remove(&locks);
            freed.extend(locks);
        }
        let rivals = freed.iter().flat_map(Lock::rivals);
        if rivals.into_iter().all(|rival| self.waiting_counts.of(&rival) == 0) {
            return Vec::new();
        }
        let (mut granted, mut before) = (Vec::new(), Counts::default());
        for (waiting, locks) in std::mem::take(&mut self.waiting) {
            if self.is_free(waiting, &locks, &before) {
                self.waiting_counts.remove(&locks);
                self.grant(waiting, locks);
                granted.push(waiting);
            } else {
                before.add(&locks);
                self.waiting.push((waiting, locks));
            }
        }
        granted
    }

    /// Gives what one owner holds to another one.
    pub fn pass(&mut self, from: Owner, to: Owner) {
        let locks = self.held.remove(&from).unwrap_or_default();
        self.held.entry(to).or_default().extend(locks);
    }

    pub fn is_waiting(&self, owner: Owner) -> bool {
        self.waiting.iter().any(|(waiting, _)| *waiting == owner)
    }

    /// True if a transaction of another server changes the inode. It may be committed there, and its host may be answered.
    pub fn is_changed_from_elsewhere(&self, own: ShardId, inode: InodeId) -> bool {
        let read = Lock::Read(inode);
        let is_of_other = |owner: &Owner| matches!(owner, Owner::Transaction(name) if name.shard != own);
        let mut others = self.held.iter().filter(|(owner, _)| is_of_other(owner));
        !self.held_counts.allow(std::slice::from_ref(&read), &[])
            && others.any(|(_, held)| held.iter().any(|lock| lock.conflicts(&read)))
    }

    fn grant(&mut self, owner: Owner, locks: Vec<Lock>) {
        self.held_counts.add(&locks);
        self.held.entry(owner).or_default().extend(locks);
    }

    fn held_by(&self, owner: Owner) -> &[Lock] {
        self.held.get(&owner).map_or(&[], Vec::as_slice)
    }

    /// True if no other owner holds a conflicting lock, nor has waited for one before. An owner that has locks is behind no other.
    fn is_free(&self, owner: Owner, locks: &[Lock], before: &Counts) -> bool {
        let has_locks = self.held.contains_key(&owner);
        self.held_counts.allow(locks, self.held_by(owner)) && (has_locks || before.allow(locks, &[]))
    }

    /// Asserts that no two owners have conflicting locks, and that the counts are true.
    pub fn invariants(&self) {
        let (mut held_counts, mut waiting_counts) = (Counts::default(), Counts::default());
        for (owner, locks) in &self.held {
            assert!(self.held_counts.allow(locks, locks), "conflicting locks: {owner:?}");
            held_counts.add(locks);
        }
        self.waiting.iter().for_each(|(_, locks)| waiting_counts.add(locks));
        assert_eq!((&held_counts, &waiting_counts), (&self.held_counts, &self.waiting_counts), "locks are counted");
    }
}

/// How often each lock occurs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts(BTreeMap<Lock, usize>);

impl Counts {
    fn of(&self, lock: &Lock) -> usize {
        self.0.get(lock).copied().unwrap_or(0)
    }

    fn add(&mut self, locks: &[Lock]) {
        for lock in locks {
            *self.0.entry(lock.clone()).or_default() += 1;
        }
    }

    fn remove(&mut self, locks: &[Lock]) {
        for lock in locks {
            let count = self.0.get_mut(lock).expect("it was added");
            *count -= 1;
            if *count == 0 {
                self.0.remove(lock);
            }
        }
    }

    /// True if none of these locks conflicts with a counted one. The counts include the owner's own locks.
    fn allow(&self, locks: &[Lock], own: &[Lock]) -> bool {
        let is_own = |rival: &Lock| own.iter().filter(|lock| *lock == rival).count();
        locks.iter().flat_map(Lock::rivals).all(|rival| self.of(&rival) == is_own(&rival))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn command(sequence: u64) -> Owner {
        Owner::Command(TransactionId { host: Generation(1), sequence })
    }

    fn entry(name: &'static str) -> Vec<Lock> {
        vec![Lock::Name(InodeId(1), Bytes::from_static(name.as_bytes())), Lock::Entries(InodeId(1))]
    }

    #[test]
    fn a_request_passes_only_waiting_ones_without_conflict() {
        let mut locks = OperationLocks::default();
        assert!(locks.acquire(command(1), entry("a")) && locks.acquire(command(2), entry("b")));
        assert!(!locks.acquire(command(3), vec![Lock::Read(InodeId(1))]), "entries change");
        assert!(!locks.acquire(command(4), entry("c")), "it comes after the one that reads");
        assert!(locks.acquire(command(5), vec![Lock::Place(InodeId(1)), Lock::Read(InodeId(2))]));
        assert_eq!(locks.release(command(1)), []);
        assert_eq!(locks.release(command(2)), [command(3)]);
        assert_eq!(locks.release(command(3)), [command(4)]);
        locks.invariants();
    }

    #[test]
    fn an_owner_with_locks_does_not_queue_behind_one_that_waits_for_them() {
        let mut locks = OperationLocks::default();
        assert!(locks.acquire(command(1), entry("a")));
        assert!(!locks.acquire(command(2), vec![Lock::Inode(InodeId(1)), Lock::Inode(InodeId(2))]));
        assert!(locks.acquire(command(1), vec![Lock::Entries(InodeId(1)), Lock::Inode(InodeId(2))]));
        assert_eq!(locks.release(command(1)), [command(2)]);
    }

    #[test]
    fn a_transaction_gets_the_locks_of_its_command_and_a_request_ends_with_its_owner() {
        let mut locks = OperationLocks::default();
        let name = TransactionName { shard: ShardId(1), sequence: 7 };
        assert!(locks.acquire(command(1), entry("a")));
        assert!(locks.acquire(command(1), vec![Lock::Inode(InodeId(2))]), "more of the same owner");
        locks.pass(command(1), Owner::Transaction(name));
        assert!(!locks.acquire(command(2), entry("a")) && !locks.acquire(command(3), entry("a")));
        assert_eq!(locks.release(command(2)), []);
        assert_eq!(locks.release(command(1)), [], "it has nothing any more");
        assert_eq!(locks.release(Owner::Transaction(name)), [command(3)]);
        locks.invariants();
    }

    #[test]
    #[should_panic(expected = "undecided transactions have their locks")]
    fn a_lock_held_again_after_a_restart_has_one_owner() {
        let mut locks = OperationLocks::default();
        assert!(locks.acquire(command(1), entry("a")));
        locks.hold(Owner::Transaction(TransactionName { shard: ShardId(1), sequence: 7 }), entry("a"));
    }
}
