//! What a hostile node knows of a machine: what it was told at the start, and what the machine says.

use crate::prelude::*;
use braid_commit::Message as CommitMessage;
use braid_wire::{LockCommand, ShardBody};
use std::collections::{BTreeMap, VecDeque};

/// The most of each kind that is remembered.
const REMEMBERED_MAX: usize = 12;

/// What is known.
#[derive(Clone, Debug)]
pub struct Known {
    pub now: Now,
    pub epoch: Epoch,
    /// A generation that the machine takes for a host that exists.
    pub own_host: Generation,
    /// The start of the lock server or metadata server.
    pub start: Generation,
    /// The objects, and the ordering of each.
    pub objects: BTreeMap<ObjectId, Ordering>,
    /// Blocks of an object.
    pub blocks: u64,
    /// When the machine sent its last requests to the monitor.
    pub sent: VecDeque<Time>,
    /// Numbers that identify its requests.
    pub tickets: VecDeque<u64>,
    pub transactions: VecDeque<KnownTransaction>,
    /// What it has said to other metadata servers about transactions.
    pub commits: VecDeque<CommitMessage>,
}

/// A transaction, so that several messages agree about it.
#[derive(Clone, Debug)]
pub struct KnownTransaction {
    pub id: TransactionId,
    pub stamp: Stamp,
    pub object: ObjectId,
    pub ordering: Ordering,
    pub ranges: Vec<BlockRange>,
}

impl Known {
    /// At the beginning.
    pub fn new() -> Known {
        let second = 1_000_000_000;
        Known {
            now: Now { time: Time(1_000 * second), clock: Clock(5_000 * second) },
            epoch: Epoch(1),
            own_host: Generation(7),
            start: Generation(1),
            objects: BTreeMap::new(),
            blocks: 64,
            sent: VecDeque::new(),
            tickets: VecDeque::new(),
            transactions: VecDeque::new(),
            commits: VecDeque::new(),
        }
    }

    /// Lets time pass, until then.
    pub fn go_to(&mut self, time: Time) {
        self.now.clock = self.now.clock.ahead(time.since(self.now.time));
        self.now.time = time;
    }

    pub fn note_transaction(&mut self, transaction: KnownTransaction) {
        remember(&mut self.transactions, transaction);
    }

    pub fn note_ticket(&mut self, ticket: u64) {
        remember(&mut self.tickets, ticket);
    }

    /// The machine has sent a message.
    pub fn hear(&mut self, _to: NodeId, message: &Message) {
        match message {
            Message::MonitorRequest(request) => {
                self.epoch = self.epoch.max(request.epoch);
                match &request.command {
                    MonitorCommand::Renew { sent, .. } => remember(&mut self.sent, *sent),
                    MonitorCommand::Fence { ticket, .. }
                    | MonitorCommand::Administer { ticket, .. }
                    | MonitorCommand::Ownership { ticket, .. } => self.note_ticket(*ticket),
                    MonitorCommand::Resynchronised { .. } | MonitorCommand::Healing { .. } => {}
                }
            }
            Message::MonitorAnswer(answer) => {
                if let Some(membership) = &answer.membership {
                    self.epoch = self.epoch.max(membership.epoch);
                }
            }
            Message::Answer(answer) => self.epoch = answer.epoch,
            Message::LockAnswer(answer) => self.start = answer.start,
            Message::FileAnswer(answer) => self.start = answer.start,
            Message::LockRequest(request) => match &request.command {
                LockCommand::Lock { lock_id, .. }
                | LockCommand::LockRange { lock_id, .. }
                | LockCommand::Unlock { lock_id } => self.note_ticket(*lock_id),
                LockCommand::Survey { ticket, .. } => self.note_ticket(*ticket),
                LockCommand::Heartbeat { .. } | LockCommand::Yield { .. } | LockCommand::Shrink { .. } => {}
            },
            Message::Request(request) => {
                self.epoch = request.epoch;
                self.hear_command(&request.command);
            }
            Message::Shard(message) => self.hear_shard(&message.body),
            Message::Partial(_) | Message::FileRequest(_) => {}
        }
    }

    fn hear_shard(&mut self, body: &ShardBody) {
        match body {
            ShardBody::Commit { message } => {
                let message = CommitMessage::decode(message.clone()).expect("machines send what they read");
                remember(&mut self.commits, message);
            }
            ShardBody::Read { number, .. } => self.note_ticket(*number),
            ShardBody::ReadAnswer { .. } | ShardBody::SpaceRequest { .. } | ShardBody::SpaceTransfer { .. } => {}
        }
    }

    fn hear_command(&mut self, command: &Command) {
        match command {
            Command::Manage { ticket, .. } | Command::Await { ticket, .. } => self.note_ticket(*ticket),
            Command::Objects { sequence, .. } => self.note_ticket(*sequence),
            Command::Read { transaction, stamp, object, ordering, extents: ranges, .. }
            | Command::Prewrite { transaction, stamp, object, ordering, prewrites: ranges, .. } => {
                let (id, stamp, object, ordering) = (*transaction, *stamp, *object, *ordering);
                self.note_transaction(KnownTransaction { id, stamp, object, ordering, ranges: ranges.clone() });
            }
            Command::Write { transaction, stamp, object, ordering, pieces, .. } => {
                let (id, stamp, object, ordering) = (*transaction, *stamp, *object, *ordering);
                let ranges = pieces.iter().map(|piece| piece.range).collect();
                self.note_transaction(KnownTransaction { id, stamp, object, ordering, ranges });
            }
            Command::Execute { transaction, stamp, object, ordering, column, .. } => {
                let (id, stamp, object, ordering) = (*transaction, *stamp, *object, *ordering);
                self.note_transaction(KnownTransaction { id, stamp, object, ordering, ranges: column.writes() });
            }
            Command::Heartbeat
            | Command::Decide { .. }
            | Command::Retract { .. }
            | Command::Resolve { .. }
            | Command::Forget { .. } => {}
        }
    }
}

fn remember<T>(list: &mut VecDeque<T>, item: T) {
    if list.len() == REMEMBERED_MAX {
        list.pop_front();
    }
    list.push_back(item);
}
