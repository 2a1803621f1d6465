//! The refusal to serve a host at all, which devices, lock servers and metadata servers share.

use braid_base::Epoch;

/// Why a device, lock server or metadata server does not serve a host at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Rejection {
    #[error("this host was fenced because its lease expired: restart it")]
    Fenced,
    #[error("the request was sent in another epoch than the receiver's")]
    WrongEpoch {
        /// The receiver's epoch.
        current: Epoch,
    },
    #[error("too many hosts are served there: stop some of them, or try again later")]
    TooManyHosts,
}
