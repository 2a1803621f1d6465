//! Scenarios of a lock server whose next start is on another machine, without its list of hosts, while the last one may go on.

use crate::story::*;
use braid_cluster::MovingLockServer;

const BOTH: [Ordering; 2] = [Ordering::ServerLock, Ordering::CallbackLock];

fn begun(seed: u64) -> (Cluster, MovingLockServer, [HostSlot; 2]) {
    let (mut array, a, b) = array_by(BOTH[seed as usize % 2]);
    let mut moving = MovingLockServer::begin(&mut array, seed);
    await_service(&mut array, &mut moving);
    (array, moving, [a, b])
}

fn await_service(array: &mut Cluster, moving: &mut MovingLockServer) {
    let begun = array.world.now();
    while !moving.serves(array) {
        moving.pass(array, Duration::from_millis(100));
        assert!(array.world.now().since(begun) < Duration::from_secs(30), "no start serves");
    }
}

fn replace_all_fenced(array: &mut Cluster) {
    for slot in array.fenced() {
        array.crash(array.node(slot));
        take_slot(array, slot);
    }
}

#[test]
fn when_its_machine_dies_with_a_holder_the_next_start_serves_soon() {
    for seed in 0..8 {
        let (mut array, mut moving, [a, b]) = begun(seed);
        [a, b].into_iter().for_each(|host| write(&mut array, host, 0, BLOCK));
        write(&mut array, a, 0, BLOCK);
        let died = array.world.now();
        array.crash(array.node(a));
        array.crash(moving.cut(false));
        await_service(&mut array, &mut moving);
        let took = array.world.now().since(died);
        assert!(took > Duration::from_secs(7) && took < Duration::from_secs(12), "{seed}: {took:?}");
        write(&mut array, b, 0, BLOCK);
        moving.end(&mut array);
        take_slot(&mut array, a);
        all_is_well(array);
    }
}

#[test]
fn a_start_that_is_stopped_or_cut_off_grants_nothing_when_it_continues() {
    for seed in 0..8 {
        let (mut array, mut moving, [a, b]) = begun(seed);
        write(&mut array, a, 0, BLOCK);
        // Hosts reach one that is cut off, and the leader does not hear it.
        let before = moving.cut(seed % 4 < 2);
        if seed % 4 >= 2 {
            array.world.stall(before, Duration::from_secs(13));
        }
        let first = array.write(b, 0, BLOCK);
        moving.pass(&mut array, Duration::from_secs(6));
        await_service(&mut array, &mut moving);
        assert!(moving.cut(false) != before, "{seed}");
        let second = array.write(a, 0, BLOCK);
        // Now it continues.
        moving.pass(&mut array, Duration::from_secs(8));
        [first, second].into_iter().for_each(|op| assert_eq!(array.finish(op), DONE, "{seed}"));
        assert!(array.fenced().is_empty(), "{seed}: hosts that live report what they hold");
        moving.end(&mut array);
        all_is_well(array);
    }
}

#[test]
fn starts_come_and_go_and_no_two_of_them_grant() {
    for seed in 0..16 {
        let mut rng = Rng::new(seed);
        let (mut array, mut moving, [a, b]) = begun(seed);
        // This one asks for no lock, or late.
        let (c, mut is_cut) = (array.add_host(), false);
        for _ in 0..60 {
            moving.pass(&mut array, Duration::from_millis(rng.below(2_000)));
            let (kind, span) = (rng.below(12), Duration::from_millis(rng.below(9_000)));
            is_cut = kind == 2 || (is_cut && !(3..5).contains(&kind));
            let node = moving.cut(is_cut);
            match kind {
                0 if array.world.is_up(node) => array.world.stall(node, span),
                1 if array.world.is_up(node) => array.crash(node),
                5 => moving.start(&mut array),
                6 => array.world.stall(array.node([a, b, c][rng.below(3) as usize]), span),
                _ => {}
            }
            replace_all_fenced(&mut array);
            let (slot, offset) = ([a, b, a, b, c][rng.below(5) as usize], rng.below(12) * BLOCK);
            match rng.chance(1, 3) {
                true => array.read(slot, offset, BLOCK),
                false => array.write(slot, offset, BLOCK),
            };
        }
        moving.cut(false);
        moving.pass(&mut array, Duration::from_secs(30));
        await_service(&mut array, &mut moving);
        moving.end(&mut array);
        array.run_for(A_WHILE);
        replace_all_fenced(&mut array);
        all_is_well(array);
    }
}
