//! Callback locking (shared-array paper, section 4.2): hosts cache the locks of a lock server until the server calls them back.
//!
//! `policy.rs` names the files of hosts and devices that act on each property.

use crate::policy::{LockHold, Policy};

pub(crate) const POLICY: Policy =
    Policy { name: "callback-lock", lock_server: Some(LockHold::UntilCalledBack), ..crate::server_lock::POLICY };
