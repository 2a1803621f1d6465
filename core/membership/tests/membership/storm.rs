//! A storm: devices, hosts and a monitor whose messages are lost, doubled and late, whose clocks run at rates of their own, and who
//! crash, stop and are cut off from each other; the monitor's disk stalls, tears and rots.
//!
//! What must hold all the time is in [`Storm::check`]. And when the storm is over, all devices are in, and have leases.

use crate::bench::{config, volume};
use braid_base::limits::Settings;
use braid_base::{Clock, DeviceId, DiskId, Epoch, Generation, Membership, NodeId, Now, Rng, Standing, Time};
use braid_layout::Scheme;
use braid_machine::{DiskCommand, DiskResult, DiskTag, Effect, Effects, HostRequest, Input, Machine, OpId};
use braid_membership::{DISK_BYTES, Monitor, MonitorCounters, MonitorService};
use braid_wire::{Message, MonitorAnswer, MonitorCommand, MonitorReply, MonitorRequest};
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const TICK: Duration = Duration::from_millis(250);
/// Six devices in two groups of three.
const DEVICES: u16 = 6;
const HOSTS: u32 = 3;
const SLOT_BYTES: usize = DISK_BYTES as usize / 2;

/// What the dice decide: in percent, some for each tick.
#[derive(Clone, Copy, Debug)]
struct Weather {
    loss: u64,
    doubling: u64,
    delay_ms: u64,
    /// Nodes that are off, or stand still, or are cut off, in a thousand.
    trouble: u64,
    restart: u64,
    slow_disk: u64,
}

const CALM: Weather = Weather { loss: 0, doubling: 0, delay_ms: 5, trouble: 0, restart: 0, slow_disk: 0 };

/// A clock that runs at a rate of its own: in a thousand, within 5 % of true.
#[derive(Clone, Copy, Debug)]
struct Ticking {
    offset: u64,
    rate: u64,
}

impl Ticking {
    fn any(rng: &mut Rng) -> Ticking {
        // The extremes most of the time: these are what the margin is for.
        let rate = *[955, 1_000, 1_045].get(rng.below(4) as usize).unwrap_or(&1_000);
        Ticking { offset: rng.below(1 << 40), rate }
    }

    fn reads(self, truly: Time) -> Time {
        Time(self.offset + (u128::from(truly.0) * u128::from(self.rate) / 1_000) as u64)
    }

    /// When it reads so.
    fn when(self, reading: Time) -> Time {
        let since = u128::from(reading.0.saturating_sub(self.offset));
        Time((since * 1_000).div_ceil(self.rate.into()) as u64)
    }
}

/// A device as the rules ask for.
struct Device {
    clock: Ticking,
    durable: Membership,
    /// By its own clock.
    serves_until: Time,
    /// Says and hears nothing until then.
    quiet_until: Time,
    /// Of hosts: which can't reach it until when.
    unreachable_until: Time,
}

struct Host {
    membership: Membership,
    quiet_until: Time,
    /// What it wants to have fenced: the ticket, and whom.
    fences: BTreeMap<u64, Generation>,
}

enum Event {
    ToMonitor {
        from: NodeId,
        request: MonitorRequest,
    },
    FromMonitor {
        to: NodeId,
        answer: MonitorAnswer,
    },
    Disk {
        life: u64,
        tag: DiskTag,
        command: DiskCommand,
    },
    /// A device has made it durable; it counts its lease from then.
    Adopt {
        device: DeviceId,
        membership: Membership,
        sent: Option<Time>,
    },
    Tick,
    MonitorUp,
}

struct Storm {
    rng: Rng,
    weather: Weather,
    now: Time,
    events: BTreeMap<(Time, u64), Event>,
    next_event: u64,
    monitor: Option<Monitor>,
    monitor_clock: Ticking,
    monitor_quiet_until: Time,
    /// Counts its starts.
    life: u64,
    disk: Vec<u8>,
    devices: BTreeMap<DeviceId, Device>,
    hosts: BTreeMap<Generation, Host>,
    /// All that the monitor has held for durable.
    history: BTreeMap<Epoch, Membership>,
    /// The first epoch that keeps out all hosts of which the monitor has said that they are.
    fenced: Epoch,
    next_ticket: u64,
    seen: MonitorCounters,
    restarts: u64,
}

