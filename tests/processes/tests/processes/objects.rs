//! Objects and attributes, from the shell and from programs, while their device is killed; structures on an attribute volume, one of whose
//! devices is lost for good.

use crate::prelude::*;
use braid_client::recipes::directory::{Changed, Directory};
use braid_client::recipes::lock::{Lock, LockError, LockOptions};
use braid_client::{ObjectId, Value, now};

/// Values and answers of a device are in memory, and it restarts soon: requests do not wait for long.
const PROGRESS_MAX: Duration = Duration::from_secs(30);
const ADDED: AttributeName = AttributeName::new(1, 1);
const SWAPPED: AttributeName = AttributeName::new(1, 2);
const LOCK: AttributeName = AttributeName::new(1, 0);
/// Longer than it takes until the others serve without a lost device.
const LOCK_LEASE: Duration = Duration::from_secs(10);
const LOST: usize = 1;
const NAMES: u64 = 30;

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
                array.braid(&["attr", "add", "1:1", "1.1"]).done();
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

#[test]
fn a_lock_and_a_directory_on_an_attribute_volume_outlive_a_device() {
    // Both devices hold the whole attribute volume.
    let array =
        Array::of_processes(&["--devices", "2", "--layout", "raid1:2", "--size", "64MiB", "--volume", "vol0:16MiB"]);
    array.create_attribute_volume("names", "timestamp");
    let (directory, locked) = (wait(object(&array, 1)), wait(object(&array, 2)));
    for number in 0..NAMES {
        insert(&directory, number);
    }
    let lock =
        |patience| Lock::new(locked.id(), LOCK, LockOptions { lease: LOCK_LEASE, patience, ..LockOptions::default() });
    let acquire = |who: &str, patience| {
        let acquired = wait(locked.space().run(lock(patience).acquire(who)));
        acquired.expect("one device is enough")
    };
    let mut grant = acquire("holder", LOCK_LEASE).expect("it is free");
    let token = grant.token();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                if now() >= grant.renew_at() {
                    let renewed = wait(locked.space().run(grant.renew())).expect("one device is enough");
                    grant = match renewed {
                        // While the device counts as in, the outcome is unknown; the program tries again.
                        Err(LockError::Uncertain) => continue,
                        renewed => renewed.expect("it keeps its lock"),
                    };
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            wait(locked.request().set(AttributeName::new(9, 0), "kept").guarded(&grant))
                .expect("it still has the lock");
            wait(locked.space().run(grant.release())).expect("it is released").expect("it was its own");
        });
        // The file is removed together with the process, so that a restart finds no device.
        let pid = array.device_pid(LOST);
        std::fs::remove_file(array.device_file(LOST)).expect("it can be removed");
        signal(pid, Signal::KILL);
        for number in NAMES..2 * NAMES {
            insert(&directory, number);
        }
        array.await_status("the device is out", |status| status["devices"][LOST]["member_state"] != "in");
        let refused = acquire("other", LOCK_LEASE / 20).expect_err("the holder renews");
        assert!(matches!(refused, LockError::TimedOut { .. }), "{refused}");
        ends.store(true, Ordering::Relaxed);
        holder.join().expect("it does not panic");
    });
    let next = acquire("other", LOCK_LEASE).expect("it was released");
    assert!(next.token() > token, "tokens grow: {} after {token}", next.token());

    let shown = array.braid(&["recipe", "directory", "names", "names:1"]).done().json();
    let entry = |entry: &serde_json::Value| (text(&entry["name"]), number(&entry["target"]));
    let names: BTreeMap<String, u64> = items(&shown["names"]).iter().map(entry).collect();
    let wished = (0..2 * NAMES).map(|number| (format!("name-{number}"), number));
    assert_eq!(names, wished.collect(), "all names are there, from before and from after");
}

async fn object(array: &Array, number: u64) -> Object {
    let options = ArrayOptions::at(array.dir()).name("attribute-volumes");
    let library = braid_client::Array::connect(options).await.expect("the array is up");
    library.attribute_volume("names").await.expect("it exists").object(number)
}

fn insert(object: &Object, number: u64) {
    let insert = Directory::new(object.id()).insert(format!("name-{number}").into(), ObjectId(number));
    let changed = wait(object.space().run(insert)).expect("one device is enough");
    assert_eq!(changed, Ok(Changed::Inserted), "{number}");
}
