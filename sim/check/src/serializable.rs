//! A serializability checker for histories of multi-cell reads and writes: is there an order of the operations in which every read
//! returns the values of the latest writes before it, and which keeps the order in time that the protocol promises ([`Promise`])?
//!
//! The search is Wing and Gong's with Lowe's cache of dead ends. It takes operations one by one, each from those that no untaken
//! operation must precede, and backtracks when none can be taken. It is fast because values identify their writes:
//!
//! - A read whose values match the present state is taken at once: it changes nothing, so this can't be wrong.
//! - A write may not overwrite a value that an untaken read still needs and that no untaken write can restore.
//! - A write is taken at once if no untaken read needs its own values or those that it overwrites.
//! - The state consists only of the values that are still needed, so different orders of writes that no read needs lead to the same
//!   state.
//! - Before the search begins, every order of two operations that follows from the values read is recorded.
//!
//! Operations that never completed may be taken at any later time or never. If no read returned the values of such an operation, it is
//! removed beforehand. An order remains valid without it.

use crate::history::{Action, CELLS_PER_BLOCK, Cells, History, Operation, Run, Tag};
use crate::prelude::*;

/// The number of operations taken after which the search is abandoned.
const STEPS_MAX: u64 = 5_000_000;

/// Which operations must keep their order in time, where one completed before the other was invoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// All operations: strict serializability. Timestamp ordering guarantees it only while all clocks agree and no stamps run ahead
    /// of them.
    Strict,
    /// Operations of one host, and operations that share a block which at least one of them writes. Timestamp ordering guarantees
    /// this whatever the clocks do: the stamps of one host rise, and a device refuses a stamp below those that it has seen on the
    /// block. Two writes of different blocks through different hosts are not ordered: if their clocks differ, a third host may read
    /// the later write and not yet the earlier one.
    Related,
}

/// The result of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is such an order.
    Serializable {
        /// Operations taken, including those that were taken back.
        steps: u64,
    },
    Not(Violation),
    /// The search was abandoned: too many operations of unknown outcome at the same time.
    Undecided,
}

/// A part of a history that no order explains, minimized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The operation whose completion made the history inexplicable.
    pub culprit: Operation,
    /// The operations that contradict each other, including the culprit, in the order of their invocations.
    pub witnesses: Vec<Operation>,
}

/// Decides whether a history is serializable as promised.
pub fn check(history: &History, promise: Promise) -> Verdict {
    match search(history.operations(), promise) {
        Answer::Yes { steps } => Verdict::Serializable { steps },
        Answer::GivenUp => Verdict::Undecided,
        Answer::No => Verdict::Not(explain(history.operations(), promise)),
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "no order of these operations explains the values read (a cell has 16 bytes):")?;
        for operation in &self.witnesses {
            let mark = if *operation == self.culprit { "  <- the first impossible result" } else { "" };
            writeln!(f, "  {operation}{mark}")?;
        }
        Ok(())
    }
}

/// Finds the first impossible completion, then removes all operations that the contradiction does not need.
fn explain(all: &[Operation], promise: Promise) -> Violation {
    let mut completions: Vec<u64> = all.iter().filter_map(|op| op.completed).map(|at| at.number).collect();
    completions.sort_unstable();
    let at = completions.partition_point(|number| search(&until(all, *number), promise) != Answer::No);
    let first_bad = completions[at.min(completions.len() - 1)];
    let mut kept = until(all, first_bad);
    let culprit = kept.iter().find(|op| op.completed.is_some_and(|at| at.number == first_bad));
    let culprit = culprit.expect("the operation completed at this moment").clone();
    let mut part = kept.len().div_ceil(2);
    loop {
        let before = kept.len();
        let mut start = 0;
        while start < kept.len() {
            let without: Vec<Operation> = kept[..start].iter().chain(kept.iter().skip(start + part)).cloned().collect();
            if without.contains(&culprit) && is_whole(&without) && search(&without, promise) == Answer::No {
                kept = without;
            } else {
                start += part;
            }
        }
        match part {
            // A write can be removed only after every read of its values: another round may find more to remove.
            1 if kept.len() == before => return Violation { culprit, witnesses: kept },
            _ => part = part.div_ceil(2),
        }
    }
}

