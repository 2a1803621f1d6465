//! A candidate as the machine of a node: a registrar, with what it wants of the registry and of other candidates, and what is to be checked
//! of it. [`crate::candidates`] fetches that after each step.

use crate::prelude::*;
use braid_machine::{ControlOutcome, Effect, Effects, Machine, MonitorEffects, OneDisk};
use braid_registrar::{Input, Outgoing, Registrar};
use braid_wire::{Message, MonitorAnswer, MonitorCommand, MonitorReply, MonitorRequest};

/// The most candidates of a run.
pub(crate) const MOST: u16 = 3;

/// The node of a candidate. Nodes know it as the monitor, so the wire has no name for it. In the world it has the name of a file system that
/// no run has.
pub(crate) fn node_of(candidate: u16) -> NodeId {
    NodeId::MetadataServer(FileSystemId(u16::MAX - candidate))
}

/// The number of a candidate, if the node is one.
pub(crate) fn number_of(node: NodeId) -> Option<usize> {
    (0..MOST).find(|candidate| node_of(*candidate) == node).map(usize::from)
}

/// A registrar with what its last step wants of the registry and of other candidates, and what is to be checked of it.
#[derive(Clone, Debug)]
pub struct Candidacy {
    pub(crate) registrar: Registrar,
    pub(crate) outgoing: Vec<Outgoing>,
    /// With the term in which it was.
    pub(crate) said: Vec<(u64, Said)>,
}

/// What a candidate was asked, or has said.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Said {
    /// A host has asked about an ownership, with this ticket.
    Question(NodeId, u64),
    /// It was answered.
    Answered(NodeId, u64),
    /// A device got a lease.
    Granted,
}

impl Candidacy {
    /// A candidate that starts.
    pub(crate) fn new(registrar: Registrar) -> Candidacy {
        Candidacy { registrar, outgoing: Vec::new(), said: Vec::new() }
    }
}

impl Machine for Candidacy {
    type Request = Input;
    type Outcome = ControlOutcome;
    type Disk = OneDisk;

    fn step(&mut self, now: Now, input: braid_machine::Input<Input>, out: &mut MonitorEffects) {
        if let braid_machine::Input::Message { from, message: Message::MonitorRequest(asked), .. } = &input
            && let MonitorRequest { command: MonitorCommand::Ownership { ticket, .. }, .. } = asked
        {
            self.said.push((0, Said::Question(*from, *ticket)));
        }
        let input = match input {
            braid_machine::Input::Request { request, .. } => request,
            braid_machine::Input::Start => Input::Monitor(braid_machine::Input::Start),
            braid_machine::Input::Wake => Input::Monitor(braid_machine::Input::Wake),
            braid_machine::Input::Message { to, from, message } => {
                Input::Monitor(braid_machine::Input::Message { to, from, message })
            }
            braid_machine::Input::DiskDone { .. } => unreachable!("its disk is the registry"),
        };
        let term = |registrar: &Registrar| registrar.leads().map(|(head, _)| head.term);
        let (mut effects, before) = (Effects::new(), term(&self.registrar));
        self.outgoing.extend(self.registrar.step(now, input, &mut effects));
        // It may have ended in this step.
        let term = term(&self.registrar).or(before).unwrap_or_default();
        for effect in effects.as_slice() {
            let Effect::Send { to, message: Message::MonitorAnswer(MonitorAnswer { reply, .. }) } = effect else {
                continue;
            };
            self.said.extend(match (to, reply) {
                (_, MonitorReply::Ownership { ticket, .. }) => Some((term, Said::Answered(*to, *ticket))),
                (NodeId::Device(_), MonitorReply::Lease { .. }) => Some((term, Said::Granted)),
                _ => None,
            });
        }
        out.absorb(&mut effects, |outcome| outcome, |command| command);
    }

    fn deadline(&self) -> Option<Time> {
        self.registrar.deadline()
    }

    fn invariants(&self) {
        self.registrar.invariants();
    }
}
