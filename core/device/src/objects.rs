//! Requests for objects that hold bytes and attributes, and hosts that wait for an attribute to change.
//!
//! Requests are passed to the store, which executes each exactly once. A *watcher* is a host's wait for a change of an
//! attribute. It is answered once a change is durable. Watchers do not survive a restart: hosts ask again. A repeated
//! wait replaces the earlier wait.

use crate::device::Device;
use crate::tickets::Ticket;
use braid_base::{Generation, Now, ObjectId, Time, Timers, TransactionId, limits};
use braid_machine::{Effects, Ignored};
use braid_wire::{
    Action, ActionResult, AttributeName, CommandResult, ObjectAnswer, ObjectCommand, ObjectFailure, ObjectRefusal,
    ObjectRequest, Reply,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The requests under way, and the watchers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    /// The requests that the store is executing, and what each of their commands may change.
    executing: BTreeMap<TransactionId, Vec<MayChange>>,
    watchers: BTreeMap<(Generation, u64), Watcher>,
    /// The watchers by object.
    watched: BTreeSet<(ObjectId, Generation, u64)>,
    /// The size of the values that the watchers compare with.
    watched_bytes: usize,
    patience: Timers<(Generation, u64)>,
}

/// The most watchers that one check of the invariants looks at.
const CHECKED_MAX: usize = 16;

/// What a command may change.
#[derive(Clone, Copy, Debug)]
enum MayChange {
    Nothing,
    /// Changes the object unless the compare-and-swap does not match.
    BySwap(ObjectId),
    Surely(ObjectId),
}

impl MayChange {
    fn of(command: &ObjectCommand) -> MayChange {
        match command.action {
            _ if command.only_asks() => MayChange::Nothing,
            Action::CompareAndSwap { .. } if command.sets.is_empty() => MayChange::BySwap(command.object),
            _ => MayChange::Surely(command.object),
        }
    }

    /// The object that the command has changed, judging by its result.
    fn changed(self, result: &CommandResult) -> Option<ObjectId> {
        match (self, &result.action) {
            (MayChange::Nothing, _) | (_, ActionResult::Skipped) => None,
            (MayChange::BySwap(_), ActionResult::Compared { swapped: false, .. }) => None,
            (MayChange::BySwap(object) | MayChange::Surely(object), _) => Some(object),
        }
    }
}

/// A host's wait for an attribute to change.
#[derive(Clone, Debug)]
struct Watcher {
    object: ObjectId,
    name: AttributeName,
    seen: Bytes,
    until: Time,
    /// The store is reading the attribute.
    looking: bool,
    /// The object has changed since that read began.
    stale: bool,
}

impl Requests {
    /// When the next wait times out.
    pub fn deadline(&self) -> Option<Time> {
        self.patience.next().map(|(time, _)| time)
    }

    pub fn watchers(&self) -> usize {
        self.watchers.len()
    }

    pub fn executing(&self) -> usize {
        self.executing.len()
    }

    /// Drops the requests of fenced hosts: the store does not execute them any more.
    pub fn drop_fenced(&mut self, fenced: impl Fn(Generation) -> bool) {
        self.executing.retain(|name, _| !fenced(name.host));
    }

    /// Asserts that every watcher is found by its object, and is answered in the end.
    pub fn invariants(&self) {
        assert_eq!(self.watchers.len(), self.watched.len(), "every watcher is indexed by its object");
        let is_bounded = self.watchers.len() <= limits::WATCHERS_MAX && self.watched_bytes <= limits::WATCHED_BYTES_MAX;
        assert!(is_bounded, "watchers are within their limits");
        for (key, watcher) in self.watchers.iter().take(CHECKED_MAX) {
            assert!(
                self.watched.contains(&(watcher.object, key.0, key.1)),
                "every watcher is indexed by its object: {key:?}"
            );
            let ends = watcher.looking || self.patience.deadline_of(*key).is_some();
            assert!(ends, "a wait for a change ends: {key:?}");
        }
    }

    fn remove(&mut self, key: (Generation, u64)) -> Option<Watcher> {
        let watcher = self.watchers.remove(&key)?;
        self.watched.remove(&(watcher.object, key.0, key.1));
        self.watched_bytes -= watcher.seen.len();
        self.patience.cancel(key);
        Some(watcher)
    }

    fn insert(&mut self, key: (Generation, u64), watcher: Watcher) {
        self.watched.insert((watcher.object, key.0, key.1));
        self.watched_bytes += watcher.seen.len();
        self.patience.set(key, watcher.until);
        self.watchers.insert(key, watcher);
    }

    /// True if the host may add a watcher that compares with so many bytes.
    fn may_watch(&self, host: Generation, seen: usize) -> bool {
        let of_host = self.watchers.range((host, 0)..=(host, u64::MAX)).take(limits::WATCHERS_PER_HOST_MAX).count();
        of_host < limits::WATCHERS_PER_HOST_MAX
            && self.watchers.len() < limits::WATCHERS_MAX
            && self.watched_bytes + seen <= limits::WATCHED_BYTES_MAX
    }
}

