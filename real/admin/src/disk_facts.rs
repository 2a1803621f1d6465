//! What a path is before it becomes a device: a disk, a partition, a loop device or a file; and what it contains.

use crate::failure::Failure;
use braid_base::units::format_size;
use braid_control::folder_around;
use braid_fuse::MountPoint;
use braid_shell::file_behind;
use rustix::io::Errno;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

/// Folders whose files are the system's, and not on a disk.
const SYSTEM_FOLDERS: [&str; 3] = ["/dev", "/proc", "/sys"];
/// The types of the file systems there, wherever they are mounted.
const SYSTEM_KINDS: [&str; 13] = [
    "devtmpfs",
    "devpts",
    "proc",
    "sysfs",
    "cgroup",
    "cgroup2",
    "debugfs",
    "tracefs",
    "securityfs",
    "configfs",
    "bpf",
    "pstore",
    "efivarfs",
];
/// A folder for files in memory, which nobody names by mistake.
const SHARED_MEMORY: &str = "/dev/shm";

/// The program that knows the marks that users of disks leave on them, and how it ends if it finds those of several.
const BLKID: &str = "/usr/sbin/blkid";
const AMBIVALENT: i32 = 8;
/// All users of disks leave their marks within so many bytes of the beginning or the end; the farthest are ZFS's labels.
const MARKS_WITHIN: u64 = 512 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFacts {
    pub path: PathBuf,
    /// Such as `partition`.
    pub kind: &'static str,
    /// In bytes.
    pub size: u64,
    /// As its maker calls it, or the file behind a loop device.
    pub model: Option<String>,
    /// What it contains, if anything.
    pub content: Option<String>,
}

/// How long a disk may take to answer.
pub const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// What `work` finds at a path. A thread does it, because a call of the system returns nothing while a disk hangs.
pub fn answer_of<T: Send + 'static>(
    path: &Path,
    wait: Duration,
    work: impl FnOnce(&Path) -> T + Send + 'static,
) -> Result<T, Failure> {
    let (tell, told) = mpsc::channel();
    let disk = path.to_path_buf();
    // Later nobody listens.
    std::thread::spawn(move || drop(tell.send(work(&disk))));
    told.recv_timeout(wait).map_err(|_| {
        let message = format!("{} has not answered for {} s", path.display(), wait.as_secs());
        Failure::unreachable("disk-hangs", message)
            .hint("the disk or its driver hangs: `dmesg` shows the messages of the system")
    })
}

impl DiskFacts {
    pub fn of(path: &Path) -> Result<DiskFacts, Failure> {
        let look = |path: &Path| {
            let metadata = path.metadata()?;
            // To open a pipe would wait for somebody who writes into it.
            if !metadata.is_file() && !metadata.file_type().is_block_device() {
                return Err(std::io::Error::other("it is neither a disk nor a file: name another path"));
            }
            let mut file = File::open(path)?;
            let size = file.seek(SeekFrom::End(0))?;
            let content = probed(path).or(data_of(&file, size)?);
            let (kind, model) = match metadata.file_type().is_block_device() {
                true => block_device(metadata.rdev()),
                false => ("file", None),
            };
            Ok::<_, std::io::Error>(DiskFacts { path: path.to_path_buf(), kind, size, model, content })
        };
        answer_of(path, ANSWER_WAIT, look)?.map_err(|error| Failure::from(error).of(path.display()))
    }
}

impl std::fmt::Display for DiskFacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DiskFacts { path, kind, size, model, content } = self;
        write!(f, "{} is a {kind}, {}", path.display(), format_size(*size))?;
        if let Some(model) = model {
            write!(f, ", {model}")?;
        }
        content.as_ref().map_or(Ok(()), |content| write!(f, "; it contains {content}"))
    }
}

/// What `blkid` of util-linux finds on a disk; none if that is nothing, or there is no such program.
fn probed(path: &Path) -> Option<String> {
    let asked = Command::new(BLKID).args(["-p", "-o", "export", "--"]).arg(path).output().ok()?;
    if asked.status.code() == Some(AMBIVALENT) {
        return Some("marks of several file systems, partition tables or other users of disks".to_string());
    }
    let text = String::from_utf8_lossy(&asked.stdout).into_owned();
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_string);
    let table = value("PTTYPE=").map(|kind| format!("a partition table ({kind})"));
    value("TYPE=").map(|kind| format!("what `blkid` calls {kind}")).or(table)
}

