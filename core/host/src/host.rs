//! The host's machine. It takes requests of front ends, answers of devices, and timers, and routes each to the part
//! that handles it.

use crate::ctx::{Ctx, RequestTimer, Timer};
use crate::disconnect::{Rest, begins_something};
use crate::object_requests::RequestContent;
use crate::range_locks::{Locks, PROGRAMS, RangeLocks};
use crate::requests::DeviceRequests;
use braid_base::limits::Settings;
use braid_base::{DeviceId, Generation, Level, LockServerId, Membership, NodeId, Now, ObjectId, Rng, Time, VolumeId};
use braid_healing::{Healing, StepId};
use braid_layout::VolumeDescription;
use braid_locks::client::{Acquisition, Ctx as LockCtx, LockClient, LockClientConfig, Part};
use braid_machine::{
    ArrayRequest, HostEffects, HostError, HostInput, HostMachine, HostOutcome, HostRequest, HostSuccess, Ignored,
    Input, JobRequest, Machine, NoDisk, ObjectsRequest, OpId, RangesRequest, VolumeRequest,
};
use braid_membership::client::MonitorClient;
use braid_transactions::{
    Abandoned, Coordinator, Ctx as TransactionCtx, Event, HostCounters, Links, ObservedDevice, OperationId,
    Timer as TransactionTimer, refused_for_space,
};
use braid_wire::locking::LockExtent;
use braid_wire::{Answer, Message, Rejection, Reply};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// A part of the array that refuses requests for want of space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Short {
    /// A device has no space for what was to be written to a volume, or a bucket of an attribute volume is full.
    Volume(VolumeId),
    /// A device has no space for objects.
    Device(DeviceId),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostConfig {
    /// A new generation from the control plane, never used by another host.
    pub generation: Generation,
    /// The membership, if it never changes. `None` if a monitor decides it.
    pub membership: Option<Membership>,
    /// All devices of the array.
    pub devices: Vec<DeviceId>,
    /// All lock servers of the array. Empty if no volume needs one.
    pub lock_servers: Vec<LockServerId>,
    /// How locks of several lock servers are acquired.
    pub acquisition: Acquisition,
    /// The volumes known at the start. More can be adopted.
    pub volumes: Vec<VolumeDescription>,
    /// Those that are on hold at the start.
    pub held: BTreeSet<VolumeId>,
    /// Time-outs, intervals and limits.
    pub settings: Settings,
    /// Seed of the random source for the back-off.
    pub seed: u64,
}

/// The part of the host whose lock holders are transactions.
const TRANSACTIONS: Part = Part(0);

#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) config: HostConfig,
    rng: Rng,
    pub(crate) volumes: BTreeMap<VolumeId, Rc<VolumeDescription>>,
    /// The volumes on hold.
    pub(crate) held: BTreeSet<VolumeId>,
    pub(crate) monitor: MonitorClient,
    pub(crate) links: Links,
    pub(crate) coordinator: Coordinator,
    pub(crate) requests: DeviceRequests,
    pub(crate) locks: Locks,
    pub(crate) healing: Healing,
    /// Steps of background jobs that have ended.
    steps_done: Vec<(StepId, HostOutcome)>,
    pub(crate) counters: HostCounters,
}

impl Host {
    /// Creates a host that has not started.
    pub fn new(config: HostConfig) -> Host {
        let volumes = config.volumes.iter().map(|volume| (volume.id, Rc::new(volume.clone()))).collect();
        Host {
            rng: Rng::new(config.seed),
            volumes,
            held: config.held.clone(),
            links: Links::new(&config.devices),
            coordinator: Coordinator::new(config.generation),
            requests: DeviceRequests::default(),
            locks: Locks {
                client: LockClient::new(LockClientConfig {
                    host: config.generation,
                    servers: config.lock_servers.clone(),
                    acquisition: config.acquisition,
                }),
                ranges: RangeLocks::default(),
            },
            healing: Healing::default(),
            steps_done: Vec::new(),
            monitor: MonitorClient::of_host(config.membership.clone()),
            counters: HostCounters::default(),
            config,
        }
    }

