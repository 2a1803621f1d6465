//! A linearizability checker for object requests: is there an order of the requests, consistent with real time, in which each request
//! yields the answer that it got?
//!
//! [`braid_objects::evaluate()`] computes the effect of a request, as devices do. The search is Wing and Gong's with Lowe's cache of
//! dead ends, run for each independent part of the history ([`mod@partition`](crate::partition)):
//!
//! - A request that changes nothing and whose answer fits the present state is taken at once: it never helps to take it later, unless
//!   a request of unknown outcome could not happen after it any more.
//! - A request of unknown outcome is taken only when no other request can be taken, or never. Requests after which an answered
//!   request can be taken come first; among equal requests, the earliest comes first.
//! - Requests of unknown outcome after which no answered request can be taken are tried in rounds: first none of them, then a few,
//!   then all.
//! - A dead end is identified by digests of the state and of the set of requests taken.
//!
//! The number of steps is bounded; an abandoned search is a verdict of its own.

use crate::history::Outcome;
use crate::object_history::{AnswerText, ObjectHistory, ObjectOperation, Objects};
use crate::partition::partition;
use crate::prelude::*;
use braid_objects::{Change, evaluate};
use braid_wire::{ObjectAnswer, ObjectRequest};
use std::cell::Cell;

/// The number of evaluated requests after which the search of one part is abandoned.
const STEPS_MAX: u64 = 1_000_000;
/// The same bound for the searches that minimize a contradiction.
const EXPLAIN_STEPS_MAX: u64 = 5_000_000;
/// For each round, the highest number of requests of unknown outcome that are taken although no answered request can be taken after
/// them.
const ROUNDS: [u32; 5] = [0, 1, 2, 4, u32::MAX];
/// The most operations that the report of a contradiction shows.
const WITNESSES_MAX: usize = 24;
/// The most possible answers that it shows for the operation whose answer is impossible.
const EXPECTED_MAX: usize = 4;

/// The result of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Linearizability {
    /// There is such an order.
    Linearizable {
        /// Requests evaluated.
        steps: u64,
    },
    Not(Contradiction),
    /// The search was abandoned: too many requests of unknown outcome at the same time.
    GaveUp(GaveUp),
}

/// The size of a part whose search was abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GaveUp {
    /// Operations of the part.
    pub operations: usize,
    /// Operations of the part whose outcome is unknown.
    pub unknown: usize,
}

/// A part of a history that no order explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The operation whose answer made the history inexplicable.
    pub culprit: ObjectOperation,
    /// Operations that contradict each other, including the culprit, in the order of their invocations.
    pub witnesses: Vec<ObjectOperation>,
    /// Some of the answers that the culprit could have got.
    pub expected: Vec<ObjectAnswer>,
}

/// Decides whether a history of object requests is linearizable.
pub fn check_objects(history: &ObjectHistory) -> Linearizability {
    let mut all_steps = 0;
    let mut given_up = None;
    for part in partition(history) {
        let operations: Vec<&ObjectOperation> = part.iter().map(|number| &history.operations()[*number]).collect();
        let device = operations.first().expect("no part is empty").device;
        let initial = history.initial(device);
        match search(&operations, &initial) {
            Answer::Yes { steps } => all_steps += steps,
            Answer::No { .. } => return Linearizability::Not(explain(&operations, &initial)),
            Answer::GivenUp => {
                let unknown = operations.iter().filter(|op| op.answer().is_none()).count();
                given_up = Some(GaveUp { operations: operations.len(), unknown });
            }
        }
    }
    given_up.map_or(Linearizability::Linearizable { steps: all_steps }, Linearizability::GaveUp)
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "no order of these requests explains the answers:")?;
        let hidden = self.witnesses.len().saturating_sub(WITNESSES_MAX);
        if hidden > 0 {
            writeln!(f, "  ({hidden} more before these)")?;
        }
        for operation in self.witnesses.iter().skip(hidden) {
            let mark = if *operation == self.culprit { "  <- the first impossible answer" } else { "" };
            writeln!(f, "  {operation}{mark}")?;
        }
        self.expected.iter().try_for_each(|answer| writeln!(f, "  possible answer: {}", AnswerText(answer)))
    }
}

