//! A swarm run: devices, hosts and a monitor in the simulated world. Messages are lost, duplicated and delayed; clocks run at different
//! rates; nodes crash, are suspended and are partitioned from each other; the monitor's disk stalls, tears writes and is corrupted.
//!
//! Hosts contend for file systems: they ask for owners, take over from them, and release. A host that was taken over from is replaced.
//!
//! [`Swarm::check`] asserts what must hold at all times. When the faults have ended, all devices must be in and have leases.

use crate::bench::*;
use braid_base::Rng;
use braid_machine::one_type::step_as;
use braid_machine::{EffectsOf, HostOutcome, HostSuccess, InputOf, OneDisk};
use braid_membership::MonitorCounters;
use braid_world::{Disk, DiskOptions, LocalClock, NetworkOptions, Trace, World, WorldEvent};
use proptest::prelude::*;

const TICK: Duration = Duration::from_millis(250);
/// Six devices in two groups of three.
const DEVICES: u16 = 6;
const HOSTS: u32 = 3;
const FILE_SYSTEMS: u16 = 2;
/// The last digits of a ticket say what a host requests: below this, a fence of that host; above it, an ownership.
const OWNERSHIPS: u64 = 600;
const SLOT_BYTES: u64 = DISK_BYTES / 2;

const TICKS: u64 = 0;
const MONITOR_UP: u64 = 1;

/// The rates of faults: percentages, some of them per tick.
#[derive(Clone, Copy, Debug)]
struct FaultRates {
    loss: u64,
    doubling: u64,
    delay_ms: u64,
    /// The share of nodes that are down, suspended or cut off, per thousand.
    failure: u64,
    restart: u64,
    slow_disk: u64,
}

const CALM: FaultRates = FaultRates { loss: 0, doubling: 0, delay_ms: 5, failure: 0, restart: 0, slow_disk: 0 };

impl FaultRates {
    fn network(self) -> NetworkOptions {
        let latency_max = Duration::from_millis(self.delay_ms);
        NetworkOptions::unreliable(self.loss, self.doubling, latency_max, latency_max * 100)
    }
}

/// A clock whose rate is within 5 % of true.
fn any_clock(rng: &mut Rng) -> LocalClock {
    // Mostly the extremes, for which the margin of leases is meant.
    let ppm = *[-45_000, 0, 45_000].get(rng.below(4) as usize).unwrap_or(&0);
    LocalClock::exact(Time(rng.below(1 << 40))).drifting(ppm)
}

enum Actor {
    Monitor { monitor: Box<Monitor>, record: Record },
    Device(Device),
    Host(Host),
}

impl Machine for Actor {
    type Request = ControlRequest;
    type Outcome = HostOutcome;
    type Disk = OneDisk;

    fn step(&mut self, now: Now, input: InputOf<Self>, out: &mut EffectsOf<Self>) {
        match self {
            Actor::Monitor { monitor, record } => {
                let done = |outcome: ControlOutcome| outcome.map(|()| HostSuccess::Done);
                step_as(&mut **monitor, now, input, out, |request| request, done);
                record.look(monitor, out.as_slice());
            }
            Actor::Device(device) => device.step(now, input, out),
            Actor::Host(host) => host.step(now, input, out),
        }
    }

    fn deadline(&self) -> Option<Time> {
        match self {
            Actor::Monitor { monitor, .. } => monitor.deadline(),
            Actor::Device(device) => device.adoptions.keys().map(|(at, _)| *at).chain(device.next_tick).min(),
            Actor::Host(host) => host.next_tick,
        }
    }

    fn invariants(&self) {
        if let Actor::Monitor { monitor, .. } = self {
            monitor.invariants();
        }
    }
}

