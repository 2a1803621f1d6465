//! Back-off: waits double up to a limit, and random waits stay within it.

use braid_base::{Backoff, Rng};
use std::time::Duration;

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[test]
fn waits_double_up_to_the_limit_and_begin_again_after_a_reset() {
    let mut backoff = Backoff::new(millis(3), millis(20));
    assert!(!backoff.is_longest());
    let waits: Vec<_> = (0..5).map(|_| (backoff.next_wait(), backoff.is_longest())).collect();
    let expected = [(3, false), (6, false), (12, false), (20, true), (20, true)];
    assert_eq!(waits, expected.map(|(wait, longest)| (millis(wait), longest)));
    backoff.reset();
    assert_eq!(backoff.next_wait(), millis(3));
    assert_eq!(backoff.after(2).next_wait(), millis(12));
}

#[test]
fn random_waits_use_the_whole_interval_and_no_more() {
    let (least, mut rng) = (millis(2), Rng::new(1));
    let mut backoff = Backoff::new(millis(4), millis(1 << 30)).after(1);
    let waits: Vec<_> = (0..1000).map(|_| backoff.after(1).next_random_wait(least, &mut rng)).collect();
    assert!(waits.iter().all(|wait| (millis(2)..=millis(8)).contains(wait)));
    assert!(waits.iter().any(|wait| *wait < millis(3)) && waits.iter().any(|wait| *wait > millis(7)));
    assert!((0..100).all(|_| backoff.next_random_wait(least, &mut rng) <= millis(1 << 30)), "nothing overflows");
    let mut none = Backoff::new(Duration::ZERO, Duration::ZERO);
    assert_eq!(none.next_random_wait(least, &mut rng), least);
}
