//! The administrators: each belongs to a host, through which it reaches the devices and the monitor. It dies with its host, and is suspended
//! with it.

use super::processes::{Name, OwnQuestion};
use super::{ControlPlane, Event, Purpose};
use crate::cluster::{Cluster, HostSlot, Record};
use crate::role::Role;
use braid_base::{Generation, MemberState, NodeId, VolumeId};
use braid_control_protocol::{
    Administrator, Answer, Creation, Deletion, DeviceChange, Done, Effect, Error, Input, Operation, Question, Stage,
    Tag, Timing, VolumeRecord, VolumeState, Work,
};
use braid_description::Subject;
use braid_machine::{ArrayRequest, HostError, HostOutcome, HostRequest, HostSuccess, JobRequest, Patience};
use braid_wire::Failure;
use std::time::Duration;

/// The pause before something is looked at again.
const PAUSE: Duration = Duration::from_millis(20);
/// A host that died as an administrator returns within this time.
pub(super) const RETURN_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Process {
    pub operation: Operation,
    pub subject: Subject,
    /// It does not settle what another one has begun.
    pub is_own: bool,
    /// It waits for a copy, and holds no record meanwhile.
    pub is_copying: bool,
}

impl Cluster {
    /// Has a host perform an operation on the volume.
    pub(crate) fn begin_operation(&mut self, by: HostSlot, operation: Operation) {
        self.begin_operation_on(by, Subject::Volume(self.volume.id, None), operation);
    }

    /// The same for any volume, or for a device.
    pub(crate) fn begin_operation_on(&mut self, by: HostSlot, subject: Subject, operation: Operation) {
        let own = self.generation(by);
        self.with_control(|cluster, control| {
            cluster.begin_administrator(control, own, Process { operation, subject, is_own: true, is_copying: false });
        });
    }

    /// True if a host performs an operation of its own, or has not heard how that ended.
    pub(crate) fn administers(&self, slot: HostSlot) -> bool {
        let own = self.generation(slot);
        self.control.as_ref().is_some_and(|control| control.has_administrator(own, true))
    }

    /// The same, also for operations that settle what another host has begun.
    pub(super) fn has_administrators(&self, slot: HostSlot) -> bool {
        let own = self.generation(slot);
        let has = |is_own| self.control.as_ref().is_some_and(|control| control.has_administrator(own, is_own));
        has(true) || has(false)
    }

    /// A host that sees what a dead administrator has begun completes or reverts that, in some cases.
    pub(super) fn settle_sometimes(&mut self, control: &mut ControlPlane, own: Generation) {
        // The host of a command about a file system, which creates and deletes volumes, does nothing else.
        let is_of_files =
            |process: &Process| matches!(process.subject, Subject::FileSystem(_) | Subject::NewFileSystem(_));
        if control.administrators.iter().any(|(name, process)| name.host == own && is_of_files(process)) {
            return;
        }
        // What a migration waits for may be the end of something that an operation of the same host has left.
        let mut processes = control.administrators.iter();
        let is_busy = processes.any(|(name, process)| name.host == own && process.is_own && !process.is_copying);
        let is_of_other = |by: Generation| by != own || !is_busy;
        let device = control.store.unsettled_devices().find(|(_, by)| is_of_other(*by)).map(|(device, _)| device);
        if let Some(device) = device
            && !control.has_administrator(own, false)
            && control.rng.below(8) == 0
        {
            let timing = Timing { turn: Duration::ZERO, ..Timing::default() };
            let operation = DeviceChange::continuing(own, device, timing).into();
            let subject = Subject::Device(device, None);
            return self.begin_administrator(
                control,
                own,
                Process { operation, subject, is_own: false, is_copying: false },
            );
        }
        // A host performs one creation or deletion of a volume at a time.
        let is_at_work = |volume: VolumeId| {
            let mut processes = control.administrators.iter();
            processes.any(|(name, process)| name.host == own && process.subject.volume() == Some(volume))
        };
        let may_settle = |record: &VolumeRecord, by| {
            let is_new_or_gone = matches!(record.state, VolumeState::Creating { .. } | VolumeState::Deleting { .. });
            is_of_other(by) && !(is_new_or_gone && is_at_work(record.volume.id))
        };
        let held = control.store.unsettled().find(|(record, by)| may_settle(record, *by));
        let Some((volume, state)) = held.map(|(record, _)| (record.volume.id, record.state.clone())) else { return };
        if !control.has_administrator(own, false) && control.rng.below(8) == 0 {
            let timing = Timing { turn: Duration::ZERO, ..Timing::default() };
            let operation = match state {
                VolumeState::Creating { .. } => Creation::continuing(own, timing).into(),
                VolumeState::Deleting { .. } => Deletion::continuing(own, timing).into(),
                _ => Administrator::settling(own, timing).into(),
            };
            self.begin_administrator(
                control,
                own,
                Process { operation, subject: Subject::Volume(volume, None), is_own: false, is_copying: false },
            );
        }
    }

