//! The direction of dependencies: pure, simulated, real. The table of crates in `ARCHITECTURE.md` must list the crates of this workspace
//! that each crate uses outside its unit tests, and crates listed as pure must be pure.

use braid_structure::world::found_in;
use braid_structure::{Crate, crates, reached, root, sources_in};
use std::collections::{BTreeMap, BTreeSet};

/// Libraries that a pure crate may use: none of them uses a clock, a file, a socket or the system's random numbers.
const PURE_LIBRARIES: [&str; 6] = ["bytes", "crc-fast", "serde", "serde_json", "siphasher", "thiserror"];

/// Crates that must never use each other, directly or indirectly. Hosts, devices, monitors and lock servers communicate by messages. A
/// host's background jobs know neither its transactions nor its clients of lock servers and monitor: the host stands between them. Programs
/// know objects by their messages only. The client of a file system knows hosts by their requests, and metadata servers by their messages.
const APART: [(&str, &str); 20] = [
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
    ("core/files", "core/host"),
    ("core/files", "core/transactions"),
    ("core/files", "core/namespace"),
    ("core/files", "core/device"),
    ("core/membership", "core/store"),
    ("core/recipes", "core/host"),
    ("core/recipes", "core/transactions"),
    ("core/recipes", "core/objects"),
    ("core/recipes", "core/store"),
    ("core/recipes", "core/device"),
];

/// Crates whose processes have a place on this machine: sockets, files of devices, locks and logs. In these files they name the folder of the
/// array. All other code speaks to the control plane, which may be elsewhere.
const KNOW_THE_FOLDER: &[(&str, &str)] = &[
    (
        "real/admin",
        "array_creation cluster cluster_recovery copies device_operations doctor doctor/capacity doctor/device_files doctor/examination doctor/files start_confirmations file_system_status location lock_server_status new_disk replacement snapshot state_from_devices status",
    ),
    (
        "real/cli",
        "commands/cluster commands/device/changes commands/device/location commands/events commands/fs/status commands/monitor commands/up",
    ),
    ("real/daemons", "daemon lockd monitord mounts supervisor/mod up"),
    ("real/session", "addressing session"),
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
            let reached = reached(from, |folder| uses[folder].iter().filter_map(|name| folder_of(name)).collect());
            assert!(!reached.contains(to), "{from} must not use {to}, nor anything that does");
        }
    }
}

#[test]
fn neither_programs_nor_daemons_contain_the_simulator() {
    let all = crates();
    let with_name = |name: &str| all.iter().find(|found| found.name() == name);
    for program in ["braid", "braid-daemons", "braid-admin", "braid-bench"] {
        let dependencies = |name: &str| with_name(name).map(Crate::dependencies).unwrap_or_default();
        let reached = reached(program, dependencies);
        for found in reached.iter().filter_map(|name| with_name(name)) {
            let name = found.name();
            let is_simulated = found.folder.starts_with("sim/");
            assert!(!is_simulated, "{program} must not contain {name}: it belongs to the simulator");
        }
        assert!(reached.contains("braid-session"), "the dependencies of {program} were found");
    }
}

