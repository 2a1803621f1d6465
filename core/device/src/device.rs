//! The device's machine. It checks who may speak, and routes each message to the part that handles it.

use crate::objects::{Requests, Wanted};
use crate::scheduler::Scheduler;
use crate::scheduler::ctx::Ctx;
use crate::scheduler::decision::Decision;
use crate::scheduler::transactions::TransactionView;
use crate::sessions::{PATROLS_PER_LEASE, Sessions};
use crate::tickets::{Ticket, Tickets};
use braid_base::limits::Settings;
use braid_base::{DeviceId, Generation, Level, MemberState, Membership, NodeId, Now, Time, TransactionId};
use braid_machine::{Effects, Ignored, Input, Machine, Never, OneDisk};
use braid_membership::client::MonitorClient;
use braid_store::{Medium, Recovered, Storage, Store, StoreConfig, StoreError, StoreEvent};
use braid_wire::{Answer, Command, Message, Partial, Rejection, Reply, Request, Task};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceConfig {
    /// The identity of the device, and its size.
    pub store: StoreConfig,
    /// The membership, if it never changes. `None` if a monitor decides it and grants leases.
    pub membership: Option<Membership>,
    /// Time-outs, intervals and limits.
    pub settings: Settings,
    /// A random number of the agent that started the process, if another machine may run the device, too.
    #[serde(default)]
    pub holder: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct Device {
    pub(crate) config: DeviceConfig,
    pub(crate) service: Service,
    pub(crate) store: Box<dyn Storage>,
    pub(crate) scheduler: Scheduler,
    /// Decisions of the scheduler that are not carried out yet. Empty between steps.
    pub(crate) decisions: VecDeque<Decision>,
    pub(crate) requests: Requests,
    pub(crate) sessions: Sessions,
    pub(crate) monitor: MonitorClient,
    /// The store operations under way.
    pub(crate) tickets: Tickets,
    pub(crate) counters: Counters,
}

/// Whether the device serves requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    Off,
    Recovering,
    /// It serves.
    Serving,
    /// The store can't be used.
    Unusable(StoreError),
}

/// Counts of events since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    /// Without those of other devices, which count them as sent.
    pub messages_received: u64,
    pub partials_received: u64,
    pub messages_sent: u64,
    pub refused_too_late: u64,
    pub refused_other: u64,
    pub ignored: u64,
    pub leases_expired: u64,
}

/// The number of heartbeats of silence after which the device may forget a host to admit another, if it holds nothing
/// of the host.
const HEARTBEATS_MISSED: u32 = 3;

impl Device {
    /// Creates a device that is off, over a store on its disk.
    pub fn new(config: DeviceConfig) -> Device {
        Device::on(Medium::default(), config)
    }

    /// The same, on the given medium.
    pub fn on(medium: Medium, config: DeviceConfig) -> Device {
        let store = Store::new(config.store).with_object_memory(config.settings.object_memory).on(medium);
        Device::over(config, Box::new(store))
    }

    /// Creates a device that is off, over another storage.
    pub fn over(config: DeviceConfig, store: Box<dyn Storage>) -> Device {
        Device {
            service: Service::Off,
            store,
            scheduler: Scheduler::new(&config.settings),
            decisions: VecDeque::new(),
            requests: Requests::default(),
            sessions: Sessions::default(),
            monitor: MonitorClient::of_device(config.membership.clone(), config.store.device, config.holder),
            tickets: Tickets::default(),
            counters: Counters::default(),
            config,
        }
    }

    pub fn service(&self) -> &Service {
        &self.service
    }

    /// The store, for inspection.
    pub fn store(&self) -> &dyn Storage {
        &*self.store
    }

