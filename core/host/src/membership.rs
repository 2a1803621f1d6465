//! Who is in the array, as this host knows it, and what becomes of its transactions when that changes (`docs/membership.md`).
//!
//! | a transaction that | in a new epoch |
//! | --- | --- |
//! | has sent no write | is given up, and its operation tried again by a plan that fits |
//! | has intents out, or is being aborted after that | is resolved: the devices that have been in since decide |
//! | has writes out that take effect on arrival | goes on, without devices that are out |
//! | is committed | waits no more for devices that are out |

use crate::ctx::Timer;
use crate::host::Host;
use crate::operation::{Work, devices_of};
use crate::transaction::{Phase, Transaction};
use braid_base::{DeviceId, Generation, Membership, Now, Standing};
use braid_layout::{Absences, VolumeDescription};
use braid_machine::{Effects, HostError, HostRequest, HostSuccess, OpId};
use braid_membership::client::{Ctx, Event, FenceRequest, MembershipView, Persistence, Report};
use braid_wire::{Administration, MonitorAnswer, WriteMode};
use std::collections::BTreeSet;
use std::time::Duration;

/// A device that may not have adopted the epoch is asked again so soon.
const HASTE: Duration = Duration::from_millis(20);
/// A device that has not been heard for so many heartbeats is reported to the monitor.
const HEARTBEATS_MISSED: u32 = 2;

impl Host {
    /// The membership that it lives by, once it has heard of one.
    pub fn membership(&self) -> Option<&Membership> {
        self.monitor.view().membership()
    }

    /// The membership that it lives by, and which devices are unavailable.
    pub(crate) fn view(&self) -> &MembershipView {
        self.monitor.view()
    }

    /// The plan for a request, as things stand.
    pub(crate) fn plan(
        &self,
        volume: &VolumeDescription,
        request: &HostRequest,
        damaged: &BTreeSet<DeviceId>,
    ) -> Result<Work, HostError> {
        let plan = |mut absences: Absences| {
            for ((_, devices), absence) in volume.placements().zip([&mut absences.own, &mut absences.target]) {
                let position = |device: &DeviceId| devices.iter().position(|held| held == device);
                damaged.iter().filter_map(position).for_each(|position| absence.stale(position));
            }
            Work::plan(volume, &absences, request).expect("it is a storage transaction")
        };
        let work = plan(self.view().absences(volume, false));
        if self.view().unavailable().is_empty() {
            return work;
        }
        let work = work?;
        let touched = devices_of(volume, work.shares());
        let devices: Vec<_> = touched.into_iter().filter(|device| self.view().unavailable().contains(device)).collect();
        if devices.is_empty() {
            Ok(work)
        } else if work.writes() {
            Err(HostError::Unavailable { devices })
        } else {
            plan(self.view().absences(volume, true))
        }
    }

    /// Those of a transaction's participants whose word counts: they have been in since it wrote.
    pub(crate) fn voters(&self, transaction: &Transaction) -> BTreeSet<DeviceId> {
        let counts = |device: &_| self.counts(transaction, *device);
        transaction.participants.iter().copied().filter(counts).collect()
    }

    /// True if a device has been in since a transaction began, or all wait for it whatever happens.
    fn is_still_there(&self, transaction: &Transaction, device: DeviceId) -> bool {
        transaction.volume.layout.redundancy_units() == 0
            || self.membership().is_none_or(|membership| membership.has_been_in_since(device, transaction.epoch))
    }

    /// Gives up what only one device was to write, which has been out.
    fn give_up_writing_for(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let op = self.transactions.get_mut(&sequence).expect("just seen").op.take();
        self.end_resolution(self.id(sequence));
        self.end(now, sequence, out);
        if let Some(op) = op {
            let device = HostError::Unavailable { devices: Vec::new() };
            self.finish(op, Err(device), out);
        }
    }

    /// Whether anything is to be expected of a device about a transaction.
    pub(crate) fn counts(&self, transaction: &Transaction, device: DeviceId) -> bool {
        let alone = transaction.participants.len() == 1 && transaction.participants.contains(&device);
        alone || self.is_still_there(transaction, device)
    }

