//! Volumes that grow while they are used.

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
}
