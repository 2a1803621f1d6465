//! Devices that are added and removed: a small world with a store, leases, the monitor, administrators, and whoever completes what they
//! have begun.

use super::exploration::*;
use crate::*;
use braid_base::DiskId;
use braid_wire::{AdminError, Administration};

const DEVICE: DeviceId = DeviceId(3);
const DISK: DiskId = DiskId(1);
const FIRST: Generation = Generation(10);
const SECOND: Generation = Generation(11);
/// Completes what others have begun, and stays.
const SETTLER: Generation = Generation(20);

#[derive(Clone, Debug)]
struct DeviceWorld {
    version: Version,
    record: Option<DeviceRecord>,
    is_used: bool,
    has_volume: bool,
    leases: BTreeMap<Generation, Lease>,
    monitor: Monitor,
    administrators: Administrators,
    /// The requests that administrators have sent to the monitor so far.
    tickets: u64,
    budget: Budget,
}

#[derive(Clone, Debug, Default)]
struct Monitor {
    /// The disk of the device, if the membership contains it.
    member: Option<DiskId>,
    fenced: BTreeSet<Generation>,
    /// The last request of each host that was answered.
    answered: BTreeMap<Generation, u64>,
    /// Requests are refused so many more times.
    refusals: u32,
}

/// How often each kind of event may still happen.
#[derive(Clone, Copy, Debug)]
struct Budget {
    lost: u32,
    deaths: u32,
    silences: u32,
    settlers: u32,
    volumes: u32,
}

const QUIET: Budget = Budget { lost: 0, deaths: 0, silences: 0, settlers: 1, volumes: 0 };

#[derive(Clone, Copy, Debug)]
enum Event {
    Silence(Generation),
    Settle,
    CreateVolume,
}

/// Administrators do not wait for each other, or for the device, for long.
fn timing() -> Timing {
    Timing { device: Duration::ZERO, turn: Duration::from_millis(50), ..Timing::default() }
}

fn adding(own: Generation) -> DeviceChange {
    DeviceChange::adding(own, DEVICE, DISK, timing())
}

fn removing(own: Generation) -> DeviceChange {
    DeviceChange::removing(own, DEVICE, timing())
}

impl DeviceWorld {
    /// A world in which the first administrator adds the device.
    fn of_addition(budget: Budget) -> DeviceWorld {
        let mut world = DeviceWorld::new(None, budget);
        world.start(FIRST, adding(FIRST));
        world
    }

    /// A world in which it removes it.
    fn of_removal(budget: Budget) -> DeviceWorld {
        let mut world = DeviceWorld::new(Some(DeviceState::Ready), budget);
        world.start(FIRST, removing(FIRST));
        world
    }

    fn new(state: Option<DeviceState>, budget: Budget) -> DeviceWorld {
        DeviceWorld {
            version: Version(1),
            record: state.map(|state| DeviceRecord { disk: Some(DISK), others: BTreeSet::new(), state }),
            is_used: state.is_some(),
            has_volume: false,
            leases: BTreeMap::new(),
            monitor: Monitor { member: state.map(|_| DISK), ..Monitor::default() },
            administrators: Administrators::with(budget.lost, 0, budget.deaths),
            tickets: 0,
            budget,
        }
    }

    fn start(&mut self, own: Generation, operation: DeviceChange) {
        self.leases.entry(own).or_default();
        self.begin(own, operation);
    }

    fn is_alive(&self, host: Generation) -> bool {
        self.leases.get(&host).is_none_or(|lease| !lease.is_silent) && !self.monitor.fenced.contains(&host)
    }

    fn administrator(&self) -> Option<Generation> {
        self.record.as_ref()?.state.administrator()
    }

    fn silence(&mut self, host: Generation) {
        if let Some(lease) = self.leases.get_mut(&host) {
            lease.is_silent = true;
        }
    }

    fn on_command(&mut self, command: &Command) -> Answer {
        match command {
            Command::ReadDevice => Answer::Device {
                version: self.version,
                record: self.record.clone(),
                is_used: self.is_used,
                volumes: self.has_volume.then_some(VolumeId(1)).into_iter().collect(),
            },
            Command::ReplaceDevice { after, .. } | Command::RemoveDevice { after } if *after != self.version => {
                Answer::Superseded
            }
            Command::ReplaceDevice { record, .. } => {
                assert!(self.record.is_some() || !self.is_used, "numbers are not used again");
                (self.record, self.is_used) = (Some(record.clone()), true);
                self.version = Version(self.version.0 + 1);
                Answer::Replaced { version: self.version }
            }
            Command::RemoveDevice { .. } => {
                self.record = None;
                self.version = Version(self.version.0 + 1);
                Answer::Replaced { version: self.version }
            }
            command => on_leases(&mut self.leases, command, |_| true, &self.monitor.fenced),
        }
    }
}

