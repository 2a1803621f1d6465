//! Hostile peers at every socket of an array: they know the array's id, and do what no host or client does.
//!
//! | behaviour | what it does |
//! | --- | --- |
//! | half open | connects, and sends a byte every four seconds |
//! | unfinished | sends all of the largest frame but its last byte |
//! | deaf | sends heartbeats and large reads, and reads no answer |
//! | greedy | sends hundreds of large reads at once, and reads nothing of the answers, or a byte a second |
//! | impostor | speaks in the names of nodes that are connected, and of the monitor |
//! | locker | asks a lock server for locks of as many extents as fit into a message |
//! | clients | NBD clients that do nothing, read no replies or a byte a second of them, or do not finish a write |
//!
//! Frames that are wrong are left to `real/shell/tests` and `sim/hostile`. Nothing in it changes data: a host that is allowed to connect may do that, until hosts are authenticated.

use crate::array::{Array, number, text};
use braid_base::{
    ArrayId, BlockRange, Clock, DeviceId, Epoch, Generation, Level, LockServerId, NodeId, ObjectId, Stamp, Time,
    TransactionId,
};
use braid_blocks::{Content, Piece, Want};
use braid_ordering::Ordering;
use braid_wire::{
    Command, Frame, Hello, LockCommand, LockExtent, LockMode, LockRequest, LockTerm, Message, MonitorAnswer,
    MonitorCommand, MonitorReply, MonitorRequest, Partial, Request,
};
use bytes::Bytes;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::time::{ClockId, clock_gettime};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The pause of a behaviour that has nothing to do.
const PAUSE: Duration = Duration::from_millis(20);
/// Peers of each device that read next to nothing, how many reads they send at once, and how often they read a byte.
const GREEDY: usize = 24;
const BURST: u64 = 200;
const BYTE_EVERY: Duration = Duration::from_secs(1);
/// Peers of each device that read nothing, and after how long they are disconnected.
const DEAF: usize = 24;
const UNREAD_LIMIT: Duration = Duration::from_secs(10);
/// Names of hosts that do not exist.
const STRANGERS: u32 = 1_000_000;

/// An attack that is under way.
#[derive(Debug)]
pub struct Attack {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// Connections that were opened.
    opened: AtomicU64,
    /// Connections that the array has closed.
    closed: AtomicU64,
    sent_bytes: AtomicU64,
    cpu_micros: AtomicU64,
}

/// What an attack has done.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub opened: u64,
    pub closed: u64,
    pub sent_bytes: u64,
    /// The processor time that it has used.
    pub cpu_micros: u64,
}

/// The array as the attacker knows it.
#[derive(Clone, Debug)]
struct Target {
    array: ArrayId,
    epoch: Epoch,
    run: PathBuf,
    /// A host that is connected.
    host: Generation,
    /// A volume that is full.
    full: Option<ObjectId>,
}

/// A behaviour: what one thread does again and again.
type Behaviour = Box<dyn FnMut(&mut Budget) + Send>;

/// The processor time that a thread may use.
struct Budget {
    share: f64,
    begun: Instant,
    shared: Arc<Shared>,
}

impl Attack {
    /// Attacks everything that listens in the folder of an array, with this share of one processor. `half_open` connections are kept to
    /// each daemon.
    pub fn start(array: &Array, share: f64, half_open: usize) -> Attack {
        Attack::by(Target::of(array).behaviours(half_open), share)
    }

    /// Makes all processes hold as much as they do, with a volume of 16 MiB that is full.
    pub fn on_memory(array: &Array, share: f64, full: u64) -> Attack {
        let target = Target { full: Some(ObjectId(full)), ..Target::of(array) };
        Attack::by(target.behaviours(0), share)
    }

    fn by(behaviours: Vec<Behaviour>, share: f64) -> Attack {
        let share = share / behaviours.len() as f64;
        let shared = Arc::new(Shared::default());
        let start = |mut behaviour: Behaviour| {
            let mut budget = Budget { share, begun: Instant::now(), shared: shared.clone() };
            std::thread::spawn(move || {
                while !budget.shared.stop.load(Relaxed) {
                    behaviour(&mut budget);
                    budget.rest();
                }
                budget.shared.cpu_micros.fetch_add(used().as_micros() as u64, Relaxed);
            })
        };
        let threads = behaviours.into_iter().map(start).collect();
        Attack { shared, threads }
    }

    /// Ends it.
    pub fn stop(self) -> Done {
        self.shared.stop.store(true, Relaxed);
        for thread in self.threads {
            thread.join().expect("the attacker does not panic");
        }
        let Shared { opened, closed, sent_bytes, cpu_micros, .. } = &*self.shared;
        let [opened, closed, sent_bytes, cpu_micros] =
            [opened, closed, sent_bytes, cpu_micros].map(|count| count.load(Relaxed));
        Done { opened, closed, sent_bytes, cpu_micros }
    }
}

