//! Requests to end: Ctrl-C and SIGTERM.

use rustix::process::Signal as Kill;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals, caught from its making on.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// From now on the signals don't kill this process.
    pub fn catch() -> std::io::Result<Signals> {
        Ok(Signals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Ends when one of them comes.
    pub async fn asked_to_end(&mut self) {
        self.which().await;
    }

    /// The same, and says which it was.
    pub async fn which(&mut self) -> Kill {
        tokio::select! {
            _ = self.interrupt.recv() => Kill::INT,
            _ = self.terminate.recv() => Kill::TERM,
        }
    }
}
