//! Scenarios in which a new epoch begins while transactions are in progress: their outcomes must agree with the answers that users
//! get.

use crate::story::*;

/// Whether the write of a dead host takes effect when the device `gone` is taken out.
fn survives(ordering: Ordering, (offset, length): (u64, u64), lost: &[u16], gone: u16) -> bool {
    let (mut array, a, b) = array_of_originators(ordering);
    fill(&mut array, b);
    let before = content(&mut array, b, offset, length);
    die_writing(&mut array, a, (offset, length), lost, |_| {});
    lose(&mut array, gone);
    let after = content(&mut array, b, offset, length);
    assert_eq!(content(&mut array, b, offset, length), after);
    bring_back(&mut array, gone);
    assert_eq!(content(&mut array, b, offset, length), after, "{ordering}: the decision without the device stands");
    all_is_well(array);
    after != before
}

#[test]
fn survivors_decide_what_a_dead_host_wrote_when_a_device_is_out_too() {
    // Blocks 0 and 1 are on devices 0 and 1, their parity is on device 4.
    for ordering in KEPT_APART {
        for gone in [0, 1, 4] {
            assert!(
                survives(ordering, (0, 2 * BLOCK), &[], gone),
                "{ordering}: all participants had their intents, so the write stands without {gone}"
            );
        }
        for gone in [4, 1] {
            assert!(
                survives(ordering, (0, 2 * BLOCK), &[gone], gone),
                "{ordering}: all remaining participants have their intents"
            );
        }
        for (lost, gone) in [(0, 4), (4, 0), (1, 4)] {
            assert!(!survives(ordering, (0, 2 * BLOCK), &[lost], gone), "{ordering}: {lost} never had its intent");
        }
    }
}

#[test]
fn a_device_that_was_out_has_no_say_in_what_was_written_before() {
    with_each_pair(KEPT_APART, [0, 1, 4], array_by, |array, [a, b], ordering, gone| {
        fill(array, b);
        let before = content(array, b, 0, 2 * BLOCK);
        // Unlocks are piggybacked like commits.
        array.run_for(Duration::from_millis(100));
        array.world.network.drop_if(|_, _, message| carries_commits(message));
        write(array, a, 0, 2 * BLOCK);
        array.crash(array.node(a));
        // No node resolves the transaction before the device has crashed, has returned, and has dropped its part.
        array.world.network.drop_if(|_, _, message| is_resolve(message));
        lose(array, gone);
        welcome(array, gone);
        array.world.network.heal();
        assert_ne!(content(array, b, 0, 2 * BLOCK), before, "{ordering}: the write was acknowledged");
        wait_in(array, gone);
    });
}

#[test]
fn answers_of_two_epochs_do_not_add_up_to_a_commit() {
    with_each([Ordering::Timestamp, Ordering::DeviceLock], filled_array_by, |array, [a, b], ordering| {
        // Devices 1 and 4 have their intents, and acknowledge them; the devwrite to device 0 never arrives.
        let writer = array.node(a);
        array.world.network.drop_if(move |from, to, message| from == writer && to == device(0) && is_write(message));
        let before = content(array, b, 0, 2 * BLOCK);
        let asked = array.write(a, 0, 2 * BLOCK);
        array.run_for(Duration::from_millis(20));
        // The host sleeps, so others find that device 0 never had its intent. Then device 0 is taken out, and its answer is the only
        // one that the host still needs.
        array.world.stall(writer, Duration::from_secs(6));
        assert_eq!(content(array, b, 0, 2 * BLOCK), before);
        array.run_for(Duration::from_secs(1));
        lose(array, 0);
        assert_eq!(array.finish(asked), DONE, "{ordering}");
        assert_ne!(content(array, b, 0, 2 * BLOCK), before, "{ordering}: the write was acknowledged");
        assert!(counters(array, a).resolved > 0, "{ordering}: the host has resolved the transaction");
        array.world.network.heal();
        bring_back(array, 0);
    });
}

