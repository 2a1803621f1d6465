//! The machine that joins a candidate and, while it leads, a monitor and the store of the array.

use crate::array_store::{ArrayStore, Ask, Tell};
use crate::entries::{Content, Keys};
use crate::messages::{Input, Outgoing};
use crate::record_disk::RecordDisk;
use crate::requests::{Outcome, Refused, RequestId};
use braid_base::{Now, Rng, Time};
use braid_leadership::{Candidate, CandidateId, Effect, Head, Mark, QuestionId, Times, WriteId};
use braid_machine::{ControlOutcome, ControlRequest, Effect as MonitorEffect, Ignored, Machine, MonitorEffects, OpId};
use braid_membership::leadership::{CurrentId, Term};
use braid_membership::{Monitor, MonitorConfig, MonitorService};
use std::collections::BTreeMap;
use std::time::Duration;

type MonitorInput = braid_machine::Input<ControlRequest>;

/// A leader that could not read all keys for so long leaves the array to others.
const UNREADABLE: Duration = Duration::from_secs(10);

/// A monitor that leads, or may lead.
#[derive(Clone, Debug)]
pub struct Registrar {
    candidate: Candidate,
    times: Times,
    /// What the monitor of each term is begun with, beside what the registry says.
    config: MonitorConfig,
    leading: Option<Box<Leading>>,
    /// The last number of a read, a write or a question.
    last: u64,
    /// Why it could not use the registry when it led last.
    unusable: Option<Refused>,
}

/// The term of this one.
#[derive(Clone, Debug)]
struct Leading {
    won: Head,
    began: Time,
    term: Term,
    disk: RecordDisk,
    /// None until all keys are read.
    serving: Option<Serving>,
}

#[derive(Clone, Debug)]
struct Serving {
    monitor: Monitor,
    store: ArrayStore,
    /// The monitor's answers that the candidate was asked about.
    deferred: BTreeMap<QuestionId, CurrentId>,
}

impl Registrar {
    /// A candidate that starts. `nonces` is never the same for two starts. `seen`: the newest mark that it had seen before, if that is known.
    /// The registry says which generation was given last, and which volumes there are.
    pub fn new(now: Time, id: CandidateId, config: MonitorConfig, nonces: Rng, seen: Option<Mark>) -> Registrar {
        let times = Times { lease: config.settings.device_lease, ..Times::default() };
        let candidate = Candidate::new(now, id, times, nonces, seen);
        Registrar { candidate, times, config, leading: None, last: 0, unusable: None }
    }

    /// The head with which it has won, and its monitor, while it leads and has read the registry.
    pub fn leads(&self) -> Option<(&Head, &Monitor)> {
        let leading = self.leading.as_ref()?;
        Some((&leading.won, &leading.serving.as_ref()?.monitor))
    }

    /// Why it could not use the registry when it led last: another release may be needed.
    pub fn unusable(&self) -> Option<&Refused> {
        self.unusable.as_ref()
    }

    /// What it has seen of the history: kept over restarts, as well as possible.
    pub fn seen(&self) -> Option<Mark> {
        self.candidate.seen()
    }

    /// When it is to be woken.
    pub fn deadline(&self) -> Option<Time> {
        let of_disk = self.leading.as_ref().and_then(|leading| leading.disk.deadline());
        let of_monitor = self.leads().and_then(|(_, monitor)| monitor.deadline());
        [self.candidate.deadline(), of_monitor, of_disk].into_iter().flatten().min()
    }

    pub fn step(&mut self, now: Now, input: Input, out: &mut MonitorEffects) -> Vec<Outgoing> {
        let mut calls = Vec::new();
        let cx = &mut Cx { now, out, calls: &mut calls };
        if let Some(serving) = self.serving() {
            serving.store.pass(now);
        }
        match input {
            // The monitor of a term is started when the term begins.
            Input::Monitor(braid_machine::Input::Start | braid_machine::Input::Wake) => {
                self.decide(cx, braid_leadership::Input::Wake);
                let is_due = |serving: &mut Serving| serving.monitor.deadline().is_some_and(|due| due <= now.time);
                if self.serving().is_some_and(is_due) {
                    self.monitor(cx, MonitorInput::Wake);
                }
            }
            Input::Monitor(input) if self.serving().is_some() => {
                self.monitor(cx, input.convert(|never| match never {}, |result| result));
            }
            Input::Monitor(_) => cx.out.ignore(Ignored::NotStarted),
            Input::Request { id, request } => {
                let may_grant = self.candidate.may_grant(now.time);
                match self.serving() {
                    Some(serving) => {
                        let outcome = serving.store.take(now.time, may_grant, id, request);
                        cx.reply(outcome.map(|outcome| (id, outcome)));
                        self.work(cx);
                    }
                    None => cx.reply([(id, Err(Refused::NotLeading))]),
                }
            }
            Input::Answer { call, answer } => self.decide(cx, braid_leadership::Input::Answer { call, answer }),
            Input::Message { from, message } => self.decide(cx, braid_leadership::Input::Message { from, message }),
            Input::Resign => self.decide(cx, braid_leadership::Input::Resign),
            Input::Found { read, found } => {
                let of = |leading: &Leading| leading.disk.on_read(read, found, leading.won.nonce);
                if let Some(keys) = self.leading.as_deref().and_then(of) {
                    self.on_keys(cx, &keys);
                }
            }
        }
        let can_not_read = |leading: &&Leading| leading.serving.is_none() && now.time.since(leading.began) > UNREADABLE;
        if self.unusable.is_none() && self.leading.as_deref().filter(can_not_read).is_some() {
            // The way to the registry may be such that heads pass, and large answers do not.
            self.unusable = Some(Refused::Unreadable);
            self.decide(cx, braid_leadership::Input::Resign);
        }
        let due = self.leading.as_mut().and_then(|leading| leading.disk.due(now.time));
        calls.extend(due.map(|read| Outgoing::ReadAll { read }));
        calls
    }

