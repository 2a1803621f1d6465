//! The loop that serves one mount. Requests run side by side, in the task of the caller, and are answered when they end.
//!
//! The loop receives no further request while too many, or too much data, are in flight: the kernel queues them. Requests for locks may
//! wait for long, and for requests that come later. So they are not counted; beyond a limit of their own they fail.

use crate::decode::{Operation, Request, decode};
use crate::device::{Device, Receiver, report};
use crate::encode::Reply;
use crate::interruption::Interruption;
use crate::kernel_cache::KernelCache;
use crate::lock_owners::LockOwners;
use crate::negotiation::{Negotiated, Unsupported, negotiate};
use crate::serving::Serving;
use crate::{Caller, FileSystem};
use braid_base::InodeId;
use braid_wire::Owner;
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;

/// Requests in flight, locks aside. A signal to a program whose request is in flight is not seen while there are this many.
const REQUESTS_MAX: usize = 1024;
/// Bytes that requests in flight hold or will hold. The last request may exceed it.
const BYTES_MAX: usize = 256 << 20;
/// Requests that wait for locks.
const LOCK_WAITS_MAX: usize = 4096;

/// Why a mount can't be served any more.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    #[error("can't receive requests from the kernel: is the mount damaged? Unmount it")]
    Io(#[from] io::Error),
}

/// Serves a mount until it ends.
pub async fn serve<F: FileSystem>(device: &Device, file_system: &F) -> Result<(), ServeError> {
    let kernel = KernelCache::new(device.notifier());
    let serving = Serving { file_system, owners: LockOwners::default(), kernel: &kernel };
    let mut coherence = std::pin::pin!(file_system.keep_coherent(&kernel));
    let mut receiver = Receiver::default();
    let mut session = Session::default();
    let mut running = FuturesUnordered::new();
    loop {
        let received = tokio::select! {
            biased;
            Some(unique) = running.next(), if !running.is_empty() => {
                session.end(unique);
                continue;
            }
            never = &mut coherence => match never {},
            received = receiver.receive(device), if session.may_receive() => received?,
        };
        let Some(bytes) = received else { return Ok(()) };
        let Some((request, by)) = session.take(device, &bytes)? else { continue };
        let serving = &serving;
        running.push(async move {
            let Request { header, operation } = request;
            let (unique, inode) = (header.unique, InodeId(header.nodeid));
            let fills = matches!(operation, Operation::Read { for_pages: true, .. });
            device.answer(unique, serving.serve(&by, inode, unique, operation).await);
            if fills {
                serving.kernel.end(inode, unique);
            }
            unique
        });
    }
}

/// The requests in flight.
#[derive(Debug, Default)]
struct Session {
    is_agreed: bool,
    by_unique: HashMap<u64, InFlight>,
    bytes: usize,
    lock_waits: usize,
}

#[derive(Debug)]
struct InFlight {
    interruption: Interruption,
    bytes: usize,
    waits_for_lock: bool,
}

impl Session {
    fn may_receive(&self) -> bool {
        self.by_unique.len() - self.lock_waits < REQUESTS_MAX && self.bytes < BYTES_MAX
    }

    /// Takes a request. If it is one for the file system, it is now in flight; the others are answered.
    fn take(&mut self, device: &Device, bytes: &Bytes) -> Result<Option<(Request, Caller)>, ServeError> {
        let request = match decode(bytes) {
            Ok(request) => request,
            Err(error) => {
                report(&error);
                if let Some(unique) = error.unique() {
                    device.answer(unique, Reply::Error(Errno::IO));
                }
                return Ok(None);
            }
        };
        let unique = request.header.unique;
        match request.operation {
            Operation::Init { major, minor, flags } => match negotiate(major, minor, flags) {
                Ok(Negotiated::Agreed(init)) => {
                    self.is_agreed = true;
                    device.answer(unique, Reply::Init(init));
                }
                Ok(Negotiated::AskAgain(init)) => device.answer(unique, Reply::Init(init)),
                Err(error) => {
                    device.answer(unique, Reply::Error(Errno::PROTO));
                    return Err(error.into());
                }
            },
            // Inodes have the same numbers for the kernel as for the file system, so that there is nothing to forget.
            Operation::Forget => {}
            // A request that is not in flight any more is answered already.
            Operation::Interrupt { unique } => {
                if let Some(interrupted) = self.by_unique.get(&unique) {
                    interrupted.interruption.interrupt();
                }
            }
            Operation::Destroy => device.answer(unique, Reply::Done),
            _ if !self.is_agreed => device.answer(unique, Reply::Error(Errno::IO)),
            Operation::SetLock { waits: true, .. } if self.lock_waits >= LOCK_WAITS_MAX => {
                device.answer(unique, Reply::Error(Errno::NOLCK));
            }
            _ => return Ok(Some(self.begin(request))),
        }
        Ok(None)
    }

    fn begin(&mut self, request: Request) -> (Request, Caller) {
        let interruption = Interruption::default();
        let bytes = match &request.operation {
            Operation::Write { data, .. } => data.len(),
            Operation::Read { length, .. } | Operation::ReadDirectory { room: length, .. } => *length as usize,
            _ => 0,
        };
        let waits_for_lock = matches!(request.operation, Operation::SetLock { waits: true, .. });
        self.bytes += bytes;
        self.lock_waits += usize::from(waits_for_lock);
        let in_flight = InFlight { interruption: interruption.clone(), bytes, waits_for_lock };
        let previous = self.by_unique.insert(request.header.unique, in_flight);
        assert!(previous.is_none(), "the kernel numbers its requests");
        let owner = Owner { uid: request.header.uid, gid: request.header.gid };
        (request, Caller { owner, interruption })
    }

    fn end(&mut self, unique: u64) {
        let ended = self.by_unique.remove(&unique).expect("it was in flight");
        self.bytes -= ended.bytes;
        self.lock_waits -= usize::from(ended.waits_for_lock);
    }
}
