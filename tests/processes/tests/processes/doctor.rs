//! `braid doctor`: what it finds in an array that is down, about a transaction that nobody can decide, and about a clock that differs.

use crate::clocks::WallClock;
use crate::prelude::*;
use std::fs::Permissions;

/// How long something may take until it is found.
const LIMIT: Duration = Duration::from_secs(20);

/// The findings of a check with this severity: subjects and texts.
fn severe(report: &Value, check: &str, severity: &str) -> Vec<(String, String)> {
    let findings = findings(report, check).iter().filter(|finding| finding["severity"] == severity);
    findings.map(|finding| (text(&finding["subject"]), text(&finding["text"]))).collect()
}

/// Waits until the doctor finds something with this severity about a subject that begins with these words, and exits with 1.
#[track_caller]
fn await_finding(array: &Array, check: &str, severity: &str, subject: &str) -> (String, String) {
    let mut found = None;
    wait_until(&format!("{check} finds {subject}"), LIMIT, || {
        let outcome = array.braid(&["doctor"]);
        let report = outcome.json();
        found = severe(&report, check, severity).into_iter().find(|(of, _)| of.starts_with(subject));
        assert!(found.is_none() || outcome.status == Some(1), "{outcome}");
        found.is_some()
    });
    found.expect("it was waited for")
}

