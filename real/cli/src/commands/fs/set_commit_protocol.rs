//! `braid fs set-commit-protocol`: how the metadata servers of a file system commit operations on several shards.

use braid_admin::Failure;
use braid_admin::shards::{self, Protocol};
use braid_terminal::{Common, output};
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
/// The running servers follow within a second. Operations that are under way end as they began. `docs/commit-protocols.md` compares them.
///
/// Example: `braid fs set-commit-protocol home prc`
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// The name of the file system, which must have several metadata servers
    name: String,
    /// prn, prc, ep or 1pc
    #[arg(value_parser = protocol)]
    protocol: Protocol,
}

/// Changes the setting.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let Arguments { name, protocol } = arguments;
    shards::set_protocol(&common.folder(), &name, protocol)?;
    output::print(
        common.json,
        || json!({"schema": 2, "file_system": name, "commit_protocol": protocol.name()}),
        || format!("file system {name}: operations on several metadata servers are committed by {protocol}\n"),
    );
    Ok(ExitCode::SUCCESS)
}

/// Parses the name of a protocol.
pub fn protocol(text: &str) -> Result<Protocol, String> {
    Protocol::from_name(text).ok_or_else(|| "write prn, prc, ep or 1pc".to_string())
}
