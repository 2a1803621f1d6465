//! Drives the operations of the control protocol (`braid_control_protocol`) on volumes, devices and file systems, with the array's folder as
//! its store (`store`). A volume is on hold while its ordering or its placement changes: hosts queue its requests.
//!
//! If the changing process dies while the volume is draining, the change is reverted. If it dies later, the change is completed, and hosts
//! wait until then. [`keep_settled`] does both.
//!
//! While a device is out, no change begins: the device would not get the new ordering, and hosts would wait until it is back.

mod file_systems;
pub(crate) mod store;

use crate::array::await_until;
use crate::failure::Failure;
use crate::volumes;
use braid_base::{Generation, LockServerId, VolumeId};
use braid_control::{Change as EntryChange, ControlPlane, HostEntry, Moment, VolumeEntry, VolumeState, serving};
use braid_control_protocol::{
    Answer, Change, Creation, Deletion, Done, Effect, Error, Input, Operation, Question, Stage, Tag, Timing,
    VolumeChange,
};
pub(crate) use braid_description::Subject;
use braid_description::find;
use braid_ordering::Ordering;
use braid_session::Session;
use braid_shell::HostClient;
pub(crate) use file_systems::{ask_ownership, role, role_of};
use futures_util::future::join_all;
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::time::Duration;
pub(crate) use store::{Judge, Questions};

pub use store::Answered;
use tokio::task::JoinSet;

/// The failure code if a device has no space.
const NO_ROOM: &str = "device-full";

/// The failure code if another host is changing the volume.
const CHANGING: &str = "volume-reordering";

/// The failure code of an operation that needs all devices while one is not in.
pub const DEGRADED: &str = "volume-degraded";

/// How long lock servers may take to start.
const LOCK_SERVER_WAIT: Duration = Duration::from_secs(10);
/// The interval of checks while waiting for other processes.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Changes a volume's ordering to `to`. `progress` is called with each step. Returns false if the volume has that ordering already.
pub async fn change(session: &Session, name: &str, to: Ordering, progress: impl Fn(&str)) -> Result<bool, Failure> {
    let entry = settled(session, name).await?;
    if entry.ordering == to.name() {
        return Ok(false);
    }
    if entry.moving.is_some() {
        return Err(volumes::moving(name, ", and its ordering can't be changed meanwhile"));
    }
    let what = format!("the ordering of volume '{name}' can't be changed");
    let change = VolumeChange::new(session.generation(), Change::Ordering(to), Timing::default());
    perform(session, name, what, change, None, progress).await.map(|()| true)
}

/// Performs an operation on a volume. `what` can't be done while a device is not in.
pub(crate) async fn perform(
    session: &Session,
    name: &str,
    what: String,
    operation: impl Into<Operation>,
    worker: Option<&dyn Worker>,
    progress: impl Fn(&str),
) -> Result<(), Failure> {
    let entry = settle_for(session, name).await?;
    let questions = Questions::of(session, Subject::Volume(VolumeId(entry.id), None), what);
    let Ended { result, reasons, is_committed } = run(operation.into(), &questions, worker, progress).await;
    let Err(error) = result else { return Ok(()) };
    let failure = explain(session.control(), name, error, reasons).await?;
    if !is_committed {
        return Err(failure);
    }
    let hint = "hosts wait until the change is complete: `braid up` completes it once all devices of the volume serve";
    let hint = if failure.code == NO_ROOM { failure.hint.clone() } else { Some(hint.to_string()) };
    Err(Failure { hint, ..failure }.of(format!("volume {name}")))
}

/// True if hosts need a lock server for this volume, now or after the change.
pub fn needs_lock_server(entry: &VolumeEntry) -> bool {
    let next = match &entry.state {
        VolumeState::Draining { to: EntryChange::Ordering(to), .. }
        | VolumeState::Reordering { to: EntryChange::Ordering(to), .. } => Some(to),
        _ => None,
    };
    let orderings = [Some(&entry.ordering), next];
    orderings.into_iter().flatten().any(|name| name.parse().is_ok_and(Ordering::needs_lock_server))
}

/// Waits until every lock server of the array serves.
pub async fn await_lock_servers(control: &ControlPlane) -> Result<(), Failure> {
    await_until(control, LOCK_SERVER_WAIT, async || Ok(lock_servers_serve(control).await?.is_ok())).await?;
    lock_servers_serve(control).await?
}

