//! File systems that are created, deleted and checked: a small world with a store, the monitor, metadata servers and administrators. Each
//! administrator may die, or be silent for so long that its lease is over, and go on.

use super::exploration::*;
use crate::*;
use braid_base::{FileSystemId, Ownership};
use braid_wire::OwnershipRequest;

const SHARDS: [FileSystemId; 2] = [FileSystemId(1), FileSystemId(2)];
/// A volume for the metadata, and one for the content of files.
const VOLUMES: [VolumeId; 2] = [VolumeId(4), VolumeId(5)];
/// The generation of the first administrator; those of metadata servers are below.
const FIRST: Generation = Generation(10);

#[derive(Clone, Debug)]
struct FileSystemWorld {
    version: Version,
    record: Option<FileSystemRecord>,
    /// By the number that their creation has. Formatted, or not.
    volumes: BTreeMap<usize, (VolumeId, bool)>,
    /// The last numbers of a file system and of a volume.
    last: (FileSystemId, VolumeId),
    /// The metadata server of each shard.
    servers: BTreeMap<FileSystemId, Server>,
    monitor: Monitor,
    announced: BTreeSet<Announcement>,
    check: CheckSeen,
    administrators: Administrators,
    budget: Budget,
}

#[derive(Clone, Debug)]
struct Monitor {
    owners: BTreeMap<FileSystemId, Ownership>,
    epoch: Epoch,
}

/// What a check has met.
#[derive(Clone, Debug, Default)]
struct CheckSeen {
    /// What was announced has lapsed, because the process was suspended.
    lapsed: bool,
    /// A server has served an examined shard before the next one was examined.
    changed: bool,
    examined: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    /// It has read that the file system is ready, and may take over.
    Begins(Generation),
    Serves(Generation),
    Quiescent(Generation),
    /// It does not react any more, and has its lease.
    Suspended(Generation),
    Ended,
}

/// How often each kind of event may still happen.
#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    lost: u32,
    deaths: u32,
    /// Creations of volumes that fail: a device has no space.
    failures: u32,
    /// Administrators that are silent.
    silences: u32,
    /// Administrators that complete the deletion.
    settlers: u32,
    /// Servers that are suspended.
    suspensions: u32,
    /// Checks that are suspended.
    lapses: u32,
    /// Releases of other file systems.
    releases: u32,
    /// The time passes.
    time: bool,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Settle,
    Follow(FileSystemId),
    Suspend(FileSystemId),
    Lapse,
    /// Another file system is released.
    Release,
}

impl FileSystemWorld {
    fn new(
        shards: usize,
        server: fn(Generation) -> Server,
        operation: impl Into<Operation>,
        budget: Budget,
    ) -> FileSystemWorld {
        let shards = &SHARDS[..shards];
        let generation = |shard: &FileSystemId| Generation(shard.0.into());
        let owned = |shard: &FileSystemId| match server(generation(shard)) {
            Server::Begins(_) | Server::Ended => Ownership::default(),
            _ => Ownership { since: Epoch(1), owner: Some(generation(shard)) },
        };
        let record =
            FileSystemRecord { servers: shards.to_vec(), volumes: VOLUMES.to_vec(), state: FileSystemState::Ready };
        let mut world = FileSystemWorld {
            version: Version(1),
            record: Some(record),
            volumes: VOLUMES.into_iter().map(|volume| (volume, true)).enumerate().collect(),
            last: (FileSystemId(2), VolumeId(5)),
            servers: shards.iter().map(|shard| (*shard, server(generation(shard)))).collect(),
            monitor: Monitor { owners: shards.iter().map(|shard| (*shard, owned(shard))).collect(), epoch: Epoch(1) },
            announced: BTreeSet::new(),
            check: CheckSeen::default(),
            administrators: Administrators::with(budget.lost, budget.failures, budget.deaths, budget.silences),
            budget,
        };
        world.begin(FIRST, operation);
        world
    }

