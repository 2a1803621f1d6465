//! The table of range locks: who holds and who waits for which blocks of which objects.
//!
//! It serves wherever blocks are locked: in lock servers, in devices that serve locks, and in a host among its own
//! transactions. It knows neither time nor messages.
//!
//! What an owner asks for, its *lock*, is granted as a whole or waits as a whole. One rule decides all:
//!
//! > A lock is held if it conflicts with no lock that came before it, and waits otherwise.
//!
//! So two that conflict are never held at once, nobody is overtaken by a later one that it conflicts with, and whoever is
//! first of all that wait for a block is next. Since a lock waits only for earlier ones, there are no deadlocks among the
//! locks of one table.
//!
//! Extents lie in one ordered map. Locks are as long as a block or as a volume; so they are kept apart by size, and the
//! search for what touches a range looks back no further, for each size in use, than a lock of that size reaches.

use braid_base::{BlockRange, ObjectId};
use braid_wire::locking::{LockExtent, LockMode};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::ops::Range;

/// Claims on blocks, held and waiting, each named by its owner.
#[derive(Clone, Debug)]
pub struct LockTable<Owner> {
    owners: BTreeMap<Owner, Owned>,
    extents: BTreeMap<ExtentAddress, Extent<Owner>>,
    /// How many locks wait.
    waiting: usize,
    /// How many extents there are of each size, and which sizes are in use, as a set of bits.
    sizes: [u32; SIZES],
    sizes_in_use: u16,
    /// What was held before anybody asked counts up from 0; who asks counts up from [`FIRST_ASKED`].
    next_held: u64,
    next_asked: u64,
    /// Those who lately came or were granted, whom [`LockTable::invariants`] looks at.
    recent: VecDeque<Owner>,
}

/// How a lock begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locked<Owner> {
    /// It is held.
    Granted,
    /// It waits.
    Waits {
        /// Who holds what is in the way, in order; none if only others that wait are ahead.
        blockers: Vec<Owner>,
    },
}

/// Where a lock stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// It is granted.
    Held,
    /// It conflicts with an earlier one.
    Waiting,
}

#[derive(Clone, Debug)]
struct Owned {
    arrival: u64,
    state: LockState,
    object: ObjectId,
    extents: Vec<LockExtent>,
}

/// Where an extent lies in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ExtentAddress {
    object: ObjectId,
    position: u16,
    /// See [`size_of`].
    size: u8,
    start: u64,
    arrival: u64,
    /// Which of its lock's extents it is: a lock's own may touch each other.
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
/// Each size is sixteen times the one below: locks of a few blocks, of some stripe units, …
const SIZES: usize = 16;
/// The most locks that one look at the invariants checks.
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
            recent: VecDeque::with_capacity(CHECKED_MAX),
        }
    }
}

impl<Owner: Ord + Copy + Debug> LockTable<Owner> {
    /// An empty table.
    pub fn new() -> LockTable<Owner> {
        LockTable::default()
    }

    /// Asks for all of these extents of `object`, none of them empty, at once or not at all. An owner has one lock; its own
    /// extents may touch, and then a block is locked exclusively if any of them says so.
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

    /// Takes in a lock as held since before anybody asked: of a recovered transaction, or said again to a server that has
    /// restarted. Does nothing, and returns false, if it conflicts with one that is held.
    pub fn hold(&mut self, owner: Owner, object: ObjectId, extents: &[LockExtent]) -> bool {
        if self.conflicts(object, extents, None) {
            return false;
        }
        let arrival = self.next_held;
        self.next_held += 1;
        self.insert(owner, Owned { arrival, state: LockState::Held, object, extents: extents.to_vec() });
        true
    }

    /// Takes out what `owner` holds, or its place in the queue; nothing if it has none. Those who hold now what they waited
    /// for are appended to `granted`, in the order in which they came.
    pub fn release(&mut self, owner: Owner, granted: &mut Vec<Owner>) {
        let Some(owned) = self.remove(owner) else { return };
        if self.waiting == 0 {
            return;
        }
        // Those behind it all wait. A grant to one puts none of the others in the clear: they wait for it still.
        let behind = self.later(&owned).map(|(place, extent)| (place.arrival, extent.owner)).collect();
        for (_, waiting) in in_order(behind) {
            let owned = &self.owners[&waiting];
            if self.earlier(owned).next().is_none() {
                self.grant(waiting);
                granted.push(waiting);
            }
        }
    }

