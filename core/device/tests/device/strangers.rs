//! Hosts that break the protocol, copies that come late, and tables that fill up: no message may stop a device, fill it
//! up, or block other hosts indefinitely.

use crate::bench::*;
use crate::story::{Told, tell};
use std::collections::BTreeSet;

#[test]
fn a_read_in_the_name_of_a_writing_transaction_is_ignored() {
    let prepared = ("a1@0 prepare 5 =7", "a1 accepted, a1 written");
    let aborted = [("a2@1 pre 9", "a2 accepted"), ("a aborts a2", "a2 is over: Abort")];
    tell(Bench::new(), &[prepared, aborted[0], aborted[1], ("a1 read 5", ""), ("a2 read 5", "")]);
}

#[test]
fn a_known_transaction_passes_only_with_its_own_stamp() {
    let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
    bench.ask(A, writer.read_and_prewrite(BLOCK));
    let stamp = Stamp { clock: Clock(u64::MAX - 1), host: A };
    bench.say(A, Actor { stamp, ..writer }.read_and_prewrite(BLOCK));
    assert_eq!(bench.hear(A), None, "a stamp of the far future is ignored");
    let stamp = Stamp { host: B, ..bench.stamp(A, 5) };
    assert_eq!(bench.ask(A, Actor::new(A, 2, stamp).read(BLOCK)), None, "the stamp of another host is ignored");
}

#[test]
fn reads_that_overlap_or_ask_for_too_much_are_refused_also_when_repeated() {
    let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
    bench.ask(A, writer.prewrite(BLOCK));
    let reads = vec![BlockRange::new(0, 256); 1000];
    let reply = bench.ask(A, writer.prewrite_reading(BLOCK, reads.clone()));
    assert_eq!(reply, failed(writer, Step::Prewrite, Failure::Malformed));
    let reader = actor(&bench, A, 2, 0);
    let reply = bench.ask(A, reader.read_of(reads, Want::Allocation));
    assert_eq!(reply, failed(reader, Step::Read, Failure::Malformed));
}

#[test]
fn two_transactions_with_one_stamp_still_have_one_intent_a_block() {
    let mut bench = Bench::new();
    let stamp = bench.stamp(A, 0);
    let twins = [Actor::new(A, 1, stamp), Actor::new(A, 2, stamp)];
    for twin in twins {
        bench.ask(A, twin.prewrite(BLOCK));
    }
    for twin in twins {
        bench.say(A, twin.write(BLOCK, 1));
    }
    assert_eq!(bench.hear(A), written(twins[0]));
    assert_eq!(bench.hear(A), Some(Reply::Blocked { transaction: twins[0].id }));
    assert_eq!(bench.hear(A), None, "the second write waits for the first");
}

#[test]
fn a_chain_of_waiting_requests_as_long_as_the_queue_is_released_at_once() {
    let mut bench = Bench::new();
    let object = braid_base::ObjectId(30);
    let task = creation(object, 6000, Ordering::Timestamp, true);
    bench.say(B, Command::Manage { ticket: 9, task });
    let links = 4000;
    let contended = BlockRange::new(5999, 1);
    let prewrite = |actor: Actor, block, reads| actor.on(object, Ordering::Timestamp).prewrite_reading(block, reads);
    let first = actor(&bench, A, 1, 0);
    bench.say(A, prewrite(first, BlockRange::new(0, 1), Vec::new()));
    // Each waits for the previous one, and will be refused for the contended block.
    bench.check_every_step = false;
    for link in 0..links {
        let waiting = actor(&bench, A, 2 + link, 1 + link as i64);
        let reads = vec![BlockRange::new(link, 1), contended];
        bench.say(A, prewrite(waiting, BlockRange::new(link + 1, 1), reads));
    }
    bench.check_every_step = true;
    assert_eq!(bench.device.waiting(), links as usize);
    let winner = actor(&bench, B, 1, 100_000);
    bench.say(B, prewrite(winner, contended, Vec::new()));
    bench.say(B, winner.on(object, Ordering::Timestamp).write(contended, 3));
    bench.say(A, first.decide(Outcome::Abort));
    assert_eq!(bench.device.waiting(), 0);
}

#[test]
fn a_resolver_is_answered_though_the_clock_stepped_back() {
    let mut told = tell(Bench::new(), &[("a1@0 pre 5", "a1 accepted"), ("restart", "")]);
    told.bench.now.clock = Clock(told.bench.now.clock.0 - 60_000_000_000);
    told.goes_on(&[("b asks a1", "b: a1: NeverPrepared")]);
}

