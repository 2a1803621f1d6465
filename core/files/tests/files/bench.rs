//! The bench: clients, their hosts, the server, and the network between them.

pub use crate::server::FILE_SYSTEM;
use crate::server::{SERVER, Server};
use crate::volume::{Volume, VolumeHost};
pub use braid_base::limits::Settings;
pub use braid_base::{Clock, Generation, InodeId, NodeId, Now, Rng, Time, VolumeId};
pub use braid_files::{FileClient, FileClientConfig};
pub use braid_machine::{
    ArrayRequest, Effect, FileHandle, FilesError, FilesRequest, FilesSuccess, HostEffects, HostError, HostOutcome,
    HostSuccess, Input, Machine, MountRequest, NoDisk, OpId,
};
pub use braid_wire::{FileCommand, FileResult, Message, MonitorReply, NewInode, Owner};
pub use bytes::Bytes;
pub use std::cell::RefCell;
pub use std::collections::BTreeMap;
pub use std::rc::Rc;
pub use std::time::Duration;

/// The volume's stripe.
pub const STRIPE_BYTES: usize = 16 * 4096;

/// How bad the network is.
#[derive(Clone, Copy)]
pub struct Network {
    /// One of so many messages is lost; zero: none.
    pub loses: u64,
    /// One of so many is delivered twice.
    pub doubles: u64,
    pub longest: Duration,
}

pub const GOOD: Network = Network { loses: 0, doubles: 0, longest: Duration::from_micros(200) };
pub const BAD: Network = Network { loses: 20, doubles: 10, longest: Duration::from_millis(40) };

pub struct Bench {
    pub clients: BTreeMap<Generation, FileClient<VolumeHost>>,
    pub server: Server,
    pub volume: Rc<RefCell<Volume>>,
    pub network: Network,
    /// No message from or to this client arrives.
    pub cut: Option<Generation>,
    pub now: Now,
    pub rng: Rng,
    /// Messages under way: to a client, or from it to the server.
    messages: BTreeMap<(Time, u64), Parcel>,
    next: u64,
    /// Operations that have ended, with the time.
    pub ended: BTreeMap<OpId, (Time, HostOutcome)>,
    next_host: u32,
}

struct Parcel {
    client: Generation,
    is_to_server: bool,
    message: Message,
}

impl Bench {
    pub fn new(seed: u64, clients: u32, blocks: u64, network: Network) -> Bench {
        let volume = Volume::new(blocks);
        let mut bench = Bench {
            clients: BTreeMap::new(),
            server: Server::new(volume.clone(), blocks),
            volume,
            network,
            cut: None,
            now: Now { time: Time(1_000_000_000), clock: Clock(5_000_000_000) },
            rng: Rng::new(seed),
            messages: BTreeMap::new(),
            next: 1,
            ended: BTreeMap::new(),
            next_host: 1,
        };
        bench.server.restart(bench.now);
        (0..clients).for_each(|_| {
            bench.add();
        });
        bench
    }

    /// Two clients that have a file open.
    pub fn with_shared_file(seed: u64) -> (Bench, InodeId, FileHandle, FileHandle) {
        let mut bench = Bench::new(seed, 2, 8192, GOOD);
        let inode = bench.create(Generation(1), "a");
        let [one, two] = [1, 2].map(|host| bench.open(Generation(host), inode));
        (bench, inode, one, two)
    }

    /// Starts another client.
    pub fn add(&mut self) -> Generation {
        let host = Generation(self.next_host);
        self.next_host += 1;
        let inner = VolumeHost::new(self.volume.clone(), host, self.rng.next_u64(), self.network.longest);
        let config = FileClientConfig {
            file_system: FILE_SYSTEM,
            shards: vec![FILE_SYSTEM],
            host,
            volume: VolumeId(1),
            stripe_bytes: STRIPE_BYTES,
            settings: Settings::default(),
        };
        self.clients.insert(host, FileClient::new(inner, config));
        self.step(host, Input::Start);
        host
    }

    /// The client is gone without a word.
    pub fn crash(&mut self, host: Generation) {
        self.clients.remove(&host);
    }

    pub fn restart_server(&mut self) {
        self.messages.retain(|_, parcel| !parcel.is_to_server);
        self.server.restart(self.now);
        self.collect();
    }

    pub fn ask(&mut self, host: Generation, request: FilesRequest) -> OpId {
        self.ask_host(host, MountRequest::Files { file_system: FILE_SYSTEM, request })
    }

    pub fn ask_host(&mut self, host: Generation, request: impl Into<MountRequest>) -> OpId {
        let op = OpId::front_end(self.next);
        self.next += 1;
        self.step(host, Input::Request { op, request: request.into() });
        op
    }

    fn step(&mut self, host: Generation, input: Input<MountRequest, NoDisk>) {
        let Some(client) = self.clients.get_mut(&host) else { return };
        let mut effects = HostEffects::new();
        client.step(self.now, input, &mut effects);
        client.invariants();
        assert_eq!(client.deadline().filter(|deadline| *deadline <= self.now.time), None, "it has done what is due");
        for effect in effects.drain() {
            match effect {
                Effect::Send { to, message } => {
                    assert_eq!(to, SERVER);
                    self.send(Parcel { client: host, is_to_server: true, message });
                }
                Effect::Reply { op, outcome } => {
                    let before = self.ended.insert(op, (self.now.time, outcome));
                    assert!(before.is_none(), "an operation ends once");
                }
                Effect::Disk { .. } => panic!("a client has no disk"),
            }
        }
    }

