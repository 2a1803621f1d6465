//! The context that the coordinator borrows from its owner, and the events that it emits.

use crate::links::{Links, Outbound};
use braid_base::limits::Settings;
use braid_base::{DeviceId, Generation, Now, Rng, TransactionId};
use braid_blocks::Linkage;
use braid_layout::VolumeDescription;
use braid_locks::client::{Ctx as LockCtx, PartLocks};
use braid_machine::{HostEffects, HostOutcome, OpId};
use braid_membership::client::MembershipView;
use braid_wire::Command;
use std::rc::Rc;

/// The context of a coordinator, borrowed from its owner.
pub struct Ctx<'a> {
    pub now: Now,
    /// The generation by which devices know the owner.
    pub host: Generation,
    /// Time-outs, intervals and limits.
    pub settings: &'a Settings,
    /// The owner's membership, and the devices that are unavailable.
    pub view: &'a MembershipView,
    /// The links to the devices.
    pub links: &'a mut Links,
    /// The client of the lock servers. Lock holders are transactions, named by their sequences.
    pub locks: PartLocks<'a>,
    /// The random source for the back-off.
    pub rng: &'a mut Rng,
    /// The effects of this step.
    pub out: &'a mut HostEffects,
}

/// An event for the owner.
#[derive(Clone, Debug)]
pub enum Event {
    /// An operation has ended.
    Ended { op: OperationId, outcome: HostOutcome },
    /// A transaction was interrupted, and all participants know that. What it wrote stays, and parity may not match.
    /// The owner runs a parity resync, and calls [`Coordinator::on_resynced`](crate::Coordinator::on_resynced) when
    /// that is over.
    Interrupted {
        transaction: TransactionId,
        volume: Rc<VolumeDescription>,
        /// The extent that it was to write.
        linkage: Linkage,
    },
    /// A device has lost a block, and the operation that met this continues without it.
    Damaged {
        volume: Rc<VolumeDescription>,
        device: DeviceId,
        /// The lost block, by its number on the device.
        block: u64,
    },
}

/// The name of an operation. Operations of users come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OperationId {
    /// A request of a user.
    User(OpId),
    /// A step of a background job of the owner.
    Job(u64),
}

impl Ctx<'_> {
    /// The context of the links.
    pub fn outbound(&mut self) -> (&mut Links, Outbound<'_>) {
        let Ctx { now, host, settings, view, links, out, .. } = self;
        (links, Outbound { now: *now, host: *host, epoch: view.epoch(), settings, out })
    }

    /// Sends a command, with everything that rides on it.
    pub fn send(&mut self, device: DeviceId, command: Command) {
        let (links, mut outbound) = self.outbound();
        links.send(&mut outbound, device, command);
    }

    pub(crate) fn release_locks(&mut self, sequence: u64) {
        self.with_locks(|locks, cx| locks.release(cx, sequence));
    }

    /// The name of a transaction of this host.
    pub(crate) fn id(&self, sequence: u64) -> TransactionId {
        TransactionId { host: self.host, sequence }
    }

    /// Runs `act` on the client of the lock servers.
    pub(crate) fn with_locks<R>(&mut self, act: impl FnOnce(&mut PartLocks, &mut LockCtx) -> R) -> R {
        let Ctx { now, settings, links, locks, out, .. } = self;
        let mut number = || links.take_sequence();
        act(locks, &mut LockCtx { now: *now, settings, number: &mut number, out })
    }
}
