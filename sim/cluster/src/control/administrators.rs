//! The administrators: each belongs to a host, through which it reaches the devices and the monitor. It dies with its host, and is suspended
//! with it.

use super::administrator_state::{Administrator, Name, OwnQuestion};
use super::context::{Context, Event, Purpose};
use super::{ChangeOptions, ControlPlane};
use crate::prelude::*;
use braid_control_protocol::{
    Answer, Creation, Deletion, DeviceChange, Done, Effect, Error, Input, OperationKind, Question, Stage, Tag, Timing,
    VolumeChange, VolumeRecord, VolumeState,
};
use braid_machine::HostRequest;

/// The pause before something is looked at again.
const PAUSE: Duration = Duration::from_millis(20);

impl ControlPlane {
    pub(crate) fn begin_administrator(&mut self, cx: &mut Context, host: Generation, process: Administrator) -> Name {
        self.processes.last += 1;
        let own = Name { host, number: self.processes.last };
        self.processes.working.insert(own, process);
        self.give(cx, own, Input::Start);
        own
    }

    /// A host that sees what a dead administrator has begun completes or reverts that, in some cases.
    pub(super) fn settle_sometimes(&mut self, cx: &mut Context, own: Generation) {
        // The host of a command about a file system, which creates and deletes volumes, does nothing else.
        let is_of_files =
            |process: &Administrator| matches!(process.subject, Subject::FileSystem(_) | Subject::NewFileSystem(_));
        if self.processes.of(own).any(is_of_files) {
            return;
        }
        // What a migration waits for may be the end of something that an operation of the same host has left.
        let is_busy = self.processes.of(own).any(|process| process.is_own && !process.operation.is_copying());
        let is_of_other = |by: Generation| by != own || !is_busy;
        let timing = Timing { turn: Duration::ZERO, ..Timing::default() };
        // A record names an administrator by its host: a host has one at a time for a volume or a device. What can't be completed yet keeps
        // nothing else waiting.
        let is_at_device = |device| self.processes.of(own).any(|process| process.subject.device() == Some(device));
        let may_settle = |(device, by): &(DeviceId, Generation)| is_of_other(*by) && !is_at_device(device.0);
        let device = self.store.unsettled_devices().find(may_settle).map(|(device, _)| device);
        if let Some(device) = device
            && self.rng.below(8) == 0
        {
            let operation = DeviceChange::continuing(own, device, timing).into();
            self.begin_administrator(cx, own, Administrator::recovering(Subject::Device(device, None), operation));
            return;
        }
        // A migration that copies holds nothing, and ends if what is settled ends it.
        let is_at_volume = |process: &Administrator, volume| process.subject.volume() == Some(volume);
        let is_at_work =
            |volume| self.processes.of(own).any(|it| is_at_volume(it, volume) && !it.operation.is_copying());
        let may_settle = |record: &VolumeRecord, by| is_of_other(by) && !is_at_work(record.volume.id);
        let held = self.store.unsettled().find(|(record, by)| may_settle(record, *by));
        let Some((volume, state, from)) = held.map(|(record, by)| (record.volume.id, record.state.clone(), by)) else {
            return;
        };
        if self.rng.below(8) == 0 {
            let operation = match state {
                VolumeState::Creating { .. } => Creation::continuing(own, timing).into(),
                VolumeState::Deleting { .. } => Deletion::continuing(own, timing).into(),
                _ => VolumeChange::recovering(own, from, timing).into(),
            };
            self.begin_administrator(cx, own, Administrator::recovering(Subject::Volume(volume, None), operation));
        }
    }

    pub(crate) fn answer_administrator(&mut self, cx: &mut Context, own: Name, tag: Tag, answer: Answer) {
        if cx.is_stalled(own.host) {
            return cx.later(PAUSE, Event::Answer { to: own, tag, answer });
        }
        self.give(cx, own, Input::Answer { tag, answer });
    }

