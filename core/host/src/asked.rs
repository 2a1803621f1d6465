//! Requests for objects that a device was asked and has not answered, and those that were given up: nobody knows whether they were done.
//!
//! ```text
//!   begin 4    begin 5    give up 4          begin 6 ──────────────► names 4: all its copies do
//!                         (its host is told)       ◄── answered ──── 4 was done before, or never will be: forgotten here
//! ```
//!
//! *What was given up is named by all that was begun later*, until something is answered that was. There is no telling how many these are while
//! a device is silent; so they are named in stretches, between which something is under way: a stretch may take in whatever else is over. No request
//! is begun while there are more stretches than it can name. They become one as what lies between them ends, which is soon: each has its time.

use braid_base::limits;
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// Not answered.
    pending: BTreeSet<u64>,
    /// Given up, by the first of each stretch. Between two of them something is pending.
    given_up: BTreeMap<u64, Stretch>,
}

#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// What is behind it.
    behind: u64,
    /// From this request on, all were begun when some of it had been given up,
    named_from: u64,
    /// and from this one on, when all of it had.
    known_from: u64,
}

impl Asked {
    /// True if a request that begins now can name all that was given up.
    pub fn may_begin(&self) -> bool {
        self.given_up.len() <= limits::GIVEN_UP_MAX
    }

    /// A request, of a higher sequence than all before.
    pub fn begin(&mut self, sequence: u64) {
        assert!(self.may_begin(), "what was given up is named by all that is begun later");
        self.pending.insert(sequence);
    }

    /// The first that is not answered.
    pub fn first(&self) -> Option<u64> {
        self.pending.first().copied()
    }

    /// It is over, and it is known how. True if it was pending.
    pub fn end(&mut self, sequence: u64) -> bool {
        let was_pending = self.pending.remove(&sequence);
        if was_pending {
            self.join_around(sequence);
        }
        was_pending
    }

    /// It is over, though nobody knows whether it was done. `next` is the sequence of whatever the host begins next.
    pub fn give_up(&mut self, sequence: u64, next: u64) {
        if self.pending.remove(&sequence) {
            let stretch = Stretch { behind: sequence + 1, named_from: next, known_from: next };
            self.given_up.insert(sequence, stretch);
            self.join_around(sequence);
            self.join_around(sequence + 1);
        }
        let most = self.pending.len() + 1;
        assert!(self.given_up.len() <= most, "between two stretches something is pending");
    }

    /// The device has answered this one: so it knows what had been given up before that began.
    pub fn answered(&mut self, sequence: u64) {
        self.given_up.retain(|_, stretch| stretch.known_from > sequence);
    }

    /// What each copy of this request names: where stretches begin, and what is behind them.
    pub fn named_by(&self, sequence: u64) -> Vec<(u64, u64)> {
        let is_named = |(_, stretch): &(&u64, &Stretch)| stretch.named_from <= sequence;
        let named = self.given_up.iter().filter(is_named);
        let named: Vec<_> = named.map(|(first, stretch)| (*first, stretch.behind)).collect();
        // Stretches become fewer, but for those that are given up later.
        assert!(named.len() <= limits::GIVEN_UP_MAX, "what was given up is named by all that is begun later");
        named
    }

