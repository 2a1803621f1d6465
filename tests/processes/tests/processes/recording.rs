//! Recordings of daemons, and their replay: it has the same effects, or says which step has others. Decision notes in logs.

use crate::prelude::*;
use braid_base::checksum::crc32c;
use std::ops::Range;

const DEVICE: usize = 2;
/// How long the array may take to notice something.
const LIMIT: Duration = Duration::from_secs(30);
/// The bytes before the first record of a recording.
const PREFIX_BYTES: usize = 12;

/// Runs a recording again, which must have the same effects to its end.
#[track_caller]
fn replayed(recording: &Path, role: &str) -> Value {
    let replayed = braid(&["replay", path_text(recording), "--json"]).done().json();
    assert_eq!(replayed["role"], role);
    assert!(number(&replayed["steps"]) > 300, "{replayed}");
    assert_eq!((&replayed["difference"], &replayed["adjustments"]), (&Value::Null, &0.into()));
    replayed
}

#[test]
fn a_device_and_a_host_are_replayed_though_another_device_was_killed_meanwhile() {
    let mut array = Array::of_processes(&SMALL);
    array.down();
    let (of_device, of_host) = (array.scratch().path("device.rec"), array.scratch().path("host.rec"));
    let address = format!("unix:{}", array.scratch().text("device.sock"));
    array.set_address(DEVICE, &address);
    let monitor = array.daemon("monitord", &["monitord"]);
    let device = array.serve_device(DEVICE, &address, &["--record", path_text(&of_device)]);
    array.start(&[]);
    array.await_volume(0, "healthy");
    let host = array.daemon("nbd", &["nbd", "--record", path_text(&of_host)]);
    let uri = host.ready["volumes"][0]["nbd"].as_str().expect("a URI").to_string();
    let load = Load::running(Plan::of(&[&uri]));
    array.kill_device(3);
    load.go_on();
    // Requests of the host wait meanwhile.
    array.braid(&["volume", "set-ordering", "vol0", "device-lock"]).done();
    load.go_on();
    let mut record = load.stop();
    record.verify(&uri);

    for recording in [&of_device, &of_host] {
        let mode = fs::metadata(recording).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "only its owner reads the blocks");
    }
    host.end(Signal::TERM);
    // A device that is killed leaves a recording up to then.
    signal(device.pid(), Signal::KILL);
    device.ended();
    for (recording, role) in [(&of_device, "device"), (&of_host, "host")] {
        replayed(recording, role);
    }
    // A byte in the middle of the file.
    let mut bytes = fs::read(&of_host).expect("it can be read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = array.scratch().path("damaged.rec");
    fs::write(&damaged, bytes).expect("it can be written");
    let outcome = braid(&["replay", path_text(&damaged), "--json"]);
    assert_eq!((outcome.status, &outcome.json()["end"]), (Some(4), &"damaged".into()));
    array.braid(&["nbd", "--record", path_text(&of_host)]).refused(1, "recording-failed");
    drop(monitor);
    says_which_step_has_other_effects(&of_host);
}

