//! The time of scripted scenarios: it passes until a request is answered, or for a while. At each moment, what must hold then is checked.

use crate::candidates::Told;
use crate::cluster::{Cluster, Failed, HostSlot, PATIENCE};
use crate::prelude::*;
use crate::{exclusion, member_state};

impl Cluster {
    /// The outcome of a request to a host that is not part of the history.
    pub fn perform(&mut self, slot: HostSlot, request: impl Into<MountRequest>) -> HostOutcome {
        let asked = self.ask(slot, request);
        self.finish(asked)
    }

    /// Runs until this request is answered.
    pub fn finish(&mut self, op: OpId) -> HostOutcome {
        let until = self.world.now().after(PATIENCE);
        while !self.requests.is_answered(op) && self.pass(until) {}
        let answer = self.requests.answered.remove(&op);
        answer.unwrap_or_else(|| panic!("request {} was not answered within {PATIENCE:?}", op.number))
    }

    /// Runs for a while.
    pub fn run_for(&mut self, span: Duration) {
        let until = self.world.now().after(span);
        while self.pass(until) {}
    }

    /// Advances a scenario to the next event; false if there is no event until `until`.
    pub(crate) fn pass(&mut self, until: Time) -> bool {
        let event = self.next(until);
        match event {
            Some(WorldEvent::Alarm(token)) => drop(self.on_control_alarm(token)),
            Some(WorldEvent::PowerFailed(node)) => self.forget(node),
            _ => {}
        }
        self.check_moment().unwrap_or_else(|failed| panic!("{}: {}", failed.check, failed.details));
        if let Some(WorldEvent::Reply { op, outcome, .. }) = &event {
            self.on_reply(*op, outcome).unwrap_or_else(|failed| panic!("{}: {}", failed.check, failed.details));
            if !self.on_control_reply(*op, outcome) {
                self.requests.answered.insert(*op, outcome.clone());
            }
        }
        event.is_some()
    }

    /// The next event that concerns more than the candidates and their registry.
    pub(crate) fn next(&mut self, until: Time) -> Option<WorldEvent> {
        loop {
            let event = self.world.next(until)?;
            let world = &mut self.world;
            let Some(candidates) = &mut self.candidates else { return Some(event) };
            let is_over = candidates.on_event(world, &event);
            let told = std::mem::take(&mut candidates.told);
            told.into_iter().for_each(|told| tell_control(self, told));
            if !is_over {
                return Some(event);
            }
        }
    }

    /// Checks the conditions that must hold at any moment of any run, as far as they are visible from outside.
    pub(crate) fn check_moment(&mut self) -> Result<(), Failed> {
        member_state::note_absence(self);
        member_state::note_unavailable(self);
        exclusion::check_exclusion(self)?;
        // No two hosts that are served hold locks of inodes that conflict.
        exclusion::check_held(self, &self.files.held_inode_locks(&self.world, &self.hosts))?;
        self.files.note_kept_out(&self.world, &self.hosts);
        exclusion::check_taken_over(self)?;
        self.control.as_ref().and_then(|control| control.failed.clone()).map_or(Ok(()), Err)?;
        self.sniffer.borrow().check_answers()?;
        self.candidates.as_ref().and_then(|candidates| candidates.failed.clone()).map_or(Ok(()), Err)?;
        member_state::check_membership(self)
    }
}

/// Tells the control plane, if there is one, what the registry has or the leader has answered.
fn tell_control(cluster: &mut Cluster, told: Told) {
    cluster.with_control(|control, cx| match told {
        Told::Description(description) => control.follow_description(cx, &description),
        Told::Answer(by, tag, answer) => control.answer_administrator(cx, by, tag, answer),
    });
}
