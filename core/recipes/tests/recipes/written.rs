//! What clients do with a lock, a turn or a leadership, all of which are *holds*: they write, renew and end. Each write is guarded by the token
//! of the hold, and appends the token, the client and the number of the write to an object.

use crate::bench::*;
use braid_recipes::counter::{CounterError, Turn};
use braid_recipes::failover::{FailOverError, Leadership};
use braid_recipes::fencing_token::unguard;
use braid_recipes::lock::{Grant, LockError, Mode};
use braid_wire::CommandResult;

/// The object of the recipe's attributes.
pub const OBJECT: ObjectId = ObjectId(1);
/// The object of the writes.
pub const DATA: ObjectId = ObjectId(2);

/// Token, client, and number of the write.
pub type Record = [u64; 3];

/// No crashes, but many lost messages.
pub const LOSSY: FaultRates = FaultRates { death: 0, unknown: 200, awaits: 500, straggling: 5, ..ROUGH };

/// The end of a hold that may have executed a last request.
pub type End<H> = Result<Option<Vec<CommandResult>>, <H as Hold>::Error>;

/// A hold, as far as its holder knows.
pub trait Hold: Clone + 'static {
    type Error: std::fmt::Debug;

    fn number(&self) -> u64;
    fn sure(&self) -> Time;
    fn guarded(&self, request: ObjectRequest) -> ObjectRequest;
    fn renewed(&self) -> Operation<Result<Self, Self::Error>>;
    async fn end(self, me: &Me<Log>) -> Result<(), Self::Error>;
    fn end_with(self, request: ObjectRequest) -> Operation<End<Self>>;
    /// Another client has taken over.
    fn is_lost(error: &Self::Error) -> bool;
    fn is_uncertain(error: &Self::Error) -> bool;
    /// The attribute is used for something else.
    fn is_alien(error: &Self::Error) -> bool;
    fn failure(error: &Self::Error) -> Option<RequestFailure>;
}

macro_rules! hold {
    ($hold:ty, $error:ident, $lost:pat, $alien:ident, $token:ident, $renew:ident, $end:ident, $end_with:ident) => {
        impl Hold for $hold {
            type Error = $error;

            fn number(&self) -> u64 {
                self.$token()
            }
            fn sure(&self) -> Time {
                self.sure_until()
            }
            fn guarded(&self, request: ObjectRequest) -> ObjectRequest {
                self.guard(request).expect("it can be guarded")
            }
            fn renewed(&self) -> Operation<Result<Self, $error>> {
                self.$renew()
            }
            async fn end(self, me: &Me<Log>) -> Result<(), $error> {
                me.run(self.$end()).await.map(drop)
            }
            fn end_with(self, request: ObjectRequest) -> Operation<End<Self>> {
                self.$end_with(request).expect("it can be guarded")
            }
            fn is_lost(error: &$error) -> bool {
                matches!(error, $lost)
            }
            fn is_uncertain(error: &$error) -> bool {
                matches!(error, $error::Uncertain)
            }
            fn is_alien(error: &$error) -> bool {
                matches!(error, $error::$alien)
            }
            fn failure(error: &$error) -> Option<RequestFailure> {
                if let $error::RequestFailure(failure) = error { Some(*failure) } else { None }
            }
        }
    };
}

hold!(Grant, LockError, LockError::Lost, NoLock, token, renew, release, release_with);
hold!(Turn, CounterError, CounterError::Skipped { .. }, NoCounter, ticket, renew, leave, leave_with);
hold!(Leadership, FailOverError, FailOverError::Deposed { .. }, NoLeader, term, progress, resign, resign_with);

/// What the clients have observed.
#[derive(Default)]
pub struct Log {
    /// The token, turn or term after the last request.
    pub number: u64,
    pub lines: Vec<String>,
    pub held: Vec<Held>,
    /// Last writes that were reported as executed, and those reported as not executed.
    pub happened: Vec<Record>,
    pub not_happened: Vec<Record>,
    /// How many have an unknown outcome.
    pub unknowns: u64,
    pub taken: u64,
    pub refused: u64,
    /// How often a client learned that it had lost its hold.
    pub lost: u64,
}

