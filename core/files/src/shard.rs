//! The client's part for one shard of a file system: everything that it says to the shard's metadata server, and the operations on the
//! inodes there. An operation concerns the inodes of one shard; what concerns several is the concern of the metadata servers.

use crate::FileClientConfig;
use crate::advisory::AdvisoryLocks;
use crate::client::FileWaits;
use crate::files::Files;
use crate::metadata_link::{Asker, Heard, MetadataLink};
use crate::range_locks::{ADVISORY, DATA, EXISTENCE, MOUNT, RangeLocks};
use crate::unmounting::Unmounting;
use crate::volume_io::IoEnd;
use braid_base::{FileSystemId, NodeId, Now, ShardId, Time};
use braid_locks::client::{Event, Part};
use braid_machine::{FilesRequest, HostEffects, HostError, HostOutcome, HostRequest, Ignored, OpId};
use braid_wire::Message;

#[derive(Clone, Debug)]
pub(crate) struct ShardClient {
    config: FileClientConfig,
    shard: ShardId,
    /// The name of the shard's metadata server.
    file_system: FileSystemId,
    pub link: MetadataLink,
    pub locks: RangeLocks,
    pub files: Files,
    advisory: AdvisoryLocks,
    phase: Phase,
    /// When to request the lock of the allotment again: the server had no room for it.
    mount_again: Option<Time>,
    /// Outcomes of operations that are not passed on yet.
    ended: Vec<(OpId, HostOutcome)>,
}

#[derive(Clone, Debug)]
enum Phase {
    Off,
    Mounted,
    Unmounting(Unmounting),
    Unmounted,
    Fenced,
}

impl ShardClient {
    pub fn new(config: &FileClientConfig, shard: ShardId, file_system: FileSystemId) -> ShardClient {
        ShardClient {
            config: config.clone(),
            shard,
            file_system,
            link: MetadataLink::new(config.host, config.settings.clone()),
            locks: RangeLocks::new(config.host, config.settings.clone()),
            files: Files::new(config, shard, file_system),
            advisory: AdvisoryLocks::default(),
            phase: Phase::Off,
            mount_again: None,
            ended: Vec::new(),
        }
    }

    /// True if messages of this metadata server are for this part.
    pub fn is_of(&self, file_system: FileSystemId) -> bool {
        self.file_system == file_system
    }

    pub fn is_fenced(&self) -> bool {
        matches!(self.phase, Phase::Fenced)
    }

    pub fn is_mounted(&self) -> bool {
        matches!(self.phase, Phase::Mounted)
    }

    pub fn is_unmounting(&self) -> bool {
        matches!(self.phase, Phase::Unmounting(_))
    }

    pub fn waits(&self) -> FileWaits {
        let Files { operations, inodes, handles, io, .. } = &self.files;
        FileWaits {
            operations: operations.len(),
            bytes: operations.bytes(),
            locks: handles.waiting() + inodes.waiting() + self.advisory.waiting(),
            commands: self.link.unanswered(),
            volume: io.pending(),
        }
    }

    pub fn start(&mut self, now: Now) {
        self.phase = Phase::Mounted;
        self.locks.acquire_mount(now);
    }

    pub fn on_files(&mut self, now: Now, op: OpId, request: FilesRequest) {
        match self.phase {
            Phase::Mounted => {}
            Phase::Fenced => return self.ended.push((op, Err(HostError::Fenced))),
            Phase::Off | Phase::Unmounting(_) | Phase::Unmounted => {
                return self.ended.push((op, Err(HostError::Disconnecting)));
            }
        }
        match request {
            FilesRequest::Lock { .. }
            | FilesRequest::Unlock { .. }
            | FilesRequest::TestLock { .. }
            | FilesRequest::ReleaseOwner { .. } => {
                self.advisory.begin(now, &mut self.locks, &self.files.handles, op, request);
            }
            request => {
                let closed = match request {
                    FilesRequest::Close { handle } => self.files.handles.inode(handle),
                    _ => None,
                };
                let (operations, mut parts) = self.files.lend(now, &mut self.link, &mut self.locks);
                operations.begin(&mut parts, op, request);
                if let Some(inode) = closed.filter(|inode| !self.files.handles.is_open(*inode)) {
                    self.advisory.end_inode(now, &mut self.locks, inode);
                    self.locks.forget_bytes(now, inode);
                }
            }
        }
    }

    pub fn abandon(&mut self, now: Now, ops: &[OpId]) {
        let (operations, mut parts) = self.files.lend(now, &mut self.link, &mut self.locks);
        operations.abandon(&mut parts, ops);
        self.advisory.abandon(now, &mut self.locks, ops);
    }

    /// Begins to give everything back.
    pub fn begin_unmounting(&mut self, now: Now) {
        self.advisory.end_all(now, &mut self.locks, &HostError::Disconnecting);
        self.files.inodes.end_cache(now, &mut self.locks, &mut self.link);
        let until = now.time.after(self.config.settings.request_timeout);
        self.phase = Phase::Unmounting(Unmounting::new(until));
    }

    pub fn on_message(&mut self, now: Now, message: Message, out: &mut HostEffects) {
        if !matches!(self.phase, Phase::Mounted | Phase::Unmounting(_)) {
            return out.ignore(Ignored::NotAwaited);
        }
        match message {
            Message::FileAnswer(answer) => match self.link.on_answer(now.time, answer) {
                Heard::Reply(Asker::GiveBack | Asker::Farewell, _) => {
                    if let Phase::Unmounting(unmounting) = &mut self.phase {
                        unmounting.on_reply(now, &mut self.locks);
                    }
                }
                Heard::Reply(asker, reply) => {
                    self.files.on_reply(now, &mut self.link, &mut self.locks, asker, reply);
                }
                Heard::Fenced => self.on_fenced(),
                Heard::Nothing => out.ignore(Ignored::NotAwaited),
            },
            Message::LockAnswer(answer) => {
                let link = &self.link;
                if !self.locks.on_answer(now, answer, |sequence| link.is_awaited(sequence)) {
                    self.on_fenced();
                }
            }
            _ => out.ignore(Ignored::NotForUs),
        }
    }

