//! The names of the orderings and atomicities, by which objects are described on the wire and on disks.

use crate::policy::Policy;
use crate::{callback_lock, device_lock, none, server_lock, timestamp};
use std::fmt;
use std::str::FromStr;

/// How the requests to an object are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ordering {
    /// Timestamp ordering (shared array, section 4.5).
    Timestamp,
    /// Not at all: the paper's zero-overhead protocol. Concurrent hosts can corrupt parity.
    None,
    /// One message to a lock server locks everything, one unlocks it (shared array, section 4.2).
    ServerLock,
    /// Locks of a lock server that hosts keep until it calls them back (shared array, section 4.2).
    CallbackLock,
    /// Each device locks its own blocks, on requests that are made anyhow (shared array, section 4.4).
    DeviceLock,
}

impl Ordering {
    /// All of them, in the order in which the shared-array paper compares them, the unprotected one first.
    pub const ALL: [Ordering; 5] =
        [Ordering::None, Ordering::ServerLock, Ordering::CallbackLock, Ordering::DeviceLock, Ordering::Timestamp];

    /// What hosts and devices do under it.
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

    /// The name that users know.
    pub fn name(self) -> &'static str {
        self.policy().name
    }

    /// True if hosts need a lock server.
    #[inline]
    pub fn needs_lock_server(self) -> bool {
        self.policy().lock_server.is_some()
    }
}

impl fmt::Display for Ordering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Ordering {
    type Err = UnknownOrdering;

    fn from_str(text: &str) -> Result<Ordering, UnknownOrdering> {
        Ordering::ALL.into_iter().find(|ordering| ordering.name() == text).ok_or(UnknownOrdering(text.to_string()))
    }
}

/// No ordering has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no ordering '{0}': choose none, server-lock, callback-lock, device-lock or timestamp")]
pub struct UnknownOrdering(pub String);

/// What a volume promises of hostwrites that a failure cuts short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atomicity {
    /// They happen whole or not at all: each devwrite is an intent until all are durable.
    #[default]
    Implied,
    /// Devwrites take effect on arrival, as in the shared-array paper (section 4.5.2). What is cut short may be seen in part, and
    /// its stripes are *suspect* until their parity is known to match again (`docs/membership.md`).
    Consistent,
}

impl Atomicity {
    /// All of them, the usual one first.
    pub const ALL: [Atomicity; 2] = [Atomicity::Implied, Atomicity::Consistent];

    /// The name that users know.
    pub fn name(self) -> &'static str {
        match self {
            Atomicity::Implied => "implied",
            Atomicity::Consistent => "consistent",
        }
    }
}

impl fmt::Display for Atomicity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Atomicity {
    type Err = UnknownAtomicity;

    fn from_str(text: &str) -> Result<Atomicity, UnknownAtomicity> {
        let named = Atomicity::ALL.into_iter().find(|atomicity| atomicity.name() == text);
        named.ok_or(UnknownAtomicity(text.to_string()))
    }
}

/// No atomicity has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no atomicity '{0}': choose implied or consistent")]
pub struct UnknownAtomicity(pub String);

/// Whether a devwrite waits for its siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// An intent: takes effect when the transaction commits (atomicity `implied`).
    Intent,
    /// Takes effect as soon as it is durable (atomicity `consistent`, and ordering `none`).
    Immediate,
}

impl WriteMode {
    /// The one of a volume.
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