impl Budget {
    /// Sleeps until this thread has used no more than its share, and for a moment at least.
    fn rest(&self) {
        let used = used().div_f64(self.share);
        std::thread::sleep(used.saturating_sub(self.begun.elapsed()).clamp(PAUSE, Duration::from_secs(2)));
    }

    fn open(&self, path: &Path) -> Option<UnixStream> {
        // It does not wait in the queue of a socket.
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a socket");
        connect(&socket, &SocketAddrUnix::new(path).expect("a short path")).ok()?;
        let stream = UnixStream::from(socket);
        self.shared.opened.fetch_add(1, Relaxed);
        Some(stream)
    }

    /// Sends what the socket accepts; none if the other side has closed it.
    fn send(&self, stream: &mut UnixStream, bytes: &[u8]) -> Option<usize> {
        match stream.write(bytes) {
            Ok(count) => {
                self.shared.sent_bytes.fetch_add(count as u64, Relaxed);
                Some(count)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
            Err(_) => {
                self.shared.closed.fetch_add(1, Relaxed);
                None
            }
        }
    }
}

/// The processor time that this thread has used.
fn used() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

/// A connection with bytes to send.
struct Sending {
    stream: UnixStream,
    bytes: Bytes,
    at: usize,
    /// True if these bytes are not those with which a connection begins.
    has_begun: bool,
}

/// A socket, and the bytes with which a connection to it begins.
type Socket = (PathBuf, Bytes);

/// Keeps connections to a socket, each of which sends the bytes of a turn; returns the behaviour. `next` says what a connection sends after
/// it has sent everything; empty to send nothing more.
fn keep(
    socket: Socket,
    count: usize,
    first: impl FnMut(usize) -> Bytes + Send + 'static,
    next: impl FnMut(usize) -> Bytes + Send + 'static,
) -> Behaviour {
    keep_trickling(socket, count, 0, first, next)
}

/// The same; the first `trickling` of them read a byte a second.
fn keep_trickling(
    socket: Socket,
    count: usize,
    trickling: usize,
    mut first: impl FnMut(usize) -> Bytes + Send + 'static,
    mut next: impl FnMut(usize) -> Bytes + Send + 'static,
) -> Behaviour {
    let mut connections: Vec<Option<Sending>> = (0..count).map(|_| None).collect();
    let ((path, hello), mut read) = (socket, Instant::now());
    Box::new(move |budget| {
        let reads = read.elapsed() >= BYTE_EVERY;
        if reads {
            read = Instant::now();
        }
        for (index, connection) in connections.iter_mut().enumerate() {
            if budget.shared.stop.load(Relaxed) {
                return;
            }
            let Some(sending) = connection else {
                let open = budget.open(&path);
                *connection = open.map(|stream| Sending { stream, bytes: hello.clone(), at: 0, has_begun: false });
                continue;
            };
            if sending.at == sending.bytes.len() {
                let begins = !std::mem::replace(&mut sending.has_begun, true);
                (sending.bytes, sending.at) = (if begins { first(index) } else { next(index) }, 0);
            }
            // A closed connection is found by sending, and by looking for its end.
            let mut ends = [0; 1];
            if reads && index < trickling {
                let _ = sending.stream.read(&mut ends);
            }
            let is_over = sending.bytes.is_empty() && matches!(sending.stream.read(&mut ends), Ok(0));
            match budget.send(&mut sending.stream, &sending.bytes[sending.at..]).filter(|_| !is_over) {
                Some(count) => sending.at += count,
                None => *connection = None,
            }
        }
    })
}

impl Target {
    fn of(array: &Array) -> Target {
        let status = array.status();
        let hexadecimal: String = text(&status["array"]).chars().filter(|letter| *letter != '-').collect();
        let id = u128::from_str_radix(&hexadecimal, 16).expect("a UUID");
        let host = number(&status["hosts"][0]["generation"]) as u32;
        Target {
            array: ArrayId(id.to_be_bytes()),
            epoch: Epoch(number(&status["epoch"]) as u32),
            run: array.dir().join("run"),
            host: Generation(host),
            full: None,
        }
    }

    fn behaviours(&self, half_open: usize) -> Vec<Behaviour> {
        let mut behaviours: Vec<Behaviour> = Vec::new();
        let hello = Hello::ours(self.array, Level::FIRST).encode();
        let sockets = std::fs::read_dir(&self.run).expect("the sockets are listed");
        for socket in sockets {
            let path = socket.expect("it can be read").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_string();
            match (self.node(&name), name.as_str()) {
                (Some(node), _) => behaviours.extend(self.against(node, (path, hello.clone()), half_open)),
                (None, "nbd") => behaviours.extend(clients(path)),
                (None, _) => {}
            }
        }
        behaviours
    }

