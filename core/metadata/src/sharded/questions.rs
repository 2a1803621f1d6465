//! What servers ask each other about names and inodes: the questions of commands, and the answers to those of others.

use super::{COMMANDS_MAX, LOCKS_WITHIN, Question, ShardTimer, Stage, Ticket, Want};
use crate::operation_locks::Owner;
use crate::server::MetadataServer;
use crate::shard_operation::AnswerQuestion;
use crate::space_requests::{SpaceRequest, SpaceRequests};
use braid_base::{Generation, InodeId, NodeId, Now, ShardId, TransactionId, limits};
use braid_commit::{Event, Message as CommitMessage};
use braid_machine::{Effect, Effects, Ignored};
use braid_namespace::parts::Lock;
use braid_namespace::transfers::Transfer;
use braid_wire::{
    FileAttributes, FileCommand, FileError, FileReply, FileResult, Message, ShardBody, ShardMessage, ShardQuestion,
    ShardReply,
};

impl MetadataServer {
    /// Asks the server of another shard, or this one.
    pub(super) fn ask(
        &mut self,
        now: Now,
        name: TransactionId,
        want: Want,
        to: ShardId,
        question: ShardQuestion,
        out: &mut Effects,
    ) {
        let resend = self.config.settings.resend();
        let begun = self.shards().commands.get_mut(&name).expect("it is under way");
        begun.stage = Stage::Asking(want);
        self.shards().timers.set(ShardTimer::Wait(name), now.time.after(LOCKS_WITHIN));
        let asking = &mut self.shards().asking;
        asking.last += 1;
        let number = asking.last;
        asking.questions.insert(number, Question { command: name, to, question, resend });
        self.send_question(now, number, out);
    }

    pub(super) fn send_question(&mut self, now: Now, number: u64, out: &mut Effects) {
        let start = self.config.start;
        let sharded = self.shards();
        let Some(asked) = sharded.asking.questions.get_mut(&number) else { return };
        let (to, question, wait) = (asked.to, asked.question.clone(), asked.resend.next_wait());
        sharded.timers.set(ShardTimer::Resend(number), now.time.after(wait));
        if to == sharded.shard {
            self.on_question(now, (to, start, number), question, out);
        } else {
            self.reply_to(now, to, ShardBody::Read { start, number, question }, out);
        }
    }

    /// Sends a message to the server of another shard.
    pub(crate) fn reply_to(&mut self, now: Now, to: ShardId, body: ShardBody, out: &mut Effects) {
        let from = self.shards().shard;
        if to == from {
            if let ShardBody::ReadAnswer { number, reply, .. } = body {
                self.on_reply(now, number, reply, out);
            }
            return;
        }
        let Some(to) = self.shards().peer(to) else { return };
        let message = Message::Shard(ShardMessage { from, body });
        self.lease.send(now.time, Effect::Send { to, message }, out);
    }

