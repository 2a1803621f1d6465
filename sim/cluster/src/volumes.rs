//! Several volumes on the same devices, each with its own layout and ordering. The seed determines them. They are created and removed as
//! the control plane of a real array does it.

use crate::activity::{Activity, Draw, Feature};
use crate::cluster::{Cluster, Failed, HostSlot};
use crate::more_volume::MoreVolume;
use crate::options::Options;
use crate::swarm::{AFTERMATH, Run};
use crate::workload::Workload;
use braid_base::{BlockRange, DeviceId, NodeId, Rng, VolumeId};
use braid_layout::{Layout, VolumeDescription};
use braid_machine::{ArrayRequest, ControlRequest, HostError, OpId};
use braid_wire::{Failure, Task};
use braid_world::FaultKind;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct MoreVolumes {
    /// In the middle of the run the last of them is removed, and another one is created.
    volumes: Vec<MoreVolume>,
    /// Draws the other one.
    another: Rng,
    workloads: Vec<Workload>,
}

impl Feature for MoreVolumes {
    const NAME: &'static str = "volumes";
    const ONE_IN: u64 = 10;
    const NOT_WITH: &'static [&'static str] = &["migrate", "attribute-volumes", "dead", "calm"];

    fn draw(options: &mut Options, draw: &mut Draw) -> Option<MoreVolumes> {
        let rng = &mut draw.rng;
        options.other_devices = rng.below(3) as u16;
        let devices = options.layout.devices() + usize::from(options.other_devices);
        // A volume without redundancy prevents its devices from being taken out.
        let redundant = rng.chance(2, 3);
        let more = (0..rng.between(1, 3)).map(|_| {
            let redundant = redundant || rng.chance(1, 2);
            MoreVolume::draw(rng, devices, redundant)
        });
        let volumes: Vec<MoreVolume> = more.collect();
        let by_lock_servers = volumes.iter().any(|volume| volume.ordering.needs_lock_server());
        options.lock_servers = options.lock_servers.max(u16::from(by_lock_servers));
        // A new disk would lack the content of volumes without redundancy, and damage is placed for one volume only.
        options.without_faults(&[FaultKind::Misdirected]);
        if volumes.iter().map(|volume| &volume.layout).chain([&options.layout]).any(|it| it.redundancy_units() == 0) {
            options.without_faults(&[FaultKind::Replace]);
        }
        // Space is not limited where several volumes share it. Clients that lose their connections would repeat requests for the
        // first volume only.
        options.chunks = None;
        options.activities.remove(&["reconnect"]);
        let another = options.source(MoreVolumes::NAME).named("another");
        Some(MoreVolumes { volumes, another, workloads: Vec::new() })
    }
}

impl Activity for MoreVolumes {
    fn prepare(&self, cluster: &mut Cluster, first: HostSlot) {
        for volume in &self.volumes {
            cluster.make_volume(first, volume).expect("empty devices take objects");
        }
    }

    fn layouts(&self) -> Vec<Layout> {
        self.volumes.iter().map(|volume| volume.layout).collect()
    }

    fn start(&mut self, run: &mut Run, rng: &mut Rng) {
        let workload = |volume: &VolumeDescription| Workload::new(&volume.layout, volume.stripes(), rng.fork());
        self.workloads = run.cluster.others.iter().map(workload).collect();
    }

    fn operate(&mut self, run: &mut Run, rng: &mut Rng, slot: HostSlot, client: usize) -> bool {
        let number = rng.below(self.workloads.len() as u64 + 1) as usize;
        let Some(workload) = self.workloads.get_mut(number.wrapping_sub(1)) else { return false };
        let (operation, patience) = (workload.operation(), run.patience());
        run.cluster.on_volume(number - 1, |cluster| cluster.operation_with(slot, client, operation, patience));
        true
    }

