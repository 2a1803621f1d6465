//! Inserting and removing names. [`directory`](super) describes the algorithm.
//!
//! ```text
//!              ┌───────────────────── another client has the lock ◀─────┐
//!              ▼                                                        │
//!   fast ──▶ unlocked ──▶ lock ──▶ locked ──▶ walk ──▶ apply ────────▶ done
//!    │ ▲       ▲  │         │        │                   │
//!    │ └───────┼──┘         │        └─▶ unlock ──▶ done (nothing to change)
//!    │       look ◀─────────┴─ no answer ────────────────┘
//!    ▼         ▲
//!   done       └── wait, at most until the lock's lease has expired
//! ```

use super::chain::Chain;
use super::entry::{Entry, NAME_BYTES_MAX, VERSION_MAX};
use super::{Directory, NEXT_FREE, linked_at, lock_of, names_at};
use crate::idempotency_record::Nonce;
use crate::procedure::{Operation, RequestFailure};
use crate::request_builder::{DAMAGED, RequestBuilder, Results, set};
use crate::requester::{Outcome, Requester, operation};
use braid_base::{ObjectId, Time};
use braid_wire::SetAttribute;
use bytes::Bytes;
use std::num::NonZeroU32;
use std::time::Duration;

/// What a name to be removed must stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Any object.
    Anything,
    /// This object.
    Object(ObjectId),
    /// The object of this entry, which was looked up before. If the entry has not changed, one round trip is enough.
    Seen(Entry),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The name stands for the object now.
    Inserted,
    /// The name existed already, and stands for this object.
    Exists(ObjectId),
    /// No free slot was found in the linked list: 64 in a row are in use. With a linked list of maximum size, that is next to impossible; a
    /// small one may have other free slots, and a retry looks at the next 64.
    Full,
    /// The name was removed; it stood for this object.
    Removed(ObjectId),
    /// The name did not exist.
    Absent,
    /// The name stands for this object, which is not the expected one.
    Other(ObjectId),
}

impl Directory {
    /// Gives an object a name, if the name is free.
    pub fn insert(self, name: Bytes, object: ObjectId) -> Operation<Result<Changed, RequestFailure>> {
        Change::begin(self, name, Edit::Insert(object))
    }

    pub fn remove(self, name: Bytes, expected: Expected) -> Operation<Result<Changed, RequestFailure>> {
        Change::begin(self, name, Edit::Remove(expected))
    }
}

/// Inserts or removes a name.
struct Change {
    requester: Requester,
    directory: Directory,
    slot: u32,
    name: Bytes,
    wish: Edit,
    nonce: Nonce,
    /// The value of the lock that it holds, or held last: the nonce, and how many locks it has taken. So a lock that it takes again is
    /// distinguishable, and has a new lease.
    lock: Bytes,
    locks: u32,
    /// The version of a new entry.
    version: u32,
    /// A slot of the linked list for a new entry, and how many slots were found in use.
    free: Option<NonZeroU32>,
    taken: u32,
    /// The lock's value while another client holds it or it is free, and since when that value was seen.
    others: Option<(Bytes, Time)>,
    /// The lock can be taken: it is free, or its lease has expired.
    expired: bool,
    /// The entry that is being removed, in case the outcome is unknown.
    removing: Option<Entry>,
}

#[derive(Clone, Debug)]
enum Edit {
    Insert(ObjectId),
    Remove(Expected),
}

/// How far it is, with the slot's first entry.
enum Stage {
    /// Another client has the lock, or none.
    Unlocked(Option<Entry>),
    /// It has the lock.
    Locked(Option<Entry>),
    Done(Changed),
}

type Staged = Result<Stage, RequestFailure>;

/// So many consecutive slots of the linked list may be in use before the list is considered full.
const TAKEN_MAX: u32 = 64;
/// The value of a free lock where there is a chain. It has the length of a held one, so that taking the lock makes nothing longer.
const FREE: Bytes = Bytes::from_static(&[0; 12]);
/// The shortest wait.
const WAIT_MIN: Duration = Duration::from_millis(1);

