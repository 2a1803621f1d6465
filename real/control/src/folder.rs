//! The array's folder: opening it, changing the description, and the supervision lock of the process that runs the array.

use crate::event_log::{EVENTS, EVENTS_BEFORE};
use crate::file::{self, Durability, Lock};
use crate::host_leases::GENERATIONS;
use crate::monitor::MONITOR;
use crate::scrubs::SCRUBS;
use crate::trust::{LOGS, create_private_folder, private_file};
use crate::{
    ArrayDescription, ControlError, DeviceEntry, LockHolder, Moment, Process, RunningSet, changes, event_texts,
    lock_server_file, monitor_file, reserve,
};
use serde::Serialize;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Why the file system of an array's folder refuses changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is read-only, possibly after an error of its disk.
    ReadOnly,
    /// It has no free blocks, or no free inodes.
    NoRoom,
}

/// An array's folder. It is cheap to open and to clone. Nothing is cached in memory, so that every call sees changes made by other
/// processes.
#[derive(Clone, Debug)]
pub struct ArrayFolder {
    dir: PathBuf,
}

/// The running array that a folder was copied from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Original {
    /// One of its processes.
    pub process: Process,
    /// Its folder, as far as that can be seen.
    pub dir: Option<PathBuf>,
}

/// The supervision lock: held by the one process that runs the array's devices, and released when that process ends in any way.
#[derive(Debug)]
pub struct Supervision {
    pub(crate) folder: ArrayFolder,
    lock: Lock,
    /// The supervisor that this run has published; zero until it has published one.
    published: AtomicU32,
}

