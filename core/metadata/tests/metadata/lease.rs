//! The lease: what is answered from memory, and when.

use crate::bench::*;

#[test]
fn an_answer_after_silence_waits_for_a_proof_of_the_lease() {
    let mut bench = Bench::new();
    bench.create(ONE, "a");
    bench.pass(Settings::default().host_lease);
    bench.stalled = true;
    let seen = bench.ask(TWO, FileCommand::Lookup { parent: ROOT, name: name_of("a") });
    assert_eq!(bench.reply(TWO, seen), None, "another process may be the owner");
    bench.resume_disk();
    assert!(bench.reply(TWO, seen).is_some_and(|reply| reply.is_ok()));
    bench.stalled = true;
    let again = bench.ask(TWO, FileCommand::Lookup { parent: ROOT, name: name_of("a") });
    assert!(bench.reply(TWO, again).is_some(), "the proof serves for later answers");
}

#[test]
fn locks_need_the_lease_too() {
    let mut bench = Bench::new();
    bench.lock(ONE, 1, InodeId(9), 0, LockMode::Shared);
    assert!(bench.hear_lock(ONE).is_some());
    bench.pass(Settings::default().host_lease);
    bench.stalled = true;
    bench.lock(ONE, 2, InodeId(10), 0, LockMode::Shared);
    assert_eq!(bench.hear_lock(ONE), None);
    bench.resume_disk();
    assert!(bench.hear_lock(ONE).is_some());
}

#[test]
fn a_new_owner_serves_when_the_lease_of_the_last_one_has_passed() {
    let mut bench = Bench::new();
    bench.create(ONE, "a");
    let from = bench.now.time.after(Duration::from_secs(4));
    bench.restart(from);
    let early = bench.ask(ONE, FileCommand::Lookup { parent: ROOT, name: name_of("a") });
    assert_eq!(bench.reply(ONE, early), None);
    bench.pass(Duration::from_secs(4));
    assert!(bench.lookup(ONE, "a").is_ok());
}

#[test]
fn hosts_are_not_fenced_for_silence_while_no_server_listened() {
    let mut bench = Bench::new();
    bench.lock(ONE, 1, InodeId(9), 0, LockMode::Shared);
    assert!(bench.hear_lock(ONE).is_some());
    let from = bench.now.time.after(Duration::from_secs(20));
    bench.restart(from);
    bench.pass(Duration::from_secs(20));
    bench.pass(Duration::from_secs(3));
    assert!(bench.monitor.is_empty(), "{:?}", bench.monitor);
    bench.pass(Duration::from_secs(2));
    assert!(!bench.monitor.is_empty(), "it has been silent for a lease in which it could be heard");
}
