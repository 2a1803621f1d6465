//! An object: its bytes and its attributes.

use crate::countdown::Countdown;
use crate::error::{Error, RequestError};
use crate::request::Request;
use crate::space::{Space, plain};
use crate::value::Value;
use braid_base::{ObjectId, limits};
use braid_wire::{Action, ActionResult, AttributeName, ObjectFailure};
use bytes::{Bytes, BytesMut};
use std::time::Duration;

/// One truncate command can always cut off this many bytes.
const TRUNCATE_STEP: u64 = 4 << 20;

/// An object with a given number. Clones refer to the same object.
#[derive(Clone, Debug)]
pub struct Object {
    space: Space,
    number: u64,
}

/// The result of a compare-and-swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swapped {
    /// True if the attribute has the new value now.
    pub swapped: bool,
    /// The value before; if it was not swapped, the attribute still has it.
    pub original: Value,
}

/// The state of an object, as its device knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The length in bytes.
    pub length: u64,
    /// The incarnation: a number that no other object of this device has or had. An object that was removed and created again has another
    /// one.
    pub incarnation: u64,
}

impl Object {
    pub(crate) fn new(space: Space, number: u64) -> Object {
        Object { space, number }
    }

    /// The number of the object.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The number of the object in the type that [`recipes`](crate::recipes) use.
    pub fn id(&self) -> ObjectId {
        ObjectId(self.number)
    }

    /// The space of the object.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The same object with another deadline for calls.
    ///
    /// ```no_run
    /// # use braid_client::{Error, Object};
    /// # use std::time::Duration;
    /// # async fn example(object: Object) -> Result<(), Error> {
    /// object.within(Duration::from_secs(1)).flush().await
    /// # }
    /// ```
    pub fn within(&self, deadline: Duration) -> Object {
        Object { space: self.space.within(deadline), ..self.clone() }
    }

    /// An empty request, whose commands concern this object.
    pub fn request(&self) -> Request {
        self.space.request().on(self.number)
    }

    /// Reads up to `length` bytes at `offset`, both in bytes; fewer if the object ends before. More than 256 KiB is read in several
    /// requests, so concurrent writes may be visible in some parts and not in others.
    ///
    /// # Errors
    /// [`ObjectFailure::NoSuchObject`]; [`Error::Lost`] if the content is damaged.
    pub async fn read(&self, offset: u64, length: u64) -> Result<Bytes, Error> {
        let most = limits::OBJECT_IO_BYTES_MAX as u64;
        if length <= most {
            return self.read_part(offset, length as u32).await;
        }
        let countdown = self.countdown();
        let mut data = BytesMut::new();
        while (data.len() as u64) < length {
            let part = (length - data.len() as u64).min(most);
            let Some(at) = offset.checked_add(data.len() as u64) else { break };
            let read = countdown.part(|left| async move { self.within(left).read_part(at, part as u32).await }).await?;
            data.extend_from_slice(&read);
            if (read.len() as u64) < part {
                break;
            }
        }
        Ok(data.freeze())
    }

    /// Writes bytes at `offset`, which is in bytes. The object grows if necessary. Up to 256 KiB is written atomically; more is written in
    /// several requests, one after the other.
    ///
    /// # Errors
    /// [`ObjectFailure::NoSuchObject`], [`Error::NoSpace`], [`ObjectFailure::TooLong`]. If the write has several parts, those before the
    /// failed one have been written.
    pub async fn write(&self, offset: u64, data: impl Into<Bytes>) -> Result<(), Error> {
        let countdown = self.countdown();
        let mut rest = data.into();
        let mut at = offset;
        loop {
            let part = rest.split_to(rest.len().min(limits::OBJECT_IO_BYTES_MAX));
            let length = part.len() as u64;
            let write = self.request().write(at, part);
            countdown.part(|left| async move { Ok(write.within(left).send().await?) }).await?;
            if rest.is_empty() {
                return Ok(());
            }
            at = at.checked_add(length).ok_or(Error::Object(ObjectFailure::TooLong))?;
        }
    }

    /// Appends bytes to the object, and returns the offset at which they begin, in bytes. The append is atomic, so at most 512 KiB are
    /// accepted.
    ///
    /// # Errors
    /// [`ObjectFailure::NoSuchObject`], [`Error::NoSpace`], [`ObjectFailure::TooLong`]; [`ObjectFailure::Malformed`] for more than 512 KiB.
    pub async fn append(&self, data: impl Into<Bytes>) -> Result<u64, Error> {
        let mut rest = data.into();
        let mut request = self.request();
        loop {
            request = request.append(rest.split_to(rest.len().min(limits::OBJECT_IO_BYTES_MAX)));
            if rest.is_empty() {
                return request.send().await?.appended(0).ok_or(Error::ProtocolError);
            }
        }
    }

