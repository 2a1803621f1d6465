//! A volume that is an attribute volume: what clients were answered, held to what `docs/attribute-volumes.md` promises.
//!
//! * What is refused for what it names is refused whatever is there, and always in the same way.
//! * An error that leaves nothing open has left nothing; one that does is of unknown outcome.
//! * That is over once the same host is answered its next request to the same bucket.

use crate::cluster::{Cluster, Failed, HostSlot};
use crate::object_workload::attribute_volume::{ATTRIBUTE_VOLUME, LISTED};
use crate::object_workload::{command, get};
use braid_base::ObjectId;
use braid_check::{Moment, ObjectOperationId, Objects, is_beyond_the_model};
use braid_machine::{HostError, HostOutcome, HostSuccess};
use braid_objects::attribute_volume::{buckets, place_of};
use braid_objects::{BucketAddress, Key};
use braid_wire::{Action, ObjectFailure};

/// Requests to the attribute volume that ended so that nobody knows what becomes of them: of which host, where, and when they ended.
pub(crate) type Open = Vec<(u32, BucketAddress, braid_base::Time, ObjectOperationId)>;

/// What an attribute volume holds that was never written: each object is there, without bytes, and its incarnation is its number.
pub(crate) fn empty(objects: impl Iterator<Item = ObjectId>) -> Objects {
    let header = |object: ObjectId| [object.0.to_be_bytes(), [0; 8]].concat().into();
    objects.map(|object| (Key::header(object), header(object))).collect()
}

impl Cluster {
    /// Puts an answer into the history.
    pub(crate) fn on_bucket_reply(&mut self, id: ObjectOperationId, outcome: &HostOutcome) -> Result<(), Failed> {
        let now = self.world.now();
        let operation = self.objects.operation(id).clone();
        let place = place_of(&operation.request, buckets(self.volume.blocks()));
        match (outcome, place) {
            (Ok(HostSuccess::Objects(results)), Ok(place)) => {
                self.objects.answered(id, now, Ok(results.clone()));
                self.close(operation.client.host, place, operation.invoked);
            }
            (Err(HostError::Objects(refusal)), Err(expected)) if *refusal == expected => self.objects.never(id),
            // That comes first.
            (Err(error @ (HostError::Fenced | HostError::Disconnecting)), Err(_)) if self.options.excuses(error) => {
                self.objects.never(id)
            }
            // The bucket is full, of which the model knows nothing.
            (Err(HostError::Objects(refusal)), Ok(_)) if refusal.failure == ObjectFailure::NoSpace => {
                self.objects.never(id);
            }
            (Err(HostError::Objects(refusal)), Ok(place)) if !is_beyond_the_model(refusal.failure) => {
                self.objects.answered(id, now, Err(*refusal));
                self.close(operation.client.host, place, operation.invoked);
            }
            (Err(error), Ok(place)) if self.options.excuses(error) => match error {
                HostError::TimedOut { .. } | HostError::Unavailable { .. } | HostError::Fenced => {
                    self.open.push((operation.client.host, place, now, id));
                }
                _ => self.objects.never(id),
            },
            _ => {
                let details = format!("{operation}: {outcome:?}");
                return Err(Failed { check: "unexpected-answer", details });
            }
        }
        Ok(())
    }

    /// What this host had asked for in a bucket, and was told that nobody knows, before it asked for something that it was answered.
    fn close(&mut self, host: u32, place: BucketAddress, asked: Moment) {
        let now = self.world.now();
        let is_over = |(of, at, ended, _): &(u32, BucketAddress, braid_base::Time, ObjectOperationId)| {
            *of == host && *at == place && *ended <= asked.time
        };
        for (.., id) in self.open.extract_if(.., |open| is_over(open)) {
            self.objects.is_over(id, now);
        }
    }

    /// Each attribute alone, so that the look joins nothing in the history that is apart.
    pub(crate) fn look_at_attribute_volume(&mut self, reader: HostSlot) -> Result<(), Failed> {
        let there = self.objects.initial(ATTRIBUTE_VOLUME);
        let names = self.named(ATTRIBUTE_VOLUME);
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
