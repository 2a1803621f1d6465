//! The machine of the client. It routes each input to the part that handles it: to the host, or to the part for the shard that it concerns.

use crate::handles::Handles;
use crate::shard::ShardClient;
use braid_base::limits::{self, Settings};
use braid_base::{
    BlockRange, FileSystemId, Generation, InodeId, Level, NodeId, Now, ObjectId, ShardId, Time, VolumeId,
};
use braid_machine::{
    ArrayRequest, Effect, FileHandle, FilesError, FilesRequest, FilesSuccess, HostEffects, HostError, HostOutcome,
    HostRequest, HostSuccess, Input, Machine, MountRequest, NoDisk, OpId,
};
use braid_wire::{FileCommand, FileError, FileResult, FileSystemStatus, LockExtent};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileClientConfig {
    pub file_system: FileSystemId,
    /// The names of the metadata servers, one for each shard. That of the first shard is the name of the file system.
    pub shards: Vec<FileSystemId>,
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
#[derive(Clone, Debug)]
pub struct FileClient<H> {
    host: H,
    file_system: FileSystemId,
    shards: Vec<ShardClient>,
    /// The request to disconnect, while shards are being unmounted.
    disconnecting: Option<OpId>,
    /// Questions about the whole file system, which every shard is asked.
    surveys: BTreeMap<OpId, Survey>,
    /// The front end's request to be told what its cache has to drop.
    awaits_revocation: Option<OpId>,
    /// What it was not told yet.
    revocations: Vec<InodeId>,
    /// Requests to the host that are not made yet.
    asked: Vec<(OpId, HostRequest)>,
    /// Effects of the host that are not routed yet.
    host_effects: HostEffects,
}

/// What is under way in a client, and what it waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileWaits {
    /// Operations under way, but for those on advisory locks: at most [`OPERATIONS_MAX`](braid_base::limits::OPERATIONS_MAX) for each
    /// shard.
    pub operations: usize,
    /// The bytes that they read and write: at most
    /// [`FILE_OPERATIONS_BYTES_MAX`](braid_base::limits::FILE_OPERATIONS_BYTES_MAX) for each shard.
    pub bytes: usize,
    /// Operations that wait for a lock.
    pub locks: usize,
    /// Commands that the metadata servers have not answered.
    pub commands: usize,
    /// Hostreads and hostwrites of the volume.
    pub volume: usize,
}

/// What the shards answer.
#[derive(Clone, Debug)]
struct Survey {
    /// Answers that are missing.
    left: usize,
    shards: Vec<FileSystemStatus>,
    /// The sum is wanted.
    is_sum: bool,
    failed: Option<HostError>,
}

impl<H: Machine<Request = HostRequest, Outcome = HostOutcome, Disk = NoDisk>> FileClient<H> {
    pub fn new(host: H, config: FileClientConfig) -> FileClient<H> {
        let names = &config.shards;
        assert!((1..=limits::SHARDS_MAX).contains(&names.len()) && names[0] == config.file_system, "{names:?}");
        let shard = |(number, name): (usize, &FileSystemId)| ShardClient::new(&config, ShardId(number as u8), *name);
        let shards = names.iter().enumerate().map(shard).collect();
        FileClient {
            host,
            file_system: config.file_system,
            shards,
            disconnecting: None,
            surveys: BTreeMap::new(),
            awaits_revocation: None,
            revocations: Vec::new(),
            asked: Vec::new(),
            host_effects: HostEffects::new(),
        }
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
        self.shards.iter().any(ShardClient::is_fenced)
    }

    /// What is under way, for status.
    pub fn waits(&self) -> FileWaits {
        self.shards.iter().map(ShardClient::waits).fold(FileWaits::default(), |sum, waits| FileWaits {
            operations: sum.operations + waits.operations,
            bytes: sum.bytes + waits.bytes,
            locks: sum.locks + waits.locks,
            commands: sum.commands + waits.commands,
            volume: sum.volume + waits.volume,
        })
    }

