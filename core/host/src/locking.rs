//! Locks of lock servers, which some orderings need first: what a transaction locks, and what becomes of it with its locks.
//!
//! The locks themselves are the business of [`braid_locks::client`], to which a transaction is a number. Cached locks cover whole stripe
//! units.

use crate::host::Host;
use crate::transaction::{Phase, Transaction};
use braid_base::{BlockRange, LockServerId, Now, ObjectId};
use braid_layout::VolumeDescription;
use braid_locks::client::{Ctx, Event, LockClient, Obstacle, Wanted};
use braid_machine::{Effects, HostError};
use braid_wire::Rejection;
use braid_wire::locking::{LockAnswer, LockExtent, LockMode, LockRefusal};
use std::time::Duration;

impl Host {
    /// Gets a transaction the locks that it needs, and lets it begin then.
    pub(crate) fn acquire(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let transaction = &self.transactions[&sequence];
        let volume = &transaction.volume;
        let caches = volume.ordering.policy().caches_locks();
        let wanted = Wanted {
            object: volume.id.object(),
            extents: extents(transaction, volume, caches),
            unit_blocks: volume.layout.unit_blocks(),
            caches,
        };
        self.with_locks(now, out, |locks, cx| locks.acquire(cx, sequence, wanted));
        self.on_lock_events(now, out);
    }

    /// Gives back the locks of a transaction that needs them no longer.
    pub(crate) fn release_locks(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        self.with_locks(now, out, |locks, cx| locks.release(cx, sequence));
    }

    /// Gives back all cached locks.
    pub(crate) fn release_cached_locks(&mut self, now: Now, out: &mut Effects) {
        self.with_locks(now, out, LockClient::release_cached);
    }

    pub(crate) fn on_lock_answer(&mut self, now: Now, server: LockServerId, answer: LockAnswer, out: &mut Effects) {
        self.with_locks(now, out, |locks, cx| locks.on_answer(cx, server, answer));
        self.on_lock_events(now, out);
    }

    pub(crate) fn on_lock_timer(&mut self, now: Now, out: &mut Effects) {
        self.with_locks(now, out, LockClient::wake);
        self.on_lock_events(now, out);
    }

    /// On with transactions whose turn has come among this host's own.
    pub(crate) fn take_turns(&mut self, now: Now, out: &mut Effects) {
        while self.with_locks(now, out, LockClient::take_turn) {
            self.on_lock_events(now, out);
        }
    }

    fn with_locks<R>(&mut self, now: Now, out: &mut Effects, act: impl FnOnce(&mut LockClient, &mut Ctx) -> R) -> R {
        let Host { config, links, locks, .. } = self;
        let mut number = || links.take_sequence();
        act(locks, &mut Ctx { now, settings: &config.settings, number: &mut number, out })
    }

    fn on_lock_events(&mut self, now: Now, out: &mut Effects) {
        while let Some(event) = self.locks.pop_event() {
            match event {
                Event::Granted { holder } => self.begin(now, holder, out),
                Event::Delayed { holder } => {
                    if let Some(op) = self.transactions[&holder].op {
                        self.delay(op);
                    }
                }
                Event::Denied { holder, refusal } => self.on_locks_denied(now, holder, refusal, out),
                Event::Lost { holder } => self.on_locks_lost(now, holder, out),
                // A transaction ends soon, and gives back its locks then.
                Event::Recalled { .. } => {}
            }
        }
    }

    fn on_locks_denied(&mut self, now: Now, sequence: u64, refusal: LockRefusal, out: &mut Effects) {
        let Some(transaction) = self.transactions.get(&sequence) else { return };
        if refusal == LockRefusal::Malformed
            && let Some(op) = transaction.op
        {
            return self.give_up(now, op, HostError::OutOfRange, out);
        }
        if refusal == LockRefusal::Timeout {
            self.count_restart(sequence);
        }
        self.lose(now, sequence, None, out);
    }

    fn on_locks_lost(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let Some(transaction) = self.transactions.get_mut(&sequence) else { return };
        // What is written already is decided by its devices, which refuse what comes too late.
        if matches!(transaction.phase, Phase::Reading { .. }) {
            self.lose(now, sequence, None, out);
        } else {
            transaction.lost_locks = true;
        }
    }

    /// Why an operation's time ran out before it had its locks.
    pub(crate) fn why_no_locks(&self, now: Now, sequence: u64, waited: Duration) -> HostError {
        match self.locks.obstacle(now.time, &self.config.settings, sequence) {
            Obstacle::Crowded(server) => HostError::LockServerRejected { server, rejection: Rejection::TooManyHosts },
            Obstacle::Silent(server) => HostError::LockServerSilent { server, waited },
            Obstacle::Contended => HostError::Contended { waited },
        }
    }

    /// What it holds of lock servers, as far as it knows, to look at. No other host may hold that, unless devices keep this host out.
    pub fn held_locks(&self) -> impl Iterator<Item = (ObjectId, LockExtent)> + '_ {
        self.locks.held()
    }

    /// Locks held, asked for or being released, to look at.
    pub fn claims(&self) -> usize {
        self.locks.len()
    }

    /// Asserts that the holders of locks are transactions, and that those that wait for locks are holders.
    pub(crate) fn locking_invariants(&self) {
        self.locks.invariants();
        let waits = |sequence: &u64| matches!(self.transactions[sequence].phase, Phase::Locking);
        for (holder, has_all) in self.locks.holders() {
            assert_eq!(waits(&holder), !has_all, "a transaction begins once it has its locks: {holder}");
        }
        let waiting = self.transactions.keys().filter(|sequence| waits(sequence)).count();
        let asking = self.locks.holders().filter(|(_, has_all)| !has_all).count();
        assert_eq!(waiting, asking, "a transaction that waits for locks has asked for them");
    }
}

/// What a transaction locks: what it reads, shared; what it writes, exclusively; as whole stripe units if they are to be kept.
fn extents(transaction: &Transaction, volume: &VolumeDescription, kept: bool) -> Vec<LockExtent> {
    let unit = volume.layout.unit_blocks();
    let rounded = |range: BlockRange| match kept {
        true => BlockRange::between(range.start / unit * unit, range.end().div_ceil(unit) * unit),
        false => range,
    };
    let mut extents: Vec<LockExtent> = Vec::new();
    for share in transaction.work.shares() {
        let position = volume.device_at(share.position).0;
        let of_this = extents.len();
        for (ranges, mode) in [(&share.prewrites, LockMode::Exclusive), (&share.reads, LockMode::Shared)] {
            for range in ranges {
                let range = rounded(*range);
                let there = |held: &LockExtent| held.range.contains(range);
                if !extents[of_this..].iter().any(there) {
                    extents.push(LockExtent { position, range, mode });
                }
            }
        }
    }
    extents
}