/// What the monitors have announced and recorded, over all their starts.
#[derive(Default)]
struct Record {
    /// All memberships that were durable.
    history: BTreeMap<Epoch, Membership>,
    /// The first epoch that fences all hosts for which the monitor has answered that they are fenced.
    fenced: Epoch,
    /// The ownerships that were durable last, of the file systems with an owner.
    owners: BTreeMap<FileSystemId, Ownership>,
    /// The take-overs that were answered: for each ownership, which one followed it.
    followed: BTreeMap<(FileSystemId, Ownership), Ownership>,
}

impl Record {
    fn look(&mut self, monitor: &Monitor, effects: &[Effect<HostOutcome>]) {
        let service = monitor.service();
        assert!(!matches!(service, MonitorService::Unusable(_)), "{service:?}");
        if service == MonitorService::Serving {
            let membership = monitor.membership();
            if self.history.last_key_value() != Some((&membership.epoch, membership)) {
                self.remember(membership.clone());
            }
            self.note_owners(monitor);
        }
        for effect in effects {
            match effect {
                Effect::Send { to, message: Message::MonitorAnswer(answer) } => {
                    if let (NodeId::Host(_), MonitorReply::Fenced { ticket }) = (to, &answer.reply) {
                        let host = wanted(*ticket);
                        let kept_out = self.history.values().find(|membership| membership.fence.refuses(host));
                        self.fenced = self.fenced.max(kept_out.expect("it is durable").epoch);
                    }
                    if let (NodeId::Host(host), MonitorReply::Ownership { ticket, result: Ok(ownership) }) =
                        (to, &answer.reply)
                    {
                        self.answered(*host, *ticket, *ownership);
                    }
                    let told = answer.membership.iter().all(|told| self.history.get(&told.epoch) == Some(told));
                    assert!(told, "what is announced is durable: {answer:?}");
                }
                Effect::Disk { .. } | Effect::Reply { .. } => {}
                other => panic!("a monitor does not do this: {other:?}"),
            }
        }
    }

    /// Owners change only with an epoch, and the next owner is recorded together with the fence of the previous one.
    fn note_owners(&mut self, monitor: &Monitor) {
        let (membership, owners) = (monitor.membership(), monitor.owners().collect::<BTreeMap<_, _>>());
        for (file_system, ownership) in &owners {
            let before = self.owners.get(file_system);
            if before == Some(ownership) {
                continue;
            }
            assert_eq!(ownership.since, membership.epoch, "{file_system}: {before:?}");
            let previous = before.and_then(|before| before.owner);
            assert!(previous.is_none_or(|previous| membership.fence.refuses(previous)), "{file_system}: {before:?}");
        }
        self.owners = owners;
    }

    /// The monitor tells a host that the ownership is this one.
    fn answered(&mut self, host: Generation, ticket: u64, ownership: Ownership) {
        let (file_system, request) = requested(ticket);
        if ownership.owner.is_some() {
            assert_eq!(self.owners.get(&file_system), Some(&ownership), "what is told is durable");
        }
        if let Asked::TakeOver { from_number } = request {
            assert_eq!(ownership.owner, Some(host));
            // The host names the ownership by a number, since the ticket has no room for it.
            let from = (file_system, Ownership { since: Epoch(from_number), owner: None });
            let known = self.followed.entry(from).or_insert(ownership);
            assert_eq!(*known, ownership, "two hosts took over {file_system} from one ownership");
            self.fenced = self.fenced.max(ownership.since);
        }
    }