    /// A world in which so many administrators create a file system of one name.
    fn of_creation(administrators: u32, budget: Budget) -> FileSystemWorld {
        let creation = |own| FileSystemCreation::of(own, FileSystemTiming::default());
        let mut world = FileSystemWorld::new(0, Server::Serves, creation(FIRST), budget);
        (world.record, world.volumes) = (None, BTreeMap::new());
        for own in (FIRST.0 + 1..FIRST.0 + administrators).map(Generation) {
            world.begin(own, creation(own));
        }
        world
    }

    fn state(&self) -> Option<FileSystemState> {
        self.record.as_ref().map(|record| record.state)
    }

    fn check_deleted(&self) {
        assert!(self.record.is_none() && self.volumes.is_empty(), "it is not deleted: {self:#?}");
        let is_owned =
            |owner: &Ownership| owner.owner.is_some_and(|owner| !self.administrators.fenced.contains(&owner));
        assert!(!self.monitor.owners.values().any(is_owned), "a deleted file system has an owner: {self:#?}");
    }

    fn is_behind(&self, shard: FileSystemId) -> bool {
        self.followed(shard) != self.servers[&shard]
    }

    /// What a server does next.
    fn followed(&self, shard: FileSystemId) -> Server {
        let now = self.servers[&shard];
        let is_deleting = self.state().is_none_or(|state| state == FileSystemState::Deleting);
        let is_checked = self.announced.contains(&Announcement::Check);
        match now {
            // It has read the record and the announcements before; its host must know the volumes.
            Server::Begins(own) if !self.volumes.is_empty() => Server::Serves(own),
            Server::Begins(_) => Server::Ended,
            Server::Serves(_) | Server::Quiescent(_) if is_deleting || is_checked => Server::Ended,
            Server::Serves(own) if self.announced.contains(&Announcement::Quiesce) => Server::Quiescent(own),
            // Another process begins.
            Server::Ended if !is_deleting && !is_checked => Server::Serves(Generation(u32::from(shard.0) + 2)),
            now => now,
        }
    }

    fn own(&mut self, shard: FileSystemId, owner: Option<Generation>) {
        self.monitor.owners.insert(shard, Ownership { since: self.monitor.epoch.next(), owner });
        self.owners_change(owner.is_none());
    }

    /// One number is kept for all shards without an owner.
    fn owners_change(&mut self, is_release: bool) {
        let since = self.monitor.epoch.next();
        self.monitor.epoch = since;
        let unowned = self.monitor.owners.values_mut().filter(|there| is_release && there.owner.is_none());
        unowned.for_each(|there| there.since = since);
    }

    /// A host takes a shard over: its owner is fenced.
    fn take_over(&mut self, shard: FileSystemId, own: Generation) {
        if let Some(owner) = self.monitor.owners[&shard].owner {
            self.administrators.fenced.insert(owner);
            self.servers.insert(shard, Server::Ended);
        }
        self.own(shard, Some(own));
    }

    fn replaced(&mut self, record: Option<FileSystemRecord>) -> Answer {
        (self.version, self.record) = (Version(self.version.0 + 1), record);
        Answer::Replaced { version: self.version }
    }

    fn on_command(&mut self, command: &Command) -> Answer {
        match command {
            Command::ListServers => {
                let lease = |(shard, server): (&FileSystemId, &Server)| {
                    let (Server::Serves(host) | Server::Quiescent(host) | Server::Suspended(host)) = *server else {
                        return None;
                    };
                    let quiescent = matches!(server, Server::Quiescent(_));
                    Some(ServerLease { host, file_system: *shard, is_live: true, serves: true, quiescent })
                };
                let leases = self.servers.iter().filter_map(lease).collect();
                Answer::Servers { leases, announced: self.announced.clone() }
            }
            Command::ReadFileSystem => {
                let volumes = self.volumes.values().map(|(volume, _)| *volume).collect();
                let record = self.record.clone().map(|record| FileSystemRecord { volumes, ..record });
                Answer::FileSystem { version: self.version, record }
            }
            Command::EnterFileSystem { after, .. }
            | Command::ReplaceFileSystem { after, .. }
            | Command::RemoveFileSystem { after }
                if *after != self.version =>
            {
                Answer::Superseded
            }
            Command::EnterFileSystem { by, .. } => {
                self.last.0.0 += 1;
                let (servers, state) = (vec![self.last.0], FileSystemState::Creating { by: *by });
                self.replaced(Some(FileSystemRecord { servers, volumes: Vec::new(), state }))
            }
            Command::ReplaceFileSystem { state, .. } => {
                let record = self.record.take().expect("the version is that of the record");
                self.replaced(Some(FileSystemRecord { state: *state, ..record }))
            }
            Command::RemoveFileSystem { .. } => self.replaced(None),
            command => self.administrators.on_command(command, |_| true),
        }
    }
}

