//! Merging: frozen changes go into new leaves, in rounds.
//!
//! ```text
//!   begin_round ─► next_read … on_merge_read ─► step: a leaf, an index node to write … ended ─► (all durable) ─► install ─► roots
//! ```
//!
//! A round goes by ascending keys. Of each leaf with changes it takes the entries, in order, with the changes among them, to the
//! packer, which cuts new leaves; neighbours go through it as one stream, so that what is left of small ones comes together. A
//! round ends when one more leaf might take more slots than it has, or when all is merged. If the changes to one leaf are more than a
//! round can take, the leaf is cut where they end: what is behind is merged by the next round.
//!
//! One step does a bounded amount of work, some tens of microseconds: who calls it has other things to do in between.

use crate::catalogue::Catalogue;
use crate::index::{LeafEntry, Node, Position};
use crate::leaf::{ENTRY, HEADER, Leaf};
use crate::node::{self, Place};
use crate::packer::Packer;
use braid_objects::Key;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, Range};

/// Leaves that are read ahead.
const AHEAD: usize = 16;
/// The most entries that one step takes, and that go over in one piece.
const ENTRIES_PER_STEP: usize = 1024;
const RUN_MAX: usize = 256;

/// What a round does next.
#[derive(Debug)]
pub enum Step {
    /// This is to be written.
    Write(Write),
    /// There is more to do at once.
    Goes,
    /// It waits for a leaf.
    Waits,
    /// Nothing more: when all that was written is durable, it can be installed.
    Ended,
}

/// A leaf or an index node, for a slot of the round's.
#[derive(Debug)]
pub struct Write {
    /// Where to.
    pub slot: u32,
    /// The bytes, from the slot's start.
    pub data: Bytes,
}

/// What a round leaves.
#[derive(Debug, Default)]
pub struct Installed {
    /// Slots that are free as soon as the new roots are durable.
    pub released: Vec<u32>,
    /// Slots that it did not need.
    pub unused: Vec<u32>,
}

/// A round at work.
#[derive(Debug)]
pub(crate) struct Round {
    slots: u32,
    spare: VecDeque<u32>,
    /// Slots of what was made.
    made: Vec<u32>,
    packer: Packer,
    /// The next leaves with changes.
    planned: VecDeque<Planned>,
    /// From where on more are to be looked for.
    plan_from: Option<Bound<Key>>,
    /// Changes up to here are in the packer or in leaves.
    cursor: Bound<Key>,
    current: Option<Current>,
    stretch: Option<Stretch>,
    /// What comes in the place of each leaf that was taken.
    replaced: BTreeMap<Position, Vec<LeafEntry>>,
    /// Nodes with any of those.
    touched: usize,
    released: Vec<u32>,
    /// The stretch is over.
    flushing: bool,
    /// No more leaves are taken.
    ending: bool,
    nodes: Option<Nodes>,
}

/// A leaf that is to be taken.
#[derive(Debug)]
struct Planned {
    position: Position,
    state: Arrival,
}

#[derive(Debug)]
enum Arrival {
    NotAsked,
    Reading(Place),
    /// None: there is nothing on the disk.
    Here(Option<Leaf>),
    Damaged,
}

/// The leaf that is being taken.
#[derive(Debug)]
struct Current {
    leaf: Option<Leaf>,
    /// The next of its entries, and the bytes of those that are left.
    at: usize,
    rest: usize,
    upper: Option<Key>,
    /// There is no room for more changes.
    is_cut: bool,
}

/// Neighbouring leaves that are taken as one stream.
#[derive(Debug)]
struct Stretch {
    /// The leaves taken so far.
    taken: Vec<Position>,
    first: Key,
    /// What comes of it does not name all there was.
    lost: bool,
    /// Its leaves are in use.
    hot: bool,
    made: usize,
}

/// Index nodes being made.
#[derive(Debug, Default)]
struct Nodes {
    touched: VecDeque<usize>,
    /// Of small nodes, what goes to the next one: from which node on, and their leaves.
    carried: Option<(usize, Vec<LeafEntry>)>,
    runs: Vec<(Range<usize>, Vec<Node>)>,
    writes: VecDeque<Write>,
    ended: bool,
}

impl Stretch {
    fn last(&self) -> Position {
        *self.taken.last().expect("it begins with one")
    }
}

impl Round {
    /// All slots that it has, used or not.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.spare.iter().chain(&self.made).copied()
    }

    /// How many.
    pub fn held(&self) -> u64 {
        u64::from(self.slots)
    }

    fn take_slot(&mut self) -> u32 {
        let slot = self.spare.pop_front().expect("a round ends before it has no slots left");
        self.made.push(slot);
        slot
    }

    /// True if the slots do for the packer's entries and these, and for the index nodes, whatever comes of them.
    fn has_room(&self, more: usize, touched: usize, node_leaves: usize) -> bool {
        let leaves = self.made.len() + self.packer.leaves_for(self.packer.len() + more);
        leaves + 2 * touched + leaves / node_leaves < self.slots as usize
    }
}

