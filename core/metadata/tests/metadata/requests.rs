//! Requests of hosts: executed once, answered when they are durable.

use crate::bench::*;
use braid_base::limits;
use braid_wire::Rejection;

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
fn an_answer_waits_until_its_change_is_durable() {
    let mut bench = Bench::new();
    bench.stalled = true;
    let made = bench.ask(ONE, create("a"));
    let seen = bench.ask(TWO, FileCommand::Lookup { parent: ROOT, name: name_of("a") });
    assert_eq!((bench.reply(ONE, made), bench.reply(TWO, seen)), (None, None));
    bench.resume_disk();
    assert!(matches!(bench.reply(ONE, made), Some(Ok(FileResult::Created { .. }))));
    assert!(matches!(bench.reply(TWO, seen), Some(Ok(FileResult::Attributes(_)))));
}

#[test]
fn requests_in_another_name_are_ignored() {
    let mut bench = Bench::new();
    let request = FileRequest { host: TWO, settled: 0, over: Vec::new(), sequence: 1, command: create("a") };
    bench.request(ONE, request);
    assert!(bench.files.is_empty());
    assert_eq!(bench.lookup(ONE, "a"), Err(FileError::NoSuchName));
}

#[test]
fn a_request_in_the_name_of_the_server_is_refused() {
    let mut bench = Bench::new();
    let all = [Generation(0), bench.generation()];
    for own in all {
        bench.send(own, u64::MAX - 1, u64::MAX, create("a"));
        assert_eq!(bench.reply(own, u64::MAX - 1), Some(Err(FileError::Rejected(Rejection::Fenced))));
    }
    bench.create(ONE, "b");
    bench.run(ONE, unlink("b")).expect("it is removed");
    assert_eq!(bench.server.unlinked_inodes(), 0, "the server's own steps go on");
}

#[test]
fn a_host_that_an_earlier_owner_had_fenced_is_refused() {
    let mut bench = Bench::new();
    bench.create(ONE, "a");
    bench.restart(Time(0));
    bench.hear_of_fence([ONE]);
    assert_eq!(bench.run(ONE, unlink("a")), Err(FileError::Rejected(Rejection::Fenced)));
    assert_eq!(bench.run(ONE, FileCommand::Nothing), Err(FileError::Rejected(Rejection::Fenced)));
    assert!(bench.lookup(TWO, "a").is_ok());
    // It may wait for nothing but a lock: there, too, it has to hear of the fence.
    bench.lock(ONE, 1, InodeId::ROOT, DATA_LOCK, LockMode::Shared);
    bench.run_disk();
    assert_eq!(bench.hear_lock(ONE), Some(LockReply::Rejected { rejection: Rejection::Fenced }));
}

#[test]
fn an_unanswered_request_outlives_any_number_of_later_ones() {
    let mut bench = Bench::new();
    let most = limits::FILE_REQUESTS_MAX;
    // Sequences 1, 4, 7, … are late; the others are answered and acknowledged.
    let on_time: Vec<u64> = (1..=most).filter(|sequence| sequence % 3 != 1).collect();
    for sequence in &on_time {
        let created = bench.run_over(ONE, *sequence, Vec::new(), create(&format!("{sequence}")));
        assert!(created.is_some_and(|reply| reply.is_ok()));
        bench.run_over(ONE, most, vec![*sequence], FileCommand::Nothing);
    }
    assert_eq!(bench.run_over(ONE, most + 1, Vec::new(), create("beyond")), Some(Err(FileError::Busy)));
    assert_eq!(bench.lookup(TWO, "beyond"), Err(FileError::NoSuchName));
    assert_eq!(bench.run_over(ONE, on_time[0], Vec::new(), create("again")), None, "it is acknowledged");
    bench.restart(Time(0));
    for sequence in (1..=most).filter(|sequence| sequence % 3 == 1) {
        let created = bench.run_over(ONE, sequence, Vec::new(), create(&format!("{sequence}")));
        assert!(created.is_some_and(|reply| reply.is_ok()), "{sequence} is executed late");
    }
}

#[test]
fn acknowledgements_of_many_hosts_end_no_request_of_another() {
    let mut bench = Bench::new();
    // Hosts that answer every second request leave more than 4,096 gaps.
    let hosts: Vec<_> = (200..235).map(Generation).collect();
    for host in hosts.into_iter().chain([ONE]) {
        for sequence in (2..=limits::FILE_REQUESTS_MAX).step_by(2) {
            let name = format!("{host} {sequence}");
            assert!(
                bench.run_over(host, sequence, vec![sequence - 2], create(&name)).is_some_and(|reply| reply.is_ok())
            );
        }
    }
    for sequence in (1..=limits::FILE_REQUESTS_MAX).step_by(2) {
        let created = bench.run_over(ONE, sequence, Vec::new(), create(&format!("{sequence}")));
        assert!(created.is_some_and(|reply| reply.is_ok()), "{sequence} is executed late");
    }
}

#[test]
fn a_directory_that_is_not_in_memory_is_read_with_several_reads_at_a_time() {
    let mut bench = Bench::new();
    let names = 12_000;
    for number in 0..names {
        let sequence = bench.ask(ONE, create(&format!("{number:0>255}")));
        while bench.reply(ONE, sequence).is_none() {
            // The journal is full until a checkpoint ends.
            bench.pass(Duration::from_millis(10));
        }
    }
    bench.restart(Time(0));
    bench.stalled = true;
    let list = FileCommand::ReadDirectory { inode: ROOT, after: 0, most: 1024 };
    let sequence = bench.ask(ONE, list);
    let mut rounds = Vec::new();
    while bench.under_way > 0 {
        rounds.push(bench.under_way);
        (0..bench.under_way).for_each(|_| assert!(bench.run_one()));
    }
    assert!(matches!(bench.reply(ONE, sequence), Some(Ok(FileResult::Entries { more: true, .. }))));
    assert!(rounds.len() <= 2 && rounds.iter().sum::<usize>() >= 8, "reads at a time: {rounds:?}");
}

#[test]
fn the_next_server_does_not_wait_for_hosts_that_have_ended() {
    for ended in [true, false] {
        let mut bench = Bench::new();
        let hosts = [ONE, TWO];
        hosts.into_iter().for_each(|host| bench.lock(host, 1, InodeId(0), 0, LockMode::Shared));
        hosts.into_iter().for_each(|host| assert_granted(bench.hear_lock(host)));
        if ended {
            bench.say(TWO, LockCommand::Unlock { lock_id: 1 });
        }
        bench.restart(Time(0));
        bench.hold_again(ONE, 1, InodeId(0), 0);
        assert_granted(bench.hear_lock(ONE));
        bench.say(ONE, LockCommand::Heartbeat { sent: Time(0) });
        bench.locks.clear();
        bench.lock(ONE, 2, InodeId(7), 1, LockMode::Shared);
        match ended {
            true => assert_granted(bench.hear_lock(ONE)),
            false => assert_eq!(bench.hear_lock(ONE), None, "a host may still have a lock"),
        }
    }
}

fn assert_granted(heard: Option<LockReply>) {
    assert!(matches!(heard, Some(LockReply::Granted { .. })), "{heard:?}");
}
