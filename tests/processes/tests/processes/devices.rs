//! Adding, taking out, replacing and removing devices of an array in use, by an operator or by spares.

use crate::prelude::*;

/// `braid device …`.
fn device(array: &Array, arguments: &[&str]) -> braid_processes::Outcome {
    array.braid(&[&["device"], arguments].concat())
}

fn listed(array: &Array) -> Value {
    device(array, &["list"]).done().json()
}

fn ids(list: &Value) -> Vec<u64> {
    items(&list["devices"]).iter().map(|device| number(&device["id"])).collect()
}

#[test]
fn devices_come_and_go_and_no_volume_changes() {
    let mut array = Array::small();
    // The command is killed while it waits for the monitor.
    let monitor = array.monitor_pid();
    signal(monitor, Signal::STOP);
    let braid = braid_bin();
    let command = [path_text(&braid), "device", "add", "--domain", "shelf", "--array", path_text(array.dir())];
    let killed = run("timeout", &[&["--signal=KILL", "1"], &command[..]].concat());
    assert_ne!(killed.status, Some(0), "{killed}");
    signal(monitor, Signal::CONT);
    array.await_member(5, "in");
    let list = listed(&array);
    assert_eq!(number(&list["devices"][5]["size_bytes"]), 64 << 20);
    assert_eq!((ids(&list), &list["devices"][5]["domain"]), (vec![0, 1, 2, 3, 4, 5], &Value::from("shelf")));
    assert_eq!(list["devices"][5]["volumes"], Value::from(Vec::<String>::new()));
    array.braid(&["volume", "create", "new", "--size", "1MiB", "--layout", "raid1:2"]).done();
    let located = device(&array, &["locate", "5"]).done().json();
    assert_eq!((&located["volumes"][0]["name"], number(&located["volumes"][0]["position"])), (&Value::from("new"), 5));
    device(&array, &["remove", "5"]).refused_naming(1, "holds-volumes", &["'new'", "braid volume migrate"]);
    array.kill();
    array.start(&[]);
    assert_eq!(array.status()["devices"][5]["id"], 5, "it is back");
    array.braid(&["volume", "delete", "new", "--yes"]).done();
    let removed = device(&array, &["remove", "5"]).done().json();
    assert!(std::path::Path::new(&text(&removed["file"])).exists(), "the file was not deleted");
    assert_eq!(ids(&listed(&array)), [0, 1, 2, 3, 4]);
    let told =
        ["device-added", "device-removed"].map(|kind| array.events(kind).pop().expect("an event")["device"].clone());
    assert_eq!(told, [5, 5]);
    device(&array, &["locate", "5"]).refused(3, "no-such-device");
    let located = device(&array, &["locate", "--volume", "vol0", "--offset", "1MiB"]).done().json();
    assert_eq!(items(&located["others"]).len(), 4, "{located}");
    array.assert_sound("vol0");
}

#[test]
fn a_disk_is_replaced_under_load_though_its_process_is_killed_meanwhile() {
    let array = Array::of_processes(&SMALL);
    let (_host, other) = array.host();
    let load = Load::running(Plan::apart(&[&array.nbd(), &other]));
    let before = text(&listed(&array)["devices"][2]["disk"]);
    let replaced = device(&array, &["replace", "2"]).done().json();
    let path = |name: &str| array.dir().join(name).canonicalize().expect("it exists");
    assert_eq!(replaced["file"], path_text(&path("device-2.1.braid")));
    assert_eq!(replaced["previous_file"], path_text(&path("device-2.braid")));
    array.kill_device(2);
    array.await_member(2, "in");
    let list = listed(&array);
    assert!(list["devices"][2]["disk"] == replaced["disk"] && replaced["disk"] != before.as_str(), "{list}");
    load.go_on();
    load.assert_kept(&array, &[&other, &array.nbd()]);
    // The content of the old disk is obsolete.
    let old = array.device_file(2);
    device(&array, &["replace", "3", path_text(&old)]).refused_naming(1, "disk-used", &["device 2"]);
}

#[test]
fn a_spare_takes_the_place_of_a_device_that_stays_out() {
    let mut array = Array::of_processes(&[&SMALL[..], &["--spare-after", "1s"]].concat());
    let load = Load::start(Plan::apart(&[&array.nbd()]));
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
