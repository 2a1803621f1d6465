//! The array's folder as the store of the control protocol, and the array's nodes behind its other questions.

use super::{LOOK_PAUSE, NO_ROOM, lock_servers_serve};
use crate::device_lifecycle::{self, ACT_WAIT};
use crate::failure::Failure;
use crate::file_systems::NewFileSystem;
use crate::volumes;
use braid_base::{DeviceId, DiskId, Generation, MemberState, VolumeId};
use braid_control::{
    ArrayDescription, ArrayFolder, ControlError, DeviceEntry, DeviceState, DiskEntry, FileSystemEntry, FileSystemState,
    HostEntry, Moment, ReportedState, VolumeEntry,
};
use braid_control_protocol::{
    self as protocol, Answer, Command, DeviceRecord, Fence, HostLease, Question, Version, VolumeRecord,
};
use braid_host_leases::LeaseJudge;
use braid_machine::{ArrayRequest, HostError, HostSuccess};
use braid_session::{HEARTBEAT, SessionError, record, set_record};
use braid_shell::HostClient;
use braid_wire::{Administration, Failure as DeviceFailure, Task};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An answer, and the reason if the question has failed.
pub type Answered = (Answer, Option<Failure>);

/// Answers the questions of one administrator.
#[derive(Clone)]
pub(crate) struct Questions {
    pub folder: ArrayFolder,
    /// The host of the administrator; none for operations that ask it for nothing.
    pub client: Option<HostClient>,
    pub subject: Subject,
    /// What can't be done while a device is not in.
    pub what: String,
    pub judge: Judge,
}

/// What an operation is about.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// A volume, and its entry if it is to be created.
    Volume(VolumeId, Option<Box<VolumeEntry>>),
    /// A device, and the disk that is to fill its slot, if there is one.
    Device(DeviceId, Option<DiskEntry>),
    /// A device that is to be added, as its entry will be.
    NewDevice(Box<DeviceEntry>),
    /// The file system of this number.
    FileSystem(u16),
    /// A file system that is to be created.
    NewFileSystem(Box<NewFileSystem>),
}

/// A judge of leases, over several looks at them.
#[derive(Clone)]
pub(crate) struct Judge {
    /// With how long hosts were allowed to be silent at the last look.
    leases: Arc<Mutex<(LeaseJudge, Duration)>>,
    began: Instant,
}

/// Why a record was not replaced.
pub(super) enum Refused {
    Superseded,
    Failed(Failure),
    /// It may have been replaced.
    Unknown(Failure),
}

impl Judge {
    /// A judge that has not looked yet.
    pub fn begin() -> Judge {
        let leases = Arc::new(Mutex::new((LeaseJudge::new(HEARTBEAT), Duration::ZERO)));
        Judge { leases, began: Instant::now() }
    }

    /// How long hosts may be silent now. To be called regularly.
    pub fn look(&self, lease: Duration) -> (Moment, Duration) {
        let now = Moment::now();
        let mut judge = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        judge.1 = judge.0.allowed(&now, lease);
        (now, judge.1)
    }

