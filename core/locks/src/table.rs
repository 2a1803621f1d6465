//! The lock table: the range locks on objects, held and waiting.
//!
//! It is used wherever blocks are locked: in lock servers, in devices that serve locks, and in a host among its own
//! transactions. It knows neither time nor messages.
//!
//! The *lock* of an owner consists of all its extents, and is granted or waits as a whole. One rule decides:
//!
//! > A lock is held if it conflicts with no lock that came before it, and waits otherwise.
//!
//! So conflicting locks are never held at the same time. No lock is overtaken by a later one that it conflicts with,
//! and the first of all locks that wait for a block is granted next. Since a lock waits only for earlier ones, there
//! are no deadlocks among the locks of one table.
//!
//! A lock may instead *pass* those that wait: it waits for held ones alone, and those that don't pass wait for it.
//!
//! Locks may *belong together*, for instance those of one host: they do not count among each other, and other owners are excluded by each of
//! them. So an owner promotes what it holds without giving it up: a stronger lock waits, together with the weaker one.
//!
//! Extents are kept apart by whether they are held, and by their mode. So a search for conflicts looks at nothing else: a
//! request for a shared lock, for instance, is not delayed by any number of shared locks.

mod extents;

use braid_base::{BlockRange, ObjectId};
use braid_wire::locking::{LockExtent, LockMode};
use extents::{Entry, Extents};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::ops::ControlFlow::{self, Break, Continue};

/// The locks of owners on blocks, held and waiting.
#[derive(Clone, Debug)]
pub struct LockTable<Owner> {
    owners: BTreeMap<Owner, Owned>,
    held: ByMode<Owner>,
    waiting: ByMode<Owner>,
    waiting_locks: usize,
    /// Arrival numbers. Locks that were taken in as held, and those that pass others, count up from 0; other requested
    /// locks count up from [`FIRST_ASKED`].
    next_held: u64,
    next_asked: u64,
    /// Owners whose locks conflict and belong together, each with the others: see [`LockTable::lock_beside`].
    beside: BTreeMap<Owner, Vec<Owner>>,
    /// The owners that lately came or were granted, which [`LockTable::invariants`] checks.
    recent: VecDeque<Owner>,
}

/// The result of a lock request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locked<Owner> {
    /// The lock is held.
    Granted,
    /// The lock waits.
    Waits {
        /// The owners that hold conflicting locks, sorted. Empty if only waiting locks are ahead.
        blockers: Vec<Owner>,
    },
}

/// The state of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// It is granted.
    Held,
    /// It conflicts with an earlier lock.
    Waiting,
}

#[derive(Clone, Debug)]
struct Owned {
    arrival: u64,
    state: LockState,
    object: ObjectId,
    extents: Vec<LockExtent>,
}

/// The extents that are held, or those that wait.
#[derive(Clone, Debug)]
struct ByMode<Owner> {
    shared: Extents<Owner>,
    exclusive: Extents<Owner>,
}

const FIRST_ASKED: u64 = 1 << 63;
/// The most locks that one check of the invariants looks at.
const CHECKED_MAX: usize = 16;
/// The most extents of a lock, and for each of them the most others, that such a check looks at.
const CHECKED_EXTENTS_MAX: usize = 16;
const CHECKED_NEAR_MAX: usize = 64;
/// The most extents of a table that such a check searches as a whole.
const SEARCHED_MAX: usize = 4096;
/// A range that has more locks near it is not widened.
const WIDENED_AMONG_MAX: usize = 64;

impl<Owner> Default for LockTable<Owner> {
    fn default() -> Self {
        LockTable {
            owners: BTreeMap::new(),
            held: ByMode::default(),
            waiting: ByMode::default(),
            waiting_locks: 0,
            next_held: 0,
            next_asked: FIRST_ASKED,
            beside: BTreeMap::new(),
            recent: VecDeque::with_capacity(CHECKED_MAX),
        }
    }
}

impl<Owner: Ord + Copy + Debug> LockTable<Owner> {
    pub fn new() -> LockTable<Owner> {
        LockTable::default()
    }

