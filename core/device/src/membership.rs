//! Who is in the array, as this device knows it: its lease, the epoch that it lives by, and how it takes over a new one
//! (`docs/membership.md`).
//!
//! ```text
//!   a new membership is heard of ─► on its way to the disk ─► adopted
//!                                   (nothing is served)       what was only announced is dropped: its hosts begin it anew;
//!                                                             after an absence, also what was undecided: others have decided it
//! ```

use crate::device::{Device, Service, Ticket};
use crate::transactions::{State, Transaction};
use braid_base::limits::HEARTBEATS_PER_LEASE;
use braid_base::{
    DeviceId, DiskId, Epoch, FenceTable, Generation, Membership, NodeId, Now, ObjectId, Standing, Time, TransactionId,
    limits,
};
use braid_machine::{Effects, Ignored};
use braid_wire::{
    Answer, Failure, Message, MonitorAnswer, MonitorCommand, MonitorReply, MonitorRequest, Rejection, Reply, Unwelcome,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// The least time between two renewals that are sent because something is amiss.
const HASTE: Duration = Duration::from_millis(20);
/// Before it knows a membership, it asks so many times as often as later.
const STARTING: u32 = 10;
/// It asks so many times as often while it has no answer.
const UNANSWERED: u32 = 2;
/// Leases for whose length it says that it is not able, once it has failed.
const FAILED: u32 = 2;
/// Requests for leases that it keeps in mind.
const RENEWALS_MAX: usize = 1024;

/// A device's place in the array.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// The membership that it lives by; durable, unless it is a fixed one. None until a monitor has told one.
    adopted: Option<Membership>,
    /// A newer one, on its way to the disk.
    adopting: Option<Membership>,
    /// Fixed memberships need neither monitor nor lease.
    fixed: bool,
    /// How long the monitor's leases are, once one has come.
    lease_length: Option<Duration>,
    /// Until when it may serve.
    lease_until: Option<Time>,
    first_renewal: Option<Time>,
    /// When it has asked, in this life, for leases that would still last. An answer to anything else is one to a former life: clocks that
    /// begin anew with the machine come by the same times again.
    renewals: BTreeSet<Time>,
    last_renewal: Option<Time>,
    /// The latest epoch that it has asked for, since it was told of it.
    sought: Epoch,
    /// When the monitor was last heard, in this life.
    heard: Option<Time>,
    /// It has last said that it hears nothing.
    said_deaf: bool,
    /// A write has failed here while it was returning.
    failed: bool,
    /// It says so until then.
    unable_until: Option<Time>,
    /// Which disk this is, once it has been read.
    disk: Option<DiskId>,
    /// Why it gets no lease.
    unwelcome: Option<Unwelcome>,
    /// Fenced hosts of which it has last said that it holds something undecided.
    undecided: Vec<Generation>,
}

impl Place {
    /// In an array whose membership is fixed, or else in one with a monitor.
    pub fn new(fixed: Option<Membership>) -> Place {
        Place { fixed: fixed.is_some(), adopted: fixed, ..Place::default() }
    }

    /// The epoch that the device lives by; zero before the first.
    pub fn epoch(&self) -> Epoch {
        self.adopted.as_ref().map_or(Epoch(0), |membership| membership.epoch)
    }

    /// True if the host is kept out.
    pub fn refuses(&self, host: Generation) -> bool {
        self.adopted.as_ref().is_some_and(|membership| membership.fence.refuses(host))
    }

    /// True if the host helps a device that is returning.
    pub fn is_helper(&self, host: Generation) -> bool {
        let helps = |standing| matches!(standing, Standing::Returning { helper } if helper == Some(host));
        self.adopted.as_ref().is_some_and(|membership| membership.members.iter().any(|member| helps(member.standing)))
    }
}

impl Device {
    /// The membership that it lives by, once it has heard of one.
    pub fn membership(&self) -> Option<&Membership> {
        self.place.adopted.as_ref()
    }

    /// True if it may serve: it is in, or returning, and its lease runs.
    pub fn has_lease(&self, now: Time) -> bool {
        let place = &self.place;
        place.fixed
            || (place.adopting.is_none()
                && self.standing().is_some_and(|standing| standing != Standing::Out)
                && place.lease_until.is_some_and(|until| now < until))
    }

    /// Why it may never serve as it is, if the monitor has said so.
    pub fn unwelcome(&self) -> Option<Unwelcome> {
        self.place.unwelcome
    }

    /// True if it is back, or new, and lacks something yet.
    pub(crate) fn is_returning(&self) -> bool {
        matches!(self.standing(), Some(Standing::Returning { .. }))
    }