    /// To be called with the shortest silence of a host: perhaps nobody can renew.
    fn discount(&self, silent: Option<Duration>) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).0.discount(silent);
    }

    /// How long it must watch before it may call a host dead. In this time each living host renews its lease.
    fn must_watch(&self) -> Option<Duration> {
        (2 * HEARTBEAT).checked_sub(self.began.elapsed()).filter(|longer| !longer.is_zero())
    }

    /// How long hosts were allowed to be silent at the last look.
    fn allowed(&self) -> Duration {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

impl Questions {
    pub async fn answer(&self, question: Question) -> Answered {
        let answered = match question {
            Question::Store(Command::Watch) => {
                tokio::time::sleep(LOOK_PAUSE).await;
                Ok((Answer::Yes, None))
            }
            Question::Store(Command::ListHosts) => self.list_hosts().await,
            Question::Store(command) => self.blocking(move |questions| questions.command(command)).await,
            Question::AreIn { devices } => self.are_in(&devices).await,
            Question::MonitorKnows { version } => self.monitor_knows(version),
            Question::LockServersServe => lock_servers_serve(&self.folder).map(|serve| match serve {
                Ok(()) => (Answer::Yes, None),
                Err(missing) => (Answer::No, Some(missing)),
            }),
            Question::Fence(Fence { below, except }) => self.fence(below, except).await,
            Question::Manage { device, task } => self.manage(device, task).await,
            Question::Administer { request } => self.administer(request).await,
            Question::RunsOn { device, disk, is_whole } => self.runs_on(device, disk, is_whole),
            Question::Ownership { file_system, request } => self.ownership(file_system, request).await,
            Question::Copy { .. }
            | Question::CopyProgress
            | Question::CreateVolume { .. }
            | Question::Format { .. }
            | Question::DeleteVolume { .. }
            | Question::Announce(_)
            | Question::Withdraw(_)
            | Question::Examine { .. } => unreachable!("the process of the administrator does that"),
        };
        answered.unwrap_or_else(|failure| (Answer::Failed, Some(failure)))
    }

    /// Works with the folder on a thread of its own: another process may hold a lock there, and hosts renew their leases meanwhile.
    async fn blocking<T: Send + 'static>(&self, work: impl FnOnce(&Questions) -> T + Send + 'static) -> T {
        let own = self.clone();
        tokio::task::spawn_blocking(move || work(&own)).await.expect("it does not panic")
    }

    /// The hosts, as a judge sees them that has watched for a while: after a sleep of the machine every host seems to be silent.
    async fn list_hosts(&self) -> Result<Answered, Failure> {
        loop {
            let hosts = self.blocking(Questions::hosts).await?;
            match self.judge.must_watch() {
                Some(longer) if hosts.iter().any(|host| !host.live && !host.process.has_ended()) => {
                    tokio::time::sleep(longer).await;
                }
                _ => return Ok((Answer::Hosts(hosts.iter().map(as_seen).collect()), None)),
            }
        }
    }

    fn hosts(&self) -> Result<Vec<HostEntry>, Failure> {
        let (now, allowed) = self.judge.look(self.folder.describe()?.leases().lease());
        let hosts = self.folder.hosts(&now, allowed)?;
        // A lease that was only taken, such as the own one, does not show that others can renew theirs.
        let renewed = hosts.iter().filter(|host| !host.is_over && host.is_renewed);
        self.judge.discount(renewed.filter_map(|host| host.silent).min());
        Ok(hosts)
    }

    async fn are_in(&self, devices: &BTreeSet<DeviceId>) -> Result<Answered, Failure> {
        let membership = match self.client()?.call(ArrayRequest::Membership).await {
            Ok(HostSuccess::Membership(membership)) => membership,
            Ok(other) => return Err(Failure::failed("internal", format!("not a membership: {other:?}"))),
            Err(error @ HostError::MonitorSilent { .. }) => return Ok((Answer::Unknown, Some(error.into()))),
            Err(error) => return Err(error.into()),
        };
        let members = membership.members.iter().filter(|member| devices.contains(&member.device));
        let missing = members.filter_map(|member| match member.member_state {
            MemberState::In => None,
            MemberState::Returning { .. } => Some(format!("device {} is returning", member.device)),
            MemberState::Out => Some(format!("device {} is out", member.device)),
        });
        let missing: Vec<String> = missing.collect();
        let reason = (!missing.is_empty()).then(|| volumes::degraded(&self.what, &missing));
        Ok((Answer::of_members(&membership, devices), reason))
    }

    fn command(&self, command: Command) -> Result<Answered, Failure> {
        let answer = match command {
            Command::Read => {
                let description = self.folder.describe()?;
                let entry = description.volumes.iter().find(|entry| entry.id == self.volume().0);
                let ready_devices = description.devices.iter().filter(|device| device.state == DeviceState::Ready);
                Answer::Record {
                    version: Version(description.revision),
                    record: entry.map(record).transpose()?.map(Box::new),
                    ready_devices: ready_devices.map(|device| DeviceId(device.id)).collect(),
                    next_volume: VolumeId(description.next_volume),
                }
            }
            Command::Replace { after, record } => return answer_to(self.replace(after, &record)),
            Command::Remove { after } => return answer_to(self.remove(after)),
            Command::ReadDevice => {
                let description = self.folder.describe()?;
                let DeviceId(id) = self.device();
                Answer::Device {
                    version: Version(description.revision),
                    record: description.device(id).map(device_record),
                    is_used: id < description.unused_device(),
                    volumes: device_lifecycle::volumes_on(&description, id).map(|volume| VolumeId(volume.id)).collect(),
                }
            }
            Command::ReplaceDevice { after, record } => return answer_to(self.replace_device(after, &record)),
            Command::RemoveDevice { after } => return answer_to(self.remove_device(after)),
            Command::ReadFileSystem => self.read_file_system()?,
            Command::EnterFileSystem { after, by } => return self.enter_file_system(after, by),
            Command::ReplaceFileSystem { after, state } => return self.replace_file_system(after, state),
            Command::RemoveFileSystem { after } => return self.remove_file_system(after),
            Command::ListServers => self.list_servers()?,
            Command::Confirm { version: Version(version) } => match self.folder.describe()?.revision {
                revision if revision == version => Answer::Yes,
                _ => Answer::Superseded,
            },
            Command::EndLease { host } => {
                let hosts = self.folder.hosts(&Moment::now(), Duration::ZERO)?;
                let has_ended = hosts.iter().any(|entry| entry.generation == host && entry.process.has_ended());
                // A process that is gone renews nothing: a command that was killed can be repeated at once.
                let allowed = if has_ended { Duration::ZERO } else { self.judge.allowed() };
                Answer::Lease(self.folder.expire_one(host, &Moment::now(), allowed)?)
            }
            Command::ForgetLease { host } => {
                self.folder.forget(&[host])?;
                Answer::Yes
            }
            Command::ListHosts | Command::Watch => unreachable!("they wait"),
        };
        Ok((answer, None))
    }

    fn volume(&self) -> VolumeId {
        match &self.subject {
            Subject::Volume(volume, _) => *volume,
            other => unreachable!("no operation on a volume: {other:?}"),
        }
    }

    fn device(&self) -> DeviceId {
        match &self.subject {
            Subject::Device(device, _) => *device,
            Subject::NewDevice(entry) => DeviceId(entry.id),
            other => unreachable!("no operation on a device: {other:?}"),
        }
    }

    pub(super) fn client(&self) -> Result<&HostClient, Failure> {
        self.client.as_ref().ok_or_else(|| Failure::failed("internal", "the operation has no host"))
    }

    fn replace_device(&self, after: Version, record: &DeviceRecord) -> Result<Version, Refused> {
        self.folder.update(|description: &mut ArrayDescription| {
            let revision = description.revision;
            if Version(revision) != after {
                return Err(Refused::Superseded);
            }
            let DeviceId(id) = self.device();
            if let Subject::NewDevice(entry) = &self.subject
                && description.device(id).is_none()
            {
                description.next_device = id + 1;
                description.spares.retain(|spare| Some(spare.disk) != entry.disk);
                description.devices.push(DeviceEntry::clone(entry));
            }
            let device = description.device_mut(id).ok_or(Refused::Superseded)?;
            (device.state, device.by) = device_state(record.state);
            device.others.retain(|other| record.others.contains(&other.disk));
            if let Subject::Device(_, Some(disk)) = &self.subject
                && record.others.contains(&disk.disk)
            {
                device.remember(disk.clone());
            }
            Ok(Version(revision + 1))
        })
    }

    fn remove_device(&self, after: Version) -> Result<Version, Refused> {
        self.folder.update(|description: &mut ArrayDescription| {
            let revision = description.revision;
            if Version(revision) != after {
                return Err(Refused::Superseded);
            }
            description.next_device = description.unused_device();
            description.devices.retain(|device| device.id != self.device().0);
            Ok(Version(revision + 1))
        })
    }

    fn replace(&self, after: Version, record: &VolumeRecord) -> Result<Version, Refused> {
        self.folder.update(|description: &mut ArrayDescription| {
            let revision = description.revision;
            if Version(revision) != after {
                return Err(Refused::Superseded);
            }
            let Subject::Volume(VolumeId(id), entry) = &self.subject else { return Err(Refused::Superseded) };
            if !description.volumes.iter().any(|entry| entry.id == *id) {
                enter(description, *entry.clone().ok_or(Refused::Superseded)?, record.administrator())?;
            }
            let is_this = |entry: &&mut VolumeEntry| entry.id == *id;
            set_record(description.volumes.iter_mut().find(is_this).ok_or(Refused::Superseded)?, record)?;
            Ok(Version(revision + 1))
        })
    }

    fn remove(&self, after: Version) -> Result<Version, Refused> {
        self.folder.update(|description: &mut ArrayDescription| {
            let revision = description.revision;
            if Version(revision) != after {
                return Err(Refused::Superseded);
            }
            description.volumes.retain(|entry| entry.id != self.volume().0);
            Ok(Version(revision + 1))
        })
    }

    fn monitor_knows(&self, version: Version) -> Result<Answered, Failure> {
        let monitor = self.folder.monitor(&Moment::now())?;
        let knows = monitor.is_some_and(|monitor| Version(monitor.report.revision) >= version);
        Ok((if knows { Answer::Yes } else { Answer::No }, None))
    }

    async fn fence(&self, below: Generation, except: Vec<Generation>) -> Result<Answered, Failure> {
        self.client()?.call(ArrayRequest::Fence { below, except }).await?;
        Ok((Answer::Yes, None))
    }

    async fn administer(&self, request: Administration) -> Result<Answered, Failure> {
        match device_lifecycle::administer(self.client()?, request).await {
            Ok(()) => Ok((Answer::Yes, None)),
            Err(error) => {
                let answer = match &error {
                    HostError::AdminError(refusal) => Answer::Refused(refusal.clone()),
                    _ => Answer::Unknown,
                };
                Ok((answer, Some(device_lifecycle::explain(&self.folder, error))))
            }
        }
    }

    fn runs_on(&self, device: DeviceId, disk: DiskId, is_whole: bool) -> Result<Answered, Failure> {
        let report = device_lifecycle::report_of(&self.folder, device.0)?;
        let has_it = report.as_ref().is_some_and(|report| {
            let is_there = match report.member_state {
                ReportedState::In => true,
                ReportedState::Returning => !is_whole,
                ReportedState::Unavailable | ReportedState::Out => false,
            };
            report.disk == Some(disk.to_string()) && report.awaited_disk.is_none() && is_there
        });
        let is_to_have_it = report.as_ref().is_none_or(|report| {
            let disks = [&report.disk, &report.next_disk, &report.awaited_disk];
            disks.into_iter().flatten().any(|named| *named == disk.to_string())
        });
        let answer = if is_to_have_it { Answer::No } else { Answer::Superseded };
        Ok(match has_it {
            true => (Answer::Yes, None),
            false => (answer, Some(device_lifecycle::not_yet(device.0, report.as_ref(), ACT_WAIT))),
        })
    }

    async fn manage(&self, device: DeviceId, task: Task) -> Result<Answered, Failure> {
        let error = match self.client()?.call(ArrayRequest::Manage { device, task }).await {
            Ok(_) => return Ok((Answer::Yes, None)),
            // An object that does not exist has been removed already.
            Err(HostError::Device { failure: DeviceFailure::NoSuchObject, .. }) => return Ok((Answer::Yes, None)),
            Err(error) => error,
        };
        let is_in_use = matches!(error, HostError::Device { failure: DeviceFailure::InUse, .. });
        let reason = Failure::from(error);
        let answer = match () {
            () if is_in_use => Answer::InUse,
            () if reason.code == NO_ROOM => Answer::NoSpace,
            () => Answer::Failed,
        };
        Ok((answer, Some(reason)))
    }
}

