//! The monitor's machine: who may speak, and where each message goes.

use crate::MonitorCounters;
use crate::administrations::Administrations;
use crate::fencing::{Fences, Taken, never_shrinks};
use crate::findings::Findings;
use crate::hosts::Hosts;
use crate::leases::{Device, DeviceLease, Renewal, shown};
use crate::record::{MonitorError, Recorded};
use crate::stripes::Stripes;
use crate::watch::Watch;
use braid_base::limits::{self, Settings};
use braid_base::{ArrayId, Clock, DeviceId, Epoch, FenceTable, MemberState, Membership, NodeId, Now, Time};
use braid_layout::VolumeDescription;
use braid_machine::{DiskResult, Effects, HostError, HostOutcome, HostRequest, HostSuccess, Ignored, Input, Machine};
use braid_record::{Kept, Progress};
use braid_wire::{Message, MonitorAnswer, MonitorCommand, MonitorReply, MonitorRequest};
use std::collections::BTreeMap;

/// How a monitor is to run.
#[derive(Clone, Debug)]
pub struct MonitorConfig {
    /// Whose monitor it is. No two processes may be that at a time.
    pub array: ArrayId,
    /// The devices that the array has at first. Later its record says which there are.
    pub devices: Vec<DeviceId>,
    /// Waits and spans.
    pub settings: Settings,
}

/// The array's monitor. The volumes that there are must be adopted (`HostRequest::AdoptVolume`) at once after its start: before
/// it takes a device out, it has to know all that the device has a part in.
pub struct Monitor {
    pub(crate) config: MonitorConfig,
    service: MonitorService,
    pub(crate) record: Kept<Recorded>,
    pub(crate) stripes: Stripes,
    pub(crate) devices: BTreeMap<DeviceId, Device>,
    pub(crate) hosts: Hosts,
    /// Requests to keep hosts out.
    pub(crate) fences: Fences,
    /// What operators have asked for.
    pub(crate) administrations: Administrations,
    /// What is new since something was last decided.
    pub(crate) findings: Findings,
    pub(crate) watch: Watch,
    /// The highest stamp clock that a device or host has named. Not durable: devices keep their own, and name it again.
    stamps: Clock,
    pub(crate) counters: MonitorCounters,
}

/// Whether the monitor serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonitorService {
    /// Not started.
    Off,
    /// It reads its record.
    Reading,
    /// It serves.
    Serving,
    /// It can't.
    Unusable(MonitorError),
}

impl Monitor {
    /// A monitor that is off.
    pub fn new(config: MonitorConfig) -> Monitor {
        assert!(config.devices.len() <= limits::DEVICES_MAX, "an array has no more devices");
        Monitor {
            config,
            service: MonitorService::Off,
            record: Kept::default(),
            stripes: Stripes::default(),
            devices: BTreeMap::new(),
            hosts: Hosts::default(),
            fences: Fences::default(),
            administrations: Administrations::default(),
            findings: Findings::default(),
            watch: Watch::new(),
            stamps: Clock(0),
            counters: MonitorCounters::default(),
        }
    }

    /// Whether it serves.
    pub fn service(&self) -> MonitorService {
        self.service
    }

    /// Who is in, as it is durable; of epoch zero until it has been read.
    pub fn membership(&self) -> &Membership {
        &self.record.durable().membership
    }

    /// The highest stamp clock that is known to be accepted, as far as this monitor has heard since its start.
    pub fn stamps(&self) -> Clock {
        self.stamps
    }

    /// Devices that are in and whose leases have run out, but that can't be taken out. As of the last step. One that is just going to be
    /// taken out is not named: whoever waits for it need wait no longer than that takes.
    pub fn unavailable(&self) -> Vec<DeviceId> {
        let (now, membership) = (self.watch.last_step(), self.membership());
        // Devices are known from when it serves on.
        if !self.watch.has_heard_all(now) || self.service != MonitorService::Serving {
            return Vec::new();
        }
        let gone = |device: &DeviceId| {
            let has_left = self.is_in_for_good(*device) && !self.devices[device].may_serve(now);
            has_left && !self.dependence(now).can_do_without(*device, membership)
        };
        membership.devices(|member_state| member_state == MemberState::In).filter(gone).collect()
    }

