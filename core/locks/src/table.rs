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
//! Extents are kept in one ordered map. A lock may be as short as a block or as long as a volume, so extents are
//! ordered by size class first. A search for the extents that touch a range looks back, in each size class in use, no
//! further than an extent of that class reaches.

use braid_base::{BlockRange, ObjectId};
use braid_wire::locking::{LockExtent, LockMode};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::ops::Range;

/// The locks of owners on blocks, held and waiting.
#[derive(Clone, Debug)]
pub struct LockTable<Owner> {
    owners: BTreeMap<Owner, Owned>,
    extents: BTreeMap<ExtentAddress, Extent<Owner>>,
    /// The number of waiting locks.
    waiting: usize,
    /// The number of extents of each size class, and the classes in use as a set of bits.
    sizes: [u32; SIZES],
    sizes_in_use: u16,
    /// Arrival numbers. Locks that were taken in as held count up from 0; requested locks count up from
    /// [`FIRST_ASKED`].
    next_held: u64,
    next_asked: u64,
    /// Owners whose conflicting locks are held side by side, each with the others: see [`LockTable::hold_beside`].
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

/// The key of an extent in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ExtentAddress {
    object: ObjectId,
    position: u16,
    /// See [`size_of`].
    size: u8,
    start: u64,
    arrival: u64,
    /// The index of the extent in its lock, since extents of one lock may touch each other.
    index: u16,
}

#[derive(Clone, Copy, Debug)]
struct Extent<Owner> {
    owner: Owner,
    state: LockState,
    count: u64,
    mode: LockMode,
}

const FIRST_ASKED: u64 = 1 << 63;
/// The number of size classes. Each spans sixteen times the one below: locks of a few blocks, of some stripe units, …
const SIZES: usize = 16;
/// The most locks that one check of the invariants looks at.
const CHECKED_MAX: usize = 16;

