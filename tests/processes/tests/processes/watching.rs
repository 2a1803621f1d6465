//! Reports on a device that is unavailable, returns, and is rebuilt: by the status, once and live, by `braid rebuild`, and by the event
//! log.

use crate::prelude::*;

/// The events about a device, in order.
fn happened(array: &Array, device: u64) -> Vec<String> {
    let told = array.braid(&["events"]).done().json();
    let events = items(&told["events"]).iter().filter(|event| event["device"] == device);
    events.map(|event| text(&event["kind"])).collect()
}

/// Runs `braid` for some seconds, then interrupts it.
fn interrupted(array: &Array, seconds: &str, arguments: &[&str]) -> Outcome {
    let braid = braid_bin();
    let timeout = ["--preserve-status", "--signal=INT", seconds, path_text(&braid)];
    run("timeout", &[&timeout[..], arguments, &["--array", path_text(array.dir())]].concat())
}

#[test]
fn status_shows_a_device_that_is_out_resynchronised_or_rebuilt() {
    let array = Array::of_processes(&SMALL);
    let mut client = Client::open(&array.nbd());
    let content = noise(seed(), 4 << 20);
    client.write(0, &content).expect("a write works");
    let rebuilt = array.braid(&["rebuild"]).done().json();
    assert_eq!(rebuilt["devices"], Value::Array(Vec::new()), "all devices are in: {rebuilt}");
    array.braid(&["rebuild", "17"]).refused(3, "no-such-device");

    let pid = array.device_pid(2);
    signal(pid, Signal::STOP);
    let status = array.await_status("it is out", |status| status["devices"][2]["condition"] == "out");
    let words = text(&status["volumes"][0]["text"]);
    assert!(words.contains("without d2") && words.contains("one more failure stops it"), "{words}");
    assert!(text(&status["devices"][2]["text"]).starts_with("out for "), "{status:#}");
    assert_eq!(status["volumes"][0]["critical_devices"], Value::from(vec![0, 1, 3, 4]), "{status:#}");
    array.braid(&["rebuild"]).refused(1, "nothing-to-rebuild");
    client.write(0, &content[1 << 20..]).expect("a write works");

    // The device is back, but its resynchronisation is paused.
    let paused = array.braid(&["rebuild", "pause"]).done().json();
    assert_eq!(
        (&paused["throttle"]["paused"], &paused["previous_throttle"]["paused"]),
        (&Value::from(true), &Value::from(false))
    );
    signal(pid, Signal::CONT);
    let status =
        array.await_status("its resync has begun", |status| !status["devices"][2]["healing"]["bytes_left"].is_null());
    assert_eq!(status["devices"][2]["condition"], "resynchronising", "{status:#}");
    assert_eq!(status["devices"][2]["healing"]["paused"], true, "{status:#}");
    let shown = array.braid(&["rebuild", "status"]).done().json();
    assert_eq!((number(&shown["devices"][0]["id"]), &shown["throttle"]["paused"]), (2, &Value::from(true)), "{shown}");
    interrupted(&array, "1", &["rebuild", "--json"]).refused(130, "interrupted");
    let lines = interrupted(&array, "1.5", &["status", "--watch", "--interval", "0.2", "--json"]).done().stdout;
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    assert!(lines.len() >= 2 && lines.iter().all(|line| line["devices"][2]["condition"] == "resynchronising"));
    array.braid(&["rebuild", "resume"]).done();
    array.await_volume(0, "healthy");
    assert_eq!(happened(&array, 2), ["device-out", "device-returning", "device-in"]);

    // Another disk fills its slot, and is rebuilt slowly enough to be observed.
    array.braid(&["rebuild", "--rate", "4MiB/s", "--share", "100%"]).done();
    let replacement = interrupted(&array, "2", &["device", "replace", "3", "--wait", "--json"]);
    assert!(replacement.refused(130, "interrupted").contains("completes what was begun"));
    let hosts = array.braid(&["status"]).done().json()["hosts"].to_string();
    assert!(!hosts.contains("rebuild") && !hosts.contains("replace"), "their leases were given back: {hosts}");
    let status = array.await_status("it is rebuilt", |status| status["devices"][3]["condition"] == "rebuilding");
    assert!(text(&status["volumes"][0]["text"]).contains("d3 is being rebuilt"), "{status:#}");
    array.braid(&["rebuild", "--rate", "none", "--share", "usual"]).done();
    let followed = array.braid(&["rebuild", "3"]).done().json();
    // None is followed if the device was in before the command could follow it.
    for device in items(&followed["devices"]) {
        assert_eq!((number(&device["id"]), &device["rebuild"], number(&device["lost_blocks"])), (3, &true.into(), 0));
    }
    array.await_volume(0, "healthy");
    let told = happened(&array, 3);
    for kind in ["disk-replaced", "device-out", "device-returning", "rebuild-begun", "rebuild-ended", "device-in"] {
        assert!(told.iter().any(|event| event == kind), "{kind}: {told:?}");
    }
    let lines = interrupted(&array, "1", &["events", "--follow", "--json", "--since", "1h"]).done().stdout;
    let paces = lines.lines().filter(|line| line.contains("throttle-changed")).count();
    assert_eq!(paces, 4, "pause, resume, a rate, and none: {lines}");
    for follows in ["events --follow", "status --watch --interval 60"] {
        let (braid, dir) = (braid_bin(), array.dir());
        let command = format!("timeout 20 {} {follows} --array {}", path_text(&braid), path_text(dir));
        let ended = run("sh", &["-c", &format!("{{ {command}; echo $? >&2; }} | head -c 1")]).done();
        assert_eq!(ended.stderr.trim(), "0", "{follows} ends when its reader has gone: {ended}");
    }
    assert!(client.read(0, 3 << 20).expect("a read works") == content[1 << 20..]);
    array.assert_sound("vol0");
}