    /// The devices of its volume that take part in writes, and were out at some time since the transaction was planned.
    pub(crate) fn come_back_since(&self, transaction: &Transaction) -> BTreeSet<DeviceId> {
        let takes_part = |device: &DeviceId| self.view().state(*device).is_some_and(|held| held != Standing::Out);
        let devices = transaction.volume.holders().into_iter().filter(takes_part);
        devices.filter(|device| !self.is_still_there(transaction, *device)).collect()
    }

    /// Reports to the monitor that this host is there, and which devices are not.
    fn report(&mut self, now: Now, out: &mut Effects) {
        let settings = &self.config.settings;
        let patience = settings.heartbeat * HEARTBEATS_MISSED;
        // All are asked whether they are there, those that are out as well: nobody lets in one that hosts can't reach.
        let heard = |device: &DeviceId| self.links.last_heard(*device).or(self.view().began());
        let silent = |device: &DeviceId| heard(device).is_some_and(|heard| now.time.since(heard) > patience);
        let report = Report {
            silent: self.links.devices().filter(silent).collect(),
            stamps: self.stamps.highest_accepted(),
            healing: self.healing.progress().collect(),
            caught_up: self.healing.recovered().collect(),
            ..Report::default()
        };
        self.monitor.report(&mut Ctx { now, settings: &self.config.settings, out }, report);
    }

    /// There is something to tell the monitor at once.
    pub(crate) fn report_at_once(&mut self, now: Now, out: &mut Effects) {
        self.monitor.put_off_report(&Ctx { now, settings: &self.config.settings, out });
        self.report(now, out);
    }

    /// Somebody lives by a later epoch: so there is news.
    pub(crate) fn ask_for_news(&mut self, now: Now, out: &mut Effects) {
        if self.monitor.seeks_news(now.time) {
            self.report(now, out);
        }
    }

    /// A front end wants hosts kept out.
    pub(crate) fn start_fence(
        &mut self,
        now: Now,
        op: OpId,
        below: Generation,
        except: Vec<Generation>,
        out: &mut Effects,
    ) {
        if !self.monitor.has_monitor() {
            return out.reply(op, Err(HostError::NoMonitor));
        }
        let (ticket, request) = (self.links.take_sequence(), FenceRequest { below, except, also: Vec::new() });
        let cx = &mut Ctx { now, settings: &self.config.settings, out };
        self.monitor.fence(cx, ticket, op.0, request, Persistence::UntilExpired);
    }

    /// A front end wants something changed that is on the monitor's record.
    pub(crate) fn start_administration(&mut self, now: Now, op: OpId, request: Administration, out: &mut Effects) {
        if !self.monitor.has_monitor() {
            return out.reply(op, Err(HostError::NoMonitor));
        }
        let ticket = self.links.take_sequence();
        self.monitor.administer(&mut Ctx { now, settings: &self.config.settings, out }, ticket, op.0, request);
    }

    pub(crate) fn on_monitor_timer(&mut self, now: Now, out: &mut Effects) {
        if let Some(event) = self.monitor.wake(&mut Ctx { now, settings: &self.config.settings, out }) {
            self.on_monitor_event(now, event, out);
        }
    }

    pub(crate) fn on_monitor(&mut self, now: Now, answer: MonitorAnswer, out: &mut Effects) {
        self.monitor.on_answer(now.time, answer);
        while let Some(event) = self.monitor.next_event(&Ctx { now, settings: &self.config.settings, out }) {
            self.on_monitor_event(now, event, out);
        }
    }

    fn on_monitor_event(&mut self, now: Now, event: Event, out: &mut Effects) {
        match event {
            Event::NewView { before } => self.on_new_view(now, before, out),
            Event::Unavailable => self.on_unavailable(now, out),
            Event::ReportDue => self.report(now, out),
            Event::Fenced { asker, .. } => out.reply(OpId(asker), Ok(HostSuccess::Done)),
            Event::Administered { asker, result } => {
                let outcome = result.map(|()| HostSuccess::Done).map_err(HostError::Objection);
                out.reply(OpId(asker), outcome);
            }
            Event::Expired { asker, waited } => out.reply(OpId(asker), Err(HostError::MonitorSilent { waited })),
            Event::Ignored(why) => out.ignore(why),
            Event::Adopt { .. } | Event::Lease { .. } => unreachable!("only devices have leases"),
        }
    }