/// The history as of moment `last`, without later operations and later completions.
fn until(all: &[Operation], last: u64) -> Vec<Operation> {
    let mut part: Vec<Operation> = all.iter().filter(|op| op.invoked.number < last).cloned().collect();
    for operation in &mut part {
        operation.completed = operation.completed.filter(|at| at.number <= last);
    }
    part.retain(|op| op.action == Action::Write || op.completed.is_some());
    part
}

/// True unless a write was removed whose value a read returned: its absence would be a contradiction that the checker itself made.
fn is_whole(operations: &[Operation]) -> bool {
    let of_kind = |action| operations.iter().filter(move |op| op.action == action).flat_map(|op| op.runs.iter());
    let mut written: BTreeMap<Tag, Vec<Cells>> = BTreeMap::new();
    of_kind(Action::Write).for_each(|run| written.entry(run.tag).or_default().push(run.cells));
    // An operation that writes in parts may be several operations here.
    written.values_mut().for_each(|cells| cells.sort_unstable());
    let is_written = |run: &Run| {
        let mut reached = run.cells.start;
        for cells in written.get(&run.tag).into_iter().flatten().filter(|cells| cells.start <= run.cells.end) {
            if cells.start <= reached {
                reached = reached.max(cells.end);
            }
        }
        reached >= run.cells.end
    };
    of_kind(Action::Read).all(|run| run.tag == Tag::ZEROS || is_written(run))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Yes { steps: u64 },
    No,
    GivenUp,
}

fn search(operations: &[Operation], promise: Promise) -> Answer {
    match Search::new(operations, promise) {
        Some(search) => search.run(),
        None => Answer::No,
    }
}

/// A value of a run of cells that no operation distinguishes; values are numbered over all runs.
type Value = usize;

struct Op {
    writes: bool,
    values: Vec<Value>,
    /// `u64::MAX` if never.
    completed: u64,
    key: u128,
}

/// The state of the search: the operations taken and the content of the cells.
struct Search {
    ops: Vec<Op>,
    /// For each operation, the number of untaken operations that must precede it.
    before: Vec<u32>,
    /// For each operation, the operations that must follow it.
    after: Vec<Vec<u32>>,
    /// Untaken operations that no other must precede.
    ready: BTreeSet<usize>,
    /// Untaken operations that completed: all must be taken.
    left: usize,
    /// For each value, its run of cells.
    run_of: Vec<usize>,
    keys: Vec<u128>,
    /// For each value, the untaken reads that need it.
    wanted: Vec<u32>,
    /// For each value, the untaken writes of it.
    writers: Vec<u32>,
    content: Vec<Value>,
    /// A digest of the set of operations taken and of the needed content.
    digest: u128,
    taken: Vec<usize>,
    overwritten: Vec<Value>,
    steps: u64,
}

/// A choice that can be taken back: the number of operations taken before it, and the alternatives.
struct Choice {
    taken: usize,
    others: Vec<usize>,
}

