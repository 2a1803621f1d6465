//! Merging: frozen changes are merged into new leaves, in rounds.
//!
//! ```text
//!   begin_round ─► next_read … on_merge_read ─► step: a leaf, an index node to write … ended ─► (all durable) ─► install ─► roots
//! ```
//!
//! A round proceeds by ascending keys. For each leaf with changes, it passes the leaf's entries and the changes, in order, to the packer,
//! which cuts new leaves. Neighbouring leaves pass through the packer as one stream, so that small leaves are joined. A round ends when
//! one more leaf might take more slots than it has, or when everything is merged. If the changes to one leaf are more than a round can
//! take, the leaf is cut where they end, and the next round merges the rest.
//!
//! One step does a bounded amount of work, some tens of microseconds, so that its caller can do other work in between.

use crate::contents::Contents;
use crate::index::{LeafEntry, Node, Position};
use crate::leaf::{ENTRY, HEADER, Leaf};
use crate::leaves::Leaves;
use crate::node;
use crate::packer::Packer;
use crate::types::{ROUND_SLOTS_MIN, SlotRef};
use braid_objects::Key;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, Range};

/// The most leaves that are planned ahead.
const AHEAD: usize = 16;
/// The most entries that one step takes, and the most that are copied as one run.
const ENTRIES_PER_STEP: usize = 1024;
const RUN_MAX: usize = 256;

#[derive(Clone, Debug)]
pub enum Step {
    /// Write this.
    Write(Write),
    /// There is more to do at once.
    Goes,
    /// The round waits for a leaf to be read.
    Waits,
    /// The round has ended. It can be installed when all its writes are durable.
    Ended,
}

/// A leaf or an index node to be written to one of the round's slots.
#[derive(Clone, Debug)]
pub struct Write {
    pub slot: u32,
    /// The bytes, from the slot's start.
    pub data: Bytes,
}

/// The slots that an installed round gives back.
#[derive(Clone, Debug, Default)]
pub struct Installed {
    /// Slots of replaced leaves and nodes. They are free when the new roots are durable.
    pub released: Vec<u32>,
    /// Slots that the round did not need.
    pub unused: Vec<u32>,
}

/// A round under way.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    slots: RoundSlots,
    packer: Packer,
    plan: Plan,
    /// Changes up to this key are in the packer or in new leaves.
    cursor: Bound<Key>,
    current: Option<Current>,
    run: Option<LeafRun>,
    /// The entries that replace each leaf that was taken.
    replaced: BTreeMap<Position, Vec<LeafEntry>>,
    /// The number of index nodes with replaced leaves.
    touched: usize,
    /// The run of leaves has ended: the packer is flushed.
    flushing: bool,
    /// No more leaves are taken.
    ending: bool,
    nodes: Option<Nodes>,
}

/// The slots of a round.
#[derive(Clone, Debug)]
struct RoundSlots {
    total: usize,
    spare: VecDeque<u32>,
    /// Slots of new leaves and nodes.
    made: Vec<u32>,
    /// Slots of the leaves and nodes that they replace.
    released: Vec<u32>,
}

/// The next leaves that have changes.
#[derive(Clone, Debug)]
struct Plan {
    leaves: VecDeque<Planned>,
    /// The key from which to look for more.
    from: Option<Bound<Key>>,
}

#[derive(Clone, Debug)]
struct Planned {
    position: Position,
    state: Arrival,
}

#[derive(Clone, Debug)]
enum Arrival {
    NotAsked,
    Reading(SlotRef),
    /// None: the leaf is not on the disk, and is empty.
    Here(Option<Leaf>),
    Damaged,
}

/// The leaf whose entries are being taken.
#[derive(Clone, Debug)]
struct Current {
    leaf: Option<Leaf>,
    /// The index of its next entry, and the bytes of the entries that are left.
    at: usize,
    rest: usize,
    upper: Option<Key>,
    /// There is no room for more changes.
    is_cut: bool,
}

