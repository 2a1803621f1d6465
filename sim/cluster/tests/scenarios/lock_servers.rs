//! Scenarios of hosts and lock servers that fall silent, with locks of a lock server.

use crate::story::*;

const BOTH: [Ordering; 2] = [Ordering::ServerLock, Ordering::CallbackLock];

/// Writes a block and returns how long that took.
fn time_of_write(array: &mut Cluster, host: HostSlot, offset: u64) -> Duration {
    time_of(array, |array| write(array, host, offset, BLOCK))
}

/// A host writes, keeps its lock under callback locking, and starts another write, whose messages are delayed by `late`.
fn begin_late_write(array: &mut Cluster, host: HostSlot, late: Duration) {
    time_of_write(array, host, 0);
    let writer = array.node(host);
    array.world.network.delay_if(late, move |from, _, message| from == writer && is_write(message));
    array.write(host, 0, BLOCK);
    array.run_for(Duration::from_millis(20));
}

fn restart_lock_server(array: &mut Cluster) {
    array.crash(LOCK_SERVER);
    array.restart_lock_server(LockServerId(0));
}

#[test]
fn a_host_that_sleeps_loses_its_locks_with_its_lease_and_its_late_write_is_refused() {
    with_each(BOTH, array_by, |array, [a, b], ordering| {
        begin_late_write(array, a, Duration::from_secs(8));
        array.world.stall(array.node(a), Duration::from_secs(12));
        let took = time_of_write(array, b, 0);
        assert!(took > Duration::from_secs(3) && took < A_LEASE, "{ordering}: {took:?}");
        // The late write reaches the devices, and then the stalled host wakes.
        array.run_for(Duration::from_secs(10));
        replace_fenced(array, a);
        content(array, a, 0, BLOCK);
    });
}

#[test]
fn every_device_that_may_serve_keeps_a_host_out_before_another_is_granted_its_locks() {
    with_each(BOTH, array_by, |array, [a, b], ordering| {
        begin_late_write(array, a, Duration::from_secs(30));
        let dead = array.generation(a);
        array.crash(array.node(a));
        let begun = array.world.now();
        array.run_for(Duration::from_secs(3));
        // The monitor can't reach one of the devices, which serves until its lease has expired.
        cut(array, NodeId::Monitor, device(3));
        let way = (LOCK_SERVER, array.node(b));
        let granted = watch(array, move |from, to, message| {
            let grants = |reply: &LockReply| matches!(reply, LockReply::Granted { .. });
            (from, to) == way && matches!(message, Message::LockAnswer(answer) if grants(&answer.reply))
        });
        let write = array.write(b, 0, BLOCK);
        let serves = |array: &Cluster, number: u16| {
            let now = array.world.local(device(number)).expect("the node is in the world").time;
            array.device(DeviceId(number)).is_some_and(|machine| machine.has_lease(now) && !machine.keeps_out(dead))
        };
        while granted.get() == 0 {
            assert!(array.world.now().since(begun) < Duration::from_secs(12), "{ordering}: the lock is never granted");
            array.run_for(Duration::from_micros(100));
        }
        assert!((0..5).all(|number| !serves(array, number)), "{ordering}");
        assert!(
            array.world.now().since(begun) > Duration::from_secs(6),
            "{ordering}: the lock was granted before the lease of device 3 had expired"
        );
        array.world.network.heal();
        assert_eq!(array.finish(write), DONE);
        // This device, too, refuses the late write.
        array.run_for(Duration::from_secs(30));
    });
}

#[test]
fn a_host_cut_off_from_the_lock_server_alone_is_fenced_everywhere() {
    with_each(BOTH, array_by, |array, [a, b], ordering| {
        begin_late_write(array, a, Duration::from_secs(8));
        let cut_off = array.node(a);
        cut(array, cut_off, LOCK_SERVER);
        let took = time_of_write(array, b, 0);
        assert!(took < A_LEASE, "{ordering}: {took:?}");
        array.run_for(Duration::from_secs(1));
        let outcome = outcome_of_read(array, a, 0);
        assert!(matches!(outcome, Err(HostError::Fenced)), "{outcome:?}");
        replace_fenced(array, a);
        array.run_for(Duration::from_secs(10));
    });
}

