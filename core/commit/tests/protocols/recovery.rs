//! The recovery cases of the one-phase-commit paper, one by one: sections II-C (two-phase commit) and III-C (one-phase commit), and what the
//! paper does not have: blackouts, late requests, refusals, and questions without a record.

use crate::world::{Answer, ClientOperation, World};
use braid_base::ShardId;
use braid_commit::{Message, Protocol, Protocol::*, TransactionName};

const COORDINATOR: ShardId = ShardId(0);
const WORKER: ShardId = ShardId(1);

fn world(protocol: Protocol, refused: bool) -> World {
    let refusers = if refused { vec![WORKER] } else { Vec::new() };
    let operation = ClientOperation { number: 1, coordinator: COORDINATOR, workers: vec![WORKER], object: 1, refusers };
    World::new(protocol, 2, vec![operation])
}

/// The names of the messages that were sent since the last look.
fn sent(world: &World) -> Vec<&'static str> {
    let name = |(_, _, bytes): &(_, _, bytes::Bytes)| {
        <Message>::decode(bytes.clone()).expect("machines send valid messages").body.name()
    };
    world.fresh.iter().map(name).collect()
}

/// Loses the messages that were sent since the last look.
fn lose(world: &mut World) -> Vec<&'static str> {
    let names = sent(world);
    world.fresh.clear();
    names
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

/// STARTED is durable, and UPDATE is sent.
fn started(protocol: Protocol) -> World {
    let mut world = world(protocol, false);
    world.ask(&[1]);
    assert_eq!(sent(&world), Vec::<&str>::new(), "{protocol}: nobody is asked before STARTED is durable");
    flush_all(&mut world, COORDINATOR);
    assert_eq!(sent(&world), ["UPDATE"]);
    world
}

/// The worker has done what its protocol lets it do at UPDATE, and has sent UPDATED.
fn updated(protocol: Protocol) -> World {
    let mut world = started(protocol);
    deliver(&mut world);
    evaluate(&mut world);
    flush_all(&mut world, WORKER);
    assert_eq!(sent(&world), ["UPDATED"]);
    world
}

/// Both sides have prepared (PrN, PrC), and PREPARED is sent.
fn prepared(protocol: Protocol) -> World {
    let mut world = updated(protocol);
    deliver(&mut world);
    assert_eq!(sent(&world), ["PREPARE"]);
    flush_all(&mut world, COORDINATOR);
    deliver(&mut world);
    flush_all(&mut world, WORKER);
    assert_eq!(sent(&world), ["PREPARED"]);
    world
}

fn ends(mut world: World, answer: Option<Answer>) {
    assert!(world.settle(), "everything comes to an end");
    world.check_at_rest();
    assert_eq!(world.answers.get(&1).copied(), answer);
}

#[test]
fn one_phase_a_coordinator_found_started_sends_its_request_again() {
    let mut world = started(OnePhase);
    lose(&mut world);
    world.crash(COORDINATOR);
    assert_eq!(sent(&world), ["UPDATE"]);
    assert_eq!(world.network.len(), 1, "it is the same message");
    ends(world, Some(Answer::Done));
}

#[test]
fn one_phase_a_worker_that_has_committed_says_so_again() {
    let mut world = updated(OnePhase);
    lose(&mut world);
    world.crash(COORDINATOR);
    deliver(&mut world);
    assert!(world.servers[&WORKER].waiting.is_empty(), "it is not done again");
    assert_eq!(sent(&world), ["UPDATED"]);
    ends(world, Some(Answer::Done));
}

#[test]
fn one_phase_a_worker_without_a_record_does_a_repeated_request() {
    let mut world = started(OnePhase);
    deliver(&mut world);
    evaluate(&mut world);
    world.crash(WORKER);
    assert_eq!(lose(&mut world), Vec::<&str>::new(), "UPDATED waits for COMMITTED");
    world.wake(COORDINATOR);
    assert_eq!(sent(&world), ["UPDATE"]);
    ends(world, Some(Answer::Done));
}

