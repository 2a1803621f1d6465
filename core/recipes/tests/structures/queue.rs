//! Work queues under load, with crashes and lost answers: every item is finished once, and none is lost.
//!
//! Each item is a number, and finishing it sets an attribute of that number in the same request. So every change of the queue can be
//! checked as it happens: which item it concerned, and which client made it.

use crate::bench::*;
use crate::sequential::Alone;
use braid_recipes::queue::{Claimed, Finished, ITEMS_PAGE, Item, Queue, Renewed, STATES_PAGE, Watch};
use braid_wire::SetAttribute;

pub const OBJECT: ObjectId = ObjectId(9);
/// The page of results: an attribute for each item's work.
const RESULTS_PAGE: u32 = 77;

pub const LEASE: Duration = Duration::from_secs(5);

pub fn work(number: u32) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

pub fn number(work: &[u8]) -> u32 {
    u32::from_be_bytes(work.try_into().expect("four bytes"))
}

/// An item was finished: under which token, and by which operation.
pub fn result(of: &Claimed, operation: u64) -> Vec<SetAttribute> {
    let name = AttributeName::new(RESULTS_PAGE, number(&of.work));
    vec![SetAttribute { name, value: [of.token, operation].iter().flat_map(|word| word.to_be_bytes()).collect() }]
}

/// An item: the words of its state, without the first byte.
type State = Vec<u64>;

/// The content: items by number, and results by work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub items: BTreeMap<Item, (State, u32)>,
    pub results: BTreeMap<u32, (u64, u64)>,
}

/// Reads the queue by its documented format.
pub fn contents(space: &Space) -> Contents {
    let mut contents = Contents::default();
    let value = |page, number| space.value(OBJECT, AttributeName::new(page, number));
    let words = |value: &[u8]| value.chunks(8).map(|word| u64::from_be_bytes(word.try_into().unwrap())).collect();
    for name in space.attributes(OBJECT, STATES_PAGE) {
        let (state, item) = (value(STATES_PAGE, name.number), value(ITEMS_PAGE, name.number));
        let used = match (state[0], state.len()) {
            (0, 35) => 1,
            (0, 34) => 9,
            (1, 33) => 33,
            _ => panic!("{state:?}"),
        };
        assert!(state[used..].iter().all(|byte| *byte == 0), "{state:?}");
        contents.items.insert(Item(name.number), (words(&state[1..used]), number(&item[8..])));
    }
    assert_eq!(space.attributes(OBJECT, ITEMS_PAGE).len(), contents.items.len(), "work without a state");
    for name in space.attributes(OBJECT, RESULTS_PAGE) {
        let result: Vec<u64> = words(&value(RESULTS_PAGE, name.number));
        contents.results.insert(name.number, (result[0], result[1]));
    }
    contents
}

/// The history of a run.
#[derive(Default)]
pub struct Observations {
    last: Contents,
    /// Work that was put in.
    came: BTreeSet<u32>,
    put: BTreeSet<u32>,
    /// The finished work, and by which operation, as operations report it.
    finished: BTreeMap<u32, u64>,
    lost: BTreeSet<u64>,
    unknowns: BTreeSet<u64>,
    operations: u64,
    taken_over: u64,
}

impl Observations {
    /// Checks that every change is one of the arrows in the drawing.
    pub fn look(&mut self, space: &Space) {
        let now = contents(space);
        for (item, (state, work)) in &now.items {
            match self.last.items.get(item) {
                None => {
                    assert!(state.is_empty(), "a new item is fresh");
                    assert!(self.came.insert(*work), "{work} was put in twice");
                }
                Some((before, same)) => {
                    assert_eq!(work, same);
                    self.taken_over += u64::from(taken_over(before, state));
                }
            }
        }
        let gone = self.last.items.iter().filter(|(item, _)| !now.items.contains_key(item));
        for (state, work) in gone.map(|(_, gone)| gone) {
            let result = now.results.get(work).expect("an item is removed together with its result set");
            assert!(!self.last.results.contains_key(work), "{work} was finished twice");
            assert_eq!(state.first(), Some(&result.0), "an item is finished by the token of its claim");
        }
        for (work, result) in &self.last.results {
            assert_eq!(now.results.get(work), Some(result), "a result changes");
        }
        assert!(now.results.keys().all(|work| now.items.values().all(|(_, other)| other != work)));
        self.last = now;
    }

