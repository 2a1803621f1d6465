//! Requests for objects that hold bytes and attributes: passed to the store, which does each once; and those who wait for an attribute to
//! change.
//!
//! Who waits is told once a change is durable. Nothing of that survives a restart: hosts ask again. A wait that is asked for again
//! takes the place of the former.

use crate::device::{Device, Ticket};
use braid_base::{Generation, Now, ObjectId, Time, Timers, TransactionId, limits};
use braid_machine::{Effects, Ignored};
use braid_wire::{
    Action, AttributeName, ObjectAnswer, ObjectCommand, ObjectFailure, ObjectRefusal, ObjectRequest, Reply, When,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Requests under way, and who waits.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// What the store is at, and which objects that may change.
    executing: BTreeMap<TransactionId, BTreeSet<ObjectId>>,
    watchers: BTreeMap<(Generation, u64), Watcher>,
    /// The same by object.
    watched: BTreeSet<(ObjectId, Generation, u64)>,
    patience: Timers<(Generation, u64)>,
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

    fn remove(&mut self, key: (Generation, u64)) -> Option<Watcher> {
        let watcher = self.watchers.remove(&key)?;
        self.watched.remove(&(watcher.object, key.0, key.1));
        self.patience.cancel(key);
        Some(watcher)
    }
}

impl Device {
    pub(crate) fn on_objects(
        &mut self,
        now: Now,
        host: Generation,
        sequence: u64,
        request: ObjectRequest,
        out: &mut Effects,
    ) {
        let name = TransactionId { host, sequence };
        if self.requests.executing.contains_key(&name) {
            return self.ignore(Ignored::InProgress, out);
        }
        let objects = request.commands.iter().map(|command| command.object).collect();
        let settled = self.hosts.get(host).map_or(0, |session| session.settled);
        if !self.store.execute(now, name, settled, request, out) {
            return self.ignore(Ignored::Settled, out);
        }
        self.requests.executing.insert(name, objects);
    }

    /// The store has done a request, or refused it.
    pub(crate) fn on_executed(&mut self, now: Now, name: TransactionId, answer: ObjectAnswer, out: &mut Effects) {
        let touched = self.requests.executing.remove(&name);
        self.answer(name.host, Reply::Objects { sequence: name.sequence, answer }, out);
        for object in touched.into_iter().flatten() {
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
            0..=limits::ATTRIBUTE_BYTES_MAX if self.requests.watchers.len() < limits::WATCHERS_MAX => None,
            0..=limits::ATTRIBUTE_BYTES_MAX => Some(ObjectFailure::Busy),
            length => Some(ObjectFailure::ValueTooLong { length: length as u32 }),
        };
        if let Some(failure) = refusal {
            return self.answer(host, Reply::Changed { ticket, value: Err(failure) }, out);
        }
        let looking = before.is_some_and(|before| before.looking);
        let until = now.time.after(patience);
        self.requests.watchers.insert(key, Watcher { object, name, seen, until, looking, stale: looking });
        self.requests.watched.insert((object, host, ticket));
        self.requests.patience.set(key, until);
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
        let ticket = self.ticket(Ticket::Look { host, ticket: awaited });
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