    pub(super) fn wake_administrator(&mut self, cx: &mut Context, own: Name) {
        if cx.is_stalled(own.host) {
            return cx.later(PAUSE, Event::Wake(own));
        }
        self.give(cx, own, Input::Wake);
    }

    fn give(&mut self, cx: &mut Context, own: Name, input: Input) {
        if !cx.is_up(own.host) {
            let process = self.processes.working.remove(&own);
            self.processes.replacement_ended |= process.is_some_and(|process| process.is_replacement());
            return;
        }
        let now = cx.now();
        let Some(process) = self.processes.working.get_mut(&own) else { return };
        let effects = process.operation.step(now, input);
        let (subject, deadline) = (process.subject.clone(), process.operation.deadline());
        for effect in effects {
            match effect {
                Effect::Ask { tag, question } => self.route(cx, (own, &subject), tag, question),
                Effect::Began(Stage::Copying) => self.count("copy of the volume begun"),
                Effect::Began(_) => {}
                Effect::Ended(result) => {
                    let process = self.processes.working.remove(&own).expect("it is there");
                    self.count(name_of(&result, &process));
                    self.processes.replacement_ended |= process.is_replacement() && result.is_err();
                    self.processes.ended.push((own, process.subject, result));
                }
            }
        }
        if let Some(deadline) = deadline.filter(|_| self.processes.working.contains_key(&own)) {
            cx.later(deadline.since(now), Event::Wake(own));
        }
        self.harm(cx, own);
    }

    /// An administrator with an operation of its own dies, or is suspended, at any of its steps.
    fn harm(&mut self, cx: &mut Context, own: Name) {
        let Some(ChangeOptions { deaths, pauses, .. }) = self.faults else { return };
        if !self.processes.working.get(&own).is_some_and(|process| process.is_own) {
            return;
        }
        let drawn = self.rng.below(1000);
        if drawn < deaths {
            self.count("administrator died");
            cx.end(own.host);
        } else if drawn < deaths + pauses {
            self.count("administrator suspended");
            let longest = 4 * cx.lease.as_millis() as u64;
            cx.suspend(own.host, Duration::from_millis(self.rng.below(longest) + 1));
        }
    }

    /// Passes a question on to where it is answered.
    fn route(&mut self, cx: &mut Context, (own, subject): (Name, &Subject), tag: Tag, question: Question) {
        let volume = subject.volume().unwrap_or(VolumeId(0));
        let request: HostRequest = match question {
            Question::Store(command) => return self.send_command(cx, (own, subject.clone()), tag, command),
            Question::Administer { request } => ArrayRequest::Administer { request }.into(),
            Question::AreIn { devices } => {
                let purpose = Purpose::Members(own, tag, devices);
                return cx.ask(own.host, ArrayRequest::Membership, Some(purpose));
            }
            Question::Fence(fence) => ArrayRequest::Fence { below: fence.below, except: fence.except }.into(),
            Question::Manage { device, task } => {
                if !cx.is_stalled(own.host) && self.store.leases.has_lease(own.host) {
                    self.assert_unused(cx, volume, &task);
                }
                ArrayRequest::Manage { device, task }.into()
            }
            Question::Copy { from } => {
                let rate = self.faults.as_ref().map_or(0, |faults| faults.copy_rate);
                // The volumes of a file system are large.
                let times = if cx.files.uses(volume) { 16 } else { 1 };
                JobRequest::Migrate { volume, from, bytes_per_second: times * rate }.into()
            }
            Question::Ownership { .. }
            | Question::CreateVolume { .. }
            | Question::Format { .. }
            | Question::DeleteVolume { .. }
            | Question::Announce(_)
            | Question::Withdraw(_)
            | Question::Examine { .. } => {
                let subject = subject.clone();
                return self.processes.asked.push(OwnQuestion { by: own, subject, tag, question });
            }
            Question::RunsOn { .. }
            | Question::MonitorKnows { .. }
            | Question::LockServersServe
            | Question::CopyProgress => return self.answer(cx, own, tag, seen(cx, own, volume, &question)),
        };
        cx.ask(own.host, request, Some(Purpose::Question(own, tag)));
    }

