//! The table of range locks: who holds and who waits for which blocks of which objects.
//!
//! It serves wherever blocks are locked: in lock servers, in devices that serve locks, and in a host among its own
//! transactions. It knows neither time nor messages.
//!
//! What an owner asks for, its *claim*, is granted as a whole or waits as a whole. One rule decides all:
//!
//! > A claim is held if it conflicts with no claim that came before it, and waits otherwise.
//!
//! So two that conflict are never held at once, nobody is overtaken by a later one that it conflicts with, and whoever is
//! first of all that wait for a block is next. Since a claim waits only for earlier ones, there are no deadlocks among the
//! claims of one table.
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
    claims: BTreeMap<Owner, Claim>,
    extents: BTreeMap<Place, Extent<Owner>>,
    /// How many claims wait.
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

/// How a claim begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked<Owner> {
    /// It is held.
    Granted,
    /// It waits.
    Waits {
        /// Who holds what is in the way, in order; none if only others that wait are ahead.
        blockers: Vec<Owner>,
    },
}

/// Where a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// It is granted.
    Held,
    /// It conflicts with an earlier one.
    Waiting,
}

#[derive(Clone, Debug)]
struct Claim {
    arrival: u64,
    state: LockState,
    object: ObjectId,
    extents: Vec<LockExtent>,
}

/// Where an extent lies in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    object: ObjectId,
    position: u16,
    /// See [`size_of`].
    size: u8,
    start: u64,
    arrival: u64,
    /// Which of its claim's extents it is: a claim's own may touch each other.
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
/// The most claims that one look at the invariants checks.
const CHECKED_MAX: usize = 16;

impl<Owner> Default for LockTable<Owner> {
    fn default() -> Self {
        LockTable {
            claims: BTreeMap::new(),
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

    /// Asks for all of these extents of `object`, none of them empty, at once or not at all. An owner has one claim; its own
    /// extents may touch, and then a block is locked exclusively if any of them says so.
    pub fn lock(&mut self, owner: Owner, object: ObjectId, extents: &[LockExtent]) -> Asked<Owner> {
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
        self.insert(owner, Claim { arrival, state, object, extents: extents.to_vec() });
        if free { Asked::Granted } else { Asked::Waits { blockers: in_order(blockers) } }
    }

    /// Takes in a claim as held since before anybody asked: of a recovered transaction, or said again to a server that has
    /// restarted. Does nothing, and returns false, if it conflicts with one that is held.
    pub fn hold(&mut self, owner: Owner, object: ObjectId, extents: &[LockExtent]) -> bool {
        if self.conflicts(object, extents, None) {
            return false;
        }
        let arrival = self.next_held;
        self.next_held += 1;
        self.insert(owner, Claim { arrival, state: LockState::Held, object, extents: extents.to_vec() });
        true
    }

    /// Takes out what `owner` holds, or its place in the queue; nothing if it has none. Those who hold now what they waited
    /// for are appended to `granted`, in the order in which they came.
    pub fn release(&mut self, owner: Owner, granted: &mut Vec<Owner>) {
        let Some(claim) = self.remove(owner) else { return };
        if self.waiting == 0 {
            return;
        }
        // Those behind it all wait. A grant to one puts none of the others in the clear: they wait for it still.
        let behind = self.later(&claim).map(|(place, extent)| (place.arrival, extent.owner)).collect();
        for (_, waiting) in in_order(behind) {
            let claim = &self.claims[&waiting];
            if self.earlier(claim).next().is_none() {
                self.grant(waiting);
                granted.push(waiting);
            }
        }
    }

    /// Where `owner`'s claim stands, if it has one.
    pub fn state(&self, owner: Owner) -> Option<LockState> {
        self.claims.get(&owner).map(|claim| claim.state)
    }

    /// Who holds what `owner` waits for, in order.
    pub fn blockers(&self, owner: Owner) -> Vec<Owner> {
        let claim = self.claims.get(&owner);
        let earlier = claim.into_iter().flat_map(|claim| self.earlier(claim));
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
        let first = Place { object, position: 0, size: 0, start: 0, arrival: 0, index: 0 };
        self.extents.range(first..).next().is_some_and(|(place, _)| place.object == object)
    }

    /// True if somebody waits for what `owner` holds, or has asked for before.
    pub fn wanted(&self, owner: Owner) -> bool {
        let claim = self.claims.get(&owner).filter(|_| self.waiting > 0);
        claim.is_some_and(|claim| self.later(claim).next().is_some())
    }

    /// Everybody who holds or waits, in order.
    pub fn owners(&self) -> impl Iterator<Item = Owner> + '_ {
        self.claims.keys().copied()
    }

    /// All claims, by their owners.
    pub fn states(&self) -> impl Iterator<Item = (Owner, LockState)> + '_ {
        self.claims.iter().map(|(owner, claim)| (*owner, claim.state))
    }

