//! Unix sockets at paths of any length, and who is at their other end.
//!
//! The kernel takes 107 bytes for the path of a socket. A longer one is opened relative to its folder, by way of `/proc/self/fd`.

use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};

/// The longest path that the kernel takes, in bytes, without the zero behind it.
const PATH_BYTES_MAX: usize = 107;

/// Connections that wait to be accepted. Few, because a newcomer is behind all of them, and what it sends first is kept for a second only.
const QUEUE: i32 = 32;
/// How long to wait if there are so many, and how often.
const QUEUE_FULL: Duration = Duration::from_millis(5);
const QUEUE_FULL_MAX: usize = 400;

/// A path by which the kernel finds a socket, while its folder is held open.
struct Reachable {
    path: PathBuf,
    _folder: Option<OwnedFd>,
}

fn reachable(path: &Path) -> io::Result<Reachable> {
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return Ok(Reachable { path: path.to_path_buf(), _folder: None });
    }
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    Ok(Reachable { path, _folder: Some(folder) })
}

/// Listens at a path. The socket of a process that has ended is replaced; a file that is no socket is not.
pub async fn bind(path: &Path) -> io::Result<UnixListener> {
    let reachable = reachable(path)?;
    let listener = match UnixListener::bind(&reachable.path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_over(path).await => {
            std::fs::remove_file(path)?;
            UnixListener::bind(&reachable.path)
        }
        bound => bound,
    }?;
    rustix::net::listen(&listener, QUEUE)?;
    Ok(listener)
}

/// Connects to the socket at a path. Waits while its queue of newcomers is full.
pub async fn connect(path: &Path) -> io::Result<UnixStream> {
    let reachable = reachable(path)?;
    for _ in 0..QUEUE_FULL_MAX {
        match UnixStream::connect(&reachable.path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(QUEUE_FULL).await,
            connected => return connected,
        }
    }
    let waiting = "too many processes wait to be let in: is one of them connecting again and again?";
    Err(io::Error::new(io::ErrorKind::TimedOut, waiting))
}

/// True if the process at the other end belongs to root, or to the user of this one.
pub fn is_of_our_user(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == own)
}

/// True if the socket's file exists and no process listens on it.
async fn is_left_over(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    is_socket && matches!(connect(path).await, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}
