//! The machine of the monitor: it accepts or ignores each message, and routes it to the module that handles it.

use crate::MonitorCounters;
use crate::device_leases::{Device, DeviceLease, Renewal, shown};
use crate::fence_requests::{Fences, Taken, never_shrinks};
use crate::hosts::Hosts;
use crate::later_epochs::record_is_old;
use crate::leadership::{CurrentId, Leadership, Term};
use crate::monitor_record::{MonitorError, Recorded};
use crate::new_reports::NewReports;
use crate::operator_changes::OlderPrograms;
use crate::operator_requests::Administrations;
use crate::ownership_requests::{OwnershipAnswer, OwnershipName, OwnershipRequests};
use crate::stripes::Stripes;
use crate::watch::Watch;
use braid_base::limits::{self, Settings};
use braid_base::{
    ArrayId, Clock, DeviceId, Epoch, FenceTable, FileSystemId, Generation, Level, MemberState, Membership, NodeId, Now,
    Ownership, Time,
};
use braid_layout::VolumeDescription;
use braid_machine::{
    ControlOutcome, ControlRequest, DiskResult, HostError, Ignored, Input, Machine, MonitorEffects, OneDisk,
};
use braid_two_copy_record::{Progress, StoredRecord};
use braid_wire::{Message, MonitorAnswer, MonitorCommand, MonitorReply, MonitorRequest, OwnershipRequest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MonitorConfig {
    /// The array. At most one process may be its monitor at a time.
    pub array: ArrayId,
    /// The devices of a new array. Later the record says which devices there are.
    pub devices: Vec<DeviceId>,
    /// The last generation that the control plane has given out. The monitor is told of later ones (`ControlRequest::NoteGenerations`).
    pub last_generation: Generation,
    /// The term for which it leads; none if there is no other candidate.
    pub term: Option<Term>,
    /// Timeouts, intervals and limits.
    pub settings: Settings,
}

/// The array's monitor. Immediately after its start, it must be given all volumes (`ControlRequest::AdoptVolume`): it must know every volume
/// of a device before it marks the device out.
#[derive(Clone, Debug)]
pub struct Monitor {
    pub(crate) config: MonitorConfig,
    service: MonitorService,
    pub(crate) record: StoredRecord<Recorded>,
    pub(crate) stripes: Stripes,
    pub(crate) devices: BTreeMap<DeviceId, Device>,
    pub(crate) hosts: Hosts,
    pub(crate) requests: HostRequests,
    /// What the next decision has to take into account.
    pub(crate) new_reports: NewReports,
    pub(crate) watch: Watch,
    leadership: Leadership,
    /// The highest stamp clock that a device or host has reported. Not durable: devices keep their own, and report it again.
    stamps: Clock,
    pub(crate) counters: MonitorCounters,
}

/// Requests of hosts and lock servers that are not answered yet. Most are answered when devices have adopted an epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostRequests {
    pub fences: Fences,
    /// Requests about the ownership of file systems.
    pub ownership: OwnershipRequests,
    /// Requests of operators.
    pub administrations: Administrations,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonitorService {
    Off,
    Reading,
    /// It is serving.
    Serving,
    /// It cannot serve.
    Unusable(MonitorError),
}

impl Monitor {
    /// A monitor that is not started.
    pub fn new(config: MonitorConfig) -> Monitor {
        assert!(config.devices.len() <= limits::DEVICES_MAX, "an array has no more devices");
        let mut hosts = Hosts::default();
        hosts.note_given(config.last_generation);
        Monitor {
            config,
            service: MonitorService::Off,
            record: StoredRecord::default(),
            stripes: Stripes::default(),
            devices: BTreeMap::new(),
            hosts,
            requests: HostRequests::default(),
            new_reports: NewReports::default(),
            watch: Watch::new(),
            leadership: Leadership::default(),
            stamps: Clock(0),
            counters: MonitorCounters::default(),
        }
    }

    /// The term for which it leads.
    pub fn term(&self) -> Option<Term> {
        self.config.term
    }

    /// The present state.
    pub fn service(&self) -> MonitorService {
        self.service
    }

    /// The durable membership; of epoch zero until it has been read.
    pub fn membership(&self) -> &Membership {
        &self.record.durable().membership
    }

    /// The level of the array.
    pub fn level(&self) -> Level {
        self.record.durable().level
    }

    /// The programs that keep the level from being raised.
    pub fn older_programs(&self) -> OlderPrograms {
        OlderPrograms::find(
            (self.level().next(), self.watch.last_step()),
            self.membership(),
            &self.devices,
            &self.hosts,
        )
    }

    /// The highest stamp clock known to be accepted, as far as this monitor has heard since its start.
    pub fn stamps(&self) -> Clock {
        self.stamps
    }

    /// The file systems that have an owner, ascending.
    pub fn owners(&self) -> impl Iterator<Item = (FileSystemId, Ownership)> + '_ {
        self.record.durable().owners.all()
    }

    /// Devices that are in and whose leases have expired, but that cannot be marked out, as of the last step. A device that is about to be
    /// marked out is not listed: operations that wait for it continue as soon as it is out.
    pub fn unavailable(&self) -> Vec<DeviceId> {
        let (now, membership) = (self.watch.last_step(), self.membership());
        // The table of devices is complete only when the monitor serves.
        if !self.watch.may_call_unavailable(now) || self.service != MonitorService::Serving {
            return Vec::new();
        }
        let gone = |device: &DeviceId| {
            let has_left = self.is_in_for_good(*device) && !self.devices[device].may_serve(now);
            has_left && !self.dependence(now).can_do_without(*device, membership)
        };
        membership.devices(|member_state| member_state == MemberState::In).filter(gone).collect()
    }

    /// The lease and state of each device of the array, ascending, as of the last step.
    pub fn leases(&self) -> impl Iterator<Item = DeviceLease> + '_ {
        shown(&self.devices, self.watch.last_step())
    }

    /// To be told before each step of a monitor with a term: whether its leader may grant leases at this time.
    pub fn may_grant(&mut self, may_grant: bool) {
        self.leadership.may_grant = may_grant;
    }

    /// Answers that claim to be current, and of which this was not said before. Each waits until the leader knows whether it led after this.
    pub fn take_deferred(&mut self) -> Vec<CurrentId> {
        self.leadership.take_new()
    }

    /// It led after this answer was given (or that is not known: then it is dropped, and its asker repeats the question).
    pub fn end_deferred(&mut self, now: Now, id: CurrentId, has_led: bool, out: &mut MonitorEffects) {
        if let Some(answer) = self.leadership.take(id).filter(|_| has_led) {
            self.tell_ownership(now, answer, out);
        }
    }

    /// True if another monitor may lead.
    fn is_in_doubt(&self) -> bool {
        self.config.term.is_some() && !self.leadership.may_grant
    }

    /// What it has counted.
    pub fn counters(&self) -> &MonitorCounters {
        &self.counters
    }

    /// True if the device is not out, and is not about to be.
    fn is_in_for_good(&self, device: DeviceId) -> bool {
        let not_out = |membership: &Membership| {
            membership.member(device).is_some_and(|member| member.member_state != MemberState::Out)
        };
        not_out(self.membership()) && self.record.writing().is_none_or(|next| not_out(&next.membership))
    }

    fn start(&mut self, now: Now, out: &mut MonitorEffects) {
        assert_eq!(self.service, MonitorService::Off, "a monitor is started once");
        self.service = MonitorService::Reading;
        self.watch.start(now.time, &self.config.settings);
        self.record.start(out);
    }

    fn on_disk_done(&mut self, now: Now, result: DiskResult, out: &mut MonitorEffects) -> Result<(), MonitorError> {
        let before = self.record.durable().clone();
        match self.record.on_disk_done(result, out)? {
            Progress::Read => {
                let found = self.adopt_record()?;
                if !self.record.update(found, out) {
                    self.serve(now);
                }
            }
            Progress::Reading | Progress::Writing => {}
            Progress::Written if self.service == MonitorService::Reading => self.serve(now),
            Progress::Written => {
                self.follow_members(now);
                self.on_handed_over(&before);
                if self.membership().epoch != before.membership.epoch {
                    self.on_epoch_durable(now, &before.membership, out);
                } else {
                    self.greet_learned(now, &before, out);
                }
                self.on_administered(now, out);
                self.new_reports.demand();
            }
        }
        Ok(())
    }

    /// Answers the devices whose disks have just been recorded.
    fn greet_learned(&mut self, now: Now, before: &Recorded, out: &mut MonitorEffects) {
        let devices: Vec<_> = self.devices.keys().copied().collect();
        for device in devices {
            if before.slot(device).disk.is_none() && self.slot(device).disk.is_some() && self.is_to_hear(device) {
                self.answer(now, NodeId::Device(device), Epoch(0), MonitorReply::Changed, out);
            }
        }
    }

    /// The record that was read, or the first membership of a new array; an error if it belongs to another array.
    fn adopt_record(&mut self) -> Result<Recorded, MonitorError> {
        let found = self.record.durable().clone();
        if found.membership.epoch == Epoch(0) {
            let membership = Membership::first(self.config.devices.iter().copied());
            return Ok(Recorded::of(self.config.array, membership));
        }
        if found.array != self.config.array {
            return Err(MonitorError::OtherArray { found: found.array });
        }
        Ok(found)
    }

    fn serve(&mut self, now: Now) {
        self.service = MonitorService::Serving;
        self.requests.fences.change(self.record.durable().membership.epoch);
        let (settings, started) = (&self.config.settings, self.watch.started());
        for member in &self.record.durable().membership.members {
            let mut known = Device::new(started, settings);
            match member.member_state {
                MemberState::Out => known.take_out(now.time, settings, false),
                // A lease granted before the monitor was restarted, or by a former leader, may still be running.
                MemberState::In | MemberState::Returning { .. } => match self.config.term {
                    Some(Term { wait, .. }) => {
                        known.lend(started, wait);
                        known.hold(None, started.after(wait));
                    }
                    None => known.grant(started, settings),
                },
            }
            self.devices.insert(member.device, known);
        }
        if self.config.term.is_some() {
            // It has heard nothing while it read its record, which takes long if the registry is unreachable.
            self.watch.doubt(now.time, &self.config.settings);
        }
        self.watch.plan_first_patrol(now.time, settings);
    }

    fn on_message(&mut self, now: Now, from: NodeId, message: Message, out: &mut MonitorEffects) {
        let Message::MonitorRequest(MonitorRequest { epoch, command }) = message else {
            return self.ignore(Ignored::NotForUs, out);
        };
        if self.service != MonitorService::Serving {
            return self.ignore(Ignored::NotStarted, out);
        }
        match (from, command) {
            // Its program may not read what the others write. It gets no lease, and does not count as heard.
            (_, MonitorCommand::Renew { knows, .. }) if knows < self.level() => self.ignore(Ignored::NotForUs, out),
            (
                NodeId::Device(device),
                MonitorCommand::Renew { sent, silent, disk, bad_slots, failing, undecided, stamps, knows, holder },
            ) => {
                self.stamps = self.stamps.max(stamps);
                let (disk, unable) = (disk.unwrap_or_default(), silent.contains(&device));
                let renewal = Renewal { epoch, sent, disk, unable, bad_slots, failing, undecided, knows, holder };
                self.on_device(now, device, renewal, out);
            }
            (NodeId::Device(_), _) => self.ignore(Ignored::NotForUs, out),
            (_, MonitorCommand::Renew { sent, silent, stamps, knows, .. }) => {
                self.stamps = self.stamps.max(stamps);
                match from {
                    // It is answered, but does not count: it does not exist, or was started a moment ago.
                    NodeId::Host(host) if !self.hosts.may_exist(host) => {}
                    NodeId::Host(host) => {
                        self.hosts.hear(now.time, host, silent.into_iter().collect());
                        self.hosts.note_level(host, knows);
                    }
                    NodeId::LockServer(server) if self.hosts.hear_lock_server(now.time, server, knows) => {}
                    _ => return self.ignore(Ignored::NotForUs, out),
                }
                self.answer(now, from, epoch, self.lease(sent), out);
            }
            (NodeId::Monitor, _) => self.ignore(Ignored::NotForUs, out),
            (_, MonitorCommand::Fence { ticket, below, except, also }) => {
                let (except, also) = (except.into_iter().collect(), also.into_iter().collect());
                let wanted = FenceTable { below, except, also };
                self.on_fence((from, ticket), epoch, wanted, out);
            }
            // What another administrator has taken over is not done in the name of the fenced one.
            (NodeId::Host(host), MonitorCommand::Administer { .. }) if self.membership().fence.refuses(host) => {
                self.ignore(Ignored::NotForUs, out);
            }
            (NodeId::Host(host), MonitorCommand::Administer { ticket, request }) => {
                self.on_administer(now, (host, ticket), epoch, request, out);
            }
            (NodeId::Host(host), MonitorCommand::Ownership { ticket, file_system, request }) => {
                self.on_ownership(now, (host, ticket), epoch, (file_system, request), out);
            }
            (NodeId::Host(host), MonitorCommand::Healing { device, progress }) => {
                let recovery_coordinator = MemberState::Returning { recovery_coordinator: Some(host) };
                if self.membership().member(device).is_some_and(|member| member.member_state == recovery_coordinator) {
                    self.devices.get_mut(&device).expect("all members are known").progress = Some(progress);
                }
            }
            (NodeId::Host(host), MonitorCommand::Resynchronised { device, since }) => {
                if !self.on_resynchronised(host, device, since) {
                    self.ignore(Ignored::NotAwaited, out);
                    if epoch != self.membership().epoch {
                        self.answer(now, from, epoch, MonitorReply::Changed, out);
                    }
                }
            }
            _ => self.ignore(Ignored::NotForUs, out),
        }
    }

    fn lease(&self, sent: Time) -> MonitorReply {
        let (length, throttle) = (self.config.settings.device_lease, self.record.durable().throttle);
        MonitorReply::Lease { sent, length, throttle, stamps: self.stamps, level: self.level() }
    }

    /// A device asks for a lease. If it reports that it cannot serve, its lease is not extended, so that it is soon marked out.
    fn on_device(&mut self, now: Now, device: DeviceId, renewal: Renewal, out: &mut MonitorEffects) {
        let Renewal { epoch, sent, disk, unable, .. } = renewal;
        let ours = self.membership().epoch;
        if !self.devices.contains_key(&device) {
            return self.ignore(Ignored::NotForUs, out);
        }
        let lived_by = self.slot(device).lived_by;
        let known = self.devices.get_mut(&device).expect("just seen");
        let is_held = known.waits_for_another(now.time, renewal.holder, &self.config.settings);
        if is_held && known.is_held() {
            return self.answer(now, NodeId::Device(device), epoch, MonitorReply::Changed, out);
        }
        let holder = renewal.holder.map(|holder| holder.number);
        // The next leader may have granted the lease within the doubt of this one.
        let lease = Device::span(&self.config.settings);
        let held = now.time.after(self.config.term.map_or(lease, |term| term.wait.max(lease)));
        // A later report takes precedence: a duplicate that arrives late must not report an older disk, or a device that cannot serve.
        let is_late = known.is_late(now.time, &renewal, &self.config.settings);
        if is_late && (unable || epoch < lived_by) {
            return self.ignore(Ignored::Settled, out);
        }
        if !is_late {
            known.last_report.unable = unable;
        }
        // Another disk may have any epoch.
        let is_another = self.slot(device).disk.is_some_and(|expected| expected != disk);
        if (is_another || epoch <= ours) && !self.admits(now, device, disk, epoch, out) {
            return;
        }
        if epoch > ours {
            return self.on_later_epoch(now, device, epoch, out);
        }
        let may_have_lease = self.is_in_for_good(device);
        let is_outdated = epoch < lived_by;
        if !is_late {
            self.devices.get_mut(&device).expect("just seen").hear(now.time, &renewal, is_outdated);
        }
        let waits = self.awaits_others() && !self.config.term.is_some_and(|term| term.follows);
        let known = self.devices.get_mut(&device).expect("just seen");
        let reply = if is_outdated {
            self.counters.outdated += 1;
            MonitorReply::Changed
        } else if waits {
            self.watch.defer(device, renewal);
            MonitorReply::Changed
        } else if may_have_lease && !is_held && !known.refused && !known.last_report.unable {
            known.grant(now.time, &self.config.settings);
            known.hold(holder, held);
            self.counters.leases += 1;
            self.lease(sent)
        } else {
            MonitorReply::Changed
        };
        self.answer(now, NodeId::Device(device), epoch, reply, out);
    }

    /// A device names an epoch that the record does not know. It gets no lease.
    fn on_later_epoch(&mut self, now: Now, device: DeviceId, theirs: Epoch, out: &mut MonitorEffects) {
        self.counters.ahead += 1;
        let known = self.devices.get_mut(&device).expect("the caller has looked it up");
        known.ahead = Some((theirs, now.time));
        let waits = self.watch.is_new() && self.awaits_others();
        if let Some(error) = self.error_of_old_record(now.time).filter(|_| !waits) {
            return self.give_up(error);
        }
        self.counters.messages_sent += 1;
        let answer = MonitorAnswer { membership: None, unavailable: Vec::new(), reply: MonitorReply::Changed };
        out.send(NodeId::Device(device), Message::MonitorAnswer(answer));
    }

    /// The error, if the record counts as an old copy.
    fn error_of_old_record(&self, now: Time) -> Option<MonitorError> {
        record_is_old(&self.devices, self.membership(), now, &self.config.settings)
    }

    /// True while no lease is granted, because not all devices have been heard since the start.
    fn awaits_others(&self) -> bool {
        let heard = self.devices.values().map(|known| known.last_report.heard.is_some());
        self.watch.awaits_others(heard)
    }

    /// True if a device names a later epoch to a monitor that has not heard all devices since its start: the record may be an old copy. An
    /// epoch that began now could be one that there was, with another membership.
    fn may_be_behind(&self) -> bool {
        self.watch.is_new() && self.devices.values().any(|known| known.ahead.is_some())
    }

    /// All devices have been heard, or have had time to be heard: their deferred requests for leases are handled now.
    fn grant_deferred(&mut self, now: Now, out: &mut MonitorEffects) {
        if !self.watch.is_new() || self.awaits_others() {
            return;
        }
        if let Some(error) = self.error_of_old_record(now.time) {
            return self.give_up(error);
        }
        for (device, renewal) in self.watch.end_startup_wait() {
            if matches!(self.service, MonitorService::Serving) {
                self.on_device(now, device, renewal, out);
            }
        }
    }

    fn on_fence(&mut self, name: (NodeId, u64), asker: Epoch, mut wanted: FenceTable, out: &mut MonitorEffects) {
        if !self.hosts.may_fence(&wanted) {
            self.counters.fences_ahead += 1;
            if wanted.below > Generation(0) || self.config.term.is_some() {
                // A host that was started a moment ago sends it again; so does a lock server that knows of hosts which this leader is not told of yet.
                return self.ignore(Ignored::NotForUs, out);
            }
            // A lock server names all hosts that it has to get rid of in one request: one that does not exist must not keep the others in.
            wanted.also.retain(|host| self.hosts.may_exist(*host));
        }
        match self.requests.fences.take(name, asker, wanted) {
            Taken::New => self.new_reports.demand(),
            Taken::Again => self.ignore(Ignored::InProgress, out),
            Taken::Dropped => self.counters.fences_refused += 1,
        }
    }

    /// A host asks about the ownership of a file system.
    fn on_ownership(
        &mut self,
        now: Now,
        name: OwnershipName,
        asker: Epoch,
        (file_system, request): (FileSystemId, OwnershipRequest),
        out: &mut MonitorEffects,
    ) {
        if request == OwnershipRequest::Inquire {
            let result = Ok(self.record.durable().owners.of(file_system));
            let (host, ticket) = (NodeId::Host(name.0), name.1);
            return self.answer_ownership(now, vec![OwnershipAnswer { ticket, host, asker, result }], out);
        }
        if !self.hosts.may_exist(name.0) {
            return self.ignore(Ignored::NotForUs, out);
        }
        match self.requests.ownership.take(name, asker, file_system, request) {
            Taken::New => self.new_reports.demand(),
            Taken::Again => self.ignore(Ignored::InProgress, out),
            Taken::Dropped => self.counters.fences_refused += 1,
        }
    }

    pub(crate) fn answer_ownership(&mut self, now: Now, answers: Vec<OwnershipAnswer>, out: &mut MonitorEffects) {
        for answer in answers {
            match self.config.term {
                Some(_) => self.leadership.defer(answer),
                None => self.tell_ownership(now, answer, out),
            }
        }
    }

    fn tell_ownership(&mut self, now: Now, answer: OwnershipAnswer, out: &mut MonitorEffects) {
        let OwnershipAnswer { ticket, host, asker, result } = answer;
        match result {
            Ok(_) => self.counters.ownership_answers += 1,
            Err(_) => self.counters.ownership_refused += 1,
        }
        self.answer(now, host, asker, MonitorReply::Ownership { ticket, result }, out);
    }

    /// Answers the fences and take-overs that are complete.
    fn answer_fences(&mut self, now: Now, out: &mut MonitorEffects) {
        if self.requests.fences.is_empty() && self.requests.ownership.is_empty() {
            return;
        }
        let (durable, unavailable) = (&self.record.durable().membership, self.unavailable());
        let counting = durable
            .devices(|member_state| member_state != MemberState::Out)
            .filter(|device| !unavailable.contains(device));
        let counting: Vec<_> = counting.map(|device| &self.devices[&device]).collect();
        if counting.iter().any(|device| !device.may_serve(now.time)) {
            // It is about to be marked out; until that is durable, it could return with all undecided writes that it holds.
            return;
        }
        let owned = self.requests.ownership.take_done(self.record.durable(), &counting);
        for ((asker, ticket), epoch) in self.requests.fences.take_done(durable.epoch, &counting) {
            self.counters.fences += 1;
            self.answer(now, asker, epoch, MonitorReply::Fenced { ticket }, out);
        }
        self.answer_ownership(now, owned, out);
    }

    /// Answers a node whose current epoch is `epoch`.
    pub(crate) fn answer(&mut self, now: Now, to: NodeId, epoch: Epoch, reply: MonitorReply, out: &mut MonitorEffects) {
        self.watch.step(now.time);
        let durable = self.membership();
        let membership = (durable.epoch != epoch).then(|| durable.clone());
        let mut unavailable = self.unavailable();
        // Hosts that keep a lock of a volume may be waiting for a device of it, but for no other device.
        if matches!(to, NodeId::LockServer(_)) {
            unavailable.retain(|device| self.stripes.any_on(*device).is_some());
        }
        let answer = MonitorAnswer { membership, unavailable, reply };
        self.counters.messages_sent += 1;
        out.send(to, Message::MonitorAnswer(answer));
    }

    /// Tells all hosts, lock servers and devices of a new epoch.
    pub(crate) fn tell_all(&mut self, now: Now, out: &mut MonitorEffects) {
        let devices = self.devices.keys().filter(|device| self.is_to_hear(**device));
        let devices = devices.map(|device| NodeId::Device(*device));
        let all: Vec<_> = devices.chain(self.hosts.all(now.time)).collect();
        for node in all {
            self.answer(now, node, Epoch(0), MonitorReply::Changed, out);
        }
    }

    fn on_request(&mut self, request: ControlRequest) -> ControlOutcome {
        match request {
            ControlRequest::AdoptVolume { volume } => self.adopt(volume)?,
            ControlRequest::DropVolume { volume } => self.stripes.drop(volume),
            ControlRequest::NoteGenerations { last } => self.hosts.note_given(last),
        }
        Ok(())
    }

    fn adopt(&mut self, volume: VolumeDescription) -> Result<(), HostError> {
        if volume.check().is_err() {
            return Err(HostError::NoSuchVolume);
        }
        // Before the monitor serves, it does not know which devices there are.
        let serves = self.service == MonitorService::Serving;
        let next = self.record.writing().map(|next| &next.membership);
        let stays = |device| next.is_none_or(|next| next.member(device).is_some());
        let is_there = |device: &DeviceId| self.devices.contains_key(device) && stays(*device);
        if let Some(device) = volume.holders().iter().find(|device| serves && !is_there(device)) {
            return Err(HostError::NoSuchDevice { device: *device });
        }
        if self.stripes.adopt(volume) { Ok(()) } else { Err(HostError::Busy) }
    }

    /// Checks for expired leases, and whatever else is due.
    fn patrol(&mut self, now: Now) {
        if !self.watch.is_patrol_due(now.time) {
            return;
        }
        if self.watch.has_heard_all(now.time) {
            self.hosts.forget_silent(now.time, &self.config.settings);
        }
        self.suspect(now);
        self.new_reports.demand();
        let ends = self.devices.values().filter_map(Device::lease_ends);
        self.watch.plan_patrol(now.time, &self.config.settings, ends);
    }

    fn give_up(&mut self, error: MonitorError) {
        self.service = MonitorService::Unusable(error);
        self.watch.end();
    }

    pub(crate) fn ignore(&mut self, why: Ignored, out: &mut MonitorEffects) {
        self.counters.ignored += 1;
        out.ignore(why);
    }
}

