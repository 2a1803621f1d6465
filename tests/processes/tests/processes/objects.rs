//! Objects and attributes, from the shell and from programs; devices that are killed meanwhile.

use crate::prelude::*;
use braid_client::Value;

/// Values and answers of a device are in memory, and it restarts soon: requests do not wait for long.
const PROGRESS_MAX: Duration = Duration::from_secs(30);

#[test]
fn objects_and_attributes_are_used_from_the_shell() {
    let array = Array::small();
    bytes_are_written_and_read(&array);
    attributes_are_set_and_compared(&array);
    lists_come_in_parts(&array);
    what_can_not_be_is_refused(&array);
    waiters_are_told(&array);
    attributes_are_kept_on_an_attribute_volume(&array);
}

fn bytes_are_written_and_read(array: &Array) {
    let object = text(&array.braid(&["object", "create", "2"]).done().json()["object"]);
    assert_eq!(object, "2:1", "the first one");
    array.braid(&["object", "write", &object, "hello, array"]).done();
    assert_eq!(array.told(&["object", "read", &object]), "hello, array");
    assert_eq!(array.told(&["object", "read", &object, "--offset", "7", "--length", "2"]), "ar");
    assert_eq!(array.told(&["object", "append", &object, "int:1"]), "12\n");
    assert_eq!(array.told(&["object", "read", &object, "--offset", "12", "--as", "int"]), "1\n");
    // More than one request can carry, with a hole before it.
    let file = array.scratch().path("large");
    let large: Vec<u8> = (0..700_000_u32).map(|index| (index % 251) as u8).collect();
    std::fs::write(&file, &large).expect("a file can be written");
    let from = format!("file:{}", file.display());
    array.braid(&["object", "write", &object, &from, "--offset", "1MiB"]).done();
    let stat = array.braid(&["object", "stat", &object]).done().json();
    assert_eq!(number(&stat["objects"][0]["length"]), (1 << 20) + 700_000);
    let shown = array.braid(&["object", "read", &object, "--offset", "1MiB"]).done().json();
    let hex: String = large.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(shown["data"]["hex"] == hex.as_str(), "what was written is read");
    let hole = array.braid(&["object", "read", &object, "--offset", "20", "--length", "3"]).done().json();
    assert_eq!(hole["data"]["hex"], "000000");
    array.braid(&["object", "truncate", &object, "5"]).done();
    assert_eq!(array.told(&["object", "read", &object]), "hello");
    array.braid(&["object", "remove", &object]).done();
    array.braid(&["object", "read", &object]).refused(3, "no-such-object");
    assert_eq!(text(&array.braid(&["object", "create", "2"]).done().json()["object"]), "2:2", "no number comes back");
}

fn attributes_are_set_and_compared(array: &Array) {
    array.braid(&["object", "create", "3:7"]).done();
    array.braid(&["attr", "get", "3:7", "1.1"]).refused(3, "undefined");
    let file = array.scratch().path("value");
    for length in [1, 8, 65_536] {
        std::fs::write(&file, vec![b'x'; length]).expect("a file can be written");
        array.braid(&["attr", "set", "3:7", "1.1", &format!("file:{}", file.display())]).done();
        assert_eq!(array.told(&["attr", "get", "3:7", "1.1", "--as", "raw"]).len(), length);
    }
    std::fs::write(&file, vec![b'x'; 65_537]).expect("a file can be written");
    let too_long = array.braid(&["attr", "set", "3:7", "1.1", &format!("file:{}", file.display())]);
    too_long.refused(2, "value-too-long");
    assert_eq!(array.told(&["attr", "get", "3:7", "1.1", "--as", "raw"]).len(), 65_536, "it stands");
    array.braid(&["attr", "set", "3:7", "1.1", ""]).done();
    array.braid(&["attr", "get", "3:7", "1.1"]).refused(3, "undefined");

    // Printed values can be written.
    for value in ["hello", "int:42", "hex:00ff"] {
        array.braid(&["attr", "set", "3:7", "0x10.2", value]).done();
        assert_eq!(array.told(&["attr", "get", "3:7", "16.2"]), format!("{value}\n"));
    }
    array.braid(&["attr", "delete", "3:7", "16.2"]).done();

    assert_eq!(array.told(&["attr", "add", "3:7", "1.3", "5"]), "0\n");
    assert_eq!(array.told(&["attr", "add", "3:7", "1.3", "-7"]), "5\n");
    assert_eq!(array.told(&["attr", "get", "3:7", "1.3"]), "int:-2\n");

    let swapped = |arguments: &[&str]| {
        let outcome = array.braid(&[&["attr", "cas", "3:7", "1.4"], arguments].concat());
        let said = outcome.json();
        assert_eq!(outcome.status, Some(if said["swapped"] == true { 0 } else { 1 }), "{outcome}");
        (said["swapped"] == true, text(&said["original"]["text"]))
    };
    assert_eq!(swapped(&["x", "me", "--exact"]), (false, String::new()));
    assert_eq!(swapped(&["x", "me"]), (true, String::new()), "what is undefined equals everything");
    assert_eq!(swapped(&["x", "you"]), (false, "me".to_string()));
    assert_eq!(swapped(&["me", ""]), (true, "me".to_string()));
}

