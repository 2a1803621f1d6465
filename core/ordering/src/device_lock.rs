//! Device-served locking (shared-array paper, section 4.4): each device locks its own blocks. Lock requests are part of the pre-writes
//! and reads.
//!
//! `policy.rs` names the files of hosts and devices that act on each property.

use crate::policy::{AbortNotice, Admission, Policy, RefusedWrite, UnannouncedWrite};

pub(crate) const POLICY: Policy = Policy {
    name: "device-lock",
    lock_server: None,
    announces: true,
    admission: Admission::ByLocks,
    reads_insist: false,
    unannounced_write: UnannouncedWrite::Refuse,
    refused_write: RefusedWrite::Abort,
    abort_notice: AbortNotice::Always,
    keeps_intents: true,
    leaves_suspects: true,
};
