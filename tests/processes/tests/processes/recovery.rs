//! The monitor's state, or the whole folder, is lost, and made anew from what the devices know.

use braid_processes::Client;
use braid_processes::array::{Array, SMALL_BYTES, number};
use braid_processes::data::{noise, seed};
use std::path::PathBuf;

const HALF: usize = SMALL_BYTES as usize / 2;

/// An array that is up, with content all over its volume, and an epoch above the first.
fn written() -> (Array, Vec<u8>) {
    let array = Array::small();
    let content = noise(seed(), 2 * HALF);
    Client::open(&array.nbd()).write(0, &content[..HALF]).expect("a write works");
    array.braid(&["device", "fail", "1"]).done();
    // Device 1 misses this, and is brought it.
    Client::open(&array.nbd()).write(HALF as u64, &content[HALF..]).expect("a write works");
    array.braid(&["device", "readmit", "1", "--wait"]).done();
    assert!(number(&array.status()["epoch"]) > 1);
    (array, content)
}

fn state(array: &Array) -> PathBuf {
    array.dir().join("monitor.state")
}

#[track_caller]
fn assert_all_there(array: &Array, content: &[u8]) {
    array.await_volume(0, "healthy");
    let there = Client::open(&array.nbd()).read(0, content.len()).expect("a read works");
    assert!(there == content, "all that was written is there");
    array.assert_sound("vol0");
}

#[test]
fn a_lost_state_is_reported_and_made_anew() {
    let (mut array, content) = written();
    array.braid(&["monitor", "recover"]).refused(1, "already-up");
    let before = number(&array.status()["epoch"]);
    array.down();
    array.braid(&["monitor", "recover"]).refused(1, "nothing-to-recover");
    std::fs::remove_file(state(&array)).expect("it can be removed");
    let said = array.try_start(&[]).expect_err("it is not known who is in").refused(4, "monitor-state-lost");
    assert!(said.contains("braid monitor recover"), "{said}");
    // The monitor makes no new one either, whoever starts it.
    let said = array.braid(&["monitord"]).refused(4, "monitor-state-lost");
    assert!(said.contains("braid monitor recover"), "{said}");
    let shown = array.braid(&["monitor", "recover", "--dry-run"]).done().json();
    assert!(!state(&array).exists() && shown["recovered"] == false, "{shown}");
    assert_eq!(number(&shown["newest"]), before, "{shown}");
    let made = array.braid(&["monitor", "recover"]).done().json();
    assert!(made["recovered"] == true && number(&made["epoch"]) > before, "{made}");
    assert!((0..5).all(|device| made["devices"][device]["standing"] == "in"), "{made}");
    array.braid(&["monitor", "recover"]).refused(1, "nothing-to-recover");
    array.start(&[]);
    assert_all_there(&array, &content);
    // It goes on like any array.
    array.braid(&["device", "fail", "2"]).done();
    Client::open(&array.nbd()).write(0, &content[HALF..]).expect("a write works");
    array.braid(&["device", "readmit", "2", "--wait"]).done();
    assert_all_there(&array, &[&content[HALF..], &content[HALF..]].concat());
}

#[test]
fn an_old_copy_of_the_state_is_not_served_from() {
    let array = Array::small();
    let aside = array.scratch().path("aside");
    let mut array = array;
    array.down();
    std::fs::copy(state(&array), &aside).expect("it can be copied");
    array.start(&[]);
    let content = noise(seed(), SMALL_BYTES as usize);
    array.braid(&["device", "fail", "3"]).done();
    Client::open(&array.nbd()).write(0, &content).expect("a write works");
    array.down();
    // By this one device 3 is in, which lacks all that was written.
    std::fs::copy(&aside, state(&array)).expect("it can be copied");
    let said = array.try_start(&[]).expect_err("it is an old one").refused(4, "monitor-state-old");
    assert!(said.contains("braid monitor recover"), "{said}");
    let made = array.braid(&["monitor", "recover"]).done().json();
    assert_eq!(made["devices"][3]["standing"], "out", "{made}");
    array.start(&[]);
    assert_all_there(&array, &content);
}

#[test]
fn a_device_that_is_returning_when_the_state_is_lost_is_brought_the_rest() {
    let mut array = Array::small();
    let content = noise(seed(), SMALL_BYTES as usize);
    array.braid(&["device", "fail", "1"]).done();
    Client::open(&array.nbd()).write(0, &content).expect("a write works");
    array.braid(&["rebuild", "pause"]).done();
    array.braid(&["device", "readmit", "1"]).done();
    array.await_status("device 1 is returning", |status| status["devices"][1]["standing"] == "returning");
    array.kill();
    std::fs::remove_file(state(&array)).expect("it can be removed");
    let made = array.braid(&["monitor", "recover"]).done().json();
    assert_eq!(made["devices"][1]["standing"], "returning", "{made}");
    array.start(&[]);
    assert_all_there(&array, &content);
}

#[test]
fn a_device_that_is_missing_is_needed_unless_the_operator_does_without_it() {
    let (mut array, content) = written();
    array.down();
    std::fs::remove_file(state(&array)).expect("it can be removed");
    let (file, aside) = (array.device_file(3), array.scratch().path("aside"));
    std::fs::rename(&file, &aside).expect("it can be moved");
    let said = array.braid(&["monitor", "recover"]).refused(3, "devices-missing");
    assert!(said.contains("d3") && said.contains("--without d3"), "{said}");
    assert!(!state(&array).exists());
    let made = array.braid(&["monitor", "recover", "--without", "d3"]).done().json();
    assert_eq!(made["devices"][3]["standing"], "left-out", "{made}");
    // It turns up again: but nobody knows what was written there alone.
    std::fs::rename(&aside, &file).expect("it can be moved back");
    array.start(&[]);
    array.await_status("device 3 is out, and refused", |status| {
        status["devices"][3]["standing"] == "out" && !status["devices"][3]["refused"].is_null()
    });
    let there = Client::open(&array.nbd()).read(0, content.len()).expect("a read works");
    assert!(there == content, "the others do without it");
    array.braid(&["device", "replace", "3", "--wait"]).done();
    assert_all_there(&array, &content);
}
