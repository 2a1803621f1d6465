//! Devices that are swapped, damaged, of a newer release, or full.

use crate::prelude::*;
use braid_base::checksum::crc32c;
use braid_processes::nbd::ENOSPC;
use braid_processes::scratch::disk;

const UNIT: usize = 65_536;
/// The offsets of the two copies of the superblock.
const COPIES: [u64; 2] = [0, 4096];
const CHECKSUM_AT: usize = 508;

/// An array that is down, and the content at the beginning of its volume.
fn written() -> (Array, Vec<u8>) {
    let mut array = Array::of_processes(&SMALL);
    // Whole stripes, which are written to their place on the devices at once.
    let content = noise(seed(), 16 * UNIT);
    Client::open(&array.nbd()).write(0, &content).expect("a write works");
    array.down();
    (array, content)
}

/// Changes bytes of a file.
fn change(file: &Path, at: u64, length: usize, change: impl FnOnce(&mut [u8])) {
    let file = File::options().read(true).write(true).open(file).expect("it exists");
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).expect("it is long enough");
    change(&mut bytes);
    file.write_all_at(&bytes, at).expect("it can be written");
}

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
        let at = (data + 512 * at.expect("the unit is at its home")) as u64;
        change(&file, at, 512, |sector| sector[17] ^= 0x10);
    }
    (devices, file)
}

