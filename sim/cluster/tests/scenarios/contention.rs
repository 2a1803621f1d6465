//! Tests of contention: several hosts use the same stripes at once, without faults. With every ordering that keeps hosts apart there
//! must be no starvation, and deadlocks must end. Without an ordering, the final checks must find the damage.

use crate::story::*;
use braid_base::limits::Settings;
use braid_cluster::{Report, run};
use braid_host::Acquisition;
use braid_wire::LockCommand;

/// A stripe: four units of two blocks.
const STRIPE: u64 = 8 * BLOCK;

/// Sixteen clients of four hosts use the same two stripes, one operation after the other, almost without think time.
fn crowd(seed: u64, ordering: Ordering, acquisition: Acquisition) -> Options {
    let mut options = two_stripes(ordering, acquisition);
    options.seed = seed;
    (options.hosts, options.clients, options.operations) = (4, 4, 400);
    options.think_max = Duration::from_micros(100);
    options.swarm = Duration::from_secs(100);
    // Messages are reordered, so that two transactions often arrive at two devices in different orders.
    options.faults.network.in_order = false;
    options.faults.network.latency_max = Duration::from_micros(500);
    options
}

/// Two stripes, each at another lock server if there are any.
fn two_stripes(ordering: Ordering, acquisition: Acquisition) -> Options {
    let options = Options::calm("raid5:4+1", 5, 2, 2).ordered_by(ordering);
    let lock_servers = if ordering.needs_lock_server() { 2 } else { 0 };
    let settings = Settings { stripes_per_lock_server: 1, ..Settings::default() };
    Options { lock_servers, acquisition, settings, ..options }
}

/// Every operation of a few runs succeeds, and none takes longer than this many milliseconds. Where locks are requested in order, or where
/// they wait for nothing, there is no deadlock.
#[test]
fn no_ordering_starves_a_transaction_and_deadlocks_end() {
    use Acquisition::{Ordered, Timeout};
    let cases = [
        (Ordering::Timestamp, Ordered, 500),
        (Ordering::DeviceLock, Ordered, 2_000),
        (Ordering::ServerLock, Ordered, 200),
        (Ordering::ServerLock, Timeout, 1_000),
        (Ordering::CallbackLock, Ordered, 200),
    ];
    for (ordering, acquisition, most) in cases {
        let mut sum = Report::default();
        for seed in 0..3 {
            let options = crowd(seed, ordering, acquisition);
            match run(options.clone(), 0) {
                Ok(report) => sum.add(&report),
                Err(failure) => panic!("{options}\n{failure}"),
            }
        }
        let is_prompt = sum.unknown.is_empty() && sum.slowest < Duration::from_millis(most);
        assert!(is_prompt, "{ordering}, {acquisition:?}: an operation waits for too long: {sum}");
        assert!(sum.hosts.delayed > sum.done / 2, "{ordering}, {acquisition:?}: most operations must conflict: {sum}");
        match (ordering, acquisition) {
            (Ordering::Timestamp, _) => {}
            (Ordering::DeviceLock, _) => assert!(sum.hosts.restarts > 100, "{sum}"),
            (_, Timeout) => assert!(sum.hosts.restarts > 0, "{sum}"),
            (_, Ordered) => assert_eq!((sum.hosts.restarts, sum.hosts.retries), (0, 0), "{ordering}: {sum}"),
        }
        let keeps = sum.hosts.lock_hits > 20 && sum.hosts.revocations > 500;
        assert!(keeps || ordering != Ordering::CallbackLock, "{sum}");
    }
}

#[test]
fn the_trace_notes_why_transactions_are_refused_retried_and_resolved() {
    let notes =
        |trace: &[String], note: &str| trace.iter().filter(|line| line.contains(&format!(" {note} {{ "))).count();
    let crowded = run(crowd(0, Ordering::Timestamp, Acquisition::Ordered), usize::MAX).expect("no fault happens");
    // The trace keeps every line, and no host is restarted, which would begin its counters anew.
    assert_eq!(notes(&crowded.trace, "Retried") as u64, crowded.hosts.retries);
    assert!(notes(&crowded.trace, "Refused") > 10, "{crowded}");
    // Of hosts that crash, others find out what has become of their transactions.
    let resolved = |seed: u64| notes(&run(Options::of_seed(seed), usize::MAX).expect("it is right").trace, "Resolved");
    assert!((0..5).any(|seed| resolved(seed) > 0));
}

