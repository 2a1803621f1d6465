//! Locks of lock servers, which some orderings need first: which locks a transaction requests, and its reaction to
//! grants, refusals and losses.
//!
//! The lock requests themselves are up to [`braid_locks::client`], to which a transaction is a number. Cached locks
//! cover whole stripe units.

use crate::coordinator::Coordinator;
use crate::ctx::Ctx;
use crate::transaction::{Phase, Transaction};
use braid_base::BlockRange;
use braid_layout::VolumeDescription;
use braid_locks::client::{Event, Obstacle, Retention, Wanted};
use braid_machine::HostError;
use braid_wire::Rejection;
use braid_wire::locking::{LockExtent, LockMode, LockRefusal};
use std::time::Duration;

impl Coordinator {
    /// Requests the locks that a transaction needs. It begins once they are granted.
    pub(crate) fn acquire(&mut self, ctx: &mut Ctx, sequence: u64) {
        let transaction = self.transactions.of(sequence);
        let volume = &transaction.volume;
        let caches = volume.ordering.policy().caches_locks();
        let retention = if caches { Retention::Cached } else { Retention::Released };
        let wanted = Wanted::new(volume.id.object(), extents(transaction, volume, caches), retention);
        let wanted = Wanted { unit_blocks: volume.layout.unit_blocks(), ..wanted };
        ctx.with_locks(|locks, cx| locks.acquire(cx, sequence, wanted));
        self.on_lock_events(ctx);
    }

    /// Handles the events of the client of the lock servers that concern transactions.
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
                // A transaction ends soon, and then releases its locks.
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
        // Writes that were sent are decided by their devices, which refuse those that come too late.
        if matches!(transaction.phase, Phase::Reading { .. }) {
            self.lose(ctx, sequence, None);
        } else {
            transaction.lost_locks = true;
        }
    }
}

/// The locks of a transaction: shared ones of its reads, exclusive ones of its writes. They are rounded to whole stripe
/// units if they are to be cached.
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

/// The reason why an operation's time ran out before its locks were granted.
pub(crate) fn why_no_locks(ctx: &Ctx, sequence: u64, waited: Duration) -> HostError {
    match ctx.locks.obstacle(ctx.now.time, ctx.settings, sequence) {
        Obstacle::Crowded(server) => HostError::LockServerRejected { server, rejection: Rejection::TooManyHosts },
        Obstacle::Silent(server) => HostError::LockServerSilent { server, waited },
        Obstacle::Contended => HostError::Contended { waited },
    }
}
