//! Processes that lock objects on modelled devices, each one lock after the other, until all have reached their number of locks.

use super::manager::LockManager;
use super::parameters::LockParameters;
use crate::disk_latency::DiskModel;
use crate::engine::{Engine, EngineResult, Role, fixed_host, without_timeouts};
use crate::prelude::*;
use crate::storage::ModelStorage;
use crate::tally::{Latencies, Measured};
use braid_base::limits::OBJECT_COMMANDS_MAX;
use braid_base::{ArrayId, BlockRange, LockServerId};
use braid_benchkit::locking::{Counts, LockAddress, LockOwner, Locker, LockerEvent, Step, Strategy};
use braid_device::DeviceConfig;
use braid_layout::Atomicity;
use braid_machine::{HostSuccess, ObjectsRequest};
use braid_store::StoreConfig;
use braid_wire::{
    Action, LockCommand, LockExtent, LockMode, LockRequest, LockTerm, Message, ObjectCommand, ObjectRequest,
};

const ARRAY: ArrayId = ArrayId(*b"locks of objects");
/// Longer than any run.
const NEVER: Duration = Duration::from_secs(1_000_000);
const MANAGER: LockServerId = LockServerId(0);

/// Processes, devices, and the lock manager, if one keeps the locks.
pub struct LockingSystem {
    parameters: LockParameters,
    engine: Engine<Event>,
    processes: Vec<Process>,
    /// Processes that have not finished yet.
    running: usize,
    /// For the choices of processes.
    sampler: Rng,
    began: Time,
    latencies: Latencies,
}

struct Process {
    locker: Locker,
    left: u64,
    since: Time,
    /// The number of the process's lock request at the lock manager.
    lock_id: u64,
}

enum Event {
    /// A process has finished waiting.
    Waited { process: usize },
    /// A host's processor has received the request of its process.
    Taken { process: usize, request: ObjectsRequest },
}

impl LockingSystem {
    /// Creates the nodes that the parameters describe, idle, with all objects created. The seed determines the run completely.
    pub fn new(parameters: &LockParameters, seed: u64) -> LockingSystem {
        let mut seeds = Rng::new(seed);
        let (processes, devices) = (parameters.system.processes, parameters.system.devices);
        let sampler = crate::sampler::Sampler::new(seeds.next_u64());
        let hardware = (&parameters.network, &parameters.processor);
        let mut system = LockingSystem {
            parameters: parameters.clone(),
            engine: Engine::new(processes as usize, devices as usize, hardware, sampler),
            processes: Vec::new(),
            running: processes as usize,
            sampler: Rng::new(seeds.next_u64()),
            began: Time(0),
            latencies: Latencies::default(),
        };
        let ids: Vec<DeviceId> = (0..devices as u16).map(DeviceId).collect();
        let membership = Membership::first(ids.iter().copied());
        // Locks do not depend on the wall clock.
        let clock = || LocalClock::exact(Time(0));
        for number in 0..processes {
            let generation = Generation(number as u32 + 1);
            let host = Host::new(fixed_host(generation, &ids, &[], &without_timeouts(), seeds.next_u64()));
            system.engine.add(NodeId::Host(generation), Role::Client(Box::new(host)), None, clock());
            let locker = Locker::new(number, parameters.habit());
            let left = parameters.run.locks_per_process;
            system.processes.push(Process { locker, left, since: Time(0), lock_id: 0 });
        }
        for device in ids {
            let store = StoreConfig { array: ARRAY, device, size: u64::MAX };
            let config = DeviceConfig {
                store,
                membership: Some(membership.clone()),
                settings: without_timeouts(),
                holder: None,
            };
            let machine = Device::over(config, Box::new(ModelStorage::new(no_component())));
            let disk = Some(DiskModel::new(&parameters.disk));
            system.engine.add(NodeId::Device(device), Role::Device(Box::new(machine)), disk, clock());
        }
        if parameters.system.locks == LockOwner::Manager {
            let disk = Some(DiskModel::new(&parameters.lock_server_disk));
            let manager = Role::LockManager(Box::<LockManager>::default());
            system.engine.add(NodeId::LockServer(MANAGER), manager, disk, clock());
        }
        system.populate();
        system
    }

