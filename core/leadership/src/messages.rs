//! What goes into a candidate and what comes out of it: calls of the registry, questions of the pact, requests of the leader's other parts.

use crate::{CandidateId, Head, Mark, Nonce};
use braid_base::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Names one call of the registry. No two calls of a process have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Names a write of the leader's other parts, which keep its keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// Names a question whose answer claims to be current.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuestionId(pub u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The deadline has passed.
    Wake,
    /// A call has been answered.
    Answer { call: CallId, answer: Answer },
    /// Another candidate says something.
    Message { from: CandidateId, message: Message },
    /// Something is to be written, and if so told, with another list of candidates.
    Write { write: WriteId, candidates: Option<BTreeSet<CandidateId>> },
    /// A question has arrived. It may be answered when [`Effect::Current`] names it.
    Question(QuestionId),
    /// The leader is to end in order.
    Resign,
}

/// The registry's answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a read: the value of `head`, if there is one.
    Head(Option<Head>),
    /// To a swap: it was made.
    Swapped,
    /// To a swap: it was not made, because `head` was this.
    Differs(Head),
    /// Anything else. The call may have had its effect, may have it later, or never.
    Failed,
}

/// What candidates say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The leader of this term asks for a promise. It gives the time at which it sends this, by its own clock.
    Ask { term: u64, nonce: Nonce, sent: Time },
    /// The answer. There is none if the candidate does not promise.
    Promise { nonce: Nonce, sent: Time },
}

/// What a step has the environment do, or tells the other parts of the monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read `head`, linearizably.
    Read { call: CallId },
    /// If `head` is `expected`, make it `head`, and in the same transaction make the write, if there is one.
    Swap { call: CallId, expected: Head, head: Head, write: Option<WriteId> },
    /// Send a message to another candidate.
    Send { to: CandidateId, message: Message },
    /// It leads from now on. Each device may have a lease of a former leader for the time `wait` from now. `follows`: it has seen the history
    /// up to here, so devices need not be heard before the first lease is granted.
    Won { head: Head, wait: Duration, follows: bool },
    /// The write is durable.
    Written(WriteId),
    /// It was never sent: it does not lead, or too many are waiting.
    RefusedWrite(WriteId),
    /// It led at some time after the question had arrived.
    Current(QuestionId),
    /// It does not know that.
    RefusedQuestion(QuestionId),
    /// It has ended in order, and is a standby now.
    Ended,
    /// Another one leads. This write may have been made or not.
    Lost { unknown: Option<WriteId> },
    /// It has stopped for good, because the registry has gone back to an earlier state (`control-plane-old`): `seen` was there before.
    Stopped { seen: Mark },
}