fn deletion() -> FileSystemDeletion {
    FileSystemDeletion::of(FIRST, FileSystemTiming::default())
}

fn check(shards: usize) -> FileSystemCheck {
    FileSystemCheck::of(SHARDS[..shards].to_vec(), FileSystemTiming::default())
}

impl Administered for FileSystemWorld {
    type Event = Event;

    const NOTES_STAGES: bool = true;

    has_administrators!();

    fn other_events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        if self.budget.settlers > 0 && self.state() == Some(FileSystemState::Deleting) {
            events.push(Event::Settle);
        }
        if self.budget.lapses > 0 && !self.announced.is_empty() {
            events.push(Event::Lapse);
        }
        if self.budget.releases > 0 {
            events.push(Event::Release);
        }
        for shard in self.servers.keys() {
            if self.is_behind(*shard) {
                events.push(Event::Follow(*shard));
            }
            if self.budget.suspensions > 0 && matches!(self.servers[shard], Server::Serves(_) | Server::Quiescent(_)) {
                events.push(Event::Suspend(*shard));
            }
        }
        events
    }

    fn other_happens(&mut self, event: Event) {
        match event {
            Event::Settle => {
                self.budget.settlers -= 1;
                let own = Generation(FIRST.0 + 1 + self.budget.settlers);
                self.begin(own, FileSystemDeletion::continuing(own, FileSystemTiming::default()));
            }
            Event::Follow(shard) => {
                let (before, after) = (self.servers[&shard], self.followed(shard));
                self.servers.insert(shard, after);
                // A shard alone, without those that were examined, can't do operations that concern them.
                let is_between = (1..self.servers.len()).contains(&self.check.examined.len());
                let was_examined = SHARDS.iter().take(self.check.examined.len()).any(|examined| *examined == shard);
                self.check.changed |=
                    self.check.lapsed && is_between && was_examined && matches!(after, Server::Serves(_));
                match (before, after) {
                    // The monitor ignores a fenced one.
                    (Server::Begins(own), Server::Serves(_)) if self.administrators.fenced.contains(&own) => {
                        self.servers.insert(shard, Server::Ended);
                    }
                    (Server::Begins(_) | Server::Ended, Server::Serves(own)) => self.own(shard, Some(own)),
                    (Server::Serves(own) | Server::Quiescent(own), Server::Ended)
                        if self.monitor.owners[&shard].owner == Some(own) =>
                    {
                        self.own(shard, None);
                    }
                    _ => {}
                }
            }
            Event::Lapse => {
                self.budget.lapses -= 1;
                self.check.lapsed = true;
                self.announced.clear();
            }
            Event::Release => {
                self.budget.releases -= 1;
                self.owners_change(true);
            }
            Event::Suspend(shard) => {
                self.budget.suspensions -= 1;
                let (Server::Serves(own) | Server::Quiescent(own)) = self.servers[&shard] else { unreachable!() };
                self.servers.insert(shard, Server::Suspended(own));
            }
        }
    }

    fn perform(&mut self, own: Generation, asked: &Asked) -> Answer {
        let is_fenced = self.administrators.fenced.contains(&own);
        match asked.question {
            Question::Store(ref command) => self.on_command(command),
            Question::Fence(ref fence) => self.administrators.fence(fence),
            Question::CreateVolume { number } => {
                if self.state() != Some(FileSystemState::Creating { by: own }) || self.volumes.contains_key(&number) {
                    return Answer::Failed;
                }
                self.last.1.0 += 1;
                self.volumes.insert(number, (self.last.1, false));
                if is_fenced { Answer::Failed } else { Answer::Yes }
            }
            Question::Format { .. } | Question::DeleteVolume { .. } if is_fenced => Answer::Failed,
            Question::Format { number, .. } => {
                let (_, is_formatted) = self.volumes.get_mut(&number).expect("devices have it until others are fenced");
                *is_formatted = true;
                Answer::Yes
            }
            // No process serves what is being created.
            Question::Ownership { file_system, .. } if !self.servers.contains_key(&file_system) => {
                Answer::Ownership(Ownership::default())
            }
            Question::Ownership { file_system, request } => {
                let now = self.monitor.owners[&file_system];
                match request {
                    OwnershipRequest::TakeOver { from } if from == now => self.take_over(file_system, own),
                    OwnershipRequest::Release { since } if since == now.since => self.own(file_system, None),
                    _ => {}
                }
                Answer::Ownership(self.monitor.owners[&file_system])
            }
            Question::DeleteVolume { volume } => {
                if self.volumes.values().any(|(there, _)| *there == volume) {
                    assert_eq!(self.state(), Some(FileSystemState::Deleting), "volumes are used until then");
                }
                self.volumes.retain(|_, (there, _)| *there != volume);
                Answer::Yes
            }
            Question::Announce(announcement) => {
                assert!(self.announced.insert(announcement), "it is announced once");
                Answer::Yes
            }
            Question::Withdraw(announcement) => {
                self.announced.remove(&announcement);
                Answer::Yes
            }
            Question::Examine { shard } => {
                assert!(self.announced.contains(&Announcement::Check) || self.check.lapsed, "servers know of a check");
                if self.servers.len() > 1 && !self.check.lapsed {
                    assert!(self.announced.contains(&Announcement::Quiesce));
                    let is_at_work = |server: &Server| matches!(server, Server::Serves(_));
                    assert!(!self.servers.values().any(is_at_work), "a shard changes meanwhile: {self:#?}");
                }
                self.take_over(SHARDS[shard], own);
                self.own(SHARDS[shard], None);
                self.check.examined.truncate(shard);
                self.check.changed &= shard > 0;
                self.check.examined.push(shard);
                Answer::Ownership(self.monitor.owners[&SHARDS[shard]])
            }
            ref other => panic!("{other:?}"),
        }
    }

    fn may_be_lost(question: &Question) -> bool {
        matches!(question, Question::Store(_))
    }

    fn may_fail(question: &Question) -> bool {
        matches!(question, Question::CreateVolume { .. })
    }

    /// While no time passes, it looks again when that makes a difference: neither a server nor another administrator is to act first.
    fn may_wake(&self, own: Generation) -> bool {
        let is_behind = self.servers.keys().any(|shard| self.is_behind(*shard));
        let acts = |by| by != own && self.administrators.is_live(by) && self.administrators.living.contains_key(&by);
        let is_left = matches!(self.state(), Some(FileSystemState::Creating { by }) if acts(by));
        self.budget.time || !(is_behind || is_left)
    }

    /// Otherwise it looks again, and has all the time that it needs.
    fn passes(&self) -> Option<Duration> {
        self.budget.time.then_some(Duration::from_secs(60))
    }

    fn died(&mut self) {
        self.announced.clear();
    }

    fn ended(&mut self, own: Generation, administrator: Administrator, result: &Result<Done, Error>) {
        if let (OperationKind::FileSystemDeletion(_), Ok(Done::Changed)) = (administrator.operation.kind(), result) {
            self.check_deleted();
        }
        if let Ok(Done::Nothing) = result {
            assert!(!self.check.changed, "the shards were examined at different times: {self:#?}");
        }
        self.administrators.leases.remove(&own);
    }

    fn check(&self) {
        if self.state() == Some(FileSystemState::Ready) {
            assert_eq!(self.volumes.len(), VOLUMES.len(), "a volume of a file system in use is gone: {self:#?}");
            assert!(self.volumes[&0].1, "a file system in use is not formatted: {self:#?}");
        }
    }
}