/// A period in which a client was a holder.
#[derive(Debug)]
pub struct Held {
    pub token: u64,
    pub mode: Mode,
    client: usize,
    /// When it learned that, and until when it was sure; in true time.
    from: Time,
    pub sure: Time,
}

impl Me<Log> {
    pub fn note(&self, line: impl Into<String>) {
        self.observed().lines.push(line.into());
    }

    /// The same, with the time in seconds.
    pub fn note_time(&self, what: &str) {
        self.note(format!("{what} at {}", self.true_now().0 / 1_000_000_000));
    }

    /// Records a hold that has begun.
    pub fn note_hold(&self, hold: &impl Hold, mode: Mode) {
        let from = self.true_now();
        let (token, client, sure) = (hold.number(), self.client(), from.after(hold.sure().since(self.now())));
        self.observed().held.push(Held { token, mode, client, from, sure });
    }

    /// Records a renewal, if its outcome arrived in time.
    pub fn note_renewal(&self, hold: &impl Hold) {
        let (now, left) = (self.true_now(), hold.sure().since(self.now()));
        self.note_sure(hold, |sure| if left.is_zero() { sure } else { now.after(left) });
    }

    /// From now on it does not use the hold any more.
    pub fn note_end(&self, hold: &impl Hold) {
        let now = self.true_now();
        self.note_sure(hold, |sure| sure.min(now));
    }

    fn note_sure(&self, hold: &impl Hold, sure: impl FnOnce(Time) -> Time) {
        let mut observed = self.observed();
        let mut held = observed.held.iter_mut().rev();
        let mine = held.find(|held| (held.token, held.client) == (hold.number(), self.client()));
        let mine = mine.expect("it was recorded");
        mine.sure = sure(mine.sure);
    }

    pub fn note_error<H: Hold>(&self, error: &H::Error) {
        self.observed().lost += u64::from(H::is_lost(error));
    }

    /// Records the reported outcome of a last write.
    pub fn told<H: Hold>(&self, record: Record, end: End<H>) {
        let mut observed = self.observed();
        match end {
            Ok(_) => observed.happened.push(record),
            Err(error) if H::failure(&error) == Some(RequestFailure::Unknown) => observed.unknowns += 1,
            Err(error) => {
                assert!(!H::is_alien(&error), "{error:?}");
                observed.not_happened.push(record);
            }
        }
    }

    /// Writes this many times, or until it is refused; in between, it may pause for longer than its lease, or renew.
    pub async fn writes<H: Hold>(&self, mut hold: H, times: u64, guarded: impl Fn(&H, Record) -> ObjectRequest) {
        let mut done = 0;
        loop {
            self.sleep(Duration::from_millis(10)).await;
            let record = [hold.number(), self.client() as u64, done];
            if done == times {
                self.note_end(&hold);
                return match self.below(3) {
                    0 => hold.end(self).await.unwrap_or_else(|error| self.note_error::<H>(&error)),
                    1 => self.told::<H>(record, self.run(hold.end_with(append(DATA, record))).await),
                    // It forgets that it has the hold.
                    _ => {}
                };
            }
            if self.chance(1, 4) {
                match self.run(hold.renewed()).await {
                    Ok(renewed) => hold = renewed,
                    Err(error) => return self.note_error::<H>(&error),
                }
                self.note_renewal(&hold);
                continue;
            }
            let thinks = if self.chance(1, 10) { seconds(5) } else { Duration::from_millis(20) };
            let answer = self.ask(guarded(&hold, record)).await;
            if let Answer::Results(_) = &answer {
                if !taken(&answer) {
                    self.observed().refused += 1;
                    return;
                }
                self.observed().taken += 1;
            }
            self.sleep(thinks).await;
            done += 1;
        }
    }
}

pub fn append(object: ObjectId, record: Record) -> ObjectRequest {
    let data: Bytes = record.iter().flat_map(|word| word.to_be_bytes()).collect();
    space::one(object, Action::Append { data })
}