impl Machine for Monitor {
    type Request = ControlRequest;
    type Outcome = ControlOutcome;
    type Disk = OneDisk;

    fn step(&mut self, now: Now, input: Input<ControlRequest>, out: &mut MonitorEffects) {
        // Before anything is answered: what a node hears may end its requests.
        self.watch.begin_step(now.time, &self.config.settings);
        if self.is_in_doubt() {
            self.watch.doubt(now.time, &self.config.settings);
        }
        match input {
            Input::Request { op, request } => out.reply(op, self.on_request(request)),
            _ if matches!(self.service, MonitorService::Unusable(_)) => {
                return self.ignore(Ignored::NotStarted, out);
            }
            Input::Start => self.start(now, out),
            Input::Message { .. } if self.is_in_doubt() => self.ignore(Ignored::NotStarted, out),
            Input::Message { from, message, .. } => {
                self.counters.messages_received += 1;
                self.on_message(now, from, message, out);
            }
            Input::DiskDone { result, .. } => {
                if let Err(error) = self.on_disk_done(now, result, out) {
                    self.give_up(error);
                }
            }
            Input::Wake => {}
        }
        if self.service == MonitorService::Serving {
            self.patrol(now);
            if !self.is_in_doubt() {
                self.grant_deferred(now, out);
            }
        }
        // It may just have found its record to be an old copy, which must not be continued.
        if self.service == MonitorService::Serving {
            if self.new_reports.is_due() && !self.may_be_behind() {
                self.decide(now, out);
            }
            self.answer_fences(now, out);
        }
    }

