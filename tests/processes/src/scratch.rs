//! Temporary folders and mounts, removed also when a test fails.

use crate::program::run;
use crate::tool;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary folder, removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new folder.
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("braid-processes-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for scratch can be made");
        Scratch { path }
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A path in the folder, as text.
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

/// A small file system of its own on a loop device, unmounted and detached when dropped.
#[derive(Debug)]
pub struct Disk {
    device: String,
    place: String,
}

impl Disk {
    /// Makes it, and mounts it in the folder `mnt`.
    pub fn mounted(scratch: &Scratch, bytes: u64) -> Disk {
        let (image, place) = (scratch.path("disk"), scratch.text("mnt"));
        File::create(&image).and_then(|file| file.set_len(bytes)).expect("a sparse file can be made");
        let attached = run("losetup", &["--find", "--show", path_text(&image)]).done();
        let device = attached.stdout.trim().to_string();
        tool("mkfs.ext4", &["-q", &device]);
        std::fs::create_dir(&place).expect("it is new");
        tool("mount", &[&device, &place]);
        Disk { device, place }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily, because a failed test may have left a client with open files.
        run("umount", &["--lazy", &self.place]);
        run("losetup", &["--detach", &self.device]);
    }
}

/// A path as text.
pub fn path_text(path: &Path) -> &str {
    path.to_str().expect("our paths are plain")
}
