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
use braid_base::{DeviceId, Epoch, Generation, Membership, NodeId, Now, Standing, Time};
use braid_layout::{Absences, VolumeDescription};
use braid_machine::{Effects, HostError, HostRequest, HostSuccess, Ignored, OpId};
use braid_wire::{
    Administration, Message, MonitorAnswer, MonitorCommand, MonitorReply, MonitorRequest, Ordering, Pace, WriteMode,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The least time between two requests for news that are sent because something is amiss.
const HASTE: Duration = Duration::from_millis(20);
/// Before it knows a membership, it asks so many times as often as later.
const STARTING: u32 = 10;
/// A device that has not been heard for so many heartbeats is named to the monitor.
const HEARTBEATS_MISSED: u32 = 2;

/// The array's membership, as a host knows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    membership: Option<Membership>,
    /// Fixed memberships need no monitor.
    fixed: bool,
    /// Devices that are in but have no lease.
    away: BTreeSet<DeviceId>,
    /// Counts the changes of all that.
    view: u64,
    /// When the first membership came: devices are asked since then.
    began: Option<Time>,
    /// When the epoch that it lives by came.
    since: Time,
    last_asked: Option<Time>,
    /// Requests to keep hosts out, by their tickets.
    fences: BTreeMap<u64, PendingFence>,
    /// What the monitor is to change, by tickets.
    administrations: BTreeMap<u64, PendingAdministration>,
    /// How fast returning devices are to be helped, as the monitor last said.
    pub pace: Pace,
}

#[derive(Clone, Debug)]
struct PendingAdministration {
    op: OpId,
    request: Administration,
    since: Time,
}

#[derive(Clone, Debug)]
struct PendingFence {
    op: OpId,
    below: Generation,
    except: Vec<Generation>,
    since: Time,
}

impl Place {
    /// In an array whose membership is fixed, or else in one with a monitor.
    pub fn new(fixed: Option<Membership>) -> Place {
        Place { fixed: fixed.is_some(), membership: fixed, view: 1, ..Place::default() }
    }

    /// The epoch that the host lives by; zero before the first.
    pub fn epoch(&self) -> Epoch {
        self.membership.as_ref().map_or(Epoch(0), |membership| membership.epoch)
    }

    /// Counts the changes; none before the first membership.
    pub fn view(&self) -> Option<u64> {
        self.membership.is_some().then_some(self.view)
    }

    /// The membership, once one has come.
    pub fn membership(&self) -> Option<&Membership> {
        self.membership.as_ref()
    }

    /// Devices that are in but have no lease.
    pub fn away(&self) -> &BTreeSet<DeviceId> {
        &self.away
    }

    fn standing(&self, device: DeviceId) -> Option<Standing> {
        Some(self.membership.as_ref()?.member(device)?.standing)
    }

    /// True if the device is out, or not of this array.
    pub fn is_out(&self, device: DeviceId) -> bool {
        self.standing(device).is_none_or(|standing| standing == Standing::Out)
    }

    /// True if the device is in, so that it has all that it should have.
    pub fn is_in(&self, device: DeviceId) -> bool {
        self.standing(device) == Some(Standing::In)
    }
}

impl Host {
    /// The membership that it lives by, once it has heard of one.
    pub fn membership(&self) -> Option<&Membership> {
        self.place.membership.as_ref()
    }

    /// Devices that are in, whose leases have run out, and that the array can't do without.
    pub fn away(&self) -> &BTreeSet<DeviceId> {
        &self.place.away
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
        let work = plan(self.absences(volume, false));
        if self.place.away.is_empty() {
            return work;
        }
        let work = work?;
        let touched = devices_of(volume, work.shares());
        let devices: Vec<_> = touched.into_iter().filter(|device| self.place.away.contains(device)).collect();
        if devices.is_empty() {
            Ok(work)
        } else if work.writes() {
            Err(HostError::Unavailable { devices })
        } else {
            plan(self.absences(volume, true))
        }
    }

    /// Which devices of a volume can't be used; `in_need`: nor those that are merely away. One without redundancy uses what is
    /// there.
    fn absences(&self, volume: &VolumeDescription, in_need: bool) -> Absences {
        let Some(membership) = &self.place.membership else { return Absences::default() };
        if self.place.away.is_empty() && membership.members.iter().all(|member| member.standing == Standing::In) {
            return Absences::default();
        }
        let mut lost: BTreeSet<_> = membership.devices(|standing| standing == Standing::Out).collect();
        if in_need {
            lost.extend(&self.place.away);
        }
        let redundant = volume.layout.redundancy_units() > 0;
        let returning = |standing| redundant && matches!(standing, Standing::Returning { .. });
        volume.absences(&lost, &membership.devices(returning).collect())
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
        let takes_part = |device: &DeviceId| self.place.standing(*device).is_some_and(|held| held != Standing::Out);
        let devices = transaction.volume.holders().into_iter().filter(takes_part);
        devices.filter(|device| !self.is_still_there(transaction, *device)).collect()
    }

