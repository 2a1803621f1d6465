//! Being asked to end: Ctrl-C and SIGTERM.

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
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
