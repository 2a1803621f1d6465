//! An array from within a program: objects that hold bytes and attributes, atomic operations on them, and volumes.
//!
//! ```no_run
//! use braid_client::{Array, ArrayOptions, AttributeName, Error};
//!
//! const VISITS: AttributeName = AttributeName::new(1, 1);
//!
//! async fn count() -> Result<i64, Error> {
//!     let array = Array::connect(ArrayOptions::at("./braid-data").name("visits")).await?;
//!     let object = array.device(2).create().await?;
//!     object.fetch_and_add(VISITS, 1).await?;
//!     let visits = object.get(VISITS).await?.as_i64();
//!     array.close().await;
//!     Ok(visits.unwrap_or(0))
//! }
//! # let _ = count();
//! ```
//!
//! An [`Array`] is a host of the array, with a thread of its own: it speaks to the devices directly. Handles are cheap to clone, and
//! can be sent anywhere. Their futures run on any executor, and without one: [`wait`] is for threads that have none.
//!
//! **Objects** lie on one device ([`Array::device`]); attributes alone may lie on several ([`Array::mirror`]). A [`Request`] is a list of commands that are done as
//! one, in one round trip: all of it or nothing, whoever crashes, and never twice. What has been answered is durable.
//!
//! **Deadlines.** Each call ends within the handle's deadline: [`ArrayOptions::deadline`], or what [`Object::within`] and the others
//! say. What ends with [`Error::TimedOut`] may have been done or not.
//!
//! **Cancellation.** Who drops a future no longer waits. What was asked may still be done.
//!
//! Whole programs are in `examples/`. Structures built on this (locks, queues, lists …) are procedures of `braid_recipes`, which
//! [`Space::run`] drives.

mod array;
mod driving;
mod error;
mod object;
mod request;
mod space;
mod value;
mod volume;
mod waiting;

pub use array::{Array, ArrayOptions};
pub use braid_recipes as recipes;
pub use braid_session::SessionError;
pub use braid_wire::{
    Action, ActionResult, AttributeName, CommandResult, ObjectCommand, ObjectRequest, SetAttribute, Undefined, When,
};
pub use bytes::Bytes;
pub use error::{Error, RequestError};
pub use object::{Object, Stat, Swapped};
pub use request::{Answers, Request};
pub use space::Space;
pub use value::Value;
pub use volume::Volume;
pub use waiting::wait;