    /// Says to the monitor that this host is there, and which devices are not.
    pub(crate) fn on_monitor_timer(&mut self, now: Now, out: &mut Effects) {
        self.ask_monitor(now, out);
        // Who has no membership yet is just starting, and so perhaps is the monitor.
        let heartbeat = self.config.settings.heartbeat;
        let wait = if self.place.membership.is_some() { heartbeat } else { heartbeat / STARTING };
        self.timers.set(Timer::Monitor, now.time.after(wait));
    }

    pub(crate) fn has_monitor(&self) -> bool {
        !self.place.fixed
    }

    fn ask_monitor(&mut self, now: Now, out: &mut Effects) {
        self.place.last_asked = Some(now.time);
        let patience = self.config.settings.heartbeat * HEARTBEATS_MISSED;
        // All are asked whether they are there, those that are out as well: nobody lets in one that hosts can't reach.
        let heard = |device: &DeviceId| self.links.last_heard(*device).or(self.place.began);
        let silent = |device: &DeviceId| heard(device).is_some_and(|heard| now.time.since(heard) > patience);
        let silent = self.links.devices().filter(silent).collect();
        self.tell_monitor(
            MonitorCommand::Renew {
                sent: now.time,
                silent,
                disk: None,
                bad_slots: 0,
                failing: false,
                undecided: Vec::new(),
                stamps: self.stamps.highest_accepted(),
            },
            out,
        );
        for (ticket, pending) in &self.place.administrations {
            let command = MonitorCommand::Administer { ticket: *ticket, request: pending.request };
            self.tell_monitor(command, out);
        }
        for (device, progress) in self.healing.progress() {
            self.tell_monitor(MonitorCommand::Healing { device, progress }, out);
        }
        for (ticket, fence) in &self.place.fences {
            let (ticket, below, except) = (*ticket, fence.below, fence.except.clone());
            self.tell_monitor(MonitorCommand::Fence { ticket, below, except, also: Vec::new() }, out);
        }
        for (device, since) in self.healing.recovered() {
            self.tell_monitor(MonitorCommand::CaughtUp { device, since }, out);
        }
    }

    pub(crate) fn tell_monitor(&self, command: MonitorCommand, out: &mut Effects) {
        let request = MonitorRequest { epoch: self.place.epoch(), command };
        out.send(NodeId::Monitor, Message::MonitorRequest(request));
    }

