//! All orders of a small world: one transaction, or two, under every order of deliveries, writes, time-outs and crashes. Messages may be lost,
//! late and doubled at will. From every state that is found, everything must come to a consistent end.

use crate::world::*;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Action {
    Deliver((ShardId, ShardId, Bytes)),
    Flush(ShardId),
    Evaluate(ShardId, TransactionName),
    Wake(ShardId),
    Crash(ShardId),
    Ask(Vec<u8>),
}

/// What is explored: the world, what clients ask for, and how often servers crash.
struct Scope {
    world: World,
    asks: Vec<Vec<u8>>,
    crashes: u32,
    /// From one in so many states, everything must come to its end.
    ends_every: u64,
}

#[derive(Clone)]
struct Found {
    world: World,
    crashes: u32,
    /// How many of the requests of clients have been made.
    asked: usize,
}

impl Scope {
    /// Visits every state; returns how many there are.
    fn explore(&self) -> usize {
        let mut seen = BTreeSet::new();
        let mut next = vec![Found { world: self.world.clone(), crashes: 0, asked: 0 }];
        while let Some(found) = next.pop() {
            let fingerprint = found.world.fingerprint();
            if !seen.insert((fingerprint, found.crashes, found.asked)) {
                continue;
            }
            found.world.check();
            if fingerprint % self.ends_every == 0 {
                let mut end = found.world.clone();
                assert!(end.settle(), "everything comes to an end: {end:?}");
                end.check_at_rest();
            }
            next.extend(self.actions(&found).iter().map(|action| act(&found, action)));
        }
        seen.len()
    }

    fn actions(&self, found: &Found) -> Vec<Action> {
        let mut actions: Vec<Action> = found.world.network.iter().cloned().map(Action::Deliver).collect();
        for (shard, server) in &found.world.servers {
            if !server.journal.is_empty() {
                actions.push(Action::Flush(*shard));
            }
            actions.extend(server.waiting.keys().map(|name| Action::Evaluate(*shard, *name)));
            actions.push(Action::Wake(*shard));
            if found.crashes < self.crashes {
                actions.push(Action::Crash(*shard));
            }
        }
        if let Some(numbers) = self.asks.get(found.asked) {
            actions.push(Action::Ask(numbers.clone()));
        }
        actions
    }
}

fn act(found: &Found, action: &Action) -> Found {
    let mut next = found.clone();
    match action {
        Action::Deliver(message) => next.world.deliver(message),
        Action::Flush(shard) => next.world.flush(*shard),
        Action::Evaluate(shard, name) => {
            next.world.evaluate(*shard, *name, false);
        }
        Action::Wake(shard) => next.world.wake(*shard),
        Action::Crash(shard) => {
            next.world.crash(*shard);
            next.crashes += 1;
        }
        Action::Ask(numbers) => {
            next.world.ask(numbers);
            next.asked += 1;
        }
    }
    next.world.fresh.clear();
    next
}

fn operation(number: u8, coordinator: u8, workers: &[u8], refusers: &[u8]) -> ClientOperation {
    let shards = |list: &[u8]| list.iter().map(|shard| ShardId(*shard)).collect();
    let (workers, refusers) = (shards(workers), shards(refusers));
    ClientOperation { number, coordinator: ShardId(coordinator), workers, object: number, refusers }
}

/// Explores; at least that many states must be there, lest the scope shrinks unseen.
fn explore(
    protocol: Protocol,
    servers: u8,
    operations: Vec<ClientOperation>,
    asks: &[&[u8]],
    crashes: u32,
    (states_min, ends_every): (usize, u64),
) {
    let asks = asks.iter().map(|numbers| numbers.to_vec()).collect();
    let scope = Scope { world: World::new(protocol, servers, operations), asks, crashes, ends_every };
    let states = scope.explore();
    println!("{protocol}: {states} states");
    assert!(states >= states_min, "{protocol}: only {states} states");
}

#[test]
fn operations_are_committed_and_refused_each_by_itself_with_two_crashes_anywhere() {
    let cases: [(_, &[u8], _); 3] = [
        (vec![operation(1, 0, &[1], &[])], &[1], [2000, 2000, 700, 30]),
        (vec![operation(1, 0, &[1], &[1])], &[1], [300, 300, 400, 60]),
        (vec![operation(1, 0, &[1], &[]), operation(2, 0, &[1], &[1])], &[1, 2], [2000, 2000, 700, 30]),
    ];
    for (operations, asks, states) in cases {
        for (protocol, states) in Protocol::ALL.into_iter().zip(states) {
            explore(protocol, 2, operations.clone(), &[asks], 2, (states, 1));
        }
    }
}

#[test]
fn one_phase_operations_of_two_coordinators_or_on_one_object_end() {
    let other = ClientOperation { object: 1, ..operation(2, 0, &[1], &[]) };
    for (other, states) in [(operation(2, 1, &[0], &[]), 300), (other, 100)] {
        let operations = vec![operation(1, 0, &[1], &[]), other];
        explore(Protocol::OnePhase, 2, operations, &[&[1], &[2]], 2, (states, 1));
    }
}

#[test]
fn three_servers_decide_alike() {
    for (protocol, states) in Protocol::ALL.into_iter().zip([2000, 2000, 1000]) {
        explore(protocol, 3, vec![operation(1, 0, &[1, 2], &[2])], &[&[1]], 1, (states, 1));
    }
    explore(Protocol::EarlyPrepare, 3, vec![operation(1, 0, &[1, 2], &[])], &[&[1]], 1, (10_000, 8));
}
