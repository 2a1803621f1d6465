//! Requests to end: Ctrl-C, SIGTERM, and the end of the parent process.

use rustix::process::{Pid, Signal as Kill, getppid, set_parent_process_death_signal};
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

/// The system sends this process a signal when its parent dies, however that happens. False if the parent, `parent`, is gone already.
pub fn heed_death_of(parent: u32, signal: Kill) -> std::io::Result<bool> {
    set_parent_process_death_signal(Some(signal))?;
    // It may have died before we asked.
    Ok(getppid().map(Pid::as_raw_pid) == Some(parent as i32))
}