    pub(super) fn begin_administrator(&mut self, control: &mut ControlPlane, host: Generation, process: Process) {
        control.last_administrator += 1;
        let own = Name { host, number: control.last_administrator };
        control.administrators.insert(own, process);
        self.give(control, own, Input::Start);
    }

    pub(super) fn answer_administrator(&mut self, control: &mut ControlPlane, own: Name, tag: Tag, answer: Answer) {
        if self.world.is_stalled(NodeId::Host(own.host)) {
            return self.schedule(control, PAUSE, Event::Answer { to: own, tag, answer });
        }
        self.give(control, own, Input::Answer { tag, answer });
    }

    pub(super) fn wake_administrator(&mut self, control: &mut ControlPlane, own: Name) {
        if self.world.is_stalled(NodeId::Host(own.host)) {
            return self.schedule(control, PAUSE, Event::Wake(own));
        }
        self.give(control, own, Input::Wake);
    }

    fn give(&mut self, control: &mut ControlPlane, own: Name, input: Input) {
        if self.slot_of(own.host).is_none() {
            // Its host has died.
            let process = control.administrators.remove(&own);
            control.replacement_ended |=
                process.is_some_and(|process| matches!(process.operation.work(), Work::Replacement(_)));
            return;
        }
        let now = self.time();
        let Some(process) = control.administrators.get_mut(&own) else { return };
        let effects = process.operation.step(now, input);
        let (subject, deadline) = (process.subject.clone(), process.operation.deadline());
        for effect in effects {
            match effect {
                Effect::Ask { tag, question } => self.route(control, (own, &subject), tag, question),
                Effect::Began(stage) => {
                    let is_copying = stage == Stage::Copying;
                    if is_copying {
                        control.count("copy of the volume begun");
                    }
                    control.administrators.get_mut(&own).expect("it is there").is_copying = is_copying;
                }
                Effect::Ended(result) => {
                    let process = control.administrators.remove(&own).expect("it is there");
                    control.count(name_of(&result, &process));
                    if let Work::Replacement(_) = process.operation.work() {
                        control.replacement_ended |= result.is_err();
                    }
                    control.ended.push((own, process.subject, result));
                }
            }
        }
        if let Some(deadline) = deadline.filter(|_| control.administrators.contains_key(&own)) {
            let span = deadline.since(now);
            self.schedule(control, span, Event::Wake(own));
        }
        self.harm(control, own);
    }

    /// An administrator with an operation of its own dies, or is suspended, at any of its steps.
    fn harm(&mut self, control: &mut ControlPlane, own: Name) {
        let Some(faults) = &control.faults else { return };
        let (deaths, pauses) = (faults.deaths, faults.pauses);
        let longest = 4 * self.control_lease().as_millis() as u64;
        if !control.administrators.get(&own).is_some_and(|process| process.is_own) {
            return;
        }
        let node = NodeId::Host(own.host);
        let drawn = control.rng.below(1000);
        if drawn < deaths {
            control.count("administrator died");
            self.files.disturb(self.time().after(RETURN_MAX));
            control.killed.push(node);
            self.crash(node);
        } else if drawn < deaths + pauses {
            control.count("administrator suspended");
            let span = Duration::from_millis(control.rng.below(longest) + 1);
            self.files.disturb(self.time().after(span));
            self.world.stall(node, span);
        }
    }

