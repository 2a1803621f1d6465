//! Arguments that every command takes, and parsers of sizes, rates, times and orderings.

use braid_control::ControlPlane;
use braid_layout::{Atomicity, SitePolicy};
use braid_ordering::Ordering;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments that every command takes.
#[derive(Args)]
pub struct Common {
    /// The array: its folder, or the file array.json in it
    #[arg(long, global = true, env = "BRAID_ARRAY", default_value = "./braid-data", value_name = "DIR-or-FILE")]
    pub array: PathBuf,

    /// True if the command line names the array, and not only the environment or the default.
    #[arg(skip)]
    pub array_named: bool,

    /// Print one JSON object instead of text; print errors as JSON, too
    #[arg(long, global = true)]
    pub json: bool,

    /// Memory that a process may hold for its peers, all together: requests, replies and messages; 64MiB or more [default: 512MiB]
    #[arg(long, global = true, env = "BRAID_MEMORY", value_name = "SIZE", value_parser = memory, hide_env_values = true)]
    pub memory: Option<u64>,
}

impl Common {
    pub fn control(&self) -> ControlPlane {
        ControlPlane::at(&self.array)
    }

    /// Records whether the command line names the array.
    pub fn note_source(&mut self, matches: &ArgMatches) {
        self.array_named = matches.value_source("array") == Some(ValueSource::CommandLine);
    }
}

/// The parser's message in one line, without the usage that is shown to people.
pub fn sentence(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with("For more information")).collect();
    lines.join(" ").trim_start_matches("error: ").to_string()
}

/// True if errors about an invalid command line are to be printed as JSON.
pub fn asks_for_json(arguments: &[OsString]) -> bool {
    arguments.iter().any(|argument| argument == "--json")
}

/// Reads an atomicity for an argument; shells complete it.
pub fn atomicity() -> impl TypedValueParser<Value = Atomicity> {
    PossibleValuesParser::new(Atomicity::ALL.map(Atomicity::name))
        .map(|name| name.parse().expect("only names of atomicities are possible"))
}

/// Reads a parity site for an argument; shells complete it.
pub fn parity_site() -> impl TypedValueParser<Value = SitePolicy> {
    PossibleValuesParser::new(SitePolicy::ALL.map(SitePolicy::name))
        .map(|name| name.parse().expect("only names of parity sites are possible"))
}

/// Reads an ordering for an argument; shells complete it.
pub fn ordering() -> impl TypedValueParser<Value = Ordering> {
    PossibleValuesParser::new(Ordering::ALL.map(Ordering::name))
        .map(|name| name.parse().expect("only names of orderings are possible"))
}

/// Reads a rate for an argument, in bytes a second; zero is none.
pub fn rate(text: &str) -> Result<u64, String> {
    match text {
        "none" => Ok(0),
        _ => match limit(text.strip_suffix("/s").unwrap_or(text))? {
            0 => Err("a rate is more than nothing: `none` is no limit, and `braid rebuild pause` stops it".to_string()),
            rate => Ok(rate),
        },
    }
}

/// Reads a limit for an argument. A few bytes are a slip of somebody who means MiB, unless they are written as bytes.
pub fn limit(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    match (1..1 << 20).contains(&bytes) && text.ends_with(|last: char| last.is_ascii_digit()) {
        true => Err(format!(
            "without a unit that is {bytes} bytes: write {text}MiB, {text}KiB, or {text}B if you mean that"
        )),
        false => Ok(bytes),
    }
}

pub fn size(text: &str) -> Result<u64, String> {
    braid_base::units::parse_size(text).map_err(|error| error.to_string())
}

/// The smallest memory budget of a process, in bytes.
const MEMORY_MIN: u64 = 64 << 20;

fn memory(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes if bytes < MEMORY_MIN => Err("a process needs 64MiB at least".to_string()),
        bytes => Ok(bytes),
    }
}

/// Reads the number of a device, with or without its letter.
pub fn device(text: &str) -> Result<u16, String> {
    let digits = text.strip_prefix('d').unwrap_or(text);
    let number = digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
    number.ok_or_else(|| format!("'{text}' is not a device: write its number, such as 3 or d3"))
}

/// Reads a time such as 90s, 5m or 1h; a number alone is seconds.
pub fn span(text: &str) -> Result<Duration, String> {
    braid_base::units::parse_span(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_with_and_without_their_second() {
        assert_eq!((rate("50MiB/s"), rate("1G"), rate("none")), (Ok(50 << 20), Ok(1 << 30), Ok(0)));
        assert_eq!((rate("10B/s"), rate("0.5k"), rate("1048576")), (Ok(10), Ok(512), Ok(1 << 20)));
        for (wrong, said) in
            [("0", "none"), ("fast", "fast"), ("1/min", "1/min"), ("10", "10MiB"), ("1048575/s", "MiB")]
        {
            assert!(rate(wrong).is_err_and(|error| error.contains(said)), "{wrong}");
        }
    }

    #[test]
    fn devices_are_named_with_and_without_their_letter() {
        assert_eq!((device("3"), device("d12")), (Ok(3), Ok(12)));
        for wrong in ["x3", "d", "", "-1", "d-1", "+2", "dd2", "70000"] {
            assert!(device(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn spans_are_seconds_minutes_or_hours() {
        assert_eq!(["7", "90s", "5m", "1h"].map(|text| span(text).unwrap().as_secs()), [7, 90, 300, 3_600]);
        for wrong in ["", "m", "5d", "1.5h", "-3s", "99999999999999999h"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }
}
