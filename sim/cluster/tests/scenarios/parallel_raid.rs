//! Scenarios of writes that devices execute together (`docs/parallel-raid.md`): the failures of the paper's Table IV, each before and after
//! the intents; devices that can't reach each other; and partials that are lost or late.
//!
//! In stripe 0, block `n` lies on device `n`, and the parity on device 4. A write of block 0 is small: device 0 sends its change. A write of
//! blocks 0 and 1 is large: devices 0 and 1 send their new content, and devices 2 and 3, which only read, their old.

use crate::story::*;

/// Offset and length of a small and of a large write.
const SMALL: (u64, u64) = (0, BLOCK);
const LARGE: (u64, u64) = (0, 2 * BLOCK);
/// The device with block 0, one that only reads in the large write, and the one with the parity.
const DATA: u16 = 0;
const READER: u16 = 2;
const PARITY: u16 = 4;
/// Each write with a device that takes part in it.
const PARTS: [((u64, u64), u16); 5] = [(SMALL, DATA), (SMALL, PARITY), (LARGE, DATA), (LARGE, PARITY), (LARGE, READER)];
/// The time in which a write is executed, if nothing fails.
const SOON: Duration = Duration::from_millis(20);

fn array() -> (Cluster, HostSlot, HostSlot) {
    array_at(vec![SitePolicy::AtParity])
}

fn array_at(sites: Vec<SitePolicy>) -> (Cluster, HostSlot, HostSlot) {
    filled_array_of(Options { sites, ..Options::calm("raid5:4+1", 5, 1, 3) })
}

fn is_partial(message: &Message) -> bool {
    matches!(message, Message::Partial(_))
}

fn is_column(message: &Message) -> bool {
    matches!(command_of(message), Some(Command::Execute { .. }))
}

fn is_commit(message: &Message) -> bool {
    matches!(command_of(message), Some(Command::Decide { outcome: Outcome::Commit, .. }))
}

/// Drops, delays or doubles all partials from one device to another.
fn treat_partials(array: &mut Cluster, sender: u16, receiver: u16, verdict: Verdict) {
    let way = (device(sender), device(receiver));
    judge(array, verdict, move |from, to, message| (from, to) == way && is_partial(message));
}

/// Finishes a write within a lease and a second from now.
fn done_in_time(array: &mut Cluster, op: OpId, what: &str) -> Duration {
    let took = time_of(array, |array| assert_eq!(array.finish(op), DONE, "{what}"));
    assert!(took <= A_LEASE, "{what}: {took:?}");
    took
}

/// A host writes, and dies before it is answered; its columns for `lost` never arrive. Then `gone` is taken out. True if the write took
/// effect.
fn survives(array: &mut Cluster, [a, b]: [HostSlot; 2], range: (u64, u64), lost: &[u16], gone: Option<u16>) -> bool {
    let before = content(array, b, range.0, range.1);
    let executed = counters(array, a).executed;
    die_writing(array, a, range, lost, move |array| assert_eq!(counters(array, a).executed, executed + 1));
    if let Some(gone) = gone {
        lose(array, gone);
    }
    let begun = array.world.now();
    let after = content(array, b, range.0, range.1);
    let took = array.world.now().since(begun);
    assert!(took <= A_LEASE, "another host has resolved the write after {took:?}");
    if let Some(gone) = gone {
        bring_back(array, gone);
    }
    assert_eq!(content(array, b, range.0, range.1), after, "the decision stands");
    after != before
}

/// The rows of Table IV in which the originator fails.
#[test]
fn survivors_decide_what_a_dead_originator_had_executed() {
    let cases: [(_, &[u16], _, _); 14] = [
        (LARGE, &[], None, true),
        (LARGE, &[DATA], None, false),
        (LARGE, &[PARITY], None, false),
        // Without what this device reads there is no parity.
        (LARGE, &[READER], None, false),
        (LARGE, &[], Some(DATA), true),
        (LARGE, &[1], Some(DATA), false),
        (LARGE, &[DATA], Some(DATA), false),
        (LARGE, &[], Some(PARITY), true),
        (LARGE, &[1], Some(PARITY), false),
        // All others have their intents.
        (LARGE, &[PARITY], Some(PARITY), true),
        (LARGE, &[], Some(READER), true),
        (LARGE, &[READER], Some(READER), false),
        (SMALL, &[], Some(PARITY), true),
        (SMALL, &[DATA], Some(DATA), false),
    ];
    with_each(cases, array, |array, [a, b], (range, lost, gone, expected)| {
        let took_effect = survives(array, [a, b], range, lost, gone);
        assert_eq!(took_effect, expected, "{range:?}, columns lost to {lost:?}, without {gone:?}");
    });
}

