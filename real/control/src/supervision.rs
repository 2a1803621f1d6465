//! Supervision: the lock of the one process that runs the array, and what it has published of the run.

use crate::error::ControlError;
use crate::file::{self, Durability, Lock};
use crate::folder::LocalFolder;
use crate::moment::Moment;
use crate::monitor::monitor_file;
use crate::paths::{
    DESCRIPTION, EVENTS, EVENTS_BEFORE, GENERATIONS, HOSTS, LOCK, LOGS, MONITOR, RESERVE, ROLES, RUN, SCRUBS, SOCKETS,
    SUPERVISION, lock_server_file,
};
use crate::private_files::create_private_folder;
use crate::process::Process;
use crate::run::RunningSet;
use crate::{DeviceEntry, event_texts, lost_files, reserve};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The running array that a folder was copied from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Original {
    pub process: Process,
    /// Its folder, as far as that can be seen.
    pub dir: Option<PathBuf>,
}

/// The supervision lock: held by the one process that runs the array's devices, and released when that process ends in any way.
#[derive(Debug)]
pub struct Supervision {
    pub(crate) folder: LocalFolder,
    lock: Lock,
    /// The supervisor that this run has published; zero until it has published one.
    published: AtomicU32,
}

impl LocalFolder {
    pub(crate) fn running(&self) -> Result<Option<RunningSet>, ControlError> {
        file::require_kind(&self.path(RUN), false)?;
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
        let running = self.published_run()?.found_in(self.dir())?;
        Some(running.identified(&self.path(SUPERVISION)))
    }

    fn published_run(&self) -> Option<RunningSet> {
        file::read(&self.path(RUN)).ok().flatten()
    }

    /// The running array that this folder was copied from, if the records in the folder name one of its processes on this machine.
    pub fn original(&self) -> Option<Original> {
        let supervisor = self.published_run().map(|run| Process::found_in(self.dir(), run.supervisor, run.origin));
        let monitor = self.copied_monitor();
        let hosts = self.leases().hosts(&Moment::now(), Duration::ZERO).unwrap_or_default();
        let named = supervisor.into_iter().chain(monitor).chain(hosts.into_iter().map(|host| host.process));
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
        create_private_folder(self.dir()).map_err(ControlError::file("create", self.dir()))?;
        // Processes that ask what is running hold the lock for a moment, too.
        let Some(lock) = Lock::take_within(&self.path(SUPERVISION), Duration::from_millis(200))? else {
            let pid = self.recorded_run().map(|running| running.supervisor);
            return Err(ControlError::AlreadyUp { dir: self.dir().to_path_buf(), pid });
        };
        if let Some(running) = self.running_without_lock() {
            return Err(ControlError::AlreadyUp { dir: self.dir().to_path_buf(), pid: Some(running.supervisor) });
        }
        // What a killed run has left is obsolete.
        file::remove(&self.path(RUN))?;
        if self.path(DESCRIPTION).exists() {
            lost_files::require_kinds(self)?;
            // Space that was released while the disk was full is reserved again, if the disk has room now.
            let _ = reserve::fill(&self.path(RESERVE));
            let corrected = self.make_private()?;
            if !corrected.is_empty() {
                self.record_event(&event_texts::modes_corrected(corrected.len()))?;
            }
        }
        Ok(Supervision { folder: self.clone(), lock, published: AtomicU32::new(0) })
    }
}

/// The supervisor of a run that has ended without removing its record: it was killed, or its machine was restarted. None if the array is up.
pub fn killed_supervisor(folder: &LocalFolder) -> Option<Process> {
    let is_up = folder.running().map_or(true, |running| running.is_some());
    folder.recorded_run().filter(|_| !is_up).map(|running| running.supervisor())
}

impl Supervision {
    /// Publishes the processes of this run.
    pub fn publish(&self, running: &RunningSet) -> Result<(), ControlError> {
        self.published.store(running.supervisor, Ordering::Relaxed);
        self.folder.replace(&self.folder.path(RUN), &running.recorded_in(self.folder.dir()), Durability::ThisBoot)
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
        let _ = std::fs::remove_dir(self.folder.dir());
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
            file::remove(&device.path(folder.dir()))?;
        }
        for server in lock_servers {
            file::remove(&folder.dir().join(lock_server_file(server)))?;
        }
        file::remove(&folder.dir().join(monitor_file()))?;
        file::remove(&folder.path(DESCRIPTION))?;
        let hosts = folder.path(HOSTS);
        if hosts.exists() {
            std::fs::remove_dir_all(&hosts).map_err(ControlError::file("remove", &hosts))?;
        }
        let _ = std::fs::remove_dir_all(folder.path(SCRUBS));
        let _ = std::fs::remove_dir_all(folder.path(LOGS));
        let _ = std::fs::remove_dir_all(folder.path(SOCKETS));
        for name in [GENERATIONS, MONITOR, EVENTS, EVENTS_BEFORE, RESERVE, ROLES, RUN, LOCK, SUPERVISION] {
            file::remove(&folder.path(name))?;
        }
        if and_folder {
            let _ = std::fs::remove_dir(folder.dir());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;

    #[test]
    fn only_one_runs_an_array_and_its_end_is_noticed() {
        let (_scratch, folder) = Scratch::with_array("supervise");
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
        assert_eq!(killed_supervisor(&folder), None);
        drop(supervision);
        assert_eq!((folder.running().unwrap(), killed_supervisor(&folder)), (None, None));

        // A killed run leaves its file behind.
        let set = RunningSet::begun(u32::MAX);
        file::replace(&folder.path(RUN), &set, Durability::ThisBoot).unwrap();
        assert_eq!(folder.running().unwrap(), None);
        assert_eq!(killed_supervisor(&folder).map(|process| process.pid), Some(u32::MAX));
        let _supervision = folder.supervise().unwrap();
        assert_ne!(folder.running().unwrap(), Some(set));
    }

    #[test]
    fn records_in_a_copy_of_the_folder_name_nobody_of_the_copy() {
        let (scratch, folder) = Scratch::with_array("copied");
        let supervision = folder.supervise().unwrap();
        supervision.publish(&RunningSet::begun(std::process::id())).unwrap();
        let host = folder.leases().take_generation("mount", &Moment::now()).unwrap();
        folder.leases().renew(host, &Moment::now(), crate::LeaseReport::default()).unwrap();
        let copy = LocalFolder::at(&scratch.path("copy"));
        let copied = std::process::Command::new("cp").arg("-a").arg(folder.dir()).arg(copy.dir()).status();
        assert!(copied.expect("there is a program cp").success());
        let hosts = |folder: &LocalFolder| folder.leases().hosts(&Moment::now(), Duration::from_secs(60)).unwrap();
        let of = |folder: &LocalFolder| {
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
        let moved = LocalFolder::at(&scratch.path("moved"));
        std::fs::rename(folder.dir(), moved.dir()).unwrap();
        assert_eq!((of(&moved), moved.original()), ((true, false, true, false), None));
        drop(supervision);
        assert!(copy.supervise().is_ok());
    }

    #[test]
    fn a_run_whose_lock_file_was_removed_goes_on_and_keeps_others_out() {
        let (_scratch, folder) = Scratch::with_array("removed");
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
