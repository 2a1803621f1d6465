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
//! | [`mod@sweep`] | what removed objects leave behind |
//! | [`mirror`] | requests to a mirror: where their attributes lie, and what becomes of a bucket |
//! | [`bucket`] | how a bucket lies on its volume |

mod attributes;
pub mod bucket;
mod data;
pub mod evaluate;
mod header;
pub mod key;
pub mod mirror;
mod overlay;
pub mod sweep;
pub mod view;

pub use bucket::BucketPlace;
pub use evaluate::{Evaluation, NotHere, evaluate};
pub use key::{Key, Kind};
pub use sweep::{Swept, sweep};
pub use view::{Change, Known, Obstacle, View};
