//! The control plane of an array, as its processes use it: the description, which is read and replaced after a version; the leases of hosts;
//! what the monitor and scrubs have reported; and the events.
//!
//! Every call may wait: for a disk, for another process that holds a lock, or for the leading monitor on another machine. So all
//! calls are async, and none of them keeps the caller's thread, which may be the one that serves a host. What only a folder of this machine
//! has (paths, sockets, locks, logs, processes) is in [`LocalFolder`].

use crate::cluster::{Cluster, Live};
use crate::description_file::Stored;
use crate::folder::LocalFolder;
use crate::folder_changes;
use crate::roles::Roles;
use crate::{
    ArrayDescription, ByteRange, ControlError, DeviceEntry, Event, EventCursor, EventKind, HostEntry, LeaseReport,
    Moment, MonitorEntry, MonitorReport, RunningSet, ScrubRecord,
};
use braid_base::Generation;
use braid_host_leases::{Expired, LeaseEnd};
use braid_registrar::Request;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// How long a change is tried again that others anticipate.
const CHANGE_WAIT: Duration = Duration::from_secs(10);

/// How long a change may stay unseen that the kernel does not tell.
const REPLACED_UNSEEN: Duration = Duration::from_secs(10);

/// Calls, with what the folder does for them, and whom else an array on several machines asks.
macro_rules! calls {
    ($($(#[$doc:meta])* $call:ident($($given:ident: $of:ty),*) -> $answer:ty
        = |$folder:ident| $work:expr $(, |$cluster:ident| $asked:expr)?;)*) => {$(
        $(#[$doc])*
        pub async fn $call(&self, $($given: $of),*) -> Result<$answer, ControlError> {
            $(if let Some($cluster) = self.cluster() {
                return $asked.await;
            })?
            self.in_folder(move |$folder| $work).await
        }
    )*};
}

/// The beginning of the name of an array on several machines, and where the folders of this machine for such arrays are.
const NAMED: &str = "braid://";
const MACHINES: &str = "/var/lib/braid";

/// The most reads of a process at a time.
static READS: Semaphore = Semaphore::const_new(4);

/// The control plane of an array. It is cheap to clone. Nothing is cached in memory, so that every call sees changes made by other processes.
///
/// This is an enum and not a trait, because its kinds are known: no caller is generic over it, and no call needs a box for its future.
#[derive(Clone, Debug)]
pub enum ControlPlane {
    /// It is embedded: the files in a folder of this machine.
    Folder(LocalFolder),
    /// The leading monitor, and a folder of this machine.
    Cluster(Cluster),
}

/// An array and who serves it at present: what processes need to find each other.
#[derive(Clone, Debug)]
pub struct Overview {
    pub description: ArrayDescription,
    /// What `braid up` is running; none if it does not run.
    pub running: Option<RunningSet>,
    pub monitor: Option<MonitorEntry>,
    /// The hosts that have leases, ascending by generation.
    pub hosts: Vec<HostEntry>,
}

#[derive(Clone, Copy, Debug)]
pub struct HostLeases<'a> {
    control: &'a ControlPlane,
}

impl ControlPlane {
    /// The one of the array at `path`, which is the array's folder or the description in it; or, for an array on several machines, the folder
    /// of this machine, or `braid://NAME` for that of this name. Of the folder nothing is read but whether it is one of a machine.
    pub fn at(path: &Path) -> ControlPlane {
        let named = path.to_str().and_then(|path| path.strip_prefix(NAMED));
        let folder = LocalFolder::at(&named.map_or_else(|| path.to_path_buf(), |name| Path::new(MACHINES).join(name)));
        match named.is_some() || Cluster::is_at(&folder) {
            true => ControlPlane::Cluster(Cluster::at(folder)),
            false => ControlPlane::Folder(folder),
        }
    }

    /// What the option `--array` takes for this array.
    pub fn place(&self) -> &Path {
        self.local().dir()
    }

    /// The folder of the array's processes on this machine.
    pub fn local(&self) -> &LocalFolder {
        match self {
            ControlPlane::Folder(folder) => folder,
            ControlPlane::Cluster(cluster) => cluster.folder(),
        }
    }

    /// The array on several machines, if it is one.
    pub fn cluster(&self) -> Option<&Cluster> {
        match self {
            ControlPlane::Folder(_) => None,
            ControlPlane::Cluster(cluster) => Some(cluster),
        }
    }

    /// True if the array's own processes on this machine run the device, and not something elsewhere.
    pub fn runs(&self, device: &DeviceEntry) -> bool {
        self.cluster().map_or(device.address.is_none(), |cluster| cluster.has(device))
    }

    /// True if this machine runs the lock server or metadata server of this number, of those that run on machines that live.
    pub fn deals_here(&self, number: u16, live: Option<&Live>) -> bool {
        self.cluster().is_none_or(|cluster| cluster.file().is_ok_and(|file| file.deals_here(number, live)))
    }

    /// Works with the folder in a thread that may wait.
    async fn in_folder<T: Send + 'static>(
        &self,
        work: impl FnOnce(&LocalFolder) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, ControlError> {
        let folder = self.local().clone();
        tokio::task::spawn_blocking(move || work(&folder)).await.expect("it does not panic")
    }

    /// The same, for reads: they wait for no other process, and a thread for each of many clients would take memory.
    async fn read_in_folder<T: Send + 'static>(
        &self,
        read: impl FnOnce(&LocalFolder) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, ControlError> {
        let _place = READS.acquire().await.expect("it is never closed");
        self.in_folder(read).await
    }

    pub async fn describe(&self) -> Result<ArrayDescription, ControlError> {
        match self.cluster() {
            Some(cluster) => cluster.describe().await,
            None => self.read_in_folder(LocalFolder::describe).await,
        }
    }

    /// Fails if there is no array. Of one on several machines, what lies on this one can be read without a leader.
    pub async fn require_array(&self) -> Result<(), ControlError> {
        match self.cluster() {
            Some(cluster) => cluster.file().map(drop),
            None => self.describe().await.map(drop),
        }
    }

    /// The array and who serves it: one call, because each process looks twice a second.
    pub async fn overview(&self) -> Result<Overview, ControlError> {
        if let Some(cluster) = self.cluster() {
            let description = cluster.describe().await?;
            let length = description.leases().lease();
            let (monitor, hosts, running) = tokio::join!(cluster.monitor(), cluster.hosts(length), self.running());
            return Ok(Overview { description, running: running?, monitor: monitor?, hosts: hosts? });
        }
        let look = |folder: &LocalFolder| {
            let (description, running, now) = (folder.describe()?, folder.running()?, Moment::now());
            let (monitor, hosts) = (folder.monitor(&now)?, folder.leases().hosts(&now, description.leases().lease())?);
            Ok(Overview { description, running, monitor, hosts })
        };
        self.read_in_folder(look).await
    }

    /// Returns when something may have changed, at the latest after `within`. It is to be read again then.
    pub async fn changed(&self, within: Duration) {
        self.changes(within, within).await;
    }

    /// The same for those who need not look so often while all is at rest.
    pub async fn changed_or_rests(&self, within: Duration) {
        self.changes(within, within * 4).await;
    }

    /// The same for those who only read the description, and where others serve.
    pub async fn replaced(&self, within: Duration) {
        self.changes(within, REPLACED_UNSEEN).await;
    }

    async fn changes(&self, within: Duration, at_rest: Duration) {
        // What changes on other machines is not told.
        let at_rest = if self.cluster().is_some() { within } else { at_rest };
        folder_changes::changed(self.local().dir(), within, at_rest).await;
    }

    /// True if the description, and where others serve, need not be read again after they were read at `last`.
    pub fn is_settled(&self, last: Instant) -> bool {
        let is_told = self.cluster().is_none();
        is_told && folder_changes::is_settled(self.local().dir()) && last.elapsed() < REPLACED_UNSEEN
    }

    calls! {
        /// The description with its version.
        read() -> Stored = |folder| folder.read(), |cluster| cluster.read();
        /// What `braid up` is running at present; none if it does not run.
        running() -> Option<RunningSet> = |folder| folder.running();
        /// The last report of the monitor that runs, or that was killed. A report that was copied with the folder is none.
        monitor() -> Option<MonitorEntry> = |folder| folder.monitor(&Moment::now()), |cluster| cluster.monitor();
        /// Publishes the monitor's report. Only the process that holds the lock of the monitor's state file may call this.
        publish_monitor(report: MonitorReport) -> () = |folder| folder.publish_monitor(&Moment::now(), report);
        /// Removes the report when the monitor ends. Only the process that holds the lock of the monitor's state file may call this.
        withdraw_monitor() -> () = |folder| folder.withdraw_monitor();
        /// The record of a volume's last scrub; none if there is none, or if it can't be read.
        scrub(volume: u64) -> Option<ScrubRecord> = |folder| folder.scrub(volume);
        note_scrub(volume: u64, scrub: ScrubRecord) -> () = |folder| folder.note_scrub(volume, &scrub);
        /// Records lost ranges that something other than a scrub has found.
        note_lost(volume: u64, lost: Vec<ByteRange>) -> () = |folder| folder.note_lost(volume, &lost);
        record(events: Vec<Event>) -> () = |folder| events.iter().try_for_each(|event| folder.record_event(event));
        /// All events that the log still contains, in the order in which they were appended, and the position after the last.
        events() -> (Vec<Event>, EventCursor) = |folder| folder.events();
        /// The latest events: those that are appended meanwhile may be missing.
        latest_events() -> Vec<Event> = |folder| folder.latest_events();
        /// The events after a position, and the position after the last. A log that was emptied, or replaced by another file, is read from
        /// its beginning.
        events_since(cursor: EventCursor) -> (Vec<Event>, EventCursor) = |folder| {
            let mut next = cursor;
            Ok((folder.events_since(&mut next)?, next))
        };
        /// The name that a volume or file system of this number had, if the log of events still has its deletion.
        removed(kind: EventKind, id: u64) -> Option<String> = |folder| Ok(folder.removed(kind, id));
    }

    /// Replaces the description by `next` if it is still the version that was read. Otherwise nothing is changed, and it returns false.
    pub async fn replace(&self, read: &Stored, next: ArrayDescription) -> Result<bool, ControlError> {
        if let Some(cluster) = self.cluster() {
            return cluster.replace(read, next).await;
        }
        let read = read.clone();
        self.in_folder(move |folder| folder.replace_after(&read, next)).await
    }

    /// Changes the description. `change` gets its current content, and is called again if another process has replaced that meanwhile. If
    /// `change` fails, nothing is changed. Returns what `change` returns.
    pub async fn update<T, E: From<ControlError>>(
        &self,
        mut change: impl FnMut(&mut ArrayDescription) -> Result<T, E>,
    ) -> Result<T, E> {
        let decide = |before: &ArrayDescription| before.changed(&mut change).map(|(done, next)| (done, Some(next)));
        self.replace_description(decide).await
    }

    /// Replaces the description by what `decide` makes of its current content, if that is another one. Returns what `decide` returns.
    pub async fn replace_description<T, E: From<ControlError>>(
        &self,
        mut decide: impl FnMut(&ArrayDescription) -> Result<(T, Option<ArrayDescription>), E>,
    ) -> Result<T, E> {
        let begun = Instant::now();
        loop {
            let read = self.read().await?;
            let (returned, next) = decide(&read.description)?;
            let Some(next) = next else { return Ok(returned) };
            if self.replace(&read, next).await? {
                return Ok(returned);
            }
            if begun.elapsed() > CHANGE_WAIT {
                return Err(ControlError::Contended { seconds: CHANGE_WAIT.as_secs() }.into());
            }
        }
    }

    /// The leases of the hosts of this array.
    pub fn leases(&self) -> HostLeases<'_> {
        HostLeases { control: self }
    }
}

