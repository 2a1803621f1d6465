//! The recovery cases of the one-phase-commit paper, one by one: sections II-C (two-phase commit) and III-C (one-phase commit), and what the
//! paper does not have: blackouts, late requests, refusals, and questions without a record.

use crate::world::*;
use braid_commit::Protocol::*;

const COORDINATOR: ShardId = ShardId(0);
const WORKER: ShardId = ShardId(1);

/// A case: what is shown, with which protocols, and its steps ([`play`]). `started`: STARTED is durable, and UPDATE is sent. `updated`: the
/// worker has done what its protocol lets it do at UPDATE, and has sent UPDATED. `prepared`: both sides have prepared (PrN, PrC), and PREPARED is sent.
const CASES: &[(&str, &[Protocol], &str)] = &[
    (
        "a coordinator found STARTED sends the same request again",
        &[OnePhase],
        "started, lose UPDATE, crash C, sent UPDATE, messages 1, end done",
    ),
    (
        "a worker that has committed says so again, and does not do it again",
        &[OnePhase],
        "updated, lose UPDATED, crash C, deliver, idle, sent UPDATED, end done",
    ),
    (
        "a worker without a record does a repeated request; UPDATED waits for COMMITTED",
        &[OnePhase],
        "started, deliver, evaluate, crash W, lose, wake C, sent UPDATE, end done",
    ),
    (
        "a worker found COMMITTED asks for the acknowledgement; the coordinator has no record, and knows by that",
        &[OnePhase],
        "updated, deliver, flush C, lose ACKNOWLEDGE, crash W, sent UPDATED, deliver, sent ACKNOWLEDGE, end done",
    ),
    (
        "the client is answered, and the lock is released, before the coordinator has committed",
        &[OnePhase],
        "updated, deliver, answered done, free, crash C, locked, end done",
    ),
    (
        "a refusal is logged before it is said, outlives both servers, and the client hears of it when it is durable",
        &[OnePhase],
        "refused, flush C, deliver, evaluate, sent, flush W, lose UPDATED, crash W, crash C, deliver, idle, deliver, \
         answered open, end refused",
    ),
    (
        "a late request is not done again: the mark says that it is over",
        &Protocol::ALL,
        "started, settle, crash W, replay, idle, end done",
    ),
    (
        "a coordinator found STARTED aborts",
        &[PresumeNothing, PresumeCommit],
        "updated, lose UPDATED, crash C, flush C, sent ABORT, deliver, flush W, sent ACKNOWLEDGE, end open",
    ),
    (
        "a coordinator found PREPARED asks again",
        &[PresumeNothing, PresumeCommit],
        "prepared, lose PREPARED, crash C, sent PREPARE, deliver, sent PREPARED, ask, end done",
    ),
    (
        "a worker without an entry is not prepared",
        &[PresumeNothing, PresumeCommit],
        "updated, deliver, crash W, deliver, sent NOT-PREPARED, end open",
    ),
    (
        "a worker found PREPARED asks",
        &[PresumeNothing, PresumeCommit],
        "prepared, deliver, flush C, lose COMMIT, crash W, sent ASK, deliver, sent COMMIT, end done",
    ),
    (
        "a coordinator found COMMITTED tells until it is confirmed; the client is answered after ACKNOWLEDGE",
        &[PresumeNothing],
        "prepared, deliver, flush C, answered open, deliver, flush W, lose ACKNOWLEDGE, crash C, sent COMMIT, deliver, \
         sent ACKNOWLEDGE, ask, end done",
    ),
    (
        "a coordinator without a record answers with COMMIT",
        &[PresumeCommit],
        "prepared, deliver, flush C, lose COMMIT, crash C, lose, wake W, sent ASK, deliver, sent COMMIT, end done",
    ),
    (
        "a coordinator without a record answers with COMMIT",
        &[EarlyPrepare],
        "updated, deliver, flush C, lose COMMIT, crash C, lose, wake W, sent ASK, deliver, sent COMMIT, end done",
    ),
];

/// An operation on an object of its own, which the worker accepts.
fn operation(number: u8) -> ClientOperation {
    let (coordinator, workers) = (COORDINATOR, vec![WORKER]);
    ClientOperation { number, coordinator, workers, object: number, refusers: Vec::new() }
}

fn world(protocol: Protocol, refused: bool) -> World {
    let refusers = if refused { vec![WORKER] } else { Vec::new() };
    World::new(protocol, 2, vec![ClientOperation { refusers, ..operation(1) }])
}

