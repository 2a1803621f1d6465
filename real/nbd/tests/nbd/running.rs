//! A server on its own thread, as the command line runs it.

use crate::memory::Memory;
use braid_nbd::{Server, Settings};
use braid_shell::Address;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

pub struct Running {
    pub address: Address,
    pub backend: Arc<Memory>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Serves memory on a TCP port.
    pub fn start(settings: Settings) -> Running {
        Running::start_at(Address::loopback(0), settings)
    }

    /// Serves memory at this address.
    pub fn start_at(address: Address, settings: Settings) -> Running {
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let backend = Arc::new(Memory::new());
        let served = backend.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio::task::LocalSet::new().block_on(&runtime, async {
                let server = Server::bind(&address, settings).await.unwrap();
                tell.send(server.address().clone()).unwrap();
                server.run(served, async { stopped.await.unwrap_or(()) }).await;
            });
        });
        Running { address: told.recv().unwrap(), backend, stop: Some(stop), thread: Some(thread) }
    }

    /// Asks the server to stop. `join` waits until it has.
    pub fn stop(&mut self) {
        self.stop.take();
    }

    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        if !std::thread::panicking() {
            self.join();
        }
    }
}

/// A path for a file that does not exist yet.
pub fn scratch(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let folder = std::env::temp_dir().join(format!("braid-nbd-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(format!("{}-{name}", NEXT.fetch_add(1, Ordering::Relaxed)))
}