impl HostLeases<'_> {
    fn cluster(&self) -> Option<&Cluster> {
        self.control.cluster()
    }

    async fn in_folder<T: Send + 'static>(
        &self,
        work: impl FnOnce(&LocalFolder) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, ControlError> {
        self.control.in_folder(work).await
    }

    calls! {
        /// Takes a generation that was never used before, with a lease that starts at `now`.
        take_generation(role: String, now: Moment) -> Generation = |folder| folder.leases().take_generation(&role, &now),
            |cluster| cluster.take_generation(role);
        /// Renews a lease, unless it is over, and publishes the host's report. Only the host itself calls it, and never twice concurrently.
        /// It waits for no other process.
        renew(host: Generation, now: Moment, report: LeaseReport) -> () = |folder| folder.leases().renew(host, &now, report),
            |cluster| cluster.renew(host, report);
        /// Releases a lease: the host has ended, and all its transactions are decided.
        release(host: Generation) -> () = |folder| folder.leases().release(host),
            |cluster| cluster.have(Request::Release { host });
        /// Asks a host to end. Its process sees it if it looks ([`HostLeases::is_asked_to_end`]), wherever it runs.
        ask_to_end(host: Generation) -> () = |folder| folder.leases().ask_to_end(host),
            |cluster| cluster.have(Request::AskToEnd { host });
        is_asked_to_end(host: Generation) -> bool = |folder| Ok(folder.leases().is_asked_to_end(host)),
            |cluster| async { Ok(cluster.is_asked_to_end(host)) };
        /// The hosts that have leases, ascending by generation. Those are live that have renewed theirs within `length` before `now`.
        hosts(now: Moment, length: Duration) -> Vec<HostEntry> = |folder| folder.leases().hosts(&now, length),
            |cluster| cluster.hosts(length);
        /// Ends the leases that were not renewed for `length` before `now`, for good, and returns the generations that the devices must
        /// refuse ([`braid_host_leases::LeaseTable::expire`]).
        expire(by: Generation, now: Moment, length: Duration) -> Expired = |folder| folder.leases().expire(by, &now, length),
            |cluster| cluster.expire(by, length);
        /// Ends the lease of one host for good if it was not renewed for `length` ([`braid_host_leases::LeaseTable::expire_one`]).
        expire_one(host: Generation, now: Moment, length: Duration) -> LeaseEnd =
            |folder| folder.leases().expire_one(host, &now, length), |cluster| cluster.expire_one(host, length);
        /// Removes the leases of hosts that have been fenced.
        forget(gone: Vec<Generation>) -> () = |folder| folder.leases().forget(&gone),
            |cluster| cluster.have(Request::Forget { gone });
        /// The last generation that was taken; none if the counter is lost.
        last_generation() -> Option<u32> = |folder| folder.known_generation(), |cluster| cluster.last_generation();
        /// True if a host had this role, as far as that is remembered.
        had_role(role: String) -> bool = |folder| Ok(Roles::of(folder)?.contains(&role)), |cluster| cluster.has_role(role);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::{Scratch, volume};

    #[tokio::test]
    async fn a_description_is_replaced_only_after_the_version_that_was_read() {
        let scratch = Scratch::new("versions");
        let control = ControlPlane::Folder(scratch.array());
        let read = control.read().await.unwrap();
        let next = |populated| {
            let change = |next: &mut ArrayDescription| {
                next.populated = populated;
                Ok::<_, ControlError>(())
            };
            read.description.changed(change).unwrap().1
        };
        assert!(control.replace(&read, next(true)).await.unwrap());
        let replaced = control.describe().await.unwrap();
        assert!(!control.replace(&read, next(false)).await.unwrap(), "it was replaced meanwhile");
        assert_eq!((control.describe().await.unwrap(), replaced.populated), (replaced, true));
        // The same revision with another content, as in a file that was put back.
        let file = control.local().path("array.json");
        let text = std::fs::read_to_string(&file).unwrap();
        let read = control.read().await.unwrap();
        std::fs::write(&file, text.replace("\"populated\": true", "\"populated\": false")).unwrap();
        assert!(!control.replace(&read, next(true)).await.unwrap(), "it is another one of that revision");
    }

    #[tokio::test]
    async fn changes_at_the_same_time_are_all_made() {
        let scratch = Scratch::new("contended");
        let control = ControlPlane::Folder(scratch.array());
        let writers = (0..4).map(|writer| {
            let control = control.clone();
            tokio::spawn(async move {
                for turn in 0..8 {
                    let change = |description: &mut ArrayDescription| {
                        let volume = volume(description, &format!("v{writer}-{turn}"));
                        description.volumes.push(volume);
                        Ok::<_, ControlError>(())
                    };
                    control.update(change).await.unwrap();
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        let description = control.describe().await.unwrap();
        assert_eq!((description.volumes.len(), description.revision), (32, 32));
    }
}
