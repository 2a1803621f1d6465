//! File systems that are created: a small world with a store, and administrators that create one of the same name. Each may die, or be silent
//! for so long that its lease is over, and go on.

use super::exploration::*;
use crate::*;
use braid_base::{FileSystemId, Ownership};

/// A volume for the metadata, and one for the content of files.
const VOLUMES: usize = 2;

#[derive(Clone, Debug)]
struct CreationWorld {
    version: Version,
    record: Option<FileSystemRecord>,
    last_number: u16,
    /// By name. Formatted, or not.
    volumes: BTreeMap<usize, (VolumeId, bool)>,
    last_volume: u64,
    administrators: Administrators,
    /// A host that has been silent for longer than a lease may go on.
    leases: BTreeMap<Generation, Lease>,
    fenced: BTreeSet<Generation>,
    budget: Budget,
}

#[derive(Clone, Copy, Debug)]
struct Budget {
    lost: u32,
    deaths: u32,
    silences: u32,
    /// Creations of volumes that fail: a device has no space.
    failures: u32,
}

const QUIET: Budget = Budget { lost: 0, deaths: 0, silences: 0, failures: 0 };

#[derive(Clone, Copy, Debug)]
enum Event {
    Silence(Generation),
}

impl CreationWorld {
    fn new(administrators: u32, budget: Budget) -> CreationWorld {
        let mut world = CreationWorld {
            version: Version(1),
            record: None,
            last_number: 0,
            volumes: BTreeMap::new(),
            last_volume: 0,
            administrators: Administrators::with(budget.lost, budget.failures, budget.deaths),
            leases: BTreeMap::new(),
            fenced: BTreeSet::new(),
            budget,
        };
        for number in 1..=administrators {
            let own = Generation(number);
            world.leases.insert(own, Lease::default());
            world.begin(own, FileSystemCreation::of(own, FileSystemTiming::default()));
        }
        world
    }

    /// True if no other administrator that lives keeps this one waiting.
    fn is_over(&self, own: Generation) -> bool {
        !matches!(self.record.as_ref().map(|record| record.state),
            Some(FileSystemState::Creating { by }) if by != own && self.is_live(by) && self.administrators.living.contains_key(&by))
    }

    fn is_live(&self, host: Generation) -> bool {
        self.leases.get(&host).is_some_and(|lease| !lease.is_silent)
    }

    fn on_command(&mut self, command: &Command) -> Answer {
        match *command {
            Command::EnterFileSystem { after, .. } if after != self.version => Answer::Superseded,
            Command::EnterFileSystem { by, .. } => {
                self.last_number += 1;
                let (servers, state) = (vec![FileSystemId(self.last_number)], FileSystemState::Creating { by });
                self.record = Some(FileSystemRecord { servers, volumes: Vec::new(), state });
                self.version.0 += 1;
                Answer::Replaced { version: self.version }
            }
            Command::ListServers => Answer::Servers { leases: Vec::new(), announced: BTreeSet::new() },
            Command::ListHosts | Command::EndLease { .. } | Command::ForgetLease { .. } => {
                on_leases(&mut self.leases, command, |_| true, &self.fenced)
            }
            _ => {
                let volumes = self.volumes.values().map(|(volume, _)| *volume).collect();
                on_file_system((&mut self.version, &mut self.record), volumes, command)
            }
        }
    }

    fn silence(&mut self, host: Generation) {
        if let Some(lease) = self.leases.get_mut(&host) {
            lease.is_silent = true;
        }
    }
}

impl Administered for CreationWorld {
    type Event = Event;

    has_administrators!();

    fn other_events(&self) -> Vec<Event> {
        let may_be_silent = |own: &&Generation| self.budget.silences > 0 && self.is_live(**own);
        self.administrators.living.keys().filter(may_be_silent).map(|own| Event::Silence(*own)).collect()
    }

    fn other_happens(&mut self, event: Event) {
        let Event::Silence(own) = event;
        self.budget.silences -= 1;
        self.silence(own);
    }

