//! Scenarios in which several hosts share the rebuild of a new disk: the recovery coordinator, and rebuild workers.

use crate::healing::{healing, renew, restore_of, throttle};
use crate::story::*;

/// The device that gets a new disk.
const REBUILT: u16 = 1;

/// What the hosts have restored on the device.
#[derive(Debug, Default)]
struct Restored {
    seen: BTreeSet<TransactionId>,
    blocks: BTreeMap<Generation, BTreeSet<u64>>,
}

type Restores = Rc<RefCell<Restored>>;

/// 2,000 blocks on each device, with content, and two hosts. The first one becomes the recovery coordinator.
fn array_with_content() -> (Cluster, HostSlot, HostSlot) {
    filled_array_of(Options { device_bytes: 32 << 20, ..Options::calm("raid5:2+1", 3, 16, 125) })
}

/// Watches the restores, and delays those of each host: a host without a delay is as fast as the network.
fn watch_restores(array: &mut Cluster, delays: &[(HostSlot, u64)]) -> Restores {
    let delays: BTreeMap<_, _> = delays.iter().map(|(host, millis)| (array.generation(*host), *millis)).collect();
    let restores = Restores::default();
    let noted = restores.clone();
    array.world.network.set_rule(move |_, to, message| {
        let Some(transaction) = restore_of(message, to, REBUILT) else { return Verdict::Pass };
        let Restored { seen, blocks } = &mut *noted.borrow_mut();
        if seen.insert(transaction) {
            blocks.entry(transaction.host).or_default().extend(blocks_written(message));
        }
        delays.get(&transaction.host).map_or(Verdict::Pass, |millis| Verdict::Delay(Duration::from_millis(*millis)))
    });
    restores
}

impl Restored {
    fn by(&self, host: Generation) -> u64 {
        self.blocks.get(&host).map_or(0, |blocks| blocks.len() as u64)
    }

    /// The blocks that were restored by several hosts.
    fn twice(&self) -> u64 {
        let all: BTreeSet<_> = self.blocks.values().flatten().collect();
        self.blocks.values().map(|blocks| blocks.len() as u64).sum::<u64>() - all.len() as u64
    }
}

#[test]
fn several_hosts_share_a_rebuild_and_seldom_restore_the_same_blocks() {
    with_each([0, 1, 2], array_with_content, |array, [a, b], more| {
        let more: Vec<_> = (0..more).map(|_| array.add_host()).collect();
        let hosts: Vec<_> = [a, b].into_iter().chain(more).collect();
        let delays: Vec<_> = hosts.iter().map(|host| (*host, 150)).collect();
        let restores = watch_restores(array, &delays);
        renew(array, b, REBUILT);
        wait_in(array, REBUILT);
        let blocks = array.volume().component_blocks();
        let restored = restores.borrow();
        let shares: Vec<_> = hosts.iter().map(|host| restored.by(array.generation(*host))).collect();
        let least = blocks / hosts.len() as u64 / 4;
        assert!(shares.iter().all(|share| *share > least), "{shares:?} of {blocks}");
        assert!(restored.twice() < blocks / 8, "{} of {blocks} were restored twice: {shares:?}", restored.twice());
        drop(restored);
    });
}

#[test]
fn a_rebuild_worker_that_is_much_faster_than_the_coordinator_restores_most_and_all_of_it_is_counted() {
    let (mut array, a, b) = array_with_content();
    let blocks = array.volume().component_blocks();
    let restores = watch_restores(&mut array, &[(a, 1_000), (b, 10)]);
    renew(&mut array, b, REBUILT);
    let mut last = (0, 0);
    wait_while_returning(&mut array, |array| {
        let Some(progress) = healing(array, a) else { return };
        assert!(progress.done >= last.0, "{progress:?}");
        assert!(progress.done + progress.left <= blocks + blocks / 20, "{progress:?} of {blocks}");
        last = (progress.done, progress.left);
    });
    let (done, left) = last;
    assert!((blocks - blocks / 20..=blocks + blocks / 20).contains(&done) && left == 0, "{last:?} of {blocks}");
    let (slow, fast) = (restores.borrow().by(array.generation(a)), restores.borrow().by(array.generation(b)));
    assert!(slow > 0 && fast > slow, "{slow} and {fast} of {blocks}");
    all_is_well(array);
}

