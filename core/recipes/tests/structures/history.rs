//! The history of a run: the content of a structure after each change, and the results of operations. A result must be true of a moment
//! between the begin and the end of its operation.

/// Contents, and results.
pub struct History<S, W> {
    /// The content after each change, from the beginning on.
    pub states: Vec<S>,
    ended: Vec<(usize, usize, W)>,
}

impl<S: PartialEq, W> History<S, W> {
    pub fn new(states: Vec<S>) -> History<S, W> {
        History { states, ended: Vec::new() }
    }

    /// Takes in the content after a request. `check` is for a change, from one content to another.
    pub fn look(&mut self, now: S, check: impl FnOnce(&S, &S)) {
        let last = self.states.last().expect("there is a first");
        if now != *last {
            check(last, &now);
            self.states.push(now);
        }
    }

    /// The number of changes so far.
    pub fn now(&self) -> usize {
        self.states.len() - 1
    }

    /// An operation has ended, which began after so many changes.
    pub fn end(&mut self, begin: usize, what: W) {
        self.ended.push((begin, self.now(), what));
    }

    /// The changes with their numbers, from 1 on: from one content to another.
    pub fn changes(&self) -> impl Iterator<Item = (usize, &S, &S)> {
        self.states.windows(2).zip(1..).map(|(pair, number)| (number, &pair[0], &pair[1]))
    }

    /// The results; for each, which changes happened during the operation, and the contents from its begin to its end.
    pub fn ended(&self) -> impl Iterator<Item = (std::ops::RangeInclusive<usize>, &[S], &W)> {
        self.ended.iter().map(|(begin, end, what)| (begin + 1..=*end, &self.states[*begin..=*end], what))
    }
}
