//! The machine that joins a candidate and, while it leads, a monitor.

use crate::messages::{Input, Outgoing};
use crate::record_disk::RecordDisk;
use braid_base::{Now, Rng, Time, VolumeId};
use braid_layout::VolumeDescription;
use braid_leadership::{Candidate, CandidateId, Effect, Head, Mark, QuestionId, Times, WriteId};
use braid_machine::{ControlRequest, Effect as MonitorEffect, Ignored, Machine, MonitorEffects, OpId};
use braid_membership::leadership::{CurrentId, Term};
use braid_membership::{Monitor, MonitorConfig, MonitorService};
use std::collections::BTreeMap;

type MonitorInput = braid_machine::Input<ControlRequest>;

/// A monitor that leads, or may lead.
#[derive(Clone, Debug)]
pub struct Registrar {
    candidate: Candidate,
    /// What the monitor of each term is begun with, and all volumes.
    config: MonitorConfig,
    volumes: BTreeMap<VolumeId, VolumeDescription>,
    leading: Option<Box<Leading>>,
    /// The last number of a read, a write or a question.
    last: u64,
}

/// The term of this one.
#[derive(Clone, Debug)]
struct Leading {
    won: Head,
    monitor: Monitor,
    disk: RecordDisk,
    /// The monitor's answers that the candidate was asked about.
    deferred: BTreeMap<QuestionId, CurrentId>,
}

impl Registrar {
    /// A candidate that starts. `nonces` is never the same for two starts. `seen`: the newest mark that it had seen before, if that is known.
    pub fn new(now: Time, id: CandidateId, config: MonitorConfig, nonces: Rng, seen: Option<Mark>) -> Registrar {
        let times = Times { lease: config.settings.device_lease, ..Times::default() };
        let candidate = Candidate::new(now, id, times, nonces, seen);
        Registrar { candidate, config, volumes: BTreeMap::new(), leading: None, last: 0 }
    }

    /// The head with which it has won, and its monitor, while it leads.
    pub fn leads(&self) -> Option<(&Head, &Monitor)> {
        self.leading.as_ref().map(|leading| (&leading.won, &leading.monitor))
    }

    /// What it has seen of the history: kept over restarts, as well as possible.
    pub fn seen(&self) -> Option<Mark> {
        self.candidate.seen()
    }

    /// When it is to be woken.
    pub fn deadline(&self) -> Option<Time> {
        let leading = self.leading.as_ref();
        let of_monitor = leading.and_then(|leading| leading.monitor.deadline());
        let of_disk = leading.and_then(|leading| leading.disk.deadline());
        [self.candidate.deadline(), of_monitor, of_disk].into_iter().flatten().min()
    }

    pub fn step(&mut self, now: Now, input: Input, out: &mut MonitorEffects) -> Vec<Outgoing> {
        let mut calls = Vec::new();
        let cx = &mut Cx { now, out, calls: &mut calls };
        match input {
            // The monitor of a term is started when the term begins.
            Input::Monitor(MonitorInput::Start | MonitorInput::Wake) => {
                self.decide(cx, braid_leadership::Input::Wake);
                let is_due = |leading: &Leading| leading.monitor.deadline().is_some_and(|due| due <= now.time);
                if self.leading.as_deref().is_some_and(is_due) {
                    self.monitor(cx, MonitorInput::Wake);
                }
            }
            Input::Monitor(MonitorInput::Request { op, request }) => self.on_request(cx, op, request),
            Input::Monitor(input) if self.leading.is_some() => self.monitor(cx, input),
            Input::Monitor(_) => cx.out.ignore(Ignored::NotStarted),
            Input::Answer { call, answer } => self.decide(cx, braid_leadership::Input::Answer { call, answer }),
            Input::Message { from, message } => self.decide(cx, braid_leadership::Input::Message { from, message }),
            Input::Resign => self.decide(cx, braid_leadership::Input::Resign),
            Input::Record { read, found } => {
                let leading = self.leading.as_mut();
                if let Some((tag, result)) =
                    leading.and_then(|leading| leading.disk.on_read(read, found, leading.won.nonce))
                {
                    self.monitor(cx, MonitorInput::DiskDone { tag, result });
                }
            }
        }
        let due = self.leading.as_mut().and_then(|leading| leading.disk.due(now.time));
        calls.extend(due.map(|read| Outgoing::ReadRecord { read }));
        calls
    }

    /// Asserts what must hold between steps.
    pub fn invariants(&self) {
        if let Some(leading) = &self.leading {
            leading.monitor.invariants();
        }
    }

