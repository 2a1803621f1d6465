//! Changes of a volume's ordering under writers, and lock servers that are killed.

use crate::prelude::*;

/// The longest pause that a user may see during a change: hosts check for changes twice a second.
const CHANGE_MAX: Duration = Duration::from_secs(5);
/// A restarted lock server waits for its hosts for at most a lease, plus one second for everything else.
const RESTART_MAX: Duration = LEASE.saturating_add(Duration::from_secs(1));

/// A volume that is no larger than the writers need, with units of one block, so that they share parity: its check takes long.
fn up(arguments: &[&str]) -> Array {
    Array::up(&[&["--size", "64MiB", "--volume", "vol0:4MiB", "--unit", "4KiB"], arguments].concat())
}

#[track_caller]
fn set_ordering(array: &Array, ordering: &str) -> Value {
    let said = array.braid(&["volume", "set-ordering", "vol0", ordering]).done().json();
    assert_eq!(said["ordering"], ordering);
    let status = array.status();
    assert_eq!(status["volumes"][0]["ordering"], ordering, "{status:#}");
    assert_eq!(status["volumes"][0]["state"], "healthy", "{status:#}");
    said
}

#[test]
fn the_ordering_changes_under_load_without_an_error() {
    go_round(&["device-lock", "server-lock", "callback-lock", "timestamp"], &[]);
}

#[test]
fn several_lock_servers_share_the_work() {
    let array = go_round(&["server-lock", "callback-lock"], &["--lock-servers", "3", "--lock-acquisition", "timeout"]);
    let servers = items(&array.status()["lock_servers"]).to_vec();
    assert_eq!(servers.len(), 3);
    let unused = up(&["--lock-servers", "2"]);
    set_ordering(&unused, "server-lock");
    for server in 0..2 {
        // Otherwise a server that is killed before a host has used it takes its list for lost, and has live hosts fenced.
        let list = std::fs::read(unused.dir().join(format!("lockd{server}.state"))).expect("it has a file");
        assert!(list.iter().any(|byte| *byte != 0), "lock server {server} has noted that no host holds a lock");
    }
    drop(unused);
    for server in servers {
        assert_eq!(server["state"], "serving", "{server}");
        assert!(number(&server["counters"]["locks"]) > 0, "{server}");
    }
}

/// Changes to one ordering after the other, under load.
fn go_round(orderings: &[&str], arguments: &[&str]) -> Array {
    let array = up(arguments);
    let (_host, other) = array.host();
    let load = Load::start(Plan::of(&[&array.nbd(), &other]));
    for ordering in orderings {
        load.go_on();
        load.take_longest();
        assert_eq!(set_ordering(&array, ordering)["changed"], true);
        load.assert_pause(&format!("to {ordering}"), CHANGE_MAX);
    }
    assert_eq!(set_ordering(&array, orderings.last().expect("there are some"))["changed"], false);
    load.assert_kept(&array, &[&other]);
    array
}

#[test]
fn a_lock_server_may_be_killed_or_suspended_under_load_without_an_error() {
    let mut array = up(&[]);
    let (_host, other) = array.host();
    for ordering in ["server-lock", "callback-lock"] {
        set_ordering(&array, ordering);
        emptied(&array);
        let load = Load::running(Plan::of(&[&array.nbd(), &other]));
        let before = lock_server(&array);
        signal(before.0, Signal::KILL);
        array.await_status("the lock server serves again", |_| {
            let (pid, restarts) = lock_server(&array);
            pid != before.0 && restarts > before.1
        });
        load.assert_pause(ordering, RESTART_MAX);
        let suspended = lock_server(&array);
        signal(suspended.0, Signal::STOP);
        array.await_status("its silence is seen", |status| status["lock_servers"][0]["state"] != "serving");
        signal(suspended.0, Signal::CONT);
        println!("{ordering}: the lock server was suspended: the longest pause was {:?}", load.pause());
        assert_eq!(lock_server(&array), suspended, "a suspended process is not killed");
        load.assert_kept(&array, &[&other]);
    }
    // It ends with the array, and starts with the array.
    let pid = lock_server(&array).0;
    array.down();
    gone(&[pid]);
    array.start(&[]);
    emptied(&array);
    let load = Load::running(Plan::of(&[&array.nbd()]));
    load.stop();
}

#[test]
fn a_lock_server_that_lost_its_file_grants_nothing_before_all_hosts_have_answered() {
    let array = up(&[]);
    let (_host, other) = array.host();
    set_ordering(&array, "callback-lock");
    let load = Load::running(Plan::of(&[&array.nbd(), &other]));
    let before = lock_server(&array);
    std::fs::remove_file(array.dir().join("lockd0.state")).expect("it exists");
    signal(before.0, Signal::KILL);
    let status = array.await_status("the lock server serves again", |status| {
        let server = &status["lock_servers"][0];
        let (pid, restarts) = (server["pid"].as_u64(), number(&server["restarts"]));
        pid != Some(before.0.into()) && restarts > before.1 && server["counters"]["reasserted"].is_u64()
    });
    load.go_on();
    load.assert_kept(&array, &[&other]);
    let reasserted = number(&status["lock_servers"][0]["counters"]["reasserted"]);
    let later = number(&array.status()["lock_servers"][0]["counters"]["reasserted"]);
    assert!(reasserted.max(later) > 0, "hosts said what they held: {:#}", array.status()["lock_servers"]);

    // A host that is idle while its lock server restarts is not taken for dead.
    set_ordering(&array, "server-lock");
    let (mut idle, mut busy) = (Client::open(&other), Client::open(&array.nbd()));
    idle.write(0, &[1; 4096]).expect("a write works");
    signal(lock_server(&array).0, Signal::KILL);
    // Answered once the server knows which locks each host holds.
    busy.write(4096, &[2; 4096]).expect("a write works");
    idle.write(8192, &[3; 4096]).expect("an idle host has kept its lease");
    array.assert_sound("vol0");
}

/// Writers expect a volume of zeros.
fn emptied(array: &Array) {
    Client::open(&array.nbd()).trim(0, 4 << 20).expect("space can be discarded");
}

/// The process of the first lock server, and how often it was restarted.
fn lock_server(array: &Array) -> (u32, u64) {
    let server = array.status()["lock_servers"][0].clone();
    (server["pid"].as_u64().unwrap_or_default() as u32, number(&server["restarts"]))
}

#[test]
fn a_lock_server_may_be_run_by_hand_only_once_and_a_change_waits_for_a_host_no_longer_than_its_lease() {
    let array = up(&[]);
    let server = array.daemon("lockd", &["lockd"]);
    array.braid(&["lockd"]).refused(1, "lock-server-in-use");
    set_ordering(&array, "server-lock");
    let load = Load::running(Plan::of(&[&array.nbd()]));
    let shown = array.status()["lock_servers"][0].clone();
    assert_eq!(pid_of(&shown), server.pid(), "{shown}");
    assert_eq!(text(&shown["address"]), text(&server.ready["address"]));
    assert_eq!(shown["state"], "serving");
    // After a graceful end, `braid up` replaces it with a lock server of its own.
    assert_eq!(server.end(Signal::TERM), Some(0));
    load.go_on();
    // A change waits for a host that stands still, for no longer than its lease.
    let (host, _) = array.host();
    signal(host.pid(), Signal::STOP);
    set_ordering(&array, "device-lock");
    load.go_on();
    signal(host.pid(), Signal::CONT);
    assert_eq!(host.ended(), Some(1), "it learns that it was fenced");
    load.assert_kept(&array, &[&array.nbd()]);
}
