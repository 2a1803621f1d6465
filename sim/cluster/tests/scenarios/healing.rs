//! Scenarios in which a disk is gone for good and another disk takes its slot: the array is served throughout, no data is lost, and
//! in the end the new disk is complete.

use crate::story::*;
use braid_machine::Found;
use braid_wire::{HealingProgress, JoinRefused};
use braid_world::FaultKind;
use std::ops::Range;

fn replace(array: &mut Cluster, host: HostSlot, number: u16, disk: DiskId) -> HostOutcome {
    let (device, blocks) = (DeviceId(number), array.options.disk_blocks());
    administer(array, host, Administration::Replace { device, disk, blocks, lose: false })
}

/// The disk of a device is replaced by another one with an empty store.
fn swap(array: &mut Cluster, number: u16, disk: DiskId) {
    array.crash(device(number));
    array.swap_disk(DeviceId(number), disk);
    array.restart_device(DeviceId(number));
}

/// Gives a device a new disk in the way of an operator: first the request, then the swap. Waits until the device is returning.
pub fn renew(array: &mut Cluster, host: HostSlot, number: u16) {
    let disk = array.device_notes.new_disk();
    assert_eq!(replace(array, host, number, disk), DONE);
    swap(array, number, disk);
    wait_until(array, "the device is returning", |array| is_returning(array, number));
}

fn join_refused(array: &Cluster, number: u16) -> Option<JoinRefused> {
    array.device(DeviceId(number))?.join_refused()
}

pub fn healing(array: &Cluster, host: HostSlot) -> Option<HealingProgress> {
    array.role(host).and_then(Role::host)?.healing().next().map(|(_, progress)| progress)
}

const LAYOUTS: [(&str, usize, u64); 5] =
    [("raid5:4+1", 5, 1), ("raid5:2+1", 4, 4), ("raid1:2", 2, 16), ("raid1:3", 4, 2), ("raid5:2+1", 6, 32)];

#[test]
fn a_device_with_a_new_disk_has_everything_in_the_end() {
    for ordering in KEPT_APART {
        for (layout, devices, unit) in LAYOUTS {
            let (mut array, a, b) = array_of(ordered(ordering, Options::calm(layout, devices, unit, 7)));
            let stripe = array.volume().layout.stripe_blocks() * BLOCK;
            // Some stripes are never written.
            for number in [0, 1, 3, 5] {
                write(&mut array, a, number * stripe, stripe);
            }
            write(&mut array, b, 5 * stripe + BLOCK, BLOCK);
            // Writes while the device is being taken out, and while it is rebuilt.
            let early = array.write(a, BLOCK, BLOCK);
            renew(&mut array, b, devices as u16 - 1);
            assert_eq!(array.finish(early), DONE);
            write(&mut array, b, 3 * stripe, stripe);
            write(&mut array, a, 4 * stripe, BLOCK);
            all_is_well_with(array, devices as u16 - 1);
        }
    }
}

#[test]
fn a_disk_with_a_past_takes_no_slot() {
    let (mut array, a, _) = filled_array_by(Ordering::Timestamp);
    let first = DiskId(3);
    renew(&mut array, a, 2);
    wait_in(&mut array, 2);
    // The disk that was taken out is inserted again, and the operator says that it is a new disk.
    lose(&mut array, 2);
    assert_eq!(replace(&mut array, a, 2, first), DONE);
    // The disk was in use, and has another name.
    array.restart_device(DeviceId(2));
    array.run_for(A_WHILE);
    assert!(is_out(&array, 2));
    assert!(matches!(join_refused(&array, 2), Some(JoinRefused::OtherDisk { .. })));
    // The operator reverses this.
    assert_eq!(administer(&mut array, a, Administration::Readmit { device: DeviceId(2) }), DONE);
    all_is_well_with(array, 2);
}