    /// Passes a question on to where it is answered.
    fn route(&mut self, control: &mut ControlPlane, (own, subject): (Name, &Subject), tag: Tag, question: Question) {
        let volume = subject.volume().unwrap_or(VolumeId(0));
        let answer = match question {
            Question::Store(command) => return self.send_command(control, (own, subject.clone()), tag, command),
            Question::Administer { request } => {
                return self.ask_host(control, own, tag, ArrayRequest::Administer { request });
            }
            Question::RunsOn { device, disk, is_whole } => {
                let member = self.membership().and_then(|members| members.member(device));
                let is_there = member.is_some_and(|member| match member.member_state {
                    MemberState::In => true,
                    MemberState::Returning { .. } => !is_whole,
                    MemberState::Out => false,
                });
                answered_by(is_there && self.device_notes.has_disk(device, disk))
            }
            Question::AreIn { devices } => {
                let purpose = Purpose::Members(own, tag, devices);
                return self.request(control, own.host, purpose, ArrayRequest::Membership);
            }
            Question::MonitorKnows { .. } => answered_by(self.membership().is_some()),
            Question::LockServersServe => {
                let is_up =
                    |server| matches!(self.world.machine(NodeId::LockServer(server)), Some(Role::LockServer(_)));
                let servers = self.lock_servers();
                answered_by(!servers.is_empty() && servers.into_iter().all(is_up))
            }
            Question::Fence(fence) => {
                let (below, except) = (fence.below, fence.except);
                return self.ask_host(control, own, tag, ArrayRequest::Fence { below, except });
            }
            Question::Manage { device, task } => {
                if !self.world.is_stalled(NodeId::Host(own.host)) && control.store.leases.has_lease(own.host) {
                    self.assert_unused(control, volume, &task);
                }
                return self.ask_host(control, own, tag, ArrayRequest::Manage { device, task });
            }
            Question::Copy { from } => {
                let rate = control.faults.as_ref().map_or(0, |faults| faults.copy_rate);
                // The volumes of a file system are large.
                let times = if self.files.uses(volume) { 16 } else { 1 };
                let bytes_per_second = times * rate;
                let request = JobRequest::Migrate { volume, from, bytes_per_second };
                return self.ask_host(control, own, tag, request);
            }
            question @ (Question::Ownership { .. }
            | Question::CreateVolume { .. }
            | Question::Format { .. }
            | Question::DeleteVolume { .. }
            | Question::Announce(_)
            | Question::Withdraw(_)
            | Question::Examine { .. }) => {
                let subject = subject.clone();
                return control.processes.asked.push(OwnQuestion { by: own, subject, tag, question });
            }
            Question::CopyProgress => {
                let host = self.world.machine(NodeId::Host(own.host)).and_then(Role::host);
                let progress = host.and_then(|host| host.migrating().find(|progress| progress.volume == volume));
                match progress {
                    Some(progress) => Answer::Copied { copied_to: progress.cursor, lost: progress.lost.into() },
                    None => Answer::No,
                }
            }
        };
        let way = control.way();
        self.schedule(control, way, Event::Answer { to: own, tag, answer });
    }

    fn ask_host(&mut self, control: &mut ControlPlane, own: Name, tag: Tag, request: impl Into<HostRequest>) {
        self.request(control, own.host, Purpose::Question(own, tag), request);
    }

    fn request(
        &mut self,
        control: &mut ControlPlane,
        host: Generation,
        purpose: Purpose,
        request: impl Into<HostRequest>,
    ) {
        if let Some(slot) = self.slot_of(host) {
            let op = self.expect(slot, 0, Patience::Host, Record::Nothing);
            control.asked.insert(op, purpose);
            self.world.request(NodeId::Host(host), op, request.into());
        }
    }
}

fn answered_by(yes: bool) -> Answer {
    if yes { Answer::Yes } else { Answer::No }
}