    pub fn check(&self, idempotency_records: bool) {
        for work in &self.put {
            assert!(self.came.contains(work), "{work} was reported as put in, but never existed");
        }
        for (work, operation) in &self.finished {
            let result = self.last.results.get(work).map(|result| result.1);
            assert_eq!(result, Some(*operation), "{work} was not finished by the operation that reported it");
        }
        let operations: BTreeSet<u64> = self.last.results.values().map(|result| result.1).collect();
        assert!(self.lost.is_disjoint(&operations), "an operation that lost its claim has finished nothing");
        assert!(!idempotency_records || self.unknowns.is_empty(), "with an idempotency record, no outcome is unknown");
        let there: BTreeSet<u32> = self.last.items.values().map(|(_, work)| *work).collect();
        let done: BTreeSet<u32> = self.last.results.keys().copied().collect();
        assert_eq!(&there | &done, self.came, "items are lost");
    }
}

/// Checks one change of an item's state. True if a consumer has taken the item over from another.
fn taken_over(before: &State, after: &State) -> bool {
    let token = |state: &State| state.first().copied().unwrap_or(0);
    match (before.len(), after.len()) {
        _ if before == after => {}
        (0 | 1, 4) => assert_eq!((token(after), after[3]), (token(before) + 1, 0), "a claim"),
        (4, 1) => assert_eq!(before[0], after[0], "given back"),
        (4, 4) if before[2] == after[2] => {
            assert_eq!(after[..], [before[0], before[1], before[2], before[3] + 1], "renewed");
        }
        (4, 4) => {
            assert_eq!((after[0], after[3]), (before[0] + 1, 0), "taken over");
            return true;
        }
        _ => panic!("{before:?} becomes {after:?}"),
    }
    false
}

