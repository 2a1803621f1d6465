//! What a step wants done, collected in a buffer that is used again and again.

use crate::{DiskCommand, DiskTag, HostOutcome, OpId};
use braid_base::NodeId;
use braid_wire::Message;

/// One thing that the world must now do.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Send a message.
    Send {
        /// To whom.
        to: NodeId,
        /// What.
        message: Message,
    },
    /// Command the machine's disk.
    Disk {
        /// Names the command in its result.
        tag: DiskTag,
        /// What to do.
        command: DiskCommand,
    },
    /// Answer a front end or workload.
    Reply {
        /// Which of its requests.
        op: OpId,
        /// How it ended.
        outcome: HostOutcome,
    },
}

/// Why an input was dropped without effect. Not an error: what networks and retries bring. Counted, and shown
/// in traces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ignored {
    /// An answer that nobody awaits (any longer): a duplicate, or one that came after the decision.
    NotAwaited,
    /// A request that is being worked on already.
    InProgress,
    /// A request of a transaction that its host has declared over.
    Settled,
    /// A message that this kind of node does not take.
    NotForUs,
    /// An answer from another epoch.
    OtherEpoch,
    /// It came before the machine had started.
    NotStarted,
    /// The device has no lease: it has not heard of the monitor for too long, or is just taking over a new membership.
    NoLease,
}

/// The effects of a step, and what it ignored.
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

    /// Send `message` to `to`.
    pub fn send(&mut self, to: NodeId, message: Message) {
        self.effects.push(Effect::Send { to, message });
    }

    /// Give the disk a command.
    pub fn disk(&mut self, tag: DiskTag, command: DiskCommand) {
        self.effects.push(Effect::Disk { tag, command });
    }

    /// Answer request `op`.
    pub fn reply(&mut self, op: OpId, outcome: HostOutcome) {
        self.effects.push(Effect::Reply { op, outcome });
    }

    /// Record that the input had no effect, and why.
    pub fn ignore(&mut self, why: Ignored) {
        self.ignored.push(why);
    }

    /// Takes everything out to be performed.
    pub fn drain(&mut self) -> impl Iterator<Item = Effect> + '_ {
        self.effects.drain(..)
    }

    /// Takes out what was ignored.
    pub fn drain_ignored(&mut self) -> impl Iterator<Item = Ignored> + '_ {
        self.ignored.drain(..)
    }

    /// What is in it, to look at.
    pub fn as_slice(&self) -> &[Effect] {
        &self.effects
    }

    /// True if the step wants nothing done.
    pub fn is_empty(&self) -> bool {
        self.effects.is_empty()
    }
}
