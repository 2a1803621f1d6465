//! Writes that devices execute together. The tests play the devices; block 0 is on device 0, its parity on device 4.

use crate::stage::*;
use crate::story::{Told, stories, tell};

/// Tells a story of a volume whose parity devices compute.
fn at_parity(story: &[(&str, &str)]) {
    tell(Stage::at_parity(), story);
}

#[test]
fn only_what_must_read_is_executed_by_devices() {
    let mut told = tell(Stage::at_parity(), &[("w writes 0+4", "#1 write 0 1 2 3 4")]);
    // A part of a block.
    let op = told.stage.write(4 * BLOCK_BYTES as u64, vec![1; 100]);
    told.name(op, "p");
    told.goes_on(&[
        ("pass 0s", "#2 pre+read 3 4"),
        // Three of four units: the fourth only contributes.
        ("t writes 8+3", "#3 execute 0 1 2 3 4"),
    ]);
}

#[test]
fn a_device_that_waits_is_not_hurried() {
    let waits = [("4 waits", ""); 9];
    let (begins, ends) = ([("w writes 0", "#1 execute 0 4")], [("all accept", "w done")]);
    at_parity(&[&begins[..], &waits, &ends].concat());
}

stories! {
    at_parity;

    fn a_repeated_request_goes_to_those_that_owe_something_as_well():
        "w writes 0" => "#1 execute 0 4";
        "0 accepts";
        "pass 250ms";
        "all accept" => "w done";

    fn a_refusal_by_a_device_that_only_contributes_promises_nothing():
        "w writes 0+3" => "#1 execute 0 1 2 3 4"; // Every participant may have its intent.
        "3 refuses TooLate" => "#1 retract 0 1 2 4";

    fn a_write_does_without_a_contributor_that_can_not_read():
        "w writes 0+3" => "#1 execute 0 1 2 3 4";
        "3 fails Lost" => "#1 retract 0 1 2 4, #2 read 0 1 2 3 4"; // The stripe is repaired as well.
        "all accept #1" => "#3 pre+read 0 1 2 4";
        "pass 100ms";

    fn in_a_new_epoch_the_participants_decide():
        "w writes 0" => "#1 execute 0 4";
        "0 accepts";
        "enter 4:out" => "#1 resolve 0";
        "0 votes Prepared" => "#1 commit 0";
        "0 accepts" => "w done"; // All that count have their intents.

    fn devices_that_can_t_reach_each_other_are_not_needed_to():
        "w writes 0" => "#1 execute 0 4";
        "0 accepts";
        "4 lacks part of 0" => "#1 execute 0"; // The sender is asked again.
        "4 lacks part of 0" => "#1 execute 0";
        "4 lacks part of 0" => "#1 retract 0 4";
        "all accept" => "#2 pre+read 0 4";
        "pass 100ms";
        "all accept" => "#2 write 0 4";
        "all accept" => "w done";
        "v writes 0" => "#3 pre+read 0 4"; // For a while, columns are not sent to these two.
        "all accept" => "#3 write 0 4";
        "all accept" => "v done";
        "pass 11s";
        "x writes 0" => "#4 execute 0 4";
}
