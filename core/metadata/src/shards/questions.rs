//! What servers ask each other about names and inodes: the questions of commands, and the answers to those of others.

use super::{COMMANDS_MAX, Ctx, Ending, LOCKS_WITHIN, Question, ShardAction, ShardTimer, Shards, Stage, Ticket, Want};
use crate::operation_locks::Owner;
use crate::shard_operation::AnswerQuestion;
use braid_base::{Generation, InodeId, ShardId, TransactionId, limits};
use braid_machine::Ignored;
use braid_namespace::parts::Lock;
use braid_wire::{FileAttributes, FileCommand, FileError, FileReply, FileResult, ShardBody, ShardQuestion, ShardReply};

impl Shards {
    /// Asks the server of another shard, or this one.
    pub(super) fn ask(&mut self, name: TransactionId, want: Want, to: ShardId, question: ShardQuestion, cx: &mut Ctx) {
        let begun = self.commands.get_mut(&name).expect("it is under way");
        begun.stage = Stage::Asking(want);
        self.timers.set(ShardTimer::Wait(name), cx.now.time.after(LOCKS_WITHIN));
        self.asking.last += 1;
        let (number, resend) = (self.asking.last, self.asking.resend);
        self.asking.questions.insert(number, Question { command: name, to, question, resend });
        self.send_question(number, cx);
    }

    pub(super) fn send_question(&mut self, number: u64, cx: &mut Ctx) {
        let start = self.asking.start;
        let Some(asked) = self.asking.questions.get_mut(&number) else { return };
        let (to, question, wait) = (asked.to, asked.question.clone(), asked.resend.next_wait());
        self.timers.set(ShardTimer::Resend(number), cx.now.time.after(wait));
        if to == self.own {
            self.on_question((to, start, number), question, cx);
        } else {
            cx.actions.push(ShardAction::Send { to, body: ShardBody::Read { start, number, question } });
        }
    }

    /// Answers a question of another shard, or of this one.
    pub(super) fn reply(
        &mut self,
        (to, start, number): (ShardId, Generation, u64),
        reply: Result<ShardReply, FileError>,
        cx: &mut Ctx,
    ) {
        if to == self.own {
            self.on_reply(start, number, reply, cx);
        } else {
            cx.actions.push(ShardAction::Send { to, body: ShardBody::ReadAnswer { start, number, reply } });
        }
    }

    /// A question is answered under the lock of what it is about. Names are not locked, but the existence of their directory: the asking
    /// command holds locks, and others may ask for those in turn; a transaction checks the name again.
    pub fn on_question(&mut self, name: (ShardId, Generation, u64), question: ShardQuestion, cx: &mut Ctx) {
        let owner = Owner::Question(name.0, name.1, name.2);
        let lock = match &question {
            ShardQuestion::Inode { inode } => Some(Lock::Read(*inode)),
            // The command that asks may hold locks of the entries there.
            ShardQuestion::Place { inode } | ShardQuestion::Name { parent: inode, .. } => Some(Lock::Place(*inode)),
            ShardQuestion::Moves => None,
        };
        if self.locks.is_waiting(owner) || self.asking.received.len() >= COMMANDS_MAX {
            return cx.ignore(Ignored::NotAwaited);
        }
        self.asking.received.insert(name, question);
        self.acquire(owner, lock.into_iter().collect(), cx);
    }

    pub(super) fn answer_question(&mut self, name: (ShardId, Generation, u64), cx: &mut Ctx) {
        let (from, start, number) = name;
        if let Some(question) = self.asking.received.remove(&name) {
            self.read_map(Ticket::Question { from, start, number }, AnswerQuestion(question), cx);
        }
        self.release(Owner::Question(from, start, number), cx);
    }

    /// A question of this start of the server is answered.
    pub fn on_reply(&mut self, start: Generation, number: u64, reply: Result<ShardReply, FileError>, cx: &mut Ctx) {
        let question = (start == self.asking.start).then(|| self.asking.questions.remove(&number)).flatten();
        let Some(Question { command: name, .. }) = question else { return cx.ignore(Ignored::NotAwaited) };
        self.timers.cancel(ShardTimer::Resend(number));
        let Some(begun) = self.commands.get_mut(&name) else { return };
        let Stage::Asking(want) = begun.stage else { return };
        match (want, reply) {
            (Want::Answer, Ok(ShardReply::Inode(attributes))) => {
                let reply = reply_of_inode(&begun.command, attributes);
                self.finish(name, Ending::Reply(reply), cx);
            }
            // A name refers to an inode that exists.
            (Want::Answer, Err(FileError::Stale)) => self.refuse(name, FileError::Lost, cx),
            (Want::Target, Ok(ShardReply::Name(entry))) => {
                begun.known.target = Some(entry.map(|entry| (entry.inode, entry.file_type)));
                self.make_plan(name, cx);
            }
            (Want::Moves { moved }, Ok(ShardReply::Moves(moves))) => {
                let FileCommand::Rename { new_parent, .. } = begun.command else {
                    unreachable!("only a rename moves a directory");
                };
                let levels = limits::DIRECTORY_DEPTH_MAX;
                self.walk(name, new_parent, Want::Parent { moved, moves, levels }, cx);
            }
            (Want::Parent { .. }, Ok(ShardReply::Inode(FileAttributes { parent: Some(parent), .. }))) => {
                self.walk(name, parent, want, cx);
            }
            (Want::Parent { .. }, Ok(_)) => self.refuse(name, FileError::NotADirectory, cx),
            (_, Err(error)) => self.refuse(name, error, cx),
            (_, Ok(_)) => cx.ignore(Ignored::NotForUs),
        }
    }

    /// Follows the parents of the new directory of a directory that is moved: they must not lead to itself.
    fn walk(&mut self, name: TransactionId, at: InodeId, want: Want, cx: &mut Ctx) {
        let Want::Parent { moved, moves, levels } = want else { unreachable!("parents are followed") };
        if at == moved {
            return self.refuse(name, FileError::IntoItself, cx);
        }
        if at == InodeId::ROOT {
            let begun = self.commands.get_mut(&name).expect("it is under way");
            begun.known.moves = Some(moves);
            return self.make_plan(name, cx);
        }
        let Some(levels) = levels.checked_sub(1) else {
            return self.refuse(name, FileError::TooDeep, cx);
        };
        let want = Want::Parent { moved, moves, levels };
        self.ask(name, want, at.shard(), ShardQuestion::Place { inode: at }, cx);
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