/// How an administrator ended, for the report.
fn name_of(result: &Result<Done, Error>, process: &Process) -> &'static str {
    use Error::{BlocksLost, CheckUnderWay, FileSystemExists, Held, HoldsVolumes, Incomplete, Interrupted, Lost};
    use Error::{
        NoDevice, NoLockServer, NoSpace, NotCopied, NotDrained, NotIn, NotSettled, NotYet, NumberUsed, Refused,
    };
    match (process.operation.work(), result, process.is_own) {
        (Work::Migration(_), Ok(_), _) => "migration ended",
        (Work::Migration(_), Err(Error::Migration | NotCopied), _) => "migration ended by another",
        (Work::Migration(_), Err(BlocksLost(_)), _) => "migration with lost blocks",
        (Work::Migration(_), Err(NotIn(_)), _) => "migration without a device",
        (Work::Migration(_), Err(Held(_) | Lost), _) => "migration while another administrator is at work",
        (Work::Migration(_), Err(_), _) => "migration without answers",
        (Work::Replacement(_), Ok(_), _) => "disk replaced by an administrator",
        (Work::Replacement(_), Err(Refused(_)), _) => "replacement refused",
        (Work::Replacement(_), Err(NotYet(_)), _) => "replacement without its device",
        (Work::Replacement(_), Err(_), _) => "replacement without answers",
        (Work::DeviceChange(_), Ok(Done::Changed), true) => "device added or removed",
        (Work::DeviceChange(_), Ok(Done::Changed), false) => "addition or removal of another host completed",
        (Work::DeviceChange(_), Ok(_), _) => "nothing to complete on a device",
        (Work::DeviceChange(_), Err(Refused(_)), _) => "addition or removal refused",
        (Work::DeviceChange(_), Err(NotYet(_)), _) => "added device not in yet",
        (Work::DeviceChange(_), Err(HoldsVolumes(_)), _) => "removal of a device with volumes",
        (Work::DeviceChange(_), Err(Held(_)), _) => "addition or removal while another is under way",
        (Work::DeviceChange(_), Err(Lost | NoDevice), _) => "addition or removal taken over",
        (Work::DeviceChange(_), Err(_), _) => "addition or removal without answers",
        (Work::Creation(_), Ok(Done::Changed), true) => "volume created",
        (Work::Creation(_), Ok(Done::Changed), false) => "creation of another host completed",
        (Work::Deletion(_), Ok(Done::Changed), true) => "volume deleted",
        (Work::Deletion(_), Ok(Done::Changed), false) => "deletion of another host completed",
        (Work::Creation(_) | Work::Deletion(_), Ok(_), _) => "nothing to create or delete",
        (Work::Creation(_), Err(Lost), _) => "creation taken over",
        (Work::Deletion(_), Err(Lost), _) => "deletion taken over",
        (Work::Creation(_) | Work::Deletion(_), Err(NumberUsed), _) => "creation with a used number",
        (Work::Creation(_) | Work::Deletion(_), Err(NotIn(_)), _) => "creation or deletion without a device",
        (Work::Creation(_) | Work::Deletion(_), Err(NotDrained(_)), _) => "deletion not drained",
        (Work::Creation(_) | Work::Deletion(_), Err(Held(_)), _) => "creation or deletion while another is under way",
        (Work::Creation(_), Err(_), _) => "creation failed otherwise",
        (Work::Deletion(_), Err(_), _) => "deletion failed otherwise",
        (Work::FileSystemCreation(_), Ok(_), _) => "file system created",
        (Work::FileSystemCreation(_), Err(FileSystemExists), _) => "creation of a file system that there is",
        (Work::FileSystemCreation(_), Err(Lost), _) => "creation of a file system taken over",
        (Work::FileSystemCreation(_), Err(Held(_) | Error::BeingDeleted), _) => "creation while another is under way",
        (Work::FileSystemCreation(_), Err(_), _) => "creation of a file system failed",
        (Work::FileSystemDeletion(_), Ok(Done::Changed), _) => "file system deleted",
        (Work::FileSystemDeletion(_), Ok(_), _) => "file system deleted by another",
        (Work::FileSystemDeletion(_), Err(_), _) => "deletion of a file system failed",
        (Work::FileSystemCheck(_), Ok(_), _) => "file system found sound",
        (Work::FileSystemCheck(_), Err(CheckUnderWay), _) => "check while another is under way",
        (Work::FileSystemCheck(_), Err(NotSettled(_)), _) => "check of servers that do not settle",
        (Work::FileSystemCheck(_), Err(Interrupted), _) => "check interrupted",
        (Work::FileSystemCheck(_), Err(_), _) => "check failed",
        (Work::Change(_), Ok(Done::Changed), true) => "change made",
        (Work::Change(_), Ok(Done::Changed), false) => "change of another host completed",
        (Work::Change(_), Ok(Done::Reverted), _) => "change reverted",
        (Work::Change(_), Ok(Done::Nothing), _) => "nothing to settle",
        (Work::Change(_), Err(Held(_)), _) => "change while another is under way",
        (Work::Change(_), Err(NotIn(_)), _) => "change without a device",
        (Work::Change(_), Err(NotDrained(_)), _) => "change not drained",
        (Work::Change(_), Err(Lost), _) => "change taken over",
        (Work::Change(_), Err(Incomplete(_)), _) => "change incomplete",
        (Work::Change(_), Err(Error::Question(_)), _) => "change without answers",
        (Work::Change(_), Err(NoLockServer(_)), _) => "change without a lock server",
        (Work::Change(_), Err(Error::Migration), _) => "change that does not fit a migration",
        (Work::Change(_), Err(NoSpace(_)), _) => "change without space",
        (Work::Change(_), Err(_), _) => "change failed otherwise",
    }
}

/// The answer to a question that a host was asked.
pub(super) fn answer_of(outcome: &HostOutcome) -> Answer {
    match outcome {
        Ok(HostSuccess::Migrated(report)) => Answer::Copied { copied_to: report.copied_to, lost: report.lost },
        Ok(_) => Answer::Yes,
        Err(HostError::NotMoving) => Answer::No,
        Err(HostError::AdminError(error)) => Answer::Refused(error.clone()),
        // An object that does not exist has been removed already.
        Err(HostError::Device { failure: Failure::NoSuchObject, .. }) => Answer::Yes,
        Err(HostError::Device { failure: Failure::InUse, .. }) => Answer::InUse,
        Err(HostError::Device { failure: Failure::NoSpace, .. }) => Answer::NoSpace,
        // A fence may still happen. A task is over for its host, which is fenced before another host takes over.
        Err(HostError::MonitorSilent { .. }) => Answer::Unknown,
        Err(_) => Answer::Failed,
    }
}
