//! The link to the metadata server: numbers the commands, sends each one until it is answered, and tells the server which answers it may
//! forget.
//!
//! ```text
//!   send 4 ─► send 5 ─► answer 5 ─► send 6 (settled 4, over 5) ─► answer 4 ─► … heartbeat … ─► Nothing (settled 7)
//! ```
//!
//! A command is executed once however often it is sent: the server knows it by its sequence. When the server has restarted, which its
//! answers tell, unanswered commands are sent again at once.
//!
//! An answer says also that the server had heard this host when the command was sent first, or later. So it had a lease then: see
//! [`MetadataLink::is_confirmed`].
//!
//! From the first unanswered command on, at most [`limits::FILE_REQUESTS_MAX`] sequences are used; later commands wait here. So the server
//! needs to remember little about the sequences above the mark.

use braid_base::limits::{self, Settings};
use braid_base::{Backoff, Generation, InodeId, Time, Timers};
use braid_wire::{FileAnswer, FileCommand, FileError, FileReply, FileRequest, Rejection};
use std::collections::{BTreeMap, VecDeque};

/// The part that sent a command, which gets the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// An operation.
    Operation(u64),
    /// A page of extents from this block on, for a map that was begun under this number.
    Map { inode: InodeId, from: u64, number: u64 },
    /// The time of the last write of an inode.
    Publish(InodeId),
    /// More blocks for the allotment.
    Reserve,
    /// Blocks of the allotment that are given back before the file system is unmounted.
    GiveBack,
    /// Blocks of the allotment that are given back because other hosts need them.
    CalledBack,
    /// Whether the host has its locks.
    Confirm,
    /// The last message before the file system is unmounted.
    Farewell,
}

/// What follows from a message of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub enum Heard {
    Reply(Asker, FileReply),
    /// The host is fenced.
    Fenced,
    /// Nothing: the answer is late, or the command is sent again later.
    Nothing,
}

#[derive(Clone, Debug, Default)]
pub struct MetadataLink {
    host: Generation,
    settings: Settings,
    /// The sequence of the next command.
    next: u64,
    pending: BTreeMap<u64, Pending>,
    /// Commands that have no sequence yet.
    waiting: VecDeque<(Asker, FileCommand)>,
    /// Answered sequences above the settled mark, which the server was not told.
    over: Vec<u64>,
    /// The server may keep answers that it was not told to forget.
    keeps: bool,
    server: Server,
    /// When the host surely had a lease at the server.
    confirmed: Option<Time>,
    timers: Timers<LinkTimer>,
    outbox: Vec<FileRequest>,
}

/// What is known of the server.
#[derive(Clone, Copy, Debug, Default)]
struct Server {
    /// The latest start that has answered.
    start: Generation,
    /// The sequence of its last answer.
    answered: u64,
}

#[derive(Clone, Debug)]
struct Pending {
    asker: Asker,
    command: FileCommand,
    resend: Backoff,
    /// When it was sent first.
    sent: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LinkTimer {
    Resend(u64),
    /// Tell the server what it may forget.
    Heartbeat,
}

impl MetadataLink {
    pub fn new(host: Generation, settings: Settings) -> MetadataLink {
        MetadataLink { host, settings, next: 1, ..MetadataLink::default() }
    }

    /// Sends a command until it is answered.
    pub fn send(&mut self, now: Time, asker: Asker, command: FileCommand) {
        self.waiting.push_back((asker, command));
        self.send_waiting(now);
    }

    /// Sends commands that wait, as far as their sequences are not too far above the first unanswered one.
    fn send_waiting(&mut self, now: Time) {
        while self.settled() + limits::FILE_REQUESTS_MAX > self.next
            && let Some((asker, command)) = self.waiting.pop_front()
        {
            let sequence = self.next;
            self.next += 1;
            self.pending.insert(sequence, Pending { asker, command, resend: self.settings.resend(), sent: now });
            self.transmit(now, sequence);
        }
    }

    /// True if the answer to this command is awaited.
    pub fn is_awaited(&self, sequence: u64) -> bool {
        self.pending.contains_key(&sequence)
    }

    /// The server's start and the sequence of the answer that came last.
    pub fn last_answer(&self) -> (Generation, u64) {
        (self.server.start, self.server.answered)
    }

    /// The number of commands that are not answered.
    pub fn unanswered(&self) -> usize {
        self.pending.len() + self.waiting.len()
    }