    /// This membership is durable now: it must follow from the previous one.
    fn remember(&mut self, after: Membership) {
        if let Some(known) = self.history.get(&after.epoch) {
            assert_eq!(known, &after, "an epoch is one membership");
            assert_eq!(self.history.last_key_value().map(|(epoch, _)| *epoch), Some(after.epoch), "it never goes back");
            return;
        }
        if let Some((_, before)) = self.history.last_key_value() {
            assert_eq!(after.epoch, before.epoch.next());
            for host in (0..600).map(Generation).filter(|host| before.fence.refuses(*host)) {
                assert!(after.fence.refuses(host), "a fence never shrinks: {host}");
            }
            for (a, b) in before.members.iter().zip(&after.members) {
                use MemberState::{In, Out, Returning};
                let since = match (a.member_state, b.member_state) {
                    (In, In) | (Out, Out) | (Returning { .. }, Returning { .. } | In) => a.since,
                    (In | Returning { .. }, Out) | (Out, Returning { .. }) => after.epoch,
                    (In, Returning { .. }) | (Out, In) => {
                        panic!("no device changes its state like this in one step: {before:?}, {after:?}")
                    }
                };
                assert_eq!((a.device, b.since), (b.device, since), "{before:?}, {after:?}");
            }
        }
        for group in [0..3, 3..6] {
            let gone = group.filter(|index| after.members[*index].member_state != MemberState::In).count();
            assert!(gone <= 1, "a stripe does without one: {after:?}");
        }
        self.history.insert(after.epoch, after);
    }
}

/// A device that follows the rules.
struct Device {
    id: DeviceId,
    rng: Rng,
    next_tick: Option<Time>,
    durable: Membership,
    /// Memberships that are being made durable, by the time of completion; the lease counts from then.
    adoptions: BTreeMap<(Time, u64), (Membership, Option<Time>)>,
    slow_disk: u64,
    /// By the device's own clock.
    serves_until: Time,
}

impl Device {
    fn step(&mut self, now: Now, input: InputOf<Actor>, out: &mut EffectsOf<Actor>) {
        while let Some(entry) = self.adoptions.first_entry().filter(|entry| entry.key().0 <= now.time) {
            let (membership, sent) = entry.remove();
            if membership.epoch > self.durable.epoch {
                self.durable = membership;
            }
            if let Some(sent) = sent {
                self.serves_until = self.serves_until.max(sent.after(Settings::default().device_lease));
            }
        }
        if let Input::Message { message: Message::MonitorAnswer(answer), .. } = input {
            return self.hear(now, answer);
        }
        if self.next_tick.is_some_and(|tick| tick > now.time) {
            return;
        }
        self.next_tick = Some(now.time.after(TICK));
        // Often enough that a healthy device is not silent for a lease.
        if self.rng.chance(3, 4) {
            let request = MonitorRequest { epoch: self.durable.epoch, command: renewal(now.time, Vec::new(), true) };
            out.send(NodeId::Monitor, Message::MonitorRequest(request));
        }
    }

    fn hear(&mut self, now: Now, answer: MonitorAnswer) {
        let slow = self.rng.chance(self.slow_disk, 100);
        let wait = Duration::from_millis(self.rng.below(if slow { 3_000 } else { 20 }));
        let sent = match answer.reply {
            MonitorReply::Lease { sent, .. } => Some(sent),
            _ => None,
        };
        // A membership is adopted only together with a lease. The lease counts when the membership is durable.
        let membership = answer.membership.filter(|_| sent.is_some()).unwrap_or_default();
        let wait = if membership.epoch > self.durable.epoch { wait } else { Duration::ZERO };
        self.adoptions.insert((now.time.after(wait), self.rng.next_u64()), (membership, sent));
    }
}

struct Host {
    name: Generation,
    rng: Rng,
    next_tick: Option<Time>,
    membership: Membership,
    /// Devices that it cannot reach.
    silent: Vec<DeviceId>,
    /// How often it requests a fence, in 200 ticks.
    failure: u64,
    /// The requested fences: the ticket, and the host.
    fences: BTreeMap<u64, Generation>,
    tickets: u64,
    /// What it was last told of file systems, and its request about one.
    known: BTreeMap<FileSystemId, Ownership>,
    asked: Option<(u64, OwnershipRequest)>,
}

/// What a host asks about a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Inquire,
    Release,
    /// From the ownership that began in this epoch.
    TakeOver {
        from_number: u32,
    },
}

/// The request that a ticket belongs to.
fn requested(ticket: u64) -> (FileSystemId, Asked) {
    let digits = ticket % 1_000 - OWNERSHIPS;
    let asked = match digits / 100 {
        0 => Asked::Inquire,
        1 => Asked::Release,
        _ => Asked::TakeOver { from_number: (ticket / 1_000) as u32 },
    };
    (FileSystemId((digits % 100) as u16), asked)
}