impl<Owner> Default for LockTable<Owner> {
    fn default() -> Self {
        LockTable {
            owners: BTreeMap::new(),
            extents: BTreeMap::new(),
            waiting: 0,
            sizes: [0; SIZES],
            sizes_in_use: 0,
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
        let arrival = self.next_asked;
        self.next_asked += 1;
        let mut free = true;
        let mut blockers = Vec::new();
        for extent in extents {
            for (_, earlier) in self.conflicting(object, *extent, 0..arrival) {
                free = false;
                if earlier.state == LockState::Held {
                    blockers.push(earlier.owner);
                }
            }
        }
        let state = if free { LockState::Held } else { LockState::Waiting };
        self.insert(owner, Owned { arrival, state, object, extents: extents.to_vec() });
        if free { Locked::Granted } else { Locked::Waits { blockers: in_order(blockers) } }
    }

    /// Takes in a lock as held from before all requests: of a recovered transaction, or reasserted to a restarted
    /// server. Returns false, and does nothing, if it conflicts with a held lock.
    pub fn hold(&mut self, owner: Owner, object: ObjectId, extents: &[LockExtent]) -> bool {
        self.hold_beside(owner, object, extents, |_| false)
    }

    /// Like [`LockTable::hold`], but beside conflicting locks of some owners, which belong together with this one: other owners are
    /// excluded by each of them.
    pub fn hold_beside(
        &mut self,
        owner: Owner,
        object: ObjectId,
        extents: &[LockExtent],
        belongs: impl Fn(Owner) -> bool,
    ) -> bool {
        let conflicting = extents.iter().flat_map(|extent| self.conflicting(object, *extent, 0..u64::MAX));
        let held = conflicting.filter(|(_, other)| other.state == LockState::Held).map(|(_, other)| other.owner);
        let held: Vec<Owner> = held.collect();
        if !held.iter().all(|other| belongs(*other)) {
            return false;
        }
        for other in in_order(held) {
            self.beside.entry(owner).or_default().push(other);
            self.beside.entry(other).or_default().push(owner);
        }
        let arrival = self.next_held;
        self.next_held += 1;
        self.insert(owner, Owned { arrival, state: LockState::Held, object, extents: extents.to_vec() });
        true
    }

    /// Removes the lock of `owner`, held or waiting; does nothing if there is none. Appends the owners whose locks are
    /// granted by that to `granted`, in the order of their arrival.
    pub fn release(&mut self, owner: Owner, granted: &mut Vec<Owner>) {
        let Some(owned) = self.remove(owner) else { return };
        self.forget_beside(owner);
        if self.waiting == 0 {
            return;
        }
        // A grant to one of them frees none of the others: they wait for that one still.
        let behind = self.later(&owned).filter(|(_, extent)| extent.state == LockState::Waiting);
        let behind = behind.map(|(place, extent)| (place.arrival, extent.owner)).collect();
        for (_, waiting) in in_order(behind) {
            if self.earlier(waiting, &self.owners[&waiting]).next().is_none() {
                self.grant(waiting);
                granted.push(waiting);
            }
        }
    }

    /// The state of `owner`'s lock, if it has one.
    pub fn state(&self, owner: Owner) -> Option<LockState> {
        self.owners.get(&owner).map(|owned| owned.state)
    }

    /// The owners that hold the locks that `owner` waits for, sorted.
    pub fn blockers(&self, owner: Owner) -> Vec<Owner> {
        let owned = self.owners.get(&owner);
        let earlier = owned.into_iter().flat_map(|owned| self.earlier(owner, owned));
        in_order(earlier.filter(|extent| extent.state == LockState::Held).map(|extent| extent.owner).collect())
    }

    /// True if one of these extents conflicts with a lock that another owner than `except` holds.
    pub fn conflicts(&self, object: ObjectId, extents: &[LockExtent], except: Option<Owner>) -> bool {
        extents.iter().any(|extent| {
            self.conflicting(object, *extent, 0..u64::MAX)
                .any(|(_, other)| other.state == LockState::Held && Some(other.owner) != except)
        })
    }

    /// True if there is a lock on `object`, held or waiting.
    pub fn touches(&self, object: ObjectId) -> bool {
        let first = ExtentAddress { object, position: 0, size: 0, start: 0, arrival: 0, index: 0 };
        self.extents.range(first..).next().is_some_and(|(place, _)| place.object == object)
    }

    /// True if a later lock waits for the one of `owner`.
    pub fn wanted(&self, owner: Owner) -> bool {
        self.waiting_for(owner).next().is_some()
    }

    /// The owners of locks that wait for the one of `owner`, among others perhaps; some more than once.
    pub fn waiting_for(&self, owner: Owner) -> impl Iterator<Item = Owner> + '_ {
        let owned = self.owners.get(&owner).filter(|_| self.waiting > 0);
        let later = owned.into_iter().flat_map(|owned| self.later(owned));
        later.filter(|(_, later)| later.state == LockState::Waiting).map(|(_, later)| later.owner)
    }

