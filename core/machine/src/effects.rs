//! Effects are the requests of a machine to its environment. A step collects them in a buffer that is reused.

use crate::{DiskCommand, DiskTag, HostOutcome, OpId};
use braid_base::NodeId;
use braid_wire::Message;

/// An action that the environment must perform.
#[derive(Clone, Debug)]
pub enum Effect {
    Send {
        /// The receiver.
        to: NodeId,
        message: Message,
    },
    /// Give a command to the machine's disk.
    Disk {
        /// Identifies the command in its result.
        tag: DiskTag,
        command: DiskCommand,
    },
    /// Answer a request of a front end or workload.
    Reply {
        /// The request.
        op: OpId,
        /// Its outcome.
        outcome: HostOutcome,
    },
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

/// The effects of a step, and the inputs that it ignored.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    effects: Vec<Effect>,
    ignored: Vec<Ignored>,
}

impl Effects {
    /// An empty buffer.
    pub fn new() -> Effects {
        Effects::default()
    }

    /// Adds an effect.
    pub fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Sends `message` to `to`.
    pub fn send(&mut self, to: NodeId, message: Message) {
        self.effects.push(Effect::Send { to, message });
    }

    /// Gives the disk a command.
    pub fn disk(&mut self, tag: DiskTag, command: DiskCommand) {
        self.effects.push(Effect::Disk { tag, command });
    }

    /// Answers request `op`.
    pub fn reply(&mut self, op: OpId, outcome: HostOutcome) {
        self.effects.push(Effect::Reply { op, outcome });
    }

    /// Records that the input had no effect.
    pub fn ignore(&mut self, why: Ignored) {
        self.ignored.push(why);
    }

    /// Removes all effects, to perform them.
    pub fn drain(&mut self) -> impl Iterator<Item = Effect> + '_ {
        self.effects.drain(..)
    }

    /// Removes the records of ignored inputs.
    pub fn drain_ignored(&mut self) -> impl Iterator<Item = Ignored> + '_ {
        self.ignored.drain(..)
    }

    /// The effects, without removing them.
    pub fn as_slice(&self) -> &[Effect] {
        &self.effects
    }

    /// True if there are no effects.
    pub fn is_empty(&self) -> bool {
        self.effects.is_empty()
    }
}
