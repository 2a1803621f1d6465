//! `/dev/fuse`: each read is one request, each write one answer or notification.

use crate::decode::DecodeError;
use crate::encode::{Frame, Reply};
use crate::negotiation::IO_BYTES_MAX;
use braid_base::InodeId;
use braid_shell::{Account, Budget, Charge, Warning};
use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::yield_now;

/// The room that the kernel demands beside the data of a write.
const HEADERS_BYTES_MAX: usize = 4096;
const BUFFER_BYTES: usize = IO_BYTES_MAX + HEADERS_BYTES_MAX;
/// Shorter requests are copied out of the buffer. Longer ones take the buffer with them.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// How long after a request the next one is looked for, instead of sleeping, if requests come as quickly one after the other: being woken on
/// another processor takes longer than most requests, which are answered from memory.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// The end of the mount is reported as an error.
const EVENTS: Interest = Interest::READABLE.add(Interest::ERROR);

static REFUSED: LazyLock<Warning> = LazyLock::new(Warning::default);

/// The open device of one mount.
#[derive(Debug)]
pub struct Device(AsyncFd<Arc<OwnedFd>>);

/// Receives requests. If its future is dropped, no request is lost.
#[derive(Debug)]
pub struct Receiver {
    buffer: Vec<u8>,
    /// Long requests are charged to the process's memory budget, without a limit: the kernel limits how many it sends before it has answers.
    account: Account,
    /// When the last request came, and whether it came soon after the one before.
    last: Instant,
    is_quick: bool,
}

impl Default for Receiver {
    fn default() -> Receiver {
        let account = Account::new(Budget::process());
        Receiver { buffer: Vec::new(), account, last: Instant::now(), is_quick: false }
    }
}

/// The buffer of a long request.
struct Kept {
    buffer: Vec<u8>,
    _charge: Charge,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Device {
    /// Must be called in a tokio runtime. The descriptor does not block.
    pub fn new(fd: Arc<OwnedFd>) -> io::Result<Device> {
        // SAFETY: the descriptor is owned, and never replaced: it is open, and the same, until it is deregistered.
        #[allow(unsafe_code)]
        let fd = unsafe { AsyncFd::register_with_interest(fd, EVENTS) }?;
        Ok(Device(fd))
    }

    /// Tells the kernel of this mount to drop what it has cached.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(self.0.get_ref())
    }

    /// Answers a request. The kernel may have forgotten it, because its mount has ended.
    pub fn answer(&self, unique: u64, reply: Reply) {
        let is_error = matches!(reply, Reply::Error(_));
        match write(self.0.get_ref(), &Frame::answer(unique, reply)) {
            Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => {}
            Err(error) => {
                REFUSED.say(|| format!("the kernel refuses an answer: {error}"));
                if !is_error {
                    // The program that waits for the answer must not wait for ever.
                    let _ = write(self.0.get_ref(), &Frame::answer(unique, Reply::Error(Errno::IO)));
                }
            }
        }
    }
}

impl Receiver {
    /// The next request; none when the mount has ended.
    pub async fn receive(&mut self, device: &Device) -> io::Result<Option<Bytes>> {
        let buffer = &mut self.buffer;
        let mut read = |fd: &Arc<OwnedFd>| loop {
            buffer.clear();
            buffer.reserve(BUFFER_BYTES);
            match rustix::io::read(fd, spare_capacity(buffer)) {
                // ENOENT: the request was withdrawn while it was read.
                Err(Errno::INTR | Errno::NOENT) => {}
                received => return received.map_err(io::Error::from),
            }
        };
        let received = loop {
            if !self.is_quick || self.last.elapsed() > LOOK_AGAIN {
                break device.0.async_io(EVENTS, read).await;
            }
            match read(device.0.get_ref()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => yield_now().await,
                received => break received,
            }
        };
        self.is_quick = self.last.elapsed() <= 2 * LOOK_AGAIN;
        self.last = Instant::now();
        match received.map_err(|error| Errno::from_io_error(&error).ok_or(error)) {
            Ok(_) => Ok(Some(self.take())),
            Err(Ok(Errno::NODEV | Errno::CONNABORTED)) => Ok(None),
            Err(Ok(error)) => Err(error.into()),
            Err(Err(error)) => Err(error),
        }
    }

    fn take(&mut self) -> Bytes {
        if self.buffer.len() <= COPIED_BYTES_MAX {
            Bytes::copy_from_slice(&self.buffer)
        } else {
            let buffer = std::mem::take(&mut self.buffer);
            let _charge = self.account.charge(buffer.capacity());
            Bytes::from_owner(Kept { buffer, _charge })
        }
    }
}

/// Tells the kernel to drop what it has cached. It is usable from any thread, also while the mount is served.
#[derive(Clone, Debug)]
pub struct Notifier(Weak<OwnedFd>);

impl Notifier {
    /// It does not keep the device open.
    pub(crate) fn new(fd: &Arc<OwnedFd>) -> Notifier {
        Notifier(Arc::downgrade(fd))
    }

    /// Drops the attributes of an inode, which never waits, and with a range (a length of zero: to the end) the pages of these bytes.
    /// That waits for requests that concern these pages: therefore don't call it from the thread that serves the mount.
    pub fn invalidate_inode(&self, inode: InodeId, pages: Option<(u64, u64)>) -> io::Result<()> {
        let (offset, length) = match pages {
            None => (-1, 0),
            Some((offset, length)) => {
                (i64::try_from(offset).unwrap_or(i64::MAX), i64::try_from(length).unwrap_or(i64::MAX))
            }
        };
        self.notify(&Frame::invalidate_inode(inode, offset, length))
    }

    /// Makes a file at least so long for the kernel, by its last byte. It waits as [`Notifier::invalidate_inode`] does.
    pub fn lengthen(&self, inode: InodeId, size: u64, last: u8) -> io::Result<()> {
        self.notify(&Frame::store_byte(inode, size - 1, last))
    }

    /// True if the kernel has sent requests that are not received yet.
    pub fn has_requests(&self) -> bool {
        let Some(fd) = self.0.upgrade() else { return false };
        let mut look = [PollFd::new(&*fd, PollFlags::IN)];
        poll(&mut look, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    fn notify(&self, frame: &Frame) -> io::Result<()> {
        let Some(fd) = self.0.upgrade() else { return Ok(()) };
        match write(&fd, frame) {
            // The kernel has nothing cached, or the mount has ended.
            Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => Ok(()),
            written => written.map_err(io::Error::from),
        }
    }
}

fn write(fd: &OwnedFd, frame: &Frame) -> Result<(), Errno> {
    let written = loop {
        match rustix::io::writev(fd, &frame.slices()) {
            Err(Errno::INTR) => {}
            written => break written?,
        }
    };
    assert_eq!(written, frame.len(), "the kernel takes an answer as a whole");
    Ok(())
}

/// Reports a request that is malformed, which is a defect of the kernel or of the codec.
pub fn report(error: &DecodeError) {
    REFUSED.say(|| error.to_string());
}