#[test]
fn one_phase_a_worker_found_committed_asks_for_the_acknowledgement() {
    let mut world = updated(OnePhase);
    deliver(&mut world);
    flush_all(&mut world, COORDINATOR);
    assert_eq!(lose(&mut world), ["ACKNOWLEDGE"]);
    world.crash(WORKER);
    assert_eq!(sent(&world), ["UPDATED"]);
    deliver(&mut world);
    assert_eq!(sent(&world), ["ACKNOWLEDGE"], "the coordinator has no record, and knows by that");
    ends(world, Some(Answer::Done));
}

#[test]
fn one_phase_the_client_is_answered_before_the_coordinator_has_committed() {
    let mut world = updated(OnePhase);
    deliver(&mut world);
    assert_eq!(world.answers.get(&1), Some(&Answer::Done));
    assert!(world.servers[&COORDINATOR].locks.is_empty(), "the lock is released, too");
    world.crash(COORDINATOR);
    assert!(!world.servers[&COORDINATOR].locks.is_empty(), "and held again by whoever does it again");
    ends(world, Some(Answer::Done));
}

#[test]
fn one_phase_a_refusal_outlives_both_servers() {
    let mut world = world(OnePhase, true);
    world.ask(&[1]);
    flush_all(&mut world, COORDINATOR);
    deliver(&mut world);
    evaluate(&mut world);
    assert_eq!(sent(&world), Vec::<&str>::new(), "it is logged before it is said");
    flush_all(&mut world, WORKER);
    assert_eq!(lose(&mut world), ["UPDATED"]);
    world.crash(WORKER);
    world.crash(COORDINATOR);
    deliver(&mut world);
    assert!(world.servers[&WORKER].waiting.is_empty(), "it is not tried again under the same name");
    deliver(&mut world);
    assert_eq!(world.answers.get(&1), None, "the client hears of it when it is durable");
    ends(world, Some(Answer::Refused));
}

#[test]
fn one_phase_both_servers_continue_their_transactions_after_a_blackout() {
    let one =
        ClientOperation { number: 1, coordinator: COORDINATOR, workers: vec![WORKER], object: 1, refusers: Vec::new() };
    let two = ClientOperation { number: 2, coordinator: WORKER, workers: vec![COORDINATOR], object: 2, ..one.clone() };
    let mut world = World::new(OnePhase, 2, vec![one, two]);
    world.ask(&[1]);
    world.ask(&[2]);
    for shard in [COORDINATOR, WORKER] {
        flush_all(&mut world, shard);
    }
    lose(&mut world);
    world.crash(COORDINATOR);
    world.crash(WORKER);
    assert_eq!(sent(&world), ["UPDATE", "UPDATE"]);
    deliver(&mut world);
    assert!(
        world.servers.values().all(|server| !server.waiting.is_empty()),
        "each serves the other before its own ends"
    );
    assert!(world.settle());
    world.check_at_rest();
    assert_eq!(world.answers.values().collect::<Vec<_>>(), [&Answer::Done, &Answer::Done]);
}

#[test]
fn a_late_update_is_not_done_again() {
    for protocol in Protocol::ALL {
        let mut world = started(protocol);
        assert!(world.settle());
        world.check_at_rest();
        let messages: Vec<_> = world.network.iter().cloned().collect();
        world.crash(WORKER);
        messages.iter().for_each(|message| world.deliver(message));
        assert!(world.servers[&WORKER].waiting.is_empty(), "{protocol}: the mark says that it is over");
        ends(world, Some(Answer::Done));
    }
}

#[test]
fn two_phase_a_coordinator_found_started_aborts() {
    for protocol in [PresumeNothing, PresumeCommit] {
        let mut world = updated(protocol);
        lose(&mut world);
        world.crash(COORDINATOR);
        flush_all(&mut world, COORDINATOR);
        assert_eq!(sent(&world), ["ABORT"]);
        deliver(&mut world);
        flush_all(&mut world, WORKER);
        assert_eq!(sent(&world), ["ACKNOWLEDGE"]);
        ends(world, None);
    }
}

