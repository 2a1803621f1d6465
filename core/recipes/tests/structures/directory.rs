//! Directories under concurrent changes, crashes and lost answers: an operation's result must be true of a moment between its begin and its
//! end.
//!
//! The device executes one request after the other. So the directory's content after each request is known, and so is the request that
//! changed it: every insertion uses an object that no other insertion uses.

use crate::bench::*;
use crate::history::History;
use crate::sequential::Alone;
use braid_base::Rng;
use braid_recipes::directory::{Changed, Directory, Entry, Expected, LINKED_LIST_PAGE, LOCKS_PAGE, NAMES_PAGE};
use std::num::NonZeroU32;

pub const OBJECT: ObjectId = ObjectId(9);

/// The content of a directory.
pub type Contents = BTreeMap<Bytes, ObjectId>;

/// A directory in which names collide.
pub fn small(bits: u32) -> Directory {
    let linked = NonZeroU32::new(8).expect("eight");
    Directory { bits, linked, lease: Duration::from_secs(1), ..Directory::new(OBJECT) }
}

/// Reads the directory by its documented format, and checks its invariants.
pub fn contents(space: &Space, directory: Directory) -> Contents {
    let value = |page, number| space.value(OBJECT, AttributeName::new(page, number));
    let mut linked: BTreeSet<u32> = numbers(space, LINKED_LIST_PAGE);
    let mut found = Contents::new();
    for slot in numbers(space, NAMES_PAGE) {
        let first = value(NAMES_PAGE, slot);
        let marked = first[0] & 0x80 != 0;
        assert!(!marked || !value(LOCKS_PAGE, slot).is_empty(), "a mark without a lock blocks the slot forever");
        let mut entry = first;
        loop {
            let (next, object) = (u32::from_be_bytes(entry[4..8].try_into().unwrap()), &entry[8..16]);
            let name = entry.slice(16..);
            assert_eq!(directory.slot(&name), slot, "{name:?} is in the wrong slot");
            let object = ObjectId(u64::from_be_bytes(object.try_into().unwrap()));
            assert_eq!(found.insert(name.clone(), object), None, "{name:?} is there twice");
            if next == 0 {
                break;
            }
            assert!(linked.remove(&next), "a pointer to nothing, or two pointers to one entry");
            entry = value(LINKED_LIST_PAGE, next);
        }
    }
    assert!(linked.is_empty(), "unreachable entries: {linked:?}");
    found
}

fn numbers(space: &Space, page: u32) -> BTreeSet<u32> {
    space.attributes(OBJECT, page).into_iter().map(|name| name.number).collect()
}

pub type Observations = History<Contents, (Bytes, What)>;

/// The result of an operation on a name.
#[derive(Debug)]
pub enum What {
    Found(Option<ObjectId>),
    Inserted(ObjectId, Result<Changed, RequestFailure>),
    Removed(Result<Changed, RequestFailure>),
    Told(Vec<(Bytes, ObjectId)>),
}

/// Checks a change.
fn look(observed: &mut Observations, space: &Space, directory: Directory) {
    observed.look(contents(space, directory), |last, now| {
        let changed = |name: &&Bytes| now.get(*name) != last.get(*name);
        let names: BTreeSet<&Bytes> = now.keys().chain(last.keys()).filter(changed).collect();
        assert_eq!(names.len(), 1, "a request changes one name");
        let name = names.first().expect("one");
        assert!(!now.contains_key(*name) || !last.contains_key(*name), "an existing name stands for another object");
    });
}

