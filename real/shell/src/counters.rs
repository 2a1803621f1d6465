//! What the shell has done, for whoever wants to see what an operation costs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the start. The shell adds; the owner may read at any time, from any thread.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            /// Names and values, in a fixed order.
            pub fn values(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Relaxed)),)*]
            }
        }
    };
}

counters! {
    /// Rounds of the driver: each takes all that is ready, then flushes.
    rounds,
    /// Inputs stepped.
    inputs,
    /// Frames that came in whole and valid.
    frames_received,
    /// Bytes read from sockets.
    bytes_received,
    /// Frames handed to a connection.
    frames_sent,
    /// Bytes written to sockets.
    bytes_sent,
    /// Messages dropped for want of a connection.
    dropped_unconnected,
    /// Messages dropped because a connection's queue was full.
    dropped_full,
    /// Connections closed because of what came over them.
    connections_refused,
    /// System calls that read from sockets.
    socket_reads,
    /// System calls that write to sockets.
    socket_writes,
    /// Disk commands taken.
    disk_commands,
    /// System calls that hand disk commands to the kernel's ring.
    ring_enters,
}

impl Counters {
    /// The value of one counter; zero if there is none of that name.
    pub fn value(&self, name: &str) -> u64 {
        self.values().into_iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| value)
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(amount as u64, Relaxed);
}
