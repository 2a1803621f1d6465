//! The device's machine: who may speak, and where each message goes.

use crate::in_turn::InTurn;
use crate::locking::Locking;
use crate::objects::{Requests, Wanted};
use crate::reservation::Reservation;
use crate::sessions::Sessions;
use crate::stamps::Stamps;
use crate::suspects::Suspects;
use crate::tickets::{Ticket, Tickets};
use crate::transactions::{State, Transaction, Transactions};
use crate::waiting::{ReadRequest, Waiting, WaitingQueue};
use braid_base::limits::{self, Settings};
use braid_base::{Generation, Membership, NodeId, Now, Stamp, Time, TransactionId};
use braid_machine::{Effects, Ignored, Input, Machine};
use braid_membership::client::MonitorClient;
use braid_store::{Intent, Medium, Recovered, Storage, Store, StoreConfig, StoreError, StoreEvent};
use braid_wire::{
    Answer, Command, Failure, Message, Ordering, Orphan, Refusal, Rejection, Reply, Request, Step, Task, Vote, Want,
};
use std::time::Duration;

/// How a device is to run.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Whose it is, and how large.
    pub store: StoreConfig,
    /// Who is in, if that never changes; none if a monitor says who is, and gives leases.
    pub membership: Option<Membership>,
    /// Waits and spans.
    pub settings: Settings,
}

/// A storage device.
pub struct Device {
    pub(crate) config: DeviceConfig,
    pub(crate) service: Service,
    pub(crate) store: Box<dyn Storage>,
    pub(crate) stamps: Stamps,
    pub(crate) reservation: Reservation,
    pub(crate) transactions: Transactions,
    pub(crate) waiting: WaitingQueue,
    pub(crate) locking: Locking,
    pub(crate) requests: Requests,
    /// Transactions that no host looks after any more, and somebody should resolve.
    pub(crate) orphans: InTurn,
    /// Transactions that were cut short, and whose stripes somebody should look at.
    pub(crate) suspects: Suspects,
    pub(crate) sessions: Sessions,
    pub(crate) monitor: MonitorClient,
    /// What the store is doing for whom.
    pub(crate) tickets: Tickets,
    pub(crate) counters: Counters,
}

/// Whether the device serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// Not started.
    Off,
    /// Its store is recovering.
    Recovering,
    /// It serves.
    Serving,
    /// It can't.
    Unusable(StoreError),
}

/// Whether a command may pass.
enum Gate {
    Open,
    Shut,
    NotYet,
}

/// Counts of events since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub messages_received: u64,
    pub messages_sent: u64,
    pub reads: u64,
    pub prewrites: u64,
    pub writes: u64,
    pub commits: u64,
    pub aborts: u64,
    pub resolves: u64,
    pub refused_too_late: u64,
    pub refused_other: u64,
    pub waits: u64,
    pub ignored: u64,
    pub leases_expired: u64,
}

/// A host that was silent for so many heartbeats may be forgotten for another, if nothing is held of it.
const HEARTBEATS_MISSED: u32 = 3;

impl Device {
    /// A device that is off, over a store on its disk.
    pub fn new(config: DeviceConfig) -> Device {
        Device::on(Medium::default(), config)
    }

    /// The same, on such a disk.
    pub fn on(medium: Medium, config: DeviceConfig) -> Device {
        let store = Store::new(config.store).with_object_memory(config.settings.object_memory).on(medium);
        Device::over(config, Box::new(store))
    }

    /// A device that is off, over some other storage.
    pub fn over(config: DeviceConfig, store: Box<dyn Storage>) -> Device {
        Device {
            service: Service::Off,
            store,
            stamps: Stamps::new(Stamp::ZERO, config.settings.stamps_kept, Time(0)),
            reservation: Reservation::default(),
            transactions: Transactions::new(config.settings.device_transactions_max),
            waiting: WaitingQueue::default(),
            locking: Locking::default(),
            requests: Requests::default(),
            orphans: InTurn::default(),
            suspects: Suspects::default(),
            sessions: Sessions::default(),
            monitor: MonitorClient::of_device(config.membership.clone(), config.store.device),
            tickets: Tickets::default(),
            counters: Counters::default(),
            config,
        }
    }

    /// Whether it serves.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Its store, to look at.
    pub fn store(&self) -> &dyn Storage {
        &*self.store
    }

    /// Its transactions, to look at.
    pub fn transactions(&self) -> &Transactions {
        &self.transactions
    }