impl Storm {
    fn new(seed: u64, weather: Weather) -> Storm {
        let mut rng = Rng::new(seed);
        let device = |rng: &mut Rng| Device {
            clock: Ticking::any(rng),
            durable: Membership::default(),
            serves_until: Time(0),
            quiet_until: Time(0),
            unreachable_until: Time(0),
        };
        let host = || Host { membership: Membership::default(), quiet_until: Time(0), fences: BTreeMap::new() };
        let mut storm = Storm {
            devices: (0..DEVICES).map(|number| (DeviceId(number), device(&mut rng))).collect(),
            hosts: (0..HOSTS).map(|number| (Generation(1_000 + number), host())).collect(),
            monitor_clock: Ticking::any(&mut rng),
            rng,
            weather,
            now: Time(1_000_000_000),
            events: BTreeMap::new(),
            next_event: 0,
            monitor: None,
            monitor_quiet_until: Time(0),
            life: 0,
            disk: vec![0; DISK_BYTES as usize],
            history: BTreeMap::new(),
            fenced: Epoch(0),
            next_ticket: 0,
            seen: MonitorCounters::default(),
            restarts: 0,
        };
        storm.monitor_up();
        storm.at(Duration::ZERO, Event::Tick);
        storm
    }

    fn at(&mut self, wait: Duration, event: Event) {
        self.next_event += 1;
        self.events.insert((self.now.after(wait), self.next_event), event);
    }

    fn run(&mut self, span: Duration) {
        let end = self.now.after(span);
        loop {
            let next = self.events.first_key_value().map(|((time, _), _)| *time);
            let deadline = self
                .monitor
                .as_ref()
                .and_then(Machine::deadline)
                .map(|deadline| self.monitor_clock.when(deadline).max(self.now).max(self.monitor_quiet_until));
            let time = next.into_iter().chain(deadline).min().expect("ticks follow ticks");
            if time > end {
                self.now = end;
                return;
            }
            self.now = time;
            if next == Some(time) {
                let (_, event) = self.events.pop_first().expect("just seen");
                self.on_event(event);
            } else {
                self.step(Input::Wake);
            }
            self.check();
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Tick => {
                self.tick();
                self.at(TICK, Event::Tick);
            }
            Event::MonitorUp => self.monitor_up(),
            // It stands still: what comes waits.
            Event::ToMonitor { .. } | Event::Disk { .. } if self.monitor_quiet_until > self.now => {
                let wait = self.monitor_quiet_until.since(self.now);
                self.at(wait, event);
            }
            Event::Disk { life, tag, command } if life == self.life && self.monitor.is_some() => {
                let result = self.perform(command, true);
                self.step(Input::DiskDone { tag, result });
            }
            // It was in flight when the monitor crashed: done or not, or torn.
            Event::Disk { command, .. } => {
                self.perform(command, false);
            }
            Event::ToMonitor { from, request } => {
                self.step(Input::Message { from, message: Message::MonitorRequest(request) });
            }
            Event::FromMonitor { to: NodeId::Device(device), answer } => self.on_device(device, answer),
            Event::FromMonitor { to: NodeId::Host(host), answer } => self.on_host(host, answer),
            Event::FromMonitor { to, answer } => panic!("{answer:?} to {to}"),
            Event::Adopt { device, membership, sent } => {
                let known = self.devices.get_mut(&device).expect("it was made");
                if membership.epoch > known.durable.epoch {
                    known.durable = membership;
                }
                if let Some(sent) = sent {
                    known.serves_until = known.serves_until.max(sent.after(Settings::default().device_lease));
                }
            }
        }
    }

    fn perform(&mut self, command: DiskCommand, whole: bool) -> DiskResult {
        match command {
            DiskCommand::Read { offset, length } => {
                DiskResult::Read(Ok(Bytes::copy_from_slice(&self.disk[offset as usize..][..length])))
            }
            DiskCommand::Write { offset, data, .. } => {
                let data = data.concat();
                let torn = self.rng.between(0, 4) as usize * data.len() / 4;
                let length = if whole { data.len() } else { torn };
                self.disk[offset as usize..][..length].copy_from_slice(&data[..length]);
                DiskResult::Done(Ok(()))
            }
            other => panic!("a monitor does not do this: {other:?}"),
        }
    }

