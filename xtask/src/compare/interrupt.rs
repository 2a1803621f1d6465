//! Ctrl-C and SIGTERM: noticed by whoever waits, so that everything is taken down in order.

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a wait goes on before it looks around.
pub const GLANCE: Duration = Duration::from_millis(50);

/// Whether somebody asked to end.
pub struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// From now on signals no longer end this process by themselves.
    pub fn catch() -> Result<Interrupt> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, asked.clone()).context("signals can't be caught")?;
        }
        Ok(Interrupt { asked })
    }

    /// An error if somebody asked to end.
    pub fn check(&self) -> Result<()> {
        if self.asked.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Waits so long, or less if somebody asks to end.
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
