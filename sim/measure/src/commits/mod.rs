//! Operations of clients that span two metadata servers: the one-phase-commit paper's experiment (section IV). The commit protocols are those
//! of `core/commit`; the log of each server, the network and the evaluation of operations are modelled.
//!
//! | module | what |
//! | --- | --- |
//! | [`parameters`] | all numbers that determine a run |
//! | [`log`] | the log of a server: when writes are durable |
//! | [`locks`] | the directories of a server, each with a lock and a queue |
//! | [`system`] | servers and clients, and the loop that runs them |

pub mod locks;
pub mod log;
pub mod parameters;
pub mod system;

pub use parameters::CommitParameters;

use crate::tally::Measured;
use std::time::Duration;

/// Runs the clients once. The critical path is found by two further runs of one operation, in which only writes, or only messages,
/// take time.
pub fn measure(parameters: &CommitParameters, seed: u64) -> Measured {
    let mut measured = system::CommitSystem::new(parameters, seed).run();
    let counts = measured.commits.as_mut().expect("commits were counted");
    let unit = Duration::from_millis(1);
    let writes = system::CommitSystem::new(&parameters.of_one_operation(unit, Duration::ZERO), seed).run_one();
    let messages = system::CommitSystem::new(&parameters.of_one_operation(Duration::ZERO, unit), seed).run_one();
    let units = |span: Duration| span.as_nanos() as f64 / unit.as_nanos() as f64;
    // UPDATE and UPDATED are needed without a commit protocol, too.
    counts.critical_writes = units(writes.answered);
    counts.critical_messages = units(messages.answered) - 2.0;
    counts.writes_under_lock = units(writes.unlocked);
    counts.messages_under_lock = units(messages.unlocked) - 2.0;
    measured
}
