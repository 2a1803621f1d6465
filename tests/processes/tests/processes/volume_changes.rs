//! Volumes that change under writers: they grow; and their parity, which devices compute together, gets another site while devices are killed.

use crate::prelude::*;

const BLOCK: usize = 4096;

/// A volume whose devices compute parity, with units of one block, so that writers share parity.
fn create(array: &Array, arguments: &[&str]) -> Value {
    let create = ["volume", "create", "par", "--size", "8MiB", "--unit", "4KiB", "--parity-site", "at-parity"];
    array.braid(&[&create, arguments].concat()).done().json()
}

#[track_caller]
fn set_site(array: &Array, site: &str) -> Value {
    let said = array.braid(&["volume", "set-parity-site", "par", site]).done().json();
    assert_eq!((&said["parity_site"], &said["has_effect"]), (&site.into(), &true.into()), "{said}");
    assert_eq!(said["pending_hosts"], Value::Array(Vec::new()), "all hosts have adopted it: {said}");
    let info = array.braid(&["volume", "info", "par"]).done().json();
    assert_eq!(info["volume"]["parity_site"], site);
    said
}

/// The writes of the supervisor's host that devices have executed together.
fn executed(array: &Array) -> u64 {
    array.await_renewals(2);
    let status = array.status();
    let is_supervisor = |host: &&Value| pid_of(host) == array.supervisor().pid();
    let host = items(&status["hosts"]).iter().find(is_supervisor);
    number(&host.expect("it has a lease")["counters"]["executed"])
}

#[test]
fn the_parity_site_changes_under_load_while_devices_are_killed() {
    let array = Array::of_processes(&SMALL);
    let uri = text(&create(&array, &[])["nbd"]);
    let (_host, other) = array.host();
    let hosts = vec![uri.clone(), other.replace("vol0", "par")];
    // Whole blocks: parts of blocks are written by the host.
    let (cells, cell_bytes) = (300, 4096);
    let load = Load::running(Plan { cells, cell_bytes, begin: 0, ..Plan::of(&hosts) });
    let first = executed(&array);
    assert!(first > 0, "devices execute writes");
    array.kill_device(1);
    load.go_on();

    assert_eq!(set_site(&array, "originator")["previous_parity_site"], "at-parity");
    let before = executed(&array);
    load.go_on();
    assert_eq!(executed(&array), before, "the host computes parity");

    assert_eq!(set_site(&array, "adaptive")["changed"], true);
    load.go_on();
    assert!(executed(&array) > before, "devices execute writes again");
    array.await_volume(0, "healthy");
    array.kill_device(3);
    load.go_on();
    assert_eq!(set_site(&array, "at-parity")["changed"], true);
    assert_eq!(set_site(&array, "at-parity")["changed"], false);
    load.go_on();

    let mut record = load.stop();
    array.await_all_in();
    record.verify(&uri);
    array.assert_sound("par");
}

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
}
