//! Small JSON files that are replaced as a whole, with a check of their schema on reading; and lock files with a time limit.

use crate::error::holds;
use crate::private_files::private_file;
use crate::{ControlError, LockHolder, Process};
pub(crate) use braid_description::SCHEMA;
use braid_description::{FormatError, SCHEMA_KNOWN};
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait for a lock that is held only for a few file operations at a time.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// After this time, a process that waits says for whom.
const LOCK_SILENTLY: Duration = Duration::from_secs(1);

/// Whether a file must outlive a power loss.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    Durable,
    /// The content is useful within this boot only.
    ThisBoot,
}

/// Fails if something of another kind has this name. To open a pipe would wait for somebody who writes into it.
pub(crate) fn require_kind(path: &Path, is_folder: bool) -> Result<(), ControlError> {
    let fits = |found: Metadata| if is_folder { found.is_dir() } else { found.is_file() };
    if path.metadata().map_or(true, fits) {
        return Ok(());
    }
    let reason = format!("it must be a {}", if is_folder { "folder" } else { "file" });
    Err(ControlError::Inconsistent { file: path.to_path_buf(), reason })
}

/// The content of `path`; none if there is no such file.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ControlError> {
    read_bytes(path)?.map(|text| parse(path, &text)).transpose()
}

/// The bytes of `path`; none if there is no such file.
pub(crate) fn read_bytes(path: &Path) -> Result<Option<Vec<u8>>, ControlError> {
    require_kind(path, false)?;
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ControlError::file("read", path)(error)),
    }
}

/// The value in this text of `path`.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<T, ControlError> {
    braid_description::parse(text).map_err(|error| match error {
        FormatError::Damaged(reason) => ControlError::Damaged { file: path.to_path_buf(), reason },
        FormatError::Newer { found } => {
            ControlError::NewerSchema { file: path.to_path_buf(), found, known: SCHEMA_KNOWN }
        }
    })
}

/// Replaces the content of `path` with `value`. The caller holds a lock that excludes other writers of this path.
pub(crate) fn replace<T: Serialize>(path: &Path, value: &T, durability: Durability) -> Result<(), ControlError> {
    // Paths that are not UTF-8 have none.
    let unfit = |error: serde_json::Error| ControlError::file("write", path)(std::io::Error::from(error));
    let text = braid_description::format(value).map_err(unfit)?;
    let (temporary, mut file) = create_temporary(path)?;
    file.write_all(&text).map_err(ControlError::file("write", &temporary))?;
    if durability == Durability::Durable {
        file.sync_all().map_err(ControlError::file("sync", &temporary))?;
    }
    std::fs::rename(&temporary, path).map_err(ControlError::file("replace", path))?;
    if durability == Durability::Durable {
        sync_folder(path.parent().expect("a file is in a folder"))?;
    }
    Ok(())
}

pub(crate) fn remove(path: &Path) -> Result<(), ControlError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(ControlError::file("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(dir: &Path) -> Result<(), ControlError> {
    File::open(dir).and_then(|folder| folder.sync_all()).map_err(ControlError::file("sync", dir))
}

/// The temporary file in which new content is prepared. The name is always the same, so that crashes leave at most one behind.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().expect("a file has a name").to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
}

/// Creates the temporary file for new content of `path`. It is always a new file: a process that was suspended while it prepared another
/// content never writes into this one, and a link of that name is not followed.
pub(crate) fn create_temporary(path: &Path) -> Result<(PathBuf, File), ControlError> {
    let temporary = temporary(path);
    remove(&temporary)?;
    let new = private_file().write(true).create_new(true).open(&temporary);
    new.map_err(ControlError::file("create", &temporary)).map(|file| (temporary, file))
}

