//! Requests for objects that hold bytes and attributes: passed to the store, which does each once; and those who wait for an attribute to
//! change.
//!
//! Who waits is told once a change is durable. Nothing of that survives a restart: hosts ask again. A wait that is asked for again
//! takes the place of the former.

use crate::device::Device;
use crate::tickets::Ticket;
use braid_base::{Generation, Now, ObjectId, Time, Timers, TransactionId, limits};
use braid_machine::{Effects, Ignored};
use braid_wire::{
    Action, ActionResult, AttributeName, CommandResult, ObjectAnswer, ObjectCommand, ObjectFailure, ObjectRefusal,
    ObjectRequest, Reply, When,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Requests under way, and who waits.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// What the store is at, and what each command of that may change.
    executing: BTreeMap<TransactionId, Vec<MayChange>>,
    watchers: BTreeMap<(Generation, u64), Watcher>,
    /// The same by object.
    watched: BTreeSet<(ObjectId, Generation, u64)>,
    /// The values that they know.
    watched_bytes: usize,
    patience: Timers<(Generation, u64)>,
}

/// The most waits that one look at the invariants checks.
const CHECKED_MAX: usize = 16;

/// What a command may change.
#[derive(Clone, Copy, Debug)]
enum MayChange {
    Nothing,
    /// Unless its swap does not match.
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

    /// The object that it has changed, by what it brought.
    fn changed(self, result: &CommandResult) -> Option<ObjectId> {
        match (self, &result.action) {
            (MayChange::Nothing, _) | (_, ActionResult::Skipped) => None,
            (MayChange::BySwap(_), ActionResult::Compared { swapped: false, .. }) => None,
            (MayChange::BySwap(object) | MayChange::Surely(object), _) => Some(object),
        }
    }
}

/// Who waits for an attribute to change.
#[derive(Clone, Debug)]
struct Watcher {
    object: ObjectId,
    name: AttributeName,
    seen: Bytes,
    until: Time,
    /// The store is looking.
    looking: bool,
    /// Something has changed since it began to.
    stale: bool,
}

impl Requests {
    /// When the next wait is over.
    pub fn deadline(&self) -> Option<Time> {
        self.patience.next().map(|(time, _)| time)
    }

    /// How many wait.
    pub fn watchers(&self) -> usize {
        self.watchers.len()
    }

    /// How many requests the store is at.
    pub fn executing(&self) -> usize {
        self.executing.len()
    }

    /// Those hosts are fenced: the store does nothing for them any more.
    pub fn drop_fenced(&mut self, fenced: impl Fn(Generation) -> bool) {
        self.executing.retain(|name, _| !fenced(name.host));
    }

    /// Asserts that whoever waits is found by the object, and is told something in the end.
    pub fn invariants(&self) {
        assert_eq!(self.watchers.len(), self.watched.len(), "who waits is known by the object");
        let is_bounded = self.watchers.len() <= limits::WATCHERS_MAX && self.watched_bytes <= limits::WATCHED_BYTES_MAX;
        assert!(is_bounded, "so many may wait for a change");
        for (key, watcher) in self.watchers.iter().take(CHECKED_MAX) {
            assert!(
                self.watched.contains(&(watcher.object, key.0, key.1)),
                "who waits is known by the object: {key:?}"
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

    /// True if the host may wait for one thing more, of which it knows so many bytes.
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
        // Whatever it holds, it would wait with that.
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

    /// The store has done a request, or refused it.
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
                self.look(now, key, out);
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
        // A copy: it stays long, and the frame that it came with must not stay along.
        let seen = Bytes::copy_from_slice(&seen);
        self.requests.insert(key, Watcher { object, name, seen, until, looking, stale: looking });
        if !looking {
            self.look(now, key, out);
        }
    }

    fn look(&mut self, now: Now, key: (Generation, u64), out: &mut Effects) {
        let watcher = self.requests.watchers.get_mut(&key).expect("whoever is watched for waits");
        if watcher.looking {
            watcher.stale = true;
            return;
        }
        (watcher.looking, watcher.stale) = (true, false);
        let get = ObjectCommand {
            object: watcher.object,
            when: When::Always,
            action: Action::Nothing,
            sets: Vec::new(),
            sets_when: When::Always,
            gets: vec![watcher.name],
        };
        let (host, awaited) = key;
        let ticket = self.tickets.open(Ticket::Look { host, ticket: awaited });
        self.store.look(now, ticket, ObjectRequest { commands: vec![get] }, out);
    }

    /// The store has looked at what somebody waits for.
    pub(crate) fn on_looked(
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
                self.look(now, key, out);
            }
            return;
        }
        self.requests.remove(key);
        self.answer(host, Reply::Changed { ticket, value }, out);
    }

    /// Those whose time is up are told what there is.
    pub(crate) fn end_waits(&mut self, now: Now, out: &mut Effects) {
        while let Some(key) = self.requests.patience.pop_due(now.time) {
            // While the store looks, what it finds is the answer, whatever it is.
            if !self.requests.watchers[&key].looking {
                let watcher = self.requests.remove(key).expect("whoever has patience waits");
                self.answer(key.0, Reply::Changed { ticket: key.1, value: Ok(watcher.seen) }, out);
            }
        }
    }

    /// A host is silent: nobody waits there any more.
    pub(crate) fn drop_watchers(&mut self, host: Generation) {
        let range = (host, 0)..=(host, u64::MAX);
        let gone: Vec<_> = self.requests.watchers.range(range).map(|(key, _)| *key).collect();
        for key in gone {
            self.requests.remove(key);
        }
    }
}

/// What somebody waits for.
pub(crate) struct Wanted {
    pub object: ObjectId,
    pub name: AttributeName,
    pub seen: Bytes,
    pub patience: Duration,
}
