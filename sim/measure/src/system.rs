//! An array on modelled hardware with the request streams of its hosts: the shared-array paper's experiments.

use crate::disk_latency::DiskModel;
use crate::engine::{Engine, EngineResult, Role, fixed_host, fixed_lock_server, without_timeouts};
use crate::parameters::{Arrivals, Parameters, milliseconds};
use crate::prelude::*;
use crate::sampler::Sampler;
use crate::storage::ModelStorage;
use crate::tally::{Tally, Totals, Workers};
use crate::workload::Requests;
use braid_base::limits::Settings;
use braid_base::{ArrayId, LockServerId, VolumeId};
use braid_device::DeviceConfig;
use braid_host::HostConfig;
use braid_layout::{Layout, RaidLevel, VolumeDescription};
use braid_locks::LockServer;
use braid_store::StoreConfig;

const ARRAY: ArrayId = ArrayId(*b"a modelled array");
/// An array, its hosts, and their requests.
pub struct System {
    engine: Engine<Event>,
    hosts: usize,
    devices: usize,
    requests: Requests,
    arrivals: Arrivals,
    streams_per_host: usize,
    workload_sampler: Sampler,
    operations: Vec<Operation>,
    free: Vec<u32>,
    pub tally: Tally,
}

/// A request in progress.
#[derive(Clone, Copy, Debug)]
struct Operation {
    stream: u32,
    since: Time,
}

enum Event {
    /// A stream issues a request to its host.
    Asked { stream: u32 },
    /// The host's processor has received the request.
    Taken { operation: u32 },
}

impl System {
    /// Creates the array that the parameters describe, idle. The seed determines the run completely.
    pub fn new(parameters: &Parameters, ordering: Ordering, seed: u64) -> System {
        let mut seeds = Rng::new(seed);
        let mut clocks = Sampler::new(seeds.next_u64());
        let volumes = volumes(parameters, ordering);
        let settings = settings(parameters);
        let devices: Vec<DeviceId> = (0..parameters.system.devices as u16).map(DeviceId).collect();
        let lock_servers: Vec<LockServerId> = match ordering.needs_lock_server() {
            true => (0..parameters.system.lock_servers as u16).map(LockServerId).collect(),
            false => Vec::new(),
        };
        let (hosts, device_count) = (parameters.system.hosts as usize, devices.len());
        // The seeds of the workload and of the hardware, in this order.
        let (workload_sampler, sampler) = (Sampler::new(seeds.next_u64()), Sampler::new(seeds.next_u64()));
        let mut system = System {
            engine: Engine::new(hosts, device_count, (&parameters.network, &parameters.processor), sampler),
            hosts,
            devices: device_count,
            requests: Requests::new(parameters),
            arrivals: parameters.workload.arrivals,
            streams_per_host: parameters.workload.streams_per_host as usize,
            workload_sampler,
            operations: Vec::new(),
            free: Vec::new(),
            tally: Tally::new(&parameters.run, parameters.system.hosts),
        };
        let membership = Membership::first(devices.iter().copied());
        for number in 1..=parameters.system.hosts as u32 {
            let config = fixed_host(Generation(number), &devices, &lock_servers, &settings, seeds.next_u64());
            let acquisition = parameters.system.lock_acquisition;
            let host = Host::new(HostConfig { acquisition, volumes: volumes.clone(), ..config });
            let id = NodeId::Host(Generation(number));
            system.engine.add(id, Role::Host(Box::new(host)), None, clock(parameters, &mut clocks));
        }
        for (volume, device) in
            volumes.iter().flat_map(|volume| volume.devices.iter().map(move |device| (volume, device)))
        {
            let object = ObjectDescription::new(volume.id.object(), volume.component_blocks());
            let object = ObjectDescription { ordering, atomicity: volume.atomicity, ..object };
            let store = StoreConfig { array: ARRAY, device: *device, size: u64::MAX };
            let config =
                DeviceConfig { store, membership: Some(membership.clone()), settings: settings.clone(), holder: None };
            let machine = Device::over(config, Box::new(ModelStorage::new(object)));
            let disk = Some(DiskModel::new(&parameters.disk));
            let id = NodeId::Device(*device);
            system.engine.add(id, Role::Device(Box::new(machine)), disk, clock(parameters, &mut clocks));
        }
        for server in lock_servers {
            let machine = LockServer::new(fixed_lock_server(server, hosts, &settings));
            let id = NodeId::LockServer(server);
            system.engine.add(id, Role::LockServer(Box::new(machine)), None, clock(parameters, &mut clocks));
        }
        for stream in 0..(system.hosts * system.streams_per_host) as u32 {
            // Streams start at random points of their think time.
            let first = milliseconds(system.workload_sampler.between(0.0, parameters.workload.think_ms));
            system.engine.foresee(Time(0).after(first), Event::Asked { stream });
        }
        system
    }

