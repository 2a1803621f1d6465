//! A lock server on a bench. Its disk is memory that executes commands at once; the test plays the hosts and the
//! monitor.

pub use braid_base::limits::Settings;
pub use braid_base::{BlockRange, Clock, DeviceId, Generation, LockServerId, NodeId, Now, ObjectId, Time, limits};
pub use braid_locks::{DISK_BYTES, FenceCause, LockServer, LockServerConfig, LockService};
pub use braid_machine::{Effect, Effects, Input, Machine};
pub use braid_wire::LockMode::{Exclusive, Shared};
pub use braid_wire::{
    LockAnswer, LockCommand, LockExtent, LockMode, LockPart, LockRefusal, LockReply, LockRequest, LockTerm, Message,
    MonitorAnswer, MonitorCommand, MonitorReply, MonitorRequest, Patience, Rejection,
};
pub use braid_world::MemoryDisk;
pub use std::collections::{BTreeMap, BTreeSet, VecDeque};
pub use std::time::Duration;

pub const OBJECT: ObjectId = ObjectId(1);
pub const ONE: Generation = Generation(11);
pub const TWO: Generation = Generation(12);
pub const THREE: Generation = Generation(13);
pub const PATIENT: LockTerm = LockTerm::Transaction { impatient: false };
pub const IMPATIENT: LockTerm = LockTerm::Transaction { impatient: true };
/// The answer to a heartbeat.
pub const BEAT: Option<LockReply> = Some(LockReply::Heartbeat { sent: Time(0) });

pub struct Bench {
    pub server: LockServer,
    pub now: Now,
    pub start: Generation,
    disk: MemoryDisk,
    /// While set, the disk executes nothing.
    pub stalled: bool,
    /// The answers to each host, in order.
    heard: BTreeMap<Generation, VecDeque<LockAnswer>>,
    /// The requests to the monitor to fence: the ticket and the hosts.
    pub fences: VecDeque<(u64, Vec<Generation>)>,
    /// How often the monitor was asked which devices are unavailable.
    pub renewals: usize,
    /// Unset in tests with very many extents.
    pub check_every_step: bool,
}

pub fn config(start: Generation) -> LockServerConfig {
    LockServerConfig {
        id: LockServerId(0),
        start,
        unlisted: BTreeSet::new(),
        evict_after: settings().lock_eviction,
        serves_volumes: false,
        ends_without_locks: false,
        settings: settings(),
    }
}

pub fn settings() -> Settings {
    Settings::default()
}

pub fn extents(mode: LockMode, ranges: &[(u64, u64)]) -> Vec<LockExtent> {
    let extent = |(start, count): &(u64, u64)| LockExtent { position: 0, range: BlockRange::new(*start, *count), mode };
    ranges.iter().map(extent).collect()
}

impl Bench {
    /// The hosts that the server has decided to fence, and why.
    pub fn fence_decisions(&self) -> Vec<(Generation, FenceCause)> {
        self.server.fence_decisions().map(|decision| (decision.host, decision.cause)).collect()
    }

    pub fn new() -> Bench {
        Bench::with(config(Generation(1)))
    }

    /// A server of the locks of volumes.
    pub fn of_volumes() -> Bench {
        Bench::with(LockServerConfig::of_volumes(LockServerId(0), Generation(1), BTreeSet::new(), settings()))
    }

    /// A server whose hosts end when they have given back their last lock.
    pub fn of_files() -> Bench {
        Bench::with(LockServerConfig { ends_without_locks: true, ..config(Generation(1)) })
    }

    fn with(config: LockServerConfig) -> Bench {
        let mut bench = Bench {
            start: config.start,
            server: LockServer::new(config),
            now: Now { time: Time(1_000_000_000), clock: Clock(0) },
            disk: MemoryDisk::new(DISK_BYTES),
            stalled: false,
            heard: BTreeMap::new(),
            fences: VecDeque::new(),
            renewals: 0,
            check_every_step: true,
        };
        bench.take(Input::Start);
        bench
    }

    /// Power cycle: the disk keeps its content.
    pub fn restart(&mut self) {
        self.start.0 += 1;
        self.server = LockServer::new(config(self.start));
        self.disk.forget_commands();
        self.heard.clear();
        self.fences.clear();
        self.stalled = false;
        self.take(Input::Start);
    }