/// Whether every lock server of the array serves; if not, the failure of an operation that needs them.
async fn lock_servers_serve(control: &ControlPlane) -> Result<Result<(), Failure>, Failure> {
    let description = control.describe().await?;
    let hosts = control.leases().hosts(Moment::now(), description.leases().lease()).await?;
    let served: Vec<LockServerId> =
        serving(&hosts).filter_map(|host| Some(LockServerId(host.report.lock_server.as_ref()?.id))).collect();
    let Some(unavailable) = description.lock_servers().find(|server| !served.contains(server)) else {
        return Ok(Ok(()));
    };
    let message = format!("the ordering needs lock server {unavailable}, which is not running");
    let hint = format!("start it with `braid up`, or with `braid lockd --id {}`", unavailable.0);
    Ok(Err(Failure::unreachable("no-lock-server", message).hint(hint)))
}

/// Runs until dropped, with the host `own`: completes or reverts changes begun by hosts that have died.
pub async fn keep_settled(control: ControlPlane, client: HostClient, own: Generation) {
    let mut judge = Judge::begin();
    let warn = |failure: &Failure| tracing::warn!("can't complete a change of a volume; trying again: {failure}");
    loop {
        let settled = settle(&control, &client, own, &judge).await;
        match &settled {
            Ok(failures) => failures.iter().flat_map(BTreeMap::values).for_each(warn),
            Err(failure) => warn(failure),
        }
        judge = judge.after_pause(&control, matches!(settled, Ok(None))).await;
    }
}

/// Settles what can be settled. Returns the volume of this name, unless something of it is left.
async fn settle_for(session: &Session, name: &str) -> Result<VolumeEntry, Failure> {
    let (control, own) = (session.control(), session.generation());
    let failures = settle(control, session.client(), own, &Judge::begin()).await?;
    match failures.unwrap_or_default().remove(name) {
        Some(failure) => Err(failure),
        None => Ok(find(&control.describe().await?, name)?.clone()),
    }
}

/// The volume of this name, after a change of it that was interrupted has been completed or reverted. Errors: `volume-reordering` (the host
/// that changes it has a lease).
pub async fn settled(session: &Session, name: &str) -> Result<VolumeEntry, Failure> {
    let entry = settle_for(session, name).await?;
    match entry.state {
        VolumeState::Draining { by, .. } | VolumeState::Reordering { by, .. } => Err(held(name, Generation(by))),
        _ => Ok(entry),
    }
}

/// Completes or reverts the changes begun by hosts that have died, and those that this host has taken over and could not complete; then
/// completes creations and deletions, for which no request waits. A volume whose devices do not answer keeps no other waiting. Returns the
/// failures, by the names of the volumes; none if there was nothing to do.
async fn settle(
    control: &ControlPlane,
    client: &HostClient,
    own: Generation,
    judge: &Judge,
) -> Result<Option<BTreeMap<String, Failure>>, Failure> {
    let description = control.describe().await?;
    let is_settled = description.volumes.iter().all(|entry| entry.state == VolumeState::Ready);
    judge.look(description.leases().lease());
    let (on_hold, others): (Vec<_>, Vec<_>) =
        description.volumes.into_iter().partition(|entry| entry.state.is_on_hold());
    // An administrator that lives is not waited for: the volume is looked at again soon.
    let timing = Timing { turn: Duration::ZERO, ..Timing::default() };
    let settle = |entry| settle_volume(control, client, own, judge, timing, entry);
    let mut ended = join_all(on_hold.into_iter().map(settle)).await;
    for entry in others {
        ended.push(settle(entry).await);
    }
    let failures = ended.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?;
    Ok((!is_settled).then_some(failures))
}