#[test]
fn two_phase_a_coordinator_found_prepared_asks_again() {
    for protocol in [PresumeNothing, PresumeCommit] {
        let mut world = prepared(protocol);
        lose(&mut world);
        world.crash(COORDINATOR);
        assert_eq!(sent(&world), ["PREPARE"]);
        deliver(&mut world);
        assert_eq!(sent(&world), ["PREPARED"]);
        world.ask(&[1]);
        ends(world, Some(Answer::Done));
    }
}

#[test]
fn two_phase_a_worker_without_an_entry_is_not_prepared() {
    for protocol in [PresumeNothing, PresumeCommit] {
        let mut world = updated(protocol);
        deliver(&mut world);
        world.crash(WORKER);
        deliver(&mut world);
        assert_eq!(sent(&world), ["NOT-PREPARED"]);
        ends(world, None);
    }
}

#[test]
fn two_phase_a_worker_that_evaluates_again_replaces_its_verdicts() {
    for protocol in [PresumeNothing, PresumeCommit] {
        let operation = |number| ClientOperation {
            number,
            coordinator: COORDINATOR,
            workers: vec![WORKER],
            object: number,
            refusers: Vec::new(),
        };
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

#[test]
fn two_phase_a_prepared_worker_asks() {
    for protocol in [PresumeNothing, PresumeCommit] {
        let mut world = prepared(protocol);
        deliver(&mut world);
        flush_all(&mut world, COORDINATOR);
        assert_eq!(lose(&mut world), ["COMMIT"]);
        world.crash(WORKER);
        assert_eq!(sent(&world), ["ASK"]);
        deliver(&mut world);
        assert_eq!(sent(&world), ["COMMIT"]);
        ends(world, Some(Answer::Done));
    }
}

#[test]
fn presume_nothing_a_coordinator_found_committed_tells_until_it_is_confirmed() {
    let mut world = prepared(PresumeNothing);
    deliver(&mut world);
    flush_all(&mut world, COORDINATOR);
    assert_eq!(world.answers.get(&1), None, "the client is answered after ACKNOWLEDGE");
    deliver(&mut world);
    flush_all(&mut world, WORKER);
    assert_eq!(lose(&mut world), ["ACKNOWLEDGE"]);
    world.crash(COORDINATOR);
    assert_eq!(sent(&world), ["COMMIT"]);
    deliver(&mut world);
    assert_eq!(sent(&world), ["ACKNOWLEDGE"]);
    world.ask(&[1]);
    ends(world, Some(Answer::Done));
}

#[test]
fn presume_commit_a_coordinator_without_a_record_answers_with_commit() {
    for protocol in [PresumeCommit, EarlyPrepare] {
        let mut world = if protocol == EarlyPrepare { updated(protocol) } else { prepared(protocol) };
        deliver(&mut world);
        flush_all(&mut world, COORDINATOR);
        assert_eq!(lose(&mut world), ["COMMIT"]);
        world.crash(COORDINATOR);
        assert_eq!(lose(&mut world), Vec::<&str>::new(), "{protocol}: nothing is in doubt here");
        world.wake(WORKER);
        assert_eq!(sent(&world), ["ASK"]);
        deliver(&mut world);
        assert_eq!(sent(&world), ["COMMIT"]);
        ends(world, Some(Answer::Done));
    }
}

#[test]
fn presume_commit_a_late_request_after_an_abort_is_not_done() {
    for protocol in [PresumeCommit, EarlyPrepare] {
        let mut world = started(protocol);
        let update = world.fresh.pop().expect("it was sent");
        world.crash(COORDINATOR);
        // The worker has heard nothing yet, and hears of the abort first. Early prepare sends UPDATE again, if PREPARED was durable.
        world.wake(COORDINATOR);
        assert!(world.settle());
        let before = world.servers[&WORKER].durable.clone();
        world.deliver(&update);
        assert!(
            world.servers[&WORKER].waiting.is_empty(),
            "{protocol}: otherwise it would prepare, and presume a commit"
        );
        assert!(world.settle());
        assert_eq!(world.servers[&WORKER].durable, before);
        world.check_at_rest();
    }
}
