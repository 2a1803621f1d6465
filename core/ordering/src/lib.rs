//! The orderings: how concurrent storage transactions on one object are kept apart (shared array, sections 4.2 to 4.5).
//!
//! Hosts and devices run one protocol. What differs from ordering to ordering is data: a [`Policy`], which both of them read. A step that
//! depends on the ordering asks the policy, and names no ordering.
//!
//! | module | what |
//! | --- | --- |
//! | `policy` | [`Policy`]: what an ordering decides |
//! | `none` | no protection |
//! | `server_lock` | a lock server's locks, one transaction long |
//! | `callback_lock` | a lock server's locks, cached by hosts |
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
