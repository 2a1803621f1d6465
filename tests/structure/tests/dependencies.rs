//! The direction of dependencies: pure, simulated, real. Read from each crate's `Cargo.toml`.
//!
//! Each line of [`ALLOWED`] says what a crate may use of Braid's own, outside its unit tests. What is not there is
//! forbidden; so is a dependency of a pure crate on anything that reaches for the world.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const ALLOWED: &[(&str, &[&str])] = &[
    // Pure. Hosts, devices and stores speak through the wire's messages: host and device never use each other.
    ("core/base", &[]),
    ("core/wire", &["base"]),
    ("core/layout", &["base", "wire"]),
    ("core/machine", &["base", "wire", "layout"]),
    ("core/record", &["base", "machine"]),
    ("core/objects", &["base", "wire"]),
    ("core/catalogue", &["base", "objects"]),
    ("core/recipes", &["base", "wire"]),
    ("core/journal", &["base"]),
    ("core/store", &["base", "wire", "machine", "journal", "objects", "catalogue"]),
    ("core/membership", &["base", "wire", "machine", "layout", "record"]),
    ("core/locks", &["base", "wire", "machine", "membership", "record"]),
    ("core/device", &["base", "wire", "machine", "membership", "locks", "store"]),
    ("core/healing", &["base", "wire", "machine", "layout"]),
    ("core/host", &["base", "wire", "machine", "membership", "locks", "layout", "objects", "healing"]),
    // Simulated. The world knows no protocol; the checkers know no simulator.
    ("sim/check", &["base", "wire", "layout", "objects"]),
    ("sim/world", &["base", "wire", "machine"]),
    (
        "sim/cluster",
        &[
            "base",
            "wire",
            "machine",
            "layout",
            "store",
            "locks",
            "membership",
            "device",
            "host",
            "objects",
            "world",
            "check",
        ],
    ),
    ("sim/measure", &["base", "wire", "machine", "layout", "objects", "store", "device", "host", "locks", "world"]),
    ("sim/experiments", &["wire", "measure"]),
    // Real. The shell knows no protocol either.
    ("real/shell", &["base", "wire", "machine"]),
    ("real/control", &["base", "wire", "machine", "layout"]),
    ("real/nbd", &["base", "wire", "machine", "layout", "shell"]),
    ("real/client", &["base", "wire", "machine", "layout", "recipes", "shell", "control", "session"]),
    ("real/session", &["base", "wire", "machine", "layout", "host", "shell", "control"]),
    (
        "real/cli",
        &[
            "base",
            "wire",
            "machine",
            "layout",
            "store",
            "device",
            "host",
            "locks",
            "membership",
            "shell",
            "control",
            "nbd",
            "session",
            "client",
            "measure",
            "experiments",
            "world",
            "cluster",
        ],
    ),
    // Measured: the pure, and nothing else, so that what is counted is the same on every machine.
    ("benches", &["base", "wire", "machine", "layout", "locks", "store", "device", "host"]),
];

/// Libraries that a pure crate may use: none of them reads a clock, a file, a socket or the system's dice.
const PURE_LIBRARIES: [&str; 3] = ["bytes", "crc-fast", "thiserror"];

#[test]
fn crates_use_only_what_is_to_their_left_or_above() {
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    for (folder, manifest) in manifests() {
        let Some(may_use) = allowed.get(folder.as_str()) else {
            panic!("{folder} is not in the table of dependencies: decide what it may use");
        };
        for dependency in dependencies(&manifest) {
            if let Some(own) = dependency.strip_prefix("braid-") {
                assert!(may_use.contains(&own), "{folder} must not use {dependency}");
            } else if folder.starts_with("core/") {
                assert!(
                    PURE_LIBRARIES.contains(&dependency.as_str()),
                    "{folder} is pure: it must not use {dependency}"
                );
            }
        }
    }
}

#[test]
fn pure_crates_do_not_reach_for_the_world() {
    let banned = [
        ("std::time::Instant", "time comes in as an argument"),
        ("SystemTime", "time comes in as an argument"),
        ("std::thread", "a machine is one thread of nobody's"),
        ("std::net", "messages are effects"),
        ("std::fs", "disk commands are effects"),
        ("std::env", "settings come in as arguments"),
        ("HashMap", "its order is not the seed's: use BTreeMap"),
        ("HashSet", "its order is not the seed's: use BTreeSet"),
        ("async fn", "a step waits for nothing"),
        ("unsafe ", "only real/ needs it"),
    ];
    for file in sources().into_iter().filter(|file| file.starts_with(root().join("core"))) {
        let text = std::fs::read_to_string(&file).expect("a source file can be read");
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for (word, why) in banned {
                // A bench may ask whether its test is failing, to say how to see that again.
                let line = line.replace("std::thread::panicking()", "");
                assert!(!line.contains(word), "{}: `{word}`: {why}\n  {line}", file.display());
            }
        }
    }
}

#[test]
fn every_file_says_what_it_is_for_and_is_one_room() {
    let mut untidy = Vec::new();
    for file in sources() {
        let text = std::fs::read_to_string(&file).expect("a source file can be read");
        if !text.starts_with("//!") {
            untidy.push(format!("{} does not open with what it is for", file.display()));
        }
        if text.lines().count() > 800 {
            untidy.push(format!("{} has over 800 lines: it is more than one room", file.display()));
        }
        for word in ["todo!(", "unimplemented!(", "#[ignore", "dbg!("] {
            if text.contains(word) && !file.ends_with("dependencies.rs") {
                untidy.push(format!("{} has {word}", file.display()));
            }
        }
    }
    assert!(untidy.is_empty(), "{}", untidy.join("\n"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// The crates under core/, sim/ and real/, and benches, with the text of their manifests.
fn manifests() -> Vec<(String, String)> {
    let manifest = |folder: &Path| std::fs::read_to_string(folder.join("Cargo.toml")).expect("a crate has a manifest");
    let mut found = vec![("benches".to_string(), manifest(&root().join("benches")))];
    for world in ["core", "sim", "real"] {
        for entry in std::fs::read_dir(root().join(world)).expect("the three worlds are there") {
            let folder = entry.expect("a folder can be listed").path();
            let name = folder.file_name().expect("it has a name").to_string_lossy().into_owned();
            found.push((format!("{world}/{name}"), manifest(&folder)));
        }
    }
    assert!(found.len() >= ALLOWED.len(), "every crate of the table is there");
    found
}

/// What a manifest lists under `[dependencies]`.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let section = manifest.split("[dependencies]").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| line.split(['.', '=', ' ']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .map(str::to_string)
        .collect()
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> =
        ["core", "sim", "real", "tests", "benches", "xtask"].iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder can be listed") {
            let path = entry.expect("a folder can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}
