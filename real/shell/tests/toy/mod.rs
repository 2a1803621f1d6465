//! The smallest machines that use the whole shell: a device that stores blocks without any ordering, and a host that sends it requests and
//! resends them until they are answered. And peers that are no machines: their frames.

#![allow(dead_code, missing_docs)]

use braid_base::{ArrayId, BLOCK_BYTES, BlockRange, DeviceId, Epoch, Generation, NodeId, Now, ObjectId, Stamp, Time};
use braid_base::{Level, TransactionId, VolumeId};
use braid_blocks::{Content, Linkage, Piece, Want};
use braid_machine::{
    ArrayRequest, DiskCommand, DiskResult, DiskTag, Effects, HostEffects, HostError, HostOutcome, HostRequest,
    HostSuccess, Input, Machine, MountRequest, Never, NoDisk, OneDisk, OpId, Patience, VolumeRequest,
};
use braid_ordering::{Ordering, WriteMode};
use braid_shell::{
    Address, Addresses, Counters, Disk, DiskOptions, EngineChoice, HostClient, Listener, Node, run_host, run_server,
};
use braid_wire::hello::HELLO_BYTES;
use braid_wire::{Answer, Command, Failure, Frame, Hello, Managed, Message, Reply, Request, Step, Task};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

pub const ARRAY: ArrayId = ArrayId([7; 16]);
pub const MIB: u64 = 1 << 20;
/// Longer than everything takes.
pub const LONG: Duration = Duration::from_secs(20);
const RESEND: Duration = Duration::from_millis(20);

/// Reads and writes blocks at the requested offsets.
#[derive(Default)]
pub struct ToyDevice {
    last_tag: u64,
    at_work: BTreeMap<DiskTag, (NodeId, TransactionId, BlockRange)>,
}

impl Machine for ToyDevice {
    type Request = Never;
    type Outcome = Never;
    type Disk = OneDisk;