    /// Runs until the measurement is complete.
    pub fn run(&mut self) {
        while !self.tally.is_over() {
            let event = self.engine.advance();
            self.tally.events = self.engine.events();
            match event {
                Some(Event::Asked { stream }) => self.on_asked(stream),
                Some(Event::Taken { operation }) => {
                    let host = self.operations[operation as usize].stream as usize / self.streams_per_host;
                    let request = self.requests.next(&mut self.workload_sampler);
                    self.engine.ask(host, OpId::front_end(u64::from(operation)), request);
                }
                None => {}
            }
            while let Some(result) = self.engine.next_result() {
                let EngineResult::Outcome { op, outcome } = result else {
                    unreachable!("hosts talk to their lock servers themselves")
                };
                self.on_outcome(op, &outcome);
            }
        }
    }

    /// The counts of all nodes so far.
    pub fn totals(&self) -> Totals {
        let (mut totals, now) = (Totals::default(), self.engine.now());
        for (role, node) in self.engine.nodes() {
            match role {
                Role::Host(host) | Role::Client(host) => {
                    let counters = host.counters();
                    totals.delayed += counters.delayed;
                    totals.restarts += counters.restarts;
                }
                Role::LockServer(_) | Role::LockManager(_) => totals.lock_servers_busy += node.processor_busy(now),
                Role::Device(_) => totals.disks_busy += node.disk().map_or(Duration::ZERO, |disk| disk.busy(now)),
            }
        }
        totals
    }

    /// The number of servers of each kind.
    pub fn workers(&self) -> Workers {
        let disks = self.engine.nodes().filter_map(|(_, node)| node.disk());
        let lock_servers = self.engine.nodes().count() - self.hosts - self.devices;
        Workers { disks: disks.map(DiskModel::arms).sum(), lock_servers }
    }

    fn on_asked(&mut self, stream: u32) {
        if self.arrivals == Arrivals::Open && self.tally.is_full() {
            return self.think(stream);
        }
        let operation = Operation { stream, since: self.engine.now() };
        let slot = self.free.pop().unwrap_or(self.operations.len() as u32);
        if slot as usize == self.operations.len() {
            self.operations.push(operation);
        }
        self.operations[slot as usize] = operation;
        self.tally.asked();
        let taken = self.engine.take_in(stream as usize / self.streams_per_host);
        self.engine.foresee(taken, Event::Taken { operation: slot });
        if self.arrivals == Arrivals::Open {
            self.think(stream);
        }
    }

    fn think(&mut self, stream: u32) {
        let span = self.requests.think(&mut self.workload_sampler);
        self.engine.foresee(self.engine.now().after(span), Event::Asked { stream });
    }

    fn on_outcome(&mut self, op: OpId, outcome: &HostOutcome) {
        let slot = op.number as u32;
        let Operation { stream, since } = self.operations[slot as usize];
        self.free.push(slot);
        let totals = if self.tally.is_at_edge() { self.totals() } else { Totals::default() };
        self.tally.answered(self.engine.now(), self.engine.messages(), since, outcome, totals);
        if self.arrivals == Arrivals::Closed {
            self.think(stream);
        }
    }
}

/// The volumes, each on the devices that follow those of the volume before.
fn volumes(parameters: &Parameters, ordering: Ordering) -> Vec<VolumeDescription> {
    let (system, count) = (&parameters.system, parameters.volumes());
    let scheme = RaidLevel::Raid5 { data: system.data_units as usize };
    let unit_blocks = system.unit_kib * 1024 / BLOCK_BYTES as u64;
    let width = system.devices / count;
    let layout = Layout::new(scheme, width as usize, unit_blocks).expect("parameters are checked");
    let volume = |number: u64| VolumeDescription {
        ordering,
        atomicity: parameters.protocol.atomicity,
        ..VolumeDescription::new(
            VolumeId(1 + number),
            parameters.stripes() * layout.stripe_blocks() * BLOCK_BYTES as u64,
            layout,
            (number * width..(number + 1) * width).map(|device| DeviceId(device as u16)).collect(),
        )
    };
    (0..count).map(volume).collect()
}

fn settings(parameters: &Parameters) -> Settings {
    let protocol = &parameters.protocol;
    Settings {
        lock_timeout: milliseconds(protocol.lock_timeout_ms),
        lock_lease: milliseconds(protocol.lock_lease_ms),
        backoff_min: milliseconds(protocol.backoff_min_ms),
        backoff_max: milliseconds(protocol.backoff_max_ms),
        commit_linger: milliseconds(protocol.commit_linger_ms),
        ..without_timeouts()
    }
}

fn clock(parameters: &Parameters, sampler: &mut Sampler) -> LocalClock {
    let drift = parameters.clock.drift_ppm;
    let mut clock = LocalClock::exact(Time(0)).drifting(sampler.between(-drift, drift).round() as i64);
    let skew = parameters.clock.skew_ms * 1e6;
    clock.step(sampler.between(-skew, skew) as i64);
    clock
}
