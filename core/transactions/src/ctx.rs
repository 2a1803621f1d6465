//! What the coordinator borrows of its owner, and what it tells the owner.

use crate::links::{Links, Outbound};
use braid_base::limits::Settings;
use braid_base::{DeviceId, Generation, Now, Rng, TransactionId};
use braid_layout::VolumeDescription;
use braid_locks::client::{Ctx as LockCtx, PartLocks};
use braid_machine::{Effects, HostOutcome, OpId};
use braid_membership::client::MembershipView;
use braid_wire::{Command, Linkage};
use std::rc::Rc;

/// What the coordinator borrows of its owner.
pub struct Ctx<'a> {
    /// The time.
    pub now: Now,
    /// The generation by which devices know the owner.
    pub host: Generation,
    /// Waits and spans.
    pub settings: &'a Settings,
    /// The membership that the owner lives by, and which devices are unavailable.
    pub view: &'a MembershipView,
    /// The ways to the devices.
    pub links: &'a mut Links,
    /// The client of the lock servers: transactions are its holders, by their sequences.
    pub locks: PartLocks<'a>,
    /// For the back-off.
    pub rng: &'a mut Rng,
    /// Where messages go.
    pub out: &'a mut Effects,
}

/// What the coordinator tells its owner.
#[derive(Clone, Debug)]
pub enum Event {
    /// An operation has ended.
    Ended {
        /// Which.
        op: OperationId,
        /// How.
        outcome: HostOutcome,
    },
    /// A transaction was interrupted, and all participants know. What was written of it stays, and parity may not match that. The owner has the
    /// parity resynced, and calls [`Coordinator::on_resynced`](crate::Coordinator::on_resynced) when that is over.
    Interrupted {
        /// Which.
        transaction: TransactionId,
        /// Of which volume.
        volume: Rc<VolumeDescription>,
        /// What it was to write.
        linkage: Linkage,
    },
    /// A device has lost a block, and the operation that met this does without.
    Damaged {
        /// Of which volume.
        volume: Rc<VolumeDescription>,
        /// Which device.
        device: DeviceId,
        /// Which of its blocks.
        block: u64,
    },
}

/// Names an operation: what it belongs to, and which it is there. Those of users come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OperationId {
    /// A request of a user.
    User(OpId),
    /// A step of a background job of the owner.
    Job(u64),
}

impl Ctx<'_> {
    /// What the links need.
    pub fn outbound(&mut self) -> (&mut Links, Outbound<'_>) {
        let Ctx { now, host, settings, view, links, out, .. } = self;
        (links, Outbound { now: *now, host: *host, epoch: view.epoch(), settings, out })
    }

    /// Sends a command, and whatever is to ride on it.
    pub fn send(&mut self, device: DeviceId, command: Command) {
        let (links, mut outbound) = self.outbound();
        links.send(&mut outbound, device, command);
    }

    /// Gives back the locks of a transaction that needs them no longer.
    pub(crate) fn release_locks(&mut self, sequence: u64) {
        self.with_locks(|locks, cx| locks.release(cx, sequence));
    }

    /// The name of a transaction of this host.
    pub(crate) fn id(&self, sequence: u64) -> TransactionId {
        TransactionId { host: self.host, sequence }
    }

    /// Has the client of the lock servers do something.
    pub(crate) fn with_locks<R>(&mut self, act: impl FnOnce(&mut PartLocks, &mut LockCtx) -> R) -> R {
        let Ctx { now, settings, links, locks, out, .. } = self;
        let mut number = || links.take_sequence();
        act(locks, &mut LockCtx { now: *now, settings, number: &mut number, out })
    }
}
