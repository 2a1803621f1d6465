//! File systems that are created, deleted and checked during a run, and used meanwhile: at most two at a time, one with one metadata server,
//! and one with several.

use super::administrator_state::Name;
use super::file_system_users::Users;
use super::file_system_work::{NAMES, Plan, Works};
use super::reordering_and_migration::idle_slots;
use super::servers::{Servers, store_of};
use crate::activity::{Activity, Draw, Feature, Options, Run, pick};
use crate::cluster::{Cluster, Failed, HostSlot, failed};
use crate::file_options::ShardOptions;
use crate::prelude::*;
use braid_control_protocol::{
    Done, Error, FileSystemCheck, FileSystemCreation, FileSystemDeletion, FileSystemTiming, Operation,
};
use braid_description::{FileSystemEntry, FileSystemState};
use braid_namespace::check::Finding;

/// How often processes look at the store.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The longest time for something on an array without faults.
const HEALTHY_MAX: Duration = Duration::from_secs(120);
/// Users at a time.
const USERS_MAX: usize = 3;
/// A device has room for what all of them have.
const DEVICE_BYTES: u64 = 192 << 20;

#[derive(Clone, Debug)]
pub(crate) struct FileSystems {
    plan: Plan,
    works: Works,
    servers: Servers,
    users: Users,
    looks_at: Time,
    /// So many ends of operations were seen.
    seen: usize,
    /// File systems that were created, and those that somebody has begun to delete.
    usable: BTreeSet<u16>,
    doomed: BTreeSet<u16>,
    /// The checks that began when a file surely was there, and those that did not, by their host and file system.
    began_with_files: BTreeMap<(Generation, u16), bool>,
    /// Draws what the operator does when all is healed.
    rng: Rng,
}

impl Feature for FileSystems {
    const NAME: &'static str = "file-systems";
    const ONE_IN: u64 = 16;
    const EVERY: Option<[u64; 3]> = Some([100, 300, 1_000]);
    // Other volumes are deleted whatever they belong to. And a run has one kind of metadata servers.
    const NOT_WITH: &'static [&'static str] =
        &["attribute-volumes", "volumes", "dead", "damage-degraded", "record-damage", "calm", "files", "create-delete"];
    const EXCUSES: fn(&HostError) -> bool = |error| matches!(error, HostError::Fenced);

    fn draw(options: &mut Options, draw: &mut Draw) -> Option<FileSystems> {
        if options.ordering == Ordering::None {
            return None;
        }
        if options.layout.redundancy_units() == 0 {
            options.set_redundant_layout(2);
        }
        // A full disk ends a metadata server. Damage is placed for one volume only.
        options.without_faults(&[FaultKind::FullDisk, FaultKind::Misdirected]);
        let scheme = if options.layout.devices() >= 3 { "raid5:2+1" } else { "raid1:2" }.parse();
        let scheme: braid_layout::RaidLevel = scheme.expect("a scheme that there is");
        let data = Layout::new(scheme, scheme.width(), 4).expect("a ring that is wide enough");
        let shards = ShardOptions::draw(&mut draw.rng);
        options.device_bytes = options.device_bytes.max(DEVICE_BYTES);
        (options.chunks, options.journal_bytes) = (None, None);
        options.settings.hosts_max += 32;
        let source = |name: &str| draw.rng.named(name);
        Some(FileSystems {
            plan: Plan { shards, data },
            works: Works::new(source("works")),
            servers: Servers::new(source("servers")),
            users: Users::default(),
            looks_at: Time(0),
            seen: 0,
            usable: BTreeSet::new(),
            doomed: BTreeSet::new(),
            began_with_files: BTreeMap::new(),
            rng: source("operator"),
        })
    }
}

fn state_of(cluster: &Cluster, id: u16) -> Option<FileSystemState> {
    let entries = &store_of(cluster).description().file_systems;
    entries.iter().find(|entry| entry.id == id).map(|entry| entry.state)
}

fn is_ready(cluster: &Cluster, id: FileSystemId) -> bool {
    state_of(cluster, id.0) == Some(FileSystemState::Ready)
}

/// The time limits of operations: short ones, so that they are reached.
fn timing() -> FileSystemTiming {
    let second = Duration::from_secs(1);
    FileSystemTiming {
        turn: 5 * second,
        release: 2 * second,
        quiesce: 5 * second,
        serve: 3 * second,
        ..Default::default()
    }
}

