//! The shape of the crates of the product and of its simulator: every piece of state has one owner. Structs have few fields, types have few methods, modules don't import
//! each other in circles, and the tables of modules are correct.
//!
//! Exceptions from the limits are listed with their reasons and exact sizes. One that shrinks is listed with its new size, or removed from
//! the list when it is within the limit.

use braid_structure::modules::{circles, imports, imports_and_calls, module_of, modules_of};
use braid_structure::{crates, root};
use std::collections::{BTreeMap, BTreeSet};

const FIELDS_MAX: usize = 12;
const METHODS_MAX: usize = 60;
/// The largest permitted circle of modules that import each other.
const CIRCLE_MAX: usize = 3;

/// Structs with more fields than permitted.
const MANY_FIELDS: &[(&str, &str, usize, &str)] = &[
    ("core/base", "Settings", 26, "one flat list, as an operator sets them"),
    ("core/recipes", "Change", 14, "one procedure with all of its stages, as on its page"),
    ("core/description", "ArrayDescription", 15, "the description as it is stored"),
    ("core/description", "VolumeEntry", 15, "a volume as it is stored"),
    ("core/device", "Transaction", 13, "what a device knows of one transaction, with four notes of one bit each"),
    ("core/transactions", "Transaction", 15, "what one attempt knows; its phase holds what is still missing"),
    ("core/object-index", "Run", 18, "a test's bench: an object index with its disk, its journal and its model"),
    ("real/admin", "ArraySnapshot", 13, "the state of an array at one time, as one flat list"),
    ("real/admin", "FileSystemStatus", 14, "what is shown or stored, as one flat list"),
    ("real/admin", "DeviceStatus", 26, "what is shown or stored, as one flat list"),
    ("real/admin", "Status", 19, "what is shown or stored, as one flat list"),
    ("real/admin", "VolumeStatus", 15, "what is shown or stored, as one flat list"),
    ("real/bench", "Arguments", 17, "the arguments of a command"),
    ("real/cli", "Arguments", 24, "the arguments of a command"),
    ("real/control", "DeviceReport", 19, "a device as the monitor reports it"),
    ("real/nbd", "Transmission", 13, "to be cut into reading, executing and answering"),
    ("real/shell", "Connection", 18, "to be cut into handshake, reading and writing"),
    ("real/shell", "Driver", 13, "to be cut: what drives a machine, and what is measured of it"),
    ("real/shell", "Transport", 23, "to be cut into routes, connections and budgets"),
    ("sim/check", "Search", 14, "one search, with its tables"),
    ("sim/cluster", "Cluster", 21, "what scenarios and activities reach into; to be cut"),
    ("sim/cluster", "Options", 21, "an array, its clients and its faults, as one flat list"),
    ("sim/cluster", "Report", 22, "the counts of a run, as one flat list"),
    ("sim/cluster", "Run", 20, "what activities share; faults are to be cut off"),
    ("sim/experiments", "Record", 13, "a row of results"),
    ("sim/hostile", "LyingDevice", 14, "one adversary with all its lies"),
    ("sim/measure", "Measured", 17, "a row of results"),
    ("sim/measure", "Tally", 14, "a row of results"),
    ("sim/world", "Disk", 19, "to be cut into medium, cache and faults"),
    ("sim/world", "World", 13, "network, disks, clocks and machines of one run"),
];

/// Types with more methods than permitted.
const MANY_METHODS: &[(&str, &str, usize, &str)] = &[];

/// Larger circles: the name of one of the modules, and the number of modules.
const LARGE_CIRCLES: &[(&str, &str, usize, &str)] = &[
    ("core/registrar", "entries", 4, "what is written contains the copies of the record; these are to be given to it"),
    ("real/bench", "locks", 4, "one measurement"),
    ("real/client", "array", 6, "handles refer to what they came from"),
    ("real/client", "files::file", 6, "handles refer to what they came from"),
    ("sim/world", "disk", 4, "one disk, in its parts"),
];

