//! Unix sockets at paths of any length, and who is at their other end.
//!
//! The kernel takes 107 bytes for the path of a socket. A longer one is opened relative to its folder, by way of `/proc/self/fd`.
//!
//! A socket whose file was removed is reached by nobody, and the kernel says nothing. So a [`Listener`] looks at its file every two seconds.

use crate::clock;
use bytes::BytesMut;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// The longest path that the kernel takes, in bytes, without the zero behind it.
const PATH_BYTES_MAX: usize = 107;

/// Connections that wait to be accepted. Few, because a newcomer is behind all of them, and what it sends first is kept for a second only.
const QUEUE: i32 = 32;
/// How long to wait if there are so many, and how often.
const QUEUE_FULL: Duration = Duration::from_millis(5);
const QUEUE_FULL_MAX: usize = 400;

/// How often a listener looks at the file of its socket. All look at the same moments, so that they wake a processor once.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The mode of a folder that is made again: as that of the array's sockets.
const FOLDER_MODE: u32 = 0o700;

/// A listener at a path. If the file of its socket is removed or replaced, it listens there again. Dropping it removes the file.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// The device and the number of the file.
    file: Option<(u64, u64)>,
    look: Interval,
    /// Clients that were let in before the socket was replaced.
    early: VecDeque<UnixStream>,
    /// True once a failure was logged, until it listens again.
    complained: bool,
}

impl Listener {
    /// Listens at a path. The socket of a process that has ended is replaced; a file that is no socket is not. To be called within a tokio
    /// runtime.
    pub fn bind(path: &Path) -> io::Result<Listener> {
        let socket = bind(path)?;
        let into = Duration::from_nanos(clock::now().time.0 % LOOK_EVERY.as_nanos() as u64);
        let mut look = interval_at(Instant::now() + LOOK_EVERY - into, LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Ok(Listener {
            socket,
            file: file_of(path),
            path: path.to_path_buf(),
            look,
            early: VecDeque::new(),
            complained: false,
        })
    }

    /// The next connection.
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        while self.look.poll_tick(cx).is_ready() {
            if self.file.is_none() || file_of(&self.path) != self.file {
                self.listen_again(cx);
            }
        }
        match self.early.pop_front() {
            Some(stream) => Poll::Ready(Ok(stream)),
            None => self.socket.poll_accept(cx).map(|accepted| Ok(accepted?.0)),
        }
    }

    fn listen_again(&mut self, cx: &mut Context<'_>) {
        let path = self.path.display();
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            // If it can't be made, the socket can't either.
            let _ = std::fs::DirBuilder::new().mode(FOLDER_MODE).create(folder);
        }
        match bind(&self.path) {
            Ok(socket) => {
                tracing::warn!("{path}: the socket was removed or replaced: listening there again");
                // Clients may have connected before that.
                while let Poll::Ready(Ok((stream, _))) = self.socket.poll_accept(cx) {
                    self.early.push_back(stream);
                }
                (self.socket, self.file, self.complained) = (socket, file_of(&self.path), false);
            }
            Err(error) => {
                if !std::mem::replace(&mut self.complained, true) {
                    tracing::error!("{path}: the socket was removed or replaced, and can't be made again: {error}");
                }
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if file_of(&self.path) == self.file {
            // It may be removed by another meanwhile.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A connection. The kernel tells when it can be written to only while a write waits for that: it would tell it of each message that the
/// other end has read, and wake a processor for it.
pub struct Stream {
    socket: AsyncFd<OwnedFd>,
    /// The same socket while a write waits.
    waiting: Option<AsyncFd<OwnedFd>>,
}

impl Stream {
    pub fn new(stream: UnixStream) -> io::Result<Stream> {
        let socket = registered(OwnedFd::from(stream.into_std()?), Interest::READABLE)?;
        Ok(Stream { socket, waiting: None })
    }

    /// Reads available bytes into the free capacity of `buffer`, once there are any. Returns zero at the end of the stream.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut BytesMut) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.socket.poll_read_ready(cx))?;
            buffer.reserve(1);
            let room = buffer.spare_capacity_mut();
            let length = room.len();
            match rustix::io::read(&self.socket, room).map(|(read, _)| read.len()) {
                Ok(count) => {
                    // Then there is no more, and the kernel tells when there is.
                    if (1..length).contains(&count) {
                        ready.clear_ready();
                    }
                    let filled = buffer.len() + count;
                    // SAFETY: the kernel has filled so many bytes behind those that were there.
                    #[allow(unsafe_code)]
                    unsafe {
                        buffer.set_len(filled);
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Writes as many bytes as the socket accepts, once it accepts any.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = match &self.waiting {
                Some(waiting) => Some(ready!(waiting.poll_write_ready(cx))?),
                None => None,
            };
            match rustix::io::writev(&self.socket, slices) {
                Ok(count) => {
                    if count == slices.iter().map(|slice| slice.len()).sum() {
                        self.waiting = None;
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(Errno::AGAIN) => match &mut ready {
                    Some(ready) => ready.clear_ready(),
                    None => {
                        let same = rustix::io::fcntl_dupfd_cloexec(&self.socket, 0)?;
                        self.waiting = Some(registered(same, Interest::WRITABLE)?);
                    }
                },
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

/// Has the runtime tell when a file is ready for this.
pub(crate) fn registered(file: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned, and always the same.
    #[allow(unsafe_code)]
    let registered = unsafe { AsyncFd::register_with_interest(file, interest) };
    Ok(registered?)
}

/// What distinguishes a file from another one that takes its name later.
fn file_of(path: &Path) -> Option<(u64, u64)> {
    let facts = std::fs::symlink_metadata(path).ok()?;
    Some((facts.dev(), facts.ino()))
}

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

fn bind(path: &Path) -> io::Result<UnixListener> {
    let reachable = reachable(path)?;
    let listener = match UnixListener::bind(&reachable.path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_over(path, &reachable) => {
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
fn is_left_over(path: &Path, reachable: &Reachable) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    // A process whose queue is full is not waited for.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let connected = SocketAddrUnix::new(&reachable.path).and_then(|address| {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &address)
    });
    is_socket && connected == Err(Errno::CONNREFUSED)
}