/// A run of neighbouring leaves that pass through the packer as one stream.
#[derive(Clone, Debug)]
struct LeafRun {
    /// The leaves taken so far.
    taken: Vec<Position>,
    first: Key,
    /// The new leaves have lost entries.
    lost: bool,
    /// The leaves are in the cache.
    hot: bool,
    made: usize,
}

/// The index nodes that a round makes.
#[derive(Clone, Debug, Default)]
struct Nodes {
    touched: VecDeque<usize>,
    /// The first old node and the leaves of small nodes, which are joined with the next node.
    carried: Option<(usize, Vec<LeafEntry>)>,
    runs: Vec<(Range<usize>, Vec<Node>)>,
    writes: VecDeque<Write>,
    ended: bool,
}

impl LeafRun {
    fn last(&self) -> Position {
        *self.taken.last().expect("a run begins with a leaf")
    }
}

impl RoundSlots {
    fn take(&mut self) -> u32 {
        let slot = self.spare.pop_front().expect("a round ends before it has no slots left");
        self.made.push(slot);
        slot
    }

    /// True if the slots suffice for the packer's entries, `more` bytes and the index nodes, in the worst case.
    fn do_for(&self, packer: &Packer, more: usize, touched: usize, node_leaves: usize) -> bool {
        let leaves = self.made.len() + packer.leaves_for(packer.len() + more);
        leaves + 2 * touched + leaves / node_leaves < self.total
    }
}

impl Plan {
    /// Plans the next leaves that have changes.
    fn extend(&mut self, contents: &Contents) {
        while self.leaves.len() < AHEAD
            && let Some(from) = self.from
        {
            let Some((key, _)) = contents.tables.frozen.first((from, Bound::Unbounded)) else {
                self.from = None;
                return;
            };
            let position = contents.index.find(key);
            self.from = contents.index.upper(position).map(Bound::Included);
            self.leaves.push_back(Planned { position, state: Arrival::NotAsked });
        }
    }
}

impl Planned {
    /// Takes the leaf from the cache, or returns where it must be read.
    fn fetch(&mut self, contents: &Contents) -> Option<SlotRef> {
        if !matches!(self.state, Arrival::NotAsked) {
            return None;
        }
        self.state = match contents.index.at(self.position).place {
            None => Arrival::Here(None),
            Some(place) if contents.leaves.is_damaged(place.slot) => Arrival::Damaged,
            Some(place) => match contents.leaves.cache.peek(place.slot) {
                Some(leaf) => Arrival::Here(Some(leaf.clone())),
                None => {
                    self.state = Arrival::Reading(place);
                    return Some(place);
                }
            },
        };
        None
    }
}

impl Round {
    /// Begins a round with these free slots, at most as many as the settings say.
    pub fn new(slots: Vec<u32>, contents: &Contents) -> Round {
        assert!(slots.len() >= ROUND_SLOTS_MIN as usize, "a round needs enough slots to make progress");
        let merged = contents.tables.merged;
        let (made, released) = (Vec::new(), Vec::new());
        Round {
            slots: RoundSlots { total: slots.len(), spare: slots.into(), made, released },
            packer: Packer::new(contents.settings.leaf_bytes),
            plan: Plan { leaves: VecDeque::new(), from: Some(merged) },
            cursor: merged,
            current: None,
            run: None,
            replaced: BTreeMap::new(),
            touched: 0,
            flushing: false,
            ending: false,
            nodes: None,
        }
    }

