//! A client of the leading monitor of an array on several machines: it finds the leader among the candidates, and asks it over HTTP.
//! `docs/leadership.md` has the rules. Candidates use the same calls among each other.
//!
//! | module | what |
//! | --- | --- |
//! | `http` | one call of the interface, and the forms of what is said there |
//! | `client` | finds the leader and asks it |

mod client;
pub mod http;

pub use client::{AskError, LeaderClient};