    fn node(&self, name: &str) -> Option<NodeId> {
        let id = |kind: &str| name.strip_prefix(kind)?.parse::<u16>().ok();
        let device = || Some(NodeId::Device(DeviceId(id("device-")?)));
        let locks = || Some(NodeId::LockServer(LockServerId(id("lock-server-")?)));
        if name == "monitor" { Some(NodeId::Monitor) } else { device().or_else(locks) }
    }

    fn against(&self, to: NodeId, path: Socket, half_open: usize) -> Vec<Behaviour> {
        let mut slow = Instant::now();
        let mut behaviours = vec![
            // A byte every four seconds.
            keep(
                (path.0.clone(), Bytes::new()),
                half_open,
                |_| Bytes::from_static(b"B"),
                move |index| {
                    if index == 0 && slow.elapsed() >= Duration::from_secs(4) {
                        slow = Instant::now();
                    }
                    if slow.elapsed() < PAUSE { Bytes::from_static(b"R") } else { Bytes::new() }
                },
            ),
            keep(path.clone(), 64, self.unfinished(to), |_| Bytes::new()),
        ];
        if self.full.is_none() {
            behaviours.push(self.impostors(to, path.clone()));
        }
        match to {
            NodeId::Device(_) => {
                behaviours.extend(self.full.map(|object| self.greedy(to, path.clone(), object)));
                behaviours.push(self.deaf(to, path));
            }
            NodeId::LockServer(_) => behaviours.push(self.lockers(to, path)),
            _ => {}
        }
        behaviours
    }

    fn encode(&self, from: NodeId, to: NodeId, message: Message) -> Bytes {
        Frame { array: self.array, from, to, message }.encode().to_bytes()
    }

    fn request(&self, host: Generation, to: NodeId, command: Command) -> Bytes {
        let (over, commits) = (Vec::new(), Vec::new());
        let request = Request { host, epoch: self.epoch, settled: 0, over, commits, command };
        self.encode(NodeId::Host(host), to, Message::Request(request))
    }

    /// A read of 4 MiB.
    fn read(&self, host: Generation, to: NodeId, object: ObjectId, sequence: u64) -> Bytes {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
        let read = Command::Read {
            transaction: TransactionId { host, sequence },
            stamp: Stamp { clock: Clock(clock), host },
            object,
            ordering: Ordering::Timestamp,
            extents: vec![BlockRange::new(0, 1024)],
            want: Want::Data,
        };
        self.request(host, to, read)
    }

    fn heartbeat(&self, host: Generation, to: NodeId) -> Bytes {
        match to {
            NodeId::LockServer(_) => {
                let (start, dropped, command) = (Generation(0), Vec::new(), LockCommand::Heartbeat { sent: Time(0) });
                let request = LockRequest { host, start, dropped, command };
                self.encode(NodeId::Host(host), to, Message::LockRequest(request))
            }
            NodeId::Monitor => self.renewal(NodeId::Host(host), self.epoch),
            _ => self.request(host, to, Command::Heartbeat),
        }
    }

    fn renewal(&self, from: NodeId, epoch: Epoch) -> Bytes {
        let command = MonitorCommand::Renew {
            sent: Time(1),
            silent: Vec::new(),
            disk: None,
            bad_slots: 0,
            failing: false,
            undecided: Vec::new(),
            stamps: Clock(0),
            knows: Level::KNOWN,
            holder: None,
        };
        self.encode(from, NodeId::Monitor, Message::MonitorRequest(MonitorRequest { epoch, command }))
    }

    /// The largest frame, without its last byte.
    fn unfinished(&self, to: NodeId) -> impl FnMut(usize) -> Bytes + Send + 'static {
        let transaction = TransactionId { host: self.host, sequence: 1 };
        let range = BlockRange::new(0, 2048);
        let content = Content::Data(Bytes::from(vec![7; 8 << 20]));
        let (epoch, object, pieces) = (self.epoch, ObjectId(1), vec![Piece { range, content }]);
        let partial = Message::Partial(Partial { epoch, transaction, object, pieces });
        let frame = self.encode(NodeId::Device(DeviceId(900)), to, partial);
        let frame = frame.slice(..frame.len() - 1);
        move |_| frame.clone()
    }

    /// Hosts that read nothing of what they ask for.
    fn deaf(&self, to: NodeId, path: Socket) -> Behaviour {
        let (target, mut sequence) = (self.clone(), 0);
        // Six reads for each connection, which lasts for ten seconds: a device does all reads that it is sent.
        let mut reads = [(Instant::now(), 0); DEAF];
        let read = move |index: usize| {
            sequence += 1;
            let host = Generation(STRANGERS + index as u32);
            let (since, count) = &mut reads[index];
            if since.elapsed() >= UNREAD_LIMIT {
                (*since, *count) = (Instant::now(), 0);
            }
            *count += 1;
            if *count > 6 {
                return target.heartbeat(host, to);
            }
            Bytes::from([target.heartbeat(host, to), target.read(host, to, ObjectId(1), sequence)].concat())
        };
        let first = self.clone();
        keep(path, DEAF, move |index| first.heartbeat(Generation(STRANGERS + index as u32), to), read)
    }

