//! Claiming an item: two round trips if an item is free.

use super::state::{self, FRESH_BYTES, GIVEN_BACK_BYTES, State};
use super::{BELL, Claimed, Item, Queue, STATES_PAGE, parted, state_of, work_of};
use crate::procedure::{Mapped, Next, Operation, RequestFailure};
use crate::request_builder::{DAMAGED, RequestBuilder, Results, Step, Steps, operation};
use braid_base::{Rng, Time};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// The most claims of others that a consumer watches.
pub const WATCHED_MAX: usize = 32;

/// What a consumer remembers of others' claims from one operation to the next: the state it saw, and when, by its own clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// None: the item is claimed, but its state was not read yet.
    seen: BTreeMap<Item, Option<(Bytes, Time)>>,
}

/// The result of an attempt to claim an item.
#[derive(Clone, Debug)]
pub struct ClaimEnd {
    /// The item, or none if no item was free all the time.
    pub result: Result<Option<Claimed>, RequestFailure>,
    /// For the next attempt.
    pub watch: Watch,
}

impl Queue {
    /// Claims an item. Waits for one for at most `patience`. `watch` is what the last claim returned, or a new one.
    pub fn claim(self, consumer: u64, watch: Watch, patience: Duration) -> Operation<ClaimEnd> {
        let claim = operation(move |began, rng| {
            let (asked, nonce, round) = (began, rng.next_u64(), Round::default());
            let (bell, phase) = (Bytes::new(), Phase::Waiting);
            Ok(Claim { queue: self, consumer, watch, patience, began, asked, nonce, bell, round, phase })
        });
        Box::new(Mapped(claim, |end: Result<ClaimEnd, RequestFailure>| end.expect("its failure is a part of the end")))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Claim {
    queue: Queue,
    consumer: u64,
    watch: Watch,
    patience: Duration,
    began: Time,
    asked: Time,
    nonce: u64,
    bell: Bytes,
    round: Round,
    phase: Phase,
}

/// A search through all numbers, from a random one on.
#[derive(Clone, Debug, Default)]
struct Round {
    begin: u32,
    after: Option<u32>,
    /// The search has passed the highest number and continues from the lowest.
    wrapped: bool,
    over: bool,
    /// Items that may be claimed, by the last list: with the state to replace, or none if it was given back and is still to be read.
    free: Vec<(Item, Option<State>)>,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Listing free items, and reading the states of claimed ones.
    Looking { watched: Vec<Item> },
    /// Reading the state of an item that was given back.
    Reading(Item),
    /// Claiming an item.
    Claiming { item: Item, claim: state::Claim },
    /// It begins, or no item is free.
    Waiting,
}

/// How many states are listed at once.
const LISTED: u32 = 64;
/// The shortest wait.
const WAIT_MIN: Duration = Duration::from_millis(1);

impl Steps for Claim {
    type Output = ClaimEnd;

    fn step(&mut self, now: Time, rng: &mut Rng, results: Option<Results>) -> Step<ClaimEnd> {
        match (self.phase.clone(), results) {
            (Phase::Waiting, _) => self.begin_round(rng),
            (Phase::Looking { watched }, Some(results)) => {
                self.looked(&watched, &results, now)?;
                self.choose(now, rng)
            }
            (Phase::Looking { .. }, None) => self.look(),
            (Phase::Reading(item), Some(results)) => match State::decode(&results.values(0, 1)?[0])? {
                Some(state @ State::Free { .. }) => self.claim(item, state),
                _ => self.choose(now, rng),
            },
            (Phase::Reading(_), None) => self.choose(now, rng),
            (Phase::Claiming { item, claim }, Some(results)) => match results.compared(0)?.ok_or(DAMAGED)? {
                (true, _) => self.claimed(item, claim, &results.values(1, 1)?[0]),
                (false, _) => self.choose(now, rng),
            },
            (Phase::Claiming { .. }, None) => unreachable!("it is inquired"),
        }
    }

    fn inquiry(&mut self) -> Option<RequestBuilder> {
        let Phase::Claiming { item, .. } = self.phase else { return None };
        Some(RequestBuilder::of(self.queue.object).get(vec![state_of(item), work_of(item)]))
    }

    fn found_out(&mut self, now: Time, rng: &mut Rng, results: Results) -> Result<Step<ClaimEnd>, RequestFailure> {
        let Phase::Claiming { item, claim } = self.phase else { unreachable!("a claim is inquired") };
        let values = results.values(0, 2)?;
        Ok(match State::decode(&values[0])? {
            Some(State::Claimed(other)) if other == claim => self.claimed(item, claim, &values[1]),
            // The claim was not executed.
            Some(state @ State::Free { .. }) => self.claim(item, state),
            // Not executed either, or taken over already: nothing was begun.
            _ => self.choose(now, rng),
        })
    }

    fn on_sent(&mut self, now: Time) -> Duration {
        self.asked = now;
        Duration::MAX
    }

    fn fails(&mut self, failure: RequestFailure, in_doubt: bool) -> Result<ClaimEnd, RequestFailure> {
        Ok(self.end(Err(if in_doubt { RequestFailure::Unknown } else { failure })))
    }
}

impl Claim {
    fn end(&mut self, result: Result<Option<Claimed>, RequestFailure>) -> ClaimEnd {
        ClaimEnd { result, watch: std::mem::take(&mut self.watch) }
    }

    fn begin_round(&mut self, rng: &mut Rng) -> Step<ClaimEnd> {
        let begin = rng.next_u64() as u32;
        self.round = Round { begin, after: Some(begin), ..Round::default() };
        self.look()
    }

    /// Lists states. Until the search has wrapped, it also lists from the lowest number on, since all items may be there.
    fn look(&mut self) -> Step<ClaimEnd> {
        let watched: Vec<Item> = self.watch.seen.keys().copied().collect();
        let mut gets = vec![BELL];
        gets.extend(watched.iter().map(|item| state_of(*item)));
        let mut builder = RequestBuilder::of(self.queue.object).get(gets).list(STATES_PAGE, self.round.after, LISTED);
        if !self.round.wrapped {
            builder = builder.list(STATES_PAGE, None, LISTED);
        }
        self.phase = Phase::Looking { watched };
        Ok(builder.done())
    }

    fn looked(&mut self, watched: &[Item], results: &Results, now: Time) -> Result<(), RequestFailure> {
        let values = results.values(0, 1 + watched.len())?;
        // The bell counts as of the beginning of the search: items that arrive during it may have been passed.
        if self.round.after == Some(self.round.begin) && !self.round.wrapped {
            self.bell = values[0].clone();
        }
        for (item, value) in watched.iter().zip(&values[1..]) {
            self.watch_over(*item, value, now);
        }
        let (found, more) = results.listed(1)?;
        self.take_in(&found);
        self.round.after = found.last().map(|(number, _)| *number).or(self.round.after);
        if more && !self.passed(&found) {
            return Ok(());
        }
        if self.round.wrapped {
            self.round.over = true;
            return Ok(());
        }
        let (found, more) = results.listed(2)?;
        self.round.wrapped = true;
        self.take_in(&found);
        self.round.after = found.last().map(|(number, _)| *number);
        self.round.over = !more || self.passed(&found);
        Ok(())
    }

    /// True if the search has come back to where it began.
    fn passed(&self, found: &[(u32, u32)]) -> bool {
        self.round.wrapped && found.last().is_none_or(|(number, _)| *number >= self.round.begin)
    }

    /// Takes in a list: free items are candidates, claimed ones are to be watched.
    fn take_in(&mut self, found: &[(u32, u32)]) {
        let behind = |number: u32| !self.round.wrapped || number <= self.round.begin;
        for (number, length) in found.iter().filter(|(number, _)| behind(*number)) {
            let item = Item(*number);
            match *length {
                FRESH_BYTES => self.round.free.push((item, Some(State::FRESH))),
                GIVEN_BACK_BYTES => self.round.free.push((item, None)),
                _ if self.watch.seen.len() < WATCHED_MAX => {
                    self.watch.seen.entry(item).or_insert(None);
                }
                _ => {}
            }
        }
    }

    /// A claim that stays unchanged for a lease can be taken over; one that changes is alive, and makes room in the watch for others.
    fn watch_over(&mut self, item: Item, value: &Bytes, now: Time) {
        // A value that is not a valid state never becomes free and is not watched.
        let claim = State::decode(value).ok().flatten().filter(|state| matches!(state, State::Claimed(_)));
        match self.watch.seen.get(&item) {
            Some(None) if claim.is_some() => {
                self.watch.seen.insert(item, Some((value.clone(), now)));
            }
            // It was unchanged when this request was sent.
            Some(Some((seen, since))) if seen == value => {
                if self.asked.since(*since) >= self.queue.lease {
                    self.round.free.insert(0, (item, claim));
                }
            }
            _ => {
                self.watch.seen.remove(&item);
            }
        }
    }

    /// Tries one of the candidates: expired claims first, the others at random.
    fn choose(&mut self, now: Time, rng: &mut Rng) -> Step<ClaimEnd> {
        let dead = self.round.free.first().is_some_and(|(item, _)| self.watch.seen.contains_key(item));
        if !self.round.free.is_empty() {
            let index = if dead { 0 } else { rng.below(self.round.free.len() as u64) as usize };
            let (item, state) = self.round.free.remove(index);
            self.watch.seen.remove(&item);
            return match state {
                Some(state) => self.claim(item, state),
                None => {
                    self.phase = Phase::Reading(item);
                    Ok(RequestBuilder::of(self.queue.object).get(vec![state_of(item)]).done())
                }
            };
        }
        if !self.round.over || self.watch.seen.values().any(Option::is_none) {
            return self.look();
        }
        self.wait(now)
    }

    fn wait(&mut self, now: Time) -> Step<ClaimEnd> {
        let left = self.patience.saturating_sub(now.since(self.began));
        if left.is_zero() {
            return Ok(Next::Done(self.end(Ok(None))));
        }
        let ends = self.watch.seen.values().flatten();
        let next = ends.map(|(_, since)| self.queue.lease.saturating_sub(now.since(*since))).min();
        let patience = next.unwrap_or(self.queue.lease).min(left).max(WAIT_MIN);
        self.phase = Phase::Waiting;
        Ok(Next::Await { object: self.queue.object, name: BELL, seen: self.bell.clone(), patience })
    }

    fn claim(&mut self, item: Item, from: State) -> Step<ClaimEnd> {
        let token = from.token().checked_add(1).ok_or(DAMAGED)?;
        let claim = state::Claim { token, consumer: self.consumer, nonce: self.nonce, heartbeat: 0 };
        self.phase = Phase::Claiming { item, claim };
        let builder =
            RequestBuilder::of(self.queue.object).swap(state_of(item), &from.encode(), &State::Claimed(claim).encode());
        Ok(builder.then_get(vec![work_of(item)]).done())
    }

    fn claimed(&mut self, item: Item, claim: state::Claim, value: &Bytes) -> Step<ClaimEnd> {
        let (of, work) = parted(value).ok_or(DAMAGED)?;
        let claimed = Claimed { item, token: claim.token, work, of, claim };
        Ok(Next::Done(self.end(Ok(Some(claimed)))))
    }
}
