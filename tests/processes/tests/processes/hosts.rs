//! Several servers that write the same stripes, or the same blocks, at once.

use braid_processes::Client;
use braid_processes::array::Array;
use braid_processes::data::{noise, seed};
use braid_processes::load::{Load, Plan};

const BLOCK: usize = 4096;

#[test]
fn hosts_that_write_different_blocks_of_the_same_stripes_leave_parity_right() {
    let array = Array::small();
    let ((_first, first), (_second, second)) = (array.host(), array.host());
    let hosts = vec![array.nbd(), first.clone(), second];
    // One stripe's worth of neighbouring blocks for every six writers, over four stripes.
    let plan = Plan { hosts, workers: 6, cells: 256, cell_bytes: BLOCK, begin: 0, hosts_may_go: false, seed: seed() };
    let load = Load::start(plan);
    for _ in 0..10 {
        load.go_on();
    }
    let mut record = load.stop();
    record.verify(&array.nbd());
    record.verify(&first);
    array.assert_sound("vol0");
}

#[test]
fn hosts_that_write_different_bytes_of_the_same_blocks_lose_none() {
    let array = Array::small();
    let (_host, other) = array.host();
    let hosts = vec![array.nbd(), other.clone()];
    let plan = Plan { hosts, workers: 4, cells: 400, cell_bytes: 1000, begin: 777, hosts_may_go: false, seed: seed() };
    let load = Load::start(plan);
    for _ in 0..5 {
        load.go_on();
    }
    let mut record = load.stop();
    record.verify(&other);
    record.verify(&array.nbd());
    array.assert_sound("vol0");
}

#[test]
fn hosts_that_write_the_same_blocks_leave_one_whole_write_in_each() {
    const WRITERS: u64 = 4;
    const ROUNDS: u64 = 60;
    /// Across a stripe unit's border, so that each is a write of two devices and parity.
    const BEGIN: u64 = 65_536 - 2 * BLOCK as u64;
    const LENGTH: usize = 4 * BLOCK;
    let array = Array::small();
    let (_host, other) = array.host();
    let hosts = [array.nbd(), other];
    let seed = seed();
    let written = |writer: u64, round: u64| noise(seed + writer * ROUNDS + round, LENGTH);
    let whole = |there: &[u8]| (0..WRITERS).any(|w| (0..ROUNDS).any(|r| written(w, r) == there));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let uri = &hosts[writer as usize % hosts.len()];
            scope.spawn(move || {
                let mut client = Client::open(uri);
                for round in 0..ROUNDS {
                    client.write(BEGIN, &written(writer, round)).expect("a write works");
                    if round % 20 == 0 {
                        let there = client.read(BEGIN, LENGTH).expect("a read works");
                        assert!(whole(&there), "a read between the writes sees one whole write");
                    }
                }
            });
        }
    });
    let seen: Vec<Vec<u8>> =
        hosts.iter().map(|uri| Client::open(uri).read(BEGIN, LENGTH).expect("a read works")).collect();
    assert!(seen[0] == seen[1], "all hosts see the same");
    let last = |writer: u64| written(writer, ROUNDS - 1);
    assert!((0..WRITERS).any(|writer| last(writer) == seen[0]), "it is what one of the writers wrote last");
    array.assert_sound("vol0");
}
