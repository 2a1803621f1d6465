//! Locks of ranges: programs on several hosts, whose processes are killed and suspended, and a lock server that is killed. The lease is the usual
//! one: a host gives up its locks when it has not heard the server for most of a lease, and a server takes a while to start.

use crate::library::example;
use crate::prelude::*;
use braid_check::{RangeHistory, check_ranges};
use braid_client::{Array as Braid, LockMode, RangeLock, Time};
use braid_processes::array::LEASE_DEFAULT;

/// A range is free at the latest so long after the death of its holder.
const FREE_WITHIN: Duration = Duration::from_secs(12);

/// Starts `braid lock range`, with a command that says when it runs.
fn holder(array: &Array, mode: &str, range: [&str; 2]) -> Daemon {
    let [dir, log] = [path_text(array.dir()), &array.scratch().text("holder.log")];
    let script = r#"echo '{"ready": true}'; exec sleep 1000"#;
    let words = ["lock", "range", "shelf", range[0], range[1], mode, "--array", dir, "--", "sh", "-c", script];
    Daemon::start(&words, Path::new(log)).unwrap_or_else(|outcome| panic!("{outcome}"))
}

/// The exit status of `braid lock range` with a command that does nothing.
fn try_it(array: &Array, mode: &str, range: [&str; 2], wait: &str) -> Option<i32> {
    let words = ["lock", "range", "shelf", range[0], range[1], mode, "--wait", wait, "--", "true"];
    let status = Command::new(braid_bin()).args(words).env("BRAID_ARRAY", array.dir()).status();
    status.expect("it can be started").code()
}

#[test]
fn commands_exclude_each_other_where_their_ranges_overlap_and_lose_them_when_their_holder_dies_or_stands_still() {
    let array = Array::patient();
    let first = holder(&array, "--exclusive", ["0", "4KiB"]);
    assert_eq!(try_it(&array, "--shared", ["4095", "1"], "1s"), Some(124), "it is taken");
    assert_eq!(try_it(&array, "--shared", ["4095", "1"], "0s"), Some(124), "it is taken");
    assert_eq!(try_it(&array, "--exclusive", ["4KiB", "1MiB"], "0s"), Some(0), "it is free");
    assert_eq!(try_it(&array, "--exclusive", ["4KiB", "1MiB"], "10s"), Some(0), "it is beside the other");
    let reader = holder(&array, "--shared", ["1MiB", "1MiB"]);
    assert_eq!(try_it(&array, "--shared", ["1MiB", "4KiB"], "10s"), Some(0), "readers share");
    assert_eq!(try_it(&array, "--exclusive", ["1MiB", "4KiB"], "2s"), Some(124), "a reader is there");
    // The lock server dies and is started again: locks stay.
    let pid = number(&array.status()["lock_servers"][0]["pid"]) as u32;
    signal(pid, Signal::KILL);
    array.await_status("the lock server is back", |status| {
        status["lock_servers"][0]["pid"].as_u64().is_some_and(|now| now != u64::from(pid))
    });
    assert_eq!(try_it(&array, "--shared", ["0", "1"], "2s"), Some(124), "it is still taken");
    // The death of a holder frees its range, and its command ends with it.
    reader.kill();
    let killed = Instant::now();
    assert_eq!(try_it(&array, "--exclusive", ["1MiB", "4KiB"], "60s"), Some(0));
    assert!(killed.elapsed() < FREE_WITHIN, "it was free after {:?}", killed.elapsed());
    assert_eq!(first.end(Signal::TERM), Some(143));
    assert_eq!(try_it(&array, "--exclusive", ["0", "4KiB"], "10s"), Some(0), "it was released");
    // A suspended holder loses its range and its command.
    let suspended = holder(&array, "--exclusive", ["0", "4KiB"]);
    signal(suspended.pid(), Signal::STOP);
    assert_eq!(try_it(&array, "--exclusive", ["0", "4KiB"], "60s"), Some(0), "others go on");
    signal(suspended.pid(), Signal::CONT);
    assert_eq!(suspended.ended(), Some(125), "its command was ended");
}

