//! A metadata server: the real lock server and the real namespace over a map in memory. It executes each command once, and remembers the
//! answers. Everything but the locks survives its restart.

use crate::volume::Volume;
use braid_base::limits::Settings;
use braid_base::{BlockRange, Generation, InodeId, LockServerId, NodeId, Now, ObjectId, Time};
use braid_locks::{DISK_BYTES, LockServer, LockServerConfig};
use braid_machine::{Effect, Effects, Input, Machine};
use braid_namespace::check::{Check, Windows};
use braid_namespace::reclaim::{Step, drop_host, listed, reclaim};
use braid_namespace::{Context, Parameters, Shards, evaluate, format};
use braid_objects::Key;
use braid_objects::map_access::apply;
use braid_wire::*;
use braid_world::MemoryDisk;
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The server itself, as a holder of locks.
const SELF: Generation = Generation(1_000);
/// The lock server of its inodes.
const LOCKS: NodeId = NodeId::LockServer(LockServerId(0));
const EXISTENCE: u16 = 1;

pub struct Server {
    pub locks: LockServer,
    disk: MemoryDisk,
    start: Generation,
    map: BTreeMap<Key, Bytes>,
    /// The answers to each host, by sequence.
    answers: BTreeMap<Generation, BTreeMap<u64, FileReply>>,
    /// Requests above the mark that are over, too.
    over: BTreeSet<(Generation, u64)>,
    settled: BTreeMap<Generation, u64>,
    /// Inodes whose existence lock the server has asked for, by the number of the lock.
    reclaiming: BTreeMap<u64, InodeId>,
    next_lock: u64,
    next_heartbeat: Time,
    volume: Rc<RefCell<Volume>>,
    pub is_nearly_full: bool,
    /// It is of an earlier release, and refuses to open what it creates.
    pub refuses_to_open: bool,
    /// Commands executed so far.
    pub executed: Vec<(Generation, FileCommand)>,
    /// Messages to hosts.
    pub outbox: Vec<(Generation, Message)>,
}

impl Server {
    pub fn new(volume: Rc<RefCell<Volume>>, blocks: u64) -> Server {
        let mut map = BTreeMap::new();
        let parameters = Parameters {
            blocks,
            stripe_blocks: 16,
            hash_key: *b"sixteen bytes...",
            hash_bits: 55,
            shards: Shards::ONE,
        };
        apply(&format(&parameters, Owner::default(), 0o755, FileTime(0)), &mut map);
        let start = Generation(1);
        Server {
            locks: LockServer::new(config(start)),
            disk: MemoryDisk::new(DISK_BYTES),
            start,
            map,
            answers: BTreeMap::new(),
            over: BTreeSet::new(),
            settled: BTreeMap::new(),
            reclaiming: BTreeMap::new(),
            next_lock: 1,
            next_heartbeat: Time(0),
            volume,
            is_nearly_full: false,
            refuses_to_open: false,
            executed: Vec::new(),
            outbox: Vec::new(),
        }
    }

    pub fn begin(&mut self, now: Now) {
        self.step(now, Input::Start);
    }

    pub fn restart(&mut self, now: Now) {
        self.start.0 += 1;
        self.locks = LockServer::new(config(self.start));
        self.disk.forget_commands();
        self.reclaiming.clear();
        self.outbox.clear();
        self.begin(now);
    }

    pub fn deadline(&self) -> Option<Time> {
        self.locks.deadline().into_iter().chain([self.next_heartbeat]).min()
    }

    pub fn wake(&mut self, now: Now) {
        if self.next_heartbeat <= now.time {
            self.next_heartbeat = now.time.after(Settings::default().heartbeat);
            self.say(now, LockCommand::Heartbeat { sent: Time(0) });
            self.ask_for_orphans(now);
        }
        self.step(now, Input::Wake);
    }

    pub fn on_message(&mut self, now: Now, host: Generation, message: Message) {
        match message {
            Message::LockRequest(_) => self.step(now, Input::Message { to: LOCKS, from: NodeId::Host(host), message }),
            Message::FileRequest(request) => self.on_request(now, host, request),
            other => panic!("not a message to a metadata server: {other:?}"),
        }
    }

