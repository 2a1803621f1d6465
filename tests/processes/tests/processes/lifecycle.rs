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
    for command in [
        &["down"][..],
        &["nbd"],
        &["volume", "check", "vol0"],
        &["volume", "delete", "vol0", "--yes"],
        &["volume", "create", "more", "--size", "4MiB"],
    ] {
        array.braid(command).refused(3, "not-up");
    }
    let listed = array.braid(&["volume", "list"]).done().json();
    assert_eq!(items(&listed["volumes"]).len(), 1, "nothing was begun: {listed}");
    assert_eq!(listed["volumes"][0]["lifecycle"], "ready", "{listed}");
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
fn an_array_without_redundancy_is_made_when_that_is_confirmed_and_runs_in_the_background() {
    let scratch = Scratch::new();
    let dir = scratch.text("array");
    let up = |more: &[&str]| {
        let asked = ["up", "--dir", &dir, "--port", "0", "--json", "--devices", "1", "--background", "--size"];
        braid(&[&asked[..], more].concat())
    };
    let said = up(&["1024TiB"]).refused(2, "not-confirmed");
    assert!(["no redundancy (raid0:1)", "grow up to 1 PiB", "--yes"].iter().all(|it| said.contains(it)), "{said}");
    assert!(!Path::new(&dir).exists(), "nothing was made");
    let folder = ["--array", &dir];
    for (more, created) in [(&["32MiB", "--yes"][..], true), (&["32MiB"], false)] {
        let said = up(more).done().json();
        assert_eq!((&said["created"], &said["ready"]), (&created.into(), &true.into()), "{said}");
        let log = std::fs::metadata(text(&said["log"]));
        assert!(log.is_ok_and(|log| log.is_file()), "{said}");
        let status = braid(&[&["status", "--json"], &folder[..]].concat()).done().json();
        assert_eq!((&status["ready"], &status["pid"]), (&true.into(), &said["pid"]));
        braid(&[&["down"], &folder[..]].concat()).done();
        gone(&[u32::try_from(number(&said["pid"])).expect("a process")]);
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
fn volumes_come_and_go_while_servers_run() {
    let array = Array::small();
    let (_host, other) = array.host();
    let before = Client::open(&array.nbd());
    assert_eq!(before.size, SMALL_BYTES);
    let made = array.braid(&["volume", "create", "mirror", "--size", "8MiB", "--layout", "raid1:2"]).done().json();
    assert_eq!(number(&made["volume"]["size_bytes"]), 8 << 20);
    let content = noise(seed(), 100_000);
    for uri in [text(&made["nbd"]), other.replace("/vol0", "/mirror")] {
        let mut client = Client::open(&uri);
        assert_eq!(client.size, 8 << 20);
        client.write(777, &content).expect("a write works");
    }
    array.assert_sound("mirror");
    let listed = array.braid(&["volume", "list"]).done().json();
    let names: Vec<String> = items(&listed["volumes"]).iter().map(|v| text(&v["name"])).collect();
    assert_eq!(names, ["vol0", "mirror"]);
    let exports = tool("nbdinfo", &["--list", &other.replace("/vol0", "")]);
    assert!(exports.contains("export=\"mirror\"") && exports.contains("export=\"vol0\""), "{exports}");
    array.braid(&["volume", "delete", "mirror"]).refused(2, "not-confirmed");
    array.braid(&["volume", "delete", "mirror", "--yes"]).done();
    assert!(Client::try_open(&other.replace("/vol0", "/mirror")).is_err(), "a deleted volume is not served");
    array.braid(&["volume", "info", "mirror"]).refused(3, "no-such-volume");
    // A new volume of that name does not have the old one's content.
    array.braid(&["volume", "create", "mirror", "--size", "8MiB", "--layout", "raid1:2"]).done();
    let there = Client::open(&other.replace("/vol0", "/mirror")).read(0, 1 << 20).expect("a read works");
    assert!(there.iter().all(|byte| *byte == 0));
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
fn help_and_completions_work_without_an_array() {
    for command in [
        "up",
        "down",
        "status",
        "volume",
        "volume create",
        "volume set-parity-site",
        "volume map",
        "volume check",
        "device serve",
        "nbd",
        "lockd",
        "mds",
        "fs create",
        "fs check",
        "monitord",
        "doctor",
        "bench",
    ] {
        let arguments: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let said = braid(&arguments).done().stdout;
        assert!(said.contains("Usage: braid") && said.lines().count() > 8, "{command}: {said}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = braid(&["completions", shell]).done().stdout;
        // The latter is an option of `braid sim attack`.
        assert!(script.contains("volume") && script.contains("keep-going"), "{shell}");
    }
    assert!(braid(&["--version"]).done().stdout.starts_with("braid "));
}

#[test]
fn a_second_up_says_so_and_disturbs_nothing() {
    let array = Array::up(&SMALL);
    let dir = array.dir().to_str().expect("plain");
    braid(&["up", "--dir", dir, "--port", "0", "--json"]).refused_naming(
        1,
        "already-up",
        &[&array.supervisor().pid().to_string(), "braid status"],
    );
    Client::open(&array.nbd()).write(0, b"still there").expect("the first one serves");
    // A suspended supervisor counts as running.
    signal(array.supervisor().pid(), Signal::STOP);
    braid(&["up", "--dir", dir, "--port", "0", "--json"]).refused(1, "already-up");
    signal(array.supervisor().pid(), Signal::CONT);
    assert_eq!(Client::open(&array.nbd()).read(0, 11).expect("the first one serves"), b"still there");
}

#[test]
fn a_second_up_is_refused_though_the_lock_of_the_first_was_removed() {
    let mut array = Array::up(&SMALL);
    let dir = array.dir().to_str().expect("plain").to_string();
    let second = ["up", "--dir", &dir, "--port", "0", "--json"];
    for supervisor in [Signal::STOP, Signal::CONT] {
        // A suspended supervisor can't write the file again.
        signal(array.supervisor().pid(), supervisor);
        std::fs::remove_file(array.dir().join("up.lock")).expect("it exists");
        braid(&second).refused_naming(1, "already-up", &[&array.supervisor().pid().to_string()]);
        assert!(array.dir().join("run.json").exists(), "what the first one has published stays");
        assert_eq!(array.status()["up"], true);
    }
    Client::open(&array.nbd()).write(0, b"still there").expect("the first one serves");
    array.down();
}

#[test]
fn a_new_volume_is_empty_though_its_number_was_another_s_before() {
    let array = Array::small();
    let of = |volume: &str| array.nbd_of(volume);
    array.braid(&["volume", "create", "old", "--size", "4MiB"]).done();
    Client::open(&of("old")).write(0, &noise(seed(), 1 << 20)).expect("a write works");
    // As in an older copy of the description, which does not contain the volume.
    array.describe(|description| {
        description["next_volume"] = description["volumes"][1]["id"].clone();
        description["volumes"].as_array_mut().expect("volumes are listed").truncate(1);
        description["revision"] = (number(&description["revision"]) + 1).into();
    });
    array.braid(&["volume", "create", "new", "--size", "4MiB"]).done();
    let there = Client::open(&of("new")).read(0, 4 << 20).expect("a read works");
    assert!(there.iter().all(|byte| *byte == 0), "nothing of the old volume is seen");
}
