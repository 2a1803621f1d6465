//! Checks that the answers of an attribute volume keep the promises of `docs/attribute-volumes.md`.
//!
//! - A request that is refused because of the names in it is always refused in the same way, whatever the content.
//! - A request with an error whose outcome is known has changed nothing; any other request with an error is recorded as of unknown outcome.
//! - The outcome is decided once the same host has an answer to its next request to the same bucket.

use crate::activity::{Activity, Draw, Feature};
use crate::cluster::{Cluster, Failed, HostSlot, PendingOperation, failed};
use crate::object_workload::attribute_volume::{ATTRIBUTE_VOLUME, LISTED};
use crate::object_workload::{ObjectOptions, ObjectWorkload, command, get};
use crate::objects::named;
use crate::options::Options;
use crate::report::Report;
use crate::swarm::Run;
use braid_base::ObjectId;
use braid_check::{ObjectOperationId, Objects, count_outcomes, is_beyond_the_model};
use braid_machine::{HostError, HostOutcome, HostSuccess};
use braid_objects::Key;
use braid_objects::attribute_volume::{buckets, place_of};
use braid_objects::bucket::BUCKET_BLOCKS;
use braid_ordering::Ordering;
use braid_wire::{Action, ObjectFailure};

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
        run.cluster.wish_objects(slot, client, operation);
        true
    }

    fn learn(&mut self, cluster: &Cluster, answered: &PendingOperation) {
        if let Some(operation) = cluster.object_operation(answered).filter(|it| it.device == ATTRIBUTE_VOLUME) {
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

impl Cluster {
    /// Records an answer in the history.
    pub(crate) fn on_bucket_reply(&mut self, id: ObjectOperationId, outcome: &HostOutcome) -> Result<(), Failed> {
        let now = self.world.now();
        let operation = self.objects.operation(id).clone();
        let place = place_of(&operation.request, buckets(self.volume.blocks()));
        match (outcome, place) {
            (Ok(HostSuccess::Objects(results)), Ok(place)) => {
                self.objects.answered(id, now, Ok(results.clone()));
                self.undecided.close(&mut self.objects, now, (operation.client.host, place), operation.invoked);
            }
            (Err(HostError::Objects(refusal)), Err(expected)) if *refusal == expected => self.objects.never(id),
            // These errors take precedence.
            (Err(error @ (HostError::Fenced | HostError::Disconnecting)), Err(_)) if self.options.excuses(error) => {
                self.objects.never(id)
            }
            // The bucket is full, which the model does not know.
            (Err(HostError::Objects(refusal)), Ok(_)) if refusal.failure == ObjectFailure::NoSpace => {
                self.objects.never(id);
            }
            (Err(HostError::Objects(refusal)), Ok(place)) if !is_beyond_the_model(refusal.failure) => {
                self.objects.answered(id, now, Err(*refusal));
                self.undecided.close(&mut self.objects, now, (operation.client.host, place), operation.invoked);
            }
            (Err(error), Ok(place)) if self.options.excuses(error) => match error {
                HostError::TimedOut { .. } | HostError::Unavailable { .. } | HostError::Fenced => {
                    self.undecided.open.push((operation.client.host, place, now, id));
                }
                _ => self.objects.never(id),
            },
            _ => {
                return failed("unexpected-answer", format!("{operation}: {outcome:?}"));
            }
        }
        Ok(())
    }

    /// Reads each attribute by itself, so that the reads do not join independent parts of the history.
    pub(crate) fn look_at_attribute_volume(&mut self, reader: HostSlot) -> Result<(), Failed> {
        let there = self.objects.initial(ATTRIBUTE_VOLUME);
        let names = named(&self.objects, ATTRIBUTE_VOLUME);
        for (object, name) in names.into_iter().filter(|(object, _)| there.contains_key(&Key::header(*object))) {
            self.look(reader, ATTRIBUTE_VOLUME, get(object, name))?;
        }
        for object in there.keys().map(|key| ObjectId(key.of)).collect::<Vec<_>>() {
            self.look(reader, ATTRIBUTE_VOLUME, command(object, Action::Stat))?;
            if object == LISTED {
                let all = Action::ListAttributes { after: None, page: None, most: 100 };
                self.look(reader, ATTRIBUTE_VOLUME, command(object, all))?;
            }
        }
        Ok(())
    }
}
