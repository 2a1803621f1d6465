//! The administrators: each belongs to a host, through which it reaches the devices and the monitor. It dies with its host, and is suspended
//! with it.

use super::{ControlPlane, Event, Purpose};
use crate::cluster::{Cluster, HostSlot, Record};
use crate::role::Role;
use braid_base::{Generation, MemberState, NodeId};
use braid_control_protocol::{Administrator, Answer, Change, Done, Effect, Error, Input, Question, Tag, Timing};
use braid_machine::{ArrayRequest, HostError, HostOutcome};
use braid_wire::Failure;
use std::time::Duration;

/// The pause before something is looked at again.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Process {
    machine: Administrator,
    /// It makes a change of its own.
    changes: bool,
}

impl Cluster {
    /// Has a host change the volume.
    pub(crate) fn begin_change(&mut self, by: HostSlot, change: Change) {
        let NodeId::Host(own) = self.node(by) else { unreachable!("host slots hold hosts") };
        self.with_control(|cluster, control| {
            let machine = Administrator::changing(own, change, Timing::default());
            cluster.begin_administrator(control, own, Process { machine, changes: true });
        });
    }

    /// True if a host administers the volume, or has not heard how that ended.
    pub(crate) fn administers(&self, slot: HostSlot) -> bool {
        let NodeId::Host(own) = self.node(slot) else { return false };
        self.control.as_ref().is_some_and(|control| control.administrators.contains_key(&own))
    }

    /// A host that sees the volume on hold for a dead administrator settles that, in some cases.
    pub(super) fn settle_sometimes(&mut self, control: &mut ControlPlane, own: Generation) {
        let held_by_other =
            control.store.held_by().is_some_and(|by| by != own || !control.administrators.contains_key(&by));
        if held_by_other && !control.administrators.contains_key(&own) && control.rng.below(8) == 0 {
            let machine = Administrator::settling(own, Timing::default());
            self.begin_administrator(control, own, Process { machine, changes: false });
        }
    }

    fn begin_administrator(&mut self, control: &mut ControlPlane, own: Generation, process: Process) {
        control.administrators.insert(own, process);
        self.give(control, own, Input::Start);
    }

    pub(super) fn answer_administrator(
        &mut self,
        control: &mut ControlPlane,
        own: Generation,
        tag: Tag,
        answer: Answer,
    ) {
        if self.world.is_stalled(NodeId::Host(own)) {
            return self.schedule(control, PAUSE, Event::Answer { to: own, tag, answer });
        }
        self.give(control, own, Input::Answer { tag, answer });
    }

    pub(super) fn wake_administrator(&mut self, control: &mut ControlPlane, own: Generation) {
        if self.world.is_stalled(NodeId::Host(own)) {
            return self.schedule(control, PAUSE, Event::Wake(own));
        }
        self.give(control, own, Input::Wake);
    }

    fn give(&mut self, control: &mut ControlPlane, own: Generation, input: Input) {
        if self.slot_of(own).is_none() {
            // Its host has died.
            control.administrators.remove(&own);
            return;
        }
        let now = self.time();
        let Some(process) = control.administrators.get_mut(&own) else { return };
        let effects = process.machine.step(now, input);
        let deadline = process.machine.deadline();
        for effect in effects {
            match effect {
                Effect::Ask { tag, question } => self.route(control, own, tag, question),
                Effect::Began(_) => {}
                Effect::Ended(result) => {
                    let process = control.administrators.remove(&own).expect("it is there");
                    control.count(name_of(&result, process.changes));
                    control.ended.push((own, result));
                }
            }
        }
        if let Some(deadline) = deadline.filter(|_| control.administrators.contains_key(&own)) {
            let span = deadline.since(now);
            self.schedule(control, span, Event::Wake(own));
        }
        self.harm(control, own);
    }

    /// An administrator that makes a change dies, or is suspended, at any of its steps.
    fn harm(&mut self, control: &mut ControlPlane, own: Generation) {
        let Some(faults) = &control.faults else { return };
        let (deaths, pauses) = (faults.deaths, faults.pauses);
        let longest = 4 * self.control_lease().as_millis() as u64;
        if !control.administrators.get(&own).is_some_and(|process| process.changes) {
            return;
        }
        let node = NodeId::Host(own);
        let drawn = control.rng.below(1000);
        if drawn < deaths {
            control.count("administrator died");
            control.killed.push(node);
            self.crash(node);
        } else if drawn < deaths + pauses {
            control.count("administrator suspended");
            let span = Duration::from_millis(control.rng.below(longest) + 1);
            self.world.stall(node, span);
        }
    }

    /// Passes a question on to where it is answered.
    fn route(&mut self, control: &mut ControlPlane, own: Generation, tag: Tag, question: Question) {
        let answer = match question {
            Question::Store(command) => return self.send_command(control, own, tag, command),
            Question::AreIn { devices } => {
                let members = self.membership();
                let is_in = |device| {
                    let member = members.and_then(|members| members.member(device));
                    member.is_some_and(|member| member.member_state == MemberState::In)
                };
                match members {
                    Some(members) if devices.into_iter().all(is_in) => Answer::AllIn(members.epoch),
                    Some(members) => Answer::NotIn(members.epoch),
                    None => Answer::Unknown,
                }
            }
            Question::MonitorKnows { .. } => self.answered_by(self.membership().is_some()),
            Question::LockServersServe => {
                let is_up =
                    |server| matches!(self.world.machine(NodeId::LockServer(server)), Some(Role::LockServer(_)));
                let servers = self.lock_servers();
                self.answered_by(!servers.is_empty() && servers.into_iter().all(is_up))
            }
            Question::Fence(fence) => {
                let (below, except) = (fence.below, fence.except);
                return self.ask_host(control, own, tag, ArrayRequest::Fence { below, except });
            }
            Question::Manage { device, task } => {
                return self.ask_host(control, own, tag, ArrayRequest::Manage { device, task });
            }
        };
        let way = control.way();
        self.schedule(control, way, Event::Answer { to: own, tag, answer });
    }

    fn answered_by(&self, yes: bool) -> Answer {
        if yes { Answer::Yes } else { Answer::No }
    }

    fn ask_host(&mut self, control: &mut ControlPlane, own: Generation, tag: Tag, request: ArrayRequest) {
        if let Some(slot) = self.slot_of(own) {
            let op = self.begin(slot, 0, request, Record::Nothing);
            control.asked.insert(op, Purpose::Question(own, tag));
        }
    }
}

/// How an administrator ended, for the report.
fn name_of(result: &Result<Done, Error>, changes: bool) -> &'static str {
    match result {
        Ok(Done::Changed) if changes => "change made",
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
        Err(_) => "change failed otherwise",
    }
}

/// The answer to a question that a host was asked.
pub(super) fn answer_of(outcome: &HostOutcome) -> Answer {
    match outcome {
        Ok(_) => Answer::Yes,
        // An object that does not exist has been removed already.
        Err(HostError::Device { failure: Failure::NoSuchObject, .. }) => Answer::Yes,
        Err(HostError::Device { failure: Failure::InUse, .. }) => Answer::InUse,
        Err(HostError::Device { failure: Failure::NoSpace, .. }) => Answer::NoSpace,
        // A fence may still happen. A task is over for its host, which is fenced before another host takes over.
        Err(HostError::MonitorSilent { .. }) => Answer::Unknown,
        Err(_) => Answer::Failed,
    }
}