impl Search {
    /// `None` if a read returned a value that was never written, or if an operation would have to precede itself: then there is no
    /// order.
    fn new(operations: &[Operation], promise: Promise) -> Option<Search> {
        let seen: BTreeSet<Tag> = operations
            .iter()
            .filter(|op| op.action == Action::Read && op.completed.is_some())
            .flat_map(|op| op.runs.iter().map(|run| run.tag))
            .collect();
        let kept: Vec<&Operation> = operations
            .iter()
            .filter(|op| op.completed.is_some() || (op.action == Action::Write && seen.contains(&op.runs[0].tag)))
            .collect();
        let mut cuts: Vec<u64> =
            kept.iter().flat_map(|op| op.runs.iter().flat_map(|run| [run.cells.start, run.cells.end])).collect();
        cuts.sort_unstable();
        cuts.dedup();

        let mut numbers: BTreeMap<(usize, Tag), Value> = BTreeMap::new();
        let runs = cuts.len().saturating_sub(1);
        let content: Vec<Value> = (0..runs).collect();
        numbers.extend(content.iter().map(|run| ((*run, Tag::ZEROS), *run)));
        let mut rng = Rng::new(0);
        let mut key = || u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
        let mut ops = Vec::new();
        for operation in &kept {
            let mut values = Vec::new();
            for piece in &operation.runs {
                for run in runs_within(&cuts, piece.cells) {
                    let fresh = numbers.len();
                    values.push(*numbers.entry((run, piece.tag)).or_insert(fresh));
                }
            }
            ops.push(Op {
                writes: operation.action == Action::Write,
                values,
                completed: operation.completed.map_or(u64::MAX, |at| at.number),
                key: key(),
            });
        }
        let mut run_of = vec![0; numbers.len()];
        numbers.iter().for_each(|((run, _), value)| run_of[*value] = *run);
        let (mut wanted, mut writers) = (vec![0; numbers.len()], vec![0; numbers.len()]);
        for op in &ops {
            let counts = if op.writes { &mut writers } else { &mut wanted };
            op.values.iter().for_each(|value| counts[*value] += 1);
        }
        if (runs..numbers.len()).any(|value| wanted[value] > 0 && writers[value] == 0) {
            return None;
        }
        let keys: Vec<u128> = numbers.iter().map(|_| key()).collect();
        let digest = content.iter().filter(|value| wanted[**value] > 0).fold(0, |sum, value| sum ^ keys[*value]);
        let mut after = successors(&kept, promise);
        if !saturate(&ops, &run_of, runs, &writers, &mut after) {
            return None;
        }
        let mut before = vec![0; ops.len()];
        after.iter().flatten().for_each(|op| before[*op as usize] += 1);
        Some(Search {
            ready: (0..ops.len()).filter(|op| before[*op] == 0).collect(),
            before,
            after,
            left: ops.iter().filter(|op| op.completed != u64::MAX).count(),
            ops,
            run_of,
            keys,
            wanted,
            writers,
            content,
            digest,
            taken: Vec::new(),
            overwritten: Vec::new(),
            steps: 0,
        })
    }

    fn run(mut self) -> Answer {
        let mut dead_ends: BTreeSet<u128> = BTreeSet::new();
        let mut choices: Vec<Choice> = Vec::new();
        loop {
            let mut candidates = self.take_the_obvious();
            if self.left == 0 {
                return Answer::Yes { steps: self.steps };
            }
            if self.steps > STEPS_MAX {
                return Answer::GivenUp;
            }
            if dead_ends.insert(self.digest) {
                // The operation that completed first is tried first.
                candidates.retain(|op| self.may_take(*op));
                candidates.sort_by_key(|op| std::cmp::Reverse(self.ops[*op].completed));
                choices.push(Choice { taken: self.taken.len(), others: candidates });
            }
            loop {
                let Some(choice) = choices.last_mut() else { return Answer::No };
                let (taken, other) = (choice.taken, choice.others.pop());
                self.take_back(taken);
                if let Some(op) = other {
                    self.take(op);
                    break;
                }
                choices.pop();
            }
        }
    }

    /// Takes all operations that can be taken without loss; returns those that could be taken next.
    fn take_the_obvious(&mut self) -> Vec<usize> {
        loop {
            let candidates: Vec<usize> = self.ready.iter().copied().collect();
            let before = self.taken.len();
            for op in &candidates {
                if self.is_obvious(*op) {
                    self.take(*op);
                }
            }
            if self.taken.len() == before {
                return candidates;
            }
        }
    }

    fn is_obvious(&self, op: usize) -> bool {
        let op = &self.ops[op];
        op.values.iter().all(|value| {
            let present = self.content[self.run_of[*value]];
            match op.writes {
                false => present == *value,
                true => self.wanted[*value] == 0 && self.wanted[present] == 0,
            }
        })
    }

    fn may_take(&self, op: usize) -> bool {
        let op = &self.ops[op];
        op.writes
            && op.values.iter().all(|value| {
                let present = self.content[self.run_of[*value]];
                present == *value || self.wanted[present] == 0 || self.writers[present] > 0
            })
    }

