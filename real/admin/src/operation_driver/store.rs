//! The array's folder as the store of the control protocol, and the array's nodes behind its other questions.

use super::{LOOK_PAUSE, NO_ROOM, degraded, lock_servers_serve};
use crate::device_lifecycle::{self, ACT_WAIT};
use crate::failure::{Failure, OUTCOME_UNKNOWN};
use braid_base::{DeviceId, DiskId, Generation, MemberState};
use braid_control::{ArrayDescription, ControlError, ControlPlane, HostEntry, Moment, ReportedState};
use braid_control_protocol::{Answer, Command, Fence, HostLease, Question, Version};
use braid_description::{Refusal, Subject};
use braid_host_leases::LeaseJudge;
use braid_machine::{ArrayRequest, HostError, HostSuccess};
use braid_session::{HEARTBEAT, Session};
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
    pub control: ControlPlane,
    /// The host of the administrator; none for operations that ask it for nothing.
    pub client: Option<HostClient>,
    pub subject: Subject,
    /// What can't be done while a device is not in.
    pub what: String,
    pub judge: Judge,
}

/// A judge of leases, over several looks at them.
#[derive(Clone)]
pub(crate) struct Judge {
    /// With how long hosts were allowed to be silent at the last look.
    leases: Arc<Mutex<(LeaseJudge, Duration)>>,
    began: Instant,
}

/// Why a command about the description failed.
enum Unapplied {
    Refused(Refusal),
    Control(ControlError),
}

impl Judge {
    /// A judge that has not looked yet.
    pub fn begin() -> Judge {
        let leases = Arc::new(Mutex::new((LeaseJudge::new(HEARTBEAT), Duration::ZERO)));
        Judge { leases, began: Instant::now() }
    }

    /// Waits for the next look. With nothing to judge, the looks are rare, and the next one is the first of a new judge.
    pub async fn after_pause(self, control: &ControlPlane, is_settled: bool) -> Judge {
        if is_settled {
            control.changed_or_rests(HEARTBEAT).await;
            return Judge::begin();
        }
        tokio::time::sleep(HEARTBEAT).await;
        self
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
    /// The questions of an operation that this session performs. `what` can't be done while a device is not in.
    pub fn of(session: &Session, subject: Subject, what: String) -> Questions {
        let (control, client) = (session.control().clone(), Some(session.client().clone()));
        Questions { control, client, subject, what, judge: Judge::begin() }
    }

    pub async fn answer(&self, question: Question) -> Answered {
        let answered = match question {
            Question::Store(Command::Watch) => {
                self.control.changed(LOOK_PAUSE).await;
                Ok((Answer::Yes, None))
            }
            Question::Store(Command::ListHosts) => self.list_hosts().await,
            Question::Store(command) => self.command(command).await,
            Question::AreIn { devices } => self.are_in(&devices).await,
            Question::MonitorKnows { version } => self.monitor_knows(version).await,
            Question::LockServersServe => lock_servers_serve(&self.control).await.map(|serve| match serve {
                Ok(()) => (Answer::Yes, None),
                Err(missing) => (Answer::No, Some(missing)),
            }),
            Question::Fence(Fence { below, except }) => self.fence(below, except).await,
            Question::Manage { device, task } => self.manage(device, task).await,
            Question::Administer { request } => self.administer(request).await,
            Question::RunsOn { device, disk, is_whole } => self.runs_on(device, disk, is_whole).await,
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
        answered.unwrap_or_else(|failure| match failure.code.as_str() {
            OUTCOME_UNKNOWN => (Answer::Unknown, Some(failure)),
            _ => (Answer::Failed, Some(failure)),
        })
    }

    /// The hosts, as a judge sees them that has watched for a while: after a sleep of the machine every host seems to be silent.
    async fn list_hosts(&self) -> Result<Answered, Failure> {
        loop {
            let hosts = self.hosts().await?;
            match self.judge.must_watch() {
                Some(longer) if hosts.iter().any(|host| !host.live && !host.process.has_ended()) => {
                    tokio::time::sleep(longer).await;
                }
                _ => return Ok((Answer::Hosts(hosts.iter().map(as_seen).collect()), None)),
            }
        }
    }

    async fn hosts(&self) -> Result<Vec<HostEntry>, Failure> {
        let (now, allowed) = self.judge.look(self.control.describe().await?.leases().lease());
        let hosts = self.control.leases().hosts(now, allowed).await?;
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
        let reason = (!missing.is_empty()).then(|| degraded(&self.what, &missing));
        Ok((Answer::of_members(&membership, devices), reason))
    }

    async fn command(&self, command: Command) -> Result<Answered, Failure> {
        let answer = match command {
            Command::ListServers => self.list_servers().await?,
            Command::EndLease { host } => {
                let hosts = self.control.leases().hosts(Moment::now(), Duration::ZERO).await?;
                let has_ended = hosts.iter().any(|entry| entry.generation == host && entry.process.has_ended());
                // A process that is gone renews nothing: a command that was killed can be repeated at once.
                let allowed = if has_ended { Duration::ZERO } else { self.judge.allowed() };
                Answer::Lease(self.control.leases().expire_one(host, Moment::now(), allowed).await?)
            }
            Command::ForgetLease { host } => {
                self.control.leases().forget(vec![host]).await?;
                Answer::Yes
            }
            Command::ListHosts | Command::Watch => unreachable!("they wait"),
            Command::Read | Command::ReadDevice | Command::ReadFileSystem | Command::Confirm { .. } => {
                self.control.describe().await?.apply(&self.subject, command)?.answer
            }
            command => return self.replace(command).await,
        };
        Ok((answer, None))
    }

    /// Has the description replaced by what a command makes of it.
    async fn replace(&self, command: Command) -> Result<Answered, Failure> {
        let apply = |description: &ArrayDescription| {
            let applied = description.apply(&self.subject, command.clone()).map_err(Unapplied::Refused)?;
            Ok((applied.answer, applied.next.map(|next| *next)))
        };
        match self.control.replace_description(apply).await {
            Ok(answer) => Ok((answer, None)),
            // The new file has its name; whether that survives a loss of power is unknown.
            Err(Unapplied::Control(error)) => match &error {
                ControlError::File { doing: "sync", path, .. } if path.is_dir() => {
                    Ok((Answer::Unknown, Some(error.into())))
                }
                _ => Err(error.into()),
            },
            Err(Unapplied::Refused(refusal)) => Err(refusal.into()),
        }
    }

    pub(super) fn client(&self) -> Result<&HostClient, Failure> {
        self.client.as_ref().ok_or_else(|| Failure::failed("internal", "the operation has no host"))
    }

    async fn monitor_knows(&self, version: Version) -> Result<Answered, Failure> {
        let monitor = self.control.monitor().await?;
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
                Ok((answer, Some(device_lifecycle::explain(&self.control, error).await)))
            }
        }
    }

    async fn runs_on(&self, device: DeviceId, disk: DiskId, is_whole: bool) -> Result<Answered, Failure> {
        let report = device_lifecycle::report_of(&self.control, device.0).await?;
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

/// A host as the protocol sees it.
fn as_seen(host: &HostEntry) -> HostLease {
    HostLease {
        host: host.generation,
        is_live: host.is_alive(),
        uses_volumes: host.report.lock_server.is_none(),
        confirmed: Version(host.report.revision),
    }
}

impl From<ControlError> for Unapplied {
    fn from(error: ControlError) -> Unapplied {
        Unapplied::Control(error)
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