    /// How many requests wait in it for others.
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.locking.waiting()
    }

    /// The hosts that it keeps in mind.
    pub fn sessions(&self) -> impl Iterator<Item = Generation> + '_ {
        self.sessions.hosts()
    }

    /// How many transactions wait in it for somebody to resolve them.
    pub fn orphans(&self) -> usize {
        self.orphans.len()
    }

    /// True if it serves this host no more.
    pub fn keeps_out(&self, host: Generation) -> bool {
        self.view().refuses(host)
    }

    /// How many transactions hold locks in it, or wait for them.
    pub fn locks(&self) -> usize {
        self.locking.table.len()
    }

    fn on_message(&mut self, now: Now, from: NodeId, message: Message, out: &mut Effects) {
        let (host, request) = match (from, message) {
            (NodeId::Monitor, Message::MonitorAnswer(answer)) => return self.on_monitor(now, answer, out),
            (NodeId::Host(host), Message::Request(request)) if request.host == host => (host, request),
            _ => return self.ignore(Ignored::NotForUs, out),
        };
        if self.service != Service::Serving {
            return self.ignore(Ignored::NotStarted, out);
        }
        if let Command::Manage { ticket, task: Task::Inspect } = request.command {
            // Whoever looks may do so whether it serves or not.
            return self.on_task(host, ticket, Task::Inspect, out);
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
        // What rides on the request takes effect before it.
        for sequence in request.commits {
            self.on_commit_ride(now, TransactionId { host, sequence }, out);
        }
        self.on_settled(now, host, request.settled, out);
        for sequence in request.over {
            self.on_over(now, TransactionId { host, sequence }, out);
        }
        self.resume_waiting(now, out);
        self.on_command(now, host, request.command, out);
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
            // Back from a silence, it looks after its transactions again.
            self.orphans.remove_of(request.host);
        }
        Ok(())
    }

    /// Makes room for a host: forgets one that has been silent for some heartbeats, and of which nothing is held. Most such hosts have ended.
    fn forget_idle_host(&mut self, now: Now, out: &mut Effects) {
        let silence = self.config.settings.heartbeat * HEARTBEATS_MISSED;
        let holds_nothing = |host: &Generation| {
            self.transactions.of_host_below(*host, u64::MAX).is_empty()
                && self.waiting.of_host_below(*host, u64::MAX).is_empty()
        };
        if let Some(host) = self.sessions.idle(now.time, silence).into_iter().find(holds_nothing) {
            self.expire(now, host, out);
        }
    }

    fn on_command(&mut self, now: Now, host: Generation, command: Command, out: &mut Effects) {
        match self.gate(now, host, &command, out) {
            Gate::Open => {}
            Gate::Shut => return,
            Gate::NotYet => {
                if !self.reservation.defer(host, command) {
                    self.ignore(Ignored::InProgress, out);
                }
                return;
            }
        }
        if matches!(command, Command::Read { .. } | Command::Prewrite { .. } | Command::Write { .. }) {
            self.sessions.serve(host, now.time);
        }
        match command {
            Command::Heartbeat => self.on_heartbeat(now, host, out),
            Command::Read { transaction, stamp, object, ordering, extents, want } => {
                let read = ReadRequest { object, ordering, extents, want, waited: false };
                self.on_read(now, transaction, stamp, read, out);
            }
            Command::Prewrite { transaction, stamp, object, ordering, prewrites, reads } => {
                let reads = ReadRequest { object, ordering, extents: reads, want: Want::Data, waited: false };
                self.on_prewrite(now, transaction, stamp, prewrites, reads, out);
            }
            Command::Write { transaction, stamp, object, ordering, participants, linkage, mode, pieces } => {
                let epoch = self.monitor.epoch();
                let intent = Intent { transaction, stamp, epoch, participants, linkage, object, pieces };
                self.on_write(now, intent, ordering, mode, out);
            }
            Command::Decide { transaction, stamp, outcome } => {
                self.on_decide(now, host, transaction, stamp, outcome, out);
            }
            Command::Resolve { transaction, stamp } => self.on_resolve(now, host, transaction, stamp, out),
            Command::Forget { transaction } => self.on_forget(host, transaction, out),
            Command::Manage { ticket, task } => self.on_task(host, ticket, task, out),
            Command::Objects { sequence, given_up, request } => {
                self.on_objects(now, TransactionId { host, sequence }, given_up, request, out);
            }
            Command::Await { ticket, object, name, seen, patience } => {
                let wanted = Wanted { object, name, seen, patience: Duration::from_millis(patience.into()) };
                self.on_await(now, host, ticket, wanted, out);
            }
        }
    }

    /// Lets a command pass if it belongs to a transaction that is not over, its stamp is near the clock, and it is durable
    /// that stamps as high as this one may have been accepted. What is under way already passes at once, if it is the same.
    fn gate(&mut self, now: Now, host: Generation, command: &Command, out: &mut Effects) -> Gate {
        let (transaction, stamp, assumed) = match command {
            Command::Read { transaction, stamp, object, ordering, .. }
            | Command::Prewrite { transaction, stamp, object, ordering, .. }
            | Command::Write { transaction, stamp, object, ordering, .. } => {
                if transaction.host != host || self.sessions.is_settled(host, transaction.sequence) {
                    self.ignore(Ignored::Settled, out);
                    return Gate::Shut;
                }
                (*transaction, *stamp, Some((*object, *ordering)))
            }
            Command::Resolve { transaction, stamp } => (*transaction, *stamp, None),
            // Who waits for a change may do so for long: that holds no mark back, and a late copy of it does no harm.
            Command::Manage { ticket, .. } | Command::Objects { sequence: ticket, .. }
                if self.sessions.is_settled(host, *ticket) =>
            {
                self.ignore(Ignored::Settled, out);
                return Gate::Shut;
            }
            _ => return Gate::Open,
        };
        if stamp.host != transaction.host {
            self.ignore(Ignored::NotForUs, out);
            return Gate::Shut;
        }
        if let Some(known) = self.transactions.get(transaction) {
            // A tombstone of an abort that came first has the stamp of the abort, which is the transaction's.
            // One that writes under a lock server's locks, and was refused elsewhere, has gone on with a higher stamp.
            if known.stamp == stamp || self.is_unannounced(known.object) {
                return Gate::Open;
            }
            self.ignore(Ignored::NotForUs, out);
            return Gate::Shut;
        }
        let object = assumed.and_then(|(object, _)| self.store.object(object));
        if let (Some(object), Some((_, assumed))) = (object, assumed)
            && object.ordering != assumed
        {
            self.fail(transaction, step_of(command), Failure::WrongOrdering, out);
            return Gate::Shut;
        }
        let unordered = object.is_some_and(|object| object.ordering == Ordering::None);
        let promises = matches!(command, Command::Write { .. } | Command::Resolve { .. });
        if unordered || (promises && self.reservation.covers(stamp.clock)) {
            return Gate::Open;
        }
        if stamp.clock > self.reservation.limit(now, &self.config.settings) {
            let refusal = Refusal::TooFarAhead { clock: now.clock };
            match command {
                // To refuse these means a promise, which would have to be reserved: not for such a stamp.
                Command::Resolve { .. } => {
                    let vote = Vote::TooFarAhead { clock: now.clock };
                    self.answer(host, Reply::Vote { transaction, vote }, out);
                }
                Command::Write { ordering, .. } if !ordering.needs_lock_server() => {
                    self.ignore(Ignored::NotForUs, out);
                }
                _ => self.refuse(transaction, step_of(command), refusal, out),
            }
            return Gate::Shut;
        }
        if let Some(until) = self.reservation.reserve_ahead(now, &self.config.settings, stamp) {
            self.store.reserve_stamps(self.tickets.open(Ticket::Reserve), until, out);
        }
        if self.reservation.covers(stamp.clock) { Gate::Open } else { Gate::NotYet }
    }

    /// More stamps are reserved: on with what waited for that.
    pub(crate) fn on_reserved(&mut self, now: Now, out: &mut Effects) {
        // True if this disk has taken the place of another, and has yet to accept its first stamp.
        let is_new = self.reservation.is_new() && self.is_returning();
        let until = self.reservation.reserved(now.time);
        if is_new {
            // What the disk before it had accepted is not known here: nothing from before is taken any more. Here, too, a clock that
            // is wrong once is not followed far.
            self.stamps.raise_floor(Stamp::last_of(now.clock.min(until)));
        }
        for (host, command) in self.reservation.take_deferred() {
            if self.sessions.has(host) && !self.view().refuses(host) {
                self.on_command(now, host, command, out);
            }
        }
    }

    /// Names some orphans and suspects, others each time.
    fn on_heartbeat(&mut self, now: Now, host: Generation, out: &mut Effects) {
        let named = self.orphans.name(limits::ORPHANS_PER_ANSWER_MAX);
        let of = |id: TransactionId| {
            let transaction = self.transactions.get(id).expect("an orphan is a transaction");
            Orphan { transaction: id, stamp: transaction.stamp, participants: self.voters(id) }
        };
        let orphans = named.into_iter().map(of).collect();
        let suspects = self.name_suspects();
        let busy = self.serves_users_beside(now, host);
        self.answer(host, Reply::Heartbeat { orphans, suspects, busy }, out);
    }

    /// True if another host than this one has lately asked for something, that helps nobody: so it did for users.
    fn serves_users_beside(&self, now: Now, host: Generation) -> bool {
        let mut active = self.sessions.served_since(now.time, self.config.settings.heartbeat);
        active.any(|other| other != host && !self.view().is_recovery_coordinator(other))
    }

    /// Ends the leases of hosts that have been silent for too long: what they only announced is dropped, what they left
    /// undecided is for others to resolve.
    fn patrol(&mut self, now: Now, out: &mut Effects) {
        for host in self.sessions.patrol(now.time, self.config.settings.host_lease) {
            self.counters.leases_expired += 1;
            self.expire(now, host, out);
        }
    }

    pub(crate) fn expire(&mut self, now: Now, host: Generation, out: &mut Effects) {
        self.drop_watchers(host);
        if let Some(locked) = self.sessions.end(host) {
            self.stamps.raise_floor(locked);
        }
        self.reservation.drop_deferred_of(host);
        for id in self.transactions.of_host_below(host, u64::MAX) {
            match self.transactions.get(id).map(|transaction| transaction.state) {
                Some(State::Prewritten) => self.cut_short(now, id, out),
                Some(_) => self.keep_or_forget(now, id, out),
                None => {}
            }
        }
        for id in self.waiting.of_host_below(host, u64::MAX) {
            self.waiting.take(id);
        }
    }

    fn on_recovered(&mut self, now: Now, recovered: Recovered, out: &mut Effects) {
        self.monitor.recover(recovered.disk, recovered.membership);
        self.reservation.recover(now.time, recovered.stamps_reserved);
        let floor = Stamp::last_of(recovered.stamps_reserved);
        self.stamps = Stamps::new(floor, self.config.settings.stamps_kept, now.time);
        for intent in recovered.intents {
            let ordering = self.store.object(intent.object).map_or(Ordering::Timestamp, |object| object.ordering);
            if ordering == Ordering::DeviceLock {
                self.relock(intent.transaction, intent.object, &intent.ranges);
            }
            let transaction = Transaction::new(intent.stamp, intent.object, ordering, intent.ranges, State::Prepared);
            let (epoch, participants) = (intent.epoch, intent.participants);
            self.take_in(now, intent.transaction, Transaction { epoch, participants, ..transaction }, out);
        }
        for commit in recovered.commits {
            // Where writes take effect on arrival, they are remembered like commits, until their hosts say that all have.
            let state = if self.can_be_suspect(commit.object) { State::Applied } else { State::Committed };
            let transaction = Transaction::new(commit.stamp, commit.object, Ordering::Timestamp, Vec::new(), state);
            let (epoch, participants, linkage) = (commit.epoch, commit.participants, Some(commit.linkage));
            let transaction = Transaction { epoch, participants, linkage, ..transaction };
            self.take_in(now, commit.transaction, transaction, out);
        }
        self.service = Service::Serving;
    }

    /// Takes in a transaction from before a restart. Its host has a lease's time to speak for it.
    fn take_in(&mut self, now: Now, id: TransactionId, transaction: Transaction, out: &mut Effects) {
        self.transactions.insert(id, transaction);
        if self.view().refuses(id.host) {
            self.keep_or_forget(now, id, out);
        } else {
            self.sessions.recover(id.host, now.time);
        }
    }

    fn on_store_events(&mut self, now: Now, out: &mut Effects) {
        while let Some(event) = self.store.pop_event() {
            match event {
                StoreEvent::Ready(recovered) => self.on_recovered(now, recovered, out),
                StoreEvent::Unusable(error) => self.service = Service::Unusable(error),
                StoreEvent::Read { ticket, result } => self.on_content(ticket, result, out),
                StoreEvent::Prepared { transaction, result } => self.on_prepared(now, transaction, result, out),
                StoreEvent::Applied { transaction, result } => self.on_applied(now, transaction, result, out),
                StoreEvent::Committed { transaction } => self.on_committed(now, transaction, out),
                StoreEvent::Aborted { transaction } => self.on_aborted(now, transaction, out),
                StoreEvent::Executed { name, answer } => self.on_executed(now, name, answer, out),
                StoreEvent::Looked { ticket, answer } => match self.tickets.close(ticket) {
                    Ticket::Look { host, ticket } => self.on_looked(now, host, ticket, answer, out),
                    other => panic!("the store has looked for {other:?}, which it was not asked for"),
                },
                StoreEvent::Adopted { ticket, dropped } => {
                    self.tickets.close(ticket);
                    self.on_adopted(now, dropped, out);
                }
                StoreEvent::Done { ticket, result } => match self.tickets.close(ticket) {
                    Ticket::Reserve => self.on_reserved(now, out),
                    Ticket::Manage { host, ticket } => self.on_task_done(host, ticket, result, out),
                    other => panic!("the store is done with {other:?}, which it was not asked for"),
                },
            }
        }
    }

    /// Answers a host, and tells it by the way which of its commits are durable.
    pub(crate) fn answer(&mut self, host: Generation, reply: Reply, out: &mut Effects) {
        let confirmed = self.sessions.take_confirmed(host);
        self.counters.messages_sent += 1;
        let answer = Answer { epoch: self.monitor.epoch(), confirmed, reply };
        out.send(NodeId::Host(host), Message::Answer(answer));
    }

    pub(crate) fn refuse(&mut self, transaction: TransactionId, step: Step, refusal: Refusal, out: &mut Effects) {
        match refusal {
            Refusal::TooLate { .. } => self.counters.refused_too_late += 1,
            _ => self.counters.refused_other += 1,
        }
        self.answer(transaction.host, Reply::Refused { transaction, step, refusal }, out);
    }

    pub(crate) fn ignore(&mut self, why: Ignored, out: &mut Effects) {
        self.counters.ignored += 1;
        out.ignore(why);
    }
}

