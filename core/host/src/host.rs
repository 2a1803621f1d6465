//! The host's machine: requests of front ends in, answers of devices in, timers.

use crate::abandon::Abandoned;
use crate::counters::HostCounters;
use crate::ctx::{Ctx, OperationId, Timer};
use crate::disconnect::{Rest, begins_something};
use crate::links::Links;
use crate::object_requests::Asks;
use crate::operation::Operation;
use crate::requests::DeviceRequests;
use crate::resolve::Resolution;
use crate::transaction::Transaction;
use braid_base::limits::{self, Settings};
use braid_base::{
    DeviceId, Generation, LockServerId, Membership, NodeId, Now, Rng, StampSource, Time, Timers, TransactionId,
    VolumeId,
};
use braid_healing::{Healing, StepId};
use braid_layout::VolumeDescription;
use braid_locks::client::{Acquisition, LockClient, LockClientConfig};
use braid_machine::{Effects, HostError, HostOutcome, HostRequest, HostSuccess, Ignored, Input, Machine, OpId};
use braid_membership::client::MonitorClient;
use braid_wire::{Answer, Command, Message, Rejection, Reply};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// How a host is to run.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Fresh from the control plane, used by no other host ever.
    pub generation: Generation,
    /// Who is in, if that never changes; none if a monitor says who is.
    pub membership: Option<Membership>,
    /// All devices of the array.
    pub devices: Vec<DeviceId>,
    /// All lock servers of the array; none if no volume needs one.
    pub lock_servers: Vec<LockServerId>,
    /// How locks of several lock servers are acquired.
    pub acquisition: Acquisition,
    /// The volumes known at the start; more can be adopted.
    pub volumes: Vec<VolumeDescription>,
    /// Waits and spans.
    pub settings: Settings,
    /// For the dice of the back-off.
    pub seed: u64,
}

/// A host.
pub struct Host {
    pub(crate) config: HostConfig,
    pub(crate) stamps: StampSource,
    pub(crate) rng: Rng,
    pub(crate) volumes: BTreeMap<VolumeId, Rc<VolumeDescription>>,
    pub(crate) monitor: MonitorClient,
    pub(crate) links: Links,
    /// Large as they are, these two are kept in boxes, so that their neighbours in the table need not be moved.
    pub(crate) operations: BTreeMap<OperationId, Box<Operation>>,
    pub(crate) transactions: BTreeMap<u64, Box<Transaction>>,
    /// Operations whose user is gone.
    pub(crate) abandoned: Abandoned,
    pub(crate) resolutions: BTreeMap<TransactionId, Resolution>,
    pub(crate) requests: DeviceRequests,
    pub(crate) locks: LockClient,
    pub(crate) healing: Healing,
    /// Steps of background jobs that have ended.
    steps_done: Vec<(StepId, HostOutcome)>,
    pub(crate) timers: Timers<Timer>,
    /// Somebody told us that we are fenced: nothing is served any more.
    pub(crate) fenced: bool,
    pub(crate) counters: HostCounters,
}

impl Host {
    /// A host that has not started.
    pub fn new(config: HostConfig) -> Host {
        let volumes = config.volumes.iter().map(|volume| (volume.id, Rc::new(volume.clone()))).collect();
        Host {
            stamps: StampSource::new(config.generation),
            rng: Rng::new(config.seed),
            volumes,
            links: Links::new(&config.devices),
            operations: BTreeMap::new(),
            transactions: BTreeMap::new(),
            abandoned: Abandoned::default(),
            resolutions: BTreeMap::new(),
            requests: DeviceRequests::default(),
            locks: LockClient::new(LockClientConfig {
                host: config.generation,
                servers: config.lock_servers.clone(),
                acquisition: config.acquisition,
            }),
            healing: Healing::default(),
            steps_done: Vec::new(),
            monitor: MonitorClient::of_host(config.membership.clone()),
            timers: Timers::default(),
            fenced: false,
            counters: HostCounters::default(),
            config,
        }
    }

    /// What it has done so far.
    pub fn counters(&self) -> HostCounters {
        let (jobs, locks) = (self.healing.counters(), self.locks.counters());
        HostCounters {
            resent: self.counters.resent + locks.resent,
            lock_requests: locks.requests,
            lock_answers: locks.answers,
            lock_waits: locks.waits,
            lock_hits: locks.hits,
            recalls: locks.recalls,
            rows_checked: jobs.rows_checked,
            rows_recomputed: jobs.rows_recomputed,
            rot_found: jobs.corrupt,
            rot_repaired: jobs.repaired,
            ..self.counters
        }
    }