    fn step(&mut self, _now: Now, input: Input, out: &mut Effects) {
        match input {
            Input::Message { from, message: Message::Request(request), .. } => match request.command {
                Command::Read { transaction, extents, .. } => {
                    let range = extents[0];
                    let length = range.count as usize * BLOCK_BYTES;
                    let command = DiskCommand::Read { offset: range.start * BLOCK_BYTES as u64, length };
                    out.disk(self.work(from, transaction, range), command);
                }
                Command::Write { transaction, pieces, .. } => {
                    let range = pieces[0].range;
                    let Content::Data(data) = &pieces[0].content else { panic!("the toy host writes data") };
                    let offset = range.start * BLOCK_BYTES as u64;
                    let command = DiskCommand::Write { offset, data: vec![data.clone()], durable: true };
                    out.disk(self.work(from, transaction, range), command);
                }
                Command::Manage { ticket, .. } => {
                    answer(out, from, Reply::Managed { ticket, result: Ok(Managed::Done) });
                }
                _ => {}
            },
            Input::DiskDone { tag, result } => {
                let (host, transaction, range) = self.at_work.remove(&tag).expect("a command completes once");
                let reply = match result {
                    DiskResult::Read(Ok(data)) => Reply::Data {
                        transaction,
                        waited: false,
                        pieces: vec![Piece { range, content: Content::Data(data) }],
                    },
                    DiskResult::Done(Ok(())) => Reply::Written { transaction, waited: false },
                    DiskResult::Read(Err(_)) | DiskResult::Done(Err(_)) => {
                        Reply::Failed { transaction, step: Step::Read, failure: Failure::Disk }
                    }
                };
                answer(out, host, reply);
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        None
    }

    fn invariants(&self) {}
}

impl ToyDevice {
    fn work(&mut self, host: NodeId, transaction: TransactionId, range: BlockRange) -> DiskTag {
        self.last_tag += 1;
        self.at_work.insert(DiskTag(self.last_tag), (host, transaction, range));
        DiskTag(self.last_tag)
    }
}

fn answer(out: &mut Effects, to: NodeId, reply: Reply) {
    out.send(to, Message::Answer(Answer { epoch: Epoch(1), confirmed: Vec::new(), reply }));
}

/// Sends each request to the device whose number is the volume's number.
pub struct ToyHost {
    generation: Generation,
    asked: BTreeMap<u64, (NodeId, Command)>,
    resend_at: Option<Time>,
}

impl ToyHost {
    pub fn new(generation: Generation) -> ToyHost {
        ToyHost { generation, asked: BTreeMap::new(), resend_at: None }
    }

    fn command(&self, op: OpId, request: MountRequest) -> (DeviceId, Command) {
        let transaction = TransactionId { host: self.generation, sequence: op.number };
        let blocks = |offset: u64, length: usize| BlockRange {
            start: offset / BLOCK_BYTES as u64,
            count: (length / BLOCK_BYTES) as u64,
        };
        let MountRequest::Host(request) = request else { panic!("the toy host has no files") };
        match request {
            HostRequest::Volume(VolumeRequest::Read { volume, offset, length, .. }) => {
                (DeviceId(volume.0 as u16), read_command(transaction, blocks(offset, length)))
            }
            HostRequest::Volume(VolumeRequest::Write { volume, offset, data, .. }) => {
                let range = blocks(offset, data.len());
                let command = Command::Write {
                    transaction,
                    stamp: Stamp::default(),
                    object: ObjectId(1),
                    ordering: Ordering::Timestamp,
                    participants: Vec::new(),
                    linkage: Linkage { first: 0, last: 0 },
                    mode: WriteMode::Immediate,
                    pieces: vec![Piece { range, content: Content::Data(data) }],
                };
                (DeviceId(volume.0 as u16), command)
            }
            HostRequest::Array(ArrayRequest::Manage { device, task }) => {
                (device, Command::Manage { ticket: op.number, task })
            }
            other => panic!("the toy host knows no {other:?}"),
        }
    }

    fn ask(&self, to: NodeId, command: Command, out: &mut HostEffects) {
        out.send(to, request(self.generation, command));
    }
}

impl Machine for ToyHost {
    type Request = MountRequest;
    type Outcome = HostOutcome;
    type Disk = NoDisk;

    fn step(&mut self, now: Now, input: Input<MountRequest, NoDisk>, out: &mut HostEffects) {
        match input {
            Input::Request { op, request } => {
                let (device, command) = self.command(op, request);
                self.asked.insert(op.number, (NodeId::Device(device), command.clone()));
                self.ask(NodeId::Device(device), command, out);
                self.resend_at.get_or_insert(now.time.after(RESEND));
            }
            Input::Message { message: Message::Answer(answer), .. } => {
                let (op, outcome) = match answer.reply {
                    Reply::Data { transaction, pieces, .. } => {
                        let Content::Data(data) = pieces[0].content.clone() else {
                            panic!("the toy device sends data")
                        };
                        (transaction.sequence, Ok(HostSuccess::Data(vec![data])))
                    }
                    Reply::Written { transaction, .. } => (transaction.sequence, Ok(HostSuccess::Done)),
                    Reply::Managed { ticket, .. } => (ticket, Ok(HostSuccess::Done)),
                    Reply::Failed { transaction, .. } => (transaction.sequence, Err(HostError::OutOfRange)),
                    other => panic!("the toy device says no {other:?}"),
                };
                if self.asked.remove(&op).is_some() {
                    out.reply(OpId::front_end(op), outcome);
                }
            }
            Input::Wake => {
                assert!(self.resend_at.is_some_and(|at| at <= now.time), "a wake comes no earlier than the deadline");
                for (to, command) in self.asked.values() {
                    self.ask(*to, command.clone(), out);
                }
                self.resend_at = (!self.asked.is_empty()).then(|| now.time.after(RESEND));
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.resend_at
    }

    fn invariants(&self) {
        assert!(self.asked.is_empty() || self.resend_at.is_some(), "an unanswered request is resent");
    }
}

/// A machine that runs until it is stopped.
pub struct Running {
    pub counters: Arc<Counters>,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<io::Result<()>>,
}

impl Running {
    /// Runs the future that `start` makes; it is to end when the sender is heard of. Returns what else `start` has made.
    pub fn start<T, F: Future<Output = io::Result<()>> + Send + 'static>(
        start: impl FnOnce(Arc<Counters>, oneshot::Receiver<()>) -> (T, F),
    ) -> (T, Running) {
        let (stop, stopped) = oneshot::channel();
        let counters = Arc::<Counters>::default();
        let (made, running) = start(counters.clone(), stopped);
        (made, Running { counters, stop, task: tokio::spawn(running) })
    }

    /// Stops it and waits for it to end.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        self.task.await.expect("the machine did not panic").expect("the system reported no error");
    }
}

/// Starts a toy device and returns its address.
pub async fn start_device(id: u16, file: &Path, address: &Address, engine: EngineChoice) -> (Address, Running) {
    let listener = Listener::bind(address).await.expect("a place to listen at");
    start_device_behind(listener, id, file, engine)
}

/// Starts a toy device on an existing listener.
pub fn start_device_behind(listener: Listener, id: u16, file: &Path, engine: EngineChoice) -> (Address, Running) {
    let disk = Disk::open(file, &DiskOptions::default()).expect("a disk");
    let us = Node { array: ARRAY, id: NodeId::Device(DeviceId(id)) };
    let (_, nobody) = watch::channel(Addresses::new());
    Running::start(|counters, stopped| {
        let (address, disk) = (listener.address().clone(), (disk, engine));
        (address, run_server(ToyDevice::default(), us, disk, listener, nobody, counters, heard(stopped)).1)
    })
}

/// Returns when a machine is to stop.
pub async fn heard(stopped: oneshot::Receiver<()>) {
    let _ = stopped.await;
}

/// Starts a toy host that knows these devices.
pub fn start_host(
    array: ArrayId,
    generation: u32,
    devices: impl IntoIterator<Item = (u16, Address)>,
) -> (HostClient, watch::Sender<Addresses>, Running) {
    let devices = devices.into_iter().map(|(id, address)| (NodeId::Device(DeviceId(id)), address)).collect();
    let (addresses, devices) = watch::channel(devices);
    let us = Node { array, id: NodeId::Host(Generation(generation)) };
    let machine = ToyHost::new(Generation(generation));
    let (client, running) =
        Running::start(|counters, stopped| run_host(machine, us, devices, counters, heard(stopped)));
    (client, addresses, running)
}

/// Reads from a device's disk.
pub async fn read(client: &HostClient, device: u16, offset: u64, length: usize) -> Result<Bytes, HostError> {
    match client
        .call(VolumeRequest::Read { volume: VolumeId(device.into()), offset, length, patience: Patience::Host })
        .await?
    {
        HostSuccess::Data(data) => Ok(data[0].clone()),
        other => panic!("a read brings data, not {other:?}"),
    }
}

/// Writes to a device's disk.
pub async fn write(client: &HostClient, device: u16, offset: u64, data: Bytes) -> HostOutcome {
    client.call(VolumeRequest::Write { volume: VolumeId(device.into()), offset, data, patience: Patience::Host }).await
}

/// Goes to the device and back without using its disk.
pub async fn echo(client: &HostClient, device: u16) -> HostOutcome {
    client.call(ArrayRequest::Manage { device: DeviceId(device), task: Task::Flush }).await
}

/// A read of some blocks.
pub fn read_command(transaction: TransactionId, range: BlockRange) -> Command {
    let (stamp, object, ordering) = (Stamp::default(), ObjectId(1), Ordering::Timestamp);
    Command::Read { transaction, stamp, object, ordering, extents: vec![range], want: Want::Data }
}

/// A request of a host.
pub fn request(host: Generation, command: Command) -> Message {
    let (over, commits) = (Vec::new(), Vec::new());
    Message::Request(Request { host, epoch: Epoch(1), settled: 0, over, commits, command })
}

/// A request of a host that is answered without a disk.
pub fn echo_of(host: u32) -> Message {
    request(Generation(host), Command::Manage { ticket: 1, task: Task::Flush })
}

/// A read of 1024 blocks by a host.
pub fn large_read_of(host: u32, sequence: u64) -> Message {
    let host = Generation(host);
    request(host, read_command(TransactionId { host, sequence }, BlockRange::new(0, 1024)))
}

/// The bytes of a message.
pub fn encode(array: ArrayId, from: NodeId, to: NodeId, message: Message) -> Vec<u8> {
    Frame { array, from, to, message }.encode().to_bytes().to_vec()
}

/// A connection on which both sides have said hello.
pub async fn connect(address: &Address) -> TcpStream {
    let mut stream = connect_silently(address).await;
    greet(&mut stream).await;
    stream
}

/// Says hello, and hears the other side's.
pub async fn greet(stream: &mut TcpStream) {
    stream.write_all(&Hello::ours(ARRAY, Level::FIRST).encode()).await.expect("sent");
    in_time(stream.read_exact(&mut [0; HELLO_BYTES])).await.expect("answered");
}

pub async fn connect_silently(address: &Address) -> TcpStream {
    let Address::Tcp { host, port } = address else { panic!("a TCP address") };
    TcpStream::connect((host.as_str(), *port)).await.expect("connected")
}

/// The output of a future, which must come in time.
pub async fn in_time<T>(future: impl Future<Output = T>) -> T {
    timeout(LONG, future).await.expect("in time")
}

/// Lets other tasks run until the condition holds.
pub async fn wait_until(so: impl Fn() -> bool) {
    let waiting = async {
        while !so() {
            tokio::task::yield_now().await;
        }
    };
    in_time(waiting).await;
}

/// A folder that is removed at the end of the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("braid-shell-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    /// Creates a sparse file of this size.
    pub fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.0.join(name);
        std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