/// A lock file, held until dropped. The system releases it when the process dies.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock, and waits up to `LOCK_WAIT` for other processes to release it.
    pub(crate) fn take(path: &Path) -> Result<Lock, ControlError> {
        if let Some(lock) = Lock::take_within(path, LOCK_SILENTLY)? {
            return Ok(lock);
        }
        tracing::warn!("waiting: {}", holds(holder(path).as_ref(), path));
        let (file, seconds) = (path.to_path_buf(), LOCK_WAIT.as_secs());
        let locked = || ControlError::Locked { holder: holder(&file), file, seconds };
        Lock::take_within(path, LOCK_WAIT.saturating_sub(LOCK_SILENTLY))?.ok_or_else(locked)
    }

    /// Takes the lock if it becomes free within `wait`.
    pub(crate) fn take_within(path: &Path, wait: Duration) -> Result<Option<Lock>, ControlError> {
        let begun = Instant::now();
        loop {
            let taken = Lock::try_take(path)?;
            if taken.is_some() || begun.elapsed() > wait {
                return Ok(taken);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// True if `path` still names the locked file.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        let name = |found: Metadata| (found.dev(), found.ino());
        let ours = self.file.metadata().ok().map(name);
        ours.is_some() && ours == std::fs::metadata(path).ok().map(name)
    }

    pub(crate) fn try_take(path: &Path) -> Result<Option<Lock>, ControlError> {
        require_kind(path, false)?;
        Lock::of(private_file().create(true).truncate(false).write(true).open(path), path)
    }

    /// Takes a lock that exists, if it is free. This needs no write, so it is possible on a read-only file system.
    pub(crate) fn try_take_existing(path: &Path) -> Result<Option<Lock>, ControlError> {
        require_kind(path, false)?;
        Lock::of(File::open(path), path)
    }

    fn of(opened: std::io::Result<File>, path: &Path) -> Result<Option<Lock>, ControlError> {
        let file = opened.map_err(ControlError::file("open", path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // If the file was removed meanwhile, other processes lock the file that replaces it.
            Ok(()) => Ok(Some(Lock { file }).filter(|lock| lock.is_at(path))),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(ControlError::file("lock", path)(error)),
        }
    }
}

/// Whether a process has this file open, possibly after the file was removed; none if the system does not tell.
pub(crate) fn has_open(process: &Process, path: &Path) -> Option<bool> {
    let path = path.parent()?.canonicalize().ok()?.join(path.file_name()?);
    let removed = PathBuf::from(format!("{} (deleted)", path.display()));
    // The process may run elsewhere, or belong to another user.
    let Some(folder) = process.in_proc() else { return process.has_ended().then_some(false) };
    let open = std::fs::read_dir(folder.join("fd")).ok()?;
    let mut targets = open.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    Some(targets.any(|target| target == path || target == removed))
}

/// The process that holds a lock file, if the system tells.
pub(crate) fn holder(path: &Path) -> Option<LockHolder> {
    let found = std::fs::metadata(path).ok()?;
    let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    let file = format!("{major:02x}:{minor:02x}:{}", found.ino());
    // While locks are released between two reads, the list leaves out others: so it is read again if it does not name the holder.
    let listed = || locked_by(&list_of_locks()?, |listed| listed == file);
    // Some file systems are listed with another device than their files have.
    let of_inode = |listed: &str| listed.rsplit(':').next() == file.rsplit(':').next();
    let pid = (0..LOOKS).find_map(|_| listed()).or_else(|| locked_by(&list_of_locks()?, of_inode))?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command: Vec<_> = command.split(|byte| *byte == 0).filter(|word| !word.is_empty()).take(WORDS).collect();
    let command = command.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let is_stopped = status.lines().any(|line| line.starts_with("State:\tT") || line.starts_with("State:\tt"));
    Some(LockHolder { pid, command, is_stopped })
}

/// The locks of the system, in as few reads as it takes.
fn list_of_locks() -> Option<String> {
    let (mut list, mut text) = (File::open("/proc/locks").ok()?, String::with_capacity(LIST_BYTES));
    list.read_to_string(&mut text).ok().map(|_| text)
}

/// The process that has locked a file, by a list of locks with these fields: number, FLOCK, ADVISORY, WRITE, process, device and inode. For a
/// waiting process an arrow follows the number.
fn locked_by(locks: &str, is_file: impl Fn(&str) -> bool) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, pid, file) = (words.next()?, words.nth(2)?, words.next()?);
        pid.parse().ok().filter(|pid| kind == "FLOCK" && is_file(file) && *pid != 0)
    })
}

