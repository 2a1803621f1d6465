//! Several servers that write the same stripes, or the same blocks, concurrently; clients that reconnect: no earlier request of a client takes
//! effect after the answer to a request on its new connection; and hosts that end: they leave no state behind, and nothing waits for them.

use crate::prelude::*;

const BLOCK: usize = 4096;
/// Writes in flight when the connection ends.
const IN_FLIGHT: usize = 16;
/// The same, where the other connection is open already: so few that the end of the connection reaches the server's socket at once. The
/// server can't know of an end that waits behind data for which its socket has no room.
const IN_FLIGHT_OF_TWO: usize = 3;
/// How long a device is suspended: shorter than its lease, so that it stays in.
const STALL: Duration = Duration::from_millis(400);
/// How long the test looks for older content. A write that was refused is retried sooner.
const LOOK: Duration = Duration::from_millis(700);
/// The time limit of a request.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

#[test]
fn hosts_that_write_different_parts_of_the_same_stripes_and_blocks_lose_none_and_leave_parity_right() {
    // Units of one block: adjacent cells, which belong to different writers, share their parity.
    let array = Array::up(&["--size", "64MiB", "--volume", "vol0:4MiB", "--unit", "4KiB"]);
    let ((_first, first), (_second, second)) = (array.host(), array.host());
    let hosts = vec![array.nbd(), first.clone(), second];
    for (cell_bytes, cells, begin) in [(BLOCK, 64, 0), (1000, 400, (2 << 20) + 777)] {
        println!("cells of {cell_bytes} bytes");
        let load = Load::start(Plan { workers: 6, cells, cell_bytes, begin, ..Plan::of(&hosts) });
        for _ in 0..8 {
            load.go_on();
        }
        load.assert_kept(&array, &[&array.nbd(), &first]);
    }
}

#[test]
fn hosts_that_write_the_same_leave_one_whole_write_and_without_ordering_wrong_parity() {
    let array = Array::small();
    let (_host, other) = array.host();
    // Across the border of a stripe unit, so that each is a write of two devices and parity.
    hammer(&array, &other, 65_536 - 2 * BLOCK as u64, 4 * BLOCK, 60);
    // Over several stripes, with unaligned ends, and across a multiple of the longest transaction.
    hammer(&array, &other, (4 << 20) - 300_001, 600_000, 20);

    // Without ordering, writers of the same stripes break parity, and the check finds it. Units of one block, as above.
    array.braid(&["volume", "create", "loose", "--size", "1MiB", "--unit", "4KiB", "--ordering", "none"]).done();
    let hosts: Vec<String> = [array.nbd(), other].iter().map(|uri| uri.replace("/vol0", "/loose")).collect();
    let load = Load::start(Plan { cells: 16, cell_bytes: BLOCK, begin: 0, ..Plan::of(&hosts) });
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
    let content = client.read(0, 1 << 20).expect("a read works");
    client.write(0, &content).expect("a write works");
    array.assert_sound("loose");
}

