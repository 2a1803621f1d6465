//! Queues, lists and directories, while their device is killed and restarted, and commands that change them are killed for good.

use crate::prelude::*;
use braid_client::recipes::queue::STATES_PAGE;
use braid_processes::scenario::{DEVICE, LEASE, PROGRESS_MAX, Scenario};

#[test]
fn each_item_of_a_queue_is_done_once_or_again_after_its_consumer_died() {
    let array = Array::of_processes(&SMALL);
    let scenario = Scenario::new(&array);
    let script = r#"item=$(cat); read -r _ _ _ braid _ < /proc/$PPID/stat
        echo "in $item $BRAID_TOKEN $braid" >> $LOG; sleep 0.05; echo "out $item $BRAID_TOKEN" >> $LOG"#;
    let (object, page, puts) = (scenario.object.as_str(), STATES_PAGE.to_string(), &AtomicBool::new(true));
    let (lease, patience) = (LEASE.as_secs(), 2 * LEASE.as_secs());
    let words = format!("queue work {object} --lease {lease}s --patience {patience}s --items 20 -- sh -c");
    let work: Vec<&str> = words.split(' ').chain([script]).collect();
    let put = std::thread::scope(|scope| {
        let _ending = scenario.until_dropped();
        for _ in 0..3 {
            scope.spawn(|| {
                while scenario.going() {
                    scenario.command(&work);
                }
            });
        }
        let put = |number| assert!(scenario.command(&["queue", "put", object, &format!("item-{number}")]), "it is put");
        let goes_on = |_: &usize| puts.load(Ordering::Relaxed) && scenario.going();
        let putting = scope.spawn(move || (0..).take_while(goes_on).inspect(|number| put(*number)).count());
        scenario.kill_holder();
        println!("the device was unavailable for {:?}", array.kill_device(DEVICE));
        scenario.kill_holder();
        scenario.progress(5);
        puts.store(false, Ordering::Relaxed);
        let put = putting.join().expect("each is put");
        let left = || array.braid(&["attr", "list", object, "--page", &page]).done().json();
        wait_until("all is done", PROGRESS_MAX, || left()["attributes"] == json!([]));
        scenario.end();
        // The consumers wait for more items.
        let running = scenario.running();
        running.into_iter().for_each(|pid| scenario.kill(pid));
        put
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
fn lists_stay_in_order_and_no_entry_of_them_or_of_directories_is_lost_or_doubled() {
    let array = Array::of_processes(&SMALL);
    let structures = ["list", "directory"].map(|kind| Structure::new(&array, kind));
    std::thread::scope(|scope| {
        let _ending = structures.each_ref().map(|structure| structure.scenario.until_dropped());
        for structure in &structures {
            (0..2).for_each(|worker| drop(scope.spawn(move || structure.insert(worker))));
        }
        for round in 0..6 {
            structures.iter().for_each(|structure| structure.progress(10));
            if round == 2 {
                println!("the device was unavailable for {:?}", array.kill_device(DEVICE));
            }
            for Structure { scenario, .. } in &structures {
                scenario.pause(100);
                let running = scenario.running().first().copied();
                running.into_iter().for_each(|pid| scenario.kill(pid));
            }
        }
        structures.iter().for_each(|structure| structure.progress(10));
    });
    let [list, directory] = &structures;
    let shown = array.braid(&["recipe", "list", "show", &list.scenario.object]).done().json();
    list.assert_is(items(&shown["items"]).iter().map(|item| text(&item["item"]["text"])));
    let shown = array.braid(&["recipe", "directory", "names", &directory.scenario.object]).done().json();
    directory.assert_is(items(&shown["names"]).iter().map(|entry| {
        let found = text(&entry["name"]);
        assert_eq!(found, name(number(&entry["target"])), "it stands for what it was given");
        found
    }));
}

/// A list or a directory.
struct Structure {
    kind: &'static str,
    scenario: Scenario,
    inside: Mutex<BTreeSet<String>>,
    /// Names that may be in, because their command was killed.
    perhaps: Mutex<BTreeSet<String>>,
}

impl Structure {
    fn new(array: &Array, kind: &'static str) -> Structure {
        Structure { kind, scenario: Scenario::new(array), inside: Mutex::default(), perhaps: Mutex::default() }
    }

    /// Inserts every second name.
    fn insert(&self, worker: u64) {
        let Structure { kind, scenario, inside, perhaps } = self;
        for number in (worker..).step_by(2).take_while(|_| scenario.going()) {
            let (name, target) = (name(number), number.to_string());
            let last = if *kind == "list" { "--in-order" } else { &target };
            let is_in = scenario.command(&[kind, "insert", &scenario.object, &name, last]);
            if is_in { inside } else { perhaps }.lock().unwrap().insert(name);
        }
    }

    fn progress(&self, more: usize) {
        let count = || self.inside.lock().unwrap().len();
        let wished = count() + more;
        wait_until(self.kind, PROGRESS_MAX, || count() >= wished);
    }

    fn assert_is(&self, names: impl Iterator<Item = String>) {
        let (inside, perhaps) = (self.inside.lock().unwrap(), self.perhaps.lock().unwrap());
        let names: Vec<String> = names.collect();
        println!("{}: {} names are in, {} names may be in", self.kind, names.len(), perhaps.len());
        assert!(names.is_sorted_by(|one, other| one < other), "in order, and none twice: {names:?}");
        let found: BTreeSet<String> = names.into_iter().collect();
        assert_eq!(inside.difference(&found).next(), None, "what is in is found");
        assert!(found.iter().all(|name| inside.contains(name) || perhaps.contains(name)), "no other: {found:?}");
    }
}

/// A name whose order differs from the order of insertion.
fn name(number: u64) -> String {
    format!("{:03}-{number}", number * 7919 % 1000)
}
