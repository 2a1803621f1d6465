//! Migration of volumes to other layouts and devices under writers; the migrating process is killed.

use crate::prelude::*;
use std::thread::sleep;

/// The longest pause that a user may see at the beginning or the end: hosts check for changes twice a second.
const PAUSE_MAX: Duration = Duration::from_secs(5);

fn up() -> Array {
    Array::up(&[&SMALL[..], &["--unit", "4KiB"]].concat())
}

fn info(array: &Array) -> Value {
    array.braid(&["volume", "info", "vol0"]).done().json()["volume"].clone()
}

#[test]
fn a_volume_moves_under_load_without_an_error() {
    let array = up();
    let (_host, other) = array.host();
    let load = Load::start(Plan::of(&[&array.nbd(), &other]));
    for to in [&["--layout", "raid1:2", "--devices", "1,3"][..], &["--layout", "raid5:3+1", "--unit", "64KiB"]] {
        load.go_on();
        load.take_longest();
        let said = array.braid(&[&["volume", "migrate", "vol0"][..], to].concat()).done().json();
        assert_eq!(said["volume"]["layout"], to[1]);
        assert!(number(&said["copied_bytes"]) > 0, "{said:#}");
        load.assert_pause(&format!("to {}", to[1]), PAUSE_MAX);
    }
    load.assert_kept(&array, &[&other]);
}

#[test]
fn a_migration_survives_a_kill_and_is_continued_or_undone() {
    let array = up();
    let (_host, other) = array.host();
    let load = Load::running(Plan::of(&[&array.nbd(), &other]));
    let begin = |layout: &str| {
        // So slow that it is killed before it is done.
        let mut command = array.command(&["volume", "migrate", "vol0", "--layout", layout, "--rate", "4KiB"]);
        let mut moves = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let begun = Instant::now();
        while info(&array)["lifecycle"] != "moving" {
            assert!(begun.elapsed() < Duration::from_secs(20), "it does not begin to move");
            sleep(Duration::from_millis(50));
        }
        load.go_on();
        moves.kill().expect("it runs still");
        moves.wait().expect("it was started here");
        load.go_on();
    };
    begin("raid1:2");
    array.braid(&["volume", "migrate", "vol0", "--layout", "raid1:3"]).refused(1, "already-moving");
    let said = array.braid(&["volume", "migrate", "vol0"]).done().json();
    assert_eq!((&said["volume"]["layout"], &said["volume"]["lifecycle"]), (&"raid1:2".into(), &"ready".into()));
    load.go_on();
    begin("raid5:2+1");
    let said = array.braid(&["volume", "migrate", "vol0", "--abort"]).done().json();
    assert_eq!((&said["volume"]["layout"], &said["volume"]["lifecycle"]), (&"raid1:2".into(), &"ready".into()));
    load.go_on();
    load.assert_kept(&array, &[&other]);
}