    /// Makes one of the stretches below and from this sequence on, if nothing is pending between them.
    fn join_around(&mut self, sequence: u64) {
        let before = self.given_up.range(..sequence).next_back();
        let after = self.given_up.range(sequence..).next();
        let (Some((&first, &one)), Some((&next, &other))) = (before, after) else { return };
        if self.pending.range(one.behind..next).next().is_none() {
            self.given_up.remove(&next);
            let joined = Stretch {
                behind: other.behind,
                named_from: one.named_from.min(other.named_from),
                known_from: one.known_from.max(other.known_from),
            };
            self.given_up.insert(first, joined);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    fn asked(sequences: impl IntoIterator<Item = u64>) -> Asked {
        let mut asked = Asked::default();
        sequences.into_iter().for_each(|sequence| asked.begin(sequence));
        asked
    }

    #[test]
    fn what_was_given_up_is_named_until_what_was_begun_later_is_answered() {
        let mut asked = asked([4, 5, 6, 7]);
        asked.give_up(5, 8);
        assert_eq!((asked.named_by(7), asked.named_by(8)), (vec![], vec![(5, 6)]));
        asked.end(7);
        asked.answered(7);
        assert_eq!(asked.named_by(8), [(5, 6)], "that was begun before");
        asked.begin(8);
        asked.give_up(6, 9);
        assert_eq!((asked.named_by(8), asked.named_by(9)), (vec![(5, 7)], vec![(5, 7)]), "neighbours are one");
        asked.end(8);
        asked.answered(8);
        assert_eq!(
            asked.named_by(9),
            [(5, 7)],
            "the copy of the eighth that was answered need not have named the sixth"
        );
        asked.begin(9);
        asked.end(9);
        asked.answered(9);
        assert_eq!(asked.named_by(10), []);
    }

    /// The mark passes both, and the message that says so is lost.
    #[test]
    fn one_that_is_given_up_later_is_named_later_though_it_joins_another() {
        let mut asked = asked([4, 5]);
        asked.give_up(5, 6);
        asked.begin(7);
        asked.give_up(4, 8);
        asked.end(7);
        asked.answered(7);
        assert_eq!(asked.named_by(8), [(4, 6)], "the seventh was begun when the fourth was not given up");
    }

    #[test]
    fn the_last_of_ever_so_many_is_named_though_one_is_under_way_all_the_time() {
        let mut asked = asked(1..=4_000);
        (2..=4_000).for_each(|sequence| asked.give_up(sequence, 4_001));
        assert!(asked.may_begin());
        asked.begin(4_001);
        assert_eq!(asked.named_by(4_001), [(2, 4_001)]);
    }

    #[test]
    fn nothing_is_begun_that_can_not_name_all_until_what_lies_between_ends() {
        let most = limits::GIVEN_UP_MAX as u64;
        let mut asked = asked(1..=2 * most + 2);
        let next = 2 * most + 3;
        (1..=most).for_each(|pair| asked.give_up(2 * pair, next));
        asked.begin(next);
        assert_eq!(asked.named_by(next).len(), limits::GIVEN_UP_MAX);
        asked.give_up(2 * most + 2, next + 1);
        assert!(!asked.may_begin());
        assert_eq!(asked.named_by(next).len(), limits::GIVEN_UP_MAX, "it says what it said");
        asked.end(1);
        assert!(!asked.may_begin(), "that is below them all");
        asked.give_up(3, next + 1);
        assert!(asked.may_begin());
        asked.begin(next + 1);
        assert_eq!(asked.named_by(next + 1)[0], (2, 5));
    }

    /// Whatever happens in whatever order: each request names whatever was given up before it began and was not answered for since; nothing that
    /// is pending is ever named.
    #[test]
    fn requests_name_what_was_given_up_before_they_began() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut asked, mut next) = (Asked::default(), 1);
            // Given up, and what was begun next.
            let mut unknown: Vec<(u64, u64)> = Vec::new();
            let mut pending: Vec<u64> = Vec::new();
            for _ in 0..400 {
                let nth = rng.below(pending.len().max(1) as u64) as usize;
                match rng.below(7) {
                    0..3 => {
                        asked.begin(next);
                        pending.push(next);
                        next += 1;
                    }
                    // Another device was asked.
                    3 => next += 1,
                    4 | 5 if !pending.is_empty() => {
                        let sequence = pending.swap_remove(nth);
                        asked.give_up(sequence, next);
                        unknown.push((sequence, next));
                    }
                    _ if !pending.is_empty() => {
                        let sequence = pending.swap_remove(nth);
                        asked.end(sequence);
                        asked.answered(sequence);
                        // What all copies of that had named is known.
                        unknown.retain(|(_, since)| *since > sequence);
                    }
                    _ => {}
                }
                for request in &pending {
                    let named = asked.named_by(*request);
                    let is_named = |sequence| named.iter().any(|(first, behind)| (*first..*behind).contains(&sequence));
                    assert!(pending.iter().all(|other| !is_named(*other)), "seed {seed}: {request} {named:?}");
                    let mut before = unknown.iter().filter(|(_, since)| since <= request);
                    assert!(before.all(|(sequence, _)| is_named(*sequence)), "seed {seed}: {request} {named:?}");
                }
            }
        }
    }
}