impl ArrayFolder {
    /// The folder of the array at `path`, which is the folder itself or the description in it. Nothing is read.
    pub fn at(path: &Path) -> ArrayFolder {
        let is_description = path.file_name().is_some_and(|name| name == DESCRIPTION) && !path.is_dir();
        let dir = match path.parent() {
            Some(parent) if is_description && parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) if is_description => parent,
            _ => path,
        };
        ArrayFolder { dir: dir.to_path_buf() }
    }

    /// The path of the folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The absolute path of the folder.
    pub fn absolute(&self) -> PathBuf {
        self.dir.canonicalize().unwrap_or_else(|_| self.dir.clone())
    }

    /// The folder of the sockets of this array's daemons, which is created if it is missing. No other user may enter it.
    pub fn sockets(&self) -> Result<PathBuf, ControlError> {
        let path = self.path(SOCKETS);
        let made = std::fs::DirBuilder::new().mode(PRIVATE).create(&path);
        match made {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let mode = std::fs::metadata(&path).map_err(ControlError::file("read", &path))?.permissions().mode();
                if mode & 0o7777 != PRIVATE {
                    let private = std::fs::Permissions::from_mode(PRIVATE);
                    std::fs::set_permissions(&path, private).map_err(ControlError::file("restrict", &path))?;
                }
            }
            made => made.map_err(ControlError::file("create", &path))?,
        }
        Ok(path)
    }

    /// Creates the folder if it is missing, and puts a new array into it.
    pub fn create(&self, description: &ArrayDescription) -> Result<(), ControlError> {
        self.require_trust()?;
        for folder in [self.dir.clone(), self.path(HOSTS)] {
            create_private_folder(&folder).map_err(ControlError::file("create", &folder))?;
        }
        let _lock = self.lock()?;
        if self.path(DESCRIPTION).exists() {
            return Err(ControlError::ArrayExists { dir: self.dir.clone() });
        }
        self.consistent(description)?;
        reserve::fill(&self.path(RESERVE))?;
        self.begin_generations()?;
        // The description is written last, because the array exists from then on.
        self.replace(&self.path(DESCRIPTION), description, Durability::Durable)?;
        // A folder that the user has made for the array.
        self.make_private().map(drop)
    }

    /// Reads the description. A folder that other users could change is refused.
    pub fn describe(&self) -> Result<ArrayDescription, ControlError> {
        // What is no array needs no trust.
        if self.dir.is_dir() && !self.path(DESCRIPTION).exists() {
            return Err(ControlError::NoArray { dir: self.dir.clone() });
        }
        self.require_trust()?;
        let description: Option<ArrayDescription> = file::read(&self.path(DESCRIPTION))?;
        let description = description.ok_or_else(|| ControlError::NoArray { dir: self.dir.clone() })?;
        self.consistent(&description)?;
        Ok(description)
    }

    /// Changes the description: `change` gets its current content, under the lock that excludes other writers. If `change` fails,
    /// nothing is changed. Returns what `change` returns.
    pub fn update<T, E: From<ControlError>>(
        &self,
        change: impl FnOnce(&mut ArrayDescription) -> Result<T, E>,
    ) -> Result<T, E> {
        let lock = self.lock()?;
        let before = self.describe()?;
        let mut description = before.clone();
        let returned = change(&mut description)?;
        self.consistent(&description)?;
        description.revision += 1;
        description.schema = description.needed_schema();
        self.require_lock(&lock)?;
        self.replace(&self.path(DESCRIPTION), &description, Durability::Durable)?;
        for event in changes::events(&before, &description) {
            if let Err(error) = self.append_event(&event) {
                tracing::warn!("can't record an event: {error}");
            }
        }
        Ok(returned)
    }

    /// What `braid up` is running at present; none if it does not run.
    pub fn running(&self) -> Result<Option<RunningSet>, ControlError> {
        let lock = self.path(SUPERVISION);
        if !lock.exists() || Lock::try_take_existing(&lock)?.is_some() {
            return Ok(self.running_without_lock());
        }
        // The process that holds the lock may not have written the file yet. A file of another array, or a damaged one, is ignored.
        let running = self.recorded_run();
        let is_holder = |running: &RunningSet| file::has_open(&running.supervisor(), &lock) != Some(false);
        Ok(Some(running.filter(is_holder).unwrap_or_else(|| RunningSet::begun(0))))
    }

    fn recorded_run(&self) -> Option<RunningSet> {
        let running = self.published_run()?.found_in(&self.dir)?;
        Some(running.identified(&self.path(SUPERVISION)))
    }

    fn published_run(&self) -> Option<RunningSet> {
        file::read(&self.path(RUN)).ok().flatten()
    }

    /// The running array that this folder was copied from, if the records in the folder name one of its processes on this machine.
    pub fn original(&self) -> Option<Original> {
        let supervisor = self.published_run().map(|run| Process::found_in(&self.dir, run.supervisor, run.origin));
        let monitor = self.copied_monitor();
        let hosts = self.hosts(&Moment::now(), Duration::ZERO).unwrap_or_default().into_iter().map(|host| host.process);
        let named = supervisor.into_iter().chain(monitor).chain(hosts);
        let running = named.filter_map(|process| process.in_original()).map(|(process, dir)| Original { process, dir });
        running.min_by_key(|original| original.dir.is_none())
    }

    /// What is run by a process whose lock file was removed: it holds the lock of the removed file.
    fn running_without_lock(&self) -> Option<RunningSet> {
        // An unreadable file was left by a power loss.
        let running = self.recorded_run();
        running.filter(|running| file::has_open(&running.supervisor(), &self.path(SUPERVISION)) == Some(true))
    }

    /// Takes the supervision lock. The array need not exist yet. The files of an earlier release become private to their owner.
    pub fn supervise(&self) -> Result<Supervision, ControlError> {
        self.require_trust()?;
        create_private_folder(&self.dir).map_err(ControlError::file("create", &self.dir))?;
        // Processes that ask what is running hold the lock for a moment, too.
        let Some(lock) = Lock::take_within(&self.path(SUPERVISION), Duration::from_millis(200))? else {
            let pid = self.recorded_run().map(|running| running.supervisor);
            return Err(ControlError::AlreadyUp { dir: self.dir.clone(), pid });
        };
        if let Some(running) = self.running_without_lock() {
            return Err(ControlError::AlreadyUp { dir: self.dir.clone(), pid: Some(running.supervisor) });
        }
        // What a killed run has left is obsolete.
        file::remove(&self.path(RUN))?;
        if self.path(DESCRIPTION).exists() {
            // Space that was released while the disk was full is reserved again, if the disk has room now.
            let _ = reserve::fill(&self.path(RESERVE));
            let corrected = self.make_private()?;
            if !corrected.is_empty() {
                self.record_event(&event_texts::modes_corrected(corrected.len()))?;
            }
        }
        Ok(Supervision { folder: self.clone(), lock, published: AtomicU32::new(0) })
    }

    /// Replaces the content of `path`, a file of the folder. On a full disk it uses the reserved space.
    pub(crate) fn replace<T: Serialize>(
        &self,
        path: &Path,
        value: &T,
        durability: Durability,
    ) -> Result<(), ControlError> {
        self.with_reserve(|| file::replace(path, value, durability))
    }

    /// Writes something in the folder. On a full disk it uses the reserved space.
    pub(crate) fn with_reserve<T>(&self, write: impl Fn() -> Result<T, ControlError>) -> Result<T, ControlError> {
        let is_full = |error: &ControlError| matches!(error, ControlError::File { source, .. } if source.kind() == ErrorKind::StorageFull);
        loop {
            match write() {
                Err(error) if is_full(&error) => {}
                done => return done,
            }
            let gave_up = reserve::give_up(&self.path(RESERVE));
            match write() {
                Err(error) if is_full(&error) && gave_up => {}
                done => return done,
            }
            // A device that asks for space at this moment, as devices do when they start, took what was released. Its next
            // requests are refused; until then the rest of the reserve is not released.
            std::thread::sleep(NEIGHBOURS_SETTLE);
        }
    }

    /// The process that has held the folder's lock for longer than a change takes; none if nobody has. This waits for nobody.
    pub fn lock_holder(&self) -> Option<LockHolder> {
        let path = self.path(LOCK);
        let held = || matches!(Lock::try_take_existing(&path), Ok(None)).then(|| file::holder(&path)).flatten();
        let holder = held()?;
        if !holder.is_stopped {
            return None;
        }
        held().filter(|again| *again == holder)
    }

    /// Why the folder's file system refuses new files and changes, if it does.
    pub fn refusal(&self) -> Option<Refusal> {
        // After an error of its disk a file system may not say so, and refuse writes all the same.
        let path = self.path(LOCK);
        let is_refused = || private_file().create(true).truncate(false).write(true).open(&path);
        let refused = path.exists().then(is_refused).and_then(Result::err).map(|error| error.kind());
        let found = rustix::fs::statvfs(&self.dir).ok();
        let is = |test: fn(&rustix::fs::StatVfs) -> bool| found.as_ref().is_some_and(test);
        let is_read_only = is(|found| found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY));
        let has_no_room = is(|found| found.f_bavail == 0 || (found.f_files > 0 && found.f_favail == 0));
        match refused {
            _ if is_read_only => Some(Refusal::ReadOnly),
            Some(ErrorKind::ReadOnlyFilesystem) => Some(Refusal::ReadOnly),
            _ => has_no_room.then_some(Refusal::NoRoom),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn lock(&self) -> Result<Lock, ControlError> {
        if !self.dir.is_dir() {
            return Err(ControlError::NoArray { dir: self.dir.clone() });
        }
        self.require_trust()?;
        Lock::take(&self.path(LOCK))
    }

    /// Fails if the lock's file was removed while the lock was held: another process may have changed what this one has read.
    pub(crate) fn require_lock(&self, lock: &Lock) -> Result<(), ControlError> {
        let path = self.path(LOCK);
        if lock.is_at(&path) {
            return Ok(());
        }
        let lost = "it was removed while this process held it; nothing was changed: try again";
        Err(ControlError::file("keep", &path)(std::io::Error::other(lost)))
    }

    fn consistent(&self, description: &ArrayDescription) -> Result<(), ControlError> {
        description.check().map_err(|reason| ControlError::Inconsistent { file: self.path(DESCRIPTION), reason })
    }
}

