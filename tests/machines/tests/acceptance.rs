//! What an array on three machines promises when its network, etcd's data and its programs change. `cargo xtask machines --list` has the numbers
//! of all checks.

use braid_machines::{LONG, LOSS_PAUSE_MAX, Machine, Machines, NOTICED, PAUSE_MAX};
use braid_processes::data::seed;
use braid_processes::program::braid_bin;
use braid_processes::{Load, soak};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// After the end of a fault, all is healed within this time.
const HEALED: Duration = Duration::from_secs(30);

/// The volume is healthy within a time, for all machines.
#[track_caller]
fn assert_healed(machines: &Machines, what: &str, within: Duration) {
    let begun = Instant::now();
    machines.all.iter().for_each(|machine| machine.await_volume("healthy"));
    println!("{what}: the volume is healthy after {:?}", begun.elapsed());
    assert!(begun.elapsed() < within, "{what}");
}

#[test]
fn links_are_cut_in_one_and_in_both_directions() {
    let Some(machines) = Machines::start() else { return };
    let loads: Vec<Load> = machines.all.iter().map(Machine::load).collect();
    let (seed, rounds) = (seed() as usize, if soak() { 100 } else { 12 });
    for cut in (seed..).take(rounds) {
        let (leader, near, far) = (machines.leader(cut % 3).0, cut % 3, (cut + 1) % 3);
        let (second, third) = ((leader + 1) % 3, (leader + 2) % 3);
        // Each pair in each direction and in both; then what the leader sends, and what is sent to it.
        let ways = match cut / 3 % 4 {
            0 => vec![(near, far)],
            1 => vec![(far, near)],
            2 => vec![(near, far), (far, near)],
            _ if cut % 3 == 0 => vec![(leader, second), (leader, third)],
            _ => vec![(second, leader), (third, leader)],
        };
        let ways: Vec<_> = ways.into_iter().map(|(from, to)| (&machines.all[from], &machines.all[to])).collect();
        let what = ways.iter().map(|(from, to)| format!("{} to {}", from.name, to.name)).collect::<Vec<_>>().join(", ");
        ways.iter().for_each(|(from, to)| from.cut(to));
        sleep(NOTICED);
        machines.all.iter().for_each(Machine::mend);
        assert_healed(&machines, &format!("cut from {what} (m{} led)", leader + 1), HEALED);
        loads.iter().for_each(|load| load.assert_pause(&what, LOSS_PAUSE_MAX + NOTICED));
    }
    println!("the monitors have granted in {} terms", machines.assert_one_grants());
    loads.into_iter().for_each(|load| machines.assert_kept(load.stop()));
}

#[test]
fn etcd_is_full() {
    let Some(mut machines) = Machines::start() else { return };
    let load = machines.all[0].load();
    for index in 0..3 {
        machines.all[index].kill_etcd();
        machines.all[index].start_etcd_with(&["--quota-backend-bytes", "4194304"]);
        machines.etcd_leader();
        sleep(Duration::from_secs(2));
    }
    let (first, filler) = (&machines.all[0], "x".repeat(100_000));
    let fills = |number| first.etcdctl(&["put", &format!("filler{number}"), &filler]).status == Some(0);
    assert!(!(0..60).all(fills), "it has no space in the end");
    sleep(2 * NOTICED);
    load.assert_pause("etcd is full", PAUSE_MAX);
    let create = ["volume", "create", "late", "--size", "1MiB"];
    let said = machines.all[1].braid(&create);
    println!("a command, while etcd is full: {said}");
    assert!(said.status != Some(0), "{said}");
    first.etcdctl(&["del", "filler", "--prefix"]).done();
    let header = first.etcdctl(&["get", "nothing", "--write-out=json"]).done().stdout;
    let revision = header.split("\"revision\":").nth(1).and_then(|rest| rest.split(',').next()).expect("it has one");
    first.etcdctl(&["compact", revision]).done();
    machines.all.iter().for_each(|machine| drop(machine.etcdctl(&["defrag"]).done()));
    first.etcdctl(&["alarm", "disarm"]).done();
    assert_healed(&machines, "etcd has space", HEALED);
    sleep(NOTICED);
    load.assert_pause("etcd has space", PAUSE_MAX);
    machines.all[1].braid(&["volume", "create", "later", "--size", "1MiB"]).done();
    machines.assert_kept(load.stop());
}