    fn take(&mut self, number: usize) {
        self.steps += 1;
        let op = &self.ops[number];
        self.digest ^= op.key;
        for value in &op.values {
            let present = self.content[self.run_of[*value]];
            if op.writes {
                self.writers[*value] -= 1;
                self.digest ^= self.shown(present);
                self.content[self.run_of[*value]] = *value;
                self.digest ^= self.shown(*value);
                self.overwritten.push(present);
            } else {
                self.digest ^= self.shown(present);
                self.wanted[*value] -= 1;
                self.digest ^= self.shown(present);
            }
        }
        self.left -= usize::from(op.completed != u64::MAX);
        self.ready.remove(&number);
        for op in &self.after[number] {
            self.before[*op as usize] -= 1;
            if self.before[*op as usize] == 0 {
                self.ready.insert(*op as usize);
            }
        }
        self.taken.push(number);
    }

    fn take_back(&mut self, until: usize) {
        while self.taken.len() > until {
            let number = self.taken.pop().expect("more operations were taken");
            let op = &self.ops[number];
            self.digest ^= op.key;
            for value in op.values.iter().rev() {
                if op.writes {
                    let before = self.overwritten.pop().expect("each value written has an entry");
                    self.writers[*value] += 1;
                    self.digest ^= self.shown(*value);
                    self.content[self.run_of[*value]] = before;
                    self.digest ^= self.shown(before);
                } else {
                    self.digest ^= self.shown(*value);
                    self.wanted[*value] += 1;
                    self.digest ^= self.shown(*value);
                }
            }
            self.left += usize::from(op.completed != u64::MAX);
            for op in &self.after[number] {
                self.ready.remove(&(*op as usize));
                self.before[*op as usize] += 1;
            }
            self.ready.insert(number);
        }
    }

    /// The contribution of a present value to the digest: none, unless an untaken read needs it.
    fn shown(&self, value: Value) -> u128 {
        if self.wanted[value] > 0 { self.keys[value] } else { 0 }
    }
}

/// For each operation, the operations that must follow it, without those that also must follow one of these.
fn successors(operations: &[&Operation], promise: Promise) -> Vec<Vec<u32>> {
    let follows = |earlier: &Operation, later: &Operation| {
        earlier.completed.is_some_and(|end| end < later.invoked)
            && (promise == Promise::Strict || related(earlier, later))
    };
    let mut all: Vec<Vec<u32>> = vec![Vec::new(); operations.len()];
    for (number, earlier) in operations.iter().enumerate() {
        // A write of unknown outcome whose value was read has certainly happened. Zeros may come from another write.
        let abandoned = earlier.abandoned.filter(|_| earlier.completed.is_some() || earlier.runs[0].tag != Tag::ZEROS);
        if let Some(abandoned) = abandoned {
            let first = operations.partition_point(|later| later.invoked < abandoned);
            let follows = |(_, later): &(usize, &&Operation)| {
                later.client.host == earlier.client.host && share_a_written_block(earlier, later)
            };
            let later = operations.iter().enumerate().skip(first).filter(follows);
            all[number].extend(later.map(|(later, _)| later as u32));
        }
        let Some(completed) = earlier.completed else { continue };
        let first = operations.partition_point(|later| later.invoked < completed);
        let mut horizon = u64::MAX;
        for (later_number, later) in operations.iter().enumerate().skip(first) {
            if later.invoked.number > horizon {
                break;
            }
            if follows(earlier, later) && !all[number].contains(&(later_number as u32)) {
                all[number].push(later_number as u32);
                // If all operations are ordered by time, an operation invoked after the completion of a follower follows that
                // follower.
                if promise == Promise::Strict {
                    horizon = horizon.min(later.completed.map_or(u64::MAX, |end| end.number));
                }
            }
        }
    }
    all
}