/// The names of the messages that were sent since the last look.
fn sent(world: &World) -> Vec<&'static str> {
    let name = |(_, _, bytes): &(_, _, bytes::Bytes)| {
        <Message>::decode(bytes.clone()).expect("machines send valid messages").body.name()
    };
    world.fresh.iter().map(name).collect()
}

fn deliver(world: &mut World) {
    for message in std::mem::take(&mut world.fresh) {
        world.deliver(&message);
    }
}

fn flush_all(world: &mut World, shard: ShardId) {
    while !world.servers[&shard].journal.is_empty() {
        world.flush(shard);
    }
}

/// The worker's server computes what it is asked for.
fn evaluate(world: &mut World) {
    let name = world.servers[&WORKER].waiting.keys().next().copied().expect("the worker is asked");
    assert!(world.evaluate(WORKER, name, true));
}

/// Does these steps. C is the coordinator's server, W that of the worker.
fn play(world: &mut World, steps: &str) {
    for step in steps.split(", ") {
        let words: Vec<&str> = step.split(' ').collect();
        let shard = if words.last() == Some(&"W") { WORKER } else { COORDINATOR };
        let answer = match words.last() {
            Some(&"done") => Some(Answer::Done),
            Some(&"refused") => Some(Answer::Refused),
            _ => None,
        };
        match words[0] {
            "started" => play(world, "ask, sent, flush C, sent UPDATE"),
            "updated" => play(world, "started, deliver, evaluate, flush W, sent UPDATED"),
            "prepared" => play(world, "updated, deliver, sent PREPARE, flush C, deliver, flush W, sent PREPARED"),
            "ask" | "refused" => world.ask(&[1]),
            "deliver" => deliver(world),
            "evaluate" => evaluate(world),
            "flush" => flush_all(world, shard),
            "crash" => world.crash(shard),
            "wake" => world.wake(shard),
            "replay" => world.network.clone().iter().for_each(|message| world.deliver(message)),
            "sent" => assert_eq!(sent(world), words[1..], "{steps}"),
            "lose" => {
                assert_eq!(sent(world), words[1..], "{steps}");
                world.fresh.clear();
            }
            "messages" => assert_eq!(world.network.len().to_string(), words[1], "{steps}"),
            "idle" => assert!(world.servers[&WORKER].waiting.is_empty(), "{steps}"),
            "free" | "locked" => assert_eq!(world.servers[&COORDINATOR].locks.is_empty(), step == "free", "{steps}"),
            "answered" => assert_eq!(world.answers.get(&1).copied(), answer, "{steps}"),
            "settle" | "end" => {
                assert!(world.settle(), "everything comes to an end: {steps}");
                world.check_at_rest();
                assert!(step == "settle" || world.answers.get(&1).copied() == answer, "{steps}: {:?}", world.answers);
            }
            other => panic!("no step: {other}"),
        }
    }
}

#[test]
fn servers_recover_as_the_paper_says_in_each_case() {
    for (case, protocols, steps) in CASES {
        for protocol in *protocols {
            println!("{protocol}: {case}");
            play(&mut world(*protocol, steps.starts_with("refused")), steps);
        }
    }
}

#[test]
fn two_phase_a_worker_that_evaluates_again_replaces_its_verdicts() {
    for protocol in [PresumeNothing, PresumeCommit] {
        let mut world = World::new(protocol, 2, vec![operation(1), operation(2)]);
        world.ask(&[1, 2]);
        flush_all(&mut world, COORDINATOR);
        let update = world.fresh[0].clone();
        deliver(&mut world);
        evaluate(&mut world);
        assert_eq!(sent(&world), ["UPDATED"]);
        deliver(&mut world);
        assert_eq!(sent(&world), ["PREPARE"]);
        // The worker forgets that it has accepted both; a late copy of UPDATE comes while somebody else has the lock of one.
        world.crash(WORKER);
        world.deliver(&update);
        let name = *world.servers[&WORKER].waiting.keys().next().expect("it is evaluated again");
        let other = TransactionName { shard: ShardId(9), sequence: 0 };
        world.servers.get_mut(&WORKER).expect("it is a server").locks.insert(2, other);
        assert!(world.evaluate(WORKER, name, false));
        world.servers.get_mut(&WORKER).expect("it is a server").locks.remove(&2);
        assert!(world.settle());
        world.check_at_rest();
        assert_eq!(world.answers.get(&1), Some(&Answer::Done), "{protocol}");
        assert_eq!(world.answers.get(&2), Some(&Answer::Refused), "{protocol}");
    }
}
