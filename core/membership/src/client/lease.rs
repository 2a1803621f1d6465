//! A device's lease: the time until which the device may serve, and its reports, by which it gets the next lease.

use super::{REPORT_AGAIN_AFTER, STARTING};
use braid_base::limits::{HEARTBEATS_PER_LEASE, Settings};
use braid_base::{DeviceId, DiskId, Epoch, Generation, Membership, Time};
use braid_wire::{Holder, JoinRefused};
use std::collections::BTreeSet;
use std::time::Duration;

/// While it has no answer, the device asks this many times as often.
const UNANSWERED: u32 = 2;
/// For this many lease lengths after a failure, the device reports that it cannot serve.
const FAILED: u32 = 2;
/// The most requests for leases that are remembered.
const RENEWALS_MAX: usize = 1024;

/// A device's lease.
#[derive(Clone, Debug)]
pub(super) struct LeaseState {
    pub device: DeviceId,
    /// A random number of the agent that started the process, if another machine may run the device, too.
    holder: Option<u64>,
    /// The name of the device's disk, once it has been read.
    pub disk: Option<DiskId>,
    /// A newer membership than the view's, which is being written to disk.
    pub adopting: Option<Membership>,
    /// The length of the monitor's leases, once one was granted.
    length: Option<Duration>,
    /// When the lease expires.
    until: Option<Time>,
    renewals: Renewals,
    /// The latest epoch that the device was told of and has asked a lease for.
    sought: Epoch,
    /// A write has failed here while the device was returning.
    failed: bool,
    /// Until then, the device reports that it cannot serve.
    unable_until: Option<Time>,
    /// Why it gets no lease.
    pub join_refused: Option<JoinRefused>,
    /// Fenced hosts with undecided intents, as last reported.
    pub undecided: Vec<Generation>,
}

/// The requests for leases since the device started, and whether the monitor answers.
#[derive(Clone, Debug, Default)]
struct Renewals {
    first: Option<Time>,
    /// When it sent requests for leases that could still be running. An answer to any other time belongs to a former start of the device: a
    /// clock that restarts with the machine shows the same times again.
    sent: BTreeSet<Time>,
    /// When the monitor was last heard.
    heard: Option<Time>,
    /// The last report said that the monitor's answers are not heard.
    reported_deaf: bool,
}

impl LeaseState {
    pub fn new(device: DeviceId, holder: Option<u64>) -> LeaseState {
        LeaseState {
            device,
            holder,
            disk: None,
            adopting: None,
            length: None,
            until: None,
            renewals: Renewals::default(),
            sought: Epoch::default(),
            failed: false,
            unable_until: None,
            join_refused: None,
            undecided: Vec::new(),
        }
    }

    /// True if the lease has not expired, and no other membership is being adopted.
    pub fn runs(&self, now: Time) -> bool {
        self.adopting.is_none() && self.until.is_some_and(|until| now < until)
    }

    /// What the monitor is told of the process.
    pub fn holder(&self, now: Time) -> Option<Holder> {
        self.holder.map(|number| Holder { number, has_lease: self.until.is_some_and(|until| now < until) })
    }

    /// True if the lease runs, or expired at most `span` ago.
    pub fn ran_within(&self, span: Duration, now: Time) -> bool {
        self.until.is_some_and(|until| now < until.after(span))
    }

    /// The interval between requests: short enough for the leases that it is granted, whatever length it was configured for.
    fn heartbeat(&self, settings: &Settings) -> Duration {
        let fits = |length: Duration| settings.heartbeat.min(length / HEARTBEATS_PER_LEASE).max(REPORT_AGAIN_AFTER);
        self.length.map_or(settings.heartbeat, fits)
    }

    /// When to ask for the next lease, after the request at `last`.
    pub fn next_renewal(&self, settings: &Settings, last: Option<Time>, is_starting: bool) -> Time {
        let heartbeat = self.heartbeat(settings);
        let wait = if is_starting {
            heartbeat / STARTING
        } else if self.renewals.heard < last {
            heartbeat / UNANSWERED
        } else {
            heartbeat
        };
        last.map_or(Time(0), |last| last.after(wait))
    }

    /// An answer that is only a little late does not count as lost.
    pub fn renew(&mut self, now: Time, settings: &Settings, undecided: &[Generation]) -> Vec<DeviceId> {
        self.undecided = undecided.to_vec();
        if std::mem::take(&mut self.failed) {
            self.unable_until = Some(now.after(settings.device_lease * FAILED));
        }
        // The monitor was heard. True if the last report said that it was not.
        let heartbeat = self.heartbeat(settings);
        let is_deaf = self.renewals.add(now, settings.device_lease, heartbeat + heartbeat / 4);
        let is_unable = is_deaf || self.unable_until.is_some_and(|until| now < until);
        if is_unable { vec![self.device] } else { Vec::new() }
    }

    /// The monitor was heard. True if the last report said that it was not.
    pub fn hear(&mut self, now: Time) -> bool {
        self.renewals.heard = Some(now);
        self.renewals.reported_deaf
    }

    /// A write has failed while the device was returning.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// True if the device has asked for a lease at that time since it started.
    pub fn has_asked(&self, sent: Time) -> bool {
        self.renewals.sent.contains(&sent)
    }

    /// The lease requested at `sent` was granted. It counts from that time, so that no delay of a message extends it.
    pub fn extend(&mut self, now: Time, settings: &Settings, sent: Time, length: Duration) {
        self.join_refused = None;
        // Such a request said that a lease ran, which is over: another process may have one since.
        if self.holder.is_some() && self.until.is_some_and(|until| sent < until && until <= now) {
            return;
        }
        self.length = Some(length);
        self.until = self.until.max(Some(sent.after(length.min(settings.device_lease))));
    }

    /// The device was told of a later epoch. True if it should ask for a lease at once: it adopts a membership only together with a lease.
    /// The monitor grants a lease only to a device that has just reported which epoch its disk has. A device with an older disk would hide
    /// that if it adopted a membership that is announced to all.
    pub fn seek(&mut self, told: Option<Epoch>) -> bool {
        let Some(epoch) = told.filter(|epoch| *epoch > self.sought) else { return false };
        self.sought = epoch;
        true
    }
}

impl Renewals {
    /// Notes a request for a lease. True if the monitor was not heard for longer than `patience`.
    fn add(&mut self, now: Time, lease: Duration, patience: Duration) -> bool {
        let first = *self.first.get_or_insert(now);
        self.sent.retain(|sent| now < sent.after(lease));
        self.sent.insert(now);
        if self.sent.len() > RENEWALS_MAX {
            self.sent.pop_first();
        }
        self.reported_deaf = now.since(self.heard.unwrap_or(first)) > patience;
        self.reported_deaf
    }
}
