//! Recovery after a restart: the scheduler takes over the transactions that the store has found.

use super::Scheduler;
use super::ctx::Ctx;
use super::stamp_table::Stamps;
use super::transactions::{State, Transaction};
use braid_base::{ObjectId, Stamp, TransactionId};
use braid_ordering::Policy;
use braid_store::Recovered;

impl Scheduler {
    /// Takes in what the store has found. The floor is at or above all stamps that may have been accepted before.
    pub fn recover(&mut self, cx: &mut Ctx, found: Recovered) {
        self.reservation.recover(cx.now.time, found.stamps_reserved);
        let floor = Stamp::last_of(found.stamps_reserved);
        self.order.stamps = Stamps::new(floor, cx.settings.stamps_kept, cx.now.time);
        for intent in found.intents {
            let policy = policy_of(cx, intent.object);
            let transaction = Transaction::new(intent.stamp, intent.object, policy, intent.ranges, State::Prepared);
            if transaction.takes_locks() {
                self.locks.hold(intent.transaction, intent.object, &transaction.ranges);
            }
            let (epoch, participants) = (intent.epoch, intent.participants);
            // Other hosts may have heard of it before the restart.
            self.take_in(cx, intent.transaction, Transaction { epoch, participants, voted: true, ..transaction });
        }
        for commit in found.commits {
            // Writes that took effect on arrival are remembered like commits, until their hosts say that all devwrites
            // of the transaction have.
            let state = if cx.can_be_suspect(commit.object) { State::Applied } else { State::Committed };
            let transaction =
                Transaction::new(commit.stamp, commit.object, policy_of(cx, commit.object), Vec::new(), state);
            let (epoch, participants, linkage) = (commit.epoch, commit.participants, Some(commit.linkage));
            self.take_in(cx, commit.transaction, Transaction { epoch, participants, linkage, ..transaction });
        }
    }

    /// Takes in one transaction. A host that is not fenced has the length of a lease to send a message; after that, they are orphans.
    fn take_in(&mut self, cx: &mut Ctx, id: TransactionId, transaction: Transaction) {
        self.order.ledger.insert(id, transaction);
        if cx.view.refuses(id.host) {
            self.order.ledger.keep_or_forget(cx, id);
        }
    }
}

fn policy_of(cx: &Ctx, object: ObjectId) -> Option<&'static Policy> {
    Some(cx.object(object)?.ordering.policy())
}