    /// A device lives by an earlier epoch, and so took nothing of what it was sent in this one. It is asked again soon, while the epoch is
    /// new: what it did not take need not wait until it is sent again anyhow.
    pub(crate) fn await_adoption(&mut self, now: Now, device: DeviceId, out: &mut Effects) {
        let is_new = now.time.since(self.view().since()) <= self.config.settings.resend_max;
        if is_new && self.view().state(device).is_some_and(|standing| standing != Standing::Out) {
            let (links, mut ctx) = self.links(now, out);
            links.await_adoption(&mut ctx, device, HASTE);
        }
    }

    /// A device that was behind has taken over the epoch: now it takes what waits for it.
    pub(crate) fn on_adoption(&mut self, now: Now, device: DeviceId) {
        let waiting = self.transactions.iter().filter(|(_, transaction)| transaction.awaits(device));
        let resends = waiting.map(|(sequence, _)| Timer::Resend(*sequence));
        let resends = resends.chain(self.resolutions.keys().map(|id| Timer::Resolve(*id)));
        let resends: Vec<_> = resends.filter(|timer| self.timers.deadline_of(*timer).is_some()).collect();
        for timer in resends {
            self.timers.set(timer, now.time);
        }
        self.requests.hurry(&mut self.timers, now, |asked| asked == device);
    }

    /// Another epoch begins.
    fn on_new_view(&mut self, now: Now, before: Option<Membership>, out: &mut Effects) {
        self.counters.epochs += 1;
        let membership = self.membership().expect("just adopted");
        if membership.fence.refuses(self.config.generation) {
            return self.on_fenced(now, out);
        }
        let same = before.is_some_and(|before| before.has_same_devices(membership));
        let under_way: Vec<_> = self.transactions.keys().copied().collect();
        for sequence in under_way {
            if same {
                self.send_phase(now, sequence, out);
            } else {
                self.on_epoch(now, sequence, out);
            }
        }
        if !same {
            // Devices name again, in the new epoch, what is left to resolve.
            self.drop_resolutions_of_others();
        }
        self.follow_members();
        self.requests.hurry(&mut self.timers, now, |_| true);
        self.heal(now, out, |healing, ctx| healing.on_membership(ctx));
        self.retry_all(now, out);
        let is_member = |device: &DeviceId| self.view().member(*device).is_some();
        let members: Vec<_> = self.links.devices().filter(is_member).collect();
        members.into_iter().for_each(|device| self.send_heartbeat(now, device, out));
    }

    /// Makes links to devices that are new in the array. Those that are gone from it are forgotten, as soon as nothing here has to do with
    /// them any more.
    fn follow_members(&mut self) {
        let members: BTreeSet<_> =
            self.membership().expect("just taken over").members.iter().map(|member| member.device).collect();
        let mut needed = members.clone();
        let volumes = self.volumes.values().chain(self.operations.values().map(|operation| &operation.volume));
        needed.extend(volumes.flat_map(|volume| volume.holders()));
        needed.extend(self.transactions.values().flat_map(|transaction| transaction.volume.holders()));
        needed.extend(self.resolutions.values().flat_map(|resolution| resolution.participants()));
        needed.extend(self.requests.devices());
        self.links.follow(&mut self.timers, &members, &needed);
    }