fn lists_come_in_parts(array: &Array) {
    for number in [9, 5, 3] {
        array.braid(&["object", "create", &format!("4:{number}")]).done();
        array.braid(&["attr", "set", "4:9", &format!("{number}.1"), "x"]).done();
    }
    let objects = |arguments: &[&str]| {
        let said = array.braid(&[&["object", "list", "4"], arguments].concat()).done().json();
        let names: Vec<String> = items(&said["objects"]).iter().map(text).collect();
        (names.join(" "), said["more"] == true)
    };
    assert_eq!(objects(&[]), ("4:3 4:5 4:9".to_string(), false));
    assert_eq!(objects(&["--limit", "2"]), ("4:3 4:5".to_string(), true));
    assert_eq!(objects(&["--limit", "2", "--after", "5"]), ("4:9".to_string(), false));
    let attributes = |arguments: &[&str]| {
        let said = array.braid(&[&["attr", "list", "4:9"], arguments].concat()).done().json();
        let found = items(&said["attributes"]);
        found.iter().map(|attribute| text(&attribute["name"])).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(attributes(&[]), "3.1 5.1 9.1");
    assert_eq!(attributes(&["--after", "3.1", "--limit", "1"]), "5.1");
    assert_eq!(attributes(&["--page", "9"]), "9.1");
}

fn what_can_not_be_is_refused(array: &Array) {
    array.braid(&["object", "create", "4:3"]).refused(1, "object-exists");
    array.braid(&["object", "create", "99"]).refused(3, "no-such-device");
    array.braid(&["object", "create", "nowhere"]).refused(3, "no-such-volume");
    array.braid(&["object", "stat", "4:17"]).refused(3, "no-such-object");
    array.braid(&["object", "stat", "4"]).refused(2, "usage");
    array.braid(&["attr", "set", "4:17", "1.1", "x"]).refused(3, "no-such-object");
    array.braid(&["attr", "set", "4:3", "0xf0000001.1", "x"]).refused(2, "reserved-page");
    array.braid(&["attr", "set", "4:3", "1", "x"]).refused(2, "usage");
    array.braid(&["attr", "set", "4:3", "1.1", "hex:0"]).refused(2, "usage");
    array.braid(&["attr", "set", "4:3", "1.1", "seven b"]).done();
    array.braid(&["attr", "add", "4:3", "1.1"]).refused(1, "not-a-number");
    array.braid(&["attr", "set", "4:3", "1.1", "int:9223372036854775807"]).done();
    array.braid(&["attr", "add", "4:3", "1.1"]).refused(1, "overflow");
}

fn waiters_are_told(array: &Array) {
    array.braid(&["attr", "set", "4:3", "2.1", "old"]).done();
    array.braid(&["attr", "wait", "4:3", "2.1", "--timeout", "0s"]).refused(1, "unchanged");
    let dir = array.dir().to_path_buf();
    let waits = std::thread::spawn(move || shell(&dir, &["attr", "wait", "4:3", "2.1", "--seen", "old", "--json"]));
    array.braid(&["attr", "set", "4:3", "2.1", "new"]).done();
    let told = waits.join().expect("it does not panic").json();
    assert_eq!(told["value"]["text"], "new");
}

fn attributes_are_kept_on_an_attribute_volume(array: &Array) {
    array.create_attribute_volume("locks", "timestamp");
    array.braid(&["attr", "cas", "locks:7", "1.1", "", "me", "--exact"]).done();
    let lost = array.braid(&["attr", "cas", "locks:7", "1.1", "", "you", "--exact"]);
    assert_eq!((lost.status, text(&lost.json()["original"]["text"])), (Some(1), "me".to_string()));
    assert_eq!(array.told(&["attr", "add", "locks:8", "1.1", "3"]), "0\n");
    assert_eq!(array.told(&["attr", "wait", "locks:8", "1.1", "--seen", "int:0"]), "int:3\n");
    array.braid(&["attr", "wait", "locks:8", "1.1", "--timeout", "0s"]).refused(1, "unchanged");
    array.braid(&["object", "create", "locks"]).refused(2, "not-in-attribute-volume");
    // Numbers of volumes and attribute volumes are kept apart: otherwise attributes would overwrite blocks, or blocks attributes.
    array.braid(&["attr", "set", "vol0:7", "1.1", "mine"]).refused(1, "not-an-attribute-volume");
    array.braid(&["nbd", "--listen", "127.0.0.1:0", "--volume", "locks"]).refused(2, "is-an-attribute-volume");
    let running = array.braid(&["volume", "list"]).done().json();
    let kinds: Vec<_> = items(&running["volumes"]).iter().map(|volume| &volume["attribute_volume"]).collect();
    assert_eq!(kinds, [false, true]);
}

const ADDED: AttributeName = AttributeName::new(1, 1);
const SWAPPED: AttributeName = AttributeName::new(1, 2);

#[test]
fn every_increment_counts_once_though_the_device_is_killed() {
    let mut array = Array::of_processes(&SMALL);
    array.braid(&["object", "create", "1:1"]).done();
    let (dir, ends, done) = (array.dir().to_path_buf(), AtomicBool::new(false), AtomicU64::new(0));
    let (added, swapped) = std::thread::scope(|scope| {
        let programs: Vec<_> = (0..3).map(|_| scope.spawn(|| wait(count(&dir, &ends, &done)))).collect();
        let commands = scope.spawn(|| {
            let mut added = 0;
            while !ends.load(Ordering::Relaxed) {
                let begun = Instant::now();
                shell(&dir, &["attr", "add", "1:1", "1.1"]);
                added += 1;
                rest(begun.elapsed());
            }
            added
        });
        let progress = || {
            let before = done.load(Ordering::Relaxed);
            wait_until("operations continue", PROGRESS_MAX, || done.load(Ordering::Relaxed) >= before + 100);
        };
        for _ in 0..3 {
            progress();
            array.kill_device(1);
        }
        progress();
        ends.store(true, Ordering::Relaxed);
        let mut both = (commands.join().expect("it does not panic"), 0);
        for program in programs {
            let (added, swapped) = program.join().expect("it does not panic").expect("nothing is refused");
            both = (both.0 + added, both.1 + swapped);
        }
        both
    });
    println!("{added} were added, {swapped} swapped");
    assert!(added >= 100 && swapped >= 50, "something was done");
    let shown =
        |array: &Array| (array.told(&["attr", "get", "1:1", "1.1"]), array.told(&["attr", "get", "1:1", "1.2"]));
    let counted = (format!("int:{added}\n"), format!("int:{swapped}\n"));
    assert_eq!(shown(&array), counted);
    array.kill();
    array.start(&[]);
    assert_eq!(shown(&array), counted, "it is durable");
}

/// Increments both counters until it is told to end. Returns how often it has incremented each.
async fn count(dir: &Path, ends: &AtomicBool, done: &AtomicU64) -> Result<(i64, i64), Error> {
    let array = braid_client::Array::connect(ArrayOptions::at(dir).name("counts")).await?;
    let object = array.device(1).object(1);
    let (mut added, mut swapped) = (0, 0);
    let mut seen = Value::undefined();
    while !ends.load(Ordering::Relaxed) {
        object.fetch_and_add(ADDED, 1).await?;
        added += 1;
        let next = seen.as_i64().unwrap_or(0) + 1;
        let outcome = object.compare_and_swap_exact(SWAPPED, &seen, next).await?;
        seen = if outcome.swapped { Value::from(next) } else { outcome.original };
        swapped += i64::from(outcome.swapped);
        done.fetch_add(1, Ordering::Relaxed);
    }
    array.close().await;
    Ok((added, swapped))
}

/// A command that must succeed.
#[track_caller]
fn shell(dir: &Path, arguments: &[&str]) -> Outcome {
    let dir = dir.to_str().expect("our paths are plain");
    braid(&[arguments, &["--array", dir]].concat()).done()
}
