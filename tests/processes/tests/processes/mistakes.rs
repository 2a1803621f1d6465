//! Users' mistakes: each gives an exit status, an error code, a message, and a hint.

use crate::prelude::*;
use braid_processes::nbd::parts;

fn up(scratch: &Scratch, arguments: &[&str]) -> Outcome {
    let dir = scratch.text("array");
    braid(&[&["up", "--dir", &dir, "--port", "0", "--json"], arguments].concat())
}

#[test]
fn an_array_that_can_not_be_is_refused_and_nothing_is_made() {
    let scratch = Scratch::new();
    let refused = [
        (&["--devices", "3", "--layout", "raid5:4+1"][..], "bad-layout", "5"),
        (&["--devices", "1", "--layout", "raid1:2"][..], "bad-layout", "2"),
        (&["--devices", "0"][..], "bad-devices", "1"),
        (&["--size", "100000001"][..], "bad-size", "100000001"),
        (&["--size", "1MiB"][..], "device-too-small", "16 MiB"),
        (&["--size", "1"][..], "device-too-small", "--size 16MiB"),
        (&["--unit", "5000"][..], "bad-unit", "4 KiB"),
        (&["--unit", "2MiB"][..], "bad-layout", "1 MiB"),
        (&["--volume", "x:4097"][..], "bad-size", "4096"),
        (&["--volume", "x:0"][..], "bad-size", "4096"),
        (&["--volume", "no/slash:4MiB"][..], "bad-name", "no/slash"),
        (&["--volume", "x:4MiB", "--volume", "x:4MiB"][..], "volume-exists", "x"),
        (&["--lease", "100ms"][..], "bad-lease", "a lease is 1s to 60s"),
        (&["--lease", "2m"][..], "bad-lease", "a lease is 1s to 60s"),
        (&["--lease", "soon"][..], "usage", "a lease is 1s to 60s"),
        (&["--size", "many"][..], "usage", "many"),
        (&["--layout", "raid9"][..], "usage", "raid9"),
        (&["--no-such-option"][..], "usage", "--no-such-option"),
        (&["--array", "elsewhere"][..], "usage", "--array"),
    ];
    for (arguments, code, word) in refused {
        up(&scratch, arguments).refused_naming(2, code, &[word]);
    }
    assert!(!scratch.path("array/device-0.braid").exists());
}

#[test]
fn a_volume_that_does_not_fit_is_refused_in_words() {
    let scratch = Scratch::new();
    let said = up(&scratch, &["--size", "64MiB", "--volume", "a:4MiB", "--volume", "huge:100TiB"]);
    said.refused_naming(2, "no-room", &["100.0 TiB asked for", "MiB free"]);
    assert!(!scratch.path("array").exists(), "nothing of it remains");
    let mut array = Array::up_in(&scratch.path("array"), &["--size", "64MiB"]);
    // The first volume leaves half of the space, but not enough for another volume of this size.
    array.braid(&["volume", "create", "more", "--size", "256MiB"]).refused_naming(
        1,
        "device-full",
        &["256 MiB asked for", "`braid status`"],
    );
    array.down();
    let array = Array::small();
    array.braid(&["volume", "create", "huge", "--size", "100GiB"]).refused_naming(1, "device-full", &["huge"]);
    // More than a device can address.
    array.braid(&["volume", "create", "huge", "--size", "16383PiB"]).refused_naming(2, "too-large", &["at most"]);
    array.braid(&["volume", "info", "huge"]).refused(3, "no-such-volume");
    Client::open(&array.nbd()).write(0, b"x").expect("the array continues");
}

