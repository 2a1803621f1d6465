//! What the server does for its parts: it carries out the actions of [`Shards`], of [`SpaceRequests`], and of the background job.

use crate::operation::Operation;
use crate::reclaim::{Action, Aspect};
use crate::server::{MetadataError, MetadataServer, MetadataService, OwnOperation};
use crate::shards::{Ctx, Facts, ShardAction, Shards};
use crate::space_requests::{SpaceAction, SpaceRequest, SpaceRequests};
use braid_base::{BlockRange, InodeId, NodeId, Now, ObjectId, ShardId, Time};
use braid_machine::{Effect, Effects, Ignored};
use braid_namespace::transfers::Transfer;
use braid_wire::{
    DATA_LOCK, EXISTENCE_LOCK, FileCommand, FileError, LockExtent, LockMode, Message, ShardBody, ShardMessage,
};
use std::collections::VecDeque;

/// Conflicts with the lock that each host has which may have an allotment.
const ALLOTMENTS: (ObjectId, LockExtent) = (
    ObjectId(0),
    LockExtent { position: DATA_LOCK, range: BlockRange { start: 0, count: 1 }, mode: LockMode::Exclusive },
);

impl MetadataServer {
    /// The server of another shard has sent a message.
    pub(crate) fn on_shard_message(&mut self, now: Now, sender: NodeId, message: ShardMessage, out: &mut Effects) {
        let ShardMessage { from, body } = message;
        if from == self.shards.own || self.shards.peer(from) != Some(sender) {
            return out.ignore(Ignored::NotForUs);
        }
        if !self.serves(now.time) {
            return out.ignore(Ignored::NotStarted);
        }
        match body {
            ShardBody::Commit { message } => {
                self.step_shards(now, |shards, cx| shards.on_message(from, message, cx), out);
            }
            ShardBody::Read { start, number, question } => {
                self.step_shards(now, |shards, cx| shards.on_question((from, start, number), question, cx), out);
            }
            ShardBody::ReadAnswer { start, number, reply } => {
                self.step_shards(now, |shards, cx| shards.on_reply(start, number, reply, cx), out);
            }
            ShardBody::SpaceRequest { start, round, received, blocks } => {
                let request = SpaceRequest { from, start, round, received, blocks, is_last: false };
                self.step_space(now, |space, actions| space.on_request(request, actions), out);
            }
            ShardBody::SpaceTransfer { start, round, number, runs } => {
                let (round, transfer) = ((start, round), Transfer { number, runs });
                let act = |space: &mut SpaceRequests, actions: &mut _| {
                    space.on_transfer(now, from, round, transfer, actions);
                };
                self.step_space(now, act, out);
            }
        }
    }

    /// Sends a message to the server of another shard.
    fn send_to_shard(&mut self, now: Now, to: ShardId, body: ShardBody, out: &mut Effects) {
        let Some(to) = self.shards.peer(to) else { return };
        let message = Message::Shard(ShardMessage { from: self.shards.own, body });
        self.lease.send(now.time, Effect::Send { to, message }, out);
    }

    /// Lends the shards to `act`, and does what follows.
    pub(crate) fn step_shards(&mut self, now: Now, act: impl FnOnce(&mut Shards, &mut Ctx), out: &mut Effects) {
        let MetadataServer { shards, store, membership, .. } = self;
        let facts = Facts { store, membership: membership.as_ref() };
        let mut cx = Ctx { now, facts, actions: Vec::new() };
        act(shards, &mut cx);
        for action in cx.actions {
            self.carry_out(now, action, out);
        }
    }

    fn carry_out(&mut self, now: Now, action: ShardAction, out: &mut Effects) {
        match action {
            ShardAction::Look { ticket, procedure, is_durable } => {
                self.with_store(now, out, |store, out| match is_durable {
                    true => store.read_durable(now, ticket, procedure, out),
                    false => store.read_uncommitted(now, ticket, procedure, out),
                })
            }
            ShardAction::Run { name, settled, procedure } => {
                if !self.run(now, name, settled, procedure, out) {
                    out.ignore(Ignored::Settled);
                }
            }
            ShardAction::Log { transaction, kind, lost, on_behalf, write } => {
                let own = OwnOperation::Logged { transaction, kind, lost };
                self.run_mandatory(now, own, on_behalf, Box::new(write), out);
            }
            ShardAction::Answer { name, reply } => self.answer(now, name.host, name.sequence, reply, out),
            ShardAction::Send { to, body } => self.send_to_shard(now, to, body, out),
            ShardAction::Serve { received } => {
                self.service = MetadataService::Serving;
                self.reclaim.start();
                self.own.space.begin(now, &received);
            }
            ShardAction::Refuse => self.service = MetadataService::Unusable(MetadataError::Damaged),
            ShardAction::Ignore(why) => out.ignore(why),
        }
    }

    /// Lends the requests for free blocks to `act`, and does what follows.
    pub(crate) fn step_space(
        &mut self,
        now: Now,
        act: impl FnOnce(&mut SpaceRequests, &mut Vec<SpaceAction>),
        out: &mut Effects,
    ) {
        let mut actions = Vec::new();
        act(&mut self.own.space, &mut actions);
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match action {
                SpaceAction::Evaluate { name, settled, blocks, is_last } => {
                    let (command, is_full) = (FileCommand::Reserve { blocks }, self.room().is_full());
                    let operation = Operation::of_host(name.host, command, now.clock, is_full);
                    let operation = if is_last { operation } else { operation.unless_short() };
                    if !self.run(now, name, settled, Box::new(operation), out) {
                        self.own.space.end(|other| other == name);
                        out.ignore(Ignored::Settled);
                    }
                }
                SpaceAction::Refuse(name) => self.answer(now, name.host, name.sequence, Err(FileError::Busy), out),
                SpaceAction::Send { to, body } => self.send_to_shard(now, to, body, out),
                SpaceAction::Log(step) => self.run_own(now, OwnOperation::Space(step), out),
                SpaceAction::Revoke => {
                    let (object, extent) = ALLOTMENTS;
                    let mut hosts = self.with_locks(now, out, |locks, out| locks.call_on_holders(object, extent, out));
                    if let Some(hosts) = &mut hosts {
                        hosts.extend(self.hosts_with_allotments_to_reclaim().map(|host| (host, Time(0))));
                    }
                    let mut follow = Vec::new();
                    self.own.space.on_revoked(now, hosts, &mut follow);
                    actions.extend(follow);
                }
                SpaceAction::Ignore(why) => out.ignore(why),
            }
        }
    }

    /// Carries out what the background job wants.
    pub(crate) fn act(&mut self, now: Now, action: Action, out: &mut Effects) {
        match action {
            Action::Lock { lock, inode, aspect } => {
                let (object, extent) = lock_of(inode, aspect);
                self.with_locks(now, out, |locks, out| locks.lock_own(now, lock, object, extent, out));
            }
            Action::Unlock { lock } => {
                self.with_locks(now, out, |locks, out| locks.unlock_own(now, lock, out));
            }
            Action::Run(step) => self.run_own(now, OwnOperation::Step(step), out),
        }
    }
}

fn lock_of(inode: InodeId, aspect: Aspect) -> (ObjectId, LockExtent) {
    let position = match aspect {
        Aspect::Data => DATA_LOCK,
        Aspect::Existence => EXISTENCE_LOCK,
    };
    (ObjectId(inode.0), LockExtent { position, range: BlockRange::new(0, 1), mode: LockMode::Exclusive })
}