    fn monitor_up(&mut self) {
        self.life += 1;
        self.monitor_clock = Ticking::any(&mut self.rng);
        self.monitor_quiet_until = Time(0);
        self.monitor = Some(Monitor::new(config(DEVICES)));
        let volume = volume(1, Scheme::Raid5 { data: 2 }, &[0, 1, 2, 3, 4, 5]);
        self.step(Input::Request { op: OpId(1), request: HostRequest::AdoptVolume { volume } });
        self.step(Input::Start);
    }

    fn monitor_down(&mut self) {
        let Some(monitor) = self.monitor.take() else { return };
        self.seen.add(monitor.counters());
        self.restarts += 1;
        let flying: Vec<_> =
            self.events.iter().filter(|(_, event)| matches!(event, Event::Disk { .. })).map(|(key, _)| *key).collect();
        if flying.is_empty() && self.rng.chance(1, 2) {
            // One of its two slots rots, where there is something.
            let at = self.rng.below(2) as usize * SLOT_BYTES + self.rng.below(100) as usize;
            self.disk[at] ^= 1;
        }
        // Its disk commands end before it is back.
        for key in flying {
            if let Some(Event::Disk { command, .. }) = self.events.remove(&key) {
                self.perform(command, false);
            }
        }
        let longest = if self.rng.chance(1, 3) { 9_000 } else { 500 };
        let away = Duration::from_millis(self.rng.below(longest));
        self.at(away, Event::MonitorUp);
    }

    fn step(&mut self, input: Input) {
        let Some(monitor) = &mut self.monitor else { return };
        let mut effects = Effects::new();
        let now = Now { time: self.monitor_clock.reads(self.now), clock: Clock(0) };
        monitor.step(now, input, &mut effects);
        monitor.invariants();
        let service = monitor.service();
        assert!(!matches!(service, MonitorService::Unusable(_)), "{service:?}");
        if service == MonitorService::Serving {
            let membership = monitor.membership();
            if self.history.last_key_value() != Some((&membership.epoch, membership)) {
                let membership = membership.clone();
                self.remember(membership);
            }
        }
        for effect in effects.drain() {
            match effect {
                Effect::Disk { tag, command } => {
                    let most = if self.rng.chance(self.weather.slow_disk, 100) { 3_000_000 } else { 20_000 };
                    let wait = Duration::from_micros(self.rng.below(most));
                    self.at(wait, Event::Disk { life: self.life, tag, command });
                }
                Effect::Send { to, message: Message::MonitorAnswer(answer) } => {
                    if let (NodeId::Host(host), MonitorReply::Fenced { ticket }) = (to, &answer.reply)
                        && let Some(host) = self.hosts[&host].fences.get(ticket)
                    {
                        let kept_out = self.history.values().find(|membership| membership.fence.refuses(*host));
                        self.fenced = self.fenced.max(kept_out.expect("it is durable").epoch);
                    }
                    let told = answer.membership.iter().all(|told| self.history.get(&told.epoch) == Some(told));
                    assert!(told, "what is said is durable: {answer:?}");
                    self.deliver(|| Event::FromMonitor { to, answer: answer.clone() });
                }
                Effect::Reply { .. } => {}
                other => panic!("a monitor does not do this: {other:?}"),
            }
        }
    }

    /// Late, twice or never.
    fn deliver(&mut self, event: impl Fn() -> Event) {
        if self.rng.chance(self.weather.loss, 100) {
            return;
        }
        let copies = if self.rng.chance(self.weather.doubling, 100) { 2 } else { 1 };
        for _ in 0..copies {
            // Now and then very late.
            let stretch = if self.rng.chance(self.weather.doubling, 400) { 100 } else { 1 };
            let delay = Duration::from_micros(self.rng.below(self.weather.delay_ms * 1_000 * stretch));
            self.at(delay, event());
        }
    }