    /// All slots of the round, used or not.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.slots.spare.iter().chain(&self.slots.made).copied()
    }

    /// The number of its slots.
    pub fn held(&self) -> u64 {
        self.slots.total as u64
    }

    /// The next leaf to read for the round, a few ahead of its progress; none at the moment if there is none.
    pub fn next_read(&mut self, contents: &Contents) -> Option<SlotRef> {
        self.extend_plan(contents);
        self.plan.leaves.iter_mut().find_map(|planned| planned.fetch(contents))
    }

    fn extend_plan(&mut self, contents: &Contents) {
        if !self.ending {
            self.plan.extend(contents);
        }
    }

    /// See [`ObjectIndex::on_merge_read`](crate::ObjectIndex::on_merge_read).
    pub fn on_read(&mut self, slot: u32, bytes: Option<&Bytes>, leaves: &mut Leaves) -> bool {
        for planned in &mut self.plan.leaves {
            let Arrival::Reading(place) = planned.state else { continue };
            if place.slot != slot {
                continue;
            }
            match bytes.map(|bytes| Leaf::decode(bytes, place)) {
                Some(Some(leaf)) => planned.state = Arrival::Here(Some(leaf)),
                Some(None) => return false,
                None => {
                    planned.state = Arrival::Damaged;
                    leaves.mark_damaged(slot);
                }
            }
            break;
        }
        true
    }

    /// Does the next small step.
    pub fn step(&mut self, contents: &mut Contents) -> Step {
        if self.nodes.is_some() {
            return self.make_node(contents);
        }
        if self.packer.is_full() {
            return self.make_leaf(contents, false);
        }
        if self.current.is_some() {
            self.take_entries(contents);
            return Step::Goes;
        }
        if self.flushing && self.packer.len() > 0 {
            return self.make_leaf(contents, true);
        }
        if std::mem::take(&mut self.flushing) {
            self.end_run();
        }
        if self.ending && self.run.is_some() {
            self.flushing = true;
            return Step::Goes;
        }
        if self.ending {
            let mut touched: VecDeque<usize> = self.replaced.keys().map(|position| position.node).collect();
            let mut behind = None;
            touched.retain(|node| behind.replace(*node) != Some(*node));
            self.nodes = Some(Nodes { touched, ..Nodes::default() });
            return Step::Goes;
        }
        self.take_leaf(contents)
    }

    /// Begins with the next leaf that has changes, if the slots suffice for it.
    fn take_leaf(&mut self, contents: &Contents) -> Step {
        self.extend_plan(contents);
        let Some(planned) = self.plan.leaves.front_mut() else {
            self.ending = true;
            return Step::Goes;
        };
        if let Arrival::NotAsked = planned.state {
            let is_here = |place: SlotRef| {
                contents.leaves.is_damaged(place.slot) || contents.leaves.cache.peek(place.slot).is_some()
            };
            if !contents.index.at(planned.position).place.is_none_or(is_here) {
                return Step::Waits;
            }
            planned.fetch(contents);
        }
        let (leaf, damaged) = match &planned.state {
            Arrival::Here(leaf) => (leaf.clone(), false),
            Arrival::Damaged => (None, true),
            Arrival::NotAsked | Arrival::Reading(_) => return Step::Waits,
        };
        let position = planned.position;
        let entry = contents.index.at(position);
        let lost = entry.lost || damaged;
        let goes_on = |run: &LeafRun| !run.lost && !lost && contents.index.next(run.last()) == Some(position);
        if self.run.as_ref().is_some_and(|run| !goes_on(run)) {
            self.flushing = true;
            return Step::Goes;
        }
        let last_node = self.replaced.last_key_value().map(|(position, _)| position.node);
        let touched = self.touched + usize::from(last_node != Some(position.node));
        let rest = leaf.as_ref().map_or(0, |leaf| leaf.bytes() - HEADER);
        let change = contents.tables.frozen.first((self.cursor, Bound::Unbounded));
        let more = rest + change.map_or(0, |(_, value)| ENTRY + value.as_ref().map_or(0, Bytes::len));
        if !self.slots.do_for(&self.packer, more, touched, contents.settings.node_leaves) {
            assert!(!self.replaced.is_empty(), "a round takes at least one leaf");
            self.ending = true;
            return Step::Goes;
        }
        self.plan.leaves.pop_front();
        self.touched = touched;
        let hot = entry.place.is_none_or(|place| contents.leaves.cache.peek(place.slot).is_some());
        match &mut self.run {
            Some(run) => {
                run.taken.push(position);
                run.hot = hot;
            }
            None => {
                self.run = Some(LeafRun { taken: vec![position], first: entry.first, lost, hot, made: 0 });
            }
        }
        self.replaced.insert(position, Vec::new());
        self.slots.released.extend(entry.place.map(|place| place.slot));
        self.current = Some(Current { leaf, at: 0, rest, upper: contents.index.upper(position), is_cut: false });
        Step::Goes
    }

    /// Takes entries of the leaf and changes, in order, until the packer is full or all are taken.
    fn take_entries(&mut self, contents: &Contents) {
        let Round { slots, packer, current: taking, run, cursor, touched, ending, .. } = self;
        let current = taking.as_mut().expect("a leaf is being taken");
        let keeps_absent = run.as_ref().expect("a leaf is taken as part of a run").lost;
        let upper = current.upper.map_or(Bound::Unbounded, Bound::Excluded);
        let mut changes = contents.tables.frozen.range((*cursor, upper)).peekable();
        let mut taken = 0;
        while taken < ENTRIES_PER_STEP && !packer.is_full() {
            let change = if current.is_cut { None } else { changes.peek().map(|(key, value)| (**key, *value)) };
            if let Some(leaf) = &current.leaf {
                // Entries before the next change are copied unchanged.
                let until = change.map_or(leaf.len(), |(key, _)| leaf.from(key)).min(current.at + RUN_MAX);
                if until > current.at {
                    current.rest -= packer.push_run(leaf, current.at..until);
                    taken += until - current.at;
                    current.at = until;
                    continue;
                }
            }
            let Some((key, value)) = change else {
                *ending |= current.is_cut;
                *taking = None;
                return;
            };
            let raw = key.encode();
            let overwritten = current.leaf.as_ref().filter(|leaf| leaf.is_at(current.at, &raw));
            let before = overwritten.map_or(0, |leaf| leaf.size(current.at));
            let entry = if value.is_some() || keeps_absent { ENTRY } else { 0 };
            let after = entry + value.as_ref().map_or(0, Bytes::len);
            // Room for a change that does not grow its entry was ensured when the leaf was begun, and such a change must not fail: see
            // `merge_needs`.
            let more = current.rest + after;
            if after > before && !slots.do_for(packer, more, *touched, contents.settings.node_leaves) {
                current.is_cut = true;
                continue;
            }
            if value.is_some() || keeps_absent {
                packer.push(raw, value.as_deref(), overwritten.is_none());
            }
            if overwritten.is_some() {
                current.at += 1;
                current.rest -= before;
            }
            *cursor = Bound::Excluded(key);
            changes.next();
            taken += 1;
        }
    }

    /// Writes a leaf of the packer's entries.
    fn make_leaf(&mut self, contents: &mut Contents, at_end: bool) -> Step {
        let slot = self.slots.take();
        let run = self.run.as_mut().expect("the packer holds entries of a run");
        // The first leaf of a run covers all keys from the first key of the old run, so that the leaf before it stays as it is.
        let first = if run.made == 0 { run.first } else { self.packer.first().expect("the packer is not empty") };
        let (place, data, leaf) = self.packer.cut(at_end, slot, first, run.lost);
        let entry = LeafEntry { first, place: Some(place), lost: run.lost };
        // New leaves replace old ones one for one, so that an index node gets more leaves only if there are more.
        let instead = run.taken.get(run.made).copied().unwrap_or(run.last());
        self.replaced.get_mut(&instead).expect("the leaf was taken").push(entry);
        run.made += 1;
        if run.hot {
            contents.leaves.cache.insert(slot, leaf);
        }
        contents.leaves.written += 1;
        Step::Write(Write { slot, data })
    }

    /// A run of which no entry is left becomes an entry without a leaf. Its keys are not given to the leaf before it: if that leaf is
    /// found damaged, they would be lost with it.
    fn end_run(&mut self) {
        let run = self.run.take().expect("a run is being ended");
        if run.made == 0 {
            let nothing = LeafEntry { first: run.first, place: None, lost: run.lost };
            self.replaced.get_mut(&run.last()).expect("the leaf was taken").push(nothing);
        }
    }

    /// Makes the next index node, or writes one.
    fn make_node(&mut self, contents: &Contents) -> Step {
        let Round { slots, replaced, nodes, .. } = self;
        let nodes = nodes.as_mut().expect("nodes are being made");
        if let Some(write) = nodes.writes.pop_front() {
            return Step::Write(write);
        }
        match nodes.touched.pop_front() {
            Some(node) => {
                nodes.renew(node, replaced, slots, contents);
                Step::Goes
            }
            None => {
                nodes.ended = true;
                Step::Ended
            }
        }
    }

    /// Everything that the round wrote is durable: installs it.
    pub fn install(self, contents: &mut Contents) -> Installed {
        let nodes = self.nodes.filter(|nodes| nodes.ended).expect("the round has ended");
        let RoundSlots { spare, made, mut released, .. } = self.slots;
        contents.tables.merged = self.cursor;
        released.iter().for_each(|slot| contents.leaves.drop_slot(*slot));
        // An empty index needs no nodes, though the round has written some. Nodes from before the round are still named by the durable
        // roots.
        let mut unused = Vec::from(spare);
        for slot in contents.index.replace(nodes.runs) {
            if made.contains(&slot) { unused.push(slot) } else { released.push(slot) }
        }
        Installed { released, unused }
    }
}

