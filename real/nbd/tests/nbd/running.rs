//! A server on its own thread, as the command line runs it.

use crate::memory::Memory;
use braid_nbd::{Backend, Server, Settings, uri};
use braid_shell::Address;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

pub struct Running<B: Backend> {
    pub address: Address,
    pub backend: Arc<B>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running<Memory> {
    /// Serves memory on a TCP port.
    pub fn start(settings: Settings) -> Running<Memory> {
        Running::start_at(&Address::loopback(0), settings, async || Memory::new())
    }

    /// Serves memory on a Unix socket.
    pub fn start_unix() -> Running<Memory> {
        Running::start_at(&Address::Unix(scratch("socket")), Settings::default(), async || Memory::new())
    }
}

impl<B: Backend> Running<B> {
    pub fn start_at<F>(address: &Address, settings: Settings, backend: F) -> Running<B>
    where
        F: AsyncFnOnce() -> B + Send + 'static,
    {
        let address = address.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio::task::LocalSet::new().block_on(&runtime, async {
                let server = Server::bind(&address, settings).await.unwrap();
                let backend = Arc::new(backend().await);
                tell.send((server.address().clone(), backend.clone())).unwrap();
                server.run(backend, async { stopped.await.unwrap_or(()) }).await;
            });
        });
        let (address, backend) = told.recv().unwrap();
        Running { address, backend, stop: Some(stop), thread: Some(thread) }
    }

    pub fn uri(&self, export: &str) -> String {
        uri(&self.address, export)
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

impl<B: Backend> Drop for Running<B> {
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
