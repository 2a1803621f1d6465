//! One object: its bytes and its attributes.

use crate::countdown::Countdown;
use crate::error::{Error, RequestError};
use crate::request::Request;
use crate::space::{Space, plain};
use crate::value::Value;
use braid_base::{ObjectId, limits};
use braid_wire::{Action, ActionResult, AttributeName};
use bytes::{Bytes, BytesMut};
use std::time::Duration;

/// A truncate of no more than this is always taken.
const TRUNCATE_STEP: u64 = 4 << 20;

/// An object, by its number. Clones are of the same.
#[derive(Clone, Debug)]
pub struct Object {
    space: Space,
    number: u64,
}

/// What became of a compare-and-swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swapped {
    /// True if the attribute has the new value.
    pub swapped: bool,
    /// What it had; if it did not swap, it has that still.
    pub original: Value,
}

/// What a device knows of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// In bytes.
    pub length: u64,
    /// A number that no other object of this device has or had: an object that was removed and made again has another one.
    pub incarnation: u64,
}

impl Object {
    pub(crate) fn new(space: Space, number: u64) -> Object {
        Object { space, number }
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its number, as [`recipes`](crate::recipes) take it.
    pub fn id(&self) -> ObjectId {
        ObjectId(self.number)
    }

    /// Where it lies.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The same object, where calls may take so long.
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

    /// Commands on this object that are to be done as one.
    pub fn request(&self) -> Request {
        self.space.request().on(self.number)
    }

    /// Reads bytes; what lies beyond the object's end is not there. More than 256 KiB is read in parts: what others write meanwhile may
    /// be in one and not in another.
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

    /// Writes bytes; the object grows if need be. Up to 256 KiB are written wholly or not at all; more is written in parts, one after the
    /// other.
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
            at = at.checked_add(length).ok_or(Error::TooLong)?;
        }
    }

    /// Writes bytes at the object's end, wherever that is at that moment, and says where they begin. At most 512 KiB, since they are
    /// written wholly or not at all, and nothing comes in between.
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

    /// Gives the object this length: cuts off what is beyond, or adds zeros that take no room. Much data is cut off in steps, from the end.
    pub async fn truncate(&self, length: u64) -> Result<(), Error> {
        let countdown = self.countdown();
        let cut = |length| countdown.part(move |left| async move { self.within(left).cut(length).await });
        let stat = || countdown.part(|left| async move { self.within(left).stat().await });
        // Where it is short, holds little, or grows, this is all.
        if cut(length).await? {
            return Ok(());
        }
        let (mut there, mut step) = (stat().await?.length, TRUNCATE_STEP);
        loop {
            // To a multiple, so that no step is more than it may be.
            let end = there.saturating_sub(step).next_multiple_of(TRUNCATE_STEP).max(length);
            match cut(end).await? {
                true if end == length => return Ok(()),
                // Where nothing was ever written, any step will do.
                true => (there, step) = (end, step.saturating_mul(2)),
                false if step > TRUNCATE_STEP => step = TRUNCATE_STEP,
                // Others write at its end.
                false => there = stat().await?.length,
            }
        }
    }

    /// Ends when everything that was answered is durable, which it is anyhow.
    pub async fn flush(&self) -> Result<(), Error> {
        self.act(Action::Flush).await.map(|_| ())
    }

    /// How long it is.
    pub async fn stat(&self) -> Result<Stat, Error> {
        self.request().stat().send().await?.stat(0).ok_or(Error::ProtocolError)
    }

    /// Removes it with all that it has.
    pub async fn remove(&self) -> Result<(), Error> {
        self.request().remove().send().await?;
        Ok(())
    }

    /// An attribute's value; no bytes if it is undefined.
    pub async fn get(&self, name: AttributeName) -> Result<Value, Error> {
        self.request().get([name]).send().await?.values(0).pop().ok_or(Error::ProtocolError)
    }

    /// Gives an attribute a value, of 64 KiB at most.
    pub async fn set(&self, name: AttributeName, value: impl Into<Value>) -> Result<(), Error> {
        self.request().set(name, value).send().await?;
        Ok(())
    }

    /// Makes an attribute undefined.
    pub async fn delete(&self, name: AttributeName) -> Result<(), Error> {
        self.set(name, Value::undefined()).await
    }

    /// The attributes of a page that have values, ascending, and how many bytes these have. None: those of all pages.
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

    /// Some of them: `most` at most, those after `after`, and whether there are more.
    pub async fn attributes_after(
        &self,
        page: Option<u32>,
        after: Option<AttributeName>,
        most: u32,
    ) -> Result<(Vec<(AttributeName, u32)>, bool), Error> {
        match self.act(Action::ListAttributes { after, page, most }).await? {
            ActionResult::Attributes { found, more } => Ok((found, more)),
            _ => Err(Error::ProtocolError),
        }
    }

    /// Gives an attribute the value `swap` if it has the value `compare`. One that is undefined equals everything, so that nobody needs
    /// to set it first; see [`Object::compare_and_swap_exact`].
    pub async fn compare_and_swap(
        &self,
        name: AttributeName,
        compare: impl Into<Value>,
        swap: impl Into<Value>,
    ) -> Result<Swapped, Error> {
        self.request().compare_and_swap(name, compare, swap).send().await?.swapped(0).ok_or(Error::ProtocolError)
    }

    /// The same, where an undefined attribute equals only a value of no bytes: for whoever must not bring back what others have removed.
    pub async fn compare_and_swap_exact(
        &self,
        name: AttributeName,
        compare: impl Into<Value>,
        swap: impl Into<Value>,
    ) -> Result<Swapped, Error> {
        self.request().compare_and_swap_exact(name, compare, swap).send().await?.swapped(0).ok_or(Error::ProtocolError)
    }

    /// Adds to a number of eight bytes, and returns what it was before. An undefined attribute counts as zero.
    pub async fn fetch_and_add(&self, name: AttributeName, add: i64) -> Result<i64, Error> {
        self.request().fetch_and_add(name, add).send().await?.original(0).ok_or(Error::ProtocolError)
    }

    /// Waits until an attribute has another value than `seen`, so long at most, whatever the deadline. The value; none if it is still
    /// `seen`; [`Error::TimedOut`] if its device is silent then, so that nobody knows. Changes that were undone meanwhile may be missed.
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

    /// For calls that ask several times.
    fn countdown(&self) -> Countdown {
        Countdown::new(self.space.array().deadline())
    }

    async fn act(&self, action: Action) -> Result<ActionResult, Error> {
        let answers = self.space.request().command(plain(self.number, action)).send().await?;
        Ok(answers.one()?.action.clone())
    }

    /// False if that cuts off too much at once.
    async fn cut(&self, length: u64) -> Result<bool, Error> {
        match self.request().truncate(length).send().await {
            Ok(_) => Ok(true),
            Err(RequestError { error: Error::CutsTooMuch, .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn read_part(&self, offset: u64, length: u32) -> Result<Bytes, Error> {
        let answers = self.request().read(offset, length).send().await?;
        let data = answers.data(0).ok_or(Error::ProtocolError)?;
        if data.len() > length as usize { Err(Error::ProtocolError) } else { Ok(data.clone()) }
    }
}