    /// True while nobody else can have this host's locks, by this host's clock: the server waits for a whole lease of silence, and the rates
    /// of clocks differ by less than a tenth.
    pub fn is_confirmed(&self, now: Time) -> bool {
        self.confirmed_until().is_some_and(|until| now < until)
    }

    /// Until when [`MetadataLink::is_confirmed`] is true, without a further answer.
    pub fn confirmed_until(&self) -> Option<Time> {
        Some(self.confirmed?.after(self.settings.host_lease * 3 / 4))
    }

    /// When to call [`MetadataLink::confirm`], so that the host stays confirmed.
    pub fn confirm_at(&self) -> Option<Time> {
        let is_asked = self.pending.values().any(|pending| pending.asker == Asker::Confirm);
        (!is_asked).then(|| self.confirmed.map_or(Time(0), |at| at.after(self.settings.heartbeat)))
    }

    /// Asks the server whether the host has its locks.
    pub fn confirm(&mut self, now: Time) {
        self.send(now, Asker::Confirm, FileCommand::Nothing);
    }

    pub fn on_answer(&mut self, now: Time, answer: FileAnswer) -> Heard {
        if answer.start < self.server.start {
            return Heard::Nothing;
        }
        let rejection = match answer.reply {
            Err(FileError::Rejected(rejection)) => Some(rejection),
            _ => None,
        };
        if rejection == Some(Rejection::Fenced) {
            return Heard::Fenced;
        }
        if answer.start > self.server.start {
            let server = Server { start: answer.start, ..Server::default() };
            let knew_another = std::mem::replace(&mut self.server, server).start != Generation::default();
            let others = self.pending.keys().copied().filter(|sequence| *sequence != answer.sequence);
            for sequence in others.filter(|_| knew_another).collect::<Vec<_>>() {
                self.pending.get_mut(&sequence).expect("just listed").resend.reset();
                self.transmit(now, sequence);
            }
        }
        // The server has executed nothing of this copy, and may execute another one.
        let is_later = rejection.is_some() || answer.reply == Err(FileError::Busy);
        if is_later || !self.pending.contains_key(&answer.sequence) {
            return Heard::Nothing;
        }
        let pending = self.pending.remove(&answer.sequence).expect("just seen");
        self.confirmed = self.confirmed.max(Some(pending.sent));
        self.timers.cancel(LinkTimer::Resend(answer.sequence));
        if !pending.command.only_asks() {
            self.keeps = true;
            self.over.push(answer.sequence);
            if self.timers.deadline_of(LinkTimer::Heartbeat).is_none() {
                self.timers.set(LinkTimer::Heartbeat, now.after(self.settings.heartbeat));
            }
        }
        self.send_waiting(now);
        self.server.answered = answer.sequence;
        Heard::Reply(pending.asker, answer.reply)
    }

    pub fn deadline(&self) -> Option<Time> {
        self.timers.next().map(|(time, _)| time)
    }

