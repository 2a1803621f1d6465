//! Seeds: some hundreds of whole runs, as `attack` has them by the thousand.

use braid_cluster::{Options, Report, run};

fn storm(seeds: std::ops::Range<u64>) -> Report {
    let mut sum = Report::default();
    for seed in seeds {
        match run(Options::of_seed(seed), 0) {
            Ok(report) => sum.add(&report),
            Err(failure) => panic!("{}\n{failure}", Options::of_seed(seed)),
        }
    }
    sum
}

#[test]
fn eight_hundred_storms_leave_everything_right() {
    let sum = storm(0..800);
    println!("{sum}");
    // A storm in which nothing happened would prove nothing.
    for fault in
        ["host crash", "device crash", "device crash at a disk command", "stall", "cut", "clock step", "slow disk"]
    {
        assert!(sum.faults.get(fault).is_some_and(|count| *count > 50), "{fault} is hardly tried: {sum}");
    }
    let (network, hosts) = (&sum.network, &sum.hosts);
    assert!(network.lost > 1_000 && network.doubled > 1_000 && network.damaged > 500 && network.delayed > 500, "{sum}");
    assert!(hosts.resolved > 200 && hosts.retries > 1_000 && sum.done > 30_000, "{sum}");
    assert!(sum.stores["checkpoints"] > 500 && sum.stores["chunks_written"] > 1_000, "{sum}");
    assert!(sum.faults["lock server crash"] > 50 && sum.faults["host fenced"] > 20, "{sum}");
    assert!(hosts.restarts > 1_000 && hosts.lock_hits > 1_000 && hosts.lock_waits > 1_000, "{sum}");
    assert!(sum.lock_servers.reasserted > 20 && sum.lock_servers.fenced > 100, "{sum}");
    assert!(hosts.full_bands > 1_000 && hosts.large_bands > 1_000 && hosts.small_bands > 1_000, "{sum}");
}

#[test]
fn one_seed_is_one_run() {
    for seed in [3, 14, 159] {
        let (one, again) = (storm(seed..seed + 1), storm(seed..seed + 1));
        assert_eq!((one.digest, one.events, one.done), (again.digest, again.events, again.done), "seed {seed}");
    }
    assert_ne!(storm(1..2).digest, storm(2..3).digest);
}
