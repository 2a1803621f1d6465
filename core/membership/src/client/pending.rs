//! A node's pending requests to the monitor: fences, and changes of its record. They are sent again until they are answered or expire.

use braid_base::{Backoff, Generation, Time};
use braid_machine::OpId;
use braid_wire::MonitorCommand;
use std::collections::BTreeMap;

/// The hosts to fence.
#[derive(Clone, Debug, Default)]
pub struct FenceRequest {
    /// Every generation below this one, …
    pub below: Generation,
    /// … except these, …
    pub except: Vec<Generation>,
    /// … and these as well.
    pub also: Vec<Generation>,
}

/// How long a request for a fence is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// With every report, until it expires after `request_timeout`.
    UntilExpired,
    /// Forever, first after `resend_min` and then with increasing back-off: its owner cannot continue without it.
    Forever,
}

#[derive(Clone, Debug)]
pub(super) struct PendingFence {
    pub asker: OpId,
    pub request: FenceRequest,
    pub since: Time,
    /// The delay until it is sent again; none if it is sent with every report.
    pub resend: Option<Backoff>,
}

/// A request for a change, which is sent with every report until it expires after `request_timeout`.
#[derive(Clone, Debug)]
pub(super) struct PendingChange {
    pub asker: OpId,
    pub command: MonitorCommand,
    /// It is not about the file system that it names, but about the membership.
    pub is_inquiry: bool,
    pub since: Time,
}

/// The pending requests, by ticket.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    pub fences: BTreeMap<u64, PendingFence>,
    pub changes: BTreeMap<u64, PendingChange>,
}

impl PendingFence {
    pub fn command(&self, ticket: u64) -> MonitorCommand {
        let FenceRequest { below, except, also } = self.request.clone();
        MonitorCommand::Fence { ticket, below, except, also }
    }
}
