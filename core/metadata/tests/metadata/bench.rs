//! A metadata server on a bench. Its disk is memory, which executes commands when the test lets it.

pub use braid_base::limits::Settings;
use braid_base::limits::{self};
pub use braid_base::{
    ArrayId, BLOCK_BYTES, BlockRange, Clock, Epoch, FenceTable, FileSystemId, Generation, InodeId, Membership, NodeId,
    Now, ObjectId, ShardId, Time,
};
pub use braid_machine::{DiskCommand, Effect, Effects, Input, Machine};
use braid_metadata::Protocol;
pub use braid_metadata::{
    Grouping, MetadataServer, MetadataServerConfig, MetadataService, Purpose, VOLUME_BYTES_MIN, format,
};
pub use braid_namespace::check::Finding;
pub use braid_namespace::{Parameters, Shards};
use braid_wire::Message;
pub use braid_wire::{
    DATA_LOCK, FileAnswer, FileAttributes, FileCommand, FileError, FileReply, FileRequest, FileResult, LockAnswer,
    LockCommand, LockExtent, LockMode, LockReply, LockRequest, LockTerm, MonitorAnswer, MonitorReply, MonitorRequest,
    NewInode, Owner, ShardBody, ShardMessage,
};
pub use braid_world::MemoryDisk;
pub use bytes::Bytes;
pub use std::collections::{BTreeMap, BTreeSet, VecDeque};
pub use std::time::Duration;

pub const ROOT: InodeId = InodeId(1);
pub const ONE: Generation = Generation(101);
pub const TWO: Generation = Generation(102);
pub const BLOCKS: u64 = 4096;
const ARRAY: ArrayId = ArrayId(*b"a metadata test.");
const FILE_SYSTEM: FileSystemId = FileSystemId(3);
pub const SERVER: NodeId = NodeId::MetadataServer(FILE_SYSTEM);
const VOLUME_BYTES: u64 = VOLUME_BYTES_MIN;

pub struct Bench {
    pub server: MetadataServer,
    /// The blocks of the volume with the bytes of files, as the next process knows them.
    pub blocks: u64,
    /// The shards of the file system, of which the server has the first.
    shards: u8,
    pub now: Now,
    pub start: Generation,
    pub disk: MemoryDisk,
    /// Disk commands that are not executed.
    pub under_way: usize,
    /// While set, the disk executes nothing.
    pub stalled: bool,
    /// The answers to each host, in order.
    pub files: BTreeMap<Generation, VecDeque<FileAnswer>>,
    pub locks: BTreeMap<Generation, VecDeque<LockAnswer>>,
    pub monitor: VecDeque<MonitorRequest>,
    /// What was sent to the servers of other shards.
    pub peers: Vec<ShardBody>,
    sequences: BTreeMap<Generation, u64>,
}

fn server(start: Generation, serve_from: Time, blocks: u64, count: u8) -> MetadataServer {
    MetadataServer::new(MetadataServerConfig {
        array: ARRAY,
        file_system: FILE_SYSTEM,
        generation: Generation(1000 + start.0),
        start,
        volume_bytes: VOLUME_BYTES,
        peers: (0..u16::from(count)).map(|shard| FileSystemId(FILE_SYSTEM.0 + shard)).collect(),
        commit_protocol: Protocol::OnePhase,
        grouping: Grouping::Operations,
        parameters: Parameters {
            blocks,
            stripe_blocks: 64,
            hash_key: [7; 16],
            hash_bits: Parameters::HASH_BITS_MAX,
            shards: Shards { count, ..Shards::ONE },
        },
        root: Owner::default(),
        serve_from,
        settings: Settings::default(),
    })
}

impl Bench {
    /// A server of a new file system.
    pub fn new() -> Bench {
        Bench::of_shards(1)
    }

    /// A server of the first shard of a new file system.
    pub fn of_shards(shards: u8) -> Bench {
        let mut bench = Bench::blank(shards);
        bench.take(Input::Start);
        assert_eq!(*bench.server.service(), MetadataService::Serving);
        bench
    }

    /// A server that has not started, on a formatted volume.
    pub fn blank(shards: u8) -> Bench {
        let parts = format(ARRAY, FILE_SYSTEM, VOLUME_BYTES, 77).expect("the volume is large enough");
        let start = Generation(1);
        Bench {
            server: server(start, Time(0), BLOCKS, shards),
            blocks: BLOCKS,
            shards,
            now: Now { time: Time(1_000_000_000), clock: Clock(5_000_000_000) },
            start,
            disk: MemoryDisk::with(VOLUME_BYTES, parts),
            under_way: 0,
            stalled: false,
            files: BTreeMap::new(),
            locks: BTreeMap::new(),
            monitor: VecDeque::new(),
            peers: Vec::new(),
            sequences: BTreeMap::new(),
        }
    }

    /// The generation of the process as a host.
    pub fn generation(&self) -> Generation {
        Generation(1000 + self.start.0)
    }