impl Monitor {
    fn administer(&mut self, host: Generation, ticket: u64, request: Administration) -> Answer {
        let answered = self.answered.entry(host).or_default();
        if self.fenced.contains(&host) || ticket <= *answered {
            return Answer::Unknown;
        }
        *answered = ticket;
        if self.refusals > 0 {
            self.refusals -= 1;
            return Answer::Refused(AdminError::TooManyChanges);
        }
        match request {
            Administration::AddDevice { disk, .. } => match self.member {
                Some(there) if there != disk => return Answer::Refused(AdminError::DeviceExists { device: DEVICE }),
                _ => self.member = Some(disk),
            },
            Administration::RemoveDevice { .. } => self.member = None,
            other => panic!("{other:?}"),
        }
        Answer::Yes
    }
}

impl Administered for DeviceWorld {
    type Event = Event;

    has_administrators!();

    fn other_events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let is_silent = |own| self.leases.get(own).is_none_or(|lease| lease.is_silent);
        if self.budget.silences > 0 {
            let living = self.administrators.living.keys();
            events.extend(living.filter(|own| !is_silent(own)).map(|own| Event::Silence(*own)));
        }
        let may_settle = self.budget.settlers > 0 && !self.administrators.living.contains_key(&SETTLER);
        if may_settle && self.administrator().is_some() && self.is_alive(SETTLER) {
            events.push(Event::Settle);
        }
        let is_ready = self.record.as_ref().is_some_and(|record| record.state == DeviceState::Ready);
        if self.budget.volumes > 0 && is_ready {
            events.push(Event::CreateVolume);
        }
        events
    }

    fn other_happens(&mut self, event: Event) {
        match event {
            Event::Silence(host) => {
                self.budget.silences -= 1;
                self.silence(host);
            }
            Event::Settle => {
                self.budget.settlers -= 1;
                self.start(SETTLER, DeviceChange::continuing(SETTLER, DEVICE, timing()));
            }
            Event::CreateVolume => {
                self.budget.volumes -= 1;
                self.has_volume = true;
                self.version = Version(self.version.0 + 1);
            }
        }
    }

    fn perform(&mut self, own: Generation, asked: &Asked) -> Answer {
        match &asked.question {
            Question::Store(command) => self.on_command(command),
            Question::RunsOn { disk, .. } if self.monitor.member == Some(*disk) => Answer::Yes,
            Question::RunsOn { .. } => Answer::No,
            Question::Fence(Fence { below, except }) => {
                let all = (0..below.0).map(Generation);
                self.monitor.fenced.extend(all.filter(|host| !except.contains(host)));
                Answer::Yes
            }
            Question::Administer { request } => self.monitor.administer(own, asked.ticket, *request),
            other => panic!("{other:?}"),
        }
    }

    fn may_be_lost(question: &Question) -> bool {
        match question {
            Question::Store(command) => matches!(command, Command::ReplaceDevice { .. } | Command::RemoveDevice { .. }),
            Question::Administer { .. } | Question::Fence(_) => true,
            _ => false,
        }
    }

    fn outlives(question: &Question) -> bool {
        DeviceWorld::may_be_lost(question)
    }

    /// The requests to the monitor so far.
    fn ticket(&mut self, question: &Question) -> u64 {
        self.tickets += u64::from(matches!(question, Question::Administer { .. }));
        self.tickets
    }

    fn died(&mut self, own: Generation) {
        self.silence(own);
    }

    fn ended(&mut self, own: Generation, _: Administrator, _: &Result<Done, Error>) {
        if own != SETTLER {
            self.leases.remove(&own);
        }
    }

    fn check(&self) {
        let is_member = self.monitor.member.is_some();
        match self.record.as_ref().map(|record| record.state) {
            None => assert!(!is_member, "the monitor has a device of which the store does not know: {self:#?}"),
            Some(DeviceState::Ready) => assert!(is_member, "the monitor lacks a device that is ready: {self:#?}"),
            Some(_) => {}
        }
        assert!(is_member || !self.has_volume, "a volume lies on a device that was removed: {self:#?}");
    }
}

/// Whoever was to complete it has had its turn.
fn is_completed(world: &DeviceWorld) {
    let is_settled = world.budget.settlers == 0 || !world.is_alive(SETTLER) || world.administrator().is_none();
    assert!(is_settled, "nobody completes what a dead administrator has begun: {world:#?}");
}

#[track_caller]
fn explored_ends(world: DeviceWorld, expected: &[&str]) -> BTreeSet<String> {
    let ends = explore(world, is_completed);
    ends_with(&ends, expected);
    ends
}

#[test]
fn a_device_is_added() {
    let ends = explored_ends(DeviceWorld::of_addition(Budget { settlers: 0, ..QUIET }), &["Ok(Changed)"]);
    assert_eq!(ends.len(), 1, "{ends:?}");
    explored_ends(DeviceWorld::of_addition(QUIET), &["Ok(Changed)", "Ok(Nothing)"]);
}