/// Words of a command that name a process.
const WORDS: usize = 3;
/// How often the list of locks is looked at.
const LOOKS: usize = 16;
/// More than the system returns at once.
const LIST_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_crash_before_the_rename_leaves_the_old_content() {
        let scratch = Scratch::new("rename");
        let path = scratch.path("number.json");
        let old = serde_json::json!({"schema": 1, "n": 1});
        replace(&path, &old, Durability::Durable).unwrap();
        std::fs::write(temporary(&path), "{\"schema\": 1, \"n\"").unwrap();
        assert_eq!(read::<serde_json::Value>(&path).unwrap(), Some(old));

        let new = serde_json::json!({"schema": 1, "n": 2});
        replace(&path, &new, Durability::Durable).unwrap();
        assert_eq!(read::<serde_json::Value>(&path).unwrap(), Some(new));
        assert!(!temporary(&path).exists(), "the next change uses up what a crash left");
    }

    #[test]
    fn a_writer_that_was_suspended_writes_into_no_other_content() {
        let scratch = Scratch::new("suspended");
        let path = scratch.path("number.json");
        let mut suspended = File::create(temporary(&path)).unwrap();
        let new = serde_json::json!({"schema": 1, "n": 2});
        replace(&path, &new, Durability::Durable).unwrap();
        suspended.write_all(b"{\"schema\": 1, \"n\": 1, \"long\": \"and longer\"}").unwrap();
        assert_eq!(read::<serde_json::Value>(&path).unwrap(), Some(new));
    }

    #[test]
    fn a_newer_schema_is_refused_before_anything_else_is_looked_at() {
        let scratch = Scratch::new("schema");
        let path = scratch.path("later.json");
        std::fs::write(&path, "{\"schema\": 4, \"wholly\": \"different\"}").unwrap();
        let error = read::<Vec<u8>>(&path).unwrap_err();
        assert!(matches!(error, ControlError::NewerSchema { found: 4, known: 3, .. }), "{error}");
    }

    #[test]
    fn a_lock_is_free_again_when_dropped() {
        let scratch = Scratch::new("lock");
        let path = scratch.path("lock");
        let held = Lock::try_take(&path).unwrap();
        assert!(held.is_some());
        assert!(Lock::try_take(&path).unwrap().is_none());
        let holder = holder(&path).expect("the system tells");
        assert_eq!((holder.pid, holder.is_stopped), (std::process::id(), false));
        assert!(holds(Some(&holder), &path).contains("has held the lock"));
        assert!(Lock::try_take_existing(&path).unwrap().is_none());
        drop(held);
        assert!(Lock::try_take(&path).unwrap().is_some());
    }

    #[test]
    fn the_holder_of_a_lock_is_found_while_other_locks_come_and_go() {
        let list = "1: POSIX  ADVISORY  WRITE 3 fe:00:7 0 EOF\n2: FLOCK  ADVISORY  WRITE 4 00:2a:7 0 EOF\n\
                    2: -> FLOCK  ADVISORY  WRITE 5 fe:00:7 0 EOF\n3: FLOCK  ADVISORY  WRITE 6 fe:00:7 0 EOF\n";
        for (file, holder) in [("fe:00:7", Some(6)), ("00:2a:7", Some(4)), ("fe:00:8", None)] {
            assert_eq!(locked_by(list, |listed| listed == file), holder, "{file}");
        }
        let (scratch, ends) = (Scratch::new("holders"), AtomicBool::new(false));
        let path = scratch.path("lock");
        let _held = Lock::try_take(&path).unwrap().expect("it is free");
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (scratch, ends) = (&scratch, &ends);
                let take = move |number| Lock::try_take(&scratch.path(&format!("{thread}-{number}"))).unwrap();
                scope.spawn(move || {
                    while !ends.load(Ordering::Relaxed) {
                        drop((0..40).map(take).collect::<Vec<_>>());
                    }
                });
            }
            let found = (0..1000).filter(|_| holder(&path).is_some_and(|holder| holder.pid == std::process::id()));
            let found = found.count();
            ends.store(true, Ordering::Relaxed);
            assert_eq!(found, 1000);
        });
    }
}