fn nothing_is_announced(world: &FileSystemWorld) {
    assert_eq!(world.announced, BTreeSet::new(), "a check is over: {world:#?}");
}

fn nothing_is_left(world: &FileSystemWorld) {
    let is_ready = world.state() == Some(FileSystemState::Ready);
    assert!(is_ready || (world.record.is_none() && world.volumes.is_empty()), "something is left: {world:#?}");
}

#[test]
fn one_of_two_administrators_creates_a_file_system_and_the_other_finds_it() {
    let ends = explore(FileSystemWorld::of_creation(1, Budget::default()), nothing_is_left);
    assert_eq!(ends, ["Ok(Changed)".to_string()].into());
    let ends = explore(FileSystemWorld::of_creation(2, Budget::default()), |world| {
        nothing_is_left(world);
        assert!(world.record.is_some());
    });
    assert_eq!(ends, ["Ok(Changed)".to_string(), "Err(FileSystemExists)".to_string()].into());
}

#[test]
fn a_creation_that_fails_leaves_nothing() {
    let ends = explore(FileSystemWorld::of_creation(1, Budget { failures: 1, ..Budget::default() }), nothing_is_left);
    ends_with(&ends, &["Ok(Changed)", "Err(Question"]);
    let ends =
        explore(FileSystemWorld::of_creation(2, Budget { failures: 1, lost: 1, ..Budget::default() }), nothing_is_left);
    ends_with(&ends, &["Ok(Changed)", "Err(Question", "Err(FileSystemExists)"]);
}