    /// Requests a lock on all these extents of `object`, none of them empty. An owner has one lock. Its extents may
    /// touch each other; a block is locked exclusively if any of them says so.
    pub fn lock(&mut self, owner: Owner, object: ObjectId, extents: &[LockExtent]) -> Locked<Owner> {
        let blockers = self.held.owners(object, extents);
        let is_next = || !self.waiting.any(object, extents, usize::MAX, |_| true);
        let free = blockers.is_empty() && (self.waiting_locks == 0 || is_next());
        self.request(owner, object, extents, free, false);
        if free { Locked::Granted } else { Locked::Waits { blockers } }
    }

    /// Like [`LockTable::lock`], but locks of some owners belong together with this one. `passes`: it passes locks that wait.
    pub fn lock_beside(
        &mut self,
        owner: Owner,
        object: ObjectId,
        extents: &[LockExtent],
        belongs: impl Fn(Owner) -> bool,
        passes: bool,
    ) -> Locked<Owner> {
        let (beside, blockers): (Vec<_>, _) =
            self.held.owners(object, extents).into_iter().partition(|it| belongs(*it));
        let waiting = if passes { Vec::new() } else { self.waiting.owners(object, extents) };
        let free = blockers.is_empty() && waiting.iter().all(|other| belongs(*other));
        let waiting = waiting.into_iter().filter(|other| belongs(*other));
        self.set_beside(owner, beside.into_iter().chain(waiting));
        self.request(owner, object, extents, free, passes);
        if free { Locked::Granted } else { Locked::Waits { blockers } }
    }

    /// A held lock waits for something elsewhere: those that wait for it and pass others belong together with it from now on, as far as they may.
    /// Appends those that are granted by that to `granted`.
    pub fn let_pass(&mut self, owner: Owner, may_belong: impl Fn(Owner) -> bool, granted: &mut Vec<Owner>) {
        let is_held = |owned: &&Owned| owned.state == LockState::Held && self.waiting_locks > 0;
        let Some(owned) = self.owners.get(&owner).filter(is_held).cloned() else { return };
        let mut passing = Vec::new();
        self.waiting.each(owned.object, &owned.extents, |other| {
            if other.arrival < FIRST_ASKED && may_belong(other.owner) && !self.are_beside(owner, other.owner) {
                passing.push(other.owner);
            }
        });
        self.set_beside(owner, in_order(passing));
        self.grant_behind(&owned, granted);
    }

    fn request(&mut self, owner: Owner, object: ObjectId, extents: &[LockExtent], free: bool, passes: bool) {
        let next = if passes { &mut self.next_held } else { &mut self.next_asked };
        let arrival = *next;
        *next += 1;
        let state = if free { LockState::Held } else { LockState::Waiting };
        self.insert(owner, Owned { arrival, state, object, extents: extents.to_vec() });
    }

    /// Takes in a lock as held from before all requests: of a recovered transaction, or reasserted to a restarted
    /// server. Returns false, and does nothing, if it conflicts with a held lock.
    pub fn hold(&mut self, owner: Owner, object: ObjectId, extents: &[LockExtent]) -> bool {
        self.hold_beside(owner, object, extents, |_| false)
    }

    /// Like [`LockTable::hold`], but locks of some owners belong together with this one.
    pub fn hold_beside(
        &mut self,
        owner: Owner,
        object: ObjectId,
        extents: &[LockExtent],
        belongs: impl Fn(Owner) -> bool,
    ) -> bool {
        let held = self.held.owners(object, extents);
        if !held.iter().all(|other| belongs(*other)) {
            return false;
        }
        self.set_beside(owner, held);
        self.request(owner, object, extents, true, true);
        true
    }

    /// Removes the lock of `owner`, held or waiting; does nothing if there is none. Appends the owners whose locks are
    /// granted by that to `granted`, in the order of their arrival.
    pub fn release(&mut self, owner: Owner, granted: &mut Vec<Owner>) {
        let Some(owned) = self.remove(owner) else { return };
        self.forget_beside(owner);
        self.grant_behind(&owned, granted);
    }

