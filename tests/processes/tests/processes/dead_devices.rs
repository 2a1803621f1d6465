//! Devices that fail for good: their process is killed, and their disk is lost. The others continue, and new disks are rebuilt from them.

use crate::prelude::*;

const HALF: usize = 1 << 20;

/// Removes the disk of a device, and kills the process that had it open.
fn die(array: &Array, device: usize, file: &Path) {
    let pid = array.device_pid(device);
    std::fs::rename(file, file.with_extension("gone")).expect("the disk can be taken away");
    signal(pid, Signal::KILL);
}

#[test]
fn three_copies_survive_two_dead_disks_and_both_are_filled_again() {
    let array =
        Array::of_processes(&["--devices", "3", "--layout", "raid1:3", "--size", "64MiB", "--volume", "vol0:32MiB"]);
    let content = noise(seed(), 2 * HALF);
    let mut client = Client::open(&array.nbd());
    client.write(0, &content[..HALF]).expect("a write works");
    for device in [0, 1] {
        die(&array, device, &array.device_file(device));
        array.await_member(device, "out");
        // Each operation succeeds in the degraded array.
        client.write(HALF as u64, &content[HALF..]).expect("a write works");
        assert!(client.read(0, content.len()).expect("a read works") == content);
    }
    for device in [0, 1] {
        let file = array.scratch().path(&format!("new-{device}.braid"));
        array.braid(&["device", "replace", &device.to_string(), path_text(&file)]).done();
    }
    array.await_volume(0, "healthy");
    array.assert_sound("vol0");
    // Now the array survives the loss of any of the new disks.
    let last = array.device_file(2);
    die(&array, 2, &last);
    array.await_member(2, "out");
    assert!(client.read(0, content.len()).expect("a read works") == content);
}

#[test]
fn a_dead_device_that_holds_nothing_keeps_no_other_from_coming_back() {
    let array = Array::of_processes(&SMALL);
    let content = noise(seed(), 2 * HALF);
    let mut client = Client::open(&array.nbd());
    client.write(0, &content[..HALF]).expect("a write works");
    array.braid(&["device", "add"]).done();
    array.await_member(5, "in");
    die(&array, 5, &array.device_file(5));
    array.await_status("the others serve without it", |status| status["devices"][5]["member_state"] != "in");

    let pid = array.device_pid(1);
    signal(pid, Signal::STOP);
    array.await_member(1, "out");
    client.write(HALF as u64, &content[HALF..]).expect("a write works");
    signal(pid, Signal::CONT);
    array.await_member(1, "in");
    array.await_volume(0, "healthy");
    assert!(client.read(0, content.len()).expect("a read works") == content);
    array.assert_sound("vol0");
}
