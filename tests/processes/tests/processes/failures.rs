//! Parts of the array are killed or suspended one after the other, or all at once, under writers that know the expected content and use two
//! hosts: users see a pause only, and `braid status` shows the cause.

use crate::prelude::*;
use braid_processes::array::LEASE_DEFAULT;

/// The longest pause that a single failure may cause.
const PAUSE_MAX: Duration = LEASE.saturating_add(Duration::from_secs(1));
/// The longest pause if a device is taken out and returns at once: its return may cause a second pause of two heartbeats and a resend
/// (docs/fault-model.md, Availability).
const PAUSE_AND_RETURN_MAX: Duration = PAUSE_MAX.saturating_add(Duration::from_millis(1_250));
const UNIT: u64 = 65_536;
/// The time limit of a request that waits for a device.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// Longer than any lease.
const LONG: Duration = Duration::from_secs(3);

/// Waits for operations through each host. No pause since the last check may be longer than a single failure may cause.
#[track_caller]
fn assert_goes_on(load: &Load, what: &str) {
    load.go_on();
    load.assert_pause(what, PAUSE_MAX);
}

#[track_caller]
fn assert_volume(status: &Value, volume: usize, state: &str, lacks: &[usize]) {
    let volume = &status["volumes"][volume];
    assert_eq!(
        (&volume["state"], &volume["missing_devices"]),
        (&Value::from(state), &Value::from(lacks)),
        "{status:#}"
    );
}

#[test]
fn a_suspended_device_is_marked_out_and_resynchronised_when_resumed() {
    let array = Array::of_processes(&SMALL);
    let (_host, other) = array.host();
    let load = Load::running(Plan::apart(&[&array.nbd(), &other]));
    for device in [1, 4] {
        let pid = array.device_pid(device);
        signal(pid, Signal::STOP);
        std::thread::sleep(LEASE / 2);
        signal(pid, Signal::CONT);
        assert_goes_on(&load, &format!("device {device} was suspended for {:?}", LEASE / 2));
        assert_eq!(array.member_state(device), "in", "no device was taken out");

        signal(pid, Signal::STOP);
        let begun = Instant::now();
        let status = array.await_volume(0, "degraded");
        assert_volume(&status, 0, "degraded", &[device]);
        assert_eq!(status["devices"][device]["member_state"], "out", "{status:#}");
        // A command that needs every device is refused at once, and leaves nothing behind.
        for command in [
            &["set-ordering", "vol0", "device-lock"][..],
            &["create", "v", "--size", "1MiB"],
            &["delete", "vol0", "--yes"],
        ] {
            array.braid(&[&["volume"], command].concat()).refused(3, "volume-degraded");
        }
        assert_goes_on(&load, &format!("device {device} is suspended"));
        let checked = array.braid(&["volume", "check", "vol0"]).done().json();
        assert_eq!(
            (number(&checked["bad"]), &checked["missing_devices"]),
            (0, &Value::from(vec![device])),
            "{checked}"
        );
        assert_eq!(number(&checked["unchecked"]), number(&checked["stripes"]), "{checked}");
        std::thread::sleep(LONG.saturating_sub(begun.elapsed()));
        assert_eq!(array.device_pid(device), pid, "a suspended process is not killed");
        signal(pid, Signal::CONT);
        let begun = Instant::now();
        array.await_volume(0, "healthy");
        println!("device {device} was back in after {:?}", begun.elapsed());
        assert_goes_on(&load, &format!("device {device} has come back"));
    }
    load.assert_kept(&array, &[&other, &array.nbd()]);
}

