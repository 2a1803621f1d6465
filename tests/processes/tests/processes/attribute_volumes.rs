//! Structures on an attribute volume, whose device is lost for good.

use crate::prelude::*;
use braid_client::recipes::directory::{Changed, Directory};
use braid_client::recipes::lock::{Lock, LockError, LockOptions};
use braid_client::{ObjectId, now};

const LOCK: AttributeName = AttributeName::new(1, 0);
/// Longer than it takes until the others serve without a lost device.
const LEASE: Duration = Duration::from_secs(10);
const LOST: usize = 1;
const NAMES: u64 = 30;

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
        |patience| Lock::new(locked.id(), LOCK, LockOptions { lease: LEASE, patience, ..LockOptions::default() });
    let acquire = |who: &str, patience| {
        let acquired = wait(locked.space().run(lock(patience).acquire(who)));
        acquired.expect("one device is enough")
    };
    let mut grant = acquire("holder", LEASE).expect("it is free");
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
        let refused = acquire("other", LEASE / 20).expect_err("the holder renews");
        assert!(matches!(refused, LockError::TimedOut { .. }), "{refused}");
        ends.store(true, Ordering::Relaxed);
        holder.join().expect("it does not panic");
    });
    let next = acquire("other", LEASE).expect("it was released");
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