pub(super) fn answer_to(replaced: Result<Version, Refused>) -> Result<Answered, Failure> {
    match replaced {
        Ok(version) => Ok((Answer::Replaced { version }, None)),
        Err(Refused::Superseded) => Ok((Answer::Superseded, None)),
        Err(Refused::Failed(failure)) => Err(failure),
        Err(Refused::Unknown(failure)) => Ok((Answer::Unknown, Some(failure))),
    }
}

/// Adds a new volume to the description, if its name is free. The names of the volumes of a file system are free for the host that creates it.
fn enter(description: &mut ArrayDescription, entry: VolumeEntry, by: Option<Generation>) -> Result<(), Refused> {
    if description.volume(&entry.name).is_some() {
        return Err(Refused::Failed(volumes::exists(&entry.name)));
    }
    let creates = |file_system: &FileSystemEntry| {
        file_system.state == FileSystemState::Creating && file_system.by == by.map(|by| by.0)
    };
    if let Some(file_system) = description.file_system_of(&entry).filter(|file_system| !creates(file_system)) {
        let message = format!("the name '{}' belongs to file system '{}'", entry.name, file_system.name);
        return Err(Refused::Failed(Failure::failed("volume-exists", message).hint("choose another name")));
    }
    description.next_volume = description.next_volume.max(entry.id + 1);
    description.volumes.push(entry);
    Ok(())
}

