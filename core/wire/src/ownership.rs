//! Requests of hosts about the ownership of file systems (`docs/membership.md`). The sender of a request is the host that it is about.

use crate::declarations::wire;
use braid_base::{Epoch, Ownership, limits};
use serde::{Deserialize, Serialize};

wire! {
    /// What a host asks of the monitor about a file system.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub enum OwnershipRequest {
        /// Asks for the present ownership.
        Inquire = 1,
        /// Makes the sender the owner, and fences the owner of `from`, if the ownership is still `from`. Answered when the fence is final.
        TakeOver { from: Ownership } = 2,
        /// The sender, which has been the owner since this epoch, owns the file system no longer. Nobody is fenced.
        Release { since: Epoch } = 3,
    }

    /// Why the monitor refuses to change an ownership.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum OwnershipRefused {
        #[error("the file system is {0}")]
        Differs(present: Ownership) = 1,
        #[error("this host was fenced: restart it")]
        Fenced = 2,
        #[error("{} file systems have owners already, the most that an array may have", limits::FILE_SYSTEMS_MAX)]
        TooManyFileSystems = 3,
    }
}
