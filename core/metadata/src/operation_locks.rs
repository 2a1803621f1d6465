//! The locks of operations in a file system with several shards: strict two-phase locking within one shard. The locks that an operation needs
//! at a time are granted together; what conflicts waits, first come, first served.
//!
//! ```text
//!   command ─► names, directories ─► plan ─► inodes ─► at one shard: evaluated by the store, and released
//!                                                 └──► at several:   held until the transaction says so
//! ```
//!
//! Who has locks already, and needs more, does not queue behind those who have none: they may wait for it. Still two may wait for each other,
//! also at different servers. So a command that has locks waits for more, or for the answer of another server, for a limited time only, and is
//! then planned anew; the parts of another server's transaction are refused then.
//!
//! The store evaluates in order. Therefore an operation of one shard alone holds its locks only until the store has it.

use braid_base::{Generation, InodeId, ShardId, TransactionId};
use braid_commit::TransactionName;
use braid_namespace::parts::Lock;
use std::collections::{BTreeMap, VecDeque};

/// Who holds locks.
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
    waiting: VecDeque<(Owner, Vec<Lock>)>,
}

impl OperationLocks {
    /// Requests locks, besides those that the owner holds. True if they are granted at once. Otherwise [`OperationLocks::release`] of others
    /// returns the owner when they are.
    pub fn acquire(&mut self, owner: Owner, locks: Vec<Lock>) -> bool {
        let first = self.first_of(owner, self.waiting.len());
        let is_free = self.is_free(owner, &locks, first);
        match is_free {
            true => self.held.entry(owner).or_default().extend(locks),
            false => self.waiting.push_back((owner, locks)),
        }
        is_free
    }

    /// Takes locks that no other owner has: before the server serves.
    pub fn hold(&mut self, owner: Owner, locks: Vec<Lock>) {
        assert!(self.is_free(owner, &locks, 0), "undecided transactions have their locks: {owner:?}");
        self.held.entry(owner).or_default().extend(locks);
    }

    /// Releases all locks of an owner, and ends its waits. Returns those whose locks are granted now, in order.
    pub fn release(&mut self, owner: Owner) -> Vec<Owner> {
        self.held.remove(&owner);
        self.waiting.retain(|(waiting, _)| *waiting != owner);
        let mut granted = Vec::new();
        let mut at = 0;
        while at < self.waiting.len() {
            let (waiting, locks) = &self.waiting[at];
            if self.is_free(*waiting, locks, self.first_of(*waiting, at)) {
                let (waiting, locks) = self.waiting.remove(at).expect("it is in the queue");
                self.held.entry(waiting).or_default().extend(locks);
                granted.push(waiting);
            } else {
                at += 1;
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
        let is_of_other = |owner: &Owner| matches!(owner, Owner::Transaction(name) if name.shard != own);
        let others = self.held.iter().filter(|(owner, _)| is_of_other(owner));
        others.flat_map(|(_, held)| held).any(|lock| lock.conflicts(&Lock::Read(inode)))
    }

    /// Behind how many of the first requests of the queue an owner is.
    fn first_of(&self, owner: Owner, at: usize) -> usize {
        if self.held.contains_key(&owner) { 0 } else { at }
    }

    /// True if no other owner holds a conflicting lock, nor waits for one among the first of the queue.
    fn is_free(&self, owner: Owner, locks: &[Lock], first: usize) -> bool {
        let others = self.held.iter().filter(|(other, _)| **other != owner);
        let before = self.waiting.iter().take(first).filter(|(other, _)| *other != owner);
        let taken = others.flat_map(|(_, held)| held).chain(before.flat_map(|(_, wanted)| wanted));
        taken.into_iter().all(|taken| locks.iter().all(|lock| !lock.conflicts(taken)))
    }

    /// Asserts that no two owners have conflicting locks.
    pub fn invariants(&self) {
        for (owner, locks) in &self.held {
            assert!(self.is_free(*owner, locks, 0), "conflicting locks: {owner:?}");
        }
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
    fn who_waits_is_served_in_turn_and_overtaken_by_nobody_whom_it_would_keep_out() {
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
    fn who_has_locks_does_not_queue_behind_who_waits_for_them() {
        let mut locks = OperationLocks::default();
        assert!(locks.acquire(command(1), entry("a")));
        assert!(!locks.acquire(command(2), vec![Lock::Inode(InodeId(1)), Lock::Inode(InodeId(2))]));
        assert!(locks.acquire(command(1), vec![Lock::Entries(InodeId(1)), Lock::Inode(InodeId(2))]));
        assert_eq!(locks.release(command(1)), [command(2)]);
    }

    #[test]
    fn a_transaction_has_what_its_command_had_and_a_waiting_request_ends_with_its_owner() {
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
    fn a_lock_that_is_held_again_after_a_restart_is_nobody_elses() {
        let mut locks = OperationLocks::default();
        assert!(locks.acquire(command(1), entry("a")));
        locks.hold(Owner::Transaction(TransactionName { shard: ShardId(1), sequence: 7 }), entry("a"));
    }
}
