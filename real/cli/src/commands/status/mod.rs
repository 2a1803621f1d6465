//! `braid status`: the state of the array, once or live.

mod status_output;

use crate::report;
use braid_admin::snapshot::SnapshotReader;
use braid_admin::{Exit, Failure};
use braid_base::quoting::harmless;
use braid_terminal::{Common, Signals, output};
use serde_json::json;
use status_output::View;
pub use status_output::{file_system_table, pid_text, within};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

/// Show the state of the array: its monitor, devices, lock servers, volumes and hosts
///
/// Asks each device for its current state. A device is
///
///   healthy          up to date, and serving
///   silent           not answering; requests wait for it for a few seconds
///   unavailable      not answering for longer, and the others can't serve without it
///   out              not a member: the others serve without it; since when, and whether an operator took it out
///   resynchronising  back, and being resynchronised: progress, and time left
///   rebuilding       being rebuilt on a new disk: progress, and time left
///   awaiting disk    out, until this disk fills its slot
///   refused          connected with a disk that is refused; why
///
/// A volume is
///
///   healthy      served with full redundancy
///   degraded     served with less redundancy; the effect of one more failure is shown
///   waiting      waiting for devices that have just become silent
///   unavailable  served in part: requests that need the named devices fail
///
/// Ranges that a scrub or a rebuild found lost are shown, too. If `braid doctor` has something to say, a line
/// says so: the states above are those of the services, and not all that matters. Ends with status 0 if the array is up,
/// whatever the state of its devices, and with 3 if it is not up. --watch ends with Ctrl-C, and with
/// status 0.
///
/// Examples: `braid status --watch`, `braid status --json --watch --interval 5`
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// Also show the counters of each device, lock server and host since its start, and the resulting cost of one operation
    #[arg(long, short)]
    verbose: bool,
    /// Show the status live: on a terminal, the page is refreshed; otherwise a line for each change; with --json one object a line
    #[arg(long, short)]
    watch: bool,
    /// The interval of refreshes in seconds
    #[arg(long, default_value_t = 1.0, value_parser = interval, value_name = "SECONDS", requires = "watch")]
    interval: f64,
    /// Print only the process of one participant: a device (d3; its node, if it runs in one), `monitor`, a lock server (l0), a host (h7), the metadata server of a file
    /// system (`mds NAME`), a node (`node 0`), or `up`
    #[arg(long, value_name = "NAME", conflicts_with = "watch")]
    pid: Option<String>,
}

pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let mut reader = SnapshotReader::new(common.control(), "status");
    if arguments.watch {
        return watch(reader, &arguments, common.json).await;
    }
    let look = reader.look().await?;
    reader.leave().await;
    let view = View::of(&look);
    if let Some(name) = &arguments.pid {
        let pid = view.process(name).ok_or_else(|| {
            Failure::unreachable("no-such-process", format!("'{name}' has no process here now"))
                .hint("name a device (d3), `monitor`, a lock server (l0), a host (h7), `mds NAME`, `node 0` or `up`; `braid status` lists them")
        })?;
        report::print(common.json, json!({"name": name, "pid": pid}), || format!("{pid}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    report::print(common.json, view.json(), || view.text(arguments.verbose));
    Ok(if look.running.is_some() { ExitCode::SUCCESS } else { ExitCode::from(Exit::Unreachable as u8) })
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is not a number of seconds"))?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("the interval is 0.1 to 3600 seconds".to_string()) }
}

/// The terminal's control sequence that moves to the upper left corner, and clears all that follows.
const HOME: &str = "\x1b[H\x1b[J";

/// Refreshes the status until it is told to end, or its output is closed.
async fn watch(mut reader: SnapshotReader, arguments: &Arguments, as_json: bool) -> Result<ExitCode, Failure> {
    let mut signals = Signals::catch()?;
    let terminal = std::io::stdout().is_terminal();
    let mut before = BTreeMap::new();
    loop {
        let text = tokio::select! {
            look = reader.look() => {
                let look = look?;
                let view = View::of(&look);
                match (as_json, terminal) {
                    (true, _) => format!("{}\n", view.json()),
                    (false, true) => format!("{HOME}{}", harmless(&view.text(arguments.verbose))),
                    (false, false) => changes(&mut before, view.parts()),
                }
            }
            () = signals.asked_to_end_or_unread() => break,
        };
        if !output::write(text.as_bytes()) {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs_f64(arguments.interval)) => {}
            () = signals.asked_to_end_or_unread() => break,
        }
    }
    reader.leave().await;
    Ok(ExitCode::SUCCESS)
}

/// A line for each part whose state has changed: its name, its state as a word, and its state as text.
fn changes(before: &mut BTreeMap<String, String>, parts: Vec<(String, String, String)>) -> String {
    let mut text = String::new();
    let time = braid_control::utc_now();
    let mut now = BTreeMap::new();
    for (part, state, words) in parts {
        if before.get(&part) != Some(&state) {
            text += &format!("{time} {part}: {words}\n");
        }
        now.insert(part, state);
    }
    for part in before.keys().filter(|part| !now.contains_key(*part)) {
        text += &format!("{time} {part}: gone\n");
    }
    *before = now;
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_for_each_change_and_for_nothing_else() {
        let part = |part: &str, state: &str, words: &str| (part.to_string(), state.to_string(), words.to_string());
        let mut before = BTreeMap::new();
        let mut lines = |parts| {
            let text = changes(&mut before, parts);
            text.lines().map(|line| line.split_once(' ').unwrap().1.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(lines(vec![part("device d1", "healthy", "healthy")]), ["device d1: healthy"]);
        assert_eq!(lines(vec![part("device d1", "healthy", "healthy")]), [""; 0]);
        assert_eq!(lines(vec![part("device d1", "out", "out for 1 s")]), ["device d1: out for 1 s"]);
        assert_eq!(lines(vec![part("device d1", "out", "out for 2 s")]), [""; 0], "the state has not changed");
        assert_eq!(lines(Vec::new()), ["device d1: gone"]);
    }
}
