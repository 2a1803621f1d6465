//! What commands do to objects that hold bytes and attributes (device atomics, sections 4 and 5), over whatever keeps them: a device's
//! store, or a mirrored volume.
//!
//! All that there is, is one ordered map from [`Key`] to bytes. [`evaluate()`] looks at it through a [`View`] and says what
//! is to change; who calls it makes the change durable as a whole. Nothing here waits: what is not in memory is *not here*, and
//! the request is evaluated again when it is.
//!
//! | module | what |
//! | --- | --- |
//! | [`key`] | how objects, bytes and attributes are named in the map |
//! | [`view`] | what an evaluation may look at |
//! | [`mod@evaluate`] | a request, command by command |
//! | `overlay` | the map with what a request has changed so far |
//! | `header`, `attributes`, `data` | the commands: on objects as such, on attributes, on bytes |
//! | [`mod@collect`] | what removed objects leave behind |
//! | [`attribute_volume`] | requests to an attribute volume: where their attributes lie, and what becomes of a bucket |
//! | [`bucket`] | how a bucket lies on its volume |

pub mod attribute_volume;
mod attributes;
pub mod bucket;
pub mod collect;
mod data;
pub mod evaluate;
mod header;
pub mod key;
mod overlay;
pub mod view;

pub use bucket::BucketAddress;
pub use collect::{Collected, collect};
pub use evaluate::{Evaluation, NotHere, evaluate};
pub use key::{Key, Kind};
pub use view::{Change, Known, Obstacle, View};
