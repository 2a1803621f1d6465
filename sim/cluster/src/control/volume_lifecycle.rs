//! Volumes that are created and deleted during a run, beside the first one, while clients use them.

use super::reordering_and_migration::{NOT_PLAIN, begin_at_any};
use super::store::volume_entry;
use crate::activity::{Activity, Draw, Feature, Options, Run};
use crate::cluster::{Cluster, HostSlot};
use crate::drawn_volume::MoreVolume;
use crate::prelude::*;
use crate::workload::Workload;
use braid_control_protocol::{Creation, Deletion, Operation, Timing};

/// There are at most so many volumes beside the first one.
const VOLUMES_MAX: usize = 3;

#[derive(Clone, Debug)]
pub(crate) struct CreateDelete;

impl Feature for CreateDelete {
    const NAME: &'static str = "create-delete";
    const ONE_IN: u64 = 12;
    const EVERY: Option<[u64; 3]> = Some([50, 300, 1_000]);
    const NOT_WITH: &'static [&'static str] = NOT_PLAIN;

    /// All of the volumes have redundancy: the others prevent their devices from being taken out.
    fn draw(options: &mut Options, _: &mut Draw) -> Option<CreateDelete> {
        let may = options.ordering != Ordering::None && options.layout.redundancy_units() > 0;
        may.then_some(CreateDelete)
    }
}

impl Activity for CreateDelete {
    fn uses_device_locks(&self) -> bool {
        true
    }

    /// Has a host create or delete a volume.
    fn act(&mut self, run: &mut Run, rng: &mut Rng) {
        begin_at_any(run, rng, draw_operation);
    }

    /// A client issues an operation on a volume that was created during the run, if there is one.
    fn operate(&mut self, run: &mut Run, rng: &mut Rng, slot: HostSlot, client: usize) -> bool {
        let Cluster { others, files, .. } = &run.cluster;
        let created: Vec<usize> = (0..others.len()).filter(|number| !files.uses(others[*number].id)).collect();
        if created.is_empty() || !rng.chance(1, 2) {
            return false;
        }
        let number = created[rng.below(created.len() as u64) as usize];
        let volume = &run.cluster.others[number];
        let operation = Workload::new(&volume.layout, volume.stripes(), rng.fork()).operation();
        run.cluster.on_volume(number, |cluster| cluster.operation_with(slot, client, operation, Patience::Host));
        true
    }
}

fn draw_operation(run: &mut Run, rng: &mut Rng, by: HostSlot) -> (Subject, Operation) {
    let (own, timing) = (run.cluster.generation(by), Timing::default());
    let first = run.cluster.volume.id;
    let store = &run.cluster.control.as_ref().expect("the run has a control plane").store;
    let is_other = |volume: &VolumeId| *volume != first && !run.cluster.files.uses(*volume);
    let there: Vec<VolumeId> = store.records().iter().map(|record| record.volume.id).filter(is_other).collect();
    let unused = store.next_volume();
    if there.len() == VOLUMES_MAX || (!there.is_empty() && rng.chance(2, 5)) {
        // Also a volume that is being created or deleted.
        let volume = there[rng.below(there.len() as u64) as usize];
        run.count_fault("deletion of a volume");
        return (Subject::Volume(volume, None), Deletion::of(own, timing).into());
    }
    let all = run.cluster.devices().len();
    let drawn = MoreVolume::draw(rng, all, true).for_lock_servers(run.cluster.options.lock_servers);
    // Sometimes with a number that was used.
    let id = if rng.chance(1, 20) { VolumeId(unused.0.saturating_sub(1).max(2)) } else { unused };
    run.count_fault("creation of a volume");
    let volume = drawn.describe(id, all);
    (Subject::Volume(id, Some(Box::new(volume_entry(&volume)))), Creation::of(own, volume, timing).into())
}
