//! `braid fs set-eviction`: how long a host may keep locks that others wait for.

use crate::report;
use braid_admin::{Failure, file_systems};
use braid_terminal::Common;
use braid_terminal::arguments::span;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

/// Set how long a host may keep locks of a file system that other hosts wait for
///
/// A host that answers, and does not give back such a lock in this time, is fenced: its mount goes on as a new host, and files that were
/// open there answer errors. The default is 60s. It concerns the locks by which hosts keep files coherent, not those of programs (fcntl,
/// flock). A host that does not answer at all is fenced after a lease in any case.
///
/// Example: `braid fs set-eviction home 2m`
#[derive(clap::Args)]
pub struct Arguments {
    /// The name of the file system
    name: String,
    /// The time: 30s, 5m, or never
    #[arg(value_name = "TIME", value_parser = eviction)]
    after: Duration,
}

/// Changes the setting.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let Arguments { name, after } = arguments;
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