    fn tick(&mut self) {
        let Weather { trouble, restart, .. } = self.weather;
        if self.rng.chance(restart, 1_000) {
            self.monitor_down();
        }
        if self.rng.chance(restart, 1_000) {
            self.monitor_quiet_until = self.now.after(Duration::from_millis(self.rng.below(6_000)));
        }
        let span = |rng: &mut Rng| Duration::from_millis(rng.below(14_000));
        for device in 0..DEVICES {
            let device = DeviceId(device);
            let (rng, known) = (&mut self.rng, self.devices.get_mut(&device).expect("it was made"));
            if rng.chance(trouble, 1_000) {
                known.quiet_until = self.now.after(span(rng));
                if rng.chance(1, 2) {
                    known.serves_until = Time(0);
                }
            }
            if rng.chance(trouble, 1_000) {
                known.unreachable_until = self.now.after(span(rng) * 3);
            }
            // Not so seldom that one whom nothing ails is silent for a lease.
            if known.quiet_until <= self.now && rng.chance(3, 4) {
                let command = MonitorCommand::Renew {
                    sent: known.clock.reads(self.now),
                    silent: Vec::new(),
                    disk: Some(DiskId(1)),
                    bad_slots: 0,
                    failing: false,
                    undecided: Vec::new(),
                    stamps: Clock(0),
                };
                let request = MonitorRequest { epoch: known.durable.epoch, command };
                self.deliver(|| Event::ToMonitor { from: NodeId::Device(device), request: request.clone() });
            }
        }
        for host in 0..HOSTS {
            let name = Generation(1_000 + host);
            if self.rng.chance(trouble, 1_000) {
                let until = self.now.after(span(&mut self.rng));
                self.hosts.get_mut(&name).expect("it was made").quiet_until = until;
            }
            if self.hosts[&name].quiet_until > self.now {
                continue;
            }
            for command in self.host_says(name) {
                let request = MonitorRequest { epoch: self.hosts[&name].membership.epoch, command };
                self.deliver(|| Event::ToMonitor { from: NodeId::Host(name), request: request.clone() });
            }
        }
    }

    fn host_says(&mut self, name: Generation) -> Vec<MonitorCommand> {
        let silent = self.devices.iter().filter(|(_, device)| device.unreachable_until > self.now);
        let silent = silent.map(|(device, _)| *device).collect();
        let mut said = vec![MonitorCommand::Renew {
            sent: Time(self.rng.next_u64()),
            silent,
            disk: None,
            bad_slots: 0,
            failing: false,
            undecided: Vec::new(),
            stamps: Clock(0),
        }];
        let host = self.hosts.get_mut(&name).expect("it was made");
        if self.rng.chance(self.weather.trouble, 200) && host.fences.len() < 8 {
            self.next_ticket += 1;
            host.fences.insert(self.next_ticket, Generation(self.rng.below(500) as u32));
        }
        for (ticket, also) in &host.fences {
            // A number in place of names, at times.
            let below = if ticket % 5 == 0 { also.0 + 1 } else { 0 };
            let except = (0..below).filter(|other| other % 2 == 0 && *other != also.0).map(Generation).collect();
            said.push(MonitorCommand::Fence { ticket: *ticket, below: Generation(below), except, also: vec![*also] });
        }
        for member in &host.membership.members {
            if member.standing == (Standing::Returning { helper: Some(name) }) && self.rng.chance(1, 8) {
                said.push(MonitorCommand::CaughtUp { device: member.device, since: member.since });
            }
        }
        said
    }

    fn on_device(&mut self, device: DeviceId, answer: MonitorAnswer) {
        let slow = self.rng.chance(self.weather.slow_disk, 100);
        let wait = Duration::from_millis(self.rng.below(if slow { 3_000 } else { 20 }));
        let known = &self.devices[&device];
        if known.quiet_until > self.now {
            return;
        }
        let sent = match answer.reply {
            MonitorReply::Lease { sent, .. } => Some(sent),
            _ => None,
        };
        // A membership is taken over with a lease, and with nothing else. The lease counts when it is durable.
        let membership = answer.membership.filter(|_| sent.is_some()).unwrap_or_default();
        let wait = if membership.epoch > known.durable.epoch { wait } else { Duration::ZERO };
        self.at(wait, Event::Adopt { device, membership, sent });
    }

    fn on_host(&mut self, name: Generation, answer: MonitorAnswer) {
        let host = self.hosts.get_mut(&name).expect("it was made");
        if host.quiet_until > self.now {
            return;
        }
        if let MonitorReply::Fenced { ticket } = answer.reply {
            host.fences.remove(&ticket);
        }
        if let Some(membership) = answer.membership.filter(|told| told.epoch > host.membership.epoch) {
            host.membership = membership;
        }
    }

