//! The client library of Braid: programs use it to access the objects, volumes and files of an array. Objects contain bytes and attributes, with
//! atomic operations on them (device-atomics paper, sections 2, 4 and 5; `docs/objects.md`).
//!
//! It is not published to a registry. A program depends on the repository, or on a copy of it (`braid-client = { path =
//! "../braid/real/client" }`):
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
//! An [`Array`] is a host of the array. It runs on a thread of its own and talks to the devices directly. Handles are cheap to clone, and
//! can be sent to other threads. Their futures run on any executor; [`wait`] runs one on a thread without an executor.
//!
//! **Objects** belong to one device ([`Array::device`]). Objects with attributes only may also be spread over several devices
//! ([`Array::attribute_volume`]). A [`Request`] is a list of commands that are executed atomically in one round trip: all of them or none,
//! whichever process crashes, and never twice. Acknowledged changes are durable.
//!
//! **Deadlines.** Each call, including [`Array::connect`], ends within the deadline of its handle: [`ArrayOptions::deadline`], or the one
//! set by [`Object::within`] and its counterparts. There are two exceptions: a call to a [`Volume`] has the deadline for each of its
//! transactions, and [`Space::run`] for each of its requests. The outcome of a call that ends with [`Error::TimedOut`] is unknown.
//!
//! **Cancellation.** Dropping a future ends the wait. The request may still be executed.
//!
//! **Structures** built on objects (locks, delivery counters, fail-over, queues, lists, directories) are procedures of [`recipes`], which
//! [`Space::run`] drives. What they grant expires unless it is renewed in time, by the clock [`now`]. It can guard requests, so that the
//! device refuses them once it is lost: [`Request::guarded`].
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
//! **Ranges** of a name that programs agree on are locked by [`Array::ranges`], shared or exclusive, on any host (`docs/range-locks.md`).
//!
//! ```no_run
//! use braid_client::{Array, Error, LockMode};
//!
//! async fn update(array: Array) -> Result<(), Error> {
//!     let mut lock = array.ranges("inventory").lock(4096..8192, LockMode::Shared).await?;
//!     // … look …
//!     let unchanged = lock.convert(LockMode::Exclusive).await?;
//!     // … look again unless it is unchanged, and write …
//!     # let _ = unchanged;
//!     lock.unlock().await
//! }
//! # let _ = update;
//! ```
//!
//! **Files** of a file system are used through a mount ([`Array::files`], or [`Files::mount`] for programs that need nothing else;
//! `docs/files.md`).
//!
//! ```no_run
//! use braid_client::{ArrayOptions, Files, FilesError, OpenOptions};
//!
//! async fn note(report: Vec<u8>) -> Result<(), FilesError> {
//!     let files = Files::mount(ArrayOptions::at("./braid-data").name("reports"), "home").await?;
//!     let log = files.open("/log", OpenOptions::new().append(true).create(true)).await?;
//!     log.append("a line\n").await?;
//!     files.write("/new", report).await?;
//!     files.rename("/new", "/report").await?;
//!     files.close().await;
//!     Ok(())
//! }
//! # let _ = note;
//! ```
//!
//! Complete programs are in `examples/`: a counter, a lock, a leader, a directory, a volume.

#![warn(missing_docs)]

/// What is in the expected answer; any other answer breaks the protocol.
macro_rules! expected {
    ($answer:expr, $expected:pat => $value:expr) => {
        match $answer {
            $expected => Ok($value),
            _ => Err(crate::Error::ProtocolError.into()),
        }
    };
}

mod array;
mod countdown;
mod driving;
mod error;
mod files;
mod guard;
mod object;
mod range_lock;
mod range_part;
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
    Action, ActionResult, AttributeName, CommandResult, FileType, LockMode, ObjectCommand, ObjectFailure,
    ObjectRequest, SetAttribute, SpecialType, Undefined, When,
};
pub use bytes::Bytes;
pub use error::{Error, RequestError};
pub use files::{
    DirEntry, File, FileSystemSpace, Files, FilesError, LockKind, LockOwner, Metadata, OpenOptions, ReadDir,
};
pub use guard::Guard;
pub use object::{Object, Stat, Swapped};
pub use range_lock::{RangeLease, RangeLock, Ranges, space_object};
pub use range_part::RangePart;
pub use request::{Answers, Request};
pub use space::Space;
pub use value::Value;
pub use volume::Volume;
pub use waiting::wait;

/// The present time of the clock that [`recipes`] use. Every [`Time`] that they return (when to renew, until when a hold is sure) refers to
/// this clock. It continues while the computer sleeps, is never set, and cannot be compared with the clock of another machine.
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
