//! The lease of a metadata server: the time in which it may answer from memory.
//!
//! A read or write of the volume that ended well proves that no device had fenced this process when it was issued. A new owner serves
//! only when the lease has passed since the fence was complete. So the process is known to be the owner for the length of the lease from
//! when the command was issued. Messages to hosts wait until the lease is proven; if nothing else proves it, a read does.

use braid_base::Time;
use braid_machine::{DiskTag, Effect, Effects};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A server uses this part of the lease, in eighths, because its clock may be slower than that of the next owner.
const USED: u32 = 7;
/// The most messages that wait for the lease. Further ones are dropped; their hosts ask again.
const HELD_MAX: usize = 4096;

/// The lease, and what waits for it.
#[derive(Debug)]
pub(crate) struct Lease {
    span: Duration,
    until: Time,
    /// When each read and write in flight was issued.
    issued: BTreeMap<DiskTag, Time>,
    held: VecDeque<Effect>,
    /// The number of reads so far that only prove the lease.
    proofs: u64,
    proof: Option<DiskTag>,
}

impl Lease {
    /// A lease that is not proven yet.
    pub fn new(host_lease: Duration) -> Lease {
        let (issued, held) = (BTreeMap::new(), VecDeque::new());
        Lease { span: host_lease * USED / 8, until: Time(0), issued, held, proofs: 0, proof: None }
    }

    /// True if the server may answer.
    pub fn is_valid(&self, now: Time) -> bool {
        now < self.until
    }

    /// A read or write is issued.
    pub fn on_issue(&mut self, now: Time, tag: DiskTag) {
        self.issued.insert(tag, now);
    }

    /// A disk command has ended.
    pub fn on_done(&mut self, tag: DiskTag, is_ok: bool) {
        if let Some(issued) = self.issued.remove(&tag).filter(|_| is_ok) {
            self.until = self.until.max(issued.after(self.span));
        }
        self.proof = self.proof.filter(|proof| *proof != tag);
    }

    /// Passes a message on, now or when the lease is proven.
    pub fn send(&mut self, now: Time, message: Effect, out: &mut Effects) {
        if self.is_valid(now) && self.held.is_empty() {
            out.push(message);
        } else if self.held.len() < HELD_MAX {
            self.held.push_back(message);
        }
    }

    /// Passes on the messages that waited, if the lease is proven.
    pub fn release(&mut self, now: Time, out: &mut Effects) {
        if self.is_valid(now) {
            self.held.drain(..).for_each(|message| out.push(message));
        }
    }

    /// The tag of the read to issue, if messages wait and no such read is in flight.
    pub fn next_proof(&mut self) -> Option<DiskTag> {
        if self.held.is_empty() || self.proof.is_some() {
            return None;
        }
        self.proofs += 1;
        Some(DiskTag(self.proofs))
    }

    /// The read that proves the lease is in flight.
    pub fn on_proof(&mut self, tag: DiskTag) {
        self.proof = Some(tag);
    }

    /// Asserts that every message that waits has its bound.
    pub fn invariants(&self) {
        assert!(self.held.len() <= HELD_MAX);
    }
}