    /// The monitor holds this for durable: it follows from what it held before.
    fn remember(&mut self, after: Membership) {
        if let Some(known) = self.history.get(&after.epoch) {
            assert_eq!(known, &after, "an epoch is one membership");
            assert_eq!(self.history.last_key_value().map(|(epoch, _)| *epoch), Some(after.epoch), "it never goes back");
            return;
        }
        if let Some((_, before)) = self.history.last_key_value() {
            assert_eq!(after.epoch, before.epoch.next());
            for host in (0..600).map(Generation).filter(|host| before.fence.refuses(*host)) {
                assert!(after.fence.refuses(host), "whoever is kept out stays so: {host}");
            }
            for (a, b) in before.members.iter().zip(&after.members) {
                use Standing::{In, Out, Returning};
                let since = match (a.standing, b.standing) {
                    (In, In) | (Out, Out) | (Returning { .. }, Returning { .. } | In) => a.since,
                    (In | Returning { .. }, Out) | (Out, Returning { .. }) => after.epoch,
                    (In, Returning { .. }) | (Out, In) => panic!("nobody goes there at once: {before:?}, {after:?}"),
                };
                assert_eq!((a.device, b.since), (b.device, since), "{before:?}, {after:?}");
            }
        }
        for group in [0..3, 3..6] {
            let gone = group.filter(|index| after.members[*index].standing != Standing::In).count();
            assert!(gone <= 1, "a stripe does without one: {after:?}");
        }
        self.history.insert(after.epoch, after);
    }

    /// Nobody serves who is out, or was out since the epoch by which he lives; nobody serves a host that is kept out.
    fn check(&self) {
        let Some((_, newest)) = self.history.last_key_value() else { return };
        for (id, device) in &self.devices {
            let own = &device.durable;
            let out = own.member(*id).is_none_or(|member| member.standing == Standing::Out);
            if out || device.clock.reads(self.now) >= device.serves_until {
                continue;
            }
            assert!(newest.has_been_in_since(*id, own.epoch), "{id} serves in {}: {newest:?}", own.epoch);
            assert!(own.epoch >= self.fenced, "{id} serves in {} who is kept out: {newest:?}", own.epoch);
        }
    }
}

/// A storm, then calm; what the monitors have counted.
fn storm(seed: u64, weather: Weather) -> (MonitorCounters, u64) {
    let mut storm = Storm::new(seed, weather);
    storm.run(Duration::from_secs(120));
    storm.weather = CALM;
    // For up to a minute the last troubles go on; whoever has come and gone often has to wait for another.
    storm.run(Duration::from_secs(180));
    let newest = storm.history.last_key_value().map(|(_, membership)| membership).expect("it has served");
    for (id, device) in &storm.devices {
        let member = newest.member(*id).expect("it is there");
        assert_eq!((member.standing, device.durable.epoch), (Standing::In, newest.epoch), "{id} is in and knows it");
        assert!(device.clock.reads(storm.now) < device.serves_until, "{id} serves");
    }
    for (name, host) in &storm.hosts {
        assert_eq!((&host.membership, host.fences.len()), (newest, 0), "{name} knows, and has what it wants");
    }
    let monitor = storm.monitor.as_ref().expect("it is up again");
    assert_eq!((monitor.service(), monitor.away().len()), (MonitorService::Serving, 0));
    let mut counters = storm.seen;
    counters.add(monitor.counters());
    (counters, storm.restarts)
}

fn weather() -> impl Strategy<Value = Weather> {
    (0u64..25, 0u64..30, 1u64..800, 0u64..20, 0u64..30, 0u64..30).prop_map(
        |(loss, doubling, delay_ms, trouble, restart, slow_disk)| Weather {
            loss,
            doubling,
            delay_ms,
            trouble,
            restart,
            slow_disk,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn nobody_serves_who_is_out_whatever_the_weather(seed: u64, weather in weather()) {
        storm(seed, weather);
    }
}

/// The storm does what it is there for.
#[test]
fn everything_happens_in_storms() {
    let mut counters = MonitorCounters::default();
    let mut restarts = 0;
    let weather = Weather { loss: 5, doubling: 20, delay_ms: 100, trouble: 6, restart: 8, slow_disk: 10 };
    for seed in 0..20 {
        let (counted, up) = storm(seed, weather);
        counters.add(&counted);
        restarts += up;
    }
    let rare = ["fences_refused", "handed_over"];
    let missing: Vec<_> =
        counters.list().into_iter().filter(|(name, count)| *count == 0 && !rare.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?} of {:?}", counters.list());
    assert!(counters.taken_out > 100 && counters.caught_up > 50 && restarts > 20, "{:?}, {restarts}", counters.list());
}