#[test]
fn a_late_copy_of_a_task_is_dropped_once_the_task_is_settled() {
    for silent in [false, true] {
        let mut bench = Bench::new();
        let remove = Command::Manage { ticket: 5, task: Task::RemoveObject { object: OBJECT } };
        bench.say(A, remove.clone());
        bench.settle(A, 6);
        bench.say(A, Command::Heartbeat);
        let task = creation(OBJECT, 256, Ordering::Timestamp, true);
        bench.say(B, Command::Manage { ticket: 1, task });
        if silent {
            // The host's lease ends, and the copy says nothing of later requests.
            bench.pass(Settings::default().host_lease * 2);
            bench.forget_mark(A);
        }
        bench.say(A, remove);
        assert!(bench.device.store().object(OBJECT).is_some(), "silent: {silent}");
    }
}

#[test]
fn a_read_sent_again_while_the_disk_works_is_read_once() {
    let mut told = tell(
        Bench::new(),
        &[("a1@0 prepare 0+16 =7", "a1 accepted, a1 written"), ("a1 ends", ""), ("pass 1s", ""), ("stall", "")],
    );
    let reader = actor(&told.bench, B, 1, 0);
    for _ in 0..9 {
        told.bench.say(B, reader.read(BlockRange::new(0, 16)));
    }
    told.bench.resume_disk();
    assert_eq!(fills(&told.bench.hear(B).expect("an answer")), [7; 16]);
    assert_eq!(told.bench.hear(B), None);
}

#[test]
fn orphans_are_named_in_turn() {
    let mut bench = Bench::new();
    for index in 0..70 {
        let writer = actor(&bench, A, 1 + index, index as i64);
        prepare(&mut bench, writer, BlockRange::new(index, 1), 1);
    }
    bench.pass(Duration::from_secs(6));
    let mut named = BTreeSet::new();
    for _ in 0..2 {
        bench.say(B, Command::Heartbeat);
        for answer in bench.heard.entry(B).or_default().drain(..) {
            if let Reply::Heartbeat { orphans, .. } = answer.reply {
                named.extend(orphans.into_iter().map(|orphan| orphan.transaction));
            }
        }
    }
    assert_eq!(named.len(), 70, "all orphans are named in turn");
}

/// The limit of hosts have spoken, and the device holds something of one of the first.
fn full() -> Bench {
    let mut bench = Bench::new();
    bench.check_every_step = false;
    let first = actor(&bench, Generation(1_000), 1, 0);
    prepare(&mut bench, first, BLOCK, 7);
    for host in 1..limits::HOSTS_MAX as u32 - 1 {
        bench.say(Generation(1_000 + host), Command::Heartbeat);
    }
    bench
}

fn is_turned_away(bench: &mut Bench, host: Generation) -> bool {
    bench.ask(host, Command::Heartbeat) == Some(Reply::Rejected { rejection: Rejection::TooManyHosts })
}

#[test]
fn a_full_table_of_hosts_forgets_those_that_are_silent_and_of_which_it_keeps_nothing() {
    let mut bench = full();
    // The host that created the objects has spoken, too.
    assert!(is_turned_away(&mut bench, A), "all other hosts may be alive");
    bench.pass(Duration::from_millis(1_600));
    for host in 2..limits::HOSTS_MAX as u32 - 1 {
        bench.say(Generation(1_000 + host), Command::Heartbeat);
    }
    bench.say(Generation(99), Command::Heartbeat);
    assert!(!is_turned_away(&mut bench, A), "a host that was silent for some heartbeats is forgotten");
    assert!(is_turned_away(&mut bench, B), "the other silent host has written something");
    assert!(bench.device.sessions().any(|host| host == Generation(1_000)));
    assert!(bench.device.sessions().all(|host| host != Generation(1_001)));
}

#[test]
fn hosts_with_recovered_state_leave_room_for_others() {
    let mut bench = Bench::new();
    bench.check_every_step = false;
    let hosts = limits::HOSTS_MAX as u32 + 10;
    for host in 0..hosts {
        if host == hosts / 2 {
            // The earlier hosts fall silent, and their leases expire.
            bench.pass(Duration::from_secs(5));
        }
        let block = BlockRange::new(u64::from(host) % 256, 1);
        let writer = actor(&bench, Generation(1_000 + host), 1, i64::from(host));
        prepare(&mut bench, writer, block, 7);
        bench.say_with(writer.id.host, vec![1], Command::Heartbeat);
    }
    bench.pass(Duration::from_millis(20));
    bench.restart();
    assert_eq!(bench.device.transactions().count(), hosts as usize);
    assert!(!is_turned_away(&mut bench, A), "recovered hosts do not count");
    for host in 0..limits::HOSTS_MAX as u32 - 1 {
        assert!(!is_turned_away(&mut bench, Generation(1_000 + host)), "{host}");
    }
    assert!(is_turned_away(&mut bench, B), "the limit of hosts have spoken");
}
