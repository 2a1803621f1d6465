//! A space of objects: those of a device, or those of an attribute volume.

use crate::array::Array;
use crate::countdown::Countdown;
use crate::error::{Error, RequestError};
use crate::object::Object;
use crate::request::{Answers, Request};
use crate::value::Value;
use braid_base::{Backoff, DeviceId, ObjectId, VolumeId, limits};
use braid_machine::{HostSuccess, ObjectsRequest};
use braid_wire::{Action, ActionResult, AttributeName, ObjectCommand, ObjectRequest};
use std::time::{Duration, Instant};

/// How long one request for a change waits at the device before it is repeated. The host confirms as often that it still waits.
const AWAIT_MOST: Duration = Duration::from_secs(1);
/// Attribute volumes are polled for changes: after this pause at first, which doubles up to `LOOK_PAUSE_MAX`.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(2);
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(100);

/// The objects of one device, or of one attribute volume. Clones refer to the same objects.
#[derive(Clone, Debug)]
pub struct Space {
    array: Array,
    place: SpaceTarget,
}

#[derive(Clone, Copy, Debug)]
enum SpaceTarget {
    Device(DeviceId),
    AttributeVolume(VolumeId),
}

impl Space {
    pub(crate) fn on_device(array: Array, device: u16) -> Space {
        Space { array, place: SpaceTarget::Device(DeviceId(device)) }
    }

    pub(crate) fn on_attribute_volume(array: Array, volume: VolumeId) -> Space {
        Space { array, place: SpaceTarget::AttributeVolume(volume) }
    }

    /// The array of these objects.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// The same objects with another deadline for calls.
    pub fn within(&self, deadline: Duration) -> Space {
        Space { array: self.array.within(deadline), ..self.clone() }
    }

    /// Creates an empty object. The device chooses a number that none of its objects ever had.
    ///
    /// # Errors
    /// `ObjectFailure::NotInAttributeVolume` on an attribute volume; [`Error::NoSpace`].
    pub async fn create(&self) -> Result<Object, Error> {
        let answers = self.request().create().send().await?;
        Ok(self.object(answers.created(0).ok_or(Error::ProtocolError)?))
    }

    /// Creates an empty object with this number, which must not be zero.
    ///
    /// # Errors
    /// `ObjectFailure::ObjectExists`; `ObjectFailure::NumberTooHigh` for numbers that only the device chooses;
    /// `ObjectFailure::NotInAttributeVolume` on an attribute volume.
    pub async fn create_as(&self, number: u64) -> Result<Object, Error> {
        self.request().create_as(number).send().await?;
        Ok(self.object(number))
    }

    /// A handle of the object with this number. Nothing is sent, and the object need not exist.
    pub fn object(&self, number: u64) -> Object {
        Object::new(self.clone(), number)
    }

    /// The numbers of all objects, ascending. Objects that are created or removed meanwhile may be included or not.
    pub async fn list(&self) -> Result<Vec<u64>, Error> {
        let countdown = Countdown::new(self.array.deadline());
        let mut all = Vec::new();
        loop {
            let (after, most) = (all.last().copied().unwrap_or(0), limits::OBJECT_LIST_MAX as u32);
            let (found, more) =
                countdown.part(|left| async move { self.within(left).list_after(after, most).await }).await?;
            let ends = !more || found.is_empty();
            all.extend(found);
            if ends {
                return Ok(all);
            }
        }
    }

    /// At most `most` numbers of objects, ascending, beginning after the number `after`; and whether there are more.
    pub async fn list_after(&self, after: u64, most: u32) -> Result<(Vec<u64>, bool), Error> {
        let list = Action::List { after: ObjectId(after), most };
        let results = self.request().command(plain(0, list)).send().await?.into_results();
        let listed = results.into_iter().next().map(|result| result.action);
        let Some(ActionResult::Objects { found, more }) = listed else { return Err(Error::ProtocolError) };
        Ok((found.into_iter().map(|object| object.0).collect(), more))
    }

    /// An empty request, to which commands are added.
    pub fn request(&self) -> Request {
        Request::new(self.clone())
    }

    /// Sends a request that was built elsewhere, for example by [`Grant::guard`](braid_recipes::lock::Grant::guard). A [`Request`] has
    /// [`Request::send`].
    pub async fn send(&self, request: ObjectRequest) -> Result<Answers, RequestError> {
        let (asked, patience) = (request.commands.len(), self.array.deadline());
        let outcome = match self.place {
            SpaceTarget::Device(device) => self.array.call(ObjectsRequest::Execute { device, request, patience }).await,
            SpaceTarget::AttributeVolume(volume) => {
                self.array.call(ObjectsRequest::ExecuteOnVolume { volume, request, patience }).await
            }
        };
        match outcome {
            Ok(HostSuccess::Objects(results)) if results.len() == asked => Ok(Answers::from(results)),
            Ok(_) => Err(Error::ProtocolError.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until an attribute differs from `seen`, and returns its value; it is `seen` if there was no change in time.
    /// [`Error::TimedOut`] if the device is silent at the end, so that the value is unknown.
    pub(crate) async fn await_change(
        &self,
        object: u64,
        name: AttributeName,
        seen: Value,
        patience: Duration,
    ) -> Result<Value, Error> {
        let begun = Instant::now();
        let mut pause = Backoff::new(LOOK_PAUSE_MIN, LOOK_PAUSE_MAX);
        loop {
            let left = patience.saturating_sub(begun.elapsed());
            let value = match self.place {
                SpaceTarget::Device(device) if !patience.is_zero() => {
                    match self.await_on(device, object, name, &seen, left.min(AWAIT_MOST)).await {
                        // A device that was silent for a while may still report a change.
                        Err(Error::TimedOut { .. }) if begun.elapsed() < patience => continue,
                        Err(Error::TimedOut { .. }) => return Err(Error::TimedOut { waited: begun.elapsed() }),
                        outcome => outcome?,
                    }
                }
                _ => self.object(object).get(name).await?,
            };
            let left = patience.saturating_sub(begun.elapsed());
            if value != seen || left.is_zero() {
                return Ok(value);
            }
            if let SpaceTarget::AttributeVolume(_) = self.place {
                self.array.sleep(pause.next_wait().min(left)).await?;
            }
        }
    }

    async fn await_on(
        &self,
        device: DeviceId,
        object: u64,
        name: AttributeName,
        seen: &Value,
        patience: Duration,
    ) -> Result<Value, Error> {
        let (object, seen) = (ObjectId(object), seen.clone().into_bytes());
        let awaited = self.array.call(ObjectsRequest::Await { device, object, name, seen, patience }).await?;
        expected!(awaited, HostSuccess::Value(value) => Value::from(value))
    }
}

/// A command that consists of an action alone.
pub(crate) fn plain(object: u64, action: Action) -> ObjectCommand {
    ObjectCommand::new(ObjectId(object), action)
}
