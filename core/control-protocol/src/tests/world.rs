//! Explores all interleavings of small worlds: administrators die or are suspended at every step, answers are lost, and questions take
//! effect late.

use crate::*;
use braid_base::{DeviceId, Epoch, Generation, Time, VolumeId};
use braid_layout::{Layout, Placement, RaidLevel, VolumeDescription};
use braid_ordering::Ordering;
use braid_wire::Task;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

const DEVICES: [DeviceId; 2] = [DeviceId(0), DeviceId(1)];
const USER: Generation = Generation(1);
const LATE_USER: Generation = Generation(2);
const FIRST: Generation = Generation(11);

/// A world: the store, devices, hosts and administrators.
#[derive(Clone, Debug)]
struct World {
    version: Version,
    record: VolumeRecord,
    leases: BTreeMap<Generation, Lease>,
    refused: BTreeSet<Generation>,
    epoch: Epoch,
    /// What each device holds of the volume, if anything.
    devices: BTreeMap<DeviceId, Held>,
    hosts: BTreeMap<Generation, Host>,
    administrators: BTreeMap<Generation, Process>,
    /// Questions that may take effect late; nobody waits for an answer.
    stray: Vec<(Generation, Question)>,
    /// The tasks of the change are refused by this device for lack of space.
    full: Option<DeviceId>,
    budget: Budget,
}

#[derive(Clone, Debug, PartialEq)]
struct Held {
    ordering: Ordering,
    blocks: u64,
}

/// How often each kind of failure may still happen.
#[derive(Clone, Debug)]
struct Budget {
    lost: u32,
    deaths: u32,
    silences: u32,
    settlers: u32,
    operations: u32,
    returns: u32,
}

#[derive(Clone, Debug)]
struct Lease {
    confirmed: Version,
    /// Others take it for overdue, whether or not its process goes on.
    is_silent: bool,
    /// It can't be renewed any more.
    is_over: bool,
}

#[derive(Clone, Debug, Default)]
struct Host {
    /// None until it has read the store.
    follower: Option<Follower>,
    /// The description that its operation on the volume goes by.
    operation: Option<VolumeDescription>,
}

#[derive(Clone, Debug)]
struct Process {
    machine: Administrator,
    pending: BTreeMap<Tag, Question>,
    now: Time,
    ended: Option<Result<Done, Error>>,
}

/// One thing that may happen next.
#[derive(Clone, Debug)]
enum Event {
    Answer(Generation, Tag),
    Lose(Generation, Tag),
    Stray(usize),
    Wake(Generation),
    Die(Generation),
    Silence(Generation),
    Settle,
    /// A device was out, and has returned: a host that is on hold has resynchronised it.
    Return(DeviceId),
    Follow(Generation),
    Confirm(Generation),
    Begin(Generation),
    End(Generation),
}

impl World {
    fn new(volume: VolumeDescription, change: Change, budget: Budget) -> World {
        let record = VolumeRecord { volume, state: VolumeState::Ready };
        let devices = DEVICES.into_iter().filter_map(|device| Some((device, held(&record.volume, device)?))).collect();
        let mut world = World {
            version: Version(1),
            record,
            leases: BTreeMap::new(),
            refused: BTreeSet::new(),
            epoch: Epoch(1),
            devices,
            hosts: BTreeMap::new(),
            administrators: BTreeMap::new(),
            stray: Vec::new(),
            full: None,
            budget,
        };
        let follower = Follower::new(world.version, [&world.record]);
        world.add_host(USER, Some(follower));
        world.begin(FIRST, Administrator::changing(FIRST, change, Timing::default()));
        world
    }

    fn add_host(&mut self, host: Generation, follower: Option<Follower>) {
        self.lease(host);
        self.hosts.insert(host, Host { follower, operation: None });
    }

    fn lease(&mut self, host: Generation) {
        self.leases.insert(host, Lease { confirmed: Version(0), is_silent: false, is_over: false });
    }

    fn begin(&mut self, own: Generation, machine: Administrator) {
        self.lease(own);
        let process = Process { machine, pending: BTreeMap::new(), now: Time(0), ended: None };
        self.administrators.insert(own, process);
        self.give(own, Input::Start);
    }

