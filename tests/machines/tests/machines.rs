//! What an array on three machines promises, on the real program and a real etcd. Bounds are those of a busy machine; what was measured is
//! printed, and `docs/leadership.md` says what is expected.

use braid_machines::{LONG, LOSS_PAUSE_MAX, Machine, Machines, NOTICED, PAUSE_MAX};
use braid_processes::array::number;
use braid_processes::daemon::{Stopped, signal};
use braid_processes::data::{noise, seed};
use braid_processes::{Load, poll_until, soak};
use rustix::process::Signal;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The longest pause of those who need locks, after the loss of the machine of the lock server without that of the leading monitor.
const LOCKS_PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long etcd is unavailable: the pact of the monitors is renewed several times.
const OUTAGE: Duration = Duration::from_secs(15);

/// Nothing that happens in the next seconds makes writers pause.
#[track_caller]
fn assert_unnoticed(load: &Load, what: &str) {
    sleep(NOTICED);
    load.assert_pause(what, PAUSE_MAX);
}

#[test]
fn a_volume_is_served_on_three_machines() {
    let Some(Machines { all, served_after, .. }) = &Machines::start() else { return };
    assert!(*served_after < LONG, "{served_after:?}");
    let content = noise(seed(), 300_000);
    all[0].volume().write(12_345, &content).expect("it is served");
    for machine in all {
        let there = machine.volume().read(12_345, content.len()).expect("it is served");
        assert!(there == content, "{} reads what m1 has written", machine.name);
    }
}

#[test]
fn the_leader_of_etcd_is_killed_and_stopped() {
    let Some(mut machines) = Machines::start() else { return };
    let load = machines.all[0].load();
    let leader = machines.etcd_leader();
    machines.all[leader].kill_etcd();
    assert_unnoticed(&load, "the leader of etcd is killed");
    machines.all[leader].start_etcd();
    let next = machines.etcd_leader();
    let stopped = Stopped::new(machines.all[next].etcd_pid());
    assert_unnoticed(&load, "the leader of etcd is stopped");
    drop(stopped);
    assert_unnoticed(&load, "it continues");
    machines.assert_kept(load.stop());
}

#[test]
fn the_leading_monitor_is_killed() {
    the_leading_monitor_fails("the leading monitor is killed", |pid| signal(pid, Signal::KILL));
}

#[test]
fn the_leading_monitor_ends_in_order() {
    the_leading_monitor_fails("the leading monitor ends in order", |pid| signal(pid, Signal::TERM));
}

#[test]
fn the_leading_monitor_is_stopped_and_continues() {
    the_leading_monitor_fails("the leading monitor is stopped", Stopped::new);
}

/// What `fail` has made is kept while another monitor leads, and then dropped.
fn the_leading_monitor_fails<T>(what: &str, fail: impl FnOnce(u32) -> T) {
    let Some(machines) = Machines::start() else { return };
    let (leader, pid) = machines.leader(0);
    let other = (leader + 1) % 3;
    let load = machines.all[other].load();
    let begun = Instant::now();
    let failed = fail(pid);
    let next = poll_until(LONG, || match machines.leader(other) {
        (_, same) if same == pid => Err("another monitor leads".to_string()),
        (next, _) => Ok(next),
    });
    println!("{} is shown as the leader after {:?}", machines.all[next].name, begun.elapsed());
    assert_unnoticed(&load, what);
    drop(failed);
    assert_unnoticed(&load, "it is there again");
    machines.assert_kept(load.stop());
}

#[test]
fn a_machine_dies_and_returns() {
    a_machine_is_lost("dies", Machine::die, Machine::revive);
}

#[test]
fn a_machine_is_cut_off_and_returns() {
    a_machine_is_lost("is cut off", |machine| machine.link("down"), |machine| machine.link("up"));
}