#[test]
fn a_promise_never_to_prepare_outlives_a_restart_and_a_change_of_epoch() {
    with_each_pair(KEPT_APART, [false, true], array_by, |array, [a, b], ordering, another_epoch| {
        fill(array, b);
        let c = array.add_host();
        // The devwrite to device 4 is so late that its host is long dead, and the device does not learn of the decision.
        let writer = array.node(a);
        array.world.network.set_rule(move |from, to, message| match message {
            _ if from == writer && to == device(4) && is_write(message) => Verdict::Delay(Duration::from_secs(16)),
            _ if is_decision(message) => Verdict::Drop,
            _ => Verdict::Pass,
        });
        array.write(a, 0, BLOCK);
        array.run_for(Duration::from_millis(20));
        array.crash(writer);
        let promised = Rc::new(Cell::new(false));
        let seen = promised.clone();
        array.world.network.drop_if(move |from, _, message| {
            let vote = is_answer(message, |reply| matches!(reply, Reply::Vote { .. }));
            seen.set(seen.get() || (vote && from == device(4)));
            is_decision(message)
        });
        array.run_for(Duration::from_secs(6));
        assert!(promised.get(), "{ordering}: another host has resolved the transaction");
        restart(array, 4);
        if another_epoch {
            lose(array, 2);
        }
        [b, c].into_iter().for_each(|slot| replace_host(array, slot));
        array.world.network.heal();
        let before = content(array, b, 0, BLOCK);
        // The late write arrives.
        array.run_for(Duration::from_secs(12));
        assert_eq!(content(array, c, 0, BLOCK), before, "{ordering}");
        if another_epoch {
            bring_back(array, 2);
        }
    });
}

#[test]
fn a_write_of_unknown_outcome_is_not_written_again_over_what_came_after_it() {
    let array = || array_by(Ordering::Timestamp);
    with_each([2, 4], array, |array, [a, b], gone| {
        fill(array, b);
        let writer = array.node(a);
        // All participants have their intents, and their host falls asleep before it learns this.
        array.world.network.drop_if(move |_, to, message| to == writer && is_written(message));
        let first = array.write(a, 0, BLOCK);
        array.run_for(Duration::from_millis(20));
        array.world.stall(writer, Duration::from_secs(12));
        let seen = content(array, b, 0, BLOCK);
        write(array, b, 0, BLOCK);
        let second = content(array, b, 0, BLOCK);
        assert_ne!(seen, second);
        // The host wakes in another epoch, in which a device is out: a participant, or another device.
        lose(array, gone);
        array.world.network.heal();
        assert_eq!(array.finish(first), DONE, "the write took effect and was read");
        assert_eq!(content(array, a, 0, BLOCK), second);
        bring_back(array, gone);
        assert_eq!(content(array, a, 0, BLOCK), second);
    });
}

#[test]
fn a_write_that_was_refused_is_not_tried_again_while_others_could_find_it_committed() {
    let (mut array, a, b) = array_of_originators(Ordering::Timestamp);
    fill(&mut array, b);
    let before = content(&mut array, b, 0, 2 * BLOCK);
    // Device 0 restarts between pre-write and devwrite, and so refuses the devwrite; the others have their intents, and receive no
    // abort.
    array.world.network.set_rule(|_, to, message| match message {
        _ if is_write(message) && to == device(0) => Verdict::Delay(Duration::from_millis(20)),
        _ if is_abort(message) => Verdict::Drop,
        _ => Verdict::Pass,
    });
    let first = array.write(a, 0, 2 * BLOCK);
    array.run_for(Duration::from_millis(10));
    restart(&mut array, 0);
    array.run_for(Duration::from_millis(200));
    // The host sleeps, and device 0 is taken out: all remaining participants have their intents.
    array.world.stall(array.node(a), Duration::from_secs(14));
    lose(&mut array, 0);
    array.world.network.heal();
    let seen = content(&mut array, b, 0, 2 * BLOCK);
    assert_ne!(seen, before, "the remaining participants resolve it as committed");
    write(&mut array, b, 0, 2 * BLOCK);
    let second = content(&mut array, b, 0, 2 * BLOCK);
    assert_eq!(array.finish(first), DONE);
    assert_eq!(content(&mut array, a, 0, 2 * BLOCK), second, "the retry must not overwrite a later write");
    all_is_well_back_with(array, 0);
}

#[test]
fn writes_committed_and_forgotten_during_an_absence_are_resynchronised() {
    // Block 4 is on device 4, and the parity of its stripe on device 3; of stripe 0, device 4 has the parity.
    with_each_pair(KEPT_APART, [0, 4 * BLOCK], filled_array_by, |array, [a, b], ordering, offset| {
        // The device has its intent, durably, and acknowledges it, and never learns that the transaction is committed.
        array.world.network.drop_if(|_, to, message| to == device(4) && carries_commits(message));
        write(array, a, offset, BLOCK);
        array.run_for(Duration::from_millis(100));
        lose(array, 4);
        array.run_for(Duration::from_secs(1));
        let written = content(array, b, offset, BLOCK);
        array.world.network.heal();
        // No node remembers the outcome: the host is dead, too.
        replace_host(array, a);
        bring_back(array, 4);
        assert_eq!(content(array, b, offset, BLOCK), written, "{ordering}");
    });
}