#[test]
fn devices_and_the_monitor_may_be_killed_or_suspended_for_a_moment_and_no_device_is_taken_out() {
    let array = Array::patient_of_processes(&SMALL);
    let (_host, other) = array.host();
    let load = Load::running(Plan::apart(&[&array.nbd(), &other]));
    for device in 0..5 {
        array.kill_device(device);
        assert_goes_on(&load, &format!("device {device} was killed"));
    }
    assert_eq!(number(&array.status()["epoch"]), 1, "the same devices were in all the time");

    // The monitor may die or be suspended without an error.
    let pid = array.monitor_pid();
    signal(pid, Signal::KILL);
    array.await_status("the monitor serves again", |status| {
        status["monitor"]["state"] == "serving" && pid_of(&status["monitor"]) != pid
    });
    // Data does not pass it.
    load.assert_pause("the monitor was killed", Duration::from_secs(1));

    let pid = array.monitor_pid();
    signal(pid, Signal::STOP);
    std::thread::sleep(LEASE_DEFAULT / 2);
    signal(pid, Signal::CONT);
    // Leases are longer than that.
    load.assert_pause(&format!("the monitor was suspended for {:?}", LEASE_DEFAULT / 2), Duration::from_secs(1));

    // Longer than all leases: the array stops, and then continues as before.
    signal(pid, Signal::STOP);
    array.await_status("the monitor's silence is seen", |status| status["monitor"]["state"] == "silent");
    let status = array.await_volume(0, "waiting");
    assert_eq!(status["devices"][0]["state"], "waiting for the monitor", "{status:#}");
    std::thread::sleep(LEASE_DEFAULT / 2);
    assert_eq!(array.monitor_pid(), pid, "a suspended process is not killed");
    signal(pid, Signal::CONT);
    array.await_volume(0, "healthy");
    println!("the monitor was suspended for longer: the longest pause of a writer was {:?}", load.pause());
    assert_eq!(number(&array.status()["epoch"]), 1, "no device was taken out while the monitor was suspended");
    load.assert_kept(&array, &[&other]);
}

#[test]
fn a_host_that_stands_still_finds_its_work_again_and_others_go_on() {
    for ordering in ["timestamp", "device-lock"] {
        let array = Array::small();
        let (host, other) = array.host();
        array.braid(&["volume", "set-ordering", "vol0", ordering]).done();
        let load = Load::running(Plan::apart(&[&array.nbd(), &other]));
        load.take_longest_through(0);
        signal(host.pid(), Signal::STOP);
        let begun = Instant::now();
        load.go_on_through(0);
        load.go_on_through(0);
        let pause = load.take_longest_through(0);
        println!("{ordering}: a host is suspended: the longest pause through the other was {pause:?}");
        assert!(pause <= PAUSE_MAX, "{ordering}: {pause:?}");
        std::thread::sleep(LONG.saturating_sub(begun.elapsed()));
        signal(host.pid(), Signal::CONT);
        // No writer sees an error: a writer with an error prints it and ends.
        load.go_on_through(1);
        load.go_on_through(0);
        println!("{ordering}: its own clients waited {:?}", load.take_longest_through(1));
        load.assert_kept(&array, &[&array.nbd(), &other]);
    }
}