    /// All owners, sorted.
    pub fn owners(&self) -> impl Iterator<Item = Owner> + '_ {
        self.owners.keys().copied()
    }

    pub fn states(&self) -> impl Iterator<Item = (Owner, LockState)> + '_ {
        self.owners.iter().map(|(owner, owned)| (*owner, owned.state))
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
            assert_eq!(extents, self.extents.len(), "every extent belongs to a lock");
            let waiting = self.owners.values().filter(|owned| owned.state == LockState::Waiting);
            assert_eq!(waiting.count(), self.waiting, "waiting locks are counted");
        } else {
            self.recent.iter().filter(|owner| self.owners.contains_key(owner)).for_each(|owner| self.check(*owner));
        }
    }

    fn check(&self, owner: Owner) {
        let owned = &self.owners[&owner];
        let earlier = self.earlier(owner, owned).next();
        match owned.state {
            LockState::Held => {
                assert!(earlier.is_none(), "{owner:?} holds a lock that conflicts with the earlier {earlier:?}")
            }
            LockState::Waiting => assert!(earlier.is_some(), "{owner:?} waits for no other lock"),
        }
    }

    /// The extents that the lock of `owner` has to wait for.
    fn earlier(&self, owner: Owner, owned: &Owned) -> impl Iterator<Item = &Extent<Owner>> {
        let earlier = self.conflicting_all(owned, 0..owned.arrival).map(|(_, earlier)| earlier);
        let beside = self.beside.get(&owner);
        earlier.filter(move |earlier| beside.is_none_or(|beside| !beside.contains(&earlier.owner)))
    }

    /// The extents that have to wait for `owned`.
    fn later(&self, owned: &Owned) -> impl Iterator<Item = (&ExtentAddress, &Extent<Owner>)> {
        self.conflicting_all(owned, owned.arrival + 1..u64::MAX)
    }

    fn conflicting_all(
        &self,
        owned: &Owned,
        arrivals: Range<u64>,
    ) -> impl Iterator<Item = (&ExtentAddress, &Extent<Owner>)> {
        let extents = owned.extents.iter();
        extents.flat_map(move |extent| self.conflicting(owned.object, *extent, arrivals.clone()))
    }

    /// The extents that conflict with this one, of locks with these arrival numbers.
    fn conflicting(
        &self,
        object: ObjectId,
        LockExtent { position, range, mode }: LockExtent,
        arrivals: Range<u64>,
    ) -> impl Iterator<Item = (&ExtentAddress, &Extent<Owner>)> {
        let place = ExtentAddress { object, position, size: 0, start: range.end(), arrival: 0, index: 0 };
        bits(self.sizes_in_use)
            .flat_map(move |size| {
                let behind = ExtentAddress { size, ..place };
                self.extents.range(ExtentAddress { start: range.start.saturating_sub(reach(size)), ..behind }..behind)
            })
            .filter(move |(place, other)| {
                arrivals.contains(&place.arrival)
                    && other.mode.conflicts(mode)
                    && BlockRange::new(place.start, other.count).overlaps(range)
            })
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
        for (place, extent) in owned.places() {
            let state = owned.state;
            self.extents.insert(place, Extent { owner, state, count: extent.range.count, mode: extent.mode });
            self.sizes[place.size as usize] += 1;
            self.sizes_in_use |= 1 << place.size;
        }
        self.waiting += usize::from(owned.state == LockState::Waiting);
        assert!(self.owners.insert(owner, owned).is_none(), "{owner:?} has a lock already");
        self.changed(owner);
    }

    fn remove(&mut self, owner: Owner) -> Option<Owned> {
        let owned = self.owners.remove(&owner)?;
        self.waiting -= usize::from(owned.state == LockState::Waiting);
        for (place, _) in owned.places() {
            self.extents.remove(&place);
            let left = &mut self.sizes[place.size as usize];
            *left -= 1;
            if *left == 0 {
                self.sizes_in_use &= !(1 << place.size);
            }
        }
        Some(owned)
    }

    fn grant(&mut self, owner: Owner) {
        let owned = self.owners.get_mut(&owner).expect("it waits");
        owned.state = LockState::Held;
        self.waiting -= 1;
        for (place, _) in owned.places() {
            self.extents.get_mut(&place).expect("a lock's extents are in the table").state = LockState::Held;
        }
        self.changed(owner);
    }

    fn changed(&mut self, owner: Owner) {
        if self.recent.len() == CHECKED_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(owner);
    }
}

impl Owned {
    fn places(&self) -> impl Iterator<Item = (ExtentAddress, LockExtent)> {
        self.extents.iter().zip(0..).map(|(extent, index)| {
            let LockExtent { position, range, .. } = *extent;
            let (object, size, start, arrival) = (self.object, size_of(range), range.start, self.arrival);
            (ExtentAddress { object, position, size, start, arrival, index }, *extent)
        })
    }
}

/// The size class: 0 for up to 16 blocks, 1 for up to 16² blocks, and so on.
fn size_of(range: BlockRange) -> u8 {
    let last = range.count.checked_sub(1).expect("an empty extent locks nothing");
    (last.checked_ilog2().unwrap_or(0) / 4) as u8
}

/// The greatest distance between the first and the last block of an extent of this size class.
fn reach(size: u8) -> u64 {
    u64::MAX >> (60 - 4 * size)
}

fn bits(mut set: u16) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros() as u8)?;
        set &= set - 1;
        Some(lowest)
    })
}

fn in_order<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort_unstable();
    items.dedup();
    items
}
