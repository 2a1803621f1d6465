//! The lock table against a naive model: a list of locks in the order of their arrival, compared block by block.

use crate::bench::*;
use braid_locks::{LockState, LockTable, Locked};
use proptest::prelude::*;

type Owner = u8;
type Lock = (Owner, ObjectId, Vec<LockExtent>);

/// A lock is held if no earlier one conflicts with it. One that passes those that wait came before them, but behind those that are held.
#[derive(Default)]
struct Naive {
    in_order: Vec<Lock>,
    held: BTreeSet<Owner>,
    passing: BTreeSet<Owner>,
    /// The number of locks at the front that were taken in as held, or passed others.
    held_before: usize,
    /// Owners whose locks belong together.
    beside: BTreeSet<(Owner, Owner)>,
}

impl Naive {
    fn conflict(&self, one: &Lock, other: &Lock) -> bool {
        !self.beside.contains(&(one.0, other.0)) && conflict(one, other)
    }

    fn find(&self, owner: Owner) -> Option<usize> {
        self.in_order.iter().position(|(other, ..)| *other == owner)
    }

    fn earlier(&self, index: usize) -> Vec<Owner> {
        let lock_id = &self.in_order[index];
        let is_ahead = |(at, other): &(usize, &Lock)| {
            let waits = *at < index && !self.passing.contains(&lock_id.0);
            other.0 != lock_id.0 && (self.held(other.0) || waits) && self.conflict(other, lock_id)
        };
        self.in_order.iter().enumerate().filter(is_ahead).map(|(_, (owner, ..))| *owner).collect()
    }

    fn held(&self, owner: Owner) -> bool {
        self.held.contains(&owner)
    }

    /// Grants what waits for nothing. Returns the owners.
    fn grant(&mut self) -> Vec<Owner> {
        let owners: Vec<_> = self.in_order.iter().map(|(owner, ..)| *owner).collect();
        let is_granted = |(index, owner): &(usize, Owner)| {
            !self.held(*owner) && self.earlier(*index).is_empty() && self.held.insert(*owner)
        };
        owners.into_iter().enumerate().filter(is_granted).map(|(_, owner)| owner).collect()
    }

    fn blockers(&self, owner: Owner) -> Vec<Owner> {
        let earlier = self.find(owner).map(|index| self.earlier(index)).unwrap_or_default();
        let held: BTreeSet<_> = earlier.into_iter().filter(|other| self.held(*other)).collect();
        held.into_iter().collect()
    }

    /// The places of those that wait for it.
    fn waiting_for(&self, owner: Owner) -> Vec<usize> {
        let Some(index) = self.find(owner) else { return Vec::new() };
        let waits = |at: &usize| {
            let other = &self.in_order[*at];
            let is_behind = self.held(owner) || (*at > index && !self.passing.contains(&other.0));
            !self.held(other.0) && is_behind && self.conflict(other, &self.in_order[index])
        };
        (0..self.in_order.len()).filter(waits).collect()
    }

    /// Those that wait for it, but not for its promotion before.
    fn wanting(&self, owner: Owner) -> BTreeSet<Owner> {
        let is_behind_promotion = |at: usize| {
            self.in_order[..at].iter().any(|other| {
                let is_promotion = self.beside.contains(&(other.0, owner)) && !self.held(other.0);
                is_promotion && self.conflict(other, &self.in_order[at]) && !self.passing.contains(&self.in_order[at].0)
            })
        };
        let waiting = self.waiting_for(owner).into_iter().filter(|at| !is_behind_promotion(*at));
        waiting.map(|at| self.in_order[at].0).collect()
    }

    fn conflicts(&self, object: ObjectId, extents: &[LockExtent], except: Option<Owner>) -> bool {
        let lock_id = (0, object, extents.to_vec());
        self.in_order.iter().any(|other| Some(other.0) != except && self.held(other.0) && conflict(other, &lock_id))
    }
}

fn conflict(one: &Lock, other: &Lock) -> bool {
    let locks = |lock_id: &Lock, mode: Option<LockMode>| -> BTreeSet<(u16, u64)> {
        let extents = lock_id.2.iter().filter(|extent| mode.is_none_or(|mode| mode == extent.mode));
        extents.flat_map(|extent| extent.range.blocks().map(|block| (extent.position, block))).collect()
    };
    let written = Some(LockMode::Exclusive);
    one.1 == other.1
        && (!locks(one, written).is_disjoint(&locks(other, None))
            || !locks(one, None).is_disjoint(&locks(other, written)))
}

