//! The direction of dependencies: pure, simulated, real. The table of crates in `ARCHITECTURE.md` must list the crates of this workspace
//! that each crate uses outside its unit tests, and crates listed as pure must be pure.

use braid_structure::{crates, root, sources_in};
use std::collections::{BTreeMap, BTreeSet};

/// Libraries that a pure crate may use: none of them uses a clock, a file, a socket or the system's random numbers.
const PURE_LIBRARIES: [&str; 3] = ["bytes", "crc-fast", "thiserror"];

/// Crates that must never use each other, directly or indirectly. Hosts, devices, monitors and lock servers communicate by messages. A
/// host's background jobs know neither its transactions nor its clients of lock servers and monitor: the host stands between them. Programs
/// know objects by their messages only.
const APART: [(&str, &str); 16] = [
    ("core/host", "core/device"),
    ("core/host", "core/store"),
    ("core/transactions", "core/device"),
    ("core/transactions", "core/store"),
    ("core/healing", "core/transactions"),
    ("core/healing", "core/locks"),
    ("core/healing", "core/membership"),
    ("core/healing", "core/device"),
    ("core/healing", "core/store"),
    ("core/locks", "core/store"),
    ("core/membership", "core/store"),
    ("core/recipes", "core/host"),
    ("core/recipes", "core/transactions"),
    ("core/recipes", "core/objects"),
    ("core/recipes", "core/store"),
    ("core/recipes", "core/device"),
];

#[test]
fn the_table_of_crates_is_true() {
    let table = table_of_crates();
    for found in crates() {
        let folder = &found.folder;
        let listed = table.get(folder).unwrap_or_else(|| panic!("{folder} is not in the table of crates"));
        let uses: BTreeSet<String> = found.uses().into_iter().collect();
        assert_eq!(listed, &uses, "ARCHITECTURE.md (left) does not say what {folder} uses");
    }
    for folder in table.keys() {
        assert!(root().join(folder).exists(), "the table of crates lists {folder}, which does not exist");
    }
}

#[test]
fn pure_crates_use_only_pure_ones() {
    let pure: BTreeSet<String> =
        crates().iter().filter_map(|found| found.folder.strip_prefix("core/").map(str::to_string)).collect();
    for found in crates().iter().filter(|found| found.folder.starts_with("core/")) {
        let folder = &found.folder;
        for dependency in found.dependencies() {
            match dependency.strip_prefix("braid-") {
                Some(own) => assert!(pure.contains(own), "{folder} is pure: it must not use {dependency}"),
                None => assert!(
                    PURE_LIBRARIES.contains(&dependency.as_str()),
                    "{folder} is pure: it must not use {dependency}"
                ),
            }
        }
    }
}

#[test]
fn crates_that_are_apart_do_not_use_each_other() {
    let uses: BTreeMap<String, Vec<String>> =
        crates().into_iter().map(|found| (found.folder.clone(), found.uses())).collect();
    let folder_of = |name: &str| uses.keys().find(|folder| folder.ends_with(&format!("/{name}"))).cloned();
    for (one, other) in APART {
        for (from, to) in [(one, other), (other, one)] {
            let (mut reached, mut next) = (BTreeSet::new(), vec![from.to_string()]);
            while let Some(folder) = next.pop() {
                if reached.insert(folder.clone()) {
                    next.extend(uses[&folder].iter().filter_map(|name| folder_of(name)));
                }
            }
            assert!(!reached.contains(to), "{from} must not use {to}, nor anything that does");
        }
    }
}

#[test]
fn neither_programs_nor_daemons_contain_the_simulator() {
    let all = crates();
    let with_name = |name: &str| all.iter().find(|found| found.name() == name);
    for program in ["braid", "braid-daemons", "braid-admin", "braid-bench"] {
        let (mut reached, mut next) = (BTreeSet::new(), vec![program.to_string()]);
        while let Some(name) = next.pop() {
            let Some(found) = with_name(&name) else { continue };
            assert!(
                !found.folder.starts_with("sim/"),
                "{program} must not contain {name}: it belongs to the simulator"
            );
            if reached.insert(name) {
                next.extend(found.dependencies().into_iter().filter(|name| name.starts_with("braid")));
            }
        }
        assert!(reached.contains("braid-session"), "the dependencies of {program} were found");
    }
}

#[test]
fn pure_crates_do_not_reach_for_the_world() {
    let banned = [
        ("std::time::Instant", "time comes in as an argument"),
        ("SystemTime", "time comes in as an argument"),
        ("std::thread", "a machine does not know threads"),
        ("std::net", "messages are effects"),
        ("std::fs", "disk commands are effects"),
        ("std::env", "settings come in as arguments"),
        ("HashMap", "its order does not depend on the seed alone: use BTreeMap"),
        ("HashSet", "its order does not depend on the seed alone: use BTreeSet"),
        ("async fn", "a step never waits"),
        ("unsafe ", "only real/ needs it"),
        ("thread_local!", "state has an owner, and a machine's behaviour depends on its inputs alone"),
        ("RefCell", "state has one owner"),
    ];
    for file in sources_in(&root().join("core")) {
        let text = std::fs::read_to_string(&file).expect("a source file can be read");
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for (word, why) in banned {
                // A test may check whether it is failing, to print how to reproduce the failure.
                let line = line.replace("std::thread::panicking()", "");
                assert!(!line.contains(word), "{}: `{word}`: {why}\n  {line}", file.display());
            }
        }
    }
}

/// The table of crates in `ARCHITECTURE.md`: which crates each crate uses.
fn table_of_crates() -> BTreeMap<String, BTreeSet<String>> {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page exists");
    let rows =
        page.lines().skip_while(|line| !line.starts_with("| crate |")).skip(2).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [folder, _, uses] = cells.as_slice() else { panic!("a row has three cells: {line}") };
        let uses = uses.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_string).collect();
        (folder.trim_matches('`').to_string(), uses)
    };
    rows.map(row).collect()
}
