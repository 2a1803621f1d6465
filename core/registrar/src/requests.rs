//! What processes ask the leading registrar about the description of the array and the leases of hosts, and its answers. They are those of
//! the control plane in a folder.

use crate::entries::EntryError;
use crate::machines::{Joining, Machines};
use braid_base::Generation;
use braid_description::{ArrayDescription, DescriptionError};
use braid_host_leases::{Expired, Lease, LeaseEnd, LeaseLost, Version};
use braid_machine::HostError;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Names a request. No two open ones of one registrar have the same number; who gives them knows whom to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A role has so many bytes at most.
pub const ROLE_BYTES_MAX: usize = 1 << 10;
/// A host's report has so many bytes at most.
pub const REPORT_BYTES_MAX: usize = 64 << 10;

/// A request to the registrar that leads. Times are those of its own clock: a host's renewal is made when it arrives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Request {
    /// What is the description?
    Describe,
    /// Replaces the description of revision `after` by `next`, which has the next revision. Repeated, it is made at most once.
    Replace { after: u64, next: Box<ArrayDescription> },
    /// Takes a generation that was never given before, with a lease. Repeated with its `nonce`, a random number, it gives the same generation,
    /// unless its lease has ended or was released meanwhile.
    Take { nonce: u64, role: String, report: String },
    /// Renews a lease. The host has confirmed the description of this version.
    Renew { host: Generation, confirmed: Version, report: String },
    /// Releases a lease: the host has ended, and all its transactions are decided.
    Release { host: Generation },
    /// Asks a host to end. It hears of that with its next renewal.
    AskToEnd { host: Generation },
    /// Which hosts have leases? Those are live that have renewed theirs within this time.
    Hosts { length: Duration },
    /// Ends the leases of all hosts that were silent for longer when this arrived ([`braid_host_leases::LeaseTable::expire`]).
    Expire { by: Generation, length: Duration },
    /// Ends the lease of one host if it was silent for longer ([`braid_host_leases::LeaseTable::expire_one`]); of a lock server, for a lease and
    /// a tenth at least.
    ExpireOne { host: Generation, length: Duration },
    /// Removes leases that are over, whose hosts are fenced.
    Forget { gone: Vec<Generation> },
    /// Which machines does the array have?
    Machines,
    /// Takes a token, whose secret has this hash ([`crate::hash_of`]). From now on it is good for an hour.
    Token { hash: String },
    /// A machine joins by a token, and its monitor is a candidate. Repeated, it is made at most once.
    Join(Joining),
    /// A machine comes never again: its monitor is no candidate any more.
    Leave { name: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    Description(Box<ArrayDescription>),
    Replaced,
    /// The description has another revision: nothing was replaced.
    Superseded,
    Taken(Generation),
    Renewed {
        is_asked_to_end: bool,
    },
    Hosts(Vec<HostLease>),
    Expired(Expired),
    Ended(LeaseEnd),
    Machines(Machines),
    /// It is so.
    Done,
}

/// A host that has a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostLease {
    pub host: Generation,
    pub role: String,
    pub is_live: bool,
    /// The time since it was last heard: of hosts that this leader has not heard, since it leads.
    pub silent: Option<Duration>,
    /// What it said last; empty if this leader has not heard it.
    pub lease: Lease<String>,
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Nothing was changed. The same can be asked elsewhere.
    #[error("this monitor does not lead")]
    NotLeading,
    /// What it was to change may be changed, now or later, or never.
    #[error("this monitor leads no more, and does not know what has become of the request")]
    Unknown,
    /// Nothing can be answered until another candidate leads.
    #[error("the registry's keys could not be read")]
    Unreadable,
    #[error("too much waits at the leading monitor")]
    Busy,
    #[error("host {} has no lease, or one that is over", .0.0)]
    LeaseLost(Generation),
    #[error("all generations have been given")]
    GenerationsExhausted,
    #[error("the request can't be meant: {0}")]
    Invalid(String),
    #[error("the token is refused: {0}")]
    Token(String),
    #[error(transparent)]
    Entries(#[from] EntryError),
    #[error(transparent)]
    Description(#[from] DescriptionError),
    #[error("the monitor does not take a volume: {0:?}")]
    Monitor(HostError),
}

impl From<LeaseLost> for Refused {
    fn from(LeaseLost(host): LeaseLost) -> Refused {
        Refused::LeaseLost(host)
    }
}

/// The outcome of a request.
pub type Outcome = Result<Reply, Refused>;
