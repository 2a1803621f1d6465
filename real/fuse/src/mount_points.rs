//! The mounts of this machine, as the kernel lists them. Nothing here asks the process behind a mount, which may be gone or suspended;
//! only [`is_dead`] does, with a time limit.

use braid_base::ArrayId;
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

const PROCESSES: &str = "/proc";
const OWN: &str = "self";
const LIST: &str = "mountinfo";
/// The type of mounts of file systems of arrays.
const KIND: &str = "fuse.braid";
/// What the sources of mounts begin with. The name follows.
const SOURCE_PREFIX: &str = "braid:";
/// How long the process behind a mount may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    pub directory: PathBuf,
    /// The number of the file system, which is `st_dev` of its files.
    pub device: u64,
    /// The type, such as `ext4` or `fuse.braid`.
    pub kind: String,
    /// What is mounted: a disk, or `braid:NAME`.
    pub source: String,
}

impl MountPoint {
    /// What is mounted on a directory, which is a path without symbolic links. If several things are, the one on top.
    pub fn at(directory: &Path) -> io::Result<Option<MountPoint>> {
        Ok(topmost(&list_of(OWN.as_ref())?, directory))
    }

    /// A mount of the file system with this device number. If this process sees none, one that another process sees, in its own namespace:
    /// its files can be reached through `/proc`.
    pub fn of_device(device: u64) -> io::Result<Option<MountPoint>> {
        if let Some(found) = of_device(&list_of(OWN.as_ref())?, device) {
            return Ok(Some(found));
        }
        let processes = std::fs::read_dir(PROCESSES)?.flatten().map(|entry| entry.file_name());
        let mut lists =
            processes.filter(|name| name.as_bytes()[0].is_ascii_digit()).filter_map(|name| list_of(&name).ok());
        Ok(lists.find_map(|list| of_device(&list, device)))
    }

    /// The mounts of an array's file systems that this process sees.
    pub fn of_array(array: ArrayId) -> io::Result<Vec<MountPoint>> {
        Ok(of_array(&list_of(OWN.as_ref())?, array))
    }

    /// True if it is a file system of an array.
    pub fn is_ours(&self) -> bool {
        self.kind == KIND
    }

    /// True if the process behind it is gone. A process that does not answer is not.
    pub fn is_dead(&self) -> bool {
        is_dead(&self.directory)
    }

    /// The name of the mount, if it is a file system of an array.
    pub fn name(&self) -> Option<&str> {
        self.source.strip_prefix(SOURCE_PREFIX).filter(|_| self.is_ours())
    }
}

/// The name of the mounts of a file system, as `df` and `mount` show it behind `braid:`. File systems of several arrays may have the same
/// name, so the beginning of the array's identity follows.
pub fn mount_name(file_system: &str, array: ArrayId) -> String {
    let array = array.to_string();
    format!("{file_system}@{}", array.split('-').next().unwrap_or_default())
}

/// What the kernel lists as the source of a mount.
pub fn source(name: &str) -> String {
    format!("{SOURCE_PREFIX}{name}")
}

/// The path of a directory without symbolic links. What is mounted there is not asked.
pub fn resolve(directory: &Path) -> io::Result<PathBuf> {
    if let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let found = parent.canonicalize()?.join(name);
        if MountPoint::at(&found)?.is_some() {
            return Ok(found);
        }
    }
    directory.canonicalize()
}

/// The same of what is mounted on a directory.
pub fn is_dead(directory: &Path) -> bool {
    let (tell, told) = mpsc::channel();
    let directory = directory.to_path_buf();
    // A suspended process may answer later, or never: the thread must not keep this one waiting.
    std::thread::spawn(move || {
        let found = rustix::fs::statx(CWD, &directory, AtFlags::empty(), StatxFlags::TYPE);
        // After the time limit nobody listens.
        let _ = tell.send(matches!(found, Err(Errno::NOTCONN)));
    });
    told.recv_timeout(ANSWER_WAIT).unwrap_or(false)
}

/// What a process sees.
fn list_of(process: &OsStr) -> io::Result<Vec<u8>> {
    std::fs::read(Path::new(PROCESSES).join(process).join(LIST))
}

fn of_device(list: &[u8], device: u64) -> Option<MountPoint> {
    list.split(|byte| *byte == b'\n').filter_map(parse).find(|mounted| mounted.device == device)
}

fn of_array(list: &[u8], array: ArrayId) -> Vec<MountPoint> {
    let ending = mount_name("", array);
    let is_its = |mounted: &MountPoint| mounted.name().is_some_and(|name| name.ends_with(&ending));
    list.split(|byte| *byte == b'\n').filter_map(parse).filter(is_its).collect()
}

/// The last mount on a directory in the kernel's list: `ID PARENT DEVICE ROOT DIRECTORY OPTIONS … - TYPE SOURCE OPTIONS`.
fn topmost(list: &[u8], directory: &Path) -> Option<MountPoint> {
    let lines = list.split(|byte| *byte == b'\n').rev();
    lines.filter_map(parse).find(|mounted| mounted.directory == directory)
}

fn parse(line: &[u8]) -> Option<MountPoint> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (major, minor) = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let device = makedev(major.parse().ok()?, minor.parse().ok()?);
    let directory = PathBuf::from(OsString::from_vec(unescaped(fields.nth(1)?)));
    fields.find(|field| *field == b"-")?;
    let mut text = || Some(String::from_utf8_lossy(&unescaped(fields.next()?)).into_owned());
    Some(MountPoint { directory, device, kind: text()?, source: text()? })
}

/// The kernel writes some bytes as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_kernels_list_is_read() {
        let list = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            40 22 0:44 / /a\\040b rw,nosuid shared:7 master:2 - fuse.braid braid:one rw,user_id=0\n\
            41 40 0:45 / /a\\040b rw - fuse.braid braid:two rw\n\
            42 22 0:46 / /c rw - fuse.braid braid:home@07070707 rw\n\
            43 22 0:47 / /d rw - fuse.braid braid:home@08080808 rw\n\
            damaged line\n";
        let found = topmost(list, Path::new("/a b")).expect("it is listed");
        assert_eq!((found.source.as_str(), found.is_ours()), ("braid:two", true));
        assert_eq!(topmost(list, Path::new("/")).map(|found| found.kind), Some("ext4".to_string()));
        assert_eq!(topmost(list, Path::new("/a")), None);
        assert_eq!(of_device(list, makedev(0, 44)).map(|found| found.source), Some("braid:one".to_string()));
        assert_eq!(of_device(list, makedev(0, 48)), None);
        let of = of_array(list, ArrayId([7; 16]));
        let of: Vec<_> = of.iter().map(|found| (found.directory.as_path(), found.name())).collect();
        assert_eq!(of, [(Path::new("/c"), Some("home@07070707"))]);
        assert_eq!(unescaped(br"a\134\04"), br"a\\04");
    }

    #[test]
    fn a_path_is_resolved_up_to_what_is_mounted_there() {
        assert_eq!(resolve(Path::new("/proc")).expect("it exists"), Path::new("/proc"));
        assert_eq!(resolve(Path::new("/proc/../proc/.")).expect("it exists"), Path::new("/proc"));
        assert!(!is_dead(Path::new("/proc")));
        let device = std::fs::metadata("/proc").expect("it exists").dev();
        let found = MountPoint::of_device(device).expect("it is listed");
        assert_eq!(found.map(|found| found.kind), Some("proc".to_string()));
    }
}
