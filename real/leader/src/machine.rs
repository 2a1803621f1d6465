//! A registrar as the machine of a node. What it wants of the registry, of other candidates and of processes goes into a channel.

use crate::candidate::{CandidateState, ReportMaker};
use braid_base::{Level, NodeId, Now, Time};
use braid_leadership::Mark;
use braid_machine::{Abandon, Effect, Effects, Machine, MonitorEffects, NoDisk, OpId};
use braid_registrar::{Input, Outgoing, Registrar};
use braid_wire::{Message, MonitorAnswer, MonitorReply};
use tokio::sync::{mpsc, watch};

pub(crate) struct CandidateMachine {
    pub registrar: Registrar,
    /// The candidate that runs it makes few calls at a time, so the channel needs no bound.
    pub outgoing: mpsc::UnboundedSender<Outgoing>,
    pub state: watch::Sender<CandidateState>,
    /// What it has seen of the history.
    pub seen: watch::Sender<Option<Mark>>,
    pub report: ReportMaker,
    /// The last report of the monitor, while it leads.
    pub reported: watch::Sender<Option<String>>,
}

/// An input that comes from the candidate that runs the machine.
#[derive(Debug)]
pub(crate) struct Told(pub Input);

impl Abandon for Told {
    fn abandon(_: Vec<OpId>) -> Option<Told> {
        None
    }
}

impl CandidateMachine {
    /// Which leases devices get, in which term: so the logs of all candidates show whether two of them granted at the same time.
    fn note_grants(&self, effects: &MonitorEffects) {
        let Some((head, _)) = self.registrar.leads() else { return };
        for effect in effects.as_slice() {
            if let Effect::Send { to: NodeId::Device(device), message: Message::MonitorAnswer(answer) } = effect
                && matches!(answer, MonitorAnswer { reply: MonitorReply::Lease { .. }, .. })
            {
                tracing::debug!(target: "braid_leader::grants", "grants device {} a lease in term {}", device.0, head.term);
            }
        }
    }
}

impl Machine for CandidateMachine {
    type Request = Told;
    /// It was taken. What comes of it follows.
    type Outcome = ();
    type Disk = NoDisk;

    fn step(&mut self, now: Now, input: braid_machine::Input<Told, NoDisk>, out: &mut Effects<(), NoDisk>) {
        let input = match input {
            braid_machine::Input::Request { op, request: Told(input) } => {
                out.reply(op, ());
                input
            }
            braid_machine::Input::Start => Input::Monitor(braid_machine::Input::Start),
            braid_machine::Input::Wake => Input::Monitor(braid_machine::Input::Wake),
            braid_machine::Input::Message { to, from, message } => {
                Input::Monitor(braid_machine::Input::Message { to, from, message })
            }
            braid_machine::Input::DiskDone { result, .. } => match result {},
        };
        let mut effects = MonitorEffects::new();
        for wanted in self.registrar.step(now, input, &mut effects) {
            // Without a receiver, the candidate has ended.
            let _ = self.outgoing.send(wanted);
        }
        self.note_grants(&effects);
        out.absorb(
            &mut effects,
            |_| unreachable!("it was asked nothing"),
            |_| unreachable!("its disk is the registry"),
        );
        let state = CandidateState::of(&self.registrar);
        self.state.send_if_modified(|before| std::mem::replace(before, state.clone()) != state);
        let seen = self.registrar.seen();
        self.seen.send_if_modified(|before| std::mem::replace(before, seen) != seen);
        match self.registrar.leads().zip(self.registrar.revision()) {
            Some(((_, monitor), revision)) => {
                let report = (self.report)(now, monitor, revision);
                self.reported.send_if_modified(|last| report.is_some().then(|| *last = report).is_some());
            }
            None => drop(self.reported.send_if_modified(|last| last.take().is_some())),
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.registrar.deadline()
    }

    fn level(&self) -> Level {
        self.registrar.leads().map_or(Level::FIRST, |(_, monitor)| monitor.level())
    }

    fn invariants(&self) {
        self.registrar.invariants();
    }
}
