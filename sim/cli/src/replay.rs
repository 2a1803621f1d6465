//! The command `braid sim replay`: shows one run of the attack, event by event.

use crate::attack::{Chosen, report_json};
use crate::failure::{Exit, Failure};
use braid_base::quoting::without_bytes;
use braid_cluster::{Options, run};
use braid_terminal::{Common, output};
use serde_json::json;
use std::process::ExitCode;

/// Show one run of the attack: the options drawn from its seed, its last events, and how it ended
///
/// The same seed, ordering and faults give the same run, event by event. Each line of the trace has the number of the event,
/// the time in seconds, the node (h: host, d: device, l: lock server, or the monitor) and the event; lines with the same
/// number as the line before are its effects. Heartbeats and wakes are omitted unless --all is given.
///
/// Examples:
///   braid sim replay 8127
///   braid sim replay 8127 --ordering device-lock --trace 100000 > trace.txt
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// The seed of the run
    #[arg(value_name = "SEED")]
    seed: u64,
    #[command(flatten)]
    chosen: Chosen,
    /// Number of lines to show from the end of the trace
    #[arg(long, value_name = "LINES", default_value_t = 100)]
    trace: usize,
    /// Show heartbeats, lease renewals and wakes, too
    #[arg(long)]
    all: bool,
}

/// The most frequent events, which are rarely of interest.
const SIGNS_OF_LIFE: [&str; 4] = ["  wake", "Heartbeat", "command: Renew {", "reply: Lease {"];
/// The highest number of such lines for each other line.
const SHARE: usize = 50;
/// Lines that are kept in order to find enough other lines among them.
const KEPT_MAX: usize = 500_000;

pub fn execute(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let choices = arguments.chosen.choices();
    let options = Options::chosen(arguments.seed, &choices);
    let kept = if arguments.all {
        arguments.trace
    } else {
        KEPT_MAX.min(arguments.trace.saturating_mul(SHARE)).max(arguments.trace)
    };
    let chosen = |trace: &[String]| {
        let is_shown = |line: &&String| arguments.all || !SIGNS_OF_LIFE.iter().any(|sign| line.contains(sign));
        let shown: Vec<String> = trace.iter().filter(is_shown).map(|line| without_bytes(line)).collect();
        shown[shown.len().saturating_sub(arguments.trace)..].to_vec()
    };
    match run(options.clone(), kept) {
        Ok(report) => {
            let trace = chosen(&report.trace);
            let json = || {
                json!({"schema": 2, "options": options.to_string(), "report": report_json(&report),
                       "trace": trace})
            };
            output::print(common.json, json, || format!("{options}\n{}{report}\n", lines(&trace)));
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            let trace = chosen(&failure.trace);
            let json = || {
                json!({"schema": 2, "options": options.to_string(), "check": failure.check, "details": failure.details,
                       "at_seconds": failure.at.0 as f64 / 1e9, "event": failure.event, "trace": trace})
            };
            output::print(common.json, json, || format!("{options}\n{}{failure}\n", lines(&trace)));
            Ok(ExitCode::from(Exit::DataLost as u8))
        }
    }
}

fn lines(trace: &[String]) -> String {
    trace.iter().map(|line| format!("{line}\n")).collect()
}
