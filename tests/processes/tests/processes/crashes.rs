//! `kill -9` of devices, servers, and all processes, under writers that know the expected content.

use crate::prelude::*;

/// The longest pause that a single failure may cause.
const PAUSE_MAX: Duration = LEASE.saturating_add(Duration::from_secs(1));

#[test]
fn each_device_may_be_killed_under_load_without_an_error() {
    let array = Array::of_processes(&SMALL);
    let (_host, other) = array.host();
    let load = Load::start(Plan::of(&[&array.nbd(), &other]));
    for device in 0..5 {
        load.go_on();
        load.take_longest();
        let unavailable = array.kill_device(device);
        // The device may have been silent for longer than its lease; the next one must not fail while it is being resynchronised.
        array.await_volume(0, "healthy");
        load.go_on();
        println!(
            "device {device} was unavailable for {unavailable:?}; the longest pause of a writer was {:?}",
            load.take_longest()
        );
    }
    load.assert_kept(&array, &[&other, &array.nbd()]);
}

#[test]
fn a_killed_host_stops_the_others_for_no_longer_than_its_lease() {
    let array = Array::small();
    let (host, other) = array.host();
    let load = Load::running(Plan { hosts_may_go: true, ..Plan::of(&[&array.nbd(), &other]) });
    host.kill();
    load.go_on();
    load.assert_pause("a host was killed", PAUSE_MAX);
    load.assert_kept(&array, &[&array.nbd()]);
}

#[test]
fn all_acknowledged_writes_survive_a_kill_of_all_processes() {
    let mut array = Array::small();
    // Writes within a block, over two units, and over several stripes: each must be found entirely or not at all.
    for (cells, cell_bytes) in [(300, 3000), (100, 70_000), (40, 700_000)] {
        let (host, other) = array.host();
        let mut client = Client::open(&other);
        client.trim(0, SMALL_BYTES as u32).expect("space can be discarded");
        let plan = Plan::of(&[&array.nbd(), &other]);
        let load = Load::running(Plan { hosts_may_go: true, cells, cell_bytes, ..plan });
        array.kill();
        host.kill();
        let mut record = load.ended();
        array.start(&[]);
        record.verify(&array.nbd());
        array.assert_sound("vol0");
        // A second time: content that was read once must not change.
        record.verify(&array.nbd());
    }
}

#[test]
fn an_array_in_one_node_keeps_the_same_promises() {
    let mut array = Array::up(&SMALL);
    let pids = array.first_device_pids();
    assert!(
        pids.iter().all(|pid| *pid == pids[0] && *pid != array.supervisor().pid()),
        "one node runs all of them: {pids:?}"
    );
    let (host, other) = array.host();
    let load = Load::running(Plan { hosts_may_go: true, ..Plan::of(&[&array.nbd(), &other]) });
    array.give_away_supervisor().kill();
    // The second host outlives its devices; it is told to end while requests wait.
    host.kill();
    let mut record = load.ended();
    array.start(&[]);
    record.verify(&array.nbd());
    array.assert_sound("vol0");
    array.down();
    // The same array, with devices in processes.
    array.start(&["--processes"]);
    record.verify(&array.nbd());
}

#[test]
fn when_an_array_is_ready_all_its_devices_have_leases() {
    let mut array = Array::small();
    for _ in 0..if soak() { 50 } else { 2 } {
        array.kill();
        array.start(&[]);
        let shown = std::fs::read(array.dir().join("monitor.json")).expect("the monitor shows itself");
        let shown: Value = serde_json::from_slice(&shown).expect("it is JSON");
        let devices = items(&shown["report"]["devices"]);
        let has_lease = |device: &Value| device["member_state"] == "in" && device["heard_millis"].is_number();
        assert!(devices.len() == 5 && devices.iter().all(has_lease), "{shown:#}");
        assert_eq!(pid_of(&shown), array.monitor_pid(), "it is the one that runs");
        // Longer than the monitor waits after its start for members to report.
        let mut client = Client::open(&array.nbd());
        keep_doing(LEASE, || client.write(0, &[1; 4096]).expect("no device is thought to be unavailable"));
    }
}