    /// The counters since the start.
    pub fn counters(&self) -> HostCounters {
        let (jobs, locks) = (self.healing.counters(), self.locks.client.counters());
        let mut sum = HostCounters {
            resent: locks.resent,
            lock_requests: locks.requests,
            lock_answers: locks.answers,
            lock_waits: locks.waits,
            lock_hits: locks.hits,
            revocations: locks.revocations,
            rows_checked: jobs.rows_checked,
            rows_recomputed: jobs.rows_recomputed,
            corruption_found: jobs.corrupt,
            corruption_repaired: jobs.repaired,
            ..self.counters
        };
        sum.resent += self.counters.resent;
        sum.add(self.links.counters());
        sum.add(self.coordinator.counters());
        sum
    }

    /// True if nothing is under way: no operation, no transaction that is not over, no resolution.
    pub fn is_idle(&self) -> bool {
        self.requests.objects.is_empty() && self.coordinator.is_idle() && self.locks.client.is_settled()
    }

    /// A volume as this host knows it.
    pub fn volume(&self, volume: VolumeId) -> Option<&VolumeDescription> {
        self.volumes.get(&volume).map(|volume| &**volume)
    }

    /// True if no operation and no transaction of one volume is under way, and no recovery creates or changes objects of it.
    pub fn is_idle_for(&self, volume: VolumeId) -> bool {
        self.coordinator.is_idle_for(volume) && self.healing.is_idle_for(volume)
    }

    /// The patient operations that wait for something that is missing: how many they are, how long the oldest has waited,
    /// and the devices that they lack.
    pub fn waiting(&self, now: Time) -> (usize, Duration, BTreeSet<DeviceId>) {
        braid_transactions::waiting(&self.coordinator, self.monitor.view(), now, &self.config.settings)
    }

    /// True if the array refuses this host for good.
    pub fn is_fenced(&self) -> bool {
        self.coordinator.is_fenced()
    }

    /// The client of the lock servers, for inspection. What it [holds](LockClient::held) no other host may hold, unless this host is fenced.
    pub fn locks(&self) -> &LockClient {
        &self.locks.client
    }

    /// The locks of ranges that programs of this host have, and their leases (true), for inspection.
    pub fn locked_ranges(&self) -> impl Iterator<Item = (u64, ObjectId, Vec<LockExtent>, bool)> {
        self.locks.client.locked(PROGRAMS).filter(|(lock, ..)| !self.locks.ranges.is_lost(*lock))
    }

