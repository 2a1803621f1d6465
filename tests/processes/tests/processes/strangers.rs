//! Garbage on ports, clients that vanish, devices that are suspended.

use crate::prelude::*;
use braid_processes::nbd::{parts, send_garbage};

const UNIT: u64 = 65_536;
/// The time limit of a request that waits for a device.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// A silent device is taken out when its lease has expired, plus one second for everything else.
const OUT_LIMIT: Duration = LEASE.saturating_add(Duration::from_secs(1));

#[test]
fn garbage_on_any_port_stops_nothing() {
    let array = Array::small();
    let pids = array.first_device_pids();
    let mut client = Client::open(&array.nbd());
    let content = noise(seed(), 500_000);
    client.write(99, &content).expect("a write works");
    let status = array.status();
    let devices = items(&status["devices"]).iter().map(|d| text(&d["address"]));
    let frame_of_a_later_version = [b"BRAD\x63\0\0\0", &[0xff; 56][..]].concat();
    let endless_frame = [b"BRAD\x01\0\0\0", &[0xff; 1000][..]].concat();
    for address in devices.chain([parts(&array.nbd()).0.to_string()]) {
        send_garbage(&address, &noise(seed(), 100_000));
        send_garbage(&address, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        send_garbage(&address, b"BRAD\x01\0\0\0\x10");
        send_garbage(&address, &frame_of_a_later_version);
        send_garbage(&address, &endless_frame);
        send_garbage(&address, b"\0\0\0\x03IHAVEOPT\0\0\0\x07\xff\xff\xff\xff");
        send_garbage(&address, b"");
    }
    assert!(client.read(99, content.len()).expect("the old connection works") == content);
    Client::open(&array.nbd()).write(0, &[1; 4096]).expect("so does a new one");
    let now: Vec<u32> = (0..5).map(|device| array.device_pid(device)).collect();
    assert_eq!(now, pids, "no device had to be started again");
    array.assert_sound("vol0");
}

#[test]
fn a_client_that_vanishes_in_mid_request_leaves_no_trace() {
    let array = Array::small();
    let before = noise(seed(), 4 << 20);
    let mut client = Client::open(&array.nbd());
    client.write(0, &before).expect("a write works");
    for part in [0, 1, 4096, 100_000, (2 << 20) - 1] {
        Client::open(&array.nbd()).vanish_in_mid_write(1 << 20, 2 << 20, &vec![0xee; part]);
    }
    assert!(client.read(0, before.len()).expect("a read works") == before, "half a write is none");
    // A client that sends many requests and does not wait for the answers.
    for _ in 0..5 {
        let mut hasty = Client::open(&array.nbd());
        for piece in 0..16 {
            hasty.send_read(piece << 18, 1 << 18).expect("it can be sent");
            hasty.send_write((4 << 20) + (piece << 12), &[7; 4096]).expect("it can be sent");
        }
    }
    client.flush().expect("the server continues");
    array.assert_sound("vol0");
}

#[test]
fn only_requests_for_a_suspended_device_wait_until_it_is_marked_out() {
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
    assert!(begun.elapsed() < OUT_LIMIT, "{:?}", begun.elapsed());
    signal(pid, Signal::CONT);
    array.await_volume(0, "healthy");
    array.assert_sound("vol0");
}

#[test]
fn without_redundancy_a_device_that_stays_silent_is_an_error_in_the_end_and_no_loss() {
    let array = Array::of_processes(&[
        "--unavailable",
        "fail",
        "--layout",
        "raid0:5",
        "--size",
        "64MiB",
        "--volume",
        "vol0:32MiB",
    ]);
    let mut client = Client::open(&array.nbd());
    let content = noise(seed(), UNIT as usize);
    client.write(0, &content).expect("a write works");
    let device = array.devices_of("vol0")[0];
    let pid = array.device_pid(device);
    signal(pid, Signal::STOP);
    let begun = Instant::now();
    let write = client.send_write(0, &[0xaa; 8192]).expect("it can be sent");
    let read = client.send_read(32_768, 4096).expect("it can be sent");
    let mut answers = [client.reply().expect("an answer comes"), client.reply().expect("an answer comes")];
    let waited = begun.elapsed();
    answers.sort_unstable();
    assert_eq!(answers, [(write, EIO), (read, EIO)]);
    println!("a request waited {waited:?} for a device that stayed unavailable");
    assert!(waited < REQUEST_LIMIT + Duration::from_secs(5), "{waited:?}");
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

#[test]
fn reads_and_writes_beyond_the_end_are_refused_and_the_connection_goes_on() {
    let array = Array::small();
    let mut client = Client::open(&array.nbd());
    let end = client.size;
    assert!(matches!(client.read(end, 1), Err(Refusal::Said(_))));
    assert!(matches!(client.write(end - 1, &[1, 2]), Err(Refusal::Said(_))));
    assert!(matches!(client.read(u64::MAX - 4095, 4096), Err(Refusal::Said(_))));
    client.write(end - 1, &[1]).expect("the last byte can be written");
    assert_eq!(client.read(end - 2, 2).expect("and read"), [0, 1]);
}
