//! `braid fs set-commit-protocol` and `set-eviction`: how the metadata servers of a file system commit operations on several shards, and how long a
//! host may keep locks that others wait for.

use crate::report;
use braid_admin::shards::{Grouping, Protocol};
use braid_admin::{Failure, file_systems};
use braid_terminal::Common;
use braid_terminal::arguments::span;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

/// Set how the metadata servers of a file system commit operations that concern several of them
///
/// All protocols make such an operation take effect as a whole or not at all, whatever dies. They differ in how many records the servers
/// write, and how many messages they wait for, before a program gets its answer:
///
///   1pc   one phase: the other server commits as soon as it has done its part; the usual choice
///   ep    early prepare: the other server prepares as soon as it has done its part; used for more than two servers with 1pc, too
///   prc   presumed commit: two phases, no record and no acknowledgement at the end of a commit
///   prn   presumed nothing: the textbook's two phases
///
/// --grouping says what operations share that are committed at the same time:
///
///   operations   those that wait for the same server become one transaction; the usual choice
///   log          records that wait while a write of the log is under way share the next one
///   none         nothing: to compare protocols as they are described
///
/// The running servers follow a protocol within a second, and for another grouping each one releases its shard and takes it over again, which
/// takes about a second. Operations that are under way end as they began. `docs/commit-protocols.md` compares the protocols.
///
/// Examples:
///   braid fs set-commit-protocol home prc
///   braid fs set-commit-protocol home --grouping log
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct CommitmentArgs {
    /// The name of the file system, which must have several metadata servers
    name: String,
    /// prn, prc, ep or 1pc
    #[arg(value_parser = protocol, required_unless_present = "grouping")]
    protocol: Option<Protocol>,
    /// none, log or operations
    #[arg(long, value_parser = grouping)]
    grouping: Option<Grouping>,
}

pub async fn set_commitment(arguments: CommitmentArgs, common: &Common) -> Result<ExitCode, Failure> {
    let CommitmentArgs { name, protocol, grouping } = arguments;
    let now = file_systems::set_commitment(&common.control(), &name, protocol, grouping).await?;
    let (protocol, grouping) = (&now.commit_protocol, &now.grouping);
    report::done(common.json, json!({"file_system": name, "commit_protocol": protocol, "grouping": grouping}), || {
        format!(
            "file system {name}: operations on several metadata servers are committed by {protocol}, grouping {grouping}\n"
        )
    })
}

pub fn protocol(text: &str) -> Result<Protocol, String> {
    Protocol::from_name(text).ok_or_else(|| "write prn, prc, ep or 1pc".to_string())
}

pub fn grouping(text: &str) -> Result<Grouping, String> {
    Grouping::from_name(text).ok_or_else(|| "write none, log or operations".to_string())
}

/// Set how long a host may keep locks of a file system that other hosts wait for
///
/// A host that answers, and does not give back such a lock in this time, is fenced: its mount goes on as a new host, and files that were
/// open there answer errors. The default is 60s. It concerns the locks by which hosts keep files coherent, not those of programs (fcntl,
/// flock). A host that does not answer at all is fenced after a lease in any case.
///
/// Example: `braid fs set-eviction home 2m`
#[derive(clap::Args)]
pub struct EvictionArgs {
    /// The name of the file system
    name: String,
    /// The time: 30s, 5m, or never
    #[arg(value_name = "TIME", value_parser = eviction)]
    after: Duration,
}

pub async fn set_eviction(arguments: EvictionArgs, common: &Common) -> Result<ExitCode, Failure> {
    let EvictionArgs { name, after } = arguments;
    let seconds = after.as_secs();
    file_systems::set_eviction(&common.control(), &name, seconds).await?;
    report::done(common.json, json!({"file_system": name, "evict_after_seconds": seconds}), || match seconds {
        0 => format!("file system {name}: hosts are not fenced for keeping locks\n"),
        seconds => format!("file system {name}: hosts that keep locks are fenced after {seconds} s\n"),
    })
}

/// Parses the time; zero is never.
fn eviction(text: &str) -> Result<Duration, String> {
    match text {
        "never" => Ok(Duration::ZERO),
        text => match span(text)? {
            after if after >= LEAST => Ok(after),
            _ => Err("that is too short: hosts need some seconds, such as 10s; or write `never`".to_string()),
        },
    }
}

/// The shortest time: hosts may have to write what a lock protects.
const LEAST: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_is_not_at_once() {
        assert_eq!((eviction("never"), eviction("5s")), (Ok(Duration::ZERO), Ok(LEAST)));
        assert!(eviction("0").is_err() && eviction("4s").is_err());
    }
}
