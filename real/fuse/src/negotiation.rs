//! The first request, INIT: version of the protocol, features, and sizes.
//!
//! Requested are advisory locks of both kinds, so that they hold between hosts; truncation by open; read-ahead for what the kernel caches
//! (see `kernel_cache`); and requests of up to 1 MiB. Not requested are, above all, the kernel's write-back cache, and READDIRPLUS. Without HANDLE_KILLPRIV the kernel itself
//! removes the set-user-ID bits when a file gets another owner or size; a request to write says whether they are to be removed. Without
//! DIRECT_IO_ALLOW_MMAP it refuses shared mappings. Without ASYNC_READ, read-ahead is not in the background: there it could wait, with its
//! pages locked, behind direct writes that themselves wait for these pages to be dropped.

use crate::abi::{InitOut, MAJOR, MINOR_MAX, MINOR_MIN, feature};

/// The most bytes that a request reads or writes.
pub const IO_BYTES_MAX: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;
/// Requests of asynchronous I/O that the kernel has under way at once.
const BACKGROUND_MAX: u16 = 64;

const FEATURES: u32 = feature::POSIX_LOCKS
    | feature::FLOCK_LOCKS
    | feature::ATOMIC_O_TRUNC
    | feature::BIG_WRITES
    | feature::AUTO_INVAL_DATA
    | feature::ASYNC_DIO
    | feature::PARALLEL_DIROPS
    | feature::MAX_PAGES;
/// Without these, locks would hold on one host only.
const NEEDED: u32 = feature::POSIX_LOCKS | feature::FLOCK_LOCKS;

/// The answer to INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Negotiated {
    /// The kernel speaks another major version, and asks again with ours.
    AskAgain(InitOut),
    Agreed(InitOut),
}

/// The kernel is too old, or lacks a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kernel's FUSE protocol {major}.{minor} (features {flags:#x}) is too old: Linux 5.4 is needed")]
pub struct Unsupported {
    pub major: u32,
    pub minor: u32,
    pub flags: u32,
}

pub fn negotiate(major: u32, minor: u32, flags: u32) -> Result<Negotiated, Unsupported> {
    let ours = InitOut { major: MAJOR, minor: MINOR_MAX, ..InitOut::default() };
    if major > MAJOR {
        return Ok(Negotiated::AskAgain(ours));
    }
    if major < MAJOR || minor < MINOR_MIN || flags & NEEDED != NEEDED {
        return Err(Unsupported { major, minor, flags });
    }
    Ok(Negotiated::Agreed(InitOut {
        minor: minor.min(MINOR_MAX),
        flags: flags & FEATURES,
        max_readahead: IO_BYTES_MAX as u32,
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_MAX / 4 * 3,
        max_write: IO_BYTES_MAX as u32,
        // Times are exact to the nanosecond.
        time_gran: 1,
        max_pages: (IO_BYTES_MAX / PAGE_BYTES) as u16,
        ..ours
    }))
}