    /// Handles all timers that are due.
    pub fn wake(&mut self, now: Time) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                LinkTimer::Resend(sequence) => self.transmit(now, sequence),
                LinkTimer::Heartbeat if self.keeps => {
                    let sequence = self.next;
                    self.next += 1;
                    let request = self.request(sequence, FileCommand::Nothing);
                    self.outbox.push(request);
                }
                LinkTimer::Heartbeat => {}
            }
        }
    }

    /// The messages to the server since the last call.
    pub fn drain(&mut self) -> std::vec::Drain<'_, FileRequest> {
        self.outbox.drain(..)
    }

    pub fn invariants(&self) {
        let resent = |sequence: &u64| self.timers.deadline_of(LinkTimer::Resend(*sequence)).is_some();
        assert!(self.pending.keys().all(resent), "an unanswered command is sent again");
        assert!(self.waiting.is_empty() || !self.pending.is_empty(), "a command waits for an earlier one");
        assert!(self.outbox.is_empty(), "messages are sent in the step that they belong to");
    }

    fn transmit(&mut self, now: Time, sequence: u64) {
        let pending = self.pending.get_mut(&sequence).expect("an unanswered command");
        let (wait, command) = (pending.resend.next_wait(), pending.command.clone());
        self.timers.set(LinkTimer::Resend(sequence), now.after(wait));
        let request = self.request(sequence, command);
        self.outbox.push(request);
    }

    /// The first unanswered sequence.
    fn settled(&self) -> u64 {
        self.pending.first_key_value().map_or(self.next, |(first, _)| *first)
    }

    fn request(&mut self, sequence: u64, command: FileCommand) -> FileRequest {
        let settled = self.settled().min(sequence);
        self.over.retain(|over| *over >= settled);
        let over = self.over.split_off(self.over.len().saturating_sub(limits::COMMITS_PER_REQUEST_MAX));
        // With commands under way, the mark passes these answers later.
        self.keeps = !self.over.is_empty() || !self.pending.is_empty();
        FileRequest { host: self.host, settled, over, sequence, command }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_wire::FileResult;

    const REMOVE: FileCommand = FileCommand::Truncate { inode: InodeId(9), size: 0 };

    fn answer(start: u32, sequence: u64, reply: FileReply) -> FileAnswer {
        FileAnswer { start: Generation(start), sequence, reply }
    }

    fn sent(link: &mut MetadataLink) -> Vec<(u64, u64, Vec<u64>)> {
        link.drain().map(|request| (request.sequence, request.settled, request.over)).collect()
    }

    fn link(commands: u64) -> MetadataLink {
        let mut link = MetadataLink::new(Generation(7), Settings::default());
        (0..commands).for_each(|number| link.send(Time(0), Asker::Operation(number), REMOVE));
        link
    }

    #[test]
    fn the_mark_stays_below_the_first_unanswered_command_and_answers_above_it_are_told_once() {
        let mut link = link(2);
        assert_eq!(sent(&mut link), [(1, 1, vec![]), (2, 1, vec![])]);
        let done = || Ok(FileResult::Done);
        assert_eq!(link.on_answer(Time(1), answer(1, 2, done())), Heard::Reply(Asker::Operation(1), done()));
        assert_eq!(link.on_answer(Time(1), answer(1, 2, done())), Heard::Nothing, "a second copy");
        link.send(Time(1), Asker::Reserve, REMOVE);
        link.send(Time(1), Asker::Reserve, REMOVE);
        assert_eq!(sent(&mut link), [(3, 1, vec![2]), (4, 1, vec![])]);
        for sequence in [1, 3, 4] {
            link.on_answer(Time(2), answer(1, sequence, done()));
        }
        link.wake(Time(0).after(Settings::default().heartbeat * 2));
        assert_eq!(sent(&mut link), [(5, 5, vec![])], "the server may forget all");
        link.wake(Time(0).after(Settings::default().heartbeat * 8));
        assert!(sent(&mut link).is_empty() && link.pending.is_empty(), "and knows it");
    }

    #[test]
    fn commands_far_above_the_first_unanswered_one_wait() {
        let most = limits::FILE_REQUESTS_MAX;
        let mut link = link(most + 10);
        assert_eq!(sent(&mut link).last(), Some(&(most, 1, vec![])));
        let done = || Ok(FileResult::Done);
        link.on_answer(Time(1), answer(1, 2, done()));
        assert!(sent(&mut link).is_empty(), "the first one is not answered");
        assert_eq!(link.unanswered() as u64, most + 9);
        link.on_answer(Time(1), answer(1, 1, done()));
        assert_eq!(sent(&mut link), [(most + 1, 3, vec![]), (most + 2, 3, vec![])]);
        link.invariants();
        (3..=most + 10).for_each(|sequence| drop(link.on_answer(Time(2), answer(1, sequence, done()))));
        assert_eq!(link.unanswered(), 0);
    }

    #[test]
    fn commands_are_sent_again_after_a_while_and_at_once_to_a_restarted_server() {
        let mut link = link(3);
        assert_eq!(sent(&mut link).len(), 3);
        link.on_answer(Time(1), answer(1, 1, Ok(FileResult::Done)));
        assert!(sent(&mut link).is_empty());
        link.on_answer(Time(2), answer(2, 2, Err(FileError::Busy)));
        assert_eq!(sent(&mut link).iter().map(|sent| sent.0).collect::<Vec<_>>(), [3]);
        assert_eq!(link.on_answer(Time(2), answer(1, 2, Ok(FileResult::Done))), Heard::Nothing, "an earlier start");
        link.wake(Time(0).after(Settings::default().resend_max));
        let again = sent(&mut link);
        assert!([2, 3].iter().all(|sequence| again.iter().any(|sent| sent.0 == *sequence)), "{again:?}");
        let fenced = Err(FileError::Rejected(Rejection::Fenced));
        assert_eq!(link.on_answer(Time(3), answer(2, 3, fenced)), Heard::Fenced);
    }
}
