//! Requests of hosts: executed once, answered when they are durable.

use crate::bench::{Bench, ONE, TWO, create, unlink};
use braid_base::{Epoch, FenceTable, Generation, Membership, NodeId, Time};
use braid_machine::Input;
use braid_wire::{FileCommand, FileError, FileRequest, FileResult, Message, MonitorAnswer, MonitorReply, Rejection};
use std::collections::BTreeSet;

#[test]
fn a_request_that_is_sent_again_is_executed_once() {
    let mut bench = Bench::new();
    bench.create(ONE, "a");
    let sequence = bench.ask(ONE, unlink("a"));
    let first = bench.reply(ONE, sequence).expect("it is answered");
    bench.send(ONE, sequence, 0, unlink("a"));
    assert_eq!(bench.reply(ONE, sequence), Some(first.clone()), "not: there is no such name");
    bench.restart(Time(0));
    bench.send(ONE, sequence, 0, unlink("a"));
    assert_eq!(bench.reply(ONE, sequence), Some(first), "the next process knows the answer, too");
    bench.send(ONE, sequence + 1, sequence + 1, FileCommand::Nothing);
    bench.send(ONE, sequence, sequence + 1, unlink("a"));
    assert_eq!(bench.reply(ONE, sequence), None, "the host has settled it");
}

#[test]
fn nothing_is_answered_before_it_is_durable() {
    let mut bench = Bench::new();
    bench.stalled = true;
    let made = bench.ask(ONE, create("a"));
    let seen = bench.ask(TWO, FileCommand::Lookup { parent: crate::bench::ROOT, name: crate::bench::name_of("a") });
    assert_eq!((bench.reply(ONE, made), bench.reply(TWO, seen)), (None, None));
    bench.stalled = false;
    bench.run_disk();
    assert!(matches!(bench.reply(ONE, made), Some(Ok(FileResult::Created { .. }))));
    assert!(matches!(bench.reply(TWO, seen), Some(Ok(FileResult::Attributes(_)))));
}

#[test]
fn requests_in_another_name_are_ignored() {
    let mut bench = Bench::new();
    let request = FileRequest { host: TWO, settled: 0, over: Vec::new(), sequence: 1, command: create("a") };
    bench.take(Input::Message { from: NodeId::Host(ONE), message: Message::FileRequest(request) });
    assert!(bench.files.is_empty());
    assert_eq!(bench.lookup(ONE, "a"), Err(FileError::NoSuchName));
}

#[test]
fn the_process_itself_is_no_host() {
    let mut bench = Bench::new();
    let all = [Generation(0), bench.generation()];
    for own in all {
        let request = FileRequest {
            host: own,
            settled: u64::MAX,
            over: Vec::new(),
            sequence: u64::MAX - 1,
            command: create("a"),
        };
        bench.take(Input::Message { from: NodeId::Host(own), message: Message::FileRequest(request) });
        assert_eq!(bench.reply(own, u64::MAX - 1), Some(Err(FileError::Rejected(Rejection::Fenced))));
    }
    bench.create(ONE, "b");
    bench.run(ONE, unlink("b")).expect("it is removed");
    assert_eq!(bench.server.orphans(), 0, "the server's own steps go on");
}

#[test]
fn a_host_that_an_earlier_owner_had_fenced_is_refused() {
    let mut bench = Bench::new();
    bench.create(ONE, "a");
    bench.restart(Time(0));
    let mut fence = FenceTable::default();
    fence.add(Generation(0), &BTreeSet::new(), &BTreeSet::from([ONE]));
    let membership = Membership { epoch: Epoch(7), members: Vec::new(), fence };
    let reply = MonitorReply::Changed;
    let answer = MonitorAnswer { membership: Some(membership), unavailable: Vec::new(), reply };
    bench.take(Input::Message { from: NodeId::Monitor, message: Message::MonitorAnswer(answer) });
    assert_eq!(bench.run(ONE, unlink("a")), Err(FileError::Rejected(Rejection::Fenced)));
    assert_eq!(bench.run(ONE, FileCommand::Nothing), Err(FileError::Rejected(Rejection::Fenced)));
    assert!(bench.lookup(TWO, "a").is_ok());
}