#[test]
fn a_device_goes_on_serving_until_the_array_can_do_without_it() {
    let (mut array, a, _) = filled_array_by(Ordering::Timestamp);
    let disk = array.device_notes.new_disk();
    array.crash(device(4));
    assert_eq!(replace(&mut array, a, 2, disk), DONE, "the other device is not unavailable yet");
    array.run_for(A_WHILE);
    // One of the two devices is out, and not both; milliseconds decide which.
    let out = [2, 4].map(|number| is_out(&array, number));
    assert!(out[0] != out[1], "{out:?}");
    array.restart_device(DeviceId(4));
    wait_in(&mut array, 4);
    wait_out(&mut array, 2);
    swap(&mut array, 2, disk);
    all_is_well_with(array, 2);
}

/// The transaction of a restore, which only this device takes part in.
pub fn restore_of(message: &Message, to: NodeId, number: u16) -> Option<TransactionId> {
    match command_of(message)? {
        Command::Write { transaction, participants, mode: WriteMode::Intent, .. } => {
            (participants[..] == [DeviceId(number)] && to == device(number)).then_some(*transaction)
        }
        _ => None,
    }
}

/// Counts the blocks that restores write to a device, each restore once.
fn count_restored(array: &mut Cluster, number: u16) -> Rc<Cell<u64>> {
    let restored = Rc::new(Cell::new(0));
    let count = restored.clone();
    let mut seen = BTreeSet::new();
    array.world.network.set_rule(move |_, to, message| {
        if restore_of(message, to, number).is_some_and(|transaction| seen.insert(transaction)) {
            count.set(count.get() + blocks_written(message).len() as u64);
        }
        Verdict::Pass
    });
    restored
}

pub fn throttle(array: &mut Cluster, host: HostSlot, throttle: RecoveryThrottle) {
    assert_eq!(administer(array, host, Administration::RecoveryThrottle(throttle)), DONE);
}

/// A volume whose rebuild takes a while.
fn large() -> (Cluster, HostSlot, HostSlot) {
    filled_array_of(Options::calm("raid5:2+1", 3, 16, 60))
}

#[test]
fn a_rebuild_continues_where_it_was_after_any_death() {
    let (mut array, a, b) = large();
    let blocks = array.volume().component_blocks();
    throttle(&mut array, a, RecoveryThrottle { bytes_per_second: 1 << 20, ..RecoveryThrottle::default() });
    let restored = count_restored(&mut array, 1);
    renew(&mut array, b, 1);
    // A portion arrives every second, and is on record a little later.
    let bring = |array: &mut Cluster, part: u64| {
        while restored.get() < blocks * part / 4 {
            array.run_for(Duration::from_millis(5));
        }
        array.run_for(Duration::from_millis(700));
    };
    bring(&mut array, 1);
    // In turn: the recovery coordinator; the device; the monitor; and the device for so long that it is taken out.
    array.crash(array.node(a));
    bring(&mut array, 2);
    restart(&mut array, 1);
    restart_monitor(&mut array);
    bring(&mut array, 3);
    lose(&mut array, 1);
    write(&mut array, b, 0, BLOCK);
    array.restart_device(DeviceId(1));
    wait_in(&mut array, 1);
    let total = restored.get();
    assert!(total <= blocks + 256, "{total} blocks were written of {blocks}");
    all_is_well(array);
}

#[test]
fn a_rebuild_keeps_to_its_throttle_and_pauses_on_request() {
    let (mut array, a, b) = large();
    let bytes = array.volume().component_blocks() * BLOCK;
    let limit = |bytes_per_second, paused| RecoveryThrottle { bytes_per_second, paused, ..RecoveryThrottle::default() };
    throttle(&mut array, b, limit(bytes / 8, false));
    renew(&mut array, b, 0);
    let begun = array.world.now();
    array.run_for(Duration::from_secs(3));
    let at = |array: &Cluster| healing(array, a).expect("the device has a recovery coordinator").done;
    let done = at(&array) * BLOCK * 8 / bytes;
    assert!((2..=4).contains(&done), "{done}");
    throttle(&mut array, b, limit(bytes / 8, true));
    array.run_for(Duration::from_secs(1));
    let before = at(&array);
    array.run_for(A_WHILE);
    assert_eq!(at(&array), before);
    throttle(&mut array, b, limit(0, false));
    wait_in(&mut array, 0);
    assert!(array.world.now().since(begun) < Duration::from_secs(21));
    all_is_well(array);
}

