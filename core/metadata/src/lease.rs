//! The lease of a metadata server: the time in which it may answer from memory.
//!
//! A read or write of the volume that ended well proves that no device had fenced this process when it was issued. A new owner serves
//! only when the lease has passed since the fence was complete. So the process is known to be the owner for the length of the lease from
//! when the command was issued. Messages to hosts wait until the lease is proven; if nothing else proves it, a read does.

use braid_base::Time;
use braid_machine::{DiskTag, Effect, Effects};
use braid_wire::{FileAnswer, LockAnswer, LockReply, Message};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A server uses this part of the lease, in eighths, because its clock may be slower than that of the next owner.
const USED: u32 = 7;
/// The most messages that wait for the lease. Further ones are dropped; their hosts ask again.
const HELD_MAX: usize = 4096;
/// The most bytes of memory that these messages take.
const HELD_BYTES_MAX: usize = 16 << 20;

/// The lease, and what waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    span: Duration,
    until: Time,
    /// When each read and write in flight was issued.
    issued: BTreeMap<DiskTag, Time>,
    held: VecDeque<Effect>,
    held_bytes: usize,
    /// The number of reads so far that only prove the lease.
    proofs: u64,
    proof: Option<DiskTag>,
}

impl Lease {
    /// A lease that is not proven yet.
    pub fn new(host_lease: Duration) -> Lease {
        let (issued, held) = (BTreeMap::new(), VecDeque::new());
        Lease { span: host_lease * USED / 8, until: Time(0), issued, held, held_bytes: 0, proofs: 0, proof: None }
    }

    /// True if the server may answer.
    pub fn is_valid(&self, now: Time) -> bool {
        now < self.until
    }

    /// True if a read or write has not ended for as long as a lease.
    pub fn is_stuck(&self, now: Time) -> bool {
        self.issued.values().any(|issued| now.since(*issued) > self.span)
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
            return;
        }
        let bytes = memory_bytes(&message);
        if self.held.len() < HELD_MAX && self.held_bytes + bytes <= HELD_BYTES_MAX {
            self.held_bytes += bytes;
            self.held.push_back(message);
        }
    }

    /// Passes on the messages that waited, if the lease is proven.
    pub fn release(&mut self, now: Time, out: &mut Effects) {
        if self.is_valid(now) {
            self.held_bytes = 0;
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
        assert!(self.held.len() <= HELD_MAX && self.held_bytes <= HELD_BYTES_MAX);
    }
}

/// Approximate bytes of memory that a message takes.
fn memory_bytes(effect: &Effect) -> usize {
    let content = match effect {
        Effect::Send { message: Message::FileAnswer(FileAnswer { reply: Ok(result), .. }), .. } => {
            result.memory_bytes()
        }
        Effect::Send {
            message: Message::LockAnswer(LockAnswer { reply: LockReply::Revoke { lock_ids }, .. }), ..
        } => size_of_val(&lock_ids[..]),
        _ => 0,
    };
    size_of::<Effect>() + content
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{Generation, NodeId};
    use braid_wire::FileResult;

    #[test]
    fn messages_that_wait_are_bounded_in_number_and_in_bytes() {
        let target = |length: usize| {
            let reply = Ok(FileResult::Target(vec![b'x'; length].into()));
            let answer = FileAnswer { start: Generation(1), sequence: 1, reply };
            Effect::Send { to: NodeId::Host(Generation(2)), message: Message::FileAnswer(answer) }
        };
        for (length, least, most) in [(1, HELD_MAX, HELD_MAX), (1 << 20, 15, 16)] {
            let mut lease = Lease::new(Duration::from_secs(4));
            let mut out = Effects::new();
            (0..2 * HELD_MAX).for_each(|_| lease.send(Time(0), target(length), &mut out));
            lease.invariants();
            assert_eq!(out.drain().count(), 0, "the lease is not proven");
            lease.on_issue(Time(0), DiskTag(1));
            lease.on_done(DiskTag(1), true);
            lease.release(Time(1), &mut out);
            let passed = out.drain().count();
            assert!((least..=most).contains(&passed), "{passed} of {length} bytes");
            lease.send(Time(u64::MAX), target(length), &mut out);
            assert_eq!((out.drain().count(), lease.held.len()), (0, 1), "there is room again");
        }
    }
}