#[test]
fn when_up_itself_dies_the_other_hosts_wait_for_the_next_one() {
    let mut array = Array::small();
    let (_host, other) = array.host();
    // Through the other host only: the host of `up` was killed with it.
    let load = Load::running(Plan::apart(&[&other]));
    signal(array.supervisor().pid(), Signal::STOP);
    load.take_longest();
    load.go_on();
    std::thread::sleep(PAUSE_MAX);
    assert_goes_on(&load, "`braid up` was suspended");
    signal(array.supervisor().pid(), Signal::CONT);
    let pids = array.first_device_pids();
    array.give_away_supervisor().kill();
    gone(&pids);
    array.start(&[]);
    println!("up was killed, and started again: the longest pause of a writer was {:?}", load.pause());
    array.await_volume(0, "healthy");
    load.assert_kept(&array, &[&other]);
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
fn all_acknowledged_writes_survive_kills_of_all_processes_also_while_a_device_is_out() {
    let mut array = Array::small();
    // Writes within a block, over two units, and over several stripes: each must be found entirely or not at all.
    for (round, (cells, cell_bytes)) in [(300, 3000), (100, 70_000), (40, 700_000), (300, 3000)].into_iter().enumerate()
    {
        let (host, other) = array.host();
        Client::open(&other).trim(0, SMALL_BYTES as u32).expect("space can be discarded");
        let plan = Plan::of(&[&array.nbd(), &other]);
        let load = Load::running(Plan { hosts_may_go: true, cells, cell_bytes, ..plan });
        let a_device_is_out = round == 3;
        if a_device_is_out {
            signal(array.device_pid(2), Signal::STOP);
            array.await_volume(0, "degraded");
            load.go_on();
        }
        array.kill();
        host.kill();
        let mut record = load.ended();
        // The last round has a process for each device, so that one can be suspended.
        array.start(if round == 2 { &["--processes"] } else { &[] });
        if !a_device_is_out {
            assert_all_have_leases(&array);
        }
        record.verify(&array.nbd());
        array.await_volume(0, "healthy");
        array.assert_sound("vol0");
        // A second time: content that was read once must not change.
        record.verify(&array.nbd());
    }
}

/// When an array is ready, all its devices have leases.
fn assert_all_have_leases(array: &Array) {
    let shown = std::fs::read(array.dir().join("monitor.json")).expect("the monitor shows itself");
    let shown: Value = serde_json::from_slice(&shown).expect("it is JSON");
    let devices = items(&shown["report"]["devices"]);
    let has_lease = |device: &Value| device["member_state"] == "in" && device["heard_millis"].is_number();
    assert!(devices.len() == 5 && devices.iter().all(has_lease), "{shown:#}");
    assert_eq!(pid_of(&shown), array.monitor_pid(), "it is the one that runs");
    // Longer than the monitor waits after its start for members to report. The last block is no writer's.
    let (mut client, last) = (Client::open(&array.nbd()), SMALL_BYTES - 4096);
    keep_doing(LEASE, || client.write(last, &[1; 4096]).expect("no device is thought to be unavailable"));
}

#[test]
fn of_two_devices_of_a_group_one_must_come_back_and_other_groups_go_on() {
    // Three mirrored pairs.
    let up = ["--devices", "6", "--layout", "raid1:2", "--size", "64MiB", "--volume", "vol0:32MiB"];
    let array = Array::of_processes(&[&up[..], &["--unavailable", "fail"]].concat());
    let (_server, patient) = array.host();
    let mut patient = Client::open(&patient);
    let ring = array.devices_of("vol0");
    let group = [ring[0], ring[1]];
    let uri = array.nbd();
    let mut client = Client::open(&uri);
    for stripe in 0..6 {
        client.write(stripe * UNIT, &[stripe as u8 + 1; 4096]).expect("a write works");
    }
    let pids = group.map(|device| array.device_pid(device));
    pids.into_iter().for_each(|pid| signal(pid, Signal::STOP));
    let mut lacks = group;
    lacks.sort_unstable();
    // Until a lease has passed, the volume waits for them.
    let both = |status: &Value| {
        let volume = &status["volumes"][0];
        volume["missing_devices"] == Value::from(&lacks[..]) && volume["state"] != "waiting"
    };
    let status = array.await_status("both devices of a pair are missing", both);
    assert_volume(&status, 0, "unavailable", &lacks);
    let unavailable = group.into_iter().find(|device| status["devices"][*device]["member_state"] == "unavailable");
    let unavailable = unavailable.unwrap_or_else(|| panic!("the second one is waited for: {status:#}"));

    // Requests for data on the lost pair fail at once, with a message that names it; all others succeed.
    let begun = Instant::now();
    assert!(matches!(client.read(0, 4096), Err(Refusal::Said(EIO))));
    assert!(matches!(client.write(0, &[9; 4096]), Err(Refusal::Said(EIO))));
    assert!(begun.elapsed() < Duration::from_secs(1), "it is known at once: {:?}", begun.elapsed());
    let log = array.supervisor().log();
    assert!(log.contains(&format!("d{unavailable}")), "the log names whom to wait for: {log}");
    for stripe in [1, 2, 4, 5] {
        client.write(stripe * UNIT, &[stripe as u8 + 10; 4096]).expect("another pair accepts writes");
        assert!(client.read(stripe * UNIT, 4096).expect("and read") == [stripe as u8 + 10; 4096]);
    }
    // By default they wait, and hold up nothing else.
    let waiting = patient.send_read(0, 4096).expect("the server reads");
    assert!(patient.read(UNIT, 4096).expect("another pair serves") == [11; 4096]);
    array.await_status("the waiting request is shown", |status| {
        let hosts = items(&status["hosts"]);
        let shows =
            |host: &Value| host["waiting"]["requests"] == 1 && host["waiting"]["devices"] == Value::from(&lacks[..]);
        hosts.iter().any(shows)
    });
    // A server that is told to stop does not wait for devices.
    let (leaving, uri) = array.host();
    let mut left = Client::open(&uri);
    left.send_read(0, 4096).expect("the server reads");
    assert!(left.read(UNIT, 4096).is_ok());
    assert_eq!(leaving.end(Signal::TERM), Some(0));
    assert!(left.reply().is_err(), "a client that connects elsewhere repeats its request");
    let checked = array.braid(&["volume", "check", "vol0"]).done().json();
    let unchecked = number(&checked["unchecked"]);
    assert!(unchecked > 0 && unchecked < number(&checked["stripes"]), "the other mirrors are checked: {checked}");

    signal(array.device_pid(unavailable), Signal::CONT);
    array.await_volume(0, "degraded");
    assert!(client.read(0, 4096).expect("one device of the pair is enough") == [1; 4096]);
    assert_eq!(patient.reply().expect("the server answers"), (waiting, 0));
    assert!(patient.take(4096).expect("data") == [1; 4096]);
    client.write(0, &[9; 4096]).expect("a write works");
    for pid in pids.into_iter().filter(|pid| *pid != array.device_pid(unavailable)) {
        signal(pid, Signal::CONT);
    }
    array.await_volume(0, "healthy");
    assert!(client.read(0, 4096).expect("a read works") == [9; 4096]);
    array.assert_sound("vol0");
}

#[test]
fn where_writes_take_effect_on_arrival_parity_is_right_again_after_a_device_or_a_host_failed() {
    for ordering in ["timestamp", "callback-lock"] {
        let array = Array::of_processes(&SMALL);
        let (host, other) = array.host();
        let create = ["volume", "create", "v", "--size", "8MiB", "--atomicity", "consistent", "--ordering", ordering];
        let own = text(&array.braid(&create).done().json()["nbd"]);
        let other = other.replace("vol0", "v");
        let load = Load::running(Plan::apart(&[&own, &other]));
        signal(array.device_pid(2), Signal::STOP);
        array.await_volume(1, "degraded");
        assert_goes_on(&load, &format!("{ordering}: device 2 is suspended"));
        signal(array.device_pid(2), Signal::CONT);
        array.await_volume(1, "healthy");
        array.kill_device(3);
        load.go_on();
        load.assert_pause(&format!("{ordering}: device 3 was killed"), PAUSE_AND_RETURN_MAX);
        load.stop().verify(&other);
        array.assert_sound("v");

        Client::open(&own).trim(0, 8 << 20).expect("space can be discarded");
        let load = Load::running(Plan { hosts_may_go: true, ..Plan::apart(&[&own, &other]) });
        host.kill();
        load.go_on_through(0);
        load.go_on_through(0);
        // Writes begun by the killed host may be present in part.
        drop(load.stop());
        wait_until("the parity of what was cut short is right again", Duration::from_secs(30), || {
            number(&array.braid(&["volume", "check", "v"]).json()["bad"]) == 0
        });
        array.assert_sound("v");
    }
}

#[test]
fn after_a_suspension_of_everything_no_node_is_fenced_or_marked_out() {
    // In the short form leases are a quarter as long.
    let array = if soak() { Array::patient() } else { Array::small() };
    let hosts: Vec<(Daemon, String)> = (0..3).map(|_| array.host()).collect();
    let mut clients: Vec<Client> = hosts.iter().map(|(_, uri)| Client::open(uri)).collect();
    clients.iter_mut().for_each(|client| client.write(0, &[1; 4096]).expect("a write works"));
    // The supervisor is the first to resume, and judges the leases of the others before they can renew them.
    let mut pids = vec![array.supervisor().pid(), array.monitor_pid()];
    pids.extend(array.first_device_pids());
    pids.extend(hosts.iter().map(|(host, _)| host.pid()));
    pids.iter().for_each(|pid| signal(*pid, Signal::STOP));
    // Longer than the lease of a host, as when a machine sleeps.
    std::thread::sleep(Duration::from_secs(if soak() { 64 } else { 17 }));
    let (judges, judged) = pids.split_at(2);
    judges.iter().for_each(|pid| signal(*pid, Signal::CONT));
    // By now the supervisor has checked the leases, also of hosts that had not resumed yet.
    array.await_renewals(2);
    judged.iter().for_each(|pid| signal(*pid, Signal::CONT));
    array.await_volume(0, "healthy");
    for (client, (host, uri)) in clients.iter_mut().zip(&hosts) {
        // The host may hear later than others that the devices are back, and until then reports them as unavailable.
        wait_until("an existing connection continues", Duration::from_secs(30), || match client.write(0, &[2; 4096]) {
            Err(Refusal::Gone(error)) => panic!("{error}: {}", host.log()),
            written => written.is_ok(),
        });
        Client::open(uri).read(0, 4096).expect("and new ones do");
    }
    // The supervisor checks leases whenever it renews its own.
    array.await_renewals(4);
    for (client, (host, _)) in clients.iter_mut().zip(&hosts) {
        assert!(client.read(0, 4096).is_ok_and(|read| read == [2; 4096]), "no host was fenced: {}", host.log());
    }
    array.assert_sound("vol0");
}

#[test]
fn only_requests_for_suspended_devices_wait_until_one_is_marked_out_or_all_are_back() {
    let array = Array::of_processes(&SMALL);
    let content = noise(seed(), 8 * UNIT as usize);
    let mut client = Client::open(&array.nbd());
    client.write(0, &content).expect("a write works");
    // The first stripe unit lies on the first device of the ring, the second unit on the second.
    let device = array.devices_of("vol0")[0];
    let pid = array.device_pid(device);
    signal(pid, Signal::STOP);
    let begun = Instant::now();
    let waits = client.send_read(0, 4096).expect("it can be sent");
    let goes = client.send_read(UNIT, 4096).expect("it can be sent");
    let answered = client.reply().expect("an answer comes");
    assert_eq!(answered, (goes, 0), "the request that needs no frozen device overtakes the one that does");
    assert!(client.take(4096).expect("its data comes") == content[UNIT as usize..][..4096]);
    let mut other = Client::open(&array.nbd());
    for unit in [1, 2, 3] {
        other.read(unit * UNIT, UNIT as usize).expect("other connections continue");
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "no request waited: {:?}", begun.elapsed());
    assert_eq!(client.reply().expect("an answer comes"), (waits, 0), "worked out from the others");
    assert!(client.take(4096).expect("its data comes") == content[..4096]);
    println!("what needs a frozen device waited {:?}", begun.elapsed());
    assert!(begun.elapsed() < PAUSE_MAX, "{:?}", begun.elapsed());
    signal(pid, Signal::CONT);
    array.await_volume(0, "healthy");

    // If more devices are silent than there is redundancy, writers see a pause.
    let load = Load::running(Plan { begin: 1 << 20, ..Plan::apart(&[&array.nbd()]) });
    let pids = [1, 3].map(|device| array.device_pid(device));
    pids.into_iter().for_each(|pid| signal(pid, Signal::STOP));
    array.await_volume(0, "unavailable");
    array.await_status("requests wait", |status| status["hosts"][0]["waiting"]["requests"].as_u64() > Some(0));
    pids.into_iter().for_each(|pid| signal(pid, Signal::CONT));
    load.go_on();
    load.stop().verify(&array.nbd());
    array.await_volume(0, "healthy");
    array.assert_reads(0, &content);
    array.assert_sound("vol0");
}

#[test]
fn without_redundancy_a_device_that_stays_silent_is_an_error_in_the_end_and_no_loss() {
    let array = Array::of_processes(&[&SMALL[..], &["--layout", "raid0:5", "--unavailable", "fail"]].concat());
    let mut client = Client::open(&array.nbd());
    let content = noise(seed(), UNIT as usize);
    client.write(0, &content).expect("a write works");
    let device = array.devices_of("vol0")[0];
    let pid = array.device_pid(device);
    signal(pid, Signal::STOP);
    let begun = Instant::now();
    // A client that reconnects waits no longer than a request may. A part of its range lies on the suspended device.
    let uri = array.nbd();
    let reconnecting = std::thread::spawn(move || {
        let begun = Instant::now();
        Client::open(&uri).send_write(1 << 20, &vec![1; 1 << 20]).expect("it can be sent");
        let mut client = Client::open(&uri);
        assert!(begun.elapsed() < Duration::from_secs(10), "a connection opens: {:?}", begun.elapsed());
        let _ = client.write(1 << 20, &vec![2; 1 << 20]);
        begun.elapsed()
    });
    let write = client.send_write(0, &[0xaa; 8192]).expect("it can be sent");
    let read = client.send_read(32_768, 4096).expect("it can be sent");
    let mut answers = [client.reply().expect("an answer comes"), client.reply().expect("an answer comes")];
    let waited = begun.elapsed();
    answers.sort_unstable();
    assert_eq!(answers, [(write, EIO), (read, EIO)]);
    println!("a request waited {waited:?} for a device that stayed unavailable");
    let reconnected = reconnecting.join().expect("its message is above");
    assert!(waited.max(reconnected) < REQUEST_LIMIT + Duration::from_secs(5), "{waited:?}, {reconnected:?}");
    let status = array.await_volume(0, "unavailable");
    assert_eq!(status["volumes"][0]["missing_devices"], serde_json::json!([device]), "{status:#}");
    assert_eq!(status["devices"][device]["member_state"], "unavailable", "{status:#}");
    signal(pid, Signal::CONT);
    array.await_volume(0, "healthy");
    // The host learns of it slightly later than the monitor shows it.
    let mut there = None;
    wait_until("the host serves it", REQUEST_LIMIT, || {
        there = client.read(0, content.len()).ok();
        there.is_some()
    });
    let there = there.expect("it was read");
    let old = there[..8192] == content[..8192];
    assert!(old || there[..8192] == [0xaa; 8192], "the write that failed has happened, or it has not");
    assert!(there[8192..] == content[8192..]);
    assert!(client.read(0, content.len()).expect("a read works") == there, "and so it stays");
}
