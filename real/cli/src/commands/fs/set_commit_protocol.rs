//! `braid fs set-commit-protocol`: how the metadata servers of a file system commit operations on several shards.

use crate::report;
use braid_admin::Failure;
use braid_admin::shards::{self, Grouping, Protocol};
use braid_terminal::Common;
use serde_json::json;
use std::process::ExitCode;

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
pub struct Arguments {
    /// The name of the file system, which must have several metadata servers
    name: String,
    /// prn, prc, ep or 1pc
    #[arg(value_parser = protocol, required_unless_present = "grouping")]
    protocol: Option<Protocol>,
    /// none, log or operations
    #[arg(long, value_parser = grouping)]
    grouping: Option<Grouping>,
}

/// Changes the setting.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let Arguments { name, protocol, grouping } = arguments;
    let now = shards::set_commitment(&common.control(), &name, protocol, grouping).await?;
    let (protocol, grouping) = (&now.commit_protocol, &now.grouping);
    report::done(common.json, json!({"file_system": name, "commit_protocol": protocol, "grouping": grouping}), || {
        format!(
            "file system {name}: operations on several metadata servers are committed by {protocol}, grouping {grouping}\n"
        )
    })
}

/// Parses the name of a protocol.
pub fn protocol(text: &str) -> Result<Protocol, String> {
    Protocol::from_name(text).ok_or_else(|| "write prn, prc, ep or 1pc".to_string())
}

/// Parses the name of a grouping.
pub fn grouping(text: &str) -> Result<Grouping, String> {
    Grouping::from_name(text).ok_or_else(|| "write none, log or operations".to_string())
}