    /// True if nothing is under way: no operation, no transaction that is not over, no resolution.
    pub fn is_idle(&self) -> bool {
        let nothing = self.requests.has_no_objects()
            && self.operations.is_empty()
            && self.transactions.is_empty()
            && self.resolutions.is_empty();
        nothing && self.locks.is_settled()
    }

    /// The same for one volume alone.
    pub fn is_idle_for(&self, volume: VolumeId) -> bool {
        self.operations.values().all(|operation| operation.volume.id != volume)
            && self.transactions.values().all(|transaction| transaction.volume() != volume)
    }

    /// True if the array serves this host no more.
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// When each device was last heard.
    pub fn last_heard(&self) -> impl Iterator<Item = (DeviceId, Option<Time>)> + '_ {
        self.links.iter().map(|(device, link)| (device, link.last_heard))
    }

    fn on_start(&mut self, now: Now, out: &mut Effects) {
        if self.monitor.has_monitor() {
            return self.monitor.start(now.time);
        }
        for device in self.config.devices.clone() {
            self.send_heartbeat(now, device, out);
        }
    }

    pub(crate) fn on_request(&mut self, now: Now, op: OpId, request: HostRequest, out: &mut Effects) {
        if let HostRequest::Abandon { ops } = &request {
            self.abandon(now, ops, out);
            return out.reply(op, Ok(HostSuccess::Done));
        }
        if !matches!(request, HostRequest::Scrub { .. } | HostRequest::Manage { .. } | HostRequest::Administer { .. }) {
            self.healing.on_user(now.time);
        }
        match request {
            HostRequest::AdoptVolume { volume } => out.reply(op, self.adopt(volume)),
            HostRequest::DropVolume { volume } => {
                self.volumes.remove(&volume);
                out.reply(op, Ok(HostSuccess::Done));
            }
            HostRequest::Fence { below, except } => self.start_fence(now, op, below, except, out),
            HostRequest::Scrub { .. } | HostRequest::Migrate { .. } => self.start_job(now, op, request, out),
            HostRequest::StopMigrating { volume } => {
                self.heal(now, out, |healing, ctx| healing.stop_migrating(ctx, volume));
                out.reply(op, Ok(HostSuccess::Done));
            }
            HostRequest::Administer { request } => self.start_administration(now, op, request, out),
            HostRequest::Objects { device, request, patience } => {
                self.start_objects(now, op, device, Asks::Commands(request), patience, out);
            }
            HostRequest::Await { device, object, name, seen, patience } => {
                self.start_objects(now, op, device, Asks::Change { object, name, seen }, patience, out);
            }
            HostRequest::TakeLeave => {
                let (requests, _, mut ctx) = self.requests(now, out);
                if requests.disconnect(&mut ctx, op) {
                    self.tell_disconnect(now, out);
                }
            }
            // Every write is durable when it is answered.
            HostRequest::Flush { .. } => out.reply(op, Ok(HostSuccess::Done)),
            request => self.start(now, OperationId::User(op), request, out),
        }
    }

    /// Starts what users and background jobs may ask for: a storage transaction, or a task for a device.
    pub(crate) fn start(&mut self, now: Now, op: OperationId, request: HostRequest, out: &mut Effects) {
        let volume = match &request {
            HostRequest::Manage { device, task } => {
                let (requests, links, mut ctx) = self.requests(now, out);
                return requests.start_task(&mut ctx, links, op, *device, task.clone());
            }
            HostRequest::Read { volume, .. }
            | HostRequest::Write { volume, .. }
            | HostRequest::Zero { volume, .. }
            | HostRequest::Allocation { volume, .. }
            | HostRequest::Check { volume, .. }
            | HostRequest::CheckRows { volume, .. }
            | HostRequest::Mirror { volume, .. }
            | HostRequest::Restore { volume, .. }
            | HostRequest::Copy { volume, .. }
            | HostRequest::CrossCheck { volume, .. }
            | HostRequest::Recompute { volume, .. }
            | HostRequest::Reconstruct { volume, .. } => *volume,
            _ => unreachable!("only front ends ask for that"),
        };
        if self.fenced {
            return self.reply(op, Err(HostError::Fenced), out);
        }
        let Some(mut volume) = self.volumes.get(&volume).cloned() else {
            return self.reply(op, Err(HostError::NoSuchVolume), out);
        };
        if let HostRequest::Restore { target: true, .. } = &request {
            match volume.target() {
                Some(target) => volume = Rc::new(target),
                None => return self.reply(op, Err(HostError::NotMoving), out),
            }
        }
        if volume.ordering.needs_lock_server() && self.config.lock_servers.is_empty() {
            return self.reply(op, Err(HostError::NoLockServer), out);
        }
        let full =
            self.operations.len() >= limits::OPERATIONS_MAX || self.transactions.len() >= limits::HOST_TRANSACTIONS_MAX;
        if full {
            return self.reply(op, Err(HostError::Busy), out);
        }
        let work = match self.plan(&volume, &request, &BTreeSet::new()) {
            Ok(work) => Rc::new(work),
            Err(error) => return self.reply(op, Err(error), out),
        };
        if work.shares().is_empty() {
            return self.reply(op, Ok(work.result(&braid_layout::Old::new())), out);
        }
        let patience = match &request {
            HostRequest::Mirror { patience, .. } => self.config.settings.request_timeout.min(*patience),
            _ => self.config.settings.request_timeout,
        };
        let view = self.view().version().unwrap_or(0);
        let (since, refusals, too_far_ahead) = (now.time, 0, None);
        let (damaged, attempt, delayed, failure, awaits_resync) = (BTreeSet::new(), None, false, None, None);
        let operation = Operation {
            op,
            volume,
            request,
            work,
            view,
            damaged,
            since,
            refusals,
            too_far_ahead,
            attempt,
            awaits_resync,
            delayed,
            failure,
        };
        self.counters.operations += 1;
        let before = self.operations.insert(op, Box::new(operation));
        assert!(before.is_none(), "a front end numbers its requests");
        self.timers.set(Timer::Expire(op), now.time.after(patience));
        self.attempt(now, op, out);
    }

    fn adopt(&mut self, volume: VolumeDescription) -> HostOutcome {
        let known = |device: &DeviceId| self.links.has(*device);
        if volume.check().is_err() || !volume.holders().iter().all(known) {
            return Err(HostError::NoSuchVolume);
        }
        self.volumes.insert(volume.id, Rc::new(volume));
        Ok(HostSuccess::Done)
    }

    fn on_message(&mut self, now: Now, from: NodeId, message: Message, out: &mut Effects) {
        let (device, answer) = match (from, message) {
            (NodeId::Device(device), Message::Answer(answer)) => (device, answer),
            (NodeId::LockServer(server), Message::LockAnswer(answer)) => {
                return self.on_lock_answer(now, server, answer, out);
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
        // What is no storage transaction is of no epoch.
        if matches!(reply, Reply::Objects { .. } | Reply::Changed { .. } | Reply::Managed { .. }) {
            let (requests, links, mut ctx) = self.requests(now, out);
            return requests.on_reply(&mut ctx, links, device, reply);
        }
        if epoch != self.monitor.epoch() {
            if epoch > self.monitor.epoch() {
                self.ask_for_news(now, out);
            }
            return out.ignore(Ignored::OtherEpoch);
        }
        for sequence in confirmed {
            self.on_confirmed(now, device, sequence, out);
        }
        match reply {
            Reply::Heartbeat { orphans, suspects, busy } => {
                self.healing.on_busy(now.time, device, busy, self.config.settings.heartbeat);
                if self.links.has_adopted(device) {
                    self.on_adoption(now, device);
                }
                self.on_orphans(now, orphans, out);
                self.on_suspects(now, device, suspects, out);
            }
            Reply::Data { transaction, waited, pieces } => {
                self.note_delay(transaction, waited);
                self.on_data(now, device, transaction, pieces, out);
            }
            Reply::Accepted { transaction, waited } => {
                self.note_delay(transaction, waited);
                self.on_data(now, device, transaction, Vec::new(), out);
            }
            Reply::Written { transaction, waited } => {
                self.note_delay(transaction, waited);
                self.on_written(now, device, transaction, out);
            }
            Reply::Refused { transaction, step, refusal } => {
                self.on_refused(now, device, transaction, step, refusal, out);
            }
            Reply::Failed { transaction, step, failure } => {
                self.on_failed(now, device, transaction, step, failure, out);
            }
            Reply::Blocked { transaction } => self.on_blocked(now, device, transaction, out),
            Reply::Decided { transaction, outcome } => self.on_decided(now, device, transaction, outcome, out),
            Reply::Vote { transaction, vote } => self.on_vote(now, device, transaction, vote, out),
            Reply::Forgotten { transaction } => self.on_forgotten(device, transaction),
            Reply::Managed { .. } | Reply::Objects { .. } | Reply::Changed { .. } | Reply::Rejected { .. } => {
                unreachable!("dealt with above")
            }
        }
    }

    /// Somebody was in the way of a transaction, or not.
    fn note_delay(&mut self, id: TransactionId, waited: bool) {
        if waited && let Some(op) = self.own(id).and_then(|transaction| transaction.op) {
            self.delay(op);
        }
    }

    /// Somebody is in the way of an operation.
    pub(crate) fn delay(&mut self, op: OperationId) {
        self.operations.get_mut(&op).expect("an attempt knows its operation").delayed = true;
    }

    /// A device does not serve us: for ever, since we are fenced; or in our epoch, which is over; or for want of room, for now.
    fn on_rejected(&mut self, now: Now, device: DeviceId, rejection: Rejection, out: &mut Effects) {
        match rejection {
            Rejection::Fenced => self.on_fenced(now, out),
            // A device that lives by an earlier epoch asks for news itself.
            Rejection::WrongEpoch { current } if current < self.monitor.epoch() => {
                self.await_adoption(now, device, out)
            }
            Rejection::WrongEpoch { current } if current > self.monitor.epoch() => self.ask_for_news(now, out),
            Rejection::WrongEpoch { .. } => {}
            // There is room again when others have ended: what waits for this device is sent again, for as long as it has time.
            Rejection::TooManyHosts => self.links.of(device).crowded = true,
        }
    }

    /// The array serves us no more, and never will.
    pub(crate) fn on_fenced(&mut self, now: Now, out: &mut Effects) {
        self.fenced = true;
        let (requests, links, mut ctx) = self.requests(now, out);
        requests.on_fenced(&mut ctx, links);
        for op in self.operations.keys().copied().collect::<Vec<_>>() {
            self.give_up(now, op, HostError::Fenced, out);
        }
    }

    /// What is to be done next, and when: the least of the host's own deadlines and those of its parts.
    fn next_timer(&self) -> Option<(Time, Timer)> {
        let locks = self.locks.deadline().map(|time| (time, Timer::Locks));
        let monitor = self.monitor.deadline().map(|time| (time, Timer::Monitor));
        self.timers.next().into_iter().chain(locks).chain(monitor).min()
    }

    fn on_wake(&mut self, now: Now, out: &mut Effects) {
        loop {
            // Background jobs come last among those whose time is the same.
            let (own, jobs) = (self.next_timer(), self.healing.deadline());
            if jobs.is_some_and(|jobs| jobs <= now.time && own.is_none_or(|(own, _)| jobs < own)) {
                self.heal(now, out, |healing, ctx| healing.wake(ctx));
                continue;
            }
            let Some((_, timer)) = own.filter(|(time, _)| *time <= now.time) else { break };
            self.timers.cancel(timer);
            match timer {
                Timer::Expire(op) => self.on_expired(now, op, out),
                Timer::Retry(op) => self.attempt(now, op, out),
                Timer::Resend(sequence) => self.resend(now, sequence, out),
                Timer::Linger(device) => {
                    let (links, mut ctx) = self.links(now, out);
                    links.on_linger(&mut ctx, device);
                }
                Timer::Heartbeat(device) => self.send_heartbeat(now, device, out),
                Timer::Resolve(transaction) => self.resend_resolution(now, transaction, out),
                Timer::Task(ticket) => {
                    let (requests, links, mut ctx) = self.requests(now, out);
                    requests.resend_task(&mut ctx, links, ticket);
                }
                Timer::ObjectRequest(sequence) => {
                    let (requests, links, mut ctx) = self.requests(now, out);
                    requests.resend_objects(&mut ctx, links, sequence);
                }
                Timer::Leave => self.tell_disconnect(now, out),
                Timer::Locks => self.on_lock_timer(now, out),
                Timer::Monitor => self.on_monitor_timer(now, out),
            }
        }
    }

    /// The links, and what they need of the rest of the host.
    pub(crate) fn links<'a>(&'a mut self, now: Now, out: &'a mut Effects) -> (&'a mut Links, Ctx<'a>) {
        let (_, links, ctx) = self.requests(now, out);
        (links, ctx)
    }

    /// Requests to devices, and what they need of the rest of the host.
    fn requests<'a>(&'a mut self, now: Now, out: &'a mut Effects) -> (&'a mut DeviceRequests, &'a mut Links, Ctx<'a>) {
        let Host { config, monitor, links, requests, timers, rng, counters, steps_done, .. } = self;
        let (host, epoch, settings) = (config.generation, monitor.epoch(), &config.settings);
        (requests, links, Ctx { now, host, epoch, settings, timers, rng, counters, steps_done, out })
    }

    fn start_objects(
        &mut self,
        now: Now,
        op: OpId,
        device: DeviceId,
        asks: Asks,
        patience: Duration,
        out: &mut Effects,
    ) {
        if self.fenced {
            return out.reply(op, Err(HostError::Fenced));
        }
        let (requests, links, mut ctx) = self.requests(now, out);
        requests.start_objects(&mut ctx, links, op, device, asks, patience);
    }

    /// Goes on with a graceful disconnect as far as it can; to be called whenever something has ended.
    fn go_on_disconnecting(&mut self, now: Now, out: &mut Effects) {
        if !self.requests.awaits_disconnect() {
            return;
        }
        let rest = Rest {
            operations: !self.operations.is_empty(),
            transactions: !self.transactions.is_empty(),
            locks: self.claims() > 0,
            fenced: self.fenced,
            devices_out: self.links.devices().filter(|device| self.view().is_out(*device)).collect(),
        };
        let (requests, links, mut ctx) = self.requests(now, out);
        if requests.go_on_disconnecting(&mut ctx, links, &rest) {
            self.release_cached_locks(now, out);
            self.tell_disconnect(now, out);
        }
    }

    fn tell_disconnect(&mut self, now: Now, out: &mut Effects) {
        let before = self.requests.disconnect_ticket();
        self.go_on_disconnecting(now, out);
        let (requests, links, mut ctx) = self.requests(now, out);
        requests.tell_disconnect(&mut ctx, links, before);
    }

    pub(crate) fn send_heartbeat(&mut self, now: Now, device: DeviceId, out: &mut Effects) {
        let (links, mut ctx) = self.links(now, out);
        links.send_heartbeat(&mut ctx, device);
    }

    /// Sends a command, and whatever is to ride on it.
    pub(crate) fn send(&mut self, now: Now, device: DeviceId, command: Command, out: &mut Effects) {
        let (links, mut ctx) = self.links(now, out);
        links.send(&mut ctx, device, command);
    }

    /// Answers an operation. Its transaction, if one is under way, goes on without it.
    pub(crate) fn finish(&mut self, op: OperationId, outcome: HostOutcome, out: &mut Effects) {
        let operation = self.operations.remove(&op).expect("an operation is answered once");
        if let Some(transaction) = operation.attempt.and_then(|sequence| self.transactions.get_mut(&sequence)) {
            transaction.op = None;
        }
        self.counters.delayed += u64::from(operation.delayed);
        self.timers.cancel(Timer::Expire(op));
        if operation.attempt.is_none() {
            self.timers.cancel(Timer::Retry(op));
        }
        self.end_abandoned(op);
        self.reply(op, outcome, out);
    }

    /// Answers whoever asked: a front end, or a background job.
    pub(crate) fn reply(&mut self, op: OperationId, outcome: HostOutcome, out: &mut Effects) {
        match op {
            OperationId::User(op) => out.reply(op, outcome),
            OperationId::Job(step) => self.steps_done.push((step, outcome)),
        }
    }
}

