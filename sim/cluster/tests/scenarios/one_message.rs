//! Scenarios of writes without pre-writes, which go out in one message to each device, and of the retraction of such writes.

use crate::story::*;
use braid_base::Stamp;

const AN_HOUR: i64 = 3_600 * SECOND;
const SECOND: i64 = 1_000_000_000;
/// A stripe of four units of one block.
const STRIPE: u64 = 4 * BLOCK;
/// Longer than one step of a machine, and shorter than the way of a message.
const AN_INSTANT: Duration = Duration::from_micros(1);

fn array() -> (Cluster, HostSlot, HostSlot) {
    filled_array_by(Ordering::Timestamp)
}

fn is_retraction(message: &Message) -> bool {
    matches!(command_of(message), Some(Command::Retract { .. }))
}

fn is_prewrite(message: &Message) -> bool {
    matches!(command_of(message), Some(Command::Prewrite { .. }))
}

/// Reads block by block, each within a second.
fn reads_at_once(array: &mut Cluster, host: HostSlot, blocks: &[u64]) {
    for block in blocks {
        let took = time_of(array, |array| drop(content(array, host, block * BLOCK, BLOCK)));
        assert!(took < Duration::from_secs(1), "the read of block {block} took {took:?}");
    }
}

#[test]
fn the_order_of_a_hosts_writes_holds_though_its_clock_leaps_and_comes_back() {
    let (mut array, a, b) = array();
    // The floor of device 0 is ahead of the clocks now, and both hosts have learned that.
    write(&mut array, a, 0, STRIPE);
    restart(&mut array, 0);
    array.run_for(Duration::from_millis(20));
    write(&mut array, a, 0, STRIPE);
    content(&mut array, b, 0, BLOCK);
    array.run_for(Duration::from_millis(100));
    // A read of the last block of stripe 1 and the first of stripe 2; the second part is late.
    let (reader, writer) = (array.node(b), array.node(a));
    let stamps: Rc<RefCell<Vec<Stamp>>> = Rc::default();
    let seen = stamps.clone();
    let mut parts = 0;
    array.world.network.set_rule(move |from, _, message| {
        if let Some(Command::Write { stamp, .. } | Command::Prewrite { stamp, .. }) = command_of(message)
            && from == writer
        {
            seen.borrow_mut().push(*stamp);
        }
        if from == reader && matches!(command_of(message), Some(Command::Read { .. })) {
            parts += 1;
            return if parts == 2 { Verdict::Delay(Duration::from_secs(1)) } else { Verdict::Pass };
        }
        Verdict::Pass
    });
    let read = array.read(b, 7 * BLOCK, 2 * BLOCK);
    array.run_for(Duration::from_millis(100));
    write(&mut array, a, STRIPE, STRIPE);
    let acknowledged = *stamps.borrow().iter().max().expect("the write");
    let clock = array.world.local(writer).expect("the host is up").clock;
    assert!(acknowledged.clock > clock, "the stamps are ahead of the clocks");
    // The next write has a stamp that no device accepts, and the clock comes back before they say so.
    array.world.step_clock(writer, AN_HOUR);
    let leapt = array.write(a, 0, STRIPE);
    array.run_for(AN_INSTANT);
    array.world.step_clock(writer, -AN_HOUR);
    let ahead = *stamps.borrow().iter().max().expect("the write");
    assert!(ahead.clock.since(acknowledged.clock) > Duration::from_secs(3_000));
    stamps.borrow_mut().clear();
    assert_eq!(array.finish(leapt), DONE);
    write(&mut array, a, 2 * STRIPE, STRIPE);
    let later: Vec<Stamp> = stamps.borrow().iter().copied().filter(|stamp| *stamp != ahead).collect();
    assert!(later.iter().all(|stamp| *stamp > acknowledged && *stamp < ahead), "{acknowledged}: {later:?}");
    array.finish(read).expect("the read, if necessary with another stamp");
    all_is_well(array);
}

#[test]
fn reads_without_unavailable_devices_are_served_at_once_beside_writes_of_whole_stripes() {
    let (mut array, a, b) = array();
    lose(&mut array, 4);
    // Without device 4, the array can't serve without device 0 either.
    array.crash(device(0));
    let mut writes = Vec::new();
    for round in 0..120 {
        writes.push(array.write(if round % 2 == 0 { a } else { b }, round % 3 * STRIPE, STRIPE));
        array.run_for(Duration::from_millis(50));
    }
    // Devices 1 to 3 have the other units of stripe 0, and one of them has the parity of stripe 1.
    reads_at_once(&mut array, a, &[1, 2, 3]);
    reads_at_once(&mut array, b, &[1, 2, 3]);
    array.restart_device(DeviceId(0));
    for write in writes {
        let outcome = array.finish(write);
        assert!(outcome == DONE || lacks(&outcome, &[0]) || lacks(&outcome, &[0, 4]), "{outcome:?}");
    }
    array.run_for(A_LEASE);
    write(&mut array, a, 0, 3 * STRIPE);
    all_is_well_back_with(array, 4);
}