impl Catalogue {
    /// Begins a round with these free slots: at least [`ROUND_SLOTS_MIN`](crate::ROUND_SLOTS_MIN), and no more than the settings say.
    pub fn begin_round(&mut self, slots: Vec<u32>) {
        assert!(self.round.is_none() && self.is_to_be_merged(), "there is something to do");
        assert!(slots.len() >= crate::ROUND_SLOTS_MIN as usize, "a round that can't get on must not begin");
        self.round = Some(Box::new(Round {
            slots: slots.len() as u32,
            spare: slots.into(),
            made: Vec::new(),
            packer: Packer::new(self.settings.leaf_bytes),
            planned: VecDeque::new(),
            plan_from: Some(self.merged),
            cursor: self.merged,
            current: None,
            stretch: None,
            replaced: BTreeMap::new(),
            touched: 0,
            released: Vec::new(),
            flushing: false,
            ending: false,
            nodes: None,
        }));
    }

    /// The next leaf that the round wants read, a few ahead of what it is at. None at the moment.
    pub fn next_read(&mut self) -> Option<Place> {
        let mut round = self.round.take()?;
        self.plan(&mut round);
        let asked = round.planned.iter_mut().find_map(|planned| self.fetch(planned));
        self.round = Some(round);
        asked
    }

    /// What is in a slot has been read; none: it can't be. False if that is not the leaf: it may be read again, or be given up with none.
    pub fn on_merge_read(&mut self, slot: u32, bytes: Option<&Bytes>) -> bool {
        let planned = self.round.iter_mut().flat_map(|round| &mut round.planned);
        let waits = |planned: &&mut Planned| matches!(planned.state, Arrival::Reading(place) if place.slot == slot);
        let Some(planned) = planned.into_iter().find(waits) else { return true };
        let Arrival::Reading(place) = planned.state else { panic!("just seen") };
        match bytes.map(|bytes| Leaf::decode(bytes, place)) {
            Some(Some(leaf)) => planned.state = Arrival::Here(Some(leaf)),
            Some(None) => return false,
            None => {
                planned.state = Arrival::Damaged;
                self.mark_damaged(slot);
            }
        }
        true
    }

    /// Goes on a little.
    pub fn step(&mut self) -> Step {
        self.tidy();
        let mut round = self.round.take().expect("a round was begun");
        let step = self.step_of(&mut round);
        self.round = Some(round);
        step
    }

    fn step_of(&mut self, round: &mut Round) -> Step {
        if round.nodes.is_some() {
            return self.make_node(round);
        }
        if round.packer.is_full() {
            return self.make_leaf(round, false);
        }
        if round.current.is_some() {
            self.take_entries(round);
            return Step::Goes;
        }
        if round.flushing && round.packer.len() > 0 {
            return self.make_leaf(round, true);
        }
        if std::mem::take(&mut round.flushing) {
            self.end_stretch(round);
        }
        if round.ending && round.stretch.is_some() {
            round.flushing = true;
            return Step::Goes;
        }
        if round.ending {
            let mut touched: VecDeque<usize> = round.replaced.keys().map(|position| position.node).collect();
            let mut behind = None;
            touched.retain(|node| behind.replace(*node) != Some(*node));
            round.nodes = Some(Nodes { touched, ..Nodes::default() });
            return Step::Goes;
        }
        self.take_leaf(round)
    }

    /// Finds the next leaves with changes.
    fn plan(&self, round: &mut Round) {
        while round.planned.len() < AHEAD
            && !round.ending
            && let Some(from) = round.plan_from
        {
            let Some((key, _)) = self.frozen.first((from, Bound::Unbounded)) else {
                round.plan_from = None;
                return;
            };
            let position = self.index.find(key);
            round.plan_from = self.index.upper(position).map(Bound::Included);
            round.planned.push_back(Planned { position, state: Arrival::NotAsked });
        }
    }

    /// Gets a leaf from memory, or says that it must be read.
    fn fetch(&mut self, planned: &mut Planned) -> Option<Place> {
        if !matches!(planned.state, Arrival::NotAsked) {
            return None;
        }
        let place = self.index.at(planned.position).place;
        planned.state = match place {
            None => Arrival::Here(None),
            Some(place) if self.damaged.contains(&place.slot) => Arrival::Damaged,
            Some(place) => match self.cache.peek(place.slot) {
                Some(leaf) => Arrival::Here(Some(leaf.clone())),
                None => {
                    planned.state = Arrival::Reading(place);
                    return Some(place);
                }
            },
        };
        None
    }

