//! Several volumes on the same devices, each with its own layout and ordering. The seed determines them. They are created and removed as
//! the control plane of a real array does it.

use crate::cluster::{Cluster, Failed, HostSlot};
use crate::options::{Choices, Options};
use crate::swarm::{AFTERMATH, Run};
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId, NodeId, Rng, VolumeId};
use braid_layout::{Layout, RaidLevel, VolumeDescription};
use braid_machine::{ArrayRequest, ControlRequest, HostError, OpId};
use braid_ordering::{Atomicity, Ordering};
use braid_wire::{Failure, Task};
use braid_world::FaultKind;
use std::time::Duration;

/// A volume in addition to the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoreVolume {
    /// The layout on its ring.
    pub layout: Layout,
    /// The first device of its ring. The others follow in order; the array's first device follows its last.
    pub first: u16,
    pub ordering: Ordering,
    /// Length in stripes.
    pub stripes: u64,
}

impl MoreVolume {
    /// Draws a volume on some of `devices` devices.
    pub(crate) fn draw(rng: &mut Rng, devices: usize, redundant: bool) -> MoreVolume {
        let schemes = match redundant && devices > 1 {
            true => [RaidLevel::Raid1 { copies: 2 }, RaidLevel::Raid5 { data: 2 }, RaidLevel::Raid5 { data: 3 }],
            false => [RaidLevel::Raid0 { data: 1 }, RaidLevel::Raid0 { data: 2 }, RaidLevel::Raid0 { data: 3 }],
        };
        let fitting: Vec<RaidLevel> = schemes.into_iter().filter(|scheme| scheme.width() <= devices).collect();
        let scheme = fitting[rng.below(fitting.len() as u64) as usize];
        let width = rng.between(scheme.width() as u64, devices as u64) as usize;
        let unit = [1, 1, 2, 4][rng.below(4) as usize];
        let layout = Layout::new(scheme, width, unit).expect("a ring that is wide enough");
        let orderings = [
            Ordering::Timestamp,
            Ordering::Timestamp,
            Ordering::DeviceLock,
            Ordering::ServerLock,
            Ordering::CallbackLock,
            // Without an ordering, redundancy is not kept consistent among several users.
            if layout.redundancy_units() > 0 { Ordering::Timestamp } else { Ordering::None },
        ];
        let ordering = orderings[rng.below(orderings.len() as u64) as usize];
        MoreVolume { layout, first: rng.below(devices as u64) as u16, ordering, stripes: rng.between(1, 3) }
    }
}

impl Options {
    /// Adds volumes in some seeds; if the choices name them, in all seeds in which there can be several.
    pub(crate) fn with_volumes(mut self, choices: &Choices) -> Options {
        let kind = FaultKind::Volumes;
        let is_of_one_volume =
            self.moves || self.attribute_volume.is_some() || !self.dying.is_empty() || self.faults.has(FaultKind::Calm);
        let may = choices.kinds().contains(&kind) && self.atomicity == Atomicity::Implied && !is_of_one_volume;
        let named = choices.only.contains(&kind) || choices.also.contains(&kind);
        let rng = &mut self.source("volumes");
        if !may || !(rng.below(10) == 0 || named) {
            return self;
        }
        self.other_devices = rng.below(3) as u16;
        let devices = self.layout.devices() + usize::from(self.other_devices);
        // A volume without redundancy prevents its devices from being taken out.
        let redundant = rng.chance(2, 3);
        for _ in 0..rng.between(1, 3) {
            let redundant = redundant || rng.chance(1, 2);
            self.more_volumes.push(MoreVolume::draw(rng, devices, redundant));
        }
        let by_lock_servers = self.more_volumes.iter().any(|volume| volume.ordering.needs_lock_server());
        self.lock_servers = self.lock_servers.max(u16::from(by_lock_servers));
        // A new disk would lack the content of volumes without redundancy, and damage is placed for one volume only.
        self.faults.weights.remove(&FaultKind::Misdirected);
        if self.layouts().any(|layout| layout.redundancy_units() == 0) {
            self.faults.weights.remove(&FaultKind::Replace);
        }
        // Space is not limited where several volumes share it. Clients that lose their connections would repeat requests for the
        // first volume only.
        Options { chunks: None, reconnects: None, ..self }
    }

    /// The layouts of all volumes.
    pub(crate) fn layouts(&self) -> impl Iterator<Item = &Layout> {
        let of_files = self.files.iter().map(|files| &files.data.layout);
        [&self.layout].into_iter().chain(self.more_volumes.iter().map(|volume| &volume.layout)).chain(of_files)
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
        let MoreVolume { layout, first, ordering, stripes } = *more;
        let all = self.devices().len() as u16;
        let volume = VolumeDescription {
            id: VolumeId(highest.expect("there is a volume") + 1),
            bytes: stripes * layout.stripe_blocks() * BLOCK_BYTES as u64,
            layout,
            devices: (0..layout.devices() as u16).map(|number| DeviceId((first + number) % all)).collect(),
            ordering,
            atomicity: Atomicity::Implied,
            parity_site: Default::default(),
            moving: None,
        };
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
        let op = OpId(self.next_op);
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

impl Run {
    /// Between two swarm runs, checks and removes the last volume, and creates another one.
    pub(crate) fn change_volumes(&mut self) -> Result<(), Failed> {
        let refused = |error: HostError| Failed { check: "volume-refused", details: error.to_string() };
        let rng = &mut self.cluster.options.source("volumes").named("another");
        let by = HostSlot(0);
        // Messages of dead hosts have arrived after this time.
        self.cluster.run_for(AFTERMATH);
        let (last, options) = (self.cluster.others.len() - 1, &self.cluster.options);
        let redundant = options.layouts().all(|layout| layout.redundancy_units() > 0);
        let lock_servers = options.lock_servers;
        self.cluster.on_volume(last, |cluster| cluster.check_volume(by, &[]))?;
        self.cluster.remove_volume(by, last).map_err(refused)?;
        // If all volumes had redundancy, the new one has it, too: faults of this run may depend on it.
        let mut more = MoreVolume::draw(rng, self.cluster.devices().len(), redundant);
        if more.ordering.needs_lock_server() && lock_servers == 0 {
            more.ordering = Ordering::Timestamp;
        }
        self.cluster.make_volume(by, &more).map_err(refused)?;
        self.count_fault("volume removed, another made");
        Ok(())
    }
}
