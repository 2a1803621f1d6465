//! Warnings that peers can cause repeatedly, limited in rate so that they can't fill the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The minimal interval between two warnings.
const PAUSE: Duration = Duration::from_secs(60);

/// One kind of warning.
#[derive(Debug, Default)]
pub struct Warning {
    last: Mutex<LastWarning>,
}

#[derive(Debug, Default)]
struct LastWarning {
    time: Option<Instant>,
    kept_back: u64,
}

impl Warning {
    /// Logs the text, unless a warning of this kind was logged within the last interval.
    pub fn say(&self, text: impl FnOnce() -> String) {
        let mut warning = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if warning.time.is_some_and(|last| last.elapsed() < PAUSE) {
            warning.kept_back += 1;
            return;
        }
        warning.time = Some(Instant::now());
        match std::mem::take(&mut warning.kept_back) {
            0 => tracing::warn!("{}", text()),
            more => tracing::warn!("{} ({more} similar warnings were left out)", text()),
        }
    }
}
