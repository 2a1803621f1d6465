//! What a server gives the protocols to carry. They never look into it: it is typed in memory, and encoded only in messages and records.

use braid_base::Encoded;
use bytes::Bytes;
use std::fmt::Debug;
use std::hash::Hash;

/// The types of what a server has the protocols carry.
pub trait Payload: Clone + Debug + Eq + Hash {
    /// The coordinator's part of an operation: what it changes, its locks, who is answered.
    type Own: Content;
    /// What a worker is asked for.
    type Request: Content;
    /// What takes effect at a worker.
    type Changes: Content;
    /// What the coordinator hears of changes.
    type Answer: Content;
    /// Why a worker refuses an operation.
    type Reason: Content;
}

/// What a payload consists of.
pub trait Content: Encoded + Clone + Debug + Eq + Hash {}

impl<T: Encoded + Clone + Debug + Eq + Hash> Content for T {}

/// Bytes that nobody reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Opaque {}

impl Payload for Opaque {
    type Own = Bytes;
    type Request = Bytes;
    type Changes = Bytes;
    type Answer = Bytes;
    type Reason = Bytes;
}
