//! Messages that break the protocol are refused or ignored.

use crate::bench::*;

#[test]
fn requests_that_make_no_sense_are_refused() {
    let mut bench = Bench::new();
    let extent = |position, start, count| LockExtent {
        position,
        range: BlockRange::new(start, count),
        mode: LockMode::Exclusive,
    };
    let many = vec![extent(0, 0, 1); limits::EXTENTS_MAX + 1];
    for (lock_id, extents) in [vec![], many, vec![extent(0, 5, 0)], vec![extent(1024, 0, 1)]].into_iter().enumerate() {
        for term in [PATIENT, LockTerm::Cached, LockTerm::Held { start: bench.start, cached: true }] {
            let lock_id = lock_id as u64;
            bench.say(ONE, LockCommand::Lock { lock_id, object: OBJECT, extents: extents.clone(), term });
            assert_eq!(bench.hear(ONE), Some(LockReply::Refused { lock_id, refusal: LockRefusal::Malformed }));
        }
    }
    assert_eq!(bench.server.engine().lock_ids().count(), 0);
}

#[test]
fn a_request_in_the_name_of_another_host_is_refused() {
    let mut bench = Bench::new();
    let command = LockCommand::Heartbeat { sent: Time(0) };
    let request = LockRequest { host: ONE, start: Generation(0), dropped: Vec::new(), command };
    for from in [NodeId::Host(TWO), NodeId::Device(DeviceId(0))] {
        bench.message(from, Message::LockRequest(request.clone()));
    }
    assert_eq!((bench.hear(ONE), bench.hear(TWO)), (None, None));
    assert_eq!(bench.server.counters().ignored, 2);
}

#[test]
fn hosts_beyond_the_limit_are_refused() {
    let mut bench = Bench::new();
    for host in 0..limits::HOSTS_MAX as u32 {
        bench.say(Generation(100 + host), LockCommand::Heartbeat { sent: Time(0) });
    }
    bench.say(ONE, LockCommand::Heartbeat { sent: Time(0) });
    assert_eq!(bench.hear(ONE), Some(LockReply::Rejected { rejection: Rejection::TooManyHosts }));
    bench.say(Generation(100), LockCommand::Heartbeat { sent: Time(0) });
    bench.hear(Generation(100));
    assert_eq!(bench.hear(Generation(100)), BEAT);
}

/// Otherwise, hosts that died with locks that no request waits for are kept for ten leases.
#[test]
fn a_silent_host_is_fenced_when_another_needs_its_room() {
    let mut bench = Bench::new();
    let dead = |number: u32| Generation(100 + number);
    for number in 0..limits::HOSTS_MAX as u32 {
        let block = u64::from(number) * 8;
        bench.lock(dead(number), 1, LockMode::Exclusive, (block, 1), LockTerm::Cached);
    }
    let living = dead(0);
    bench.say(ONE, LockCommand::Heartbeat { sent: Time(0) });
    assert_eq!(bench.hear(ONE), Some(LockReply::Rejected { rejection: Rejection::TooManyHosts }));
    bench.pass_with(settings().host_lease, &[living]);
    assert!(bench.fences.is_empty(), "no lease has expired");
    bench.say(ONE, LockCommand::Heartbeat { sent: Time(0) });
    bench.pass_with(settings().host_lease / 4, &[living]);
    let fenced: Vec<_> = (1..limits::HOSTS_MAX as u32).map(dead).collect();
    let asked = bench.fences.front().map(|(_, hosts)| hosts);
    assert!(asked == Some(&fenced), "all silent hosts are fenced");
    bench.fence_all();
    while bench.hear(ONE).is_some() {}
    bench.say(ONE, LockCommand::Heartbeat { sent: Time(0) });
    assert_eq!(bench.hear(ONE), BEAT, "there is room again");
}

#[test]
fn a_host_that_requests_too_much_at_once_is_told_to_retry() {
    let mut bench = Bench::new();
    bench.stalled = true;
    for lock_id in 0..=limits::OPERATIONS_MAX as u64 {
        bench.lock(ONE, lock_id, LockMode::Shared, (0, 1), PATIENT);
    }
    let lock_id = limits::OPERATIONS_MAX as u64;
    assert_eq!(bench.hear(ONE), Some(LockReply::Refused { lock_id, refusal: LockRefusal::Busy }));
}