impl Supervision {
    /// Publishes the processes of this run.
    pub fn publish(&self, running: &RunningSet) -> Result<(), ControlError> {
        self.published.store(running.supervisor, Ordering::Relaxed);
        self.folder.replace(&self.folder.path(RUN), &running.recorded_in(&self.folder.dir), Durability::ThisBoot)
    }

    /// False if the published file was removed or replaced while no other run has taken the lock.
    pub fn is_published(&self) -> bool {
        if !self.lock.is_at(&self.folder.path(SUPERVISION)) {
            return true;
        }
        let there = self.folder.published_run();
        there.is_some_and(|running| running.supervisor == self.published.load(Ordering::Relaxed))
    }

    /// Takes the lock again if its file was removed. Returns true if it was.
    pub fn keep_lock(&mut self) -> Result<bool, ControlError> {
        let path = self.folder.path(SUPERVISION);
        if self.lock.is_at(&path) {
            return Ok(false);
        }
        // Processes that ask what is running hold the new lock for a moment, too.
        let Some(lock) = Lock::try_take(&path)? else { return Ok(false) };
        self.lock = lock;
        Ok(true)
    }

    /// Removes a folder that was created for this run, if no array was made in it.
    pub fn leave_no_trace(self) -> Result<(), ControlError> {
        file::remove(&self.folder.path(SUPERVISION))?;
        let _ = std::fs::remove_dir(self.folder.path(SOCKETS));
        // It stays if it contains anything else.
        let _ = std::fs::remove_dir(&self.folder.dir);
        Ok(())
    }

