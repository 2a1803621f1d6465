//! Returning devices: who coordinates their recovery, and when they are in again.

use crate::bench::*;
use crate::story::{Story, Told, five, stories};

const ALL: [u16; 5] = [0, 1, 2, 3, 4];

fn returning(recovery_coordinator: u32) -> MemberState {
    MemberState::Returning { recovery_coordinator: Some(Generation(recovery_coordinator)) }
}

/// Device 2 is out, as of epoch 2, while these hosts are there; then, this story.
fn one_out(hosts: &str, parts: &[(&str, &str)]) -> Story {
    five(&[("hear 2", ""), (format!("4600ms 0134{hosts}").as_str(), "e2: 2 out")]).told(parts)
}

fn one_out_alone(parts: &[(&str, &str)]) {
    one_out("", parts);
}

fn one_out_with_a_host(parts: &[(&str, &str)]) {
    one_out(" h7", parts);
}

#[test]
fn a_device_stays_out_while_half_of_the_hosts_cannot_reach_it() {
    let mut bench = one_out(" h7 h8", &[]).bench;
    let all = nodes(&ALL, &[]);
    for round in 0..40 {
        bench.silent = vec![braid_base::DeviceId(2)];
        bench.renew(host(7));
        bench.silent.clear();
        bench.renew(host(8));
        assert_eq!(bench.member_state(2), MemberState::Out, "{round}");
        bench.pass_with(SECOND / 2, &all);
    }
    bench.pass_with(SECOND, &nodes(&ALL, &[7, 8]));
    assert_eq!(bench.member_state(2), returning(7));
}

#[test]
fn another_host_coordinates_recovery_when_the_coordinator_cannot_reach_a_device_it_needs() {
    for silent in [2, 3] {
        let mut bench = one_out(" h7 h8 h9", &[]).bench;
        bench.pass_with(SECOND * 2, &nodes(&ALL, &[7, 8, 9]));
        assert_eq!(bench.member_state(2), returning(7));
        for _ in 0..8 {
            bench.silent = vec![braid_base::DeviceId(silent)];
            bench.renew(host(7));
            bench.silent.clear();
            bench.pass_with(SECOND / 2, &nodes(&ALL, &[8, 9]));
        }
        assert_eq!(bench.member_state(2), returning(8), "device {silent}");
        let epoch = bench.epoch();
        bench.pass_with(SECOND * 4, &nodes(&ALL, &[7, 8, 9]));
        assert_eq!((bench.epoch(), bench.member_state(2)), (epoch, returning(8)), "it goes on");
    }
}

/// Commands that ask for the state of the array are hosts for a moment. They have not noticed that a device is silent on which nothing lies.
#[test]
fn a_coordinator_stays_while_hosts_come_and_go_and_a_device_without_a_lease_is_silent() {
    let mut bench = Bench::of(5);
    bench.adopt(volume(1, RaidLevel::Raid5 { data: 3 }, &[0, 1, 2, 3]));
    bench.pass_with(SECOND, &nodes(&ALL, &[7]));
    bench.silent = vec![DeviceId(4)];
    bench.pass_with(LEASE + NOTICE, &nodes(&[0, 1, 2, 3], &[7]));
    bench.pass_with(LEASE + NOTICE, &nodes(&[0, 1, 3], &[7]));
    assert_eq!((bench.member_state(2), bench.unavailable()), (MemberState::Out, vec![4]));
    for visitor in 8..20 {
        bench.silent.clear();
        bench.renew(host(visitor));
        bench.silent = vec![DeviceId(4)];
        bench.pass_with(SECOND, &nodes(&[0, 1, 2, 3], &[7]));
    }
    assert_eq!(
        (bench.member_state(2), bench.epoch()),
        (returning(7), 3),
        "one epoch for its leaving, one for its return"
    );
}

stories! {
    one_out_alone;

    fn a_device_stays_out_until_it_was_out_for_a_second_and_is_heard():
        "hear 2";
        "500ms 01234";
        "500ms 01234" => "e3: 2 returning"; // There is no host to coordinate the recovery.

    fn a_device_stays_out_until_it_is_heard():
        "20s 0134";
}

stories! {
    one_out_with_a_host;

    fn a_device_that_is_heard_again_returns_and_is_resynchronised():
        "2s 01234 h7 h8" => "e3: 2 returning h7";
        "leased 2" => "yes"; // It takes part in writes.
        "h7 resynchronised 2 e2"; // The report is for another return, or another device.
        "h7 resynchronised 1 e1";
        "h7 resynchronised 9 e3";
        "h8 resynchronised 2 e3"; // Only the coordinator knows.
        "h0 resynchronised 2 e3";
        "s0 resynchronised 2 e3";
        "h7 resynchronised 2 e3" => "e4: 2 in since e3";
        "answers to h7";
        "has h7 e3"; // The answer was lost, so the report is repeated.
        "h7 resynchronised 2 e3";
        "hears h7" => "Changed, and e4";
        "has h7 e4";
        "h7 resynchronised 2 e3";
        "heard h7" => "no";
}