    /// Somebody lives by a later epoch: so there is news.
    pub(crate) fn ask_for_news(&mut self, now: Now, out: &mut Effects) {
        let lately = self.place.last_asked.is_some_and(|last| now.time < last.after(HASTE));
        if !self.place.fixed && !lately {
            self.ask_monitor(now, out);
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
        if self.place.fixed {
            return out.reply(op, Err(HostError::NoMonitor));
        }
        let ticket = self.links.take_sequence();
        self.timers.set(Timer::Fence(ticket), now.time.after(self.config.settings.request_timeout));
        self.tell_monitor(MonitorCommand::Fence { ticket, below, except: except.clone(), also: Vec::new() }, out);
        self.place.fences.insert(ticket, PendingFence { op, below, except, since: now.time });
    }

    pub(crate) fn on_fence_expired(&mut self, now: Now, ticket: u64, out: &mut Effects) {
        let fence = self.place.fences.remove(&ticket).expect("its timer is cancelled with it");
        out.reply(fence.op, Err(HostError::MonitorSilent { waited: now.time.since(fence.since) }));
    }

    /// A front end wants something changed that is on the monitor's record.
    pub(crate) fn start_administration(&mut self, now: Now, op: OpId, request: Administration, out: &mut Effects) {
        if self.place.fixed {
            return out.reply(op, Err(HostError::NoMonitor));
        }
        let ticket = self.links.take_sequence();
        self.timers.set(Timer::Administer(ticket), now.time.after(self.config.settings.request_timeout));
        self.tell_monitor(MonitorCommand::Administer { ticket, request }, out);
        self.place.administrations.insert(ticket, PendingAdministration { op, request, since: now.time });
    }

    pub(crate) fn on_administration_expired(&mut self, now: Now, ticket: u64, out: &mut Effects) {
        let pending = self.place.administrations.remove(&ticket).expect("its timer is cancelled with it");
        out.reply(pending.op, Err(HostError::MonitorSilent { waited: now.time.since(pending.since) }));
    }

    pub(crate) fn on_monitor(&mut self, now: Now, answer: MonitorAnswer, out: &mut Effects) {
        if self.place.fixed {
            return out.ignore(Ignored::NotForUs);
        }
        let MonitorAnswer { membership, away, reply } = answer;
        if let Some(membership) = membership.filter(|membership| membership.epoch > self.place.epoch()) {
            self.on_membership(now, membership, out);
        }
        let away: BTreeSet<_> = away.into_iter().filter(|device| self.links.has(*device)).collect();
        if away != self.place.away {
            self.on_away(now, away, out);
        }
        match reply {
            MonitorReply::Lease { pace, .. } => self.place.pace = pace,
            MonitorReply::Fenced { ticket } => {
                if let Some(fence) = self.place.fences.remove(&ticket) {
                    self.timers.cancel(Timer::Fence(ticket));
                    out.reply(fence.op, Ok(HostSuccess::Done));
                }
            }
            MonitorReply::Administered { ticket, result } => {
                if let Some(pending) = self.place.administrations.remove(&ticket) {
                    self.timers.cancel(Timer::Administer(ticket));
                    let outcome = result.map(|()| HostSuccess::Done).map_err(HostError::Objection);
                    out.reply(pending.op, outcome);
                }
            }
            MonitorReply::Changed | MonitorReply::Unwelcome(_) => {}
        }
    }

    /// A device lives by an earlier epoch, and so took nothing of what it was sent in this one. It is asked again soon, while the epoch is
    /// new: what it did not take need not wait until it is sent again anyhow.
    pub(crate) fn await_adoption(&mut self, now: Now, device: DeviceId, out: &mut Effects) {
        let is_new = now.time.since(self.place.since) <= self.config.settings.resend_max;
        if is_new && self.place.standing(device).is_some_and(|standing| standing != Standing::Out) {
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
        self.hurry_requests(now, |asked| asked == device);
    }

    /// Requests for objects that these devices have not taken in another epoch are sent again at once.
    fn hurry_requests(&mut self, now: Now, of: impl Fn(DeviceId) -> bool) {
        let asked = self.object_requests.iter().filter(|(_, request)| of(request.device()));
        let resends: Vec<_> = asked.map(|(sequence, _)| Timer::ObjectRequest(*sequence)).collect();
        for timer in resends {
            self.timers.set(timer, now.time);
        }
    }

    /// Another epoch begins.
    fn on_membership(&mut self, now: Now, membership: Membership, out: &mut Effects) {
        let fenced = membership.fence.refuses(self.config.generation);
        let before = self.place.membership.replace(membership);
        self.place.view += 1;
        self.place.began.get_or_insert(now.time);
        self.place.since = now.time;
        self.counters.epochs += 1;
        if fenced {
            return self.on_fenced(now, out);
        }
        let membership = self.place.membership.as_ref().expect("just taken over");
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
        self.hurry_requests(now, |_| true);
        self.heal(now, out, |healing, ctx| healing.on_membership(ctx));
        self.retry_all(now, out);
        let members: Vec<_> = self.links.devices().filter(|device| self.is_member(*device)).collect();
        members.into_iter().for_each(|device| self.send_heartbeat(now, device, out));
    }

    fn is_member(&self, device: DeviceId) -> bool {
        self.place.standing(device).is_some()
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
        needed.extend(self.tasks.values().map(|task| task.device()));
        needed.extend(self.object_requests.values().map(|request| request.device()));
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
            Phase::Locking(_) | Phase::Reading { .. } => self.begin_anew(now, sequence, out),
            // What a device was being brought it may yet take; if it was out again, it is brought it once more, or named as suspect.
            _ if for_one && !gone.is_empty() => self.give_up_writing_for(now, sequence, out),
            // Without ordering, nobody keeps its blocks for it.
            Phase::Writing { .. } if !in_intents && transaction.volume.ordering == Ordering::None => {
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

    /// Other devices than before are in but have no lease. What waits for them is tried otherwise, or told.
    fn on_away(&mut self, now: Now, away: BTreeSet<DeviceId>, out: &mut Effects) {
        self.place.away = away;
        self.place.view += 1;
        // One that has yet to get its locks goes to the devices later, by a plan that was made before.
        let waits = |transaction: &Transaction| match &transaction.phase {
            Phase::Locking(_) => !transaction.asked.is_disjoint(&self.place.away),
            _ => transaction.silent().is_some_and(|silent| !silent.is_disjoint(&self.place.away)),
        };
        let stuck: Vec<_> =
            self.transactions.iter().filter(|(_, held)| waits(held)).map(|(sequence, _)| *sequence).collect();
        for sequence in stuck {
            let Some(transaction) = self.transactions.get(&sequence) else { continue };
            let Some(op) = transaction.op else { continue };
            if matches!(transaction.phase, Phase::Locking(_) | Phase::Reading { .. }) {
                self.begin_anew(now, sequence, out);
            } else {
                let devices = self.place.away.iter().copied().filter(|device| transaction.awaits(*device)).collect();
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
