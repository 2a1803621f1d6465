//! The search for an order of operations that explains their answers: Wing and Gong's, with Lowe's cache of dead ends, for any sequential
//! model.
//!
//! An operation of unknown outcome may be taken at any time from its invocation on, before its limit if it has one, or never. An operation
//! that changes nothing and whose answer fits is taken at once, unless one of unknown outcome could not be taken any more afterwards.
//!
//! The bound: [`STEPS_MAX`] evaluated operations for each search. A search that exceeds it is undecided, which is a verdict of its own:
//! reports count it, and it is never taken for success.

use crate::file_history::FileOperation;
use crate::history::Outcome;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The number of evaluated operations after which a search is abandoned.
pub const STEPS_MAX: u64 = 400_000;
/// The most operations that a contradiction shows of those that were ordered last.
const SHOWN: usize = 16;

/// A sequential model.
pub(crate) trait Model {
    type State: Clone + Hash + Debug;

    /// The states that may follow if the operation of this number happens now: none if its answer does not fit.
    fn apply(&self, state: &Self::State, number: usize) -> Vec<Self::State>;

    /// True if the operation changes nothing, whatever its answer.
    fn only_observes(&self, number: usize) -> bool;

    fn operation(&self, number: usize) -> &FileOperation;

    fn len(&self) -> usize;
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Order {
        steps: u64,
    },
    /// There is no order. The text names the operations that can't be ordered.
    None(String),
    Undecided,
}

/// Searches for an order of all operations of a model.
pub(crate) fn search<M: Model>(model: &M, initial: M::State) -> Found {
    let spans: Vec<Span> = (0..model.len()).map(|number| Span::of(model.operation(number))).collect();
    assert!(spans.is_sorted_by_key(|span| span.invoked), "operations are in the order of their invocations");
    let left = spans.iter().filter(|span| span.answered.is_some()).count();
    let path = Path { taken: vec![false; spans.len()], digest: 0, order: Vec::new(), latest: 0, left };
    let mut search =
        Search { model, spans, dead_ends: BTreeSet::new(), steps: 0, best: usize::MAX, report: String::new() };
    match search.go(&initial, path) {
        Some(true) => Found::Order { steps: search.steps },
        Some(false) => Found::None(search.report),
        None => Found::Undecided,
    }
}

/// When an operation may happen.
struct Span {
    invoked: u64,
    answered: Option<u64>,
    /// Of an operation of unknown outcome: it does not happen later.
    limit: u64,
}

impl Span {
    fn of(operation: &FileOperation) -> Span {
        let (answered, limit) = match &operation.outcome {
            Outcome::Unknown | Outcome::Never => (None, u64::MAX),
            Outcome::UnknownUntil(until) => (None, until.number),
            Outcome::Answered(at, _) => (Some(at.number), at.number),
        };
        Span { invoked: operation.invoked.number, answered, limit }
    }
}

struct Search<'a, M: Model> {
    model: &'a M,
    spans: Vec<Span>,
    dead_ends: BTreeSet<(u64, u64)>,
    steps: u64,
    /// The fewest answered operations that were left at a dead end, and the description of that end.
    best: usize,
    report: String,
}

/// The operations that are ordered.
#[derive(Clone)]
struct Path {
    taken: Vec<bool>,
    /// Identifies the set of them.
    digest: u64,
    order: Vec<usize>,
    /// The latest invocation among them.
    latest: u64,
    /// Answered operations that are not among them.
    left: usize,
}

impl Path {
    fn take(&mut self, number: usize, span: &Span) {
        self.taken[number] = true;
        self.digest ^= digest(&(number, 0x5eed_u64));
        self.order.push(number);
        self.latest = self.latest.max(span.invoked);
        self.left -= usize::from(span.answered.is_some());
    }
}

impl<M: Model> Search<'_, M> {
    /// True if the remaining operations can be ordered; `None` if the search is abandoned.
    fn go(&mut self, state: &M::State, mut path: Path) -> Option<bool> {
        let candidates = loop {
            if path.left == 0 {
                return Some(true);
            }
            let candidates = self.candidates(&path);
            match candidates.iter().copied().find(|number| self.fits_at_once(state, &path, *number)) {
                Some(number) => path.take(number, &self.spans[number]),
                None => break candidates,
            }
        };
        if !self.dead_ends.insert((digest(state), path.digest)) {
            return Some(false);
        }
        // First those that were answered: the others may never have happened.
        let (answered, unknown): (Vec<usize>, Vec<usize>) =
            candidates.iter().partition(|number| self.spans[**number].answered.is_some());
        for number in answered.into_iter().chain(unknown) {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return None;
            }
            for next in self.model.apply(state, number) {
                let is_idle = self.spans[number].answered.is_none() && digest(&next) == digest(state);
                if is_idle {
                    continue;
                }
                let mut longer = path.clone();
                longer.take(number, &self.spans[number]);
                match self.go(&next, longer) {
                    Some(false) => {}
                    decided => return decided,
                }
            }
        }
        if path.left < self.best {
            self.best = path.left;
            self.report = self.describe(state, &path, &candidates);
        }
        Some(false)
    }

    /// The operations that may come next.
    fn candidates(&self, path: &Path) -> Vec<usize> {
        let left = || self.spans.iter().enumerate().filter(|(number, _)| !path.taken[*number]);
        let first_answer = left().filter_map(|(_, span)| span.answered).min().unwrap_or(u64::MAX);
        left()
            .filter(|(_, span)| span.invoked < first_answer && (span.answered.is_some() || span.limit > path.latest))
            .map(|(number, _)| number)
            .collect()
    }

    fn fits_at_once(&mut self, state: &M::State, path: &Path, number: usize) -> bool {
        let span = &self.spans[number];
        if span.answered.is_none() || !self.model.only_observes(number) {
            return false;
        }
        let would_end = |(other, ended): (usize, &Span)| {
            !path.taken[other] && ended.answered.is_none() && (path.latest..span.invoked).contains(&ended.limit)
        };
        if self.spans.iter().enumerate().any(would_end) {
            return false;
        }
        self.steps += 1;
        let next = self.model.apply(state, number);
        next.iter().any(|next| digest(next) == digest(state))
    }

    fn describe(&self, state: &M::State, path: &Path, candidates: &[usize]) -> String {
        let shown = |numbers: &[usize]| {
            numbers.iter().map(|number| format!("  {}", self.model.operation(*number))).collect::<Vec<_>>().join("\n")
        };
        let last = &path.order[path.order.len().saturating_sub(SHOWN)..];
        format!(
            "{} operations could be ordered, the last of them:\n{}\nNone of these can be next:\n{}\nin the state {state:?}",
            path.order.len(),
            shown(last),
            shown(candidates)
        )
    }
}

fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