/// First one whose monitor does not lead is lost, then the one whose monitor leads.
fn a_machine_is_lost(how: &str, lose: fn(&mut Machine), restore: fn(&mut Machine)) {
    let Some(mut machines) = Machines::start() else { return };
    for with_the_leader in [false, true] {
        let (leader, _) = machines.leader(0);
        let lost = if with_the_leader { leader } else { (leader + 1) % 3 };
        let other = (leader + 2) % 3;
        let load = machines.all[other].load();
        lose(&mut machines.all[lost]);
        machines.all[other].await_volume("degraded");
        load.assert_pause(&format!("a machine {how} (its monitor leads: {with_the_leader})"), LOSS_PAUSE_MAX);
        let begun = Instant::now();
        restore(&mut machines.all[lost]);
        machines.all[other].await_volume("healthy");
        println!("the volume is healthy {:?} after it returns", begun.elapsed());
        load.assert_pause("it returns", PAUSE_MAX);
        machines.assert_kept(load.stop());
    }
}

#[test]
fn a_lock_server_is_on_the_next_machine_when_its_own_dies() {
    let Some(mut machines) = Machines::start() else { return };
    machines.all[0].braid(&["volume", "set-ordering", "vol0", "callback-lock"]).done();
    for asked in 0..2 {
        let lost = machines.lock_server(asked);
        let other = (lost + 1) % 3;
        let with_the_leader = machines.leader(other).0 == lost;
        let load = machines.all[other].load();
        machines.all[lost].die();
        let most = if with_the_leader { LOSS_PAUSE_MAX } else { LOCKS_PAUSE_MAX };
        load.assert_pause(&format!("the machine of the lock server dies (its monitor leads: {with_the_leader})"), most);
        assert_ne!(machines.lock_server(other), lost);
        machines.all[lost].revive();
        machines.all[other].await_volume("healthy");
        assert_ne!(machines.lock_server(lost), lost, "it stays where it is");
        load.assert_pause("it returns", PAUSE_MAX);
        machines.assert_kept(load.stop());
    }
}

#[test]
fn all_machines_die_and_return() {
    let Some(mut machines) = Machines::start() else { return };
    let load = machines.all[0].load_that(true);
    machines.all.iter_mut().for_each(Machine::die);
    let (record, begun) = (load.ended(), Instant::now());
    machines.at_once(Machine::revive);
    machines.all[0].await_volume("healthy");
    println!("the volume is healthy {:?} after the machines return", begun.elapsed());
    machines.assert_kept(record);
}

/// First its members are killed, then they are stopped.
#[test]
fn etcd_is_unavailable() {
    let Some(mut machines) = Machines::start() else { return };
    let load = machines.all[0].load();
    for are_killed in [true, false] {
        let mut stopped = Vec::new();
        match are_killed {
            true => machines.all.iter_mut().for_each(Machine::kill_etcd),
            false => stopped.extend(machines.all.iter().map(|machine| Stopped::new(machine.etcd_pid()))),
        }
        sleep(if soak() { 40 * OUTAGE } else { OUTAGE });
        load.assert_pause("etcd is unavailable", PAUSE_MAX);
        for machine in &machines.all {
            machine.braid(&["status"]).refused(3, "no-leader");
        }
        drop(stopped);
        if are_killed {
            machines.all.iter_mut().for_each(Machine::start_etcd);
        }
        let begun = Instant::now();
        machines.all[0].await_volume("healthy");
        println!("etcd is back: commands work after {:?}", begun.elapsed());
        assert_unnoticed(&load, "etcd is back");
    }
    machines.assert_kept(load.stop());
}

#[test]
fn etcd_is_unavailable_and_the_leading_monitor_dies() {
    let Some(mut machines) = Machines::start() else { return };
    let (_, pid) = machines.leader(0);
    let load = machines.all[0].load();
    machines.all.iter_mut().for_each(Machine::kill_etcd);
    signal(pid, Signal::KILL);
    sleep(NOTICED);
    machines.all.iter_mut().for_each(Machine::start_etcd);
    let pause = load.pause();
    println!("writers waited for {pause:?}: no monitor could lead for {NOTICED:?}");
    assert!(pause > PAUSE_MAX && pause < LOSS_PAUSE_MAX, "{pause:?}");
    machines.assert_kept(load.stop());
}