    /// When each device was last heard.
    pub fn last_heard(&self) -> impl Iterator<Item = (DeviceId, Option<Time>)> + '_ {
        self.links.devices().map(|device| (device, self.links.last_heard(device)))
    }

    /// What this host observes of each device.
    pub fn observed_devices(&self) -> impl Iterator<Item = (DeviceId, ObservedDevice)> + '_ {
        self.links.observed()
    }

    /// How many operations on volumes, and how many requests for objects of devices, failed for want of space.
    pub fn refused_for_space(&self) -> impl Iterator<Item = (Short, u64)> + '_ {
        let volumes = refused_for_space(&self.coordinator).map(|(volume, count)| (Short::Volume(volume), count));
        let devices = self.requests.objects.refused_for_space().map(|(device, count)| (Short::Device(device), count));
        volumes.chain(devices)
    }

    /// The devices that the monitor last called unavailable.
    pub fn unavailable(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.monitor.view().unavailable().iter().copied()
    }

    fn on_start(&mut self, now: Now, out: &mut HostEffects) {
        if self.monitor.has_monitor() {
            return self.monitor.start(now.time);
        }
        for device in self.config.devices.clone() {
            self.send_heartbeat(now, device, out);
        }
    }

    pub(crate) fn on_request(&mut self, now: Now, op: OpId, request: HostRequest, out: &mut HostEffects) {
        if let HostRequest::Array(ArrayRequest::Abandon { ops }) = &request {
            self.coordinate(now, out, |coordinator, ctx| coordinator.abandon(ctx, Abandoned::Users(ops)));
            self.lock_ranges(now, out, |locks, cx| locks.abandon(cx, ops));
            return out.reply(op, Ok(HostSuccess::Done));
        }
        if is_of_user(&request) {
            self.healing.on_user(now.time);
        }
        match request {
            HostRequest::Array(ArrayRequest::AdoptVolume { volume }) => {
                let (id, before) = (volume.id, self.volumes.get(&volume.id).cloned());
                out.reply(op, self.adopt(volume));
                if before.is_some_and(|before| self.volumes.get(&id) != Some(&before)) {
                    self.heal(now, out, |healing, ctx| healing.on_volume_changed(ctx));
                }
            }
            HostRequest::Array(ArrayRequest::DropVolume { volume }) => {
                let was_known = self.volumes.remove(&volume).is_some();
                self.held.remove(&volume);
                out.reply(op, Ok(HostSuccess::Done));
                if was_known {
                    self.heal(now, out, |healing, ctx| healing.on_volume_dropped(ctx, volume));
                }
            }
            HostRequest::Job(JobRequest::Scrub { volume, stripes, repair, recompute }) => {
                self.heal(now, out, |healing, ctx| healing.scrub(ctx, op, volume, stripes, (repair, recompute)));
            }
            HostRequest::Job(JobRequest::Migrate { volume, from, bytes_per_second }) => {
                self.heal(now, out, |healing, ctx| healing.migrate(ctx, op, volume, from, bytes_per_second));
            }
            HostRequest::Array(ArrayRequest::HoldVolume { volume }) => {
                self.held.insert(volume);
                self.heal(now, out, |healing, ctx| healing.stop_migrating(ctx, volume));
                out.reply(op, Ok(HostSuccess::Done));
            }
            HostRequest::Array(
                request @ (ArrayRequest::Fence { .. }
                | ArrayRequest::Administer { .. }
                | ArrayRequest::Ownership { .. }
                | ArrayRequest::Membership),
            ) => self.ask_monitor(now, op, request, out),
            HostRequest::Objects(ObjectsRequest::Execute { device, request, patience }) => {
                self.start_objects(now, op, device, RequestContent::Commands(request), patience, out);
            }
            HostRequest::Objects(ObjectsRequest::Await { device, object, name, seen, patience }) => {
                self.start_objects(now, op, device, RequestContent::Change { object, name, seen }, patience, out);
            }
            HostRequest::Ranges(request) if self.is_fenced() && !matches!(request, RangesRequest::Unlock { .. }) => {
                out.reply(op, Err(HostError::Fenced))
            }
            HostRequest::Ranges(request) => self.lock_ranges(now, out, |locks, cx| locks.start(cx, op, request)),
            HostRequest::Array(ArrayRequest::Disconnect) => {
                self.lock_ranges(now, out, |locks, cx| locks.end_all(cx, &HostError::Disconnecting));
                self.coordinate(now, out, |coordinator, ctx| coordinator.abandon(ctx, Abandoned::Patient));
                let (requests, mut ctx) = self.requests(now, out);
                if requests.disconnect(&mut ctx, op) {
                    self.tell_disconnect(now, out);
                }
            }
            // Nothing to do: every write is durable when it is answered.
            HostRequest::Volume(VolumeRequest::Flush { .. }) => out.reply(op, Ok(HostSuccess::Done)),
            request => self.start(now, OperationId::User(op), request, out),
        }
    }

    /// Starts an operation that users and background jobs may ask for: a storage transaction, or a task for a device.
    pub(crate) fn start(&mut self, now: Now, op: OperationId, request: HostRequest, out: &mut HostEffects) {
        if let HostRequest::Array(ArrayRequest::Manage { device, task }) = request {
            let (requests, mut ctx) = self.requests(now, out);
            return requests.tasks.start(&mut ctx, op, device, task);
        }
        let volume = request.volume().expect("all other requests are served by on_request");
        let moves = matches!(&request, HostRequest::Job(JobRequest::Restore { target: true, .. }));
        let volume = match self.volumes.get(&volume) {
            _ if self.is_fenced() => Err(HostError::Fenced),
            None => Err(HostError::NoSuchVolume),
            Some(volume) if moves => volume.target().map(Rc::new).ok_or(HostError::NotMoving),
            Some(volume) => Ok(volume.clone()),
        };
        match volume {
            Ok(volume) => self.coordinate(now, out, |coordinator, ctx| coordinator.start(ctx, op, volume, request)),
            Err(error) => self.reply(op, Err(error), out),
        }
    }

    fn adopt(&mut self, volume: VolumeDescription) -> HostOutcome {
        let known = |device: &DeviceId| self.links.has(*device);
        if volume.check().is_err() || !volume.holders().iter().all(known) {
            return Err(HostError::NoSuchVolume);
        }
        self.held.remove(&volume.id);
        self.volumes.insert(volume.id, Rc::new(volume));
        Ok(HostSuccess::Done)
    }

    fn on_message(&mut self, now: Now, from: NodeId, message: Message, out: &mut HostEffects) {
        let (device, answer) = match (from, message) {
            (NodeId::Device(device), Message::Answer(answer)) => (device, answer),
            (NodeId::LockServer(server), Message::LockAnswer(answer)) => {
                self.lock(now, out, |locks, cx| locks.on_answer(cx, server, answer));
                return self.on_lock_events(now, out);
            }
            (NodeId::Monitor, Message::MonitorAnswer(answer)) => return self.on_monitor(now, answer, out),
            _ => return out.ignore(Ignored::NotForUs),
        };
        if !self.links.heard(now, device) {
            return out.ignore(Ignored::NotForUs);
        }
        self.counters.answers += 1;
        let Answer { epoch, confirmed, reply } = answer;
        if let Reply::Rejected { rejection } = reply {
            return self.on_rejected(now, device, rejection, out);
        }
        // These replies belong to no transaction, and so to no epoch.
        if matches!(reply, Reply::Objects { .. } | Reply::Changed { .. } | Reply::Managed { .. }) {
            let (requests, mut ctx) = self.requests(now, out);
            return requests.on_reply(&mut ctx, device, reply);
        }
        if epoch != self.monitor.epoch() {
            if epoch > self.monitor.epoch() {
                self.ask_for_news(now, out);
            }
            return out.ignore(Ignored::OtherEpoch);
        }
        self.coordinate(now, out, |coordinator, ctx| {
            confirmed.into_iter().for_each(|sequence| coordinator.on_confirmed(ctx, device, sequence));
        });
        match reply {
            Reply::Heartbeat { orphans, suspects, busy } => {
                self.links.heard_heartbeat(now, device);
                self.healing.on_busy(now.time, device, busy, self.config.settings.heartbeat);
                if self.links.has_adopted(device) {
                    self.on_adoption(now, device);
                }
                if !self.requests.is_disconnecting() {
                    self.coordinate(now, out, |coordinator, ctx| coordinator.on_orphans(ctx, orphans));
                }
                self.on_suspects(now, device, suspects, out);
            }
            reply => {
                if let Reply::Forgotten { transaction } = reply
                    && transaction.host == self.config.generation
                {
                    self.requests.on_forgotten(&mut self.links, device, transaction.sequence);
                }
                self.coordinate(now, out, |coordinator, ctx| coordinator.on_reply(ctx, device, reply));
            }
        }
    }

    /// A device has rejected a request: because this host is fenced, because its epoch is another, or because the
    /// device has no room for another host at present.
    fn on_rejected(&mut self, now: Now, device: DeviceId, rejection: Rejection, out: &mut HostEffects) {
        match rejection {
            Rejection::Fenced => self.on_fenced(now, out),
            // A device with an earlier epoch asks for the newer membership itself.
            Rejection::WrongEpoch { current } if current < self.monitor.epoch() => {
                self.await_adoption(now, device, out);
            }
            Rejection::WrongEpoch { current } if current > self.monitor.epoch() => self.ask_for_news(now, out),
            Rejection::WrongEpoch { .. } => {}
            // There is room again when other hosts have ended. Requests to this device are sent again until their time
            // is up.
            Rejection::TooManyHosts => self.links.turned_away(device),
        }
    }

    /// This host is fenced: the array refuses it for good.
    pub(crate) fn on_fenced(&mut self, now: Now, out: &mut HostEffects) {
        let (requests, mut ctx) = self.requests(now, out);
        requests.objects.end_all(&mut ctx, &HostError::Fenced);
        self.coordinate(now, out, Coordinator::on_fenced);
        self.lock_ranges(now, out, Locks::lose_all);
    }

    /// The next timer of the host or its parts.
    fn next_timer(&self) -> Option<(Time, Timer)> {
        let of_coordinator = |timer| match timer {
            TransactionTimer::Resolve(_) => Timer::Resolution(timer),
            _ => Timer::Transactions(timer),
        };
        let transactions = self.coordinator.next_timer().map(|(time, timer)| (time, of_coordinator(timer)));
        let link = self.links.next_timer().map(|(time, timer)| (time, Timer::Link(timer)));
        let request = self.requests.next_timer().map(|(time, timer)| (time, Timer::Request(timer)));
        let locks = self.locks.next_timer(&self.config.settings);
        let monitor = self.monitor.deadline().map(|time| (time, Timer::Monitor));
        transactions.into_iter().chain(link).chain(request).chain(locks).chain(monitor).min()
    }

    fn on_wake(&mut self, now: Now, out: &mut HostEffects) {
        loop {
            // Background jobs come after other timers that are due at the same time.
            let (own, jobs) = (self.next_timer(), self.healing.deadline());
            if jobs.is_some_and(|jobs| jobs <= now.time && own.is_none_or(|(own, _)| jobs < own)) {
                self.heal(now, out, |healing, ctx| healing.wake(ctx));
                continue;
            }
            let Some((_, timer)) = own.filter(|(time, _)| *time <= now.time) else { break };
            match timer {
                Timer::Transactions(timer) | Timer::Resolution(timer) => {
                    self.coordinate(now, out, |coordinator, ctx| coordinator.wake(ctx, timer));
                }
                Timer::Link(timer) => {
                    let (_, mut ctx) = self.requests(now, out);
                    let (links, mut outbound) = ctx.outbound();
                    links.wake(&mut outbound, timer);
                }
                // Handled here, since a disconnect depends on what else is under way.
                Timer::Request(RequestTimer::Disconnect) => {
                    self.requests.take_disconnect_timer();
                    self.tell_disconnect(now, out);
                }
                Timer::Request(timer) => {
                    let (requests, mut ctx) = self.requests(now, out);
                    requests.wake(&mut ctx, timer);
                }
                Timer::Locks => {
                    self.lock(now, out, LockClient::wake);
                    self.on_lock_events(now, out);
                }
                Timer::Ranges => self.lock_ranges(now, out, Locks::wake),
                Timer::Monitor => self.on_monitor_timer(now, out),
            }
        }
    }

    /// Runs `what` on the coordinator, and then handles the events that it emitted.
    pub(crate) fn coordinate(
        &mut self,
        now: Now,
        out: &mut HostEffects,
        what: impl FnOnce(&mut Coordinator, &mut TransactionCtx),
    ) {
        self.lend_to_coordinator(now, out, what);
        self.on_transaction_events(now, out);
    }

    fn lend_to_coordinator(
        &mut self,
        now: Now,
        out: &mut HostEffects,
        what: impl FnOnce(&mut Coordinator, &mut TransactionCtx),
    ) {
        let Host { config, monitor, coordinator, links, locks, rng, .. } = self;
        let (host, settings, view) = (config.generation, &config.settings, monitor.view());
        let locks = locks.client.of_part(TRANSACTIONS);
        what(coordinator, &mut TransactionCtx { now, host, settings, view, links, locks, rng, out });
    }

    fn on_transaction_events(&mut self, now: Now, out: &mut HostEffects) {
        while let Some(event) = self.coordinator.pop_event() {
            match event {
                Event::Ended { op, outcome } => self.reply(op, outcome, out),
                Event::Interrupted { transaction, volume, linkage } => {
                    self.heal(now, out, |healing, ctx| healing.on_interrupted(ctx, transaction, volume, linkage));
                }
                Event::Damaged { volume, device, block } => {
                    self.heal(now, out, |healing, ctx| healing.on_checksum_error(ctx, &volume, device, block));
                }
            }
        }
    }

    /// Runs `act` on the client of the lock servers, for events that belong to no part. Each part asks for its own
    /// results.
    fn lock<R>(&mut self, now: Now, out: &mut HostEffects, act: impl FnOnce(&mut LockClient, &mut LockCtx) -> R) -> R {
        let Host { config, links, locks, .. } = self;
        let mut number = || links.take_sequence();
        act(&mut locks.client, &mut LockCtx { now, settings: &config.settings, number: &mut number, out })
    }

    /// Runs `act` on the locks of programs.
    fn lock_ranges(&mut self, now: Now, out: &mut HostEffects, act: impl FnOnce(&mut Locks, &mut LockCtx)) {
        let Host { config, links, locks, .. } = self;
        let mut number = || links.take_sequence();
        act(locks, &mut LockCtx { now, settings: &config.settings, number: &mut number, out });
    }

    /// Each part of the host handles the events of its own locks.
    fn on_lock_events(&mut self, now: Now, out: &mut HostEffects) {
        self.coordinate(now, out, Coordinator::on_lock_events);
        self.lock_ranges(now, out, Locks::on_events);
    }

    /// Continues with lock holders of this host whose turn has come.
    fn take_turns(&mut self, now: Now, out: &mut HostEffects) {
        while self.lock(now, out, LockClient::take_turn) {
            self.lend_to_coordinator(now, out, Coordinator::on_lock_events);
            self.lock_ranges(now, out, Locks::on_events);
        }
        self.on_transaction_events(now, out);
    }

    /// The requests to devices, and the context that they need.
    pub(crate) fn requests<'a>(&'a mut self, now: Now, out: &'a mut HostEffects) -> (&'a mut DeviceRequests, Ctx<'a>) {
        let Host { config, monitor, links, requests, rng, counters, steps_done, .. } = self;
        let (host, epoch, settings) = (config.generation, monitor.epoch(), &config.settings);
        (requests, Ctx { now, host, epoch, settings, links, rng, counters, steps_done, out })
    }

    fn start_objects(
        &mut self,
        now: Now,
        op: OpId,
        device: DeviceId,
        content: RequestContent,
        patience: Duration,
        out: &mut HostEffects,
    ) {
        if self.is_fenced() {
            return out.reply(op, Err(HostError::Fenced));
        }
        let (requests, mut ctx) = self.requests(now, out);
        if let Err(error) = requests.objects.start(&mut ctx, op, device, content, patience) {
            out.reply(op, Err(error));
        }
    }

    /// Continues a graceful disconnect as far as possible. Called whenever something has ended.
    fn go_on_disconnecting(&mut self, now: Now, out: &mut HostEffects) {
        if !self.requests.awaits_disconnect() {
            return;
        }
        let rest = Rest {
            operations: self.coordinator.has_operations(),
            transactions: self.coordinator.has_transactions(),
            locks: !self.locks.client.is_empty(),
            fenced: self.is_fenced(),
            devices_out: self.links.devices().filter(|device| self.view().is_out(*device)).collect(),
        };
        let (requests, mut ctx) = self.requests(now, out);
        if requests.go_on_disconnecting(&mut ctx, &rest) {
            self.lock(now, out, LockClient::release_cached);
            self.tell_disconnect(now, out);
        }
    }

    fn tell_disconnect(&mut self, now: Now, out: &mut HostEffects) {
        let before = self.requests.disconnect_ticket();
        self.go_on_disconnecting(now, out);
        let (requests, mut ctx) = self.requests(now, out);
        requests.tell_disconnect(&mut ctx, before);
    }

    pub(crate) fn send_heartbeat(&mut self, now: Now, device: DeviceId, out: &mut HostEffects) {
        let (_, mut ctx) = self.requests(now, out);
        let (links, mut outbound) = ctx.outbound();
        links.send_heartbeat(&mut outbound, device);
    }

    /// Answers the front end or the background job that asked.
    pub(crate) fn reply(&mut self, op: OperationId, outcome: HostOutcome, out: &mut HostEffects) {
        match op {
            OperationId::User(op) => out.reply(op, outcome),
            OperationId::Job(step) => self.steps_done.push((StepId(step), outcome)),
        }
    }
}