    /// The host has answered, if the request was one of this part.
    pub fn on_outcome(&mut self, now: Now, op: OpId, outcome: HostOutcome) {
        match self.files.io.on_outcome(now.time, op, outcome) {
            IoEnd::Ended(owner, result) => {
                let (operations, mut parts) = self.files.lend(now, &mut self.link, &mut self.locks);
                operations.on_io(&mut parts, owner, result);
            }
            IoEnd::Fenced if !self.is_fenced() => self.on_fenced(),
            IoEnd::Fenced | IoEnd::Nothing => {}
        }
    }

    fn on_lock(&mut self, now: Now, part: Part, event: Event) {
        let is_kept = match part {
            ADVISORY => self.advisory.on_lock(now, &mut self.locks, event),
            MOUNT => self.on_mount_lock(now, event),
            DATA => self.files.inodes.on_lock(now, &mut self.locks, &mut self.link, event),
            EXISTENCE => self.files.handles.on_lock(event),
            _ => unreachable!("locks of other parts"),
        };
        // Another host may have it. What this host remembers, and what it writes, is worth nothing any more.
        if !is_kept {
            self.on_fenced();
        }
    }

    fn on_mount_lock(&mut self, now: Now, event: Event) -> bool {
        match event {
            Event::Granted { .. } => self.files.allotment.set_mounted(now.time, &mut self.link, true),
            Event::Denied { .. } => {
                self.locks.release(now, MOUNT, 0);
                self.mount_again = Some(now.time.after(self.config.settings.resend_max));
            }
            Event::Lost { .. } => return false,
            // The lock stays until the file system is unmounted; other hosts need blocks of the allotment.
            Event::Revoked { .. } => self.files.allotment.call_back(now.time, &mut self.link),
            Event::Delayed { .. } => {}
        }
        true
    }

    /// The array does not serve this host any more: every operation ends, and every handle is dead.
    pub fn on_fenced(&mut self) {
        self.files.operations.end_all(&HostError::Fenced);
        self.ended.extend(self.files.operations.take_ended());
        self.ended.extend(self.advisory.take_fenced());
        self.reset();
        self.mount_again = None;
        self.phase = Phase::Fenced;
    }

    fn reset(&mut self) {
        self.link = MetadataLink::new(self.config.host, self.config.settings.clone());
        self.locks = RangeLocks::new(self.config.host, self.config.settings.clone());
        self.files = Files::new(&self.config, self.shard, self.file_system);
    }

    /// Goes on with everything that follows from an input. What is to be asked of the host is put into `asked`. True if something was
    /// done, so that more may follow.
    pub fn go_on(&mut self, now: Now, asked: &mut Vec<(OpId, HostRequest)>) -> bool {
        let mut is_done = true;
        while let Some((part, event)) = self.locks.pop_event(now) {
            self.on_lock(now, part, event);
            is_done = false;
        }
        is_done &= !self.files.go_on(now, &mut self.link, &mut self.locks);
        let requests = self.files.io.take_asked();
        is_done &= requests.is_empty();
        asked.extend(requests);
        is_done &= !self.unmount(now);
        !is_done
    }

    /// Goes on with unmounting. True if it has ended now.
    fn unmount(&mut self, now: Now) -> bool {
        let Phase::Unmounting(unmounting) = &mut self.phase else { return false };
        if !unmounting.go_on(now, &mut self.files, &mut self.link, &mut self.locks) {
            return false;
        }
        self.phase = Phase::Unmounted;
        self.files.operations.end_all(&HostError::Disconnecting);
        self.ended.extend(self.files.operations.take_ended());
        self.reset();
        true
    }

    /// The outcomes of operations since the last call.
    pub fn take_ended(&mut self) -> Vec<(OpId, HostOutcome)> {
        let mut ended = std::mem::take(&mut self.ended);
        ended.extend(self.files.operations.take_ended());
        ended.extend(self.advisory.take_ended());
        ended
    }

    /// Sends what the parts have to say to the server.
    pub fn send(&mut self, out: &mut HostEffects) {
        let server = NodeId::MetadataServer(self.file_system);
        for request in self.link.drain() {
            out.send(server, Message::FileRequest(request));
        }
        for request in self.locks.drain() {
            out.send(server, Message::LockRequest(request));
        }
    }

    pub fn wake(&mut self, now: Now) {
        self.link.wake(now.time);
        self.locks.wake(now);
        self.files.wake(now.time, &mut self.link);
        if self.mount_again.is_some_and(|again| again <= now.time) {
            self.mount_again = None;
            self.locks.acquire_mount(now);
        }
    }

    pub fn deadline(&self) -> Option<Time> {
        let until = match &self.phase {
            Phase::Unmounting(unmounting) => Some(unmounting.until),
            _ => None,
        };
        let own =
            [self.link.deadline(), self.locks.deadline(), self.files.deadline(&self.link), until, self.mount_again];
        own.into_iter().flatten().min()
    }

    pub fn invariants(&self) {
        self.link.invariants();
        self.locks.invariants();
        self.files.invariants();
        self.advisory.invariants();
    }
}