    /// The locks that the metadata servers have granted, for inspection. Those of object 0 are of each shard.
    pub fn held_locks(&self) -> impl Iterator<Item = (ObjectId, LockExtent)> + '_ {
        self.shards.iter().flat_map(|shard| shard.locks.held())
    }

    /// The unused blocks of the allotment, for inspection.
    pub fn allotted(&self) -> impl Iterator<Item = BlockRange> + '_ {
        self.shards.iter().flat_map(|shard| shard.files.allotment.free())
    }

    fn on_request(&mut self, now: Now, op: OpId, request: MountRequest, out: &mut HostEffects) {
        match request {
            MountRequest::Files { file_system, request } if file_system == self.file_system => {
                self.on_files(now, op, request, out);
            }
            MountRequest::Files { .. } | MountRequest::Server(_) => {
                out.reply(op, Err(HostError::Files(FilesError::NotMounted)))
            }
            MountRequest::Host(request) => self.on_host_request(now, op, request),
        }
    }

    fn on_host_request(&mut self, now: Now, op: OpId, request: HostRequest) {
        match request {
            HostRequest::Array(ArrayRequest::Abandon { ops }) => {
                self.shards.iter_mut().for_each(|shard| shard.abandon(now, &ops));
                if let Some(awaits) = self.awaits_revocation.take_if(|awaits| ops.contains(awaits)) {
                    self.host_effects.reply(awaits, Err(HostError::Abandoned));
                }
                self.ask_host(now, op, ArrayRequest::Abandon { ops }.into());
            }
            HostRequest::Array(ArrayRequest::Disconnect) if self.shards.iter().any(ShardClient::is_mounted) => {
                let mounted = self.shards.iter_mut().filter(|shard| shard.is_mounted());
                mounted.for_each(|shard| shard.begin_unmounting(now));
                self.disconnecting = Some(op);
            }
            request => self.ask_host(now, op, request),
        }
    }

    fn on_files(&mut self, now: Now, op: OpId, request: FilesRequest, out: &mut HostEffects) {
        let ask = FilesRequest::Command(FileCommand::StatFileSystem);
        let is_sum = request == ask;
        if request == FilesRequest::StatShards || is_sum && self.shards.len() > 1 {
            let (left, shards) = (self.shards.len(), vec![FileSystemStatus::default(); self.shards.len()]);
            self.surveys.insert(op, Survey { left, shards, is_sum, failed: None });
            for shard in &mut self.shards {
                shard.on_files(now, op, ask.clone());
            }
            return;
        }
        if request == FilesRequest::AwaitRevocation {
            if let Some(before) = self.awaits_revocation.replace(op) {
                out.reply(before, Err(HostError::Abandoned));
            }
            return;
        }
        let shard = match shard_of(&request) {
            Ok(shard) => self.shards.get_mut(usize::from(shard.0)).ok_or(FilesError::Refused(FileError::Stale)),
            Err(handle) => {
                let shard = Handles::shard_of(handle);
                self.shards.get_mut(usize::from(shard.0)).ok_or(FilesError::NotOpen)
            }
        };
        match shard {
            Ok(shard) => shard.on_files(now, op, request),
            Err(error) => out.reply(op, Err(HostError::Files(error))),
        }
    }

    fn ask_host(&mut self, now: Now, op: OpId, request: HostRequest) {
        self.host.step(now, Input::Request { op, request }, &mut self.host_effects);
    }

    /// Passes on the host's effects, but for the outcomes of this client's own requests.
    fn route_host_effects(&mut self, now: Now, out: &mut HostEffects) {
        let mut effects = std::mem::take(&mut self.host_effects);
        effects.drain_ignored().for_each(|why| out.ignore(why));
        effects.drain_notes().for_each(|note| out.note(note));
        for effect in effects.drain() {
            match effect {
                Effect::Send { to, message } => out.send(to, message),
                Effect::Reply { op, outcome } => match self.shards.iter_mut().find(|shard| shard.files.io.is_own(op)) {
                    Some(shard) => shard.on_outcome(now, op, outcome),
                    None => out.reply(op, outcome),
                },
            }
        }
    }

    /// Goes on with everything that follows from an input.
    fn run_until_idle(&mut self, now: Now, out: &mut HostEffects) {
        loop {
            self.route_host_effects(now, out);
            if self.is_fenced() {
                // What is refused by one server, or by the devices, is refused by all.
                self.shards.iter_mut().filter(|shard| !shard.is_fenced()).for_each(ShardClient::on_fenced);
            }
            let mut is_done = true;
            for shard in &mut self.shards {
                is_done &= !shard.go_on(now, &mut self.asked);
            }
            for (op, request) in std::mem::take(&mut self.asked) {
                self.ask_host(now, op, request);
            }
            is_done &= !self.disconnect(now);
            if is_done && self.host_effects.is_empty() {
                break;
            }
        }
        self.tell_revocations(out);
        for shard in 0..self.shards.len() {
            for (op, outcome) in self.shards[shard].take_ended() {
                self.end(shard, op, outcome, out);
            }
        }
        self.shards.iter_mut().for_each(|shard| shard.send(out));
    }

    /// Tells the front end what its cache has to drop.
    fn tell_revocations(&mut self, out: &mut HostEffects) {
        for shard in &mut self.shards {
            self.revocations.append(&mut shard.files.inodes.take_revocations());
        }
        let outcome = if self.is_fenced() {
            self.revocations.clear();
            Err(HostError::Fenced)
        } else if self.disconnecting.is_some() {
            Err(HostError::Disconnecting)
        } else if self.revocations.is_empty() {
            return;
        } else if self.awaits_revocation.is_some() {
            Ok(HostSuccess::Files(FilesSuccess::Revoked(std::mem::take(&mut self.revocations))))
        } else {
            return;
        };
        if let Some(op) = self.awaits_revocation.take() {
            out.reply(op, outcome);
        }
    }

    /// Passes on the outcome of an operation of this shard.
    fn end(&mut self, shard: usize, op: OpId, outcome: HostOutcome, out: &mut HostEffects) {
        let Some(survey) = self.surveys.get_mut(&op) else { return out.reply(op, outcome) };
        survey.left -= 1;
        match outcome {
            Ok(HostSuccess::Files(FilesSuccess::Result(FileResult::FileSystem(status)))) => {
                survey.shards[shard] = status;
            }
            // The server answers something else than it was asked.
            Ok(_) => survey.failed = Some(HostError::Files(FilesError::Refused(FileError::Lost))),
            Err(error) => survey.failed = Some(error),
        }
        if survey.left == 0 {
            let Survey { shards, is_sum, failed, .. } = self.surveys.remove(&op).expect("just seen");
            let success = match is_sum {
                true => FilesSuccess::Result(FileResult::FileSystem(sum(&shards))),
                false => FilesSuccess::Shards(shards),
            };
            out.reply(op, failed.map_or(Ok(HostSuccess::Files(success)), Err));
        }
    }

    /// Disconnects the host when every shard is unmounted. True if that was done now.
    fn disconnect(&mut self, now: Now) -> bool {
        if self.shards.iter().any(ShardClient::is_unmounting) {
            return false;
        }
        let Some(op) = self.disconnecting.take() else { return false };
        match self.is_fenced() {
            true => self.host_effects.reply(op, Err(HostError::Fenced)),
            false => self.ask_host(now, op, ArrayRequest::Disconnect.into()),
        }
        true
    }

    fn wake(&mut self, now: Now) {
        self.shards.iter_mut().for_each(|shard| shard.wake(now));
        if self.host.deadline().is_some_and(|deadline| deadline <= now.time) {
            self.host.step(now, Input::Wake, &mut self.host_effects);
        }
    }
}

