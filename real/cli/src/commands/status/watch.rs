//! The live status.

use super::Arguments;
use super::status_output::View;
use braid_admin::failure::Failure;
use braid_admin::snapshot::SnapshotReader;
use braid_base::quoting::harmless;
use braid_terminal::{Signals, output};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

/// The terminal's control sequence that moves to the upper left corner, and clears all that follows.
const HOME: &str = "\x1b[H\x1b[J";

/// Refreshes the status until it is told to end, or its output is closed.
pub async fn run(mut reader: SnapshotReader, arguments: &Arguments, as_json: bool) -> Result<ExitCode, Failure> {
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