impl Change {
    fn begin(directory: Directory, name: Bytes, wish: Edit) -> Operation<Result<Changed, RequestFailure>> {
        operation(move |requester| async move {
            if name.len() > NAME_BYTES_MAX {
                return Err(RequestFailure::TooLong { most: NAME_BYTES_MAX });
            }
            if name.is_empty() {
                return Err(RequestFailure::NoName);
            }
            let nonce = requester.draw(|rng| Nonce::draw(directory.idempotency_record, rng));
            let version = requester.draw(|rng| rng.next_u64() as u32 & VERSION_MAX);
            let change = Change {
                requester,
                directory,
                slot: directory.slot(&name),
                name,
                wish,
                lock: lock_value(&nonce, 0),
                nonce,
                locks: 0,
                version,
                free: None,
                taken: 0,
                others: None,
                expired: false,
                removing: None,
            };
            change.run().await
        })
    }

    async fn run(mut self) -> Result<Changed, RequestFailure> {
        let mut stage = match self.wish.clone() {
            Edit::Insert(_) => self.fast(None).await?,
            Edit::Remove(Expected::Seen(entry)) if entry.next.is_none() => self.fast(Some(entry.unmarked())).await?,
            Edit::Remove(_) => self.look().await?,
        };
        loop {
            stage = match stage {
                Stage::Unlocked(first) => self.unlocked(first).await?,
                Stage::Locked(first) => self.locked(first).await?,
                Stage::Done(changed) => return Ok(changed),
            }
        }
    }

    /// The fast path: one request that changes the slot if it has the expected value.
    async fn fast(&mut self, from: Option<Entry>) -> Staged {
        let compare = from.as_ref().map_or(Bytes::new(), Entry::encode);
        let swap = match self.wish {
            Edit::Insert(_) => self.first_entry().encode(),
            Edit::Remove(_) => Bytes::new(),
        };
        self.removing = from;
        let builder = RequestBuilder::of(self.directory.object).swap(names_at(self.slot), &compare, &swap);
        let sets = self.nonce.sets();
        let builder = if sets.is_empty() { builder } else { builder.then_set(sets) };
        match self.attempt(self.directory.first_request(builder, self.slot)).await? {
            Ok(results) => match results.compared(0)?.ok_or(DAMAGED)? {
                (true, _) => Ok(Stage::Done(self.effect())),
                (false, other) => Ok(Stage::Unlocked(Entry::decode(&other)?)),
            },
            Err(stage) => Ok(stage),
        }
    }

    /// Makes the change: the results, or how far it is if they were lost.
    async fn attempt(&mut self, builder: RequestBuilder) -> Result<Result<Results, Stage>, RequestFailure> {
        Ok(match self.requester.change(builder, self.looks()).await? {
            Outcome::Answered(results) => Ok(results),
            Outcome::Inquired(results) if self.has_happened(&results).or(Err(RequestFailure::Unknown))? => {
                Err(Stage::Done(self.effect()))
            }
            Outcome::Inquired(results) => Err(self.looked(&results)?),
        })
    }

    fn effect(&self) -> Changed {
        self.removing.as_ref().map_or(Changed::Inserted, |entry| Changed::Removed(entry.object))
    }

    async fn look(&mut self) -> Staged {
        let results = self.requester.read(self.looks()).await?;
        self.looked(&results)
    }

    /// Reads the slot, the lock, and what tells whether a change has happened.
    fn looks(&self) -> RequestBuilder {
        let mut gets = vec![names_at(self.slot), lock_of(self.slot)];
        gets.extend(self.free.map(linked_at));
        let builder = RequestBuilder::of(self.directory.object).get(gets).get(self.nonce.gets());
        self.directory.first_request(builder, self.slot)
    }

    fn looked(&mut self, results: &Results) -> Staged {
        let values = results.values(0, 2 + usize::from(self.free.is_some()))?;
        let (first, lock) = (Entry::decode(&values[0])?, values[1].clone());
        Ok(if lock == self.lock { Stage::Locked(first) } else { self.lost_to(lock, first) })
    }

