//! Mounts a file system in memory, and uses it by the system's calls. Without `/dev/fuse`, or the right to mount, the tests say that they
//! are skipped. Other tests mount the files of an array: its volume is in memory, and what serves files is real.

mod array;
mod locks;
mod memory;
mod names;
mod signals;
mod two_hosts;
mod unmounting;

#[allow(dead_code, reason = "its own tests use all of it")]
#[path = "../../../../core/files/tests/files/server.rs"]
mod server;
#[allow(dead_code, reason = "its own tests use all of it")]
#[path = "../../../../core/files/tests/files/volume.rs"]
mod volume;

use braid_fuse::{FileSystem, Mount, MountError, ServeError, mount};
use braid_wire::Owner;
use memory::Memory;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
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
    /// How often a name that is looked up is not there yet.
    late: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Mounted {
    /// None if this machine can't mount.
    fn new() -> Option<Mounted> {
        let directory = empty_directory();
        let (mount, waits, late) = mounted(&directory)?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it starts");
            runtime.block_on(mount.run(async {
                // An error means that the test has ended, too.
                let _ = stopped.await;
            }))
        });
        Some(Mounted { directory, waits, late, stop: Some(stop), thread: Some(thread) })
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

fn mounted(directory: &Path) -> Option<(Mount<Memory>, Arc<AtomicUsize>, Arc<AtomicUsize>)> {
    let owner = Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
    let memory = Memory::new(owner);
    let (waits, late) = (memory.waits.clone(), memory.late.clone());
    Some((mount_if_possible(directory, memory)?, waits, late))
}

fn mount_if_possible<F: FileSystem>(directory: &Path, file_system: F) -> Option<Mount<F>> {
    match mount(directory, "test", file_system) {
        Ok(mount) => Some(mount),
        Err(error @ (MountError::NoDevice { .. } | MountError::NotPermitted | MountError::NoFusermount)) => {
            eprintln!("skipped: {error}");
            std::fs::remove_dir(directory).expect("it is empty");
            None
        }
        Err(error) => panic!("{error}: {error:?}"),
    }
}

/// What a copy of `echo` prints.
fn echoed(program: &Path) -> String {
    let mut output = None;
    locks::until("the program runs", || match Command::new(program).arg("hello").output() {
        // Another test may just start a process, which has all descriptors of this one for a moment.
        Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => false,
        ended => {
            output = Some(ended.expect("it runs").stdout);
            true
        }
    });
    String::from_utf8(output.expect("it has run")).expect("text")
}