/// True for a request of a user, whom background jobs must not slow down.
fn is_of_user(request: &HostRequest) -> bool {
    !matches!(
        request,
        HostRequest::Job(JobRequest::Scrub { .. })
            | HostRequest::Array(
                ArrayRequest::Manage { .. }
                    | ArrayRequest::Administer { .. }
                    | ArrayRequest::Ownership { .. }
                    | ArrayRequest::Membership
            )
    )
}

impl HostMachine for Host {
    fn knows(&self, volume: VolumeId) -> bool {
        self.volumes.contains_key(&volume)
    }
}

impl Machine for Host {
    type Request = HostRequest;
    type Outcome = HostOutcome;
    type Disk = NoDisk;

    fn step(&mut self, now: Now, input: HostInput, out: &mut HostEffects) {
        let heartbeat = self.config.settings.heartbeat;
        self.links.take_step(now.time, heartbeat);
        match input {
            Input::Start => self.on_start(now, out),
            Input::Message { from, message, .. } => self.on_message(now, from, message, out),
            Input::Request { op, request } if self.requests.is_disconnecting() && begins_something(&request) => {
                out.reply(op, Err(HostError::Disconnecting));
            }
            Input::Request { op, request } => self.on_request(now, op, request, out),
            Input::Wake => {}
        }
        // Ended steps can lead to timers that are due now, and these to more ended steps.
        loop {
            for (step, outcome) in std::mem::take(&mut self.steps_done) {
                self.heal(now, out, |healing, ctx| healing.answered(ctx, step, outcome));
            }
            self.on_wake(now, out);
            if self.steps_done.is_empty() {
                break;
            }
        }
        self.take_turns(now, out);
        self.go_on_disconnecting(now, out);
    }

    fn level(&self) -> Level {
        self.monitor.level()
    }

    fn deadline(&self) -> Option<Time> {
        let own = self.next_timer().map(|(time, _)| time);
        own.into_iter().chain(self.healing.deadline()).min()
    }

    fn invariants(&self) {
        self.locks.invariants();
        self.coordinator.invariants(self.locks.client.holders(TRANSACTIONS));
        self.links.invariants();
        self.requests.invariants();
        self.monitor.invariants();
        self.healing.invariants(self.requests.is_disconnecting());
    }
}