#[test]
fn remains_of_a_dead_administrator_are_deleted_first() {
    let ends = explore(FileSystemWorld::of_creation(2, Budget { deaths: 1, ..Budget::default() }), |world| {
        // Whoever lives has created it, or found it being deleted.
        if world.administrators.ends.contains("Ok(Changed)") {
            nothing_is_left(world);
        }
    });
    ends_with(&ends, &["Ok(Changed)"]);
}

#[test]
fn an_administrator_that_was_evicted_touches_nothing_when_it_goes_on() {
    let ends = explore(FileSystemWorld::of_creation(2, Budget { silences: 1, ..Budget::default() }), |world| {
        assert!(world.record.is_some(), "nobody has created it: {world:#?}");
        nothing_is_left(world);
    });
    ends_with(&ends, &["Ok(Changed)", "Err(Lost)"]);
    let budget = Budget { silences: 1, failures: 1, ..Budget::default() };
    ends_with(&explore(FileSystemWorld::of_creation(2, budget), |_| ()), &["Ok(Changed)", "Err(Lost)", "Err(Question"]);
}

#[test]
fn servers_that_release_a_file_system_in_time_are_not_fenced() {
    for shards in [1, 2] {
        let world = FileSystemWorld::new(shards, Server::Serves, deletion(), Budget::default());
        let ends = explore(world, |world| {
            world.check_deleted();
            assert_eq!(world.administrators.fenced, BTreeSet::new());
        });
        assert_eq!(ends, ["Ok(Changed)".to_string()].into());
    }
}

#[test]
fn a_server_that_does_not_end_is_fenced_and_one_that_begins_late_is_too() {
    let world =
        FileSystemWorld::new(1, Server::Serves, deletion(), Budget { suspensions: 1, time: true, ..Budget::default() });
    ends_with(&explore(world, FileSystemWorld::check_deleted), &["Ok(Changed)", "FencingServers"]);
    let world = FileSystemWorld::new(2, Server::Begins, deletion(), Budget { time: true, ..Budget::default() });
    ends_with(&explore(world, FileSystemWorld::check_deleted), &["Ok(Changed)", "FencingServers"]);
}

#[test]
fn a_deletion_is_completed_by_whoever_continues_it() {
    for (lost, deaths) in [(2, 0), (0, 1)] {
        let budget = Budget { lost, deaths, settlers: 1, ..Budget::default() };
        let world = FileSystemWorld::new(1, Server::Serves, deletion(), budget);
        let ends = explore(world, |world| {
            let is_left = world.state() == Some(FileSystemState::Deleting);
            let has_died = world.administrators.deaths < deaths;
            assert!(!is_left || (has_died && world.budget.settlers == 0), "nobody completes it: {world:#?}");
        });
        ends_with(&ends, &["Ok(Changed)", "Ok(Nothing)"]);
    }
}

