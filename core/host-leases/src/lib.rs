//! Leases of hosts. Each start of a host takes a generation that was never used before, with a lease that the host renews while it is
//! alive. A host that is silent for too long loses its lease and is fenced: from then on no device serves it.
//!
//! All of it is pure. The table of leases is kept by a backend: the array's folder, or the simulation. A backend reads what a transition
//! needs into a [`LeaseTable`], applies the transition, and makes the returned [writes](Write) in their order.
//!
//! ```text
//!   host                         table of leases                     fencer                       monitor, devices
//!   take ──────────────────────► counter, lease
//!   renew, renew, …  ──────────► heartbeat
//!   (silent)                     lease over        ◄──────────────── end all silent ones
//!                                fence ────────────────────────────► Fence ─────────────────────► refuse it
//!   renew ─────────────────────► refused: the host stops             forget
//!                                no lease          ◄────────────────
//! ```
//!
//! Invariants:
//!
//! 1. *A generation is given once.* The counter is written before the lease, and only rises. If the answer is lost, the generation is too.
//! 2. *A lease that is over is never renewed.* A heartbeat without a lease, or of one that is over, is ignored, however late it was written.
//! 3. *A fence refuses no host whose lease is not over.* It excepts exactly these, and hosts that start later are above its bound.
//! 4. *A lease that was ended is forgotten when its host is fenced.* Until then, every fencer finds it again. So a fencer may die, or be
//!    suspended, at every step, and any other one continues.
//! 5. *Only silence ends a lease.* A [`LeaseJudge`] extends all leases by the time for which it was suspended itself, or nobody could renew, and
//!    a lease of an earlier boot has ended.
//! 6. *A host stops when its lease is over*, or when it could not find out for as long as a host may be silent. A host whose lease can't be
//!    written, though it can be read, goes on: only the devices' refusal ends its I/O, and every fence is preceded by an end of the lease on
//!    record, or made by the monitor.
//!
//! | module | what |
//! | --- | --- |
//! | `time` | the time of leases: with the boot that it belongs to |
//! | `durations` | how long leases last |
//! | `table` | the leases, and the transitions of them |
//! | `records` | what a backend keeps, in memory: for the simulation and tests |
//! | `judge` | how long hosts may be silent now |
//! | `fencer` | the fencer of silent hosts |
//! | `renewer` | the part of a host: it renews, and stops |
//! | `tests` | small worlds, in which every order of events is tried |

mod durations;
mod fencer;
mod judge;
mod records;
mod renewer;
mod table;
#[cfg(test)]
mod tests;
mod time;

pub use durations::{LEASE_MILLIS_DEFAULT, LEASE_MILLIS_MAX, LEASE_MILLIS_MIN, LOCK_SERVER_ROLE, Leases};
pub use fencer::{Answer, Fencer, Question, SweepLimits};
pub use judge::LeaseJudge;
pub use records::LeaseRecords;
pub use renewer::{Renewer, RenewerInput, RenewerStep, StopReason};
pub use table::{Expired, Fence, Heartbeat, Lease, LeaseEnd, LeaseLost, LeaseTable, Version, Write};
pub use time::LeaseTime;
