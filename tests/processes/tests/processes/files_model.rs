//! Operations on a folder of this machine, by the kernel, which the library is compared with. The folder is the root of all paths, also for
//! symbolic links and `..`. `None`: the operation fails.

use crate::prelude::*;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use std::io::Read;
use std::os::fd::AsRawFd;

/// What both say of an inode: its kind, its length, and how many names it has.
pub type Facts = (char, u64, u32);

pub struct Model {
    root: File,
    _scratch: Scratch,
}

impl Model {
    pub fn new() -> Model {
        let scratch = Scratch::new();
        Model { root: File::open(scratch.path("")).expect("it is new"), _scratch: scratch }
    }

    pub fn create_file(&self, path: &str) -> Option<()> {
        File::create_new(self.place(path)?.1).ok().map(drop)
    }

    pub fn create_dir(&self, path: &str) -> Option<()> {
        fs::create_dir(self.place(path)?.1).ok()
    }

    pub fn symlink(&self, target: &str, path: &str) -> Option<()> {
        std::os::unix::fs::symlink(target, self.place(path)?.1).ok()
    }

    pub fn read_link(&self, path: &str) -> Option<String> {
        fs::read_link(self.place(path)?.1).ok()?.into_os_string().into_string().ok()
    }

    pub fn hard_link(&self, original: &str, path: &str) -> Option<()> {
        let (from, to) = (self.place(original)?, self.place(path)?);
        fs::hard_link(from.1, to.1).ok()
    }

    /// Opens a file that is created if necessary, and changes its bytes.
    pub fn change(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) -> Option<()> {
        let (mut file, mut bytes) = (self.open(path, OFlags::CREATE | OFlags::RDWR)?, Vec::new());
        file.read_to_end(&mut bytes).ok()?;
        change(&mut bytes);
        file.set_len(bytes.len() as u64).ok()?;
        file.write_all_at(&bytes, 0).ok()
    }

    pub fn read(&self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(path, OFlags::RDONLY)?.read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    pub fn remove_file(&self, path: &str) -> Option<()> {
        fs::remove_file(self.place(path)?.1).ok()
    }

    /// Removes a directory, with everything in it if `all` is set.
    pub fn remove_dir(&self, path: &str, all: bool) -> Option<()> {
        let (_parent, place) = self.place(path)?;
        let is_directory = fs::symlink_metadata(&place).ok()?.is_dir();
        if all { is_directory.then(|| fs::remove_dir_all(place).ok())? } else { fs::remove_dir(place).ok() }
    }

    pub fn rename(&self, from: &str, to: &str) -> Option<()> {
        let (from, to) = (self.place(from)?, self.place(to)?);
        fs::rename(from.1, to.1).ok()
    }

    pub fn facts(&self, path: &str, follows: bool) -> Option<Facts> {
        let flags = if follows { OFlags::PATH } else { OFlags::PATH | OFlags::NOFOLLOW };
        let found = self.open(path, flags)?.metadata().ok()?;
        if !found.is_dir() {
            return Some((if found.is_symlink() { 'l' } else { 'f' }, found.len(), found.nlink() as u32));
        }
        let inner = self.list(path)?.into_iter().map(|name| self.facts(&format!("{path}/{name}"), false));
        let kinds: Vec<char> = inner.map(|facts| facts.map(|facts| facts.0)).collect::<Option<_>>()?;
        Some(('d', kinds.len() as u64, 2 + kinds.iter().filter(|kind| **kind == 'd').count() as u32))
    }

    /// The names in a directory, in their order.
    pub fn list(&self, path: &str) -> Option<Vec<String>> {
        let directory = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let names = fs::read_dir(in_proc(&directory)).ok()?.map(|entry| entry.ok()?.file_name().into_string().ok());
        let names: BTreeSet<String> = names.collect::<Option<_>>()?;
        Some(names.into_iter().collect())
    }

    fn open(&self, path: &str, flags: OFlags) -> Option<File> {
        let mode = if flags.contains(OFlags::CREATE) { Mode::RUSR | Mode::WUSR } else { Mode::empty() };
        openat2(&self.root, path, flags | OFlags::CLOEXEC, mode, ResolveFlags::IN_ROOT).ok().map(File::from)
    }

    /// The directory that contains the last name of a path, and where this process finds that name as long as the directory is open.
    fn place(&self, path: &str) -> Option<(File, PathBuf)> {
        let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
        let parent = self.open(&format!("{parent}/"), OFlags::PATH | OFlags::DIRECTORY).filter(|_| name != "..")?;
        let place = in_proc(&parent).join(name);
        Some((parent, place))
    }
}

fn in_proc(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
