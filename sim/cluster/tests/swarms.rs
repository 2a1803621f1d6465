//! Tests that run some dozens of seeds, as `braid sim attack` runs thousands. With `BRAID_SOAK` they run ten times as many.

use braid_cluster::attack::{Attack, Outcome};
use braid_cluster::{Choices, Options, Report, run};
use braid_ordering::Atomicity;

/// Simulation allocates millions of times: with this allocator it takes a fifth less time than with the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn attack(seed: u64, runs: u64, threads: usize, choices: Choices) -> Outcome {
    Attack { seed, runs: Some(runs), until: None, choices, threads: threads.try_into().ok(), keep_going: false }
        .run(|_, _| ())
}

/// Runs with one kind of faults more.
const FEW: u64 = 40;

/// The sum of so many runs from seed 0 on, none of which may fail.
fn swarm(runs: u64, choices: Choices) -> Report {
    swarm_from(0, runs, choices)
}

/// The same, from this seed on.
fn swarm_from(seed: u64, runs: u64, choices: Choices) -> Report {
    let runs = if std::env::var_os("BRAID_SOAK").is_some() { 10 * runs } else { runs };
    let outcome = attack(seed, runs, 0, choices.clone());
    if let Some(failure) = outcome.failures.first() {
        panic!("{}\n{failure}", Options::chosen(failure.seed, &choices));
    }
    println!("{}", outcome.sum);
    outcome.sum
}

/// The usual kinds of faults, and this one.
fn also(kind: &str) -> Choices {
    let also = vec![kind.parse().expect("a kind that there is")];
    Choices { also, atomicity: Some(Atomicity::Implied), ..Choices::default() }
}

#[test]
fn usual_swarm_runs_leave_everything_right() {
    let sum = swarm(100, Choices::default());
    assert_happened(
        &sum,
        &[
            (5, &["host crash", "device crash", "device crash at a disk command", "lock server crash"]),
            (5, &["blackout", "flap", "stall", "slow node", "clock step", "clock rate", "clock leap"]),
            (5, &["monitor crash", "cut of a pair", "cut of a node", "cut in halves"]),
            (5, &["cut of a pair, one way", "cut of a node, one way", "cut in halves, one way"]),
            (5, &["slow disk", "full disk", "corruption", "unreadable sector"]),
            (3, &["host fenced"]),
        ],
    );
    let (network, disks, hosts) = (&sum.network, &sum.disks, &sum.hosts);
    assert!(network.lost > 500 && network.doubled > 500 && network.damaged > 250 && network.delayed > 250, "{sum}");
    assert!(network.reordered > 500 && disks.torn > 10 && disks.lost > 10 && disks.refused > 50, "{sum}");
    assert!(hosts.resolved > 100 && hosts.retries > 500 && sum.done > 8_000, "{sum}");
    assert!(sum.stores["checkpoints"] > 50 && sum.stores["chunks_written"] > 500, "{sum}");
    assert!(hosts.restarts > 500 && hosts.lock_hits > 200 && hosts.lock_waits > 500, "{sum}");
    assert!(sum.quiet > 1_200, "too few operations ran without faults: {sum}");
    let paused = ["device crash", "cut of a node", "stall", "flap", "host crash", "monitor crash"];
    let alone = paused.iter().filter(|fault| sum.pauses.contains_key(*fault)).count();
    assert!(alone >= 3, "operations ran during {alone} of these faults alone: {sum}");
    assert!(sum.lock_servers.reasserted > 5 && sum.lock_servers.fenced > 50, "{sum}");
    assert!(hosts.full_bands > 500 && hosts.large_bands > 500 && hosts.small_bands > 500, "{sum}");
    assert!(hosts.executed > 150, "{sum}");
    assert!(sum.unjudged <= sum.runs / 75, "too many histories could not be judged: {sum}");
    // If there are few requests, or most have unknown outcomes, the checks of objects and attribute volumes say nothing.
    let (objects, volumes) = (sum.of("objects"), sum.of("attribute-volumes"));
    assert!(objects["answered"] > 1_500 && objects["swapped"] > 120 && objects["unknown"] > 20, "{sum}");
    assert!(volumes["answered"] > 150 && volumes["swapped"] > 15 && volumes["unknown"] > 20, "{sum}");
    assert!(objects["refused"] > 20 && volumes["refused"] > 8 && volumes["never happened"] > 8, "{sum}");
}