    /// Keeps less of a lock that is held: these extents, at least one. Each lies within one of its extents, and is as strong at most. Appends the
    /// owners whose locks are granted by that. Returns false, and does nothing, if the lock is not held or does not cover the extents.
    pub fn shrink(&mut self, owner: Owner, rest: &[LockExtent], granted: &mut Vec<Owner>) -> bool {
        let Some(owned) = self.owners.get(&owner).filter(|owned| owned.state == LockState::Held) else { return false };
        // An extent of no blocks lies within any other, and locks nothing.
        let is_part = |part: &LockExtent| part.range.count > 0 && owned.extents.iter().any(|whole| whole.covers(part));
        if !rest.iter().all(is_part) {
            return false;
        }
        let before = self.remove(owner).expect("just seen");
        self.insert(owner, Owned { extents: rest.to_vec(), ..before.clone() });
        self.grant_behind(&before, granted);
        true
    }

    /// Some of these extents are held or waited for no more: grants the locks that had to wait for nothing else.
    fn grant_behind(&mut self, before: &Owned, granted: &mut Vec<Owner>) {
        if self.waiting_locks == 0 {
            return;
        }
        // A grant to one of them frees none of the others: they wait for that one still.
        let mut behind = Vec::new();
        self.waiting.each(before.object, &before.extents, |other| {
            if before.state == LockState::Held || is_before(before.arrival, other.arrival) {
                behind.push((other.arrival, other.owner));
            }
        });
        for (_, waiting) in in_order(behind) {
            if !self.is_behind(waiting, &self.owners[&waiting]) {
                self.grant(waiting);
                granted.push(waiting);
            }
        }
    }

    /// By how many blocks, `most` at most, an extent can be longer at its end without a conflict with another lock, held or waiting. Among many
    /// locks by none.
    pub fn free_behind(&self, object: ObjectId, extent: &LockExtent, most: u64) -> u64 {
        let end = extent.range.end();
        let range = BlockRange::between(extent.range.start, end.saturating_add(most));
        let (mut free, mut seen) = (range.end() - end, 0);
        let crowded = [&self.held, &self.waiting].iter().any(|among| {
            let found = among.search(object, &[LockExtent { range, ..*extent }], usize::MAX, |other| {
                seen += 1;
                free = free.min(other.range.start.saturating_sub(end));
                if seen > WIDENED_AMONG_MAX || free == 0 { Break(()) } else { Continue(()) }
            });
            found.is_break()
        });
        if crowded { 0 } else { free }
    }

    /// True if extents conflict with no other lock, held or waiting.
    pub fn is_free(&self, object: ObjectId, extents: &[LockExtent]) -> bool {
        let in_the_way = |among: &&ByMode<Owner>| among.any(object, extents, usize::MAX, |_| true);
        ![&self.held, &self.waiting].iter().any(in_the_way)
    }

    /// The extents of a lock, held or waiting.
    pub fn extents(&self, owner: Owner) -> Option<(ObjectId, &[LockExtent])> {
        self.owners.get(&owner).map(|owned| (owned.object, owned.extents.as_slice()))
    }

    /// The extents of later locks that wait for the lock of `owner`, each with its owner. Those that wait for its promotion do not count: they
    /// get nothing before that one.
    pub fn wanted_extents(&self, owner: Owner) -> Vec<(Owner, LockExtent)> {
        let Some(owned) = self.owners.get(&owner).filter(|_| self.waiting_locks > 0) else { return Vec::new() };
        let mut later = Vec::new();
        self.waiting.each(owned.object, &owned.extents, |other| {
            if self.waits_for(other, owner, owned) {
                later.push(other.owner);
            }
        });
        let later = in_order(later).into_iter().filter(|other| !self.is_behind_promotion(*other, owner));
        let extents = later.flat_map(|other| self.owners[&other].extents.iter().map(move |extent| (other, *extent)));
        extents.filter(|(_, other)| owned.extents.iter().any(|held| held.conflicts(other))).collect()
    }