/// Runs until the device is in.
fn wait_while_returning(array: &mut Cluster, mut look: impl FnMut(&Cluster)) {
    let begun = array.world.now();
    while !is_in(array, REBUILT) {
        look(array);
        array.run_for(Duration::from_millis(5));
        assert!(array.world.now().since(begun) < Duration::from_secs(100), "the rebuild ends");
    }
}

#[test]
fn a_rebuild_ends_when_a_rebuild_worker_has_died() {
    let (mut array, a, b) = array_with_content();
    let restores = watch_restores(&mut array, &[(a, 100), (b, 100)]);
    let worker = array.generation(b);
    renew(&mut array, a, REBUILT);
    wait_until(&mut array, "the worker restores", |_| restores.borrow().by(worker) > 100);
    array.crash(array.node(b));
    wait_in(&mut array, REBUILT);
    let blocks = array.volume().component_blocks();
    assert!(restores.borrow().by(worker) < blocks, "it did not restore everything");
    all_is_well(array);
}

#[test]
fn a_rebuild_worker_becomes_the_coordinator_when_that_has_died() {
    let (mut array, a, b) = array_with_content();
    let restores = watch_restores(&mut array, &[(a, 200), (b, 200)]);
    let (first, second) = (array.generation(a), array.generation(b));
    renew(&mut array, b, REBUILT);
    let coordinator = |array: &Cluster| match member_state(array, REBUILT) {
        Some(MemberState::Returning { recovery_coordinator }) => recovery_coordinator,
        _ => None,
    };
    wait_until(&mut array, "both restore", |_| restores.borrow().by(first) > 0 && restores.borrow().by(second) > 100);
    assert_eq!(coordinator(&array), Some(first));
    array.crash(array.node(a));
    wait_until(&mut array, "the worker coordinates", |array| coordinator(array) == Some(second));
    assert!(restores.borrow().by(second) < array.volume().component_blocks());
    wait_in(&mut array, REBUILT);
    let end = BlockRange::new(0, array.volume().component_blocks());
    let all: BTreeSet<_> = restores.borrow().blocks.values().flatten().copied().collect();
    assert!(end.blocks().all(|block| all.contains(&block)), "everything was restored");
    all_is_well(array);
}

#[test]
fn a_host_that_joins_during_a_rebuild_takes_part() {
    let (mut array, a, b) = array_with_content();
    array.crash(array.node(b));
    let restores = watch_restores(&mut array, &[(a, 400)]);
    renew(&mut array, a, REBUILT);
    wait_until(&mut array, "the coordinator restores", |_| !restores.borrow().blocks.is_empty());
    let joined = array.add_host();
    wait_in(&mut array, REBUILT);
    assert!(restores.borrow().by(array.generation(joined)) > 0);
    all_is_well(array);
}

#[test]
fn rebuild_workers_are_idle_beside_users_and_under_limits() {
    let limits = [
        (RecoveryThrottle { paused: true, ..RecoveryThrottle::default() }, false),
        (RecoveryThrottle { bytes_per_second: 4 << 20, ..RecoveryThrottle::default() }, false),
        (RecoveryThrottle { share: 50, ..RecoveryThrottle::default() }, false),
        (RecoveryThrottle::default(), true),
    ];
    with_each(limits, array_with_content, |array, [a, b], (limit, users)| {
        let blocks = array.volume().bytes / BLOCK;
        throttle(array, a, RecoveryThrottle { paused: true, ..RecoveryThrottle::default() });
        let restores = watch_restores(array, &[(a, 400)]);
        let (coordinator, worker) = (array.generation(a), array.generation(b));
        renew(array, a, REBUILT);
        for number in 0..50 {
            if number == 20 {
                throttle(array, a, limit);
            }
            if users {
                // Users of the coordinator.
                content(array, a, number * 997 % blocks * BLOCK, BLOCK);
            }
            array.run_for(Duration::from_millis(50));
        }
        assert!(is_returning(array, REBUILT));
        assert_eq!(restores.borrow().by(worker), 0, "{limit:?}");
        assert_eq!(restores.borrow().by(coordinator) > 0, !limit.paused);
        // Without limits it takes part.
        throttle(array, a, RecoveryThrottle::default());
        wait_in(array, REBUILT);
        assert!(restores.borrow().by(worker) > 0, "{limit:?}");
    });
}