pub fn records(data: &[u8]) -> Vec<Record> {
    let words =
        |record: &[u8]| std::array::from_fn(|at| u64::from_be_bytes(record[8 * at..8 * at + 8].try_into().unwrap()));
    data.chunks(size_of::<Record>()).map(words).collect()
}

/// Checks after a request a word of a number and a holder, and the fence on the next page.
pub fn check_word(log: &mut Log, space: &Space, word: AttributeName) {
    let fence = AttributeName::new(word.page + 1, word.number);
    let word = space.value(OBJECT, word);
    let number = if word.is_empty() { 0 } else { u64::from_be_bytes(word[1..9].try_into().unwrap()) };
    assert!(number == log.number || number == log.number + 1, "turns and terms grow one by one");
    log.number = number;
    let held = if word.len() > 10 { word.slice(1..9) } else { Bytes::new() };
    assert_eq!(space.value(OBJECT, fence), held, "the fence contains the holder's number");
}

/// Checks the writes that the device has accepted, and what clients were told.
pub fn check(world: &mut World<Log>) {
    let (records, log) = (records(&world.space.bytes(DATA)), world.observed());
    check_order(&records);
    check_reports(&records, &log);
    check_holds(&log.held);
}

/// Tokens in order, one client a token, each write once.
pub fn check_order(records: &[Record]) {
    for (at, [token, client, write]) in records.iter().enumerate() {
        for [before, other, its] in &records[..at] {
            assert!(before <= token, "none of a token happens after a later one has begun: {records:?}");
            assert!(before != token || (other == client && its < write), "one client a token: {records:?}");
        }
    }
}

/// What was reported as executed is there once, and what was reported as not executed is not.
pub fn check_reports(records: &[Record], log: &Log) {
    for record in &log.happened {
        let times = records.iter().filter(|other| *other == record).count();
        assert_eq!(times, 1, "it was reported as executed: {record:?}");
    }
    for record in &log.not_happened {
        assert!(!records.contains(record), "it was reported as not executed: {record:?}");
    }
}

/// Of all who had a token, one at a time was sure of it, or several readers.
pub fn check_holds(holds: &[Held]) {
    for (at, held) in holds.iter().enumerate() {
        for other in &holds[at + 1..] {
            if (held.mode, other.mode) == (Mode::Shared, Mode::Shared) {
                continue;
            }
            assert!(held.token != other.token, "a token belongs to one hold");
            // The clients learned of their holds in some order; the tokens give the order of the holds.
            let (former, later) = if held.token < other.token { (held, other) } else { (other, held) };
            assert!(former.sure <= later.from.max(former.from), "{later:?} was granted while {former:?} was sure");
        }
    }
}

/// Two clients write, in every order of their steps, with one lost answer or one crash.
pub fn two_in_every_order<H: Hold>(begin: impl Fn() -> Operation<Result<H, H::Error>> + Clone + 'static, waits: u32) {
    let client = |client: u64| {
        let begin = begin.clone();
        doing(async move |me: Me<Log>| {
            let hold = match me.run(begin()).await {
                Ok(hold) => hold,
                Err(error) => return assert!(!H::is_alien(&error), "{error:?}"),
            };
            let [first, last] = [0, 1].map(|write| [hold.number(), client, write]);
            me.ask(hold.guarded(append(DATA, first))).await;
            me.told::<H>(last, me.run(hold.end_with(append(DATA, last))).await);
        })
    };
    for budget in [Budget { unknown: 1, deaths: 0, waits }, Budget { unknown: 0, deaths: 1, waits: 5 }] {
        let at_end = |world: &mut World<Log>| {
            check(world);
            if (0..2).all(|client| world.fate(client) == Fate::Through) && budget.unknown == 0 {
                assert!(!world.observed().happened.is_empty(), "a client has it to the end");
            }
        };
        let clients = || (Log::default(), vec![client(1), client(2)]);
        let (runs, ended) = explore(budget, &Space::with(&[OBJECT, DATA]), clients, |_, _| (), at_end);
        println!("{budget:?}: {runs} runs, of which {ended} ended");
        assert!(ended > 100, "{runs} {ended}");
    }
}