/// Changes a recording of a host, so that its replay differs.
fn says_which_step_has_other_effects(recording: &Path) {
    let recorded = fs::read(recording).expect("it can be read");
    let records = records(&recorded);
    let is_input = |record: &Range<usize>| recorded[record.start] == 0;
    // The checksum of the effects of a step in the middle.
    let middle = records.len() / 2;
    let effects = middle + records[middle..].iter().position(|record| recorded[record.start] == 1).expect("effects");
    let mut changed = recorded.clone();
    let Range { start, end } = records[effects].clone();
    changed[end - 1] ^= 1;
    let checksum = crc32c(&changed[start..end]);
    changed[start - 4..start].copy_from_slice(&checksum.to_le_bytes());
    let file = recording.with_extension("changed");
    fs::write(&file, changed).expect("it can be written");
    let outcome = braid(&["replay", path_text(&file), "--json"]);
    let said = outcome.json();
    assert_eq!((outcome.status, &said["end"]), (Some(4), &"differs".into()), "{outcome}");
    // The first record is the header.
    let step = records[1..=effects].iter().filter(|record| is_input(record)).count() as u64;
    let difference = &said["difference"];
    assert_eq!((number(&difference["step"]), number(&said["steps"])), (step, step), "{said}");
    assert!(!text(&difference["input"]).is_empty() && number(&difference["time"]) > 0, "{said}");
    let shown = items(&difference["effects"]).len() as u64;
    assert_eq!(number(&difference["recorded_effects"]), shown, "only their content differs: {said}");
    let outcome = braid(&["replay", path_text(&file)]);
    assert_eq!(outcome.status, Some(4), "{outcome}");
    assert!(outcome.stdout.contains(&format!("step {step} has other effects")), "{outcome}");

    // A machine that did not get its largest request, with its step.
    let inputs = (middle..records.len() - 1).filter(|record| is_input(&records[*record]));
    let lost = inputs.max_by_key(|record| records[*record].len()).expect("there are inputs");
    let [from, to] = [records[lost].start - 8, records[lost + 1].end];
    fs::write(&file, [&recorded[..from], &recorded[to..]].concat()).expect("it can be written");
    let outcome = braid(&["replay", path_text(&file), "--json"]);
    assert_eq!((outcome.status, &outcome.json()["end"]), (Some(4), &"differs".into()), "{outcome}");
}

/// The payloads of the records of a recording, the header's first.
fn records(recorded: &[u8]) -> Vec<Range<usize>> {
    let (mut records, mut at) = (Vec::new(), PREFIX_BYTES);
    while let Some(length) = recorded.get(at..at + 4) {
        let start = at + 8;
        at = start + u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
        records.push(start..at);
    }
    records.retain(|record| record.end <= recorded.len());
    records
}

#[test]
fn metadata_servers_and_a_mount_are_replayed_with_their_hosts() {
    if !Path::new("/dev/fuse").exists() {
        return eprintln!("skipped: there is no /dev/fuse");
    }
    let mut array = Array::up(&["--size", "512MiB", "--volume", "vol0:1MiB"]);
    // No inode is in the shard of its name.
    array.braid(&["fs", "create", "home", "--size", "256MiB", "--servers", "2", "--placement", "spread"]).done();
    let daemons = array.start_daemons();
    let recording = |name: &str| array.scratch().text(&format!("{name}.rec"));
    let server = |shard: &str| {
        let name = format!("mds-{shard}");
        array.daemon(&name, &["mds", "home", "--shard", shard, "--record", &recording(&name)])
    };
    let servers = [server("0"), server("1")];
    let directories = ["a", "b"].map(|name| array.scratch().path(name));
    directories.iter().for_each(|directory| fs::create_dir(directory).expect("it is new"));
    let [a, b] = directories.each_ref().map(|directory| path_text(directory));
    let recorded = ["fs", "mount", "home", a, "--foreground", "--record", &recording("mount")];
    let mounts = [array.daemon("a", &recorded), array.daemon("b", &["fs", "mount", "home", b, "--foreground"])];

    let mut work = Work { directories: [Path::new(a), Path::new(b)], round: 0 };
    work.go_on_for(LEASE);
    // The servers follow another protocol, by which they send each other other messages.
    array.braid(&["fs", "set-commit-protocol", "home", "prn"]).done();
    work.go_on_for(2 * LEASE);
    // All hosts put the volume on hold.
    array.braid(&["volume", "set-ordering", "vol0", "device-lock"]).done();
    work.go_on_for(LEASE);
    // Devices that are unavailable give hosts more time.
    let is_in = || array.braid(&["status"]).json()["devices"][DEVICE]["member_state"] == "in";
    let device = daemons[daemons.len() - 5 + DEVICE].pid();
    signal(device, Signal::STOP);
    wait_until("a device is not in", LIMIT, || !is_in());
    work.go_on_for(LEASE);
    signal(device, Signal::CONT);
    wait_until("it is in", LIMIT, is_in);
    work.go_on_for(LEASE);

    for daemon in mounts.into_iter().chain(servers) {
        assert_eq!(daemon.end(Signal::TERM), Some(0));
    }
    for (name, role) in [("mount", "mount"), ("mds-0", "metadata-server"), ("mds-1", "metadata-server")] {
        let replayed = replayed(Path::new(&recording(name)), role);
        println!("{name}: {replayed}");
        assert_eq!(replayed["end"], "complete", "{replayed}");
    }
}

