//! Several servers that write the same stripes, or the same blocks, concurrently.

use crate::prelude::*;

const BLOCK: usize = 4096;

#[test]
fn hosts_that_write_different_blocks_of_the_same_stripes_leave_parity_right() {
    // Units of one block: adjacent cells, which belong to different writers, share their parity.
    let array = Array::up(&[&SMALL[..], &["--unit", "4KiB"]].concat());
    let ((_first, first), (_second, second)) = (array.host(), array.host());
    let hosts = vec![array.nbd(), first.clone(), second];
    let plan = Plan { workers: 6, cells: 64, cell_bytes: BLOCK, begin: 0, ..Plan::of(&hosts) };
    let load = Load::start(plan);
    for _ in 0..10 {
        load.go_on();
    }
    load.assert_kept(&array, &[&array.nbd(), &first]);
}

#[test]
fn without_ordering_the_same_breaks_parity_and_the_check_finds_it() {
    let array = Array::small();
    // Units of one block, as above.
    array.braid(&["volume", "create", "loose", "--size", "8MiB", "--unit", "4KiB", "--ordering", "none"]).done();
    let (_host, other) = array.host();
    let hosts: Vec<String> = [array.nbd(), other].iter().map(|uri| uri.replace("/vol0", "/loose")).collect();
    let plan = Plan { cells: 16, cell_bytes: BLOCK, begin: 0, ..Plan::of(&hosts) };
    let load = Load::start(plan);
    // A collision depends on timing, but soon occurs.
    for _ in 0..20 {
        load.go_on();
    }
    load.stop().verify(&hosts[0]);
    let checked = array.braid(&["volume", "check", "loose"]);
    assert_eq!(checked.status, Some(4), "{checked}");
    assert!(number(&checked.json()["bad"]) > 0, "{checked}");
    // Reading everything and writing it again corrects the parity if there are no other writers.
    let mut client = Client::open(&hosts[0]);
    let content = client.read(0, 8 << 20).expect("a read works");
    client.write(0, &content).expect("a write works");
    array.assert_sound("loose");
}

#[test]
fn hosts_that_write_different_bytes_of_the_same_blocks_lose_none() {
    let array = Array::small();
    let (_host, other) = array.host();
    let hosts = vec![array.nbd(), other.clone()];
    let plan = Plan { cells: 400, cell_bytes: 1000, begin: 777, ..Plan::of(&hosts) };
    let load = Load::start(plan);
    for _ in 0..5 {
        load.go_on();
    }
    load.assert_kept(&array, &[&other, &array.nbd()]);
}

#[test]
fn hosts_that_write_the_same_blocks_leave_one_whole_write_in_each() {
    // Across the border of a stripe unit, so that each is a write of two devices and parity.
    hammer(65_536 - 2 * BLOCK as u64, 4 * BLOCK, 60);
}

#[test]
fn hosts_that_write_the_same_stripes_leave_one_whole_write_in_all() {
    // Over several stripes, with unaligned ends, and across a multiple of the longest transaction.
    hammer((4 << 20) - 300_001, 600_000, 20);
}

/// Writes the same range repeatedly through two hosts, from two clients each: every read returns one whole write.
fn hammer(begin: u64, length: usize, rounds: u64) {
    const WRITERS: u64 = 4;
    const LOOK_EVERY: usize = 8;
    let array = Array::small();
    let (_host, other) = array.host();
    let hosts = [array.nbd(), other];
    let seed = seed();
    let of_writer = |writer| (0..rounds).map(|round| noise(seed + writer * rounds + round, length)).collect();
    let written: Vec<Vec<Vec<u8>>> = (0..WRITERS).map(of_writer).collect();
    std::thread::scope(|scope| {
        for (own, uri) in written.iter().zip(hosts.iter().cycle()) {
            let written = &written;
            scope.spawn(move || {
                let mut client = Client::open(uri);
                for (round, content) in own.iter().enumerate() {
                    client.write(begin, content).expect("a write works");
                    if round % LOOK_EVERY == 0 {
                        let there = client.read(begin, length).expect("a read works");
                        let is_whole = written.iter().flatten().any(|whole| *whole == there);
                        assert!(is_whole, "a read between the writes sees one whole write");
                    }
                }
            });
        }
    });
    let seen: Vec<Vec<u8>> =
        hosts.iter().map(|uri| Client::open(uri).read(begin, length).expect("a read works")).collect();
    assert!(seen[0] == seen[1], "all hosts see the same");
    assert!(written.iter().any(|own| own.last() == Some(&seen[0])), "it is what one of the writers wrote last");
    array.assert_sound("vol0");
}

#[test]
fn hosts_go_on_while_a_suspended_process_holds_the_lock_of_the_folder() {
    let array = Array::small();
    let (_host, other) = array.host();
    let mut clients = [Client::open(&array.nbd()), Client::open(&other)];
    // A process may be suspended while it holds the folder's lock.
    let lock = File::options().write(true).open(array.dir().join("lock")).expect("it exists");
    flock(&lock, FlockOperation::LockExclusive).expect("the lock is held briefly");
    let mut go_on = |leases: u32| {
        let begun = Instant::now();
        for round in (1..=250).cycle().take_while(|_| begun.elapsed() < LEASE * leases) {
            for client in &mut clients {
                client.write(0, &[round; BLOCK]).expect("writes continue");
                assert!(client.read(0, BLOCK).is_ok_and(|read| read == [round; BLOCK]), "and reads");
            }
            // Other tests may have the processors: much shorter than a lease.
            std::thread::sleep(LEASE / 50);
        }
    };
    let dir = path_text(array.dir());
    std::thread::scope(|scope| {
        let create = ["volume", "create", "late", "--size", "1MiB", "--array", dir, "--json"];
        let changer = scope.spawn(move || braid(&create).refused(1, "locked"));
        // A host may be silent for 15 leases; and a process that waits for the lock gives up after 10 s.
        go_on(22);
        let said = changer.join().expect("it was refused");
        let holder = format!("process {} (", std::process::id());
        assert!(said.contains(&holder) && said.contains("end it with"), "{said}");
    });
    flock(&lock, FlockOperation::Unlock).expect("it can be let go");
    let status = array.status();
    let hosts = items(&status["hosts"]);
    assert!(hosts.len() >= 2 && hosts.iter().all(|host| host["live"] == true), "{status:#}");
    // The judge of the leases can take the lock now.
    go_on(2);
    array.braid(&["volume", "create", "late", "--size", "1MiB"]).done();
}
