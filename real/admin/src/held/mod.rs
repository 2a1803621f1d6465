//! Running a command while something is held: a lock, a turn, the leadership, or an item of a queue (`docs/recipes/`).
//!
//! | module | what |
//! | --- | --- |
//! | [`active_hold`] | what is held, and renewing it while the command runs |
//! | [`range`] | running the command while a range is locked |
//! | [`running`] | the command, which does not outlive this program |
//! | [`supervisor`] | the process in between, which ends the command |
//! | [`consumer`] | works on the items of a queue, one after the other |

pub mod active_hold;
pub mod consumer;
pub mod range;
pub mod running;
pub mod supervisor;

use crate::failure::{Exit, Failure};
use braid_client::Error as ClientError;
use braid_client::recipes::RequestFailure;
use rustix::process::Signal;
use std::process::ExitStatus;

pub fn failure(failure: RequestFailure) -> Failure {
    match failure {
        RequestFailure::Refused(failure) => ClientError::from(failure).into(),
        RequestFailure::TooLong { .. } => Failure::usage("too-long", failure.to_string()),
        RequestFailure::NoName => Failure::usage("no-name", failure.to_string()),
        RequestFailure::Unknown => Failure::unreachable("timed-out", failure.to_string())
            .hint("`braid status` shows which devices serve; check the outcome before you try again"),
    }
}

/// How a command has ended while its hold was kept.
#[derive(Clone, Copy, Debug)]
pub enum HeldOutcome {
    /// By itself, with this status.
    Ended(ExitStatus),
    /// This program was asked to end by this signal, and has ended the command.
    AskedToEnd(Signal),
}

fn not_in_time(message: impl Into<String>) -> Failure {
    Failure { exit: Exit::NotInTime, ..Failure::failed("not-in-time", message) }
}

fn lost(message: impl Into<String>) -> Failure {
    Failure { exit: Exit::LostMeanwhile, ..Failure::failed("lost", message) }
}