#[test]
fn pure_crates_do_not_reach_for_the_world() {
    let banned = [
        ("HashMap", "its order does not depend on the seed alone: use BTreeMap"),
        ("HashSet", "its order does not depend on the seed alone: use BTreeSet"),
        ("unsafe ", "only real/ needs it"),
    ];
    // The program of a client in a test is no machine: it waits for what the test gives it, and for nothing else. So does an operation of
    // the recipes: its only await point is a request, which one file makes.
    let banned_in_machines = ("async ", "a step never waits");
    let banned_beside_requests =
        [("std::future", "operations wait for requests only"), ("std::task", "operations wait for requests only")];
    let mut wrong = Vec::new();
    for file in sources_in(&root().join("core")) {
        let text = std::fs::read_to_string(&file).expect("a source file can be read");
        let own = file.strip_prefix(root()).expect("it lies in the workspace");
        let is_for_tests = own.iter().any(|folder| folder == "tests") || own.ends_with("tests.rs");
        let makes_requests = own == std::path::Path::new("core/recipes/src/procedure.rs");
        let mut banned = banned.to_vec();
        if !is_for_tests && !own.starts_with("core/recipes/src") {
            banned.push(banned_in_machines);
        }
        if !is_for_tests && !makes_requests {
            banned.extend(banned_beside_requests);
        }
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for (word, why) in &banned {
                assert!(!line.contains(word), "{}: `{word}`: {why}\n  {line}", file.display());
            }
        }
        // The driver and the operation share the answer, in turns.
        let is_shared = |found: &String| makes_requests && found.contains("is in `std::sync::Mutex`");
        for found in found_in(&text, is_for_tests).into_iter().filter(|found| !is_shared(found)) {
            wrong.push(format!("{}: {found}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_world_is_found_under_any_name() {
    for text in [
        "use std::time::{Duration, Instant};",
        "use std::{fs, fmt};",
        "use std::{fmt, thread as workers};",
        "use std::time::*;",
        "use std::*;",
        "pub use std::time;",
        "use std as system; fn now() { system::time::SystemTime::now(); }",
        "use std::time; fn now() -> time::Instant { todo() }",
        "fn now() { let at = ::std::time::Instant::now(); }",
        "fn name() { assert!(std::env::args().count() > 1); }",
        "use std::time; fn now() { assert!(early < time::Instant::now()); }",
        "mod inner { fn read() { use core::net::IpAddr; } }",
        "use std::{io, process::exit};",
    ] {
        assert!(!found_in(text, false).is_empty(), "{text}");
        assert!(!found_in(text, true).is_empty(), "tests are no exception: {text}");
    }
    for text in [
        "use std::sync::Mutex;",
        "use std::sync::{Arc, OnceLock};",
        "use std::cell::{Cell, RefCell};",
        "use std::sync::atomic::{AtomicU64, Ordering};",
        "static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);",
        "static mut COUNT: u64 = 0;",
        "thread_local! { static COUNT: u64 = 0; }",
        "fn count() { std::thread_local!(static COUNT: u64 = 0); }",
    ] {
        assert!(!found_in(text, false).is_empty(), "{text}");
        assert_eq!(found_in(text, true), Vec::<String>::new(), "a test may have global state: {text}");
        let unit_test = format!("#[cfg(test)] mod tests {{ {text} }}");
        assert_eq!(found_in(&unit_test, false), Vec::<String>::new(), "a test may have global state: {text}");
    }
    for text in [
        "use std::time::Duration; use std::{collections::BTreeMap, fmt, rc::Rc};",
        "use std::sync::Arc; fn fs(thread: u8) -> Arc<u8> { env::of(thread) }",
        "static ZEROS: [u8; 4] = [0; 4]; // std::fs, std::cell::Cell",
        "const TEXT: &str = \"std::fs\"; fn fails() { assert!(text == \"std::env\"); }",
        "use crate::time; fn now() -> time::Instant { todo() }",
    ] {
        assert_eq!(found_in(text, false), Vec::<String>::new(), "{text}");
    }
    assert!(found_in("fn is_failing() -> bool { std::thread::panicking() }", true).is_empty());
}

#[test]
fn the_folder_of_an_array_is_named_where_it_must_be_only() {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in sources_in(&root().join("real")) {
        let own = file.strip_prefix(root()).expect("it lies in the workspace").to_string_lossy().into_owned();
        let Some((folder, file)) = own.split_once("/src/").filter(|(folder, _)| *folder != "real/control") else {
            continue;
        };
        let text = std::fs::read_to_string(root().join(&own)).expect("a source file can be read");
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        if code.into_iter().any(|line| line.contains("LocalFolder") || line.contains(".local()")) {
            found.entry(folder.to_string()).or_default().insert(file.trim_end_matches(".rs").to_string());
        }
    }
    let listed =
        |(folder, files): &(&str, &str)| (folder.to_string(), files.split_whitespace().map(str::to_string).collect());
    let listed: BTreeMap<String, BTreeSet<String>> = KNOW_THE_FOLDER.iter().map(listed).collect();
    assert_eq!(found, listed, "what names the folder (left), and what is listed (right)");
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