    fn give(&mut self, own: Generation, input: Input) {
        let process = self.administrators.get_mut(&own).expect("it lives");
        for effect in process.machine.step(process.now, input) {
            match effect {
                Effect::Ask { tag, question } => drop(process.pending.insert(tag, question)),
                Effect::Began(_) => {}
                Effect::Ended(result) => {
                    assert_ne!(result, Err(Error::Held(own)), "it knows its own hold, though the answer was lost");
                    process.ended = Some(result);
                }
            }
        }
        if process.ended.is_some() {
            // Its process disconnects gracefully. What it has sent may still arrive.
            let left = std::mem::take(&mut process.pending);
            self.stray.extend(left.into_values().filter(has_effect).map(|question| (own, question)));
            self.leases.remove(&own);
        }
    }

    /// What may happen next.
    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (own, process) in self.administrators.iter().filter(|(_, process)| process.ended.is_none()) {
            for (tag, question) in &process.pending {
                // A watch answers when there is something to see.
                if *question != Question::Store(Command::Watch) || self.is_worth_a_look() {
                    events.push(Event::Answer(*own, *tag));
                }
                if self.budget.lost > 0 && has_effect(question) {
                    events.push(Event::Lose(*own, *tag));
                }
            }
            let is_waiting_for_hosts = process.pending.values().any(|asked| *asked == Question::Store(Command::Watch));
            if process.machine.deadline().is_some() && !is_waiting_for_hosts {
                events.push(Event::Wake(*own));
            }
            if self.budget.deaths > 0 {
                events.push(Event::Die(*own));
            }
        }
        if self.budget.silences > 0 {
            events.extend(
                self.leases.iter().filter(|(_, lease)| !lease.is_silent).map(|(host, _)| Event::Silence(*host)),
            );
        }
        if self.budget.settlers > 0 && self.record.held_by().is_some() {
            events.push(Event::Settle);
        }
        // One that goes out after the last check of the members is not back before hosts adopt the new description.
        let is_checked = |process: &Process| format!("{:?}", process.machine).contains("Releasing");
        let is_ready = self.record.state == VolumeState::Ready;
        if self.budget.returns > 0 && !is_ready && !self.administrators.values().any(is_checked) {
            events.extend(self.devices.keys().map(|device| Event::Return(*device)));
        }
        events.extend((0..self.stray.len()).map(Event::Stray));
        // Hosts go on without a lease, until they hear that they are fenced.
        for (host, state) in &self.hosts {
            let Some(follower) = &state.follower else {
                events.push(Event::Follow(*host));
                continue;
            };
            let id = self.record.volume.id;
            if !follower
                .clone()
                .follow(self.version, std::slice::from_ref(&self.record))
                .iter()
                .all(|step| is_known(follower, step))
            {
                events.push(Event::Follow(*host));
            }
            if let Some(lease) = self.leases.get(host).filter(|lease| !lease.is_over)
                && let Some(version) = self.seen(*host).filter(|version| lease.confirmed < *version)
                && follower.confirmable(version, |_| state.operation.is_none()).is_some()
            {
                events.push(Event::Confirm(*host));
            }
            match &state.operation {
                None if self.budget.operations > 0 && !follower.held().contains(&id) => {
                    events.push(Event::Begin(*host))
                }
                None => {}
                Some(_) => events.push(Event::End(*host)),
            }
        }
        events
    }

    /// True if an administrator that drains hosts would see something new.
    fn is_worth_a_look(&self) -> bool {
        let late =
            |(host, lease): (&Generation, &Lease)| self.hosts.contains_key(host) && lease.confirmed < self.version;
        !self.leases.iter().any(|(host, lease)| late((host, lease)) && !lease.is_silent)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Answer(own, tag) => {
                let question = self.administrators.get_mut(&own).unwrap().pending.remove(&tag).unwrap();
                let answer = self.perform(own, &question);
                self.give(own, Input::Answer { tag, answer });
            }
            Event::Lose(own, tag) => {
                self.budget.lost -= 1;
                let question = self.administrators.get_mut(&own).unwrap().pending.remove(&tag).unwrap();
                self.stray.push((own, question));
                self.give(own, Input::Answer { tag, answer: Answer::Unknown });
            }
            Event::Stray(number) => {
                let (own, question) = self.stray.remove(number);
                self.perform(own, &question);
            }
            Event::Wake(own) => {
                let process = self.administrators.get_mut(&own).unwrap();
                process.now = process.machine.deadline().unwrap();
                self.give(own, Input::Wake);
            }
            Event::Die(own) => {
                self.budget.deaths -= 1;
                let process = self.administrators.remove(&own).unwrap();
                self.stray.extend(process.pending.into_values().filter(has_effect).map(|question| (own, question)));
                if let Some(lease) = self.leases.get_mut(&own) {
                    lease.is_silent = true;
                }
            }
            Event::Silence(host) => {
                self.budget.silences -= 1;
                self.leases.get_mut(&host).unwrap().is_silent = true;
            }
            Event::Settle => {
                self.budget.settlers -= 1;
                let own = Generation(20 + self.budget.settlers);
                self.begin(own, Administrator::settling(own, Timing::default()));
            }
            Event::Return(device) => {
                self.budget.returns -= 1;
                self.epoch = Epoch(self.epoch.0 + 2);
                let known = self.hosts[&USER].follower.as_ref().unwrap().known(self.record.volume.id).unwrap();
                match held(known, device) {
                    Some(held) => drop(self.devices.insert(device, held)),
                    None => drop(self.devices.remove(&device)),
                }
            }
            Event::Follow(host) => {
                let (version, record) = (self.version, self.record.clone());
                match &mut self.hosts.get_mut(&host).unwrap().follower {
                    none @ None => *none = Some(Follower::new(version, [&record])),
                    Some(follower) => follower.follow(version, &[record]).iter().for_each(|step| follower.did(step)),
                }
            }
            Event::Confirm(host) => {
                let seen = self.seen(host).unwrap();
                self.leases.get_mut(&host).unwrap().confirmed = seen;
            }
            Event::Begin(host) => {
                self.budget.operations -= 1;
                let state = self.hosts.get_mut(&host).unwrap();
                let known = Follower::known(state.follower.as_ref().unwrap(), self.record.volume.id);
                state.operation = known.cloned();
            }
            Event::End(host) => {
                let state = self.hosts.get_mut(&host).unwrap();
                let operation = state.operation.take().unwrap();
                // If the host is served, the operation went by what the devices hold.
                if !self.refused.contains(&host) {
                    for device in DEVICES {
                        assert_eq!(held(&operation, device).as_ref(), self.devices.get(&device), "{host} at {device}");
                    }
                }
            }
        }
        self.check();
    }

    /// The version that a host has applied.
    fn seen(&self, host: Generation) -> Option<Version> {
        self.hosts[&host].follower.as_ref().map(Follower::version)
    }

    /// What a question does, and its answer.
    fn perform(&mut self, own: Generation, question: &Question) -> Answer {
        match question {
            Question::AreIn { .. } => Answer::AllIn(self.epoch),
            Question::MonitorKnows { .. } | Question::LockServersServe => Answer::Yes,
            Question::Store(command) => self.on_command(command),
            Question::Fence(Fence { below, except }) => {
                let all = (0..below.0).map(Generation);
                self.refused.extend(all.filter(|host| !except.contains(host)));
                Answer::Yes
            }
            Question::Manage { .. } if self.refused.contains(&own) => Answer::Failed,
            Question::Manage { device, task } => self.on_task(own, *device, task),
        }
    }

    fn on_command(&mut self, command: &Command) -> Answer {
        match command {
            Command::Read => Answer::Record {
                version: self.version,
                record: Some(Box::new(self.record.clone())),
                ready_devices: DEVICES.into(),
            },
            Command::Replace { after, .. } | Command::Confirm { version: after } if *after != self.version => {
                Answer::Superseded
            }
            Command::Replace { record, .. } => {
                self.version = Version(self.version.0 + 1);
                self.record = record.clone();
                Answer::Replaced { version: self.version }
            }
            Command::Confirm { .. } | Command::Watch => Answer::Yes,
            Command::ListHosts => Answer::Hosts(
                self.leases
                    .iter()
                    .map(|(host, lease)| HostLease {
                        host: *host,
                        is_live: !lease.is_silent,
                        // Other administrators don't use the volume here.
                        uses_volumes: self.hosts.contains_key(host),
                        confirmed: lease.confirmed,
                    })
                    .collect(),
            ),
            Command::EndLease { host } => {
                if self.leases.get(host).is_some_and(|lease| !lease.is_silent) {
                    return Answer::Lease(LeaseEnd::Lives);
                }
                let others = self.leases.keys().copied().filter(|other| other < host);
                let except = others.collect();
                // The process can't renew its lease; it may go on, and ask devices.
                if let Some(lease) = self.leases.get_mut(host) {
                    lease.is_over = true;
                }
                Answer::Lease(LeaseEnd::Ended(Fence { below: Generation(host.0 + 1), except }))
            }
            Command::ForgetLease { host } => {
                assert!(self.refused.contains(host), "{host} is forgotten when it is fenced");
                self.leases.remove(host);
                Answer::Yes
            }
        }
    }

    fn on_task(&mut self, own: Generation, device: DeviceId, task: &Task) -> Answer {
        // Devices change only when nobody uses the volume, and only for the administrator that holds it.
        for (host, state) in self.hosts.iter().filter(|(host, _)| !self.refused.contains(host)) {
            assert!(state.operation.is_none(), "{host} uses the volume while {device} is told {task:?}");
        }
        let holds = matches!(self.record.state, VolumeState::Reordering { by, .. } if by == own);
        assert!(holds, "{own} tells {device} {task:?}, but the volume is {:?}", self.record.state);
        if self.full == Some(device) {
            self.full = None;
            return Answer::NoSpace;
        }
        match task {
            Task::SetOrdering { ordering, .. } => {
                self.devices.get_mut(&device).expect("it exists").ordering = *ordering
            }
            Task::CreateObject { ordering, blocks, .. } => {
                self.devices.insert(device, Held { ordering: *ordering, blocks: *blocks });
            }
            Task::ResizeObject { range, .. } => {
                self.devices.get_mut(&device).expect("it exists").blocks = range.count;
            }
            Task::RemoveObject { .. } => drop(self.devices.remove(&device)),
            other => panic!("{other:?}"),
        }
        Answer::Yes
    }

    /// What must hold at every moment: a volume that is ready is the same everywhere.
    fn check(&self) {
        if self.record.state == VolumeState::Ready {
            for device in DEVICES {
                assert_eq!(
                    held(&self.record.volume, device).as_ref(),
                    self.devices.get(&device),
                    "{device}: {self:#?}"
                );
            }
        }
    }
}

