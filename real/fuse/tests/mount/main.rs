//! Mounts the files of an array, and uses them by the system's calls: the volume is in memory, and what serves files is real. Without
//! `/dev/fuse`, or the right to mount, the tests say that they are skipped.

mod array;
mod locks;
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

use braid_fuse::{HostFiles, Mount, MountError, mount};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

static MOUNTS: AtomicU32 = AtomicU32::new(0);

fn empty_directory() -> PathBuf {
    let number = MOUNTS.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("braid-fuse-{}-{number}", std::process::id()));
    std::fs::create_dir(&directory).expect("the directory is new");
    directory
}

fn mount_if_possible(directory: &Path, file_system: HostFiles) -> Option<Mount> {
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
