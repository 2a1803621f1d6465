//! Hostile peers at every socket of an array, while clients work: nothing is wrong, no daemon ends, none exceeds its memory budget, and
//! new hosts get in.

use crate::prelude::*;
use braid_processes::attacker::Attack;

/// As many as were enough to shut out new hosts when a daemon had 2,048 places for all connections.
const HALF_OPEN: usize = 2_176;
/// How long a new host may take to get in.
const ADMISSION_LIMIT: Duration = Duration::from_secs(10);
/// The attacker's share of one processor.
const SHARE: f64 = 0.1;
/// How much of its memory budget a process may take, caches, code, and allocator included.
fn limit(budget: u64) -> u64 {
    budget / 4 * 5
}

/// Pairs of phases, without and with the attack, in the long form.
const PAIRS: u32 = 5;

/// How many pairs of phases, and how long each phase is.
fn phases() -> (u32, Duration) {
    let asked = std::env::var("BRAID_HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok());
    let pairs = if soak() { PAIRS } else { 1 };
    (pairs, Duration::from_secs(asked.unwrap_or(if soak() { 300 } else { 5 })) / pairs)
}

/// Each phase has its own part of the volume.
fn plan(array: &Array, begin: u64) -> Plan {
    Plan { cell_bytes: 4096, begin, ..Plan::apart(&[array.nbd()]) }
}

#[test]
fn clients_work_on_while_every_socket_is_attacked() {
    let array = Array::patient();
    // For its lock server.
    array.braid(&["volume", "create", "locked", "--size", "1MiB", "--ordering", "server-lock"]).done();
    array.await_status("a lock server serves", |status| status["lock_servers"][0]["state"] == "serving");
    let pids = processes(&array.status());
    let (pairs, span) = phases();
    let (mut most, mut admitted, mut ratios) = ([0, 0], Vec::new(), Vec::new());
    for pair in 0..pairs {
        let before = processor_time(&array.status());
        let calm = work(&array, u64::from(pair) * (2 << 20), span, &mut |_| ());
        let between = processor_time(&array.status());
        let attack = Attack::start(&array, SHARE, if soak() { HALF_OPEN } else { 300 });
        let (begun, mut admission) = (Instant::now(), None);
        let attacked = work(&array, u64::from(pair) * (2 << 20) + (16 << 20), span, &mut |status| {
            most = [0, 1].map(|index| most[index].max(greatest(status)[index]));
            if admission.is_none() && begun.elapsed() >= span / 2 {
                let begun = Instant::now();
                let (host, _) = array.host();
                admission = Some(begun.elapsed());
                drop(host);
            }
        });
        let done = attack.stop();
        assert!(done.closed > 0, "{done:?}");
        println!("{calm:.0} operations/s without and {attacked:.0} with the attack: {:.2}; {done:?}", attacked / calm);
        let after = processor_time(&array.status());
        for (name, after) in &after {
            let [before, between] = [&before, &between].map(|times| times.get(name).copied().unwrap_or_default());
            let of = |time: Duration| time.as_secs_f64() / span.as_secs_f64();
            println!(
                "  {name}: {:.3} processors without, {:.3} with the attack",
                of(between - before),
                of(*after - between)
            );
        }
        ratios.push(attacked / calm);
        admitted.extend(admission);
    }
    ratios.sort_by(f64::total_cmp);
    println!(
        "median {:.2}, from {:.2} to {:.2}; new hosts were in after {admitted:.1?}; most memory held for peers: {} MiB, resident: {} MiB",
        ratios[ratios.len() / 2],
        ratios[0],
        ratios[ratios.len() - 1],
        most[0] >> 20,
        most[1] >> 20
    );
    let status = array.status();
    assert_eq!(processes(&status), pids, "no daemon had to be started again: {status:#}");
    let budget = number(&status["monitor"]["counters"]["memory_budget_bytes"]);
    assert!(most[0] <= budget, "{} of {budget} bytes are held", most[0]);
    assert!(most[1] <= limit(budget), "{} bytes are resident", most[1]);
    assert_eq!(admitted.len(), pairs as usize, "the status was looked at");
    assert!(admitted.iter().all(|took| *took < ADMISSION_LIMIT), "new hosts took {admitted:?}");
    array.assert_sound("vol0");
}

#[test]
fn no_process_takes_more_than_its_budget_and_a_quarter() {
    let arguments = ["--size", "128MiB", "--volume", "vol0:32MiB", "--memory", "96MiB"];
    let array = Array::patient_up(&arguments);
    array.braid(&["volume", "create", "locked", "--size", "1MiB", "--ordering", "server-lock"]).done();
    let full = array.braid(&["volume", "create", "full", "--size", "16MiB"]).done().json();
    let mut client = Client::open(text(&full["nbd"]).as_str());
    (0..16).for_each(|at| client.write(at << 20, &noise(at, 1 << 20)).expect("written"));
    drop(client);
    array.await_status("a lock server serves", |status| status["lock_servers"][0]["state"] == "serving");
    let load = Load::start(plan(&array, 16 << 20));
    let attack = Attack::on_memory(&array, 3.0 * SHARE, number(&full["volume"]["id"]));
    let mut most = [0, 0];
    keep_doing(phases().1, || {
        let seen = greatest(&array.status());
        most = [0, 1].map(|index| most[index].max(seen[index]));
    });
    println!("{:?}", attack.stop());
    load.go_on();
    load.stop().verify(&array.nbd());
    println!("most memory held for peers: {} MiB, resident: {} MiB", most[0] >> 20, most[1] >> 20);
    assert!(most[0] > 8 << 20, "what they ask for is many times the budget: {most:?}");
    assert!(most[1] <= limit(96 << 20), "{most:?}");
}

/// Lets clients write and verify for a while, and looks at the status meanwhile. Returns operations per second.
fn work(array: &Array, begin: u64, span: Duration, look: &mut dyn FnMut(&Value)) -> f64 {
    let load = Load::start(plan(array, begin));
    let begun = Instant::now();
    while begun.elapsed() < span {
        load.go_on();
        look(&array.status());
    }
    let took = begun.elapsed();
    let mut record = load.stop();
    record.verify(&array.nbd());
    record.operations as f64 / took.as_secs_f64()
}

/// The process of each daemon.
fn processes(status: &Value) -> Vec<u64> {
    let devices = items(&status["devices"]).iter();
    let servers = items(&status["lock_servers"]).iter();
    devices.chain(servers).chain([&status["monitor"]]).map(|daemon| number(&daemon["pid"])).collect()
}

/// The processor time that each kind of daemon has used.
fn processor_time(status: &Value) -> BTreeMap<&'static str, Duration> {
    let of_kind = |kind| {
        let daemons =
            status[kind].as_array().into_iter().flatten().chain(status[kind].as_object().map(|_| &status[kind]));
        let micros = daemons.filter_map(|daemon| daemon["counters"]["cpu_micros"].as_u64());
        (kind, Duration::from_micros(micros.sum()))
    };
    ["devices", "hosts", "lock_servers", "monitor"].map(of_kind).into()
}

/// Of all processes, the most memory that is held for peers, and the most that is resident.
fn greatest(status: &Value) -> [u64; 2] {
    let lists = ["devices", "lock_servers", "hosts"];
    let parts = lists.iter().flat_map(|list| items(&status[list])).chain([&status["monitor"]]);
    let counters: Vec<&Value> = parts.map(|part| &part["counters"]).collect();
    ["memory_used_bytes", "resident_bytes"]
        .map(|name| counters.iter().filter_map(|counters| counters[name].as_u64()).max().unwrap_or_default())
}
