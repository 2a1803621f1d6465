//! A device's lease: until when it may serve, and what it reports of itself to get the next one.

use super::{REPORT_AGAIN_AFTER, STARTING};
use braid_base::limits::{HEARTBEATS_PER_LEASE, Settings};
use braid_base::{DeviceId, DiskId, Epoch, Generation, Membership, Time};
use braid_wire::JoinRefused;
use std::collections::BTreeSet;
use std::time::Duration;

/// It asks so many times as often while it has no answer.
const UNANSWERED: u32 = 2;
/// Leases for whose length it reports that it is not able, once it has failed.
const FAILED: u32 = 2;
/// Requests for leases that it keeps in mind.
const RENEWALS_MAX: usize = 1024;

/// A device's lease.
#[derive(Clone, Debug)]
pub(super) struct LeaseState {
    pub device: DeviceId,
    /// Which disk this is, once it has been read.
    pub disk: Option<DiskId>,
    /// A newer membership than that of the view, on its way to the disk.
    pub adopting: Option<Membership>,
    /// How long the monitor's leases are, once one has come.
    length: Option<Duration>,
    /// Until when it may serve.
    until: Option<Time>,
    renewals: Renewals,
    /// The latest epoch that it has asked for, since it was told of it.
    sought: Epoch,
    /// A write has failed here while it was returning.
    failed: bool,
    /// It reports so until then.
    unable_until: Option<Time>,
    /// Why it gets no lease.
    pub join_refused: Option<JoinRefused>,
    /// Fenced hosts of which it has last reported that it holds something undecided.
    pub undecided: Vec<Generation>,
}

/// The requests for leases of a device's present life, and whether the monitor answers.
#[derive(Clone, Debug, Default)]
struct Renewals {
    first: Option<Time>,
    /// When it has asked for leases that would still last. An answer to anything else is one to a former life: clocks that begin anew with
    /// the machine come by the same times again.
    sent: BTreeSet<Time>,
    /// When the monitor was last heard.
    heard: Option<Time>,
    /// It has last reported that it hears nothing.
    reported_deaf: bool,
}

impl LeaseState {
    pub fn new(device: DeviceId) -> LeaseState {
        LeaseState {
            device,
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

    /// True if it runs, and no other membership is being adopted.
    pub fn runs(&self, now: Time) -> bool {
        self.adopting.is_none() && self.until.is_some_and(|until| now < until)
    }

    /// How often it renews: often enough for the leases that it gets, whatever it was told of their length.
    fn heartbeat(&self, settings: &Settings) -> Duration {
        let fits = |length: Duration| settings.heartbeat.min(length / HEARTBEATS_PER_LEASE).max(REPORT_AGAIN_AFTER);
        self.length.map_or(settings.heartbeat, fits)
    }

    /// When to renew next, after the renewal at `last`.
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

    /// It renews. Tells which devices it calls silent: itself, if it is of no use.
    pub fn renew(&mut self, now: Time, settings: &Settings, undecided: &[Generation]) -> Vec<DeviceId> {
        self.undecided = undecided.to_vec();
        if std::mem::take(&mut self.failed) {
            self.unable_until = Some(now.after(settings.device_lease * FAILED));
        }
        // An answer a little late is none that is lost.
        let heartbeat = self.heartbeat(settings);
        let is_deaf = self.renewals.add(now, settings.device_lease, heartbeat + heartbeat / 4);
        let is_unable = is_deaf || self.unable_until.is_some_and(|until| now < until);
        if is_unable { vec![self.device] } else { Vec::new() }
    }

    /// The monitor was heard. True if it was last told that it is not.
    pub fn hear(&mut self, now: Time) -> bool {
        self.renewals.heard = Some(now);
        self.renewals.reported_deaf
    }

    /// A write has failed while it was returning.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// It has asked for a lease at that time, in this life.
    pub fn has_asked(&self, sent: Time) -> bool {
        self.renewals.sent.contains(&sent)
    }

    /// It has got the lease for which it asked at `sent`. The lease counts from then, so that no delay on the way makes it longer.
    pub fn extend(&mut self, settings: &Settings, sent: Time, length: Duration) {
        self.join_refused = None;
        self.length = Some(length);
        self.until = self.until.max(Some(sent.after(length.min(settings.device_lease))));
    }

    /// It hears of a later epoch, and has yet to ask by whose leave it lives by that: it adopts none but with a lease. The monitor
    /// gives that to a device which has just reported what its disk has; one whose disk is older than it should be would hide that
    /// by adopting what is told to everybody. True if it is to ask.
    pub fn seek(&mut self, told: Option<Epoch>) -> bool {
        let Some(epoch) = told.filter(|epoch| *epoch > self.sought) else { return false };
        self.sought = epoch;
        true
    }
}

impl Renewals {
    /// It asks for a lease. True if the monitor was not heard for longer than `patience`.
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
