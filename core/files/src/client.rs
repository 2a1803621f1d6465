//! The machine of the client. It routes each input to the part that handles it, and what parts say to each other.

use crate::advisory::AdvisoryLocks;
use crate::files::Files;
use crate::metadata_link::{Asker, Heard, MetadataLink};
use crate::range_locks::{ADVISORY, MOUNT, RangeLocks};
use crate::unmounting::Unmounting;
use crate::volume_io::IoEnd;
use braid_base::limits::Settings;
use braid_base::{BlockRange, FileSystemId, Generation, NodeId, Now, ObjectId, Time, VolumeId};
use braid_locks::client::{Event, Part};
use braid_machine::{Effect, Effects, FilesRequest, HostError, HostRequest, Ignored, Input, Machine, OpId};
use braid_wire::{LockExtent, Message};

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct FileClientConfig {
    pub file_system: FileSystemId,
    /// The host's generation.
    pub host: Generation,
    /// The volume with the bytes of files.
    pub volume: VolumeId,
    /// The bytes of data in a stripe of the volume.
    pub stripe_bytes: usize,
    /// Time-outs, intervals and limits.
    pub settings: Settings,
}

/// A host with a file system mounted. Inputs that are not for the file system reach the host unchanged.
#[derive(Debug)]
pub struct FileClient<H> {
    host: H,
    config: FileClientConfig,
    link: MetadataLink,
    locks: RangeLocks,
    files: Files,
    advisory: AdvisoryLocks,
    phase: Phase,
    /// When to request the lock of the allotment again: the server had no room for it.
    mount_again: Option<Time>,
    /// Effects of the host that are not routed yet.
    host_effects: Effects,
}

/// What is under way in a client, and what it waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileWaits {
    /// Operations under way, but for those on advisory locks: at most [`OPERATIONS_MAX`](braid_base::limits::OPERATIONS_MAX).
    pub operations: usize,
    /// The bytes that they read and write: at most
    /// [`FILE_OPERATIONS_BYTES_MAX`](braid_base::limits::FILE_OPERATIONS_BYTES_MAX).
    pub bytes: usize,
    /// Operations that wait for a lock.
    pub locks: usize,
    /// Commands that the metadata server has not answered.
    pub commands: usize,
    /// Hostreads and hostwrites of the volume.
    pub volume: usize,
}

#[derive(Debug)]
enum Phase {
    Off,
    Mounted,
    Unmounting(Unmounting),
    Unmounted,
    Fenced,
}

impl<H: Machine> FileClient<H> {
    pub fn new(host: H, config: FileClientConfig) -> FileClient<H> {
        let link = MetadataLink::new(config.host, config.settings.clone());
        let locks = RangeLocks::new(config.host, config.settings.clone());
        let (files, advisory) = (Files::new(&config), AdvisoryLocks::default());
        let (phase, host_effects) = (Phase::Off, Effects::new());
        FileClient { host, config, link, locks, files, advisory, phase, mount_again: None, host_effects }
    }

    /// The host inside.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// The host inside, to inspect or to reconfigure it.
    pub fn host_mut(&mut self) -> &mut H {
        &mut self.host
    }

    /// True if the array refuses this host for good.
    pub fn is_fenced(&self) -> bool {
        matches!(self.phase, Phase::Fenced)
    }

    /// What is under way, for status.
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

