//! Recordings: a device and a host are recorded while another device is killed under load; both replays have the same effects.

use braid_processes::Daemon;
use braid_processes::array::{Array, number};
use braid_processes::daemon::signal;
use braid_processes::data::seed;
use braid_processes::load::{Load, Plan};
use braid_processes::program::braid;
use braid_processes::scratch::path_text;
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const DEVICE: usize = 2;

fn start(arguments: &[&str], log: &Path) -> Daemon {
    Daemon::start(arguments, log).unwrap_or_else(|outcome| panic!("{outcome}"))
}

#[test]
fn a_device_and_a_host_are_replayed_though_another_device_was_killed_meanwhile() {
    let mut array = Array::small();
    array.down();
    let dir = path_text(array.dir()).to_string();
    let [log_of_monitor, log_of_device, log_of_host] =
        ["monitord.log", "device.log", "nbd.log"].map(|name| array.scratch().path(name));
    let (of_device, of_host) = (array.scratch().path("device.rec"), array.scratch().path("host.rec"));
    let description = array.dir().join("array.json");
    let mut said: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&description).expect("it exists")).expect("JSON");
    let address = format!("unix:{}", array.scratch().text("device.sock"));
    said["devices"][DEVICE]["address"] = address.clone().into();
    std::fs::write(&description, said.to_string()).expect("it can be written");
    let monitor = start(&["monitord", "--array", &dir, "--json"], &log_of_monitor);
    let file = array.device_file(DEVICE);
    let arguments = ["device", "serve", path_text(&file), "--array", &dir, "--listen", &address, "--json"];
    let device = start(&[&arguments[..], &["--record", path_text(&of_device)]].concat(), &log_of_device);
    array.start(&[]);
    array.await_volume(0, "healthy");
    let arguments = ["nbd", "--array", &dir, "--json", "--record", path_text(&of_host)];
    let host = start(&arguments, &log_of_host);
    let uri = host.ready["volumes"][0]["nbd"].as_str().expect("a URI").to_string();
    let plan = Plan {
        hosts: vec![uri.clone()],
        workers: 4,
        cells: 300,
        cell_bytes: 3000,
        begin: 100,
        hosts_may_go: false,
        apart: true,
        seed: seed(),
    };
    let load = Load::start(plan);
    load.go_on();
    array.kill_device(3);
    load.go_on();
    let mut record = load.stop();
    record.verify(&uri);

    for recording in [&of_device, &of_host] {
        let mode = std::fs::metadata(recording).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "only its owner reads the blocks");
    }
    host.end(Signal::TERM);
    // A device that is killed leaves a recording up to then.
    signal(device.pid(), Signal::KILL);
    device.ended();
    for (recording, role) in [(&of_device, "device"), (&of_host, "host")] {
        let replayed = braid(&["replay", path_text(recording), "--json"]).done().json();
        assert_eq!(replayed["role"], role);
        assert!(number(&replayed["steps"]) > 300, "{replayed}");
        assert_eq!(replayed["difference"], serde_json::Value::Null);
    }
    // A byte in the middle of the file.
    let mut bytes = std::fs::read(&of_host).expect("it can be read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = array.scratch().path("damaged.rec");
    std::fs::write(&damaged, bytes).expect("it can be written");
    let outcome = braid(&["replay", path_text(&damaged), "--json"]);
    assert_eq!((outcome.status, &outcome.json()["end"]), (Some(4), &"damaged".into()));
    braid(&["nbd", "--array", &dir, "--record", path_text(&of_host), "--json"]).refused(1, "recording-failed");
    drop(monitor);
}
