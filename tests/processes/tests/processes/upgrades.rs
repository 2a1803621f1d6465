//! An array that moves to the next release, daemon by daemon, while clients write; and back, as long as its level is not raised
//! (`docs/upgrades.md`). The next release is `braid-next`: this one with an invented level.

use crate::prelude::*;

const LIMIT: Duration = Duration::from_secs(30);

/// A daemon of the array, with what it takes to start it again.
struct Served {
    name: String,
    arguments: Vec<String>,
    running: Option<Daemon>,
}

impl Served {
    fn new(name: &str, arguments: &[&str]) -> Served {
        Served {
            name: name.to_string(),
            arguments: arguments.iter().map(|word| word.to_string()).collect(),
            running: None,
        }
    }

    fn try_start(&mut self, array: &Array, program: &Path) -> Result<(), Outcome> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let all = [&arguments[..], &["--array", path_text(array.dir()), "--json"]].concat();
        let instead = format!("exec {} \"$@\"", path_text(program));
        self.running = Some(Daemon::start_by(&["sh", "-c", &instead], &all, &array.scratch().path(&self.name))?);
        Ok(())
    }

    /// Ends it in order, and starts this program in its place.
    fn replace(&mut self, array: &Array, program: &Path) {
        if let Some(daemon) = self.running.take() {
            assert_eq!(daemon.end(Signal::TERM), Some(0), "{} ends in order", self.name);
        }
        self.try_start(array, program).unwrap_or_else(|outcome| panic!("{outcome}"));
    }
}

/// Replaces each daemon by this program, one after the other, under load.
fn replace_all(array: &Array, daemons: &mut [Served], program: &Path, load: &Load) {
    load.take_longest();
    for daemon in daemons {
        daemon.replace(array, program);
        // If the device was unavailable for too long, the monitor has noticed by then.
        rest(LEASE * 3 / 2);
        wait_until("all devices are in", LIMIT, || {
            // It says that the array is not up: nothing supervises these daemons.
            let status = array.braid(&["status"]).json();
            items(&status["devices"]).iter().all(|device| device["member_state"] == "in")
        });
        load.go_on();
    }
    println!("now {}: the longest pause of a writer was {:?}", program.display(), load.take_longest());
}

#[test]
fn an_array_is_upgraded_daemon_by_daemon_under_load_and_back_until_its_level_is_raised() {
    let (old, next) = (braid_bin(), braid_bin().with_file_name("braid-next"));
    assert!(next.exists(), "{} does not exist: `cargo xtask test` builds it", next.display());
    let mut array = Array::small();
    let addresses = array.give_addresses();
    let mut daemons = vec![Served::new("monitord", &["monitord"]), Served::new("lockd", &["lockd"])];
    daemons.extend(addresses.iter().enumerate().map(|(device, address)| {
        let file = array.device_file(device);
        Served::new(&format!("device-{device}"), &["device", "serve", path_text(&file), "--listen", address])
    }));
    daemons.iter_mut().for_each(|daemon| daemon.replace(&array, &old));
    let serve_nbd = |name: &str, program: &Path| {
        let mut host = Served::new(name, &["nbd", "--listen", "127.0.0.1:0"]);
        host.replace(&array, program);
        let uri = text(&host.running.as_ref().expect("it was started").ready["volumes"][0]["nbd"]);
        (host, uri)
    };
    let ((mut old_host, through_old), (mut next_host, through_next)) =
        (serve_nbd("old", &old), serve_nbd("next", &next));
    let upgrade = |what: &str| run(path_text(&next), &["--array", path_text(array.dir()), "--json", "upgrade", what]);
    let older = || {
        let status = upgrade("status").done().json();
        (
            items(&status["older_devices"]).len(),
            items(&status["older_hosts"]).len(),
            number(&status["older_lock_servers"]),
        )
    };
    let load = Load::running(Plan::of(&[&through_old, &through_next]));
    wait_until("all have reported", LIMIT, || older() == (5, 1, 0));
    replace_all(&array, &mut daemons, &next, &load);
    wait_until("one host is of the old release", LIMIT, || older() == (0, 1, 0));
    upgrade("finish").refused(1, "older-programs");
    replace_all(&array, &mut daemons, &old, &load);
    replace_all(&array, &mut daemons[..4], &next, &load);
    // Half of them are of each release for a while.
    rest(if soak() { Duration::from_secs(60) } else { LEASE * 5 });
    load.go_on();
    replace_all(&array, &mut daemons[4..], &next, &load);
    load.assert_kept(&array, &[&through_old, &through_next]);
    let ended = old_host.running.take().expect("it runs").end(Signal::TERM);
    assert_eq!(ended, Some(0));
    Client::open(&through_next).trim(0, SMALL_BYTES as u32).expect("space can be discarded");
    let load = Load::running(Plan::of(&[&through_next]));
    wait_until("none is of the old release", LIMIT, || older() == (0, 0, 0));
    assert_eq!(number(&upgrade("finish").done().json()["level"]), 2);
    assert_eq!(upgrade("status").done().json()["next"], Value::Null);
    // A second time nothing is left to do.
    assert_eq!(number(&upgrade("finish").done().json()["level"]), 2);
    // A checkpoint writes the superblock.
    let formats = |device: usize| {
        let bytes = fs::read(array.device_file(device)).expect("it can be read");
        (bytes[8], bytes[4096 + 8])
    };
    wait_until("the disks have the new format", LIMIT, || (0..5).all(|device| formats(device) == (6, 6)));
    load.go_on();
    load.stop().verify(&through_next);
    next_host.replace(&array, &next);
    // A lock server keeps nothing whose format has changed: the hosts refuse it, not the server itself.
    for daemon in daemons.iter_mut().filter(|daemon| daemon.name != "lockd") {
        assert_eq!(daemon.running.take().expect("it runs").end(Signal::TERM), Some(0));
        // The old release refuses it, and changes nothing.
        let refused = daemon.try_start(&array, &old).expect_err("it is too old");
        assert!(refused.stdout.contains("newer"), "{refused}");
        daemon.replace(&array, &next);
    }
    let check = ["--array", path_text(array.dir()), "--json", "volume", "check", "vol0"];
    wait_until("all devices are in", LIMIT, || run(path_text(&next), &check).status == Some(0));
}
