//! Writes without pre-writes: one message for each device, where nothing must be read. The tests play the devices.

use crate::stage::*;
use crate::story::{monitored, raid5, stories};

/// A write of the first stripe: four blocks of data.
const STRIPE: (&str, &str) = ("w writes 0+4", "#1 write 0 1 2 3 4");

#[test]
fn a_write_that_reached_some_devices_is_retracted_when_another_is_unavailable() {
    let story = [STRIPE, ("1 2 3 4 accept", ""), ("lack 0", "#1 retract 0 1 2 3 4, w Unavailable 0")];
    let told = monitored(&story);
    assert_eq!(told.transaction(1).host, HOST);
}

stories! {
    raid5;

    fn locks_of_devices_are_taken_first():
        "array device-lock";
        "w writes 0+4" => "#1 pre 0 1 2 3 4";

    fn a_refused_write_is_announced_when_it_is_tried_again():
        "w writes 0+4" => "#1 write 0 1 2 3 4";
        "1 2 3 4 accept";
        "0 refuses TooLate" => "#1 abort 1 2 3 4"; // The refusal is a promise; the others undo their intents.
        "all accept" => "#2 pre 0 1 2 3 4";
        "pass 0s";

    fn a_stripe_is_announced_for_a_while_after_a_refusal_and_others_are_not():
        "w writes 0+4" => "#1 write 0 1 2 3 4";
        "0 refuses TooLate" => "#1 abort 1 2 3 4";
        "v writes 0+4" => "#2 pre 0 1 2 3 4"; // Another host writes there now.
        "x writes 4+4" => "#3 write 0 1 2 3 4";
        "pass 250ms";
        "y writes 0+4" => "#4 write 0 1 2 3 4";

    fn a_write_without_a_promise_is_retracted_and_tried_again_when_all_have_undone_it():
        "w writes 0+4" => "#1 write 0 1 2 3 4";
        "1 2 3 4 accept";
        "0 refuses Busy" => "#1 retract 0 1 2 3 4"; // The full device, too: it may accept a late copy.
        "0 1 2 3 accept";
        "pass 100ms"; // One device may still have its intent.
        "4 accepts" => "#2 pre 0 1 2 3 4";
        "pass 100ms";

    fn a_write_that_another_host_knows_of_is_resolved_and_not_retracted():
        "w writes 0+4" => "#1 write 0 1 2 3 4";
        "1 2 3 4 accept";
        "0 refuses Busy" => "#1 retract 0 1 2 3 4";
        "1 votes Prepared" => "#1 resolve 0 1 2 3 4";
        "all vote Prepared" => "#1 commit 0 1 2 3 4"; // The full device has accepted a late copy.
        "all accept" => "w done"; // Another host may have found it committed.
}
