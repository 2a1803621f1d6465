//! The array's folder: its path, its lock, and how files in it are replaced.

use crate::error::{ControlError, LockHolder, lacks_inodes};
use crate::file::{self, Durability, Lock};
use crate::paths::{DESCRIPTION, LOCK, RESERVE, SOCKETS};
use crate::private_files::{self, private_file};
use crate::process::Origin;
use crate::reserve;
use serde::Serialize;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why the file system of an array's folder refuses changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Possibly after an error of its disk.
    #[error("the file system of the array's folder is read-only")]
    ReadOnly,
    /// It has no free blocks. What is needed in the folder finds reserved space.
    #[error("the file system of the array's folder has no space left")]
    NoSpace,
    #[error("the file system of the array's folder has no inodes left")]
    NoInodes,
}

/// An array's folder. It is cheap to open and to clone. Nothing is cached in memory, so that every call sees changes made by other
/// processes.
#[derive(Clone, Debug)]
pub struct LocalFolder {
    dir: PathBuf,
}

impl LocalFolder {
    /// The folder of the array at `path`, which is the folder itself or the description in it. Nothing is read.
    pub fn at(path: &Path) -> LocalFolder {
        let is_description = path.file_name().is_some_and(|name| name == DESCRIPTION) && !path.is_dir();
        let dir = match path.parent() {
            Some(parent) if is_description && parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) if is_description => parent,
            _ => path,
        };
        LocalFolder { dir: dir.to_path_buf() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn absolute(&self) -> PathBuf {
        self.dir.canonicalize().unwrap_or_else(|_| self.dir.clone())
    }

    /// The folder of the sockets of this array's daemons, which is created if it is missing. No other user may enter it.
    pub fn sockets(&self) -> Result<PathBuf, ControlError> {
        let path = self.path(SOCKETS);
        let made = std::fs::DirBuilder::new().mode(PRIVATE).create(&path);
        match made {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let mode = std::fs::metadata(&path).map_err(ControlError::file("read", &path))?.permissions().mode();
                if mode & 0o7777 != PRIVATE {
                    let private = std::fs::Permissions::from_mode(PRIVATE);
                    std::fs::set_permissions(&path, private).map_err(ControlError::file("restrict", &path))?;
                }
            }
            made => made.map_err(ControlError::file("create", &path))?,
        }
        Ok(path)
    }

    /// Fails if another user could change the folder or the description, or if its path is no text. A folder that does not exist is trusted;
    /// a path that is no folder fails when it is used.
    pub(crate) fn require_trust(&self) -> Result<(), ControlError> {
        let dir = self.absolute();
        if dir.to_str().is_none() {
            return Err(ControlError::NotText { dir });
        }
        for path in [self.dir().to_path_buf(), self.path(DESCRIPTION)] {
            match std::fs::metadata(&path) {
                Ok(found) if !found.is_dir() && path == self.dir() => return Ok(()),
                Ok(found) => match private_files::distrust(&found) {
                    None => {}
                    Some(distrust) => return Err(ControlError::Untrusted { path, distrust }),
                },
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(ControlError::file("read", &path)(error)),
            }
        }
        Ok(())
    }

    /// Replaces the content of `path`, a file of the folder. On a full disk it uses the reserved space.
    pub(crate) fn replace<T: Serialize>(
        &self,
        path: &Path,
        value: &T,
        durability: Durability,
    ) -> Result<(), ControlError> {
        self.with_reserve(|| file::replace(path, value, durability))
    }

    /// Writes something in the folder. On a full disk it uses the reserved space.
    pub(crate) fn with_reserve<T>(&self, write: impl Fn() -> Result<T, ControlError>) -> Result<T, ControlError> {
        let is_full = |error: &ControlError| matches!(error, ControlError::File { source, .. } if source.kind() == ErrorKind::StorageFull);
        loop {
            match write() {
                // Space is no help then.
                Err(error) if is_full(&error) && lacks_inodes(&self.dir) => return Err(error),
                Err(error) if is_full(&error) => {}
                done => return done,
            }
            let gave_up = reserve::give_up(&self.path(RESERVE));
            match write() {
                Err(error) if is_full(&error) && gave_up => {}
                done => return done,
            }
            // A device that asks for space at this moment, as devices do when they start, took what was released. Its next
            // requests are refused; until then the rest of the reserve is not released.
            std::thread::sleep(NEIGHBOURS_SETTLE);
        }
    }

    /// The process that has held the folder's lock for longer than a change takes; none if nobody has. This waits for nobody.
    pub fn lock_holder(&self) -> Option<LockHolder> {
        let path = self.path(LOCK);
        let held = || matches!(Lock::try_take_existing(&path), Ok(None)).then(|| file::holder(&path)).flatten();
        let holder = held()?;
        if !holder.is_stopped {
            return None;
        }
        held().filter(|again| *again == holder)
    }

