//! The log of a program, on standard error. What goes wrong again and again, as each attempt to write a full disk does, fills no log: a line that
//! differs from an earlier one in its numbers only is printed once a minute, with the count of those that were left out.

use std::collections::HashMap;
use std::io::{self, Stderr, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Layer;
use tracing_subscriber::{fmt, prelude::*, registry};

/// How often a line of one kind is printed.
const PAUSE: Duration = Duration::from_secs(60);
/// Kinds that are remembered. If there are more, the kind that was printed longest ago is forgotten.
const KINDS_MAX: usize = 512;

/// Logs to standard error: warnings, or what `RUST_LOG` asks for, such as `debug` or `warn,braid_session=debug`. If it asks, nothing is
/// left out.
pub fn log_to_stderr() {
    use std::io::IsTerminal;
    let asked_for = std::env::var("RUST_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = asked_for.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let limited = Limited { kinds: Mutex::default(), all: std::env::var_os("RUST_LOG").is_some() };
    let lines = fmt::layer().with_writer(limited).with_ansi(std::io::stderr().is_terminal()).with_target(false);
    // The log may be a pipe that is closed, or a full disk: to say so there would end the program.
    let lines = lines.log_internal_errors(false);
    registry().with(lines.with_filter(filter)).init();
}

/// Writes a line of each kind to standard error once a minute.
struct Limited {
    kinds: Mutex<Kinds>,
    /// Leave out nothing.
    all: bool,
}

/// Writes one line.
struct Line<'a> {
    limited: &'a Limited,
    to: Stderr,
}

/// The kinds of lines that were printed.
#[derive(Default)]
struct Kinds {
    seen: HashMap<String, Kind>,
}

struct Kind {
    printed: Instant,
    left_out: u64,
}

impl Kinds {
    /// Whether a line of this kind is printed now, with the number of those that were left out before it.
    fn admit(&mut self, text: &str, now: Instant) -> Option<u64> {
        let kind = kind_of(text);
        if let Some(known) = self.seen.get_mut(&kind) {
            if now.saturating_duration_since(known.printed) < PAUSE {
                known.left_out += 1;
                return None;
            }
            known.printed = now;
            return Some(std::mem::take(&mut known.left_out));
        }
        if self.seen.len() >= KINDS_MAX
            && let Some(oldest) = self.seen.iter().min_by_key(|(_, kind)| kind.printed).map(|(text, _)| text.clone())
        {
            self.seen.remove(&oldest);
        }
        self.seen.insert(kind, Kind { printed: now, left_out: 0 });
        Some(0)
    }
}

/// What a line has in common with others of its kind: everything but its time and its numbers. Names such as `d3` stay.
fn kind_of(line: &str) -> String {
    let is_number = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_digit() || ".,:".contains(c));
    let text = line.split_once(' ').map_or(line, |(_, text)| text);
    text.split(' ').map(|word| if is_number(word) { "0" } else { word }).collect::<Vec<_>>().join(" ")
}

impl Write for Line<'_> {
    /// The formatter writes a whole line at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let mut kinds = self.limited.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        match kinds.admit(text.trim_end(), Instant::now()).or(self.limited.all.then_some(0)) {
            None => {}
            Some(0) => self.to.write_all(line)?,
            Some(similar) => writeln!(self.to, "{} ({similar} similar lines were left out)", text.trim_end())?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl<'a> MakeWriter<'a> for Limited {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { limited: self, to: io::stderr() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_each_kind_is_printed_once_a_minute_and_the_others_are_counted() {
        let (mut kinds, begun) = (Kinds::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(kinds.admit("12:00:07 device d1 is down", at(0)), Some(0));
        assert_eq!(kinds.admit("12:00:07 device d2 is down", at(0)), Some(0), "another device");
        for second in 1..60 {
            assert_eq!(kinds.admit("12:00:07 device d1 is down", at(second)), None);
        }
        assert_eq!(kinds.admit("12:00:07 device d1 is down", at(60)), Some(59));
        assert_eq!(kinds.admit("12:00:07 device d1 is down", at(61)), None);
        assert_eq!(kinds.admit("12:00:07 silent for 3.5 s", at(61)), Some(0));
        assert_eq!(kinds.admit("12:00:07 silent for 17 s", at(62)), None, "only the number differs");
        for number in 0..10 * KINDS_MAX {
            kinds.admit(&format!("12:00 kind{number}"), at(62));
        }
        assert_eq!(kinds.seen.len(), KINDS_MAX);
    }
}