#[test]
fn unwritten_blocks_take_no_time() {
    // 60,000 blocks on each device.
    let options = Options { device_bytes: 512 << 20, ..Options::calm("raid5:2+1", 3, 16, 3_750) };
    let (mut array, a, b) = array_of(options);
    let stripe = array.volume().layout.stripe_blocks() * BLOCK;
    for number in [0, 17, 3_000, 3_749] {
        write(&mut array, a, number * stripe, stripe);
    }
    let restored = count_restored(&mut array, 2);
    throttle(&mut array, b, RecoveryThrottle { bytes_per_second: 1 << 20, ..RecoveryThrottle::default() });
    renew(&mut array, b, 2);
    let took = time_of(&mut array, |array| wait_in(array, 2));
    assert!(took < Duration::from_secs(12), "{took:?}");
    assert!(restored.get() >= 60_000, "every block was restored");
    [0, 17, 18, 3_000, 3_749].into_iter().for_each(|stripe| parity_matches(&mut array, a, stripe));
}

fn parity_matches(array: &mut Cluster, host: HostSlot, stripe: u64) {
    let outcome = array.perform(host, JobRequest::Check { volume: array.volume().id, stripe });
    assert_eq!(outcome, Ok(HostSuccess::Checked { matches: true }));
}

#[test]
fn a_spare_takes_the_slot_of_a_device_that_stays_out() {
    let mut options = Options::calm("raid5:4+1", 5, 1, 3);
    options.settings.spare_after = Duration::from_secs(30);
    let (mut array, a, _) = filled_array_of(options);
    let (small, fits) = (array.device_notes.new_disk(), array.device_notes.new_disk());
    for (disk, blocks) in [(small, 15), (fits, 1_000)] {
        assert_eq!(administer(&mut array, a, Administration::AddSpare { disk, blocks }), DONE);
    }
    lose(&mut array, 3);
    write(&mut array, a, 0, 8 * BLOCK);
    let awaits = |array: &Cluster| array.monitor()?.slots().find(|slot| slot.device == DeviceId(3))?.awaited_disk;
    array.run_for(Duration::from_secs(20));
    assert_eq!(awaits(&array), None, "the device may still return");
    wait_until(&mut array, "a spare takes its slot", |array| awaits(array).is_some());
    assert_eq!(awaits(&array), Some(fits));
    swap(&mut array, 3, fits);
    wait_in(&mut array, 3);
    assert_eq!(awaits(&array), None);
    all_is_well(array);
}

/// Rows of units of 16 blocks are written directly to their places, so that they can be corrupted.
fn at_home() -> (Cluster, HostSlot, HostSlot) {
    let mut options = Options::calm("raid5:2+1", 3, 16, 4);
    // Lost blocks may be reported.
    options.faults.weights.insert(FaultKind::Corruption, 1);
    filled_array_of(options)
}

pub fn scrub(array: &mut Cluster, host: HostSlot, repair: bool) -> ScrubReport {
    scrub_stripes(array, host, 0..u64::MAX, repair)
}

fn scrub_stripes(array: &mut Cluster, host: HostSlot, stripes: Range<u64>, repair: bool) -> ScrubReport {
    let volume = array.volume().id;
    match array.perform(host, JobRequest::Scrub { volume, stripes, repair, recompute: false }) {
        Ok(HostSuccess::Scrubbed(report)) => report,
        other => panic!("not the answer to a scrub: {other:?}"),
    }
}

