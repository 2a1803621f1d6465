//! The loop that serves one mount. Requests run side by side, in the task of the caller, and are answered when they end.
//!
//! The loop receives no further request while too many, or too much data, are in flight: the kernel queues them. Requests for locks may
//! wait for long, and for requests that come later. So they are not counted; beyond a limit of their own they fail.
//!
//! A program that is killed ends when its request is answered. If the array is unavailable, that would be much later. So the request is answered
//! with EINTR when its program is found to be ending, and goes on without it. So does a request for bytes, with EIO, whose program has waited for
//! missing devices for as long as it is to wait.

use crate::abi::flag;
use crate::callers::Callers;
use crate::decode::{Operation, Request, decode};
use crate::device::{Device, Receiver, report};
use crate::encode::Reply;
use crate::interruption::Interruption;
use crate::kernel_cache::KernelCache;
use crate::lock_owners::LockOwners;
use crate::moved::Parents;
use crate::negotiation::{Negotiated, Unsupported, negotiate};
use crate::revocations::{follow_open_files, keep_coherent};
use crate::serving::Serving;
use crate::{Caller, HostFiles};
use braid_base::InodeId;
use braid_wire::Owner;
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;

/// Requests in flight, locks aside. A signal to a program whose request is in flight is not seen while there are this many.
const REQUESTS_MAX: usize = 1024;
/// Bytes that requests in flight hold or will hold. The last request may exceed it.
const BYTES_MAX: usize = 256 << 20;
/// Requests that wait for locks.
const LOCK_WAITS_MAX: usize = 4096;
/// How often the programs of requests that take longer than this are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Why a mount can't be served any more.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    #[error("can't receive requests from the kernel: is the mount damaged? Unmount it")]
    Io(#[from] io::Error),
}

/// Serves a mount on a directory until it ends.
pub async fn serve(device: &Device, directory: &Path, file_system: &HostFiles) -> Result<(), ServeError> {
    let (kernel, parents) = (KernelCache::new(device.notifier()), Parents::new(directory.to_path_buf()));
    let serving = Serving { file_system, owners: LockOwners::default(), kernel: &kernel, parents: &parents };
    let mut coherence = pin!(keep_coherent(file_system, &kernel));
    let mut following = pin!(follow_open_files(file_system, &kernel));
    let mut receiver = Receiver::default();
    let mut session = Session::new();
    let mut running = FuturesUnordered::new();
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let received = tokio::select! {
            biased;
            Some(unique) = running.next(), if !running.is_empty() => {
                session.end(unique);
                continue;
            }
            never = &mut coherence => match never {},
            never = &mut following => match never {},
            _ = looks.tick(), if !session.by_unique.is_empty() => {
                session.look(file_system);
                continue;
            }
            received = receiver.receive(device), if session.may_receive() => received?,
        };
        let Some(bytes) = received else { return Ok(()) };
        let Some((request, by)) = session.take(device, &parents, &bytes)? else { continue };
        let serving = &serving;
        running.push(async move {
            let Request { header, operation } = request;
            let (unique, inode) = (header.unique, InodeId(header.nodeid));
            let fills = matches!(operation, Operation::Read { for_pages: true, .. });
            let resizes = changes_bytes(&operation);
            let mut work = pin!(serving.serve(&by, inode, unique, operation));
            let answered = tokio::select! {
                biased;
                reply = &mut work => Some(reply),
                () = by.interruption.ending() => None,
            };
            if let Some(reply) = answered {
                device.answer(unique, reply);
            } else {
                let has_waited = by.interruption.has_waited_enough();
                device.answer(unique, Reply::Error(if has_waited { Errno::IO } else { Errno::INTR }));
                let reply = work.await;
                serving.end_without_program(inode, reply, resizes).await;
            }
            if fills {
                serving.kernel.end(inode, unique);
            }
            unique
        });
    }
}

/// True if the kernel learns by the answer that bytes of a file, or its size, have changed.
fn changes_bytes(operation: &Operation) -> bool {
    let truncates = |flags: u32| OFlags::from_bits_retain(flags).contains(OFlags::TRUNC);
    match operation {
        Operation::Write { .. } => true,
        Operation::SetAttributes(change) => change.valid & flag::FATTR_SIZE != 0,
        Operation::Open(flags) | Operation::Create { flags, .. } => truncates(*flags),
        _ => false,
    }
}

/// The requests in flight.
#[derive(Debug)]
struct Session {
    is_agreed: bool,
    by_unique: HashMap<u64, InFlight>,
    bytes: usize,
    lock_waits: usize,
    callers: Callers,
}

#[derive(Debug)]
struct InFlight {
    interruption: Interruption,
    thread: u32,
    begun: Instant,
    bytes: usize,
    waits_for_lock: bool,
    needs_devices: bool,
}

impl Session {
    fn new() -> Session {
        Session { is_agreed: false, by_unique: HashMap::new(), bytes: 0, lock_waits: 0, callers: Callers::new() }
    }

    fn may_receive(&self) -> bool {
        self.by_unique.len() - self.lock_waits < REQUESTS_MAX && self.bytes < BYTES_MAX
    }

    /// Takes a request. If it is one for the file system, it is now in flight; the others are answered.
    fn take(
        &mut self,
        device: &Device,
        parents: &Parents,
        bytes: &Bytes,
    ) -> Result<Option<(Request, Caller)>, ServeError> {
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
            // Inodes have the same numbers for the kernel as for the file system, so that there is nothing else to forget.
            Operation::Forget(others) => {
                parents.forget(others.into_iter().chain([request.header.nodeid]).map(InodeId));
            }
            // A request that is not in flight any more is answered already.
            Operation::Interrupt(unique) => {
                if let Some(interrupted) = self.by_unique.get(&unique) {
                    interrupted.interruption.interrupt();
                    self.look_at(interrupted);
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

    /// Looks at the programs whose requests take long. A program that waits for a lock is only looked at when it is interrupted: it does not
    /// end before that.
    fn look(&self, file_system: &HostFiles) {
        for in_flight in self.by_unique.values() {
            let waited = in_flight.begun.elapsed();
            let is_late = waited >= LOOK_INTERVAL && !in_flight.waits_for_lock;
            if is_late || in_flight.interruption.is_interrupted() {
                self.look_at(in_flight);
            }
            let may_wait = in_flight.interruption.is_ending() || !in_flight.needs_devices;
            if is_late && !may_wait && file_system.has_waited_enough(waited) {
                in_flight.interruption.end(true);
            }
        }
    }

    fn look_at(&self, in_flight: &InFlight) {
        if !in_flight.interruption.is_ending() && self.callers.is_ending(in_flight.thread) {
            in_flight.interruption.end(false);
        }
    }

    fn begin(&mut self, request: Request) -> (Request, Caller) {
        let interruption = Interruption::default();
        let bytes = match &request.operation {
            Operation::Write { data, .. } => data.len(),
            Operation::Read { length, .. } | Operation::ReadDirectory { room: length, .. } => *length as usize,
            _ => 0,
        };
        let waits_for_lock = matches!(request.operation, Operation::SetLock { waits: true, .. });
        let needs_devices = matches!(request.operation, Operation::Read { .. }) || changes_bytes(&request.operation);
        self.bytes += bytes;
        self.lock_waits += usize::from(waits_for_lock);
        let (thread, begun) = (request.header.pid, Instant::now());
        let interruption_of = interruption.clone();
        let in_flight = InFlight { interruption: interruption_of, thread, begun, bytes, waits_for_lock, needs_devices };
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
