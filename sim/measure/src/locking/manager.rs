//! The lock manager of the device-atomics paper (section 8): one process, exclusive locks, a queue for each, and every change of its
//! table committed to its own disk before anybody hears of it.
//!
//! It is a model and not `core/locks`, whose servers keep their tables in memory and ask hosts after a restart. Its messages are those of the
//! wire, each lock a lock for one block of a component.
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
//! Each lock costs two commits, one to have it and one to give it back, whether anybody waits or not: a lock that waits is no change of the table
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
    /// Which lock each lock is about.
    lock_ids: BTreeMap<LockKey, ObjectId>,
    /// Answers that wait for the disk.
    committing: BTreeMap<DiskTag, (LockKey, LockReply)>,
    next_tag: u64,
}

/// A host's lock.
type LockKey = (Generation, u64);

#[derive(Debug)]
struct Lock {
    holder: LockKey,
    waiting: VecDeque<LockKey>,
}

impl LockManager {
    fn on_request(&mut self, request: LockRequest, out: &mut Effects) {
        match request.command {
            LockCommand::Lock { lock_id, object, .. } => self.lock_id((request.host, lock_id), object, out),
            LockCommand::Unlock { lock_id } => self.give_back((request.host, lock_id), out),
            command => unreachable!("no process of this model says {command:?}"),
        }
    }

    fn lock_id(&mut self, lock_id: LockKey, object: ObjectId, out: &mut Effects) {
        let before = self.lock_ids.insert(lock_id, object);
        assert_eq!(before, None, "locks have their own numbers");
        if let Some(lock) = self.locks.get_mut(&object) {
            return lock.waiting.push_back(lock_id);
        }
        self.locks.insert(object, Lock { holder: lock_id, waiting: VecDeque::new() });
        self.commit(lock_id, LockReply::Granted { lock_id: lock_id.1, waited: false }, out);
    }

    /// That the lock is free again is one change, that the next in the queue has it another.
    fn give_back(&mut self, lock_id: LockKey, out: &mut Effects) {
        let object = self.lock_ids.remove(&lock_id).expect("it was granted");
        let holder = self.locks.get(&object).expect("somebody holds it").holder;
        assert_eq!(holder, lock_id, "only who holds a lock gives it back");
        self.commit(lock_id, LockReply::Unlocked { lock_id: lock_id.1 }, out);
        let lock = self.locks.get_mut(&object).expect("it was there");
        match lock.waiting.pop_front() {
            Some(next) => {
                lock.holder = next;
                self.commit(next, LockReply::Granted { lock_id: next.1, waited: true }, out);
            }
            None => {
                self.locks.remove(&object);
            }
        }
    }

    fn commit(&mut self, lock_id: LockKey, reply: LockReply, out: &mut Effects) {
        let tag = DiskTag(self.next_tag);
        self.next_tag += 1;
        self.committing.insert(tag, (lock_id, reply));
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
                let (lock_id, reply) = self.committing.remove(&tag).expect("it was asked for");
                let answer = LockAnswer { start: Generation(u32::MAX), reply };
                out.send(NodeId::Host(lock_id.0), Message::LockAnswer(answer));
            }
            input => unreachable!("nothing of this model does that to a lock manager: {input:?}"),
        }
    }

    fn deadline(&self) -> Option<Time> {
        None
    }

    fn invariants(&self) {
        let known: usize = self.locks.values().map(|lock| 1 + lock.waiting.len()).sum();
        assert_eq!(known, self.lock_ids.len(), "each lock holds a lock or waits for one");
    }
}