#[test]
fn a_file_system_that_is_being_created_is_deleted_when_its_administrator_has_ended_or_died() {
    for budget in [Budget { deaths: 1, ..Budget::default() }, Budget { silences: 1, ..Budget::default() }] {
        let (mut world, own) = (FileSystemWorld::of_creation(1, budget), Generation(FIRST.0 + 1));
        world.begin(own, FileSystemDeletion::of(own, FileSystemTiming::default()));
        ends_with(&explore(world, |_| ()), &["Ok(Changed)", "Err(NoFileSystem)"]);
    }
}

#[test]
fn a_file_system_that_there_is_not_is_not_deleted() {
    let mut world = FileSystemWorld::new(1, Server::Serves, deletion(), Budget::default());
    world.record = None;
    let ends = explore(world, |_| ());
    assert_eq!(ends, ["Err(NoFileSystem)".to_string()].into());
    let continuing = FileSystemDeletion::continuing(FIRST, FileSystemTiming::default());
    let ends = explore(FileSystemWorld::new(1, Server::Serves, continuing, Budget::default()), |world| {
        assert_eq!(world.state(), Some(FileSystemState::Ready));
    });
    assert_eq!(ends, ["Ok(Nothing)".to_string()].into());
}

#[test]
fn processes_that_take_over_again_and_again_end_a_deletion() {
    let record = FileSystemRecord { servers: vec![SHARDS[0]], volumes: Vec::new(), state: FileSystemState::Deleting };
    let mut operation = Operation::from(deletion());
    assert_eq!(operation.step(Time(0), Input::Start).len(), 1);
    let owned = |owner: u32| Answer::Ownership(Ownership { since: Epoch(owner), owner: Some(Generation(owner)) });
    let mut effects = Vec::new();
    let mut give = |answer: Answer, tag: u64| operation.step(Time(0), Input::Answer { tag: Tag(tag), answer });
    effects.extend(give(Answer::FileSystem { version: Version(1), record: Some(record) }, 1));
    effects.extend(give(Answer::Servers { leases: Vec::new(), announced: BTreeSet::new() }, 2));
    for number in 0..6 {
        effects.extend(give(owned(number + 1), u64::from(number) + 3));
    }
    assert_eq!(effects.last(), Some(&Effect::Ended(Err(Error::Contended))));
}

#[test]
fn a_check_examines_what_its_servers_have_released_also_while_other_file_systems_are_released() {
    for shards in [1, 2] {
        let budget = Budget { releases: 2, ..Budget::default() };
        let ends = explore(FileSystemWorld::new(shards, Server::Serves, check(shards), budget), |world| {
            nothing_is_announced(world);
            assert_eq!(world.check.examined, (0..shards).collect::<Vec<_>>());
            assert_eq!(world.administrators.fenced, BTreeSet::new());
        });
        ends_with(&ends, &["Ok(Nothing)"]);
        assert_eq!(ends.len(), 1, "{ends:?}");
    }
}

#[test]
fn a_check_withdraws_what_it_has_announced_whatever_fails_meanwhile() {
    let none = Budget::default();
    let (suspended, lost) = (Budget { suspensions: 1, time: true, ..none }, Budget { lost: 2, ..none });
    for (shards, budget, expected) in [
        // A server that does not release is fenced, but nothing is examined that has not quiesced.
        (1, suspended, &["Ok(Nothing)", "Unserved"][..]),
        (2, suspended, &["Ok(Nothing)", "Err(NotQuiescent", "Unserved"]),
        (1, lost, &["Ok(Nothing)", "Err(Question"]),
        (2, lost, &["Ok(Nothing)", "Err(Question"]),
        // Maps of different times are not joined.
        (2, Budget { lapses: 1, time: true, ..none }, &["Ok(Nothing)", "Err(Interrupted)"]),
    ] {
        let world = FileSystemWorld::new(shards, Server::Serves, check(shards), budget);
        ends_with(&explore(world, nothing_is_announced), expected);
    }
}

#[test]
fn a_second_check_does_not_begin() {
    let mut world = FileSystemWorld::new(1, Server::Serves, check(1), Budget::default());
    world.announced.insert(Announcement::Check);
    assert_eq!(explore(world, |_| ()), ["Err(CheckUnderWay)".to_string()].into());
}