#[test]
fn without_ordering_crowds_break_parity() {
    let check_of = |seed| run(crowd(seed, Ordering::None, Acquisition::Ordered), 0).expect_err("it must fail").check;
    let found: Vec<&str> = (0..8).map(check_of).collect();
    // Where parity matches by chance, the history shows the damage.
    assert!(found.iter().filter(|check| **check == "parity").count() > 4, "{found:?}");
}

#[test]
fn without_ordering_every_crowd_sees_what_no_order_explains() {
    for seed in 0..8 {
        let mut options = crowd(seed, Ordering::None, Acquisition::Ordered);
        // Without parity only the histories show the damage.
        options.layout = layout("raid0:3", 3, 2);
        let failure = run(options, 0).expect_err("without an ordering the run must fail");
        assert_eq!(failure.check, "serializable", "seed {seed}: {failure}");
    }
}

/// Two hosts start the same write; lock requests from the first host to `ours` and from the second host to `theirs` are late. Returns
/// the number of retries of both.
fn crossing(options: Options, ours: NodeId, theirs: NodeId) -> u64 {
    let (mut array, a, b) = array_of(options);
    let ways = [(array.node(a), ours), (array.node(b), theirs)];
    array.world.network.delay_if(Duration::from_millis(5), move |from, to, message| {
        asks_for_locks(message) && ways.contains(&(from, to))
    });
    let writes = [array.write(a, 0, 2 * STRIPE), array.write(b, 0, 2 * STRIPE)];
    array.run_for(Duration::from_millis(10));
    array.world.network.heal();
    let took = time_of(&mut array, |array| all_succeed(array, writes, "crossing"));
    assert!(took < Duration::from_secs(1), "deadlocks end soon");
    let restarts = [a, b].map(|slot| counters(&array, slot).restarts);
    all_is_well(array);
    restarts.iter().sum()
}

fn asks_for_locks(message: &Message) -> bool {
    match message {
        Message::LockRequest(request) => matches!(request.command, LockCommand::Lock { .. }),
        _ => matches!(command_of(message), Some(Command::Prewrite { .. })),
    }
}

#[test]
fn deadlocks_over_two_nodes_end_by_time_out_and_lock_servers_asked_in_order_make_none() {
    let devices = [0, 1].map(device);
    let servers = [0, 1].map(|number| NodeId::LockServer(LockServerId(number)));
    let cases = [
        (Ordering::DeviceLock, Acquisition::Ordered, devices, true),
        (Ordering::ServerLock, Acquisition::Timeout, servers, true),
        (Ordering::ServerLock, Acquisition::Ordered, servers, false),
        (Ordering::CallbackLock, Acquisition::Ordered, servers, false),
    ];
    for (ordering, acquisition, [ours, theirs], is_deadlock) in cases {
        let restarts = crossing(two_stripes(ordering, acquisition), ours, theirs);
        assert_eq!(restarts > 0, is_deadlock, "{ordering}, {acquisition:?}: {restarts} restarts");
    }
}

#[test]
fn hosts_that_each_keep_the_others_locks_do_not_deadlock() {
    let (mut array, a, b) = array_of(two_stripes(Ordering::CallbackLock, Acquisition::Ordered));
    for round in 0..10 {
        // Each host keeps the locks of one stripe; then both need both.
        let own = [array.write(a, 0, STRIPE), array.write(b, STRIPE, STRIPE)];
        all_succeed(&mut array, own, "no conflict");
        let both = [array.write(a, 0, 2 * STRIPE), array.write(b, 0, 2 * STRIPE)];
        let took = time_of(&mut array, |array| all_succeed(array, both, round));
        assert!(took < Duration::from_millis(100), "round {round}");
    }
    all_is_well(array);
}
