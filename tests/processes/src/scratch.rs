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

/// A mounted file system, unmounted when dropped.
#[derive(Debug)]
pub struct Mount {
    place: PathBuf,
    mounted: bool,
}

impl Mount {
    /// Mounts `what` at `place`, a folder that is created.
    pub fn new(arguments: &[&str], what: &str, place: &Path) -> Mount {
        std::fs::create_dir_all(place).expect("a place for the mount can be made");
        run("mount", &[arguments, &[what, path_text(place)]].concat()).done();
        Mount { place: place.to_path_buf(), mounted: true }
    }

    /// Takes over what another program has mounted at `place`.
    pub fn adopt(place: &Path) -> Mount {
        Mount { place: place.to_path_buf(), mounted: true }
    }

    /// Unmounts it, which must succeed.
    pub fn unmount(mut self) {
        run("umount", &[path_text(&self.place)]).done();
        self.mounted = false;
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.mounted {
            // Lazily, because a failed test may have left a client with open files.
            run("umount", &["--lazy", path_text(&self.place)]);
        }
    }
}

/// A loop device, detached when dropped.
#[derive(Debug)]
pub struct Loop {
    /// Such as `/dev/loop3`.
    pub device: String,
}

impl Loop {
    /// Attaches a loop device to a file.
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

/// A small file system of its own, made with these options.
pub fn disk(scratch: &Scratch, bytes: u64, mkfs: &[&str]) -> (Loop, Mount) {
    let image = scratch.path("disk");
    File::create(&image).and_then(|file| file.set_len(bytes)).expect("a sparse file can be made");
    let block = Loop::attach(&image);
    tool("mkfs.ext4", &[&["-q"], mkfs, &[&block.device]].concat());
    let mount = Mount::new(&[], &block.device, &scratch.path("mnt"));
    (block, mount)
}

/// A path as text.
pub fn path_text(path: &Path) -> &str {
    path.to_str().expect("our paths are plain")
}
