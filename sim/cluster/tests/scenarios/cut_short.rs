//! Scenarios of interrupted hostwrites, with each atomicity.

use crate::story::*;

fn array(ordering: Ordering, atomicity: Atomicity) -> (Cluster, HostSlot, HostSlot) {
    array_of(ordered(ordering, Options { atomicity, ..Options::calm("raid5:4+1", 5, 1, 3) }))
}

fn consistent(ordering: Ordering) -> (Cluster, HostSlot, HostSlot) {
    array(ordering, Atomicity::Consistent)
}

fn suspects(array: &Cluster) -> usize {
    array.devices().into_iter().filter_map(|id| array.device(id)).map(|device| device.suspects()).sum()
}

fn recomputed(array: &Cluster) -> u64 {
    let hosts = array.slots().filter_map(|slot| array.role(slot).and_then(Role::host));
    hosts.map(|host| host.counters().rows_recomputed).sum()
}

#[test]
fn parity_is_resynchronised_without_new_writes() {
    with_each(KEPT_APART, consistent, |array, [a, b], ordering| {
        write(array, a, 0, 4 * BLOCK);
        die_between_two_writes(array, a);
        if ordering.needs_lock_server() {
            // The locks of a dead host have no effect until another host requests them.
            write(array, b, 2 * BLOCK, BLOCK);
        }
        array.run_for(A_WHILE);
        assert_eq!(suspects(array), 0, "{ordering}");
        assert!(recomputed(array) > 0, "{ordering}");
    });
}

#[test]
fn a_parity_resync_ends_when_its_device_is_taken_out() {
    with_each([Ordering::Timestamp, Ordering::DeviceLock], consistent, |array, [a, b], ordering| {
        write(array, a, 0, 4 * BLOCK);
        die_between_two_writes(array, a);
        // The recomputed parity does not reach device 4 before that is taken out.
        let recomputed = judge(array, Verdict::Drop, |_, to, message| is_write(message) && to == device(4));
        wait_until(array, "the parity is recomputed", |_| recomputed.get() > 0);
        lose(array, 4);
        write(array, b, 0, 4 * BLOCK);
        array.run_for(A_WHILE);
        assert!(
            array.role(b).and_then(Role::host).is_some_and(|host| host.is_idle()),
            "{ordering}: the host waits for no device that is out"
        );
        array.world.network.heal();
        bring_back(array, 4);
    });
}

#[test]
fn a_small_write_waits_until_its_stripe_is_resynchronised() {
    with_each([Ordering::Timestamp, Ordering::DeviceLock], consistent, |array, [a, b], ordering| {
        write(array, a, 0, 4 * BLOCK);
        die_between_two_writes(array, a);
        // After the lease of the dead host, and before any host learns of its transactions.
        array.world.network.drop_if(|_, _, message| command_of(message) == Some(&Command::Heartbeat));
        for _ in 0..16 {
            content(array, b, 8 * BLOCK, 4 * BLOCK);
            content(array, b, 4 * BLOCK, 4 * BLOCK);
            array.run_for(Duration::from_millis(500));
        }
        assert!(suspects(array) > 0, "{ordering}");
        // Block 1 is on device 1; the parity is suspect.
        let small = array.write(b, BLOCK, BLOCK);
        array.run_for(Duration::from_secs(1));
        assert!(array.requests.is_open(small), "{ordering}: no write uses suspect parity");
        assert!(read(array, b, 0, 4 * BLOCK).is_ok(), "{ordering}: plain reads go on");
        array.world.network.heal();
        assert_eq!(array.finish(small), DONE, "{ordering}");
    });
}

#[test]
fn consistent_stripes_are_not_recomputed() {
    with_each([Ordering::Timestamp, Ordering::DeviceLock], consistent, |array, [a, _], ordering| {
        write(array, a, 0, BLOCK);
        // The host had no time to send the commit.
        array.crash(array.node(a));
        array.run_for(A_WHILE);
        assert_eq!((suspects(array), recomputed(array)), (0, 0), "{ordering}");
    });
}

/// The main objection to in-place writes: a host dies between its devwrites, and a device fails before the parity is checked. Returns
/// the content of block 2, which was not being written, before and after.
fn read_what_was_not_being_written(atomicity: Atomicity) -> (Vec<u8>, Vec<u8>) {
    let (mut array, a, b) = array(Ordering::Timestamp, atomicity);
    write(&mut array, a, 0, 4 * BLOCK);
    let expected = content(&mut array, b, 2 * BLOCK, BLOCK);
    write(&mut array, a, 0, BLOCK);
    die_between_two_writes(&mut array, a);
    array.crash(device(2));
    array.run_for(A_LEASE * 2);
    // The block as reconstructed from the others of its stripe, whatever the result; it need not be in the history.
    let found = bytes_of(outcome_of_read(&mut array, b, 2 * BLOCK), "the block");
    (expected, found)
}

#[test]
fn a_host_and_a_device_together_take_what_was_not_being_written_only_where_writes_take_effect_on_arrival() {
    let (expected, found) = read_what_was_not_being_written(Atomicity::Implied);
    assert!(expected == found, "with intents no data is lost");
    let (expected, found) = read_what_was_not_being_written(Atomicity::Consistent);
    assert!(expected != found, "no data was lost; then the documentation of atomicity `consistent` is too pessimistic");
}

#[test]
fn a_device_that_fails_in_the_middle_of_a_live_hosts_write_takes_nothing_with_it() {
    for ordering in KEPT_APART {
        let (mut array, a, b) = consistent(ordering);
        write(&mut array, a, 0, 4 * BLOCK);
        array.run_for(Duration::from_secs(1));
        // Device 0 has the data; the parity on device 4 is written only when device 2, which does not take part, is out.
        array.world.network.drop_if(|_, to, message| {
            let Message::Request(request) = message else { return false };
            is_write(message) && to == device(4) && request.epoch.0 < 2
        });
        let write = array.write(a, 0, BLOCK);
        array.run_for(Duration::from_millis(50));
        array.crash(device(2));
        assert_eq!(array.finish(write), DONE, "{ordering}");
        assert!(read(&mut array, b, 0, 4 * BLOCK).is_ok(), "{ordering}: block 2 is reconstructed");
        array.restart_device(DeviceId(2));
        array.world.network.heal();
        array.run_for(A_WHILE);
        all_is_well(array);
    }
}

#[test]
fn a_restarted_device_still_knows_what_was_written_there_and_may_be_cut_short() {
    with_each(KEPT_APART, consistent, |array, [a, b], ordering| {
        write(array, a, 0, 4 * BLOCK);
        die_between_two_writes(array, a);
        // All devices lose their memory, with pre-writes and records of writes.
        restart_all(array);
        write(array, b, 2 * BLOCK, BLOCK);
        array.run_for(A_WHILE);
        assert!(recomputed(array) > 0, "{ordering}");
    });
}
