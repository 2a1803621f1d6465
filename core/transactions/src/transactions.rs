//! The transactions of this host that are not over, and the messages about them to devices.

use crate::ctx::Ctx;
use crate::transaction::{Phase, Transaction};
use braid_base::{DeviceId, Time, Timers, TransactionId};
use braid_machine::Ignored;
use std::collections::{BTreeMap, BTreeSet};

/// The transactions that are not over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transactions {
    /// By sequence. Boxed because transactions are large: the map need not move them.
    open: BTreeMap<u64, Box<Transaction>>,
    /// Those whose operations have failed, and whose writes are sent again until devices accept them, whatever came later.
    insistent: BTreeSet<u64>,
    /// When unanswered requests are sent again.
    resends: Timers<u64>,
}

impl Transactions {
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn has(&self, sequence: u64) -> bool {
        self.open.contains_key(&sequence)
    }

    pub fn open(&mut self, sequence: u64, transaction: Transaction) {
        self.open.insert(sequence, Box::new(transaction));
    }

    pub fn get(&self, sequence: u64) -> Option<&Transaction> {
        self.open.get(&sequence).map(|transaction| &**transaction)
    }

    pub fn get_mut(&mut self, sequence: u64) -> Option<&mut Transaction> {
        self.open.get_mut(&sequence).map(|transaction| &mut **transaction)
    }

    /// A transaction that is not over.
    pub fn of(&self, sequence: u64) -> &Transaction {
        &self.open[&sequence]
    }

    pub fn of_mut(&mut self, sequence: u64) -> &mut Transaction {
        self.open.get_mut(&sequence).expect("it is not over")
    }

    /// The operation of this transaction has failed, and its writes continue.
    pub fn insist(&mut self, sequence: u64) {
        self.insistent.insert(sequence);
    }

    /// The transactions without an operation whose writes later writes must not overtake.
    pub fn insistent(&self) -> &BTreeSet<u64> {
        &self.insistent
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &Transaction)> {
        self.open.iter().map(|(sequence, transaction)| (*sequence, &**transaction))
    }

    pub fn all(&self) -> Vec<u64> {
        self.open.keys().copied().collect()
    }

    pub fn next_timer(&self) -> Option<(Time, u64)> {
        self.resends.next()
    }

    /// Sends nothing of this transaction again.
    pub fn stop_resending(&mut self, sequence: u64) {
        self.resends.cancel(sequence);
    }

    /// Sends unanswered requests to this device again at once, and columns with which it contributes.
    pub fn hurry(&mut self, now: Time, device: DeviceId) {
        for (sequence, _) in self.open.iter().filter(|(_, transaction)| transaction.needs(device)) {
            if self.resends.deadline_of(*sequence).is_some() {
                self.resends.set(*sequence, now);
            }
        }
    }

    /// The transaction with this id, if it is one of this host and not over.
    pub fn own(&mut self, ctx: &Ctx, id: TransactionId) -> Option<&mut Transaction> {
        let own = if id.host == ctx.host { self.open.get_mut(&id.sequence) } else { None };
        own.map(|transaction| &mut **transaction)
    }

    /// Sends the requests of the present phase to every device that has not answered.
    pub fn send_phase(&self, ctx: &mut Ctx, sequence: u64) {
        let transaction = &self.open[&sequence];
        let missing = match &transaction.phase {
            Phase::Reading { silent, .. } | Phase::Executing { silent, .. } | Phase::Writing { silent, .. } => silent,
            Phase::Aborting { unconfirmed, .. } => unconfirmed,
            // Commits ride on other requests, and the link sends them again. Lock requests and resolutions have timers
            // of their own.
            Phase::Committed { .. } | Phase::Locking | Phase::Resolving => return,
        };
        let id = ctx.id(sequence);
        for device in missing {
            ctx.send(*device, transaction.command(id, *device));
        }
        self.send_to_owing(ctx, sequence);
    }

    /// Makes a decided transaction's end known to the devices `told`. It is over when they have confirmed that.
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
        for device in transaction.wanted.intersection(&told) {
            links.hurry_commit(&mut outbound, *device, sequence);
        }
        transaction.phase = Phase::Committed { unconfirmed: told };
    }

    /// A request waits for this transaction on a device: its decision is sent there at once, not with the next request. Other devices, where
    /// nothing may be waiting, say so themselves.
    pub fn on_blocked(&mut self, ctx: &mut Ctx, device: DeviceId, id: TransactionId) {
        let Some(transaction) = self.own(ctx, id) else { return ctx.out.ignore(Ignored::NotAwaited) };
        transaction.wanted.insert(device);
        if let Phase::Committed { unconfirmed } = &transaction.phase
            && unconfirmed.contains(&device)
        {
            ctx.links.requeue_commit(device, id.sequence);
            let (links, mut outbound) = ctx.outbound();
            links.hurry_commit(&mut outbound, device, id.sequence);
        }
    }

    /// A commit of this host is durable on a device.
    pub fn on_confirmed(&mut self, ctx: &mut Ctx, device: DeviceId, sequence: u64) {
        ctx.links.of(device).confirmed(sequence);
        let Some(transaction) = self.open.get_mut(&sequence) else { return };
        if let Phase::Committed { unconfirmed } = &mut transaction.phase {
            unconfirmed.remove(&device);
            if unconfirmed.is_empty() {
                self.end(ctx, sequence);
            }
        }
    }

    /// Sends unanswered requests again. False if the transaction is over instead.
    pub fn resend(&mut self, ctx: &mut Ctx, sequence: u64) -> bool {
        self.resends.cancel(sequence);
        let transaction = &self.open[&sequence];
        if let Phase::Aborting { since, .. } = transaction.phase
            && !transaction.wrote
            && ctx.now.time.since(since) > ctx.settings.host_lease
        {
            // Only pre-writes were sent. A device that has not heard this host for so long has dropped them; a device
            // that has heard it drops them by the settled mark.
            self.end(ctx, sequence);
            return false;
        }
        self.send_phase(ctx, sequence);
        self.arm_resend(ctx, sequence);
        true
    }

    /// Sets the timer after which unanswered requests are sent again.
    pub fn arm_resend(&mut self, ctx: &mut Ctx, sequence: u64) {
        let transaction = self.open.get_mut(&sequence).expect("it waits for answers");
        self.resends.set(sequence, ctx.now.time.after(transaction.resend.next_wait()));
    }

    /// The transaction is over on all devices.
    pub fn end(&mut self, ctx: &mut Ctx, sequence: u64) {
        ctx.release_locks(sequence);
        let transaction = self.open.remove(&sequence).expect("a transaction ends once");
        self.resends.cancel(sequence);
        self.insistent.remove(&sequence);
        transaction.settle(sequence, transaction.asked.iter(), ctx.links);
    }

    /// Asserts that each phase still waits for something, that lock holders are transactions, and that exactly the
    /// transactions that wait for locks are holders without all their locks.
    pub fn invariants(&self, holders: impl Iterator<Item = (u64, bool)>) {
        self.open.iter().for_each(|(sequence, transaction)| transaction.invariants(*sequence));
        assert!(
            self.insistent.iter().all(|sequence| self.open.contains_key(sequence)),
            "an ended transaction sends nothing"
        );
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
