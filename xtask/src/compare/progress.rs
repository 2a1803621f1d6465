//! Progress: a bar on a terminal, otherwise lines.

use crate::prelude::*;
use indicatif::{ProgressBar, ProgressStyle};

pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub fn new() -> Result<Progress> {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed}  {msg}")?;
        let bar = ProgressBar::new(0).with_style(style);
        bar.enable_steady_tick(Duration::from_secs(1));
        Ok(Progress { bar })
    }

    /// Adds runs that are still to come.
    pub fn expect(&self, runs: usize) {
        self.bar.inc_length(runs as u64);
    }

    /// Shows what is being done.
    pub fn say(&self, what: &str) {
        if self.bar.is_hidden() {
            eprintln!("{what}");
        }
        self.bar.set_message(what.to_string());
    }

    /// Counts a completed run.
    pub fn step(&self) {
        self.bar.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