/// What all shards contain.
fn sum(shards: &[FileSystemStatus]) -> FileSystemStatus {
    shards.iter().fold(FileSystemStatus::default(), |sum, status| FileSystemStatus {
        blocks: sum.blocks.max(status.blocks),
        // A server may say anything.
        free: sum.free.saturating_add(status.free),
        allotted: sum.allotted.saturating_add(status.allotted),
        inodes: sum.inodes.saturating_add(status.inodes),
    })
}

/// The shard whose server is asked, or the handle that says so. The server of a name is that of its directory.
fn shard_of(request: &FilesRequest) -> Result<ShardId, FileHandle> {
    let inode = match request {
        FilesRequest::Command(command) => command.inode(),
        FilesRequest::Create { parent, .. } => Some(*parent),
        FilesRequest::Open { inode } | FilesRequest::Truncate { inode, .. } | FilesRequest::Dropped { inode, .. } => {
            Some(*inode)
        }
        FilesRequest::StatShards | FilesRequest::AwaitRevocation => None,
        FilesRequest::Close { handle }
        | FilesRequest::Read { handle, .. }
        | FilesRequest::ReadPages { handle, .. }
        | FilesRequest::NextData { handle, .. }
        | FilesRequest::Follow { handle }
        | FilesRequest::Write { handle, .. }
        | FilesRequest::Append { handle, .. }
        | FilesRequest::Sync { handle }
        | FilesRequest::Lock { handle, .. }
        | FilesRequest::Unlock { handle, .. }
        | FilesRequest::TestLock { handle, .. }
        | FilesRequest::ReleaseOwner { handle, .. } => return Err(*handle),
    };
    Ok(inode.map_or(ShardId(0), |inode| inode.shard()))
}

impl<H: Machine<Request = HostRequest, Outcome = HostOutcome, Disk = NoDisk>> Machine for FileClient<H> {
    type Request = MountRequest;
    type Outcome = HostOutcome;
    type Disk = NoDisk;

    fn step(&mut self, now: Now, input: Input<MountRequest, NoDisk>, out: &mut HostEffects) {
        match input {
            Input::Start => {
                self.host.step(now, Input::Start, &mut self.host_effects);
                self.shards.iter_mut().for_each(|shard| shard.start(now));
            }
            Input::Message { from: NodeId::MetadataServer(server), message, .. }
                if self.shards.iter().any(|shard| shard.is_of(server)) =>
            {
                let shard = self.shards.iter_mut().find(|shard| shard.is_of(server)).expect("just seen");
                shard.on_message(now, message, out);
            }
            Input::Request { op, request } => self.on_request(now, op, request, out),
            Input::Wake => {}
            Input::Message { to, from, message } => {
                self.host.step(now, Input::Message { to, from, message }, &mut self.host_effects);
            }
        }
        self.wake(now);
        self.run_until_idle(now, out);
    }

    fn level(&self) -> Level {
        self.host.level()
    }

    fn deadline(&self) -> Option<Time> {
        self.shards.iter().filter_map(ShardClient::deadline).chain(self.host.deadline()).min()
    }

    fn invariants(&self) {
        self.host.invariants();
        self.shards.iter().for_each(ShardClient::invariants);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_what_servers_say_is_never_too_large() {
        let status = FileSystemStatus { blocks: 9, free: u64::MAX, allotted: u64::MAX, inodes: u64::MAX };
        assert_eq!(sum(&[status, status]), status);
    }
}
