//! A small world: the store, two devices, hosts and administrators, and all that may happen next in it.

use super::exploration::{Administered, Administrator, Administrators, Asked, Lease, has_administrators};
use crate::follower::Follower;
use crate::*;
use braid_base::{DeviceId, Epoch, Generation, VolumeId};
use braid_layout::VolumeDescription;
use braid_ordering::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

pub const DEVICES: [DeviceId; 2] = [DeviceId(0), DeviceId(1)];
pub const USER: Generation = Generation(1);
pub const LATE_USER: Generation = Generation(2);
pub const FIRST: Generation = Generation(11);

/// A world: the store, devices, hosts and administrators.
#[derive(Clone, Debug)]
pub struct World {
    pub version: Version,
    pub record: VolumeRecord,
    /// False before the volume is entered, and after it is removed: the record is only remembered.
    pub is_there: bool,
    /// Above the numbers of all volumes that there were.
    pub next_volume: VolumeId,
    pub epoch: Epoch,
    /// What each device holds of the volume, if anything.
    pub devices: BTreeMap<DeviceId, Held>,
    pub hosts: BTreeMap<Generation, Host>,
    pub administrators: Administrators,
    /// What is really copied, and by which migration.
    pub copied: CopyRecord,
    pub budget: Budget,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    pub ordering: Ordering,
    pub blocks: u64,
}

/// How often each kind of failure may still happen.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    pub lost: u32,
    pub deaths: u32,
    pub silences: u32,
    pub settlers: u32,
    pub operations: u32,
    pub returns: u32,
    /// Operations that continue a migration.
    pub continuers: u32,
    /// Notes of the progress of a migration.
    pub notes: u32,
    /// Somebody gives the migration up, and begins it again.
    pub restarts: u32,
    /// A task is refused by this device for lack of space.
    pub full: Option<DeviceId>,
    /// Steps of hosts whose answer is lost.
    pub unanswered: u32,
    /// Questions that fail.
    pub failures: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Host {
    /// None until it has read the store.
    pub follower: Option<Follower>,
    /// The volume as the host's machine has it, and whether it holds back operations.
    pub known: Option<VolumeDescription>,
    pub holds: bool,
    /// A step that it may still take, before the next one; nobody waits for an answer.
    pub late: Option<HostStep>,
    /// The description that its operation on the volume goes by.
    pub operation: Option<VolumeDescription>,
}

impl Host {
    /// Reads the store for the first time.
    fn start(&mut self, version: Version, records: &[VolumeRecord]) {
        self.follower = Some(Follower::new(version, records));
        let usable = records.iter().find(|record| record.is_usable());
        self.known = usable.map(|record| record.volume.clone());
        self.holds = usable.is_some_and(|record| record.held_by().is_some());
    }

    fn perform(&mut self, step: HostStep) {
        self.holds = matches!(step, HostStep::Hold(_));
        match step {
            HostStep::Hold(_) => {}
            HostStep::Adopt(volume) => self.known = Some(volume),
            HostStep::Drop(_) => self.known = None,
        }
    }
}

/// What may happen next, besides what happens to administrators.
#[derive(Clone, Debug)]
pub enum Event {
    Settle,
    Continue,
    Restart,
    /// A device was out, and has returned: a host that is on hold has resynchronised it.
    Return(DeviceId),
    Follow(Generation),
    /// The host is asked for a step, and does not answer.
    Unanswered(Generation),
    Late(Generation),
    Confirm(Generation),
    Begin(Generation),
    End(Generation),
}

impl World {
    /// A world in which the first administrator performs an operation. A volume that moves is copied, in one without migrations.
    pub fn new(volume: VolumeDescription, first: impl Into<Operation>, budget: Budget) -> World {
        let copied_to = volume.blocks();
        let copied = CopyRecord { begun: Version(0), copied_to };
        let copied_of = volume.moving.as_ref().map(|_| copied);
        let record = VolumeRecord { volume, state: VolumeState::Ready, copied: copied_of };
        let devices = DEVICES.into_iter().filter_map(|device| Some((device, held(&record.volume, device)?))).collect();
        let mut world = World {
            version: Version(1),
            is_there: true,
            next_volume: VolumeId(record.volume.id.0 + 1),
            record,
            epoch: Epoch(1),
            devices,
            hosts: BTreeMap::new(),
            administrators: Administrators::with(budget.lost, budget.failures, budget.deaths, budget.silences),
            copied,
            budget,
        };
        world.add_host(USER);
        world.start(USER);
        world.begin(FIRST, first);
        world
    }

    /// A world without the volume, in which the first administrator creates it.
    pub fn before_creation(volume: VolumeDescription, budget: Budget) -> World {
        let timing = Timing { turn: Duration::from_millis(50), ..Timing::default() };
        let creation = Creation::of(FIRST, volume.clone(), timing);
        let next_volume = volume.id;
        let mut world = World::new(volume, creation, budget);
        (world.is_there, world.next_volume) = (false, next_volume);
        world.devices.clear();
        world.hosts.clear();
        world.add_host(USER);
        world.start(USER);
        world
    }

