//! `braid doctor`: what is wrong with the array, and what to do.

use crate::report;
use braid_admin::doctor::{CheckReport, Diagnosis, Finding};
use braid_admin::{Array, Failure};
use braid_terminal::Common;
use std::fmt::Write;
use std::process::ExitCode;

/// Say what is wrong with the array, and what to do about it
///
/// Looks at the daemons and volumes; at the clocks of devices and hosts, at leases, and at transactions
/// that nobody decides; at journals, tables, memory and file systems that are nearly full; at slots of
/// disks that can't be written; at the modes of files; and at processes whose program was replaced.
/// Each finding is
///
///   error    something does not work, or soon will not
///   warning  something should be done
///   note     nothing has to be done
///
/// What could not be checked is listed with the reason. If the array is not up, its files are checked
/// alone. Changes nothing.
///
/// Exit status: 0 if there is neither an error nor a warning, 1 if there is one. 3: there is no array.
///
/// Examples: `braid doctor`, `braid doctor --json | jq '.checks[].findings[]'`
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// Also list what each check looks at
    #[arg(long, short)]
    verbose: bool,
}

pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let diagnosis = Array::of(common.control()).diagnose().await?;
    let json = serde_json::to_value(&diagnosis).expect("our own types have a JSON form");
    report::print(common.json, json, || text_of(&diagnosis, arguments.verbose));
    Ok(if diagnosis.summary.is_healthy() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text_of(diagnosis: &Diagnosis, verbose: bool) -> String {
    let mut text = format!("array {} in {}: {}\n", diagnosis.array, diagnosis.dir.display(), diagnosis.summary.words());
    for (check, finding) in diagnosis.findings() {
        let Finding { severity, subject, text: what, action } = finding;
        let _ = write!(text, "\n{}: {subject} {what}\n", severity.name());
        if let Some(action) = action {
            let _ = writeln!(text, "  do: {action}");
        }
        if verbose {
            let _ = writeln!(text, "  check: {}", check.name);
        }
    }
    let not_checked =
        diagnosis.checks.iter().flat_map(|check| check.not_checked.iter().map(move |why| (check.name, why)));
    for (number, (check, why)) in not_checked.enumerate() {
        text += if number == 0 { "\nnot checked:\n" } else { "" };
        let _ = writeln!(text, "  {check}: {why}");
    }
    if verbose {
        text += "\nchecks:\n";
        for CheckReport { name, looks_at, .. } in &diagnosis.checks {
            let _ = writeln!(text, "  {name}: {looks_at}");
        }
    }
    text
}