    fn standing(&self) -> Option<Standing> {
        let own = self.place.adopted.as_ref()?.member(self.config.store.device)?;
        Some(own.standing)
    }

    /// True if it may have missed writes to this object, and so must not be read.
    pub(crate) fn is_absent(&self, object: ObjectId) -> bool {
        self.is_returning() && self.store.object(object).is_some_and(|object| object.redundant)
    }

    /// How often it renews: often enough for the leases that it gets, whatever it was told of their length.
    fn heartbeat(&self) -> Duration {
        let settings = &self.config.settings;
        let fits = |length: Duration| settings.heartbeat.min(length / HEARTBEATS_PER_LEASE).max(HASTE);
        self.place.lease_length.map_or(settings.heartbeat, fits)
    }

    /// Says to the monitor that it is there, by which epoch it lives, and whether it is of use.
    pub(crate) fn renew(&mut self, now: Now, out: &mut Effects) {
        let heartbeat = self.heartbeat();
        let undecided = self.undecided_of_fenced();
        let settings = &self.config.settings;
        let place = &mut self.place;
        place.undecided.clone_from(&undecided);
        let first = *place.first_renewal.get_or_insert(now.time);
        place.last_renewal = Some(now.time);
        place.renewals.retain(|sent| now.time < sent.after(settings.device_lease));
        place.renewals.insert(now.time);
        if place.renewals.len() > RENEWALS_MAX {
            place.renewals.pop_first();
        }
        if std::mem::take(&mut place.failed) {
            place.unable_until = Some(now.time.after(settings.device_lease * FAILED));
        }
        // An answer a little late is none that is lost.
        let patience = heartbeat + heartbeat / 4;
        place.said_deaf = now.time.since(place.heard.unwrap_or(first)) > patience;
        let is_unable = place.said_deaf || place.unable_until.is_some_and(|until| now.time < until);
        let silent = if is_unable { vec![self.config.store.device] } else { Vec::new() };
        let (bad_slots, failing) = self.store.bad_slots();
        let (sent, disk, stamps) = (now.time, place.disk, self.reservation.known);
        let command = MonitorCommand::Renew { sent, silent, disk, bad_slots, failing, undecided, stamps };
        let request = MonitorRequest { epoch: self.place.epoch(), command };
        out.send(NodeId::Monitor, Message::MonitorRequest(request));
    }

    /// Fenced hosts of which something is undecided here, in volumes with redundancy: not durably committed or aborted. Without
    /// redundancy nobody decides without this device, so that nothing which was read can come out otherwise.
    fn undecided_of_fenced(&self) -> Vec<Generation> {
        let Some(membership) = &self.place.adopted else { return Vec::new() };
        if membership.fence == FenceTable::default() {
            return Vec::new();
        }
        let redundant = |held: &Transaction| self.store.object(held.object).is_some_and(|object| object.redundant);
        let undecided = self.transactions.iter().filter(|(id, held)| {
            held.state.is_written_and_undecided() && membership.fence.refuses(id.host) && redundant(held)
        });
        // They are in the order of their hosts.
        let mut hosts: Vec<Generation> = Vec::new();
        for (id, _) in undecided {
            if hosts.last() != Some(&id.host) {
                hosts.push(id.host);
            }
            if hosts.len() == limits::UNDECIDED_HOSTS_MAX {
                break;
            }
        }
        hosts
    }

    /// Says at once that nothing of fenced hosts is undecided any more: whoever has them fenced waits for it.
    pub(crate) fn tell_when_decided(&mut self, now: Now, out: &mut Effects) {
        if !self.place.undecided.is_empty() && self.undecided_of_fenced().is_empty() {
            self.renew(now, out);
        }
    }

    /// A request has failed. While it returns, that is for the monitor to know: hosts try the same again and again, and users wait for
    /// what others could do without it. Of one that is in, users are told.
    pub(crate) fn note_failure(&mut self, failure: Failure) {
        let is_its_disk = matches!(failure, Failure::NoSpace | Failure::Disk);
        self.place.failed |= is_its_disk && matches!(self.standing(), Some(Standing::Returning { .. }));
    }

    /// Lets a host that asks know that it can be reached, though it may not serve.
    pub(crate) fn show_up(&mut self, host: Generation, out: &mut Effects) {
        self.counters.messages_sent += 1;
        let epoch = self.place.epoch();
        let reply = Reply::Rejected { rejection: Rejection::WrongEpoch { current: epoch } };
        out.send(NodeId::Host(host), Message::Answer(Answer { epoch, confirmed: Vec::new(), reply }));
    }