/// Adds the orders that follow from the values read: if a read returned the value of one write and not that of another write of the
/// same cells, the other write came before the first or after the read; if one of the two is impossible, the other holds. Without
/// these orders the search takes far too long among writes that overlap in time. Returns false if an operation would have to precede
/// itself.
fn saturate(ops: &[Op], run_of: &[usize], runs: usize, writers: &[u32], after: &mut [Vec<u32>]) -> bool {
    let mut writers_of_run: Vec<Vec<(usize, Value)>> = vec![Vec::new(); runs];
    for (number, op) in ops.iter().enumerate().filter(|(_, op)| op.writes) {
        op.values.iter().for_each(|value| writers_of_run[run_of[*value]].push((number, *value)));
    }
    let mut reach = Reach::new(after);
    let mut order = |from: usize, to: usize, reach: &mut Reach| {
        if !reach.has(from, to) {
            after[from].push(to as u32);
            reach.add(from, to);
        }
    };
    // Triples of a read, a write whose value it returned, and another write of the same cells.
    let mut triples: BTreeSet<(usize, usize, usize)> = BTreeSet::new();
    for (read, op) in ops.iter().enumerate().filter(|(_, op)| !op.writes) {
        for value in &op.values {
            let others = &writers_of_run[run_of[*value]];
            let initial = *value < runs;
            match (initial, writers[*value]) {
                // The initial content, which no write restores.
                (true, 0) => others.iter().for_each(|(other, _)| order(read, *other, &mut reach)),
                (false, 1) => {
                    let seen =
                        others.iter().find(|(_, written)| written == value).expect("every value read was written").0;
                    order(seen, read, &mut reach);
                    let rest = others.iter().filter(|(other, _)| *other != seen);
                    triples.extend(rest.map(|(other, _)| (read, seen, *other)));
                }
                _ => {}
            }
        }
    }
    loop {
        let before = triples.len();
        triples.retain(|(read, seen, other)| {
            if reach.has(*other, *read) {
                order(*other, *seen, &mut reach);
            } else if reach.has(*seen, *other) {
                order(*read, *other, &mut reach);
            } else {
                return true;
            }
            false
        });
        if triples.len() == before {
            return (0..ops.len()).all(|op| !reach.has(op, op));
        }
    }
}

/// The transitive order: for each operation, a row of bits with the operations that must follow it.
struct Reach {
    words: usize,
    bits: Vec<u64>,
}

impl Reach {
    /// Expects that all edges go from lower to higher numbers.
    fn new(after: &[Vec<u32>]) -> Reach {
        let words = after.len().div_ceil(64);
        let mut reach = Reach { words, bits: vec![0; words * after.len()] };
        for from in (0..after.len()).rev() {
            for to in &after[from] {
                reach.take_over(from, *to as usize);
            }
        }
        reach
    }

    fn has(&self, from: usize, to: usize) -> bool {
        self.bits[from * self.words + to / 64] >> (to % 64) & 1 == 1
    }

    fn add(&mut self, from: usize, to: usize) {
        self.take_over(from, to);
        for other in 0..self.bits.len() / self.words {
            if other != from && self.has(other, from) && !self.has(other, to) {
                self.take_over(other, to);
            }
        }
    }

    /// Adds `to` and all operations after it to the operations after `from`.
    fn take_over(&mut self, from: usize, to: usize) {
        let row = self.bits[to * self.words..][..self.words].to_vec();
        let own = &mut self.bits[from * self.words..][..self.words];
        own.iter_mut().zip(row).for_each(|(bits, more)| *bits |= more);
        own[to / 64] |= 1 << (to % 64);
    }
}

/// True if the protocol keeps two operations in order: they belong to one host, or share a block that one of them writes.
fn related(one: &Operation, other: &Operation) -> bool {
    one.client.host == other.client.host || share_a_written_block(one, other)
}

fn share_a_written_block(one: &Operation, other: &Operation) -> bool {
    let writes = one.action == Action::Write || other.action == Action::Write;
    let blocks = |cells: Cells| (cells.start / CELLS_PER_BLOCK, cells.end.div_ceil(CELLS_PER_BLOCK));
    let meet = |a: Cells, b: Cells| {
        let ((a_start, a_end), (b_start, b_end)) = (blocks(a), blocks(b));
        a_start < b_end && b_start < a_end
    };
    writes && one.runs.iter().any(|a| other.runs.iter().any(|b| meet(a.cells, b.cells)))
}

/// The runs between cuts that make up `cells`.
fn runs_within(cuts: &[u64], cells: Cells) -> std::ops::Range<usize> {
    let at = |cell| cuts.binary_search(&cell).expect("every operation's bounds are cuts");
    at(cells.start)..at(cells.end)
}

#[cfg(test)]
#[path = "serializable_tests.rs"]
mod tests;
