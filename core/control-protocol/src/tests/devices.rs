//! Devices that are added and removed, and disks that are replaced: a small world with a store, leases, the monitor, administrators, and
//! whoever completes what they have begun.

use super::exploration::*;
use crate::*;
use braid_base::DiskId;
use braid_wire::{AdminError, Administration};

const DEVICE: DeviceId = DeviceId(3);
const DISK: DiskId = DiskId(1);
/// The disk that replaces it.
const NEW: DiskId = DiskId(2);
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
    monitor: Monitor,
    administrators: Administrators,
    /// A replacement that another administrator may begin.
    next: Option<Replacement>,
    /// The requests that administrators have sent to the monitor so far.
    tickets: u64,
    budget: Budget,
}

#[derive(Clone, Debug, Default)]
struct Monitor {
    /// The disk of the device, if the membership contains it.
    member: Option<DiskId>,
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
    Settle,
    CreateVolume,
    Replace,
}

/// Administrators do not wait for each other, or for the device, for long.
fn timing() -> Timing {
    let short = Duration::from_millis(50);
    Timing { device: Duration::ZERO, steady: short, turn: short, ..Timing::default() }
}

fn adding(own: Generation) -> DeviceChange {
    DeviceChange::adding(own, DEVICE, DISK, timing())
}

fn removing(own: Generation) -> DeviceChange {
    DeviceChange::removing(own, DEVICE, timing())
}

fn replacement(disk: DiskId, until_rebuilt: bool) -> Replacement {
    Replacement::of(DEVICE, NextDisk { disk, blocks: 9, is_spare: false, lose: false, until_rebuilt }, timing())
}

impl DeviceWorld {
    /// A world in which the first administrator adds the device.
    fn of_addition(budget: Budget) -> DeviceWorld {
        let mut world = DeviceWorld::new(None, budget);
        world.begin(FIRST, adding(FIRST));
        world
    }

    /// A world in which it removes it.
    fn of_removal(budget: Budget) -> DeviceWorld {
        let mut world = DeviceWorld::new(Some(DeviceState::Ready), budget);
        world.begin(FIRST, removing(FIRST));
        world
    }

    /// A world in which it replaces the disk, and another one may do it after that, or meanwhile.
    fn of_replacement(until_rebuilt: bool, next: Option<Replacement>, budget: Budget) -> DeviceWorld {
        let mut world = DeviceWorld { next, ..DeviceWorld::new(Some(DeviceState::Ready), budget) };
        world.begin(FIRST, replacement(NEW, until_rebuilt));
        world
    }

    fn new(state: Option<DeviceState>, budget: Budget) -> DeviceWorld {
        DeviceWorld {
            version: Version(1),
            record: state.map(|state| DeviceRecord { disk: Some(DISK), others: BTreeSet::new(), state }),
            is_used: state.is_some(),
            has_volume: false,
            monitor: Monitor { member: state.map(|_| DISK), ..Monitor::default() },
            administrators: Administrators::with(budget.lost, 0, budget.deaths, budget.silences),
            next: None,
            tickets: 0,
            budget,
        }
    }

    fn is_alive(&self, host: Generation) -> bool {
        let Administrators { leases, fenced, .. } = &self.administrators;
        leases.get(&host).is_none_or(|lease| !lease.is_silent) && !fenced.contains(&host)
    }

    fn administrator(&self) -> Option<Generation> {
        self.record.as_ref()?.state.administrator()
    }

    fn replaced(&mut self, record: Option<DeviceRecord>) -> Answer {
        (self.version, self.record) = (Version(self.version.0 + 1), record);
        Answer::Replaced { version: self.version }
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
                self.is_used = true;
                self.replaced(Some(record.clone()))
            }
            Command::RemoveDevice { .. } => self.replaced(None),
            command => self.administrators.on_command(command, |_| true),
        }
    }
}

