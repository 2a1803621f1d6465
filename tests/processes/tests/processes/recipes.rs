//! Queues, lists and directories, while their device is killed and restarted, and commands that change them are killed for good.

use crate::prelude::*;
use braid_client::ObjectId;
use braid_client::recipes::directory::{Changed, Directory, Expected};
use braid_client::recipes::idempotency_record::IdempotencyRecord;
use braid_client::recipes::list::{Inserted, List, ListPosition, Removed};
use braid_client::recipes::queue::{Queue, STATES_PAGE};
use braid_processes::scenario::{DEVICE, LEASE, PROGRESS_MAX, Scenario};

#[test]
fn each_item_of_a_queue_is_done_once_or_again_after_its_consumer_died() {
    let (array, scenario) = Scenario::new();
    let script = r#"item=$(cat); read -r _ _ _ braid _ < /proc/$PPID/stat
        echo "in $item $BRAID_TOKEN $braid" >> $LOG; sleep 0.05; echo "out $item $BRAID_TOKEN" >> $LOG"#;
    let (lease, patience) = (format!("{}s", LEASE.as_secs()), format!("{}s", 2 * LEASE.as_secs()));
    let (queue, mut put) = (Queue::new(ObjectId(1), LEASE), 0);
    let work =
        ["queue", "work", "1:1", "--lease", &lease, "--patience", &patience, "--items", "20", "--", "sh", "-c", script];
    std::thread::scope(|scope| {
        let _ending = scenario.until_dropped();
        for _ in 0..3 {
            scope.spawn(|| {
                while scenario.going() {
                    scenario.command(&work[..]);
                }
            });
        }
        let object = wait(scenario.object(1));
        let mut put_some = || {
            for _ in 0..30 {
                if put % 10 == 0 {
                    assert!(scenario.command(&["queue", "put", "1:1", &format!("item-{put}")]), "it is put");
                } else {
                    wait(object.space().run(queue.put(format!("item-{put}").into())))
                        .expect("it serves")
                        .expect("it is put");
                }
                put += 1;
            }
        };
        put_some();
        scenario.kill_holder();
        put_some();
        println!("the device was unavailable for {:?}", array.kill_device(DEVICE));
        put_some();
        scenario.kill_holder();
        let left = || wait(object.attributes(Some(STATES_PAGE))).expect("it serves").len();
        wait_until("all is done", PROGRESS_MAX, || left() == 0);
        scenario.end();
        // The consumers wait for more items.
        let running = scenario.running();
        running.into_iter().for_each(|pid| scenario.kill(pid));
    });
    let (log, lost) = (scenario.log(), scenario.lost());
    let mut claims: BTreeMap<&str, Vec<(u64, u32, bool)>> = BTreeMap::new();
    for words in &log {
        let (of_item, token) = (claims.entry(&words[1]).or_default(), words[2].parse().expect("a token"));
        if words[0] == "in" {
            of_item.push((token, words[3].parse().expect("a pid"), false));
        } else {
            of_item.iter_mut().filter(|claim| claim.0 == token).for_each(|claim| claim.2 = true);
        }
    }
    assert_eq!(claims.len(), put, "each item is done, and no other");
    for (item, claims) in &claims {
        let (last, before) = claims.split_last().expect("it was claimed");
        assert!(last.2, "{item} was done to its end: {claims:?}");
        assert!(before.iter().all(|claim| lost.contains(&claim.1)), "{item} is done again for nothing: {claims:?}");
        assert!(claims.is_sorted_by(|one, other| one.0 < other.0), "tokens of {item} grow: {claims:?}");
    }
    println!("{put} items, {} claims, without {lost:?}", claims.values().map(Vec::len).sum::<usize>());
}

#[test]
fn a_list_stays_in_order_and_nothing_is_lost_or_doubled() {
    nothing_is_lost_or_doubled("list");
}

#[test]
fn no_entry_of_a_directory_is_lost_or_doubled() {
    nothing_is_lost_or_doubled("directory");
}

