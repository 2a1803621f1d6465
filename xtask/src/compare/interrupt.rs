//! Ctrl-C and SIGTERM: recorded, and checked by every wait, so that everything is stopped in order.

use crate::prelude::*;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The interval at which waits check for an interrupt.
pub const GLANCE: Duration = Duration::from_millis(50);
/// The interval of looks, which may be commands.
const LOOK: Duration = Duration::from_millis(200);

/// True once the user has asked to end.
pub struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Catches the signals, which no longer end this process by themselves.
    pub fn catch() -> Result<Interrupt> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, asked.clone()).context("signals can't be caught")?;
        }
        Ok(Interrupt { asked })
    }

    /// Fails if the user has asked to end.
    pub fn check(&self) -> Result<()> {
        ensure!(!self.asked.load(Ordering::Relaxed), "interrupted");
        Ok(())
    }

    /// Looks again and again, until it finds something. `what` says in the error message what has not happened.
    pub fn until<T>(&self, limit: Duration, what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let begun = Instant::now();
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            ensure!(begun.elapsed() <= limit, "{what} within {limit:?}");
            self.pause(LOOK)?;
        }
    }

    /// Waits for this duration, or fails earlier if the user asks to end.
    pub fn pause(&self, duration: Duration) -> Result<()> {
        let end = Instant::now() + duration;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(GLANCE));
        }
    }
}
