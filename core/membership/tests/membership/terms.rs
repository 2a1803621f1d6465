//! A monitor that leads for a term: what it is told of that decides when it grants, what it waits for, and when it answers.

use crate::bench::*;
use braid_membership::leadership::Term;

const ALL: [u16; 5] = [0, 1, 2, 3, 4];
const WAIT: Duration = Duration::from_millis(5_500);

fn led(follows: bool) -> MonitorConfig {
    MonitorConfig { term: Some(Term { wait: WAIT, follows }), ..config(5) }
}

/// Five devices that were heard, and then a monitor with a term.
fn leader(follows: bool) -> Bench {
    begun(led(follows))
}

fn begun(config: MonitorConfig) -> Bench {
    let mut bench = Bench::new();
    bench.restart(config);
    bench.adopt(volume(1, RaidLevel::Raid5 { data: 4 }, &ALL));
    bench.monitor.may_grant(true);
    bench
}

#[test]
fn a_leader_in_doubt_says_nothing_and_takes_no_device_out_for_that_silence() {
    let mut bench = leader(true);
    bench.pass_with(WAIT * 2, &nodes(&ALL, &[7]));
    bench.monitor.may_grant(false);
    for node in nodes(&[0], &[7]) {
        bench.renew_in(Epoch(1), node);
        assert_eq!(bench.hear(node), None);
    }
    bench.pass(LEASE * 3);
    assert_eq!((bench.epoch(), bench.unavailable()), (1, vec![]));
    bench.monitor.may_grant(true);
    bench.pass_with(LEASE, &nodes(&[0, 1, 2, 3], &[]));
    assert_eq!((bench.epoch(), bench.member_state(4)), (2, MemberState::Out));
}

#[test]
fn a_new_leader_in_doubt_is_woken_as_seldom_as_others() {
    let mut bench = leader(false);
    bench.monitor.may_grant(false);
    bench.pass(LEASE * 3);
}

#[test]
fn a_device_that_a_former_leader_may_have_leased_is_taken_out_after_the_wait() {
    for (config, last) in [(config(5), LEASE), (led(true), WAIT)] {
        let mut bench = begun(config);
        bench.pass_with(last - NOTICE, &nodes(&[0, 1, 2, 3], &[]));
        assert_eq!(bench.member_state(4), MemberState::In, "{last:?}");
        bench.pass_with(NOTICE * 2, &nodes(&[0, 1, 2, 3], &[]));
        assert_eq!(bench.member_state(4), MemberState::Out, "{last:?}");
    }
}

#[test]
fn a_device_never_has_leases_of_two_processes() {
    let mut bench = leader(true);
    let by = |number, has_lease| Some(Holder { number, has_lease });
    let others = nodes(&[0, 2, 3, 4], &[]);
    // The monitor does not know who had the lease before it started.
    for (number, has_lease, gets) in [(2, false, false), (1, true, true), (2, true, false), (1, false, true)] {
        bench.holder = by(number, has_lease);
        assert_eq!(bench.gets_lease(device(1)), gets, "{number}");
    }
    // The leader after this one may grant the process a lease for so much longer as this one may be in doubt.
    let end = bench.now.time.after(WAIT);
    while bench.now.time < end {
        bench.holder = by(2, false);
        assert!(!bench.gets_lease(device(1)), "{:?}", bench.now.time);
        bench.holder = None;
        bench.pass_with(SECOND / 4, &others);
    }
    bench.holder = by(2, false);
    assert!(bench.gets_lease(device(1)));
    assert_eq!(bench.member_state(1), MemberState::In, "it was not out meanwhile");
    bench.holder = by(1, false);
    assert!(!bench.gets_lease(device(1)), "it is no longer that of the device");
}

#[test]
fn only_a_leader_that_follows_grants_before_it_has_heard_all() {
    for follows in [true, false] {
        assert_eq!(leader(follows).gets_lease(device(1)), follows);
    }
}

#[test]
fn a_question_is_answered_when_the_leader_has_led_since() {
    let mut bench = leader(true);
    let ask = MonitorCommand::Ownership { ticket: 1, file_system: FileSystemId(3), request: OwnershipRequest::Inquire };
    for has_led in [false, true] {
        bench.say(host(7), ask.clone());
        assert_eq!(bench.take_ownerships(), []);
        let [id] = bench.monitor.take_deferred()[..] else { panic!("one answer waits") };
        bench.end_deferred(id, has_led);
        assert_eq!(bench.take_ownerships().len(), usize::from(has_led));
    }
    assert_eq!(bench.monitor.take_deferred(), []);
}
