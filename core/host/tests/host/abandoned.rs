//! Operations whose user is gone. The tests play the devices.

use crate::stage::*;
use crate::story::{Told, raid5, stories, tell};

const ABANDONED_WRITE: [(&str, &str); 3] =
    [("w writes 0", "#1 pre+read 0 4"), ("all accept", "#1 write 0 4"), ("abandon w", "")];

/// A write of block 0 whose writes are sent, and then abandoned; then, this story.
fn abandoning(story: &[(&str, &str)]) {
    raid5(&ABANDONED_WRITE).goes_on(story);
}

#[test]
fn a_request_without_a_write_under_way_is_abandoned_at_once_and_for_good() {
    let mut told = raid5(&[("w writes 0", "#1 pre+read 0 4")]);
    let prewrites = told.open.clone();
    told.goes_on(&[("r reads 9", "#2 read 4"), ("abandon w r", "#1 abort 0 4, w Abandoned, r Abandoned")]);
    // The pre-writes are aborted, even where a device accepts them late.
    told.stage.accept_all(&prewrites, 0);
    told.goes_on(&[("all accept #1", ""), ("idle?", "yes")]);
}

/// Its own block, and a block of the same row, which shares its parity, wait. Block 9 lies in another row.
fn begins_behind(ordering: Ordering, writing: [(&str, &str); 2], begun: &str) {
    let mut told = tell(Stage::raid5(ordering), &writing);
    told.goes_on(&[
        ("abandon w", ""),
        ("s writes 0", ""),
        ("n writes 1", ""),
        ("r reads 0", ""),
        ("o reads 9", "#2 read 4"),
        ("all accept #1", begun),
    ]);
}

#[test]
fn requests_to_the_same_blocks_begin_behind_it_and_others_at_once() {
    let [write, accepts, _] = ABANDONED_WRITE;
    for ordering in [Ordering::Timestamp, Ordering::DeviceLock] {
        begins_behind(ordering, [write, accepts], "#3 pre+read 0 4, #4 pre+read 1 4, #5 read 0, w done");
    }
    let unordered = [("w writes 0", "#1 read 0 4"), ("all accept", "#1 write at once 0 4")];
    begins_behind(Ordering::None, unordered, "#3 read 0 4, #4 read 1 4, #5 read 0, w done");
}

#[test]
fn an_answered_request_is_not_abandoned() {
    let mut told = raid5(&[("r reads 0", "#1 read 0"), ("0 accepts", "r has 0"), ("abandon r", "")]);
    let op = told.stage.ask(ArrayRequest::Abandon { ops: vec![OpId::front_end(1_000)] });
    assert_eq!((told.stage.outcome(op), &told.stage.replies[..]), (DONE, &[][..]));
}

stories! {
    raid5;

    fn a_request_that_waits_for_a_retry_is_not_tried_again_once_abandoned():
        "w writes 0" => "#1 pre+read 0 4";
        // The first retry comes at once, the second one after a while.
        "0 refuses TooLate" => "#1 abort 4, #2 pre+read 0 4";
        "0 refuses TooLate" => "#2 abort 4";
        "abandon w" => "w Abandoned";
        "pass 20s" => "#1 abort 4, #2 abort 4";

    fn an_interrupted_write_that_took_effect_on_arrival_is_resynchronised_and_not_repeated():
        "array monitored consistent timestamp";
        "w writes 0" => "#1 pre+read 0 4";
        "all accept" => "#1 write at once 0 4";
        "abandon w";
        "0 accepts";
        "4 refuses TooLate" => "#1 interrupt 0";
        "all accept" => "#2 read 0 1 2 3 4, w Abandoned"; // Its stripe is examined.
}

stories! {
    abandoning;

    fn a_request_whose_write_is_under_way_ends_with_that_attempt():
        "all accept" => "w done"; // The write may yet commit.

    fn an_abandoned_request_whose_write_is_refused_makes_no_further_attempt():
        "0 refuses TooLate" => "#1 abort 4"; // A device may still hold a write of it.
        "all accept" => "w Abandoned";
        "pass 5s";
        "idle?" => "yes";
}
