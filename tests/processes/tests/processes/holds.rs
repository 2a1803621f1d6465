//! Locks, tickets and leaders, while their device is killed and restarted, and commands that hold them are killed for good.

use crate::prelude::*;
use braid_processes::scenario::{DEVICE, LEASE, Scenario};

#[test]
fn locks_tickets_and_leads_are_held_by_one_at_a_time_though_their_device_and_holders_are_killed() {
    let array = Array::of_processes(&SMALL);
    let kinds = ["lock", "counter", "leader"].map(|word| (word, Scenario::new(&array)));
    let script = r#"read -r _ _ _ braid _ < /proc/$PPID/stat
        echo "in x $BRAID_TOKEN $braid" >> $LOG; sleep 0.05; echo "out x $BRAID_TOKEN" >> $LOG"#;
    let lease = format!("{}s", LEASE.as_secs());
    let each = |step: &dyn Fn(&Scenario)| {
        for (word, scenario) in &kinds {
            println!("{word}");
            step(scenario);
        }
    };
    std::thread::scope(|scope| {
        let _ending = kinds.each_ref().map(|(_, scenario)| scenario.until_dropped());
        for (word, scenario) in &kinds {
            let run = [word, "run", &scenario.object, "9.1", "--lease", &lease, "--", "sh", "-c", script];
            for _ in 0..2 {
                scope.spawn(move || {
                    while scenario.going() {
                        scenario.command(&run);
                    }
                });
            }
        }
        each(&|scenario| scenario.progress(2));
        each(&Scenario::kill_holder);
        each(&|scenario| scenario.progress(2));
        println!("the device was unavailable for {:?}", array.kill_device(DEVICE));
        each(&Scenario::kill_holder);
        each(&|scenario| scenario.progress(3));
    });
    each(&assert_one_at_a_time);
}

/// Each must begin after the previous one has ended or was killed.
fn assert_one_at_a_time(scenario: &Scenario) {
    let (log, lost) = (scenario.log(), scenario.lost());
    println!("{} lines, without {lost:?}", log.len());
    // The first ticket may be 0.
    let mut token: Option<u64> = None;
    let mut inside: Option<u32> = None;
    for words in &log {
        let this: u64 = words[2].parse().expect("a token");
        if words[0] == "in" {
            assert!(token.is_none_or(|token| this > token), "tokens grow: {this} after {token:?}: {log:?}");
            assert!(inside.is_none_or(|pid| lost.contains(&pid)), "{inside:?} is still inside at {words:?}: {log:?}");
            (token, inside) = (Some(this), Some(words[3].parse().expect("a pid")));
        } else {
            assert!(Some(this) == token && inside.take().is_some(), "{words:?} ends what another has begun: {log:?}");
        }
    }
}
