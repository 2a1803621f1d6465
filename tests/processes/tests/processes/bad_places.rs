//! Disks that can't be written at some place: their users don't hear of it, and those who look do.

use braid_processes::array::{Array, number};
use braid_processes::data::{noise, seed};
use braid_processes::program::braid;
use braid_processes::scratch::path_text;
use braid_processes::{Client, soak};

const UNIT: usize = 65_536;
/// The bytes of a slot, and which one is bad: early in what is used first.
const SLOT: u64 = 73_728;
const BAD: u64 = 40;
/// Bytes of the volume.
const BYTES: usize = 32 << 20;

#[test]
fn a_slot_that_can_t_be_written_is_retired_and_no_write_fails() {
    let mut array = Array::small();
    array.down();
    let device = braid(&["device", "inspect", path_text(&array.device_file(1)), "--json"]).done().json();
    let start = number(&device["data"]["offset"]) + BAD * SLOT;
    let script = array.scratch().path("bad_places.py");
    std::fs::write(&script, include_str!("bad_places.py")).expect("it can be written");
    let (from, to) = (start.to_string(), (start + SLOT).to_string());
    let launcher = ["/usr/bin/python3", path_text(&script), &from, &to];
    array.try_start_by(&launcher, &[]).unwrap_or_else(|outcome| panic!("{outcome}"));

    let writes = if soak() { 100_000 } else { 2_000 };
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
        assert!(there == pieces[last % pieces.len()], "what was written last is there, at {place}");
    }
    array.assert_sound("vol0");

    let bad = |status: &serde_json::Value, device: usize| number(&status["devices"][device]["counters"]["slots_bad"]);
    let status = array.await_status("each device has said so", |status| {
        (0..5).all(|device| status["devices"][device]["condition"] == "disk-errors")
    });
    for device in 0..5 {
        assert_eq!(bad(&status, device), 1, "{status:#}");
        assert!(number(&status["devices"][device]["counters"]["write_errors"]) > 0);
        assert_eq!(status["devices"][device]["standing"], "in");
    }
    let events = array.braid(&["events"]).done().stdout;
    assert!(events.contains("disk-errors"), "{events}");
    drop(client);
    array.down();
    // It is on record.
    array.start(&[]);
    let status = array.status();
    assert!((0..5).all(|device| bad(&status, device) == 1), "{status:#}");
}
