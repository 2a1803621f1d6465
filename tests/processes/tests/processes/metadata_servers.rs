//! File systems of the array: creating, serving, checking and deleting them, while their metadata servers are killed and replaced.

use crate::prelude::*;
use braid_base::limits::Settings;

/// Devices with room for a small volume and a small file system.
const ROOM: [&str; 4] = ["--size", "256MiB", "--volume", "vol0:32MiB"];
/// The longest pause of a file system whose metadata server died: docs/metadata.md.
const PAUSE: Duration = Duration::from_secs(7);

/// An array with a file system `home` of 64 MiB.
fn with_home(arguments: &[&str]) -> Array {
    let array = Array::up(&[&ROOM, arguments].concat());
    array.braid(&["fs", "create", "home", "--size", "64MiB"]).done();
    array
}

/// The status of the only file system.
fn status(array: &Array) -> Value {
    array.braid(&["fs", "status", "home"]).done().json()["file_systems"][0].clone()
}

/// Waits until another process than `before` serves the file system.
fn await_served(array: &Array, before: Option<u64>) -> u64 {
    let served = array.await_status("the file system is served", |status| {
        let home = &status["file_systems"][0];
        home["state"] == "serving" && home["pid"].as_u64() != before
    });
    number(&served["file_systems"][0]["pid"])
}

#[test]
fn volumes_of_a_file_system_are_not_for_programs() {
    let array = with_home(&[]);
    for name in ["home.data", "home.meta"] {
        array.braid(&["volume", "delete", name, "--yes"]).refused_naming(
            2,
            "belongs-to-file-system",
            &["braid fs delete home"],
        );
        array.braid(&["volume", "set-ordering", name, "none"]).refused(2, "belongs-to-file-system");
        array.braid(&["nbd", "--volume", name, "--listen", "127.0.0.1:0"]).refused(2, "belongs-to-file-system");
        let uri = array.nbd_of(name);
        assert!(Client::try_open(&uri).is_err(), "{uri} can be opened");
        let opened = braid_client::wait(async {
            let connected = braid_client::Array::connect(ArrayOptions::at(array.dir())).await?;
            let opened = connected.volume(name).await;
            connected.close().await;
            opened
        });
        assert!(matches!(opened, Err(Error::Array(_))), "{opened:?}");
    }
    let listed = array.status();
    let uris: Vec<&Value> = items(&listed["volumes"]).iter().map(|volume| &volume["nbd"]).collect();
    assert_eq!((uris.len(), uris[1], uris[2]), (3, &Value::Null, &Value::Null));
}

#[test]
fn a_metadata_server_that_is_killed_is_replaced_within_seconds() {
    let array = with_home(&[]);
    let pid = await_served(&array, None);
    signal(pid as u32, Signal::KILL);
    let begun = Instant::now();
    array.await_status("the status tells the truth", |status| status["file_systems"][0]["state"] != "serving");
    let next = await_served(&array, Some(pid));
    assert!(begun.elapsed() < PAUSE, "the pause was {:?}", begun.elapsed());
    let home = status(&array);
    assert_eq!((number(&home["pid"]), number(&home["restarts"])), (next, 1));
    assert_eq!(number(&home["content"]["inodes"]), 1);
}

#[test]
fn after_a_clean_stop_nobody_waits_for_a_lease() {
    let mut array = with_home(&[]);
    array.down();
    array.start(&[]);
    let begun = Instant::now();
    await_served(&array, None);
    assert!(begun.elapsed() < Settings::default().host_lease, "{:?}", begun.elapsed());
    array.braid(&["fs", "check", "home"]).done();
}

/// The command that creates `home`, as a process of its own.
fn creating(array: &Array) -> Child {
    let mut command = array.command(&["fs", "create", "home", "--size", "64MiB", "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("braid can be started")
}

/// The error that a command ended with; none if it is done.
fn error_of(child: Child) -> Option<String> {
    let ended = child.wait_with_output().expect("it ends");
    let printed: Value =
        serde_json::from_slice(&ended.stdout).or_else(|_| serde_json::from_slice(&ended.stderr)).unwrap();
    (!ended.status.success()).then(|| text(&printed["error"]["code"]))
}

#[test]
fn of_two_creations_at_once_one_succeeds_and_leaves_no_remains() {
    let array = Array::up(&ROOM);
    for pause in [0, 50, 300] {
        let first = creating(&array);
        std::thread::sleep(Duration::from_millis(pause));
        let mut ends = [error_of(creating(&array)), error_of(first)];
        ends.sort();
        assert_eq!(ends, [None, Some("file-system-exists".to_string())], "{pause} ms between them");
        await_served(&array, None);
        array.braid(&["fs", "delete", "home", "--yes"]).done();
        assert_eq!(items(&array.status()["volumes"]).len(), 1);
    }
}

#[test]
fn a_creation_that_was_suspended_and_replaced_leaves_the_new_file_system_alone() {
    let array = Array::up(&ROOM);
    let suspended = creating(&array);
    let described = || std::fs::read_to_string(array.dir().join("array.json")).expect("the description");
    wait_until("the creation has begun", Duration::from_secs(20), || described().contains("\"home\""));
    signal(suspended.id(), Signal::STOP);
    // It has a lease of four seconds. If it was suspended while it held the folder's lock, others wait for that, and are refused.
    std::thread::sleep(Duration::from_secs(6));
    let other = array.braid(&["fs", "create", "home", "--size", "64MiB"]);
    signal(suspended.id(), Signal::CONT);
    let late = error_of(suspended);
    if other.status == Some(0) {
        assert!(late.is_some(), "two commands have created it");
    } else {
        // The suspended command held the folder's lock, or was done already.
        assert!(late.is_none(), "nobody has created it: {late:?}");
    }
    await_served(&array, None);
    array.assert_files_sound("home");
    array.assert_sound("home.data");
}