/// Puts these items in, one after the other.
async fn producer(me: Me<Observations>, queue: Queue, numbers: Vec<u32>) {
    for this in numbers {
        match me.run(queue.put(work(this))).await {
            Ok(_) => assert!(me.observed().put.insert(this)),
            Err(RequestFailure::Unknown) => {
                let mut observed = me.observed();
                let there = observed.last.items.values().any(|(_, work)| *work == this);
                assert!(!there, "an item that is there was put in");
                observed.unknowns.insert(u64::from(this) << 32);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Works until this many items are finished, or none was free for this long.
async fn consumer(me: Me<Observations>, queue: Queue, name: u64, mut items: u32, patience: Duration) {
    let mut watch = Watch::default();
    while items > 0 {
        let end = me.run(queue.claim(name, watch, patience)).await;
        watch = end.watch;
        match end.result {
            Ok(Some(claimed)) => {
                works(&me, queue, claimed).await;
                items -= 1;
            }
            Ok(None) => return,
            // It may have claimed an item, which becomes free after the lease.
            Err(RequestFailure::Unknown) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Renews several times, and then finishes the item or gives it back.
async fn works(me: &Me<Observations>, queue: Queue, mut claimed: Claimed) {
    for _ in 0..me.below(4) {
        me.sleep(LEASE / 3).await;
        match me.run(queue.renew(claimed.clone())).await {
            Ok(Renewed::Kept(renewed)) => claimed = renewed,
            Ok(Renewed::Lost) => return,
            Err(RequestFailure::Unknown) => {}
            other => panic!("{other:?}"),
        }
    }
    me.sleep(LEASE / 3).await;
    if !me.chance(1, 6) {
        return finishes(me, queue, claimed).await;
    }
    match me.run(queue.give_back(claimed)).await {
        Ok(()) | Err(RequestFailure::Unknown) => {}
        other => panic!("{other:?}"),
    }
}

async fn finishes(me: &Me<Observations>, queue: Queue, claimed: Claimed) {
    me.observed().operations += 1;
    let operation = me.observed().operations;
    let finished = me.run(queue.finish(claimed.clone(), result(&claimed, operation))).await;
    let mut observed = me.observed();
    match finished {
        Ok(Finished::Finished) => assert_eq!(observed.finished.insert(number(&claimed.work), operation), None),
        Ok(Finished::Lost) => assert!(observed.lost.insert(operation)),
        Err(RequestFailure::Unknown) => {
            assert!(!observed.last.items.contains_key(&claimed.item), "an item that is there is not finished");
            assert!(observed.unknowns.insert(operation));
        }
        other => panic!("{other:?}"),
    }
}

/// Returns how many claims were taken over, and how many outcomes were unknown.
fn swarm(seed: u64, idempotency_records: bool) -> (u64, usize) {
    let queue = Queue::new(OBJECT, LEASE);
    let mut world = World::new(seed, ROUGH, &[OBJECT], Observations::default());
    world.after_each(|observed, space| observed.look(space));
    let mut idempotency_record = (0..).map(|number| idempotency_records.then_some(IdempotencyRecord(number)));
    let mut mine = || Queue { idempotency_record: idempotency_record.next().flatten(), ..queue };
    for producers in 0..2 {
        let (queue, numbers) = (mine(), (0..6).map(|number| producers * 100 + number).collect());
        world.client(move |me| producer(me, queue, numbers));
    }
    for name in 0..3 {
        let queue = mine();
        world.client(move |me| consumer(me, queue, name, 20, LEASE * 4));
    }
    world.run();
    world.observed().check(idempotency_records);
    // The remaining items are finished by a client that does not crash.
    let queue = mine();
    let last = world.immortal(move |me| consumer(me, queue, 99, 100, LEASE * 20));
    world.run();
    assert_eq!(world.fate(last), Fate::Through);
    world.observed().check(idempotency_records);
    let observed = world.observed();
    assert!(observed.last.items.is_empty(), "no item is left");
    assert_eq!(observed.last.results.len(), observed.came.len());
    (observed.taken_over, observed.unknowns.len())
}

#[test]
fn in_swarm_runs_every_item_is_finished_once_and_none_is_lost() {
    let (mut taken_over, mut unknowns) = (0, 0);
    for seed in 0..100 {
        taken_over += swarm(seed, true).0;
        unknowns += swarm(seed, false).1;
    }
    assert!(taken_over > 100, "{taken_over} claims were taken over from crashed or late consumers");
    assert!(
        (1..100).contains(&unknowns),
        "{unknowns} unknown outcomes: without an idempotency record they occur, but rarely"
    );
}

/// One item, and clients that each claim and finish it, in every order of steps.
fn every_way(clients: u64, budget: Budget, idempotency_records: bool) -> (u64, u64) {
    let queue = Queue::new(OBJECT, LEASE);
    let mut alone = Alone::with(Space::with(&[OBJECT]));
    alone.run(queue.put(work(1))).unwrap();
    let first = contents(&alone.space);
    let begin = || {
        let observed = Observations { last: first.clone(), came: BTreeSet::from([1]), ..Observations::default() };
        let doing = (0..clients).map(|name| {
            let idempotency_record = idempotency_records.then_some(IdempotencyRecord(name as u32));
            let queue = Queue { idempotency_record, ..queue };
            doing(async move |me: Me<Observations>| {
                match me.run(queue.claim(name, Watch::default(), LEASE * 2)).await.result {
                    Ok(Some(claimed)) => finishes(&me, queue, claimed).await,
                    Ok(None) | Err(RequestFailure::Unknown) => {}
                    other => panic!("{other:?}"),
                }
            })
        });
        (observed, doing.collect())
    };
    explore(
        budget,
        &alone.space,
        begin,
        |observed: &mut Observations, space| observed.look(space),
        |world| {
            world.observed().check(idempotency_records);
            let mut newcomer = Alone { now: world.now, rng: Rng::new(77), ..Alone::with(world.space.clone()) };
            let end = newcomer.run(queue.claim(9, Watch::default(), LEASE * 3));
            let left = contents(&world.space).items.len();
            assert_eq!(end.result.unwrap().is_some(), left == 1, "an unfinished item can be claimed");
        },
    )
}

#[test]
fn in_every_order_with_every_loss_one_of_two_finishes_it() {
    let mut all = 0;
    for idempotency_records in [true, false] {
        all += every_way(2, Budget { unknown: 1, deaths: 0, waits: 2 }, idempotency_records).0;
        all += every_way(2, Budget { unknown: 0, deaths: 1, waits: 3 }, idempotency_records).0;
    }
    assert!(all > 500, "{all}");
}
