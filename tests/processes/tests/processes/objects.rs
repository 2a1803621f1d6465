//! Objects and attributes, from the shell and from programs; devices that are killed meanwhile.

use crate::prelude::*;
use braid_client::Value;

/// Values and answers of a device are in memory, and it restarts soon: requests do not wait for long.
const PROGRESS_MAX: Duration = Duration::from_secs(30);

const ADDED: AttributeName = AttributeName::new(1, 1);
const SWAPPED: AttributeName = AttributeName::new(1, 2);

#[test]
fn every_increment_counts_once_though_the_device_is_killed() {
    let mut array = Array::of_processes(&SMALL);
    array.braid(&["object", "create", "1:1"]).done();
    let (dir, ends, done) = (array.dir().to_path_buf(), AtomicBool::new(false), AtomicU64::new(0));
    let (added, swapped) = std::thread::scope(|scope| {
        let programs: Vec<_> = (0..3).map(|_| scope.spawn(|| wait(count(&dir, &ends, &done)))).collect();
        let commands = scope.spawn(|| {
            let mut added = 0;
            while !ends.load(Ordering::Relaxed) {
                let begun = Instant::now();
                shell(&dir, &["attr", "add", "1:1", "1.1"]);
                added += 1;
                rest(begun.elapsed());
            }
            added
        });
        let progress = || {
            let before = done.load(Ordering::Relaxed);
            wait_until("operations continue", PROGRESS_MAX, || done.load(Ordering::Relaxed) >= before + 100);
        };
        for _ in 0..3 {
            progress();
            array.kill_device(1);
        }
        progress();
        ends.store(true, Ordering::Relaxed);
        let mut both = (commands.join().expect("it does not panic"), 0);
        for program in programs {
            let (added, swapped) = program.join().expect("it does not panic").expect("nothing is refused");
            both = (both.0 + added, both.1 + swapped);
        }
        both
    });
    println!("{added} were added, {swapped} swapped");
    assert!(added >= 100 && swapped >= 50, "something was done");
    let shown =
        |array: &Array| (array.told(&["attr", "get", "1:1", "1.1"]), array.told(&["attr", "get", "1:1", "1.2"]));
    let counted = (format!("int:{added}\n"), format!("int:{swapped}\n"));
    assert_eq!(shown(&array), counted);
    array.kill();
    array.start(&[]);
    assert_eq!(shown(&array), counted, "it is durable");
}

/// Increments both counters until it is told to end. Returns how often it has incremented each.
async fn count(dir: &Path, ends: &AtomicBool, done: &AtomicU64) -> Result<(i64, i64), Error> {
    let array = braid_client::Array::connect(ArrayOptions::at(dir).name("counts")).await?;
    let object = array.device(1).object(1);
    let (mut added, mut swapped) = (0, 0);
    let mut seen = Value::undefined();
    while !ends.load(Ordering::Relaxed) {
        object.fetch_and_add(ADDED, 1).await?;
        added += 1;
        let next = seen.as_i64().unwrap_or(0) + 1;
        let outcome = object.compare_and_swap_exact(SWAPPED, &seen, next).await?;
        seen = if outcome.swapped { Value::from(next) } else { outcome.original };
        swapped += i64::from(outcome.swapped);
        done.fetch_add(1, Ordering::Relaxed);
    }
    array.close().await;
    Ok((added, swapped))
}

/// A command that must succeed.
#[track_caller]
fn shell(dir: &Path, arguments: &[&str]) -> Outcome {
    let dir = dir.to_str().expect("our paths are plain");
    braid(&[arguments, &["--array", dir]].concat()).done()
}