impl Nodes {
    fn renew(
        &mut self,
        node: usize,
        replaced: &BTreeMap<Position, Vec<LeafEntry>>,
        slots: &mut RoundSlots,
        contents: &Contents,
    ) {
        let most = contents.settings.node_leaves;
        let (mut start, mut leaves) = self.carried.take().unwrap_or((node, Vec::new()));
        let mut end = node + 1;
        for (leaf, entry) in contents.index.node(node).leaves.iter().enumerate() {
            match replaced.get(&Position { node, leaf }) {
                Some(new) => leaves.extend(new),
                None => leaves.push(*entry),
            }
        }
        leaves.dedup_by(|next, before| next.place.is_none() && before.place.is_none() && next.lost == before.lost);
        if !leaves.is_empty() && leaves.len() <= most / 4 {
            // A small node joins a neighbour.
            let fits = |other: usize| leaves.len() + contents.index.node(other).leaves.len() <= most;
            let taken = self.runs.last().map_or(0, |(old, _)| old.end);
            if self.touched.front() == Some(&end) {
                self.carried = Some((start, leaves));
                return;
            } else if end < contents.index.len() && fits(end) {
                leaves.extend(&contents.index.node(end).leaves);
                end += 1;
            } else if start > taken && fits(start - 1) {
                start -= 1;
                leaves.splice(..0, contents.index.node(start).leaves.iter().copied());
            }
        }
        let parts = leaves.len().div_ceil(most).max(1);
        let mut made = Vec::with_capacity(parts);
        for leaves in leaves.chunks(leaves.len().div_ceil(parts).max(1)) {
            let slot = slots.take();
            let (place, data) = node::encode(slot, leaves);
            self.writes.push_back(Write { slot, data });
            made.push(Node { first: leaves[0].first, place: Some(place), leaves: leaves.to_vec() });
        }
        slots.released.extend((start..end).filter_map(|old| contents.index.node(old).place).map(|place| place.slot));
        self.runs.push((start..end, made));
    }
}