#[test]
fn a_clock_that_leaps_ahead_and_comes_back_delays_no_write_of_whole_stripes() {
    for (lead, layout) in [(6, "raid5:4+1"), (20, "raid5:4+1"), (34, "raid5:4+1"), (20, "raid1:2"), (20, "raid0:5")] {
        let devices = if layout == "raid1:2" { 2 } else { 5 };
        let (mut array, a, b) = filled_array_of(Options::calm(layout, devices, 1, 3));
        let (node, stripe) = (array.node(a), array.volume().layout.stripe_blocks() * BLOCK);
        for round in 0..3 {
            let before = array.write(a, 0, stripe);
            array.world.step_clock(node, lead * SECOND);
            let writes = [array.write(a, stripe, stripe), array.write(a, 2 * stripe, stripe)];
            array.run_for(AN_INSTANT);
            array.world.step_clock(node, -lead * SECOND);
            for op in [before].into_iter().chain(writes) {
                let took = time_of(&mut array, |array| assert_eq!(array.finish(op), DONE));
                assert!(took < Duration::from_secs(1), "{layout}, {lead} s, round {round}: {took:?}");
            }
            let took = time_of(&mut array, |array| write(array, b, 0, 3 * stripe));
            assert!(took < Duration::from_secs(1), "{layout}, {lead} s, round {round}: {took:?}");
        }
        all_is_well(array);
    }
}

#[test]
fn a_late_copy_of_a_retracted_write_has_no_effect_after_a_restart() {
    let (mut array, a, b) = array();
    lose(&mut array, 4);
    // The stamps of this write are not reserved anywhere: the array was idle.
    array.run_for(Duration::from_secs(10));
    array.crash(device(0));
    let (writer, late) = (array.node(a), Duration::from_secs(20));
    array.world.network.delay_if(late, move |from, to, message| from == writer && to == device(1) && is_write(message));
    let outcome = outcome_of_write(&mut array, a, 0, STRIPE);
    assert!(lacks(&outcome, &[0]), "{outcome:?}");
    array.run_for(Duration::from_millis(100));
    restart(&mut array, 1);
    array.run_for(Duration::from_millis(100));
    let written = watch(&mut array, move |from, to, message| from == device(1) && to == writer && is_written(message));
    array.run_for(late);
    assert_eq!(written.get(), 0, "the late copy is refused");
    reads_at_once(&mut array, b, &[1, 2, 3]);
    array.restart_device(DeviceId(0));
    all_is_well_back_with(array, 4);
}

/// The host is answered by all devices but one until its patience ends. It can't retract its write, because a device that restarted may
/// have voted; so it resolves it. Another device hears of the retraction when it has voted for the write.
#[test]
fn a_late_retraction_does_not_undo_what_its_host_then_finds_committed() {
    let (mut array, a, b) = array();
    let before = content(&mut array, b, 0, STRIPE);
    let writer = array.node(a);
    array.world.network.drop_if(move |from, to, message| from == device(0) && to == writer && is_written(message));
    let asked = array.write(a, 0, STRIPE);
    array.run_for(Duration::from_millis(50));
    restart(&mut array, 1);
    let retracted = Rc::new(Cell::new(0));
    let seen = retracted.clone();
    array.world.network.set_rule(move |from, to, message| match command_of(message) {
        Some(Command::Retract { .. }) if to == device(1) => Verdict::Pass,
        Some(Command::Retract { .. }) if to == device(2) => {
            seen.set(seen.get() + 1);
            Verdict::Delay(Duration::from_millis(20))
        }
        Some(Command::Retract { .. }) => Verdict::Drop,
        Some(Command::Decide { outcome: Outcome::Commit, .. }) => Verdict::Delay(Duration::from_millis(50)),
        _ if from == device(0) && to == writer && is_written(message) => Verdict::Drop,
        _ => Verdict::Pass,
    });
    let outcome = array.finish(asked);
    assert!(matches!(outcome, Err(HostError::TimedOut { .. })), "{outcome:?}");
    array.run_for(Duration::from_secs(2));
    assert_eq!(retracted.get(), 1, "the host becomes a resolver at once");
    array.world.network.heal();
    reads_at_once(&mut array, b, &[0, 1, 2, 3]);
    assert_ne!(content(&mut array, b, 0, STRIPE), before, "all devices had voted for it");
    all_is_well(array);
}

