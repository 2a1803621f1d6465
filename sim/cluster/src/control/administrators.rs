//! The administrators: each belongs to a host, through which it reaches the devices and the monitor. It dies with its host, and is suspended
//! with it.

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

/// Names an administrator: a host may have two, one of which settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub host: Generation,
    number: u64,
}

#[derive(Debug)]
pub(super) struct Process {
    operation: Operation,
    subject: Subject,
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

    fn begin_administrator(&mut self, control: &mut ControlPlane, host: Generation, process: Process) {
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
                    control.ended.push((own.host, result));
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
            Question::Ownership { .. }
            | Question::CreateVolume { .. }
            | Question::Format { .. }
            | Question::DeleteVolume { .. }
            | Question::Announce(_)
            | Question::Withdraw(_)
            | Question::Examine { .. } => unreachable!("runs with a control plane have no file systems"),
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
    if let Work::Migration(_) = process.operation.work() {
        return match result {
            Ok(_) => "migration ended",
            Err(Error::Migration | Error::NotCopied) => "migration ended by another",
            Err(Error::BlocksLost(_)) => "migration with lost blocks",
            Err(Error::NotIn(_)) => "migration without a device",
            Err(Error::Held(_) | Error::Lost) => "migration while another administrator is at work",
            Err(_) => "migration without answers",
        };
    }
    if let Work::Replacement(_) = process.operation.work() {
        return match result {
            Ok(_) => "disk replaced by an administrator",
            Err(Error::Refused(_)) => "replacement refused",
            Err(Error::NotYet(_)) => "replacement without its device",
            Err(_) => "replacement without answers",
        };
    }
    if let Work::DeviceChange(_) = process.operation.work() {
        return match (result, process.is_own) {
            (Ok(Done::Changed), true) => "device added or removed",
            (Ok(Done::Changed), false) => "addition or removal of another host completed",
            (Ok(_), _) => "nothing to complete on a device",
            (Err(Error::Refused(_)), _) => "addition or removal refused",
            (Err(Error::NotYet(_)), _) => "added device not in yet",
            (Err(Error::HoldsVolumes(_)), _) => "removal of a device with volumes",
            (Err(Error::Held(_)), _) => "addition or removal while another is under way",
            (Err(Error::Lost | Error::NoDevice), _) => "addition or removal taken over",
            (Err(_), _) => "addition or removal without answers",
        };
    }
    let is_creation = matches!(process.operation.work(), Work::Creation(_));
    if is_creation || matches!(process.operation.work(), Work::Deletion(_)) {
        return match (result, process.is_own) {
            (Ok(Done::Changed), true) if is_creation => "volume created",
            (Ok(Done::Changed), true) => "volume deleted",
            (Ok(Done::Changed), false) if is_creation => "creation of another host completed",
            (Ok(Done::Changed), false) => "deletion of another host completed",
            (Ok(_), _) => "nothing to create or delete",
            (Err(Error::NumberUsed), _) => "creation with a used number",
            (Err(Error::Lost), _) if is_creation => "creation taken over",
            (Err(Error::Lost), _) => "deletion taken over",
            (Err(Error::NotIn(_)), _) => "creation or deletion without a device",
            (Err(Error::NotDrained(_)), _) => "deletion not drained",
            (Err(Error::Held(_)), _) => "creation or deletion while another is under way",
            (Err(_), _) if is_creation => "creation failed otherwise",
            (Err(_), _) => "deletion failed otherwise",
        };
    }
    match result {
        Ok(Done::Changed) if process.is_own => "change made",
        Ok(Done::Changed) => "change of another host completed",
        Ok(Done::Reverted) => "change reverted",
        Ok(Done::Nothing) => "nothing to settle",
        Err(Error::Held(_)) => "change while another is under way",
        Err(Error::NotIn(_)) => "change without a device",
        Err(Error::NotDrained(_)) => "change not drained",
        Err(Error::Lost) => "change taken over",
        Err(Error::Incomplete(_)) => "change incomplete",
        Err(Error::Question(_)) => "change without answers",
        Err(Error::NoLockServer(_)) => "change without a lock server",
        Err(Error::Migration) => "change that does not fit a migration",
        Err(Error::NoSpace(_)) => "change without space",
        Err(_) => "change failed otherwise",
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
