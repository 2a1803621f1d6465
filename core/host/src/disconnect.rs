//! Graceful disconnect: a host that ends leaves nothing behind.
//!
//! ```text
//!   wait for what is under way ─► confirmations of all commits ─► tell each device that all is over ─► answered: gone
//!                                                                 give back every lock             ─► confirmed
//! ```
//!
//! A device keeps commits and answers of a host until the host says that they are over; that mark rides on requests, and a host that ends
//! has no further ones. A lock server keeps cached locks until they are given back, or their host is fenced. So a host says both before it
//! ends. It waits for no device or lock server for long: what stays behind is removed when the control plane fences all generations that
//! have ended. The same holds for commits that a device finds in its journal when it restarts: a mark reaches the disk with the next batch
//! only.

use crate::ctx::Ctx;
use braid_base::{DeviceId, Time, TransactionId};
use braid_machine::{HostRequest, HostSuccess, OpId};
use braid_transactions::Links;
use braid_wire::Command;
use std::collections::BTreeSet;
use std::time::Duration;

/// A host that is about to end.
#[derive(Debug)]
pub(crate) struct Disconnect {
    /// Who asked; none once that is answered: the host has disconnected.
    op: Option<OpId>,
    until: Time,
    /// Until devices and lock servers are told again.
    again_after: Duration,
    /// When they are.
    again_at: Option<Time>,
    /// All that was under way has ended.
    is_quiet: bool,
    /// Names what devices are told. Their answers must not be taken for those to earlier messages.
    ticket: Option<u64>,
}

/// What it waits for beside requests to devices.
pub(crate) struct Rest {
    pub operations: bool,
    pub transactions: bool,
    pub locks: bool,
    /// The array serves this host no more, so that there is nothing left to wait for.
    pub fenced: bool,
    /// Of these nothing is expected.
    pub devices_out: BTreeSet<DeviceId>,
}

/// The longest wait for what is under way,
const QUIET_WITHIN: Duration = Duration::from_secs(4);
/// and then for what devices and lock servers have yet to confirm.
const CONFIRM_WITHIN: Duration = Duration::from_secs(1);
/// The longest wait until they are told again.
const AGAIN_MAX: Duration = Duration::from_millis(100);

/// True of what a host that is about to end refuses. The rest takes effect at once, and leaves nothing under way.
pub(crate) fn begins_something(request: &HostRequest) -> bool {
    !matches!(
        request,
        HostRequest::Abandon { .. }
            | HostRequest::AdoptVolume { .. }
            | HostRequest::DropVolume { .. }
            | HostRequest::Flush { .. }
            | HostRequest::StopMigrating { .. }
            | HostRequest::Disconnect
    )
}

impl Disconnect {
    /// What users ask for from now on is refused.
    pub fn new(ctx: &Ctx, op: OpId) -> Disconnect {
        let until = ctx.now.time.after(QUIET_WITHIN);
        Disconnect {
            op: Some(op),
            until,
            again_after: ctx.settings.commit_linger,
            again_at: None,
            is_quiet: false,
            ticket: None,
        }
    }

    /// True until it is answered.
    pub fn is_awaited(&self) -> bool {
        self.op.is_some()
    }

    /// When devices and lock servers are told again.
    pub fn deadline(&self) -> Option<Time> {
        self.again_at
    }

    /// They are told now.
    pub fn take_timer(&mut self) {
        self.again_at = None;
    }

    /// Asserts that it ends.
    pub fn invariants(&self) {
        assert_eq!(self.is_awaited(), self.again_at.is_some(), "a disconnect has a deadline until it is answered");
    }

    pub fn ticket(&self) -> Option<u64> {
        self.ticket
    }

    /// Goes on as far as it can; not while `requests` to devices are under way that front ends wait for. True if all is over only now.
    pub fn go_on(&mut self, ctx: &mut Ctx, links: &mut Links, rest: &Rest, requests: bool) -> bool {
        if !self.is_awaited() {
            return false;
        }
        let is_quiet = !rest.operations && !requests;
        let over = is_quiet && !rest.transactions;
        if is_quiet && !std::mem::replace(&mut self.is_quiet, true) {
            self.until = self.until.min(ctx.now.time.after(CONFIRM_WITHIN));
        }
        if !over {
            // What a scrub or a migration has begun since must end too, and be told of.
            self.ticket = None;
        } else if self.ticket.is_none() {
            self.ticket = Some(links.take_sequence());
            self.again_after = ctx.settings.commit_linger;
            return true;
        }
        let keep = links.devices().any(|device| links.keeps(device) && !rest.devices_out.contains(&device));
        let heard = self.ticket.is_some() && !keep && !rest.locks;
        if heard || rest.fenced || ctx.now.time >= self.until {
            self.again_at = None;
            if let Some(op) = self.op.take() {
                ctx.out.reply(op, Ok(HostSuccess::Done));
            }
        }
        false
    }

    /// Says what has to be said, once more if it was said before; but not what a ticket later than `before` has just said.
    pub fn tell(&mut self, ctx: &mut Ctx, links: &mut Links, before: Option<u64>) {
        if !self.is_awaited() || (self.ticket.is_some() && self.ticket != before) {
            return;
        }
        let wait = self.again_after;
        self.again_after = (wait * 2).min(AGAIN_MAX);
        self.again_at = Some(ctx.now.time.after(wait).min(self.until));
        for device in links.devices().collect::<Vec<_>>() {
            let command = match self.ticket {
                Some(sequence) if links.keeps(device) => {
                    Command::Forget { transaction: TransactionId { host: ctx.host, sequence } }
                }
                None if links.requeue_unconfirmed(ctx.now.time, device, AGAIN_MAX) => Command::Heartbeat,
                Some(_) | None => continue,
            };
            links.send(&mut ctx.outbound(), device, command);
        }
    }
}
