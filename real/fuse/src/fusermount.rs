//! Mounting without privileges, by the program `fusermount3` of libfuse, which has them. It opens the device, mounts it, and passes its
//! descriptor on through a socket, whose number it finds in an environment variable. Here the socket is its standard input.

use crate::MountError;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = "fusermount3";
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";
const STANDARD_INPUT: &str = "0";
/// How long the program may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of its error message that are shown.
const TEXT_BYTES_MAX: u64 = 4096;

/// Mounts on a directory with these options, and returns the device.
pub fn mount(directory: &Path, options: &str) -> Result<OwnedFd, MountError> {
    let failed = |source: io::Error| MountError::Io { directory: directory.to_path_buf(), source };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    ours.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    let mut child = start(directory, options, theirs)?;
    let received = receive(&ours);
    if matches!(received, Err(Errno::AGAIN)) {
        // A program that has ended meanwhile can't be ended.
        let _ = child.kill();
    }
    let mut text = String::new();
    if let Some(stderr) = child.stderr.take() {
        // What can't be read is not shown.
        let _ = stderr.take(TEXT_BYTES_MAX).read_to_string(&mut text);
    }
    child.wait().map_err(failed)?;
    match received.map_err(|error| failed(error.into()))? {
        Some(fd) => {
            let flags = rustix::fs::fcntl_getfl(&fd).map_err(|error| failed(error.into()))?;
            rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK).map_err(|error| failed(error.into()))?;
            Ok(fd)
        }
        None => Err(MountError::Fusermount { text: text.trim().to_string() }),
    }
}

/// Unmounts a directory; `lazily`, if programs use it, too.
pub fn unmount(directory: &Path, lazily: bool) -> io::Result<()> {
    let lazily = lazily.then_some("-z");
    let ended = Command::new(PROGRAM).arg("-u").args(lazily).arg("--").arg(directory).output()?;
    if ended.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&ended.stderr);
    // It says no more than the text of the kernel's error.
    Err(match text.contains("busy") {
        true => Errno::BUSY.into(),
        false => io::Error::other(format!("{PROGRAM} refuses: {}", text.trim())),
    })
}

/// The program has the only other end of the socket: when it ends without a word, receiving ends.
fn start(directory: &Path, options: &str, socket: UnixStream) -> Result<Child, MountError> {
    let mut command = Command::new(PROGRAM);
    command.args(["-o", options, "--"]).arg(directory);
    command.env(SOCKET_VARIABLE, STANDARD_INPUT).stdin(OwnedFd::from(socket)).stderr(Stdio::piped());
    command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => MountError::NoFusermount,
        _ => MountError::Io { directory: directory.to_path_buf(), source },
    })
}

/// The descriptor that the program passes on; none if it ends without.
fn receive(socket: &UnixStream) -> Result<Option<OwnedFd>, Errno> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    let mut byte = [0];
    loop {
        let buffers = &mut [IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(socket, buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => {
                received?;
                break;
            }
        }
    }
    let rights = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(rights)
}
