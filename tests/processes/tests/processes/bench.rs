//! `braid bench`: its metrics are correct, and it removes what it has created.
//!
//! Runs are short: no assertion depends on speed.

use crate::prelude::*;

/// Arguments for an array with space for a volume of the bench in addition to the first volume.
const ROOMY: [&str; 4] = ["--size", "128MiB", "--volume", "vol0:32MiB"];
const SHORT: [&str; 10] = ["--size", "16MiB", "--seconds", "0.3", "--warm-up", "0.1", "--depth", "8", "--seed", "7"];
/// Much longer than the tests, but finite, in case the test itself is killed.
const LONG: [&str; 4] = ["--size", "16MiB", "--seconds", "150"];
const END_LIMIT: Duration = Duration::from_secs(60);

fn bench(scratch: &Scratch, arguments: &[&str]) -> Outcome {
    braid(&[&["bench", "--json", "--scratch", &scratch.text("")], &SHORT[..], arguments].concat())
}

#[track_caller]
fn assert_empty(scratch: &Scratch) {
    let left: Vec<_> = std::fs::read_dir(scratch.path("")).expect("it can be listed").collect();
    assert!(left.is_empty(), "the bench has left {left:?}");
}

#[track_caller]
fn real(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("a figure was expected, not {value}"))
}

fn runs(series: &Value) -> Vec<&Value> {
    items(&series["runs"]).iter().collect()
}

#[test]
fn figures_are_what_the_protocol_costs_and_nothing_stays() {
    let scratch = Scratch::new();
    for (reads, messages) in [("100", 2.0), ("0", 5.0)] {
        let said = bench(&scratch, &["--reads", reads, "--nodes", "0"]).done().json();
        assert_empty(&scratch);
        assert_eq!(number(&said["seed"]), 7);
        let series = items(&said["series"]);
        let ways: Vec<String> = series.iter().map(|series| text(&series["settings"]["a"]["through"])).collect();
        assert_eq!(ways, ["direct", "nbd"], "both, if none is named");
        for series in series {
            assert!(series["summary"].is_null(), "there is nothing to compare: {series}");
            let [run] = runs(series)[..] else { panic!("one run each: {series}") };
            let figure = |name: &str| &run["figures"][name];
            for name in ["operations_per_second", "mib_per_second", "latency_p50_us", "cpu_us_per_operation_devices"] {
                assert!(real(figure(name)) > 0.0, "{name}: {run}");
            }
            let (low, high) = (real(figure("latency_p50_us")), real(figure("latency_max_us")));
            assert!(low <= real(figure("latency_p99_us")) && real(figure("latency_p99_us")) <= high, "{run}");
            assert!(real(figure("device_resident_mib")) > 1.0, "{run}");
            // A read sends a request to one device. A small write sends requests to two devices, which send each other a partial. Other
            // messages are few.
            let said = real(figure("messages_per_operation"));
            assert!((messages..2.0 * messages).contains(&said), "{said} messages for what takes {messages}: {run}");
            if reads == "100" {
                assert!((0.99..1.2).contains(&real(figure("disk_reads_per_operation"))), "from the disk: {run}");
                assert!(figure("write_amplification").is_null(), "nothing was written: {run}");
            } else {
                assert!(real(figure("write_amplification")) > 2.0, "data and parity: {run}");
                assert!(real(figure("syncs_per_operation")) > 0.0, "{run}");
            }
        }
    }
}

#[test]
fn other_programs_and_placements_are_compared_in_turns_on_arrays_of_their_own() {
    let scratch = Scratch::new();
    let binary = format!("binary={}", braid_bin().display());
    let said = bench(&scratch, &["--versus", &binary, "--versus", "processes", "--pairs", "2"]).done().json();
    assert_empty(&scratch);
    let [series] = items(&said["series"]) else { panic!("another program is driven through NBD only: {said}") };
    assert_eq!(series["settings"]["b"]["through"], "nbd");
    let sides: String = runs(series).iter().map(|run| text(&run["side"])).collect();
    assert_eq!(sides, "abba", "in turns");
    for run in runs(series) {
        let of_devices = &run["figures"]["cpu_us_per_operation_devices"];
        assert_eq!(of_devices.is_null(), run["side"] == "a", "devices inside are counted with their process: {run}");
        assert!(real(&run["figures"]["cpu_us_per_operation"]) > 0.0, "{run}");
    }
    let summary = &series["summary"]["operations_per_second"];
    assert!(
        real(&summary["ratio"]) > 0.0 && summary["interval"].is_null(),
        "two pairs are not sure of anything: {said}"
    );
}