#[test]
fn a_scrub_finds_checksum_errors_and_repairs_them() {
    let (mut array, a, b) = at_home();
    let rows = array.volume().stripes() * 16;
    assert_eq!(scrub(&mut array, b, true), ScrubReport { rows, ..ScrubReport::default() });
    // Data, and parity: stripe 0 has its parity on device 2, stripe 1 on device 1.
    for (number, block) in [(0, 3), (1, 3 + 1), (2, 7), (1, 20), (1, 21), (0, 60)] {
        assert!(array.corrupt(DeviceId(number), block), "{block} of {number}");
    }
    let found = scrub(&mut array, a, false);
    assert_eq!((found.lost, found.repaired, found.rows), (6, 0, rows - 6), "{found:?}");
    let part = scrub_stripes(&mut array, b, 1..2, false);
    assert_eq!((part.lost, part.rows), (2, 14), "of the second stripe alone: {part:?}");
    let repaired = scrub(&mut array, a, true);
    assert_eq!((repaired.lost, repaired.repaired, repaired.rows), (6, 6, rows), "{repaired:?}");
    assert_eq!(repaired.findings, []);
    assert_eq!(scrub(&mut array, b, true), ScrubReport { rows, ..ScrubReport::default() });
    all_is_well(array);
}

#[test]
fn blocks_lost_twice_in_a_row_are_named_and_the_rest_is_repaired() {
    let (mut array, a, b) = at_home();
    let rows = array.volume().stripes() * 16;
    // Both data units of row 5 of stripe 0, and single blocks elsewhere.
    for (number, block) in [(0, 5), (1, 5), (0, 9), (2, 2)] {
        assert!(array.corrupt(DeviceId(number), block));
    }
    let report = scrub(&mut array, a, true);
    assert_eq!((report.repaired, report.unrepairable, report.rows), (2, 1, rows - 1), "{report:?}");
    let mut lost: Vec<_> = report.findings.iter().map(|finding| (finding.found, finding.offset / BLOCK)).collect();
    lost.sort_by_key(|(_, block)| *block);
    assert_eq!(lost, [(Found::Lost, 5), (Found::Lost, 16 + 5)]);
    // The error names the block, and a write of the whole row repairs it.
    assert!(matches!(read(&mut array, b, 5 * BLOCK, BLOCK), Err(HostError::Device { .. })));
    write(&mut array, b, 0, 32 * BLOCK);
    assert_eq!(scrub(&mut array, b, true), ScrubReport { rows, ..ScrubReport::default() });
    all_is_well(array);
}

#[test]
fn a_device_returns_though_something_it_lacks_can_not_be_restored() {
    let (mut array, a, b) = at_home();
    // Rows 5 and 8 of stripe 0 are lost on another device when device 0 gets a new disk.
    assert!(array.corrupt(DeviceId(1), 5) && array.corrupt(DeviceId(2), 8));
    let lost = |array: &Cluster| array.role(a).and_then(Role::host).expect("it is up").not_restored().count();
    let named = Cell::new(0);
    renew(&mut array, b, 0);
    wait_until(&mut array, "the device is in", |array| {
        named.set(named.get().max(lost(array)));
        is_in(array, 0)
    });
    assert_eq!(named.get(), 2);
    for block in [5, 8] {
        let outcome = read(&mut array, b, block * BLOCK, BLOCK);
        assert!(matches!(outcome, Err(HostError::Device { .. })), "{block}: a lost block must be reported");
    }
    content(&mut array, b, 6 * BLOCK, 2 * BLOCK);
    // The other blocks of these rows are unchanged, unless they are lost themselves.
    content(&mut array, b, (16 + 8) * BLOCK, BLOCK);
    let report = scrub(&mut array, b, true);
    assert_eq!((report.unrepairable, report.repaired), (2, 0), "{report:?}");
    write(&mut array, a, 0, 32 * BLOCK);
    all_is_well(array);
}

#[test]
fn a_device_keeps_what_it_has_not_missed_though_the_rest_of_the_row_is_damaged() {
    let (mut array, a, b) = at_home();
    // A host dies before it declares a write over that all devices have; another host finds out that they have it.
    write(&mut array, a, 0, 32 * BLOCK);
    array.crash(array.node(a));
    array.run_for(A_WHILE);
    assert!(array.corrupt(DeviceId(1), 5));
    // Also a device that has restarted knows that no other device misses the write.
    for number in [2, 0, 2] {
        lose(&mut array, number);
        restart(&mut array, 2 - number);
        bring_back(&mut array, number);
    }
    content(&mut array, b, 0, 32 * BLOCK);
    let report = scrub(&mut array, b, true);
    assert_eq!((report.unrepairable, report.findings), (0, Vec::new()));
    all_is_well(array);
}