impl Monitor {
    fn administer(&mut self, host: Generation, ticket: u64, request: Administration) -> Answer {
        let answered = self.answered.entry(host).or_default();
        if ticket <= *answered {
            return Answer::Unknown;
        }
        *answered = ticket;
        if self.refusals > 0 {
            self.refusals -= 1;
            return Answer::Refused(AdminError::NeedsOthers { others: vec![DeviceId(1)] });
        }
        match request {
            Administration::AddDevice { disk, .. } => match self.member {
                Some(there) if there != disk => return Answer::Refused(AdminError::DeviceExists { device: DEVICE }),
                _ => self.member = Some(disk),
            },
            Administration::RemoveDevice { .. } => self.member = None,
            Administration::Replace { disk, .. } => self.member = Some(disk),
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
        let may_settle = self.budget.settlers > 0 && !self.administrators.living.contains_key(&SETTLER);
        if may_settle && self.administrator().is_some() && self.is_alive(SETTLER) {
            events.push(Event::Settle);
        }
        let is_ready = self.record.as_ref().is_some_and(|record| record.state == DeviceState::Ready);
        if self.budget.volumes > 0 && is_ready {
            events.push(Event::CreateVolume);
        }
        events.extend(self.next.is_some().then_some(Event::Replace));
        events
    }

    fn other_happens(&mut self, event: Event) {
        match event {
            Event::Settle => {
                self.budget.settlers -= 1;
                self.begin(SETTLER, DeviceChange::continuing(SETTLER, DEVICE, timing()));
            }
            Event::CreateVolume => {
                self.budget.volumes -= 1;
                self.has_volume = true;
                self.version = Version(self.version.0 + 1);
            }
            Event::Replace => {
                let next = self.next.take().expect("it may begin");
                self.begin(SECOND, next);
            }
        }
    }

    fn perform(&mut self, own: Generation, asked: &Asked) -> Answer {
        match &asked.question {
            Question::Store(command) => self.on_command(command),
            Question::AreIn { .. } => Answer::AllIn(Epoch(1)),
            Question::RunsOn { disk, .. } => match self.monitor.member {
                None => Answer::No,
                Some(member) if member == *disk => Answer::Yes,
                Some(_) => Answer::Superseded,
            },
            Question::Fence(fence) => self.administrators.fence(fence),
            Question::Administer { .. } if self.administrators.fenced.contains(&own) => Answer::Unknown,
            Question::Administer { request } => self.monitor.administer(own, asked.ticket, *request),
            other => panic!("{other:?}"),
        }
    }

    fn may_be_lost(question: &Question) -> bool {
        matches!(question, Question::Store(Command::ReadDevice)) || DeviceWorld::outlives(question)
    }

    fn outlives(question: &Question) -> bool {
        match question {
            Question::Store(command) => matches!(command, Command::ReplaceDevice { .. } | Command::RemoveDevice { .. }),
            Question::Administer { .. } | Question::Fence(_) => true,
            _ => false,
        }
    }

    /// The requests to the monitor so far.
    fn ticket(&mut self, question: &Question) -> u64 {
        self.tickets += u64::from(matches!(question, Question::Administer { .. }));
        self.tickets
    }

    fn ended(&mut self, own: Generation, _: Administrator, _: &Result<Done, Error>) {
        if own != SETTLER {
            self.administrators.leases.remove(&own);
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
        if let (Some(record), Some(member)) = (&self.record, self.monitor.member) {
            let is_known = record.disk == Some(member) || record.others.contains(&member);
            assert!(is_known, "the store does not know the disk that fills the slot: {self:#?}");
        }
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

/// An addition, and a removal during which a volume may be created, with such failures.
fn both_end_with(budget: Budget, expected: &[&str]) {
    explored_ends(DeviceWorld::of_addition(budget), expected);
    explored_ends(DeviceWorld::of_removal(Budget { volumes: 1, ..budget }), expected);
}

#[test]
fn a_device_is_added() {
    let ends = explored_ends(DeviceWorld::of_addition(Budget { settlers: 0, ..QUIET }), &["Ok(Changed)"]);
    assert_eq!(ends.len(), 1, "{ends:?}");
    explored_ends(DeviceWorld::of_addition(QUIET), &["Ok(Changed)", "Ok(Nothing)"]);
}

#[test]
fn a_device_is_removed_unless_a_volume_lies_on_it() {
    let budget = Budget { volumes: 1, ..QUIET };
    explored_ends(DeviceWorld::of_removal(budget), &["Ok(Changed)", "Ok(Nothing)", "HoldsVolumes"]);
}

#[test]
fn a_change_with_lost_answers_or_a_dead_or_suspended_administrator_is_completed() {
    both_end_with(Budget { lost: 2, settlers: 2, ..QUIET }, &["Ok(Changed)", "Err(Question"]);
    both_end_with(Budget { deaths: 1, settlers: 2, ..QUIET }, &["Ok(Changed)", "Ok(Nothing)"]);
    both_end_with(Budget { silences: 1, lost: 1, ..QUIET }, &["Ok(Changed)", "Err(Lost)", "Err(Question"]);
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
        world.begin(SECOND, removing(SECOND));
        explored_ends(world, &["Ok(Changed)", "Err(NoDevice)"]);
    }
}

#[test]
fn an_administrator_may_remove_what_it_has_not_heard_to_be_added() {
    let mut world = DeviceWorld::new(Some(DeviceState::Adding { by: FIRST }), QUIET);
    (world.monitor.member, world.tickets) = (None, 1);
    let request = Administration::AddDevice { device: DEVICE, disk: DISK };
    world.administrators.stray.push((FIRST, Asked { question: Question::Administer { request }, ticket: 1 }));
    world.begin(FIRST, removing(FIRST));
    assert_eq!(explore(world, is_completed).into_iter().next(), Some("Ok(Changed)".to_string()));
}

#[test]
fn two_additions_of_one_disk_add_one_device() {
    let mut world = DeviceWorld::of_addition(Budget { deaths: 1, ..QUIET });
    world.begin(SECOND, adding(SECOND));
    explored_ends(world, &["Ok(Changed)"]);
}

#[test]
fn a_number_that_another_device_has_had_and_a_disk_for_no_device_are_refused() {
    let mut used = DeviceWorld::of_addition(QUIET);
    used.is_used = true;
    let mut taken = DeviceWorld::new(Some(DeviceState::Ready), QUIET);
    taken.begin(FIRST, DeviceChange::adding(FIRST, DEVICE, DiskId(9), timing()));
    let mut none = DeviceWorld::new(None, QUIET);
    none.begin(FIRST, replacement(NEW, false));
    for (world, end) in [(used, "Err(NumberUsed)"), (taken, "Err(NumberUsed)"), (none, "Err(NoDevice)")] {
        assert_eq!(explore(world, is_completed), [end.to_string()].into());
    }
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

#[test]
fn the_disk_that_fills_a_slot_is_known_whoever_replaces_it() {
    for until_rebuilt in [false, true] {
        let ends = explore(DeviceWorld::of_replacement(until_rebuilt, None, QUIET), |world| {
            assert_eq!(world.monitor.member, Some(NEW));
        });
        assert_eq!(ends, ["Ok(Changed)".to_string()].into());
        let repeated = |budget| DeviceWorld::of_replacement(until_rebuilt, Some(replacement(NEW, false)), budget);
        explored_ends(repeated(Budget { deaths: 1, ..QUIET }), &["Ok(Changed)"]);
        explored_ends(repeated(Budget { lost: 2, ..QUIET }), &["Ok(Changed)", "Err(Question"]);
    }
}

#[test]
fn a_refused_disk_is_forgotten_and_one_that_needs_others_is_asked_for_again() {
    for (refusals, end) in [(1, "Ok(Changed)"), (9, "Err(Refused")] {
        let mut world = DeviceWorld::of_replacement(false, None, QUIET);
        world.monitor.refusals = refusals;
        let before = world.record.clone();
        let ends = explore(world, |world| match refusals {
            1 => assert_eq!(world.monitor.member, Some(NEW)),
            _ => assert_eq!(world.record, before),
        });
        ends_with(&ends, &[end]);
        assert_eq!(ends.len(), 1, "{ends:?}");
    }
}

#[test]
fn a_refused_replacement_does_not_forget_the_disk_of_another_one() {
    let mut world = DeviceWorld::of_replacement(false, Some(replacement(NEW, false)), QUIET);
    world.monitor.refusals = 2;
    explored_ends(world, &["Ok(Changed)", "Err(Refused"]);
}

#[test]
fn a_replacement_ends_when_another_disk_was_requested_since() {
    let world = DeviceWorld::of_replacement(true, Some(replacement(DiskId(7), true)), QUIET);
    let ends = explore(world, |world| assert!(world.administrators.living.is_empty(), "{world:#?}"));
    ends_with(&ends, &["Ok(Changed)", "Err(Lost)"]);
}
