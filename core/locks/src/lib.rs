//! Range locks, shared and exclusive (shared array, sections 4.2 and 4.3).
//!
//! | module | what |
//! | --- | --- |
//! | [`table`] | who holds and who waits for which blocks: serves lock servers, devices and hosts alike |

pub mod table;

pub use table::{Asked, LockState, LockTable};
