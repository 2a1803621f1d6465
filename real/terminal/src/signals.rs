//! Requests to end: Ctrl-C, SIGTERM, and SIGHUP, which a process gets when its terminal is closed.

use rustix::process::Signal as Kill;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// How long a process may take to end after [`unheard`] has returned, unless it gets a second signal.
const END_WAIT: Duration = Duration::from_secs(4);

/// How many [`Signals`] there are.
static LISTENERS: AtomicUsize = AtomicUsize::new(0);

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
        LISTENERS.fetch_add(1, Ordering::SeqCst);
        Ok(Signals { interrupt, terminate, hang_up })
    }

    /// Ends when one of them comes.
    pub async fn asked_to_end(&mut self) {
        self.which().await;
    }

    /// The same, also when nobody reads what this process prints.
    pub async fn asked_to_end_or_unread(&mut self) {
        tokio::select! {
            () = self.asked_to_end() => {}
            () = crate::output::unread() => {}
        }
    }

    /// Ends when one of them comes, and says which it was.
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

impl Drop for Signals {
    fn drop(&mut self) {
        LISTENERS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Catches the signals, and returns the first one that comes while there are no other [`Signals`]. Then the process has to end soon: a second signal
/// ends it at once, and so does a time limit, since the thread that would end it may wait for a disk.
pub async fn unheard() -> Kill {
    let (tell, told) = oneshot::channel();
    std::thread::spawn(move || hear(tell));
    match told.await {
        Ok(signal) => signal,
        Err(_) => std::future::pending().await,
    }
}

fn hear(tell: oneshot::Sender<Kill>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut caught = Signals::catch()?;
        let mut signal = caught.which().await;
        while LISTENERS.load(Ordering::SeqCst) > 1 {
            signal = caught.which().await;
        }
        let _ = tell.send(signal);
        let _ = tokio::time::timeout(END_WAIT, caught.which()).await;
        std::process::exit(128 + signal.as_raw())
    })
}

/// True if this process ignores a signal, as the one that started it has arranged.
fn ignores(signal: Kill) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask >> (signal.as_raw() - 1) & 1 == 1
}