    /// Runs until every process has had all of its locks; returns the results.
    pub fn run(mut self) -> Measured {
        let (busy, manager_busy) = (self.disks_busy(), self.manager_busy());
        let (events, messages) = (self.engine.events(), self.engine.messages());
        self.began = self.engine.now();
        for process in 0..self.processes.len() {
            self.next(process);
        }
        while self.running > 0 {
            match self.engine.advance() {
                Some(Event::Waited { process }) => self.resume(process, LockerEvent::Nothing),
                Some(Event::Taken { process, request }) => {
                    self.engine.ask(process, OpId::front_end(process as u64), request);
                }
                None => {}
            }
            while let Some(result) = self.engine.next_result() {
                self.on_result(result);
            }
        }
        let locks = self.latencies.count();
        let seconds = self.engine.now().since(self.began).as_secs_f64();
        let mut counts = Counts::default();
        self.processes.iter().for_each(|process| counts += process.locker.counts());
        let share = |end: Duration, start: Duration, arms: u64| (end - start).as_secs_f64() / seconds / arms as f64;
        let arms = self.parameters.system.devices * self.parameters.disk.arms;
        let manager = (self.parameters.system.locks == LockOwner::Manager)
            .then(|| share(self.manager_busy(), manager_busy, self.parameters.lock_server_disk.arms));
        Measured {
            messages_per_op: (self.engine.messages() - messages) as f64 / locks,
            delayed_fraction: counts.delayed as f64 / locks,
            restarts_per_op: counts.refused as f64 / locks,
            disk_utilization: share(self.disks_busy(), busy, arms),
            lock_server_utilization: manager.unwrap_or(0.0),
            events: self.engine.events() - events,
            requests_per_lock: Some(counts.requests as f64 / locks),
            ..self.latencies.measured(seconds)
        }
    }

    /// Creates all objects: the first process does so before the measurement begins.
    fn populate(&mut self) {
        let devices = self.parameters.system.devices;
        // The next device also needs an object for `Work::GetElsewhere`.
        let count = self.parameters.objects().max(devices);
        let mut batches: Vec<(DeviceId, ObjectRequest)> = Vec::new();
        for device in 0..devices {
            let places: Vec<LockAddress> =
                (device..count).step_by(devices as usize).map(|index| self.place(index)).collect();
            for batch in places.chunks(OBJECT_COMMANDS_MAX) {
                let commands = batch.iter().map(|place| ObjectCommand::new(place.object, Action::Create)).collect();
                batches.push((DeviceId(device as u16), ObjectRequest { commands }));
            }
        }
        for (device, request) in batches {
            self.engine.ask(0, OpId::front_end(0), ObjectsRequest::Execute { device, request, patience: NEVER });
            loop {
                let event = self.engine.advance();
                assert!(event.is_none(), "no process has started");
                if let Some(EngineResult::Outcome { outcome, .. }) = self.engine.next_result() {
                    outcome.expect("new objects can be made");
                    break;
                }
            }
        }
    }

    /// The address of the object with this index: objects are distributed over the devices in turn.
    fn place(&self, index: u64) -> LockAddress {
        let devices = self.parameters.system.devices;
        LockAddress { device: DeviceId((index % devices) as u16), object: ObjectId(index / devices + 1) }
    }

    fn next(&mut self, process: usize) {
        let index = match self.parameters.workload.strategy {
            Strategy::Uncontended => process as u64,
            _ => self.sampler.below(self.parameters.workload.objects),
        };
        // The other object is the first object of the next device.
        let elsewhere = self.place((index + 1) % self.parameters.system.devices);
        let (at, now) = (self.place(index), self.engine.now());
        self.processes[process].since = now;
        let step = self.processes[process].locker.begin(at, elsewhere, now);
        self.perform(process, step);
    }

