//! A scenario of locks of devices.

use crate::story::*;
use braid_wire::Refusal;

#[test]
fn a_lost_refusal_of_a_read_lock_is_repeated() {
    let (mut array, a, b) = array_by(Ordering::DeviceLock);
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