#[test]
fn random_ranges_exclude_each_other_while_holders_and_lock_servers_are_killed() {
    let divided = ["--lock-servers", "3", "--range-division", "round-robin:4", "--callbacks", "group"];
    std::thread::scope(|scope| {
        for servers in [&[][..], &divided] {
            scope.spawn(move || lock_random_ranges(&Array::patient_up(&[&SMALL[..], servers].concat()), servers));
        }
    });
}

/// Programs on two hosts lock random ranges and write down when, while one of them or a lock server is killed. What they wrote is judged.
fn lock_random_ranges(array: &Array, servers: &[&str]) {
    let (locks, rounds) = if soak() { (7_000, 10) } else { (700, 2) };
    let mut histories = Vec::new();
    let start = |seed: usize| {
        let notes = array.scratch().path(&format!("notes-{seed}"));
        let words = ["shelf", "64", &locks.to_string(), &seed.to_string()];
        let mut command = Command::new(example("lock_ranges"));
        let command = command.args(words).env("BRAID_ARRAY", array.dir()).stdout(File::create(&notes).unwrap());
        (command.spawn().expect("it can be started"), notes)
    };
    let note = |histories: &mut Vec<_>, notes: &Path, alive: Option<Time>| {
        let mut history =
            RangeHistory::parse(&fs::read_to_string(notes).unwrap()).unwrap_or_else(|fault| panic!("{fault}"));
        alive.into_iter().for_each(|time| history.killed_after(time));
        histories.push(history);
    };
    for round in 0..rounds {
        let [(mut killed, its_notes), (mut other, notes)] = [2 * round, 2 * round + 1].map(start);
        let has_begun = || fs::metadata(&its_notes).is_ok_and(|notes| notes.len() > 2_000);
        wait_until("it has locked ranges", Duration::from_secs(60), has_begun);
        let kills_holder = round % 2 == 0;
        let alive = kills_holder.then(braid_client::now);
        if kills_holder {
            killed.kill().unwrap();
        } else {
            let status = array.status();
            let servers = items(&status["lock_servers"]);
            signal(number(&servers[round / 2 % servers.len()]["pid"]) as u32, Signal::KILL);
        }
        assert_eq!(killed.wait().unwrap().success(), !kills_holder);
        note(&mut histories, &its_notes, alive);
        assert!(other.wait().unwrap().success());
        note(&mut histories, &notes, None);
    }
    // In the short form, other tests need the processors at the same time.
    let beyond = Duration::from_secs(if soak() { 2 } else { 10 });
    let longest = check_ranges(&histories, LEASE_DEFAULT + beyond);
    let longest = longest.unwrap_or_else(|fault| panic!("{fault}"));
    let total: usize = histories.iter().map(RangeHistory::len).sum();
    assert!(total > locks * rounds, "the others had theirs: {total}");
    println!("{servers:?}: {total} locks; the longest wait took {longest:?}");
}

#[test]
fn locks_of_the_library_are_recalled_and_converted_and_a_lease_is_refused_or_valid_until_its_range_is_locked() {
    let array = Array::patient();
    let hosts = [1, 2].map(|host| {
        let options = ArrayOptions::at(array.dir()).name(format!("host {host}")).deadline(Duration::from_secs(20));
        wait(Braid::connect(options)).unwrap()
    });
    let (one, two) = (hosts[0].ranges("shelf"), hosts[1].ranges("shelf"));
    let mut first = wait(one.lock(0..100, LockMode::Shared)).unwrap();
    let second = wait(two.lock(50..60, LockMode::Shared)).unwrap();
    assert!(wait(two.try_lock(10..20, LockMode::Exclusive)).unwrap().is_none());
    wait(first.recalled()).unwrap();
    drop(second);
    assert!(wait(first.convert(LockMode::Exclusive)).unwrap(), "no other host had it");
    assert!(wait(two.try_lock(0..1, LockMode::Shared)).unwrap().is_none());
    assert!(wait(first.convert(LockMode::Shared)).unwrap());
    let second = wait(two.lock(0..100, LockMode::Shared)).unwrap();
    // Both promote: at least one of them gives up what it has, and is told.
    let promote = |mut lock: RangeLock| wait(lock.convert(LockMode::Exclusive)).unwrap();
    let kept = std::thread::scope(|scope| {
        [first, second].map(|lock| scope.spawn(move || promote(lock))).map(|promoting| promoting.join().unwrap())
    });
    assert!(!(kept[0] && kept[1]), "one of them gave up its lock: {kept:?}");
    assert!(matches!(wait(one.lock(5..5, LockMode::Shared)), Err(Error::OutOfRange)));

    // A lease never waits, and ends when a program of another host locks some of its range exclusively.
    let (one, two) = (hosts[0].ranges("leases"), hosts[1].ranges("leases"));
    wait(async {
        let lease = one.lease(0..4096).await.unwrap().expect("the range is free");
        let beside = two.lease(0..8192).await.unwrap().expect("leases are shared");
        let shared = two.lock(0..4096, LockMode::Shared).await.unwrap();
        assert!(lease.is_valid().await && beside.is_valid().await);
        shared.unlock().await.unwrap();
        let first = two.lock(0..1, LockMode::Exclusive).await.unwrap();
        lease.ended().await;
        assert!(!lease.is_valid().await && !beside.is_valid().await, "both are over");
        assert!(one.lease(0..4096).await.unwrap().is_none(), "it is locked exclusively");
        first.unlock().await.unwrap();
        // The host keeps the lock until a reader wants the range.
        assert!(one.lease(0..4096).await.unwrap().is_none());
        one.lock(0..4096, LockMode::Shared).await.unwrap().unlock().await.unwrap();
        assert!(one.lease(0..4096).await.unwrap().expect("it is shared").is_valid().await);
    });
}

