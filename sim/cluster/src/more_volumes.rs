//! Clients that use several volumes on the same devices, each with its own layout and ordering. The seed determines them.

use crate::activity::{Activity, Draw, Feature, Options, Run};
use crate::at_rest;
use crate::cluster::{AFTERMATH, Cluster, Failed, HostSlot};
use crate::drawn_volume::MoreVolume;
use crate::prelude::*;
use crate::volumes;
use crate::workload::Workload;

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
        let settings = &mut options.settings;
        settings.request_timeout = settings.request_timeout.max(8 * settings.lock_timeout);
        let another = options.source(MoreVolumes::NAME).named("another");
        Some(MoreVolumes { volumes, another, workloads: Vec::new() })
    }
}

impl Activity for MoreVolumes {
    fn prepare(&self, cluster: &mut Cluster, first: HostSlot) {
        for volume in &self.volumes {
            volumes::make_volume(cluster, first, volume).expect("empty devices take objects");
        }
    }

    fn layouts(&self) -> Vec<Layout> {
        self.volumes.iter().map(|volume| volume.layout).collect()
    }

    fn uses_device_locks(&self) -> bool {
        true
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
        // Messages of dead hosts have arrived after this time.
        run.cluster.run_for(AFTERMATH);
        // A host that was fenced at last is replaced in the next swarm run.
        let fenced = run.cluster.fenced();
        let by = run.cluster.slots().find(|slot| !fenced.contains(slot)).expect("some host is served");
        let last = run.cluster.others.len() - 1;
        run.cluster.on_volume(last, |cluster| at_rest::check_volume(cluster, by, &[]))?;
        volumes::remove_volume(&mut run.cluster, by, last).map_err(refused)?;
        // If all volumes had redundancy, the new one has it, too: faults of this run may depend on it.
        let redundant = run.cluster.options.layout.redundancy_units() > 0
            && self.volumes.iter().all(|volume| volume.layout.redundancy_units() > 0);
        let more = MoreVolume::draw(&mut self.another, run.cluster.devices().len(), redundant);
        let more = more.for_lock_servers(run.cluster.options.lock_servers);
        volumes::make_volume(&mut run.cluster, by, &more).map_err(refused)?;
        run.count_fault("volume removed, another made");
        Ok(())
    }
}