/// Checks the result of every operation. `all`: no client crashed or lost an answer.
fn check(observed: &Observations, all: bool, idempotency_records: bool) {
    // When each object was inserted and removed.
    let (mut came, mut went) = (BTreeMap::new(), BTreeMap::new());
    for (number, last, now) in observed.changes() {
        for (_, object) in now.iter().filter(|(name, _)| !last.contains_key(*name)) {
            assert_eq!(came.insert(*object, number), None, "{object} was inserted twice");
        }
        let gone = last.iter().filter(|(name, _)| !now.contains_key(*name));
        went.extend(gone.map(|(_, object)| (*object, number)));
    }
    let mut removed = BTreeSet::new();
    let mut unknown = 0;
    for (during, states, (name, what)) in observed.ended() {
        let at_some_moment = |is: Option<ObjectId>| {
            let held = states.iter().any(|state| state.get(name).copied() == is);
            assert!(held, "{name:?} {what:?}: the result was true at no moment of the operation");
        };
        let within = |when: Option<&usize>| when.is_some_and(|when| during.contains(when));
        match what {
            What::Found(object) => at_some_moment(*object),
            What::Inserted(object, Ok(Changed::Inserted)) => {
                assert!(within(came.get(object)), "{name:?} was not inserted by the operation that reported it");
            }
            What::Inserted(object, Ok(Changed::Exists(other))) => {
                assert_eq!(came.get(object), None, "it was inserted, although that was not reported");
                at_some_moment(Some(*other));
            }
            What::Removed(Ok(Changed::Removed(object))) => {
                assert!(within(went.get(object)), "{name:?} was not removed by the operation that reported it");
                assert!(removed.insert(*object), "{object} was removed twice");
            }
            What::Removed(Ok(Changed::Absent)) => at_some_moment(None),
            What::Removed(Ok(Changed::Other(other))) => at_some_moment(Some(*other)),
            What::Inserted(_, Err(RequestFailure::Unknown)) | What::Removed(Err(RequestFailure::Unknown)) => {
                assert!(!idempotency_records, "with an idempotency record, no outcome is unknown");
                unknown += 1;
            }
            What::Told(told) => check_told(told, states),
            other => panic!("{name:?}: {other:?}"),
        }
    }
    if all && unknown == 0 {
        assert_eq!(removed.len(), went.len(), "every removal is reported");
    }
}

fn check_told(told: &[(Bytes, ObjectId)], states: &[Contents]) {
    let names: BTreeSet<&Bytes> = told.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), told.len(), "a name is returned twice: {told:?}");
    for (name, object) in told {
        assert!(states.iter().any(|state| state.get(name) == Some(object)), "{name:?} was never there");
    }
    let throughout = states[0].keys().filter(|name| states.iter().all(|state| state.contains_key(*name)));
    for name in throughout {
        assert!(names.contains(name), "{name:?} was there throughout, and was not returned");
    }
}