    fn resume(&mut self, process: usize, event: LockerEvent<'_>) {
        let step = self.processes[process].locker.resume(self.engine.now(), &mut self.sampler, event);
        self.perform(process, step);
    }

    fn perform(&mut self, process: usize, step: Step) {
        match step {
            Step::Ask { device, request } => {
                let taken = self.engine.take_in(process);
                let request = ObjectsRequest::Execute { device, request, patience: NEVER };
                if taken > self.engine.now() {
                    self.engine.foresee(taken, Event::Taken { process, request });
                } else {
                    self.engine.ask(process, OpId::front_end(process as u64), request);
                }
            }
            Step::Lock(place) => {
                self.processes[process].lock_id += 1;
                let lock_id = self.processes[process].lock_id;
                let devices = self.parameters.system.devices;
                // One table has the objects of all devices.
                let object = ObjectId(place.object.0 * devices + u64::from(place.device.0));
                let range = BlockRange { start: 0, count: 1 };
                let extents = vec![LockExtent { position: place.device.0, range, mode: LockMode::Exclusive }];
                let term = LockTerm::Transaction { impatient: false };
                self.tell_manager(process, LockCommand::Lock { lock_id, object, extents, term });
            }
            Step::GiveBack(_) => {
                let lock_id = self.processes[process].lock_id;
                self.tell_manager(process, LockCommand::Unlock { lock_id });
            }
            Step::Wait(span) => {
                self.engine.foresee(self.engine.now().after(span), Event::Waited { process });
            }
            Step::Done => self.on_done(process),
        }
    }

    fn tell_manager(&mut self, process: usize, command: LockCommand) {
        let host = Generation(process as u32 + 1);
        let request = LockRequest { host, start: Generation(0), dropped: Vec::new(), command };
        self.engine.send(process, NodeId::LockServer(MANAGER), Message::LockRequest(request));
    }

    fn on_result(&mut self, result: EngineResult) {
        match result {
            EngineResult::Outcome { op, outcome } => self.on_outcome(op.number as usize, outcome),
            EngineResult::Locking { node, reply: LockReply::Granted { waited, .. } } => {
                self.resume(node, LockerEvent::Managed { waited });
            }
            EngineResult::Locking { node, reply: LockReply::Unlocked { .. } } => {
                self.resume(node, LockerEvent::Managed { waited: false });
            }
            EngineResult::Locking { reply, .. } => unreachable!("the lock manager never sends {reply:?}"),
        }
    }

    fn on_outcome(&mut self, process: usize, outcome: HostOutcome) {
        match outcome {
            Ok(HostSuccess::Objects(results)) => self.resume(process, LockerEvent::Results(&results)),
            other => panic!("no request fails in this model: {other:?}"),
        }
    }

    fn on_done(&mut self, process: usize) {
        self.latencies.record(self.engine.now().since(self.processes[process].since));
        let left = &mut self.processes[process].left;
        *left -= 1;
        match *left {
            0 => self.running -= 1,
            _ => self.next(process),
        }
    }

    /// Working time of the disks of these nodes.
    fn busy(&self, is_one: fn(&Role) -> bool) -> Duration {
        let disks = self.engine.nodes().filter(|(role, _)| is_one(role)).filter_map(|(_, node)| node.disk());
        disks.map(|disk| disk.busy(self.engine.now())).sum()
    }

    fn disks_busy(&self) -> Duration {
        self.busy(|role| matches!(role, Role::Device(_)))
    }

    fn manager_busy(&self) -> Duration {
        self.busy(|role| matches!(role, Role::LockManager(_)))
    }
}

/// Devices have no components, only objects of this kind.
fn no_component() -> ObjectDescription {
    let (ordering, atomicity) = (Ordering::None, Atomicity::Consistent);
    ObjectDescription { ordering, redundant: false, atomicity, ..ObjectDescription::new(ObjectId(u64::MAX), 0) }
}