fn nothing_is_lost_or_doubled(kind: &str) {
    let (array, scenario) = Scenario::new();
    // Names that are in the directory, and names that may be, because their command was killed.
    let (inside, perhaps) = (Mutex::new(BTreeSet::new()), Mutex::new(BTreeSet::new()));
    let count = || inside.lock().unwrap().len();
    let insert = |worker: u64| {
        for number in (worker..).step_by(4).take_while(|_| scenario.going()) {
            let (name, target) = (name(number), number.to_string());
            let last = if kind == "list" { "--in-order" } else { &target };
            let is_in = scenario.command(&[kind, "insert", "1:1", &name, last]);
            if is_in { &inside } else { &perhaps }.lock().unwrap().insert(name);
        }
    };
    let change = async |worker: u64| {
        let object = scenario.object(1).await;
        let idempotency_record = Some(IdempotencyRecord(object.space().array().generation()));
        for number in (worker..).step_by(4).take_while(|_| scenario.going()) {
            let (name, removes) = (name(number), number % 3 == 0);
            match kind {
                "list" => change_list(&object, idempotency_record, &name, removes).await,
                _ => change_directory(&object, idempotency_record, &name, number, removes).await,
            }
            if !removes {
                inside.lock().unwrap().insert(name);
            }
            scenario.pause(10);
        }
        object.space().array().close().await;
    };
    std::thread::scope(|scope| {
        let _ending = scenario.until_dropped();
        let progress = |more: usize| {
            let wished = count() + more;
            wait_until("operations continue", PROGRESS_MAX, || count() >= wished);
        };
        let (insert, change) = (&insert, &change);
        (0..2).for_each(|worker| drop(scope.spawn(move || insert(worker))));
        (2..4).for_each(|worker| drop(scope.spawn(move || wait(change(worker)))));
        for round in 0..6 {
            progress(10);
            if round == 2 {
                println!("the device was unavailable for {:?}", array.kill_device(DEVICE));
            }
            scenario.pause(100);
            let running = scenario.running().first().copied();
            running.into_iter().for_each(|pid| scenario.kill(pid));
        }
        progress(10);
        scenario.end();
    });
    let (inside, perhaps) = (inside.into_inner().unwrap(), perhaps.into_inner().unwrap());
    let shown = array.braid(&["recipe", kind, if kind == "list" { "show" } else { "names" }, "1:1"]).done().json();
    let names: Vec<String> = match kind {
        "list" => items(&shown["items"]).iter().map(|item| text(&item["item"]["text"])).collect(),
        _ => items(&shown["names"])
            .iter()
            .map(|entry| {
                let found = text(&entry["name"]);
                assert_eq!(found, name(number(&entry["target"])), "it stands for what it was given");
                found
            })
            .collect(),
    };
    println!("{} names are in, {} names may be in", names.len(), perhaps.len());
    assert!(names.is_sorted_by(|one, other| one < other), "in order, and none twice: {names:?}");
    let found: BTreeSet<String> = names.into_iter().collect();
    assert_eq!(inside.difference(&found).next(), None, "what is in is found");
    assert!(
        found.iter().all(|name| inside.contains(name) || perhaps.contains(name)),
        "what was removed is gone: {found:?}"
    );
}

/// A name whose order differs from the order of insertion.
fn name(number: u64) -> String {
    format!("{:03}-{number}", number * 7919 % 1000)
}

async fn change_list(object: &Object, idempotency_record: Option<IdempotencyRecord>, name: &str, removes: bool) {
    let (space, list) = (object.space(), List { idempotency_record, ..List::new(object.id()) });
    let insert = list.insert(ListPosition::InOrder, name.to_string().into());
    let Ok(Inserted::Inserted(node)) = space.run(insert).await.expect("it serves") else { panic!("it is in") };
    if removes {
        assert_eq!(space.run(list.remove(node, None)).await.expect("it serves"), Ok(Removed::Removed));
    }
}

async fn change_directory(
    object: &Object,
    idempotency_record: Option<IdempotencyRecord>,
    name: &str,
    target: u64,
    removes: bool,
) {
    let (space, directory) = (object.space(), Directory { idempotency_record, ..Directory::new(object.id()) });
    let insert = directory.insert(name.to_string().into(), ObjectId(target));
    assert_eq!(space.run(insert).await.expect("it serves"), Ok(Changed::Inserted));
    if removes {
        let remove = directory.remove(name.to_string().into(), Expected::Anything);
        assert_eq!(space.run(remove).await.expect("it serves"), Ok(Changed::Removed(ObjectId(target))));
    }
}
