//! Machines whose state other tasks can read while they run: the metrics of the machine, its shell and its process.

use braid_admin::snapshot::LEASE_COUNTER;
use braid_base::{Epoch, Level, Now, Time};
use braid_device::{Device, Service};
use braid_locks::{LeasedLockServer, LockService};
use braid_machine::{Abandon, Effect, Effects, Input, Machine, Never, OneDisk};
use braid_membership::{Monitor, MonitorService};
use braid_recording::{Recorded, RecordedOutcome, Recorder};
use braid_session::{Metrics, of_clock, of_process, of_shell};
use braid_shell::{Counters, View, Watched};
use braid_wire::{Command, Managed, Message, Reply, Task};
use serde::Serialize;
use std::sync::Arc;
use tokio::sync::watch;

/// A device that publishes whether it serves, and adds the metrics of its shell and process to answers to [`Task::Inspect`].
pub struct InspectedDevice {
    machine: Recorded<Watched<Device>>,
    device: View<Device>,
    shell: Arc<Counters>,
    own_process: bool,
}

impl InspectedDevice {
    /// `own_process` says that the process runs this device alone, so that the process's metrics are the device's.
    pub fn new(
        device: Device,
        recorder: Option<Recorder>,
        shell: Arc<Counters>,
        own_process: bool,
    ) -> (Self, watch::Receiver<Service>) {
        let (machine, device, service) = Watched::publishing(device, |device| device.service().clone());
        (InspectedDevice { machine: Recorded::new(machine, recorder), device, shell, own_process }, service)
    }

    /// Steps the machine with a request to inspect, and adds metrics to the answer.
    fn inspect(&mut self, now: Now, input: Input, out: &mut Effects) {
        let mut effects = Effects::new();
        self.machine.step(now, input, &mut effects);
        let has_lease = self.device.look(|device| device.has_lease(now.time));
        for effect in effects.drain() {
            match effect {
                Effect::Send { to, mut message } => {
                    if let Message::Answer(answer) = &mut message
                        && let Reply::Managed { result: Ok(Managed::Inspected(inspection)), .. } = &mut answer.reply
                    {
                        inspection.counters.push((LEASE_COUNTER.to_string(), has_lease.into()));
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

impl Machine for InspectedDevice {
    type Request = Never;
    type Outcome = Never;
    type Disk = OneDisk;

    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
        if asks_to_inspect(&input) {
            self.inspect(now, input, out);
        } else {
            self.machine.step(now, input, out);
        }
    }

    fn level(&self) -> Level {
        self.machine.level()
    }

    fn deadline(&self) -> Option<Time> {
        self.machine.deadline()
    }

    fn invariants(&self) {
        self.machine.invariants();
    }
}

/// A machine that serves others, and has metrics.
pub trait Server:
    Machine<Request: Abandon + Clone + Serialize, Outcome: RecordedOutcome, Disk = OneDisk> + 'static
{
    type Service: PartialEq;

    fn service(&self) -> Self::Service;

    fn counted(&self) -> Vec<(&'static str, u64)>;
}

impl Server for LeasedLockServer {
    type Service = LockService;

    fn service(&self) -> LockService {
        self.server().service()
    }

    fn counted(&self) -> Vec<(&'static str, u64)> {
        let engine = self.server().engine();
        let filled = [("hosts", engine.hosts().count() as u64), ("requests_in_table", engine.requests() as u64)];
        self.server().counters().list().into_iter().chain(filled).collect()
    }
}

/// What other processes wait for the monitor to publish: the epoch, and how many devices have leases, and how many are unavailable.
pub type Awaited = (Epoch, usize, usize);

impl Server for Monitor {
    type Service = (MonitorService, Awaited);

    fn service(&self) -> (MonitorService, Awaited) {
        let leases = self.leases().filter(|lease| lease.runs_until.is_some()).count();
        (Monitor::service(self), (self.membership().epoch, leases, self.unavailable().len()))
    }

    fn counted(&self) -> Vec<(&'static str, u64)> {
        let fence = &self.membership().fence;
        let listed = fence.except.len().max(fence.also.len());
        self.counters().list().into_iter().chain([("hosts_in_fence", listed as u64)]).collect()
    }
}

/// Read access to a server, with its metrics.
pub struct ServerView<S> {
    server: View<S>,
    shell: Arc<Counters>,
}

impl<S: Server> ServerView<S> {
    /// A server that publishes the state of its service.
    pub fn new(
        server: S,
        recorder: Option<Recorder>,
        shell: Arc<Counters>,
    ) -> (Recorded<Watched<S>>, ServerView<S>, watch::Receiver<S::Service>) {
        let (machine, server, service) = Watched::publishing(server, S::service);
        (Recorded::new(machine, recorder), ServerView { server, shell }, service)
    }

    /// The metrics of the server and its shell since their start, and of its process.
    pub fn counters(&self) -> Metrics {
        self.server.look(|server| metrics_of(server, &self.shell))
    }

    /// Reads any other state of the server.
    pub fn look<T>(&self, at: impl FnOnce(&S) -> T) -> T {
        self.server.look(at)
    }
}

/// The metrics of a server and its shell since their start, and of its process.
pub fn metrics_of(server: &impl Server, shell: &Counters) -> Metrics {
    let server = server.counted().into_iter().map(|(name, value)| (name.to_string(), value));
    server.chain(of_shell(shell)).chain(of_process()).chain([of_clock()]).collect()
}

fn asks_to_inspect(input: &Input) -> bool {
    matches!(input, Input::Message { message: Message::Request(request), .. }
        if matches!(request.command, Command::Manage { task: Task::Inspect, .. }))
}
