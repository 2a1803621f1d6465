//! The array's folder as the store of the control protocol, and the array's nodes behind its other questions.

use super::{LOOK_PAUSE, NO_ROOM, lock_servers_serve};
use crate::failure::Failure;
use crate::volumes;
use braid_base::{DeviceId, Epoch, VolumeId};
use braid_control::{ArrayDescription, ArrayFolder, ControlError, DeviceState, HostEntry, Moment, VolumeEntry};
use braid_control_protocol::{Answer, Command, Fence, HostLease, Question, Version, VolumeRecord};
use braid_host_leases::LeaseJudge;
use braid_machine::{ArrayRequest, HostError};
use braid_session::{HEARTBEAT, SessionError, record, set_record};
use braid_shell::HostClient;
use braid_wire::{Failure as DeviceFailure, Task};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// An answer, and the reason if the question has failed.
pub type Answered = (Answer, Option<Failure>);

/// Answers the questions of one administrator.
#[derive(Clone)]
pub(crate) struct Questions {
    pub folder: ArrayFolder,
    pub client: HostClient,
    pub volume: VolumeId,
    /// The entry of the volume, if it is to be created.
    pub entry: Option<VolumeEntry>,
    /// What can't be done while a device is not in.
    pub what: String,
    pub judge: Judge,
}

/// A judge of leases, over several looks at them.
#[derive(Clone)]
pub(crate) struct Judge(Arc<Mutex<(LeaseJudge, Duration)>>);

/// Why a record was not replaced.
enum Refused {
    Superseded,
    Failed(Failure),
    /// It may have been replaced.
    Unknown(Failure),
}

impl Judge {
    /// A judge that has not looked yet.
    pub fn begin() -> Judge {
        Judge(Arc::new(Mutex::new((LeaseJudge::new(HEARTBEAT), Duration::ZERO))))
    }

    /// How long hosts may be silent now. To be called regularly.
    pub fn look(&self, lease: Duration) -> (Moment, Duration) {
        let now = Moment::now();
        let mut judge = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        judge.1 = judge.0.allowed(&now, lease);
        (now, judge.1)
    }