/// The host that a ticket is to fence: its last digits.
fn wanted(ticket: u64) -> Generation {
    Generation((ticket % 1_000) as u32)
}

impl Host {
    fn step(&mut self, now: Now, input: InputOf<Actor>, out: &mut EffectsOf<Actor>) {
        if let Input::Message { message: Message::MonitorAnswer(answer), .. } = input {
            return self.hear(answer);
        }
        self.next_tick = Some(now.time.after(TICK));
        for command in self.says() {
            let request = MonitorRequest { epoch: self.membership.epoch, command };
            out.send(NodeId::Monitor, Message::MonitorRequest(request));
        }
    }

    fn says(&mut self) -> Vec<MonitorCommand> {
        let mut said = vec![renewal(Time(self.rng.next_u64()), self.silent.clone(), false)];
        if self.rng.chance(self.failure, 200) && self.fences.len() < 8 {
            self.tickets += 1;
            let ticket = (self.tickets * u64::from(HOSTS) + u64::from(self.name.0)) * 1_000 + self.rng.below(500);
            self.fences.insert(ticket, wanted(ticket));
        }
        for (ticket, also) in &self.fences {
            // At times a number in place of names.
            let below = if ticket % 5 == 0 { also.0 + 1 } else { 0 };
            let except = (0..below).filter(|other| other % 2 == 0 && *other != also.0).map(Generation).collect();
            said.push(MonitorCommand::Fence { ticket: *ticket, below: Generation(below), except, also: vec![*also] });
        }
        if self.asked.is_none() && self.rng.chance(self.failure, 100) {
            self.asked = Some(self.contend());
        }
        if let Some((ticket, request)) = self.asked {
            let (file_system, _) = requested(ticket);
            said.push(MonitorCommand::Ownership { ticket, file_system, request });
        }
        for member in &self.membership.members {
            if member.member_state == (MemberState::Returning { recovery_coordinator: Some(self.name) })
                && self.rng.chance(1, 8)
            {
                said.push(MonitorCommand::Resynchronised { device: member.device, since: member.since });
            }
        }
        said
    }

    /// Another request about a file system: mostly to take it over from the owner that the host knows of.
    fn contend(&mut self) -> (u64, OwnershipRequest) {
        let file_system = FileSystemId(self.rng.below(FILE_SYSTEMS.into()) as u16);
        let known = self.known.get(&file_system).copied();
        let (kind, request) = match known {
            Some(Ownership { since, owner }) if owner == Some(self.name) => (1, OwnershipRequest::Release { since }),
            Some(from) if self.rng.chance(3, 4) => (2, OwnershipRequest::TakeOver { from }),
            _ => (0, OwnershipRequest::Inquire),
        };
        // A take-over is named after the ownership that it wants to follow: if two ever followed it, they would have one name.
        let number = match request {
            OwnershipRequest::TakeOver { from } => u64::from(from.since.0),
            _ => self.rng.below(1 << 32),
        };
        (number * 1_000 + OWNERSHIPS + kind * 100 + u64::from(file_system.0), request)
    }

    fn hear(&mut self, answer: MonitorAnswer) {
        if let MonitorReply::Fenced { ticket } = answer.reply {
            self.fences.remove(&ticket);
        }
        if let MonitorReply::Ownership { ticket, result } = answer.reply
            && self.asked.is_some_and(|(asked, _)| asked == ticket)
        {
            self.asked = None;
            let file_system = requested(ticket).0;
            match result {
                Ok(ownership) | Err(OwnershipRefused::Differs(ownership)) => {
                    self.known.insert(file_system, ownership);
                }
                Err(_) => {}
            }
        }
        if let Some(membership) = answer.membership.filter(|told| told.epoch > self.membership.epoch) {
            self.membership = membership;
        }
    }
}

