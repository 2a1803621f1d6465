//! All transactions that are not over, and what devices hear of them until they are.

use crate::ctx::Ctx;
use crate::transaction::{Phase, Transaction};
use braid_base::{DeviceId, Time, Timers, TransactionId};
use braid_machine::Ignored;
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transactions {
    /// By their sequences. Large as they are, they are kept in boxes, so that their neighbours in the table need not be moved.
    open: BTreeMap<u64, Box<Transaction>>,
    /// When devices are asked again that have not answered.
    resends: Timers<u64>,
}

impl Transactions {
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn has(&self, sequence: u64) -> bool {
        self.open.contains_key(&sequence)
    }

    /// Takes up an attempt.
    pub fn open(&mut self, sequence: u64, transaction: Transaction) {
        self.open.insert(sequence, Box::new(transaction));
    }

    pub fn get(&self, sequence: u64) -> Option<&Transaction> {
        self.open.get(&sequence).map(|transaction| &**transaction)
    }

    pub fn get_mut(&mut self, sequence: u64) -> Option<&mut Transaction> {
        self.open.get_mut(&sequence).map(|transaction| &mut **transaction)
    }

    /// One that is not over.
    pub fn of(&self, sequence: u64) -> &Transaction {
        &self.open[&sequence]
    }

    /// The same, to change it.
    pub fn of_mut(&mut self, sequence: u64) -> &mut Transaction {
        self.open.get_mut(&sequence).expect("it is not over")
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &Transaction)> {
        self.open.iter().map(|(sequence, transaction)| (*sequence, &**transaction))
    }

    /// Their sequences.
    pub fn all(&self) -> Vec<u64> {
        self.open.keys().copied().collect()
    }

    /// What is to be sent again next, and when.
    pub fn next_timer(&self) -> Option<(Time, u64)> {
        self.resends.next()
    }

    /// Nothing is sent again of this one.
    pub fn stop_resending(&mut self, sequence: u64) {
        self.resends.cancel(sequence);
    }

    /// What this device has not answered is sent again at once.
    pub fn hurry(&mut self, now: Time, device: DeviceId) {
        for (sequence, _) in self.open.iter().filter(|(_, transaction)| transaction.awaits(device)) {
            if self.resends.deadline_of(*sequence).is_some() {
                self.resends.set(*sequence, now);
            }
        }
    }

    /// A transaction of this host that is not over.
    pub fn own(&mut self, ctx: &Ctx, id: TransactionId) -> Option<&mut Transaction> {
        let own = if id.host == ctx.host { self.open.get_mut(&id.sequence) } else { None };
        own.map(|transaction| &mut **transaction)
    }

    /// Sends, to every device that has not answered, what this phase asks of it.
    pub fn send_phase(&self, ctx: &mut Ctx, sequence: u64) {
        let transaction = &self.open[&sequence];
        let missing = match &transaction.phase {
            Phase::Reading { silent, .. } | Phase::Writing { silent, .. } => silent,
            Phase::Aborting { unconfirmed, .. } => unconfirmed,
            // Commits ride on other requests, and are told again by the link. Lock requests are sent again one by one, and so are
            // votes.
            Phase::Committed { .. } | Phase::Locking | Phase::Resolving => return,
        };
        let id = ctx.id(sequence);
        for device in missing {
            ctx.send(*device, transaction.command(id, *device));
        }
    }

    /// A transaction is decided, and its user can be answered. It is over when `told` have confirmed that they know.
    pub fn tell_end(&mut self, ctx: &mut Ctx, sequence: u64, told: BTreeSet<DeviceId>) {
        if told.is_empty() {
            return self.end(ctx, sequence);
        }
        self.resends.cancel(sequence);
        ctx.release_locks(sequence);
        let transaction = self.open.get_mut(&sequence).expect("it is being decided");
        if told.len() < transaction.asked.len() {
            transaction.settle(sequence, transaction.asked.difference(&told), ctx.links);
        }
        let (links, mut outbound) = ctx.outbound();
        told.iter().for_each(|device| links.queue_commit(&outbound, *device, sequence));
        if transaction.wanted {
            links.hurry_commit(&mut outbound, &told, sequence);
        }
        transaction.phase = Phase::Committed { unconfirmed: told };
    }

    /// Somebody waits for this decision: it is told at once, not when a request happens to go that way.
    pub fn on_blocked(&mut self, ctx: &mut Ctx, device: DeviceId, id: TransactionId) {
        let Some(transaction) = self.own(ctx, id) else { return ctx.out.ignore(Ignored::NotAwaited) };
        transaction.wanted = true;
        if let Phase::Committed { unconfirmed } = &transaction.phase {
            let unconfirmed = unconfirmed.clone();
            if unconfirmed.contains(&device) {
                ctx.links.requeue_commit(device, id.sequence);
            }
            let (links, mut outbound) = ctx.outbound();
            links.hurry_commit(&mut outbound, &unconfirmed, id.sequence);
        }
    }

    /// A commit of ours is durable on this device.
    pub fn on_confirmed(&mut self, ctx: &mut Ctx, device: DeviceId, sequence: u64) {
        ctx.links.confirmed(device, sequence);
        let Some(transaction) = self.open.get_mut(&sequence) else { return };
        if let Phase::Committed { unconfirmed } = &mut transaction.phase {
            unconfirmed.remove(&device);
            if unconfirmed.is_empty() {
                self.end(ctx, sequence);
            }
        }
    }

    /// Asks those again that have not answered. False if the transaction is simply over.
    pub fn resend(&mut self, ctx: &mut Ctx, sequence: u64) -> bool {
        self.resends.cancel(sequence);
        let transaction = &self.open[&sequence];
        if let Phase::Aborting { since, .. } = transaction.phase
            && !transaction.wrote
            && ctx.now.time.since(since) > ctx.settings.host_lease
        {
            // A mere pre-write: a device that has not heard us for so long has dropped it, and one that has, drops it by the
            // settled mark.
            self.end(ctx, sequence);
            return false;
        }
        self.send_phase(ctx, sequence);
        self.arm_resend(ctx, sequence);
        true
    }

    /// Sends again what is not answered in time.
    pub fn arm_resend(&mut self, ctx: &mut Ctx, sequence: u64) {
        let transaction = self.open.get_mut(&sequence).expect("it waits for answers");
        self.resends.set(sequence, ctx.now.time.after(transaction.resend_after));
        transaction.resend_after = (transaction.resend_after * 2).min(ctx.settings.resend_max);
    }

    /// The transaction is over, everywhere.
    pub fn end(&mut self, ctx: &mut Ctx, sequence: u64) {
        ctx.release_locks(sequence);
        let transaction = self.open.remove(&sequence).expect("a transaction ends once");
        self.resends.cancel(sequence);
        transaction.settle(sequence, transaction.asked.iter(), ctx.links);
    }

    /// Asserts that no phase has outlived what it waits for, that `holders` of locks are transactions, and that those that wait for locks are
    /// holders that have not got all.
    pub fn invariants(&self, holders: impl Iterator<Item = (u64, bool)>) {
        self.open.iter().for_each(|(sequence, transaction)| transaction.invariants(*sequence));
        let waits = |sequence: &u64| matches!(self.open[sequence].phase, Phase::Locking);
        let mut asking = 0;
        for (holder, has_all) in holders {
            assert_eq!(waits(&holder), !has_all, "a transaction begins once it has its locks: {holder}");
            asking += usize::from(!has_all);
        }
        let waiting = self.open.keys().filter(|sequence| waits(sequence)).count();
        assert_eq!(waiting, asking, "a transaction that waits for locks has asked for them");
    }
}