    /// The transactions, for inspection.
    pub fn transactions(&self) -> impl Iterator<Item = TransactionView<'_>> {
        self.scheduler.ledger().views()
    }

    /// The number of requests that wait for other requests or transactions.
    pub fn waiting(&self) -> usize {
        self.scheduler.waiting()
    }

    /// The hosts whose leases run at this device.
    pub fn sessions(&self) -> impl Iterator<Item = Generation> + '_ {
        self.sessions.hosts()
    }

    /// The number of orphans: transactions that wait to be resolved by a host.
    pub fn orphans(&self) -> usize {
        self.scheduler.ledger().orphans()
    }

    /// The number of suspect transactions.
    pub fn suspects(&self) -> usize {
        self.scheduler.ledger().suspects()
    }

    /// True if the device refuses this host.
    pub fn keeps_out(&self, host: Generation) -> bool {
        self.view().refuses(host)
    }

    /// The number of transactions that hold locks of this device or wait for them.
    pub fn locks(&self) -> usize {
        self.scheduler.locks()
    }

    fn on_message(&mut self, now: Now, from: NodeId, message: Message, out: &mut Effects) {
        let (host, request) = match (from, message) {
            (NodeId::Monitor, Message::MonitorAnswer(answer)) => return self.on_monitor(now, answer, out),
            (NodeId::Host(host), Message::Request(request)) if request.host == host => (host, request),
            (NodeId::Device(from), Message::Partial(partial)) => return self.on_partial(now, from, partial, out),
            _ => return self.ignore(Ignored::NotForUs, out),
        };
        if self.service != Service::Serving {
            return self.ignore(Ignored::NotStarted, out);
        }
        if let Command::Manage { ticket, task: Task::Inspect } = request.command {
            // An inspection is answered whether the device serves or not.
            return self.on_task(now, host, ticket, Task::Inspect, out);
        }
        if !self.has_lease(now.time) {
            self.ask_for_news(now, out);
            if matches!(request.command, Command::Heartbeat) {
                self.show_up(host, out);
            }
            return self.ignore(Ignored::NoLease, out);
        }
        if request.epoch > self.monitor.epoch() {
            self.ask_for_news(now, out);
        }
        if let Err(rejection) = self.admit(now, &request, out) {
            return self.answer(host, Reply::Rejected { rejection }, out);
        }
        // Commits that ride on the request take effect before it.
        if !request.commits.is_empty() {
            self.schedule(now, out, |scheduler, cx| {
                for sequence in request.commits {
                    scheduler.on_commit_ride(cx, TransactionId { host, sequence });
                }
            });
        }
        if self.sessions.settle(host, request.settled) {
            self.store.settle(host, request.settled);
            self.schedule(now, out, |scheduler, cx| scheduler.on_settled(cx, host, request.settled));
        }
        if !request.over.is_empty() || self.scheduler.ledger().have_released() {
            self.schedule(now, out, |scheduler, cx| {
                for sequence in request.over {
                    scheduler.on_over(cx, TransactionId { host, sequence });
                }
                scheduler.resume_waiting(cx);
            });
        }
        self.on_command(now, host, request.command, out);
    }

    /// Another device has sent what it owes in a write that both execute.
    fn on_partial(&mut self, now: Now, from: DeviceId, partial: Partial, out: &mut Effects) {
        if self.service != Service::Serving || !self.has_lease(now.time) {
            return self.ignore(Ignored::NotStarted, out);
        }
        if partial.epoch > self.monitor.epoch() {
            self.ask_for_news(now, out);
        }
        self.schedule(now, out, |scheduler, cx| scheduler.on_partial(cx, from, partial));
    }

    /// Runs `decide` on the scheduler, and carries out its decisions.
    pub(crate) fn schedule<T>(
        &mut self,
        now: Now,
        out: &mut Effects,
        decide: impl FnOnce(&mut Scheduler, &mut Ctx) -> T,
    ) -> T {
        let mut cx = Ctx {
            now,
            settings: &self.config.settings,
            device: self.config.store.device,
            objects: &self.store,
            view: self.monitor.view(),
            hosts: &self.sessions,
            decisions: &mut self.decisions,
        };
        let told = decide(&mut self.scheduler, &mut cx);
        while let Some(decision) = self.decisions.pop_front() {
            self.carry_out(now, decision, out);
        }
        told
    }

    fn admit(&mut self, now: Now, request: &Request, out: &mut Effects) -> Result<(), Rejection> {
        if self.view().refuses(request.host) {
            return Err(Rejection::Fenced);
        }
        if request.epoch != self.monitor.epoch() {
            return Err(Rejection::WrongEpoch { current: self.monitor.epoch() });
        }
        let known = self.sessions.is_known(request.host);
        let most = self.config.settings.hosts_max;
        if !known && self.sessions.is_full(most) {
            self.forget_idle_host(now, out);
        }
        if !self.sessions.hear(request.host, now.time, most) {
            return Err(Rejection::TooManyHosts);
        }
        if !known {
            // The host is heard again after a silence: its transactions are not orphans any more.
            self.scheduler.on_return(request.host);
        }
        Ok(())
    }

    /// Makes room for a new host. It forgets a host that has been silent for some heartbeats and of which the device
    /// holds nothing; most such hosts have ended.
    fn forget_idle_host(&mut self, now: Now, out: &mut Effects) {
        let silence = self.config.settings.heartbeat * HEARTBEATS_MISSED;
        let holds_nothing = |host: &Generation| self.scheduler.holds_nothing_of(*host);
        if let Some(host) = self.sessions.idle(now.time, silence).into_iter().find(holds_nothing) {
            self.expire(now, host, out);
        }
    }

    fn on_command(&mut self, now: Now, host: Generation, command: Command, out: &mut Effects) {
        match command {
            Command::Heartbeat => self.on_heartbeat(now, host, out),
            // `Await` is exempt from this check: such a wait may take long. It does not hold the host's mark back, and
            // a late copy of it does no harm.
            Command::Manage { ticket, .. } | Command::Objects { sequence: ticket, .. }
                if self.sessions.is_over(host, ticket) =>
            {
                self.ignore(Ignored::Settled, out);
            }
            Command::Manage { ticket, task } => {
                if let Task::ListAllocated { object, range } = task {
                    self.sessions.restore(host, now.time, object, range);
                }
                self.on_task(now, host, ticket, task, out);
            }
            Command::Objects { sequence, abandoned, request } => {
                self.on_objects(now, TransactionId { host, sequence }, abandoned, request, out);
            }
            Command::Await { ticket, object, name, seen, patience } => {
                let wanted = Wanted { object, name, seen, patience: Duration::from_millis(patience.into()) };
                self.on_await(now, host, ticket, wanted, out);
            }
            command => {
                let restores = self.is_of_restore(now, host, &command);
                if self.schedule(now, out, |scheduler, cx| scheduler.on_command(cx, host, command)) && !restores {
                    self.sessions.serve(host, now.time);
                }
            }
        }
    }

    /// More stamps are reserved: resumes the commands that waited for that.
    fn on_reserved(&mut self, now: Now, out: &mut Effects) {
        for (host, command) in self.schedule(now, out, Scheduler::on_reserved) {
            if self.sessions.has(host) && !self.view().refuses(host) {
                self.on_command(now, host, command, out);
            }
        }
    }

    /// Answers a heartbeat with some orphans and suspects, different ones each time.
    fn on_heartbeat(&mut self, now: Now, host: Generation, out: &mut Effects) {
        let (orphans, suspects) = self.schedule(now, out, |scheduler, cx| scheduler.name_unresolved(cx));
        let busy = self.serves_users_beside(now, host);
        self.answer(host, Reply::Heartbeat { orphans, suspects, busy }, out);
    }

    /// True if a command is part of a restore: a read in rows that the host is about to restore, or a write of this device alone,
    /// while it is returning.
    fn is_of_restore(&self, now: Now, host: Generation, command: &Command) -> bool {
        let returning = || matches!(self.monitor.own_state(), Some(MemberState::Returning { .. }));
        match command {
            Command::Read { object, extents, .. } => self.sessions.restores(host, now.time, *object, extents),
            Command::Prewrite { reads, .. } => reads.is_empty() && returning(),
            Command::Write { participants, .. } => participants.len() == 1 && returning(),
            _ => false,
        }
    }

    /// True if another host has lately read or written here, other than to restore: it serves users. What a recovery coordinator reads
    /// to restore missed blocks looks the same; other coordinators do not yield to it.
    fn serves_users_beside(&self, now: Now, host: Generation) -> bool {
        let coordinates = |host| self.view().is_recovery_coordinator(host);
        let mut active = self.sessions.served_since(now.time, self.config.settings.heartbeat);
        active.any(|other| other != host && !(coordinates(other) && coordinates(host)))
    }

    /// Ends the leases of hosts that have been silent for too long. Their pre-writes are dropped; their undecided
    /// intents are left for other hosts to resolve. So are the intents that hosts leave undecided for longer than a lease.
    fn patrol(&mut self, now: Now, out: &mut Effects) {
        let Some(silent) = self.sessions.patrol(now.time, self.config.settings.host_lease) else { return };
        for host in silent {
            self.counters.leases_expired += 1;
            self.expire(now, host, out);
        }
        self.schedule(now, out, |scheduler, cx| scheduler.look_for_undecided(cx, PATROLS_PER_LEASE + 1));
    }

    pub(crate) fn expire(&mut self, now: Now, host: Generation, out: &mut Effects) {
        self.drop_watchers(host);
        self.sessions.end(host);
        self.schedule(now, out, |scheduler, cx| scheduler.expire(cx, host));
    }

    fn on_recovered(&mut self, now: Now, mut recovered: Recovered, out: &mut Effects) {
        self.monitor.recover(recovered.disk, recovered.membership.take());
        // Each host whose transactions were found gets the length of a lease to send a message.
        let intents = recovered.intents.iter().map(|intent| intent.transaction.host);
        let found = intents.chain(recovered.commits.iter().map(|commit| commit.transaction.host));
        for host in found {
            if !self.monitor.view().refuses(host) {
                self.sessions.recover(host, now.time);
            }
        }
        self.schedule(now, out, |scheduler, cx| scheduler.recover(cx, recovered));
        self.service = Service::Serving;
    }

    fn on_store_events(&mut self, now: Now, out: &mut Effects) {
        while let Some(event) = self.store.pop_event() {
            match event {
                StoreEvent::Ready(recovered) => self.on_recovered(now, recovered, out),
                StoreEvent::Unusable(error) => self.service = Service::Unusable(error),
                StoreEvent::Read { ticket, result } => match self.tickets.close(ticket) {
                    Ticket::Read { transaction, step, waited } => self.schedule(now, out, |scheduler, cx| {
                        scheduler.on_content(cx, transaction, step, waited, result)
                    }),
                    other => panic!("the store reported a read for {other:?}, which did not ask for one"),
                },
                StoreEvent::Prepared { transaction, result } => {
                    self.schedule(now, out, |scheduler, cx| scheduler.on_prepared(cx, transaction, result));
                }
                StoreEvent::Applied { transaction, result } => {
                    self.schedule(now, out, |scheduler, cx| scheduler.on_applied(cx, transaction, result));
                }
                StoreEvent::Committed { transaction } => {
                    self.schedule(now, out, |scheduler, cx| scheduler.on_committed(cx, transaction));
                }
                StoreEvent::Aborted { transaction } => {
                    self.schedule(now, out, |scheduler, cx| scheduler.on_aborted(cx, transaction));
                }
                StoreEvent::Executed { name, answer, .. } => self.on_executed(now, name, answer, out),
                StoreEvent::ObjectsRead { ticket, answer, .. } => match self.tickets.close(ticket) {
                    Ticket::ReadWatched { host, ticket } => self.on_watched_read(now, host, ticket, answer, out),
                    other => panic!("the store reported attributes for {other:?}, which did not ask for them"),
                },
                StoreEvent::Adopted { ticket, dropped } => {
                    self.tickets.close(ticket);
                    self.on_adopted(now, dropped, out);
                }
                StoreEvent::Done { ticket, result } => match self.tickets.close(ticket) {
                    Ticket::Reserve => self.on_reserved(now, out),
                    Ticket::Change { host, ticket } => self.keep_end(host, ticket, result, out),
                    Ticket::Manage { host, ticket, result: known } => match result {
                        Ok(()) => self.answer(host, Reply::Managed { ticket, result: known }, out),
                        // There is no room to keep the end of the task. Its host asks again.
                        Err(_) => self.ignore(Ignored::InProgress, out),
                    },
                    other => panic!("the store reported the end of {other:?}, which was not asked of it"),
                },
            }
        }
    }

    /// Answers a host, and confirms its durable commits in the same message.
    pub(crate) fn answer(&mut self, host: Generation, reply: Reply, out: &mut Effects) {
        let confirmed = self.sessions.take_confirmed(host);
        self.counters.messages_sent += 1;
        let answer = Answer { epoch: self.monitor.epoch(), confirmed, reply };
        out.send(NodeId::Host(host), Message::Answer(answer));
    }

    pub(crate) fn ignore(&mut self, why: Ignored, out: &mut Effects) {
        self.counters.ignored += 1;
        out.ignore(why);
    }
}

