//! A compare-and-swap loop on one attribute, the *word*. It is the common part of locks, delivery counters and fail-over: an operation
//! proposes a new value, until a swap succeeds or it ends for another reason.
//!
//! ```text
//!          ┌─ swap blindly ─┐                         swapped ──▶ Made
//!   start ─┤                ├─▶ CAS ── other value ──▶ Seen ─┬─▶ CAS again
//!          └─ look ─────────┘                ▲               ├─▶ wait, then begin again
//!                         no answer ──▶ read ┘               └─▶ done
//! ```
//!
//! A compare-and-swap that fails returns the word, so it costs no more than a read. After [`RequestFailure::Unknown`] the word is read, and
//! the operation determines from it whether its swap has happened: what it writes contains its own nonce.

use crate::procedure::{Answer, Asker, Next, Operation, RequestFailure};
use crate::request_builder::{RequestBuilder, Results};
use braid_base::{Backoff, ObjectId, Rng, Time};
use braid_wire::{AttributeName, ObjectCommand, ObjectFailure, SetAttribute};
use bytes::Bytes;
use std::time::Duration;

/// The word, and the attributes read with it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub word: Bytes,
    pub extras: Vec<Bytes>,
    /// The last swap may have happened.
    pub outcome_unknown: bool,
}

/// What a swap, or a look at the word, has led to.
pub(crate) enum Turn {
    /// It has swapped.
    Made(Results),
    /// The word is another one.
    Seen(Seen),
    /// The device was busy, or other clients were faster too often, and it has paused: the word is not known.
    Paused,
}

/// What a request has led to.
enum Sent<T> {
    Answer(T),
    Lost,
    Paused,
}

/// A compare-and-swap, and the commands that go with it.
#[derive(Clone, Debug)]
pub(crate) struct Swap {
    pub compare: Bytes,
    pub swap: Bytes,
    /// Set if it swaps.
    pub sets: Vec<SetAttribute>,
    /// Appended; these must state themselves that they depend on the swap.
    pub rest: Vec<ObjectCommand>,
}

/// The attributes of the word, and how patiently it is changed.
#[derive(Clone, Debug)]
pub(crate) struct CasTarget {
    pub object: ObjectId,
    pub word: AttributeName,
    /// Read together with the word.
    pub extras: Vec<AttributeName>,
    pub backoff: Backoff,
    pub patience: Patience,
}

/// When to give up.
#[derive(Clone, Debug)]
pub(crate) enum Patience {
    /// After this time, a failure is final. A request in progress is waited for as long as the driver does.
    For(Duration),
    /// At this time, whatever is in progress, since a later result would be useless. An operation that begins later has the given duration.
    Until(Time, Duration),
}

/// After this many swaps in a row that other clients were faster than, it pauses.
const RACES_MAX: u32 = 3;

/// A compare-and-swap loop in progress.
pub(crate) struct CasLoop {
    asker: Asker,
    target: CasTarget,
    outcome_unknown: bool,
    races: u32,
    deadline: Time,
}

