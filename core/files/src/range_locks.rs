//! The locks that the metadata server grants: the client of the lock servers with one server, whose messages go to and come from the
//! metadata server.
//!
//! | object | position | what it locks |
//! | --- | --- | --- |
//! | an inode's number | 0 | its bytes, extents and size |
//! | | 1 | its existence: shared by hosts that have it open |
//! | | 2 | bytes, for advisory locks: kept when no program locks them, until another host wants them or the file is closed |
//! | 0 | 0 | the host's allotment: held from mount to unmount |

use braid_base::limits::{self, Settings};
use braid_base::{BlockRange, Generation, InodeId, LockServerId, Now, ObjectId, Time};
use braid_locks::client::{Acquisition, Ctx, Event, LockClient, LockClientConfig, Part, Retention, Wanted};
use braid_machine::{Effect, HostEffects};
use braid_wire::{
    ADVISORY_LOCKS, DATA_LOCK, EXISTENCE_LOCK, LockAnswer, LockExtent, LockMode, LockReply, LockRequest, Message,
    Patience, Rejection, opening_locks, opening_sequence,
};

/// The parts that hold locks.
pub const DATA: Part = Part(0);
pub const EXISTENCE: Part = Part(1);
pub const ADVISORY: Part = Part(2);
pub const MOUNT: Part = Part(3);
const PARTS: [Part; 4] = [DATA, EXISTENCE, ADVISORY, MOUNT];

/// The metadata server is the only lock server that this client knows.
const SERVER: LockServerId = LockServerId(0);

/// Bytes of a file, as the lock server knows those of advisory locks.
pub fn advisory_extent(range: BlockRange, mode: LockMode) -> LockExtent {
    LockExtent { position: ADVISORY_LOCKS, range, mode }
}

#[derive(Clone, Debug)]
pub struct RangeLocks {
    client: LockClient,
    settings: Settings,
    next_number: u64,
    effects: HostEffects,
}

impl RangeLocks {
    pub fn new(host: Generation, settings: Settings) -> RangeLocks {
        let config = LockClientConfig { host, servers: vec![SERVER], acquisition: Acquisition::Ordered };
        RangeLocks { client: LockClient::new(config), settings, next_number: 1, effects: HostEffects::new() }
    }

    /// Requests the data lock of an inode, or its existence lock. The holder is the inode's number. The lock is cached until it is revoked.
    pub fn acquire_inode(&mut self, now: Now, part: Part, inode: InodeId, mode: LockMode) {
        let position = if part == EXISTENCE { EXISTENCE_LOCK } else { DATA_LOCK };
        let extents = vec![LockExtent { position, range: BlockRange::new(0, 1), mode }];
        self.acquire(now, part, inode.0, Wanted::new(ObjectId(inode.0), extents, Retention::Cached));
    }

    /// The server has granted the locks of an open file with the answer to the `Create` of this sequence. False if this host can't have
    /// them, and gives them back.
    pub fn adopt(&mut self, now: Now, start: Generation, sequence: u64, inode: InodeId) -> bool {
        let [existence, data] = opening_locks(sequence);
        let extent = |position, mode| LockExtent { position, range: BlockRange::new(0, 1), mode };
        let locks = [
            (EXISTENCE, existence, extent(EXISTENCE_LOCK, LockMode::Shared)),
            (DATA, data, extent(DATA_LOCK, LockMode::Exclusive)),
        ];
        let adopt = |client: &mut LockClient, cx: &mut Ctx, (part, number, extent)| {
            client.adopt(cx, (SERVER, start), (part, inode.0), (number, ObjectId(inode.0), extent))
        };
        let has = locks.map(|lock| self.with_client(now, |client, cx| adopt(client, cx, lock)));
        if has == [true, true] {
            return true;
        }
        for ((part, ..), has) in locks.into_iter().zip(has) {
            if has {
                self.release(now, part, inode.0);
            }
        }
        false
    }

    /// Requests an advisory lock on bytes of an inode over what these holders have. The bytes are kept until another host wants them.
    pub fn acquire_bytes(
        &mut self,
        now: Now,
        holder: u64,
        inode: InodeId,
        (extents, over): (Vec<LockExtent>, Vec<u64>),
        patience: Patience,
    ) {
        let wanted = Wanted::new(ObjectId(inode.0), extents, Retention::CachedInParts { width: 0 });
        self.acquire(now, ADVISORY, holder, Wanted { over, patience, ..wanted });
    }

    /// The other holders of advisory locks here that have all of theirs, and conflict with what this one has or waits for.
    pub fn rivals(&mut self, now: Now, holder: u64) -> Vec<u64> {
        self.with_client(now, |client, _| client.of_part(ADVISORY).rivals(holder))
    }