#[test]
fn a_device_of_a_newer_format_and_a_file_that_is_none_are_refused() {
    let (mut array, content) = written();
    let file = array.device_file(4);
    let set_format = |format: u8| {
        for copy in COPIES {
            change(&file, copy, 512, |sector| {
                sector[8] = format;
                let checksum = crc32c(&sector[..CHECKSUM_AT]);
                sector[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
            });
        }
    };
    let format = number(&braid(&["device", "inspect", path_text(&file), "--json"]).done().json()["format"]) as u8;
    set_format(format + 1);
    array.assert_start_refused(1, "newer-format", &[&(format + 1).to_string(), "device-4.braid"]);
    braid(&["device", "check", path_text(&file), "--json"]).refused(1, "newer-format");
    set_format(format);
    array.start(&[]);
    array.assert_reads(0, &content);
    std::fs::write(array.scratch().path("none"), [0; 1 << 20]).expect("it can be written");
    braid(&["device", "serve", &array.scratch().text("none"), "--json"]).refused(1, "not-a-device");
}

#[test]
fn a_corrupt_block_is_reconstructed_and_never_served() {
    let (mut array, content) = written();
    let (ring, file) = corrupt(&array, &content, &[1]);
    let device = ring[1];
    let checked = braid(&["device", "check", path_text(&file), "--json"]);
    assert_eq!(checked.status, Some(4), "{checked}");
    let found = checked.json();
    assert_eq!((number(&found["damaged"]), number(&found["first_damaged"][0]["block"])), (1, 1), "{found}");

    array.start(&[]);
    // Otherwise it would soon be repaired.
    array.braid(&["rebuild", "pause"]).done();
    // A host that starts now knows of the pause before it reads. Requests that need missing devices fail at once.
    let host = array.daemon("nbd", &["nbd", "--listen", "127.0.0.1:0", "--unavailable", "fail"]);
    let mut client = Client::open(&text(&host.ready["volumes"][0]["nbd"]));
    let begin = UNIT as u64 + 4096;
    assert!(client.read(begin, 4096).expect("the others know it") == content[UNIT + 4096..][..4096]);
    assert!(client.read(0, content.len()).expect("a read works") == content, "the written data is readable");
    array.await_status("it is counted", |status| number(&status["hosts"][1]["counters"]["damaged"]) >= 2);
    let status = array.status();
    assert_eq!(number(&status["devices"][device]["corrupt_blocks"]), 1, "the status names the device: {status}");
    wait_until("an event names the device", Duration::from_secs(20), || {
        let events = array.braid(&["events"]).done().stdout;
        events.contains(&format!("requests found blocks of device d{device} with checksum errors"))
    });
    assert!(client.read(begin - 4096, 4096).expect("its neighbours can be read") == content[UNIT..][..4096]);
    assert!(client.read(begin + 4096, 4096).expect("on both sides") == content[UNIT + 8192..][..4096]);
    let checked = array.braid(&["volume", "check", "vol0"]);
    assert_eq!(checked.status, Some(4), "{checked}");
    assert_eq!((number(&checked.json()["bad"]), number(&checked.json()["unreadable"])), (0, 1), "{checked}");
    assert_eq!(checked.json()["damaged_devices"], Value::from(vec![device]), "{checked}");
    // If the device with the parity is lost as well, too much is missing: this block alone is unreadable.
    let parity = ring[4];
    signal(array.device_pid(parity), Signal::STOP);
    array.await_volume(0, "degraded");
    assert!(matches!(client.read(begin, 4096), Err(Refusal::Said(EIO))), "corruption is never served");
    assert!(client.read(begin - 4096, 4096).expect("its neighbours can be read") == content[UNIT..][..4096]);
    // The other device could not be resynchronised there, so that the stripe would stay incomplete.
    client.write(begin, &content[UNIT + 4096..][..4096]).expect("it can be written over, which repairs it");
    array.braid(&["rebuild", "resume"]).done();
    signal(array.device_pid(parity), Signal::CONT);
    array.await_volume(0, "healthy");
    array.assert_reads(0, &content);
    array.assert_sound("vol0");
}

#[test]
fn a_scrub_finds_checksum_errors_and_repairs_them_on_request() {
    let (mut array, content) = written();
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
}

#[test]
fn an_array_comes_up_without_a_device_on_request_and_resynchronises_it_later() {
    let (mut array, content) = written();
    let (file, aside) = (array.device_file(2), array.scratch().path("aside"));
    std::fs::rename(&file, &aside).expect("it can be moved");
    array.assert_start_refused(3, "no-such-file", &[]);
    array.start(&["--degraded"]);
    let status = array.status();
    assert_eq!(status["volumes"][0]["state"], "degraded", "it is served when the array is ready: {status:#}");
    assert_eq!(status["devices"][2]["member_state"], "out", "{status:#}");
    let told: Vec<_> = array.events("daemon-down").iter().map(|event| event["device"].clone()).collect();
    assert_eq!(told, [2]);
    assert!(status["devices"][2]["state"].as_str().is_some_and(|state| state.starts_with("down: ")), "{status:#}");
    array.assert_reads(0, &content);
    let newer = noise(seed(), 16 * UNIT);
    Client::open(&array.nbd()).write(5000, &newer).expect("a write works");
    let restarts = number(&array.status()["devices"][2]["restarts"]);
    assert_eq!(restarts, 1, "it is not started again and again without its file");
    let checked = array.braid(&["volume", "check", "vol0"]).done().json();
    assert!(number(&checked["unchecked"]) > 0 && checked["missing_devices"] == Value::from(vec![2]), "{checked}");
    array.down();
    // The device is brought back while the array is down.
    std::fs::rename(&aside, &file).expect("it can be moved back");
    array.start(&[]);
    array.await_volume(0, "healthy");
    array.assert_reads(5000, &newer);
    array.assert_sound("vol0");
}

/// A piece of 1 MiB of a volume.
fn piece(number: usize, round: u64) -> Vec<u8> {
    noise(number as u64 ^ (round << 32), 1 << 20)
}

/// Writes pieces from this one on until the disk is full. Returns the number of the one that was refused.
fn fill(client: &mut Client, first: usize) -> usize {
    let refused =
        (first..128).find_map(|number| Some((number, client.write((number as u64) << 20, &piece(number, 0)).err()?)));
    let (number, refusal) = refused.expect("the disk gets full");
    assert!(matches!(refusal, Refusal::Said(ENOSPC)), "{refusal:?}");
    number
}

#[test]
fn one_device_with_a_full_disk_refuses_what_is_new_there_and_nothing_else() {
    // Larger than the space that devices allocate in advance.
    let mut array = Array::up(&["--size", "64MiB", "--volume", "vol0:128MiB"]);
    let content = noise(seed(), 16 * UNIT);
    Client::open(&array.nbd()).write(0, &content).expect("a write works");
    array.down();
    // The third device is on a small disk of its own, which other files fill.
    let (_block, mount) = disk(array.scratch(), 64 << 20, &["-m", "0"]);
    let (file, there) = (array.device_file(2), array.scratch().path("mnt/device"));
    tool("cp", &["--sparse=always", path_text(&file), path_text(&there)]);
    std::fs::remove_file(&file).expect("it can be removed");
    std::os::unix::fs::symlink(&there, &file).expect("it can be linked");
    let ballast = array.scratch().path("mnt/ballast");
    array.start(&[]);
    let room = run("df", &["--output=avail", "--block-size=1", path_text(&there)]).done().stdout;
    let room: u64 = room.lines().last().and_then(|line| line.trim().parse().ok()).expect("df says how much");
    tool("fallocate", &["--length", &(room - (4 << 20)).to_string(), path_text(&ballast)]);

    let mut client = Client::open(&array.nbd());
    let pieces = fill(&mut client, 2);
    assert!(pieces > 2, "something did fit");
    wait_until("it is an event", Duration::from_secs(20), || {
        array.braid(&["events"]).done().stdout.contains("\"space-refused\"")
    });
    let found = array.braid(&["doctor"]).stdout;
    assert!(found.contains("writes to volume vol0 are refused"), "{found}");
    for number in 2..pieces {
        assert!(client.read((number as u64) << 20, 1 << 20).expect("a read works") == piece(number, 0));
        client.write((number as u64) << 20, &piece(number, 1)).expect("what has its space can be written over");
    }
    array.assert_reads(0, &content);
    let status = array.await_volume(0, "healthy");
    assert_eq!(number(&status["epoch"]), 1, "no device was taken out: {status:#}");
    std::fs::remove_file(&ballast).expect("it can be removed");
    client.write((pieces as u64) << 20, &piece(pieces, 2)).expect("there is room again");
    for number in 2..pieces {
        assert!(client.read((number as u64) << 20, 1 << 20).expect("a read works") == piece(number, 1));
    }
    drop(client);
    array.assert_sound("vol0");
    array.down();
    mount.unmount();
}

#[test]
fn a_full_disk_refuses_new_blocks_takes_overwrites_and_goes_on_once_there_is_room() {
    let scratch = Scratch::new();
    let (_block, mount) = disk(&scratch, 160 << 20, &["-m", "0"]);
    let ballast = scratch.path("mnt/ballast");
    tool("fallocate", &["--length", "24MiB", path_text(&ballast)]);
    {
        // Five devices of 64 MiB share the remaining space.
        let mut array = Array::up_in(&scratch.path("mnt/array"), &["--size", "64MiB", "--volume", "vol0:128MiB"]);
        let mut client = Client::open(&array.nbd());
        let pieces = fill(&mut client, 0);
        assert!(pieces > 4, "something did fit: {pieces} MiB");
        for number in 0..pieces {
            assert!(client.read((number as u64) << 20, 1 << 20).expect("a read works") == piece(number, 0));
        }
        for number in 0..pieces {
            client.write((number as u64) << 20, &piece(number, 1)).expect("what has its space can be written over");
            client.write(((number as u64) << 20) + 5000, &[0x77; 100]).expect("and in part");
        }
        drop(client);
        array.kill();
        array.start(&[]);
        let mut client = Client::open(&array.nbd());
        let mut expected: Vec<Vec<u8>> = (0..pieces).map(|number| piece(number, 1)).collect();
        for (number, piece) in expected.iter_mut().enumerate() {
            piece[5000..5100].fill(0x77);
            assert!(client.read((number as u64) << 20, 1 << 20).expect("a read works") == *piece);
        }
        std::fs::remove_file(&ballast).expect("it can be removed");
        client.write((pieces as u64) << 20, &piece(pieces, 2)).expect("there is room again");
        assert!(client.read((pieces as u64) << 20, 1 << 20).expect("a read works") == piece(pieces, 2));
        array.assert_sound("vol0");
        array.down();
    }
    mount.unmount();
}
