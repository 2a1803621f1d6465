//! A sniffer hears what hosts and devices say to each other: requests for objects that change something must get the same answer each time.

use crate::failed::{Failed, failed};
use crate::prelude::*;
use braid_wire::{
    Answer, Command, LockAnswer, LockReply, Message, ObjectAnswer, ObjectFailure, ObjectRefusal, Rejection, Reply,
};

/// Requests and answers of hosts and devices, taken from the network.
#[derive(Debug, Default)]
pub(crate) struct Sniffer {
    /// Requests that change something.
    requests: BTreeSet<(NodeId, NodeId, u64)>,
    answers: BTreeMap<(NodeId, NodeId, u64), ObjectAnswer>,
    contradiction: Option<String>,
    /// Hosts that were told, since the last look, that a device or a lock server has no room for them.
    turned_away: BTreeSet<NodeId>,
}

impl Sniffer {
    /// Hosts that were told, since the last call, that a device or a lock server has no room for them.
    pub fn take_turned_away(&mut self) -> BTreeSet<NodeId> {
        std::mem::take(&mut self.turned_away)
    }

    /// Requests that change something get the same answer each time.
    pub fn check_answers(&self) -> Result<(), Failed> {
        match &self.contradiction {
            Some(details) => failed("answered-twice", details.clone()),
            None => Ok(()),
        }
    }

    pub fn hear(&mut self, from: NodeId, to: NodeId, message: &Message) {
        match message {
            Message::Request(heard) => {
                if let Command::Objects { sequence, request, .. } = &heard.command
                    && !request.only_asks()
                {
                    self.requests.insert((from, to, *sequence));
                }
            }
            Message::Answer(Answer { reply: Reply::Rejected { rejection: Rejection::TooManyHosts }, .. })
            | Message::LockAnswer(LockAnswer {
                reply: LockReply::Rejected { rejection: Rejection::TooManyHosts },
                ..
            }) => {
                self.turned_away.insert(to);
            }
            Message::Answer(heard) => {
                let Reply::Objects { sequence, answer } = &heard.reply else { return };
                let name = (to, from, *sequence);
                if matches!(answer, Err(ObjectRefusal { failure: ObjectFailure::Busy, .. }))
                    || !self.requests.contains(&name)
                {
                    return;
                }
                let known = self.answers.entry(name).or_insert_with(|| answer.clone());
                if known != answer {
                    let details =
                        format!("{from} answers request {sequence} of {to} first {known:?} and then {answer:?}");
                    self.contradiction.get_or_insert(details);
                }
            }
            _ => {}
        }
    }
}
