//! Mounts a file system in memory, and uses it by the system's calls. Without `/dev/fuse`, or the right to mount, the tests say that they
//! are skipped.

mod locks;
mod memory;
mod names;
mod unmounting;

use braid_fuse::{Mount, MountError, ServeError, mount};
use braid_wire::Owner;
use memory::Memory;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

static MOUNTS: AtomicU32 = AtomicU32::new(0);

/// A mount in a directory of its own, served by a thread of its own. It is unmounted when it is dropped.
struct Mounted {
    directory: PathBuf,
    /// How often a request began to wait for a lock.
    waits: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Mounted {
    /// None if this machine can't mount.
    fn new() -> Option<Mounted> {
        let directory = empty_directory();
        let (mount, waits) = mounted(&directory)?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it starts");
            runtime.block_on(mount.run(async {
                // An error means that the test has ended, too.
                let _ = stopped.await;
            }))
        });
        Some(Mounted { directory, waits, stop: Some(stop), thread: Some(thread) })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Unmounts, and waits for the end.
    fn stop(&mut self) -> Result<(), ServeError> {
        drop(self.stop.take());
        self.thread.take().map_or(Ok(()), |thread| thread.join().expect("the loop does not panic"))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let stopped = self.stop();
        let removed = std::fs::remove_dir(&self.directory);
        if !std::thread::panicking() {
            stopped.expect("the mount was served until its end");
            removed.expect("nothing is mounted any more");
        }
    }
}

fn empty_directory() -> PathBuf {
    let number = MOUNTS.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("braid-fuse-{}-{number}", std::process::id()));
    std::fs::create_dir(&directory).expect("the directory is new");
    directory
}

fn mounted(directory: &Path) -> Option<(Mount<Memory>, Arc<AtomicUsize>)> {
    let owner = Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
    let memory = Memory::new(owner);
    let waits = memory.waits.clone();
    match mount(directory, "test", memory) {
        Ok(mount) => Some((mount, waits)),
        Err(error @ (MountError::NoDevice { .. } | MountError::NotPermitted | MountError::NoFusermount)) => {
            eprintln!("skipped: {error}");
            std::fs::remove_dir(directory).expect("it is empty");
            None
        }
        Err(error) => panic!("{error}: {error:?}"),
    }
}