/// Larger circles of modules that import each other, or call each other's methods on the same `self`: exactly these modules.
const CIRCLES_OF_METHODS: &[(&str, &str, &str)] = &[
    (
        "core/transactions",
        "attempt coordinator ending locking refusal resolve",
        "one coordinator: the phases of an attempt call each other; to be cut into functions of a transaction",
    ),
    (
        "core/device",
        "decisions device membership objects tasks",
        "one device: requests, decisions and a new membership lead to each other; to be cut into parts that return what follows",
    ),
    (
        "core/objects",
        "attributes data evaluate header",
        "one evaluation of a request: its parts are methods of `Work`, and all name the evaluation's error",
    ),
    (
        "core/registrar",
        "entries messages record_disk requests",
        "what is written contains the copies of the record; these are to be given to it",
    ),
    ("real/bench", "locks locks::drive locks::worker locks::workers", "one measurement"),
    ("real/client", "array files object request space volume", "handles refer to what they came from"),
    (
        "real/client",
        "files::file files::locks files::mount files::names files::open files::path",
        "handles refer to what they came from",
    ),
    (
        "sim/cluster",
        "activity control::reordering_and_migration fault_injection graceful_disconnect swarm swarm::counting",
        "methods of the run in many files; to be cut",
    ),
    ("sim/world", "disk disk::damage disk::errors disk::medium", "one disk, in its parts"),
];

/// True for the crates that the limits hold for: the product and its simulator. Tools and tests of the whole are free.
fn has_a_shape(folder: &str) -> bool {
    ["core/", "real/", "sim/"].iter().any(|room| folder.starts_with(room))
}

#[test]
fn structs_have_few_fields() {
    let count = |folder: &str| {
        let modules = modules_of(folder);
        // Of several structs of one name the largest counts.
        let mut largest: BTreeMap<String, usize> = BTreeMap::new();
        for (name, fields) in modules.values().flat_map(|module| &module.fields) {
            let known = largest.entry(name.clone()).or_default();
            *known = (*known).max(*fields);
        }
        largest.into_iter().collect()
    };
    hold("fields", FIELDS_MAX, MANY_FIELDS, count);
}

#[test]
fn types_have_few_methods() {
    let count = |folder: &str| {
        let mut methods: BTreeMap<String, usize> = BTreeMap::new();
        for (name, of_module) in modules_of(folder).values().flat_map(|module| &module.methods) {
            *methods.entry(name.clone()).or_default() += of_module;
        }
        methods.into_iter().collect()
    };
    hold("methods", METHODS_MAX, MANY_METHODS, count);
}

#[test]
fn modules_import_each_other_in_small_circles_only() {
    let count = |folder: &str| {
        let listed = |module: &&String| LARGE_CIRCLES.iter().any(|(of, name, ..)| *of == folder && name == module);
        let name =
            |circle: &BTreeSet<String>| circle.iter().find(listed).or(circle.first()).cloned().unwrap_or_default();
        circles(&imports(&modules_of(folder))).iter().map(|circle| (name(circle), circle.len())).collect()
    };
    hold("modules in a circle", CIRCLE_MAX, LARGE_CIRCLES, count);
}

