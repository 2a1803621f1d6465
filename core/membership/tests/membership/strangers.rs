//! Messages from unknown senders, or of the wrong kind, are ignored.

use crate::bench::*;

#[test]
fn devices_may_only_renew_and_other_nodes_may_not() {
    let mut bench = Bench::new();
    let fence = |ticket| MonitorCommand::Fence { ticket, below: Generation(9), except: vec![], also: vec![] };
    let administer = MonitorCommand::Administer { ticket: 1, request: Administration::Fail { device: DeviceId(1) } };
    let resynchronised = MonitorCommand::Resynchronised { device: DeviceId(1), since: Epoch(1) };
    let renew = || MonitorCommand::Renew {
        sent: Time(7),
        silent: vec![],
        disk: None,
        bad_slots: 0,
        failing: false,
        undecided: vec![],
        stamps: Clock(7),
        knows: Level::KNOWN,
        holder: None,
    };
    let before = bench.monitor.counters().ignored;
    for (node, command) in [
        (device(1), fence(1)),
        (device(1), resynchronised),
        (device(9), renew()),
        (NodeId::Monitor, renew()),
        (NodeId::Monitor, fence(2)),
        (NodeId::LockServer(LockServerId(99)), renew()),
        (NodeId::LockServer(LockServerId(0)), administer),
    ] {
        while bench.hear(node).is_some() {}
        bench.say(node, command);
        assert_eq!(bench.hear(node), None);
    }
    let answer = MonitorAnswer { membership: None, unavailable: vec![], reply: MonitorReply::Changed };
    bench.take(Input::Message { to: NodeId::Monitor, from: device(1), message: Message::MonitorAnswer(answer) });
    assert_eq!((bench.monitor.counters().ignored - before, bench.epoch()), (8, 1));
}

#[test]
fn lock_servers_get_changes_while_they_are_heard() {
    let mut bench = Bench::new();
    for (server, renews) in [(0, true), (1, false)] {
        bench.renew(lock_server(server));
        bench.epochs.insert(lock_server(server), Epoch(u32::from(renews)));
    }
    bench.pass_with(SECOND * 9, &nodes(&[0, 1, 2, 3, 4], &[]));
    bench.renew(lock_server(0));
    bench.pass_with(SECOND * 2, &nodes(&[0, 1, 2, 3, 4], &[]));
    bench.say(
        host(3),
        MonitorCommand::Fence { ticket: 1, below: Generation(0), except: vec![], also: vec![Generation(1)] },
    );
    assert_eq!(bench.hear(lock_server(0)).map(|answer| answer.reply), Some(MonitorReply::Changed));
    assert_eq!((bench.hear(lock_server(1)), bench.hear(host(3))), (None, None), "it has never renewed");
}

#[test]
fn a_refusal_to_raise_the_level_names_the_programs_that_do_not_know_it() {
    let mut bench = Bench::new();
    let all = [nodes(&[0, 1, 2, 3, 4], &[7, 8]), vec![lock_server(0)]].concat();
    let level = Level(Level::KNOWN.0 + 1);
    let finish = |bench: &mut Bench, ticket| {
        while bench.hear(host(7)).is_some() {}
        bench.say(host(7), MonitorCommand::Administer { ticket, request: Administration::RaiseLevel { level } });
        let answers = std::iter::from_fn(|| bench.hear(host(7)));
        let results = answers.filter_map(|answer| match answer.reply {
            MonitorReply::Administered { result, .. } => Some(result),
            _ => None,
        });
        results.collect::<Vec<_>>()
    };
    let refused = |devices: &[u16], hosts: &[u32], lock_servers| {
        let (devices, hosts) = (devices.iter().copied().map(DeviceId), hosts.iter().copied().map(Generation));
        vec![Err(AdminError::LevelUnknown { devices: devices.collect(), hosts: hosts.collect(), lock_servers })]
    };
    bench.pass_with(SECOND, &all);
    assert_eq!(finish(&mut bench, 1), refused(&[0, 1, 2, 3, 4], &[7, 8], 1));
    bench.knows = level;
    bench.pass_with(SECOND, &nodes(&[0, 1, 2, 4], &[7]));
    assert_eq!(finish(&mut bench, 2), refused(&[3], &[8], 1));
    bench.pass_with(SECOND, &all);
    // The monitor itself does not know it.
    assert_eq!(finish(&mut bench, 3), refused(&[], &[], 0));
    assert_eq!(bench.monitor.level(), Level::FIRST);
}
