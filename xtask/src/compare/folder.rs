//! The folder that holds all files during the measurement.

use crate::prelude::*;

/// Space left free for logs and other users of the disk.
const MARGIN: u64 = 1 << 30;

/// The type that `statfs` reports for file systems in memory, from the kernel's `linux/magic.h`.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// A folder for this run, removed when dropped.
pub struct Folder {
    /// The parent folder, if this run has created it.
    made: Option<PathBuf>,
    path: PathBuf,
}

impl Folder {
    /// Creates it in `dir`, if there is space for `bytes`.
    pub fn make(dir: &Path, bytes: u64) -> Result<Folder> {
        let dir = std::path::absolute(dir)?;
        let made = (!dir.exists()).then(|| dir.clone());
        std::fs::create_dir_all(&dir).with_context(|| format!("can't make the folder {}", dir.display()))?;
        let folder = Folder { made, path: dir.join(format!("run-{}", std::process::id())) };
        // From here on the folder is removed if anything fails.
        if rustix::fs::statfs(&dir)?.f_type == TMPFS {
            bail!("{} is in memory, not on a disk: choose another --dir", dir.display());
        }
        let free = free_bytes(&dir)?;
        let needed = bytes + MARGIN;
        if free < needed {
            bail!(
                "{} has {} free, but {} are needed: choose another --dir, or a smaller --size if there is one",
                dir.display(),
                format_size(free),
                format_size(needed),
            );
        }
        std::fs::create_dir(&folder.path).with_context(|| format!("can't make {}", folder.path.display()))?;
        Ok(folder)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it, and reports an error if that fails.
    pub fn remove(self) -> Result<()> {
        std::fs::remove_dir_all(&self.path)
            .with_context(|| format!("{} can't be removed: remove it by hand", self.path.display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
        if let Some(made) = &self.made {
            // This fails if the folder contains other files: then it stays.
            let _ = std::fs::remove_dir(made);
        }
    }
}

fn free_bytes(dir: &Path) -> Result<u64> {
    let found =
        rustix::fs::statvfs(dir).with_context(|| format!("can't determine the free space in {}", dir.display()))?;
    Ok(found.f_bavail * found.f_frsize)
}