/// Writes the same range repeatedly through two hosts, from two clients each: every read returns one whole write.
fn hammer(array: &Array, other: &str, begin: u64, length: usize, rounds: u64) {
    const WRITERS: u64 = 4;
    const LOOK_EVERY: usize = 8;
    println!("{length} bytes from {begin} on");
    let hosts = [array.nbd(), other.to_string()];
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

#[test]
fn a_client_that_reconnects_is_never_overtaken_by_its_own_older_writes() {
    let array = Array::of_processes(&SMALL);
    let devices = array.first_device_pids();
    // Reads of the other host make writes lose, so that they are retried with higher stamps.
    let (_other, other) = array.host();
    let ended = AtomicBool::new(false);
    let trials = if soak() { 60 } else { 10 };
    let overtaken = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reader = Client::open(&other);
            while !ended.load(Ordering::Relaxed) {
                let begun = Instant::now();
                for trial in 0..4 {
                    reader.read(trial * BLOCK as u64, BLOCK).expect("a read works");
                }
                rest(begun.elapsed());
            }
        });
        let overtaken: Vec<usize> = (0..trials)
            .filter(|trial| {
                let offset = (trial % 4 * BLOCK) as u64;
                let (older, newer) = (vec![2 * *trial as u8 + 1; BLOCK], vec![2 * *trial as u8 + 2; BLOCK]);
                let mut first = Client::open(&array.nbd());
                let mut second = Client::open(&array.nbd());
                let stopped = Stopped::new(devices[trial % devices.len()]);
                for _ in 0..if trial % 2 == 0 { IN_FLIGHT } else { IN_FLIGHT_OF_TWO } {
                    first.send_write(offset, &older).expect("it can be sent");
                }
                drop(first);
                if trial % 2 == 0 {
                    second = Client::open(&array.nbd());
                }
                let begun = Instant::now();
                let cookie = second.send_write(offset, &newer).expect("it can be sent");
                std::thread::sleep(STALL);
                drop(stopped);
                assert_eq!(second.reply().expect("an answer comes"), (cookie, 0), "trial {trial}");
                assert!(begun.elapsed() < REQUEST_LIMIT, "trial {trial} took {:?}", begun.elapsed());
                let answered = Instant::now();
                let mut seen = second.read(offset, BLOCK).expect("a read works");
                while seen == newer && answered.elapsed() < LOOK {
                    rest(Duration::from_millis(1));
                    seen = second.read(offset, BLOCK).expect("a read works");
                }
                assert!(seen == newer || seen == older, "the content is one of the two writes, complete");
                seen == older
            })
            .collect();
        ended.store(true, Ordering::Relaxed);
        reader.join().expect("the reader continues");
        overtaken
    });
    assert_eq!(overtaken, [0usize; 0], "of {trials} trials, in these the older write came last");
    array.assert_sound("vol0");
}

/// A host that makes one change and ends, on the replicated attribute volume of this name.
fn change(array: &Array, volume: &str) {
    array.braid(&["attr", "add", &format!("{volume}:7"), "1.1", "1"]).done();
}

/// The devices' counters of this name.
fn counted(status: &Value, name: &str) -> Vec<u64> {
    let devices = items(&status["devices"]);
    devices.iter().map(|device| number(&device["counters"][name])).collect()
}

#[test]
fn hosts_that_end_give_back_their_cached_locks_and_leave_nothing_on_the_devices() {
    let array =
        Array::of_processes(&["--devices", "2", "--layout", "raid1:2", "--size", "64MiB", "--volume", "vol0:16MiB"]);
    for ordering in ["timestamp", "callback-lock"] {
        array.create_attribute_volume(ordering, ordering);
        change(&array, ordering);
    }
    let epochs = counted(&array.status(), "epoch");
    let mut took = Vec::new();
    for _ in 0..5 {
        let begun = Instant::now();
        change(&array, "callback-lock");
        took.push(begun.elapsed());
    }
    // A lock that is not given back is free when the lease of its host has expired.
    assert!(took.iter().min().is_some_and(|least| *least < LEASE / 2), "{took:?}");
    assert_eq!(counted(&array.status(), "epoch"), epochs, "no command waited until a lease expired");

    let hosts = if soak() { 1_100 } else { 60 };
    let before = counted(&array.status(), "transactions");
    for _ in 0..hosts {
        change(&array, "timestamp");
    }
    let after = counted(&array.status(), "transactions");
    assert!(after.iter().zip(&before).all(|(after, before)| *after <= *before + 1), "{before:?}, then {after:?}");
    let plan = Plan { workers: 2, cells: 64, cell_bytes: 4096, begin: 0, ..Plan::of(&[array.nbd()]) };
    // Writers that fail on any error.
    let load = Load::start(plan);
    for device in 0..2 {
        load.go_on();
        array.kill_device(device);
        load.go_on();
        array.await_volume(0, "healthy");
    }
    load.stop().verify(&array.nbd());
}