/// The rows of Table IV in which the originator lives, at every moment of the write.
#[test]
fn a_write_survives_the_failure_of_any_device_at_any_moment() {
    with_each_pair(PARTS, 0..16, array, |array, [a, b], (range, number), moment| {
        let before = content(array, b, range.0, range.1);
        let asked = array.write(a, range.0, range.1);
        array.run_for(Duration::from_micros(60 * moment));
        array.crash(device(number));
        done_in_time(array, asked, "the failure of one device");
        let after = content(array, b, range.0, range.1);
        assert_ne!(after, before);
        wait_out(array, number);
        bring_back(array, number);
        assert_eq!(content(array, b, range.0, range.1), after, "{range:?}, {number} at {moment}");
    });
}

/// A host that shares its place with this device writes, and the place loses power instead of this input of the host or of the device. True
/// if that was before the write had ended. With or without the place, another host goes on at once in the same stripe.
fn both_fail(site: SitePolicy, range: (u64, u64), number: u16, point: (bool, u64, bool)) -> bool {
    let (of_host, input, returns) = point;
    let (mut array, a, b) = array_at(vec![site]);
    let before = content(&mut array, b, range.0, range.1);
    let (writer, what) = (array.node(a), format!("{site}, {range:?} with {number}, {point:?}"));
    array.world.share_place(writer, device(number));
    let victim = if of_host { writer } else { device(number) };
    array.world.crash_before(victim, input);
    let asked = array.write(a, range.0, range.1);
    array.run_for(SOON);
    array.world.spare(victim);
    let has_failed = array.role(a).and_then(Role::host).is_none();
    assert_eq!(has_failed, array.device(DeviceId(number)).is_none(), "{what}: they fail together");
    if has_failed && returns {
        array.restart_device(DeviceId(number));
        take_slot(&mut array, a);
    }
    let next = array.write(b, 3 * BLOCK, BLOCK);
    done_in_time(&mut array, next, &what);
    let after = content(&mut array, b, range.0, range.1);
    assert!(after != before || !array.requests.is_answered(asked), "{what}: an answered write is lost");
    if has_failed && !returns {
        wait_out(&mut array, number);
        bring_back(&mut array, number);
    }
    assert_eq!(content(&mut array, b, range.0, range.1), after, "{what}: the decision stands");
    all_is_well(array);
    has_failed
}

/// The row of Table IV in which the originator and a worker fail together, at every step of both.
#[test]
fn a_write_is_decided_without_its_originator_and_a_worker_that_fail_together_at_any_step() {
    for site in [SitePolicy::AtParity, SitePolicy::Originator] {
        for (range, number) in PARTS {
            for (of_host, returns) in [(true, true), (true, false), (false, true), (false, false)] {
                let point = |input: &u64| (of_host, *input, returns);
                let fails = |input: &u64| both_fail(site, range, number, point(input));
                let steps = (1..).take_while(fails).count();
                assert!(steps >= 2, "{site}, {range:?} with {number}: only {steps} steps");
            }
        }
    }
}

#[test]
fn two_devices_that_can_not_reach_each_other_delay_a_write_by_less_than_a_lease() {
    with_each([(SMALL, DATA), (LARGE, DATA), (LARGE, READER)], array, |array, [a, b], (range, sender)| {
        cut(array, device(sender), device(PARITY));
        let before = content(array, b, range.0, range.1);
        let asked = array.write(a, range.0, range.1);
        done_in_time(array, asked, "two devices are cut from each other");
        assert_ne!(content(array, b, range.0, range.1), before);
        assert_eq!(epoch(array), 1, "all others reach both: no device is taken out");
    });
}

/// Their partials are lost, so the device with the parity gathers; a device that only reads then refuses the repeated request.
#[test]
fn a_device_that_gathers_or_only_reads_may_restart_meanwhile() {
    let cases = [(SMALL, DATA, PARITY), (LARGE, DATA, PARITY), (LARGE, READER, PARITY), (LARGE, READER, READER)];
    with_each(cases, array, |array, [a, b], (range, sender, restarted)| {
        let before = content(array, b, range.0, range.1);
        treat_partials(array, sender, PARITY, Verdict::Drop);
        let asked = array.write(a, range.0, range.1);
        array.run_for(SOON);
        restart(array, restarted);
        array.world.network.heal();
        let took = done_in_time(array, asked, "a device has restarted");
        assert!(restarted == PARITY || took < Duration::from_secs(2), "no more than another attempt: {took:?}");
        assert_ne!(content(array, b, range.0, range.1), before);
    });
}

