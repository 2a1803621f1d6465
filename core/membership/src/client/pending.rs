//! What a node has asked the monitor for: fences and administrations. They are sent again until they are answered or expired.

use braid_base::{Generation, Time};
use braid_wire::{Administration, MonitorCommand};
use std::collections::BTreeMap;
use std::time::Duration;

/// Hosts that are to be fenced.
#[derive(Clone, Debug, Default)]
pub struct FenceRequest {
    /// Every generation below this one…
    pub below: Generation,
    /// …except these…
    pub except: Vec<Generation>,
    /// …and these besides.
    pub also: Vec<Generation>,
}

/// How long a request for a fence is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// With every report, until it expires after `request_timeout`.
    UntilExpired,
    /// For ever, first after `resend_min` and then more and more slowly: its owner can't go on without.
    Forever,
}

#[derive(Clone, Debug)]
pub(super) struct PendingFence {
    pub asker: u64,
    pub request: FenceRequest,
    pub since: Time,
    /// After which it is sent again; none if that is with every report.
    pub resend_after: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(super) struct PendingAdministration {
    pub asker: u64,
    pub request: Administration,
    pub since: Time,
}

/// What has not been answered, by ticket.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    pub fences: BTreeMap<u64, PendingFence>,
    pub administrations: BTreeMap<u64, PendingAdministration>,
}

impl PendingFence {
    pub fn command(&self, ticket: u64) -> MonitorCommand {
        let FenceRequest { below, except, also } = self.request.clone();
        MonitorCommand::Fence { ticket, below, except, also }
    }
}

impl PendingAdministration {
    pub fn command(&self, ticket: u64) -> MonitorCommand {
        MonitorCommand::Administer { ticket, request: self.request }
    }
}