#[test]
fn a_checksum_error_met_by_a_user_is_repaired_without_a_scrub() {
    let (mut array, a, b) = at_home();
    let rows = array.volume().stripes() * 16;
    // Two blocks in one unit, and one of the parity, which no read uses.
    for (number, block) in [(0, 3), (0, 4), (2, 7)] {
        assert!(array.corrupt(DeviceId(number), block));
    }
    content(&mut array, a, 3 * BLOCK, BLOCK);
    array.run_for(A_WHILE);
    assert_eq!(scrub(&mut array, b, false), ScrubReport { rows, ..ScrubReport::default() });
    let counted = counters(&array, a);
    assert_eq!((counted.corruption_found, counted.corruption_repaired), (3, 3));
    all_is_well(array);
}

#[test]
fn a_device_that_gets_nowhere_does_not_hold_up_another() {
    // Two pairs: one device of each pair may be unavailable.
    let (mut array, a, b) = filled_array_of(Options::calm("raid1:2", 4, 2, 8));
    for number in [1, 3] {
        lose(&mut array, number);
    }
    write(&mut array, a, 0, 8 * BLOCK);
    // Device 1 has returned, but no host can ask for the blocks that it missed.
    array.world.network.drop_if(|_, _, message| {
        matches!(command_of(message), Some(Command::Manage { task: Task::ListMissed { device: DeviceId(1), .. }, .. }))
    });
    welcome(&mut array, 1);
    array.restart_device(DeviceId(3));
    wait_in(&mut array, 3);
    assert!(is_returning(&array, 1));
    content(&mut array, b, 0, 8 * BLOCK);
    array.world.network.heal();
    all_is_well_with(array, 1);
}

#[test]
fn a_rebuild_gives_way_to_users_and_goes_fast_without_them() {
    let took = |users: bool| {
        let (mut array, _, b) = large();
        throttle(&mut array, b, RecoveryThrottle { share: 3, ..RecoveryThrottle::default() });
        renew(&mut array, b, 1);
        let took = time_of(&mut array, |array| {
            // Users of the host that is not the recovery coordinator.
            while !is_in(array, 1) {
                if users {
                    content(array, b, 0, BLOCK);
                }
                array.run_for(Duration::from_millis(5));
            }
        });
        all_is_well(array);
        took
    };
    let (alone, beside) = (took(false), took(true));
    assert!(beside > alone * 2, "{alone:?} alone, {beside:?} beside users");
}

#[test]
fn a_device_that_missed_ten_seconds_of_small_writes_is_current_soon_and_is_sent_little_more() {
    // 10,000 blocks on each device, and a write every 4 ms.
    let options = Options { device_bytes: 512 << 20, ..Options::calm("raid5:4+1", 5, 16, 625) };
    let (mut array, a, b) = array_of(options);
    let blocks = array.volume().bytes / BLOCK;
    let restored = count_restored(&mut array, 2);
    let mut next = 0;
    let mut users = |array: &mut Cluster, milliseconds: u64| {
        for _ in 0..milliseconds / 4 {
            next = (next + 7_919) % blocks;
            array.write(if next % 2 == 0 { a } else { b }, next * BLOCK, BLOCK);
            array.run_for(Duration::from_millis(4));
        }
    };
    array.crash(device(2));
    users(&mut array, 10_000);
    assert!(is_out(&array, 2));
    array.restart_device(DeviceId(2));
    let back = array.world.now();
    while !is_in(&array, 2) {
        users(&mut array, 12);
        assert!(array.world.now().since(back) < Duration::from_secs(5), "{:?}", healing(&array, a));
    }
    // A small write has one block of data and one of parity.
    assert!((1..2 * 2 * 2_500 / 5).contains(&restored.get()), "{}", restored.get());
    array.run_for(A_WHILE);
    (0..625).step_by(25).for_each(|stripe| parity_matches(&mut array, b, stripe));
}
