//! Disks of an array in use that are replaced, by an operator or by spares.

use crate::prelude::*;

/// `braid device …`.
fn device(array: &Array, arguments: &[&str]) -> braid_processes::Outcome {
    array.braid(&[&["device"], arguments].concat())
}

fn listed(array: &Array) -> Value {
    device(array, &["list"]).done().json()
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
