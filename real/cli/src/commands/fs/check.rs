//! `braid fs check`: verifies the metadata of a file system.

use crate::report;
use braid_admin::file_system_check::FileSystemFindings;
use braid_admin::{Array, Exit, Failure};
use braid_terminal::Common;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Verify the metadata of a file system
///
/// Checks that each block belongs to one file, to one host, or is free; that names lead to inodes, and inodes have as many names as they
/// count; that every directory is reachable; and that the counters are right. Nothing is changed. The file system is not served meanwhile:
/// its users wait for the length of the check and some seconds. Ends with status 4 if anything is wrong.
///
/// A file system with several metadata servers is checked as a whole. All of them must run: first they end the operations under way.
///
/// Example: `braid fs check home`
#[derive(clap::Args)]
pub struct Arguments {
    /// The name of the file system
    name: String,
}

/// Checks the file system, and prints the result.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let name = &arguments.name;
    let found = Array::of(common.control()).check_file_system(name).await?;
    report::print(common.json, json(name, &found), || text(name, &found));
    let is_sound = found.findings.is_empty();
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::from(Exit::DataLost as u8) })
}

fn json(name: &str, found: &FileSystemFindings) -> Value {
    let findings: Vec<String> = found.findings.iter().map(ToString::to_string).collect();
    json!({
        "file_system": name,
        "sound": found.findings.is_empty(),
        "findings": findings,
        "omitted": found.omitted,
    })
}

fn text(name: &str, found: &FileSystemFindings) -> String {
    let mut text: String = found.findings.iter().map(|finding| format!("{finding}\n")).collect();
    let count = found.findings.len() as u64 + found.omitted;
    if found.omitted > 0 {
        text += &format!("and {} more\n", found.omitted);
    }
    match count {
        0 => text + &format!("file system {name} is sound\n"),
        count => text + &format!("file system {name} is damaged: {count} contradictions\n"),
    }
}
