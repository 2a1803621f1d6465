//! Centralized locking (shared-array paper, section 4.2): one message to a lock server locks all extents, another one unlocks them.
//!
//! `policy.rs` names the files of hosts and devices that act on each property.

use crate::policy::{AbortNotice, Admission, LockHold, Policy, RefusedWrite, UnannouncedWrite};

pub(crate) const POLICY: Policy = Policy {
    name: "server-lock",
    lock_server: Some(LockHold::Transaction),
    announces: false,
    admission: Admission::BehindUndecided,
    reads_insist: false,
    unannounced_write: UnannouncedWrite::Admit,
    refused_write: RefusedWrite::HoldOn,
    abort_notice: AbortNotice::IfWritten,
    keeps_intents: true,
    leaves_suspects: true,
};
