//! The interface between the server and the exports that it serves.

use bytes::Bytes;
use std::borrow::Cow;
use std::future::Future;

/// An export as clients see it in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The name. If there is only one export, clients may leave the name out.
    pub name: String,
    pub bytes: u64,
    /// A description for people, on one line; may be empty.
    pub description: String,
}

pub trait Backend: Send + Sync + 'static {
    /// An open export.
    type Volume: Volume;

    /// The exports at present.
    fn exports(&self) -> impl Future<Output = Vec<Export>> + Send;

    /// Opens the export that a client chose; none if it has been removed meanwhile.
    fn open(&self, name: &str) -> impl Future<Output = Option<Self::Volume>> + Send;
}

/// An open export. Ranges are in bytes, of any alignment, and lie within the export.
///
/// A change is durable, and visible to every client of every server, once it is acknowledged. So FUA requires nothing, and clients may
/// distribute their requests over any number of connections.
pub trait Volume: Send + Sync + 'static {
    /// Reads the bytes at `offset`, as buffers to be joined.
    fn read(&self, offset: u64, length: usize) -> impl Future<Output = Result<Vec<Bytes>, Error>> + Send;

    fn write(&self, offset: u64, data: Bytes) -> impl Future<Output = Result<(), Error>> + Send;

    /// Makes the range read as zeros.
    fn zero(&self, offset: u64, length: u64, space: Space) -> impl Future<Output = Result<(), Error>> + Send;

    /// The client does not need the content of the range any more. Partial blocks may keep theirs.
    fn trim(&self, offset: u64, length: u64) -> impl Future<Output = Result<(), Error>> + Send;

    /// Returns when all acknowledged changes are durable.
    fn flush(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// The client is gone: its requests that were not started are dropped. Those in progress end soon, successfully or not, and are not
    /// retried; requests of other clients that are made after this, and concern the same blocks, take effect after them.
    fn abandon(&self);

    /// The runs from `offset` on: how many bytes, and whether they are allocated. They may end before `length` bytes, but contain at least
    /// one byte.
    fn allocation(&self, offset: u64, length: u64) -> impl Future<Output = Result<Vec<(u64, bool)>, Error>> + Send;
}

/// What happens to the space of zeroed blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// It may be released.
    GiveBack,
    /// It stays allocated, so that a later write can't fail for want of it.
    Keep,
}

/// Why a request failed: a number for the client's kernel, and a text for its user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    /// The kind of failure.
    pub number: ErrorNumber,
    /// What happened, and what to do.
    pub text: Cow<'static, str>,
}

impl Error {
    /// A failure of this kind, with an explanation.
    pub fn new(number: ErrorNumber, text: impl Into<Cow<'static, str>>) -> Error {
        Error { number, text: text.into() }
    }
}

/// The error numbers of the protocol that this server uses.
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
    /// ESHUTDOWN: the server or its host ends. It is not sent: the connection is closed without an answer, so that a client which
    /// reconnects repeats the request.
    Shutdown = 108,
}