    fn on_request(&mut self, now: Now, host: Generation, request: FileRequest) {
        assert_eq!(request.host, host);
        let FileRequest { sequence, settled, over, mut command, .. } = request;
        let opens = command.opens();
        if opens && self.refuses_to_open {
            return self.answer(host, sequence, Err(FileError::Malformed));
        }
        command.make_plain();
        if self.volume.borrow().fenced.contains(&host) {
            return self.answer(host, sequence, Err(FileError::Rejected(Rejection::Fenced)));
        }
        let mark = self.settled.entry(host).or_default();
        *mark = settled.max(*mark);
        let answers = self.answers.entry(host).or_default();
        answers.retain(|known, _| *known >= *mark && !over.contains(known));
        self.over.extend(over.into_iter().map(|sequence| (host, sequence)));
        if sequence < *mark || self.over.contains(&(host, sequence)) {
            return;
        }
        if let Some(reply) = answers.get(&sequence) {
            let reply = match reply.clone() {
                Ok(FileResult::Created { attributes, is_new: true })
                    if opens && self.locks.engine().holds(host, &opening_locks(sequence)) =>
                {
                    Ok(FileResult::Opened(attributes))
                }
                reply => reply,
            };
            return self.answer(host, sequence, reply);
        }
        let context = Context { host, now: FileTime(now.clock.0 as i64), is_nearly_full: self.is_nearly_full };
        let evaluation = evaluate(&command, context, &mut self.map).expect("all is in memory");
        apply(&evaluation.changes, &mut self.map);
        self.executed.push((host, command));
        if !evaluation.only_asks {
            answers.insert(sequence, evaluation.answer.clone());
        }
        let reply = match evaluation.answer {
            Ok(FileResult::Created { attributes, is_new: true })
                if opens && self.grant_open(now, host, sequence, attributes.inode) =>
            {
                Ok(FileResult::Opened(attributes))
            }
            reply => reply,
        };
        self.answer(host, sequence, reply);
        self.ask_for_orphans(now);
    }

    fn grant_open(&mut self, now: Now, host: Generation, sequence: u64, inode: InodeId) -> bool {
        let [existence, data] = opening_locks(sequence);
        let extent = |position, mode| LockExtent { position, range: BlockRange::new(0, 1), mode };
        let existence = (existence, extent(EXISTENCE, LockMode::Shared));
        let data = (data, extent(DATA_LOCK, LockMode::Exclusive));
        self.locks.grant(now, host, ObjectId(inode.0), &[existence, data], &mut Effects::new())
    }

    fn answer(&mut self, host: Generation, sequence: u64, reply: FileReply) {
        let answer = FileAnswer { start: self.start, sequence, reply };
        self.outbox.push((host, Message::FileAnswer(answer)));
    }

    /// Asks for the existence locks of inodes that are to be removed.
    fn ask_for_orphans(&mut self, now: Now) {
        let listed = listed(&mut self.map, None, usize::MAX).expect("no damage");
        for inode in listed {
            if self.reclaiming.values().any(|reclaiming| *reclaiming == inode) {
                continue;
            }
            let lock_id = self.next_lock;
            self.next_lock += 1;
            self.reclaiming.insert(lock_id, inode);
            let extents =
                vec![LockExtent { position: EXISTENCE, range: BlockRange::new(0, 1), mode: LockMode::Exclusive }];
            // A request that waited for long would keep waiting those who open the file meanwhile.
            let term = LockTerm::Transaction { impatient: true };
            self.say(now, LockCommand::Lock { lock_id, object: ObjectId(inode.0), extents, term });
        }
    }

    fn say(&mut self, now: Now, command: LockCommand) {
        let request = LockRequest { host: SELF, start: self.start, dropped: Vec::new(), command };
        self.step(now, Input::Message { to: LOCKS, from: NodeId::Host(SELF), message: Message::LockRequest(request) });
    }

