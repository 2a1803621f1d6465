//! Lists under concurrent changes, crashes and lost answers: an operation's result must be true of a moment between its begin and its end.

use crate::bench::*;
use crate::history::History;
use crate::sequential::Alone;
use braid_base::Rng;
use braid_recipes::list::{Cursor, ITEMS_PAGE, Inserted, LINKS_PAGE, List, ListPosition, NODE_COUNTER, Node, Removed};

pub const OBJECT: ObjectId = ObjectId(9);

/// The content of a list: the nodes that are not removed.
pub type Contents = Vec<(u64, Bytes)>;

/// Reads the list by its documented format, and checks its invariants. Also returns how many nodes are marked.
pub fn contents(space: &Space) -> (Contents, usize) {
    let numbers = |page| -> BTreeSet<u64> {
        space.attributes(OBJECT, page).into_iter().map(|name| u64::from(name.number)).collect()
    };
    let mut nodes = numbers(LINKS_PAGE);
    nodes.remove(&0);
    assert!(numbers(ITEMS_PAGE).is_subset(&nodes), "items without a node");
    let link = |node: u64| {
        let value = space.value(OBJECT, AttributeName::new(LINKS_PAGE, node as u32));
        let word = if value.is_empty() { 0 } else { u64::from_be_bytes(value[..].try_into().unwrap()) };
        (word >> 63 != 0, word & !(1 << 63))
    };
    let (mut found, mut marked) = (Contents::new(), 0);
    let mut next = link(0).1;
    while next != 0 {
        assert!(nodes.remove(&next), "a pointer to nothing, or two pointers to one node");
        let (removed, behind) = link(next);
        if removed {
            marked += 1;
        } else {
            found.push((next, space.value(OBJECT, AttributeName::new(ITEMS_PAGE, next as u32))));
        }
        next = behind;
    }
    assert!(nodes.is_empty(), "unreachable nodes: {nodes:?}");
    (found, marked)
}

pub type Observations = History<Contents, What>;

#[derive(Debug)]
pub enum What {
    Inserted(Bytes, ListPosition, Result<Inserted, RequestFailure>),
    Removed(u64, Result<Removed, RequestFailure>),
    Walked(Contents),
}

/// Checks a change. `sorted`: all items are inserted in order.
fn look(observed: &mut Observations, space: &Space, sorted: bool) {
    observed.look(contents(space).0, |last, now| {
        let (longer, shorter) = if now.len() > last.len() { (now, last) } else { (last, now) };
        let changed = (0..longer.len()).find(|at| longer.get(*at) != shorter.get(*at)).expect("they differ");
        let mut without = longer.clone();
        without.remove(changed);
        assert_eq!(without, *shorter, "a request changes one node, and not the order");
        assert!(!sorted || now.is_sorted_by_key(|(_, item)| item.clone()), "{now:?}");
    });
}

/// Checks the result of every operation. `all`: no client crashed.
fn check(observed: &Observations, all: bool, idempotency_records: bool) {
    let (mut came, mut went) = (BTreeMap::new(), BTreeMap::new());
    for (number, last, now) in observed.changes() {
        let has = |state: &Contents, node: u64| state.iter().any(|(other, _)| *other == node);
        for (at, (node, item)) in now.iter().enumerate().filter(|(_, (node, _))| !has(last, *node)) {
            let before = at.checked_sub(1).map(|before| now[before].0);
            assert_eq!(came.insert(item.clone(), (number, *node, before)), None, "{item:?} was inserted twice");
        }
        went.extend(last.iter().filter(|(node, _)| !has(now, *node)).map(|(node, _)| (*node, number)));
    }
    let mut removed = BTreeSet::new();
    let mut unknown = 0;
    for (during, states, what) in observed.ended() {
        match what {
            What::Inserted(item, place, Ok(Inserted::Inserted(node))) => {
                let (when, came_as, before) = came[item];
                assert!(
                    during.contains(&when) && came_as == node.0,
                    "{item:?} was not inserted by the operation that reported it"
                );
                match place {
                    ListPosition::First => assert_eq!(before, None),
                    ListPosition::Behind(node) => assert_eq!(before, Some(node.0)),
                    ListPosition::InOrder => {}
                }
            }
            What::Inserted(item, ListPosition::Behind(node), Ok(Inserted::PlaceGone)) => {
                assert!(!came.contains_key(item), "it was inserted, although that was not reported");
                assert!(states.iter().any(|state| state.iter().all(|(other, _)| *other != node.0)));
            }
            What::Removed(node, Ok(Removed::Removed)) => {
                assert!(during.contains(&went[node]), "{node} was not removed by the operation that reported it");
                assert!(removed.insert(*node), "{node} was removed twice");
            }
            What::Removed(node, Ok(Removed::Gone)) => {
                assert!(states.iter().any(|state| state.iter().all(|(other, _)| other != node)));
            }
            What::Inserted(_, _, Err(RequestFailure::Unknown)) | What::Removed(_, Err(RequestFailure::Unknown)) => {
                assert!(!idempotency_records, "with an idempotency record, no outcome is unknown");
                let is_it = |(node, item): &(u64, Bytes)| match what {
                    What::Inserted(inserted, ..) => item == inserted,
                    What::Removed(removed, _) => node == removed,
                    What::Walked(_) => false,
                };
                let last = states.last().expect("there is one");
                assert!(!last.iter().any(is_it), "a node that is there tells the outcome");
                unknown += 1;
            }
            What::Walked(told) => check_walked(told, states),
            other => panic!("{other:?}"),
        }
    }
    if all && unknown == 0 {
        assert_eq!(removed.len(), went.len(), "every removal is reported");
    }
}