    fn perform(&mut self, own: Generation, asked: &Asked) -> Answer {
        let is_own = |record: &FileSystemRecord| record.state == FileSystemState::Creating { by: own };
        match asked.question {
            Question::Store(ref command) => self.on_command(command),
            Question::CreateVolume { number } => {
                if !self.record.as_ref().is_some_and(is_own) || self.volumes.contains_key(&number) {
                    return Answer::Failed;
                }
                self.last_volume += 1;
                self.volumes.insert(number, (VolumeId(self.last_volume), false));
                if self.fenced.contains(&own) { Answer::Failed } else { Answer::Yes }
            }
            Question::Format { number, .. } => {
                if self.fenced.contains(&own) {
                    return Answer::Failed;
                }
                let (_, is_formatted) = self.volumes.get_mut(&number).expect("devices have it until others are fenced");
                *is_formatted = true;
                Answer::Yes
            }
            Question::DeleteVolume { volume } => {
                if self.fenced.contains(&own) {
                    return Answer::Failed;
                }
                self.volumes.retain(|_, (there, _)| *there != volume);
                Answer::Yes
            }
            Question::Fence(ref fence) => {
                let hosts = (1..fence.below.0).map(Generation).filter(|host| !fence.except.contains(host));
                self.fenced.extend(hosts);
                Answer::Yes
            }
            Question::Ownership { .. } => Answer::Ownership(Ownership::default()),
            ref other => panic!("{other:?}"),
        }
    }

    fn may_be_lost(question: &Question) -> bool {
        matches!(question, Question::Store(Command::EnterFileSystem { .. } | Command::ReplaceFileSystem { .. }))
    }

    fn may_fail(question: &Question) -> bool {
        matches!(question, Question::CreateVolume { .. })
    }

    /// Otherwise what it looks at is as before.
    fn may_wake(&self, own: Generation) -> bool {
        self.is_over(own)
    }

    fn passes(&self) -> Option<Duration> {
        None
    }

    fn died(&mut self, own: Generation) {
        self.silence(own);
    }

    fn ended(&mut self, own: Generation, _: Administrator, _: &Result<Done, Error>) {
        self.leases.remove(&own);
    }

    fn check(&self) {
        if self.record.as_ref().is_some_and(|record| record.state == FileSystemState::Ready) {
            assert_eq!(self.volumes.len(), VOLUMES, "a volume of a file system in use is gone: {self:#?}");
            assert!(self.volumes[&0].1, "a file system in use is not formatted: {self:#?}");
        }
    }
}

fn nothing_is_left(world: &CreationWorld) {
    let is_ready = world.record.as_ref().is_some_and(|record| record.state == FileSystemState::Ready);
    assert!(is_ready || (world.record.is_none() && world.volumes.is_empty()), "something is left: {world:#?}");
}

#[test]
fn one_of_two_administrators_creates_a_file_system_and_the_other_finds_it() {
    let ends = explore(CreationWorld::new(1, QUIET), nothing_is_left);
    assert_eq!(ends, ["Ok(Changed)".to_string()].into());
    let ends = explore(CreationWorld::new(2, QUIET), |world| {
        nothing_is_left(world);
        assert!(world.record.is_some());
    });
    assert_eq!(ends, ["Ok(Changed)".to_string(), "Err(FileSystemExists)".to_string()].into());
}

#[test]
fn a_creation_that_fails_leaves_nothing() {
    let ends = explore(CreationWorld::new(1, Budget { failures: 1, ..QUIET }), nothing_is_left);
    ends_with(&ends, &["Ok(Changed)", "Err(Question"]);
    let ends = explore(CreationWorld::new(2, Budget { failures: 1, lost: 1, ..QUIET }), nothing_is_left);
    ends_with(&ends, &["Ok(Changed)", "Err(Question", "Err(FileSystemExists)"]);
}

#[test]
fn remains_of_a_dead_administrator_are_deleted_first() {
    let ends = explore(CreationWorld::new(2, Budget { deaths: 1, ..QUIET }), |world| {
        // Whoever lives has created it, or found it being deleted.
        if world.administrators.ends.contains("Ok(Changed)") {
            nothing_is_left(world);
        }
    });
    ends_with(&ends, &["Ok(Changed)"]);
}

#[test]
fn an_administrator_that_was_evicted_touches_nothing_when_it_goes_on() {
    let ends = explore(CreationWorld::new(2, Budget { silences: 1, ..QUIET }), |world| {
        assert!(world.record.is_some(), "nobody has created it: {world:#?}");
        nothing_is_left(world);
    });
    ends_with(&ends, &["Ok(Changed)", "Err(Lost)"]);
    let budget = Budget { silences: 1, failures: 1, ..QUIET };
    ends_with(&explore(CreationWorld::new(2, budget), |_| ()), &["Ok(Changed)", "Err(Lost)", "Err(Question"]);
}