    /// True if an advisory lock was granted by a server that may presume this host dead by now.
    pub fn is_in_doubt(&mut self, now: Now, holder: u64) -> bool {
        self.with_client(now, |client, cx| client.of_part(ADVISORY).doubted(cx, holder).is_some())
    }

    /// Keeps these bytes of an advisory lock. The holder releases it if it keeps none.
    pub fn keep_bytes(&mut self, now: Now, holder: u64, rest: &[LockExtent]) {
        self.with_client(now, |client, cx| match rest {
            [] => client.of_part(ADVISORY).release(cx, holder),
            _ => client.of_part(ADVISORY).shrink(cx, holder, rest),
        });
    }

    /// No file of the inode is open here: its bytes are not kept any longer.
    pub fn forget_bytes(&mut self, now: Now, inode: InodeId) {
        let all = advisory_extent(BlockRange::new(0, limits::FILE_BYTES_MAX), LockMode::Exclusive);
        self.with_client(now, |client, _| client.of_part(ADVISORY).drop_kept(ObjectId(inode.0), &[all]));
    }

    /// Requests the lock of the host's allotment.
    pub fn acquire_mount(&mut self, now: Now) {
        let extents = vec![LockExtent { position: DATA_LOCK, range: BlockRange::new(0, 1), mode: LockMode::Shared }];
        self.acquire(now, MOUNT, 0, Wanted::new(ObjectId(0), extents, Retention::Released));
    }

    pub fn release(&mut self, now: Now, part: Part, holder: u64) {
        self.with_client(now, |client, cx| client.of_part(part).release(cx, holder));
    }

    /// Gives back all locks that are not in use.
    pub fn release_cached(&mut self, now: Now) {
        self.with_client(now, |client, cx| client.release_cached(cx));
    }

    /// The server has answered. False if the host is fenced. Locks that come with an answer that is awaited are called back later again:
    /// this host may get to know them yet.
    pub fn on_answer(&mut self, now: Now, mut answer: LockAnswer, is_awaited: impl Fn(u64) -> bool) -> bool {
        if let LockReply::Revoke { lock_ids } = &mut answer.reply {
            lock_ids.retain(|lock_id| !opening_sequence(*lock_id).is_some_and(&is_awaited));
        }
        if answer.reply == (LockReply::Rejected { rejection: Rejection::Fenced }) {
            return false;
        }
        self.with_client(now, |client, cx| client.on_answer(cx, SERVER, answer));
        true
    }

    /// The next event about a lock, and the part that holds it.
    pub fn pop_event(&mut self, now: Now) -> Option<(Part, Event)> {
        let mut next = || PARTS.into_iter().find_map(|part| Some((part, self.client.of_part(part).pop_event()?)));
        if let Some(event) = next() {
            return Some(event);
        }
        while self.with_client(now, |client, cx| client.take_turn(cx)) {}
        PARTS.into_iter().find_map(|part| Some((part, self.client.of_part(part).pop_event()?)))
    }

    pub fn deadline(&self) -> Option<Time> {
        self.client.deadline()
    }

    /// Handles all timers that are due.
    pub fn wake(&mut self, now: Now) {
        while self.client.deadline().is_some_and(|deadline| deadline <= now.time) {
            self.with_client(now, |client, cx| client.wake(cx));
        }
    }

    /// The messages to the server since the last call.
    pub fn drain(&mut self) -> impl Iterator<Item = LockRequest> + '_ {
        self.effects.drain_ignored().for_each(drop);
        self.effects.drain().map(|effect| match effect {
            Effect::Send { message: Message::LockRequest(request), .. } => request,
            other => unreachable!("a lock client only sends lock requests: {other:?}"),
        })
    }

    /// True if no lock is held, requested or being released.
    pub fn is_empty(&self) -> bool {
        self.client.is_empty()
    }

    /// The locks that the host holds, for inspection.
    pub fn held(&self) -> impl Iterator<Item = (ObjectId, LockExtent)> + '_ {
        self.client.held().map(|(_, object, extent)| (object, extent))
    }

    pub fn invariants(&self) {
        self.client.invariants();
    }

    fn acquire(&mut self, now: Now, part: Part, holder: u64, wanted: Wanted) {
        self.with_client(now, |client, cx| client.of_part(part).acquire(cx, holder, wanted));
    }

    fn with_client<R>(&mut self, now: Now, act: impl FnOnce(&mut LockClient, &mut Ctx) -> R) -> R {
        let RangeLocks { client, settings, next_number, effects } = self;
        let mut number = || {
            *next_number += 1;
            *next_number - 1
        };
        act(client, &mut Ctx { now, settings, number: &mut number, out: effects })
    }
}