fn check_walked(told: &Contents, states: &[Contents]) {
    let nodes: BTreeSet<u64> = told.iter().map(|(node, _)| *node).collect();
    assert_eq!(nodes.len(), told.len(), "a node is returned twice: {told:?}");
    for one in told {
        assert!(states.iter().any(|state| state.contains(one)), "{one:?} was never there");
    }
    for one in states[0].iter().filter(|one| states.iter().all(|state| state.contains(one))) {
        assert!(told.contains(one), "{one:?} was there throughout, and was not returned: {told:?}");
    }
    // Only nodes that are still in the list are compared: a node may have been removed after it was returned.
    let last = states.last().expect("there is one");
    let order = |node: &u64| last.iter().position(|(other, _)| other == node);
    let told: Vec<usize> = told.iter().filter_map(|(node, _)| order(node)).collect();
    assert!(told.is_sorted(), "not in the order of the list");
}

/// The operations of clients. Positions and nodes are chosen among those seen last.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    First,
    Behind(u64),
    InOrder(u8),
    Remove(u64),
    Walk(usize),
    Apart,
}

/// Runs one operation after the other. `seen`: the nodes seen last, in order.
async fn client(me: Me<Observations>, list: List, ops: Vec<(Op, Bytes)>, mut seen: Vec<u64>) {
    for (op, item) in ops {
        let begin = me.observed().now();
        let pick = |which: u64| (!seen.is_empty()).then(|| seen[(which % seen.len() as u64) as usize]);
        let (place, item) = match op {
            Op::First => (ListPosition::First, item),
            Op::Behind(which) => {
                (pick(which).map_or(ListPosition::First, |node| ListPosition::Behind(Node(node))), item)
            }
            Op::InOrder(letter) => (ListPosition::InOrder, [&[letter], &item[..]].concat().into()),
            Op::Remove(which) => {
                let node = pick(which).unwrap_or(1);
                let before = seen.iter().position(|other| *other == node).and_then(|at| at.checked_sub(1));
                let before = before.map(|at| Node(seen[at]));
                let outcome = me.run(list.remove(Node(node), before)).await;
                me.observed().end(begin, What::Removed(node, outcome));
                continue;
            }
            Op::Apart => {
                me.ask(apart()).await;
                continue;
            }
            Op::Walk(most) => {
                let (mut told, mut cursor) = (Contents::new(), Some(Cursor::default()));
                while let Some(from) = cursor {
                    let walked = me.run(list.walk(from, most)).await.expect("a walk has no unknown outcome");
                    told.extend(walked.items.into_iter().map(|(node, item)| (node.0, item)));
                    cursor = walked.more;
                }
                seen = told.iter().map(|(node, _)| *node).collect();
                me.observed().end(begin, What::Walked(told));
                continue;
            }
        };
        let outcome = me.run(list.insert(place, item.clone())).await;
        me.observed().end(begin, What::Inserted(item, place, outcome));
    }
}

fn item(client: u64, number: u64) -> Bytes {
    Bytes::from(format!("{client}-{number}"))
}

/// Leaves some numbers out, so that not all nodes are read with one request.
fn apart() -> ObjectRequest {
    one(OBJECT, Action::FetchAndAdd { name: NODE_COUNTER, add: 20, original: false })
}

fn some_ops(client: u64, sorted: bool, rng: &mut Rng) -> Vec<(Op, Bytes)> {
    let mut op = || match rng.below(10) {
        0..=3 if sorted => Op::InOrder(b'a' + rng.below(4) as u8),
        0 => Op::First,
        1..=3 => Op::Behind(rng.next_u64()),
        4..=6 => Op::Remove(rng.next_u64()),
        7 => Op::Apart,
        _ => Op::Walk(1 + rng.below(4) as usize),
    };
    (0..10).map(|number| (op(), item(client, number))).collect()
}