#[test]
fn locks_are_listed_of_all_lock_servers_and_one_that_is_silent_is_named() {
    let divided = ["--lock-servers", "2", "--range-division", "round-robin:4KiB"];
    let array = Array::patient_up(&[&SMALL[..], &divided].concat());
    assert_eq!(array.told(&["locks"]), "no locks\n");
    let hold = |start: &str| holder(&array, "--exclusive", [start, "4KiB"]);
    let holders = ["0", "4KiB"].map(hold);
    let waits = ["lock", "range", "shelf", "1", "8191", "--shared", "--wait", "60s", "--", "true"];
    let mut waiting = Command::new(braid_bin()).args(waits).env("BRAID_ARRAY", array.dir()).spawn().unwrap();
    let listed = |arguments: &[&str]| array.braid(&[&["locks"], arguments].concat()).done().json();
    let patience = Instant::now();
    let waits = loop {
        let told = listed(&["shelf", "--waiting"]);
        // Its host may not have published its role yet.
        if let [lock] = items(&told["locks"])
            && !lock["role"].is_null()
        {
            break lock.clone();
        }
        assert!(patience.elapsed() < Duration::from_secs(20), "{told}");
    };
    let all = listed(&[]);
    let held: Vec<_> = items(&all["locks"]).iter().filter(|lock| lock["held"] == true).collect();
    assert_eq!(held.len(), 2, "each at its lock server: {all:#}");
    assert_ne!(held[0]["lock_server"], held[1]["lock_server"], "{all:#}");
    assert!(held.iter().all(|lock| lock["space"] == "shelf" && lock["ranges"][0]["exclusive"] == true), "{all:#}");
    // It goes to the servers in their order.
    let first = held.iter().find(|lock| lock["lock_server"] == 0).expect("each has one");
    assert_eq!((&waits["lock_server"], &waits["behind"][0]), (&json!(0), &first["host"]), "{waits:#}");
    assert_eq!((&waits["ranges"][0]["offset"], &waits["role"]), (&json!(1), &json!("lock shelf")), "{waits:#}");
    let silent = number(&array.status()["lock_servers"][1]["pid"]) as u32;
    signal(silent, Signal::STOP);
    let told = array.braid(&["locks", "--wait", "1s"]);
    signal(silent, Signal::CONT);
    assert!(told.status == Some(3) && told.stderr.contains("lock server l1 does not answer"), "{told}");
    let told = told.json();
    assert_eq!(told["lock_servers"].as_array().map(|servers| servers[1]["state"].clone()), Some(json!("silent")));
    assert!(
        items(&told["locks"]).iter().all(|lock| lock["lock_server"] == 0) && told["locks"][0].is_object(),
        "{told}"
    );
    assert_eq!(holders.map(|holder| holder.end(Signal::TERM)), [Some(143); 2]);
    assert!(waiting.wait().is_ok_and(|status| status.success()), "it had its turn");
}