    /// The process dies, and another one begins, which serves from a time on.
    pub fn restart(&mut self, serve_from: Time) {
        self.start.0 += 1;
        self.server = server(self.start, serve_from, self.blocks, self.shards);
        self.disk.forget_commands();
        self.under_way = 0;
        self.files.clear();
        self.locks.clear();
        self.monitor.clear();
        self.stalled = false;
        self.take(Input::Start);
    }

    /// The process ends, and another one checks the file system.
    pub fn check(&mut self) -> (Vec<Finding>, u64) {
        self.start.0 += 1;
        self.server = server(self.start, Time(0), self.blocks, self.shards).with_purpose(Purpose::Checks);
        self.disk.forget_commands();
        self.take(Input::Start);
        self.server.findings().expect("the disk has executed every command")
    }

    /// Takes one step, and executes the disk commands that follow from it.
    pub fn take(&mut self, input: Input) {
        self.step(input);
        self.run_disk();
    }

    /// The disk executes what it was asked to do, and goes on.
    pub fn resume_disk(&mut self) {
        self.stalled = false;
        self.run_disk();
    }

    pub fn run_disk(&mut self) {
        while !self.stalled && self.run_one() {}
    }

    /// Executes one disk command. False if there is none.
    pub fn run_one(&mut self) -> bool {
        let Some((tag, result)) = self.disk.end_one() else { return false };
        self.under_way -= 1;
        self.step(Input::DiskDone { tag, result });
        true
    }

    fn step(&mut self, input: Input) {
        let mut effects = Effects::new();
        self.server.step(self.now, input, &mut effects);
        self.server.invariants();
        for effect in effects.drain() {
            match effect {
                Effect::Disk { tag, command } => {
                    if let DiskCommand::Write { offset, data, .. } = &command {
                        let length: usize = data.iter().map(Bytes::len).sum();
                        let is_whole = offset.is_multiple_of(BLOCK_BYTES as u64) && length.is_multiple_of(BLOCK_BYTES);
                        let is_batch = data[0].starts_with(b"BraidJnl");
                        assert!(is_whole || !is_batch, "the host would read the rest of a block: {offset}, {length}");
                    }
                    self.under_way += 1;
                    self.disk.submit(tag, command);
                }
                Effect::Send { to: NodeId::Host(host), message: Message::FileAnswer(answer) } => {
                    assert_eq!(answer.start, self.start);
                    self.files.entry(host).or_default().push_back(answer);
                }
                Effect::Send { to: NodeId::Host(host), message: Message::LockAnswer(answer) } => {
                    self.locks.entry(host).or_default().push_back(answer);
                }
                Effect::Send { to: NodeId::Monitor, message: Message::MonitorRequest(request) } => {
                    self.monitor.push_back(request);
                }
                Effect::Send { to: NodeId::MetadataServer(_), message: Message::Shard(message) } if self.shards > 1 => {
                    self.peers.push(message.body);
                }
                other => panic!("not an effect of a metadata server: {other:?}"),
            }
        }
    }

    /// The server of the second shard sends this.
    pub fn hear_peer(&mut self, body: ShardBody) {
        let from = NodeId::MetadataServer(FileSystemId(FILE_SYSTEM.0 + 1));
        let message = Message::Shard(ShardMessage { from: ShardId(1), body });
        self.take(Input::Message { to: SERVER, from, message });
    }

    /// The monitor sends a membership whose fence has these hosts.
    pub fn hear_of_fence(&mut self, hosts: impl IntoIterator<Item = Generation>) {
        let mut fence = FenceTable::default();
        fence.add(Generation(0), &BTreeSet::new(), &hosts.into_iter().collect());
        let membership = Some(Membership { epoch: Epoch(7), members: Vec::new(), fence });
        self.hear_monitor(MonitorAnswer { membership, unavailable: Vec::new(), reply: MonitorReply::Changed });
    }

    pub fn hear_monitor(&mut self, answer: MonitorAnswer) {
        self.take(Input::Message { to: SERVER, from: NodeId::Monitor, message: Message::MonitorAnswer(answer) });
    }