    /// Sets the length of the object, in bytes: cuts it off, or extends it by zeros that take no space. If more than 4 MiB of data is cut
    /// off, that is done in steps from the end.
    ///
    /// # Errors
    /// [`ObjectFailure::NoSuchObject`], [`ObjectFailure::TooLong`].
    pub async fn truncate(&self, length: u64) -> Result<(), Error> {
        let countdown = self.countdown();
        let cut = |length| countdown.part(move |left| async move { self.within(left).cut(length).await });
        let stat = || countdown.part(|left| async move { self.within(left).stat().await });
        // Sufficient if the object is short, contains little data, or grows.
        if cut(length).await? {
            return Ok(());
        }
        let (mut there, mut step) = (stat().await?.length, TRUNCATE_STEP);
        loop {
            // At a multiple, so that no step exceeds the limit.
            let end = there.saturating_sub(step).next_multiple_of(TRUNCATE_STEP).max(length);
            match cut(end).await? {
                true if end == length => return Ok(()),
                // Ranges that were never written count nothing, so larger steps may be possible.
                true => (there, step) = (end, step.saturating_mul(2)),
                false if step > TRUNCATE_STEP => step = TRUNCATE_STEP,
                // Another client has written at its end.
                false => there = stat().await?.length,
            }
        }
    }

    /// Does nothing: acknowledged changes are already durable. It is there for compatibility with the OSD command FLUSH.
    pub async fn flush(&self) -> Result<(), Error> {
        self.act(Action::Flush).await.map(|_| ())
    }

    /// Reads the object's length and incarnation.
    ///
    /// # Errors
    /// [`ObjectFailure::NoSuchObject`].
    pub async fn stat(&self) -> Result<Stat, Error> {
        self.request().stat().send().await?.stat(0).ok_or(Error::ProtocolError)
    }

    /// Removes the object with its bytes and attributes.
    ///
    /// # Errors
    /// [`ObjectFailure::NoSuchObject`].
    pub async fn remove(&self) -> Result<(), Error> {
        self.request().remove().send().await?;
        Ok(())
    }

    /// Reads an attribute. The value has no bytes if the attribute is undefined.
    ///
    /// # Errors
    /// [`ObjectFailure::NoSuchObject`].
    pub async fn get(&self, name: AttributeName) -> Result<Value, Error> {
        self.request().get([name]).send().await?.values(0).pop().ok_or(Error::ProtocolError)
    }

    /// Sets an attribute to a value of at most 64 KiB.
    ///
    /// # Errors
    /// [`ObjectFailure::NoSuchObject`], [`ObjectFailure::ValueTooLong`], [`Error::NoSpace`]; [`ObjectFailure::ReservedPage`] for pages from
    /// 0xf0000000 on.
    pub async fn set(&self, name: AttributeName, value: impl Into<Value>) -> Result<(), Error> {
        self.request().set(name, value).send().await?;
        Ok(())
    }

    /// Makes an attribute undefined.
    ///
    /// # Errors
    /// [`ObjectFailure::NoSuchObject`]; [`ObjectFailure::ReservedPage`] for pages from 0xf0000000 on.
    pub async fn delete(&self, name: AttributeName) -> Result<(), Error> {
        self.set(name, Value::undefined()).await
    }

    /// The defined attributes of a page, or of all pages, ascending; and the length of each value in bytes. Attributes that are changed
    /// meanwhile may be included or not.
    pub async fn attributes(&self, page: Option<u32>) -> Result<Vec<(AttributeName, u32)>, Error> {
        let countdown = self.countdown();
        let mut all: Vec<(AttributeName, u32)> = Vec::new();
        loop {
            let (after, most) = (all.last().map(|(name, _)| *name), limits::OBJECT_LIST_MAX as u32);
            let list = |left| async move { self.within(left).attributes_after(page, after, most).await };
            let (found, more) = countdown.part(list).await?;
            let ends = !more || found.is_empty();
            all.extend(found);
            if ends {
                return Ok(all);
            }
        }
    }

