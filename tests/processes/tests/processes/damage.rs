//! Devices with blocks that are damaged, or whose disk can't be written at some place: users see no error, and the status shows it.

use crate::prelude::*;

const UNIT: usize = 65_536;
/// Makes the writes of one process fail in a range of bytes.
const LIBRARY: &str = include_str!("bad_places.c");
/// The device with this disk.
const DEVICE: usize = 1;
/// The bytes of a slot, and the bad slot: one of those that are used first.
const SLOT: u64 = 73_728;
const BAD: u64 = 40;
/// Bytes of the volume.
const BYTES: usize = 32 << 20;

/// Corrupts blocks of the second unit of the volume, whose content is unique, so that it is found. Returns the devices of the volume, and the
/// file of the device that has the unit.
fn corrupt(array: &Array, content: &[u8], blocks: &[usize]) -> (Vec<usize>, PathBuf) {
    let devices = array.devices_of("vol0");
    let file = array.device_file(devices[1]);
    let inspected = braid(&["device", "inspect", path_text(&file), "--json"]).done().json();
    let data = number(&inspected["data"]["offset"]) as usize;
    let bytes = std::fs::read(&file).expect("it can be read");
    for block in blocks {
        let wanted = &content[UNIT + block * 4096..][..512];
        let at = bytes[data..].windows(512).step_by(512).position(|sector| sector == wanted);
        let damaged = data + 512 * at.expect("the unit is at its home") + 17;
        let there = File::options().write(true).open(&file).expect("it exists");
        there.write_all_at(&[bytes[damaged] ^ 0x10], damaged as u64).expect("it can be written");
    }
    (devices, file)
}

#[test]
fn checksum_errors_are_found_and_repaired_by_a_scrub_and_reconstructed_and_never_served_by_reads() {
    let mut array = Array::of_processes(&SMALL);
    // Whole stripes, which are written to their place on the devices at once.
    let content = noise(seed(), 16 * UNIT);
    Client::open(&array.nbd()).write(0, &content).expect("a write works");
    array.down();
    let device = corrupt(&array, &content, &[1, 3]).0[1];
    array.start(&[]);
    // A scrub skips stripes while a device is not in, which may happen on a busy machine.
    array.await_volume(0, "healthy");
    let scrub = |arguments: &[&str], status: i32| {
        let outcome = array.braid(&[&["scrub"], arguments].concat());
        assert_eq!(outcome.status, Some(status), "{outcome}");
        let scrubbed = outcome.json()["volumes"][0].clone();
        assert_eq!(scrubbed["next_stripe"], scrubbed["stripes"], "{scrubbed}");
        let found = |name: &str| number(&scrubbed["found"][name]);
        let of_device = scrubbed["found"]["lost_of_device"][device.to_string()].as_u64();
        assert_eq!(of_device.unwrap_or_default(), found("lost"), "{scrubbed}");
        (found("lost"), found("repaired"))
    };
    assert_eq!(scrub(&["vol0"], 4), (2, 0), "it is found");
    assert_eq!(scrub(&["--repair"], 0), (2, 2), "it is repaired");
    assert_eq!(number(&array.status()["devices"][device]["corrupt_blocks"]), 2, "each block is counted once");
    assert_eq!(scrub(&[], 0), (0, 0), "nothing is left of it");
    array.assert_reads(0, &content);
    let events = array.braid(&["events"]).done().json();
    let events = items(&events["events"]);
    let of_volume = events.iter().filter(|event| event["volume"] == "vol0");
    let kinds: Vec<&str> = of_volume.filter_map(|event| event["kind"].as_str()).collect();
    let (begun, found, repaired, ended) =
        ("scrub-begun", "checksum-error-found", "checksum-error-repaired", "scrub-ended");
    assert_eq!(kinds, ["volume-created", begun, found, ended, begun, found, repaired, ended, begun, ended]);

    // Requests come before a scrub. The block was not repaired, which would have moved it.
    array.down();
    let at = UNIT + 5 * 4096;
    let (ring, file) = corrupt(&array, &content, &[5]);
    let device = ring[1];
    let checked = braid(&["device", "check", path_text(&file), "--json"]);
    assert_eq!(checked.status, Some(4), "{checked}");
    let found = checked.json();
    assert_eq!((number(&found["damaged"]), number(&found["first_damaged"][0]["block"])), (1, 5), "{found}");

    array.start(&[]);
    // Otherwise it would soon be repaired.
    array.braid(&["rebuild", "pause"]).done();
    // A host that starts now knows of the pause before it reads. Requests that need missing devices fail at once.
    let host = array.daemon("nbd", &["nbd", "--listen", "127.0.0.1:0", "--unavailable", "fail"]);
    let mut client = Client::open(&text(&host.ready["volumes"][0]["nbd"]));
    let begin = at as u64;
    assert!(client.read(begin, 4096).expect("the others know it") == content[at..][..4096]);
    assert!(client.read(0, content.len()).expect("a read works") == content, "the written data is readable");
    array.await_status("it is counted", |status| number(&status["hosts"][1]["counters"]["damaged"]) >= 2);
    let status = array.status();
    assert_eq!(number(&status["devices"][device]["corrupt_blocks"]), 1, "the status names the device: {status}");
    wait_until("an event names the device", Duration::from_secs(20), || {
        let events = array.braid(&["events"]).done().stdout;
        events.contains(&format!("requests found blocks of device d{device} with checksum errors"))
    });
    assert!(client.read(begin - 4096, 4096).expect("its neighbours can be read") == content[at - 4096..][..4096]);
    assert!(client.read(begin + 4096, 4096).expect("on both sides") == content[at + 4096..][..4096]);
    let checked = array.braid(&["volume", "check", "vol0"]);
    assert_eq!(checked.status, Some(4), "{checked}");
    assert_eq!((number(&checked.json()["bad"]), number(&checked.json()["unreadable"])), (0, 1), "{checked}");
    assert_eq!(checked.json()["damaged_devices"], Value::from(vec![device]), "{checked}");
    // If the device with the parity is lost as well, too much is missing: this block alone is unreadable.
    let parity = ring[4];
    signal(array.device_pid(parity), Signal::STOP);
    array.await_volume(0, "degraded");
    assert!(matches!(client.read(begin, 4096), Err(Refusal::Said(EIO))), "corruption is never served");
    assert!(client.read(begin - 4096, 4096).expect("its neighbours can be read") == content[at - 4096..][..4096]);
    // The other device could not be resynchronised there, so that the stripe would stay incomplete.
    client.write(begin, &content[at..][..4096]).expect("it can be written over, which repairs it");
    array.braid(&["rebuild", "resume"]).done();
    signal(array.device_pid(parity), Signal::CONT);
    array.await_volume(0, "healthy");
    array.assert_reads(0, &content);
    array.assert_sound("vol0");
}

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
