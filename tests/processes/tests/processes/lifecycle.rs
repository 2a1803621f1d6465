//! Up, status, volumes, down, signals.

use crate::prelude::*;

/// The fields that `up` and `status` must report alike.
fn entries(said: &Value) -> (Vec<Value>, Vec<Value>) {
    let pick = |entry: &Value, fields: &[&str]| fields.iter().map(|field| entry[field].clone()).collect::<Value>();
    let all = |list: &str, fields: &[&str]| items(&said[list]).iter().map(|entry| pick(entry, fields)).collect();
    (all("volumes", &["name", "size_bytes", "nbd", "nbd_unix"]), all("devices", &["id", "address", "pid", "file"]))
}

#[test]
fn status_works_before_while_and_after_the_array_is_up() {
    let mut array = Array::small();
    assert_eq!(array.ready()["schema"], 2);
    assert_eq!(Path::new(&text(&array.ready()["dir"])), array.dir());
    let status = array.status();
    assert_eq!(entries(&status), entries(array.ready()));
    assert_eq!((&status["up"], &status["ready"]), (&Value::Bool(true), &Value::Bool(true)));
    assert_eq!(status["volumes"][0]["state"], "healthy");
    assert_eq!((number(&status["epoch"]), &status["monitor"]["state"]), (1, &Value::from("serving")), "{status:#}");
    for device in items(&status["devices"]) {
        assert_eq!((&device["state"], &device["member_state"]), (&Value::from("serving"), &Value::from("in")));
        assert!(Path::new(&text(&device["file"])).exists());
    }
    array.down();
    let outcome = array.braid(&["status"]);
    assert_eq!(outcome.status, Some(3), "not up is not reachable: {outcome}");
    let status = outcome.json();
    assert_eq!(status["up"], false);
    assert_eq!(status["volumes"][0]["state"], "not up");
}

#[test]
fn status_shows_counters_and_what_they_mean() {
    let array = Array::of_processes(&SMALL);
    let mut client = Client::open(&array.nbd());
    for block in 0..50 {
        client.write(block << 12, &[7; 4096]).expect("a write works");
    }
    array.await_status("the host tells with its lease what it has done", |status| {
        status["hosts"][0]["counters"]["operations"].as_u64().is_some_and(|operations| operations >= 50)
    });
    let status = array.status();
    let host = &status["hosts"][0]["counters"];
    for name in ["committed", "requests_sent", "socket_writes", "cpu_micros", "resident_bytes"] {
        assert!(number(&host[name]) > 0, "{name}: {host}");
    }
    let devices = items(&status["devices"]);
    for name in ["socket_reads", "disk_durable_writes", "bytes_accepted", "cpu_micros", "resident_bytes"] {
        assert!(devices.iter().all(|device| number(&device["counters"][name]) > 0), "{name}: {status}");
    }
    let sum = |name: &str| devices.iter().map(|device| number(&device["counters"][name])).sum::<u64>();
    assert!(sum("bytes_accepted") >= 2 * 50 * 4096, "data and parity");
    assert!(sum("disk_write_bytes") > sum("bytes_accepted"), "headers and records come on top");
    let said = array.told(&["status", "--verbose"]);
    for words in ["each operation took", "each read or write served took", "each byte accepted took", "resident_bytes"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn an_interrupt_or_sigterm_ends_it_well_and_leaves_no_process() {
    let mut array = Array::small();
    let content = noise(seed(), 300_000);
    Client::open(&array.nbd()).write(12_345, &content).expect("a write works");
    for (how, placement) in [(Signal::INT, "--processes"), (Signal::TERM, "--nodes=1"), (Signal::TERM, "--processes")] {
        let pids = array.first_device_pids();
        let (host, _) = array.host();
        assert_eq!(host.end(how), Some(0), "a server ends well");
        assert_eq!(array.give_away_supervisor().end(how), Some(0), "so does the array");
        gone(&pids);
        array.start(&[placement]);
        array.assert_reads(12_345, &content);
    }
}

#[test]
fn the_devices_end_with_a_supervisor_that_is_killed() {
    let mut array = Array::small();
    let pids = array.first_device_pids();
    array.give_away_supervisor().kill();
    gone(&pids);
    array.start(&[]);
    array.assert_sound("vol0");
}

#[test]
fn every_layout_keeps_its_parity() {
    let array = Array::up(&[
        "--devices",
        "7",
        "--size",
        "64MiB",
        "--layout",
        "raid5:2+1",
        "--unit",
        "4KiB",
        "--volume",
        "a:8MiB",
    ]);
    for (name, layout, unit) in [("b", "raid5:6+1", "1MiB"), ("c", "raid1:3", "16KiB"), ("d", "raid0:7", "64KiB")] {
        array.braid(&["volume", "create", name, "--size", "8MiB", "--layout", layout, "--unit", unit]).done();
    }
    let content = noise(seed(), 3_000_000);
    for name in ["a", "b", "c", "d"] {
        let mut client = Client::open(&array.nbd().replace("/a", &format!("/{name}")));
        for (offset, part) in [(1_000_001, &content[..]), (2_000_000, &content[..10]), (5_000_000, &content[..70_000])]
        {
            client.write(offset, part).expect("a write works");
        }
        let there = client.read(1_000_001, 2_000_000 - 1_000_001).expect("a read works");
        assert!(there == content[..there.len()], "{name}");
        assert!(client.read(5_000_000, 70_000).expect("a read works") == content[..70_000], "{name}");
        match name {
            "d" => drop(array.braid(&["volume", "check", name]).refused(2, "no-redundancy")),
            _ => array.assert_sound(name),
        }
    }
}

#[test]
fn a_removed_list_of_processes_is_made_anew() {
    let array = Array::small();
    let mut client = Client::open(&array.nbd());
    client.write(0, &[1; 4096]).expect("a write works");
    std::fs::remove_file(array.dir().join("run.json")).expect("it can be removed");
    let serves = |device: &Value| device["state"] == "serving";
    array.await_status("all devices serve", |status| {
        array.dir().join("run.json").exists() && status["devices"].as_array().is_some_and(|all| all.iter().all(serves))
    });
    assert!(client.read(0, 4096).expect("a read works") == [1; 4096]);
    let mut array = array;
    array.down();
}
