//! The folder of an array can't be written: its file system has no inodes left, or turns read-only, or a stopped process holds its lock; or its
//! sockets are removed.

use crate::prelude::*;
use braid_processes::scratch::disk;

/// The lease of these arrays is a second.
const SMALL: [&str; 6] = ["--size", "64MiB", "--devices", "3", "--volume", "vol0:16MiB"];

fn finding(diagnosis: &Value, check: &str) -> String {
    findings(diagnosis, check).iter().map(Value::to_string).collect()
}

#[test]
fn hosts_keep_their_leases_while_the_folder_s_file_system_has_no_inode_left() {
    let scratch = Scratch::new();
    let (block, mount) = disk(&scratch, 160 << 20, &["-N", "300"]);
    let mut array = Array::up_in(&scratch.path("mnt/array"), &SMALL);
    let mut client = Client::open(&array.nbd());
    let generation = || number(&array.status()["hosts"][0]["generation"]);
    let before = generation();
    let others = scratch.path("mnt/others");
    std::fs::create_dir(&others).expect("there is an inode");
    let full = (0..).find(|number| File::create(others.join(number.to_string())).is_err());
    assert!(full.is_some_and(|files| files > 10), "others have taken all inodes: {full:?}");
    // Hosts may be silent for 15 leases of a second. Without their renewals they are called silent after one.
    let began = std::time::Instant::now();
    wait_until("two leases pass", Duration::from_secs(30), || began.elapsed() > Duration::from_secs(2));
    let status = array.braid(&["status"]).done().json();
    assert_eq!(status["hosts"][0]["live"], true, "{status:#}");
    client.write(0, &[7; 4096]).expect("devices serve");
    let diagnosis = array.braid(&["doctor"]).failed_check();
    assert!(finding(&diagnosis, "space").contains("inodes"), "{diagnosis:#}");
    // The process of the next monitor can't be recorded.
    signal(array.monitor_pid(), Signal::KILL);
    array.await_status("the monitor has ended", |status| status["monitor"]["state"] == "unreported");
    let diagnosis = array.braid(&["doctor"]).failed_check();
    assert!(finding(&diagnosis, "daemons").contains("has no inodes left"), "{diagnosis:#}");
    assert!(array.braid(&["events"]).done().stderr.contains("events may be missing"));
    array.braid(&["status", "--pid", "monitor"]).refused(3, "no-such-process");
    array.braid(&["volume", "create", "more", "--size", "1MiB"]).refused_naming(
        1,
        "disk-full",
        &["no inodes left", "remove files"],
    );
    client.write(0, &[7; 4096]).expect("devices serve");
    std::fs::remove_dir_all(&others).expect("they can be removed");
    assert_eq!(generation(), before, "the host was not fenced");
    drop(client);
    array.down();
    mount.unmount();
    drop(block);
}

#[test]
fn an_array_in_a_read_only_folder_can_be_looked_at_and_ended() {
    let scratch = Scratch::new();
    let (block, mount) = disk(&scratch, 160 << 20, &["-N", "1000"]);
    let dir = scratch.path("mnt/array");
    let array = Array::up_in(&dir, &SMALL);
    tool("mount", &["-o", "remount,abort", path_text(&scratch.path("mnt"))]);
    let status = array.braid(&["status"]).done().json();
    assert_eq!((&status["up"], &status["volumes"][0]["name"]), (&true.into(), &"vol0".into()));
    let diagnosis = array.braid(&["doctor"]).failed_check();
    assert!(finding(&diagnosis, "folder").contains("read-only"), "{diagnosis:#}");
    array.braid(&["events"]).done();
    array.braid(&["volume", "list"]).done();
    array.braid(&["down"]).done();
    drop(array);
    mount.unmount();
    drop(block);
}

#[test]
fn a_stopped_process_that_holds_the_folder_s_lock_is_named_and_nobody_who_only_looks_waits() {
    let mut array = Array::up(&SMALL);
    let mut holder = std::process::Command::new("flock")
        .args([path_text(&array.dir().join("lock")), "sh", "-c", "kill -STOP $PPID; sleep 60"])
        .spawn()
        .expect("flock can be started");
    await_stopped(holder.id());
    let named = format!("process {}", holder.id());
    let status = array.braid(&["status"]).done();
    assert!(!status.stderr.contains("waiting"), "{}", status.stderr);
    let diagnosis = array.braid(&["doctor"]).failed_check();
    assert!(finding(&diagnosis, "folder").contains(&named), "{diagnosis:#}");
    assert!(!array.braid(&["events"]).done().stderr.contains("waiting"));
    array.braid(&["volume", "create", "more", "--size", "1MiB"]).refused_naming(1, "locked", &[&named, "is stopped"]);
    tool("kill", &["-CONT", &holder.id().to_string()]);
    tool("kill", &["-9", &holder.id().to_string()]);
    holder.wait().expect("it ends");
    array.down();
}

#[test]
fn sockets_that_were_removed_are_made_again() {
    let array = Array::up(&SMALL);
    std::fs::remove_dir_all(array.dir().join("run")).expect("the sockets are removed");
    // Its connections to the monitor, to all devices and to the lock server are new ones.
    let (_host, uri) = array.host();
    Client::open(&uri).write(0, &[1; 4096]).expect("a write works");
    wait_until("the socket of NBD clients is there", Duration::from_secs(20), || array.dir().join("run/nbd").exists());
    array.assert_sound("vol0");
}