fn renewal(sent: Time, silent: Vec<DeviceId>, is_device: bool) -> MonitorCommand {
    let disk = is_device.then_some(DiskId(1));
    let (undecided, stamps) = (Vec::new(), Clock(0));
    MonitorCommand::Renew { sent, silent, disk, bad_slots: 0, failing: false, undecided, stamps, knows: Level::FIRST }
}

struct Swarm {
    rng: Rng,
    rates: FaultRates,
    world: World<Actor>,
    /// The hosts that are not fenced, and the next name for one.
    names: Vec<Generation>,
    next_name: Generation,
    /// Used while the monitor is down.
    record: Record,
    /// The devices that hosts cannot reach, and until when.
    unreachable: BTreeMap<DeviceId, Time>,
    seen: MonitorCounters,
    restarts: u64,
}

impl Swarm {
    fn new(seed: u64, rates: FaultRates) -> Swarm {
        let mut rng = Rng::new(seed);
        let mut world = World::new(ArrayId([1; 16]), rng.next_u64(), rates.network(), Trace::keeping(0));
        let options = DiskOptions { latency_min: Duration::ZERO, latency_max: Duration::from_millis(20), space: None };
        let disk = Disk::new(options, rng.fork());
        world.add(NodeId::Monitor, monitor(Record::default()), Some(disk), any_clock(&mut rng));
        world.watch(NodeId::Monitor);
        for id in (0..DEVICES).map(DeviceId) {
            let device = Device {
                id,
                rng: rng.fork(),
                next_tick: None,
                durable: Membership::default(),
                adoptions: BTreeMap::new(),
                slow_disk: rates.slow_disk,
                serves_until: Time(0),
            };
            world.add(NodeId::Device(id), Actor::Device(device), None, any_clock(&mut rng));
            world.watch(NodeId::Device(id));
        }
        world.alarm(Time(0), TICKS);
        let (unreachable, seen) = (BTreeMap::new(), MonitorCounters::default());
        let (names, next_name, record) = (Vec::new(), Generation(1_000), Record::default());
        let mut swarm = Swarm { rng, rates, world, names, next_name, record, unreachable, seen, restarts: 0 };
        (0..HOSTS).for_each(|_| swarm.add_host());
        swarm.adopt_volume();
        swarm
    }

    fn add_host(&mut self) {
        let name = self.next_name;
        self.next_name = Generation(name.0 + 1);
        self.names.push(name);
        let host = Host {
            name,
            rng: self.rng.fork(),
            next_tick: None,
            membership: Membership::default(),
            silent: Vec::new(),
            failure: self.rates.failure,
            fences: BTreeMap::new(),
            tickets: 0,
            known: BTreeMap::new(),
            asked: None,
        };
        let clock = any_clock(&mut self.rng);
        self.world.add(NodeId::Host(name), Actor::Host(host), None, clock);
    }

    /// Hosts that have learned that they are fenced end, and others take their places.
    fn replace_fenced(&mut self) {
        let is_fenced = |host: &Host| host.membership.fence.refuses(host.name);
        let fenced: Vec<Generation> = self.hosts().filter(|host| is_fenced(host)).map(|host| host.name).collect();
        for name in fenced {
            self.world.crash(NodeId::Host(name));
            self.names.retain(|other| *other != name);
            self.add_host();
        }
    }

    fn adopt_volume(&mut self) {
        let volume = volume(1, RaidLevel::Raid5 { data: 2 }, &[0, 1, 2, 3, 4, 5]);
        self.world.request(NodeId::Monitor, OpId::front_end(1), ControlRequest::AdoptVolume { volume });
    }

    fn monitor(&self) -> Option<&Monitor> {
        match self.world.machine(NodeId::Monitor)? {
            Actor::Monitor { monitor, .. } => Some(monitor),
            _ => panic!("the monitor's place"),
        }
    }

    fn record(&self) -> &Record {
        match self.world.machine(NodeId::Monitor) {
            Some(Actor::Monitor { record, .. }) => record,
            _ => &self.record,
        }
    }