/// The operations of clients.
#[derive(Clone, Debug)]
pub enum Op {
    LookUp(&'static str),
    Insert(&'static str, u64),
    /// Whatever object it stands for.
    Remove(&'static str),
    /// If it stands for this object.
    RemoveObject(&'static str, u64),
    /// If it is the entry that was last looked up.
    RemoveSeen(&'static str),
    Names(u32),
}

fn name(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// Runs one operation after the other.
async fn client(me: Me<Observations>, directory: Directory, ops: Vec<Op>) {
    let mut seen: Option<Entry> = None;
    for op in ops {
        let begin = me.observed().now();
        let (of, what) = match op {
            Op::LookUp(text) => {
                seen = me.run(directory.look_up(name(text))).await.expect("a look-up has no unknown outcome");
                (name(text), What::Found(seen.as_ref().map(|entry| entry.object)))
            }
            Op::Insert(text, object) => {
                let outcome = me.run(directory.insert(name(text), ObjectId(object))).await;
                (name(text), What::Inserted(ObjectId(object), outcome))
            }
            Op::Remove(_) | Op::RemoveObject(..) | Op::RemoveSeen(_) => {
                let (of, expected) = match (op, seen.take()) {
                    (Op::RemoveObject(text, object), _) => (name(text), Expected::Object(ObjectId(object))),
                    (Op::RemoveSeen(_), Some(seen)) => (seen.name.clone(), Expected::Seen(seen)),
                    (Op::Remove(text) | Op::RemoveSeen(text), _) => (name(text), Expected::Anything),
                    (other, _) => panic!("not a removal: {other:?}"),
                };
                (of.clone(), What::Removed(me.run(directory.remove(of, expected)).await))
            }
            Op::Names(most) => {
                seen = None;
                let (mut told, mut after) = (Vec::new(), None);
                loop {
                    let page = me.run(directory.names(after, most)).await;
                    let page = page.expect("listing names has no unknown outcome");
                    told.extend(page.names);
                    after = page.more;
                    if after.is_none() {
                        break;
                    }
                }
                (Bytes::new(), What::Told(told))
            }
        };
        me.observed().end(begin, (of, what));
    }
}

const NAMES: [&str; 5] = ["anna", "bert", "carl", "dora", "emil"];

fn some_ops(client: u64, rng: &mut Rng) -> Vec<Op> {
    let op = |number| {
        let name = NAMES[rng.below(NAMES.len() as u64) as usize];
        match rng.below(10) {
            0 | 1 => Op::LookUp(name),
            2..=5 => Op::Insert(name, 1000 * (client + 1) + number),
            6 => Op::Remove(name),
            7 => Op::RemoveObject(name, 1000 * (1 + rng.below(4)) + rng.below(8)),
            8 => Op::RemoveSeen(name),
            _ => Op::Names(1 + rng.below(2) as u32),
        }
    };
    (0..8).map(op).collect()
}

fn swarm(seed: u64, idempotency_records: bool) -> (usize, usize) {
    let directory = small(seed as u32 % 3);
    let mut world = World::new(seed, ROUGH, &[OBJECT], Observations::new(vec![Contents::new()]));
    world.after_each(move |observed, space| look(observed, space, directory));
    let mut rng = Rng::new(seed ^ 0x5eed);
    let clients: Vec<usize> = (0..4)
        .map(|number| {
            let idempotency_record = idempotency_records.then_some(IdempotencyRecord(number as u32));
            let (directory, ops) = (Directory { idempotency_record, ..directory }, some_ops(number, &mut rng));
            world.client(move |me| client(me, directory, ops))
        })
        .collect();
    world.run();
    let all = clients.iter().all(|client| world.fate(*client) == Fate::Through);
    check(&world.observed(), all, idempotency_records);
    // Whatever crashed clients left behind, a new client makes progress.
    let after = NAMES.iter().flat_map(|name| [Op::Remove(name), Op::Insert(name, 9000), Op::Remove(name)]);
    let mut ops: Vec<Op> = after.collect();
    for (number, op) in ops.iter_mut().enumerate() {
        if let Op::Insert(_, object) = op {
            *object += number as u64;
        }
    }
    ops.push(Op::Names(8));
    let own = Directory { idempotency_record: Some(IdempotencyRecord(100)), ..directory };
    let newcomer = world.immortal(move |me| client(me, own, ops));
    world.run();
    assert_eq!(world.fate(newcomer), Fate::Through);
    check(&world.observed(), false, idempotency_records);
    assert!(contents(&world.space, directory).is_empty());
    assert_eq!(world.space.attributes(OBJECT, NAMES_PAGE), []);
    let observed = world.observed();
    let outcomes = observed.ended().map(|(_, _, (_, what))| what);
    let unknowns = outcomes.filter(|what| matches!(what, What::Inserted(_, Err(_)) | What::Removed(Err(_))));
    (observed.states.len(), unknowns.count())
}

#[test]
fn in_swarm_runs_every_answer_is_true() {
    let (mut changes, mut unknowns) = (0, 0);
    for seed in 0..300 {
        changes += swarm(seed, true).0;
        let (more, doubtful) = swarm(seed, false);
        changes += more;
        unknowns += doubtful;
    }
    assert!(changes > 5000, "{changes} changes are too few");
    assert!(
        (1..500).contains(&unknowns),
        "{unknowns} unknown outcomes: without an idempotency record they occur, but rarely"
    );
}

/// Clients in one slot, in every order of steps, with a lost answer or a crash at every possible point. `first`: the content at the
/// beginning.
fn every_way(
    first: &[(&'static str, u64)],
    clients: &[&[Op]],
    budget: Budget,
    idempotency_records: bool,
) -> (u64, u64) {
    let directory = small(0);
    let mut alone = Alone::with(Space::with(&[OBJECT]));
    let mut states = vec![Contents::new()];
    for (text, object) in first {
        assert_eq!(alone.run(directory.insert(name(text), ObjectId(*object))), Ok(Changed::Inserted));
        states.push(contents(&alone.space, directory));
    }
    let begin = || {
        let observed = Observations::new(states.clone());
        let doing = clients.iter().zip(0..).map(|(ops, number)| {
            let idempotency_record = idempotency_records.then_some(IdempotencyRecord(number));
            let (directory, ops) = (Directory { idempotency_record, ..directory }, ops.to_vec());
            doing(move |me| client(me, directory, ops))
        });
        let doing = doing.collect();
        (observed, doing)
    };
    let look = move |observed: &mut Observations, space: &Space| look(observed, space, directory);
    explore(budget, &alone.space, begin, look, |world| {
        check(&world.observed(), false, idempotency_records);
        // Nothing is blocked forever, whichever client has crashed.
        let mut newcomer = Alone { now: world.now, ..Alone::with(world.space.clone()) };
        for (text, object) in contents(&world.space, directory) {
            assert_eq!(newcomer.run(directory.remove(text, Expected::Anything)), Ok(Changed::Removed(object)));
        }
        assert_eq!(contents(&newcomer.space, directory), Contents::new());
    })
}

const LOSS: Budget = Budget { unknown: 1, deaths: 0, waits: 2 };
const DEATH: Budget = Budget { unknown: 0, deaths: 1, waits: 3 };

fn with_every_loss(first: &[(&'static str, u64)], clients: &[&[Op]]) {
    for (budget, idempotency_records) in [(LOSS, true), (LOSS, false), (DEATH, true), (DEATH, false)] {
        every_way(first, clients, budget, idempotency_records);
    }
}

#[test]
fn in_every_order_with_every_loss_two_that_collide_are_both_inserted() {
    let ways: u64 = [LOSS, DEATH]
        .map(|budget| {
            let (ways, ended) = every_way(&[], &[&[Op::Insert("anna", 1)], &[Op::Insert("bert", 2)]], budget, true);
            assert!(ended * 2 > ways, "most runs come to their end: {ended} of {ways}");
            ways
        })
        .iter()
        .sum();
    assert!(ways > 40, "{ways}");
}

#[test]
fn in_every_order_with_every_loss_one_of_two_has_the_name() {
    with_every_loss(&[], &[&[Op::Insert("anna", 1)], &[Op::Insert("anna", 2)]]);
    with_every_loss(&[("bert", 9)], &[&[Op::Insert("anna", 1)], &[Op::Insert("anna", 2)]]);
}

#[test]
fn in_every_order_with_every_loss_an_insert_meets_a_removal() {
    with_every_loss(&[("bert", 9)], &[&[Op::Insert("anna", 1)], &[Op::Remove("bert")]]);
    // The first entry of a chain is removed, and then the second, while a client reads.
    let first = &[("anna", 8), ("bert", 9)];
    let lost = Budget { unknown: 1, deaths: 0, waits: 0 };
    every_way(first, &[&[Op::Remove("anna")], &[Op::Remove("bert")]], Budget { waits: 1, ..lost }, true);
    every_way(first, &[&[Op::Remove("anna")], &[Op::Remove("bert")]], Budget { waits: 2, ..DEATH }, true);
    every_way(first, &[&[Op::Remove("anna")], &[Op::LookUp("bert"), Op::LookUp("anna")]], lost, true);
}

#[test]
fn in_every_order_a_name_that_comes_again_is_not_taken_for_the_one_before() {
    let again: &[Op] = &[Op::Remove("anna"), Op::Insert("anna", 2)];
    for first in [&[("anna", 1)][..], &[("anna", 1), ("bert", 9)], &[("bert", 9), ("anna", 1)]] {
        let calm = Budget { unknown: 0, deaths: 0, waits: 1 };
        every_way(first, &[again, &[Op::LookUp("anna"), Op::RemoveSeen("anna")]], calm, true);
        every_way(first, &[again, &[Op::RemoveObject("anna", 1)]], calm, true);
    }
}

#[test]
fn in_every_order_readers_of_a_chain_see_it_as_it_is_at_one_moment() {
    let first = &[("anna", 1), ("bert", 2), ("carl", 3)];
    let calm = Budget { unknown: 0, deaths: 0, waits: 1 };
    every_way(first, &[&[Op::LookUp("carl")], &[Op::Remove("anna"), Op::Insert("dora", 4)]], calm, true);
    every_way(first, &[&[Op::Names(1)], &[Op::Remove("anna"), Op::Insert("anna", 4)]], calm, true);
    every_way(first, &[&[Op::Names(1)], &[Op::Remove("bert"), Op::Insert("dora", 4)]], calm, true);
}