    /// What it knows of each device of the array, ascending. As of the last step.
    pub fn leases(&self) -> impl Iterator<Item = DeviceLease> + '_ {
        shown(&self.devices, self.watch.last_step())
    }

    /// What it has done.
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

    fn start(&mut self, now: Now, out: &mut Effects) {
        assert_eq!(self.service, MonitorService::Off, "a monitor is started once");
        self.service = MonitorService::Reading;
        self.watch.start(now.time, &self.config.settings);
        self.record.start(out);
    }

    fn on_disk_done(&mut self, now: Now, result: DiskResult, out: &mut Effects) -> Result<(), MonitorError> {
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
                self.findings.demand();
            }
        }
        Ok(())
    }

    /// Devices whose disks were put on record wait for what comes next.
    fn greet_learned(&mut self, now: Now, before: &Recorded, out: &mut Effects) {
        let devices: Vec<_> = self.devices.keys().copied().collect();
        for device in devices {
            if before.slot(device).disk.is_none() && self.slot(device).disk.is_some() && self.is_to_hear(device) {
                self.answer(now, NodeId::Device(device), Epoch(0), MonitorReply::Changed, out);
            }
        }
    }

    /// What was read, or the first membership of all; if it is that of this array.
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
        self.fences.change(self.record.durable().membership.epoch);
        let (settings, started) = (&self.config.settings, self.watch.started());
        for member in &self.record.durable().membership.members {
            let mut known = Device::new(started, settings);
            match member.member_state {
                MemberState::Out => known.take_out(now.time, settings),
                // What an earlier start of the monitor granted may run for so long.
                MemberState::In | MemberState::Returning { .. } => known.grant(started, settings),
            }
            self.devices.insert(member.device, known);
        }
        self.watch.plan_first_patrol(now.time, settings);
    }

    fn on_message(&mut self, now: Now, from: NodeId, message: Message, out: &mut Effects) {
        let Message::MonitorRequest(MonitorRequest { epoch, command }) = message else {
            return self.ignore(Ignored::NotForUs, out);
        };
        if self.service != MonitorService::Serving {
            return self.ignore(Ignored::NotStarted, out);
        }
        match (from, command) {
            (
                NodeId::Device(device),
                MonitorCommand::Renew { sent, silent, disk, bad_slots, failing, undecided, stamps },
            ) => {
                self.stamps = self.stamps.max(stamps);
                let (disk, unable) = (disk.unwrap_or_default(), silent.contains(&device));
                let renewal = Renewal { epoch, sent, disk, unable, bad_slots, failing, undecided };
                self.on_device(now, device, renewal, out);
            }
            (NodeId::Device(_), _) => self.ignore(Ignored::NotForUs, out),
            (_, MonitorCommand::Renew { sent, silent, stamps, .. }) => {
                self.stamps = self.stamps.max(stamps);
                match from {
                    NodeId::Host(host) => self.hosts.hear(now.time, host, silent.into_iter().collect()),
                    NodeId::LockServer(server) if self.hosts.hear_lock_server(now.time, server) => {}
                    _ => return self.ignore(Ignored::NotForUs, out),
                }
                self.answer(now, from, epoch, self.lease(sent), out);
            }
            (_, MonitorCommand::Fence { ticket, below, except, also }) => {
                let (except, also) = (except.into_iter().collect(), also.into_iter().collect());
                let wanted = FenceTable { below, except, also };
                self.on_fence((from, ticket), epoch, wanted, out);
            }
            (_, MonitorCommand::Administer { ticket, request }) => {
                self.on_administer((from, ticket), epoch, request, out);
            }
            (NodeId::Host(host), MonitorCommand::Healing { device, progress }) => {
                let recovery_coordinator = MemberState::Returning { recovery_coordinator: Some(host) };
                if self.membership().member(device).is_some_and(|member| member.member_state == recovery_coordinator) {
                    self.devices.get_mut(&device).expect("all members are known").progress = Some(progress);
                }
            }
            (_, MonitorCommand::Healing { .. }) => self.ignore(Ignored::NotForUs, out),
            (_, MonitorCommand::CaughtUp { device, since }) => {
                if !self.on_caught_up(device, since) {
                    self.ignore(Ignored::NotAwaited, out);
                    if epoch != self.membership().epoch {
                        self.answer(now, from, epoch, MonitorReply::Changed, out);
                    }
                }
            }
        }
    }

    fn lease(&self, sent: Time) -> MonitorReply {
        let (length, throttle) = (self.config.settings.device_lease, self.record.durable().throttle);
        MonitorReply::Lease { sent, length, throttle, stamps: self.stamps }
    }

    /// A device renews, and may say that it is of no use: then its lease is not prolonged, so that it is soon done without.
    fn on_device(&mut self, now: Now, device: DeviceId, renewal: Renewal, out: &mut Effects) {
        let Renewal { epoch, sent, disk, unable, .. } = renewal;
        let ours = self.membership().epoch;
        if !self.devices.contains_key(&device) {
            return self.ignore(Ignored::NotForUs, out);
        }
        let lived_by = self.slot(device).lived_by;
        let known = self.devices.get_mut(&device).expect("just seen");
        // What it has said later counts: a copy that comes late does not say that its disk is an older one, or that it is of no use.
        let is_late = known.is_late(now.time, &renewal, &self.config.settings);
        if is_late && (unable || epoch < lived_by) {
            return self.ignore(Ignored::Settled, out);
        }
        if !is_late {
            known.said.unable = unable;
        }
        // Another disk may have lived by any epoch.
        let is_another = self.slot(device).disk.is_some_and(|expected| expected != disk);
        if (is_another || epoch <= ours) && !self.admits(now, device, disk, epoch, out) {
            return;
        }
        if epoch > ours {
            return self.give_up(MonitorError::Behind { device, theirs: epoch, ours });
        }
        let may_have_lease = self.is_in_for_good(device);
        let is_outdated = epoch < lived_by;
        if !is_late {
            self.devices.get_mut(&device).expect("just seen").hear(now.time, &renewal, is_outdated);
        }
        let waits = self.awaits_others();
        let known = self.devices.get_mut(&device).expect("just seen");
        let reply = if is_outdated {
            self.counters.outdated += 1;
            MonitorReply::Changed
        } else if waits {
            self.watch.defer(device, renewal);
            MonitorReply::Changed
        } else if may_have_lease && !known.refused && !known.said.unable {
            known.grant(now.time, &self.config.settings);
            self.counters.leases += 1;
            self.lease(sent)
        } else {
            MonitorReply::Changed
        };
        self.answer(now, NodeId::Device(device), epoch, reply, out);
    }

    /// True if it gives no lease before it has heard others.
    fn awaits_others(&self) -> bool {
        let heard = self.devices.values().map(|known| known.said.heard.is_some());
        self.watch.awaits_others(&self.config.settings, heard)
    }

    /// All have been heard, or have had the time: what they have asked for meanwhile they get.
    fn grant_deferred(&mut self, now: Now, out: &mut Effects) {
        if !self.watch.is_new() || self.awaits_others() {
            return;
        }
        for (device, renewal) in self.watch.settle() {
            if matches!(self.service, MonitorService::Serving) {
                self.on_device(now, device, renewal, out);
            }
        }
    }

    fn on_fence(&mut self, name: (NodeId, u64), asker: Epoch, wanted: FenceTable, out: &mut Effects) {
        match self.fences.take(name, asker, wanted) {
            Taken::New => self.findings.demand(),
            Taken::Again => self.ignore(Ignored::InProgress, out),
            Taken::Dropped => self.counters.fences_refused += 1,
        }
    }

    /// Answers the fences that are done.
    fn answer_fences(&mut self, now: Now, out: &mut Effects) {
        if self.fences.is_empty() {
            return;
        }
        let (durable, unavailable) = (&self.record.durable().membership, self.unavailable());
        let counting = durable
            .devices(|member_state| member_state != MemberState::Out)
            .filter(|device| !unavailable.contains(device));
        let counting: Vec<_> = counting.map(|device| &self.devices[&device]).collect();
        if counting.iter().any(|device| !device.may_serve(now.time)) {
            // It is about to be taken out; until that is durable, it could come back with all that it holds.
            return;
        }
        for ((asker, ticket), epoch) in self.fences.take_done(durable.epoch, &counting) {
            self.counters.fences += 1;
            self.answer(now, asker, epoch, MonitorReply::Fenced { ticket }, out);
        }
    }

    /// Answers somebody who lives by `epoch`.
    pub(crate) fn answer(&mut self, now: Now, to: NodeId, epoch: Epoch, reply: MonitorReply, out: &mut Effects) {
        self.watch.step(now.time);
        let durable = self.membership();
        let membership = (durable.epoch != epoch).then(|| durable.clone());
        let answer = MonitorAnswer { membership, unavailable: self.unavailable(), reply };
        self.counters.messages_sent += 1;
        out.send(to, Message::MonitorAnswer(answer));
    }

    /// Tells everybody of a new epoch.
    pub(crate) fn tell_all(&mut self, now: Now, out: &mut Effects) {
        let devices = self.devices.keys().filter(|device| self.is_to_hear(**device));
        let devices = devices.map(|device| NodeId::Device(*device));
        let all: Vec<_> = devices.chain(self.hosts.all(now.time)).collect();
        for node in all {
            self.answer(now, node, Epoch(0), MonitorReply::Changed, out);
        }
    }

    fn on_request(&mut self, request: HostRequest) -> HostOutcome {
        match request {
            HostRequest::AdoptVolume { volume } => self.adopt(volume)?,
            HostRequest::DropVolume { volume } => self.stripes.drop(volume),
            other => panic!("a monitor is not asked for this: {other:?}"),
        }
        Ok(HostSuccess::Done)
    }

    fn adopt(&mut self, volume: VolumeDescription) -> Result<(), HostError> {
        if volume.check().is_err() {
            return Err(HostError::NoSuchVolume);
        }
        // Before it serves, nobody knows which there are.
        let serves = self.service == MonitorService::Serving;
        if let Some(device) = volume.holders().iter().find(|device| serves && !self.devices.contains_key(device)) {
            return Err(HostError::NoSuchDevice { device: *device });
        }
        if self.stripes.adopt(volume) { Ok(()) } else { Err(HostError::Busy) }
    }

    /// Looks for leases that have run out, and what else time has brought.
    fn patrol(&mut self, now: Now) {
        if !self.watch.is_patrol_due(now.time, &self.config.settings) {
            return;
        }
        self.hosts.forget_silent(now.time, &self.config.settings);
        self.suspect(now);
        self.findings.demand();
        let ends = self.devices.values().filter_map(Device::lease_ends);
        self.watch.plan_patrol(now.time, &self.config.settings, ends);
    }

    fn give_up(&mut self, error: MonitorError) {
        self.service = MonitorService::Unusable(error);
        self.watch.end();
    }

    pub(crate) fn ignore(&mut self, why: Ignored, out: &mut Effects) {
        self.counters.ignored += 1;
        out.ignore(why);
    }
}