impl Machine for Device {
    type Request = Never;
    type Outcome = Never;
    type Disk = OneDisk;

    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
        match input {
            Input::Start => {
                assert_eq!(self.service, Service::Off, "a device is started once");
                self.service = Service::Recovering;
                self.store.start(out);
            }
            Input::Message { from, message, .. } => {
                match message {
                    Message::Partial(_) => self.counters.partials_received += 1,
                    _ => self.counters.messages_received += 1,
                }
                self.on_message(now, from, message, out);
            }
            Input::DiskDone { tag, result } => self.store.on_disk_done(now, tag, result, out),
            Input::Wake => {}
        }
        if self.store.deadline().is_some_and(|deadline| deadline <= now.time) {
            self.store.wake(now, out);
        }
        if self.scheduler.is_due(now.time) {
            self.schedule(now, out, |scheduler, cx| scheduler.time_out(cx));
        }
        if self.requests.deadline().is_some_and(|deadline| deadline <= now.time) {
            self.end_waits(now, out);
        }
        if self.service == Service::Serving {
            self.patrol(now, out);
        }
        if self.next_report().is_some_and(|report| report <= now.time) {
            self.report(now, out);
        }
        // Store events can release transactions, and resumed requests can cause store events.
        loop {
            self.on_store_events(now, out);
            if !self.scheduler.ledger().have_released() {
                break;
            }
            self.schedule(now, out, |scheduler, cx| scheduler.resume_waiting(cx));
        }
        if self.service == Service::Serving {
            self.tell_when_decided(now, out);
        }
    }

    fn level(&self) -> Level {
        self.store.durable_level().max(self.monitor.level())
    }

    fn deadline(&self) -> Option<Time> {
        let patrol = self.sessions.deadline().filter(|_| self.service == Service::Serving);
        let parts = [self.store.deadline(), patrol, self.scheduler.deadline(), self.requests.deadline()];
        parts.into_iter().chain([self.next_report()]).flatten().min()
    }

    fn invariants(&self) {
        if self.service != Service::Serving {
            return;
        }
        assert!(self.decisions.is_empty(), "every decision is carried out within its step");
        self.store.invariants();
        self.scheduler.invariants(self.tickets.reads());
        self.sessions.invariants();
        self.requests.invariants();
        self.monitor.invariants();
        self.tickets.invariants(self.monitor.is_adopting());
    }
}
