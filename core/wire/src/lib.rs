//! The messages of Braid's protocols, and the frames that carry them.
//!
//! All protocols use the enums of [`message`] and of the modules that it refers to. [`frame`] is their encoding on the wire;
//! `docs/wire-format.md` describes it byte by byte. Decoding checks everything and never panics.
//!
//! | module | what |
//! | --- | --- |
//! | `message` | messages between hosts and devices |
//! | `locking` | messages between hosts and lock servers |
//! | `monitoring` | messages between nodes and the monitor |
//! | `objects` | object requests, which read and write bytes and attributes, and their answers |
//! | `files` | messages between hosts and metadata servers |
//! | `shards` | messages among the metadata servers of a file system, and parts of operations on several shards |
//! | `rejection` | the refusal to serve a host at all |
//! | `administration` | changes that operators ask of the monitor |
//! | `ownership` | requests of hosts about the ownership of file systems |
//! | `demand` | what the answer to a request will bring, before there is an answer |
//! | `direction` | who may send a message to whom, and over which connection |
//! | `hello` | the first bytes of a connection, by which two releases agree on a version |
//! | `frame` | frames: one message between two nodes, with a checksum |
//! | `declarations` | the macros that declare messages with their encodings |
//! | `message_codec` | the encodings of what is not declared with them |
//! | `codec` | the encoding of numbers, lists and payloads; its versions and errors |
//! | [`any`] | values of all messages, for property tests and attacks |
//! | `fuzzing` | properties that must hold for arbitrary bytes |
//!
//! History of the wire format, newest version first. A release speaks its own version and the one before, but none before 16:
//!
//! | version | what changed, and why |
//! | --- | --- |
//! | 16 | connections begin with a hello; renewals say which level a program knows, and leases which one the array has: programs of two releases work together; requests for ranges say what they wait for; renewals of devices name the process that runs them |
//! | 15 | requests for ranges name what is likely to be wanted next, and may be impatient; lock servers may call on node groups, and give leases |
//! | 14 | heartbeats to lock servers carry the time at which they were sent, and answers repeat it |
//! | 13 | locks of ranges: granted wider than requested, called back in parts, promoted while they are held |
//! | 12 | metadata servers of one file system with several shards speak to each other |
//! | 11 | special files: named pipes, sockets and device files have names; file attributes have the number of a device |
//! | 10 | file systems: hosts send commands to metadata servers; hosts take over, release and ask for the ownership of file systems at the monitor |
//! | 9 | devices execute writes together: a host sends each one its column, and they send each other partials |
//! | 8 | a write may be the first message of a transaction under timestamp ordering; hosts retract what they have not decided |
//! | 7 | the monitor states the length of each lease; renewals and leases carry the highest stamp clock that is known to be accepted; a device's renewal lists the fenced hosts whose transactions it still holds undecided: a fence is answered when there are none |
//! | 6 | object requests list what was abandoned before, as intervals |
//! | 5 | objects that hold bytes and attributes, and requests that wait for an attribute to change |
//! | 4 | disks have identifiers, by which the monitor knows which disk fills a slot; operators can have devices failed, replaced and readmitted; objects can be created absent, and devices list which blocks are still absent |
//! | 3 | a monitor decides the membership: hosts are fenced through it and no longer at each device, devices list what others missed, objects have a flag for redundancy; lock servers have no epochs |
//! | 2 | requests name the ordering that they assume, answers say whether a request had to wait for another host, devices change orderings; lock servers: the locking orderings |
//! | 1 | the first version: timestamp ordering with implied atomicity over blocks |

pub mod administration;
#[doc(hidden)]
pub mod any;
mod codec;
mod declarations;
mod demand;
mod direction;
pub mod files;
pub mod frame;
#[doc(hidden)]
pub mod fuzzing;
pub mod hello;
pub mod locking;
pub mod message;
mod message_codec;
pub mod monitoring;
pub mod objects;
pub mod ownership;
pub mod rejection;
pub mod shards;

pub use administration::*;
pub use demand::Demand;
pub use files::*;
pub use frame::{EncodedFrame, Frame, FrameHeader, WireError};
pub use hello::{Disagreement, Hello};
pub use locking::*;
pub use message::*;
pub use message_codec::{decode_answer, decode_reply, encode_answer, encode_reply};
pub use monitoring::*;
pub use objects::*;
pub use ownership::*;
pub use rejection::*;
pub use shards::*;
