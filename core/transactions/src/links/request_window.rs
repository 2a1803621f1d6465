//! The request window holds the requests for objects that one device has not answered, and those that this host has
//! abandoned, whose outcome is unknown.
//!
//! ```text
//!   begin 4    begin 5    abandon 4          begin 6 ──────────────► every copy of 6 names 4 as abandoned
//!                         (its user is told)       ◄── answered ──── 4 was executed or never will be: forgotten here
//! ```
//!
//! *Every later request names the requests that were abandoned before it began*, until the device has answered one of
//! these later requests. While a device is silent, the number of abandoned requests has no bound. So they are named as
//! intervals. Between two intervals a request is pending; an interval may also cover requests that are over. No request
//! begins while there are more intervals than it can name. Intervals join when the requests between them end, which is
//! soon: every request has a deadline.

use braid_base::limits;
use std::collections::{BTreeMap, BTreeSet};

/// The request window of one device; see the module.
#[derive(Clone, Debug, Default)]
pub struct RequestWindow {
    /// Requests that are not answered.
    pending: BTreeSet<u64>,
    /// Intervals of abandoned requests, by their first sequence. Between two intervals a request is pending.
    abandoned: BTreeMap<u64, Interval>,
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    /// The first sequence after the interval.
    end: u64,
    /// Requests from this sequence on began when some of the interval had been abandoned.
    named_from: u64,
    /// Requests from this sequence on began when all of it had been abandoned.
    known_from: u64,
}

impl RequestWindow {
    /// True if a request that begins now can name all abandoned requests.
    pub(super) fn may_begin(&self) -> bool {
        self.abandoned.len() <= limits::ABANDONED_MAX
    }

    /// Begins a request. Its sequence is higher than all before.
    pub fn begin(&mut self, sequence: u64) {
        assert!(self.may_begin(), "every later request names all abandoned requests");
        self.pending.insert(sequence);
    }

    /// The first request that is not answered.
    pub(super) fn first(&self) -> Option<u64> {
        self.pending.first().copied()
    }

    /// Ends a request whose outcome is known. True if it was pending.
    pub(super) fn end(&mut self, sequence: u64) -> bool {
        let was_pending = self.pending.remove(&sequence);
        if was_pending {
            self.join_around(sequence);
        }
        was_pending
    }

    /// Abandons a request: it ends with an unknown outcome. `next`: the sequence of the next request of this host.
    pub(super) fn abandon(&mut self, sequence: u64, next: u64) {
        if self.pending.remove(&sequence) {
            let interval = Interval { end: sequence + 1, named_from: next, known_from: next };
            self.abandoned.insert(sequence, interval);
            self.join_around(sequence);
            self.join_around(sequence + 1);
        }
        let most = self.pending.len() + 1;
        assert!(self.abandoned.len() <= most, "between two intervals a request is pending");
    }

    /// The device has answered this request: so it knows the requests that were abandoned before this one began.
    pub fn acknowledge(&mut self, sequence: u64) {
        self.abandoned.retain(|_, interval| interval.known_from > sequence);
    }

    /// The intervals that each copy of this request names as abandoned: their first sequences and their ends.
    pub fn named_by(&self, sequence: u64) -> Vec<(u64, u64)> {
        let is_named = |(_, interval): &(&u64, &Interval)| interval.named_from <= sequence;
        let named = self.abandoned.iter().filter(is_named);
        let named: Vec<_> = named.map(|(first, interval)| (*first, interval.end)).collect();
        // Intervals become fewer, except for requests that are abandoned later.
        assert!(named.len() <= limits::ABANDONED_MAX, "every later request names all abandoned requests");
        named
    }