#[test]
fn an_addition_with_lost_and_late_answers_is_completed() {
    let budget = Budget { lost: 2, settlers: 2, ..QUIET };
    explored_ends(DeviceWorld::of_addition(budget), &["Ok(Changed)", "Err(Question"]);
}

#[test]
fn an_addition_whose_administrator_dies_or_is_suspended_is_completed() {
    let budget = Budget { deaths: 1, settlers: 2, ..QUIET };
    explored_ends(DeviceWorld::of_addition(budget), &["Ok(Changed)", "Ok(Nothing)"]);
    let budget = Budget { silences: 1, lost: 1, ..QUIET };
    explored_ends(DeviceWorld::of_addition(budget), &["Ok(Changed)", "Err(Lost)", "Err(Question"]);
}

#[test]
fn a_device_is_removed_unless_a_volume_lies_on_it() {
    let budget = Budget { volumes: 1, ..QUIET };
    explored_ends(DeviceWorld::of_removal(budget), &["Ok(Changed)", "Ok(Nothing)", "HoldsVolumes"]);
    let budget = Budget { lost: 2, volumes: 1, settlers: 2, ..QUIET };
    explored_ends(DeviceWorld::of_removal(budget), &["Ok(Changed)", "Err(Question", "HoldsVolumes"]);
}

#[test]
fn a_removal_whose_administrator_dies_or_is_suspended_is_completed() {
    let budget = Budget { deaths: 1, settlers: 2, volumes: 1, ..QUIET };
    explored_ends(DeviceWorld::of_removal(budget), &["Ok(Changed)", "Ok(Nothing)", "HoldsVolumes"]);
    let budget = Budget { silences: 1, lost: 1, volumes: 1, ..QUIET };
    explored_ends(DeviceWorld::of_removal(budget), &["Ok(Changed)", "Err(Lost)", "Err(Question"]);
}

#[test]
fn a_refused_change_is_undone_unless_another_administrator_completes_it() {
    for (is_removal, refusals) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
        let settled_late = Budget { silences: 1, lost: 1, volumes: is_removal.into(), settlers: 2, ..QUIET };
        let repeated = Budget { deaths: 1, lost: 1, settlers: 3, ..QUIET };
        for budget in [QUIET, settled_late, repeated] {
            let mut world = if is_removal { DeviceWorld::of_removal(budget) } else { DeviceWorld::of_addition(budget) };
            world.monitor.refusals = refusals;
            explored_ends(world, &["Err(Refused"]);
        }
    }
}

#[test]
fn a_device_may_be_removed_while_it_is_added() {
    for budget in [Budget { deaths: 1, ..QUIET }, Budget { silences: 1, ..QUIET }, Budget { lost: 1, ..QUIET }] {
        let mut world = DeviceWorld::of_addition(budget);
        world.start(SECOND, removing(SECOND));
        explored_ends(world, &["Ok(Changed)", "Err(NoDevice)"]);
    }
}

#[test]
fn an_administrator_may_remove_what_it_has_not_heard_to_be_added() {
    let mut world = DeviceWorld::new(Some(DeviceState::Adding { by: FIRST }), QUIET);
    (world.monitor.member, world.tickets) = (None, 1);
    let request = Administration::AddDevice { device: DEVICE, disk: DISK };
    world.administrators.stray.push((FIRST, Asked { question: Question::Administer { request }, ticket: 1 }));
    world.start(FIRST, removing(FIRST));
    assert_eq!(explore(world, is_completed).into_iter().next(), Some("Ok(Changed)".to_string()));
}

#[test]
fn two_additions_of_one_disk_add_one_device() {
    let mut world = DeviceWorld::of_addition(Budget { deaths: 1, ..QUIET });
    world.start(SECOND, adding(SECOND));
    explored_ends(world, &["Ok(Changed)"]);
}

#[test]
fn a_number_that_another_device_has_had_is_refused() {
    let mut world = DeviceWorld::of_addition(QUIET);
    world.is_used = true;
    assert_eq!(explore(world, is_completed), ["Err(NumberUsed)".to_string()].into());
    let mut world = DeviceWorld::new(Some(DeviceState::Ready), QUIET);
    world.start(FIRST, DeviceChange::adding(FIRST, DEVICE, DiskId(9), timing()));
    assert_eq!(explore(world, is_completed), ["Err(NumberUsed)".to_string()].into());
}

#[test]
fn a_change_begun_by_an_older_release_is_completed() {
    let by = Generation(0);
    for (state, is_member) in [(DeviceState::Adding { by }, false), (DeviceState::Removing { by }, true)] {
        let mut world = DeviceWorld::new(Some(state), Budget { settlers: 2, ..QUIET });
        world.monitor.member = is_member.then_some(DISK);
        explored_ends(world, &["Ok(Changed)"]);
    }
}
