//! No ordering: the paper's zero-overhead protocol. Concurrent hosts can corrupt parity. It is the baseline of performance measurements.
//!
//! `policy.rs` names the files of hosts and devices that act on each property.

use crate::policy::{AbortNotice, Admission, Policy, RefusedWrite, UnannouncedWrite};

pub(crate) const POLICY: Policy = Policy {
    name: "none",
    lock_server: None,
    announces: false,
    admission: Admission::OnArrival,
    reads_insist: false,
    unannounced_write: UnannouncedWrite::Apply,
    refused_write: RefusedWrite::Resend,
    abort_notice: AbortNotice::Never,
    keeps_intents: false,
    leaves_suspects: false,
};