    /// At most `most` defined attributes of a page, or of all pages, ascending, beginning after `after`, with the length of each value in
    /// bytes; and whether there are more.
    pub async fn attributes_after(
        &self,
        page: Option<u32>,
        after: Option<AttributeName>,
        most: u32,
    ) -> Result<(Vec<(AttributeName, u32)>, bool), Error> {
        let listed = self.act(Action::ListAttributes { after, page, most }).await?;
        expected!(listed, ActionResult::Attributes { found, more } => (found, more))
    }

    /// Compare-and-swap (device-atomics paper, section 4): sets an attribute to `swap` if its value is `compare`. An undefined attribute equals
    /// every value, so that it need not be initialised; see [`Object::compare_and_swap_exact`]. A value that differs is no error:
    /// [`Swapped`] contains it.
    ///
    /// # Errors
    /// [`ObjectFailure::NoSuchObject`], [`ObjectFailure::ValueTooLong`], [`Error::NoSpace`], [`ObjectFailure::ReservedPage`].
    pub async fn compare_and_swap(
        &self,
        name: AttributeName,
        compare: impl Into<Value>,
        swap: impl Into<Value>,
    ) -> Result<Swapped, Error> {
        self.request().compare_and_swap(name, compare, swap).send().await?.swapped(0).ok_or(Error::ProtocolError)
    }

    /// The same as [`Object::compare_and_swap`], but an undefined attribute equals only the value of no bytes. It is for programs that must
    /// not re-create an attribute that another client has removed.
    pub async fn compare_and_swap_exact(
        &self,
        name: AttributeName,
        compare: impl Into<Value>,
        swap: impl Into<Value>,
    ) -> Result<Swapped, Error> {
        self.request().compare_and_swap_exact(name, compare, swap).send().await?.swapped(0).ok_or(Error::ProtocolError)
    }

    /// Fetch-and-add (device-atomics paper, section 4): adds to an attribute that is a number of eight bytes, and returns the value before. An
    /// undefined attribute counts as zero.
    ///
    /// # Errors
    /// [`ObjectFailure::NotANumber`], [`ObjectFailure::Overflow`], [`ObjectFailure::NoSuchObject`], [`Error::NoSpace`],
    /// [`ObjectFailure::ReservedPage`].
    pub async fn fetch_and_add(&self, name: AttributeName, add: i64) -> Result<i64, Error> {
        self.request().fetch_and_add(name, add).send().await?.original(0).ok_or(Error::ProtocolError)
    }

    /// Waits until an attribute differs from `seen`, for at most `patience`, whatever the deadline of the handle. Returns the new value, or
    /// none if the value is still `seen`. A change that is undone before it is noticed may be missed.
    ///
    /// ```no_run
    /// # use braid_client::{AttributeName, Error, Object, Value};
    /// # use std::time::Duration;
    /// # async fn follow(object: Object, name: AttributeName) -> Result<(), Error> {
    /// let mut seen = Value::undefined();
    /// loop {
    ///     if let Some(value) = object.wait_for_change(name, &seen, Duration::from_secs(60)).await? {
    ///         println!("now it is {value:?}");
    ///         seen = value;
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ObjectFailure::NoSuchObject`]; [`Error::TimedOut`] if the device is silent at the end, so that the value is unknown.
    pub async fn wait_for_change(
        &self,
        name: AttributeName,
        seen: impl Into<Value>,
        patience: Duration,
    ) -> Result<Option<Value>, Error> {
        let seen = seen.into();
        let value = self.space.await_change(self.number, name, seen.clone(), patience).await?;
        Ok((value != seen).then_some(value))
    }

    /// The deadline of a call that makes several requests.
    fn countdown(&self) -> Countdown {
        Countdown::new(self.space.array().deadline())
    }

    async fn act(&self, action: Action) -> Result<ActionResult, Error> {
        let answers = self.space.request().command(plain(self.number, action)).send().await?;
        Ok(answers.one()?.action.clone())
    }

    /// Truncates with one command. False if that would cut off too much at once.
    async fn cut(&self, length: u64) -> Result<bool, Error> {
        match self.request().truncate(length).send().await {
            Ok(_) => Ok(true),
            Err(RequestError { error: Error::Object(ObjectFailure::CutsTooMuch), .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn read_part(&self, offset: u64, length: u32) -> Result<Bytes, Error> {
        let answers = self.request().read(offset, length).send().await?;
        let data = answers.data(0).ok_or(Error::ProtocolError)?;
        if data.len() > length as usize { Err(Error::ProtocolError) } else { Ok(data.clone()) }
    }
}