    fn devices(&self) -> impl Iterator<Item = &Device> {
        self.world.up().into_iter().filter_map(|node| match self.world.machine(node)? {
            Actor::Device(device) => Some(device),
            _ => None,
        })
    }

    fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.world.up().into_iter().filter_map(|node| match self.world.machine(node)? {
            Actor::Host(host) => Some(host),
            _ => None,
        })
    }

    fn run(&mut self, span: Duration) {
        let end = self.world.now().after(span);
        while let Some(event) = self.world.next(end) {
            match event {
                WorldEvent::Stepped(_) => self.check(),
                WorldEvent::Alarm(TICKS) => {
                    self.tick();
                    self.world.alarm(self.world.now().after(TICK), TICKS);
                }
                WorldEvent::Alarm(MONITOR_UP) => {
                    let record = std::mem::take(&mut self.record);
                    self.world.start(NodeId::Monitor, monitor(record));
                    self.adopt_volume();
                }
                WorldEvent::Reply { .. } => {}
                other => panic!("not requested: {other:?}"),
            }
        }
        self.check();
    }

    fn monitor_down(&mut self) {
        let Some(counters) = self.monitor().map(|monitor| *monitor.counters()) else { return };
        self.seen.add(&counters);
        self.restarts += 1;
        let disk = self.world.disk(NodeId::Monitor).expect("it has one");
        let rots = disk.is_idle() && self.rng.chance(1, 2);
        if let Some(Actor::Monitor { record, .. }) = self.world.machine_mut(NodeId::Monitor) {
            self.record = std::mem::take(record);
        }
        self.world.crash(NodeId::Monitor);
        if rots {
            // Corrupts one of its two slots, if there is something in it.
            let at = self.rng.below(2) * SLOT_BYTES + self.rng.below(100);
            self.world.disk_mut(NodeId::Monitor).expect("it has one").flip(at, 0);
        }
        let longest = if self.rng.chance(1, 3) { 9_000 } else { 500 };
        let unavailable = Duration::from_millis(self.rng.below(longest));
        self.world.alarm(self.world.now().after(unavailable), MONITOR_UP);
    }

    fn tick(&mut self) {
        let FaultRates { failure, restart, slow_disk, .. } = self.rates;
        let now = self.world.now();
        if self.rng.chance(restart, 1_000) {
            self.monitor_down();
        }
        if self.rng.chance(restart, 1_000) {
            self.world.stall(NodeId::Monitor, Duration::from_millis(self.rng.below(6_000)));
        }
        let times = if self.rng.chance(slow_disk, 100) { 150 } else { 1 };
        self.world.disk_mut(NodeId::Monitor).expect("it has one").slow_down(times);
        let span = |rng: &mut Rng| Duration::from_millis(rng.below(14_000));
        for id in (0..DEVICES).map(DeviceId) {
            if self.rng.chance(failure, 1_000) {
                let node = NodeId::Device(id);
                self.world.stall(node, span(&mut self.rng));
                let forgets = self.rng.chance(1, 2);
                if let Some(Actor::Device(device)) = self.world.machine_mut(node).filter(|_| forgets) {
                    device.serves_until = Time(0);
                }
            }
            if self.rng.chance(failure, 1_000) {
                self.unreachable.insert(id, now.after(span(&mut self.rng) * 3));
            }
        }
        self.unreachable.retain(|_, until| *until > now);
        self.replace_fenced();
        for name in self.names.clone() {
            let node = NodeId::Host(name);
            if self.rng.chance(failure, 1_000) {
                self.world.stall(node, span(&mut self.rng));
            }
            if let Some(Actor::Host(host)) = self.world.machine_mut(node) {
                host.silent = self.unreachable.keys().copied().collect();
            }
        }
    }

    fn calm(&mut self) {
        self.rates = CALM;
        self.world.network.set_options(CALM.network());
        for node in self.world.nodes() {
            match self.world.machine_mut(node) {
                Some(Actor::Device(device)) => device.slow_disk = 0,
                Some(Actor::Host(host)) => host.failure = 0,
                _ => {}
            }
        }
    }

    /// Asserts that no device serves that is out or was out since its epoch, and that no device serves a fenced host.
    fn check(&self) {
        let record = self.record();
        let Some((_, newest)) = record.history.last_key_value() else { return };
        for device in self.devices() {
            let (id, own) = (device.id, &device.durable);
            let out = own.member(id).is_none_or(|member| member.member_state == MemberState::Out);
            if out || !self.serves(device) {
                continue;
            }
            assert!(newest.has_been_in_since(id, own.epoch), "{id} serves in {}: {newest:?}", own.epoch);
            assert!(
                own.epoch >= record.fenced,
                "{id} serves in {} without a fence that was announced: {newest:?}",
                own.epoch
            );
        }
    }

    fn serves(&self, device: &Device) -> bool {
        self.world.local(NodeId::Device(device.id)).is_some_and(|now| now.time < device.serves_until)
    }
}