    /// True if the lock of `later` waits for one that belongs together with that of `owner`, and waits, too.
    pub fn is_behind_promotion(&self, later: Owner, owner: Owner) -> bool {
        let (Some(waiting), Some(beside)) = (self.owners.get(&later), self.beside.get(&owner)) else { return false };
        beside.iter().any(|other| {
            let promoted = &self.owners[other];
            let conflicts = |extent: &LockExtent| waiting.extents.iter().any(|other| other.conflicts(extent));
            (promoted.state, promoted.object) == (LockState::Waiting, waiting.object)
                && is_before(promoted.arrival, waiting.arrival)
                && !self.are_beside(later, *other)
                && promoted.extents.iter().any(conflicts)
        })
    }

    /// The state of `owner`'s lock, if it has one.
    pub fn state(&self, owner: Owner) -> Option<LockState> {
        self.owners.get(&owner).map(|owned| owned.state)
    }

    /// The owners that hold the locks that `owner` waits for, sorted.
    pub fn blockers(&self, owner: Owner) -> Vec<Owner> {
        let Some(owned) = self.owners.get(&owner) else { return Vec::new() };
        let mut held = Vec::new();
        self.held.each(owned.object, &owned.extents, |other| {
            if self.is_ahead(LockState::Held, other, owner, owned) {
                held.push(other.owner);
            }
        });
        in_order(held)
    }

    /// The owners of waiting locks that conflict with these extents, sorted.
    pub fn waiters(&self, object: ObjectId, extents: &[LockExtent]) -> Vec<Owner> {
        self.waiting.owners(object, extents)
    }

    /// The owners that hold locks which conflict with these extents, sorted.
    pub fn holders(&self, object: ObjectId, extents: &[LockExtent]) -> Vec<Owner> {
        self.held.owners(object, extents)
    }

    /// True if one of these extents conflicts with a lock that another owner than `except` holds.
    pub fn conflicts(&self, object: ObjectId, extents: &[LockExtent], except: Option<Owner>) -> bool {
        self.held.any(object, extents, usize::MAX, |other| Some(other.owner) != except)
    }

    /// True if there is a lock on `object`, held or waiting.
    pub fn touches(&self, object: ObjectId) -> bool {
        self.held.has(object) || self.waiting.has(object)
    }

    /// True if a later lock waits for the one of `owner`.
    pub fn wanted(&self, owner: Owner) -> bool {
        self.wanted_by(owner, |_| true)
    }

    /// True if a later lock of one of some owners waits for the one of `owner`.
    pub fn wanted_by(&self, owner: Owner, meant: impl Fn(Owner) -> bool) -> bool {
        let Some(owned) = self.owners.get(&owner).filter(|_| self.waiting_locks > 0) else { return false };
        let is_later = |other: Entry<Owner>| self.waits_for(other, owner, owned) && meant(other.owner);
        self.waiting.any(owned.object, &owned.extents, usize::MAX, is_later)
    }