/// Whether a disk of this size contains anything where marks are.
fn data_of(file: &File, size: u64) -> std::io::Result<Option<String>> {
    for start in [0, size.saturating_sub(MARKS_WITHIN)] {
        let mut bytes = vec![0; MARKS_WITHIN.min(size) as usize];
        file.read_exact_at(&mut bytes, start)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(Some("data of a kind that is not known".to_string()));
        }
    }
    Ok(None)
}

/// Its kind and its model, as the system lists them.
fn block_device(number: u64) -> (&'static str, Option<String>) {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let text = |name: &str| {
        let text = std::fs::read_to_string(folder.join(name)).ok()?;
        Some(text.trim().to_string()).filter(|text| !text.is_empty())
    };
    if folder.join("partition").exists() {
        return ("partition", text("../device/model"));
    }
    if folder.join("loop").exists() {
        return ("loop device", text("loop/backing_file"));
    }
    ("disk", text("device/model"))
}

/// What tells whether two paths lead to the same bytes: a file by its file system and inode, also that behind a loop device, and a disk by its
/// number. A part of it is named by the number of the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskIdentity {
    whole: (u64, u64),
    part: Option<u64>,
}

impl DiskIdentity {
    /// None if nothing is there.
    pub fn of(path: &Path) -> Option<DiskIdentity> {
        let found = path.metadata().ok()?;
        if !found.file_type().is_block_device() {
            return Some(DiskIdentity { whole: (found.dev(), found.ino()), part: None });
        }
        let number = found.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let own = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let part = own.join("partition").exists().then_some(number);
        let disk = if part.is_some() { own.join("..") } else { own };
        let behind = file_behind(number).and_then(|(file, _)| file.metadata().ok());
        let listed = std::fs::read_to_string(disk.join("dev")).ok().and_then(|number| {
            let (major, minor) = number.trim().split_once(':')?;
            Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
        });
        let whole = behind.map_or((0, listed.unwrap_or(number)), |file| (file.dev(), file.ino()));
        Some(DiskIdentity { whole, part })
    }

    /// True if what is written to one shows in the other.
    pub fn overlaps(&self, other: &DiskIdentity) -> bool {
        let is_other_part = self.part.zip(other.part).is_some_and(|(one, other)| one != other);
        self.whole == other.whole && !is_other_part
    }
}

/// The folder of an array in which the file at a path lies, or the file behind the loop device there.
pub fn folder_of_array(path: &Path) -> Option<PathBuf> {
    let found = path.metadata().ok()?;
    let is_disk = found.file_type().is_block_device();
    let file = if is_disk { file_behind(found.rdev())?.0 } else { path.to_path_buf() };
    folder_around(&file.canonicalize().unwrap_or(file)).map(Path::to_path_buf)
}

/// The refusal to overwrite what lies in this folder of an array.
pub fn file_of_array(path: &Path, folder: &Path) -> Failure {
    let message = format!("{} is a file of the array in {}", path.display(), folder.display());
    Failure::failed("file-of-array", message).hint("name a file or disk elsewhere")
}

/// Refuses a link to nothing: no file is created through it.
pub fn refuse_dangling_link(path: &Path) -> Result<(), Failure> {
    let Ok(target) = path.read_link() else { return Ok(()) };
    let is_nothing = |error| matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP));
    if !path.metadata().err().is_some_and(is_nothing) {
        return Ok(());
    }
    let (path, target) = (path.display(), target.display());
    let message = format!("{path} is a link to {target}, which does not exist: no file is created through it");
    Err(Failure::unreachable("no-such-disk", message).hint("correct the link, or name the file or disk itself"))
}

