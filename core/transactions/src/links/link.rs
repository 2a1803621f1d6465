//! The link to one device: the messages that ride on the next request, the settled mark below which the device may forget,
//! and the time when the device was last heard.

use super::request_window::RequestWindow;
use braid_base::limits;
use braid_base::{Epoch, Generation, ResponseTime, Time};
use braid_wire::{Command, Message, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub struct Link {
    /// Commits that the device has not been told of.
    queued: BTreeSet<u64>,
    /// Commits that the device was told of and has not confirmed, and when it was told.
    told: BTreeMap<u64, Time>,
    /// Transactions in which the device takes part and that are not over.
    unsettled: BTreeSet<u64>,
    /// Transactions that are over, which the device has not been told.
    over: Vec<u64>,
    /// Requests for objects.
    pub window: RequestWindow,
    /// The device may keep commits or answers of this host that are over.
    pub(super) keeps: bool,
    /// Whether a timer is set after which queued commits are sent even if no other request is.
    pub(super) lingers: bool,
    /// When the device was last heard.
    pub(super) last_heard: Option<Time>,
    /// The device had no room for this host when it last answered.
    pub(super) crowded: bool,
    /// The device has answered in an earlier epoch than this host's.
    pub(super) behind: bool,
    /// How long heartbeats wait for the device.
    pub(super) response_time: ResponseTime,
    /// Requests that met a block which the device has lost.
    pub(super) corrupt: u64,
}

impl Link {
    /// The device takes part in this transaction or task.
    pub fn begin(&mut self, sequence: u64) {
        self.unsettled.insert(sequence);
    }

    /// This transaction, task or request is over, and the device may hold something of it.
    pub fn settle(&mut self, sequence: u64) {
        if self.is_ended(sequence) {
            self.keeps = true;
            if self.over.len() < limits::HOST_TRANSACTIONS_MAX {
                self.over.push(sequence);
            }
        }
    }

    /// This transaction, task or request is over, and left nothing on the device.
    pub fn settle_read(&mut self, sequence: u64) {
        self.is_ended(sequence);
    }

    fn is_ended(&mut self, sequence: u64) -> bool {
        self.unsettled.remove(&sequence) || self.window.end(sequence)
    }

    /// The device is to be told of this commit.
    pub(super) fn queue_commit(&mut self, sequence: u64) {
        self.queued.insert(sequence);
    }

    /// True if the device has yet to be told of this commit.
    pub(super) fn has_queued(&self, sequence: u64) -> bool {
        self.queued.contains(&sequence)
    }

    /// True if any commit is queued.
    pub(super) fn has_any_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// True if there are commits that the device has not confirmed.
    pub(super) fn has_unconfirmed(&self) -> bool {
        !self.queued.is_empty() || !self.told.is_empty()
    }

    /// The device was out: it is told nothing of this transaction, and no answer of it is expected.
    pub fn forget(&mut self, sequence: u64) {
        self.confirmed(sequence);
        self.unsettled.remove(&sequence);
    }

    /// The device has confirmed this commit.
    pub fn confirmed(&mut self, sequence: u64) {
        self.queued.remove(&sequence);
        self.told.remove(&sequence);
    }

    /// Queues again the commits that the device has not confirmed for `wait`.
    pub(super) fn requeue_unconfirmed(&mut self, now: Time, wait: Duration) {
        let stale = |told: &Time| now.since(*told) >= wait;
        let again: Vec<_> = self.told.iter().filter(|(_, told)| stale(told)).map(|(sequence, _)| *sequence).collect();
        for sequence in again {
            self.told.remove(&sequence);
            self.queued.insert(sequence);
        }
    }

    /// Makes a request of a command, with everything that rides on it. `next`: the sequence of the host's next
    /// transaction.
    pub(super) fn request(
        &mut self,
        now: Time,
        host: Generation,
        epoch: Epoch,
        next: u64,
        command: Command,
    ) -> Message {
        let mut commits = Vec::new();
        while commits.len() < limits::COMMITS_PER_REQUEST_MAX
            && let Some(sequence) = self.queued.pop_first()
        {
            self.told.insert(sequence, now);
            commits.push(sequence);
        }
        let settled = self.unsettled.first().copied().into_iter().chain(self.window.first()).min().unwrap_or(next);
        if matches!(command, Command::Heartbeat) {
            self.response_time.asked(now);
        }
        self.over.retain(|sequence| *sequence >= settled);
        let over = self.over.split_off(self.over.len().saturating_sub(limits::COMMITS_PER_REQUEST_MAX));
        Message::Request(Request { host, epoch, settled, over, commits, command })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ride(link: &mut Link, now: u64) -> (u64, Vec<u64>) {
        match link.request(Time(now), Generation(1), Epoch(1), 100, Command::Heartbeat) {
            Message::Request(request) => (request.settled, request.commits),
            _ => unreachable!("it makes requests"),
        }
    }

    #[test]
    fn a_commit_rides_once_and_again_only_when_unconfirmed() {
        let mut link = Link::default();
        link.queue_commit(7);
        link.queue_commit(9);
        assert_eq!(ride(&mut link, 0).1, [7, 9]);
        assert!(ride(&mut link, 1).1.is_empty());
        link.confirmed(7);
        link.requeue_unconfirmed(Time(10), Duration::from_nanos(5));
        assert_eq!(ride(&mut link, 10).1, [9]);
    }

    #[test]
    fn settled_is_the_oldest_transaction_that_is_not_over() {
        let mut link = Link::default();
        assert_eq!(ride(&mut link, 0).0, 100, "with no transaction under way, all so far are over");
        link.begin(4);
        link.begin(6);
        assert_eq!(ride(&mut link, 0).0, 4);
        link.settle(4);
        assert_eq!(ride(&mut link, 0).0, 6);
    }

    #[test]
    fn a_request_that_is_not_answered_holds_the_mark_back_as_a_transaction_does() {
        let mut link = Link::default();
        link.window.begin(4);
        link.begin(5);
        assert_eq!(ride(&mut link, 0).0, 4);
        link.settle(4);
        assert_eq!(ride(&mut link, 0).0, 5);
        link.window.begin(6);
        link.settle(5);
        assert_eq!(ride(&mut link, 0).0, 6);
        link.window.abandon(6, 7);
        assert_eq!(ride(&mut link, 0).0, 100);
    }

    #[test]
    fn completions_above_the_mark_are_reported_once() {
        let mut link = Link::default();
        let over = |link: &mut Link| match link.request(Time(0), Generation(1), Epoch(1), 100, Command::Heartbeat) {
            Message::Request(request) => request.over,
            _ => unreachable!("it makes requests"),
        };
        for sequence in [4, 5, 6, 7] {
            link.begin(sequence);
        }
        link.settle(6);
        link.settle_read(7);
        assert_eq!(over(&mut link), [6]);
        assert!(over(&mut link).is_empty());
        link.settle(5);
        link.settle(4);
        assert!(over(&mut link).is_empty(), "the settled mark covers it");
    }
}
