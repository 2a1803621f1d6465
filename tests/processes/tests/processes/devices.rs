//! Disks of an array in use that are replaced, by an operator or by spares; and the rebuild, while whichever process is killed: no data is lost.

use crate::prelude::*;

const VOLUME_BYTES: u64 = 96 << 20;
const ARRAY: [&str; 4] = ["--size", "160MiB", "--volume", "vol0:96MiB"];
/// The device whose disk is replaced.
const REBUILT: usize = 1;
const KILLED: usize = 3;

/// `braid device …`.
fn device(array: &Array, arguments: &[&str]) -> braid_processes::Outcome {
    array.braid(&[&["device"], arguments].concat())
}

fn listed(array: &Array) -> Value {
    device(array, &["list"]).done().json()
}

#[test]
fn a_disk_is_replaced_under_load_by_an_operator_and_that_of_a_device_that_stays_out_by_a_spare() {
    let mut array = Array::of_processes(&[&SMALL[..], &["--spare-after", "1s"]].concat());
    let (_host, other) = array.host();
    let load = Load::running(Plan::apart(&[&array.nbd(), &other]));
    let before = text(&listed(&array)["devices"][2]["disk"]);
    let replaced = device(&array, &["replace", "2"]).done().json();
    let path = |name: &str| array.dir().join(name).canonicalize().expect("it exists");
    assert_eq!(replaced["file"], path_text(&path("device-2.1.braid")));
    assert_eq!(replaced["previous_file"], path_text(&path("device-2.braid")));
    // Its process is killed meanwhile.
    array.kill_device(2);
    array.await_member(2, "in");
    let list = listed(&array);
    assert!(list["devices"][2]["disk"] == replaced["disk"] && replaced["disk"] != before.as_str(), "{list}");
    load.go_on();
    load.assert_kept(&array, &[&other, &array.nbd()]);
    // The content of the old disk is obsolete.
    let old = array.device_file(2);
    assert!(device(&array, &["replace", "3", path_text(&old)]).refused(1, "disk-used").contains("device 2"));

    let load = Load::start(Plan { begin: 2 << 20, ..Plan::apart(&[&array.nbd()]) });
    device(&array, &["add", "--spare", "--size", "32MiB"]).done();
    let spare = device(&array, &["add", "--spare"]).done().json();
    device(&array, &["remove", "spare.braid"]).done();
    let list = listed(&array);
    assert_eq!(items(&list["spares"]).len(), 1, "{list}");
    assert_eq!(list["spares"][0]["disk"], spare["disk"]);
    let pid = array.device_pid(3);
    std::fs::rename(array.device_file(3), array.scratch().path("gone")).expect("its disk is gone");
    signal(pid, Signal::KILL);
    array.await_member(3, "out");
    load.go_on();
    let mut record = load.stop();
    array.await_member(3, "in");
    let list = listed(&array);
    assert!(list["devices"][3]["disk"] == spare["disk"] && list["spares"] == Value::from(Vec::<u8>::new()), "{list}");
    record.verify(&array.nbd());
    array.kill();
    array.start(&[]);
    record.verify(&array.nbd());
    array.assert_sound("vol0");
}

/// Writers in the volume's first megabyte that continue with the remaining hosts.
fn plan(hosts: &[&str]) -> Plan {
    Plan { hosts_may_go: true, ..Plan::of(hosts) }
}

/// Bytes of the device that have been rebuilt so far.
fn bytes_restored(status: &Value) -> u64 {
    status["devices"][REBUILT]["healing"]["bytes_done"].as_u64().unwrap_or(0)
}

/// The host that coordinates the rebuild.
fn recovery_coordinator(status: &Value) -> Option<u64> {
    status["devices"][REBUILT]["recovery_coordinator"].as_u64()
}

#[test]
fn a_rebuild_survives_the_death_of_its_host_of_another_device_and_of_all_processes() {
    let mut array = Array::of_processes(&ARRAY);
    let nbd = array.nbd();
    let content = noise(seed(), (VOLUME_BYTES - (4 << 20)) as usize);
    {
        let mut client = Client::open(&nbd);
        for (at, piece) in content.chunks(4 << 20).enumerate() {
            client.write((4 << 20) + at as u64 * (4 << 20), piece).expect("the volume can be filled");
        }
    }
    let (host, other) = array.host();
    let load = Load::running(plan(&[&nbd, &other]));

    array.braid(&["rebuild", "--rate", "1MiB/s", "--share", "100%"]).done();
    let file = array.scratch().path("new.braid");
    array.braid(&["device", "replace", &REBUILT.to_string(), path_text(&file)]).done();
    let status = array.await_status("the rebuild makes progress", |status| bytes_restored(status) > 0);

    // Kill the recovery coordinator. If it is the host of `up`, all other processes end with it.
    let generation = recovery_coordinator(&status).expect("a host coordinates the rebuild");
    let mut hosts = items(&status["hosts"]).iter();
    let rebuilder = hosts.find(|host| host["generation"] == generation).expect("it is a host");
    let mut record = if rebuilder["pid"] == host.pid() {
        host.kill();
        load.go_on_through(0);
        load.stop()
    } else {
        array.kill();
        array.start(&[]);
        load.go_on_through(1);
        load.stop()
    };
    let uri = array.nbd();
    record.verify(&uri);
    let status = array.await_status("another host continues it", |status| {
        bytes_restored(status) > 0 && recovery_coordinator(status).is_some_and(|now| now != generation)
    });
    assert_eq!(status["devices"][REBUILT]["member_state"], "returning", "{status:#}");

    // Kill a device that the rebuild reads from; it restarts at once.
    let load = Load::start(Plan { begin: 2 << 20, ..plan(&[&uri]) });
    array.kill_device(KILLED);
    load.go_on();

    // Kill all processes.
    array.kill();
    let mut record = load.ended();
    array.start(&[]);
    record.verify(&array.nbd());
    array.await_status("it continues where it was", |status| bytes_restored(status) > 0);
    array.braid(&["rebuild", "--rate", "none", "--share", "100%"]).done();
    array.await_volume(0, "healthy");
    record.verify(&array.nbd());
    array.assert_sound("vol0");
    let mut client = Client::open(&array.nbd());
    for (at, piece) in content.chunks(4 << 20).enumerate() {
        let there = client.read((4 << 20) + at as u64 * (4 << 20), piece.len()).expect("everything can be read");
        assert!(there == piece, "the earlier content is readable, at {at}");
    }
    assert_eq!(text(&array.status()["devices"][REBUILT]["file"]), path_text(&file));
}