/// Finds the first impossible answer, then removes requests that the contradiction does not need: requests that changed nothing.
fn explain(all: &[&ObjectOperation], initial: &Objects) -> Contradiction {
    let mut completions: Vec<u64> = all.iter().filter_map(|op| op.completed()).map(|at| at.number).collect();
    completions.sort_unstable();
    let spent = Cell::new(0);
    let is_bad = |kept: &[ObjectOperation]| {
        let kept: Vec<&ObjectOperation> = kept.iter().collect();
        match search(&kept, initial) {
            Answer::Yes { steps } => spent.set(spent.get() + steps),
            Answer::No { steps, .. } => {
                spent.set(spent.get() + steps);
                return true;
            }
            Answer::GivenUp => spent.set(spent.get() + STEPS_MAX),
        }
        false
    };
    let at = completions.partition_point(|number| !is_bad(&until(all, *number)));
    let first_bad = completions[at.min(completions.len() - 1)];
    let mut witnesses = until(all, first_bad);
    let culprit = witnesses.iter().find(|op| op.completed().is_some_and(|at| at.number == first_bad));
    let culprit = culprit.expect("the operation was answered at this moment").clone();
    let mut part = witnesses.len().div_ceil(2).max(1);
    loop {
        let mut start = 0;
        while start < witnesses.len() && spent.get() < EXPLAIN_STEPS_MAX {
            let end = witnesses.len().min(start + part);
            let goes = |op: &ObjectOperation| op.changed_nothing() && *op != culprit;
            let numbered = witnesses.iter().enumerate();
            let without: Vec<ObjectOperation> = numbered
                .filter(|(number, op)| !((start..end).contains(number) && goes(op)))
                .map(|(_, op)| op.clone())
                .collect();
            if without.len() < witnesses.len() && is_bad(&without) {
                witnesses = without;
            } else {
                start += part;
            }
        }
        if part == 1 {
            break;
        }
        part = part.div_ceil(2);
    }
    let kept: Vec<&ObjectOperation> = witnesses.iter().collect();
    let expected = expected(&kept, initial, &culprit);
    Contradiction { culprit, witnesses, expected }
}

/// The history as of moment `last`, without later requests and later answers.
fn until(all: &[&ObjectOperation], last: u64) -> Vec<ObjectOperation> {
    let mut part: Vec<ObjectOperation> =
        all.iter().filter(|op| op.invoked.number < last).map(|op| (*op).clone()).collect();
    for operation in &mut part {
        if operation.completed().is_some_and(|at| at.number > last) {
            operation.outcome = Outcome::Unknown;
        }
    }
    part
}

fn expected(kept: &[&ObjectOperation], initial: &Objects, culprit: &ObjectOperation) -> Vec<ObjectAnswer> {
    let mut search = Search::new(kept, initial);
    search.watched = kept.iter().position(|op| *op == culprit);
    match search.run() {
        Answer::No { expected, .. } => expected,
        _ => Vec::new(),
    }
}

fn search(operations: &[&ObjectOperation], initial: &Objects) -> Answer {
    Search::new(operations, initial).run()
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Yes { steps: u64 },
    No { steps: u64, expected: Vec<ObjectAnswer> },
    GivenUp,
}

/// An operation as the search uses it. Moments are numbers.
struct Op<'a> {
    request: &'a ObjectRequest,
    answer: Option<&'a ObjectAnswer>,
    invoked: u64,
    /// `u64::MAX` if the operation was never answered.
    completed: u64,
    /// The operation does not happen after this moment, nor after operations that were invoked later.
    until: u64,
    /// An earlier request with the same content and an unknown outcome.
    twin: Option<usize>,
    key: u128,
}

/// An operation that was taken, and the previous values of the keys that it changed.
struct Taken {
    op: usize,
    before: Vec<Change>,
    /// The latest invocation among the operations taken before.
    latest: u64,
}

/// A state from which several operations can be taken.
struct Choice {
    taken: usize,
    /// Operations taken so far after which no answered operation could be taken at once ("hopes").
    hopes: u32,
    /// The operations still to be tried, the most promising last, and whether each is a hope.
    others: Vec<(usize, bool)>,
    /// Operations of unknown outcome, to be tried after all others have failed.
    open: Option<Vec<usize>>,
}

struct Search<'a> {
    ops: Vec<Op<'a>>,
    is_taken: Vec<bool>,
    /// All operations before this one are taken.
    first: usize,
    /// Answered operations that are not taken.
    left: usize,
    /// The latest invocation among the operations taken.
    latest: u64,
    state: Objects,
    digest: u128,
    taken: Vec<Taken>,
    steps: u64,
    /// An operation whose possible answers are collected.
    watched: Option<usize>,
    expected: Vec<ObjectAnswer>,
}