    /// The locks that the metadata server has granted, for inspection.
    pub fn held_locks(&self) -> impl Iterator<Item = (ObjectId, LockExtent)> + '_ {
        self.locks.held()
    }

    /// The unused blocks of the allotment, for inspection.
    pub fn allotted(&self) -> impl Iterator<Item = BlockRange> + '_ {
        self.files.allotment.free()
    }

    fn on_request(&mut self, now: Now, op: OpId, request: HostRequest, out: &mut Effects) {
        match request {
            HostRequest::Files { file_system, request } if file_system == self.config.file_system => {
                self.on_files(now, op, request, out);
            }
            HostRequest::Abandon { ops } => {
                let (operations, mut parts) = self.files.lend(now, &mut self.link, &mut self.locks);
                operations.abandon(&mut parts, &ops);
                self.advisory.abandon(now, &mut self.locks, &ops);
                self.ask_host(now, op, HostRequest::Abandon { ops });
            }
            HostRequest::Disconnect if matches!(self.phase, Phase::Mounted) => {
                self.advisory.end_all(now, &mut self.locks, &HostError::Disconnecting);
                let until = now.time.after(self.config.settings.request_timeout);
                self.phase = Phase::Unmounting(Unmounting::new(op, until));
            }
            request => self.ask_host(now, op, request),
        }
    }

    fn on_files(&mut self, now: Now, op: OpId, request: FilesRequest, out: &mut Effects) {
        match self.phase {
            Phase::Mounted => {}
            Phase::Fenced => return out.reply(op, Err(HostError::Fenced)),
            Phase::Off | Phase::Unmounting(_) | Phase::Unmounted => {
                return out.reply(op, Err(HostError::Disconnecting));
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
                let (operations, mut parts) = self.files.lend(now, &mut self.link, &mut self.locks);
                operations.begin(&mut parts, op, request);
            }
        }
    }

    fn on_message(&mut self, now: Now, message: Message, out: &mut Effects) {
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
                if !self.locks.on_answer(now, answer) {
                    self.on_fenced();
                }
            }
            _ => out.ignore(Ignored::NotForUs),
        }
    }

    fn on_lock(&mut self, now: Now, part: Part, event: Event) {
        let is_kept = match part {
            ADVISORY => self.advisory.on_lock(now, &mut self.locks, event),
            MOUNT => self.on_mount_lock(now, event),
            part => self.files.on_lock(now, &mut self.link, &mut self.locks, part, event),
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
            Event::Delayed { .. } | Event::Revoked { .. } => {}
        }
        true
    }

    /// The array does not serve this host any more: every operation ends, and every handle is dead.
    fn on_fenced(&mut self) {
        self.files.operations.end_all(&HostError::Fenced);
        let mut ended = self.files.operations.take_ended();
        ended.extend(self.advisory.take_fenced());
        if let Phase::Unmounting(unmounting) = &self.phase {
            ended.push((unmounting.op, Err(HostError::Fenced)));
        }
        for (op, outcome) in ended {
            self.host_effects.reply(op, outcome);
        }
        self.link = MetadataLink::new(self.config.host, self.config.settings.clone());
        self.locks = RangeLocks::new(self.config.host, self.config.settings.clone());
        self.files = Files::new(&self.config);
        self.mount_again = None;
        self.phase = Phase::Fenced;
    }

    fn ask_host(&mut self, now: Now, op: OpId, request: HostRequest) {
        self.host.step(now, Input::Request { op, request }, &mut self.host_effects);
    }

    /// Passes on the host's effects, but for the outcomes of this client's own requests.
    fn route_host_effects(&mut self, now: Now, out: &mut Effects) {
        let mut effects = std::mem::take(&mut self.host_effects);
        effects.drain_ignored().for_each(|why| out.ignore(why));
        for effect in effects.drain() {
            match effect {
                Effect::Send { to, message } => out.send(to, message),
                Effect::Disk { tag, command } => out.disk(tag, command),
                Effect::Reply { op, outcome } if self.files.io.is_own(op) => {
                    match self.files.io.on_outcome(now.time, op, outcome) {
                        IoEnd::Ended(owner, result) => {
                            self.files.on_io(now, &mut self.link, &mut self.locks, owner, result);
                        }
                        IoEnd::Fenced if !self.is_fenced() => self.on_fenced(),
                        IoEnd::Fenced | IoEnd::Nothing => {}
                    }
                }
                Effect::Reply { op, outcome } => out.reply(op, outcome),
            }
        }
    }

    /// Goes on with everything that follows from an input.
    fn settle(&mut self, now: Now, out: &mut Effects) {
        loop {
            self.route_host_effects(now, out);
            let mut is_done = true;
            while let Some((part, event)) = self.locks.pop_event(now) {
                self.on_lock(now, part, event);
                is_done = false;
            }
            is_done &= !self.files.go_on(now, &mut self.link, &mut self.locks);
            for (op, request) in self.files.io.take_asked() {
                self.ask_host(now, op, request);
                is_done = false;
            }
            is_done &= !self.unmount(now);
            if is_done && self.host_effects.is_empty() {
                break;
            }
        }
        for (op, outcome) in self.files.operations.take_ended().into_iter().chain(self.advisory.take_ended()) {
            out.reply(op, outcome);
        }
        let server = NodeId::MetadataServer(self.config.file_system);
        for request in self.link.drain() {
            out.send(server, Message::FileRequest(request));
        }
        for request in self.locks.drain() {
            out.send(server, Message::LockRequest(request));
        }
    }

    /// Goes on with unmounting. True if it has ended now.
    fn unmount(&mut self, now: Now) -> bool {
        let Phase::Unmounting(unmounting) = &mut self.phase else { return false };
        if !unmounting.go_on(now, &mut self.files, &mut self.link, &mut self.locks) {
            return false;
        }
        let op = unmounting.op;
        self.phase = Phase::Unmounted;
        self.link = MetadataLink::new(self.config.host, self.config.settings.clone());
        self.locks = RangeLocks::new(self.config.host, self.config.settings.clone());
        self.files.operations.end_all(&HostError::Disconnecting);
        for (op, outcome) in self.files.operations.take_ended() {
            self.host_effects.reply(op, outcome);
        }
        self.files = Files::new(&self.config);
        self.ask_host(now, op, HostRequest::Disconnect);
        true
    }

    fn wake(&mut self, now: Now) {
        self.link.wake(now.time);
        self.locks.wake(now);
        self.files.wake(now.time, &mut self.link);
        if self.mount_again.is_some_and(|again| again <= now.time) {
            self.mount_again = None;
            self.locks.acquire_mount(now);
        }
        if self.host.deadline().is_some_and(|deadline| deadline <= now.time) {
            self.host.step(now, Input::Wake, &mut self.host_effects);
        }
    }
}

impl<H: Machine> Machine for FileClient<H> {
    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
        match input {
            Input::Start => {
                self.host.step(now, Input::Start, &mut self.host_effects);
                self.phase = Phase::Mounted;
                self.locks.acquire_mount(now);
            }
            Input::Message { from: NodeId::MetadataServer(file_system), message }
                if file_system == self.config.file_system =>
            {
                self.on_message(now, message, out);
            }
            Input::Request { op, request } => self.on_request(now, op, request, out),
            Input::Wake => {}
            input @ (Input::Message { .. } | Input::DiskDone { .. }) => {
                self.host.step(now, input, &mut self.host_effects);
            }
        }
        self.wake(now);
        self.settle(now, out);
    }

    fn deadline(&self) -> Option<Time> {
        let until = match &self.phase {
            Phase::Unmounting(unmounting) => Some(unmounting.until),
            _ => None,
        };
        let own = [self.link.deadline(), self.locks.deadline(), self.files.deadline()];
        own.into_iter().chain([until, self.mount_again, self.host.deadline()]).flatten().min()
    }

    fn invariants(&self) {
        self.host.invariants();
        self.link.invariants();
        self.locks.invariants();
        self.files.invariants();
        self.advisory.invariants();
    }
}
