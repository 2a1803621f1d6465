//! Requests of hosts: executed once, answered when they are durable.

use crate::bench::{Bench, ONE, TWO, create, unlink};
use braid_base::{Generation, NodeId, Time};
use braid_machine::Input;
use braid_wire::{FileCommand, FileError, FileRequest, FileResult, Message};

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
fn the_processs_own_generation_is_no_host() {
    let mut bench = Bench::new();
    let own = Generation(0);
    let request = FileRequest { host: own, settled: 0, over: Vec::new(), sequence: 1, command: create("a") };
    bench.take(Input::Message { from: NodeId::Host(own), message: Message::FileRequest(request) });
    let refused = bench.reply(own, 1);
    assert!(matches!(refused, Some(Err(FileError::Rejected(_)))), "{refused:?}");
}
