//! The lock manager of the device-atomics paper (section 8): one process, exclusive locks, a queue for each, and every change of its
//! table committed to its own disk before anybody hears of it.
//!
//! It is a model and not `core/locks`, whose servers keep their tables in memory and ask hosts after a restart. Its messages are those of the
//! wire, each lock a claim for one block of a component.
//!
//! ```text
//!   process            manager             its disk
//!      │ Lock            │                    │
//!      ├────────────────▶│ free: hold         │
//!      │                 ├── 512 bytes ──────▶│
//!      │ Granted         │◀───────────────────┤
//!      │◀────────────────┤                    │
//! ```
//!
//! Each lock costs two commits, one to have it and one to give it back, whether anybody waits or not: a claim that waits is no change of the table
//! (whoever waits would ask again), and a lock that is passed on is given back first.

use braid_base::{Generation, NodeId, Now, ObjectId, Time};
use braid_machine::{DiskCommand, DiskTag, Effects, Input, Machine};
use braid_wire::{LockAnswer, LockCommand, LockReply, LockRequest, Message};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// What each change writes.
const COMMIT: [u8; 512] = [0; 512];

/// See the module's page.
#[derive(Debug, Default)]
pub struct LockManager {
    locks: BTreeMap<ObjectId, Lock>,
    /// Which lock each claim is about.
    claims: BTreeMap<Claim, ObjectId>,
    /// Answers that wait for the disk.
    committing: BTreeMap<DiskTag, (Claim, LockReply)>,
    next_tag: u64,
}

/// A host's claim.
type Claim = (Generation, u64);

#[derive(Debug)]
struct Lock {
    holder: Claim,
    waiting: VecDeque<Claim>,
}

impl LockManager {
    fn on_request(&mut self, request: LockRequest, out: &mut Effects) {
        match request.command {
            LockCommand::Lock { claim, object, .. } => self.claim((request.host, claim), object, out),
            LockCommand::Unlock { claim } => self.give_back((request.host, claim), out),
            command => unreachable!("no process of this model says {command:?}"),
        }
    }

    fn claim(&mut self, claim: Claim, object: ObjectId, out: &mut Effects) {
        let before = self.claims.insert(claim, object);
        assert_eq!(before, None, "claims have their own numbers");
        if let Some(lock) = self.locks.get_mut(&object) {
            return lock.waiting.push_back(claim);
        }
        self.locks.insert(object, Lock { holder: claim, waiting: VecDeque::new() });
        self.commit(claim, LockReply::Granted { claim: claim.1, waited: false }, out);
    }

    /// That the lock is free again is one change, that the next in the queue has it another.
    fn give_back(&mut self, claim: Claim, out: &mut Effects) {
        let object = self.claims.remove(&claim).expect("it was granted");
        let holder = self.locks.get(&object).expect("somebody holds it").holder;
        assert_eq!(holder, claim, "only who holds a lock gives it back");
        self.commit(claim, LockReply::Unlocked { claim: claim.1 }, out);
        let lock = self.locks.get_mut(&object).expect("it was there");
        match lock.waiting.pop_front() {
            Some(next) => {
                lock.holder = next;
                self.commit(next, LockReply::Granted { claim: next.1, waited: true }, out);
            }
            None => {
                self.locks.remove(&object);
            }
        }
    }

    fn commit(&mut self, claim: Claim, reply: LockReply, out: &mut Effects) {
        let tag = DiskTag(self.next_tag);
        self.next_tag += 1;
        self.committing.insert(tag, (claim, reply));
        let offset = tag.0 * COMMIT.len() as u64;
        out.disk(tag, DiskCommand::Write { offset, data: vec![Bytes::from_static(&COMMIT)], durable: true });
    }
}

impl Machine for LockManager {
    fn step(&mut self, _: Now, input: Input, out: &mut Effects) {
        match input {
            Input::Start | Input::Wake => {}
            Input::Message { message: Message::LockRequest(request), .. } => self.on_request(request, out),
            Input::DiskDone { tag, .. } => {
                let (claim, reply) = self.committing.remove(&tag).expect("it was asked for");
                let answer = LockAnswer { start: Generation(u32::MAX), reply };
                out.send(NodeId::Host(claim.0), Message::LockAnswer(answer));
            }
            input => unreachable!("nothing of this model does that to a lock manager: {input:?}"),
        }
    }

    fn deadline(&self) -> Option<Time> {
        None
    }

    fn invariants(&self) {
        let known: usize = self.locks.values().map(|lock| 1 + lock.waiting.len()).sum();
        assert_eq!(known, self.claims.len(), "each claim holds a lock or waits for one");
    }
}
