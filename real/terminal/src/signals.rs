//! Requests to end: Ctrl-C, SIGTERM, and SIGHUP, which a process gets when its terminal is closed.

use rustix::process::Signal as Kill;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// These signals, caught from its making on.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None if the process was started to survive its terminal (`nohup`).
    hang_up: Option<Signal>,
}

impl Signals {
    /// From now on the signals don't kill this process.
    pub fn catch() -> std::io::Result<Signals> {
        let hang_up = if ignores(Kill::HUP) { None } else { Some(signal(SignalKind::hangup())?) };
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Signals { interrupt, terminate, hang_up })
    }

    /// Ends when one of them comes.
    pub async fn asked_to_end(&mut self) {
        self.which().await;
    }

    /// The same, and says which it was.
    pub async fn which(&mut self) -> Kill {
        let hung_up = async {
            match &mut self.hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Kill::INT,
            _ = self.terminate.recv() => Kill::TERM,
            _ = hung_up => Kill::HUP,
        }
    }
}

/// True if this process ignores a signal, as the one that started it has arranged.
fn ignores(signal: Kill) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask >> (signal.as_raw() - 1) & 1 == 1
}
