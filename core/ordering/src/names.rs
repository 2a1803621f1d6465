//! The orderings and atomicities by name. The names describe objects on the wire and on disks.

use crate::policy::Policy;
use crate::{callback_lock, device_lock, none, server_lock, timestamp};
use braid_base::{by_name, names};
use serde::{Deserialize, Serialize};

/// How the requests to an object are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Ordering {
    /// Timestamp ordering: devices serve transactions in the order of their stamps (shared-array paper, section 4.5).
    Timestamp,
    /// No ordering: the paper's zero-overhead protocol. Concurrent hosts can corrupt parity.
    None,
    /// Centralized locking: one message to a lock server locks all extents, another one unlocks them (shared-array paper, section 4.2).
    ServerLock,
    /// Callback locking: hosts cache locks of a lock server until it calls them back (shared-array paper, section 4.2).
    CallbackLock,
    /// Device-served locking: each device locks its own blocks, as part of pre-writes and reads (shared-array paper, section 4.4).
    DeviceLock,
}

impl Ordering {
    /// All orderings, in the order in which the shared-array paper compares them, after the one without protection.
    pub const ALL: [Ordering; 5] =
        [Ordering::None, Ordering::ServerLock, Ordering::CallbackLock, Ordering::DeviceLock, Ordering::Timestamp];

    /// The policy of the ordering.
    #[inline]
    pub const fn policy(self) -> &'static Policy {
        match self {
            Ordering::Timestamp => &timestamp::POLICY,
            Ordering::None => &none::POLICY,
            Ordering::ServerLock => &server_lock::POLICY,
            Ordering::CallbackLock => &callback_lock::POLICY,
            Ordering::DeviceLock => &device_lock::POLICY,
        }
    }

    /// The name in commands.
    pub fn name(self) -> &'static str {
        self.policy().name
    }

    /// True if hosts need a lock server.
    #[inline]
    pub fn needs_lock_server(self) -> bool {
        self.policy().lock_server.is_some()
    }
}

by_name!(Ordering or UnknownOrdering);

/// No ordering has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no ordering '{0}': choose none, server-lock, callback-lock, device-lock or timestamp")]
pub struct UnknownOrdering(pub String);

/// What a volume guarantees for hostwrites that a failure interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Atomicity {
    /// They happen as a whole or not at all: each devwrite is an intent until all of them are durable.
    #[default]
    Implied,
    /// Devwrites take effect on arrival, as in the shared-array paper (section 4.5.2). An interrupted write may be visible in part, and
    /// its stripes are *suspect* until parity is resynchronised (`docs/membership.md`).
    Consistent,
}

names!(Atomicity { Implied => "implied", Consistent => "consistent" } or UnknownAtomicity);

/// No atomicity has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no atomicity '{0}': choose implied or consistent")]
pub struct UnknownAtomicity(pub String);

/// Whether a devwrite waits for the sibling requests of its hostwrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// An intent: takes effect when the transaction commits (atomicity `implied`).
    Intent,
    /// Takes effect as soon as it is durable (atomicity `consistent`, and ordering `none`).
    Immediate,
}

impl WriteMode {
    /// The write mode of a volume.
    pub fn of(ordering: Ordering, atomicity: Atomicity) -> WriteMode {
        match atomicity {
            Atomicity::Implied if ordering.policy().keeps_intents => WriteMode::Intent,
            Atomicity::Implied | Atomicity::Consistent => WriteMode::Immediate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_users_know() {
        assert_eq!(
            Ordering::ALL.map(Ordering::name),
            ["none", "server-lock", "callback-lock", "device-lock", "timestamp"]
        );
        for ordering in Ordering::ALL {
            assert_eq!(ordering.name().parse(), Ok(ordering));
        }
        for atomicity in Atomicity::ALL {
            assert_eq!(atomicity.name().parse(), Ok(atomicity));
        }
        assert!("Timestamp".parse::<Ordering>().is_err() && "".parse::<Atomicity>().is_err());
    }

    #[test]
    fn intents_take_an_ordering_and_the_usual_atomicity() {
        let intents = |atomicity| {
            let writes = move |ordering: &Ordering| WriteMode::of(*ordering, atomicity) == WriteMode::Intent;
            Ordering::ALL.into_iter().filter(writes).count()
        };
        assert_eq!((intents(Atomicity::Implied), intents(Atomicity::Consistent)), (4, 0));
        assert_eq!(WriteMode::of(Ordering::None, Atomicity::Implied), WriteMode::Immediate);
    }
}
