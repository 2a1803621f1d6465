//! Mounting, and serving what is mounted. Root uses the system calls, others the program `fusermount3` of libfuse (`fusermount`).

use crate::device::Device;
use crate::mount_points::{MountPoint, is_dead, resolve, source};
use crate::session::serve;
use crate::unmounting::{Method, detach};
use crate::{HostFiles, ServeError, fusermount};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::process::{getegid, geteuid};
use std::ffi::CString;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

const DEVICE: &str = "/dev/fuse";
/// How long programs may go on to use their files after the file system is unmounted. After that, they get errors.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(5);
/// How many mounts of processes that are gone are taken off a directory.
const DEAD_MOUNTS_MAX: usize = 16;

/// Mounts a file system on an empty directory, under this name. Programs that use it wait until it runs. What a process that is gone had
/// mounted there under the same name is unmounted first.
pub fn mount(directory: &Path, name: &str, file_system: HostFiles) -> Result<Mount, MountError> {
    let attachment = attach(Method::of_this_process(), directory, name)?;
    Ok(Mount { attachment, file_system })
}

/// Finds out whether [`mount`] is likely to succeed, without mounting anything.
pub fn check(directory: &Path, name: &str) -> Result<PathBuf, MountError> {
    if !Path::new(DEVICE).exists() {
        return Err(MountError::NoDevice { source: io::ErrorKind::NotFound.into() });
    }
    checked(Method::of_this_process(), directory, name)
}

/// A file system that is mounted. It is unmounted when this is dropped.
#[derive(Debug)]
pub struct Mount {
    attachment: Attachment,
    file_system: HostFiles,
}

/// Why a file system can't be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("can't open {DEVICE}: does this kernel have FUSE (`modprobe fuse`), and this container the device?")]
    NoDevice { source: io::Error },
    #[error("there is no directory {}: create it first", directory.display())]
    NoDirectory { directory: PathBuf },
    #[error("{} is not a directory: name a directory", directory.display())]
    NotADirectory { directory: PathBuf },
    #[error("something is mounted on {} already: unmount it, or name another directory", directory.display())]
    InUse { directory: PathBuf },
    #[error("{} is not empty: what it contains could not be seen", directory.display())]
    NotEmpty { directory: PathBuf },
    #[error("the process that served {mounted} on {} is gone: unmount it by `umount -l`", directory.display())]
    Dead { directory: PathBuf, mounted: String },
    #[error("`{name}` can't be the name of a mount: use letters, digits, `.`, `_`, `-` and `@`")]
    InvalidName { name: String },
    #[error("mounting is not permitted: it needs CAP_SYS_ADMIN")]
    NotPermitted,
    #[error("the program fusermount3 is not installed: install the package fuse3, or mount as root")]
    NoFusermount,
    #[error("fusermount3 refuses: {text}")]
    Fusermount { text: String },
    #[error("can't mount on {}", directory.display())]
    Io { directory: PathBuf, source: io::Error },
}

/// The connection between the directory and the kernel's device.
#[derive(Debug)]
struct Attachment {
    /// None after the end.
    fd: Option<Arc<OwnedFd>>,
    directory: PathBuf,
    method: Method,
    is_mounted: bool,
}

impl Mount {
    /// The directory, without symbolic links.
    pub fn directory(&self) -> &Path {
        &self.attachment.directory
    }

    /// Serves the file system until it is unmounted, by anybody. When `stop` completes, it is unmounted: programs may go on to use files
    /// that they have open, but only for some seconds.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Mount { mut attachment, file_system } = self;
        let device = Device::new(attachment.fd().clone())?;
        let directory = attachment.directory.clone();
        let mut serving = std::pin::pin!(serve(&device, &directory, &file_system));
        tokio::select! {
            ended = &mut serving => {
                attachment.is_mounted = ended.is_err();
                return ended;
            }
            () = stop => {}
        }
        // Unmounting may ask the file system, which this task serves meanwhile.
        let (method, directory) = (attachment.method, attachment.directory.clone());
        let unmounting = tokio::task::spawn_blocking(move || detach(method, &directory, true));
        let both = async {
            let (unmounted, ended) = tokio::join!(unmounting, &mut serving);
            ended.map(|()| unmounted)
        };
        match timeout(UNMOUNT_TIMEOUT, both).await {
            Ok(ended) => {
                attachment.is_mounted = false;
                ended.map(|_| ())
            }
            // The device is closed now, which ends all requests.
            Err(_) => Ok(()),
        }
    }
}