    /// Undoes the creation of an array without volumes: removes its files, and with `and_folder` the folder, unless the folder contains
    /// anything else. The devices must have ended.
    pub fn discard(self, and_folder: bool) -> Result<(), ControlError> {
        let folder = &self.folder;
        let undone = folder.update(|description| {
            assert!(!description.populated && description.volumes.is_empty(), "an array with volumes is not discarded");
            // If this is interrupted, the next start makes the devices again.
            description.created = false;
            Ok::<_, ControlError>((description.devices.clone(), description.lock_servers().collect::<Vec<_>>()))
        });
        let (devices, lock_servers) = match undone {
            // Its creation has failed before that file was written.
            Err(ControlError::NoArray { .. }) => Default::default(),
            undone => undone?,
        };
        for device in devices.into_iter().filter(DeviceEntry::lies_in_folder) {
            file::remove(&device.path(&folder.dir))?;
        }
        for server in lock_servers {
            file::remove(&folder.dir.join(lock_server_file(server)))?;
        }
        file::remove(&folder.dir.join(monitor_file()))?;
        file::remove(&folder.path(DESCRIPTION))?;
        let hosts = folder.path(HOSTS);
        if hosts.exists() {
            std::fs::remove_dir_all(&hosts).map_err(ControlError::file("remove", &hosts))?;
        }
        let _ = std::fs::remove_dir_all(folder.path(SCRUBS));
        let _ = std::fs::remove_dir_all(folder.path(LOGS));
        let _ = std::fs::remove_dir_all(folder.path(SOCKETS));
        for name in [GENERATIONS, MONITOR, EVENTS, EVENTS_BEFORE, RESERVE, RUN, LOCK, SUPERVISION] {
            file::remove(&folder.path(name))?;
        }
        if and_folder {
            let _ = std::fs::remove_dir(&folder.dir);
        }
        Ok(())
    }
}

impl Drop for Supervision {
    fn drop(&mut self) {
        // For tidiness only: without the lock the file is ignored. What another run has published stays.
        let there = self.folder.published_run();
        if there.is_some_and(|running| running.supervisor == *self.published.get_mut()) {
            let _ = file::remove(&self.folder.path(RUN));
        }
    }
}