fn has_effect(question: &Question) -> bool {
    matches!(
        question,
        Question::Store(Command::Replace { .. } | Command::EndLease { .. })
            | Question::Fence(_)
            | Question::Manage { .. }
    )
}

/// True if a host need not do this step, because it was done before.
fn is_known(follower: &Follower, step: &HostStep) -> bool {
    matches!(step, HostStep::Hold(volume) if follower.held().contains(volume))
}

fn held(volume: &VolumeDescription, device: DeviceId) -> Option<Held> {
    Some(Held { ordering: volume.ordering, blocks: volume.object_on(device)?.count })
}

fn volume() -> VolumeDescription {
    VolumeDescription {
        id: VolumeId(7),
        bytes: 1 << 16,
        layout: Layout::new(RaidLevel::Raid0 { data: 1 }, 1, 16).unwrap(),
        devices: vec![DEVICES[0]],
        ordering: Ordering::Timestamp,
        atomicity: Default::default(),
        parity_site: Default::default(),
        moving: None,
    }
}

/// Visits every world that can come about. Returns how many there were, and how administrators ended in those where nothing can happen.
fn explore(world: World) -> (usize, BTreeSet<String>) {
    let fingerprint = |world: &World| {
        let mut hasher = DefaultHasher::new();
        format!("{world:?}").hash(&mut hasher);
        hasher.finish()
    };
    let mut visited = BTreeSet::from([fingerprint(&world)]);
    let mut ends = BTreeSet::new();
    let mut next = vec![world];
    while let Some(world) = next.pop() {
        for process in world.administrators.values() {
            ends.extend(process.ended.as_ref().map(|ended| format!("{ended:?}")));
        }
        let events = world.events();
        // Nothing can happen any more, and whoever was to settle the change has had its turn.
        if events.is_empty() && world.budget.settlers > 0 {
            assert_eq!(world.record.held_by(), None, "a hold outlives its administrator: {world:#?}");
        }
        for event in events {
            let mut after = world.clone();
            after.happen(event);
            if visited.insert(fingerprint(&after)) {
                next.push(after);
            }
        }
    }
    (visited.len(), ends)
}

