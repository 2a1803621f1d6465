//! `braid sim replay`: one run of the attack, event by event.

use crate::commands::Common;
use crate::commands::sim::attack::{Chosen, report_json};
use crate::failure::{Exit, Failure};
use crate::output;
use braid_cluster::{Options, run};
use serde_json::json;
use std::process::ExitCode;

/// Show one run of the attack: what was drawn from its seed, the events before its end, and how it ended
///
/// The same seed, ordering and faults are the same run, event by event. Each line of the trace has the number of the event, the time
/// in seconds, the node (h: host, d: device, l: lock server) and what happened there; lines that share their number with the one
/// before are what that event led to.
///
/// Examples:
///   braid sim replay 8127
///   braid sim replay 8127 --ordering device-lock --trace 100000 > trace.txt
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// Which run
    #[arg(value_name = "SEED")]
    seed: u64,
    #[command(flatten)]
    chosen: Chosen,
    /// How many of the last lines of the trace to show
    #[arg(long, value_name = "LINES", default_value_t = 100)]
    trace: usize,
}

/// Runs the command.
pub fn execute(arguments: &Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let choices = arguments.chosen.choices()?;
    let options = Options::chosen(arguments.seed, &choices);
    match run(options.clone(), arguments.trace) {
        Ok(report) => {
            let json = || {
                json!({"schema": 1, "options": options.to_string(), "report": report_json(&report),
                       "trace": report.trace})
            };
            output::print(common.json, json, || format!("{options}\n{}{report}\n", lines(&report.trace)));
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            let json = || {
                json!({"schema": 1, "options": options.to_string(), "check": failure.check, "details": failure.details,
                       "at_seconds": failure.at.0 as f64 / 1e9, "event": failure.event, "trace": failure.trace})
            };
            output::print(common.json, json, || format!("{options}\n{}{failure}\n", lines(&failure.trace)));
            Ok(ExitCode::from(Exit::DataLost as u8))
        }
    }
}

fn lines(trace: &[String]) -> String {
    trace.iter().map(|line| format!("{line}\n")).collect()
}
