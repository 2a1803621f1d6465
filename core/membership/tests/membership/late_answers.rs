//! Answers of the monitor that arrive late.

use crate::bench::*;
use braid_machine::{Effects, Never};
use braid_membership::client::{Ctx, MonitorClient};

/// Takes in the answer to a report that was sent at that time.
fn hear(client: &mut MonitorClient, sent: u64, membership: Option<Membership>, unavailable: &[u16]) {
    let unavailable = unavailable.iter().copied().map(DeviceId).collect();
    let length = Duration::from_secs(4);
    let reply = MonitorReply::Lease {
        sent: Time(sent),
        length,
        throttle: RecoveryThrottle::default(),
        stamps: Clock(0),
        level: Level::FIRST,
    };
    client.on_answer(Time(9), MonitorAnswer { membership, unavailable, reply });
    let (settings, mut out) = (Settings::default(), Effects::<Never>::new());
    let now = Now { time: Time(9), clock: Clock(9) };
    while client.next_event(&Ctx { now, settings: &settings, out: &mut out }).is_some() {}
}

#[test]
fn a_late_answer_does_not_say_which_devices_are_unavailable() {
    let mut client = MonitorClient::of_host(None);
    let first = Membership::first([DeviceId(0), DeviceId(1)]);
    assert_eq!(first.epoch, Epoch(1));
    hear(&mut client, 5, Some(first), &[]);
    hear(&mut client, 4, None, &[0, 1]);
    assert!(client.view().unavailable().is_empty(), "that was before");
    hear(&mut client, 5, None, &[1]);
    assert!(client.view().unavailable().contains(&DeviceId(1)), "a second answer to the same report may be news");
    hear(&mut client, 6, None, &[]);
    assert!(client.view().unavailable().is_empty());
}