    /// Whether a change whose answer was lost has happened.
    fn has_happened(&self, results: &Results) -> Result<bool, RequestFailure> {
        let values = results.values(0, 2 + usize::from(self.free.is_some()))?;
        if let Some(told) = self.nonce.tells(results.values(1, self.nonce.gets().len())?) {
            return Ok(told);
        }
        // The change would have released the lock.
        if values[1] == self.lock {
            return Ok(false);
        }
        let first = Entry::decode(&values[0])?;
        let linked = values.get(2).map_or(Ok(None), Entry::decode)?;
        match (&self.removing, first) {
            // Its entry, with the version drawn for it.
            (None, first) if first.iter().chain(&linked).any(|entry| self.is_mine(entry)) => Ok(true),
            // The same entry at the same version: it has not been changed.
            (Some(removing), Some(first)) if removing.same_chain(&first) => Ok(false),
            _ => Err(RequestFailure::Unknown),
        }
    }

    fn is_mine(&self, entry: &Entry) -> bool {
        Entry { mark: false, next: None, ..entry.clone() } == self.first_entry()
    }

    /// Another client holds the lock, or it is free.
    fn lost_to(&mut self, others: Bytes, first: Option<Entry>) -> Stage {
        let now = self.requester.now();
        let since = self.others.take().filter(|(seen, _)| *seen == others).map_or(now, |(_, since)| since);
        // The value that was read existed no later than when this request was sent.
        let same_for = self.requester.asked.since(since);
        self.expired = others.is_empty() || others == FREE || same_for >= self.directory.lease;
        self.others = Some((others, since));
        Stage::Unlocked(first)
    }

    /// Continues without the lock, with the present value of the slot.
    async fn unlocked(&mut self, first: Option<Entry>) -> Staged {
        if let Some(outcome) = self.settled(first.as_ref()) {
            return Ok(Stage::Done(outcome));
        }
        match (&self.wish, first) {
            (Edit::Insert(_), None) => self.fast(None).await,
            (Edit::Remove(_), Some(first)) if !first.mark && first.next.is_none() => self.fast(Some(first)).await,
            (_, first) => match self.others.clone() {
                Some((seen, since)) if !self.expired => {
                    let same_for = self.requester.now().since(since);
                    let patience = self.directory.lease.saturating_sub(same_for).max(WAIT_MIN);
                    self.requester.wait(self.directory.object, lock_of(self.slot), seen, patience).await?;
                    self.look().await
                }
                others => {
                    let free = free_lock(first.as_ref());
                    self.lock(others.map_or(free, |(seen, _)| seen), first).await
                }
            },
        }
    }

    /// The result, if the first entry alone determines it.
    fn settled(&self, first: Option<&Entry>) -> Option<Changed> {
        match (&self.wish, first) {
            (Edit::Insert(_), None) => None,
            (Edit::Remove(_), None) => Some(Changed::Absent),
            (_, Some(first)) if first.name == self.name => self.named(first),
            (Edit::Remove(_), Some(first)) if first.next.is_none() => Some(Changed::Absent),
            _ => None,
        }
    }

    /// The result, if the entry of the name determines it.
    fn named(&self, entry: &Entry) -> Option<Changed> {
        let fits = match &self.wish {
            Edit::Insert(_) => return Some(Changed::Exists(entry.object)),
            Edit::Remove(Expected::Anything) => true,
            Edit::Remove(Expected::Object(object)) => entry.object == *object,
            Edit::Remove(Expected::Seen(seen)) => entry.object == seen.object,
        };
        (!fits).then_some(Changed::Other(entry.object))
    }

