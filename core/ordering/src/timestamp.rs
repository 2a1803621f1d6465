//! Timestamp ordering (shared-array paper, section 4.5): devices serve transactions in the order of their stamps. A
//! write for which nothing must be read goes out without a pre-write: its durable intent announces it.
//!
//! Deviation: the paper announces every write by a pre-write.
//!
//! `policy.rs` names the files of hosts and devices that act on each property.

use crate::policy::{AbortNotice, Admission, Policy, RefusedWrite, UnannouncedWrite};

pub(crate) const POLICY: Policy = Policy {
    name: "timestamp",
    lock_server: None,
    announces: true,
    admission: Admission::ByStamps,
    reads_insist: true,
    unannounced_write: UnannouncedWrite::AdmitIntent,
    refused_write: RefusedWrite::Abort,
    abort_notice: AbortNotice::Always,
    keeps_intents: true,
    leaves_suspects: true,
};
