//! What the control plane does at each event.

use super::ControlPlane;
use super::context::{Context, Event, Purpose};
use crate::prelude::*;
use braid_control_protocol::{Answer, HostEvent};
use braid_host_leases::Answer as FencerAnswer;
use braid_wire::Failure;

impl ControlPlane {
    /// Handles an alarm, if it is one of this control plane.
    pub(crate) fn on_alarm(&mut self, cx: &mut Context, token: u64) {
        // An alarm of an earlier control plane has no event.
        let Some(event) = self.alarms.queue.remove(&token) else { return };
        match event {
            Event::Host(host, event) => self.on_host_event(cx, host, event),
            Event::Renewal { host, heartbeat } => self.on_renewal(cx, host, heartbeat),
            Event::LateHeartbeat { host, heartbeat } => self.on_late_heartbeat(cx, host, heartbeat),
            Event::LookForFencer => self.look_for_fencer(cx),
            Event::FencerTick(own) => self.on_fencer_tick(cx, own),
            Event::FencerQuestion { by, number, question } => self.on_fencer_question(cx, by, number, question),
            Event::FencerAnswer { to, number, answer } => self.answer_fencer(cx, to, number, answer),
            Event::Command { by, subject, command, answered } => {
                let answer = self.on_command(cx, &subject, command, (by, answered));
                if let (Some(answer), Some(tag)) = (answer, answered) {
                    self.answer(cx, by, tag, answer);
                }
            }
            Event::Answer { to, tag, answer } => self.answer_administrator(cx, to, tag, answer),
            Event::Wake(own) => self.wake_administrator(cx, own),
        }
    }

    /// Handles the outcome of a request that was made for this purpose.
    pub(crate) fn on_reply(&mut self, cx: &mut Context, purpose: Purpose, outcome: &HostOutcome) {
        match purpose {
            Purpose::Step(host) => {
                let event = if outcome.is_ok() { HostEvent::Did } else { HostEvent::Lost };
                self.on_host_event(cx, host, event);
            }
            Purpose::Question(own, tag) => self.answer_administrator(cx, own, tag, answer_of(outcome)),
            Purpose::Members(own, tag, devices) => {
                let answer = match outcome {
                    Ok(HostSuccess::Membership(membership)) => Answer::of_members(membership, &devices),
                    _ => answer_of(outcome),
                };
                self.answer_administrator(cx, own, tag, answer);
            }
            Purpose::Fencing(own, number) => {
                // A fence without an answer may still happen.
                let answer = if outcome.is_ok() { FencerAnswer::Done } else { FencerAnswer::Unknown };
                self.answer_fencer(cx, own, number, answer);
            }
        }
    }
}

/// The answer to a question that a host was asked.
fn answer_of(outcome: &HostOutcome) -> Answer {
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