    /// Somebody lives by a later epoch: so there is news.
    pub(crate) fn ask_for_news(&mut self, now: Now, out: &mut Effects) {
        let lately = self.place.last_renewal.is_some_and(|last| now.time < last.after(HASTE));
        if !self.place.fixed && !lately {
            self.renew(now, out);
        }
    }

    /// When to renew next; never with a fixed membership.
    pub(crate) fn next_renewal(&self) -> Option<Time> {
        if self.place.fixed || self.service != Service::Serving {
            return None;
        }
        // Who has no membership yet is just starting, and so perhaps is the monitor.
        let heartbeat = self.heartbeat();
        let wait = if self.place.adopted.is_none() {
            heartbeat / STARTING
        } else if self.place.heard < self.place.last_renewal {
            heartbeat / UNANSWERED
        } else {
            heartbeat
        };
        Some(self.place.last_renewal.map_or(Time(0), |last| last.after(wait)))
    }

    pub(crate) fn on_monitor(&mut self, now: Now, answer: MonitorAnswer, out: &mut Effects) {
        if self.service != Service::Serving || self.place.fixed {
            return self.ignore(Ignored::NotStarted, out);
        }
        self.place.heard = Some(now.time);
        if self.place.said_deaf {
            // Not any more; and no lease came for what it had said.
            self.renew(now, out);
        }
        let known = self.place.adopting.as_ref().map_or(self.place.epoch(), |membership| membership.epoch);
        let news = answer.membership.filter(|membership| membership.epoch > known);
        if news.is_some() && self.place.adopting.is_some() {
            // One after the other: it is told again. The lease is one for the later epoch, and must not serve the earlier.
            return self.ignore(Ignored::InProgress, out);
        }
        if let MonitorReply::Unwelcome(why) = answer.reply {
            self.place.unwelcome = Some(why);
            return;
        }
        let in_this_life = |sent: Time| self.place.renewals.contains(&sent);
        let leased = match answer.reply {
            MonitorReply::Lease { sent, length, stamps, .. } => {
                Some((sent, length, stamps)).filter(|_| in_this_life(sent))
            }
            _ => None,
        };
        let Some((sent, length, stamps)) = leased else {
            return self.seek(now, news.map(|membership| membership.epoch), out);
        };
        self.place.unwelcome = None;
        self.know_stamps(now, stamps);
        // Counted from when it was asked for, so that no delay on the way makes it longer.
        let until = sent.after(length.min(self.config.settings.device_lease));
        self.place.lease_length = Some(length);
        self.place.lease_until = self.place.lease_until.max(Some(until));
        let Some(membership) = news else { return };
        let ticket = self.ticket(Ticket::Adopt);
        self.store.adopt(ticket, membership.clone(), out);
        self.place.adopting = Some(membership);
    }

    /// It hears of a later epoch, and has yet to ask by whose leave it lives by that: it takes over none but with a lease. The monitor
    /// gives that to a device which has just said what its disk has; one whose disk is older than it should be would hide that
    /// by adopting what is told to everybody.
    fn seek(&mut self, now: Now, told: Option<Epoch>, out: &mut Effects) {
        if let Some(epoch) = told.filter(|epoch| *epoch > self.place.sought) {
            self.place.sought = epoch;
            self.renew(now, out);
        }
    }

    /// A membership is durable; the store has dropped these intents, since the device was out.
    pub(crate) fn on_adopted(&mut self, now: Now, dropped: Vec<TransactionId>, out: &mut Effects) {
        let membership = self.place.adopting.take().expect("one membership at a time is on its way to the disk");
        let own = self.config.store.device;
        let since = |membership: &Membership| membership.member(own).map(|member| member.since);
        let before = self.place.adopted.replace(membership);
        let membership = self.place.adopted.as_ref().expect("just adopted");
        let same_devices = before.as_ref().is_some_and(|before| before.has_same_devices(membership));
        let was_away = before.as_ref().is_some_and(|before| since(before) < since(membership));
        if !same_devices {
            self.drop_announced(now, out);
        }
        if was_away {
            self.drop_undecided(now, dropped, out);
        }
        let place = &self.place;
        self.requests.drop_fenced(|host| place.refuses(host));
        self.expire_fenced(now, out);
        // The monitor, and all who wait for it, hear at once by which epoch this device lives.
        self.renew(now, out);
    }