    /// Why the folder's file system refuses new files and changes, if it does.
    pub fn refusal(&self) -> Option<Refusal> {
        // After an error of its disk a file system may not say so, and refuse writes all the same.
        let path = self.path(LOCK);
        let is_refused = || private_file().create(true).truncate(false).write(true).open(&path);
        let refused = path.exists().then(is_refused).and_then(Result::err).map(|error| error.kind());
        let found = rustix::fs::statvfs(&self.dir).ok();
        let is = |test: fn(&rustix::fs::StatVfs) -> bool| found.as_ref().is_some_and(test);
        let is_read_only = is(|found| found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY));
        match refused {
            _ if is_read_only => Some(Refusal::ReadOnly),
            Some(ErrorKind::ReadOnlyFilesystem) => Some(Refusal::ReadOnly),
            _ if lacks_inodes(&self.dir) => Some(Refusal::NoInodes),
            _ => is(|found| found.f_bavail == 0).then_some(Refusal::NoSpace),
        }
    }

    /// The origin of this process, for its records in this folder.
    pub(crate) fn own_origin(&self) -> Option<Origin> {
        Origin::own().map(|own| own.recorded_in(self.dir()))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn lock(&self) -> Result<Lock, ControlError> {
        if !self.dir.is_dir() {
            return Err(ControlError::NoArray { dir: self.dir.clone() });
        }
        self.require_trust()?;
        Lock::take(&self.path(LOCK))
    }

    /// Fails if the lock's file was removed while the lock was held: another process may have changed what this one has read.
    pub(crate) fn require_lock(&self, lock: &Lock) -> Result<(), ControlError> {
        let path = self.path(LOCK);
        if lock.is_at(&path) {
            return Ok(());
        }
        let lost = "it was removed while this process held it; nothing was changed: try again";
        Err(ControlError::file("keep", &path)(std::io::Error::other(lost)))
    }
}

/// The mode of the folder of sockets.
const PRIVATE: u32 = 0o700;
/// The wait between two attempts to write on a full disk.
const NEIGHBOURS_SETTLE: Duration = Duration::from_millis(20);

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use braid_description::{ArrayDescription, Creation, DeviceEntry, VolumeEntry, VolumeState};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A folder for one test, removed at its end.
    pub(crate) struct Scratch {
        dir: PathBuf,
    }

    impl Scratch {
        pub(crate) fn new(name: &str) -> Scratch {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let dir = std::env::temp_dir().join(format!("braid-control-{}-{name}-{number}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            Scratch { dir }
        }

        pub(crate) fn with_array(name: &str) -> (Scratch, LocalFolder) {
            let scratch = Scratch::new(name);
            let folder = scratch.array();
            (scratch, folder)
        }

        pub(crate) fn path(&self, name: &str) -> PathBuf {
            self.dir.join(name)
        }

        pub(crate) fn array(&self) -> LocalFolder {
            let folder = LocalFolder::at(&self.path("array"));
            folder.create(&description()).unwrap();
            folder
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }

    #[test]
    fn a_folder_without_inodes_says_so_and_keeps_its_reserved_space() {
        let scratch = Scratch::new("inodes");
        let mount = |program: &str, words: &[&str]| {
            let done = std::process::Command::new(program).args(words).arg(&scratch.dir).status();
            done.is_ok_and(|done| done.success())
        };
        if !mount("mount", &["-t", "tmpfs", "-o", "nr_inodes=30,size=4m", "none"]) {
            eprintln!("skipped: only root can mount");
            return;
        }
        let folder = scratch.array();
        let before = folder.refusal();
        let is_full = (0..30).any(|number| std::fs::File::create(scratch.path(&number.to_string())).is_err());
        let change = folder.update(|_| Ok::<_, ControlError>(())).map_err(|error| error.to_string());
        let (after, reserved) = (folder.refusal(), folder.path(RESERVE).metadata().map(|found| found.len()));
        assert!(mount("umount", &["--lazy"]) && is_full);
        assert_eq!((before, after), (None, Some(Refusal::NoInodes)));
        assert!(
            change.is_err_and(|error| error.contains("no inodes left")) && reserved.is_ok_and(|bytes| bytes == 1 << 20)
        );
    }

    pub(crate) fn description() -> ArrayDescription {
        let devices = (0..2).map(|id| DeviceEntry::new(id, 1 << 30));
        let creation = Creation {
            devices: 2,
            size: 1 << 30,
            layout: "raid1:2".into(),
            unit: 65_536,
            volumes: Vec::new(),
            file_system: None,
            lock_servers: 2,
            lock_acquisition: braid_base::Acquisition::Timeout,
            range_division: braid_base::RangeDivision::Space,
            callbacks: braid_base::Callbacks::Group,
            lease_millis: 1_000,
        };
        ArrayDescription::new(braid_base::ArrayId([7; 16]), devices.collect(), creation)
    }

    pub(crate) fn volume(description: &mut ArrayDescription, name: &str) -> VolumeEntry {
        let id = description.next_volume;
        description.next_volume += 1;
        VolumeEntry {
            unavailable: None,
            name: name.into(),
            id,
            bytes: 4096,
            layout: "raid1:2".into(),
            unit: 65_536,
            devices: vec![0, 1],
            ordering: "timestamp".into(),
            atomicity: "implied".into(),
            attribute_volume: false,
            first_block: 0,
            parity_site: "originator".into(),
            moving: None,
            state: VolumeState::Ready,
            by: None,
        }
    }
}