/// A renewal by way of an old copy of a hold counts from when it was sent: another client has to wait for a lease from then on.
pub fn old_copy<H: Hold>(begin: impl Fn(&'static str) -> Operation<Result<H, H::Error>>, lease: Duration) {
    let mut world = World::new(1, CALM, &[OBJECT, DATA], Log::default());
    let (first, next, pause) = (begin("a"), begin("b"), lease / 3);
    world.client(async move |me| {
        let hold = me.run(first).await.expect("no client is before it");
        let copy = hold.clone();
        me.sleep(pause).await;
        me.run(copy.renewed()).await.expect("it is held");
        me.sleep(pause).await;
        let hold = me.run(hold.renewed()).await.expect("it is held");
        me.note_hold(&hold, Mode::Exclusive);
    });
    world.run_for(Duration::from_millis(100));
    world.client(async move |me| {
        let hold = me.run(next).await.expect("the other client is silent");
        me.note_hold(&hold, Mode::Exclusive);
    });
    world.run();
    let (log, renewed) = (world.observed(), Time(0).after(pause * 2));
    assert!(log.held[0].sure > renewed.after(lease * 3 / 4), "most of a lease from the last renewal on");
    let waited = log.held[1].from.since(renewed);
    assert!((lease..lease + seconds(2)).contains(&waited), "{waited:?}");
}

/// Whatever has happened, a new client gets it, in this time at the latest.
pub fn is_had_again<H: Hold>(world: &mut World<Log>, begin: Operation<Result<H, H::Error>>, most: Duration) {
    world.rates = CALM;
    let came = world.now;
    world.immortal(async move |me| {
        let hold = me.run(begin).await.expect("nothing is lost forever");
        let waited = me.true_now().since(came);
        assert!(waited < most, "it waited for {waited:?}, and not for {most:?} at most");
        me.note_hold(&hold, Mode::Exclusive);
        let _ = hold.end(&me).await;
    });
    world.run();
}

/// Runs swarms with so many seeds, and checks that they have covered what they are for.
pub fn swarms_of(seeds: u64, swarm: impl Fn(u64) -> Log) -> Log {
    let mut all = Log::default();
    for log in (0..seeds).map(swarm) {
        (all.taken, all.refused, all.lost) = (all.taken + log.taken, all.refused + log.refused, all.lost + log.lost);
        all.happened.extend(log.happened);
    }
    let Log { taken, refused, lost, .. } = &all;
    println!("{taken} writes taken, {refused} refused, {lost} times a client learned that it had lost its hold");
    assert!(*taken > 1000 && *refused > 20 && *lost > 20, "{taken} {refused} {lost}");
    all
}

/// A client that is cut off from the device, or to which the device is busy, learns that its lease expired.
pub fn cut_off<H: Hold>(begin: impl Fn() -> Operation<Result<H, H::Error>>, lease: Duration) {
    for rates in [SILENT, FaultRates { busy: 1000, ..CALM }] {
        let mut world = World::new(1, CALM, &[OBJECT, DATA], Log::default());
        let begin = begin();
        world.client(async move |me| {
            let hold = me.run(begin).await.expect("no client is before it");
            me.sleep(seconds(1)).await;
            let renewed = async || me.run(hold.renewed()).await.is_err_and(|error| H::is_uncertain(&error));
            assert!(renewed().await);
            assert!(me.now() >= hold.sure() && me.now().since(hold.sure()) < Duration::from_millis(10));
            let began = me.now();
            assert!(renewed().await, "begun late, it still tries for a while");
            assert!(me.now().since(began) < lease / 2);
            let began = me.now();
            let end = hold.clone().end(&me).await;
            assert!(end.as_ref().is_err_and(|error| H::failure(error).is_some()), "{end:?}");
            assert!(me.now().since(began) < lease + seconds(1));
            me.note("heard");
        });
        world.run_for(Duration::from_millis(100));
        world.rates = rates;
        world.run();
        assert_eq!(world.observed().lines, ["heard"]);
    }
}

pub fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// True if a guarded request was executed, and not refused.
pub fn taken(answer: &Answer) -> bool {
    match answer {
        Answer::Results(results) => unguard(results.clone()).is_ok(),
        other => panic!("{other:?}"),
    }
}