    /// Asserts what must hold between steps.
    pub fn invariants(&self) {
        if let Some((_, monitor)) = self.leads() {
            monitor.invariants();
        }
    }

    /// The revision of the description, if it leads. Its monitor knows the volumes of that.
    pub fn revision(&self) -> Option<u64> {
        self.leading.as_ref()?.serving.as_ref().map(|serving| serving.store.revision())
    }

    fn serving(&mut self) -> Option<&mut Serving> {
        self.leading.as_mut()?.serving.as_mut()
    }

    fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Has the candidate take a step, and does what follows.
    fn decide(&mut self, cx: &mut Cx, input: braid_leadership::Input) {
        for effect in self.candidate.step(cx.now.time, input) {
            match effect {
                Effect::Read { call } => cx.calls.push(Outgoing::Read { call }),
                Effect::Swap { call, expected, head, write } => {
                    let changes = write.map(|write| {
                        let leading = self.leading.as_ref().expect("only a leader writes");
                        let of_store = || leading.serving.as_ref()?.store.written_by(write);
                        let of_monitor = leading.disk.written_by(write).map(std::slice::from_ref);
                        of_monitor.or_else(of_store).expect("it waits for it").to_vec()
                    });
                    let changes = changes.unwrap_or_default();
                    cx.calls.push(Outgoing::Swap { call, expected, head, changes });
                }
                Effect::Send { to, message } => cx.calls.push(Outgoing::Send { to, message }),
                Effect::Won { head, wait, follows } => {
                    let (term, disk) = (Term { wait, follows }, RecordDisk::new(self.next_number()));
                    self.leading = Some(Box::new(Leading { won: head, began: cx.now.time, term, disk, serving: None }));
                    self.unusable = None;
                }
                Effect::Written(WriteId(number)) => self.on_done(cx, number),
                Effect::RefusedWrite(WriteId(number)) => self.on_refused(cx, number),
                Effect::Current(QuestionId(number)) => self.on_done(cx, number),
                Effect::RefusedQuestion(QuestionId(number)) => self.on_refused(cx, number),
                Effect::Ended | Effect::Lost { .. } | Effect::Stopped { .. } => {
                    let serving = self.leading.take().and_then(|leading| leading.serving);
                    cx.reply(serving.into_iter().flat_map(|serving| serving.store.end()));
                }
            }
        }
    }

    /// It leads, and the registry has these keys.
    fn on_keys(&mut self, cx: &mut Cx, keys: &Keys) {
        let leading = self.leading.as_mut().expect("it has read them for its term");
        if leading.serving.is_none() {
            leading.disk.answer(keys);
            if let Err(error) = self.serve(cx, keys) {
                // Another one may be able to.
                self.unusable = Some(error);
                return self.decide(cx, braid_leadership::Input::Resign);
            }
        }
        if let Some((tag, result)) = self.leading.as_mut().and_then(|leading| leading.disk.answer(keys)) {
            self.monitor(cx, MonitorInput::DiskDone { tag, result });
        }
    }

    /// From now on it serves.
    fn serve(&mut self, cx: &mut Cx, keys: &Keys) -> Result<(), Refused> {
        let leading = self.leading.as_mut().expect("it leads");
        let store = ArrayStore::new(cx.now, &leading.won, Content::of(keys)?, self.times.doubt)?;
        let (term, last_generation, devices) = (Some(leading.term), store.last_generation(), store.devices());
        let mut monitor = Monitor::new(MonitorConfig { term, last_generation, devices, ..self.config.clone() });
        let mut effects = MonitorEffects::new();
        monitor.step(cx.now, MonitorInput::Start, &mut effects);
        for volume in store.volumes().values().cloned() {
            // Before it serves, it takes all.
            let _ = tell(&mut monitor, cx.now, ControlRequest::AdoptVolume { volume }, &mut effects);
        }
        leading.serving = Some(Serving { monitor, store, deferred: BTreeMap::new() });
        self.follow(cx, &mut effects);
        Ok(())
    }