#[test]
fn volumes_that_are_not_there_or_can_not_be_are_refused() {
    let array = Array::small();
    for command in ["info", "check", "delete"] {
        array.braid(&["volume", command, "nowhere"]).refused_naming(3, "no-such-volume", &["nowhere", "vol0"]);
    }
    array.braid(&["nbd", "--volume", "nowhere"]).refused(3, "no-such-volume");
    let refused = run("nbdinfo", &[&array.nbd_of("nowhere")]);
    assert!(refused.stderr.contains("nowhere") && refused.status != Some(0), "{refused}");
    array.braid(&["volume", "create", "x", "--size", "4097"]).refused(2, "bad-size");
    array.braid(&["volume", "create", "x", "--size", "4MiB", "--layout", "raid5:5+1"]).refused(2, "bad-layout");
    array.braid(&["volume", "create", "x", "--size", "4MiB", "--ordering", "random"]).refused(2, "usage");
    let orderings = ["none", "server-lock", "callback-lock", "device-lock", "timestamp"];
    array.braid(&["volume", "set-ordering", "vol0", "random"]).refused_naming(2, "usage", &orderings);
    array.braid(&["volume", "set-ordering", "nothing", "none"]).refused(3, "no-such-volume");
    array.braid(&["lockd", "--id", "1"]).refused(3, "no-such-lock-server");
    array.braid(&["volume", "create", "vol0", "--size", "4MiB"]).refused(1, "volume-exists");
    // The array is intact: a valid command succeeds.
    array.braid(&["volume", "create", "x", "--size", "4MiB"]).done();
}

#[test]
fn where_no_array_is_everything_says_so() {
    let scratch = Scratch::new();
    let nowhere = scratch.text("nowhere");
    for command in [&["status"][..], &["down"], &["volume", "list"], &["volume", "check", "vol0"], &["nbd"]] {
        let said = braid(&[command, &["--array", &nowhere, "--json"]].concat()).refused(3, "no-array");
        assert!(said.contains(&nowhere) && said.contains("--array FOLDER"), "{said}");
        assert_eq!(said.contains("braid up"), command != ["down"], "{said}");
    }
    assert!(!scratch.path("nowhere").exists(), "looking makes nothing");
}

#[test]
fn a_port_that_is_taken_is_named_and_nothing_is_made() {
    let array = Array::small();
    let nbd = array.nbd();
    let (address, _) = parts(&nbd);
    let port = address.rsplit(':').next().expect("there is a port");
    let scratch = Scratch::new();
    let dir = scratch.text("array");
    braid(&["up", "--dir", &dir, "--port", port, "--yes", "--json"]).refused_naming(1, "port-taken", &[port]);
    assert!(!scratch.path("array/device-0.braid").exists());
    array.braid(&["nbd", "--listen", address]).refused(1, "port-taken");
    array.braid(&["nbd", "--listen", "nonsense"]).refused(2, "usage");
}

#[test]
fn other_arguments_than_at_creation_are_refused_each_by_name() {
    let mut array = Array::small();
    let content = noise(1, 10_000);
    Client::open(&array.nbd()).write(1, &content).expect("a write works");
    array.down();
    let outcome = array
        .try_start(&[
            "--devices",
            "7",
            "--size",
            "1GiB",
            "--layout",
            "raid5:2+1",
            "--unit",
            "4KiB",
            "--volume",
            "b:4MiB",
        ])
        .expect_err("these are not its arguments");
    let said = outcome.refused(2, "arguments-differ");
    for word in ["--devices 7", "created with 5", "--size", "64 MiB", "raid5:4+1", "--unit", "--volume b", "vol0"] {
        assert!(said.contains(word), "{word} is not in: {said}");
    }
    array.start(&[&SMALL[..], &["--devices", "5"]].concat());
    array.assert_reads(1, &content);
}

#[test]
fn device_files_without_their_description_are_not_written_over() {
    let mut array = Array::small();
    let content = noise(2, 10_000);
    Client::open(&array.nbd()).write(1, &content).expect("a write works");
    array.down();
    let (there, aside) = (array.dir().join("array.json"), array.scratch().path("array.json"));
    std::fs::rename(&there, &aside).expect("it can be moved");
    array.try_start(&SMALL).expect_err("the files may be all that is left of it").refused(1, "left-overs");
    let damaged = "{\"schema\": 2, ";
    std::fs::write(&there, damaged).expect("it can be written");
    array.assert_start_refused(1, "description-damaged", &["braid monitor recover", "--from"]);
    assert_eq!(std::fs::read_to_string(&there).expect("it exists"), damaged, "it was left unchanged");
    let newer = std::fs::read_to_string(&aside).expect("it exists").replacen("\"schema\": 2", "\"schema\": 99", 1);
    std::fs::write(&there, newer.replacen("\"schema\":2", "\"schema\":99", 1)).expect("it can be written");
    array.assert_start_refused(1, "newer-format", &[]);
    std::fs::rename(&aside, &there).expect("it can be moved back");
    array.start(&[]);
    array.assert_reads(1, &content);
}