#[test]
fn file_systems_of_usual_runs_have_one_metadata_server_or_several() {
    let servers = |choices: &Choices| -> Vec<u8> {
        (0..2_000).filter_map(|seed| Some(Options::chosen(seed, choices).files()?.shards.count)).collect()
    };
    let usual = servers(&Choices::default());
    for count in 1..=3 {
        let found = usual.iter().filter(|servers| **servers == count).count();
        assert!(found >= 10, "{found} runs with {count} servers: {usual:?}");
    }
    let without = servers(&Choices { without: also("shards").also, ..Choices::default() });
    assert_eq!(without, vec![1; usual.len()]);
}

#[test]
fn writes_that_take_effect_on_arrival_leave_parity_right() {
    // A check of seed 10 takes as long as those of thirty others.
    let sum = swarm_from(11, FEW, Choices { atomicity: Some(Atomicity::Consistent), ..Choices::default() });
    assert!(sum.hosts.rows_checked > 10 && sum.hosts.rows_recomputed > 15, "{sum}");
}

/// This must happen at least so often: runs in which it does not would prove nothing.
fn assert_happened(sum: &Report, least: &[(u64, &[&str])]) {
    for (least, what) in least.iter().flat_map(|(least, all)| all.iter().map(move |what| (least, *what))) {
        assert!(sum.faults.get(what).is_some_and(|count| count >= least), "{what} too rarely: {sum}");
    }
}

/// In runs of this kind, none of which may fail.
fn happened(kind: &str, least: &[(u64, &[&str])]) {
    assert_happened(&swarm(FEW, also(kind)), least);
}

#[test]
fn programs_that_lock_ranges_exclude_each_other_and_none_waits_for_ever() {
    let sum = swarm(25, also("ranges"));
    assert_happened(&sum, &[(4, &["lock server's disk lost"])]);
    let ranges = sum.of("ranges");
    for (what, least) in [("locked", 200), ("recalled", 200), ("taken", 80), ("converted", 40), ("abandoned", 20)] {
        assert!(ranges[what] >= least, "{what} too rarely: {sum}");
    }
    for what in ["converted, not kept", "lost", "no room"] {
        assert!(ranges[what] >= 1, "{what} too rarely: {sum}");
    }
    assert!(sum.lock_servers.shrunk > 200 && sum.lock_servers.reasserted > 15, "{sum}");
}

#[test]
fn hosts_and_devices_at_one_place_fail_together() {
    let least =
        [(60, &["fault of a node"][..]), (20, &["node killed", "node cut off", "device crash at a disk command"])];
    happened("nodes", &least);
}

#[test]
fn volumes_and_devices_change_while_administrators_die() {
    happened(
        "migrate",
        &[
            (60, &["migration begun", "copy of the volume begun"]),
            (30, &["migration: done", "migration continued"]),
            (20, &["administrator died", "administrator suspended"]),
            (10, &["migration given up"]),
            (1, &["last migration ended"]),
        ],
    );
    happened(
        "reorder",
        &[
            (50, &["change: done"]),
            (30, &["change: reverted", "answers of the store lost"]),
            (10, &["administrator died", "administrator suspended"]),
            (3, &["change: done for another host"]),
            (1, &["change: Lost"]),
        ],
    );
    happened(
        "store-outage",
        &[
            (100, &["silent hosts fenced"]),
            (12, &["renewal late", "fencer died", "fencer suspended"]),
            (6, &["renewal lost", "host could not renew its lease"]),
        ],
    );
    happened(
        "create-delete",
        &[
            (60, &["creation of a volume: done"]),
            (50, &["deletion of a volume: done"]),
            (30, &["answers of the store lost"]),
            (20, &["administrator died", "administrator suspended"]),
            (10, &["deletion of a volume: done for another host", "creation of a volume: NumberUsed"]),
            (3, &["creation of a volume: done for another host"]),
        ],
    );
    happened(
        "add-remove",
        &[
            (100, &["addition or removal of a device: done"]),
            (20, &["answers of the store lost"]),
            (10, &["addition or removal of a device: done for another host", "administrator died"]),
            (3, &["addition or removal of a device: NoDevice"]),
        ],
    );
}