/// A partial arrives long after its repetition, when later writes of the same blocks gather.
#[test]
fn a_late_partial_counts_in_its_own_write_only() {
    let (mut array, a, b) = array();
    let mut known = BTreeSet::new();
    array.world.network.delay_if(Duration::from_millis(700), move |from, _, message| {
        matches!(message, Message::Partial(partial) if known.insert((from, partial.transaction)))
    });
    let begun = counters(&array, a).executed;
    for _ in 0..5 {
        for (host, (offset, length)) in [(a, SMALL), (b, LARGE), (a, LARGE)] {
            let asked = array.write(host, offset, length);
            done_in_time(&mut array, asked, "all partials are late");
        }
    }
    assert_eq!(counters(&array, a).executed, begun + 10, "they are sent again, and no write is attempted twice");
    all_is_well(array);
}

#[test]
fn a_partial_parity_of_an_earlier_epoch_has_no_effect() {
    with_each([(DATA, 3), (READER, 1), (DATA, 1)], array, |array, [a, b], (sender, gone)| {
        treat_partials(array, sender, PARITY, Verdict::Delay(Duration::from_secs(8)));
        let asked = array.write(a, LARGE.0, LARGE.1);
        array.run_for(SOON);
        array.crash(device(gone));
        done_in_time(array, asked, "a device is out");
        array.world.network.heal();
        for _ in 0..8 {
            write(array, b, SMALL.0, SMALL.1);
            write(array, a, LARGE.0, LARGE.1);
            array.run_for(Duration::from_secs(1));
        }
        bring_back(array, gone);
    });
}

/// A device that only reads restarts after it has served. Then it refuses the repeated request, but the parity is computed from what it
/// had sent. Returns the array with its hosts, the write, which is under way, and what was there before.
fn with_a_reader_that_refuses(decisions_are_late: bool) -> (Cluster, HostSlot, HostSlot, OpId, Vec<u8>) {
    let (mut array, a, b) = array();
    let (writer, other) = (array.node(a), array.node(b));
    let asked_again = Rc::new(Cell::new(0));
    let seen = asked_again.clone();
    array.world.network.set_rule(move |from, to, message| {
        seen.set(seen.get() + u64::from(from == writer && to == device(READER) && is_column(message)));
        let is_last = from == device(READER) && to == device(PARITY) && is_partial(message);
        let is_decision = from == other && to != device(1) && is_commit(message);
        match () {
            () if is_last => Verdict::Delay(Duration::from_millis(900)),
            () if from == device(PARITY) && to == writer && is_written(message) => Verdict::Drop,
            () if is_decision && decisions_are_late => Verdict::Delay(Duration::from_secs(20)),
            () => Verdict::Pass,
        }
    });
    let before = content(&mut array, b, 0, 2 * BLOCK);
    let first = array.write(a, LARGE.0, LARGE.1);
    array.run_for(SOON);
    restart(&mut array, READER);
    wait_until(&mut array, "the reader is asked again", |_| asked_again.get() > 1);
    array.world.stall(writer, Duration::from_secs(12));
    (array, a, b, first, before)
}

/// Another host finds the write committed.
#[test]
fn a_reader_that_refuses_after_it_has_served_does_not_undo_what_others_have_found() {
    let (mut array, a, b, first, before) = with_a_reader_that_refuses(false);
    assert_ne!(content(&mut array, b, 0, 2 * BLOCK), before, "all participants have their intents");
    write(&mut array, b, 0, 2 * BLOCK);
    let second = content(&mut array, b, 0, 2 * BLOCK);
    array.world.network.heal();
    assert_eq!(array.finish(first), DONE);
    assert_eq!(content(&mut array, a, 0, 2 * BLOCK), second, "it is not written over what came after it");
    all_is_well(array);
}

/// The same, while the other host's decision is on its way: one device knows it, and the others have voted.
#[test]
fn a_reader_that_refuses_does_not_end_a_write_on_which_others_have_voted() {
    let (mut array, _, b, first, before) = with_a_reader_that_refuses(true);
    let read = array.read(b, 0, 2 * BLOCK);
    assert_eq!(array.finish(first), DONE);
    array.world.network.heal();
    array.finish(read).expect("the new content");
    assert_ne!(content(&mut array, b, 0, 2 * BLOCK), before);
    all_is_well(array);
}

