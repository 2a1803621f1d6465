//! Operations on two shards that become one transaction: those that are ready while a transaction with the same worker is under way wait for
//! its end, and then begin together ([`Grouping::Operations`]). They hold their locks meanwhile.
//!
//! A transaction with several operations has a verdict for each, one record at each step, and one message for each message of the protocol.
//! So the more operations wait, the less each of them costs. An operation that waits for nobody begins at once.

use braid_base::limits::SHARD_OPERATIONS_MAX;
use braid_base::{ShardId, TransactionId};
use braid_commit::{Grouping, TransactionName};
use std::collections::{BTreeMap, VecDeque};

/// About the most bytes of the operations of one transaction, unless it is only one: their record is one value of the map at each server.
const GROUP_BYTES_MAX: usize = 16 << 10;

/// The transactions under way with each worker, and what waits for them.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    grouping: Grouping,
    under_way: BTreeMap<ShardId, TransactionName>,
    /// Commands and the bytes of their operations, in the order in which they were ready. Some of them may be over.
    ready: BTreeMap<ShardId, VecDeque<(TransactionId, usize)>>,
}

impl Groups {
    pub fn new(grouping: Grouping) -> Groups {
        Groups { grouping, under_way: BTreeMap::new(), ready: BTreeMap::new() }
    }

    /// True if operations are to become one transaction.
    pub fn are_operations(&self) -> bool {
        self.grouping == Grouping::Operations
    }

    /// An operation with one worker is ready.
    pub fn add(&mut self, worker: ShardId, command: TransactionId, bytes: usize) {
        self.ready.entry(worker).or_default().push_back((command, bytes));
    }

    /// The commands that begin together, if a worker has no transaction under way.
    pub fn next(&mut self) -> Option<(ShardId, Vec<TransactionId>)> {
        let worker = self.ready.keys().copied().find(|worker| !self.under_way.contains_key(worker))?;
        let waiting = self.ready.get_mut(&worker).expect("it has commands");
        let (mut commands, mut sum) = (Vec::new(), 0);
        while let Some((command, bytes)) = waiting.front().copied() {
            sum += bytes;
            let is_full = commands.len() == SHARD_OPERATIONS_MAX || sum > GROUP_BYTES_MAX;
            if is_full && !commands.is_empty() {
                break;
            }
            waiting.pop_front();
            commands.push(command);
        }
        if waiting.is_empty() {
            self.ready.remove(&worker);
        }
        Some((worker, commands))
    }

    /// A transaction with this worker has begun, and others of the worker wait for its end.
    pub fn begin(&mut self, worker: ShardId, transaction: TransactionName) {
        if self.are_operations() {
            self.under_way.entry(worker).or_insert(transaction);
        }
    }

    /// A transaction has released its locks. True if others may have waited for that.
    pub fn end(&mut self, transaction: TransactionName) -> bool {
        let before = self.under_way.len();
        self.under_way.retain(|_, under_way| *under_way != transaction);
        self.under_way.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Generation;

    const WORKER: ShardId = ShardId(1);

    fn command(sequence: u64) -> TransactionId {
        TransactionId { host: Generation(1), sequence }
    }

    fn transaction(sequence: u64) -> TransactionName {
        TransactionName { shard: ShardId(0), sequence }
    }

    #[test]
    fn operations_ready_during_a_transaction_begin_together_at_its_end() {
        let mut groups = Groups::new(Grouping::Operations);
        groups.add(WORKER, command(1), 100);
        assert_eq!(groups.next(), Some((WORKER, vec![command(1)])));
        groups.begin(WORKER, transaction(1));
        (2..=4).for_each(|sequence| groups.add(WORKER, command(sequence), 100));
        groups.add(ShardId(2), command(5), 100);
        assert_eq!(groups.next(), Some((ShardId(2), vec![command(5)])), "another worker");
        assert_eq!(groups.next(), None);
        assert!(!groups.end(transaction(7)), "nobody waits for that one");
        assert!(groups.end(transaction(1)));
        assert_eq!(groups.next(), Some((WORKER, [2, 3, 4].map(command).to_vec())));
        assert_eq!(groups.next(), None);
    }

    #[test]
    fn a_group_is_bounded_by_its_operations_and_their_bytes_but_has_one() {
        let mut groups = Groups::new(Grouping::Operations);
        let many = SHARD_OPERATIONS_MAX as u64 + 1;
        (0..many).for_each(|sequence| groups.add(WORKER, command(sequence), 10));
        assert_eq!(groups.next().map(|(_, commands)| commands.len()), Some(SHARD_OPERATIONS_MAX));
        assert_eq!(groups.next(), Some((WORKER, vec![command(many - 1)])));
        for bytes in [2 * GROUP_BYTES_MAX, GROUP_BYTES_MAX / 2, GROUP_BYTES_MAX / 2, 1] {
            groups.add(WORKER, command(bytes as u64), bytes);
        }
        let sizes: Vec<usize> = std::iter::from_fn(|| groups.next()).map(|(_, commands)| commands.len()).collect();
        assert_eq!(sizes, [1, 2, 1]);
    }
}
