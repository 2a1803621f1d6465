//! The metadata server of the bench. Its disk is memory, which executes each command at once, and the test plays a monitor that fences at once.

use crate::volume::Volume;
use braid_base::limits::Settings;
use braid_base::{ArrayId, FileSystemId, Generation, Membership, NodeId, Now, Time};
use braid_locks::LockServer;
use braid_machine::{Effect, Effects, Input, Machine};
use braid_metadata::{Grouping, MetadataServer, MetadataServerConfig, Protocol, Purpose, VOLUME_BYTES_MIN, format};
use braid_namespace::{Parameters, Shards};
use braid_wire::*;
use braid_world::MemoryDisk;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub const FILE_SYSTEM: FileSystemId = FileSystemId(3);
pub const SERVER: NodeId = NodeId::MetadataServer(FILE_SYSTEM);
const ARRAY: ArrayId = ArrayId(*b"a test of files.");

pub struct Server {
    server: MetadataServer,
    disk: MemoryDisk,
    now: Now,
    start: Generation,
    blocks: u64,
    /// Its fence is that of the array.
    membership: Membership,
    volume: Rc<RefCell<Volume>>,
    /// The last of the hosts that only ask how the file system is. The number of each is used once.
    last_observer: Generation,
    /// The commands of hosts, by their sequence.
    pub commands: BTreeMap<(Generation, u64), FileCommand>,
    /// Messages to hosts.
    pub outbox: Vec<(Generation, Message)>,
}

fn server(start: Generation, blocks: u64) -> MetadataServer {
    MetadataServer::new(MetadataServerConfig {
        array: ARRAY,
        file_system: FILE_SYSTEM,
        generation: Generation(10_000 + start.0),
        start,
        volume_bytes: VOLUME_BYTES_MIN,
        peers: vec![FILE_SYSTEM],
        commit_protocol: Protocol::OnePhase,
        grouping: Grouping::Operations,
        parameters: Parameters {
            blocks,
            stripe_blocks: 16,
            hash_key: *b"sixteen bytes...",
            hash_bits: Parameters::HASH_BITS_MAX,
            shards: Shards::ONE,
        },
        root: Owner::default(),
        serve_from: Time(0),
        settings: Settings::default(),
    })
}

impl Server {
    /// The server of a new file system, which is off.
    pub fn new(volume: Rc<RefCell<Volume>>, blocks: u64) -> Server {
        let parts = format(ARRAY, FILE_SYSTEM, VOLUME_BYTES_MIN, 77).expect("the volume is large enough");
        Server {
            server: server(Generation(0), blocks),
            disk: MemoryDisk::with(VOLUME_BYTES_MIN, parts),
            now: Now::default(),
            start: Generation(0),
            blocks,
            membership: Membership::default(),
            volume,
            last_observer: Generation(1_000),
            commands: BTreeMap::new(),
            outbox: Vec::new(),
        }
    }

    /// The process dies, if there is one, and another one begins.
    pub fn restart(&mut self, now: Now) {
        self.start.0 += 1;
        self.server = server(self.start, self.blocks);
        self.outbox.clear();
        self.take(now, Input::Start);
    }

    pub fn deadline(&self) -> Option<Time> {
        self.server.deadline()
    }

    /// Takes a step, and executes the disk commands that follow from it.
    pub fn take(&mut self, now: Now, input: Input) {
        self.now = now;
        let mut next = Some(input);
        while let Some(input) = next {
            let mut effects = Effects::new();
            self.server.step(now, input, &mut effects);
            effects.drain().for_each(|effect| self.on_effect(effect));
            next = self.disk.end_one().map(|(tag, result)| Input::DiskDone { tag, result });
        }
    }

    fn on_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Disk { tag, command } => self.disk.submit(tag, command),
            Effect::Send { to: NodeId::Host(host), message } => self.outbox.push((host, message)),
            Effect::Send { to: NodeId::Monitor, message: Message::MonitorRequest(request) } => {
                let MonitorCommand::Fence { ticket, also, .. } = request.command else { panic!("{request:?}") };
                self.fence(also, MonitorReply::Fenced { ticket });
            }
            other => panic!("not an effect of a metadata server: {other:?}"),
        }
    }

    pub fn on_message(&mut self, now: Now, host: Generation, message: Message) {
        if let Message::FileRequest(FileRequest { sequence, command, .. }) = &message {
            self.commands.insert((host, *sequence), command.clone());
        }
        self.take(now, Input::Message { to: SERVER, from: NodeId::Host(host), message });
    }

    /// The array fences hosts: their hostwrites have no effect any more. The server hears of it with this reply.
    pub fn fence(&mut self, hosts: impl IntoIterator<Item = Generation>, reply: MonitorReply) {
        self.membership.epoch.0 += 1;
        for host in hosts {
            self.volume.borrow_mut().fenced.insert(host);
            self.membership.fence.also.insert(host);
        }
        let membership = Some(self.membership.clone());
        let message = Message::MonitorAnswer(MonitorAnswer { membership, unavailable: Vec::new(), reply });
        self.take(self.now, Input::Message { to: SERVER, from: NodeId::Monitor, message });
    }

    pub fn status(&mut self) -> FileSystemStatus {
        self.last_observer.0 += 1;
        let host = self.last_observer;
        let command = FileCommand::StatFileSystem;
        let request = FileRequest { host, settled: 0, over: Vec::new(), sequence: 1, command };
        self.on_message(self.now, host, Message::FileRequest(request));
        match self.outbox.pop() {
            Some((to, Message::FileAnswer(FileAnswer { reply: Ok(FileResult::FileSystem(status)), .. }))) => {
                assert_eq!(to, host);
                status
            }
            other => panic!("no status: {other:?}"),
        }
    }

    /// Another process asserts the invariants of the namespace, such as that each block is in one place.
    pub fn check(&mut self) {
        self.server.invariants();
        self.start.0 += 1;
        self.server = server(self.start, self.blocks).with_purpose(Purpose::Checks);
        self.take(self.now, Input::Start);
        let (findings, _) = self.server.findings().expect("the disk has executed every command");
        assert_eq!(findings, [], "the namespace is sound");
        self.restart(self.now);
    }

    pub fn locks(&self) -> &LockServer {
        self.server.locks()
    }

    /// The hosts that hold locks.
    pub fn holders(&self) -> BTreeSet<Generation> {
        self.locks().engine().lock_ids().map(|(name, _)| name.host).collect()
    }
}
