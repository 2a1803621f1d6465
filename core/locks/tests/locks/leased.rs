//! A lock server that serves while its lease runs, and the order of its starts.

use crate::bench::*;
use braid_locks::leased::{Kind, LeasedLockServer, Renewed, Seen, earlier, holders, idle};
use braid_machine::OpId;

const AT: Generation = Generation(20);

/// At these seconds. Returns how many messages it sends.
fn step(server: &mut LeasedLockServer, disk: &mut MemoryDisk, seconds: u64, input: Input<Renewed>) -> usize {
    let (mut out, now) = (Effects::new(), Now { time: Time(seconds * 1_000_000_000), clock: Clock(0) });
    server.step(now, input, &mut out);
    let mut sent = 0;
    for effect in out.drain() {
        match effect {
            Effect::Send { .. } => sent += 1,
            Effect::Disk { tag, command } => disk.submit(tag, command),
            Effect::Reply { .. } => {}
        }
    }
    while let Some((tag, result)) = disk.end_one() {
        sent += step(server, disk, seconds, Input::DiskDone { tag, result });
    }
    sent
}

#[test]
fn without_its_lease_it_says_nothing_and_judges_no_silence() {
    let config = LockServerConfig { unlisted: BTreeSet::from([ONE, TWO, THREE]), ..config(AT) };
    let (mut server, mut disk) = (LeasedLockServer::new(config), MemoryDisk::new(DISK_BYTES));
    let mut take =
        |seconds, input| (step(&mut server, &mut disk, seconds, input), server.serves(Time(seconds * 1_000_000_000)));
    let renewed = |until: u64, idle: &[Generation]| {
        let request = Renewed { until: Time(until * 1_000_000_000), idle: idle.to_vec() };
        Input::Request { op: OpId::front_end(0), request }
    };
    let heard = |host| {
        let command = LockCommand::Heartbeat { sent: Time(0) };
        let message = Message::LockRequest(LockRequest { host, start: AT, dropped: Vec::new(), command });
        Input::Message { to: NodeId::LockServer(LockServerId(0)), from: NodeId::Host(host), message }
    };
    let (silent, answers) = ((0, false), (1, false));
    assert_eq!((take(100, Input::Start), take(100, heard(ONE))), (silent, silent), "it has no lease yet");
    take(100, renewed(104, &[THREE]));
    assert_eq!((take(101, heard(ONE)), take(102, heard(TWO))), (answers, answers), "a lease of hosts has to pass");
    assert_eq!((take(104, heard(ONE)), take(104, renewed(108, &[]))), (silent, (0, true)), "THREE need not report");
    // All hosts have been silent for long, as far as it has heard.
    assert_eq!((take(150, Input::Wake), take(150, renewed(154, &[]))), (silent, (0, true)));
    take(151, renewed(152, &[]));
    assert_eq!(take(153, heard(TWO)), (1, true), "a renewal that is late takes nothing back");
    assert_eq!((take(154, Input::Wake), server.deadline()), (silent, None));
    assert_eq!(server.server().fence_decisions().count(), 0);
}

#[test]
fn a_start_waits_for_earlier_ones_and_for_the_hosts_that_may_have_asked_them() {
    let seen =
        |host, kind, revision, requests| Seen { host: Generation(host), kind, is_over: false, revision, requests };
    let mut all = [
        seen(3, Kind::Host, 9, None),
        seen(5, Kind::Start, 0, None),
        seen(6, Kind::OtherLockServer, 0, None),
        seen(7, Kind::Host, 8, Some(0)),
        seen(8, Kind::Host, 9, Some(0)),
        seen(9, Kind::Host, 9, Some(1)),
        seen(20, Kind::Start, 0, None),
        seen(21, Kind::Start, 0, None),
    ];
    assert_eq!(earlier(AT, &all), Some(Generation(5)));
    all[1].is_over = true;
    assert_eq!(earlier(AT, &all), None, "a later one waits for this one");
    assert_eq!(holders(&all), [3, 7, 8, 9].map(Generation).into());
    assert_eq!(idle(9, &all), [Generation(8)], "7 may have said that before");
}
