//! Effects are the requests of a machine to its environment. A step collects them in a buffer that is reused.

use crate::{Disk, DiskTag, Never, OneDisk, OpId};
use braid_base::{DeviceId, NodeId, TransactionId};
use braid_wire::{Message, Outcome, Refusal, Step};

/// An action that the environment must perform.
#[derive(Clone, Debug)]
pub enum Effect<O = Never, D: Disk = OneDisk> {
    /// Send a message to another node.
    Send { to: NodeId, message: Message },
    /// Give a command to the machine's disk.
    Disk {
        /// Identifies the command in its result.
        tag: DiskTag,
        command: D::Command,
    },
    /// Answer a request of a front end or workload.
    Reply { op: OpId, outcome: O },
}

/// Why an input had no effect. This is not an error: networks and retries cause it. It is counted, and shown in traces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ignored {
    /// The machine does not wait for this answer, or no longer: a duplicate, or an answer that came after the decision.
    NotAwaited,
    /// The request is already being processed.
    InProgress,
    /// The request belongs to a transaction that its host has declared settled.
    Settled,
    /// This kind of node does not handle such messages.
    NotForUs,
    /// The answer is from another epoch.
    OtherEpoch,
    /// The machine has not finished starting.
    NotStarted,
    /// The device has no lease: it has not heard from the monitor for too long, or is just adopting a new membership.
    NoLease,
}

/// Why a machine decided as it did: for logs and traces alone, nothing depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A device has refused a request of a transaction.
    Refused { transaction: TransactionId, device: DeviceId, step: Step, refusal: Refusal },
    /// An operation is tried again, as a new transaction, after its back-off; none: a step of a background job.
    Retried { op: Option<OpId> },
    /// The outcome of a transaction was found out by asking its participants.
    Resolved { transaction: TransactionId, outcome: Outcome },
}

/// The most notes of a step. Further ones are dropped, so that an environment need not look at them.
const NOTES_MAX: usize = 64;

/// The effects of a step, and the inputs that it ignored.
#[derive(Clone, Debug)]
pub struct Effects<O = Never, D: Disk = OneDisk> {
    effects: Vec<Effect<O, D>>,
    ignored: Vec<Ignored>,
    notes: Vec<Note>,
}

impl<O, D: Disk> Default for Effects<O, D> {
    fn default() -> Self {
        Effects { effects: Vec::new(), ignored: Vec::new(), notes: Vec::new() }
    }
}

impl<O, D: Disk> Effects<O, D> {
    /// An empty buffer.
    pub fn new() -> Self {
        Effects::default()
    }

    /// Takes over the effects of a machine of other types, which this one runs.
    pub fn absorb<P, E: Disk>(
        &mut self,
        inner: &mut Effects<P, E>,
        outcome: impl Fn(P) -> O,
        command: impl Fn(E::Command) -> D::Command,
    ) {
        self.ignored.append(&mut inner.ignored);
        inner.drain_notes().for_each(|note| self.note(note));
        self.effects.extend(inner.effects.drain(..).map(|effect| match effect {
            Effect::Send { to, message } => Effect::Send { to, message },
            Effect::Disk { tag, command: given } => Effect::Disk { tag, command: command(given) },
            Effect::Reply { op, outcome: answer } => Effect::Reply { op, outcome: outcome(answer) },
        }));
    }

    pub fn push(&mut self, effect: Effect<O, D>) {
        self.effects.push(effect);
    }

    pub fn send(&mut self, to: NodeId, message: Message) {
        self.effects.push(Effect::Send { to, message });
    }

    pub fn disk(&mut self, tag: DiskTag, command: D::Command) {
        self.effects.push(Effect::Disk { tag, command });
    }

    /// Answers request `op`.
    pub fn reply(&mut self, op: OpId, outcome: O) {
        self.effects.push(Effect::Reply { op, outcome });
    }

    /// Records that the input had no effect.
    pub fn ignore(&mut self, why: Ignored) {
        self.ignored.push(why);
    }

    pub fn note(&mut self, note: Note) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note);
        }
    }

    /// Removes all effects, to perform them.
    pub fn drain(&mut self) -> impl Iterator<Item = Effect<O, D>> + '_ {
        self.effects.drain(..)
    }

    /// Removes the records of ignored inputs.
    pub fn drain_ignored(&mut self) -> impl Iterator<Item = Ignored> + '_ {
        self.ignored.drain(..)
    }

    pub fn drain_notes(&mut self) -> impl Iterator<Item = Note> + '_ {
        self.notes.drain(..)
    }

    /// The effects, without removing them.
    pub fn as_slice(&self) -> &[Effect<O, D>] {
        &self.effects
    }

    pub fn is_empty(&self) -> bool {
        self.effects.is_empty()
    }
}