    pub fn record(&self) -> Option<&VolumeRecord> {
        Some(&self.record).filter(|_| self.is_there)
    }

    /// All records of the store.
    fn records(&self) -> Vec<VolumeRecord> {
        self.record().cloned().into_iter().collect()
    }

    /// Adds a host that has its lease, and has not read the store yet.
    pub fn add_host(&mut self, host: Generation) {
        self.administrators.leases.insert(host, Lease::default());
        self.hosts.insert(host, Host::default());
    }

    /// A host reads the store for the first time.
    pub fn start(&mut self, host: Generation) {
        let (version, records) = (self.version, self.records());
        self.hosts.get_mut(&host).unwrap().start(version, &records);
    }

    /// Asserts, when nothing can happen any more, that whoever was to settle the change has had its turn.
    pub fn is_settled(&self) {
        let left = self.record().and_then(VolumeRecord::administrator);
        assert!(left.is_none() || self.budget.settlers == 0, "a hold outlives its administrator: {self:#?}");
        let is_on_hold = self.record().is_some_and(|record| record.held_by().is_some());
        for (host, state) in &self.hosts {
            assert!(!state.holds || is_on_hold, "operations never begin at {host}: {self:#?}");
        }
    }

    /// True if an administrator that drains hosts would see something new.
    fn is_worth_a_look(&self) -> bool {
        let late =
            |(host, lease): (&Generation, &Lease)| self.hosts.contains_key(host) && lease.confirmed < self.version;
        !self.administrators.leases.iter().any(|(host, lease)| late((host, lease)) && !lease.is_silent)
    }
}

impl Administered for World {
    type Event = Event;

    has_administrators!();

