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

use crate::ctx::Timer;
use crate::host::Host;
use crate::objects::Asks;
use braid_base::{DeviceId, Now, Time, TransactionId};
use braid_machine::{Effects, HostRequest, HostSuccess, OpId};
use braid_wire::Command;
use std::time::Duration;

/// A host that is about to end.
#[derive(Clone, Debug)]
pub(crate) struct Leaving {
    /// Who asked; none once that is answered: it has left.
    op: Option<OpId>,
    until: Time,
    /// Until devices and lock servers are told again.
    again_after: Duration,
    /// All that was under way has ended.
    is_quiet: bool,
    /// Names what devices are told. Their answers must not be taken for those to earlier messages.
    ticket: Option<u64>,
}

/// The longest wait for what is under way,
const LEAVE_WITHIN: Duration = Duration::from_secs(4);
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
            | HostRequest::TakeLeave
    )
}

impl Host {
    /// What users ask for from now on is refused.
    pub(crate) fn take_leave(&mut self, now: Now, op: OpId, out: &mut Effects) {
        if self.leaving.is_some() {
            return out.reply(op, Ok(HostSuccess::Done));
        }
        let again_after = self.config.settings.commit_linger;
        let until = now.time.after(LEAVE_WITHIN);
        self.leaving = Some(Leaving { op: Some(op), until, again_after, is_quiet: false, ticket: None });
        self.tell_leave(now, out);
    }

    /// True once it was told to leave: it begins nothing for users or other hosts any more.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// A device has heard that all is over.
    pub(crate) fn on_left(&mut self, device: DeviceId, ticket: u64) {
        if self.leaving.as_ref().is_some_and(|leaving| leaving.ticket == Some(ticket))
            && let Some(link) = self.links.get_mut(device)
        {
            link.keeps = false;
        }
    }

    /// Says what has to be said, once more if it was said before.
    pub(crate) fn tell_leave(&mut self, now: Now, out: &mut Effects) {
        let before = self.leaving.as_ref().and_then(|leaving| leaving.ticket);
        self.go_on_leaving(now, out);
        let untold =
            |leaving: &&mut Leaving| leaving.op.is_some() && (leaving.ticket.is_none() || leaving.ticket == before);
        let Some(leaving) = self.leaving.as_mut().filter(untold) else { return };
        let (wait, until, ticket) = (leaving.again_after, leaving.until, leaving.ticket);
        leaving.again_after = (wait * 2).min(AGAIN_MAX);
        self.timers.set(Timer::Leave, now.time.after(wait).min(until));
        for device in self.links.devices().collect::<Vec<_>>() {
            let link = self.links.of(device);
            let command = match ticket {
                Some(sequence) if link.keeps => {
                    Command::Forget { transaction: TransactionId { host: self.config.generation, sequence } }
                }
                Some(_) => continue,
                None if link.has_unconfirmed() => {
                    link.requeue_unconfirmed(now.time, AGAIN_MAX);
                    Command::Heartbeat
                }
                None => continue,
            };
            self.send(now, device, command, out);
        }
    }

    /// Goes on as far as it can; to be called whenever something has ended.
    pub(crate) fn go_on_leaving(&mut self, now: Now, out: &mut Effects) {
        if self.leaving.as_ref().is_none_or(|leaving| leaving.op.is_none()) {
            return;
        }
        let commands = self.object_requests.values().any(|pending| matches!(pending.asks, Asks::Commands(_)));
        let is_quiet = self.operations.is_empty() && !commands;
        let over = is_quiet && self.transactions.is_empty();
        let leaving = self.leaving.as_mut().expect("just seen");
        if is_quiet && !std::mem::replace(&mut leaving.is_quiet, true) {
            leaving.until = leaving.until.min(now.time.after(CONFIRM_WITHIN));
        }
        if !over {
            // What a scrub or a migration has begun since must end too, and be told of.
            leaving.ticket = None;
        } else if leaving.ticket.is_none() {
            leaving.ticket = Some(self.links.take_sequence());
            leaving.again_after = self.config.settings.commit_linger;
            self.give_back_all_claims(now, out);
            return self.tell_leave(now, out);
        }
        let leaving = self.leaving.as_ref().expect("just seen");
        let keep = self.links.iter().any(|(device, link)| link.keeps && !self.view().is_out(device));
        let heard = leaving.ticket.is_some() && !keep && self.claims() == 0;
        if heard || self.fenced || now.time >= leaving.until {
            self.timers.cancel(Timer::Leave);
            if let Some(op) = self.leaving.as_mut().and_then(|leaving| leaving.op.take()) {
                out.reply(op, Ok(HostSuccess::Done));
            }
        }
    }
}