    /// Has the monitor take a step, and does what follows.
    fn monitor(&mut self, cx: &mut Cx, input: MonitorInput) {
        let may_grant = self.candidate.may_grant(cx.now.time);
        let Some(serving) = self.serving() else { return };
        let mut effects = MonitorEffects::new();
        serving.monitor.may_grant(may_grant);
        serving.monitor.step(cx.now, input, &mut effects);
        self.follow(cx, &mut effects);
    }

    /// Does what follows from a step of the monitor.
    fn follow(&mut self, cx: &mut Cx, effects: &mut MonitorEffects) {
        effects.drain_ignored().for_each(|why| cx.out.ignore(why));
        for effect in effects.drain() {
            match effect {
                MonitorEffect::Disk { tag, command } => {
                    let number = self.next_number();
                    let Some(leading) = &mut self.leading else { return };
                    if leading.disk.begin(tag, command, number) {
                        let write = WriteId(number);
                        self.decide(cx, braid_leadership::Input::Write { write, candidates: None });
                    }
                }
                other => cx.out.push(other),
            }
        }
        let Some(serving) = self.serving() else { return };
        if let MonitorService::Unusable(_) = serving.monitor.service() {
            // Another one may be able to.
            return self.decide(cx, braid_leadership::Input::Resign);
        }
        for id in serving.monitor.take_deferred() {
            let question = QuestionId(self.next_number());
            let Some(serving) = self.serving() else { return };
            serving.deferred.insert(question, id);
            self.decide(cx, braid_leadership::Input::Question(question));
        }
    }

    /// Has the store do something, which tells the monitor what it must know.
    fn with_store<T>(&mut self, cx: &mut Cx, act: impl FnOnce(&mut ArrayStore, Tell) -> T) -> Option<T> {
        let may_grant = self.candidate.may_grant(cx.now.time);
        let Serving { monitor, store, .. } = self.serving()?;
        monitor.may_grant(may_grant);
        let mut effects = MonitorEffects::new();
        let result = act(store, &mut |request| tell(monitor, cx.now, request, &mut effects));
        self.follow(cx, &mut effects);
        Some(result)
    }

    /// The store goes on, if it can.
    fn work(&mut self, cx: &mut Cx) {
        let number = self.next_number();
        match self.with_store(cx, |store, tell| store.begin(number, tell)).flatten() {
            Some(Ask::Write(write, candidates)) => {
                self.decide(cx, braid_leadership::Input::Write { write, candidates });
            }
            Some(Ask::Question(question)) => self.decide(cx, braid_leadership::Input::Question(question)),
            None => {}
        }
    }

    /// The write of this number is durable, or the question may be answered.
    fn on_done(&mut self, cx: &mut Cx, number: u64) {
        let Some(leading) = &mut self.leading else { return };
        if let Some((tag, result)) = leading.disk.on_write(WriteId(number)) {
            self.monitor(cx, MonitorInput::DiskDone { tag, result });
        } else if let Some(id) = self.serving().and_then(|serving| serving.deferred.remove(&QuestionId(number))) {
            self.end_deferred(cx, id, true);
        } else {
            let answers = self.with_store(cx, |store, tell| store.on_done(number, tell));
            cx.reply(answers.into_iter().flatten());
            self.work(cx);
        }
    }

    fn on_refused(&mut self, cx: &mut Cx, number: u64) {
        let Some(serving) = self.serving() else { return };
        if let Some(id) = serving.deferred.remove(&QuestionId(number)) {
            self.end_deferred(cx, id, false);
        } else {
            // The monitor waits for a write of its own until its term is over.
            cx.reply(serving.store.on_refused(number));
            self.work(cx);
        }
    }

    fn end_deferred(&mut self, cx: &mut Cx, id: CurrentId, has_led: bool) {
        let Some(serving) = self.serving() else { return };
        let mut effects = MonitorEffects::new();
        serving.monitor.end_deferred(cx.now, id, has_led, &mut effects);
        self.follow(cx, &mut effects);
    }
}

/// Tells the monitor something of the control plane.
fn tell(monitor: &mut Monitor, now: Now, request: ControlRequest, effects: &mut MonitorEffects) -> ControlOutcome {
    let (mut own, mut outcome) = (MonitorEffects::new(), Ok(()));
    monitor.step(now, MonitorInput::Request { op: OpId::front_end(0), request }, &mut own);
    own.drain_ignored().for_each(|why| effects.ignore(why));
    for effect in own.drain() {
        match effect {
            MonitorEffect::Reply { outcome: answer, .. } => outcome = answer,
            other => effects.push(other),
        }
    }
    outcome
}

/// The time and the effects of a step.
struct Cx<'a> {
    now: Now,
    out: &'a mut MonitorEffects,
    calls: &'a mut Vec<Outgoing>,
}

impl Cx<'_> {
    fn reply(&mut self, answers: impl IntoIterator<Item = (RequestId, Outcome)>) {
        self.calls.extend(answers.into_iter().map(|(id, outcome)| Outgoing::Reply { id, outcome }));
    }
}