    /// Drops what has no intent yet, and all that waits: hosts begin it anew in the new epoch. A write that were still to become an
    /// intent of an earlier epoch would be in no account of what others have missed. Those that take effect on arrival do so in the
    /// epoch of their arrival: their hosts go on with them.
    fn drop_announced(&mut self, now: Now, out: &mut Effects) {
        self.reservation.deferred.clear();
        for id in self.waiting.in_order() {
            self.waiting.take(id);
        }
        let announced = |state| state == State::Prewritten;
        for id in self.transactions_that(announced) {
            let object = self.transactions.get(id).expect("just listed").object;
            if self.is_unannounced(object) {
                self.put_off(now, id, out);
            } else if !self.outlives_epoch(id) {
                self.refuse_for_ever(now, id, out);
            }
        }
        self.resume_waiting(now, out);
    }

    /// Forgets all transactions on redundant objects that it shares with others: while this device was out, they have decided them.
    fn drop_undecided(&mut self, now: Now, dropped: Vec<TransactionId>, out: &mut Effects) {
        for id in dropped {
            if self.transactions.get(id).is_some_and(|held| held.state == State::Prepared) {
                self.advance(now, id, State::Aborted, out);
            }
        }
        let decided = |state| matches!(state, State::Committed | State::Aborted | State::Applied);
        for id in self.transactions_that(decided) {
            let held = self.transactions.get(id).expect("just listed");
            let object = held.object;
            if held.state == State::Applied && self.can_be_suspect(object) {
                // The others may lack it.
                self.suspect(now, id, out);
                continue;
            }
            // One that was refused before it was known what it writes is of no object.
            if self.is_before_return(id) || self.store.object(object).is_none() {
                self.drop_decided(id);
            }
        }
    }

    /// True if a transaction is from before an absence of this device, and was shared with others: they need not hear of it any more.
    pub(crate) fn is_before_return(&self, id: TransactionId) -> bool {
        let Some(held) = self.transactions.get(id) else { return false };
        let own = self.place.adopted.as_ref().and_then(|membership| membership.member(self.config.store.device));
        let redundant = self.store.object(held.object).is_none_or(|object| object.redundant);
        redundant && held.participants.len() > 1 && own.is_some_and(|own| held.epoch < own.since)
    }

    fn transactions_that(&self, is: impl Fn(State) -> bool) -> Vec<TransactionId> {
        self.transactions.iter().filter(|(_, held)| is(held.state)).map(|(id, _)| *id).collect()
    }

    /// Ends the leases of hosts that are kept out.
    fn expire_fenced(&mut self, now: Now, out: &mut Effects) {
        let fence = self.place.adopted.as_ref().map_or_else(FenceTable::default, |membership| membership.fence.clone());
        let fenced: Vec<_> = self.hosts.iter().map(|(host, _)| *host).filter(|host| fence.refuses(*host)).collect();
        for host in fenced {
            self.expire(now, host, out);
        }
        // Commits that were kept only for them need not be kept any longer.
        let kept = self.transactions.iter();
        let kept = kept.filter(|(id, held)| held.state == State::Committed && fence.refuses(id.host));
        self.orphans.extend(kept.map(|(id, _)| *id));
    }

    /// True if a transaction on this object is undecided here that a device which has been out since has no say in: it may not be in
    /// before all of these are decided, or decisions could outlive those who may tell of them.
    pub(crate) fn has_undecided_before_return_of(&self, device: DeviceId, object: ObjectId) -> bool {
        let Some(membership) = &self.place.adopted else { return false };
        self.transactions.iter().any(|(_, held)| {
            // A decision that is not durable can be lost in a restart.
            let pending = held.state.is_written_and_undecided();
            pending && held.object == object && !membership.has_been_in_since(device, held.epoch)
        })
    }

    /// Takes up what the disk has: its name, and a membership.
    pub(crate) fn recall_membership(&mut self, disk: DiskId, recorded: Option<Membership>) {
        self.place.disk = Some(disk);
        if !self.place.fixed {
            self.place.adopted = recorded;
        }
    }

    /// Those of a transaction's participants whose word counts: they have been in since it wrote.
    pub(crate) fn voters(&self, id: TransactionId) -> Vec<DeviceId> {
        let held = self.transactions.get(id).expect("it is known");
        let redundant = self.store.object(held.object).is_some_and(|object| object.redundant);
        let Some(membership) = self.place.adopted.as_ref().filter(|_| redundant) else {
            return held.participants.clone();
        };
        let counts = |device: &_| membership.has_a_say(*device, &held.participants, held.epoch);
        held.participants.iter().copied().filter(counts).collect()
    }
}
