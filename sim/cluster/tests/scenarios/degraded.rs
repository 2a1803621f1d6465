//! Scenarios with a device out: the volume is served degraded; when the device returns, it is resynchronised, and only the blocks
//! that it missed are written.

use crate::story::*;

/// Layouts, the lengths of their rings, and the blocks of a unit.
const LAYOUTS: [(&str, usize, u64); 4] =
    [("raid5:4+1", 5, 1), ("raid5:2+1", 4, 4), ("raid1:2", 2, 1), ("raid1:3", 4, 2)];

fn array_laid(ordering: Ordering, layout: &str, devices: usize, unit: u64) -> (Cluster, HostSlot, HostSlot) {
    array_of(ordered(ordering, Options::calm(layout, devices, unit, 6)))
}

/// Six stripes on five devices, with content.
fn wide() -> (Cluster, HostSlot, HostSlot) {
    filled_array_of(Options::calm("raid5:4+1", 5, 1, 6))
}

fn reads(message: &Message) -> bool {
    match command_of(message) {
        Some(Command::Read { .. }) => true,
        Some(Command::Prewrite { reads, .. }) => !reads.is_empty(),
        _ => false,
    }
}

/// Both hosts read all stripes and write each of them: one block of the first stripe, all blocks except one of the second, the whole
/// third, and so on; and once from the middle of one stripe to the middle of the next.
fn use_all(array: &mut Cluster, a: HostSlot, b: HostSlot) {
    let blocks = array.volume().layout.stripe_blocks();
    let stripe = blocks * BLOCK;
    for number in 0..array.volume().stripes() {
        let start = number * stripe;
        let (offset, length) = match number % 3 {
            0 => (start + number % blocks * BLOCK, BLOCK),
            1 => (start, (stripe - BLOCK).max(BLOCK)),
            _ => (start, stripe),
        };
        let (ours, theirs) = (array.write(a, offset, length), array.read(b, start, stripe));
        assert_eq!(array.finish(ours), DONE);
        assert!(array.finish(theirs).is_ok());
    }
    write(array, b, stripe / 2, stripe);
}

#[test]
fn users_go_on_while_a_device_is_out_or_returns_and_it_is_complete_when_in() {
    for ordering in KEPT_APART {
        for (layout, devices, unit) in LAYOUTS {
            for victim in [0, devices as u16 - 1] {
                let (mut array, a, b) = array_laid(ordering, layout, devices, unit);
                fill(&mut array, a);
                lose(&mut array, victim);
                use_all(&mut array, a, b);
                // The device can't be resynchronised yet, and must not be read.
                let read = Rc::new(Cell::new(0));
                let count = read.clone();
                array.world.network.drop_if(move |_, to, message| {
                    count.set(count.get() + u32::from(to == device(victim) && reads(message)));
                    asks_what_was_missed(message)
                });
                welcome(&mut array, victim);
                use_all(&mut array, b, a);
                assert!(matches!(
                    member_state(&array, victim),
                    Some(MemberState::Returning { recovery_coordinator: Some(_) })
                ));
                assert_eq!(read.get(), 0, "{ordering}, {layout}: a device was read that misses writes");
                array.world.network.heal();
                wait_in(&mut array, victim);
                use_all(&mut array, a, b);
                all_is_well(array);
            }
        }
    }
}

#[test]
fn a_device_is_brought_what_it_missed_and_no_more() {
    // Stripe n is block n of each device. Device 4 has the parity of stripe 0, block 4 of stripe 1, and block 9 of stripe 2.
    let (mut array, a, b) = wide();
    lose(&mut array, 4);
    write(&mut array, a, 0, BLOCK);
    write(&mut array, b, 4 * BLOCK, BLOCK);
    write(&mut array, a, 8 * BLOCK, BLOCK);
    write(&mut array, b, 12 * BLOCK, 4 * BLOCK);
    let brought = note_blocks_written(&mut array, 4);
    bring_back(&mut array, 4);
    assert_eq!(brought.take(), BTreeSet::from([0, 1, 3]), "device 4 was written blocks that it did not miss");
    // The blocks that it missed are no longer on record.
    lose(&mut array, 4);
    write(&mut array, a, 20 * BLOCK, BLOCK);
    let brought = note_blocks_written(&mut array, 4);
    bring_back(&mut array, 4);
    assert_eq!(brought.take(), BTreeSet::from([5]));
    all_is_well(array);
}