    /// How long hosts were allowed to be silent at the last look.
    fn allowed(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

impl Questions {
    pub async fn answer(&self, question: Question) -> Answered {
        let answered = match question {
            Question::Store(Command::Watch) => {
                tokio::time::sleep(LOOK_PAUSE).await;
                Ok((Answer::Yes, None))
            }
            Question::Store(command) => self.command(command),
            Question::AreIn { devices } => {
                let devices: Vec<DeviceId> = devices.into_iter().collect();
                match volumes::require_in(&self.folder, &devices, &self.what) {
                    Ok(epoch) => Ok((Answer::AllIn(epoch), None)),
                    Err(failure) if failure.code == volumes::DEGRADED => {
                        self.epoch().map(|epoch| (Answer::NotIn(epoch), Some(failure)))
                    }
                    Err(failure) => Err(failure),
                }
            }
            Question::MonitorKnows { version } => self.monitor_knows(version),
            Question::LockServersServe => lock_servers_serve(&self.folder).map(|serve| match serve {
                Ok(()) => (Answer::Yes, None),
                Err(missing) => (Answer::No, Some(missing)),
            }),
            Question::Fence(Fence { below, except }) => {
                let fenced = self.client.call(ArrayRequest::Fence { below, except }).await;
                fenced.map(|_| (Answer::Yes, None)).map_err(Failure::from)
            }
            Question::Manage { device, task } => Ok(self.manage(device, task).await),
            Question::Copy { .. } | Question::CopyProgress => unreachable!("a copier answers"),
        };
        answered.unwrap_or_else(|failure| (Answer::Failed, Some(failure)))
    }

    fn command(&self, command: Command) -> Result<Answered, Failure> {
        let answer = match command {
            Command::Read => {
                let description = self.folder.describe()?;
                let entry = description.volumes.iter().find(|entry| entry.id == self.volume.0);
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
            Command::Confirm { version: Version(version) } => match self.folder.describe()?.revision {
                revision if revision == version => Answer::Yes,
                _ => Answer::Superseded,
            },
            Command::ListHosts => {
                let (now, allowed) = self.judge.look(self.folder.describe()?.leases().lease());
                Answer::Hosts(self.folder.hosts(&now, allowed)?.iter().map(as_seen).collect())
            }
            Command::EndLease { host } => {
                Answer::Lease(self.folder.expire_one(host, &Moment::now(), self.judge.allowed())?)
            }
            Command::ForgetLease { host } => {
                self.folder.forget(&[host])?;
                Answer::Yes
            }
            Command::Watch => unreachable!("a watch waits"),
        };
        Ok((answer, None))
    }

    fn replace(&self, after: Version, record: &VolumeRecord) -> Result<Version, Refused> {
        self.folder.update(|description: &mut ArrayDescription| {
            let revision = description.revision;
            if Version(revision) != after {
                return Err(Refused::Superseded);
            }
            if !description.volumes.iter().any(|entry| entry.id == self.volume.0) {
                enter(description, self.entry.clone().ok_or(Refused::Superseded)?)?;
            }
            let is_this = |entry: &&mut VolumeEntry| entry.id == self.volume.0;
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
            description.volumes.retain(|entry| entry.id != self.volume.0);
            Ok(Version(revision + 1))
        })
    }

    fn epoch(&self) -> Result<Epoch, Failure> {
        let monitor = self.folder.monitor(&Moment::now())?;
        Ok(Epoch(monitor.map_or(0, |monitor| monitor.report.epoch)))
    }

    fn monitor_knows(&self, version: Version) -> Result<Answered, Failure> {
        let monitor = self.folder.monitor(&Moment::now())?;
        let knows = monitor.is_some_and(|monitor| Version(monitor.report.revision) >= version);
        Ok((if knows { Answer::Yes } else { Answer::No }, None))
    }

    async fn manage(&self, device: DeviceId, task: Task) -> Answered {
        let error = match self.client.call(ArrayRequest::Manage { device, task }).await {
            Ok(_) => return (Answer::Yes, None),
            // An object that does not exist has been removed already.
            Err(HostError::Device { failure: DeviceFailure::NoSuchObject, .. }) => return (Answer::Yes, None),
            Err(error) => error,
        };
        let is_in_use = matches!(error, HostError::Device { failure: DeviceFailure::InUse, .. });
        let reason = Failure::from(error);
        let answer = match () {
            () if is_in_use => Answer::InUse,
            () if reason.code == NO_ROOM => Answer::NoSpace,
            () => Answer::Failed,
        };
        (answer, Some(reason))
    }
}

fn answer_to(replaced: Result<Version, Refused>) -> Result<Answered, Failure> {
    match replaced {
        Ok(version) => Ok((Answer::Replaced { version }, None)),
        Err(Refused::Superseded) => Ok((Answer::Superseded, None)),
        Err(Refused::Failed(failure)) => Err(failure),
        Err(Refused::Unknown(failure)) => Ok((Answer::Unknown, Some(failure))),
    }
}

/// Adds a new volume to the description, if its name is free.
fn enter(description: &mut ArrayDescription, entry: VolumeEntry) -> Result<(), Refused> {
    if description.volume(&entry.name).is_some() {
        return Err(Refused::Failed(volumes::exists(&entry.name)));
    }
    description.next_volume = description.next_volume.max(entry.id + 1);
    description.volumes.push(entry);
    Ok(())
}

/// A host as the protocol sees it.
fn as_seen(host: &HostEntry) -> HostLease {
    HostLease {
        host: host.generation,
        is_live: host.live,
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

impl From<SessionError> for Refused {
    fn from(error: SessionError) -> Refused {
        Refused::Failed(error.into())
    }
}
