//! Folders and mounts that go away by themselves, also when a test fails.

use crate::program::run;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of a test's own, removed in the end.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A fresh one.
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("braid-processes-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for scratch can be made");
        Scratch { path }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The same, as clients take it.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("our paths are plain").to_string()
    }
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A mounted file system; unmounted in the end.
#[derive(Debug)]
pub struct Mount {
    place: PathBuf,
    mounted: bool,
}

impl Mount {
    /// Mounts `what` at `place`, a folder that is made.
    pub fn new(arguments: &[&str], what: &str, place: &Path) -> Mount {
        std::fs::create_dir_all(place).expect("a place for the mount can be made");
        run("mount", &[arguments, &[what, path_text(place)]].concat()).done();
        Mount { place: place.to_path_buf(), mounted: true }
    }

    /// Takes charge of what somebody else has mounted at `place`.
    pub fn adopt(place: &Path) -> Mount {
        Mount { place: place.to_path_buf(), mounted: true }
    }

    /// Unmounts it, which must work.
    pub fn unmount(mut self) {
        run("umount", &[path_text(&self.place)]).done();
        self.mounted = false;
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.mounted {
            // Lazily: a test that failed may have left a client with open files.
            run("umount", &["--lazy", path_text(&self.place)]);
        }
    }
}

/// A loop device; detached in the end.
#[derive(Debug)]
pub struct Loop {
    /// Such as `/dev/loop3`.
    pub device: String,
}

impl Loop {
    /// Makes a file a block device.
    pub fn attach(file: &Path) -> Loop {
        let said = run("losetup", &["--find", "--show", path_text(file)]).done();
        Loop { device: said.stdout.trim().to_string() }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", &self.device]);
    }
}

/// A path as clients take it.
pub fn path_text(path: &Path) -> &str {
    path.to_str().expect("our paths are plain")
}