    /// Begins with the next leaf that has changes, if there is room for that.
    fn take_leaf(&mut self, round: &mut Round) -> Step {
        self.plan(round);
        let Some(planned) = round.planned.front_mut() else {
            round.ending = true;
            return Step::Goes;
        };
        if let Arrival::NotAsked = planned.state {
            let position = planned.position;
            let at_hand = self
                .index
                .at(position)
                .place
                .is_none_or(|place| self.damaged.contains(&place.slot) || self.cache.peek(place.slot).is_some());
            if !at_hand {
                return Step::Waits;
            }
            self.fetch(planned);
        }
        let (leaf, damaged) = match &planned.state {
            Arrival::Here(leaf) => (leaf.clone(), false),
            Arrival::Damaged => (None, true),
            Arrival::NotAsked | Arrival::Reading(_) => return Step::Waits,
        };
        let position = planned.position;
        let entry = self.index.at(position);
        let lost = entry.lost || damaged;
        let goes_on = |stretch: &Stretch| !stretch.lost && !lost && self.index.next(stretch.last()) == Some(position);
        if round.stretch.as_ref().is_some_and(|stretch| !goes_on(stretch)) {
            round.flushing = true;
            return Step::Goes;
        }
        let last_node = round.replaced.last_key_value().map(|(position, _)| position.node);
        let touched = round.touched + usize::from(last_node != Some(position.node));
        let rest = leaf.as_ref().map_or(0, |leaf| leaf.bytes() - HEADER);
        let change = self.frozen.first((round.cursor, Bound::Unbounded));
        let more = rest + change.map_or(0, |(_, value)| ENTRY + value.as_ref().map_or(0, Bytes::len));
        if !round.has_room(more, touched, self.settings.node_leaves) {
            assert!(!round.replaced.is_empty(), "a round takes one leaf at least");
            round.ending = true;
            return Step::Goes;
        }
        round.planned.pop_front();
        round.touched = touched;
        let hot = entry.place.is_none_or(|place| self.cache.peek(place.slot).is_some());
        match &mut round.stretch {
            Some(stretch) => {
                stretch.taken.push(position);
                stretch.hot = hot;
            }
            None => {
                round.stretch = Some(Stretch { taken: vec![position], first: entry.first, lost, hot, made: 0 });
            }
        }
        round.replaced.insert(position, Vec::new());
        round.released.extend(entry.place.map(|place| place.slot));
        round.current = Some(Current { leaf, at: 0, rest, upper: self.index.upper(position), is_cut: false });
        Step::Goes
    }

    /// Takes entries of the leaf, and changes, in order: until the packer is full, or they are all taken.
    fn take_entries(&mut self, round: &mut Round) {
        let mut current = round.current.take().expect("a leaf is being taken");
        let keeps_absent = round.stretch.as_ref().expect("it is of a stretch").lost;
        let upper = current.upper.map_or(Bound::Unbounded, Bound::Excluded);
        let mut changes = self.frozen.range((round.cursor, upper)).peekable();
        let mut taken = 0;
        while taken < ENTRIES_PER_STEP && !round.packer.is_full() {
            let change = if current.is_cut { None } else { changes.peek().map(|(key, value)| (**key, *value)) };
            if let Some(leaf) = &current.leaf {
                // What stands before the next change goes over as it is.
                let until = change.map_or(leaf.len(), |(key, _)| leaf.from(key)).min(current.at + RUN_MAX);
                if until > current.at {
                    current.rest -= round.packer.push_run(leaf, current.at..until);
                    taken += until - current.at;
                    current.at = until;
                    continue;
                }
            }
            let Some((key, value)) = change else {
                round.ending |= current.is_cut;
                return;
            };
            let raw = key.encode();
            let overwritten = current.leaf.as_ref().filter(|leaf| leaf.is_at(current.at, &raw));
            let before = overwritten.map_or(0, |leaf| leaf.size(current.at));
            let entry = if value.is_some() || keeps_absent { ENTRY } else { 0 };
            let after = entry + value.as_ref().map_or(0, Bytes::len);
            // What does not grow has its room since the leaf was begun, and must have: see `room`.
            let more = current.rest + after;
            if after > before && !round.has_room(more, round.touched, self.settings.node_leaves) {
                current.is_cut = true;
                continue;
            }
            if value.is_some() || keeps_absent {
                round.packer.push(raw, value.as_deref(), overwritten.is_none());
            }
            if overwritten.is_some() {
                current.at += 1;
                current.rest -= before;
            }
            round.cursor = Bound::Excluded(key);
            changes.next();
            taken += 1;
        }
        round.current = Some(current);
    }

