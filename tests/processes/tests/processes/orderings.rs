//! Volumes whose ordering is changed while writers are at work.

use braid_processes::array::{Array, SMALL, number, text};
use braid_processes::data::seed;
use braid_processes::load::{Load, Plan};
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

/// What a user may notice of a change: hosts look up what has changed twice a second.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Units of one block, so that writers meet in parity, and cells that meet within blocks.
fn array() -> Array {
    Array::up(&[&SMALL[..], &["--unit", "4KiB"]].concat())
}

fn plan(hosts: &[&str]) -> Plan {
    let hosts = hosts.iter().map(|uri| uri.to_string()).collect();
    Plan { hosts, workers: 4, cells: 300, cell_bytes: 3000, begin: 100, hosts_may_go: false, seed: seed() }
}

fn ordering_of(status: &Value) -> String {
    text(&status["volumes"][0]["ordering"])
}

#[test]
fn the_ordering_goes_round_under_load_and_nobody_sees_an_error() {
    let array = array();
    let ((_first, first), (_second, second)) = (array.host(), array.host());
    let load = Load::start(plan(&[&first, &second]));
    for ordering in ["device-lock", "server-lock", "callback-lock", "timestamp"] {
        load.go_on();
        load.take_longest();
        let said = array.braid(&["volume", "set-ordering", "vol0", ordering]).done().json();
        assert!(said["changed"] == true && said["ordering"] == ordering, "{said}");
        load.go_on();
        let pause = load.take_longest();
        println!("to {ordering}: the longest pause of a writer was {pause:?}");
        assert!(pause <= PAUSE_MAX, "{pause:?}");
        assert_eq!(ordering_of(&array.status()), ordering);
    }
    let said = array.braid(&["volume", "set-ordering", "vol0", "timestamp"]).done().json();
    assert_eq!(said["changed"], false);
    let mut record = load.stop();
    record.verify(&first);
    record.verify(&array.nbd());
    array.assert_sound("vol0");
}