    /// Lets time pass, and fires every timer that becomes due.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now.time.after(span);
        while let Some(deadline) = self.server.deadline().filter(|deadline| *deadline <= end) {
            self.now.time = deadline.max(self.now.time);
            self.take(Input::Wake);
        }
        self.now.time = end;
    }

    /// Sends a command of a host; returns its sequence.
    pub fn ask(&mut self, host: Generation, command: FileCommand) -> u64 {
        let sequence = self.sequences.entry(host).or_insert(0);
        *sequence += 1;
        let sequence = *sequence;
        self.send(host, sequence, sequence.saturating_sub(limits::FILE_REQUESTS_MAX - 1), command);
        sequence
    }

    pub fn send(&mut self, host: Generation, sequence: u64, settled: u64, command: FileCommand) {
        self.request(host, FileRequest { host, settled, over: Vec::new(), sequence, command });
    }

    /// A request comes from this host.
    pub fn request(&mut self, from: Generation, request: FileRequest) {
        self.take(Input::Message { to: SERVER, from: NodeId::Host(from), message: Message::FileRequest(request) });
    }

    /// Sends a command of a host that has acknowledged these answers, and returns the reply, if there is one.
    pub fn run_over(
        &mut self,
        host: Generation,
        sequence: u64,
        over: Vec<u64>,
        command: FileCommand,
    ) -> Option<FileReply> {
        self.request(host, FileRequest { host, settled: 1, over, sequence, command });
        self.reply(host, sequence)
    }

    /// Sends a command, and returns the reply.
    pub fn run(&mut self, host: Generation, command: FileCommand) -> FileReply {
        let sequence = self.ask(host, command);
        self.reply(host, sequence).expect("the command is answered")
    }

    /// Takes out the reply to a request.
    pub fn reply(&mut self, host: Generation, sequence: u64) -> Option<FileReply> {
        let answers = self.files.get_mut(&host)?;
        let at = answers.iter().position(|answer| answer.sequence == sequence)?;
        answers.remove(at).map(|answer| answer.reply)
    }

    /// Creates a regular file in the root.
    pub fn create(&mut self, host: Generation, name: &str) -> InodeId {
        match self.run(host, create(name)) {
            Ok(FileResult::Created { attributes, is_new: true }) => attributes.inode,
            other => panic!("{name} is not created: {other:?}"),
        }
    }

    pub fn lookup(&mut self, host: Generation, name: &str) -> Result<FileAttributes, braid_wire::FileError> {
        match self.run(host, FileCommand::Lookup { parent: ROOT, name: name_of(name) })? {
            FileResult::Attributes(attributes) => Ok(attributes),
            other => panic!("a lookup is answered otherwise: {other:?}"),
        }
    }

    /// Blocks that are neither in files nor in allotments.
    pub fn free(&mut self) -> u64 {
        self.free_of(ONE)
    }

    /// The same, when `host` asks.
    pub fn free_of(&mut self, host: Generation) -> u64 {
        match self.run(host, FileCommand::StatFileSystem) {
            Ok(FileResult::FileSystem(status)) => status.free,
            other => panic!("no status: {other:?}"),
        }
    }

    /// Reserves blocks and makes them blocks of a file.
    pub fn fill(&mut self, host: Generation, inode: InodeId, blocks: u64) {
        let Ok(FileResult::Reserved(runs)) = self.run(host, FileCommand::Reserve { blocks }) else {
            panic!("no blocks are reserved");
        };
        let mut at = 0;
        let mut extents = Vec::new();
        for run in runs {
            extents.push(braid_wire::FileExtent { at, blocks: run });
            at += run.count;
        }
        let mtime = braid_wire::FileTime(1);
        let attached = self.run(host, FileCommand::Attach { inode, extents, size: at * 4096, mtime });
        assert!(matches!(attached, Ok(FileResult::Attached { .. })), "{attached:?}");
    }

    pub fn lock(&mut self, host: Generation, lock_id: u64, inode: InodeId, position: u16, mode: LockMode) {
        let extents = vec![LockExtent { position, range: BlockRange::new(0, 1), mode }];
        let object = ObjectId(inode.0);
        self.say(host, LockCommand::Lock { lock_id, object, extents, term: LockTerm::Cached });
    }

    /// Tells a server that has restarted which lock it held of the one before.
    pub fn hold_again(&mut self, host: Generation, lock_id: u64, inode: InodeId, position: u16) {
        let extents = vec![LockExtent { position, range: BlockRange::new(0, 1), mode: LockMode::Shared }];
        let term = LockTerm::Held { start: self.start, cached: true };
        let command = LockCommand::Lock { lock_id, object: ObjectId(inode.0), extents, term };
        self.say_to(Generation(self.start.0 - 1), host, command);
    }

    pub fn say(&mut self, host: Generation, command: LockCommand) {
        self.say_to(self.start, host, command);
    }

    fn say_to(&mut self, start: Generation, host: Generation, command: LockCommand) {
        let request = LockRequest { host, start, dropped: Vec::new(), command };
        self.take(Input::Message { to: SERVER, from: NodeId::Host(host), message: Message::LockRequest(request) });
    }

    /// The next answer of the lock server to a host.
    pub fn hear_lock(&mut self, host: Generation) -> Option<LockReply> {
        self.locks.get_mut(&host)?.pop_front().map(|answer| answer.reply)
    }
}

pub fn name_of(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

/// Creates a regular file.
pub fn create(name: &str) -> FileCommand {
    creation(name, NewInode::Regular)
}

pub fn creation(name: &str, node: NewInode) -> FileCommand {
    let (parent, name, owner) = (ROOT, name_of(name), Owner::default());
    FileCommand::Create { parent, name, node, exclusive: true, owner, mode: 0o644 }
}

pub fn unlink(name: &str) -> FileCommand {
    FileCommand::Unlink { parent: ROOT, name: name_of(name) }
}

/// A link with the longest target.
pub fn symbolic_link(name: &str) -> FileCommand {
    let target = vec![b'x'; limits::SYMBOLIC_LINK_BYTES_MAX].into();
    creation(name, NewInode::SymbolicLink { target })
}