#[derive(Clone, Debug)]
enum Action {
    /// The locks of the last owners belong together with it. It passes those that wait if so.
    Lock(Owner, ObjectId, Vec<LockExtent>, BTreeSet<Owner>, bool),
    /// Keeps the first of these extents, cut by one block, and shared if so.
    Shrink(Owner, usize, bool),
    Hold(Owner, ObjectId, Vec<LockExtent>),
    Release(Owner),
    Look(Owner, ObjectId, Vec<LockExtent>),
}

fn extents() -> impl Strategy<Value = Vec<LockExtent>> {
    let mode = prop_oneof![Just(LockMode::Shared), Just(LockMode::Exclusive)];
    let range = prop_oneof![4 => (0u64..12, 1u64..4), 1 => (0u64..40, 1u64..70)];
    let extent = (0u16..3, range, mode).prop_map(|(position, (start, count), mode)| LockExtent {
        position,
        range: BlockRange::new(start, count),
        mode,
    });
    prop::collection::vec(extent, 1..4)
}

fn action() -> impl Strategy<Value = Action> {
    let lock_id = || (0u8..30, (1u64..3).prop_map(ObjectId), extents());
    prop_oneof![
        6 => (lock_id(), prop::collection::btree_set(0u8..30, 0..6), prop::bool::weighted(0.3))
            .prop_map(|((owner, object, extents), beside, passes)| Action::Lock(owner, object, extents, beside, passes)),
        2 => (0u8..30, 1usize..4, any::<bool>()).prop_map(|(owner, rest, weaker)| Action::Shrink(owner, rest, weaker)),
        3 => lock_id().prop_map(|(owner, object, extents)| Action::Hold(owner, object, extents)),
        5 => (0u8..30).prop_map(Action::Release),
        1 => lock_id().prop_map(|(owner, object, extents)| Action::Look(owner, object, extents)),
    ]
}

