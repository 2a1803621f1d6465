//! A disk that can't be written at some place: its users see no error, and the status shows it.

use crate::prelude::*;

/// Makes the writes of one process fail in a range of bytes.
const LIBRARY: &str = include_str!("bad_places.c");
const UNIT: usize = 65_536;
/// The device with this disk.
const DEVICE: usize = 1;
/// The bytes of a slot, and the bad slot: one of those that are used first.
const SLOT: u64 = 73_728;
const BAD: u64 = 40;
/// Bytes of the volume.
const BYTES: usize = 32 << 20;

#[test]
fn a_slot_that_can_t_be_written_is_retired_and_no_write_fails() {
    let mut array = Array::of_processes(&SMALL);
    array.down();
    let file = array.device_file(DEVICE);
    let device = braid(&["device", "inspect", path_text(&file), "--json"]).done().json();
    let start = number(&device["data"]["offset"]) + BAD * SLOT;
    let (source, library) = (array.scratch().path("bad_places.c"), array.scratch().path("bad_places.so"));
    std::fs::write(&source, LIBRARY).expect("there is room");
    tool("cc", &["-shared", "-fPIC", "-O1", "-o", path_text(&library), path_text(&source)]);
    let (preload, file) = (format!("LD_PRELOAD={}", path_text(&library)), format!("BAD_FILE={}", path_text(&file)));
    let (from, to) = (format!("BAD_START={start}"), format!("BAD_END={}", start + SLOT));
    array.try_start_by(&["env", &preload, &file, &from, &to], &[]).unwrap_or_else(|outcome| panic!("{outcome}"));

    let writes = if soak() { 100_000 } else { 768 };
    let pieces: Vec<Vec<u8>> = (0..7).map(|number| noise(seed() + number, 2 * UNIT)).collect();
    let places = BYTES / (2 * UNIT);
    let mut client = Client::open(&array.nbd());
    for number in 0..writes {
        let written = client.write((number % places * 2 * UNIT) as u64, &pieces[number % pieces.len()]);
        written.unwrap_or_else(|refusal| panic!("write {number} of {writes}: {refusal:?}"));
    }
    for place in 0..places.min(writes) {
        let last = (writes - 1 - place) / places * places + place;
        let there = client.read((place * 2 * UNIT) as u64, 2 * UNIT).expect("a read works");
        assert!(there == pieces[last % pieces.len()], "the last write is readable, at {place}");
    }
    array.assert_sound("vol0");

    let device = &array
        .await_status("the device has said so", |status| status["devices"][DEVICE]["condition"] == "disk-errors")["devices"]
        [DEVICE];
    assert!(number(&device["counters"]["write_errors"]) > 0, "{device:#}");
    let bad = |status: &Value| -> Vec<u64> {
        (0..5).map(|device| number(&status["devices"][device]["counters"]["slots_bad"])).collect()
    };
    let expected: Vec<u64> = (0..5).map(|device| u64::from(device == DEVICE)).collect();
    let status = array.status();
    assert_eq!(bad(&status), expected, "one slot of one device: {status:#}");
    assert!((0..5).all(|device| status["devices"][device]["member_state"] == "in"), "{status:#}");
    let events = array.braid(&["events"]).done().stdout;
    assert!(events.contains("disk-errors"), "{events}");
    let report = array.braid(&["doctor"]).failed_check();
    assert_eq!(findings(&report, "disks")[0]["subject"], format!("device d{DEVICE}"), "{report:#}");
    drop(client);
    array.down();
    // The bad slot is recorded durably.
    array.start(&[]);
    assert_eq!(bad(&array.status()), expected);
}
