//! Scenarios of locks of devices: deadlocks over several devices, and the loss of locks by a restart.

use crate::story::*;
use braid_wire::Refusal;

fn array() -> (Cluster, HostSlot, HostSlot) {
    array_by(Ordering::DeviceLock)
}

fn is_lock(message: &Message) -> bool {
    matches!(command_of(message), Some(Command::Prewrite { .. } | Command::Read { .. }))
}

#[test]
fn a_reader_whose_lock_was_lost_in_a_restart_does_not_see_half_of_a_write() {
    let (mut array, a, b) = array();
    write(&mut array, a, 0, 2 * BLOCK);
    // The reader reads block 0 at once, and reaches block 1 after device 0 has forgotten its lock and both blocks were written.
    let reader = array.node(a);
    array.world.network.delay_if(Duration::from_secs(3), move |from, to, message| {
        from == reader && to == device(1) && is_lock(message)
    });
    let read = array.read(a, 0, 2 * BLOCK);
    array.run_for(Duration::from_millis(10));
    restart(&mut array, 0);
    array.world.network.heal();
    write(&mut array, b, 0, 2 * BLOCK);
    assert!(array.finish(read).is_ok());
    all_is_well(array);
}

#[test]
fn a_writer_whose_lock_was_lost_in_a_restart_begins_anew() {
    let (mut array, a, b) = array();
    // Its devwrite of the data arrives after that of another host, which found no lock there.
    let writer = array.node(a);
    array.world.network.delay_if(Duration::from_millis(500), move |from, to, message| {
        from == writer && to == device(0) && is_write(message)
    });
    let first = array.write(a, 0, BLOCK);
    array.run_for(Duration::from_millis(10));
    restart(&mut array, 0);
    array.world.network.heal();
    let second = array.write(b, 0, BLOCK);
    assert_eq!((array.finish(first), array.finish(second)), (DONE, DONE));
    all_is_well(array);
}

#[test]
fn an_intent_that_is_found_after_a_restart_is_locked_until_it_is_decided() {
    let (mut array, a, b) = array();
    array.world.network.drop_if(|_, _, message| carries_commits(message));
    assert_eq!(outcome_of_write(&mut array, a, 0, BLOCK), DONE, "committed, though no device knows it");
    restart(&mut array, 0);
    let read = array.read(b, 0, BLOCK);
    array.run_for(Duration::from_secs(2));
    assert_eq!(array.requests.asked().count(), 1, "the write is not decided yet");
    array.world.network.heal();
    assert!(array.finish(read).is_ok());
    all_is_well(array);
}

#[test]
fn a_dead_reader_holds_up_writers_for_a_lease_at_most() {
    let (mut array, a, b) = array();
    array.read(a, 0, 4 * BLOCK);
    array.run_for(Duration::from_micros(100));
    array.crash(array.node(a));
    let took = time_of(&mut array, |array| write(array, b, 0, BLOCK));
    assert!(took > Duration::from_secs(1) && took < A_LEASE, "{took:?}");
    all_is_well(array);
}

#[test]
fn a_lost_refusal_of_a_read_lock_is_repeated() {
    let (mut array, a, b) = array();
    write(&mut array, a, 0, BLOCK);
    // The writer holds its lock for longer than any request waits for a lock, and its reader does not get the first refusal.
    let (writer, reader) = (array.node(b), array.node(a));
    let mut refusals = 0;
    array.world.network.set_rule(move |from, to, message| {
        let refused = is_answer(message, |reply| matches!(reply, Reply::Refused { refusal: Refusal::LockTimeout, .. }));
        refusals += usize::from(refused && to == reader);
        match message {
            _ if refused && to == reader && refusals == 1 => Verdict::Drop,
            _ if from == writer && is_write(message) => Verdict::Delay(Duration::from_millis(200)),
            _ => Verdict::Pass,
        }
    });
    let write = array.write(b, 0, BLOCK);
    array.run_for(Duration::from_millis(10));
    let took = time_of(&mut array, |array| drop(content(array, a, 0, BLOCK)));
    assert!(took > Duration::from_millis(50) && took < Duration::from_secs(2), "{took:?}");
    assert_eq!(array.finish(write), DONE);
    all_is_well(array);
}