    fn other_events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        if self.budget.settlers > 0 && self.record().is_some_and(|record| record.administrator().is_some()) {
            events.push(Event::Settle);
        }
        let is_ready = self.record().is_some_and(|record| record.state == VolumeState::Ready);
        if is_ready && self.record.volume.moving.is_some() {
            let may = [(self.budget.continuers, Event::Continue), (self.budget.restarts, Event::Restart)];
            events.extend(may.into_iter().filter(|(left, _)| *left > 0).map(|(_, event)| event));
        }
        // One that goes out after the last check of the members is not back before hosts adopt the new description.
        let is_checked = |administrator: &Administrator| {
            let state = format!("{:?}", administrator.operation);
            ["Releasing", "Finishing", "Removing"].iter().any(|phase| state.contains(phase))
        };
        let is_checked = self.administrators.living.values().any(is_checked);
        if self.budget.returns > 0 && self.is_there && !is_ready && !is_checked {
            events.extend(self.devices.keys().map(|device| Event::Return(*device)));
        }
        // Hosts go on without a lease, until they hear that they are fenced.
        for (host, state) in &self.hosts {
            let Some(follower) = &state.follower else {
                events.push(Event::Follow(*host));
                continue;
            };
            let next = follower.clone().follow(self.version, &self.records());
            let is_new = |step: &HostStep| !matches!(step, HostStep::Hold(_)) || !follower.holds_any();
            if follower.applied().is_none() || next.as_ref().is_some_and(is_new) {
                events.push(Event::Follow(*host));
            }
            if next.is_some() && self.budget.unanswered > 0 {
                events.push(Event::Unanswered(*host));
            }
            if state.late.is_some() {
                events.push(Event::Late(*host));
            }
            if let Some(lease) = self.administrators.leases.get(host).filter(|lease| !lease.is_over)
                && let Some(version) = follower.clone().confirmable(|_| state.operation.is_none())
                && lease.confirmed < version
            {
                events.push(Event::Confirm(*host));
            }
            match &state.operation {
                None if self.budget.operations > 0 && state.known.is_some() && !state.holds => {
                    events.push(Event::Begin(*host))
                }
                None => {}
                Some(_) => events.push(Event::End(*host)),
            }
        }
        events
    }

    fn other_happens(&mut self, event: Event) {
        match event {
            Event::Settle => {
                self.budget.settlers -= 1;
                let own = Generation(20 + self.budget.settlers);
                let timing = Timing { turn: Duration::ZERO, ..Timing::default() };
                match self.record.state {
                    VolumeState::Creating { .. } => self.begin(own, Creation::continuing(own, timing)),
                    VolumeState::Deleting { .. } => self.begin(own, Deletion::continuing(own, timing)),
                    _ => {
                        let from = self.record.held_by().unwrap_or(own);
                        self.begin(own, VolumeChange::recovering(own, from, timing))
                    }
                }
            }
            Event::Continue => {
                self.budget.continuers -= 1;
                let own = Generation(30 + self.budget.continuers);
                self.begin(own, Migration::continuing(own, Timing::default()));
            }
            Event::Restart => {
                self.budget.restarts -= 1;
                let begun = Version(self.version.0 + 1);
                self.version = Version(begun.0 + 1);
                self.record.copied = Some(CopyRecord { begun, copied_to: 0 });
            }
            Event::Return(device) => {
                self.budget.returns -= 1;
                self.epoch = Epoch(self.epoch.0 + 2);
                let known = self.hosts[&USER].known.as_ref();
                match (known.and_then(|known| held(known, device)), &self.record.state) {
                    (Some(held), _) => drop(self.devices.insert(device, held)),
                    // It is as it was; but if it has a new disk, a volume that hosts do not know is not there.
                    (None, VolumeState::Deleting { .. }) => {}
                    (None, _) => drop(self.devices.remove(&device)),
                }
            }
            Event::Follow(host) | Event::Unanswered(host) => {
                let (version, records) = (self.version, self.records());
                let state = self.hosts.get_mut(&host).unwrap();
                let Some(follower) = &mut state.follower else { return state.start(version, &records) };
                let step = follower.follow(version, &records);
                state.late = None;
                if let Event::Unanswered(_) = event {
                    self.budget.unanswered -= 1;
                    follower.lost();
                    state.late = step;
                } else if let Some(step) = step {
                    assert_eq!(follower.did(), None, "there is one volume");
                    state.perform(step);
                }
            }
            Event::Late(host) => {
                let state = self.hosts.get_mut(&host).unwrap();
                let step = state.late.take().unwrap();
                state.perform(step);
            }
            Event::Confirm(host) => {
                let state = self.hosts.get_mut(&host).unwrap();
                let is_idle = state.operation.is_none();
                let confirmed = state.follower.as_mut().unwrap().confirmable(|_| is_idle);
                self.administrators.leases.get_mut(&host).unwrap().confirmed = confirmed.unwrap();
            }
            Event::Begin(host) => {
                self.budget.operations -= 1;
                let state = self.hosts.get_mut(&host).unwrap();
                state.operation = state.known.clone();
            }
            Event::End(host) => {
                let state = self.hosts.get_mut(&host).unwrap();
                let operation = state.operation.take().unwrap();
                // If the host is served, the operation went by what the devices hold.
                if !self.administrators.fenced.contains(&host) {
                    for device in DEVICES {
                        assert_eq!(held(&operation, device).as_ref(), self.devices.get(&device), "{host} at {device}");
                    }
                }
            }
        }
    }

    fn perform(&mut self, own: Generation, asked: &Asked) -> Answer {
        self.answer(own, &asked.question)
    }

    fn has_answer(&self, question: &Question) -> bool {
        match question {
            // A watch answers when there is something to see.
            Question::Store(Command::Watch) => self.is_worth_a_look(),
            // A host does not copy while the volume is on hold.
            Question::Copy { .. } => self.record.held_by().is_none(),
            _ => true,
        }
    }

    fn may_be_lost(question: &Question) -> bool {
        matches!(
            question,
            Question::Store(Command::Replace { .. } | Command::Remove { .. } | Command::EndLease { .. })
                | Question::Fence(_)
                | Question::Manage { .. }
        )
    }

    fn outlives(question: &Question) -> bool {
        Self::may_be_lost(question)
    }

    fn may_wake(&self, own: Generation) -> bool {
        let mut asked = self.administrators.living[&own].pending.values().map(|asked| &asked.question);
        asked.all(|asked| match asked {
            Question::Store(Command::Watch) => false,
            Question::Copy { .. } => self.budget.notes > 0,
            _ => true,
        })
    }

    fn woken(&mut self, own: Generation) {
        let mut pending = self.living(own).pending.values();
        if pending.any(|asked| matches!(asked.question, Question::Copy { .. })) {
            self.budget.notes -= 1;
        }
    }

    /// Its process disconnects gracefully. What it has sent may still arrive.
    fn ended(&mut self, own: Generation, administrator: Administrator, result: &Result<Done, Error>) {
        assert_ne!(*result, Err(Error::Held(own)), "it knows its own hold, though the answer was lost");
        let left = administrator.pending.into_values().filter(|asked| Self::outlives(&asked.question));
        self.administrators.stray.extend(left.map(|asked| (own, asked)));
        self.administrators.leases.remove(&own);
    }

    /// What must hold at every moment: a volume that is ready is the same everywhere, and one that does not exist is nowhere.
    fn check(&self) {
        if !self.is_there {
            assert!(self.devices.is_empty(), "a part of no volume: {self:#?}");
        } else if self.record.state == VolumeState::Ready {
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

pub fn held(volume: &VolumeDescription, device: DeviceId) -> Option<Held> {
    Some(Held { ordering: volume.ordering, blocks: volume.object_on(device)?.count })
}