    /// All owners, sorted.
    pub fn owners(&self) -> impl Iterator<Item = Owner> + '_ {
        self.owners.keys().copied()
    }

    pub fn states(&self) -> impl Iterator<Item = (Owner, LockState)> + '_ {
        self.owners.iter().map(|(owner, owned)| (*owner, owned.state))
    }

    /// The same, from an owner on.
    pub fn states_from(&self, first: Owner) -> impl Iterator<Item = (Owner, LockState)> + '_ {
        self.owners.range(first..).map(|(owner, owned)| (*owner, owned.state))
    }

    /// Some owners of earlier locks, held or waiting, for which the lock of `owner` waits: `most` at most, sorted.
    pub fn ahead(&self, owner: Owner, most: usize) -> Vec<Owner> {
        let waiting = self.owners.get(&owner).filter(|owned| owned.state == LockState::Waiting);
        let Some(owned) = waiting else { return Vec::new() };
        let mut ahead = Vec::new();
        for (state, among) in self.by_state() {
            let _ = among.search(owned.object, &owned.extents, usize::MAX, |other| {
                if self.is_ahead(state, other, owner, owned) {
                    ahead.push(other.owner);
                }
                if ahead.len() < most { Continue(()) } else { Break(()) }
            });
        }
        in_order(ahead)
    }

    /// The number of locks, held and waiting.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Asserts the rule of the table for every lock, or for those that changed last if there are many.
    pub fn invariants(&self) {
        if self.owners.len() <= CHECKED_MAX {
            self.owners.keys().for_each(|owner| self.check(*owner));
            let extents: usize = self.owners.values().map(|owned| owned.extents.len()).sum();
            assert_eq!(extents, self.held.len() + self.waiting.len(), "every extent belongs to a lock");
            let waiting = self.owners.values().filter(|owned| owned.state == LockState::Waiting);
            assert_eq!(waiting.count(), self.waiting_locks, "waiting locks are counted");
        } else {
            self.recent.iter().filter(|owner| self.owners.contains_key(owner)).for_each(|owner| self.check(*owner));
        }
    }

    /// Asserts the rule for one lock. Of a lock of many extents, and of many locks on the same blocks, some are looked at.
    fn check(&self, owner: Owner) {
        let owned = &self.owners[&owner];
        let is_quick =
            owned.extents.len() <= CHECKED_EXTENTS_MAX && self.held.len() + self.waiting.len() <= SEARCHED_MAX;
        match owned.state {
            LockState::Held => {
                let first = &owned.extents[..owned.extents.len().min(CHECKED_EXTENTS_MAX)];
                for (state, among) in self.by_state() {
                    // What passes others, and waits, may have come later.
                    let counts = |other: Entry<Owner>| state == LockState::Held || other.arrival >= FIRST_ASKED;
                    let is_ahead = |other| counts(other) && self.is_ahead(state, other, owner, owned);
                    let earlier = among.any(owned.object, first, CHECKED_NEAR_MAX, is_ahead);
                    assert!(!earlier, "{owner:?} holds a lock that conflicts with an earlier one");
                }
            }
            LockState::Waiting if is_quick => {
                assert!(self.is_behind(owner, owned), "{owner:?} waits for no other lock")
            }
            LockState::Waiting => {}
        }
    }

    /// True if a lock has to wait.
    fn is_behind(&self, owner: Owner, owned: &Owned) -> bool {
        self.by_state().iter().any(|(state, among)| {
            let is_ahead = |other| self.is_ahead(*state, other, owner, owned);
            among.any(owned.object, &owned.extents, usize::MAX, is_ahead)
        })
    }

    /// True if `owned` has to wait for an extent that conflicts with it, of another lock in this state.
    fn is_ahead(&self, state: LockState, other: Entry<Owner>, owner: Owner, owned: &Owned) -> bool {
        let is_held = state == LockState::Held && other.arrival != owned.arrival;
        (is_held || is_before(other.arrival, owned.arrival)) && !self.are_beside(owner, other.owner)
    }

    /// True if a waiting extent that conflicts with `owned` has to wait for it.
    fn waits_for(&self, other: Entry<Owner>, owner: Owner, owned: &Owned) -> bool {
        let is_later = owned.state == LockState::Held || is_before(owned.arrival, other.arrival);
        is_later && !self.are_beside(owner, other.owner)
    }

    fn by_state(&self) -> [(LockState, &ByMode<Owner>); 2] {
        [(LockState::Held, &self.held), (LockState::Waiting, &self.waiting)]
    }

    fn are_beside(&self, one: Owner, other: Owner) -> bool {
        self.beside.get(&one).is_some_and(|beside| beside.contains(&other))
    }

    fn set_beside(&mut self, owner: Owner, others: impl IntoIterator<Item = Owner>) {
        for other in others {
            self.beside.entry(owner).or_default().push(other);
            self.beside.entry(other).or_default().push(owner);
        }
    }

    fn forget_beside(&mut self, owner: Owner) {
        for other in self.beside.remove(&owner).unwrap_or_default() {
            let left = self.beside.get_mut(&other).expect("each knows the other");
            left.retain(|beside| *beside != owner);
            if left.is_empty() {
                self.beside.remove(&other);
            }
        }
    }

    fn insert(&mut self, owner: Owner, owned: Owned) {
        self.add_extents(owner, &owned);
        self.waiting_locks += usize::from(owned.state == LockState::Waiting);
        assert!(self.owners.insert(owner, owned).is_none(), "{owner:?} has a lock already");
        self.changed(owner);
    }

    fn remove(&mut self, owner: Owner) -> Option<Owned> {
        let owned = self.owners.remove(&owner)?;
        self.waiting_locks -= usize::from(owned.state == LockState::Waiting);
        self.remove_extents(&owned);
        Some(owned)
    }

    fn grant(&mut self, owner: Owner) {
        let mut owned = self.remove(owner).expect("it waits");
        owned.state = LockState::Held;
        self.insert(owner, owned);
    }

    fn add_extents(&mut self, owner: Owner, owned: &Owned) {
        for (extent, index) in owned.extents.iter().zip(0..) {
            let entry = Entry { owner, arrival: owned.arrival, range: extent.range };
            self.of(owned.state, extent.mode).insert(owned.object, extent.position, index, entry);
        }
    }

    fn remove_extents(&mut self, owned: &Owned) {
        for (extent, index) in owned.extents.iter().zip(0..) {
            let extents = self.of(owned.state, extent.mode);
            extents.remove(owned.object, (extent.position, extent.range), index, owned.arrival);
        }
    }

    fn of(&mut self, state: LockState, mode: LockMode) -> &mut Extents<Owner> {
        let by_mode = if state == LockState::Held { &mut self.held } else { &mut self.waiting };
        if mode == LockMode::Shared { &mut by_mode.shared } else { &mut by_mode.exclusive }
    }

    fn changed(&mut self, owner: Owner) {
        if self.recent.len() == CHECKED_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(owner);
    }
}

