//! Volumes and file systems that grow while they are used.

use crate::prelude::*;

const BLOCK: usize = 4096;

#[test]
fn a_volume_grows_under_load_and_keeps_its_content() {
    let array = Array::small();
    let (_host, other) = array.host();
    let mut client = Client::open(&array.nbd());
    client.write(SMALL_BYTES - BLOCK as u64, &[7; BLOCK]).expect("it is written");
    let hosts = vec![array.nbd(), other.clone()];
    let load = Load::running(Plan { workers: 2, cells: 100, ..Plan::of(&hosts) });
    let free = |status: &Value| number(&status["devices"][0]["free_bytes"]);
    let before = free(&array.status());
    let larger = SMALL_BYTES * 3 / 2;
    let said = array.braid(&["volume", "resize", "vol0", "48MiB"]).done().json();
    assert_eq!((number(&said["size_bytes"]), number(&said["previous_size_bytes"])), (larger, SMALL_BYTES));
    load.go_on();
    load.stop().verify(&other);
    let status = array.status();
    assert_eq!(number(&status["volumes"][0]["size_bytes"]), larger, "{status:#}");
    assert!(free(&status) < before, "{status:#}");
    for uri in [array.nbd(), other] {
        let mut client = Client::open(&uri);
        assert_eq!(client.read(SMALL_BYTES - BLOCK as u64, BLOCK).expect("it is read"), [7; BLOCK]);
        assert_eq!(client.read(SMALL_BYTES, BLOCK).expect("it is read"), [0; BLOCK]);
        client.write(larger - BLOCK as u64, &[8; BLOCK]).expect("it is written");
    }
    assert!(client.read(SMALL_BYTES, BLOCK).is_err(), "a client that is connected has the old size");
    array.assert_sound("vol0");
    for (size, status, code) in [("1MiB", 2, "cannot-shrink"), ("5000", 2, "bad-size"), ("100GiB", 1, "device-full")] {
        array.braid(&["volume", "resize", "vol0", size]).refused(status, code);
    }
}

#[test]
fn a_volume_lies_on_chosen_devices_and_a_file_system_grows_while_it_is_used() {
    let array = Array::up(&["--size", "256MiB", "--volume", "vol0:16MiB"]);
    let create = ["volume", "create", "two", "--size", "16MiB", "--layout", "raid1:2", "--devices", "1,3"];
    array.braid(&create).done();
    assert_eq!(BTreeSet::from_iter(array.devices_of("two")), BTreeSet::from([1, 3]));
    array.braid(&["volume", "create", "x", "--size", "1MiB", "--devices", "1,9"]).refused(3, "no-such-device");
    for (name, servers) in [("one", "1"), ("more", "2")] {
        array.braid(&["fs", "create", name, "--size", "16MiB", "--servers", servers]).done();
        let file = array.scratch().path("large");
        std::fs::write(&file, vec![5; 15 << 20]).expect("it is written");
        let file = file.to_str().expect("a plain path").to_string();
        array.braid(&["fs", "cp", &file, &format!("{name}:/a")]).done();
        array.braid(&["fs", "cp", &file, &format!("{name}:/b")]).refused(1, "file-system-full");
        wait_until("it is an event", Duration::from_secs(20), || {
            let is_of = |event: &Value| event["text"].as_str().is_some_and(|text| text.contains(&format!(" {name} ")));
            array.events("space-refused").iter().any(is_of)
        });
        array.braid(&["fs", "resize", name, "32MiB"]).done();
        array.braid(&["fs", "cp", &file, &format!("{name}:/b")]).done();
        let space = array.braid(&["fs", "space", name]).done().json();
        assert_eq!((number(&space["bytes"]), number(&space["used"])), (32 << 20, 30 << 20), "{space:#}");
        assert!(number(&space["free_inodes"]) > 0, "{space:#}");
        array.braid(&["fs", "check", name]).done();
    }
}
