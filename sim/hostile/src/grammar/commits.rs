//! Messages of the commit protocols, which travel as bytes; and memberships that may follow the present one.

use super::Grammar;
use crate::prelude::*;
use braid_base::{Encoded, FenceTable, Member, MemberState, ShardId};
use braid_commit::{Body, Message as CommitMessage, Protocol, TransactionName, Verdict};
use braid_wire::any::Any;
use braid_wire::{FileError, ShardFinding, ShardParts};

impl Grammar {
    /// About a transaction of this machine, of the other server, or of any.
    pub(super) fn commit_message(&mut self) -> CommitMessage {
        let known: Vec<CommitMessage> = self.known.commits.iter().cloned().collect();
        let (protocol, transaction) = if !known.is_empty() && self.choices.chance(70) {
            let about = known[self.choices.below(known.len() as u64) as usize].clone();
            (about.protocol, about.transaction)
        } else {
            let shard = if self.choices.chance(80) { ShardId(1) } else { ShardId::any(self, "shard") };
            (self.choices.pick(&Protocol::ALL), TransactionName { shard, sequence: self.number_near(12) })
        };
        let protocol = if self.choices.chance(95) { protocol } else { self.choices.pick(&Protocol::ALL) };
        let settled = if self.choices.chance(80) { 0 } else { self.number_near(12) };
        CommitMessage { protocol, transaction, settled, body: self.commit_body() }
    }

    fn commit_body(&mut self) -> Body {
        match self.choices.below(15) {
            0..4 => Body::Update { requests: vec![self.shard_request()] },
            4 => Body::Update { requests: (0..self.choices.below(4)).map(|_| self.shard_request()).collect() },
            5 => Body::Updated { verdicts: self.verdicts() },
            6 => Body::Prepare,
            7 => Body::Prepared { verdicts: self.verdicts() },
            8 => Body::NotPrepared,
            9 => Body::Commit,
            10 => Body::Abort,
            11 => Body::Acknowledge,
            12 => Body::Ask,
            13 => Body::Inquire,
            _ => Body::Settled,
        }
    }

    fn shard_request(&mut self) -> Bytes {
        if self.choices.chance(5) {
            return self.some_bytes(60);
        }
        ShardParts::any(self, "parts").encode()
    }

    fn verdicts(&mut self) -> Vec<Verdict> {
        (0..=self.choices.below(2)).map(|_| self.verdict()).collect()
    }

    fn verdict(&mut self) -> Verdict {
        match self.choices.below(4) {
            0 => Verdict::Refused { reason: FileError::Exists.encode() },
            1 => Verdict::Refused { reason: self.some_bytes(9) },
            2 => Verdict::Accepted { answer: self.some_bytes(40) },
            _ => Verdict::Accepted { answer: ShardFinding::any(self, "answer").encode() },
        }
    }

    /// A membership that may follow the present one, as a rule.
    pub(super) fn membership(&mut self) -> Membership {
        let epoch = if self.choices.chance(90) { Epoch(self.known.epoch.0.saturating_add(1)) } else { self.epoch() };
        let mut members = Vec::new();
        for device in 0..4 {
            if self.choices.chance(3) {
                continue;
            }
            let recovery_coordinator = if self.choices.chance(80) { Some(self.generation()) } else { None };
            let member_state = match self.choices.below(10) {
                0..=6 => MemberState::In,
                7 | 8 => MemberState::Returning { recovery_coordinator },
                _ => MemberState::Out,
            };
            let since = if self.choices.chance(60) { Epoch(1) } else { self.epoch() };
            members.push(Member { device: DeviceId(device), member_state, since });
        }
        if self.choices.chance(3) {
            members.reverse();
        }
        let mut fence = FenceTable::default();
        if self.choices.chance(10) {
            fence.also = self.generations(90).into_iter().collect();
        }
        if self.choices.chance(3) {
            fence.below = self.generation();
            fence.except = self.generations(50).into_iter().collect();
        }
        Membership { epoch, members, fence }
    }

    fn generations(&mut self, per_cent: u64) -> Vec<Generation> {
        if self.choices.chance(per_cent) { Any::any(self, "hosts") } else { Vec::new() }
    }
}
