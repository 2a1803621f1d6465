//! A policy lists the properties of one ordering.
//!
//! | property | files that act on it |
//! | --- | --- |
//! | `lock_server` | `core/transactions/src/locking.rs`, `core/ordering/src/names.rs`, `real/session/src/session.rs` |
//! | `announces` | `core/transactions/src/transaction.rs`, `core/transactions/src/attempt.rs`, `core/device/src/scheduler/stamp_checks.rs` |
//! | `admission` | `core/device/src/scheduler/stamp_checks.rs`, `core/device/src/scheduler/stamp_reservation.rs`, `core/device/src/scheduler/transactions.rs` |
//! | `reads_insist` | `core/transactions/src/attempt.rs` |
//! | `unannounced_write` | `core/transactions/src/attempt.rs`, `core/device/src/scheduler/stamp_checks.rs`, `core/device/src/scheduler/stamp_reservation.rs` |
//! | `refused_write` | `core/transactions/src/refusal.rs`, `core/transactions/src/transaction.rs` |
//! | `abort_notice` | `core/transactions/src/ending.rs` |
//! | `keeps_intents` | `core/ordering/src/names.rs` (the write mode) |
//! | `leaves_suspects` | `core/transactions/src/transaction.rs`, `core/transactions/src/epoch.rs`, `core/wire/src/message.rs` |

use crate::WriteMode;

/// What hosts and devices do under one ordering.
///
/// A storage transaction consists of these steps. Each step depends on a field of the policy:
///
/// | step | where | field |
/// | --- | --- | --- |
/// | acquire locks of lock servers | host | `lock_server` |
/// | send pre-writes | host | `announces` |
/// | admit, refuse or delay a read or a pre-write | device | `admission` |
/// | read with pre-writes after repeated refusals | host | `reads_insist` |
/// | send or admit a write without a pre-write | both | `unannounced_write` |
/// | continue after a device has refused a write | host | `refused_write` |
/// | inform devices of an abort | host | `abort_notice` |
/// | make a write of atomicity `implied` | both | `keeps_intents` |
/// | resynchronise parity after an interrupted write of atomicity `consistent` | both | `leaves_suspects` |
///
/// The commit of intents depends only on the write mode ([`WriteMode`](crate::WriteMode)); it also releases a device's locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The name in commands.
    pub name: &'static str,
    /// How long a host holds the locks of a lock server, which it acquires before it sends any request to a device. `None` if the
    /// ordering needs no lock server.
    pub lock_server: Option<LockHold>,
    /// Hosts send pre-writes, so that a device knows of a write before it arrives.
    pub announces: bool,
    /// How a device decides whether to serve a request now.
    pub admission: Admission,
    /// A host whose read was refused several times reads with pre-writes, which delay the writers with higher stamps.
    pub reads_insist: bool,
    /// What a device does with a write of an unknown transaction.
    pub unannounced_write: UnannouncedWrite,
    /// What a host does when a device refuses a write, while other devices may have accepted theirs.
    pub refused_write: RefusedWrite,
    /// Which aborts a host sends to devices.
    pub abort_notice: AbortNotice,
    /// Devices can keep a write as an intent until its transaction is decided. Otherwise all writes take effect on arrival.
    pub keeps_intents: bool,
    /// An interrupted transaction whose writes take effect on arrival leaves its stripes suspect until they have been checked. Otherwise
    /// such stripes are not recorded, and a host may begin the transaction again.
    pub leaves_suspects: bool,
}

/// How long a host holds the locks of a lock server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockHold {
    /// Until the transaction ends.
    Transaction,
    /// Until the lock server calls them back: other transactions of this host use them in the meantime. Such locks cover whole stripe
    /// units.
    UntilCalledBack,
}

/// How a device decides whether to serve a request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Requests are served as they arrive, without comparing stamps.
    OnArrival,
    /// A lock server keeps conflicting hosts apart. A request waits only for writes to its blocks whose transaction has committed, but
    /// whose commit has not arrived yet. Writes with a stamp below the stamp of the last write are refused.
    BehindUndecided,
    /// Reads lock their blocks shared and pre-writes exclusively, until the transaction ends on this device. A request that waits longer
    /// than the lock time-out is refused.
    ByLocks,
    /// Requests are served in the order of their stamps: a request that is too late is refused, and one above an undecided transaction
    /// waits for its end.
    ByStamps,
}

