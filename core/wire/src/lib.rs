//! The messages of Braid's protocols, and the frames that carry them.
//!
//! [`message`] is the vocabulary: every protocol speaks only in these enums. [`frame`] is their form on the
//! wire, drawn byte by byte in `docs/wire-format.md`. Decoding trusts nothing and never panics.
//!
//! | module | what |
//! | --- | --- |
//! | `message` | what hosts and devices say to each other |
//! | `locking` | what hosts and lock servers say to each other |
//! | `monitoring` | what nodes say to the monitor |
//! | `objects` | requests for objects that hold bytes and attributes, and their answers |
//! | `administration` | what operators ask of the monitor |
//! | `frame` | frames: a message between two nodes, with a checksum |
//! | `message_codec` | the form of each message in bytes |
//! | `codec` | numbers, lists and payloads in and out of bytes |
//! | `fuzzing` | what must hold for any bytes at all |
//!
//! Wire history, newest first; a frame of another version is refused:
//!
//! | version | what changed, and why |
//! | --- | --- |
//! | 7 | the monitor says with each lease how long it is; renewals and leases name the highest stamp clock that is known to be accepted; a device that renews names the fenced hosts of which it holds something undecided: a fence is answered when there is nothing |
//! | 6 | requests for objects name what was given up before, in stretches |
//! | 5 | objects that hold bytes and attributes, and what waits for these to change |
//! | 4 | disks have names, by which the monitor knows which one fills a slot; operators have devices failed, replaced and readmitted; objects can be made absent, and devices say what of them still is |
//! | 3 | a monitor decides who is in: hosts are fenced through it and no more at each device, devices tell what others missed, objects say whether they are redundant; lock servers have no epochs |
//! | 2 | requests name the ordering that they assume, answers say whether somebody was in the way, devices change orderings; lock servers: the locking orderings |
//! | 1 | the first: timestamp ordering with implied atomicity over blocks |

pub mod administration;
mod codec;
pub mod frame;
#[doc(hidden)]
pub mod fuzzing;
pub mod locking;
pub mod message;
mod message_codec;
pub mod monitoring;
pub mod objects;

pub use administration::*;
pub use braid_ordering::{Atomicity, Ordering, UnknownAtomicity, UnknownOrdering, WriteMode};
pub use frame::{EncodedFrame, Frame, FrameHeader, WireError};
pub use locking::*;
pub use message::*;
pub use message_codec::{decode_answer, encode_answer};
pub use monitoring::*;
pub use objects::*;