#[test]
fn a_host_that_does_not_reach_one_device_holds_others_back_no_longer_than_its_patience() {
    let (mut array, a, b) = array();
    // A device that half of the hosts can't reach would be taken out.
    array.add_host();
    array.add_host();
    array.run_for(Duration::from_secs(1));
    let writer = array.node(a);
    array.world.network.cut(writer, device(0));
    let outcome = outcome_of_write(&mut array, a, 0, STRIPE);
    assert!(matches!(outcome, Err(HostError::TimedOut { .. })), "{outcome:?}");
    array.run_for(Duration::from_millis(100));
    reads_at_once(&mut array, b, &[0, 1, 2, 3]);
    assert!(time_of(&mut array, |array| write(array, b, 0, STRIPE)) < Duration::from_secs(1));
    array.world.network.heal();
    write(&mut array, a, 0, STRIPE);
    all_is_well(array);
}

#[test]
fn a_new_epoch_in_the_middle_of_a_retraction_leaves_one_outcome() {
    with_each([2, 3], array, |array, [a, b], lost| {
        let writer = array.node(a);
        array.world.network.drop_if(move |from, to, message| from == device(0) && to == writer && is_written(message));
        let asked = array.write(a, 0, STRIPE);
        array.run_for(Duration::from_millis(20));
        // Some devices hear of the retraction and others do not; then one that does is taken out.
        array.world.network.drop_if(move |from, to, message| {
            let unheard = is_retraction(message) && (to == device(0) || to == device(1) || to == device(3));
            let unanswered = from == device(0) && to == writer && is_written(message);
            unheard || unanswered
        });
        let outcome = array.finish(asked);
        assert!(matches!(outcome, Err(HostError::TimedOut { .. })), "{outcome:?}");
        array.run_for(Duration::from_millis(100));
        lose(array, lost);
        array.world.network.heal();
        reads_at_once(array, b, &[0, 1]);
        let after = content(array, b, 0, STRIPE);
        bring_back(array, lost);
        assert_eq!(content(array, a, 0, STRIPE), after);
    });
}

#[test]
fn a_load_of_writes_alone_does_not_wait_for_reservations_of_stamps() {
    let (mut array, a, _) = array();
    let (mut most, mut sum, mut count) = (Duration::ZERO, Duration::ZERO, 0);
    let begun = array.world.now();
    while array.world.now().since(begun) < Duration::from_secs(8) {
        let took = time_of(&mut array, |array| write(array, a, count as u64 % 3 * STRIPE, STRIPE));
        (most, sum, count) = (most.max(took), sum + took, count + 1);
    }
    let mean = sum / count;
    assert!(most < mean * 2, "{count} writes took {mean:?} on average, and {most:?} at most");
    all_is_well(array);
}

#[test]
fn writers_of_the_same_stripes_announce_their_writes_after_a_refusal() {
    let options = Options::calm("raid5:4+1", 5, 1, 3);
    let mut network = options.faults.network.clone();
    // Two writes often arrive at two devices in different orders.
    (network.in_order, network.latency_max) = (false, Duration::from_millis(2));
    let (mut array, a, b) = array_of(options);
    array.world.network.set_options(network);
    let hosts = [a, b, array.add_host(), array.add_host()];
    array.run_for(Duration::from_secs(1));
    let sent = Rc::new(Cell::new((0_u64, 0_u64, 0_u64)));
    let seen = sent.clone();
    array.world.network.set_rule(move |_, _, message| {
        let (mut all, mut writes, mut prewrites) = seen.get();
        all += u64::from(matches!(message, Message::Request(_) | Message::Answer(_)));
        writes += u64::from(is_write(message));
        prewrites += u64::from(is_prewrite(message));
        seen.set((all, writes, prewrites));
        Verdict::Pass
    });
    let counted = |array: &Cluster| {
        let of = hosts.map(|host| counters(array, host));
        (of.iter().map(|host| host.committed).sum::<u64>(), of.iter().map(|host| host.retries).sum::<u64>())
    };
    let before = counted(&array);
    for round in 0..100 {
        let writes = [0, 1, 2, 3, 0, 1, 2, 3].map(|host| array.write(hosts[host], round % 2 * STRIPE, STRIPE));
        assert_eq!(writes.map(|write| array.finish(write)), [(); 8].map(|()| DONE));
    }
    let after = counted(&array);
    let (committed, retries) = (after.0 - before.0, after.1 - before.1);
    let (messages, writes, prewrites) = sent.get();
    // Some writes are sent without a pre-write, and some pre-writes are sent again.
    assert!(writes * 20 > prewrites * 19 && prewrites > 0, "{writes} writes, {prewrites} pre-writes");
    assert!(retries < committed / 10, "{committed} writes, {retries} retries");
    // If all writes are announced, each takes 34.6 messages here: this is 5 % more. If none is, each takes 38.5.
    assert!(messages * 10 < committed * 363, "{committed} writes, {messages} messages");
    all_is_well(array);
}
