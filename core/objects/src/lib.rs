//! Commands on objects that hold bytes and attributes (device-atomics paper, sections 4 and 5). The objects may be stored by a device or
//! in a replicated attribute volume.
//!
//! All content is one ordered map from [`Key`] to bytes. [`evaluate()`] reads it through a [`View`] and returns the changes; the caller
//! makes them durable atomically. Evaluation never blocks: if a key is not in memory, it returns [`NotHere`], and the caller evaluates
//! the request again once the key has been read.
//!
//! | module | what |
//! | --- | --- |
//! | [`key`] | the keys of objects, bytes and attributes in the map |
//! | [`map_access`] | read access of an evaluation to the map |
//! | [`mod@evaluate`] | the evaluation of a request, command by command |
//! | [`mod@overlay`] | the map with the changes of a request so far |
//! | `header`, `attributes`, `data` | the commands on whole objects, on attributes, on bytes |
//! | [`mod@collect`] | the garbage collection of removed objects |
//! | [`attribute_volume`] | requests to an attribute volume: the location of their attributes, and their effect on a bucket |
//! | [`bucket`] | the encoding of a bucket |

pub mod attribute_volume;
mod attributes;
pub mod bucket;
pub mod collect;
mod data;
pub mod evaluate;
mod header;
pub mod key;
pub mod map_access;
pub mod overlay;

pub use bucket::BucketAddress;
pub use collect::{Collected, collect};
pub use evaluate::{CloneProcedure, Evaluation, Found, NotHere, Procedure, evaluate};
pub use key::{Key, Kind};
pub use map_access::{Change, Known, Obstacle, View};
pub use overlay::Overlay;