#[test]
fn the_orderings_stand_beside_each_other_with_what_each_costs() {
    let scratch = Scratch::new();
    let short = ["--size", "8MiB", "--seconds", "0.5", "--warm-up", "0.1", "--hosts", "2", "--rounds", "1", "--json"];
    for place in [&[][..], &["--nodes=1"]] {
        let folder = scratch.text("");
        let arguments = [&["bench", "orderings", "--scratch", &folder], &short[..], place].concat();
        let said = braid(&arguments).done().json();
        assert_empty(&scratch);
        let orderings = items(&said["orderings"]);
        let names: Vec<String> = orderings.iter().map(|ordering| text(&ordering["ordering"])).collect();
        assert_eq!(names, ["none", "server-lock", "callback-lock", "device-lock", "timestamp"]);
        let figure = |ordering: usize, name: &str| real(&orderings[ordering]["medians"][name]);
        for (index, ordering) in orderings.iter().enumerate() {
            assert!(figure(index, "operations_per_second") > 0.0, "{ordering}");
            assert!(figure(index, "latency_mean_us") >= figure(index, "latency_p50_us") / 2.0, "{ordering}");
            let ratio = real(&ordering["ratios"]["operations_per_second"]["ratio"]);
            assert!(if index == 0 { ratio == 1.0 } else { ratio > 0.0 }, "{ordering}");
            assert_eq!(items(&ordering["runs"]).len(), 1);
        }
        assert_eq!(figure(0, "delayed_percent"), 0.0, "no operation is delayed: {said}");
        // A request and an answer to lock and to unlock; heartbeats add few messages.
        assert!((3.9..8.0).contains(&figure(1, "lock_messages_per_operation")), "{said}");
        // If two hosts access everything evenly, half of the locks are cached by the other host.
        assert!(figure(2, "lock_messages_per_operation") > 0.5 && figure(2, "delayed_percent") > 5.0, "{said}");
        for ordering in [1, 2, 3, 4] {
            let (here, none) = (figure(ordering, "messages_per_operation"), figure(0, "messages_per_operation"));
            // Without a lock server ordering costs next to nothing, and random differences between such short runs weigh more.
            let least = if ordering < 3 { none } else { 0.8 * none };
            assert!(here > least, "protection costs messages: {said}");
        }
    }
}

#[test]
fn locks_of_devices_stand_beside_those_of_a_lock_server() {
    let (scratch, folder) = (Scratch::new(), Scratch::new());
    let out = folder.text("plots");
    let short = ["--locks", "10", "--rounds", "1", "--seed", "7", "--json", "--nodes=1"];
    let line = ["bench", "locks", "--scratch", &scratch.text(""), "--processes", "4", "--out", &out];
    let said = braid(&[&line[..], &["--devices", "1,2", "--objects", "1,20"], &short[..]].concat()).done().json();
    assert_empty(&scratch);
    let rows = items(&said["rows"]);
    let figure = |series: &str, x: u64, metric: &str| {
        let found = rows.iter().find(|row| row["series"] == series && row["x"] == x as f64 && row["metric"] == metric);
        real(&found.unwrap_or_else(|| panic!("no {metric} of {series} at {x}: {said}"))["ours"])
    };
    let ways = ["with one-trip unlock", "with one request", "and a lock manager"].map(|way| format!("1 device {way}"));
    for series in ["1 device", "2 devices", "lock server in memory"].into_iter().chain(ways.iter().map(String::as_str))
    {
        assert!(figure(series, 1, "throughput_ops") > 0.0 && figure(series, 20, "latency_p50_ms") > 0.0, "{said}");
    }
    // Two requests for each lock, and more under contention; a single request that does all steps has no contention.
    assert!(figure("1 device", 1, "requests_per_lock") > 2.0, "{said}");
    assert_eq!(figure("1 device with one request", 1, "requests_per_lock"), 1.0);
    let drawn = std::fs::read_to_string(folder.path("plots/locks.svg")).expect("it was drawn");
    assert!(drawn.contains("lock server in memory") && folder.path("plots/locks.json").exists());

    let line = ["bench", "locks", "--contention", "--scratch", &scratch.text(""), "--processes", "1,3"];
    let said = braid(&[&line[..], &short[..]].concat()).done().json();
    assert_empty(&scratch);
    let efficiencies = items(&said["rows"]).iter().filter(|row| row["metric"] == "efficiency");
    let (mut seen, mut panels) = (0, std::collections::BTreeSet::new());
    for row in efficiencies {
        let alone = row["x"] == 1.0 || row["series"] == "uncontended";
        assert!(if alone { real(&row["ours"]) == 1.0 } else { real(&row["ours"]) < 1.0 }, "{row}");
        panels.insert(text(&row["panel"]));
        seen += 1;
    }
    assert_eq!((seen, panels.len()), (3 * 8 * 2, 3), "{said}");
    braid(&["bench", "locks", "--scratch", &scratch.text(""), "--out", &out, "--json"]).refused(2, "exists");
}

