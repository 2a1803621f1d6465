//! Objects with absent blocks: only a recovery coordinator creates them, and a device that is in does not keep them.

use crate::bench::*;

const COORDINATOR: Generation = Generation(5);
const OTHER: Generation = Generation(6);
const NEW: ObjectId = ObjectId(70);

fn create(object: ObjectId, absent: u64) -> Task {
    let (ordering, atomicity) = (Ordering::Timestamp, Atomicity::Implied);
    Task::CreateObject { object, first: 0, blocks: 64, ordering, redundant: true, atomicity, absent }
}

fn resize(absent: BlockRange) -> Task {
    Task::ResizeObject { object: OBJECT, range: BlockRange::new(0, BLOCKS * 2), absent }
}

fn ask(bench: &mut Bench, host: Generation, task: Task) -> Result<Managed, Failure> {
    bench.now.time.0 += 1;
    bench.manage(host, 1_000 + bench.now.time.0, task)
}

/// The device adopts an epoch in which it has another state.
fn becomes(bench: &mut Bench, member_state: MemberState) {
    bench.enter(|membership| stands(membership, 0, member_state));
}

/// The device was out, and is returning.
fn returns(bench: &mut Bench) {
    becomes(bench, MemberState::Out);
    becomes(bench, MemberState::Returning { recovery_coordinator: Some(COORDINATOR) });
}

fn reports_failure(bench: &Bench) -> bool {
    let last = bench.renewals.back().expect("it reports");
    matches!(last.command, MonitorCommand::Renew { failing: true, bad_slots: 0, .. })
}

#[test]
fn only_the_recovery_coordinator_of_a_returning_device_makes_blocks_absent() {
    let malformed = Err(Failure::Malformed);
    let mut bench = Bench::with_monitor();
    assert_eq!(ask(&mut bench, COORDINATOR, create(NEW, 16)), malformed, "the device is in");
    assert_eq!(ask(&mut bench, COORDINATOR, resize(BlockRange::new(BLOCKS, 16))), malformed);
    returns(&mut bench);
    assert_eq!(ask(&mut bench, OTHER, create(NEW, 16)), malformed, "another host coordinates the recovery");
    assert_eq!(ask(&mut bench, OTHER, resize(BlockRange::new(BLOCKS, 16))), malformed);
    assert_eq!(ask(&mut bench, COORDINATOR, create(NEW, 16)), Ok(Managed::Done));
    assert_eq!(ask(&mut bench, COORDINATOR, resize(BlockRange::new(BLOCKS, 16))), Ok(Managed::Done));
    bench.restart();
    bench.tell(None);
    assert_eq!(bench.device.store().absent_blocks(), 32);
}

/// Hosts that do not keep to the protocol, or an earlier release, have made blocks absent and called the device complete.
#[test]
fn a_device_that_is_in_and_has_absent_blocks_leaves_and_returns() {
    for restarts in [false, true] {
        let mut bench = Bench::with_monitor();
        returns(&mut bench);
        assert_eq!(ask(&mut bench, COORDINATOR, create(NEW, 16)), Ok(Managed::Done));
        assert!(!reports_failure(&bench), "it is being rebuilt");
        becomes(&mut bench, MemberState::In);
        if restarts {
            bench.restart();
            bench.tell(None);
        }
        bench.pass(Duration::from_secs(1));
        assert!(reports_failure(&bench), "it serves on, until the others can serve without it");
        let reader = Actor::new(OTHER, 1, bench.stamp(OTHER, 1)).on(NEW, Ordering::Timestamp);
        bench.tell(None);
        for (block, is_absent) in [(3, true), (20, false)] {
            bench.say(
                OTHER,
                Actor { id: braid_base::TransactionId { sequence: block, ..reader.id }, ..reader }
                    .read(BlockRange::new(block, 1)),
            );
            let is_refused = matches!(bench.hear(OTHER), Some(Reply::Failed { failure: Failure::Absent, .. }));
            assert_eq!(is_refused, is_absent, "{block}");
        }
        // It is marked out: its lease is not extended, and it is not told of that epoch.
        let lease = Settings::default().device_lease;
        bench.pass(lease * 3 / 2);
        assert!(reports_failure(&bench), "the monitor counts a lease for longer than the device");
        bench.pass(lease);
        assert!(!reports_failure(&bench), "it asks to return");
        returns(&mut bench);
        assert_eq!(ask(&mut bench, COORDINATOR, Task::RemoveObject { object: NEW }), Ok(Managed::Done));
        becomes(&mut bench, MemberState::In);
        bench.pass(Duration::from_secs(1));
        assert!(!reports_failure(&bench));
    }
}
