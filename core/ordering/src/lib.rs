//! An ordering is a protocol that keeps concurrent storage transactions on one object apart (shared-array paper, sections 4.2 to 4.5).
//!
//! Hosts and devices run the same code for all orderings. The differences are data: each ordering has a [`Policy`], which hosts and
//! devices read. Code that depends on the ordering asks the policy, and never compares with a named ordering.
//!
//! | module | what |
//! | --- | --- |
//! | `policy` | [`Policy`]: the properties of an ordering |
//! | `none` | no protection |
//! | `server_lock` | locks of a lock server, held for one transaction |
//! | `callback_lock` | locks of a lock server, cached by hosts |
//! | `device_lock` | locks at the devices |
//! | `timestamp` | timestamp ordering |
//! | `names` | [`Ordering`] and [`Atomicity`], which describe an object; [`WriteMode`], which follows from both |

mod callback_lock;
mod device_lock;
mod names;
mod none;
mod policy;
mod server_lock;
mod timestamp;

pub use names::{Atomicity, Ordering, UnknownAtomicity, UnknownOrdering, WriteMode};
pub use policy::{AbortNotice, Admission, LockHold, Policy, RefusedWrite, UnannouncedWrite};