fn swarm(seed: u64, idempotency_records: bool) -> usize {
    let sorted = seed.is_multiple_of(2);
    let list = List::new(OBJECT);
    let mut world = World::new(seed, ROUGH, &[OBJECT], Observations::new(vec![Contents::new()]));
    world.after_each(move |observed, space| look(observed, space, sorted));
    let mut rng = Rng::new(seed ^ 0x5eed);
    let clients: Vec<usize> = (0..4)
        .map(|number| {
            let idempotency_record = idempotency_records.then_some(IdempotencyRecord(number as u32));
            let (list, ops) = (List { idempotency_record, ..list }, some_ops(number, sorted, &mut rng));
            world.client(move |me| client(me, list, ops, Vec::new()))
        })
        .collect();
    world.run();
    let all = clients.iter().all(|client| world.fate(*client) == Fate::Through);
    check(&world.observed(), all, idempotency_records);
    // Nodes that crashed clients left marked are unlinked by a later operation.
    let mut newcomer = Alone { now: world.now, rng: Rng::new(seed), ..Alone::with(world.space.clone()) };
    newcomer.run(list.insert(ListPosition::InOrder, Bytes::from_static(b"~"))).unwrap();
    if sorted {
        assert_eq!(contents(&newcomer.space).1, 0, "marked nodes are left");
    }
    world.observed().states.len()
}

#[test]
fn in_swarm_runs_every_answer_is_true() {
    let changes: usize = (0..100).map(|seed| swarm(seed, true) + swarm(seed, false)).sum();
    assert!(changes > 1500, "{changes} changes are too few");
}

fn every_way(items: usize, clients: &[&[Op]], budget: Budget, idempotency_records: bool) -> (u64, u64) {
    let list = List::new(OBJECT);
    let mut alone = Alone::with(Space::with(&[OBJECT]));
    for number in (0..items as u64).rev() {
        alone.space.execute(&apart()).unwrap();
        alone.run(list.insert(ListPosition::First, item(9, number))).unwrap();
    }
    let first = contents(&alone.space).0;
    let begin = || {
        let observed = Observations::new(vec![first.clone()]);
        let doing = clients.iter().zip(0_u32..).map(|(ops, number)| {
            let idempotency_record = idempotency_records.then_some(IdempotencyRecord(number));
            let named = ops.iter().zip(0..).map(|(op, at)| (*op, item(u64::from(number), at))).collect();
            let (list, seen) = (List { idempotency_record, ..list }, first.iter().map(|(node, _)| *node).collect());
            doing(move |me| client(me, list, named, seen))
        });
        let doing = doing.collect();
        (observed, doing)
    };
    let look = |observed: &mut Observations, space: &Space| look(observed, space, false);
    explore(budget, &alone.space, begin, look, |world| check(&world.observed(), false, idempotency_records))
}

const LOSS: Budget = Budget { unknown: 1, deaths: 0, waits: 0 };
const DEATH: Budget = Budget { unknown: 0, deaths: 1, waits: 0 };
const CALM: Budget = Budget { unknown: 0, deaths: 0, waits: 0 };

#[test]
fn in_every_order_with_every_loss_neighbours_come_and_go() {
    let mut ways = 0;
    for budget in [LOSS, DEATH] {
        for idempotency_records in [true, false] {
            ways += every_way(1, &[&[Op::First], &[Op::First]], budget, idempotency_records).0;
            ways += every_way(1, &[&[Op::Behind(0)], &[Op::Remove(0)]], budget, idempotency_records).0;
            ways += every_way(1, &[&[Op::Remove(0)], &[Op::Remove(0)]], budget, idempotency_records).0;
            ways += every_way(2, &[&[Op::Remove(0)], &[Op::Remove(1)]], budget, idempotency_records).0;
            ways += every_way(2, &[&[Op::Behind(0)], &[Op::Remove(1)]], budget, idempotency_records).0;
        }
    }
    ways += every_way(3, &[&[Op::Remove(0)], &[Op::Remove(1)], &[Op::Behind(1)]], CALM, true).0;
    assert!(ways > 1000, "{ways}");
}

#[test]
fn in_every_order_a_walk_sees_what_is_there_throughout() {
    every_way(3, &[&[Op::Walk(3)], &[Op::Remove(0), Op::Behind(1)]], CALM, true);
    every_way(3, &[&[Op::Walk(3)], &[Op::Remove(1)], &[Op::Remove(0)]], CALM, true);
    every_way(3, &[&[Op::Walk(2)], &[Op::Remove(1), Op::Remove(0)]], CALM, true);
    every_way(3, &[&[Op::Walk(1)], &[Op::Remove(1)]], CALM, true);
    every_way(3, &[&[Op::Walk(1)], &[Op::Remove(1)]], DEATH, true);
}