    fn on_granted(&mut self, now: Now, lock_id: u64) {
        if let Some(inode) = self.reclaiming.remove(&lock_id) {
            while !self.take(|map| reclaim(inode, map).expect("all is in memory")) {}
        }
        self.say(now, LockCommand::Unlock { lock_id });
    }

    fn take(&mut self, step: impl FnOnce(&mut BTreeMap<Key, Bytes>) -> Step) -> bool {
        let step = step(&mut self.map);
        apply(&step.changes, &mut self.map);
        step.is_done.expect("no damage")
    }

    /// The array fences a host: its hostwrites have no effect any more, and its allotment is returned.
    pub fn fence(&mut self, host: Generation) {
        self.volume.borrow_mut().fenced.insert(host);
        while !self.take(|map| drop_host(host, map).expect("all is in memory")) {}
        self.answers.remove(&host);
    }

    fn step(&mut self, now: Now, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut effects = Effects::new();
            self.locks.step(now, input, &mut effects);
            self.locks.invariants();
            for effect in effects.drain() {
                match effect {
                    Effect::Disk { tag, command } => self.disk.submit(tag, command),
                    Effect::Send { to: NodeId::Host(SELF), message: Message::LockAnswer(answer) } => {
                        match answer.reply {
                            LockReply::Granted { lock_id, .. } => self.on_granted(now, lock_id),
                            // Tried again later.
                            LockReply::Refused { lock_id, .. } => drop(self.reclaiming.remove(&lock_id)),
                            _ => {}
                        }
                    }
                    Effect::Send { to: NodeId::Host(host), message } => self.outbox.push((host, message)),
                    Effect::Send { to: NodeId::Monitor, message: Message::MonitorRequest(request) } => {
                        inputs.extend(self.on_monitor(request));
                    }
                    other => panic!("not an effect of a lock server: {other:?}"),
                }
            }
            while let Some((tag, result)) = self.disk.end_one() {
                inputs.insert(0, Input::DiskDone { tag, result });
            }
        }
    }

    /// The monitor fences at once.
    fn on_monitor(&mut self, request: MonitorRequest) -> Option<Input> {
        let MonitorCommand::Fence { ticket, also, .. } = request.command else { return None };
        for host in also {
            self.fence(host);
        }
        let reply = MonitorReply::Fenced { ticket };
        let answer = MonitorAnswer { membership: None, unavailable: Vec::new(), reply };
        Some(Input::Message { to: LOCKS, from: NodeId::Monitor, message: Message::MonitorAnswer(answer) })
    }

    /// Executes a command of a host that is not there.
    pub fn run(&mut self, command: FileCommand) -> FileReply {
        let context = Context { host: SELF, now: FileTime(0), is_nearly_full: false };
        let evaluation = evaluate(&command, context, &mut self.map).expect("all is in memory");
        apply(&evaluation.changes, &mut self.map);
        evaluation.answer
    }

    pub fn status(&mut self) -> FileSystemStatus {
        match self.run(FileCommand::StatFileSystem) {
            Ok(FileResult::FileSystem(status)) => status,
            other => panic!("{other:?}"),
        }
    }

    /// Asserts the invariants of the namespace, such as that each block is in one place.
    pub fn check(&mut self) {
        let mut check = Check::new(Windows { inodes: 100, blocks: 100_000 });
        while !check.step(&mut self.map, 1_000).expect("all is in memory") {}
        assert_eq!(check.findings().0, [], "the namespace is sound");
    }

    /// The hosts that hold locks.
    pub fn holders(&self) -> BTreeSet<Generation> {
        self.locks.engine().lock_ids().map(|(name, _)| name.host).collect()
    }
}

fn config(start: Generation) -> LockServerConfig {
    LockServerConfig {
        id: LockServerId(0),
        start,
        unlisted: BTreeSet::new(),
        evict_after: None,
        serves_volumes: false,
        ends_without_locks: false,
        settings: Settings::default(),
    }
}
