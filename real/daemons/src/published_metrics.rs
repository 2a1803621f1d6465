//! Machines whose state other tasks can read while they run: the metrics of the machine, its shell and its process.

use braid_admin::snapshot::LEASE_COUNTER;
use braid_base::{Now, Time};
use braid_device::{Device, Service};
use braid_locks::{LockServer, LockService};
use braid_machine::{Abandon, Effect, Effects, EffectsOf, Input, InputOf, Machine, Never, OneDisk};
use braid_membership::{Monitor, MonitorService};
use braid_recording::{RecordedOutcome, Recorder};
use braid_session::{Metrics, of_clock, of_process, of_shell};
use braid_shell::Counters;
use braid_wire::{Command, Managed, Message, Reply, Task};
use serde::Serialize;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::watch;

/// A device that publishes whether it serves, and adds the metrics of its shell and process to answers to [`Task::Inspect`].
pub struct ObservedDevice {
    device: Device,
    recorder: Option<Recorder>,
    seen: watch::Sender<Service>,
    shell: Arc<Counters>,
    own_process: bool,
}

impl ObservedDevice {
    /// `own_process` says that the process runs this device alone, so that the process's metrics are the device's.
    pub fn new(
        device: Device,
        recorder: Option<Recorder>,
        shell: Arc<Counters>,
        own_process: bool,
    ) -> (Self, watch::Receiver<Service>) {
        let (seen, service) = watch::channel(Service::Off);
        (ObservedDevice { device, recorder, seen, shell, own_process }, service)
    }

    /// Steps the machine with a request to inspect, and adds metrics to the answer.
    fn inspect(&mut self, now: Now, input: Input, out: &mut Effects) {
        let mut effects = Effects::new();
        braid_recording::step(&mut self.recorder, &mut self.device, now, input, &mut effects);
        for effect in effects.drain() {
            match effect {
                Effect::Send { to, mut message } => {
                    if let Message::Answer(answer) = &mut message
                        && let Reply::Managed { result: Ok(Managed::Inspected(inspection)), .. } = &mut answer.reply
                    {
                        inspection.counters.push((LEASE_COUNTER.to_string(), self.device.has_lease(now.time).into()));
                        inspection.counters.extend(of_shell(&self.shell));
                        if self.own_process {
                            inspection.counters.extend(of_process());
                        }
                    }
                    out.send(to, message);
                }
                Effect::Disk { tag, command } => out.disk(tag, command),
            }
        }
        effects.drain_ignored().for_each(|why| out.ignore(why));
    }
}

impl Machine for ObservedDevice {
    type Request = Never;
    type Outcome = Never;
    type Disk = OneDisk;

    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
        if asks_to_inspect(&input) {
            self.inspect(now, input, out);
        } else {
            braid_recording::step(&mut self.recorder, &mut self.device, now, input, out);
        }
        self.seen.send_if_modified(|seen| {
            let changed = seen != self.device.service();
            if changed {
                *seen = self.device.service().clone();
            }
            changed
        });
    }

    fn deadline(&self) -> Option<Time> {
        self.device.deadline()
    }

    fn invariants(&self) {
        self.device.invariants();
    }
}

/// A machine that serves others, and has metrics.
pub trait Server: Machine<Request: Abandon + Clone + Serialize, Outcome: RecordedOutcome, Disk = OneDisk> {
    /// The state of its service.
    type Service: Copy + PartialEq;

    /// The state of its service.
    fn service(&self) -> Self::Service;

    /// Its metrics.
    fn counted(&self) -> Vec<(&'static str, u64)>;
}

impl Server for LockServer {
    type Service = LockService;

    fn service(&self) -> LockService {
        LockServer::service(self)
    }

    fn counted(&self) -> Vec<(&'static str, u64)> {
        let filled = [("hosts", self.hosts().count() as u64), ("requests_in_table", self.requests() as u64)];
        self.counters().list().into_iter().chain(filled).collect()
    }
}

impl Server for Monitor {
    type Service = MonitorService;

    fn service(&self) -> MonitorService {
        Monitor::service(self)
    }

    fn counted(&self) -> Vec<(&'static str, u64)> {
        let fence = &self.membership().fence;
        let listed = fence.except.len().max(fence.also.len());
        self.counters().list().into_iter().chain([("hosts_in_fence", listed as u64)]).collect()
    }
}

/// A server that publishes the state of its service and its metrics.
pub struct ObservedServer<S: Server> {
    server: Rc<RefCell<S>>,
    recorder: Option<Recorder>,
    seen: watch::Sender<S::Service>,
}

/// Read access to an [`ObservedServer`].
pub struct ServerView<S> {
    server: Rc<RefCell<S>>,
    shell: Arc<Counters>,
    own_process: bool,
}

impl<S: Server> ObservedServer<S> {
    /// `own_process` says that the process runs this server alone, so that the process's metrics are the server's.
    pub fn new(
        server: S,
        recorder: Option<Recorder>,
        shell: Arc<Counters>,
        own_process: bool,
    ) -> (Self, ServerView<S>, watch::Receiver<S::Service>) {
        let (seen, service) = watch::channel(server.service());
        let server = Rc::new(RefCell::new(server));
        let view = ServerView { server: server.clone(), shell, own_process };
        (ObservedServer { server, recorder, seen }, view, service)
    }
}

impl<S: Server> Machine for ObservedServer<S> {
    type Request = S::Request;
    type Outcome = S::Outcome;
    type Disk = S::Disk;

    fn step(&mut self, now: Now, input: InputOf<S>, out: &mut EffectsOf<S>) {
        braid_recording::step(&mut self.recorder, &mut *self.server.borrow_mut(), now, input, out);
        let service = self.server.borrow().service();
        self.seen.send_if_modified(|seen| std::mem::replace(seen, service) != service);
    }

    fn deadline(&self) -> Option<Time> {
        self.server.borrow().deadline()
    }

    fn invariants(&self) {
        self.server.borrow().invariants();
    }
}

impl<S: Server> ServerView<S> {
    /// The metrics of the server and its shell since their start, and of its process if the server runs there alone.
    pub fn counters(&self) -> Metrics {
        let server = self.server.borrow().counted();
        let server = server.into_iter().map(|(name, value)| (name.to_string(), value));
        let process = self.own_process.then(of_process).into_iter().flatten();
        server.chain(of_shell(&self.shell)).chain(process).chain([of_clock()]).collect()
    }

    /// Reads any other state of the server.
    pub fn look<T>(&self, at: impl FnOnce(&S) -> T) -> T {
        at(&self.server.borrow())
    }
}

fn asks_to_inspect(input: &Input) -> bool {
    matches!(input, Input::Message { message: Message::Request(request), .. }
        if matches!(request.command, Command::Manage { task: Task::Inspect, .. }))
}