/// What a refusal of the command is called.
fn step_of(command: &Command) -> Step {
    match command {
        Command::Prewrite { .. } => Step::Prewrite,
        Command::Write { .. } => Step::Write,
        _ => Step::Read,
    }
}

impl Machine for Device {
    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
        match input {
            Input::Start => {
                assert_eq!(self.service, Service::Off, "a device is started once");
                self.service = Service::Recovering;
                self.store.start(out);
            }
            Input::Message { from, message } => {
                self.counters.messages_received += 1;
                self.on_message(now, from, message, out);
            }
            Input::DiskDone { tag, result } => self.store.on_disk_done(now, tag, result, out),
            Input::Request { .. } => panic!("a device takes no requests of front ends"),
            Input::Wake => {}
        }
        if self.store.deadline().is_some_and(|deadline| deadline <= now.time) {
            self.store.wake(now, out);
        }
        self.time_out_locks(now, out);
        if self.requests.deadline().is_some_and(|deadline| deadline <= now.time) {
            self.end_waits(now, out);
        }
        if self.service == Service::Serving {
            self.patrol(now, out);
        }
        if self.next_report().is_some_and(|report| report <= now.time) {
            self.report(now, out);
        }
        // Each may bring about more of the other.
        loop {
            self.on_store_events(now, out);
            if !self.transactions.have_released() {
                break;
            }
            self.resume_waiting(now, out);
        }
        if self.service == Service::Serving {
            self.tell_when_decided(now, out);
        }
    }

    fn deadline(&self) -> Option<Time> {
        let patrol = self.sessions.deadline().filter(|_| self.service == Service::Serving);
        let lock_timeout = self.locking.timeouts.next().map(|(time, _)| time);
        [self.store.deadline(), patrol, lock_timeout, self.requests.deadline(), self.next_report()]
            .into_iter()
            .flatten()
            .min()
    }

    fn invariants(&self) {
        if self.service != Service::Serving {
            return;
        }
        self.store.invariants();
        self.transactions.invariants();
        self.locking.invariants();
        self.suspects_invariants();
        self.reservation.invariants(self.stamps.highest_ever());
        for id in self.orphans.iter() {
            assert!(self.transactions.get(id).is_some(), "an orphan is a transaction: {id}");
        }
        for id in self.waiting.in_order() {
            let waiting = self.waiting.get(id).expect("just listed");
            let Waiting { stamp, ordering, object, blocks, .. } = waiting;
            let is_blocked = self.transactions.is_blocked(id, *stamp, *ordering, *object, blocks);
            assert!(is_blocked, "every waiting request has a blocker: {id}");
        }
    }
}