    /// The server of another shard has sent a message.
    pub(crate) fn on_shard_message(&mut self, now: Now, sender: NodeId, message: ShardMessage, out: &mut Effects) {
        let ShardMessage { from, body } = message;
        let is_peer = self.sharded.as_ref().is_some_and(|it| it.peer(from) == Some(sender) && it.shard != from);
        if !is_peer {
            return out.ignore(Ignored::NotForUs);
        }
        if !self.serves(now.time) {
            return out.ignore(Ignored::NotStarted);
        }
        match body {
            ShardBody::Commit { message } => match CommitMessage::decode(message) {
                Ok(message) => self.step_commits(now, Event::Message { from, message }, out),
                Err(_) => out.ignore(Ignored::NotForUs),
            },
            ShardBody::Read { start, number, question } => {
                self.on_question(now, (from, start, number), question, out);
            }
            ShardBody::ReadAnswer { start, number, reply } if start == self.config.start => {
                self.on_reply(now, number, reply, out);
            }
            ShardBody::ReadAnswer { .. } => out.ignore(Ignored::NotAwaited),
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

    /// A question is answered under the lock of what it is about. Names are not locked, but the existence of their directory: the asking
    /// command holds locks, and others may ask for those in turn; a transaction checks the name again.
    fn on_question(&mut self, now: Now, name: (ShardId, Generation, u64), question: ShardQuestion, out: &mut Effects) {
        let owner = Owner::Question(name.0, name.1, name.2);
        let lock = match &question {
            ShardQuestion::Inode { inode } => Some(Lock::Read(*inode)),
            // The command that asks may hold locks of the entries there.
            ShardQuestion::Place { inode } | ShardQuestion::Name { parent: inode, .. } => Some(Lock::Place(*inode)),
            ShardQuestion::Moves => None,
        };
        let sharded = self.shards();
        if sharded.locks.is_waiting(owner) || sharded.asking.received.len() >= COMMANDS_MAX {
            return out.ignore(Ignored::NotAwaited);
        }
        sharded.asking.received.insert(name, question);
        if sharded.locks.acquire(owner, lock.into_iter().collect()) {
            self.answer_question(now, name, out);
        }
    }

    pub(super) fn answer_question(&mut self, now: Now, name: (ShardId, Generation, u64), out: &mut Effects) {
        let (from, start, number) = name;
        if let Some(question) = self.shards().asking.received.remove(&name) {
            let ticket = self.shards().ticket(Ticket::Question { from, start, number });
            let answer = Box::new(AnswerQuestion(question));
            self.with_store(now, out, |store, out| store.inspect(now, ticket, answer, out));
        }
        self.release(now, Owner::Question(from, start, number), out);
    }

    /// A question is answered.
    fn on_reply(&mut self, now: Now, number: u64, reply: Result<ShardReply, FileError>, out: &mut Effects) {
        let Some(Question { command: name, .. }) = self.shards().asking.questions.remove(&number) else {
            return out.ignore(Ignored::NotAwaited);
        };
        self.shards().timers.cancel(ShardTimer::Resend(number));
        let Some(begun) = self.shards().commands.get_mut(&name) else { return };
        let Stage::Asking(want) = begun.stage else { return };
        match (want, reply) {
            (Want::Answer, Ok(ShardReply::Inode(attributes))) => {
                let reply = reply_of_inode(&begun.command, attributes);
                self.end_with(now, name, reply, out);
            }
            // A name refers to an inode that exists.
            (Want::Answer, Err(FileError::Stale)) => self.end_with(now, name, Err(FileError::Lost), out),
            (Want::Target, Ok(ShardReply::Name(entry))) => {
                begun.known.target = Some(entry.map(|entry| (entry.inode, entry.file_type)));
                self.make_plan(now, name, out);
            }
            (Want::Moves { moved }, Ok(ShardReply::Moves(moves))) => {
                let FileCommand::Rename { new_parent, .. } = begun.command else {
                    unreachable!("only a rename moves a directory");
                };
                let levels = limits::DIRECTORY_DEPTH_MAX;
                self.walk(now, name, new_parent, Want::Parent { moved, moves, levels }, out);
            }
            (Want::Parent { .. }, Ok(ShardReply::Inode(FileAttributes { parent: Some(parent), .. }))) => {
                self.walk(now, name, parent, want, out);
            }
            (Want::Parent { .. }, Ok(_)) => self.end_with(now, name, Err(FileError::NotADirectory), out),
            (_, Err(error)) => self.end_with(now, name, Err(error), out),
            (_, Ok(_)) => out.ignore(Ignored::NotForUs),
        }
    }

    /// Follows the parents of the new directory of a directory that is moved: they must not lead to itself.
    fn walk(&mut self, now: Now, name: TransactionId, at: InodeId, want: Want, out: &mut Effects) {
        let Want::Parent { moved, moves, levels } = want else { unreachable!("parents are followed") };
        if at == moved {
            return self.end_with(now, name, Err(FileError::IntoItself), out);
        }
        if at == InodeId::ROOT {
            let begun = self.shards().commands.get_mut(&name).expect("it is under way");
            begun.known.moves = Some(moves);
            return self.make_plan(now, name, out);
        }
        let Some(levels) = levels.checked_sub(1) else {
            return self.end_with(now, name, Err(FileError::TooDeep), out);
        };
        let want = Want::Parent { moved, moves, levels };
        self.ask(now, name, want, at.shard(), ShardQuestion::Place { inode: at }, out);
    }
}

/// The answer of a command that has found its inode in another shard.
fn reply_of_inode(command: &FileCommand, attributes: FileAttributes) -> FileReply {
    Ok(match command {
        FileCommand::Lookup { .. } => FileResult::Attributes(attributes),
        FileCommand::Create { .. } => FileResult::Created { attributes, is_new: false },
        FileCommand::Rename { .. } => FileResult::Renamed { moved: attributes, replaced: None },
        other => unreachable!("it is not answered by an inode: {other:?}"),
    })
}
