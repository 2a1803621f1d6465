//! Claiming an item: two round trips if an item is free.

use super::state::{self, FRESH_BYTES, GIVEN_BACK_BYTES, State};
use super::{BELL, Claimed, Item, Queue, STATES_PAGE, parted, state_of, work_of};
use crate::procedure::{Operation, RequestFailure};
use crate::request_builder::{DAMAGED, RequestBuilder, Results};
use crate::requester::{Outcome, Requester, operation};
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
        operation(move |requester| async move {
            let (nonce, ends) = (requester.draw(Rng::next_u64), requester.now().after(patience));
            let (bell, round) = (Bytes::new(), Round::default());
            let mut search = Search { requester, queue: self, consumer, watch, nonce, bell, round };
            let result = search.run(ends).await;
            ClaimEnd { result, watch: search.watch }
        })
    }
}

struct Search {
    requester: Requester,
    queue: Queue,
    consumer: u64,
    watch: Watch,
    nonce: u64,
    bell: Bytes,
    round: Round,
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

/// How many states are listed at once.
const LISTED: u32 = 64;
/// The shortest wait.
const WAIT_MIN: Duration = Duration::from_millis(1);

impl Search {
    async fn run(&mut self, ends: Time) -> Result<Option<Claimed>, RequestFailure> {
        loop {
            let begin = self.requester.draw(Rng::next_u64) as u32;
            self.round = Round { begin, after: Some(begin), ..Round::default() };
            while !self.round.over || !self.round.free.is_empty() || self.watch.seen.values().any(Option::is_none) {
                let Some((item, state)) = self.choose() else {
                    self.look().await?;
                    continue;
                };
                let state = match state {
                    Some(state) => Some(state),
                    None => self.read(item).await?,
                };
                if let Some(state) = state
                    && let Some(claimed) = self.claim(item, state).await?
                {
                    return Ok(Some(claimed));
                }
            }
            let now = self.requester.now();
            let left = ends.since(now);
            if left.is_zero() {
                return Ok(None);
            }
            let leases = self.watch.seen.values().flatten();
            let next = leases.map(|(_, since)| self.queue.lease.saturating_sub(now.since(*since))).min();
            let patience = next.unwrap_or(self.queue.lease).min(left).max(WAIT_MIN);
            self.requester.wait(self.queue.object, BELL, self.bell.clone(), patience).await?;
        }
    }

    /// Lists states. Until the search has wrapped, it also lists from the lowest number on, since all items may be there.
    async fn look(&mut self) -> Result<(), RequestFailure> {
        let watched: Vec<Item> = self.watch.seen.keys().copied().collect();
        let mut gets = vec![BELL];
        gets.extend(watched.iter().map(|item| state_of(*item)));
        let mut builder = RequestBuilder::of(self.queue.object).get(gets).list(STATES_PAGE, self.round.after, LISTED);
        if !self.round.wrapped {
            builder = builder.list(STATES_PAGE, None, LISTED);
        }
        let results = self.requester.read(builder).await?;
        self.looked(&watched, &results)
    }

    fn looked(&mut self, watched: &[Item], results: &Results) -> Result<(), RequestFailure> {
        let values = results.values(0, 1 + watched.len())?;
        // The bell counts as of the beginning of the search: items that arrive during it may have been passed.
        if self.round.after == Some(self.round.begin) && !self.round.wrapped {
            self.bell = values[0].clone();
        }
        for (item, value) in watched.iter().zip(&values[1..]) {
            self.watch_over(*item, value);
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
    fn watch_over(&mut self, item: Item, value: &Bytes) {
        // A value that is not a valid state never becomes free and is not watched.
        let claim = State::decode(value).ok().flatten().filter(|state| matches!(state, State::Claimed(_)));
        match self.watch.seen.get(&item) {
            Some(None) if claim.is_some() => {
                self.watch.seen.insert(item, Some((value.clone(), self.requester.now())));
            }
            // It was unchanged when this request was sent.
            Some(Some((seen, since))) if seen == value => {
                if self.requester.asked.since(*since) >= self.queue.lease {
                    self.round.free.insert(0, (item, claim));
                }
            }
            _ => {
                self.watch.seen.remove(&item);
            }
        }
    }

    /// Chooses one of the candidates: expired claims first, the others at random.
    fn choose(&mut self) -> Option<(Item, Option<State>)> {
        let dead = self.watch.seen.contains_key(&self.round.free.first()?.0);
        let count = self.round.free.len() as u64;
        let index = if dead { 0 } else { self.requester.draw(|rng| rng.below(count)) as usize };
        let (item, state) = self.round.free.remove(index);
        self.watch.seen.remove(&item);
        Some((item, state))
    }

    /// Reads the state of an item that was given back; none if it is not free any more, or there was no answer.
    async fn read(&mut self, item: Item) -> Result<Option<State>, RequestFailure> {
        let request = RequestBuilder::of(self.queue.object).get(vec![state_of(item)]);
        let Some(results) = self.requester.ask(request).await? else { return Ok(None) };
        Ok(State::decode(&results.values(0, 1)?[0])?.filter(|state| matches!(state, State::Free { .. })))
    }

    /// Claims an item in this state; none if it has another one by now.
    async fn claim(&mut self, item: Item, mut from: State) -> Result<Option<Claimed>, RequestFailure> {
        loop {
            let token = from.token().checked_add(1).ok_or(DAMAGED)?;
            let claim = state::Claim { token, consumer: self.consumer, nonce: self.nonce, heartbeat: 0 };
            let builder = || RequestBuilder::of(self.queue.object);
            let swap = builder().swap(state_of(item), &from.encode(), &State::Claimed(claim).encode());
            let inquiry = builder().get(vec![state_of(item), work_of(item)]);
            let value = match self.requester.change(swap.then_get(vec![work_of(item)]), inquiry).await? {
                Outcome::Answered(results) => match results.compared(0)?.ok_or(DAMAGED)? {
                    (true, _) => results.values(1, 1)?[0].clone(),
                    (false, _) => return Ok(None),
                },
                Outcome::Inquired(results) => {
                    let values = results.values(0, 2).or(Err(RequestFailure::Unknown))?;
                    match State::decode(&values[0]).or(Err(RequestFailure::Unknown))? {
                        Some(State::Claimed(other)) if other == claim => values[1].clone(),
                        // The claim was not executed.
                        Some(state @ State::Free { .. }) => {
                            from = state;
                            continue;
                        }
                        // Not executed either, or taken over already: nothing was begun.
                        _ => return Ok(None),
                    }
                }
            };
            let (of, work) = parted(&value).ok_or(DAMAGED)?;
            return Ok(Some(Claimed { item, token, work, of, claim }));
        }
    }
}
