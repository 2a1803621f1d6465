//! Timers, times and stamps.

use braid_base::{Clock, Generation, Stamp, StampSource, Time, Timers};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Step {
    Set(u8, u64),
    Cancel(u8),
    Pop(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..6u8, 0..20u64).prop_map(|(key, time)| Step::Set(key, time)),
        (0..6u8).prop_map(Step::Cancel),
        (0..20u64).prop_map(Step::Pop),
    ]
}

proptest! {
    #[test]
    fn timers_wake_what_a_plain_table_of_deadlines_wakes(steps in vec(step(), 1..60)) {
        let (mut timers, mut naive) = (Timers::default(), BTreeMap::new());
        for step in steps {
            match step {
                Step::Set(key, time) => {
                    timers.set(key, Time(time));
                    naive.insert(key, Time(time));
                }
                Step::Cancel(key) => {
                    timers.cancel(key);
                    naive.remove(&key);
                }
                Step::Pop(now) => {
                    let due = naive.iter().map(|(key, time)| (*time, *key)).min().filter(|(time, _)| *time <= Time(now));
                    prop_assert_eq!(timers.pop_due(Time(now)), due.map(|(_, key)| key));
                    due.map(|(_, key)| naive.remove(&key));
                }
            }
            prop_assert_eq!(timers.next(), naive.iter().map(|(key, time)| (*time, *key)).min());
            for key in 0..6 {
                prop_assert_eq!(timers.deadline_of(key), naive.get(&key).copied());
            }
        }
    }

    #[test]
    fn stamps_rise_whatever_the_clock_does_and_whatever_was_learned(
        steps in vec((0..1000u64, prop::option::of((0..1000u64, 0..9u32))), 1..50),
    ) {
        let mut source = StampSource::new(Generation(4));
        let mut highest = Stamp::ZERO;
        for (clock, seen) in steps {
            if let Some((ahead, host)) = seen {
                let seen = Stamp { clock: Clock(ahead), host: Generation(host) };
                source.learn(Clock(clock), seen);
                highest = highest.max(seen);
            }
            let stamp = source.next(Clock(clock));
            prop_assert!(stamp > highest, "{} after {}", stamp, highest);
            prop_assert!(stamp.clock >= Clock(clock));
            prop_assert!(stamp <= Stamp::last_of(stamp.clock));
            highest = stamp;
        }
    }
}

#[test]
fn stamps_follow_the_clock_back_after_a_retreat_and_only_then() {
    let mut source = StampSource::new(Generation(4));
    source.next(Clock(900));
    assert!(source.next(Clock(100)).clock > Clock(900));
    assert!(source.retreat(Clock(100)));
    assert_eq!(source.next(Clock(100)).clock, Clock(101));
    assert!(!source.retreat(Clock(500)));
    assert_eq!(source.next(Clock(100)).clock, Clock(105), "a retreat never leads ahead");
}

#[test]
fn times_end_where_numbers_end() {
    assert_eq!(Time(5).after(Duration::from_nanos(7)), Time(12));
    assert_eq!(Time(5).after(Duration::MAX), Time(u64::MAX));
    assert_eq!(Time(12).since(Time(5)), Duration::from_nanos(7));
    assert_eq!(Time(5).since(Time(12)), Duration::ZERO);
    assert_eq!(Clock(5).ahead(Duration::from_secs(1)), Clock(1_000_000_005));
    assert_eq!(Clock(5).ahead(Duration::MAX), Clock(u64::MAX));
}