    /// How many claims there are, held and waiting.
    pub fn len(&self) -> usize {
        self.claims.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Asserts the rule of the table for every claim, or for those that changed last if there are many.
    pub fn invariants(&self) {
        if self.claims.len() <= CHECKED_MAX {
            self.claims.keys().for_each(|owner| self.check(*owner));
            let extents: usize = self.claims.values().map(|claim| claim.extents.len()).sum();
            assert_eq!(extents, self.extents.len(), "every extent belongs to a claim");
            let waiting = self.claims.values().filter(|claim| claim.state == LockState::Waiting);
            assert_eq!(waiting.count(), self.waiting, "those that wait are counted");
        } else {
            self.recent.iter().filter(|owner| self.claims.contains_key(owner)).for_each(|owner| self.check(*owner));
        }
    }

    fn check(&self, owner: Owner) {
        let claim = &self.claims[&owner];
        let earlier = self.earlier(claim).next();
        match claim.state {
            LockState::Held => {
                assert!(earlier.is_none(), "{owner:?} holds what conflicts with the earlier {earlier:?}")
            }
            LockState::Waiting => assert!(earlier.is_some(), "{owner:?} waits for nobody"),
        }
    }

    /// The extents that `claim` has to wait for.
    fn earlier(&self, claim: &Claim) -> impl Iterator<Item = &Extent<Owner>> {
        self.conflicting_all(claim, 0..claim.arrival).map(|(_, earlier)| earlier)
    }

    /// The extents that have to wait for `claim`.
    fn later(&self, claim: &Claim) -> impl Iterator<Item = (&Place, &Extent<Owner>)> {
        self.conflicting_all(claim, claim.arrival + 1..u64::MAX)
    }

    fn conflicting_all(&self, claim: &Claim, arrivals: Range<u64>) -> impl Iterator<Item = (&Place, &Extent<Owner>)> {
        let extents = claim.extents.iter();
        extents.flat_map(move |extent| self.conflicting(claim.object, *extent, arrivals.clone()))
    }

    /// The extents that conflict with this one, of claims that came at these times.
    fn conflicting(
        &self,
        object: ObjectId,
        LockExtent { position, range, mode }: LockExtent,
        arrivals: Range<u64>,
    ) -> impl Iterator<Item = (&Place, &Extent<Owner>)> {
        let place = Place { object, position, size: 0, start: range.end(), arrival: 0, index: 0 };
        bits(self.sizes_in_use)
            .flat_map(move |size| {
                let behind = Place { size, ..place };
                self.extents.range(Place { start: range.start.saturating_sub(reach(size)), ..behind }..behind)
            })
            .filter(move |(place, other)| {
                arrivals.contains(&place.arrival)
                    && other.mode.conflicts(mode)
                    && BlockRange::new(place.start, other.count).overlaps(range)
            })
    }

    fn insert(&mut self, owner: Owner, claim: Claim) {
        for (place, extent) in claim.places() {
            let state = claim.state;
            self.extents.insert(place, Extent { owner, state, count: extent.range.count, mode: extent.mode });
            self.sizes[place.size as usize] += 1;
            self.sizes_in_use |= 1 << place.size;
        }
        self.waiting += usize::from(claim.state == LockState::Waiting);
        assert!(self.claims.insert(owner, claim).is_none(), "{owner:?} has asked already");
        self.changed(owner);
    }

    fn remove(&mut self, owner: Owner) -> Option<Claim> {
        let claim = self.claims.remove(&owner)?;
        self.waiting -= usize::from(claim.state == LockState::Waiting);
        for (place, _) in claim.places() {
            self.extents.remove(&place);
            let left = &mut self.sizes[place.size as usize];
            *left -= 1;
            if *left == 0 {
                self.sizes_in_use &= !(1 << place.size);
            }
        }
        Some(claim)
    }

    fn grant(&mut self, owner: Owner) {
        let claim = self.claims.get_mut(&owner).expect("it waits");
        claim.state = LockState::Held;
        self.waiting -= 1;
        for (place, _) in claim.places() {
            self.extents.get_mut(&place).expect("a claim's extents are in the table").state = LockState::Held;
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

impl Claim {
    fn places(&self) -> impl Iterator<Item = (Place, LockExtent)> {
        self.extents.iter().zip(0..).map(|(extent, index)| {
            let LockExtent { position, range, .. } = *extent;
            let (object, size, start, arrival) = (self.object, size_of(range), range.start, self.arrival);
            (Place { object, position, size, start, arrival, index }, *extent)
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
