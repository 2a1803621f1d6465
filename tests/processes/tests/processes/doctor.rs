//! `braid doctor`: what it finds in an array that is sound, and in arrays in which something was provoked. And folders and files that other
//! users can change, which are refused.

use crate::clocks::WallClock;
use crate::prelude::*;
use crate::state_from_devices::await_copies;
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

#[test]
fn the_doctor_checks_all_of_a_sound_array_and_finds_nothing() {
    let array = Array::up(&[&SMALL[..], &["--fs", "home"]].concat());
    array.braid(&["volume", "create", "locked", "--size", "1MiB", "--ordering", "server-lock"]).done();
    array.await_status("all serves", |status| {
        status["lock_servers"][0]["state"] == "serving" && status["file_systems"][0]["state"] == "serving"
    });
    // A server that has just begun has published nothing yet.
    let mut report = Value::Null;
    wait_until("all is checked", LIMIT, || {
        let outcome = array.braid(&["doctor"]);
        report = outcome.json();
        outcome.status == Some(0) && report["not_checked"] == 0 && report["notes"] == 0
    });
    assert_eq!((number(&report["errors"]), number(&report["warnings"])), (0, 0), "{report:#}");
    assert!(!array.told(&["status"]).contains("doctor:"));
    let text = array.told(&["doctor", "--verbose"]);
    assert!(text.contains("nothing is wrong") && text.contains("  clocks: "), "{text}");
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
fn silent_daemons_and_hosts_are_found_and_the_status_says_so() {
    let array = Array::of_processes(&SMALL);
    let pid = array.device_pid(3);
    signal(pid, Signal::STOP);
    assert!(await_finding(&array, "daemons", "error", "device d3").1.contains(&format!("suspended (process {pid})")));
    let shown = array.told(&["status"]);
    assert!(shown.contains("\ndoctor: ") && shown.contains("braid doctor"), "{shown}");
    assert!(number(&array.status()["doctor"]["warnings"]) > 0);
    signal(pid, Signal::CONT);
    array.await_volume(0, "healthy");

    let (host, _) = array.host();
    array.await_status("it has a lease", |status| entry_of(status, &host).is_some());
    signal(host.pid(), Signal::STOP);
    let (subject, text) = await_finding(&array, "leases", "warning", "host ");
    assert!(subject.contains("(nbd") && text.contains("not renewed"), "{subject} {text}");
    signal(host.pid(), Signal::CONT);

    let monitor = array.monitor_pid();
    signal(monitor, Signal::STOP);
    assert!(await_finding(&array, "daemons", "error", "the monitor").1.contains("suspended"));
    signal(monitor, Signal::CONT);
    array.await_volume(0, "healthy");
}

#[test]
fn a_daemon_that_crashes_is_an_event_and_a_finding() {
    let array = Array::of_processes(&SMALL);
    let events = || array.events("daemon-crashed");
    assert_eq!(events(), [] as [Value; 0]);
    for (pid, name, how, by) in [
        (array.device_pid(1), "device d1", "SIGKILL", Signal::KILL),
        (array.monitor_pid(), "the monitor", "SIGABRT", Signal::ABORT),
    ] {
        let before = events().len();
        signal(pid, by);
        wait_until("the crash is recorded", LIMIT, || events().len() > before);
        let event = events().pop().expect("it was waited for");
        assert_eq!((text(&event["process"]).as_str(), number(&event["figures"]["pid"])), (name, pid.into()), "{event}");
        assert_eq!(number(&event["figures"]["signal"]), by.as_raw() as u64, "{event}");
        assert!(text(&event["text"]).contains(how), "{event}");
    }
    assert_eq!(number(&events()[0]["device"]), 1);
    let killed = severe(&array.braid(&["doctor"]).json(), "crashes", "note");
    assert!(killed.iter().any(|(of, told)| of.starts_with("device ") && told.contains("SIGKILL")), "{killed:?}");
    let (_, told) = await_finding(&array, "crashes", "warning", "the monitor");
    assert!(told.contains("SIGABRT"), "{told}");
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

#[test]
fn a_program_that_was_replaced_is_found() {
    let scratch = Scratch::new();
    let program = scratch.path("braid");
    std::fs::copy(braid_bin(), &program).expect("there is room");
    let mut array = Array::small();
    array.down();
    // The first argument is the program that the launcher is to execute; it executes the copy.
    let script = format!("shift; exec {} \"$@\"", path_text(&program));
    array.try_start_by(&["sh", "-c", &script, "sh"], &[]).unwrap_or_else(|outcome| panic!("{outcome}"));
    assert_eq!(severe(&array.braid(&["doctor"]).json(), "versions", "warning"), [], "it is another program, and there");
    std::fs::remove_file(&program).expect("it is ours");
    let (_, text) = await_finding(&array, "versions", "warning", "the array");
    assert!(text.contains("device d0") && text.contains("the monitor"), "{text}");
}

#[test]
fn a_folder_or_a_description_that_others_can_change_is_refused() {
    let mut array = Array::small();
    array.down();
    let (dir, description) = (array.dir().to_path_buf(), array.dir().join("array.json"));
    for (path, mode, private) in [(&dir, 0o777, 0o700), (&description, 0o666, 0o600)] {
        set_mode(path, mode);
        let commands: [&[&str]; 4] = [&["status"], &["doctor"], &["volume", "list"], &["monitor", "recover"]];
        for command in commands {
            let said = array.braid(command).refused(1, "untrusted");
            assert!(said.contains("chmod"), "it says what to do: {said}");
        }
        array.assert_start_refused(1, "untrusted", &[]);
        set_mode(path, private);
    }
    array.start(&[]);
}

/// Who can write the description must not have the array overwrite other files: it is refused if its devices are still to be made.
#[test]
fn a_description_does_not_have_files_elsewhere_overwritten() {
    let mut array = Array::small();
    array.down();
    let victim = array.scratch().path("victim");
    std::fs::write(&victim, "precious").expect("there is room");
    array.describe(|description| description["devices"][0]["file"] = path_text(&victim).into());
    // It is no device of this array, either.
    for created in [false, true] {
        array.describe(|description| description["created"] = created.into());
        let refused = array.try_start(&[]).expect_err("it is refused");
        assert_ne!(refused.status, Some(0), "created: {created}");
        assert_eq!(std::fs::read_to_string(&victim).expect("it is there"), "precious", "created: {created}");
    }
}

/// Files are private whatever the user's mask is.
#[test]
fn files_are_private_from_the_start() {
    let scratch = Scratch::new();
    let dir = scratch.path("array");
    let arguments = ["up", "--dir", path_text(&dir), "--port", "0", "--json", "--size", "64MiB", "--lease", "1s"];
    let launcher = ["sh", "-c", "umask 0; exec \"$@\"", "sh"];
    let daemon = Daemon::start_by(&launcher, &arguments, &scratch.path("up.log"));
    let daemon = daemon.unwrap_or_else(|outcome| panic!("{outcome}"));
    // Sockets are in a folder that no other user may enter.
    let listed =
        run("find", &[path_text(&dir), "-ignore_readdir_race", "-not", "-type", "s", "-perm", "/077"]).done().stdout;
    assert_eq!(listed, "", "nobody else can read these");
    drop(daemon);
}