/// First with a backup from before a machine died, which therefore lacks what was written later: it must not count as up to date.
#[test]
fn etcd_loses_all_data_and_is_recovered() {
    let Some(mut machines) = Machines::start() else { return };
    let backup = machines.all[0].file("backup.json");
    machines.all[0].braid(&["cluster", "backup", &backup]).done();
    for from in [vec!["--from", &backup], vec!["--from-devices"]] {
        let (first, round) = (&machines.all[0], from.len());
        first.braid(&["cluster", "recover", "--from-devices"]).refused(1, "already-up");
        let load = first.load();
        if round == 2 {
            machines.all[2].die();
            machines.all[0].await_volume("degraded");
            load.assert_pause("a machine dies", LOSS_PAUSE_MAX);
            machines.all[2].link("up");
            machines.all[2].start_etcd();
        } else {
            machines.all[2].stop_agent();
        }
        let record = load.stop();
        machines.all[0].stop_agent();
        let others: Vec<_> = machines.all[1..].iter().map(|one| one.file(&format!("export-{round}.json"))).collect();
        let recover = [&["cluster", "recover"], &from[..]].concat();
        let files: Vec<_> = others.iter().map(String::as_str).collect();
        machines.all[0].braid(&recover).refused(1, "monitor-running");
        machines.all[1].stop_agent();
        for (machine, file) in machines.all[1..].iter().zip(&files) {
            machine.braid(&["cluster", "recover", "--export", file]).done();
        }
        let all = [&recover[..], &files].concat();
        machines.all[0].braid(&all).refused(1, "nothing-to-recover");
        machines.lose_etcd();
        machines.all[0].braid(&[&recover[..], &files[..1]].concat()).refused(3, "devices-missing");
        let recovered = machines.all[0].braid(&all).done().json();
        assert!(number(&recovered["term"]) > 1 << 20 && number(&recovered["revision"]) > 1 << 20, "{recovered}");
        let begun = Instant::now();
        machines.at_once(Machine::start_agent);
        machines.all[0].await_volume("healthy");
        println!("the volume is healthy {:?} after the recovery {from:?}", begun.elapsed());
        machines.assert_kept(record);
    }
    machines.all[0].stop_agent();
    let (text, wrong) = (std::fs::read_to_string(&backup).expect("it is there"), machines.all[0].file("wrong.json"));
    for (what, instead) in
        [("vol0", "vol1"), ("\"backup\"", "\"export\""), ("\"schema\": 1", "\"schema\": 7"), ("}", "")]
    {
        std::fs::write(&wrong, text.replacen(what, instead, 1)).expect("it can be written");
        let recover = ["cluster", "recover", "--from", &wrong];
        let said = machines.all[0].braid(&recover).refused(4, "damaged-backup");
        assert!(said.contains(&wrong), "{said}");
    }
}

#[test]
fn an_array_of_one_machine_becomes_one_of_three() {
    let Some(mut machines) = Machines::with_etcd() else { return };
    let up = ["--devices", "3", "--size", "256MiB", "--volume", "vol0:64MiB", "--layout", "raid5:2+1"];
    machines.all[0].up(&up);
    let load = machines.all[0].load();
    sleep(NOTICED);
    let dir = machines.all[0].dir().to_string();
    machines.make(&["adopt", &dir]).refused(1, "already-up");
    let record = load.stop();
    machines.all[0].stop_agent();
    machines.make(&["adopt", &dir]).done();
    assert!(!std::fs::exists(format!("{dir}/array.json")).expect("it can be read"), "`braid up` could start it");
    machines.join_all();
    for machine in &machines.all[1..] {
        machine.braid(&["device", "add"]).done();
    }
    machines.all[1].braid(&["volume", "migrate", "vol0", "--devices", "0,3,4"]).done();
    machines.all[1].await_volume("healthy");
    machines.assert_kept(record);
    let load = machines.all[1].load();
    machines.all[0].die();
    machines.all[1].await_volume("degraded");
    load.assert_pause("the first machine dies", LOSS_PAUSE_MAX);
    load.stop();
}