    /// An answer is on its way to an administrator.
    pub(super) fn answer(&mut self, cx: &mut Context, to: Name, tag: Tag, answer: Answer) {
        cx.later(self.way(), Event::Answer { to, tag, answer });
    }

    /// An administrator is about to remove a part of a volume: no host that is served may have anything under way there.
    fn assert_unused(&self, cx: &Context, volume: VolumeId, task: &Task) {
        let is_deleting = |record: &VolumeRecord| matches!(record.state, VolumeState::Deleting { .. });
        let is_removed = matches!(task, Task::RemoveObject { .. });
        if !is_removed || !self.store.record(volume).is_some_and(is_deleting) {
            return;
        }
        for node in cx.hosts {
            let NodeId::Host(generation) = *node else { continue };
            let Some(host) = cx.host(generation) else { continue };
            let is_served = self.store.leases.has_lease(generation) && !host.is_fenced();
            assert!(!is_served || host.is_idle_for(volume), "{node} still uses {volume:?}, which is being removed");
        }
    }
}

/// The answer to a question that only looks at the array.
fn seen(cx: &Context, own: Name, volume: VolumeId, question: &Question) -> Answer {
    let is_so = match question {
        Question::RunsOn { device, disk, is_whole } => {
            let member = cx.membership().and_then(|members| members.member(*device));
            let is_there = member.is_some_and(|member| match member.member_state {
                MemberState::In => true,
                MemberState::Returning { .. } => !is_whole,
                MemberState::Out => false,
            });
            is_there && cx.disks.get(device) == Some(disk)
        }
        Question::MonitorKnows { .. } => cx.membership().is_some(),
        Question::LockServersServe => {
            let is_up = |server: &LockServerId| cx.world.is_up(NodeId::LockServer(*server));
            !cx.lock_servers.is_empty() && cx.lock_servers.iter().all(is_up)
        }
        Question::CopyProgress => {
            let of_it = |host: &Host| host.migrating().find(|progress| progress.volume == volume);
            return match cx.host(own.host).and_then(of_it) {
                Some(progress) => Answer::Copied { copied_to: progress.cursor, lost: progress.lost.into() },
                None => Answer::No,
            };
        }
        other => unreachable!("it is asked elsewhere: {other:?}"),
    };
    if is_so { Answer::Yes } else { Answer::No }
}

/// How an administrator ended, for the report.
fn name_of(result: &Result<Done, Error>, process: &Administrator) -> String {
    let what = match process.operation.kind() {
        OperationKind::Change(_) => "change",
        OperationKind::Migration(_) => "migration",
        OperationKind::Replacement(_) => "replacement of a disk",
        OperationKind::DeviceChange(_) => "addition or removal of a device",
        OperationKind::Creation(_) => "creation of a volume",
        OperationKind::Deletion(_) => "deletion of a volume",
        OperationKind::FileSystemCreation(_) => "creation of a file system",
        OperationKind::FileSystemDeletion(_) => "deletion of a file system",
        OperationKind::FileSystemCheck(_) => "check of a file system",
    };
    match result {
        Ok(_) if matches!(process.operation.kind(), OperationKind::FileSystemCheck(_)) => format!("{what}: sound"),
        Ok(Done::Changed) if process.is_own => format!("{what}: done"),
        Ok(Done::Changed) => format!("{what}: done for another host"),
        Ok(Done::Reverted) => format!("{what}: reverted"),
        Ok(Done::Nothing) => format!("{what}: nothing to do"),
        Err(error) => {
            let error = format!("{error:?}");
            format!("{what}: {}", error.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default())
        }
    }
}
