//! Silent hosts are fenced before their locks are granted to other hosts.

use crate::bench::*;
use braid_base::Membership;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_silent_host_is_fenced_before_the_next_is_granted() {
    let mut bench = Bench::new();
    bench.lock(ONE, 1, Exclusive, (0, 8), LockTerm::Cached);
    bench.lock(TWO, 1, Exclusive, (0, 8), LockTerm::Cached);
    assert_eq!((bench.hear(ONE), bench.hear(ONE)), (granted(1, false), revoke(&[1])));
    bench.pass_with(settings().host_lease, &[TWO]);
    assert!(bench.fences.is_empty(), "its lease has not expired");
    bench.pass_with(SECOND, &[TWO]);
    let (ticket, hosts) = bench.fences.pop_front().expect("a request to fence");
    assert_eq!(hosts, [ONE]);
    while let Some(reply) = bench.hear(ONE) {
        assert_eq!(Some(reply), revoke(&[1]));
    }
    let rejected = Some(LockReply::Rejected { rejection: Rejection::Fenced });
    bench.say(ONE, LockCommand::Yield { lock_ids: vec![1] });
    assert_eq!(bench.hear(ONE), rejected, "still rejected: a device may refuse it already");
    bench.fenced(ticket + 1);
    bench.message(NodeId::Device(DeviceId(0)), fenced(ticket));
    bench.fences.clear();
    bench.pass_with(SECOND, &[TWO]);
    assert_eq!(bench.hear(TWO), None, "the monitor has not confirmed");
    assert!(bench.fences.iter().all(|fence| *fence == (ticket, vec![ONE])) && !bench.fences.is_empty());
    bench.fence_all();
    assert_eq!(bench.hear(TWO), granted(1, true));
    bench.say(ONE, LockCommand::Heartbeat { sent: Time(0) });
    assert_eq!((bench.hear(ONE), bench.hear(ONE)), (rejected, None));
    assert_eq!(bench.server.counters().fenced, 1);
}

/// Each late copy of the host's requests would renew its lease.
#[test]
fn a_host_fenced_by_another_node_loses_its_locks_once_the_monitor_reports_it() {
    let mut bench = Bench::new();
    bench.lock(ONE, 1, Exclusive, (0, 8), LockTerm::Cached);
    bench.lock(ONE, 2, Exclusive, (8, 8), PATIENT);
    bench.lock(TWO, 1, Exclusive, (0, 8), PATIENT);
    bench.lock(TWO, 2, Exclusive, (8, 8), PATIENT);
    assert_eq!(bench.hear(TWO), None);
    let mut membership = Membership::first([DeviceId(0)]);
    membership.fence.also.insert(ONE);
    let reply = MonitorReply::Fenced { ticket: 7 };
    let answer = MonitorAnswer { membership: Some(membership), unavailable: Vec::new(), reply };
    bench.message(NodeId::Monitor, Message::MonitorAnswer(answer));
    assert_eq!(bench.fences.front().expect("fenced before its lease expires").1, [ONE]);
    assert_eq!(bench.hear(TWO), None, "a device may still serve it");
    bench.fence_all();
    assert_eq!((bench.hear(TWO), bench.hear(TWO)), (granted(2, true), None), "what it has read may be kept elsewhere");
    bench.pass_with(settings().host_lease - SECOND, &[TWO]);
    assert_eq!(bench.hear(TWO), None);
    bench.pass_with(SECOND * 2, &[TWO]);
    assert_eq!(bench.hear(TWO), granted(1, true));
    assert!(bench.fences.is_empty(), "it is fenced once");
}

#[test]
fn a_silent_host_is_fenced_though_each_waiter_waits_for_moments_only() {
    let mut bench = Bench::new();
    bench.lock(ONE, 1, Exclusive, (0, 8), PATIENT);
    bench.pass_with(settings().host_lease - SECOND / 2, &[TWO]);
    bench.lock(TWO, 1, Exclusive, (0, 8), IMPATIENT);
    // Gone again long before the next patrol.
    bench.pass(settings().lock_timeout);
    bench.pass_with(SECOND * 2, &[TWO]);
    assert_eq!(bench.fences.pop_front().map(|(_, hosts)| hosts), Some(vec![ONE]));
}

/// The list is being written without the host when it comes back.
#[test]
fn a_host_that_was_forgotten_and_comes_back_is_written_again() {
    let mut bench = Bench::new();
    bench.lock(ONE, 1, Exclusive, (0, 8), PATIENT);
    bench.unlock(ONE, 1);
    while bench.hear(ONE).is_some() {}
    bench.stalled = true;
    bench.pass(settings().host_lease + SECOND);
    for lock_id in [2, 3] {
        bench.lock(ONE, lock_id, Exclusive, (lock_id * 8, 8), PATIENT);
        assert_eq!(bench.hear(ONE), None);
    }
    bench.stalled = false;
    bench.run_disk();
    assert_eq!((bench.hear(ONE), bench.hear(ONE)), (granted(2, false), granted(3, false)));
    assert_eq!(bench.server.counters().list_writes, 3);
}

#[test]
fn hosts_that_fall_silent_together_are_fenced_together_and_those_later_in_the_next_round() {
    let mut bench = Bench::new();
    for (host, block) in [(ONE, 0), (TWO, 8)] {
        bench.lock(host, 1, Exclusive, (block, 8), LockTerm::Cached);
    }
    bench.lock(THREE, 1, Exclusive, (0, 16), PATIENT);
    bench.pass_with(SECOND, &[TWO, THREE]);
    bench.pass_with(settings().host_lease, &[THREE]);
    bench.pass_with(SECOND * 2, &[THREE]);
    assert!(bench.fences.iter().all(|(_, hosts)| *hosts == [ONE]));
    bench.fence_all();
    assert!(bench.fences.iter().all(|(_, hosts)| *hosts == [TWO]));
    assert_eq!((bench.fences.len(), bench.hear(THREE)), (1, None));
    bench.fence_all();
    assert_eq!(bench.hear(THREE), granted(1, true));
}

/// Otherwise live hosts would lose their place to the first stranger whose message is read after the pause.
#[test]
fn a_suspended_server_forgets_no_host_whose_messages_it_has_not_read() {
    let mut bench = Bench::new();
    let known = |number: u32| Generation(100 + number);
    (0..limits::HOSTS_MAX as u32).for_each(|number| bench.say(known(number), LockCommand::Heartbeat { sent: Time(0) }));
    bench.now.time = bench.now.time.after(settings().host_lease * 2);
    bench.say(ONE, LockCommand::Heartbeat { sent: Time(0) });
    assert_eq!(bench.hear(ONE), Some(LockReply::Rejected { rejection: Rejection::TooManyHosts }));
    assert!((0..limits::HOSTS_MAX as u32).all(|number| bench.server.engine().has_session(known(number))));
    bench.pass_with(settings().host_lease * 2, &[known(0)]);
    bench.say(ONE, LockCommand::Heartbeat { sent: Time(0) });
    assert_eq!(bench.hear(ONE), BEAT, "then their silence counts");
}
