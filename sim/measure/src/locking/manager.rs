//! A model of the lock manager of the device-atomics paper (section 8): one process that grants exclusive locks from a queue for each
//! object, and commits every change of its table to its own disk before it answers.
//!
//! It is not `core/locks`, whose servers keep their tables in memory and ask hosts after a restart. Its messages are those of the
//! wire protocol; each lock is a lock of one block of a component.
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
//! Each lock costs two commits, one for the grant and one for the release, whether another request waits or not. A waiting request
//! does not change the table (its process would ask again after a restart), and a lock that is passed on is released first.

use crate::prelude::*;
use braid_machine::{Input, Machine, Never, OneDisk};
use braid_wire::{LockAnswer, LockCommand, LockRequest, Message};

/// The content of each commit.
const COMMIT: [u8; 512] = [0; 512];

/// See the module's description.
#[derive(Debug, Default)]
pub struct LockManager {
    locks: BTreeMap<ObjectId, Lock>,
    /// The object of each lock request.
    lock_ids: BTreeMap<LockKey, ObjectId>,
    /// Answers that wait for the disk.
    committing: BTreeMap<DiskTag, (LockKey, LockReply)>,
    next_tag: u64,
}

/// A lock request of a host.
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
            command => unreachable!("no process of this model sends {command:?}"),
        }
    }

    fn lock_id(&mut self, lock_id: LockKey, object: ObjectId, out: &mut Effects) {
        let before = self.lock_ids.insert(lock_id, object);
        assert_eq!(before, None, "every lock request has its own number");
        if let Some(lock) = self.locks.get_mut(&object) {
            return lock.waiting.push_back(lock_id);
        }
        self.locks.insert(object, Lock { holder: lock_id, waiting: VecDeque::new() });
        self.commit(lock_id, LockReply::Granted { lock_id: lock_id.1, waited: false }, out);
    }

    /// Releasing the lock is one change of the table, granting it to the next request in the queue is another.
    fn give_back(&mut self, lock_id: LockKey, out: &mut Effects) {
        let object = self.lock_ids.remove(&lock_id).expect("the lock was granted");
        let holder = self.locks.get(&object).expect("a granted lock has a holder").holder;
        assert_eq!(holder, lock_id, "only the holder releases a lock");
        self.commit(lock_id, LockReply::Unlocked { lock_id: lock_id.1 }, out);
        let lock = self.locks.get_mut(&object).expect("the lock is in the table");
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
    type Request = Never;
    type Outcome = Never;
    type Disk = OneDisk;

    fn step(&mut self, _: Now, input: Input, out: &mut Effects) {
        match input {
            Input::Start | Input::Wake => {}
            Input::Message { message: Message::LockRequest(request), .. } => self.on_request(request, out),
            Input::DiskDone { tag, .. } => {
                let (lock_id, reply) = self.committing.remove(&tag).expect("the commit was requested");
                let answer = LockAnswer { start: Generation(u32::MAX), reply };
                out.send(NodeId::Host(lock_id.0), Message::LockAnswer(answer));
            }
            input => unreachable!("a lock manager gets no such input in this model: {input:?}"),
        }
    }

    fn deadline(&self) -> Option<Time> {
        None
    }

    fn invariants(&self) {
        let known: usize = self.locks.values().map(|lock| 1 + lock.waiting.len()).sum();
        assert_eq!(known, self.lock_ids.len(), "each request holds a lock or waits for one");
    }
}