#[test]
fn a_device_that_is_silent_for_less_than_its_lease_makes_no_epoch() {
    with_each(KEPT_APART, filled_array_by, |array, [a, b], ordering| {
        let before = epoch(array);
        array.crash(device(4));
        let begun = array.world.now();
        let writes = [array.write(a, 0, BLOCK), array.write(b, 4 * BLOCK, BLOCK), array.write(a, 8 * BLOCK, 4 * BLOCK)];
        array.run_for(Duration::from_secs(3));
        array.restart_device(DeviceId(4));
        for write in writes {
            assert_eq!(array.finish(write), DONE);
        }
        assert!(array.world.now().since(begun) < A_LEASE);
        array.run_for(A_WHILE);
        assert_eq!(epoch(array), before, "{ordering}: the device was taken out");
    });
}

/// A reader whose plain reads are refused again and again, because others write meanwhile. Returns how long it took, and whether it
/// pre-wrote.
fn starve(array: &mut Cluster, reader: HostSlot, writer: HostSlot, offset: u64) -> (Duration, bool) {
    let insisted = Rc::new(Cell::new(false));
    let (seen, slow) = (insisted.clone(), array.node(reader));
    array.world.network.delay_if(Duration::from_millis(5), move |from, _, message| {
        seen.set(seen.get() || from == slow && matches!(command_of(message), Some(Command::Prewrite { .. })));
        from == slow && matches!(command_of(message), Some(Command::Read { .. }))
    });
    let begun = array.world.now();
    let read = array.read(reader, offset, BLOCK);
    while array.requests.is_open(read) {
        write(array, writer, offset, BLOCK);
    }
    let took = array.world.now().since(begun);
    let outcome = array.finish(read);
    assert!(outcome.is_ok(), "{outcome:?}");
    array.world.network.heal();
    (took, insisted.get())
}

#[test]
fn a_reader_that_always_comes_too_late_reads_with_prewrites_at_last() {
    let (mut array, a, b) = wide();
    let (took, insisted) = starve(&mut array, b, a, 0);
    assert!(insisted && took < Duration::from_secs(1), "{took:?}");
    // Block 0 is on device 0: a read of it without that device reads all the others.
    lose(&mut array, 0);
    let (took, insisted) = starve(&mut array, b, a, 0);
    assert!(insisted && took < Duration::from_secs(1), "{took:?}");
    all_is_well_back_with(array, 0);
}

#[test]
fn without_redundancy_a_device_is_waited_for_and_nothing_is_lost() {
    let (mut array, a, b) = filled_array_of(Options::calm("raid0:3", 3, 1, 3));
    // The block was just written, and the device does not know yet that the write is committed.
    array.world.network.drop_if(|_, _, message| carries_commits(message));
    write(&mut array, a, 0, 2 * BLOCK);
    let written = {
        array.crash(device(0));
        array.world.network.heal();
        array.run_for(Duration::from_secs(8));
        assert_eq!((member_state(&array, 0), epoch(&array)), (Some(MemberState::In), 1), "no device can replace it");
        for host in [a, b] {
            let (read, write) = (array.read(host, 0, BLOCK), array.write(host, BLOCK, 2 * BLOCK));
            let crossing = array.write(host, 0, 2 * BLOCK);
            assert!(lacks(&array.finish(read), &[0]), "the error names the missing device");
            assert_eq!(array.finish(write), DONE, "a write that does not need the device succeeds");
            assert!(lacks(&array.finish(crossing), &[0]));
        }
        array.restart_device(DeviceId(0));
        array.run_for(Duration::from_secs(1));
        content(&mut array, b, 0, BLOCK)
    };
    assert_eq!(content(&mut array, a, 0, BLOCK), written);
    write(&mut array, b, 0, 3 * BLOCK);
    all_is_well(array);
}

#[test]
fn power_fails_everywhere_during_writes_whether_a_device_is_out_or_not() {
    with_each_pair(0..12, [true, false], wide, |array, [a, b], round, is_out| {
        if is_out {
            lose(array, 2);
        }
        for number in 0..6 {
            array.write(a, number * 4 * BLOCK, 4 * BLOCK);
            array.write(b, (number * 4 + 2) * BLOCK, BLOCK);
        }
        array.run_for(Duration::from_micros(150 * round));
        power_fails_everywhere(array, [a, b]);
        wait_in(array, 2);
    });
}