    /// The same with an empty disk. The hosts `unlisted` may hold locks.
    pub fn lose_list(&mut self, unlisted: &[Generation]) {
        self.disk = MemoryDisk::new(DISK_BYTES);
        self.start.0 += 1;
        let unlisted = unlisted.iter().copied().collect();
        self.server = LockServer::new(LockServerConfig { unlisted, ..config(self.start) });
        self.heard.clear();
        self.take(Input::Start);
    }

    /// Takes one step, and executes the disk commands that follow from it.
    pub fn take(&mut self, input: Input) {
        self.step(input);
        self.run_disk();
    }

    pub fn run_disk(&mut self) {
        while !self.stalled
            && let Some((tag, result)) = self.disk.end_one()
        {
            self.step(Input::DiskDone { tag, result });
        }
    }

    fn step(&mut self, input: Input) {
        let mut effects = Effects::new();
        self.server.step(self.now, input, &mut effects);
        if self.check_every_step {
            self.server.invariants();
        }
        for effect in effects.drain() {
            match effect {
                Effect::Disk { tag, command } => self.disk.submit(tag, command),
                Effect::Send { to: NodeId::Host(host), message: Message::LockAnswer(answer) } => {
                    assert_eq!(answer.start, self.start);
                    self.heard.entry(host).or_default().push_back(answer);
                }
                Effect::Send { to: NodeId::Monitor, message: Message::MonitorRequest(request) } => {
                    match request.command {
                        MonitorCommand::Renew { .. } => self.renewals += 1,
                        _ => self.fences.push_back(fence(request)),
                    }
                }
                other => panic!("not an effect of a lock server: {other:?}"),
            }
        }
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

    /// Lets time pass while these hosts send heartbeats.
    pub fn pass_with(&mut self, span: Duration, alive: &[Generation]) {
        let end = self.now.time.after(span);
        while self.now.time < end {
            self.pass(settings().heartbeat.min(end.since(self.now.time)));
            for host in alive {
                let answers = self.heard.get(host).map_or(0, VecDeque::len);
                self.say(*host, LockCommand::Heartbeat { sent: Time(0) });
                self.heard.get_mut(host).expect("a heartbeat is answered").remove(answers);
            }
        }
    }

    pub fn message(&mut self, from: NodeId, message: Message) {
        self.take(Input::Message { to: NodeId::LockServer(LockServerId(0)), from, message });
    }

    pub fn request(&mut self, request: LockRequest) {
        self.message(NodeId::Host(request.host), Message::LockRequest(request));
    }

    /// Sends a command of a host that knows the server's start.
    pub fn say(&mut self, host: Generation, command: LockCommand) {
        self.say_to(self.start, host, command);
    }

    pub fn say_to(&mut self, start: Generation, host: Generation, command: LockCommand) {
        self.request(LockRequest { host, start, dropped: Vec::new(), command });
    }

    pub fn lock(&mut self, host: Generation, lock_id: u64, mode: LockMode, range: (u64, u64), term: LockTerm) {
        self.say(host, LockCommand::Lock { lock_id, object: OBJECT, extents: extents(mode, &[range]), term });
    }

    pub fn unlock(&mut self, host: Generation, lock_id: u64) {
        self.say(host, LockCommand::Unlock { lock_id });
    }

    /// The next answer to the host.
    pub fn hear(&mut self, host: Generation) -> Option<LockReply> {
        self.heard.get_mut(&host)?.pop_front().map(|answer| answer.reply)
    }

    /// The monitor reports that a request to fence is done.
    pub fn fenced(&mut self, ticket: u64) {
        self.message(NodeId::Monitor, fenced(ticket));
    }

    /// The monitor executes all requests to fence.
    pub fn fence_all(&mut self) {
        for (ticket, _) in std::mem::take(&mut self.fences) {
            self.fenced(ticket);
        }
    }
}

/// The ticket and the hosts of a request to fence.
pub fn fence(request: MonitorRequest) -> (u64, Vec<Generation>) {
    match request.command {
        MonitorCommand::Fence { ticket, below: Generation(0), except, also } if except.is_empty() => (ticket, also),
        other => panic!("not a request to fence: {other:?}"),
    }
}

pub fn fenced(ticket: u64) -> Message {
    let reply = MonitorReply::Fenced { ticket };
    Message::MonitorAnswer(MonitorAnswer { membership: None, unavailable: Vec::new(), reply })
}

pub fn granted(lock_id: u64, waited: bool) -> Option<LockReply> {
    Some(LockReply::Granted { lock_id, waited })
}

pub fn revoke(lock_ids: &[u64]) -> Option<LockReply> {
    Some(LockReply::Revoke { lock_ids: lock_ids.to_vec() })
}