    /// Where `owner`'s lock stands, if it has one.
    pub fn state(&self, owner: Owner) -> Option<LockState> {
        self.owners.get(&owner).map(|owned| owned.state)
    }

    /// Who holds what `owner` waits for, in order.
    pub fn blockers(&self, owner: Owner) -> Vec<Owner> {
        let owned = self.owners.get(&owner);
        let earlier = owned.into_iter().flat_map(|owned| self.earlier(owned));
        in_order(earlier.filter(|extent| extent.state == LockState::Held).map(|extent| extent.owner).collect())
    }

    /// True if one of these extents conflicts with what somebody else than `except` holds.
    pub fn conflicts(&self, object: ObjectId, extents: &[LockExtent], except: Option<Owner>) -> bool {
        extents.iter().any(|extent| {
            self.conflicting(object, *extent, 0..u64::MAX)
                .any(|(_, other)| other.state == LockState::Held && Some(other.owner) != except)
        })
    }

    /// True if anybody holds or waits for a block of `object`.
    pub fn touches(&self, object: ObjectId) -> bool {
        let first = ExtentAddress { object, position: 0, size: 0, start: 0, arrival: 0, index: 0 };
        self.extents.range(first..).next().is_some_and(|(place, _)| place.object == object)
    }

    /// True if somebody waits for what `owner` holds, or has asked for before.
    pub fn wanted(&self, owner: Owner) -> bool {
        let owned = self.owners.get(&owner).filter(|_| self.waiting > 0);
        owned.is_some_and(|owned| self.later(owned).next().is_some())
    }

    /// Everybody who holds or waits, in order.
    pub fn owners(&self) -> impl Iterator<Item = Owner> + '_ {
        self.owners.keys().copied()
    }

    /// All locks, by their owners.
    pub fn states(&self) -> impl Iterator<Item = (Owner, LockState)> + '_ {
        self.owners.iter().map(|(owner, owned)| (*owner, owned.state))
    }

    /// How many locks there are, held and waiting.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// True if there are none.
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
            assert_eq!(waiting.count(), self.waiting, "those that wait are counted");
        } else {
            self.recent.iter().filter(|owner| self.owners.contains_key(owner)).for_each(|owner| self.check(*owner));
        }
    }

    fn check(&self, owner: Owner) {
        let owned = &self.owners[&owner];
        let earlier = self.earlier(owned).next();
        match owned.state {
            LockState::Held => {
                assert!(earlier.is_none(), "{owner:?} holds what conflicts with the earlier {earlier:?}")
            }
            LockState::Waiting => assert!(earlier.is_some(), "{owner:?} waits for nobody"),
        }
    }

    /// The extents that `owned` has to wait for.
    fn earlier(&self, owned: &Owned) -> impl Iterator<Item = &Extent<Owner>> {
        self.conflicting_all(owned, 0..owned.arrival).map(|(_, earlier)| earlier)
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

    /// The extents that conflict with this one, of locks that came at these times.
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

    fn insert(&mut self, owner: Owner, owned: Owned) {
        for (place, extent) in owned.places() {
            let state = owned.state;
            self.extents.insert(place, Extent { owner, state, count: extent.range.count, mode: extent.mode });
            self.sizes[place.size as usize] += 1;
            self.sizes_in_use |= 1 << place.size;
        }
        self.waiting += usize::from(owned.state == LockState::Waiting);
        assert!(self.owners.insert(owner, owned).is_none(), "{owner:?} has asked already");
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

/// 0 for up to 16 blocks, 1 for up to 16² blocks, and so on.
fn size_of(range: BlockRange) -> u8 {
    let last = range.count.checked_sub(1).expect("an empty extent locks nothing");
    (last.checked_ilog2().unwrap_or(0) / 4) as u8
}

/// How far the last block of a range of this size can be behind its first.
fn reach(size: u8) -> u64 {
    u64::MAX >> (60 - 4 * size)
}

/// The numbers of the bits that are set.
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