/// What a device does with a write of an unknown transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnannouncedWrite {
    /// The write is applied at once.
    Apply,
    /// The write is treated as if it had just been announced, unless its stamp is too low.
    Admit,
    /// The same for a write that waits for a decision: its intent announces it. A write that takes effect on arrival is refused.
    AdmitIntent,
    /// The write is refused with an abort promise: its pre-write was dropped, or never arrived.
    Refuse,
}

/// What a host does when a device refuses a write, while other devices may have accepted theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedWrite {
    /// It sends the same write again after a while, because writes that other devices have accepted can't be undone.
    Resend,
    /// If writes take effect on arrival, it sends the write again with a stamp above the one it lost to; its locks keep other hosts away.
    /// Intents are aborted.
    HoldOn,
    /// It aborts the transaction and begins a new one.
    Abort,
}

/// Which aborts a host sends to devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortNotice {
    /// None: devices remember nothing of a transaction.
    Never,
    /// Those of transactions that have sent writes: devices do not know the others.
    IfWritten,
    /// All: devices may hold pre-writes or locks.
    Always,
}

impl Policy {
    /// True if devices lock the blocks of a read.
    pub fn locks_what_it_reads(&self) -> bool {
        self.admission == Admission::ByLocks
    }

    /// True if a device admits a write of this mode whose transaction it does not know.
    pub fn admits_unannounced(&self, mode: WriteMode) -> bool {
        match self.unannounced_write {
            UnannouncedWrite::Admit => true,
            UnannouncedWrite::AdmitIntent => mode == WriteMode::Intent,
            UnannouncedWrite::Apply | UnannouncedWrite::Refuse => false,
        }
    }

    /// True if a host sends a write without a pre-write, provided that nothing must be read for it.
    pub fn writes_at_once(&self, mode: WriteMode) -> bool {
        self.announces && self.admits_unannounced(mode)
    }

    /// True if hosts cache locks of a lock server.
    pub fn caches_locks(&self) -> bool {
        self.lock_server == Some(LockHold::UntilCalledBack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ordering;

    #[test]
    fn an_announced_write_is_admitted_by_its_announcement_alone() {
        for policy in Ordering::ALL.map(Ordering::policy) {
            let name = policy.name;
            let by_announcement = matches!(policy.admission, Admission::ByLocks | Admission::ByStamps);
            assert_eq!(policy.announces, by_announcement, "{name}: a device decides on pre-writes if it gets any");
            let admits =
                policy.admits_unannounced(WriteMode::Immediate) || policy.unannounced_write == UnannouncedWrite::Apply;
            assert_eq!(policy.announces, !admits, "{name}: nothing takes effect on arrival without its pre-write");
            let at_once = policy.writes_at_once(WriteMode::Intent);
            assert_eq!(
                at_once,
                policy.admission == Admission::ByStamps,
                "{name}: locks are taken before anything is written"
            );
            let always = policy.abort_notice == AbortNotice::Always;
            assert_eq!(policy.announces, always, "{name}: a device keeps a pre-write until it is told of the end");
        }
    }

    #[test]
    fn lock_servers_make_hosts_wait_until_all_has_been_written() {
        for policy in Ordering::ALL.map(Ordering::policy) {
            let (name, locks) = (policy.name, policy.lock_server.is_some());
            assert_eq!(
                locks,
                policy.admission == Admission::BehindUndecided,
                "{name}: the commit may come after the unlock"
            );
            assert_eq!(locks, policy.refused_write == RefusedWrite::HoldOn, "{name}: locks leave time to write again");
            assert_eq!(locks, policy.abort_notice == AbortNotice::IfWritten, "{name}: only writes reach a device");
            assert!(
                !(locks && policy.announces),
                "{name}: nothing is announced to devices under a lock server's locks"
            );
        }
    }

    #[test]
    fn one_ordering_alone_keeps_nothing_apart() {
        for ordering in Ordering::ALL {
            let (policy, unprotected) = (ordering.policy(), ordering == Ordering::None);
            assert_eq!(policy.admission == Admission::OnArrival, unprotected, "{ordering}");
            assert_eq!(policy.unannounced_write == UnannouncedWrite::Apply, unprotected, "{ordering}");
            assert_eq!(policy.refused_write == RefusedWrite::Resend, unprotected, "{ordering}");
            assert_eq!(policy.abort_notice == AbortNotice::Never, unprotected, "{ordering}");
            assert_eq!((!policy.keeps_intents, !policy.leaves_suspects), (unprotected, unprotected), "{ordering}");
        }
    }
}