#[test]
fn types_are_not_spread_over_modules_in_large_circles() {
    let mut found: Vec<(String, BTreeSet<String>)> = Vec::new();
    for of in crates().iter().filter(|of| has_a_shape(&of.folder)) {
        let circles = circles(&imports_and_calls(&modules_of(&of.folder)));
        found.extend(
            circles.into_iter().filter(|circle| circle.len() > CIRCLE_MAX).map(|circle| (of.folder.clone(), circle)),
        );
    }
    let listed = |(folder, modules, _): &(&str, &str, &str)| -> (String, BTreeSet<String>) {
        (folder.to_string(), modules.split_whitespace().map(str::to_string).collect())
    };
    let listed: Vec<_> = CIRCLES_OF_METHODS.iter().map(listed).collect();
    let new = found.iter().filter(|circle| !listed.contains(circle));
    let new = new.map(|(folder, circle)| format!("{folder}: not listed, or listed with other modules: {circle:?}"));
    let gone = listed.iter().filter(|circle| !found.contains(circle));
    let gone = gone.map(|(folder, circle)| format!("{folder}: listed, but not found: {circle:?}"));
    let wrong: Vec<String> = new.chain(gone).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn calls_on_self_join_modules_in_a_circle() {
    let sources = [
        ("one", "impl Part { fn one(&self) { self.two() } }"),
        ("two", "impl Part { fn two(&self) { assert!(self.three(1)) } }"),
        ("three", "impl Part { fn three(&self, n: u8) -> bool { (&*self).four(); Self::own(); true } fn own() {} }"),
        ("four", "impl Step for Part { fn four(&self) { Self::one(self) } }"),
        ("five", "impl Part { fn five(&self) { self.one() } } impl Other { fn six(&self) { self.field.one() } }"),
        (
            "other",
            "impl Other { fn one(&self) { self.six() } } impl Part { fn two_like(&self) { self.own_part.two() } }",
        ),
    ];
    let paths: BTreeSet<String> = sources.iter().map(|(path, _)| path.to_string()).collect();
    let modules = sources.iter().map(|(path, text)| (path.to_string(), module_of(path, text, &paths))).collect();
    assert_eq!(circles(&imports(&modules)), Vec::<BTreeSet<String>>::new(), "nothing is imported");
    let expected: BTreeSet<String> = ["one", "two", "three", "four"].map(str::to_string).into();
    assert_eq!(circles(&imports_and_calls(&modules)), vec![expected]);
}

/// Fails unless every count in the pure crates is within the limit, or exactly as listed.
fn hold(what: &str, most: usize, listed: &[(&str, &str, usize, &str)], count: impl Fn(&str) -> Vec<(String, usize)>) {
    let mut wrong = Vec::new();
    let mut found_larger = BTreeSet::new();
    for found in crates().iter().filter(|found| has_a_shape(&found.folder)) {
        for (name, size) in count(&found.folder) {
            let listed = listed.iter().find(|(folder, listed, ..)| *folder == found.folder && *listed == name);
            match listed {
                None if size > most => wrong.push(format!("{} {name}: {size} {what}, of at most {most}", found.folder)),
                Some((.., listed, _)) if size != *listed => {
                    wrong.push(format!("{} {name}: {size} {what}, but listed with {listed}", found.folder));
                }
                _ => {}
            }
            if size > most {
                found_larger.insert((found.folder.clone(), name));
            }
        }
    }
    for (folder, name, ..) in listed {
        if !found_larger.contains(&(folder.to_string(), name.to_string())) {
            wrong.push(format!("{folder} {name}: has no more {what} than {most}: remove it from the list"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_tables_of_modules_are_true() {
    let mut wrong = Vec::new();
    for found in crates() {
        let source = root().join(&found.folder).join("src");
        let library = std::fs::read_to_string(source.join("lib.rs"));
        let text = library.or_else(|_| std::fs::read_to_string(source.join("main.rs"))).expect("a crate has a root");
        let head = |line: &&str| !line.starts_with("//! | module |") && !line.starts_with("//! | file |");
        let rows = text.lines().skip_while(head).skip(2).take_while(|line| line.starts_with("//! |"));
        // Entries are `one`, `two`, or [`three`](Three), or [`mod@four`].
        let names = rows.filter_map(|line| line.split('|').nth(1)).flat_map(|cell| cell.split('`').skip(1).step_by(2));
        let listed: BTreeSet<&str> =
            names.map(|name| name.trim_start_matches("mod@").trim_end_matches(".rs")).collect();
        let declared = text.lines().filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod "));
        let declared: BTreeSet<&str> = declared.filter_map(|name| name.strip_suffix(';')).collect();
        if listed.is_empty() {
            if !declared.is_empty() && found.folder.starts_with("core/") {
                wrong.push(format!("{}: has no table of modules", found.folder));
            }
            continue;
        }
        // The module is listed in a table, or mentioned elsewhere on the page.
        let page: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        let named = |module: &str| {
            page.iter().any(|line| line.contains(&format!("`{module}`")) || line.contains(&format!("`mod@{module}`")))
        };
        for module in declared.iter().filter(|module| !named(module)) {
            wrong.push(format!("{}: the table of modules lacks `{module}`", found.folder));
        }
        for module in &listed - &declared {
            wrong.push(format!("{}: the table of modules lists `{module}`, which does not exist", found.folder));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
