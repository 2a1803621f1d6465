//! Clients that use an attribute volume.

use crate::activity::{Activity, Draw, Feature, Options, Report, Run};
use crate::cluster::{Cluster, HostSlot, PendingOperation};
use crate::object_requests;
use crate::object_workload::attribute_volume::ATTRIBUTE_VOLUME;
use crate::object_workload::{ObjectOptions, ObjectWorkload};
use crate::prelude::*;
use braid_check::{Objects, count_outcomes};
use braid_objects::Key;
use braid_objects::bucket::BUCKET_BLOCKS;

/// The volume is an attribute volume; clients then read and write no blocks.
#[derive(Clone, Debug)]
pub(crate) struct AttributeVolumeUse {
    options: ObjectOptions,
    workload: ObjectWorkload,
}

impl Feature for AttributeVolumeUse {
    const NAME: &'static str = "attribute-volumes";
    const ONE_IN: u64 = 10;

    fn draw(options: &mut Options, draw: &mut Draw) -> Option<AttributeVolumeUse> {
        if options.ordering == Ordering::None {
            return None;
        }
        let drawn = ObjectOptions::draw_for_attribute_volume(&mut draw.rng, options.settings.request_timeout);
        let blocks = draw.rng.between(1, 3) * BUCKET_BLOCKS as u64;
        options.stripes = blocks.div_ceil(options.layout.stripe_blocks());
        // The blocks that one step of a rebuild writes must fit into a batch of the journal.
        let is_short = options.stripes * options.layout.unit_blocks() <= BUCKET_BLOCKS as u64;
        options.journal_bytes = options.journal_bytes.filter(|_| is_short);
        let workload = ObjectWorkload::new(drawn.clone(), options.source(Self::NAME).named("events"));
        Some(AttributeVolumeUse { options: drawn, workload })
    }
}

impl Activity for AttributeVolumeUse {
    fn prepare(&self, cluster: &mut Cluster, _first: HostSlot) {
        cluster.objects.begin_with(ATTRIBUTE_VOLUME, empty(self.options.in_attribute_volume()));
    }

    fn use_volume(&mut self, run: &mut Run, slot: HostSlot, client: usize) -> bool {
        let operation = self.workload.wish_of_attribute_volume();
        object_requests::wish_objects(&mut run.cluster, slot, client, operation);
        true
    }

    fn learn(&mut self, cluster: &Cluster, answered: &PendingOperation) {
        if let Some(operation) =
            object_requests::object_operation(cluster, answered).filter(|it| it.device == ATTRIBUTE_VOLUME)
        {
            self.workload.learn(operation);
        }
    }

    fn count(&self, cluster: &Cluster, report: &mut Report) {
        let operations = cluster.objects.operations().iter().filter(|operation| operation.device == ATTRIBUTE_VOLUME);
        report.count(Self::NAME, count_outcomes(operations));
    }
}

/// The initial content of an attribute volume: every object exists without bytes, and its incarnation is its number.
fn empty(objects: impl Iterator<Item = ObjectId>) -> Objects {
    let header = |object: ObjectId| [object.0.to_be_bytes(), [0; 8]].concat().into();
    objects.map(|object| (Key::header(object), header(object))).collect()
}