/// Settles one volume; its name and the failure, if it can't be settled.
pub(crate) async fn settle_volume(
    control: &ControlPlane,
    client: &HostClient,
    own: Generation,
    judge: &Judge,
    timing: Timing,
    entry: VolumeEntry,
) -> Result<Option<(String, Failure)>, Failure> {
    let (operation, what): (Operation, _) = match entry.state {
        VolumeState::Ready => return Ok(None),
        VolumeState::Draining { by, .. } | VolumeState::Reordering { by, .. } => {
            (VolumeChange::recovering(own, Generation(by), timing).into(), "the change")
        }
        VolumeState::Creating => (Creation::continuing(own, timing).into(), "the creation"),
        VolumeState::Deleting => (Deletion::continuing(own, timing).into(), "the deletion"),
    };
    let questions = Questions {
        control: control.clone(),
        client: Some(client.clone()),
        subject: Subject::Volume(VolumeId(entry.id), None),
        what: format!("{what} of volume '{}' can't be completed", entry.name),
        judge: judge.clone(),
    };
    let Ended { result, reasons, .. } = run(operation, &questions, None, |_| {}).await;
    match result {
        // Another host has taken it over, or completed it.
        Ok(_) | Err(Error::Lost) => Ok(None),
        Err(error) => {
            let failure = explain(control, &entry.name, error, reasons).await?;
            Ok(Some((entry.name, failure)))
        }
    }
}

pub(crate) struct Ended {
    pub result: Result<Done, Error>,
    /// Why questions failed.
    pub reasons: BTreeMap<Tag, Failure>,
    /// The change could no longer be reverted.
    pub is_committed: bool,
}

/// What an operation has asked its own process for.
pub(crate) enum Work<'a> {
    Answered(Answer),
    /// One at a time.
    UnderWay(WorkUnderWay<'a>),
}