fn monitor(record: Record) -> Actor {
    Actor::Monitor { monitor: Box::new(Monitor::new(config(DEVICES))), record }
}

/// A swarm run, then a time without faults. Returns what the monitors have counted.
fn swarm(seed: u64, rates: FaultRates) -> (MonitorCounters, u64) {
    let mut swarm = Swarm::new(seed, rates);
    swarm.run(Duration::from_secs(120));
    swarm.calm();
    // The last faults last for up to a minute; a device that has gone out often has to wait for another.
    swarm.run(Duration::from_secs(180));
    let record = swarm.record();
    let newest = record.history.last_key_value().map(|(_, membership)| membership).expect("it has served");
    for device in swarm.devices() {
        let member = newest.member(device.id).expect("it is there");
        assert_eq!(
            (member.member_state, device.durable.epoch),
            (MemberState::In, newest.epoch),
            "{} knows it",
            device.id
        );
        assert!(swarm.serves(device), "{} serves", device.id);
    }
    for host in swarm.hosts() {
        assert_eq!((&host.membership, host.fences.len()), (newest, 0), "{} knows, and has what it wants", host.name);
        assert_eq!(host.asked, None, "{} is answered", host.name);
    }
    let monitor = swarm.monitor().expect("it is up again");
    assert_eq!((monitor.service(), monitor.unavailable().len()), (MonitorService::Serving, 0));
    let mut counters = swarm.seen;
    counters.add(monitor.counters());
    (counters, swarm.restarts)
}

fn rates() -> impl Strategy<Value = FaultRates> {
    (0u64..25, 0u64..30, 1u64..800, 0u64..20, 0u64..30, 0u64..30).prop_map(
        |(loss, doubling, delay_ms, failure, restart, slow_disk)| FaultRates {
            loss,
            doubling,
            delay_ms,
            failure,
            restart,
            slow_disk,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn a_device_that_is_out_serves_no_request_whatever_fails(seed: u64, rates in rates()) {
        swarm(seed, rates);
    }
}

/// Asserts that the swarm run causes every kind of event.
#[test]
fn swarm_runs_cover_every_event() {
    let mut counters = MonitorCounters::default();
    let mut restarts = 0;
    let rates = FaultRates { loss: 5, doubling: 20, delay_ms: 100, failure: 6, restart: 8, slow_disk: 10 };
    for seed in 0..20 {
        let (counted, up) = swarm(seed, rates);
        counters.add(&counted);
        restarts += up;
    }
    // Hosts and devices keep to the protocol here.
    let rare = ["fences_refused", "handed_over", "ahead", "fences_ahead"];
    let missing: Vec<_> =
        counters.list().into_iter().filter(|(name, count)| *count == 0 && !rare.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?} of {:?}", counters.list());
    assert!(
        counters.taken_out > 100 && counters.resynchronised > 50 && restarts > 20,
        "{:?}, {restarts}",
        counters.list()
    );
}