pub(crate) const DESCRIPTION: &str = "array.json";
const LOCK: &str = "lock";
const SUPERVISION: &str = "up.lock";
const RUN: &str = "run.json";
const RESERVE: &str = "reserve";
/// The folder of sockets.
pub const SOCKETS: &str = "run";
/// Its mode.
const PRIVATE: u32 = 0o700;
/// The wait between two attempts to write on a full disk.
const NEIGHBOURS_SETTLE: Duration = Duration::from_millis(20);
pub(crate) const HOSTS: &str = "hosts";
/// Files of the folder, but for those of lock servers, of events and of devices.
pub(crate) const FOLDER_FILES: [&str; 8] =
    [DESCRIPTION, GENERATIONS, LOCK, SUPERVISION, RUN, RESERVE, MONITOR, "monitor.state"];

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Change, Creation, DeviceState, VolumeEntry, VolumeState};

    /// A folder for one test, removed at its end.
    pub(crate) struct Scratch {
        dir: PathBuf,
    }

    impl Scratch {
        pub(crate) fn new(name: &str) -> Scratch {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let dir = std::env::temp_dir().join(format!("braid-control-{}-{name}-{number}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            Scratch { dir }
        }

        pub(crate) fn path(&self, name: &str) -> PathBuf {
            self.dir.join(name)
        }

        pub(crate) fn array(&self) -> ArrayFolder {
            let folder = ArrayFolder::at(&self.path("array"));
            folder.create(&description()).unwrap();
            folder
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }

    fn description() -> ArrayDescription {
        let devices = (0..2).map(|id| DeviceEntry {
            id,
            file: format!("device-{id}.braid").into(),
            size: 1 << 30,
            disk: None,
            domain: format!("device-{id}"),
            address: None,
            state: DeviceState::Ready,
            by: None,
            others: Vec::new(),
        });
        let creation = Creation {
            devices: 2,
            size: 1 << 30,
            layout: "raid1:2".into(),
            unit: 65_536,
            volumes: Vec::new(),
            file_system: None,
            lock_servers: 2,
            lock_acquisition: "timeout".into(),
            lease_millis: 1_000,
        };
        ArrayDescription::new(devices.collect(), creation)
    }

    fn volume(description: &mut ArrayDescription, name: &str) -> VolumeEntry {
        let id = description.next_volume;
        description.next_volume += 1;
        VolumeEntry {
            unavailable: None,
            name: name.into(),
            id,
            bytes: 4096,
            layout: "raid1:2".into(),
            unit: 65_536,
            devices: vec![0, 1],
            ordering: "timestamp".into(),
            atomicity: "implied".into(),
            attribute_volume: false,
            first_block: 0,
            parity_site: "originator".into(),
            moving: None,
            state: VolumeState::Ready,
            by: None,
        }
    }

    #[test]
    fn an_array_is_found_by_its_folder_and_by_its_description() {
        let scratch = Scratch::new("found");
        let folder = scratch.array();
        let written = folder.describe().unwrap();
        assert_eq!(ArrayFolder::at(&scratch.path("array/array.json")).describe().unwrap(), written);
        assert!(matches!(folder.create(&description()), Err(ControlError::ArrayExists { .. })));
        let elsewhere = ArrayFolder::at(&scratch.path("elsewhere"));
        assert!(matches!(elsewhere.describe(), Err(ControlError::NoArray { .. })));
        assert!(matches!(elsewhere.update(|_| Ok::<_, ControlError>(())), Err(ControlError::NoArray { .. })));
    }

    #[test]
    fn an_array_of_before_there_were_lock_servers_has_one() {
        let scratch = Scratch::new("before");
        let folder = scratch.array();
        let path = folder.path(DESCRIPTION);
        let mut value: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let creation = value["creation"].as_object_mut().unwrap();
        assert_eq!(creation.remove("lock_servers"), Some(2.into()));
        assert_eq!(creation.remove("lock_acquisition"), Some("timeout".into()));
        std::fs::write(&path, value.to_string()).unwrap();
        let creation = folder.describe().unwrap().creation;
        assert_eq!((creation.lock_servers, creation.lock_acquisition.as_str()), (1, "ordered"));
    }

    #[test]
    fn concurrent_writers_lose_nothing() {
        let scratch = Scratch::new("writers");
        let folder = scratch.array();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let folder = &folder;
                scope.spawn(move || {
                    for turn in 0..8 {
                        folder
                            .update(|description| {
                                let volume = volume(description, &format!("v{writer}-{turn}"));
                                description.volumes.push(volume);
                                Ok::<_, ControlError>(())
                            })
                            .unwrap();
                    }
                });
            }
        });
        let description = folder.describe().unwrap();
        assert_eq!((description.volumes.len(), description.revision), (32, 32));
    }

    #[test]
    fn a_change_that_fails_or_makes_no_sense_changes_nothing() {
        let scratch = Scratch::new("fails");
        let folder = scratch.array();
        let before = folder.describe().unwrap();
        let failed: Result<(), ControlError> = folder.update(|description| {
            description.populated = true;
            Err(ControlError::GenerationsExhausted)
        });
        assert!(failed.is_err());
        let senseless = folder.update(|description| {
            let mut volume = volume(description, "v");
            volume.devices = vec![0, 7];
            description.volumes.push(volume);
            Ok::<_, ControlError>(())
        });
        assert!(matches!(senseless, Err(ControlError::Inconsistent { .. })));
        assert_eq!(folder.describe().unwrap(), before);
    }

    #[test]
    fn a_change_of_volumes_is_an_event_and_the_names_of_removed_ones_are_known() {
        let scratch = Scratch::new("changes");
        let folder = scratch.array();
        let with = |volumes: Vec<VolumeEntry>| {
            let change = |description: &mut ArrayDescription| {
                description.volumes = volumes;
                description.next_volume = 9;
                Ok::<_, ControlError>(())
            };
            folder.update(change).unwrap();
        };
        let entry = volume(&mut folder.describe().unwrap(), "v");
        let entry = VolumeEntry { id: 7, state: VolumeState::Ready, ..entry };
        with(vec![entry]);
        with(Vec::new());
        let kinds: Vec<_> = folder.events().unwrap().0.into_iter().map(|event| event.kind).collect();
        assert_eq!(kinds, [crate::EventKind::VolumeCreated, crate::EventKind::VolumeDeleted]);
        let name = |id| folder.removed(crate::EventKind::VolumeDeleted, id);
        assert_eq!((name(7).as_deref(), name(8)), (Some("v"), None));
    }

    #[test]
    fn a_damaged_description_is_reported_and_kept() {
        let scratch = Scratch::new("damaged");
        let folder = scratch.array();
        for damage in ["{\"schema\": 1, \"arr", "", "{}", "[]", "{\"schema\": 1}"] {
            std::fs::write(folder.path(DESCRIPTION), damage).unwrap();
            assert!(matches!(folder.describe(), Err(ControlError::Damaged { .. })), "{damage}");
            assert!(folder.update(|_| Ok::<_, ControlError>(())).is_err());
            assert!(folder.create(&description()).is_err());
            assert_eq!(std::fs::read_to_string(folder.path(DESCRIPTION)).unwrap(), damage);
        }
    }

    #[test]
    fn only_one_runs_an_array_and_its_end_is_noticed() {
        let scratch = Scratch::new("supervise");
        let folder = scratch.array();
        assert_eq!(folder.running().unwrap(), None);
        let supervision = folder.supervise().unwrap();
        let mut set = RunningSet::begun(std::process::id());
        set.ready = true;
        supervision.publish(&set).unwrap();
        assert!(supervision.is_published());
        assert_eq!(folder.running().unwrap(), Some(set.clone()));
        let refused = folder.supervise();
        assert!(matches!(refused, Err(ControlError::AlreadyUp { pid, .. }) if pid == Some(set.supervisor)));

        // A file of another array, or one that can't be parsed, is ignored and written again.
        let beginning = Some(RunningSet::begun(0));
        let mut other = RunningSet::begun(1);
        other.origin = crate::Origin::own();
        file::replace(&folder.path(RUN), &other, Durability::ThisBoot).unwrap();
        assert!(!supervision.is_published());
        if file::has_open(&crate::Process::own().sibling(1), &folder.path(SUPERVISION)) == Some(false) {
            assert_eq!(folder.running().unwrap(), beginning);
        }
        std::fs::write(folder.path(RUN), "{}").unwrap();
        assert_eq!((supervision.is_published(), folder.running().unwrap()), (false, beginning));
        supervision.publish(&set).unwrap();
        drop(supervision);
        assert_eq!(folder.running().unwrap(), None);

        // A killed run leaves its file behind.
        let set = RunningSet::begun(u32::MAX);
        file::replace(&folder.path(RUN), &set, Durability::ThisBoot).unwrap();
        assert_eq!(folder.running().unwrap(), None);
        let _supervision = folder.supervise().unwrap();
        assert_ne!(folder.running().unwrap(), Some(set));
    }

    #[test]
    fn records_in_a_copy_of_the_folder_name_nobody_of_the_copy() {
        let scratch = Scratch::new("copied");
        let folder = scratch.array();
        let supervision = folder.supervise().unwrap();
        supervision.publish(&RunningSet::begun(std::process::id())).unwrap();
        let host = folder.take_generation("mount", &Moment::now()).unwrap();
        folder.renew(host, &Moment::now(), crate::LeaseReport::default()).unwrap();
        let copy = ArrayFolder::at(&scratch.path("copy"));
        let copied = std::process::Command::new("cp").arg("-a").arg(folder.dir()).arg(copy.dir()).status();
        assert!(copied.expect("there is a program cp").success());
        let hosts = |folder: &ArrayFolder| folder.hosts(&Moment::now(), Duration::from_secs(60)).unwrap();
        let of = |folder: &ArrayFolder| {
            let host = hosts(folder).remove(0);
            let process = &host.process;
            (host.goes_on(), process.has_ended(), process.is_here(), process.is_elsewhere())
        };
        assert_eq!((of(&folder), of(&copy)), ((true, false, true, false), (false, true, false, false)));
        let told = hosts(&copy)[0].process.signal(rustix::process::Signal::TERM);
        assert_eq!(told, Err(crate::NotTold::Ended), "this test goes on");
        assert_eq!(crate::serving(&hosts(&copy)).count(), 0);
        assert_eq!((folder.original(), copy.running().unwrap()), (None, None));
        let original = copy.original().expect("it is up");
        assert_eq!((original.process, original.dir), (Process::own(), Some(folder.absolute())));
        let moved = ArrayFolder::at(&scratch.path("moved"));
        std::fs::rename(folder.dir(), moved.dir()).unwrap();
        assert_eq!((of(&moved), moved.original()), ((true, false, true, false), None));
        drop(supervision);
        assert!(copy.supervise().is_ok());
    }

    #[test]
    fn what_was_read_under_a_lock_that_was_removed_is_not_written() {
        let scratch = Scratch::new("unlocked");
        let folder = scratch.array();
        let before = folder.describe().unwrap();
        let update = folder.update(|description| {
            std::fs::remove_file(folder.path(LOCK)).unwrap();
            // Another process changes the description meanwhile.
            let other = |description: &mut ArrayDescription| {
                description.populated = true;
                Ok::<_, ControlError>(())
            };
            folder.update(other).unwrap();
            description.populated = false;
            Ok::<_, ControlError>(())
        });
        assert!(matches!(update, Err(ControlError::File { .. })), "{update:?}");
        let after = folder.describe().unwrap();
        assert_eq!((after.revision, after.populated), (before.revision + 1, true));
    }

    #[test]
    fn a_release_that_can_not_grow_volumes_reads_no_description_in_which_one_grows() {
        let scratch = Scratch::new("growing");
        let folder = scratch.array();
        let mut schemas = Vec::new();
        for to in [Some(Change::Grow(1 << 30)), Some(Change::EndMove), None] {
            let enter = |description: &mut ArrayDescription| {
                let state = to.map_or(VolumeState::Ready, |to| VolumeState::Draining { to, by: 1 });
                description.volumes = vec![VolumeEntry { state, ..volume(description, "v") }];
                Ok::<_, ControlError>(())
            };
            folder.update(enter).unwrap();
            let text = std::fs::read(folder.path(DESCRIPTION)).unwrap();
            schemas.push(serde_json::from_slice::<serde_json::Value>(&text).unwrap()["schema"].as_u64().unwrap());
            assert_eq!(folder.describe().unwrap().schema, schemas[schemas.len() - 1]);
        }
        assert_eq!(schemas, [3, 2, 2]);
    }

    #[test]
    fn a_run_whose_lock_file_was_removed_goes_on_and_keeps_others_out() {
        let scratch = Scratch::new("removed");
        let folder = scratch.array();
        let mut supervision = folder.supervise().unwrap();
        let set = RunningSet::begun(std::process::id());
        supervision.publish(&set).unwrap();
        std::fs::remove_file(folder.path(SUPERVISION)).unwrap();
        let refused = folder.supervise();
        assert!(matches!(refused, Err(ControlError::AlreadyUp { pid, .. }) if pid == Some(set.supervisor)));
        assert_eq!(folder.running().unwrap(), Some(set.clone()), "the published file is there");
        assert!(supervision.keep_lock().unwrap());
        assert!(!supervision.keep_lock().unwrap());
        assert!(Lock::try_take(&folder.path(SUPERVISION)).unwrap().is_none(), "it has the lock again");

        // While another run holds the lock, this one publishes nothing.
        std::fs::remove_file(folder.path(SUPERVISION)).unwrap();
        let others = Lock::try_take(&folder.path(SUPERVISION)).unwrap();
        std::fs::remove_file(folder.path(RUN)).unwrap();
        assert!(supervision.is_published() && !supervision.keep_lock().unwrap());
        drop(others);
        assert!(supervision.keep_lock().unwrap() && !supervision.is_published());

        // At its end, a run leaves what another run has published.
        let other = RunningSet::begun(42);
        file::replace(&folder.path(RUN), &other, Durability::ThisBoot).unwrap();
        drop(supervision);
        assert_eq!(file::read(&folder.path(RUN)).unwrap(), Some(other));
    }
}