const QUIET: Budget = Budget { lost: 0, deaths: 0, silences: 0, settlers: 1, operations: 2, returns: 0 };

fn reorder() -> Change {
    Change::Ordering(Ordering::DeviceLock)
}

/// To the other device.
fn target() -> Placement {
    Placement {
        layout: Layout::new(RaidLevel::Raid0 { data: 1 }, 1, 16).unwrap().beginning_at(256),
        devices: vec![DEVICES[1]],
    }
}

fn moving() -> VolumeDescription {
    Change::Move(target()).applied_to(&volume())
}

/// All changes, with volumes that they fit.
fn changes() -> [(VolumeDescription, Change); 4] {
    [
        (volume(), reorder()),
        (volume(), Change::Move(target())),
        (moving(), Change::EndMove),
        (moving(), Change::GiveUpMove),
    ]
}

#[track_caller]
fn ends_with(what: &str, world: World, expected: &[&str]) -> BTreeSet<String> {
    let (worlds, ends) = explore(world);
    println!("{what}: {worlds} worlds, {ends:?}");
    for end in expected {
        assert!(ends.iter().any(|found| found.contains(end)), "{end} never happened");
    }
    ends
}

#[test]
fn a_change_ends_whatever_hosts_do_meanwhile() {
    for (volume, change) in changes() {
        let mut world = World::new(volume, change, QUIET);
        // It has its lease, and has not read the store yet.
        world.add_host(LATE_USER, None);
        ends_with("all is well", world, &["Ok(Changed)", "Ok(Nothing)"]);
    }
}