impl Device {
    pub(crate) fn on_objects(
        &mut self,
        now: Now,
        name: TransactionId,
        abandoned: Vec<(u64, u64)>,
        request: ObjectRequest,
        out: &mut Effects,
    ) {
        let TransactionId { host, sequence } = name;
        if self.requests.executing.contains_key(&name) {
            return self.ignore(Ignored::InProgress, out);
        }
        // A malformed request is refused at once.
        if let Err(refusal) = request.check() {
            return self.answer(host, Reply::Objects { sequence, answer: Err(refusal) }, out);
        }
        let may_change = request.commands.iter().map(MayChange::of).collect();
        let settled = self.sessions.settled(host).unwrap_or(0);
        if !self.store.execute(now, name, settled, abandoned, request, out) {
            return self.ignore(Ignored::Settled, out);
        }
        self.requests.executing.insert(name, may_change);
    }

    /// The store has executed a request or refused it.
    pub(crate) fn on_executed(&mut self, now: Now, name: TransactionId, answer: ObjectAnswer, out: &mut Effects) {
        let may_change = self.requests.executing.remove(&name).unwrap_or_default();
        let done = may_change.into_iter().zip(answer.iter().flatten());
        let changed: BTreeSet<ObjectId> = done.filter_map(|(command, result)| command.changed(result)).collect();
        self.answer(name.host, Reply::Objects { sequence: name.sequence, answer }, out);
        for object in changed {
            let range = (object, Generation(0), 0)..=(object, Generation(u32::MAX), u64::MAX);
            let watching: Vec<_> =
                self.requests.watched.range(range).map(|(_, host, ticket)| (*host, *ticket)).collect();
            for key in watching {
                self.read_watched(now, key, out);
            }
        }
    }

    pub(crate) fn on_await(&mut self, now: Now, host: Generation, ticket: u64, wanted: Wanted, out: &mut Effects) {
        let Wanted { object, name, seen, patience } = wanted;
        let key = (host, ticket);
        let before = self.requests.remove(key);
        let refusal = match seen.len() {
            length if length > limits::ATTRIBUTE_BYTES_MAX => {
                Some(ObjectFailure::ValueTooLong { length: length as u32 })
            }
            length if self.requests.may_watch(host, length) => None,
            _ => Some(ObjectFailure::Busy),
        };
        if let Some(failure) = refusal {
            return self.answer(host, Reply::Changed { ticket, value: Err(failure) }, out);
        }
        let looking = before.is_some_and(|before| before.looking);
        let until = now.time.after(patience);
        // The value is copied: the watcher lives long, and must not keep the frame that brought it alive.
        let seen = Bytes::copy_from_slice(&seen);
        self.requests.insert(key, Watcher { object, name, seen, until, looking, stale: looking });
        if !looking {
            self.read_watched(now, key, out);
        }
    }

    fn read_watched(&mut self, now: Now, key: (Generation, u64), out: &mut Effects) {
        let watcher = self.requests.watchers.get_mut(&key).expect("an indexed watcher exists");
        if watcher.looking {
            watcher.stale = true;
            return;
        }
        (watcher.looking, watcher.stale) = (true, false);
        let get = ObjectCommand { gets: vec![watcher.name], ..ObjectCommand::new(watcher.object, Action::Nothing) };
        let (host, awaited) = key;
        let ticket = self.tickets.open(Ticket::ReadWatched { host, ticket: awaited });
        self.store.read_objects(now, ticket, ObjectRequest { commands: vec![get] }, out);
    }

    /// The store has read the attribute for a watcher.
    pub(crate) fn on_watched_read(
        &mut self,
        now: Now,
        host: Generation,
        ticket: u64,
        answer: ObjectAnswer,
        out: &mut Effects,
    ) {
        let key = (host, ticket);
        let Some(watcher) = self.requests.watchers.get_mut(&key) else { return };
        watcher.looking = false;
        let value = match answer {
            Ok(mut results) => Ok(results.pop().and_then(|mut result| result.values.pop()).unwrap_or_default()),
            Err(ObjectRefusal { failure, .. }) => Err(failure),
        };
        if value.as_ref() == Ok(&watcher.seen) && now.time < watcher.until {
            if watcher.stale {
                self.read_watched(now, key, out);
            }
            return;
        }
        self.requests.remove(key);
        self.answer(host, Reply::Changed { ticket, value }, out);
    }

    /// Answers the watchers whose time is up with the value that they know.
    pub(crate) fn end_waits(&mut self, now: Now, out: &mut Effects) {
        while let Some(key) = self.requests.patience.pop_due(now.time) {
            // While the store reads, its result is the answer, whatever it is.
            if !self.requests.watchers[&key].looking {
                let watcher = self.requests.remove(key).expect("a watcher with a deadline exists");
                self.answer(key.0, Reply::Changed { ticket: key.1, value: Ok(watcher.seen) }, out);
            }
        }
    }

    /// Drops the watchers of a host that is silent.
    pub(crate) fn drop_watchers(&mut self, host: Generation) {
        let range = (host, 0)..=(host, u64::MAX);
        let gone: Vec<_> = self.requests.watchers.range(range).map(|(key, _)| *key).collect();
        for key in gone {
            self.requests.remove(key);
        }
    }
}

/// A wait for a change of an attribute, as requested.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub object: ObjectId,
    pub name: AttributeName,
    pub seen: Bytes,
    pub patience: Duration,
}