#[test]
fn experiments_that_can_not_be_are_refused_before_anything_is_made() {
    let scratch = Scratch::new();
    let (out, there) = (scratch.text("results"), scratch.text("there"));
    std::fs::create_dir(&there).expect("it is new");
    let sim = |arguments: &[&str]| braid(&[&["sim", "--json"], arguments].concat());
    let refused = [
        (&["run", "shared-array-fig7", "--out", &out][..], "no-such-experiment", "shared-array-fig6"),
        (&["run", "--out", &out][..], "usage", "NAME"),
        (&["run", "scale", "--set", "system.host=3", "--out", &out][..], "no-such-parameter", "system.hosts"),
        (&["run", "scale", "--set", "system.hosts", "--out", &out][..], "parameter", "KEY=VALUE"),
        (&["run", "scale", "--set", "workload.read_fraction=70", "--out", &out][..], "parameter", "from 0 to 1"),
        (&["run", "scale", "--set", "workload.arrivals=often", "--out", &out][..], "parameter", "open"),
        (&["run", "scale", "--replications", "0", "--out", &out][..], "usage", "1..=1000"),
        (&["run", "scale", "--out", &there][..], "exists", "--out"),
    ];
    for (arguments, code, word) in refused {
        sim(arguments).refused_naming(2, code, &[word]);
    }
    assert!(!scratch.path("results").exists());
    sim(&["report", &there]).refused(3, "no-results");
}

#[test]
fn an_experiment_leaves_its_files_and_a_report() {
    let scratch = Scratch::new();
    let out = scratch.text("results");
    let short = ["--quick", "--set", "run.operations=200", "--set", "run.warm_up_operations=50", "--out", &out];
    let found = braid(&[&["sim", "run", "shared-array-fig11", "--json"], &short[..]].concat()).done().json();
    assert_eq!(found["results"][0]["name"], "shared-array-fig11");
    for file in [
        "shared-array-fig11.csv",
        "shared-array-fig11.json",
        "shared-array-fig11.svg",
        "shared-array-fig11-latency.svg",
    ] {
        assert!(scratch.path("results").join(file).exists(), "{file}");
    }
    braid(&["sim", "report", &out, "--json"]).done();
    assert!(scratch.path("results").join("report.html").exists());
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

#[test]
fn a_path_that_is_no_folder_is_named_with_a_hint() {
    let scratch = Scratch::new();
    let file = scratch.text("file");
    std::fs::write(&file, "").expect("it can be written");
    for path in [file.as_str(), "/dev/null"] {
        braid(&["status", "--array", path, "--json"]).refused_naming(3, "not-a-folder", &[path, "--array FOLDER"]);
        braid(&["up", "--dir", path, "--json"]).refused(3, "not-a-folder");
    }
}

#[test]
fn a_taken_port_leaves_no_new_folder_behind() {
    let scratch = Scratch::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("some port is free");
    let port = taken.local_addr().expect("it listens").port().to_string();
    let dir = scratch.text("array");
    let start = ["up", "--dir", &dir, "--port", &port, "--yes", "--json"];
    braid(&start).refused(1, "port-taken");
    assert!(!scratch.path("array").exists(), "it was not there before");
    // Files of others stay.
    std::fs::create_dir(scratch.path("array")).expect("it can be made");
    std::fs::write(scratch.path("array/note"), "mine").expect("it can be written");
    braid(&start).refused(1, "port-taken");
    assert!(scratch.path("array/note").exists());
}