impl Activity for FileSystems {
    /// Has a host create, delete or check a file system, or somebody use one.
    fn act(&mut self, run: &mut Run, rng: &mut Rng) {
        let idle = idle_slots(run);
        let name = NAMES[rng.below(2) as usize];
        let entry = store_of(&run.cluster).description().file_system(name).cloned();
        let is_in_use = entry.as_ref().is_some_and(|entry| self.users.has(entry.id()));
        let Some(by) = pick(rng, &idle) else { return };
        match (entry, rng.below(8)) {
            (Some(entry), 0..4) if entry.state == FileSystemState::Ready => {
                let system = self.plan.system(&run.cluster, &entry).filter(|_| self.users.count() < USERS_MAX);
                system.into_iter().for_each(|system| self.users.begin(run, system));
            }
            (Some(entry), 4 | 5) if entry.state == FileSystemState::Ready => self.check(run, by, &entry),
            // With `--force`, a file system that is in use is deleted, too.
            (Some(entry), 6) if !is_in_use || rng.chance(1, 4) => self.delete(run, by, &entry),
            (Some(entry), 7) if entry.state == FileSystemState::Deleting => self.complete(run, by, &entry),
            _ => self.create(run, by, name),
        }
    }

    fn look_after(&mut self, run: &mut Run) -> Result<(), Failed> {
        let Some(control) = &run.cluster.control else { return Ok(()) };
        let ended = control.ended_since(self.seen).to_vec();
        self.seen += ended.len();
        self.works.go_on(run, &self.plan, &ended);
        for (name, subject, result) in &ended {
            self.learn_end(run, *name, subject, result)?;
        }
        if run.cluster.world.now() < self.looks_at {
            return Ok(());
        }
        self.looks_at = run.cluster.world.now().after(LOOK_EVERY);
        let is_lost = |id: &u16| state_of(&run.cluster, *id) != Some(FileSystemState::Ready);
        if let Some(lost) = self.usable.difference(&self.doomed).find(|id| is_lost(id)) {
            return failed(
                "file-system-lost",
                format!("{lost}: {:?}", store_of(&run.cluster).description().file_systems),
            );
        }
        self.users.look(run, is_ready);
        let plan = &self.plan;
        self.servers.look(run, &|entry| plan.options(entry))
    }

    fn on_reply(&mut self, run: &mut Run, op: OpId, outcome: &HostOutcome) -> bool {
        if self.works.on_reply(run, op, outcome) || self.servers.on_reply(run, op) {
            return true;
        }
        match self.users.on_reply(run, op, outcome, is_ready) {
            Ok(is_one) => is_one,
            Err(failed) => {
                run.cluster.control.as_mut().expect("the run has one").failed.get_or_insert(failed);
                true
            }
        }
    }

    /// The operator deletes what was not created completely, and completes what was not deleted completely.
    fn drain(&mut self, run: &mut Run) {
        let entries = store_of(&run.cluster).description().file_systems.clone();
        let slot_of = |by: u32| run.cluster.slot_of(Generation(by));
        let is_at_work =
            |by: Option<u32>| by.and_then(slot_of).is_some_and(|slot| run.cluster.has_administrators(slot));
        let left = |entry: &&FileSystemEntry| entry.state != FileSystemState::Ready && !is_at_work(entry.by);
        // Its host does nothing else meanwhile. Another one settles what dead administrators have begun.
        let idle = idle_slots(run);
        let spare = usize::from(store_of(&run.cluster).is_unsettled());
        if let (Some(entry), Some(by)) = (entries.iter().find(left), idle.get(spare).copied()) {
            match entry.state {
                FileSystemState::Deleting => self.complete(run, by, entry),
                _ => self.delete(run, by, entry),
            }
        }
    }

    /// Whatever there is can be used, is sound, and can be deleted.
    fn finish(&mut self, run: &mut Run) -> Result<(), Failed> {
        for name in NAMES {
            if store_of(&run.cluster).description().file_system(name).is_none() {
                self.succeed(run, |own, run, by| own.create(run, by, name))?;
            }
            let entry = store_of(&run.cluster).description().file_system(name).cloned();
            let Some(entry) = entry else { return failed("file-system-not-created", name.into()) };
            let system = self.plan.system(&run.cluster, &entry).expect("it is ready");
            self.users.begin(run, system);
            let until = run.cluster.world.now().after(HEALTHY_MAX);
            while self.users.count() > 0 && run.cluster.world.now() < until {
                self.pass(run)?;
            }
            if self.users.count() > 0 {
                return failed("file-system-unusable", format!("{:?}", self.users));
            }
            self.succeed(run, |own, run, by| own.check(run, by, &entry))?;
            let is_used = self.rng.chance(1, 2);
            let system = self.plan.system(&run.cluster, &entry).filter(|_| is_used);
            system.into_iter().for_each(|system| self.users.begin(run, system));
            self.succeed(run, |own, run, by| own.delete(run, by, &entry))?;
        }
        self.servers.crash(run);
        run.come_to_rest()
    }
}