impl Machine for Monitor {
    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
        self.watch.step(now.time);
        match input {
            Input::Request { op, request } => out.reply(op, self.on_request(request)),
            _ if matches!(self.service, MonitorService::Unusable(_)) => {
                return self.ignore(Ignored::NotStarted, out);
            }
            Input::Start => self.start(now, out),
            Input::Message { from, message } => {
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
            self.grant_deferred(now, out);
            if self.findings.is_due() {
                self.decide(now, out);
            }
            self.answer_fences(now, out);
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.watch.next_patrol()
    }

    fn invariants(&self) {
        assert!(self.hosts.len() <= limits::HOSTS_MAX);
        self.fences.invariants();
        self.administrations.invariants();
        self.findings.invariants(self.devices.len());
        if !matches!(self.service, MonitorService::Serving) {
            return;
        }
        let durable = self.membership();
        assert!(
            durable.epoch > Epoch(0) && durable.members.iter().map(|member| &member.device).eq(self.devices.keys())
        );
        for device in self.devices.keys() {
            assert!(self.slot(*device).lived_by <= durable.epoch, "{device} lives by what was told");
            let may_serve = self.devices[device].has_lease();
            assert!(
                !may_serve || self.is_in_for_good(*device),
                "who is out, or is going to be, has no lease: {device}"
            );
        }
        if let Some(next) = self.record.writing().map(|next| &next.membership) {
            let same = (&next.members, &next.fence) == (&durable.members, &durable.fence);
            assert_eq!(next.epoch, if same { durable.epoch } else { durable.epoch.next() });
            assert!(never_shrinks(&durable.fence, &next.fence), "whoever is kept out stays so");
        }
    }
}