#[test]
fn file_systems_are_created_deleted_and_checked_while_administrators_die() {
    happened(
        "file-systems",
        &[
            (40, &["deletion of a file system: done", "file system used"]),
            (30, &["check of a file system: sound", "creation of a file system: done"]),
            (20, &["administrator died"]),
            (5, &["creation of a file system: Question", "deletion of a file system: nothing to do"]),
        ],
    );
}

#[test]
fn volumes_on_the_same_devices_keep_apart() {
    let sum = swarm(FEW, also("volumes"));
    assert!(sum.faults["volume removed, another made"] >= 20 && sum.faults["replaced disk"] >= 3, "{sum}");
    assert!(sum.unjudged <= 2, "too many histories could not be judged: {sum}");
}

#[test]
fn requests_to_attribute_volumes_happen_once_or_not_at_all() {
    // Seed 35 takes minutes: hundreds of transactions are pending, and each step looks at all of them.
    let sum = swarm_from(100, FEW, also("attribute-volumes"));
    let volumes = sum.of("attribute-volumes");
    assert!(volumes["answered"] > 3_000 && volumes["swapped"] > 500 && volumes["unknown"] > 500, "{sum}");
    assert!(sum.unjudged <= 2, "too many histories could not be judged: {sum}");
    assert!(sum.faults["replaced disk"] > 5 && sum.faults["device crash"] > 10 && sum.hosts.resolved > 150, "{sum}");
}

#[test]
fn file_systems_survive_their_metadata_servers() {
    let sum = swarm(FEW, also("files"));
    let files = sum.of("files");
    assert!(files["done"] > 1_200 && files["refused"] > 400 && files["unknown"] > 50, "{sum}");
    assert!(sum.files_unjudged <= 2, "too many histories could not be judged: {sum}");
    assert!(sum.faults["metadata server crash"] > 50 && sum.faults["metadata server taken over from"] > 20, "{sum}");
    assert!(sum.faults["metadata servers start together"] > 5 && sum.faults["metadata server cut off"] > 8, "{sum}");
    assert!(sum.faults["migration begun"] > 6 && sum.faults["change of the ordering"] > 10, "{sum}");
}

#[test]
fn one_seed_is_one_run() {
    let with_files = also("files");
    for seed in [14, 159] {
        let one = |lines| run(Options::of_seed(seed), lines).expect("these seeds do not fail");
        let of_files = || run(Options::chosen(seed, &with_files), 0).expect("these seeds do not fail").digest;
        assert_eq!(of_files(), of_files(), "seed {seed}");
        // Keeping the trace must not change the run.
        let (one, again) = (one(0), one(50));
        assert_eq!((one.digest, one.events, one.done), (again.digest, again.events, again.done), "seed {seed}");
        assert_eq!(again.trace.len(), 50);
    }
    let digest_of = |seed| run(Options::of_seed(seed), 0).expect("these seeds do not fail").digest;
    assert_ne!(digest_of(1), digest_of(2));
}

#[test]
fn threads_change_nothing_in_what_is_found() {
    let (one, three) = (attack(40, 6, 1, Choices::default()).sum, attack(40, 6, 3, Choices::default()).sum);
    assert_eq!((one.digest, one.runs, one.done), (three.digest, three.runs, three.done));
}