/// Work in two mounts of a file system.
struct Work<'a> {
    directories: [&'a Path; 2],
    round: u64,
}

impl Work<'_> {
    fn go_on_for(&mut self, span: Duration) {
        keep_doing(span, || {
            self.round += 1;
            self.go_round();
        });
    }

    /// What one mount writes, the other one reads and removes.
    fn go_round(&self) {
        let [one, other] = self.directories;
        let content = noise(self.round, 1000 + 50_000 * (self.round % 5) as usize);
        let directory = format!("d{}", self.round % 7);
        // It exists from the eighth round on.
        let _ = fs::create_dir(one.join(&directory));
        let file = format!("{directory}/f{}", self.round);
        fs::write(one.join(&file), &content).expect("it can be written");
        assert!(fs::read(other.join(&file)).expect("it can be read") == content, "{file}");
        let renamed = format!("g{}", self.round);
        fs::rename(other.join(&file), other.join(&renamed)).expect("it can be renamed");
        assert!(fs::read(one.join(&renamed)).expect("it can be read") == content, "{renamed}");
        if self.round.is_multiple_of(2) {
            fs::remove_file(other.join(&renamed)).expect("it can be removed");
        }
        assert!(fs::read_dir(one).expect("it can be read").count() > 0);
    }
}

#[test]
fn hosts_log_why_transactions_are_refused_retried_and_resolved() {
    let array = Array::of_processes(&SMALL);
    let log = |name: &str| array.scratch().path(&format!("{name}.log"));
    let start = |name: &str, level: &str| {
        let arguments = ["nbd", "--array", path_text(array.dir()), "--listen", "127.0.0.1:0", "--json"];
        let host = Daemon::start_by(&["env", &format!("RUST_LOG={level}")], &arguments, &log(name));
        let host = host.unwrap_or_else(|outcome| panic!("{outcome}"));
        let uri = text(&host.ready["volumes"][0]["nbd"]);
        (host, uri)
    };
    let (noted, uri) = start("noted", "debug");
    let (quiet, other) = start("quiet", "info");
    let has = |host: &Daemon, note: &str| host.log().contains(&format!("DEBUG {note} {{ "));
    // They write the same stripes.
    let load = Load::start(Plan::of(&[&uri, &other]));
    for note in ["Refused", "Retried"] {
        // Writers that are awaited do not rest, and meet sooner.
        wait_until(note, LIMIT, || (load.go_on(), has(&noted, note)).1);
    }
    load.stop();
    assert!(!["Refused", "Retried"].into_iter().any(|note| has(&quiet, note)), "{}", quiet.log());
    assert_eq!(quiet.end(Signal::TERM), Some(0));
    let begun = Instant::now();
    // Of a host that is killed, the others find out what has become of its writes, when its lease has expired.
    while !has(&noted, "Resolved") {
        assert!(begun.elapsed() < LIMIT, "{}", noted.log());
        let (killed, its) = start("killed", "info");
        let load = Load::running(Plan { begin: 2 << 20, hosts_may_go: true, ..Plan::of(&[&uri, &its]) });
        killed.kill();
        let gone = Instant::now();
        while gone.elapsed() < 3 * LEASE && !has(&noted, "Resolved") {
            load.go_on();
        }
        load.stop();
        Client::open(&uri).trim(2 << 20, 2 << 20).expect("space can be discarded");
    }
}