impl<Owner: Ord + Copy> ByMode<Owner> {
    /// Visits the extents that conflict with some others, until a visit breaks off. For each of the others it looks at `most` extents of each
    /// mode that are near.
    fn search<T>(
        &self,
        object: ObjectId,
        extents: &[LockExtent],
        most: usize,
        mut visit: impl FnMut(Entry<Owner>) -> ControlFlow<T>,
    ) -> ControlFlow<T> {
        for LockExtent { position, range, mode } in extents {
            self.exclusive.search(object, (*position, *range), most, &mut visit)?;
            if *mode == LockMode::Exclusive {
                self.shared.search(object, (*position, *range), most, &mut visit)?;
            }
        }
        Continue(())
    }

    fn each(&self, object: ObjectId, extents: &[LockExtent], mut visit: impl FnMut(Entry<Owner>)) {
        let _ = self.search(object, extents, usize::MAX, |other| {
            visit(other);
            Continue::<()>(())
        });
    }

    /// True if there is such an extent.
    fn any(&self, object: ObjectId, extents: &[LockExtent], most: usize, is_it: impl Fn(Entry<Owner>) -> bool) -> bool {
        self.search(object, extents, most, |other| if is_it(other) { Break(()) } else { Continue(()) }).is_break()
    }

    /// The owners of such extents, sorted.
    fn owners(&self, object: ObjectId, extents: &[LockExtent]) -> Vec<Owner> {
        let mut owners = Vec::new();
        self.each(object, extents, |other| owners.push(other.owner));
        in_order(owners)
    }

    fn has(&self, object: ObjectId) -> bool {
        self.shared.has(object) || self.exclusive.has(object)
    }

    fn len(&self) -> usize {
        self.shared.len() + self.exclusive.len()
    }
}

impl<Owner> Default for ByMode<Owner> {
    fn default() -> Self {
        ByMode { shared: Extents::default(), exclusive: Extents::default() }
    }
}

/// True if a lock that waits has to wait for another one that came before it, and waits, too.
fn is_before(earlier: u64, later: u64) -> bool {
    earlier < later && later >= FIRST_ASKED
}

fn in_order<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort_unstable();
    items.dedup();
    items
}
