//! What the server serves: the seam between the protocol and a host of the array.

use bytes::Bytes;
use std::borrow::Cow;
use std::future::Future;

/// A volume as a client sees it in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name. Where there is one export only, clients may leave the name out.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// A line for people; may be empty.
    pub description: String,
}

/// Where exports come from.
pub trait Backend: Send + Sync + 'static {
    /// What an export opens as.
    type Volume: Volume;

    /// What there is to serve now.
    fn exports(&self) -> impl Future<Output = Vec<Export>> + Send;

    /// Opens the export that a client chose; none if it has gone meanwhile.
    fn open(&self, name: &str) -> impl Future<Output = Option<Self::Volume>> + Send;
}

/// An open export. Ranges are in bytes, of any alignment, and lie within the export.
///
/// Whatever changes a volume is durable and visible to every client of every server once it is answered. So FUA needs
/// nothing, and clients may spread their requests over as many connections as they like.
pub trait Volume: Send + Sync + 'static {
    /// Buffers that, joined, are the bytes at `offset`.
    fn read(&self, offset: u64, length: usize) -> impl Future<Output = Result<Vec<Bytes>, Error>> + Send;

    /// Writes the bytes at `offset`.
    fn write(&self, offset: u64, data: Bytes) -> impl Future<Output = Result<(), Error>> + Send;

    /// Makes the range read as zeros.
    fn zero(&self, offset: u64, length: u64, space: Space) -> impl Future<Output = Result<(), Error>> + Send;

    /// The client needs the range's content no more. Parts of blocks may keep theirs.
    fn trim(&self, offset: u64, length: u64) -> impl Future<Output = Result<(), Error>> + Send;

    /// Ends when everything answered before is durable.
    fn flush(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// The client is gone: what it asked for and is not begun is not begun any more. What is under way ends soon, in whatever way, and is
    /// not begun anew; requests of others that are made after this, and touch the same blocks, happen after it.
    fn abandon(&self);

    /// Runs from `offset` on: how many bytes, and whether they are allocated. May stop short of `length`, but not
    /// before the first byte.
    fn allocation(&self, offset: u64, length: u64) -> impl Future<Output = Result<Vec<(u64, bool)>, Error>> + Send;
}

/// What becomes of the space under zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// It may be given back.
    GiveBack,
    /// It stays allocated, so that a later write can't fail for want of it.
    Keep,
}

/// Why a request failed: a number for the client's kernel, and a text for its user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    /// What kind of failure.
    pub number: ErrorNumber,
    /// What happened, and what to do.
    pub text: Cow<'static, str>,
}

impl Error {
    /// A failure of this kind, explained.
    pub fn new(number: ErrorNumber, text: impl Into<Cow<'static, str>>) -> Error {
        Error { number, text: text.into() }
    }
}

/// The kinds of failure that the protocol knows and this server uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ErrorNumber {
    /// EPERM.
    NotPermitted = 1,
    /// EIO.
    Io = 5,
    /// ENOMEM.
    NoMemory = 12,
    /// EINVAL.
    Invalid = 22,
    /// ENOSPC.
    NoSpace = 28,
    /// ENOTSUP.
    NotSupported = 95,
    /// ESHUTDOWN.
    Shutdown = 108,
}
