//! An array from within a program: objects that hold bytes and attributes, atomic operations on them, and volumes.
//!
//! It is on no registry: programs name the repository, or a copy of it (`braid-client = { path = "../braid/real/client" }`):
//!
//! ```toml
//! [dependencies]
//! braid-client = { git = "…" }      # its address
//! ```
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
//! **Objects** lie on one device ([`Array::device`]); attributes alone may lie on several ([`Array::attribute_volume`]). A [`Request`] is a list of commands that are done as
//! one, in one round trip: all of it or nothing, whoever crashes, and never twice. What has been answered is durable.
//!
//! **Deadlines.** Each call ends within the handle's deadline: [`ArrayOptions::deadline`], or what [`Object::within`] and the others
//! say, [`Array::connect`] included. Only calls to a [`Volume`] may take it for each of their transactions, and [`Space::run`] for each of
//! its requests. What ends with [`Error::TimedOut`] may have been done or not.
//!
//! **Cancellation.** Who drops a future no longer waits. What was asked may still be done.
//!
//! **Structures** built on this (locks, counters, leaders, queues, lists, directories) are procedures of [`recipes`], which [`Space::run`] drives.
//! What they grant is kept by being renewed in time, by the clock [`now`], and guards what is done under it: [`Request::guarded`].
//!
//! ```no_run
//! use braid_client::recipes::lock::{Lock, LockOptions};
//! use braid_client::{AttributeName, Object, now};
//!
//! async fn add_a_line(object: &Object) -> Result<(), Box<dyn std::error::Error>> {
//!     let lock = Lock::new(object.id(), AttributeName::new(10, 0), LockOptions::default());
//!     let mut grant = object.space().run(lock.acquire("host-17")).await??;
//!     if now() >= grant.renew_at() {
//!         grant = object.space().run(grant.renew()).await??;
//!     }
//!     object.request().append("a line\n").guarded(&grant).await?;
//!     object.space().run(grant.release()).await??;
//!     Ok(())
//! }
//! # let _ = add_a_line;
//! ```
//!
//! Whole programs are in `examples/`: counters, a lock, a leader, a directory, a volume.

#![warn(missing_docs)]

mod array;
mod countdown;
mod driving;
mod error;
mod guard;
mod object;
mod request;
mod space;
mod value;
mod volume;
mod waiting;

pub use array::{Array, ArrayOptions};
pub use braid_base::{ObjectId, Time};
pub use braid_recipes as recipes;
pub use braid_session::SessionError;
pub use braid_wire::{
    Action, ActionResult, AttributeName, CommandResult, ObjectCommand, ObjectRequest, SetAttribute, Undefined, When,
};
pub use bytes::Bytes;
pub use error::{Error, RequestError};
pub use guard::Guard;
pub use object::{Object, Stat, Swapped};
pub use request::{Answers, Request};
pub use space::Space;
pub use value::Value;
pub use volume::Volume;
pub use waiting::wait;

/// The clock of [`recipes`]: what they tell in [`Time`] (when to renew, until when a holder can be sure) is to be compared with this. It
/// runs while the computer sleeps, is never set, and means nothing on another machine.
///
/// ```
/// # use std::time::Duration;
/// let renew_at = braid_client::now().after(Duration::from_secs(3));
/// assert!(renew_at.since(braid_client::now()) <= Duration::from_secs(3), "so long to sleep until then");
/// ```
pub fn now() -> Time {
    braid_shell::now().time
}

/// What `docs/recipes` shows is compiled.
#[cfg(doctest)]
mod shown {
    #[doc = include_str!("../../../docs/recipes/lock.md")]
    mod lock {}
    #[doc = include_str!("../../../docs/recipes/delivery-counter.md")]
    mod delivery_counter {}
    #[doc = include_str!("../../../docs/recipes/fail-over.md")]
    mod fail_over {}
    #[doc = include_str!("../../../docs/recipes/linked-list.md")]
    mod linked_list {}
    #[doc = include_str!("../../../docs/recipes/work-queue.md")]
    mod work_queue {}
    #[doc = include_str!("../../../docs/recipes/directory.md")]
    mod directory {}
}