    /// Writes a leaf of what is in the packer.
    fn make_leaf(&mut self, round: &mut Round, at_end: bool) -> Step {
        let slot = round.take_slot();
        let stretch = round.stretch.as_mut().expect("what is in the packer is of a stretch");
        // The first one stands for all keys that the old leaf stood for: what is before it stays as it is.
        let first = if stretch.made == 0 { stretch.first } else { round.packer.first().expect("it is not empty") };
        let (place, data, leaf) = round.packer.cut(at_end, slot, first, stretch.lost);
        let entry = LeafEntry { first, place: Some(place), lost: stretch.lost };
        // One for one, so that no index node comes to have more leaves unless there are more.
        let instead = stretch.taken.get(stretch.made).copied().unwrap_or(stretch.last());
        round.replaced.get_mut(&instead).expect("it was taken").push(entry);
        stretch.made += 1;
        if stretch.hot {
            self.cache.insert(slot, leaf);
        }
        self.counted.leaves_written += 1;
        Step::Write(Write { slot, data })
    }

    /// Where nothing is left of a stretch, that is noted. Its keys don't fall to the leaf before it: if that is found damaged, they would
    /// be lost with it.
    fn end_stretch(&self, round: &mut Round) {
        let stretch = round.stretch.take().expect("it is being ended");
        if stretch.made == 0 {
            let nothing = LeafEntry { first: stretch.first, place: None, lost: stretch.lost };
            round.replaced.get_mut(&stretch.last()).expect("it was taken").push(nothing);
        }
    }

    /// Makes the next index node, or writes one.
    fn make_node(&mut self, round: &mut Round) -> Step {
        let mut nodes = round.nodes.take().expect("they are being made");
        let step = match nodes.writes.pop_front() {
            Some(write) => Step::Write(write),
            None => match nodes.touched.pop_front() {
                Some(node) => {
                    self.renew_node(node, round, &mut nodes);
                    Step::Goes
                }
                None => {
                    nodes.ended = true;
                    Step::Ended
                }
            },
        };
        round.nodes = Some(nodes);
        step
    }

    fn renew_node(&self, node: usize, round: &mut Round, nodes: &mut Nodes) {
        let most = self.settings.node_leaves;
        let (mut start, mut leaves) = nodes.carried.take().unwrap_or((node, Vec::new()));
        let mut end = node + 1;
        for (leaf, entry) in self.index.node(node).leaves.iter().enumerate() {
            match round.replaced.get(&Position { node, leaf }) {
                Some(new) => leaves.extend(new),
                None => leaves.push(*entry),
            }
        }
        leaves.dedup_by(|next, before| next.place.is_none() && before.place.is_none() && next.lost == before.lost);
        if !leaves.is_empty() && leaves.len() <= most / 4 {
            // A small one joins a neighbour.
            let fits = |other: usize| leaves.len() + self.index.node(other).leaves.len() <= most;
            let taken = nodes.runs.last().map_or(0, |(old, _)| old.end);
            if nodes.touched.front() == Some(&end) {
                nodes.carried = Some((start, leaves));
                return;
            } else if end < self.index.len() && fits(end) {
                leaves.extend(&self.index.node(end).leaves);
                end += 1;
            } else if start > taken && fits(start - 1) {
                start -= 1;
                leaves.splice(..0, self.index.node(start).leaves.iter().copied());
            }
        }
        let parts = leaves.len().div_ceil(most).max(1);
        let mut made = Vec::with_capacity(parts);
        for leaves in leaves.chunks(leaves.len().div_ceil(parts).max(1)) {
            let slot = round.take_slot();
            let (place, data) = node::encode(slot, leaves);
            nodes.writes.push_back(Write { slot, data });
            made.push(Node { first: leaves[0].first, place: Some(place), leaves: leaves.to_vec() });
        }
        round.released.extend((start..end).filter_map(|old| self.index.node(old).place).map(|place| place.slot));
        nodes.runs.push((start..end, made));
    }

    /// All that the round wrote is durable: from now on, this is what there is. Its [roots](Catalogue::roots) are to be noted.
    pub fn install(&mut self) -> Installed {
        let round = *self.round.take().expect("a round was begun");
        let nodes = round.nodes.filter(|nodes| nodes.ended).expect("the round has ended");
        self.merged = round.cursor;
        for slot in &round.released {
            self.cache.remove(*slot);
            self.damaged.remove(slot);
        }
        // What is empty needs no nodes, though some were written. Those that were there before are named by the roots that are durable now.
        let (mut unused, mut released) = (Vec::from(round.spare), round.released);
        for slot in self.index.replace(nodes.runs) {
            if round.made.contains(&slot) { unused.push(slot) } else { released.push(slot) }
        }
        Installed { released, unused }
    }
}