#[test]
fn answers_may_be_lost_and_questions_take_effect_late() {
    for (volume, change) in changes() {
        let budget = Budget { lost: 2, operations: 1, ..QUIET };
        let ends = ends_with("lost answers", World::new(volume, change, budget), &["Ok(Changed)", "Incomplete"]);
        assert!(!ends.contains("Err(Lost)"), "nobody takes over from a living administrator");
    }
}

#[test]
fn an_administrator_may_die_at_every_step() {
    for (volume, change) in changes() {
        let budget = Budget { deaths: 1, settlers: 2, operations: 1, ..QUIET };
        ends_with("deaths", World::new(volume, change, budget), &["Ok(Changed)", "Ok(Reverted)", "Ok(Nothing)"]);
    }
}

#[test]
fn an_administrator_that_was_suspended_and_taken_over_changes_nothing() {
    for (volume, change) in changes() {
        let budget = Budget { silences: 1, settlers: 1, operations: 1, ..QUIET };
        let expected = ["Ok(Changed)", "Ok(Reverted)", "Err(Lost)", "Incomplete"];
        ends_with("suspended", World::new(volume, change, budget), &expected);
    }
}

#[test]
fn silence_death_and_lost_answers_may_come_together() {
    let budget = Budget { lost: 1, deaths: 0, silences: 1, settlers: 1, operations: 0, returns: 0 };
    ends_with("all at once", World::new(volume(), reorder(), budget), &["Ok(Changed)", "Ok(Reverted)"]);
}

#[test]
fn a_change_that_a_device_has_no_space_for_is_undone() {
    for device in DEVICES {
        let mut world = World::new(volume(), Change::Move(target()), Budget { deaths: 1, operations: 0, ..QUIET });
        world.full = Some(device);
        ends_with("no space", world, &["NoSpace", "Ok(Changed)"]);
    }
}

#[test]
fn a_device_that_returns_during_a_change_is_told_again() {
    for (volume, change) in changes() {
        let budget = Budget { returns: 1, operations: 0, ..QUIET };
        ends_with("returns", World::new(volume, change, budget), &["Ok(Changed)"]);
    }
}

#[test]
fn one_of_two_administrators_changes_a_volume() {
    let mut world = World::new(volume(), reorder(), Budget { settlers: 0, operations: 1, ..QUIET });
    let second = Generation(12);
    let change = Change::Ordering(Ordering::None);
    world.begin(second, Administrator::changing(second, change, Timing::default()));
    ends_with("two", world, &["Err(Held(", "Ok(Changed)"]);
}
