//! Requests to one device that are not storage transactions: tasks, requests for objects, and the graceful disconnect.

use crate::ctx::{Ctx, RequestTimer};
use crate::disconnect::{Disconnect, Rest};
use crate::object_requests::ObjectRequests;
use crate::tasks::Tasks;
use braid_base::{DeviceId, Time};
use braid_machine::{HostSuccess, OpId};
use braid_transactions::Links;
use braid_wire::Reply;

/// The requests of a host to devices, outside of transactions.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceRequests {
    pub tasks: Tasks,
    pub objects: ObjectRequests,
    disconnect: Option<Disconnect>,
}

impl DeviceRequests {
    pub fn on_reply(&mut self, ctx: &mut Ctx, device: DeviceId, reply: Reply) {
        match reply {
            Reply::Managed { ticket, result } => self.tasks.on_answer(ctx, device, ticket, result),
            Reply::Objects { sequence, answer } => self.objects.on_answer(ctx, device, sequence, answer),
            Reply::Changed { ticket, value } => self.objects.on_changed(ctx, device, ticket, value),
            Reply::Heartbeat { .. }
            | Reply::Data { .. }
            | Reply::Accepted { .. }
            | Reply::Written { .. }
            | Reply::Executing { .. }
            | Reply::Refused { .. }
            | Reply::Failed { .. }
            | Reply::Blocked { .. }
            | Reply::Decided { .. }
            | Reply::Vote { .. }
            | Reply::Forgotten { .. }
            | Reply::Rejected { .. } => unreachable!("these replies belong to transactions"),
        }
    }

    pub fn next_timer(&self) -> Option<(Time, RequestTimer)> {
        let task = self.tasks.next_timer().map(|(time, ticket)| (time, RequestTimer::Task(ticket)));
        let objects = self.objects.next_timer().map(|(time, sequence)| (time, RequestTimer::ObjectRequest(sequence)));
        let deadline = self.disconnect.as_ref().and_then(Disconnect::deadline);
        let disconnect = deadline.map(|time| (time, RequestTimer::Disconnect));
        task.into_iter().chain(objects).chain(disconnect).min()
    }

    pub fn wake(&mut self, ctx: &mut Ctx, timer: RequestTimer) {
        match timer {
            RequestTimer::Task(ticket) => self.tasks.resend(ctx, ticket),
            RequestTimer::ObjectRequest(sequence) => self.objects.resend(ctx, sequence),
            RequestTimer::Disconnect => unreachable!("a disconnect needs to know what else is under way"),
        }
    }

    /// The timer of the disconnect has fired.
    pub fn take_disconnect_timer(&mut self) {
        if let Some(disconnect) = &mut self.disconnect {
            disconnect.take_timer();
        }
    }

    /// The devices with unanswered requests.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.tasks.devices().chain(self.objects.devices())
    }

    /// True once a disconnect was requested: the host begins nothing for users or other hosts any more.
    pub fn is_disconnecting(&self) -> bool {
        self.disconnect.is_some()
    }

    /// Begins to disconnect. False if that has begun before.
    pub fn disconnect(&mut self, ctx: &mut Ctx, op: OpId) -> bool {
        if self.disconnect.is_some() {
            ctx.out.reply(op, Ok(HostSuccess::Done));
            return false;
        }
        self.disconnect = Some(Disconnect::new(ctx, op));
        true
    }

    /// True if a disconnect is under way and not answered yet.
    pub fn awaits_disconnect(&self) -> bool {
        self.disconnect.as_ref().is_some_and(Disconnect::is_awaited)
    }

    /// Continues the disconnect as far as possible. Returns true at the moment when everything is over: then cached
    /// locks are released, and devices are told.
    pub fn go_on_disconnecting(&mut self, ctx: &mut Ctx, rest: &Rest) -> bool {
        let requests = self.objects.has_commands() || self.tasks.has_users();
        let is_over = self.disconnect.as_mut().is_some_and(|disconnect| disconnect.go_on(ctx, rest, requests));
        if is_over {
            // The settled mark, which devices are told, would stay below unanswered tasks.
            self.tasks.drop_all(ctx.links);
        }
        is_over
    }

    /// The ticket of the message to devices that all is over.
    pub fn disconnect_ticket(&self) -> Option<u64> {
        self.disconnect.as_ref().and_then(Disconnect::ticket)
    }

    /// Tells devices what the host has to say before it ends, unless a ticket later than `before` has just been sent.
    pub fn tell_disconnect(&mut self, ctx: &mut Ctx, before: Option<u64>) {
        if let Some(disconnect) = &mut self.disconnect {
            disconnect.tell(ctx, before);
        }
    }

    /// A device has confirmed that it knows that all is over.
    pub fn on_forgotten(&self, links: &mut Links, device: DeviceId, ticket: u64) {
        if self.disconnect_ticket() == Some(ticket) {
            links.keeps_nothing(device);
        }
    }

    /// Asserts that each request has a deadline.
    pub fn invariants(&self) {
        self.tasks.invariants();
        self.objects.invariants();
        if let Some(disconnect) = &self.disconnect {
            disconnect.invariants();
        }
    }
}