    fn send(&mut self, parcel: Parcel) {
        let Network { loses, doubles, longest } = self.network;
        let of = |rng: &mut Rng, parts: u64| parts > 0 && rng.chance(1, parts);
        let is_cut = self.cut == Some(parcel.client);
        let copies = match (is_cut || of(&mut self.rng, loses), of(&mut self.rng, doubles)) {
            (true, _) => 0,
            (false, true) => 2,
            (false, false) => 1,
        };
        for _ in 0..copies {
            let wait = Duration::from_nanos(self.rng.between(1, longest.as_nanos() as u64));
            self.next += 1;
            let Parcel { client, is_to_server, ref message } = parcel;
            let copy = Parcel { client, is_to_server, message: message.clone() };
            self.messages.insert((self.now.time.after(wait), self.next), copy);
        }
    }

    fn collect(&mut self) {
        for (client, message) in std::mem::take(&mut self.server.outbox) {
            self.send(Parcel { client, is_to_server: false, message });
        }
    }

    /// Lets the next thing happen, at `until` at the latest. False if nothing happens by then.
    pub fn happen(&mut self, until: Time) -> bool {
        let message = self.messages.first_key_value().map(|((time, _), _)| (*time, 0, Generation(0)));
        let server = self.server.deadline().map(|time| (time, 1, Generation(0)));
        let clients = self.clients.iter().filter_map(|(host, client)| Some((client.deadline()?, 2, *host)));
        let next = message.into_iter().chain(server).chain(clients).min();
        let Some((time, what, host)) = next.filter(|(time, ..)| *time <= until) else {
            self.set_time(until);
            return false;
        };
        self.set_time(time.max(self.now.time));
        match what {
            0 => {
                let (_, Parcel { client, is_to_server, message }) = self.messages.pop_first().expect("just seen");
                if is_to_server {
                    self.server.on_message(self.now, client, message);
                } else {
                    self.step(client, Input::Message { to: NodeId::Host(client), from: SERVER, message });
                }
            }
            1 => self.server.take(self.now, Input::Wake),
            _ => self.step(host, Input::Wake),
        }
        self.collect();
        true
    }

    fn set_time(&mut self, time: Time) {
        self.now.clock.0 += time.0 - self.now.time.0;
        self.now.time = time;
    }

    pub fn pass(&mut self, span: Duration) {
        let until = self.now.time.after(span);
        while self.happen(until) {}
    }

    /// Waits until an operation has ended.
    pub fn finish(&mut self, op: OpId) -> HostOutcome {
        let until = self.now.time.after(Duration::from_secs(120));
        while !self.ended.contains_key(&op) {
            assert!(self.happen(until), "the operation ends");
        }
        self.ended[&op].1.clone()
    }

    /// Executes an operation, and waits for its end.
    pub fn call(&mut self, host: Generation, request: FilesRequest) -> Result<FilesSuccess, HostError> {
        let op = self.ask(host, request);
        self.finish(op).map(|success| match success {
            HostSuccess::Files(success) => success,
            other => panic!("not the outcome of an operation on files: {other:?}"),
        })
    }

    pub fn command(&mut self, host: Generation, command: FileCommand) -> FileResult {
        match self.call(host, FilesRequest::Command(command)) {
            Ok(FilesSuccess::Result(result)) => result,
            other => panic!("{other:?}"),
        }
    }

    pub fn create(&mut self, host: Generation, name: &str) -> InodeId {
        let command = FileCommand::Create {
            parent: InodeId::ROOT,
            name: Bytes::copy_from_slice(name.as_bytes()),
            node: NewInode::Regular,
            exclusive: true,
            owner: Owner::default(),
            mode: 0o644,
        };
        match self.command(host, command) {
            FileResult::Created { attributes, .. } => attributes.inode,
            other => panic!("{other:?}"),
        }
    }

    pub fn create_open(&mut self, host: Generation, name: &str) -> Result<FilesSuccess, HostError> {
        self.call(host, creation(name))
    }

    pub fn open(&mut self, host: Generation, inode: InodeId) -> FileHandle {
        match self.call(host, FilesRequest::Open { inode }) {
            Ok(FilesSuccess::Opened { handle, .. }) => handle,
            other => panic!("{other:?}"),
        }
    }

    pub fn read(&mut self, host: Generation, handle: FileHandle, offset: u64, length: usize) -> Vec<u8> {
        match self.call(host, FilesRequest::Read { handle, offset, length }) {
            Ok(FilesSuccess::Data(data)) => data.concat(),
            other => panic!("{other:?}"),
        }
    }

    pub fn write(&mut self, host: Generation, handle: FileHandle, offset: u64, data: &[u8]) {
        let data = Bytes::copy_from_slice(data);
        let length = data.len() as u64;
        let written = self.call(host, FilesRequest::Write { handle, offset, data });
        assert_eq!(written, Ok(FilesSuccess::Written { length }));
    }

    /// Unmounts all clients, and asserts that nothing is left of them.
    pub fn unmount_all(&mut self) {
        for host in self.clients.keys().copied().collect::<Vec<_>>() {
            let op = self.ask_host(host, ArrayRequest::Disconnect);
            assert_eq!(self.finish(op), Ok(HostSuccess::Done));
        }
        self.pass(Duration::from_secs(1));
        assert_eq!(self.server.status().allotted, 0, "allotments are returned");
        let holders = self.server.holders();
        assert!(self.clients.keys().all(|host| !holders.contains(host)), "locks are given back: {holders:?}");
        self.server.check();
    }
}

/// A request to create a file in the root and to open it.
pub fn creation(name: &str) -> FilesRequest {
    let name = Bytes::copy_from_slice(name.as_bytes());
    FilesRequest::Create { parent: InodeId::ROOT, name, owner: Owner::default(), mode: 0o644 }
}
