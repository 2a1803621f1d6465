//! The folder in which everything lies while it is measured.

use super::array::device_bytes;
use super::{Settings, array};
use anyhow::{Context, Result, bail};
use braid_base::units::format_size;
use std::path::{Path, PathBuf};

/// Left free for logs and whoever else uses the disk.
const MARGIN: u64 = 1 << 30;

/// What `statfs` says of file systems in memory, from the kernel's `linux/magic.h`.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// A folder of this run's own. Goes away with its owner.
pub struct Folder {
    /// What the user named, if it was not there before.
    made: Option<PathBuf>,
    path: PathBuf,
}

impl Folder {
    /// Makes it in `dir`, if there is room for a raw file and an array.
    pub fn make(dir: &Path, settings: &Settings) -> Result<Folder> {
        Folder::make_with(dir, settings.size + array::DEVICES * device_bytes(settings.size))
    }

    /// Makes it in `dir`, if there is room for so many bytes.
    pub fn make_with(dir: &Path, bytes: u64) -> Result<Folder> {
        let dir = std::path::absolute(dir)?;
        let made = (!dir.exists()).then(|| dir.clone());
        std::fs::create_dir_all(&dir).with_context(|| format!("can't make the folder {}", dir.display()))?;
        let folder = Folder { made, path: dir.join(format!("run-{}", std::process::id())) };
        // From here on it is removed if anything fails.
        if rustix::fs::statfs(&dir)?.f_type == TMPFS {
            bail!("{} is in memory, not on a disk: take another --dir", dir.display());
        }
        let free = free_bytes(&dir)?;
        let needed = bytes + MARGIN;
        if free < needed {
            bail!(
                "{} has {} free, and {} are needed: take another --dir, or a smaller --size if there is one",
                dir.display(),
                format_size(free),
                format_size(needed),
            );
        }
        std::fs::create_dir(&folder.path).with_context(|| format!("can't make {}", folder.path.display()))?;
        Ok(folder)
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it, and says so if that fails.
    pub fn remove(self) -> Result<()> {
        std::fs::remove_dir_all(&self.path)
            .with_context(|| format!("{} can't be removed: it may go by hand", self.path.display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
        if let Some(made) = &self.made {
            // Fails if somebody has put something there: then it stays.
            let _ = std::fs::remove_dir(made);
        }
    }
}

fn free_bytes(dir: &Path) -> Result<u64> {
    let found = rustix::fs::statvfs(dir).with_context(|| format!("can't ask for the room in {}", dir.display()))?;
    Ok(found.f_bavail * found.f_frsize)
}