/// The entry of a host in the status.
fn entry_of(status: &Value, host: &Daemon) -> Option<Value> {
    let hosts = items(&status["hosts"]);
    hosts.iter().find(|other| other["pid"] == host.pid()).cloned()
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

/// Waits until each device has a copy of the description at the end of its file.
fn await_copies(array: &Array) {
    let revision = format!("\"revision\":{},", array.description()["revision"]);
    wait_until("the copies are written", LIMIT, || {
        let copy = |device| fs::read(array.device_file(device)).expect("it can be read").split_off(64 << 20);
        let is_new = |device| copy(device).windows(revision.len()).any(|part| part == revision.as_bytes());
        (0..5).all(is_new)
    });
}

#[test]
fn an_array_that_is_down_is_checked_as_far_as_possible() {
    let mut array = Array::small();
    let (file, dir) = (array.device_file(2), array.dir().to_path_buf());
    let (moved, earlier) = (dir.join("moved"), std::fs::read(dir.join("array.json")).expect("it is there"));
    array.braid(&["volume", "create", "later", "--size", "1MiB"]).done();
    await_copies(&array);
    let cut = |size| std::fs::OpenOptions::new().write(true).open(&file).and_then(|file| file.set_len(size)).unwrap();
    std::fs::rename(&file, &moved).unwrap();
    assert!(await_finding(&array, "device-files", "error", "device d2").1.contains("was moved"));
    std::fs::rename(&moved, &file).unwrap();
    let size = file.metadata().unwrap().len();
    cut(20 << 20);
    assert!(await_finding(&array, "device-files", "error", "device d2").1.contains("was cut short"));
    cut(size);
    array.down();

    // What `braid up` refuses, the doctor finds before.
    let contents: [Option<&[u8]>; 4] = [None, Some(b""), Some(b"{\"schema\": "), Some(&[0x5a; 131_072])];
    let of_state = ["monitor.state", "generations"].map(|name| contents.map(|content| (name, content)));
    let others = [("array.json", Some(&earlier[..])), ("run", Some(b""))];
    for (name, content) in of_state.into_iter().flatten().chain(others) {
        let path = dir.join(name);
        std::fs::rename(&path, &moved).unwrap();
        content.into_iter().for_each(|content| std::fs::write(&path, content).unwrap());
        let found = severe(&array.braid(&["doctor"]).failed_check(), "start", "error");
        let said = array.try_start(&[]).expect_err(name).json()["error"].clone();
        assert_eq!(found[0].1, format!("can't be started: {}", text(&said["message"])), "{name}");
        assert!(!said["hint"].is_null(), "{name}: {said}");
        content.into_iter().for_each(|_| std::fs::remove_file(&path).unwrap());
        std::fs::rename(&moved, &path).unwrap();
    }
    std::fs::rename(dir.join("hosts"), &moved).unwrap();
    let report = array.braid(&["doctor"]).done().json();
    assert_eq!((severe(&report, "device-files", "error"), severe(&report, "start", "error")), (vec![], vec![]));
    std::fs::rename(&moved, dir.join("hosts")).unwrap();
    let cases: [(&str, &dyn Fn()); 4] = [
        ("neither a file nor a disk", &|| {
            std::fs::rename(&file, &moved).unwrap();
            run("mkfifo", &[path_text(&file)]).done();
        }),
        ("are there", &|| {
            std::fs::rename(&moved, &file).unwrap();
            cut(20 << 20);
        }),
        ("no Braid device", &|| std::fs::write(&file, "").unwrap()),
        ("does not exist", &|| std::fs::remove_file(&file).unwrap()),
    ];
    for (text, provoke) in cases {
        provoke();
        let found = severe(&array.braid(&["doctor"]).failed_check(), "device-files", "error");
        assert!(found.len() == 1 && found[0].0.contains("d2") && found[0].1.contains(text), "{text}: {found:?}");
    }
    assert!(number(&report["not_checked"]) > 5, "{report:#}");
    set_mode(&array.dir().join("array.json"), 0o644);
    let found = severe(&array.braid(&["doctor"]).failed_check(), "modes", "warning");
    assert!(matches!(&found[..], [(file, text)] if file.ends_with("array.json") && text.contains("0644")), "{found:?}");
}

#[test]
fn a_transaction_that_nobody_can_decide_is_found() {
    // Without redundancy, nobody decides without a device that is silent.
    let array =
        Array::of_processes(&["--devices", "2", "--size", "64MiB", "--layout", "raid0:2", "--volume", "vol0:16MiB"]);
    let (host, uri) = array.host();
    // The write lies on both devices, and waits for the silent one. Its host dies before it gives up.
    let silent = array.device_pid(1);
    signal(silent, Signal::STOP);
    let mut client = Client::open(&uri);
    client.send_write(0, &[7; 128 << 10]).expect("the request is sent");
    array.await_status("the host has sent the devices their parts", |status| {
        entry_of(status, &host).is_some_and(|host| host["counters"]["operations"].as_u64() > Some(0))
    });
    host.kill();
    let counter = |name: &str| {
        let status = array.status();
        status["devices"][0]["counters"][name].as_u64().unwrap_or_default()
    };
    let (_, text) = await_finding(&array, "transactions", "error", "device d0");
    assert!(text.contains("undecided"), "{text}");
    signal(silent, Signal::CONT);
    wait_until("they are decided", LIMIT, || counter("orphans") == 0 && counter("undecided") == 0);
    assert_eq!(severe(&array.braid(&["doctor"]).json(), "transactions", "error"), []);
}

#[test]
fn a_clock_that_differs_is_found() {
    let array = Array::small();
    let clock = WallClock::new();
    // It is the doctor's clock here; the difference is the same.
    clock.set_ahead(8);
    let launcher: Vec<&str> = clock.launcher[1..].iter().map(String::as_str).collect();
    let bin = braid_bin();
    let arguments = [path_text(&bin), "doctor", "--json", "--array", path_text(array.dir())];
    let outcome = run("env", &[&launcher[..], &arguments].concat());
    let found = severe(&outcome.failed_check(), "clocks", "error");
    let of_devices = found.iter().filter(|(subject, _)| subject.starts_with("device")).count();
    assert_eq!(of_devices, 5, "{found:?}");
    assert!(found.iter().all(|(_, text)| text.contains("behind")), "{found:?}");
    assert!(found.iter().any(|(subject, _)| subject.starts_with("host")), "{found:?}");
}
