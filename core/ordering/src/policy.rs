//! What an ordering decides.

/// What hosts and devices do under one ordering.
///
/// A storage transaction passes these steps, and each asks the policy:
///
/// | step | where | field |
/// | --- | --- | --- |
/// | acquire locks of lock servers | host | `lock_server` |
/// | send pre-writes | host | `announces` |
/// | admit a read or a pre-write, or refuse it, or let it wait | device | `admission` |
/// | read with pre-writes after repeated refusals | host | `reads_insist` |
/// | admit a write of which the device has not heard before | device | `unannounced_write` |
/// | go on after a device has refused a write | host | `refused_write` |
/// | tell devices of an abort | host | `abort_notice` |
/// | make a write of atomicity `implied` | both | `keeps_intents` |
/// | repair a write of atomicity `consistent` that was cut short | both | `leaves_suspects` |
///
/// The commit of intents depends on the write mode alone ([`WriteMode`](crate::WriteMode)); it also releases a device's locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The name that users know.
    pub name: &'static str,
    /// For how long a host holds the lock server's locks that it acquires before it sends anything to a device. None if it needs none.
    pub lock_server: Option<LockHold>,
    /// A host sends pre-writes: a device hears of a write before the write comes.
    pub announces: bool,
    /// How a device decides whether it serves a request now.
    pub admission: Admission,
    /// A host that was refused a read several times reads with pre-writes, which hold off the writers above its stamp.
    pub reads_insist: bool,
    /// What a device does with a write of a transaction that it does not know.
    pub unannounced_write: UnannouncedWrite,
    /// What a host does when a device refuses a write, while other devices may have taken theirs.
    pub refused_write: RefusedWrite,
    /// Which aborts a host tells devices of.
    pub abort_notice: AbortNotice,
    /// Devices can keep a write as an intent until its transaction is decided. Otherwise all writes take effect on arrival.
    pub keeps_intents: bool,
    /// A transaction whose writes take effect on arrival, and which is cut short, leaves its stripes suspect until they are known to be right.
    /// Otherwise nobody looks for such stripes, and a host may begin the transaction anew.
    pub leaves_suspects: bool,
}

/// For how long a host holds a lock server's locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockHold {
    /// Until the transaction ends.
    Transaction,
    /// Until the lock server calls them back: other transactions of this host use them meanwhile. Such locks cover whole stripe units.
    UntilCalledBack,
}

/// How a device decides whether it serves a request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It serves requests as they come, and compares no stamps.
    OnArrival,
    /// A lock server keeps conflicting hosts away. A request waits only for writes on its blocks that were committed, and whose commit has not
    /// come yet. Writes below the stamp of the last write are refused.
    BehindUndecided,
    /// Reads lock their blocks shared, pre-writes exclusively, until the transaction ends here. A request that waits longer than the lock time-out is refused.
    ByLocks,
    /// Requests are served in the order of their stamps: those that come too late are refused, and those above an undecided transaction
    /// wait for its end.
    ByStamps,
}

/// What a device does with a write of a transaction that it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnannouncedWrite {
    /// It makes it at once.
    Apply,
    /// It takes it as if it had been announced just now, unless its stamp is too low.
    Admit,
    /// It refuses it for ever: the pre-write has been dropped, or was never here.
    Refuse,
}

/// What a host does when a device refuses a write, while other devices may have taken theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedWrite {
    /// It sends the same write again, in its time: what others have taken can't be undone.
    Resend,
    /// It sends the write again with a stamp above the one it lost to, if writes take effect on arrival: its locks keep everybody else away. Intents
    /// are aborted.
    HoldOn,
    /// It aborts the transaction, and begins another one.
    Abort,
}

/// Which aborts a host tells devices of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortNotice {
    /// None: devices keep nothing of a transaction.
    Never,
    /// Those of transactions that have sent writes: devices know nothing of the others.
    IfWritten,
    /// All: devices may hold pre-writes or locks.
    Always,
}

impl Policy {
    /// True if devices lock what they are asked to read.
    pub fn locks_what_it_reads(&self) -> bool {
        self.admission == Admission::ByLocks
    }

    /// True if hosts cache a lock server's locks.
    pub fn caches_locks(&self) -> bool {
        self.lock_server == Some(LockHold::UntilCalledBack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ordering;

    #[test]
    fn what_is_announced_is_admitted_by_the_announcement_alone() {
        for policy in Ordering::ALL.map(Ordering::policy) {
            let name = policy.name;
            let by_announcement = matches!(policy.admission, Admission::ByLocks | Admission::ByStamps);
            assert_eq!(policy.announces, by_announcement, "{name}: a device decides on pre-writes, if it is sent any");
            let refuses = policy.unannounced_write == UnannouncedWrite::Refuse;
            assert_eq!(policy.announces, refuses, "{name}: a write without its pre-write comes too late");
            let always = policy.abort_notice == AbortNotice::Always;
            assert_eq!(policy.announces, always, "{name}: a device keeps a pre-write until it hears of the end");
        }
    }

    #[test]
    fn lock_servers_keep_hosts_away_until_all_has_been_written() {
        for policy in Ordering::ALL.map(Ordering::policy) {
            let (name, locks) = (policy.name, policy.lock_server.is_some());
            assert_eq!(
                locks,
                policy.admission == Admission::BehindUndecided,
                "{name}: the commit may come after the unlock"
            );
            assert_eq!(locks, policy.refused_write == RefusedWrite::HoldOn, "{name}: locks make room to write again");
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