    /// Takes one transaction over into a new epoch.
    fn on_epoch(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        // One that ended another has perhaps ended it, too.
        let Some(transaction) = self.transactions.get(&sequence) else { return };
        let gone: Vec<_> =
            transaction.asked.iter().copied().filter(|device| !self.is_still_there(transaction, *device)).collect();
        for device in &gone {
            self.links.of(*device).forget(sequence);
        }
        let counting: BTreeSet<_> =
            transaction.asked.iter().copied().filter(|device| self.counts(transaction, *device)).collect();
        let in_intents = transaction.mode() == WriteMode::Intent;
        let for_one = matches!(*transaction.work, Work::Restore(_) | Work::Recompute(_));
        let transaction = self.transactions.get_mut(&sequence).expect("just seen");
        match &mut transaction.phase {
            Phase::Locking | Phase::Reading { .. } => self.begin_anew(now, sequence, out),
            // What a device was being brought it may yet take; if it was out again, it is brought it once more, or named as suspect.
            _ if for_one && !gone.is_empty() => self.give_up_writing_for(now, sequence, out),
            // Without ordering, nobody keeps its blocks for it.
            Phase::Writing { .. } if !in_intents && !transaction.volume.ordering.policy().isolates() => {
                self.begin_anew(now, sequence, out);
            }
            Phase::Writing { silent, .. } if !in_intents => {
                silent.retain(|device| counting.contains(device));
                if silent.is_empty() {
                    self.on_all_written(now, sequence, out);
                } else {
                    self.send_phase(now, sequence, out);
                }
            }
            Phase::Writing { .. } | Phase::Resolving => self.resolve_own(now, sequence, out),
            Phase::Aborting { .. } if transaction.wrote && in_intents => self.resolve_own(now, sequence, out),
            Phase::Aborting { unconfirmed, .. } | Phase::Committed { unconfirmed } => {
                unconfirmed.retain(|device| !gone.contains(device));
                if unconfirmed.is_empty() && matches!(transaction.phase, Phase::Aborting { .. }) {
                    self.end_aborted(now, sequence, out);
                } else if matches!(&transaction.phase, Phase::Committed { unconfirmed } if unconfirmed.is_empty()) {
                    self.end(now, sequence, out);
                } else {
                    self.send_phase(now, sequence, out);
                }
            }
        }
    }

    /// Gives an attempt up that can't go on in this epoch; its operation tries again at once.
    fn begin_anew(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let op = self.transactions[&sequence].op;
        self.abort(now, sequence, None, out);
        if let Some(op) = op {
            let operation = self.operations.get_mut(&op).expect("an attempt knows its operation");
            operation.attempt = None;
            operation.delayed = true;
            self.timers.set(Timer::Retry(op), now.time);
        }
    }

    /// Other devices than before are unavailable. What waits for them is tried otherwise, or fails.
    fn on_unavailable(&mut self, now: Now, out: &mut Effects) {
        let unavailable = self.view().unavailable().clone();
        // One that has yet to get its locks goes to the devices later, by a plan that was made before.
        let waits = |transaction: &Transaction| match &transaction.phase {
            Phase::Locking => !transaction.asked.is_disjoint(&unavailable),
            _ => transaction.silent().is_some_and(|silent| !silent.is_disjoint(&unavailable)),
        };
        let stuck: Vec<_> =
            self.transactions.iter().filter(|(_, held)| waits(held)).map(|(sequence, _)| *sequence).collect();
        for sequence in stuck {
            let Some(transaction) = self.transactions.get(&sequence) else { continue };
            let Some(op) = transaction.op else { continue };
            if matches!(transaction.phase, Phase::Locking | Phase::Reading { .. }) {
                self.begin_anew(now, sequence, out);
            } else {
                let devices = unavailable.iter().copied().filter(|device| transaction.awaits(*device)).collect();
                self.give_up(now, op, HostError::Unavailable { devices }, out);
            }
        }
        self.heal(now, out, |healing, ctx| healing.on_availability(ctx));
        self.retry_all(now, out);
    }

    /// Whoever waits to try again does so now.
    fn retry_all(&mut self, now: Now, out: &mut Effects) {
        let waiting = self.operations.values().filter(|operation| operation.attempt.is_none());
        for op in waiting.map(|operation| operation.op).collect::<Vec<_>>() {
            self.timers.cancel(Timer::Retry(op));
            self.attempt(now, op, out);
        }
    }
}
