//! `braid events`: the event log of the array.

use crate::report;
use braid_admin::{Array, Event, Failure};
use braid_terminal::{Common, Signals, output};
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

/// Show the event log: devices that went out or returned, rebuilds, scrubs, checksum errors
///
/// Events are printed oldest first. The log is in the array's folder (events.jsonl, one JSON object a line) and is bounded: the oldest
/// events are dropped when it exceeds two megabytes. --json prints one object with all events; --json --follow prints one object a line,
/// as events occur.
///
/// Examples: `braid events --since 1h`, `braid events --follow --json`
#[derive(clap::Args)]
pub struct Arguments {
    /// Continue with new events, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// Only events not older than this: 90s, 15m, 2h, 7d
    #[arg(long, value_parser = age, value_name = "AGE")]
    since: Option<Duration>,
    /// The maximal number of events; the latest are shown
    #[arg(long, short = 'n', default_value_t = 100)]
    lines: usize,
}

pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let mut stream = Array::of(common.control()).events().await?;
    if let Some(refusal) = common.control().local().refusal() {
        braid_terminal::tell!("{refusal}: events may be missing; `braid doctor` says what to do");
    }
    let mut events = stream.pending().await?;
    if let Some(since) = arguments.since {
        let now = braid_control::unix_millis_now();
        let since = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        events.retain(|event| event.unix_millis >= now.saturating_sub(since));
    }
    events.drain(..events.len().saturating_sub(arguments.lines));
    if !arguments.follow {
        report::print(common.json, json!({"events": events}), || events.iter().map(line).collect::<String>());
        return Ok(ExitCode::SUCCESS);
    }
    let mut signals = Signals::catch()?;
    loop {
        let text: String = match common.json {
            true => events.iter().map(|event| format!("{}\n", json!(event))).collect(),
            false => events.iter().map(line).collect(),
        };
        if !output::write(text.as_bytes()) {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::select! {
            come = stream.next_batch() => events = come?,
            () = signals.asked_to_end_or_unread() => return Ok(ExitCode::SUCCESS),
        }
    }
}

fn line(event: &Event) -> String {
    let volume = event.volume.as_ref().map(|volume| format!("{volume}: ")).unwrap_or_default();
    format!("{}  {:<16}  {volume}{}\n", event.time, event.kind.name(), event.text)
}

fn age(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not an age: write a number and a unit, such as 90s, 15m, 2h or 7d");
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read() {
        assert_eq!(age("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(age("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(age("7"), Ok(Duration::from_secs(7)));
        for wrong in ["", "h", "-1s", "1w", "99999999999999999999d"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }
}