/// A device as the protocol sees it.
fn device_record(device: &DeviceEntry) -> DeviceRecord {
    // No host has generation 0: whoever began in an older release is dead.
    let by = Generation(device.by.unwrap_or_default());
    DeviceRecord {
        disk: device.disk,
        others: device.others.iter().map(|other| other.disk).collect(),
        state: match device.state {
            DeviceState::Adding => protocol::DeviceState::Adding { by },
            DeviceState::Ready => protocol::DeviceState::Ready,
            DeviceState::Removing => protocol::DeviceState::Removing { by },
        },
    }
}

/// The state of a record as the description has it, and the host that is at work.
fn device_state(state: protocol::DeviceState) -> (DeviceState, Option<u32>) {
    let name = match state {
        protocol::DeviceState::Adding { .. } => DeviceState::Adding,
        protocol::DeviceState::Ready => DeviceState::Ready,
        protocol::DeviceState::Removing { .. } => DeviceState::Removing,
    };
    (name, state.administrator().map(|by| by.0))
}

/// A host as the protocol sees it.
fn as_seen(host: &HostEntry) -> HostLease {
    HostLease {
        host: host.generation,
        is_live: host.is_alive(),
        uses_volumes: host.report.lock_server.is_none(),
        confirmed: Version(host.report.revision),
    }
}

impl From<ControlError> for Refused {
    fn from(error: ControlError) -> Refused {
        // The new file has its name; whether that survives a loss of power is unknown.
        let is_replaced = matches!(&error, ControlError::File { doing: "sync", path, .. } if path.is_dir());
        let failure = Failure::from(error);
        if is_replaced { Refused::Unknown(failure) } else { Refused::Failed(failure) }
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        Refused::Failed(failure)
    }
}

impl From<SessionError> for Refused {
    fn from(error: SessionError) -> Refused {
        Refused::Failed(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::{LeaseReport, Process};

    #[test]
    fn a_host_whose_process_has_ended_is_not_waited_for() {
        let host = |process| HostEntry {
            generation: Generation(7),
            process,
            role: "volume migrate".into(),
            live: true,
            is_over: false,
            is_renewed: true,
            silent: Some(Duration::ZERO),
            report: LeaseReport::default(),
        };
        let [runs, ended] =
            [Process::own(), Process::own().sibling(u32::MAX / 2)].map(|process| as_seen(&host(process)));
        assert_eq!((runs.is_live, ended.is_live), (true, false));
    }
}