#[test]
fn on_an_array_that_is_there_only_a_volume_of_its_own_is_touched() {
    let array = Array::up(&ROOMY);
    let hosts = items(&array.status()["hosts"]).len();
    let content = noise(seed(), 1 << 20);
    Client::open(&array.nbd()).write(0, &content).expect("a write works");
    let arguments = [&["bench"], &SHORT[..], &["--reads", "50", "--clients", "2", "--block-max", "64KiB"]].concat();
    let said = array.braid(&arguments).done().json();
    for series in items(&said["series"]) {
        assert!(real(&runs(series)[0]["figures"]["operations_per_second"]) > 0.0, "{series}");
    }
    let status = array.status();
    assert_eq!(items(&status["volumes"]).len(), 1, "{status}");
    assert_eq!(items(&status["hosts"]).len(), hosts, "its hosts are gone: {status}");
    array.assert_reads(0, &content);
    array.assert_sound("vol0");
}

#[test]
fn an_interrupt_or_a_kill_ends_it_with_everything_it_has_made() {
    // The runs of the second one are short: some of them are done.
    let short = [&["atomics", "--seconds", "0.01", "--warm-up", "0"][..], &["get"; 9000]].concat();
    for (arguments, how) in [(&LONG[..], Signal::INT), (&short, Signal::INT), (&LONG, Signal::KILL)] {
        let scratch = Scratch::new();
        let (mut bench, pids) = endless(&scratch, arguments);
        let said = bench.0.stdout.take().expect("it is piped");
        signal(bench.0.id(), how);
        if how == Signal::INT {
            let said: Value = serde_json::from_reader(said).expect("it is JSON");
            let figures = said["runs"].as_array().map_or(0, Vec::len);
            assert_eq!(figures > 0, arguments == short, "{said}");
        }
        assert!(has_ended_within(bench.0.id(), END_LIMIT), "it still runs");
        let status = bench.0.wait().expect("it can be waited for").code();
        gone(&pids);
        if how == Signal::INT {
            assert_eq!(status, Some(1));
            assert_empty(&scratch);
        }
    }
}

/// A bench that runs for a long time, killed when dropped.
struct Endless(Child);

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a bench with a long run, and returns the processes of its array.
fn endless(scratch: &Scratch, arguments: &[&str]) -> (Endless, Vec<u32>) {
    let mut command = Command::new(braid_bin());
    command.arg("bench").args(arguments).args(["--json", "--scratch", &scratch.text("")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).env_remove("BRAID_ARRAY");
    let bench = Endless(command.spawn().expect("braid can be started"));
    let array = scratch.text(&format!("braid-bench-{}/array-0", bench.0.id()));
    let mut status = Value::Null;
    wait_until("it drives an array", END_LIMIT, || {
        let outcome = braid(&["status", "--json", "--array", &array]);
        status = serde_json::from_str(outcome.stdout.trim()).unwrap_or_default();
        let hosts = status["hosts"].as_array().into_iter().flatten();
        let mut answers = hosts.filter(|host| host["role"] == "bench").map(|host| &host["counters"]["answers"]);
        answers.any(|count| count.as_u64().is_some_and(|count| count > 1000))
    });
    let devices = items(&status["devices"]);
    let pids = devices.iter().map(|device| &device["pid"]).chain([&status["pid"]]);
    (bench, pids.map(|pid| number(pid) as u32).collect())
}