impl<'a> Work<'a> {
    /// Work that ends with an answer, or fails.
    pub fn doing(work: impl Future<Output = Result<Answer, Failure>> + 'a) -> Option<Work<'a>> {
        Some(Work::UnderWay(Box::pin(async {
            match work.await {
                Ok(answer) => (answer, None),
                Err(failure) => (Answer::Failed, Some(failure)),
            }
        })))
    }
}

type WorkUnderWay<'a> = Pin<Box<dyn Future<Output = Answered> + 'a>>;

/// Does what an operation asks of its own process.
pub(crate) trait Worker {
    /// None if something else has to answer the question.
    fn begin(&self, question: &Question) -> Option<Work<'_>>;
}

/// Runs an operation to its end. The worker answers what the own process is asked.
pub(crate) async fn run(
    mut operation: Operation,
    questions: &Questions,
    worker: Option<&dyn Worker>,
    progress: impl Fn(&str),
) -> Ended {
    let mut asked = JoinSet::new();
    let mut working: Option<(Tag, WorkUnderWay<'_>)> = None;
    let (mut reasons, mut is_committed) = (BTreeMap::new(), false);
    let mut inputs = VecDeque::from([Input::Start]);
    loop {
        while let Some(input) = inputs.pop_front() {
            for effect in operation.step(braid_shell::now().time, input) {
                match effect {
                    Effect::Ask { tag, question } => match worker.and_then(|worker| worker.begin(&question)) {
                        Some(Work::Answered(answer)) => inputs.push_back(Input::Answer { tag, answer }),
                        Some(Work::UnderWay(work)) => working = Some((tag, work)),
                        None => {
                            let questions = questions.clone();
                            asked.spawn(async move { (tag, questions.answer(question).await) });
                        }
                    },
                    Effect::Began(stage) => {
                        is_committed = stage == Stage::NotifyingDevices;
                        progress(name_of(stage));
                    }
                    Effect::Ended(result) => return Ended { result, reasons, is_committed },
                }
            }
        }
        let deadline = operation.deadline().map(|at| at.since(braid_shell::now().time));
        let answered = tokio::select! {
            Some(answered) = asked.join_next() => Some(answered.expect("answering a question does not panic")),
            answered = async { working.as_mut().expect("it works").1.as_mut().await }, if working.is_some() => {
                working.take().map(|(tag, _)| (tag, answered))
            }
            () = tokio::time::sleep(deadline.unwrap_or(Duration::MAX)), if deadline.is_some() => None,
        };
        inputs.push_back(match answered {
            None => Input::Wake,
            Some((tag, (answer, reason))) => {
                reasons.extend(reason.map(|reason| (tag, reason)));
                Input::Answer { tag, answer }
            }
        });
    }
}

fn name_of(stage: Stage) -> &'static str {
    match stage {
        Stage::Draining => "waiting for hosts to end their operations",
        Stage::AwaitingLockServers => "waiting for the lock server",
        Stage::NotifyingDevices => "notifying the devices",
        Stage::Copying => "copying",
        Stage::FencingServers => "a metadata server does not end, and is fenced",
        Stage::Unserved => "the metadata servers do not serve again yet",
        Stage::AwaitingDevices => "everything is copied: waiting until every device is in",
    }
}

/// The failure of an operation whose change was not made.
pub(crate) async fn explain(
    control: &ControlPlane,
    name: &str,
    error: Error,
    mut reasons: BTreeMap<Tag, Failure>,
) -> Result<Failure, Failure> {
    let mut reason =
        |tag| reasons.remove(&tag).unwrap_or_else(|| Failure::failed("internal", "a question failed without a reason"));
    let lost = || {
        let message = format!("volume '{name}' was taken over or deleted while it was being changed");
        Failure::failed(CHANGING, message).hint("`braid volume info` shows its state")
    };
    Ok(match error {
        Error::NotUsable => match find(&control.describe().await?, name) {
            Err(failure) => failure.into(),
            Ok(_) => lost(),
        },
        Error::Held(other) => held(name, other),
        Error::Migration => {
            let message = format!("a migration of volume '{name}' has begun or ended meanwhile");
            Failure::failed("volume-moving", message).hint("`braid volume info` shows its state")
        }
        Error::NumberUsed => {
            let message = format!("other volumes were created at the same time as volume '{name}'");
            Failure::failed("no-number", message).hint("try again")
        }
        Error::NotCopied => {
            let message = format!("volume '{name}' is not copied to its target yet, and its migration can't end");
            Failure::failed("volume-moving", message).hint(format!("continue with `braid volume migrate {name}`"))
        }
        Error::NoSuchDevice(device) => {
            let message = format!("device {device} has just been removed, or is being removed");
            Failure::unreachable("no-such-device", message)
        }
        Error::MonitorSilent => monitor_silent(Timing::default().monitor),
        Error::NotDrained(hosts) => {
            let known = control.leases().hosts(Moment::now(), control.describe().await?.leases().lease()).await?;
            let name_of = |host: &Generation| match known.iter().find(|known| known.generation == *host) {
                Some(HostEntry { role, process, .. }) => format!("host {host} ({role}, {process})"),
                None => format!("host {host}"),
            };
            let (late, wait): (Vec<String>, _) = (hosts.iter().map(name_of).collect(), Timing::default().drain);
            let message = format!("{} did not end their operations within {wait:?}", late.join(", "));
            Failure::unreachable("not-drained", message).hint("nothing was changed: end these hosts, or try again")
        }
        Error::Lost => lost(),
        Error::HoldsVolumes(_) => Failure::failed("holds-volumes", "volumes lie on the device"),
        Error::NoDevice => Failure::unreachable("no-such-device", "the array has no such device"),
        Error::NotIn(tag) | Error::NoLockServer(tag) | Error::Refused(tag) | Error::NotYet(tag) => reason(tag),
        Error::FileSystemExists
        | Error::BeingDeleted
        | Error::Interrupted
        | Error::NoFileSystem
        | Error::Contended
        | Error::CheckUnderWay
        | Error::NotQuiescent(_) => Failure::failed("internal", "a file system is concerned"),
        Error::Question(tag) | Error::NoSpace(tag) | Error::Incomplete(tag) | Error::BlocksLost(tag) => reason(tag),
    })
}

fn held(name: &str, by: Generation) -> Failure {
    Failure::failed(CHANGING, format!("host {by} is changing volume '{name}'")).hint("try again when it is done")
}

/// The failure of an operation that needs devices of which some are not in.
pub(crate) fn degraded(what: &str, missing: &[String]) -> Failure {
    let hint = "nothing was changed: try again when `braid status` shows all devices as in";
    Failure::unreachable(DEGRADED, format!("{what} while {}", missing.join(" and "))).hint(hint)
}

pub fn monitor_silent(wait: Duration) -> Failure {
    let message = format!("the array's monitor has not adopted the volume within {wait:?}");
    Failure::unreachable("monitor-silent", message)
        .hint("`braid status` shows whether it runs; `braid up` or `braid monitord` starts it")
}