#[test]
fn a_host_with_uncontended_read_locks_may_sleep_for_longer_than_a_lease() {
    let (mut array, a, _) = array_by(Ordering::CallbackLock);
    time_of_write(&mut array, a, 0);
    array.world.stall(array.node(a), Duration::from_secs(10));
    array.run_for(Duration::from_secs(12));
    assert!(array.fenced().is_empty());
    time_of_write(&mut array, a, 0);
    all_is_well(array);
}

#[test]
fn without_their_lock_server_hosts_answer_with_an_error_in_time_and_go_on_when_it_is_back() {
    for ordering in BOTH {
        let mut options = Options { ordering, lock_servers: 1, ..Options::calm("raid5:4+1", 5, 1, 3) };
        options.settings.request_timeout = Duration::from_secs(6);
        let (mut array, a, b) = array_of(options);
        time_of_write(&mut array, a, 0);
        array.crash(LOCK_SERVER);
        for (host, offset) in [(a, 4 * BLOCK), (b, 0)] {
            let asked_at = array.world.now();
            let outcome = outcome_of_write(&mut array, host, offset, BLOCK);
            let is_silent = matches!(outcome, Err(HostError::LockServerSilent { server: LockServerId(0), .. }));
            assert!(is_silent, "{outcome:?}");
            assert_eq!(array.world.now().since(asked_at), Duration::from_secs(6), "{ordering}");
        }
        array.restart_lock_server(LockServerId(0));
        assert!(time_of_write(&mut array, b, 0) < A_LEASE, "{ordering}");
        assert!(time_of_write(&mut array, a, 4 * BLOCK) < A_LEASE, "{ordering}");
        assert!(array.fenced().is_empty(), "{ordering}: no host was silent for too long");
        all_is_well(array);
    }
}

#[test]
fn a_lock_server_that_starts_again_grants_nothing_that_is_still_held() {
    with_each(BOTH, array_by, |array, [a, b], ordering| {
        begin_late_write(array, a, Duration::from_secs(2));
        // For a second it receives nothing from the host that holds the lock.
        let holder = array.node(a);
        array.world.network.cut(holder, LOCK_SERVER);
        restart_lock_server(array);
        let write = array.write(b, 0, BLOCK);
        array.run_for(Duration::from_secs(1));
        assert_eq!(
            array.requests.asked().count(),
            2,
            "{ordering}: the lock server waits until the other host has reported its locks"
        );
        array.world.network.join(holder, LOCK_SERVER);
        assert_eq!(array.finish(write), DONE);
        assert!(array.fenced().is_empty(), "{ordering}: both hosts have reported their locks");
    });
}

#[test]
fn a_host_that_dies_while_its_lock_server_is_down_is_fenced_by_the_next_start() {
    with_each(BOTH, array_by, |array, [a, b], ordering| {
        begin_late_write(array, a, Duration::from_secs(8));
        array.crash(LOCK_SERVER);
        array.crash(array.node(a));
        array.run_for(Duration::from_secs(1));
        array.restart_lock_server(LockServerId(0));
        let took = time_of_write(array, b, 0);
        assert!(took > Duration::from_secs(3) && took < A_LEASE, "{ordering}: {took:?}");
        // The write of the dead host is still in transit.
        array.run_for(Duration::from_secs(8));
    });
}

#[test]
fn locks_returned_while_the_server_was_down_are_free() {
    let (mut array, a, b) = array_by(Ordering::ServerLock);
    let write = array.write(a, 0, BLOCK);
    // Long enough for the lock, and too short for the unlock.
    array.run_for(Duration::from_micros(200));
    array.world.network.drop_if(|_, to, message| to == LOCK_SERVER && matches!(message, Message::LockRequest(_)));
    assert_eq!(array.finish(write), DONE);
    restart_lock_server(&mut array);
    array.world.network.heal();
    let took = time_of_write(&mut array, b, 0);
    assert!(took < A_LEASE, "{took:?}");
    all_is_well(array);
}

#[test]
fn a_volume_that_needs_a_lock_server_says_so_where_there_is_none() {
    for ordering in BOTH {
        let options = Options { ordering, lock_servers: 0, ..Options::calm("raid5:4+1", 5, 1, 3) };
        let (mut array, a, _) = array_of(options);
        assert_eq!(outcome_of_read(&mut array, a, 0), Err(HostError::NoLockServer));
    }
}