    /// Takes the lock from `compare`, which may be nothing, a crashed client's nonce, or its own; sets the mark, and draws a free slot.
    async fn lock(&mut self, compare: Bytes, first: Option<Entry>) -> Staged {
        if compare != self.lock {
            self.locks += 1;
            self.lock = lock_value(&self.nonce, self.locks);
        }
        let mut builder = RequestBuilder::of(self.directory.object).swap(lock_of(self.slot), &compare, &self.lock);
        let mut commands = 1;
        if let Some(first) = first.filter(|first| !first.mark) {
            builder = builder.then_swap(names_at(self.slot), &first.encode(), &first.marked().encode());
            commands += 1;
        }
        let draws = self.draws();
        if draws {
            builder = builder.then_add(NEXT_FREE, 1);
        }
        let Some(results) = self.requester.ask(builder.get(vec![names_at(self.slot)])).await? else {
            return self.look().await;
        };
        if draws {
            self.free = self.drawn(results.added(commands)?)?;
            commands += 1;
        }
        let first = Entry::decode(&results.values(commands, 1)?[0])?;
        Ok(match results.compared(0)?.ok_or(DAMAGED)? {
            (true, _) => Stage::Locked(first),
            (false, others) => self.lost_to(others, first),
        })
    }

    /// True if it needs a free slot of the linked list.
    fn draws(&self) -> bool {
        self.free.is_none() && matches!(self.wish, Edit::Insert(_))
    }

    fn drawn(&self, count: Option<i64>) -> Result<Option<NonZeroU32>, RequestFailure> {
        let Some(count) = count else { return Ok(None) };
        let count = u64::try_from(count).map_err(|_| DAMAGED)?;
        Ok(NonZeroU32::new((count % u64::from(self.directory.linked.get())) as u32 + 1))
    }

    /// Continues with the lock held.
    async fn locked(&mut self, first: Option<Entry>) -> Staged {
        if let Some(outcome) = self.settled(first.as_ref()) {
            return self.unlock(outcome, first.as_ref()).await;
        }
        match first {
            None => {
                self.removing = None;
                self.apply(None, Some(self.first_entry()), Vec::new(), None).await
            }
            Some(first) if !first.mark || self.draws() => self.lock(self.lock.clone(), Some(first)).await,
            first => self.walk(Chain::begin(first)).await,
        }
    }

    /// Reads the chain while holding the lock, up to the name.
    async fn walk(&mut self, mut chain: Chain) -> Staged {
        loop {
            let found = chain.find(&self.name);
            if let Some(outcome) = found.and_then(|at| self.named(&chain.entries[at].1)) {
                return self.unlock(outcome, chain.first()).await;
            }
            match (found, chain.next()) {
                // Removing the first entry moves the second, which therefore has to be read.
                (Some(0), Some(_)) if chain.entries.len() == 1 => {}
                (Some(at), _) => return self.take_out(&chain, at).await,
                (None, Some(_)) => {}
                (None, None) => {
                    return match self.wish {
                        Edit::Insert(_) => self.put_in(&chain).await,
                        Edit::Remove(_) => self.unlock(Changed::Absent, chain.first()).await,
                    };
                }
            }
            let request = chain.ask(self.directory, self.slot).get(vec![lock_of(self.slot)]);
            let results = self.requester.read(request).await?;
            let lock = &results.values(1, 1)?[0];
            if *lock != self.lock {
                let first = Entry::decode(&results.values(0, 2)?[0])?;
                return Ok(self.lost_to(lock.clone(), first));
            }
            chain.hear(&results)?;
            if chain.entries.len() < 2 {
                return Ok(Stage::Locked(chain.first().cloned()));
            }
        }
    }

    /// The new entry goes directly behind the first.
    async fn put_in(&mut self, chain: &Chain) -> Staged {
        let first = chain.first().ok_or(DAMAGED)?;
        let free = self.free.ok_or(DAMAGED)?;
        let entry = Entry { next: first.next, ..self.first_entry() };
        let changed = Entry { version: first.next_version(), next: Some(free), ..first.unmarked() };
        let sets = vec![set(linked_at(free), &entry.encode())];
        self.removing = None;
        self.apply(Some(first), Some(changed), sets, Some(free)).await
    }