    /// A request of the control plane, which also the monitors of later terms must know.
    fn on_request(&mut self, cx: &mut Cx, op: OpId, request: ControlRequest) {
        let mut answers = MonitorEffects::new();
        match &mut self.leading {
            Some(leading) => {
                let request = request.clone();
                leading.monitor.step(cx.now, MonitorInput::Request { op, request }, &mut answers);
            }
            None => answers.reply(op, Ok(())),
        }
        let is_refused = |effect: &MonitorEffect<_, _>| matches!(effect, MonitorEffect::Reply { outcome: Err(_), .. });
        if !answers.as_slice().iter().any(is_refused) {
            match request {
                ControlRequest::AdoptVolume { volume } => drop(self.volumes.insert(volume.id, volume)),
                ControlRequest::DropVolume { volume } => drop(self.volumes.remove(&volume)),
                ControlRequest::NoteGenerations { last } => {
                    self.config.last_generation = self.config.last_generation.max(last);
                }
            }
        }
        self.follow(cx, &mut answers);
    }

    /// Has the candidate take a step, and does what follows.
    fn decide(&mut self, cx: &mut Cx, input: braid_leadership::Input) {
        for effect in self.candidate.step(cx.now.time, input) {
            match effect {
                Effect::Read { call } => cx.calls.push(Outgoing::Read { call }),
                Effect::Swap { call, expected, head, write } => {
                    let disk = self.leading.as_ref().map(|leading| &leading.disk);
                    let of = |id| disk.and_then(|disk| disk.written_by(id)).expect("its monitor waits for it").clone();
                    let write = write.map(of);
                    cx.calls.push(Outgoing::Swap { call, expected, head, write });
                }
                Effect::Send { to, message } => cx.calls.push(Outgoing::Send { to, message }),
                Effect::Won { head, wait, follows } => self.begin(cx, head, Term { wait, follows }),
                Effect::Written(id) => self.on_write(cx, id),
                Effect::RefusedWrite(_) => {}
                Effect::Current(question) => self.on_question(cx, question, true),
                Effect::RefusedQuestion(question) => self.on_question(cx, question, false),
                Effect::Ended | Effect::Lost { .. } | Effect::Stopped { .. } => self.leading = None,
            }
        }
    }

    /// It leads from now on.
    fn begin(&mut self, cx: &mut Cx, won: Head, term: Term) {
        let monitor = Monitor::new(MonitorConfig { term: Some(term), ..self.config.clone() });
        let disk = RecordDisk::default();
        self.leading = Some(Box::new(Leading { won, monitor, disk, deferred: BTreeMap::new() }));
        self.monitor(cx, MonitorInput::Start);
        let mut answers = MonitorEffects::new();
        for volume in self.volumes.values().cloned() {
            let (op, request) = (OpId::front_end(0), ControlRequest::AdoptVolume { volume });
            let leading = self.leading.as_mut().expect("it has just begun");
            // Before it serves, it takes all.
            leading.monitor.step(cx.now, MonitorInput::Request { op, request }, &mut answers);
        }
    }

    /// Has the monitor take a step, and does what follows.
    fn monitor(&mut self, cx: &mut Cx, input: MonitorInput) {
        let may_grant = self.candidate.may_grant(cx.now.time);
        let Some(leading) = &mut self.leading else { return };
        let mut effects = MonitorEffects::new();
        leading.monitor.may_grant(may_grant);
        leading.monitor.step(cx.now, input, &mut effects);
        self.follow(cx, &mut effects);
    }

    /// Does what follows from a step of the monitor.
    fn follow(&mut self, cx: &mut Cx, effects: &mut MonitorEffects) {
        effects.drain_ignored().for_each(|why| cx.out.ignore(why));
        for effect in effects.drain() {
            match effect {
                MonitorEffect::Disk { tag, command } => {
                    self.last += 1;
                    let Some(leading) = &mut self.leading else { return };
                    if leading.disk.begin(tag, command, self.last) {
                        let write = WriteId(self.last);
                        self.decide(cx, braid_leadership::Input::Write { write, candidates: None });
                    }
                }
                other => cx.out.push(other),
            }
        }
        let Some(leading) = &mut self.leading else { return };
        if let MonitorService::Unusable(_) = leading.monitor.service() {
            // Another one may be able to.
            return self.decide(cx, braid_leadership::Input::Resign);
        }
        for id in leading.monitor.take_deferred() {
            self.last += 1;
            let question = QuestionId(self.last);
            let Some(leading) = &mut self.leading else { return };
            leading.deferred.insert(question, id);
            self.decide(cx, braid_leadership::Input::Question(question));
        }
    }

    fn on_write(&mut self, cx: &mut Cx, id: WriteId) {
        let leading = self.leading.as_mut();
        if let Some((tag, result)) = leading.and_then(|leading| leading.disk.on_write(id)) {
            self.monitor(cx, MonitorInput::DiskDone { tag, result });
        }
    }

    fn on_question(&mut self, cx: &mut Cx, question: QuestionId, has_led: bool) {
        let Some(leading) = &mut self.leading else { return };
        if let Some(id) = leading.deferred.remove(&question) {
            let mut effects = MonitorEffects::new();
            leading.monitor.end_deferred(cx.now, id, has_led, &mut effects);
            self.follow(cx, &mut effects);
        }
    }
}

/// The time and the effects of a step.
struct Cx<'a> {
    now: Now,
    out: &'a mut MonitorEffects,
    calls: &'a mut Vec<Outgoing>,
}