/// The host gives up its first attempt, but no device hears of that before all have their intents and another host finds them.
#[test]
fn a_write_that_fell_back_is_not_written_over_what_came_after_it() {
    let (mut array, a, b) = array();
    let (writer, gave_up) = (array.node(a), Rc::new(Cell::new(false)));
    let seen = gave_up.clone();
    array.world.network.set_rule(move |from, to, message| {
        let ends = matches!(
            command_of(message),
            Some(Command::Retract { .. } | Command::Decide { .. } | Command::Prewrite { .. })
        );
        if from == writer && ends {
            seen.set(true);
            return Verdict::Drop;
        }
        let is_late = from == device(DATA) && to == device(PARITY) && is_partial(message);
        if is_late { Verdict::Delay(Duration::from_secs(5)) } else { Verdict::Pass }
    });
    let before = content(&mut array, b, 0, 2 * BLOCK);
    let first = array.write(a, LARGE.0, LARGE.1);
    wait_until(&mut array, "the host gives up the attempt", |_| gave_up.get());
    array.world.stall(writer, Duration::from_secs(12));
    array.run_for(Duration::from_secs(2));
    assert_ne!(content(&mut array, b, 0, 2 * BLOCK), before, "all participants have their intents by now");
    write(&mut array, b, 0, 2 * BLOCK);
    let second = content(&mut array, b, 0, 2 * BLOCK);
    array.world.network.heal();
    assert_eq!(array.finish(first), DONE);
    assert_eq!(content(&mut array, a, 0, 2 * BLOCK), second);
    all_is_well(array);
}

/// A device that can't read what it owes says so, and the host replaces the block without waiting for the parity.
#[test]
fn a_block_whose_change_can_not_be_computed_is_written_at_once() {
    for number in [0, 1, 2] {
        // Whole chunks are at their place on the disk, where they can be damaged.
        let sites = vec![SitePolicy::AtParity];
        let (mut array, a, b) = filled_array_of(Options { sites, ..Options::calm("raid5:2+1", 3, 16, 2) });
        assert!(array.corrupt(DeviceId(number), 3));
        let before = content(&mut array, b, 4 * BLOCK, BLOCK);
        for block in [3, 16 + 3] {
            let asked = array.write(a, block * BLOCK, BLOCK);
            let took = done_in_time(&mut array, asked, "a block is damaged");
            assert!(took < Duration::from_millis(100), "device {number}, block {block}: {took:?}");
        }
        assert_eq!(content(&mut array, b, 4 * BLOCK, BLOCK), before);
        all_is_well(array);
    }
}

/// Second failures: a device is out already. Device 2 holds a block that is written, or one that is only read otherwise.
#[test]
fn in_a_degraded_stripe_survivors_decide_what_a_dead_originator_had_executed() {
    let lost_block = (2 * BLOCK, BLOCK);
    let cases: [(_, &[u16], _); 5] = [
        (LARGE, &[], true),
        (LARGE, &[DATA], false),
        (LARGE, &[PARITY], false),
        // Only the parity is written, from what the devices 0, 1 and 3 read.
        (lost_block, &[], true),
        (lost_block, &[3], false),
    ];
    with_each(cases, array, |array, [a, b], (range, lost, expected)| {
        lose(array, READER);
        // Hosts that have waited for the device's part in vain send no columns for 10 s.
        array.run_for(Duration::from_secs(11));
        let took_effect = survives(array, [a, b], range, lost, None);
        assert_eq!(took_effect, expected, "{range:?}, columns lost to {lost:?}");
        bring_back(array, READER);
    });
}

#[test]
fn in_a_degraded_stripe_any_other_device_may_restart_at_any_moment() {
    with_each_pair([DATA, 3, PARITY], 0..10, array, |array, [a, b], number, moment| {
        lose(array, READER);
        let asked = [array.write(a, LARGE.0, LARGE.1), array.write(b, 2 * BLOCK, BLOCK)];
        array.run_for(Duration::from_micros(90 * moment));
        restart(array, number);
        for op in asked {
            done_in_time(array, op, "a device has restarted");
        }
        content(array, b, 0, 4 * BLOCK);
        bring_back(array, READER);
    });
}

#[test]
fn hosts_with_different_sites_write_the_same_stripe() {
    use SitePolicy::{Adaptive, AtParity, Originator, ParityNode};
    let (mut array, a, b) = array_at(vec![Originator, AtParity, Adaptive, ParityNode]);
    let hosts = [a, b, array.add_host(), array.add_host()];
    array.run_for(Duration::from_secs(1));
    for round in 0..60 {
        let writes = [0, 1, 2, 3].map(|host| {
            let first = (host as u64 + round) % 3;
            array.write(hosts[host], first * BLOCK, (1 + round % 2) * BLOCK)
        });
        assert_eq!(writes.map(|write| array.finish(write)), [(); 4].map(|()| DONE));
    }
    let executed = hosts.map(|host| counters(&array, host).executed);
    assert_eq!(executed.iter().filter(|count| **count > 0).count(), 3, "all but the originator: {executed:?}");
    all_is_well(array);
}
