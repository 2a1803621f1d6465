//! The trace of a run: one line per event in fixed columns, and a running digest that shows whether two runs were equal.
//!
//! ```text
//!      event         time  node    what
//!        412   0.003117402  d3      message from h1: Request(Request { host: Generation(1), …
//! ```
//!
//! The digest covers numbers that determine the event, so that runs which keep no lines need not format any.

use braid_base::{NodeId, Time};
use std::collections::VecDeque;
use std::fmt::{self, Write};

/// The longest text of an event, in characters; the rest is cut off.
const TEXT_MAX: usize = 1200;

#[derive(Clone, Debug, Default)]
pub struct Trace {
    events: u64,
    digest: u64,
    keep: usize,
    lines: VecDeque<String>,
}

impl Trace {
    /// Creates a trace that keeps the last `keep` lines.
    pub fn keeping(keep: usize) -> Trace {
        Trace { keep, ..Trace::default() }
    }

    /// Adds an event. `facts` distinguish it from every other event that could have occurred instead; `text` is for readers.
    pub fn event(&mut self, now: Time, node: Option<NodeId>, facts: &[u64], text: fmt::Arguments<'_>) {
        self.events += 1;
        let node_fact = match node {
            None => 0,
            Some(NodeId::Host(generation)) => (1 << 32) | u64::from(generation.0),
            Some(NodeId::Device(device)) => (2 << 32) | u64::from(device.0),
            Some(NodeId::LockServer(server)) => (3 << 32) | u64::from(server.0),
            Some(NodeId::Monitor) => 4 << 32,
            Some(NodeId::MetadataServer(file_system)) => (5 << 32) | u64::from(file_system.0),
        };
        for fact in [now.0, node_fact].iter().chain(facts) {
            self.digest = (self.digest.rotate_left(5) ^ fact).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        self.note(now, node, text);
    }

    /// Adds a line that is not an event and does not change the digest.
    pub fn note(&mut self, now: Time, node: Option<NodeId>, text: fmt::Arguments<'_>) {
        if self.keep == 0 {
            return;
        }
        if self.lines.len() == self.keep {
            self.lines.pop_front();
        }
        let name = node.map_or_else(String::new, |node| node.to_string());
        let mut line = Shortened(format!(
            "{:>9} {:>5}.{:09}  {name:<7} ",
            self.events,
            now.0 / 1_000_000_000,
            now.0 % 1_000_000_000
        ));
        // The only possible error is that the line has reached its maximum length.
        let _ = line.write_fmt(text);
        self.lines.push_back(line.0);
    }

    pub fn events(&self) -> u64 {
        self.events
    }

    /// The digest of the run: it is equal for two runs only if they had the same events.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The lines that were kept, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}

/// A buffer that ends formatting once it is full, so that megabytes of payload are never formatted.
struct Shortened(String);

impl Write for Shortened {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        match TEXT_MAX.checked_sub(self.0.len()) {
            Some(room) if text.len() <= room => self.0.write_str(text),
            room => {
                self.0.extend(text.chars().take(room.unwrap_or(0)));
                self.0.push('…');
                Err(fmt::Error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_and_old_ones_dropped() {
        let mut trace = Trace::keeping(2);
        for round in 0..3u64 {
            trace.event(Time(round), None, &[round], format_args!("{round} {}", "x".repeat(5_000)));
        }
        let lines: Vec<_> = trace.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains(" 1 xxx") && lines[0].len() < TEXT_MAX + 100 && lines[0].ends_with('…'));
    }

    #[test]
    fn the_digest_distinguishes_orders() {
        let (mut one, mut other) = (Trace::default(), Trace::default());
        for (a, b) in [(1, 2), (2, 1)] {
            one.event(Time(0), None, &[a], format_args!(""));
            other.event(Time(0), None, &[b], format_args!(""));
        }
        assert_ne!(one.digest(), other.digest());
    }
}
