//! Graceful disconnect: a host ends in good order, and leaves no state on devices and lock servers.
//!
//! ```text
//!   wait for what is under way ─► confirmations of all commits ─► tell each device that all is over ─► answered: gone
//!                                                                 give back every lock             ─► confirmed
//! ```
//!
//! A device keeps the commits and answers of a host until the host declares them over, by the settled mark on a later
//! request. A lock server keeps cached locks until they are released or their host is fenced. So before a host ends, it
//! sends a last settled mark to devices, and releases its locks. It waits for no device or lock server for long: when the
//! control plane fences all generations that have ended, the remaining state is removed. The fence also removes commits
//! that a device finds in its journal after a restart: a settled mark reaches the disk only with the next batch.

use crate::ctx::Ctx;
use braid_base::{Backoff, DeviceId, Time, TransactionId};
use braid_machine::{ArrayRequest, HostRequest, HostSuccess, OpId, VolumeRequest};
use braid_wire::Command;
use std::collections::BTreeSet;
use std::time::Duration;

/// A disconnect under way.
#[derive(Clone, Debug)]
pub(crate) struct Disconnect {
    /// The front end's request. `None` once it is answered: the host has disconnected.
    op: Option<OpId>,
    until: Time,
    /// The time until devices and lock servers are told again.
    again: Backoff,
    /// When they are told again.
    again_at: Option<Time>,
    /// All operations of users have ended.
    is_quiet: bool,
    /// Names the message to devices that all is over. Answers to earlier messages must not be taken for its answers.
    ticket: Option<u64>,
}

/// The rest of the host that a disconnect waits for, beside requests to devices.
#[derive(Clone, Debug)]
pub(crate) struct Rest {
    pub operations: bool,
    pub transactions: bool,
    pub locks: bool,
    /// The array refuses this host for good, so that there is nothing left to wait for.
    pub fenced: bool,
    /// The devices that are out: no answers are expected of them.
    pub devices_out: BTreeSet<DeviceId>,
}

/// The longest wait for operations of users to end.
const QUIET_WITHIN: Duration = Duration::from_secs(4);
/// The longest wait after that for devices and lock servers to confirm.
const CONFIRM_WITHIN: Duration = Duration::from_secs(1);
/// The longest interval at which they are told again.
const AGAIN_MAX: Duration = Duration::from_millis(100);

/// True for a request that a disconnecting host refuses. Other requests take effect at once and leave nothing under
/// way.
pub(crate) fn begins_something(request: &HostRequest) -> bool {
    !matches!(
        request,
        HostRequest::Array(ArrayRequest::Abandon { .. })
            | HostRequest::Array(ArrayRequest::AdoptVolume { .. })
            | HostRequest::Array(ArrayRequest::DropVolume { .. })
            | HostRequest::Array(ArrayRequest::HoldVolume { .. })
            | HostRequest::Volume(VolumeRequest::Flush { .. })
            | HostRequest::Array(ArrayRequest::Disconnect)
    )
}

impl Disconnect {
    /// Begins a disconnect. From now on the host refuses new operations.
    pub fn new(ctx: &Ctx, op: OpId) -> Disconnect {
        let until = ctx.now.time.after(QUIET_WITHIN);
        Disconnect {
            op: Some(op),
            until,
            again: Backoff::new(ctx.settings.commit_linger, AGAIN_MAX),
            again_at: None,
            is_quiet: false,
            ticket: None,
        }
    }

    /// True until the disconnect is answered.
    pub fn is_awaited(&self) -> bool {
        self.op.is_some()
    }

    /// When devices and lock servers are told again.
    pub fn deadline(&self) -> Option<Time> {
        self.again_at
    }

    pub fn take_timer(&mut self) {
        self.again_at = None;
    }

    /// Asserts that the disconnect ends.
    pub fn invariants(&self) {
        assert_eq!(self.is_awaited(), self.again_at.is_some(), "a disconnect has a deadline until it is answered");
    }

    pub fn ticket(&self) -> Option<u64> {
        self.ticket
    }

    /// Continues the disconnect as far as possible. `requests`: requests to devices are under way that front ends wait
    /// for. Returns true at the moment when everything is over.
    pub fn go_on(&mut self, ctx: &mut Ctx, rest: &Rest, requests: bool) -> bool {
        if !self.is_awaited() {
            return false;
        }
        let is_quiet = !rest.operations && !requests;
        let over = is_quiet && !rest.transactions;
        if is_quiet && !std::mem::replace(&mut self.is_quiet, true) {
            self.until = self.until.min(ctx.now.time.after(CONFIRM_WITHIN));
        }
        if !over {
            // A scrub or a migration may have begun something since. That must end, too, and devices must be told of
            // it.
            self.ticket = None;
        } else if self.ticket.is_none() {
            self.ticket = Some(ctx.links.take_sequence());
            self.again.reset();
            return true;
        }
        let keep = ctx.links.devices().any(|device| ctx.links.keeps(device) && !rest.devices_out.contains(&device));
        let heard = self.ticket.is_some() && !keep && !rest.locks;
        if heard || rest.fenced || ctx.now.time >= self.until {
            self.again_at = None;
            if let Some(op) = self.op.take() {
                ctx.out.reply(op, Ok(HostSuccess::Done));
            }
        }
        false
    }

    /// Tells devices what the host has to say before it ends, again if it was said before. Does nothing if a ticket
    /// later than `before` has just been sent.
    pub fn tell(&mut self, ctx: &mut Ctx, before: Option<u64>) {
        if !self.is_awaited() || (self.ticket.is_some() && self.ticket != before) {
            return;
        }
        let wait = self.again.next_wait();
        self.again_at = Some(ctx.now.time.after(wait).min(self.until));
        for device in ctx.links.devices().collect::<Vec<_>>() {
            let command = match self.ticket {
                Some(sequence) if ctx.links.keeps(device) => {
                    Command::Forget { transaction: TransactionId { host: ctx.host, sequence } }
                }
                None if ctx.links.requeue_unconfirmed(ctx.now.time, device, AGAIN_MAX) => Command::Heartbeat,
                Some(_) | None => continue,
            };
            ctx.send(device, command);
        }
    }
}