/// First while the monitors run, then while none does: they know by what they have kept.
#[test]
fn etcd_is_restored_from_an_old_snapshot() {
    let Some(mut machines) = Machines::start() else { return };
    for live in [true, false] {
        let snapshot = machines.all[0].file(&format!("{live}.snapshot"));
        machines.all[0].etcdctl(&["snapshot", "save", &snapshot]).done();
        let load = machines.all[0].load_that(true);
        let (name, begun) = (format!("live-{live}"), Instant::now());
        machines.all[1].braid(&["volume", "create", &name, "--size", "1MiB"]).done();
        sleep(if soak() { Duration::from_secs(60) } else { 2 * NOTICED });
        let load = if live {
            Some(load)
        } else {
            machines.assert_kept(load.stop());
            None
        };
        if !live {
            machines.at_once(Machine::stop_agent);
        }
        machines.all.iter_mut().for_each(Machine::kill_etcd);
        machines.all.iter_mut().for_each(|machine| machine.restore_etcd(&snapshot));
        machines.etcd_leader();
        // They wait for a monitor, which does not come.
        let waiting: Vec<_> = machines.all.iter().filter(|_| !live).map(Machine::spawn_agent).collect();
        sleep(NOTICED);
        for machine in &machines.all {
            let said = machine.braid(&["status"]).refused(3, "control-plane-old");
            println!("{}: {said}", machine.name);
        }
        machines.at_once(Machine::kill_agent);
        waiting.into_iter().for_each(|mut agent| drop(agent.wait()));
        let record = load.map(Load::ended);
        machines.recover(&["--from-devices"]);
        machines.at_once(Machine::start_agent);
        assert_healed(&machines, "recovered", LONG);
        machines.all[2].braid(&["volume", "info", &name]).done();
        println!("{live}: {:?} from the snapshot's age to the end", begun.elapsed());
        record.into_iter().for_each(|record| machines.assert_kept(record));
    }
}

#[test]
fn a_program_of_the_next_release_replaces_that_of_each_machine_and_back() {
    let Some(mut machines) = Machines::start() else { return };
    let (old, next) = (braid_bin(), braid_bin().with_file_name("braid-next"));
    for program in [&next, &old, &next] {
        for index in 0..3 {
            let load = machines.all[(index + 1) % 3].load();
            machines.all[index].stop_agent();
            machines.all[index].program = program.clone();
            machines.all[index].start_agent();
            machines.all[index].await_volume("healthy");
            sleep(if soak() { Duration::from_secs(60) } else { Duration::from_secs(3) });
            let what = format!("{} runs {}", machines.all[index].name, program.display());
            load.assert_pause(&what, LOSS_PAUSE_MAX);
            machines.assert_kept(load.stop());
        }
    }
    let load = machines.all[1].load();
    assert_eq!(machines.all[0].braid(&["upgrade", "finish"]).done().json()["level"], 2);
    machines.all[0].stop_agent();
    machines.all[0].program = old;
    let refused = machines.all[0].try_start_agent().expect_err("the old program is refused");
    println!("the old program after the end of the upgrade: {refused}");
    machines.all[0].program = next;
    machines.all[0].start_agent();
    load.assert_pause("the upgrade is finished", LOSS_PAUSE_MAX);
    machines.assert_kept(load.stop());
}

#[test]
fn an_agent_is_started_twice_and_a_machine_is_cloned() {
    let Some(machines) = Machines::start() else { return };
    let load = machines.all[0].load();
    machines.all[2].braid(&["agent", "--port", "0"]).refused(1, "already-up");
    let copy = machines.copied(2);
    copy.braid(&["agent"]).refused(1, "machine-twice");
    load.assert_pause("the agent of a copied machine is started", PAUSE_MAX);
    drop(copy);
    sleep(NOTICED);
    load.assert_pause("the copy is gone", LOSS_PAUSE_MAX);
    assert_healed(&machines, "the copy is gone", HEALED);
    machines.assert_kept(load.stop());
}

/// With the documented commands, in roots that have the program and its libraries alone.
#[test]
fn three_bare_roots_serve_a_volume_and_a_folder_within_a_minute() {
    let Some(mut machines) = Machines::with_etcd() else { return };
    let roots: Vec<_> = machines.all.iter_mut().map(Machine::make_bare).collect();
    let begun = Instant::now();
    machines.make(&["init", "--size", "1GiB", "--volume", "vol0:64MiB", "--fs", "home"]).done();
    machines.join_all();
    let mounted: Vec<_> = roots.iter().map(|root| root.join("mnt")).collect();
    for (machine, folder) in machines.all.iter().zip(&mounted) {
        machine.braid(&["fs", "mount", "home", "/mnt"]).done();
        std::fs::write(folder.join(&machine.name), &machine.name).expect("files can be written there");
    }
    println!("three bare roots serve a volume and a folder after {:?}", begun.elapsed());
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    for folder in &mounted {
        let read = |machine: &Machine| std::fs::read_to_string(folder.join(&machine.name)).expect("all see it");
        assert!(machines.all.iter().all(|machine| read(machine) == machine.name));
    }
    machines.assert_kept(machines.all[2].load().stop());
}