    /// Hosts that ask for far more than they read.
    fn greedy(&self, to: NodeId, path: Socket, object: ObjectId) -> Behaviour {
        let (target, mut sequence) = (self.clone(), 1_000_000);
        let ask = move |index: usize| {
            let host = Generation(2 * STRANGERS + index as u32);
            let reads = (0..BURST).map(|_| {
                sequence += 1;
                target.read(host, to, object, sequence)
            });
            let heartbeat = target.heartbeat(host, to);
            Bytes::from(std::iter::once(heartbeat).chain(reads).collect::<Vec<_>>().concat())
        };
        keep_trickling(path, GREEDY, GREEDY / 2, ask, |_| Bytes::new())
    }

    /// Connections in the names of others.
    fn impostors(&self, to: NodeId, path: Socket) -> Behaviour {
        let target = self.clone();
        let claims = move |index: usize| {
            let lease = MonitorReply::Lease {
                sent: Time(1),
                length: Duration::from_secs(60),
                throttle: Default::default(),
                stamps: Clock(u64::MAX),
                level: Level(u16::MAX),
            };
            let lease = MonitorAnswer { membership: None, unavailable: Vec::new(), reply: lease };
            let (except, also) = (Vec::new(), Vec::new());
            let fence = MonitorCommand::Fence { ticket: 1, below: Generation(u32::MAX), except, also };
            let fence = MonitorRequest { epoch: target.epoch, command: fence };
            match index {
                0 => target.encode(NodeId::Monitor, to, Message::MonitorAnswer(lease)),
                // As devices, at the monitor and elsewhere.
                1..=3 => target.renewal(NodeId::Device(DeviceId(index as u16 - 1)), target.epoch),
                4 => target.encode(NodeId::Device(DeviceId(1)), to, Message::MonitorRequest(fence)),
                _ => target.heartbeat(target.host, to),
            }
        };
        let again = self.clone();
        keep(path, 8, claims, move |_| again.heartbeat(again.host, to))
    }

    fn lockers(&self, to: NodeId, path: Socket) -> Behaviour {
        let (target, mut lock_id) = (self.clone(), 0);
        let locks = move |index: usize| {
            lock_id += 1;
            let host = Generation(STRANGERS + index as u32);
            let extent =
                |at: u64| LockExtent { position: 0, range: BlockRange::new(2 * at, 1), mode: LockMode::Shared };
            let extents = (0..braid_base::limits::EXTENTS_MAX as u64).map(extent).collect();
            let command = LockCommand::Lock {
                lock_id,
                object: ObjectId(77),
                extents,
                term: LockTerm::Transaction { impatient: false },
            };
            let request = LockRequest { host, start: Generation(0), dropped: Vec::new(), command };
            target.encode(NodeId::Host(host), to, Message::LockRequest(request))
        };
        let first = self.clone();
        keep(path, 8, move |index| first.heartbeat(Generation(STRANGERS + index as u32), to), locks)
    }
}

/// NBD clients that do nothing, read nothing, or finish nothing.
fn clients(path: PathBuf) -> Vec<Behaviour> {
    let path = (path, Bytes::new());
    let open = |export: &str| {
        let name = export.as_bytes();
        [b"\0\0\0\x03IHAVEOPT\0\0\0\x01", &(name.len() as u32).to_be_bytes()[..], name].concat()
    };
    let header = |command: u16, offset: u64, length: u32| {
        let fixed = [&0x2560_9513u32.to_be_bytes()[..], &[0, 0], &command.to_be_bytes(), &[0; 8]].concat();
        [&fixed[..], &offset.to_be_bytes(), &length.to_be_bytes()].concat()
    };
    let read = header(0, 0, 16 << 20);
    let deaf = [open("vol0"), read.clone(), read.clone(), read.clone(), read].concat();
    let write = [open("vol0"), header(1, 0, 16 << 20), vec![1; (16 << 20) - 1]].concat();
    let [deaf, write, idle, forged] = [deaf, write, open("vol0"), open("x\x1b[2K\r\nall is well")].map(Bytes::from);
    vec![
        keep(path.clone(), 200, move |_| idle.clone(), |_| Bytes::new()),
        keep_trickling(path.clone(), 6, 3, move |_| deaf.clone(), |_| Bytes::new()),
        keep(path.clone(), 6, move |_| write.clone(), |_| Bytes::new()),
        keep(path, 2, move |_| forged.clone(), |_| Bytes::new()),
    ]
}