impl FileSystems {
    fn create(&mut self, run: &mut Run, by: HostSlot, name: &str) {
        run.count_fault("creation of a file system");
        let operation = FileSystemCreation::of(run.cluster.generation(by), timing()).into();
        let subject = Subject::NewFileSystem(Box::new(self.plan.entry(name)));
        run.cluster.operator(by).begin_on(subject, operation);
    }

    fn delete(&mut self, run: &mut Run, by: HostSlot, entry: &FileSystemEntry) {
        run.count_fault("deletion of a file system");
        self.doomed.insert(entry.id);
        let operation = FileSystemDeletion::of(run.cluster.generation(by), timing()).into();
        run.cluster.operator(by).begin_on(Subject::FileSystem(entry.id), operation);
    }

    fn complete(&mut self, run: &mut Run, by: HostSlot, entry: &FileSystemEntry) {
        run.count_fault("deletion of a file system continued");
        let operation = FileSystemDeletion::continuing(run.cluster.generation(by), timing()).into();
        run.cluster.operator(by).begin_on(Subject::FileSystem(entry.id), operation);
    }

    fn check(&mut self, run: &mut Run, by: HostSlot, entry: &FileSystemEntry) {
        run.count_fault("check of a file system");
        let has_files = self.users.have_made_files(FileSystemId(entry.id));
        self.began_with_files.insert((run.cluster.generation(by), entry.id), has_files);
        let operation: Operation = FileSystemCheck::of(entry.servers(), timing()).into();
        run.cluster.operator(by).begin_on(Subject::FileSystem(entry.id), operation);
    }

    /// An operation has ended.
    fn learn_end(
        &mut self,
        run: &mut Run,
        by: Name,
        subject: &Subject,
        result: &Result<Done, Error>,
    ) -> Result<(), Failed> {
        match (subject, result) {
            (Subject::NewFileSystem(new), Ok(_)) => {
                let entry = store_of(&run.cluster).description().file_system(&new.name);
                let made = entry.filter(|entry| entry.state == FileSystemState::Ready);
                self.usable.extend(made.map(|entry| entry.id));
            }
            (Subject::FileSystem(id), Ok(Done::Changed)) if state_of(&run.cluster, *id).is_some() => {
                return failed("file-system-left", format!("{id} was deleted, and is there"));
            }
            _ => {}
        }
        let found = self.works.take_findings(run, by);
        match (subject, found.as_slice()) {
            _ if result.is_err() => Ok(()),
            (_, []) => Ok(()),
            // It was examined before a metadata server has served it; the check may have ended much later.
            (Subject::FileSystem(id), [Finding::Blank]) if !self.began_with_files[&(by.host, *id)] => {
                run.count_fault("file system found blank");
                Ok(())
            }
            _ => failed("sound-and-damaged", format!("{subject:?}: {found:?}")),
        }
    }

    /// Performs an operation on a healthy array, where it must succeed.
    fn succeed(
        &mut self,
        run: &mut Run,
        begin: impl FnOnce(&mut FileSystems, &mut Run, HostSlot),
    ) -> Result<(), Failed> {
        let by = HostSlot(0);
        let before = self.seen;
        begin(self, run, by);
        let until = run.cluster.world.now().after(HEALTHY_MAX);
        while run.cluster.has_administrators(by) && run.cluster.world.now() < until {
            self.pass(run)?;
        }
        let ended = run.cluster.control.as_ref().expect("the run has one").ended_since(before);
        match ended.iter().rfind(|(_, subject, _)| subject.volume().is_none()) {
            Some((_, _, Ok(_))) => Ok(()),
            other => failed("file-system-operation", format!("{other:?}")),
        }
    }

    /// Time passes, while this activity looks after its own.
    fn pass(&mut self, run: &mut Run) -> Result<(), Failed> {
        let until = run.cluster.world.now().after(LOOK_EVERY);
        while let Some(event) = run.cluster.next(until) {
            if let braid_world::WorldEvent::Reply { op, outcome, .. } = &event {
                self.on_reply(run, *op, outcome);
            }
            run.on_world_event(event)?;
            self.look_after(run)?;
        }
        Ok(())
    }
}