    /// Joins the intervals below this sequence and from it on, if no request is pending between them.
    fn join_around(&mut self, sequence: u64) {
        let before = self.abandoned.range(..sequence).next_back();
        let after = self.abandoned.range(sequence..).next();
        let (Some((&first, &one)), Some((&next, &other))) = (before, after) else { return };
        if self.pending.range(one.end..next).next().is_none() {
            self.abandoned.remove(&next);
            let joined = Interval {
                end: other.end,
                named_from: one.named_from.min(other.named_from),
                known_from: one.known_from.max(other.known_from),
            };
            self.abandoned.insert(first, joined);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    fn window(sequences: impl IntoIterator<Item = u64>) -> RequestWindow {
        let mut window = RequestWindow::default();
        sequences.into_iter().for_each(|sequence| window.begin(sequence));
        window
    }

    #[test]
    fn an_abandoned_request_is_named_until_a_later_one_is_answered() {
        let mut window = window([4, 5, 6, 7]);
        window.abandon(5, 8);
        assert_eq!((window.named_by(7), window.named_by(8)), (vec![], vec![(5, 6)]));
        window.end(7);
        window.acknowledge(7);
        assert_eq!(window.named_by(8), [(5, 6)], "the seventh was begun before");
        window.begin(8);
        window.abandon(6, 9);
        assert_eq!(
            (window.named_by(8), window.named_by(9)),
            (vec![(5, 7)], vec![(5, 7)]),
            "neighbouring intervals join"
        );
        window.end(8);
        window.acknowledge(8);
        assert_eq!(
            window.named_by(9),
            [(5, 7)],
            "the copy of the eighth that was answered need not have named the sixth"
        );
        window.begin(9);
        window.end(9);
        window.acknowledge(9);
        assert_eq!(window.named_by(10), []);
    }

    /// The settled mark passes both, and the message with the mark is lost.
    #[test]
    fn a_request_abandoned_later_is_named_later_even_if_it_joins_another() {
        let mut window = window([4, 5]);
        window.abandon(5, 6);
        window.begin(7);
        window.abandon(4, 8);
        window.end(7);
        window.acknowledge(7);
        assert_eq!(window.named_by(8), [(4, 6)], "the seventh was begun when the fourth was not abandoned");
    }

    #[test]
    fn the_last_of_ever_so_many_is_named_though_one_is_under_way_all_the_time() {
        let mut window = window(1..=4_000);
        (2..=4_000).for_each(|sequence| window.abandon(sequence, 4_001));
        assert!(window.may_begin());
        window.begin(4_001);
        assert_eq!(window.named_by(4_001), [(2, 4_001)]);
    }

    #[test]
    fn a_request_that_can_not_name_all_abandoned_ones_waits_for_those_between() {
        let most = limits::ABANDONED_MAX as u64;
        let mut window = window(1..=2 * most + 2);
        let next = 2 * most + 3;
        (1..=most).for_each(|pair| window.abandon(2 * pair, next));
        window.begin(next);
        assert_eq!(window.named_by(next).len(), limits::ABANDONED_MAX);
        window.abandon(2 * most + 2, next + 1);
        assert!(!window.may_begin());
        assert_eq!(window.named_by(next).len(), limits::ABANDONED_MAX, "a request names the same in each copy");
        window.end(1);
        assert!(!window.may_begin(), "the first request lies below all intervals");
        window.abandon(3, next + 1);
        assert!(window.may_begin());
        window.begin(next + 1);
        assert_eq!(window.named_by(next + 1)[0], (2, 5));
    }

    /// In every order of events, each request names the requests that were abandoned before it began and were not
    /// acknowledged since. No pending request is ever named.
    #[test]
    fn requests_name_what_was_abandoned_before_they_began() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut window, mut next) = (RequestWindow::default(), 1);
            // Abandoned requests, and the sequence of the next request then.
            let mut unknown: Vec<(u64, u64)> = Vec::new();
            let mut pending: Vec<u64> = Vec::new();
            for _ in 0..400 {
                let nth = rng.below(pending.len().max(1) as u64) as usize;
                match rng.below(7) {
                    0..3 => {
                        window.begin(next);
                        pending.push(next);
                        next += 1;
                    }
                    // A request to another device.
                    3 => next += 1,
                    4 | 5 if !pending.is_empty() => {
                        let sequence = pending.swap_remove(nth);
                        window.abandon(sequence, next);
                        unknown.push((sequence, next));
                    }
                    _ if !pending.is_empty() => {
                        let sequence = pending.swap_remove(nth);
                        window.end(sequence);
                        window.acknowledge(sequence);
                        // The device knows what all copies of that request named.
                        unknown.retain(|(_, since)| *since > sequence);
                    }
                    _ => {}
                }
                for request in &pending {
                    let named = window.named_by(*request);
                    let is_named = |sequence| named.iter().any(|(first, end)| (*first..*end).contains(&sequence));
                    assert!(pending.iter().all(|other| !is_named(*other)), "seed {seed}: {request} {named:?}");
                    let mut before = unknown.iter().filter(|(_, since)| since <= request);
                    assert!(before.all(|(sequence, _)| is_named(*sequence)), "seed {seed}: {request} {named:?}");
                }
            }
        }
    }
}
