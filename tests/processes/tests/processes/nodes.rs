//! Nodes: processes that run some of the devices, a host and an NBD server. They are killed, suspended and fenced one after the other,
//! under writers that use all of them.

use crate::prelude::*;
use braid_processes::scratch::Disk;

/// How long writers at other nodes may pause when a node is killed or suspended.
const PAUSE_MAX: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(20);

fn up(nodes: usize) -> Array {
    Array::up(&[&SMALL[..], &["--nodes", &nodes.to_string()]].concat())
}

/// The URI of the volume at a node.
fn at(status: &Value, node: usize) -> String {
    format!("nbd://{}/vol0", text(&status["nodes"][node]["nbd"]))
}

fn pid(status: &Value, node: usize) -> u32 {
    pid_of(&status["nodes"][node])
}

/// Waits until all nodes run, none of them in the process `before`, and all devices are in.
#[track_caller]
fn await_whole(array: &Array, before: u32) -> Value {
    array.await_status("all nodes and devices are there", |status| {
        let nodes = items(&status["nodes"]);
        let devices = items(&status["devices"]);
        nodes.iter().all(|node| node["pid"].as_u64().is_some_and(|pid| pid != u64::from(before)))
            && devices.iter().all(|device| device["member_state"] == "in" && device["state"] == "serving")
    })
}

/// Each node has a device that takes part in the writes of all hosts, so a crash ends an originator and a worker of the same write.
#[test]
fn writers_at_other_nodes_go_on_while_a_node_is_killed_or_suspended() {
    let array = up(5);
    let status = array.status();
    let uris: Vec<String> = (0..5).map(|node| at(&status, node)).collect();
    let faults = [(1, Signal::KILL), (3, Signal::STOP), (0, Signal::KILL), (4, Signal::KILL), (2, Signal::STOP)];
    let faults = &faults[..if soak() { 5 } else { 2 }];
    for (round, (node, how)) in (0..).zip(faults.iter().copied()) {
        let begin = 100 + (round << 20);
        let plan = Plan { workers: 5, begin, apart: true, hosts_may_go: true, ..Plan::of(&uris) };
        let load = Load::running(plan);
        let victim = pid(&array.status(), node);
        signal(victim, how);
        let others = Vec::from_iter((0..5).filter(|other| *other != node));
        load.go_on_through_each(&others);
        for other in others {
            let pause = load.take_longest_through(other);
            assert!(pause <= PAUSE_MAX, "node {node} {how:?}: a writer at node {other} paused for {pause:?}");
        }
        if how == Signal::STOP {
            array.await_volume(0, "degraded");
            signal(victim, Signal::CONT);
            await_whole(&array, 0);
        } else {
            let status = await_whole(&array, victim);
            assert_eq!(number(&status["nodes"][node]["restarts"]), 1, "{status:#}");
            assert_eq!(at(&status, node), uris[node], "a node keeps its port");
        }
        let mut record = load.stop();
        [node, 4 - node].iter().for_each(|node| record.verify(&uris[*node]));
    }
    array.assert_sound("vol0");
    let kills = faults.iter().filter(|(_, how)| *how == Signal::KILL).count();
    assert_eq!(array.events("daemon-crashed").len(), kills, "a crash of a node is one event");
}