const WHOLE: LockExtent =
    LockExtent { position: 0, range: BlockRange { start: 0, count: 1000 }, mode: LockMode::Shared };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_lock_is_held_unless_it_conflicts_with_an_earlier_one(actions in prop::collection::vec(action(), 1..120)) {
        let mut table = LockTable::new();
        let mut naive = Naive::default();
        for action in actions {
            match action {
                Action::Lock(owner, object, extents, beside, passes) if naive.find(owner).is_none() => {
                    let lock_id = (owner, object, extents.clone());
                    let held = naive.held.clone();
                    let belongs = |other: &&Lock| {
                        beside.contains(&other.0) && (!passes || held.contains(&other.0)) && conflict(other, &lock_id)
                    };
                    for (other, ..) in naive.in_order.iter().filter(belongs) {
                        naive.beside.extend([(owner, *other), (*other, owner)]);
                    }
                    let at = if passes { naive.held_before } else { naive.in_order.len() };
                    naive.in_order.insert(at, lock_id);
                    naive.held_before += usize::from(passes && naive.passing.insert(owner));
                    naive.grant();
                    let expected = match naive.held(owner) {
                        true => Locked::Granted,
                        false => Locked::Waits { blockers: naive.blockers(owner) },
                    };
                    let belongs = |other| beside.contains(&other);
                    prop_assert_eq!(table.lock_beside(owner, object, &extents, belongs, passes), expected);
                }
                Action::Shrink(owner, rest, weaker) => {
                    let mut granted = Vec::new();
                    let Some(index) = naive.find(owner) else {
                        prop_assert!(!table.shrink(owner, &[], &mut granted));
                        continue;
                    };
                    let mut extents = naive.in_order[index].2.clone();
                    extents.truncate(rest);
                    for extent in &mut extents {
                        extent.range.count = (extent.range.count - 1).max(1);
                        extent.mode = if weaker { LockMode::Shared } else { extent.mode };
                    }
                    let is_held = naive.held(owner);
                    prop_assert_eq!(table.shrink(owner, &extents, &mut granted), is_held);
                    let longer = LockExtent { range: BlockRange::new(0, 1000), ..extents.first().copied().unwrap_or(WHOLE) };
                    prop_assert!(!table.shrink(owner, &[longer], &mut granted), "no lock grows");
                    let first = extents.first().copied().unwrap_or(WHOLE);
                    let none = LockExtent { range: BlockRange { count: 0, ..first.range }, ..first };
                    prop_assert!(!table.shrink(owner, &[none], &mut granted), "no extent is empty");
                    if is_held {
                        naive.in_order[index].2 = extents;
                    }
                    prop_assert_eq!(granted, naive.grant());
                }
                Action::Hold(owner, object, extents) if naive.find(owner).is_none() => {
                    let free = !naive.conflicts(object, &extents, None);
                    prop_assert_eq!(table.hold(owner, object, &extents), free);
                    if free {
                        naive.in_order.insert(naive.held_before, (owner, object, extents));
                        naive.held_before += 1;
                        naive.held.insert(owner);
                    }
                }
                Action::Release(owner) => {
                    if let Some(index) = naive.find(owner) {
                        naive.in_order.remove(index);
                        naive.held.remove(&owner);
                        naive.passing.remove(&owner);
                        naive.held_before -= usize::from(index < naive.held_before);
                        naive.beside.retain(|(one, other)| *one != owner && *other != owner);
                    }
                    let mut granted = Vec::new();
                    table.release(owner, &mut granted);
                    prop_assert_eq!(granted, naive.grant());
                }
                Action::Look(owner, object, extents) => {
                    for except in [None, Some(owner)] {
                        let conflicts = naive.conflicts(object, &extents, except);
                        prop_assert_eq!(table.conflicts(object, &extents, except), conflicts);
                    }
                    let touched = naive.in_order.iter().any(|(_, other, _)| *other == object);
                    prop_assert_eq!(table.touches(object), touched);
                    let free_behind = table.free_behind(object, &extents[0], 5);
                    let BlockRange { start, count } = extents[0].range;
                    let in_the_way = |range| {
                        let lock_id = (0, object, vec![LockExtent { range, ..extents[0] }]);
                        naive.in_order.iter().any(|other| conflict(other, &lock_id))
                    };
                    prop_assert!(free_behind <= 5);
                    prop_assert_eq!(table.is_free(object, &extents[..1]), !in_the_way(extents[0].range));
                    if in_the_way(extents[0].range) {
                        prop_assert_eq!(free_behind, 0);
                    } else {
                        prop_assert!(!in_the_way(BlockRange::new(start, count + free_behind)));
                        prop_assert!(free_behind == 5 || in_the_way(BlockRange::new(start + count + free_behind, 1)));
                    }
                }
                Action::Lock(..) | Action::Hold(..) => {}
            }
            table.invariants();
            prop_assert_eq!(table.len(), naive.in_order.len());
            prop_assert_eq!(table.is_empty(), naive.in_order.is_empty());
            prop_assert!(table.owners().eq(naive.in_order.iter().map(|(owner, ..)| *owner).collect::<BTreeSet<_>>()));
            for owner in 0..30 {
                let state = naive.find(owner).map(|_| match naive.held(owner) {
                    true => LockState::Held,
                    false => LockState::Waiting,
                });
                prop_assert_eq!(table.state(owner), state);
                prop_assert_eq!(table.blockers(owner), naive.blockers(owner));
                prop_assert_eq!(table.wanted(owner), !naive.waiting_for(owner).is_empty());
                let wanting: BTreeSet<_> = table.wanted_extents(owner).into_iter().map(|(other, _)| other).collect();
                prop_assert_eq!(wanting, naive.wanting(owner));
            }
        }
    }
}

/// A lock on a whole volume and locks on single blocks at the ends of the range of numbers: sums do not overflow, and
/// no conflict is missed.
#[test]
fn locks_of_any_size_find_each_other() {
    let extent =
        |start, count| LockExtent { position: 7, range: BlockRange::new(start, count), mode: LockMode::Exclusive };
    let ranges = [(0, 1), (0, u64::MAX), (u64::MAX - 1, 1), (1 << 63, 1), (1, (1 << 63) - 1), (1, 1 << 63)];
    for (first, one) in ranges.into_iter().enumerate() {
        for (second, other) in ranges.into_iter().enumerate() {
            let mut table = LockTable::new();
            let (one, other) = (extent(one.0, one.1), extent(other.0, other.1));
            table.lock(0, ObjectId(1), &[one]);
            let free = matches!(table.lock(1, ObjectId(1), &[other]), Locked::Granted);
            assert_eq!(free, !one.range.overlaps(other.range), "{first} {second}");
            table.invariants();
        }
    }
}
