//! Tests of the doctor's checks over data: an array in which nothing is wrong, and then one thing.

use super::device_files::FileFault;
use super::examination::{Program, Space};
use super::{CHECKS, Diagnosis, Examination, Finding, Severity, Subject};
use crate::failure::Failure;
use crate::health::DeviceHealth;
use crate::snapshot::{ArraySnapshot, DeviceState};
use crate::status::Status;
use braid_base::{DeviceId, Generation, LockServerId};
use braid_control::event_texts::{Crash, daemon_crashed, device_full, file_system_full, volume_full};
use braid_control::{
    ArrayDescription, ByteRange, ControlPlane, DeviceReport, Distrust, HostEntry, LeaseReport, LockHolder, LockService,
    LooseMode, MetadataService, MonitorEntry, Original, Refusal, ReportedState, RunningDaemon, RunningSet, ScrubRecord,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

const MINUTE: u64 = 60_000;
const NOW: u64 = 1_900_000_000_000;

/// An array, which a test changes, and what the checks look at besides its snapshot.
struct Bed {
    look: ArraySnapshot,
    besides: Examination<'static>,
}

fn daemon(id: u16) -> RunningDaemon {
    RunningDaemon { id, address: "127.0.0.1:7".into(), pid: Some(std::process::id()), restarts: 0, down: None }
}

fn counters(values: &[(&str, u64)]) -> BTreeMap<String, u64> {
    values.iter().map(|(name, value)| (name.to_string(), *value)).collect()
}

/// The snapshot of three devices with a RAID 5 volume, a file system, a lock server and an NBD server.
fn snapshot() -> ArraySnapshot {
    let device =
        |id: u16| json!({"id": id, "file": format!("device-{id}"), "size": 1 << 30, "domain": format!("d{id}")});
    let volume = |id: u64, name: &str| {
        json!({"name": name, "id": id, "bytes": 1 << 20, "layout": "raid5:2+1", "unit": 65536, "devices": [0, 1, 2],
            "ordering": "server-lock", "state": "ready"})
    };
    let description: ArrayDescription = serde_json::from_value(json!({
        "schema": 2, "array": "6d1a4ea2-7d5b-4bd8-9f0c-0d5c2f0f9d11", "revision": 3, "created": true, "populated": true,
        "next_volume": 9, "devices": [device(0), device(1), device(2)],
        "volumes": [volume(1, "vol0"), volume(2, "home.meta"), volume(3, "home.data")],
        "file_systems": [{"id": 1, "name": "home", "state": "ready"}],
        "creation": {"devices": 3, "size": 1 << 30, "layout": "raid5:2+1", "unit": 65536, "volumes": []},
    }))
    .expect("it is a description");
    let us = std::process::id();
    let mut running = RunningSet::begun(us);
    (running.ready, running.monitor) = (true, Some(daemon(0)));
    running.devices = (0..3).map(daemon).collect();
    (running.lock_servers, running.metadata_servers) = (vec![daemon(0)], vec![daemon(1)]);
    let of_device = [
        ("journal_bytes_used", 1),
        ("journal_capacity", 100),
        ("hosts", 2),
        ("transactions", 3),
        ("waiting", 0),
        ("watchers", 0),
        ("answers_kept", 5),
        ("orphans", 0),
        ("suspects", 0),
        ("undecided", 1),
        ("oldest_orphan_millis", 0),
        ("oldest_undecided_millis", 40),
        ("leaves_damaged", 0),
        ("resident_bytes", 40 << 20),
    ];
    let state = || DeviceState {
        health: DeviceHealth::Serving,
        counters: of_device.map(|(name, value)| (name.to_string(), value)).to_vec(),
        clock_ahead_millis: Some(3),
    };
    let report = |id| DeviceReport { id, heard_millis: Some(200), ..DeviceReport::default() };
    let of_monitor = counters(&[("hosts_in_fence", 3), ("clock_millis", NOW - 300), ("resident_bytes", 9 << 20)]);
    let monitor = serde_json::from_value(json!({
        "address": "127.0.0.1:6", "revision": 3, "epoch": 4, "devices": [report(0), report(1), report(2)],
        "throttle": {"bytes_per_second": 0, "paused": false}, "counters": of_monitor,
    }));
    let host = |generation: u32, role: &str, more: &[(&str, u64)], report: LeaseReport| HostEntry {
        generation: Generation(generation),
        process: braid_control::Process::own(),
        role: role.to_string(),
        live: true,
        is_over: false,
        is_renewed: true,
        silent: Some(Duration::from_millis(400)),
        report: LeaseReport {
            counters: counters(&[&[("clock_millis", NOW - 400), ("resident_bytes", 30 << 20)], more].concat()),
            ..report
        },
    };
    let lock_server = Some(LockService { id: 0, address: "127.0.0.1:5".into() });
    let metadata_server = Some(MetadataService {
        file_system: 1,
        address: "127.0.0.1:4".into(),
        serves: true,
        settled: false,
        hosts: Vec::new(),
        hosts_cut: false,
        locks: Vec::new(),
    });
    let journal = [
        ("metadata_journal_bytes_used", 1),
        ("metadata_journal_capacity", 100),
        ("metadata_sessions", 1),
        ("metadata_room_used_blocks", 1),
        ("metadata_room_blocks", 100),
    ];
    let hosts = vec![
        host(7, "nbd", &[], LeaseReport::default()),
        host(
            8,
            "lock server 0",
            &[("hosts", 1), ("requests_in_table", 4)],
            LeaseReport { lock_server, ..LeaseReport::default() },
        ),
        host(9, "mds home", &journal, LeaseReport { metadata_server, ..LeaseReport::default() }),
    ];
    ArraySnapshot {
        control: ControlPlane::at("/nonexistent/array".as_ref()),
        description,
        running: Some(running),
        killed: None,
        unasked: None,
        states: (0..3).map(|id| (DeviceId(id), state())).collect(),
        hosts,
        monitors: BTreeMap::new(),
        monitor: Some(MonitorEntry {
            process: braid_control::Process::own(),
            age: Some(Duration::from_millis(300)),
            report: monitor.expect("it is a report"),
        }),
        refusal: None,
        scrubs: BTreeMap::new(),
        events: Ok(Vec::new()),
        now: NOW,
    }
}

/// An array in which nothing is wrong.
fn sound() -> Bed {
    let space =
        Space { path: "/srv".into(), size_bytes: 100 << 30, free_bytes: 50 << 30, files: 1 << 20, free_files: 1 << 19 };
    // This process stands for all of the array, but its files are no device's.
    let besides = Examination {
        loose: Ok(Vec::new()),
        spaces: vec![space],
        device_files: Vec::new(),
        ..Examination::of(Box::leak(Box::new(snapshot())))
    };
    Bed { look: snapshot(), besides }
}

impl Bed {
    fn diagnosis(&self) -> Diagnosis {
        Diagnosis::from(&Examination { look: &self.look, ..self.besides.clone() })
    }

    fn found(&self, check: &str) -> Vec<Finding> {
        let diagnosis = self.diagnosis();
        diagnosis.checks.into_iter().find(|report| report.name == check).expect("there is such a check").findings
    }

    fn not_checked(&self, check: &str) -> Vec<String> {
        let diagnosis = self.diagnosis();
        diagnosis.checks.into_iter().find(|report| report.name == check).expect("there is such a check").not_checked
    }

    /// Asserts that a check finds one thing, and that it is this.
    #[track_caller]
    fn finds(&self, check: &str, severity: Severity, subject: Subject, words: &str) {
        let found = self.found(check);
        let [finding] = &found[..] else { panic!("one finding of {check} was expected: {found:#?}") };
        assert_eq!((finding.severity, &finding.subject), (severity, &subject), "{finding:?}");
        assert!(finding.text.contains(words), "{finding:?}");
        assert_eq!(finding.action.is_some(), severity > Severity::Note, "it says what to do: {finding:?}");
    }

    fn report(&mut self, device: usize) -> &mut DeviceReport {
        &mut self.look.monitor.as_mut().unwrap().report.devices[device]
    }

    fn state(&mut self, device: u16) -> &mut DeviceState {
        self.look.states.get_mut(&DeviceId(device)).unwrap()
    }

    fn count(&mut self, device: u16, name: &str, value: u64) {
        let state = self.state(device);
        state.counters.retain(|(known, _)| known != name);
        state.counters.push((name.to_string(), value));
        self.count_of(&Subject::Device(DeviceId(device)), name, value);
    }

    fn count_of(&mut self, subject: &Subject, name: &str, value: u64) {
        let process = self.besides.processes.iter_mut().find(|process| process.subject == *subject).unwrap();
        process.counters.as_mut().unwrap().insert(name.to_string(), value);
    }

    fn running(&mut self) -> &mut RunningSet {
        self.look.running.as_mut().unwrap()
    }
}

fn d(id: u16) -> Subject {
    Subject::Device(DeviceId(id))
}

fn silence(bed: &mut Bed, device: u16) {
    *bed.state(device) = DeviceState {
        health: DeviceHealth::Silent("silent: no answer".into()),
        counters: Vec::new(),
        clock_ahead_millis: None,
    };
    let process = bed.besides.processes.iter_mut().find(|process| process.subject == d(device)).unwrap();
    process.counters = None;
}

#[test]
fn a_sound_array_has_no_findings_and_every_check_ran() {
    let diagnosis = sound().diagnosis();
    assert_eq!(diagnosis.findings(), [], "{diagnosis:#?}");
    assert_eq!((diagnosis.summary.not_checked, diagnosis.summary.is_healthy()), (0, true), "{diagnosis:#?}");
    assert_eq!(diagnosis.checks.len(), CHECKS.len());
    assert_eq!(diagnosis.summary.words(), "nothing is wrong");
}

#[test]
fn an_array_that_is_not_up_is_checked_as_far_as_possible_and_the_rest_is_listed() {
    let mut bed = sound();
    (bed.look.running, bed.look.monitor, bed.besides.processes) = (None, None, Vec::new());
    bed.look.states.clear();
    let diagnosis = bed.diagnosis();
    assert!(diagnosis.summary.is_healthy(), "{diagnosis:#?}");
    bed.look.killed = Some(braid_control::Process::own());
    bed.finds("start", Severity::Warning, Subject::Array, "its daemons ended with it");
    let unchecked = |name: &&str| !bed.not_checked(name).is_empty();
    let of_processes =
        ["daemons", "volumes", "clocks", "leases", "transactions", "tables", "memory", "disks", "versions"];
    assert!(of_processes.iter().all(unchecked), "{diagnosis:#?}");
    bed.besides.loose = Err("permission denied".into());
    assert_eq!(bed.not_checked("modes"), ["the array: permission denied"]);
}

fn lose(bed: &mut Bed) {
    let lost = vec![ByteRange { offset: 0, length: 8192 }];
    bed.look.scrubs.insert(1, ScrubRecord { lost, ..ScrubRecord::default() });
}

fn loosen(bed: &mut Bed, distrust: Option<Distrust>) {
    bed.besides.loose = Ok(vec![LooseMode { path: "/srv".into(), mode: 0o644, distrust }]);
}

#[test]
fn one_thing_that_is_wrong_is_found() {
    use Severity::{Error, Note, Warning};
    type Change = fn(&mut Bed);
    type Case = (&'static str, Severity, Subject, &'static str, Change);
    let (nbd, srv) = (Subject::Host(Generation(7), "nbd".into()), || Subject::File("/srv".into()));
    let node = || Subject::Process("node 0".into());
    let cases: [Case; 30] = [
        ("daemons", Error, d(0), "refused", |bed| bed.report(0).outdated = Some(0)),
        ("daemons", Error, Subject::LockServer(LockServerId(0)), "has expired", |bed| bed.look.hosts[1].live = false),
        ("daemons", Warning, d(1), "restarted 5 times", |bed| bed.running().devices[1].restarts = 5),
        ("daemons", Warning, d(1), "it went out 3 times", |bed| bed.report(1).outages = 3),
        ("daemons", Error, d(1), "socket /run/d1 was removed", |bed| {
            bed.besides.missing_sockets = vec![(d(1), "/run/d1".into())];
        }),
        ("daemons", Warning, node(), "restarted 5 times", |bed| {
            bed.running().nodes.push(RunningDaemon { restarts: 5, ..daemon(0) });
        }),
        ("daemons", Error, node(), "its port is taken", |bed| {
            bed.running().nodes.push(RunningDaemon { down: Some("its port is taken".into()), ..daemon(0) });
        }),
        ("volumes", Error, Subject::Volume("vol0".into()), "8 KiB", lose),
        ("clocks", Warning, d(1), "2.0 s behind", |bed| bed.state(1).clock_ahead_millis = Some(-2_000)),
        ("clocks", Error, d(1), "5.0 s ahead of", |bed| bed.state(1).clock_ahead_millis = Some(5_000)),
        ("clocks", Error, nbd, "60.4 s ahead of", |bed| {
            bed.look.hosts[0].report.counters.insert("clock_millis".into(), NOW + MINUTE);
        }),
        ("clocks", Note, Subject::Array, "stamps", |bed| {
            bed.look.monitor.as_mut().unwrap().report.stamps_ahead_millis = Some(MINUTE);
        }),
        ("leases", Error, d(1), "no lease", |bed| bed.state(1).health = DeviceHealth::NoLease),
        ("leases", Warning, d(1), "for 4 s", |bed| bed.report(1).heard_millis = Some(4_001)),
        ("transactions", Warning, d(1), "undecided", |bed| bed.count(1, "oldest_undecided_millis", 91_000)),
        ("tables", Warning, d(1), "journal to 90 %", |bed| bed.count(1, "journal_bytes_used", 90)),
        ("tables", Error, d(1), "journal to 98 %", |bed| bed.count(1, "journal_bytes_used", 98)),
        ("space", Warning, srv(), "4 %", |bed| bed.besides.spaces[0].free_bytes = 4 << 30),
        ("space", Error, srv(), "63 MiB", |bed| bed.besides.spaces[0].free_bytes = 63 << 20),
        ("space", Warning, srv(), "99 more files", |bed| bed.besides.spaces[0].free_files = 99),
        ("space", Error, srv(), "inodes", |bed| bed.besides.spaces[0].free_files = 0),
        ("folder", Error, Subject::File("/nonexistent/array".into()), "read-only", |bed| {
            bed.look.refusal = Some(Refusal::ReadOnly);
        }),
        ("memory", Warning, d(1), "512 MiB", |bed| bed.count(1, "resident_bytes", (512 << 20) + 1)),
        ("disks", Warning, d(1), "3 slots", |bed| bed.report(1).bad_slots = 3),
        ("disks", Error, d(1), "failing", |bed| bed.report(1).failing = true),
        ("disks", Warning, d(0), "7 corrupt blocks", |bed| bed.count(0, "blocks_corrupt", 7)),
        ("disks", Error, d(2), "damaged leaves", |bed| bed.count(2, "leaves_damaged", 1)),
        ("modes", Warning, srv(), "0644", |bed| loosen(bed, None)),
        ("modes", Error, srv(), "can be changed by other users", |bed| {
            loosen(bed, Some(Distrust::WritableByOthers { mode: 0o666 }));
        }),
        ("versions", Note, d(0), "/opt/braid", |bed| {
            bed.besides.processes[1].program = Program::Other("/opt/braid".into());
        }),
    ];
    for (check, severity, subject, words, change) in cases {
        let mut bed = sound();
        change(&mut bed);
        bed.finds(check, severity, subject, words);
    }
    let usual: [(&str, Change); 6] = [
        ("daemons", |bed| bed.running().devices[1].restarts = 4),
        ("clocks", |bed| bed.state(1).clock_ahead_millis = Some(-1_000)),
        ("transactions", |bed| bed.count(1, "oldest_undecided_millis", 90_000)),
        ("tables", |bed| bed.count(1, "journal_bytes_used", 89)),
        ("space", |bed| (bed.besides.spaces[0].free_files, bed.besides.spaces[0].files) = (0, 0)),
        ("memory", |bed| bed.count(1, "resident_bytes", 512 << 20)),
    ];
    for (check, change) in usual {
        let mut bed = sound();
        change(&mut bed);
        assert_eq!(bed.found(check), []);
    }
}

#[test]
fn a_daemon_that_does_not_serve_is_found() {
    let mut bed = sound();
    bed.look.monitor.as_mut().unwrap().age = Some(Duration::from_secs(50));
    bed.finds("daemons", Severity::Error, Subject::Monitor, "silent for 50 s");
    bed.look.refusal = Some(Refusal::NoInodes);
    bed.finds("daemons", Severity::Warning, Subject::Monitor, "its report is 50 s old, since the file system");
    bed.look.monitor.as_mut().unwrap().process = braid_control::Process::own().sibling(u32::MAX / 2);
    bed.finds("daemons", Severity::Warning, Subject::Monitor, "down or just started");
    assert!(bed.found("daemons")[0].text.ends_with("has no inodes left"));
    bed.look.refusal = None;
    bed.finds("daemons", Severity::Error, Subject::Monitor, "not running");

    let mut bed = sound();
    silence(&mut bed, 1);
    bed.finds("daemons", Severity::Warning, d(1), "silent");
    bed.report(1).member_state = ReportedState::Unavailable;
    bed.finds("daemons", Severity::Error, d(1), "can't serve without it");
    bed.report(1).member_state = ReportedState::Out;
    bed.finds("daemons", Severity::Warning, d(1), "out");
    bed.report(1).kept_out = true;
    assert!(bed.found("daemons")[0].action.as_ref().is_some_and(|action| action.contains("readmit 1")));

    let mut bed = sound();
    bed.report(2).member_state = ReportedState::Returning;
    bed.finds("daemons", Severity::Note, d(2), "resynchronising");
    bed.look.monitor.as_mut().unwrap().report.throttle.paused = true;
    bed.finds("daemons", Severity::Warning, d(2), "paused");

    let mut bed = sound();
    bed.look.hosts.remove(2);
    bed.running().metadata_servers[0].pid = None;
    bed.finds("daemons", Severity::Note, Subject::FileSystem("home".into()), "taking over");
    bed.running().metadata_servers[0].down = Some("it was killed".into());
    bed.finds("daemons", Severity::Error, Subject::FileSystem("home".into()), "not served");

    let mut bed = sound();
    (bed.besides.processes[2].pid, bed.besides.processes[2].is_suspended) = (123, true);
    silence(&mut bed, 1);
    bed.finds("daemons", Severity::Error, d(1), "is suspended (process 123)");
    assert_eq!(bed.found("daemons")[0].action.as_deref(), Some("resume it: `kill -CONT 123`"));
    bed.report(1).heard_millis = Some(9_000);
    assert_eq!(bed.found("leases"), [], "that follows");
}

#[test]
fn a_dead_mount_is_found_with_the_way_out_also_while_the_array_is_down() {
    let mut bed = sound();
    bed.look.running = None;
    bed.besides.dead_mounts = vec![("/mnt/a b".into(), "home".into())];
    bed.finds("mounts", Severity::Error, Subject::File("/mnt/a b".into()), "Transport endpoint is not connected");
    let way = "`braid fs unmount --force '/mnt/a b'`, then `braid fs mount home '/mnt/a b'`";
    assert_eq!(bed.found("mounts")[0].action.as_deref(), Some(way));
}

#[test]
fn a_daemon_that_crashed_is_found_once_with_its_last_crash() {
    let crash = |how: &str, signal| Crash { pid: 7, signal, exit_status: None, how: how.into() };
    let of_device = |how| daemon_crashed("device d1", Some(1), &crash(how, Some(9)));
    let mut bed = sound();
    bed.besides.crashes = Ok(vec![of_device("signal: 9 (SIGKILL)")]);
    bed.finds("crashes", Severity::Note, d(1), " (process 7): signal: 9 (SIGKILL)");
    assert_eq!(bed.found("crashes")[0].text.matches("crashed").count(), 1);
    bed.besides.crashes = Ok(vec![of_device("signal: 9 (SIGKILL)"); 4]);
    bed.finds("crashes", Severity::Note, d(1), "crashed 4 times within a day");
    bed.besides.crashes = Ok(vec![of_device("signal: 9 (SIGKILL)"); 5]);
    bed.finds("crashes", Severity::Warning, d(1), "crashed 5 times within a day");
    let panicked = Crash { pid: 7, signal: None, exit_status: Some(101), how: "panicked at here: that".into() };
    bed.besides.crashes = Ok(vec![of_device("signal: 9 (SIGKILL)"), daemon_crashed("device d1", Some(1), &panicked)]);
    bed.finds("crashes", Severity::Warning, d(1), "crashed 2 times within a day, the last time at ");
    bed.finds("crashes", Severity::Warning, d(1), "panicked at here: that");
    bed.besides.crashes = Ok(vec![daemon_crashed("the monitor", None, &crash("signal: 6 (SIGABRT)", Some(6)))]);
    bed.finds("crashes", Severity::Warning, Subject::Monitor, "SIGABRT");
    let server = "the metadata server of home";
    bed.besides.crashes = Ok(vec![daemon_crashed(server, None, &crash("signal: 9 (SIGKILL)", Some(9)))]);
    bed.finds("crashes", Severity::Note, Subject::Process(server.into()), "crashed at ");
    bed.besides.crashes = Err("permission denied".into());
    assert_eq!(bed.not_checked("crashes"), ["the array: permission denied"]);
}

#[test]
fn a_volume_without_redundancy_is_found() {
    let mut bed = sound();
    bed.look.description.volumes.truncate(1);
    bed.look.description.file_systems.clear();
    bed.report(1).member_state = ReportedState::Out;
    bed.finds("volumes", Severity::Warning, Subject::Volume("vol0".into()), "degraded");
    bed.report(2).member_state = ReportedState::Unavailable;
    bed.finds("volumes", Severity::Error, Subject::Volume("vol0".into()), "unavailable");
}

#[test]
fn a_lease_that_is_not_renewed_is_found() {
    let nbd = || Subject::Host(Generation(7), "nbd".into());
    let mut bed = sound();
    (bed.look.hosts[0].live, bed.look.hosts[0].silent) = (false, Some(Duration::from_secs(9)));
    bed.finds("leases", Severity::Warning, nbd(), "for 9 s, and loses it after 60 s");
    bed.look.refusal = Some(Refusal::ReadOnly);
    bed.finds("leases", Severity::Note, nbd(), "keeps it");
    bed.look.refusal = None;
    bed.look.hosts[0].process = braid_control::Process::own().sibling(u32::MAX / 2);
    bed.finds("leases", Severity::Note, nbd(), "has ended");
    bed.look.hosts[0].silent = Some(Duration::from_secs(73));
    bed.finds("leases", Severity::Warning, nbd(), "not fenced yet");
}

#[test]
fn a_transaction_that_nobody_decides_is_found() {
    let mut bed = sound();
    bed.count(1, "orphans", 2);
    bed.count(1, "suspects", 1);
    bed.count(1, "oldest_orphan_millis", 16_000);
    assert_eq!(bed.found("transactions"), [], "hosts may still be resolving them");
    bed.count(1, "oldest_orphan_millis", 17_000);
    bed.finds("transactions", Severity::Error, d(1), "3 transactions");

    silence(&mut bed, 1);
    assert_eq!((bed.found("transactions").len(), bed.not_checked("transactions").len()), (0, 1));
    assert_eq!(bed.not_checked("clocks"), ["device d1: it does not answer"]);
}

#[test]
fn a_table_or_a_journal_that_is_nearly_full_is_found() {
    let of_devices =
        [("hosts", 1_000), ("transactions", 65_000), ("waiting", 4_000), ("watchers", 4_000), ("answers_kept", 65_000)];
    for (name, value) in of_devices {
        let mut bed = sound();
        bed.count(2, name, value);
        assert_eq!(bed.found("tables").len(), 1, "{name}");
    }
    let server = Subject::LockServer(LockServerId(0));
    let others = [
        (Subject::Monitor, "hosts_in_fence", 4_000),
        (server.clone(), "hosts", 1_000),
        (server, "requests_in_table", 1_000_000),
        (Subject::MetadataServer("home".into()), "metadata_journal_bytes_used", 95),
        (Subject::MetadataServer("home".into()), "metadata_sessions", 1_000),
        (Subject::MetadataServer("home".into()), "metadata_room_used_blocks", 91),
    ];
    for (subject, name, value) in others {
        let mut bed = sound();
        bed.count_of(&subject, name, value);
        assert_eq!(
            bed.found("tables").iter().map(|finding| &finding.subject).collect::<Vec<_>>(),
            [&subject],
            "{name}"
        );
    }

    let mut bed = sound();
    bed.besides.processes.retain(|process| process.subject != d(1));
    assert_eq!(bed.not_checked("tables"), ["device d1: it does not run"]);
}

#[test]
fn a_folder_that_can_t_be_changed_is_found() {
    let folder = || Subject::File(PathBuf::from("/nonexistent/array"));
    let mut bed = sound();
    bed.besides.lock_holder = Some(LockHolder { pid: 77, command: "braid fs ls".into(), is_stopped: true });
    bed.finds("folder", Severity::Error, folder(), "process 77 (braid fs ls)");
    bed.besides.lock_holder = None;
    bed.besides.original = Some(Original { process: braid_control::Process::own(), dir: Some("/srv/a".into()) });
    bed.look.description.devices[2].file = "/disks/d2".into();
    bed.finds("folder", Severity::Error, Subject::Array, "a copy of the array in /srv/a");
    assert!(bed.found("folder")[0].text.contains("d2 (/disks/d2)"), "both have it");
    bed.besides.original = None;
    bed.look.unasked = Some(Failure::failed("locked", "a process holds the lock"));
    bed.look.states.clear();
    assert_eq!(bed.not_checked("folder"), ["the array: the devices were not asked: a process holds the lock"]);
    assert_eq!(bed.found("daemons"), [], "that a device was not asked is no fault of it");
    assert_eq!(bed.not_checked("transactions")[1], "device d1: it was not asked");
}

#[test]
fn a_process_above_its_memory_budget_is_found() {
    let mut bed = sound();
    bed.count(1, "resident_bytes", (512 << 20) + 1);
    bed.count(1, "memory_budget_bytes", 100 << 20);
    bed.count(1, "memory_used_bytes", 89 << 20);
    assert_eq!(bed.found("memory"), [], "what it holds for its peers comes on top");
    bed.count(1, "memory_used_bytes", 90 << 20);
    bed.finds("memory", Severity::Warning, d(1), "90 MiB for its peers");
}

#[test]
fn want_of_space_is_found() {
    for (event, subject, action) in [
        (device_full(1, 2), d(1), "remove objects"),
        (volume_full("vol0", false, 2), Subject::Volume("vol0".into()), "free space"),
        (file_system_full("home", 2), Subject::Array, "fs resize"),
    ] {
        let mut bed = sound();
        bed.besides.refused_for_space = vec![event.clone(), event];
        bed.finds("space", Severity::Warning, subject, "no space");
        assert!(bed.found("space")[0].action.as_ref().is_some_and(|said| said.contains(action)));
    }
    // Names may lack room, which does not grow with the file system.
    let mut bed = sound();
    bed.besides.refused_for_space = vec![file_system_full("home", 2)];
    bed.count_of(&Subject::MetadataServer("home".into()), "metadata_room_used_blocks", 100);
    assert!(bed.found("space")[0].action.as_ref().is_some_and(|said| said.contains("copy the files")));
    let mut bed = sound();
    bed.besides.refused_for_space = vec![volume_full("gone", false, 2)];
    assert_eq!(bed.found("space"), [], "it was deleted");
    bed.count(2, "blocks_unclaimed", 15);
    bed.finds("space", Severity::Note, d(2), "no space left");
}

#[test]
fn faults_of_device_files_are_found_also_while_the_array_is_down() {
    for (fault, text) in [
        (FileFault::Deleted { pid: 77 }, "process 77"),
        (FileFault::Renamed { pid: 77 }, "process 77"),
        (FileFault::Cut { found: 1, expected: 2 }, "cut short"),
        (FileFault::Missing("/srv/d1".into()), "/srv/d1 does not exist"),
        (FileFault::Unfit("it is short".into()), "it is short"),
    ] {
        let mut bed = sound();
        bed.look.running = None;
        bed.besides.device_files = vec![(DeviceId(1), fault)];
        bed.finds("device-files", Severity::Error, d(1), text);
        bed.look.running = snapshot().running;
        let action = bed.found("device-files").remove(0).action;
        assert!(action.is_some_and(|action| !action.contains("--degraded")), "{text}: it is up");
    }
}

#[test]
fn a_device_that_answers_more_slowly_than_the_others_is_found() {
    let with = |micros: [u64; 3]| {
        let mut bed = sound();
        bed.state(2).counters.push(("disk_response_micros".into(), 500));
        for (device, micros) in micros.into_iter().enumerate() {
            bed.look.hosts[0].report.counters.insert(format!("response_micros_d{device}"), micros);
        }
        bed
    };
    assert_eq!(with([300, 74_000, 300]).found("speed"), [], "a busy disk takes as long");
    assert_eq!(with([60_000, 180_000, 70_000]).found("speed"), [], "all are slow");
    with([300, 110_000, 400]).finds("speed", Severity::Warning, d(1), "110.0 ms, and 0.5 ms with most");
    let mut bed = with([300, 200, 400]);
    bed.state(1).counters.push(("disk_response_micros".into(), 120_000));
    bed.finds("speed", Severity::Warning, d(1), "120.0 ms");
}

#[test]
fn a_device_that_comes_or_goes_is_not_called_slow() {
    let unsettled: [fn(&mut Bed); 5] = [
        |bed| bed.report(1).changed = Some(NOW - 20_000),
        |bed| bed.report(1).changed = Some(NOW - 19_999),
        |bed| silence(bed, 1),
        |bed| bed.running().devices[1].pid = None,
        |bed| bed.report(1).member_state = ReportedState::Returning,
    ];
    let found = unsettled.map(|change| {
        let mut bed = sound();
        for (device, micros) in [("d0", 300), ("d1", 500_000), ("d2", 400)] {
            bed.look.hosts[0].report.counters.insert(format!("response_micros_{device}"), micros);
        }
        change(&mut bed);
        bed.found("speed").len()
    });
    assert_eq!(found, [1, 0, 0, 0, 0], "only the first one has served for long enough");
}

#[test]
fn a_process_with_another_program_is_found() {
    let mut bed = sound();
    bed.besides.processes[1].program = Program::Replaced;
    bed.besides.processes[2].program = Program::Replaced;
    bed.finds("versions", Severity::Warning, Subject::Array, "device d0");

    let mut bed = sound();
    let host = bed.besides.processes.iter_mut().find(|process| matches!(process.subject, Subject::Host(..))).unwrap();
    host.program = Program::Other("/opt/braid".into());
    assert_eq!(bed.found("versions"), [], "a program that uses the library");
    bed.besides.processes[0].program = Program::Unknown("no permission".into());
    assert_eq!(bed.not_checked("versions"), ["the monitor: no permission"]);
}

#[test]
fn the_status_calls_nothing_healthy_that_the_doctor_complains_of() {
    let mut bed = sound();
    lose(&mut bed);
    bed.state(1).clock_ahead_millis = Some(-7_000);
    // This process has no files of devices open, so it does not stand for theirs: no process has such a number.
    bed.look.running.iter_mut().flat_map(|set| &mut set.devices).for_each(|device| device.pid = Some(1 << 23));
    let status = Status::of(&bed.look);
    assert!(status.doctor.errors >= 2, "{:?}", status.doctor);
    let texts = [&status.volumes[0].text, &status.devices[1].text];
    assert!(texts.iter().all(|text| !text.contains("healthy")), "{texts:?}");
    assert_eq!((status.volumes[1].text.as_str(), status.devices[0].text.as_str()), ("healthy", "healthy"));
}