    async fn take_out(&mut self, chain: &Chain, at: usize) -> Staged {
        let first = chain.first().ok_or(DAMAGED)?;
        let entry = &chain.entries[at].1;
        // If it is the first entry, the second moves into its place.
        let emptied = chain.entries.get(at.max(1)).and_then(|(lies, _)| *lies);
        let mut sets: Vec<SetAttribute> = emptied.iter().map(|lies| set(linked_at(*lies), &Bytes::new())).collect();
        let slot = match at {
            0 => chain.entries.get(1).map(|(_, second)| second.clone()),
            1 => Some(Entry { next: entry.next, ..first.clone() }),
            _ => {
                let (lies, before) = &chain.entries[at - 1];
                let before = Entry { next: entry.next, ..before.clone() };
                sets.extend(lies.map(|lies| set(linked_at(lies), &before.encode())));
                Some(first.clone())
            }
        };
        let slot = slot.map(|slot| Entry { version: first.next_version(), ..slot.unmarked() });
        self.removing = Some(entry.clone());
        self.apply(Some(first), slot, sets, None).await
    }

    /// Applies the change and releases the lock in one request, if the lock is still held and the slot is unchanged; the slot's first entry
    /// becomes `slot`.
    async fn apply(
        &mut self,
        first: Option<&Entry>,
        slot: Option<Entry>,
        mut sets: Vec<SetAttribute>,
        free: Option<NonZeroU32>,
    ) -> Staged {
        let seen = first.map_or(Bytes::new(), Entry::encode);
        let mut builder = RequestBuilder::of(self.directory.object)
            .test(lock_of(self.slot), &self.lock)
            .test(names_at(self.slot), &seen);
        if let Some(free) = free {
            builder = builder.test(linked_at(free), &Bytes::new());
        }
        sets.push(set(names_at(self.slot), &slot.as_ref().map_or(Bytes::new(), Entry::encode)));
        sets.push(set(lock_of(self.slot), &free_lock(slot.as_ref())));
        sets.extend(self.nonce.sets());
        let results = match self.attempt(builder.then_set(sets).get(vec![names_at(self.slot)])).await? {
            Ok(results) => results,
            Err(stage) => return Ok(stage),
        };
        let tests = 2 + usize::from(free.is_some());
        if results.happened(tests)? {
            return Ok(Stage::Done(self.effect()));
        }
        let first = Entry::decode(&results.values(tests + 1, 1)?[0])?;
        let (held, lock) = results.compared(0)?.ok_or(DAMAGED)?;
        if !held {
            return Ok(self.lost_to(lock, first));
        }
        if free.is_some() && !results.swapped(2)? {
            self.free = None;
            self.taken += 1;
            if self.taken >= TAKEN_MAX {
                return self.unlock(Changed::Full, first.as_ref()).await;
            }
        }
        Ok(Stage::Locked(first))
    }

    /// Releases the lock: there is nothing to change. If it was not released, it expires with its lease.
    async fn unlock(&mut self, outcome: Changed, first: Option<&Entry>) -> Staged {
        let mut sets = vec![set(lock_of(self.slot), &free_lock(first))];
        if let Some(first) = first.filter(|first| first.mark) {
            sets.push(set(names_at(self.slot), &first.unmarked().encode()));
        }
        let builder = RequestBuilder::of(self.directory.object).test(lock_of(self.slot), &self.lock);
        self.requester.ask(builder.then_set(sets)).await?;
        Ok(Stage::Done(outcome))
    }

    /// The new entry as the only one of its slot.
    fn first_entry(&self) -> Entry {
        let object = match self.wish {
            Edit::Insert(object) => object,
            Edit::Remove(_) => ObjectId(0),
        };
        Entry { mark: false, version: self.version, next: None, object, name: self.name.clone() }
    }
}

/// The value of a lock that it holds, its `locks`th.
fn lock_value(nonce: &Nonce, locks: u32) -> Bytes {
    nonce.value().iter().copied().chain(locks.to_be_bytes()).collect()
}

/// The value of a free lock, for a slot with this first entry.
fn free_lock(first: Option<&Entry>) -> Bytes {
    if first.is_some_and(|first| first.next.is_some()) { FREE } else { Bytes::new() }
}