    /// Between two swarm runs, checks and removes the last volume, and creates another one.
    fn at_rest(&mut self, run: &mut Run, _rng: &mut Rng, is_last: bool) -> Result<(), Failed> {
        if is_last {
            return Ok(());
        }
        let refused = |error: HostError| Failed { check: "volume-refused", details: error.to_string() };
        let by = HostSlot(0);
        // Messages of dead hosts have arrived after this time.
        run.cluster.run_for(AFTERMATH);
        let last = run.cluster.others.len() - 1;
        run.cluster.on_volume(last, |cluster| cluster.check_volume(by, &[]))?;
        run.cluster.remove_volume(by, last).map_err(refused)?;
        // If all volumes had redundancy, the new one has it, too: faults of this run may depend on it.
        let redundant = run.cluster.options.layout.redundancy_units() > 0
            && self.volumes.iter().all(|volume| volume.layout.redundancy_units() > 0);
        let more = MoreVolume::draw(&mut self.another, run.cluster.devices().len(), redundant);
        let more = more.for_lock_servers(run.cluster.options.lock_servers);
        run.cluster.make_volume(by, &more).map_err(refused)?;
        run.count_fault("volume removed, another made");
        Ok(())
    }
}

impl Cluster {
    pub(crate) fn volumes(&self) -> Vec<VolumeDescription> {
        [&self.volume].into_iter().chain(&self.others).cloned().collect()
    }

    /// Executes `act` with another volume as the current one.
    pub(crate) fn on_volume<T>(&mut self, number: usize, act: impl FnOnce(&mut Cluster) -> T) -> T {
        std::mem::swap(&mut self.volume, &mut self.others[number]);
        let outcome = act(self);
        std::mem::swap(&mut self.volume, &mut self.others[number]);
        outcome
    }

    /// Creates another volume: first at the devices, then at the monitor, then at the hosts.
    pub(crate) fn make_volume(&mut self, by: HostSlot, more: &MoreVolume) -> Result<(), HostError> {
        let highest = self.volumes().iter().chain(&self.removed).map(|volume| volume.id.0).max();
        let id = VolumeId(highest.expect("there is a volume") + 1);
        let volume = more.describe(id, self.devices().len());
        let VolumeDescription { layout, ordering, .. } = volume;
        let BlockRange { start: first, count: blocks } = volume.component();
        let (object, atomicity, redundant) = (volume.id.object(), volume.atomicity, layout.redundancy_units() > 0);
        for device in volume.devices.clone() {
            let task = Task::CreateObject { object, first, blocks, ordering, redundant, atomicity, absent: 0 };
            self.manage(by, device, task)?;
        }
        self.others.push(volume.clone());
        self.tell_monitor(ControlRequest::AdoptVolume { volume: volume.clone() });
        self.tell_hosts(&ArrayRequest::AdoptVolume { volume })
    }

    /// Removes a volume without users: first at the hosts, last at the monitor.
    pub(crate) fn remove_volume(&mut self, by: HostSlot, number: usize) -> Result<(), HostError> {
        let volume = self.others[number].clone();
        self.tell_hosts(&ArrayRequest::DropVolume { volume: volume.id })?;
        for device in &volume.devices {
            self.manage(by, *device, Task::RemoveObject { object: volume.id.object() })?;
        }
        self.tell_monitor(ControlRequest::DropVolume { volume: volume.id });
        self.removed.push(self.others.remove(number));
        Ok(())
    }

    pub(crate) fn tell_monitor_of_volume(&mut self) {
        for volume in self.volumes_for_monitor() {
            self.tell_monitor(ControlRequest::AdoptVolume { volume });
        }
    }

    pub(crate) fn tell_monitor(&mut self, request: ControlRequest) {
        let op = OpId::front_end(self.next_op);
        self.next_op += 1;
        self.world.request(NodeId::Monitor, op, request);
    }

    fn manage(&mut self, by: HostSlot, device: DeviceId, task: Task) -> Result<(), HostError> {
        let until = self.world.now().after(AFTERMATH);
        loop {
            let asked = self.ask(by, ArrayRequest::Manage { device, task: task.clone() });
            match self.finish(asked) {
                // The state of the last reads goes when devices have learned that the reads are answered.
                Err(HostError::Device { failure: Failure::InUse, .. }) if self.world.now() < until => {
                    self.run_for(Duration::from_millis(100));
                }
                outcome => return outcome.map(drop),
            }
        }
    }

    fn tell_hosts(&mut self, request: &ArrayRequest) -> Result<(), HostError> {
        for slot in self.slots().collect::<Vec<_>>() {
            if self.world.machine(self.node(slot)).is_some_and(|role| role.host().is_some()) {
                let asked = self.ask(slot, request.clone());
                self.finish(asked)?;
            }
        }
        Ok(())
    }
}