impl<'a> Search<'a> {
    fn new(operations: &[&'a ObjectOperation], initial: &Objects) -> Search<'a> {
        let mut rng = Rng::new(0x11ea2);
        let mut ops: Vec<Op<'a>> = Vec::with_capacity(operations.len());
        for operation in operations {
            let answer = operation.answer();
            let until = match operation.outcome {
                Outcome::UnknownUntil(at) => at.number,
                _ => u64::MAX,
            };
            let is_twin = |op: &Op<'_>| op.answer.is_none() && answer.is_none() && *op.request == operation.request;
            ops.push(Op {
                request: &operation.request,
                answer,
                invoked: operation.invoked.number,
                completed: operation.completed().map_or(u64::MAX, |at| at.number),
                until,
                // Of equal operations that may happen until the same moment, the earliest is as good as the others. One that may happen
                // for longer is not: it may be needed later.
                twin: ops.iter().rposition(|op| is_twin(op) && op.until == until),
                key: u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64()),
            });
        }
        assert!(ops.is_sorted_by_key(|op| op.invoked), "histories are in the order of invocations");
        let mut search = Search {
            is_taken: vec![false; ops.len()],
            first: 0,
            left: ops.iter().filter(|op| op.answer.is_some()).count(),
            latest: 0,
            ops,
            state: initial.clone(),
            digest: 0,
            taken: Vec::new(),
            steps: 0,
            watched: None,
            expected: Vec::new(),
        };
        search.digest = search.state.iter().fold(0, |digest, (key, value)| digest ^ fingerprint(*key, value));
        search
    }

    fn run(mut self) -> Answer {
        for hopes_max in ROUNDS {
            match self.round(hopes_max) {
                Some(true) => return Answer::Yes { steps: self.steps },
                Some(false) => {}
                None => return Answer::GivenUp,
            }
        }
        Answer::No { steps: self.steps, expected: self.expected }
    }

    /// Whether there is an order with at most `hopes_max` hopes; `None` if the search exceeds its bound.
    fn round(&mut self, hopes_max: u32) -> Option<bool> {
        // Each dead end with the smallest number of hopes with which it was reached.
        let mut dead_ends: BTreeMap<u128, u32> = BTreeMap::new();
        let mut choices: Vec<Choice> = Vec::new();
        let mut hopes = 0;
        loop {
            let (taken, others, open) = self.take_the_obvious();
            if self.left == 0 {
                return Some(true);
            }
            let known = dead_ends.entry(self.digest).or_insert(u32::MAX);
            if hopes < *known || choices.is_empty() {
                *known = hopes;
                choices.push(Choice { taken, hopes, others, open: Some(open) });
            }
            loop {
                if self.steps > STEPS_MAX {
                    return None;
                }
                let Some(choice) = choices.last_mut() else {
                    self.take_back(0);
                    return Some(false);
                };
                self.take_back(choice.taken);
                hopes = choice.hopes;
                if choice.others.is_empty()
                    && let Some(open) = choice.open.take()
                {
                    choice.others = self.helpful_last(open, hopes < hopes_max);
                }
                let Some((op, is_hope)) = choice.others.pop() else {
                    choices.pop();
                    continue;
                };
                if let Some(changes) = self.try_out(op) {
                    hopes += u32::from(is_hope);
                    self.take(op, &changes);
                    break;
                }
            }
        }
    }

    /// Takes all operations that can be taken without loss. Returns the number of operations taken then, the operations that could be
    /// taken next, and those of unknown outcome.
    fn take_the_obvious(&mut self) -> (usize, Vec<(usize, bool)>, Vec<usize>) {
        loop {
            let before = self.taken.len();
            let (mut others, mut open) = (Vec::new(), Vec::new());
            for op in self.candidates() {
                match self.ops[op].answer {
                    None => open.push(op),
                    Some(_) => match self.try_out(op) {
                        // At another time it would change nothing either. (Setting an attribute to its present value counts as a
                        // change.)
                        Some(changes) if changes.is_empty() && !self.shuts_out(op) => self.take(op, &[]),
                        Some(_) => others.push((op, false)),
                        None => {}
                    },
                }
            }
            if self.taken.len() == before {
                // The operation that was answered first is tried first.
                others.sort_by_key(|(op, _)| std::cmp::Reverse(self.ops[*op].completed));
                return (before, others, open);
            }
        }
    }

    /// True if an operation of unknown outcome could not be taken any more after this one.
    fn shuts_out(&self, number: usize) -> bool {
        let invoked = self.ops[number].invoked;
        let is_left =
            |op: usize| !self.is_taken[op] && self.ops[op].answer.is_none() && self.latest < self.ops[op].until;
        (self.first..number).any(|op| self.ops[op].until <= invoked && is_left(op))
    }

    /// The operations of unknown outcome that change something, in reverse order of preference: last those after which an answered
    /// operation can be taken, the earliest of them at the very end; before them the others, which are hopes, if `may_hope`.
    fn helpful_last(&mut self, open: Vec<usize>, may_hope: bool) -> Vec<(usize, bool)> {
        let (mut helpful, mut hopes) = (Vec::new(), Vec::new());
        for op in open.into_iter().rev() {
            let Some(changes) = self.try_out(op).filter(|changes| self.changes_something(changes)) else { continue };
            let taken = self.taken.len();
            self.take(op, &changes);
            let candidates = self.candidates();
            let is_useful =
                candidates.into_iter().any(|next| self.ops[next].answer.is_some() && self.try_out(next).is_some());
            self.take_back(taken);
            match is_useful {
                true => helpful.push((op, false)),
                false if may_hope => hopes.push((op, true)),
                false => {}
            }
        }
        hopes.append(&mut helpful);
        hopes
    }

    /// Operations that may come next: no operation that must precede them is untaken.
    fn candidates(&mut self) -> Vec<usize> {
        while self.is_taken.get(self.first) == Some(&true) {
            self.first += 1;
        }
        let mut found = Vec::new();
        let mut horizon = u64::MAX;
        for number in self.first..self.ops.len() {
            let op = &self.ops[number];
            if op.invoked > horizon {
                break;
            }
            if self.is_taken[number] {
                continue;
            }
            horizon = horizon.min(op.completed);
            let has_turn = op.twin.is_none_or(|twin| self.is_taken[twin]);
            if has_turn && self.latest < op.until {
                found.push(number);
            }
        }
        found
    }

    /// The changes of an operation, if it may be taken now, that is, if its answer fits the present state.
    fn try_out(&mut self, number: usize) -> Option<Vec<Change>> {
        self.steps += 1;
        let op = &self.ops[number];
        let evaluation = evaluate(op.request, &mut self.state).expect("all of the map is in memory");
        if op.answer.is_some_and(|answer| *answer != evaluation.answer) {
            let is_new = self.watched == Some(number) && !self.expected.contains(&evaluation.answer);
            if is_new && self.expected.len() < EXPECTED_MAX {
                self.expected.push(evaluation.answer);
            }
            return None;
        }
        Some(evaluation.changes)
    }

    fn changes_something(&self, changes: &[Change]) -> bool {
        changes.iter().any(|change| self.state.get(&change.key) != change.value.as_ref())
    }

    fn take(&mut self, number: usize, changes: &[Change]) {
        let mut before = Vec::with_capacity(changes.len());
        for change in changes {
            before.push(Change { key: change.key, value: self.put(change) });
        }
        self.taken.push(Taken { op: number, before, latest: self.latest });
        self.latest = self.latest.max(self.ops[number].invoked);
        self.left -= usize::from(self.ops[number].answer.is_some());
        self.is_taken[number] = true;
        self.digest ^= self.ops[number].key;
    }

    fn take_back(&mut self, until: usize) {
        while self.taken.len() > until {
            let Taken { op, before, latest } = self.taken.pop().expect("more operations were taken");
            for change in before.iter().rev() {
                self.put(change);
            }
            self.latest = latest;
            self.left += usize::from(self.ops[op].answer.is_some());
            self.is_taken[op] = false;
            self.first = self.first.min(op);
            self.digest ^= self.ops[op].key;
        }
    }

    /// Applies a change; returns the previous value.
    fn put(&mut self, change: &Change) -> Option<Bytes> {
        let before = match &change.value {
            Some(value) => self.state.insert(change.key, value.clone()),
            None => self.state.remove(&change.key),
        };
        for value in before.iter().chain(&change.value) {
            self.digest ^= fingerprint(change.key, value);
        }
        before
    }
}

/// The contribution of a key and its value to the digest of a state.
fn fingerprint(key: Key, value: &Bytes) -> u128 {
    const PRIME: u128 = (1 << 88) + 0x13b;
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let mut add = |byte: u8| hash = (hash ^ u128::from(byte)).wrapping_mul(PRIME);
    key.encode().into_iter().chain(value.iter().copied()).for_each(&mut add);
    // Makes differences in the last bytes affect all bits.
    hash ^= hash >> 67;
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

/// Counts these operations by their outcome, and the compare-and-swaps that are known to have swapped, so that reports show how much
/// was checked.
pub fn count_outcomes<'a>(operations: impl IntoIterator<Item = &'a ObjectOperation>) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for operation in operations {
        let name = match &operation.outcome {
            Outcome::Answered(_, Ok(results)) => {
                let swapped =
                    |result: &&CommandResult| matches!(result.action, ActionResult::Compared { swapped: true, .. });
                *counts.entry("swapped").or_default() += results.iter().filter(swapped).count() as u64;
                "answered"
            }
            Outcome::Answered(_, Err(_)) => "refused",
            Outcome::Never => "never happened",
            Outcome::Unknown | Outcome::UnknownUntil(_) => "unknown",
        };
        *counts.entry(name).or_default() += 1;
    }
    counts
}

#[cfg(test)]
#[path = "linearizable_tests.rs"]
mod tests;