impl Machine for Host {
    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
        match input {
            Input::Start => self.on_start(now, out),
            Input::Message { from, message } => self.on_message(now, from, message, out),
            Input::Request { op, request } if self.requests.is_disconnecting() && begins_something(&request) => {
                out.reply(op, Err(HostError::Leaving));
            }
            Input::Request { op, request } => self.on_request(now, op, request, out),
            Input::DiskDone { .. } => panic!("a host has no disk"),
            Input::Wake => {}
        }
        // One may bring about the next.
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

    fn deadline(&self) -> Option<Time> {
        let own = self.next_timer().map(|(time, _)| time);
        own.into_iter().chain(self.healing.deadline()).min()
    }

    fn invariants(&self) {
        for (op, operation) in &self.operations {
            match operation.attempt {
                Some(sequence) => {
                    let transaction = self.transactions.get(&sequence).expect("an attempt is a transaction");
                    assert_eq!(transaction.op, Some(*op), "an operation and its attempt know each other");
                    assert!(
                        self.timers.deadline_of(Timer::Retry(*op)).is_none(),
                        "an operation tries again when its attempt is over"
                    );
                }
                None => assert!(
                    self.timers.deadline_of(Timer::Retry(*op)).is_some(),
                    "an operation without an attempt is going to try again"
                ),
            }
            assert!(self.timers.deadline_of(Timer::Expire(*op)).is_some(), "every wait has a deadline");
        }
        for (sequence, transaction) in &self.transactions {
            transaction.invariants(*sequence);
        }
        self.links.invariants(&self.timers);
        self.locking_invariants();
        self.healing.invariants(self.requests.is_disconnecting());
        self.abandoned_invariants();
    }
}