impl Attachment {
    fn fd(&self) -> &Arc<OwnedFd> {
        self.fd.as_ref().expect("it is open until it is dropped")
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // With the device closed, nobody waits for answers.
        self.fd = None;
        if self.is_mounted
            && let Err(error) = detach(self.method, &self.directory, true)
        {
            tracing::debug!("can't unmount {}: {error}", self.directory.display());
        }
    }
}

fn attach(method: Method, directory: &Path, name: &str) -> Result<Attachment, MountError> {
    let directory = checked(method, directory, name)?;
    let fd = match method {
        Method::SystemCalls => by_system_calls(&directory, &source(name))?,
        Method::Fusermount => fusermount::mount(&directory, &fusermount_options(&source(name)))?,
    };
    Ok(Attachment { fd: Some(Arc::new(fd)), directory, method, is_mounted: true })
}

/// The path of the directory without symbolic links, if something can be mounted there.
fn checked(method: Method, directory: &Path, name: &str) -> Result<PathBuf, MountError> {
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "._-@".contains(sign);
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(MountError::InvalidName { name: name.to_string() });
    }
    let named = || directory.to_path_buf();
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => MountError::NoDirectory { directory: named() },
        io::ErrorKind::NotADirectory => MountError::NotADirectory { directory: named() },
        _ => MountError::Io { directory: named(), source: error },
    };
    let found = resolve(directory).map_err(failed)?;
    for _ in 0..DEAD_MOUNTS_MAX {
        let Some(mounted) = MountPoint::at(&found).map_err(failed)? else { break };
        if !mounted.is_ours() || !is_dead(&found) {
            return Err(MountError::InUse { directory: named() });
        }
        if mounted.source != source(name) {
            return Err(MountError::Dead { directory: named(), mounted: mounted.source });
        }
        detach(method, &found, true).map_err(failed)?;
    }
    if std::fs::read_dir(&found).map_err(failed)?.next().is_some() {
        return Err(MountError::NotEmpty { directory: named() });
    }
    Ok(found)
}

fn by_system_calls(directory: &Path, source: &str) -> Result<OwnedFd, MountError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = rustix::fs::open(DEVICE, flags, Mode::empty())
        .map_err(|error| MountError::NoDevice { source: error.into() })?;
    let options = CString::new(system_call_options(fd.as_raw_fd())).expect("it has no zero byte");
    rustix::mount::mount(source, directory, "fuse.braid", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())
        .map_err(|error| match error {
        Errno::PERM => MountError::NotPermitted,
        Errno::NODEV => MountError::NoDevice { source: error.into() },
        _ => MountError::Io { directory: directory.to_path_buf(), source: error.into() },
    })?;
    Ok(fd)
}

/// The options of every mount: the kernel checks permissions.
const OPTIONS: &str = "default_permissions";

/// The options of a mount by system calls. Root mounts for all users.
fn system_call_options(fd: RawFd) -> String {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    format!("fd={fd},rootmode=40000,user_id={user},group_id={group},{OPTIONS},allow_other")
}

/// The options of a mount by `fusermount3`, which adds those of the system call. It is for the user alone: `allow_other` would need a line in
/// `/etc/fuse.conf`.
fn fusermount_options(source: &str) -> String {
    format!("fsname={source},subtype=braid,{OPTIONS}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_unmounted_when_it_is_dropped() {
        let directory = std::env::temp_dir().join(format!("braid-fusermount-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("it is new");
        for name in ["", "a,b", "a b", "a\n", "ä"] {
            let refused = attach(Method::SystemCalls, &directory, name);
            assert!(matches!(refused, Err(MountError::InvalidName { .. })), "{name}");
        }
        match attach(Method::SystemCalls, &directory, "test") {
            Err(error @ (MountError::NoDevice { .. } | MountError::NotPermitted)) => eprintln!("skipped: {error}"),
            // It never ran.
            mounted => drop(mounted.expect("it is mounted")),
        }
        match attach(Method::Fusermount, &directory, "test") {
            Err(MountError::NoFusermount) => eprintln!("skipped: fusermount3 is not installed"),
            Err(MountError::Fusermount { text }) if !Path::new(DEVICE).exists() => eprintln!("skipped: {text}"),
            mounted => {
                let mounted = mounted.expect("it is mounted");
                let mounts = std::fs::read_to_string("/proc/self/mounts").expect("it can be read");
                let own = format!("braid:test {} fuse.braid ", directory.display());
                assert!(mounts.contains(&own), "{mounts}");
                drop(mounted);
                let missing = fusermount::mount(&directory.join("nowhere"), &fusermount_options("braid:test"));
                assert!(matches!(missing, Err(MountError::Fusermount { text }) if text.contains("nowhere")));
            }
        }
        std::fs::remove_dir(&directory).expect("nothing is mounted");
    }
}
