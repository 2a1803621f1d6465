//! Locks of lock servers, which some orderings need first: what a transaction locks, and what becomes of it with its locks.
//!
//! The locks themselves are the business of [`braid_locks::client`], to which a transaction is a number. Cached locks cover whole stripe
//! units.

use crate::coordinator::Coordinator;
use crate::ctx::Ctx;
use crate::transaction::{Phase, Transaction};
use braid_base::BlockRange;
use braid_layout::VolumeDescription;
use braid_locks::client::{Event, Obstacle, Wanted};
use braid_machine::HostError;
use braid_wire::Rejection;
use braid_wire::locking::{LockExtent, LockMode, LockRefusal};
use std::time::Duration;

impl Coordinator {
    /// Gets a transaction the locks that it needs, and lets it begin then.
    pub(crate) fn acquire(&mut self, ctx: &mut Ctx, sequence: u64) {
        let transaction = self.transactions.of(sequence);
        let volume = &transaction.volume;
        let caches = volume.ordering.policy().caches_locks();
        let wanted = Wanted {
            object: volume.id.object(),
            extents: extents(transaction, volume, caches),
            unit_blocks: volume.layout.unit_blocks(),
            caches,
        };
        ctx.with_locks(|locks, cx| locks.acquire(cx, sequence, wanted));
        self.on_lock_events(ctx);
    }

    /// Does what follows from what the client of the lock servers tells of transactions.
    pub fn on_lock_events(&mut self, ctx: &mut Ctx) {
        while let Some(event) = ctx.locks.pop_event() {
            match event {
                Event::Granted { holder } => self.begin(ctx, holder),
                Event::Delayed { holder } => {
                    if let Some(op) = self.transactions.of(holder).op {
                        self.operations.of_mut(op).delayed = true;
                    }
                }
                Event::Denied { holder, refusal } => self.on_locks_denied(ctx, holder, refusal),
                Event::Lost { holder } => self.on_locks_lost(ctx, holder),
                // A transaction ends soon, and gives back its locks then.
                Event::Revoked { .. } => {}
            }
        }
    }

    fn on_locks_denied(&mut self, ctx: &mut Ctx, sequence: u64, refusal: LockRefusal) {
        let Some(transaction) = self.transactions.get(sequence) else { return };
        if refusal == LockRefusal::Malformed
            && let Some(op) = transaction.op
        {
            return self.give_up(ctx, op, HostError::OutOfRange);
        }
        if refusal == LockRefusal::Timeout {
            self.count_restart(sequence);
        }
        self.lose(ctx, sequence, None);
    }

    fn on_locks_lost(&mut self, ctx: &mut Ctx, sequence: u64) {
        let Some(transaction) = self.transactions.get_mut(sequence) else { return };
        // What is written already is decided by its devices, which refuse what comes too late.
        if matches!(transaction.phase, Phase::Reading { .. }) {
            self.lose(ctx, sequence, None);
        } else {
            transaction.lost_locks = true;
        }
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

/// Why an operation's time ran out before it had its locks.
pub(crate) fn why_no_locks(ctx: &Ctx, sequence: u64, waited: Duration) -> HostError {
    match ctx.locks.obstacle(ctx.now.time, ctx.settings, sequence) {
        Obstacle::Crowded(server) => HostError::LockServerRejected { server, rejection: Rejection::TooManyHosts },
        Obstacle::Silent(server) => HostError::LockServerSilent { server, waited },
        Obstacle::Contended => HostError::Contended { waited },
    }
}