    fn level(&self) -> Level {
        Monitor::level(self)
    }

    fn deadline(&self) -> Option<Time> {
        self.watch.next_patrol()
    }

    fn invariants(&self) {
        assert!(self.hosts.len() <= limits::HOSTS_MAX);
        self.requests.fences.invariants();
        self.requests.ownership.invariants();
        self.requests.administrations.invariants();
        self.new_reports.invariants(self.devices.len());
        self.leadership.invariants();
        if !matches!(self.service, MonitorService::Serving) {
            return;
        }
        let durable = self.membership();
        assert!(
            durable.epoch > Epoch(0) && durable.members.iter().map(|member| &member.device).eq(self.devices.keys())
        );
        for device in self.devices.keys() {
            assert!(
                self.slot(*device).lived_by <= durable.epoch,
                "{device} cannot have adopted an epoch that was not announced"
            );
            let may_serve = self.devices[device].has_lease();
            assert!(
                !may_serve || self.is_in_for_good(*device),
                "a device that is out, or about to be, has no lease: {device}"
            );
        }
        let Recorded { owners, level, .. } = self.record.durable();
        if let Some(Recorded { membership: next, owners: next_owners, level: next_level, .. }) = self.record.writing() {
            let same = (&next.members, &next.fence, next_owners, next_level)
                == (&durable.members, &durable.fence, owners, level);
            assert!(next_level >= level, "a level never falls");
            next_owners.follow(owners, next.epoch);
            assert_eq!(next.epoch, if same { durable.epoch } else { durable.epoch.next() });
            assert!(never_shrinks(&durable.fence, &next.fence), "a fence never shrinks");
        }
    }
}