/// The operation on a word that an async function describes.
pub(crate) fn cas_loop<T, F>(target: CasTarget, function: impl FnOnce(CasLoop) -> F + Send + 'static) -> Operation<T>
where
    F: Future<Output = T> + Send + 'static,
{
    crate::procedure::operation(|asker| async move {
        let now = asker.now();
        let deadline = match target.patience {
            Patience::Until(end, _) if now < end => end,
            Patience::For(span) | Patience::Until(_, span) => now.after(span),
        };
        function(CasLoop { asker, target, outcome_unknown: false, races: 0, deadline }).await
    })
}

impl CasLoop {
    pub fn now(&self) -> Time {
        self.asker.now()
    }

    pub fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        self.asker.draw(draw)
    }

    /// How much of the patience is left.
    pub fn left(&self) -> Duration {
        self.deadline.since(self.now())
    }

    /// Reads the word.
    pub async fn look(&mut self) -> Result<Turn, RequestFailure> {
        let gets: Vec<AttributeName> =
            [self.target.word].into_iter().chain(self.target.extras.iter().copied()).collect();
        let count = gets.len();
        let builder = RequestBuilder::of(self.target.object).get(gets);
        loop {
            match self.send(builder.clone(), |results| Ok(results.values(0, count)?.to_vec())).await? {
                Sent::Answer(values) => return Ok(self.seen(values[0].clone(), values[1..].to_vec())),
                Sent::Paused if !self.outcome_unknown => return Ok(Turn::Paused),
                Sent::Lost | Sent::Paused => {}
            }
        }
    }

    /// Reads the word, also after pauses.
    pub async fn see(&mut self) -> Result<Seen, RequestFailure> {
        loop {
            if let Turn::Seen(seen) = self.look().await? {
                return Ok(seen);
            }
        }
    }

    pub async fn swap(&mut self, swap: Swap) -> Result<Turn, RequestFailure> {
        if self.races > RACES_MAX {
            self.races = 0;
            self.pause_for(self.patience()).await;
            return Ok(Turn::Paused);
        }
        let Swap { compare, swap, sets, rest } = swap;
        let extras = self.target.extras.len();
        let builder = RequestBuilder::of(self.target.object).swap(self.target.word, &compare, &swap);
        let builder = builder.with_sets(sets).with_gets(self.target.extras.clone()).then(rest);
        let read = |results: Results| match results.compared(0)?.ok_or(RequestFailure::Unknown)? {
            (true, _) => Ok(Ok(results)),
            (false, word) => Ok(Err((word, results.values(0, extras)?.to_vec()))),
        };
        match self.send(builder, read).await? {
            Sent::Answer(Ok(results)) => {
                self.races = 0;
                Ok(Turn::Made(results))
            }
            Sent::Answer(Err((word, extras))) => {
                self.races += 1;
                Ok(self.seen(word, extras))
            }
            Sent::Lost => {
                self.outcome_unknown = true;
                self.look().await
            }
            Sent::Paused => Ok(Turn::Paused),
        }
    }

    /// Swaps; otherwise returns the word, which is read again after a pause.
    pub async fn swap_or_see(&mut self, swap: Swap) -> Result<Option<Seen>, RequestFailure> {
        match self.swap(swap).await? {
            Turn::Made(_) => Ok(None),
            Turn::Seen(seen) => Ok(Some(seen)),
            Turn::Paused => self.see().await.map(Some),
        }
    }

    /// Makes another request, until it is answered.
    pub async fn ask(&mut self, builder: RequestBuilder) -> Result<Results, RequestFailure> {
        loop {
            match self.send(builder.clone(), Ok).await? {
                Sent::Answer(results) => return Ok(results),
                Sent::Lost => {
                    // After the answer to a read, the request cannot be executed any more.
                    self.outcome_unknown = true;
                    self.look().await?;
                }
                Sent::Paused => {}
            }
        }
    }

    pub async fn sleep(&self, span: Duration) {
        self.asker.sleep(span).await;
    }

    /// Sleeps for a while, longer each time.
    pub async fn pause(&mut self) {
        self.pause_for(self.left()).await;
    }

    /// Waits for another value of an attribute, and returns the value; if the device cannot do that, it pauses instead.
    pub async fn wait(&mut self, name: AttributeName, seen: Bytes, patience: Duration) -> Option<Bytes> {
        match self.asker.want(Next::Await { object: self.target.object, name, seen, patience }).await {
            Answer::Value(value) => Some(value),
            Answer::RequestFailure(_) => {
                self.pause_for(self.patience()).await;
                None
            }
            Answer::None | Answer::Results(_) => None,
        }
    }

    /// How long a request may take.
    fn patience(&self) -> Duration {
        if matches!(self.target.patience, Patience::Until(..)) { self.left() } else { Duration::MAX }
    }

    async fn pause_for(&mut self, most: Duration) {
        // Never zero.
        let pause = self.asker.draw(|rng| self.target.backoff.next_random_wait(Duration::from_nanos(1), rng));
        self.asker.sleep(pause.min(most)).await;
    }

    /// Makes a request; `read` reads the answer. A malformed answer is treated like a lost one.
    async fn send<T>(
        &mut self,
        builder: RequestBuilder,
        read: impl FnOnce(Results) -> Result<T, RequestFailure>,
    ) -> Result<Sent<T>, RequestFailure> {
        let patience = self.patience();
        let answer = if patience.is_zero() {
            Answer::RequestFailure(RequestFailure::Unknown)
        } else {
            self.asker.want(Next::Ask { request: builder.request(), patience }).await
        };
        let failure = match answer {
            Answer::Results(results) => match read(Results(results)) {
                Ok(answer) => return Ok(Sent::Answer(answer)),
                Err(_) => RequestFailure::Unknown,
            },
            Answer::RequestFailure(failure) => failure,
            Answer::None | Answer::Value(_) => RequestFailure::Unknown,
        };
        match failure {
            RequestFailure::Unknown if !self.left().is_zero() => Ok(Sent::Lost),
            RequestFailure::Refused(ObjectFailure::Busy) if !self.left().is_zero() => {
                self.pause_for(self.patience()).await;
                Ok(Sent::Paused)
            }
            // A refused swap is known not to have happened; an earlier one may have.
            _ if self.outcome_unknown => Err(RequestFailure::Unknown),
            failure => Err(failure),
        }
    }

    fn seen(&mut self, word: Bytes, extras: Vec<Bytes>) -> Turn {
        Turn::Seen(Seen { word, extras, outcome_unknown: std::mem::take(&mut self.outcome_unknown) })
    }
}

/// A number of eight bytes, big-endian; 0 if it is undefined; none if it is something else.
pub(crate) fn number(value: &Bytes) -> Option<u64> {
    match value.len() {
        0 => Some(0),
        8 => Some(u64::from_be_bytes(value[..].try_into().expect("eight bytes"))),
        _ => None,
    }
}

/// The inverse of [`number`].
pub(crate) fn number_bytes(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}
