//! Writes without pre-writes: one message for each device, where nothing must be read. The tests play the devices.

use crate::stage::*;
use crate::story::{Told, monitored, raid5, stories};

/// A write of the first stripe: four blocks of data.
const STRIPE: (&str, &str) = ("w writes 0+4", "#1 write 0 1 2 3 4");

#[test]
fn a_clock_that_leapt_and_came_back_costs_a_retry_and_no_error() {
    let mut told = raid5(&[]);
    let right = told.stage.now.clock;
    told.stage.now.clock = right.ahead(Duration::from_secs(20));
    told.goes_on(&[STRIPE]);
    told.stage.now.clock = right;
    told.goes_on(&[
        // The clock may have been stepping.
        ("0 refuses TooFarAhead", "#1 retract 0 1 2 3 4"),
        ("all accept", "#2 pre 0 1 2 3 4"),
        ("pass 0s", ""),
    ]);
    assert!(told.stamp(2).clock < right.ahead(Duration::from_secs(1)), "its stamps came back with its clock");
}

/// A device accepted the first write with a stamp from before a leap of the clock. No later stamp may be lower, or the host's own writes
/// would be out of order.
#[test]
fn stamps_stay_above_what_was_written_when_a_clock_comes_back() {
    let mut told = raid5(&[
        ("r reads 8", "#1 read 3"),
        // The host has learned of a device whose floor is ahead of the clocks.
        ("3 refuses TooLate by 1s", "#2 read 3"),
        ("pass 0s", ""),
        ("3 accepts", "r has 0"),
        ("w writes 0+4", "#3 write 0 1 2 3 4"),
        ("all accept", "w done"),
    ]);
    let (acknowledged, right) = (told.stamp(3), told.stage.now.clock);
    told.stage.now.clock = right.ahead(Duration::from_secs(3_600));
    told.goes_on(&[("v writes 4+4", "#4 write 0 1 2 3 4")]);
    told.stage.now.clock = right;
    told.goes_on(&[("0 refuses TooFarAhead", "#4 retract 0 1 2 3 4"), ("x writes 8+4", "#5 write 0 1 2 3 4")]);
    assert!(told.stamp(5) > acknowledged, "{acknowledged}");
}

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