/// While a node is down, another program may take its port: devices of the node, and clients elsewhere, don't depend on that.
#[test]
fn a_node_that_ends_is_started_again_and_its_devices_do_not_wait_for_its_port() {
    let array = up(1);
    let (_host, other) = array.host();
    let status = array.status();
    let (before, port) = (pid(&status, 0), text(&status["nodes"][0]["nbd"]));
    let load = Load::running(Plan::of(&[&other]));
    signal(before, Signal::KILL);
    let thief = std::thread::scope(|scope| {
        let bind = || (0..).find_map(|_| std::net::TcpListener::bind(&port).ok());
        scope.spawn(bind).join().expect("it is bound")
    });
    let status = array.await_status("the devices are back, and the node says why it does not serve", |status| {
        items(&status["devices"]).iter().all(|device| device["state"] == "serving")
            && status["nodes"][0]["down"].as_str().is_some_and(|why| why.contains("in use"))
    });
    assert_eq!(number(&status["nodes"][0]["restarts"]), 1, "{status:#}");
    assert!(array.told(&["status"]).contains("not served: "), "people are told, too");
    load.go_on();
    drop(thief);
    await_whole(&array, before);
    wait_until("the node serves at its port", LIMIT, || array.status()["nodes"][0]["down"].is_null());
    load.assert_kept(&array, &[&other, &array.nbd()]);
    // A node that others ask to end is started again.
    for how in [Signal::TERM, Signal::INT] {
        let before = pid(&array.status(), 0);
        signal(before, how);
        await_whole(&array, before);
    }
    array.assert_sound("vol0");
}

/// A file system that takes no writes, as if its disk hung, until this is dropped.
struct Frozen<'a>(&'a str);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        run("fsfreeze", &["--unfreeze", self.0]);
    }
}

/// The commands of a disk that hangs don't end. Its device is failed and replaced all the same, and the rest of its node goes on.
#[test]
fn a_disk_that_hangs_stops_nothing_else_in_its_node() {
    let scratch = Scratch::new();
    let _disk = Disk::mounted(&scratch, 400 << 20);
    let (place, file) = (scratch.text("mnt"), scratch.text("mnt/device.braid"));
    let array = up(1);
    array.braid(&["device", "replace", "1", &file, "--wait"]).done();
    let load = Load::running(Plan { hosts_may_go: true, ..Plan::of(&[&array.nbd()]) });
    run("fsfreeze", &["--freeze", &place]).done();
    let frozen = Frozen(&place);
    rest(Duration::from_secs(1));
    array.braid(&["device", "fail", "1"]).done();
    load.go_on();
    array.braid(&["device", "replace", "1", &scratch.text("other.braid"), "--wait"]).done();
    load.go_on();
    let pause = load.take_longest();
    assert!(pause < LIMIT, "the writer paused for {pause:?}");
    drop(frozen);
    array.await_all_in();
    load.stop();
    array.assert_sound("vol0");
}

/// `braid up` does not run these devices. Each node reaches the devices of the other one at their addresses.
#[test]
fn nodes_run_devices_that_have_addresses() {
    let mut array = Array::small();
    array.give_addresses();
    let _monitor = array.daemon("monitord", &["monitord"]);
    let node = |arguments: &[&str]| {
        let node = array.daemon("node", &[&["node", "--device"], arguments].concat());
        let uri = format!("nbd://{}/vol0", text(&node.ready["address"]));
        (node, uri)
    };
    let (_first, at_first) = node(&["0", "--device", "1", "--device", "2", "--device", "3"]);
    let (second, at_second) = node(&["4"]);
    Client::open(&at_second).write(4000, &[7; 70_000]).expect("a write works");
    let mut client = Client::open(&at_first);
    assert!(client.read(4000, 70_000).expect("a read works") == [7; 70_000]);

    // The other one goes on without the device of the one that was killed, which returns with it.
    second.kill();
    assert!(client.read(4000, 70_000).expect("a read works") == [7; 70_000]);
    client.write(4000, &[8; 70_000]).expect("a write works");
    // Without `braid up` the command fails, and shows what the monitor says.
    let await_member = |state: &str| {
        wait_until(&format!("device 4 is {state}"), LIMIT, || {
            let status = array.braid(&["status"]).json();
            status["devices"][4]["member_state"] == state
        });
    };
    await_member("out");
    let (_second, at_second) = node(&["4"]);
    await_member("in");
    assert!(Client::open(&at_second).read(4000, 70_000).expect("a read works") == [8; 70_000]);
    array.assert_sound("vol0");
}