/// Refuses to create a file where files are the system's: a name there that does not exist is that of a disk that is missing, and a file
/// would be in memory.
pub fn refuse_system_folders(path: &Path) -> Result<(), Failure> {
    let absolute = std::path::absolute(path)?;
    let parent = absolute.parent().unwrap_or(Path::new("/"));
    let parent = parent.canonicalize().unwrap_or_else(|_| parent.to_path_buf());
    // The same may be mounted elsewhere, too: of another name, the type tells. For `statfs`, devtmpfs is a tmpfs.
    let mounted = parent.metadata().ok().and_then(|found| MountPoint::of_device(found.dev()).ok().flatten());
    let is_system = mounted.is_some_and(|mounted| SYSTEM_KINDS.contains(&mounted.kind.as_str()));
    let is_named = SYSTEM_FOLDERS.iter().any(|folder| parent.starts_with(folder));
    if parent.starts_with(SHARED_MEMORY) || !(is_system || is_named) {
        return Ok(());
    }
    let message =
        format!("there is no disk {}: no file is created there, since it would not be on a disk", path.display());
    Err(Failure::unreachable("no-such-disk", message).hint("`lsblk` lists the disks of this machine"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_disk_overlaps_with_itself_and_its_partitions_and_not_with_others() {
        let disk = |number, part| DiskIdentity { whole: (0, number), part };
        for (one, other, overlaps) in [
            (disk(1, None), disk(1, None), true),
            (disk(1, None), disk(1, Some(7)), true),
            (disk(1, Some(7)), disk(1, Some(7)), true),
            (disk(1, Some(7)), disk(1, Some(8)), false),
            (disk(1, None), disk(2, None), false),
        ] {
            assert_eq!((one.overlaps(&other), other.overlaps(&one)), (overlaps, overlaps), "{one:?} {other:?}");
        }
        let names =
            ["", "-link"].map(|name| std::env::temp_dir().join(format!("braid-same{name}-{}", std::process::id())));
        std::fs::write(&names[0], "some").expect("there is room");
        std::fs::hard_link(&names[0], &names[1]).expect("it is new");
        let found = names.each_ref().map(|name| DiskIdentity::of(name).expect("it is there"));
        assert!(found[0].overlaps(&found[1]) && DiskIdentity::of(Path::new("/nowhere")).is_none());
        names.iter().for_each(|name| std::fs::remove_file(name).expect("it is there"));
    }

    #[test]
    fn data_is_found_at_both_ends_and_blank_disks_are_blank() {
        let path = std::env::temp_dir().join(format!("braid-data-{}", std::process::id()));
        for (kib, at, has_data) in
            [(4096, 0, true), (4096, (4096 << 10) - 1, true), (4096, 2 << 20, false), (64, 100, true)]
        {
            let file = File::create(&path).expect("there is room");
            file.set_len(kib << 10).expect("it grows");
            assert_eq!(DiskFacts::of(&path).expect("it is a file").content, None);
            file.write_all_at(b"x", at).expect("there is room");
            let found = DiskFacts::of(&path).expect("it is a file").content;
            assert_eq!(found.is_some(), has_data, "{kib} {at}: {found:?}");
        }
        std::fs::remove_file(path).expect("it is there");
    }

    #[test]
    fn a_path_that_is_no_disk_is_refused_and_not_waited_for() {
        let pipe = std::env::temp_dir().join(format!("braid-pipe-{}", std::process::id()));
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("there is mkfifo").success());
        let hangs = answer_of(&pipe, Duration::from_millis(1), |pipe| File::open(pipe));
        assert_eq!(hangs.unwrap_err().code, "disk-hangs");
        for path in [&pipe, Path::new("/dev/null"), Path::new("/tmp")] {
            assert!(DiskFacts::of(path).unwrap_err().message.contains("neither a disk nor a file"), "{path:?}");
        }
        std::fs::remove_file(&pipe).expect("it is there");
    }

    #[test]
    fn device_files_are_not_created_among_the_files_of_the_system() {
        for (path, is_refused) in [
            ("/dev/braid-no-such-disk", true),
            ("/dev/../dev/./braid-no-such-disk", true),
            ("/dev/disk/by-braid/none", true),
            ("/proc/braid", true),
            ("/sys/braid", true),
            ("/dev/shm/file", false),
            ("/devices/file", false),
            ("relative", false),
        ] {
            let refused = refuse_system_folders(Path::new(path)).err().map(|failure| failure.code);
            assert_eq!(refused.as_deref(), is_refused.then_some("no-such-disk"), "{path}");
        }
        let link = std::env::temp_dir().join(format!("braid-link-to-dev-{}", std::process::id()));
        std::os::unix::fs::symlink("/dev", &link).expect("it is new");
        assert!(refuse_system_folders(&link.join("none")).is_err());
        std::fs::remove_file(&link).expect("it is there");
        std::fs::create_dir(&link).expect("it is new");
        let mount = |program: &str, more: &[&str]| {
            Command::new(program).args(more).arg(&link).status().is_ok_and(|status| status.success())
        };
        assert!(refuse_system_folders(&link.join("none")).is_ok());
        // Only root can mount.
        if mount("mount", &["--bind", "/proc/sys"]) {
            assert!(refuse_system_folders(&link.join("none")).is_err());
            assert!(mount("umount", &[]));
        }
        std::fs::remove_dir(&link).expect("it is there");
    }
}
