//! Arrays of earlier builds, which are kept packed: this build opens and serves them, and finds their content.

use crate::prelude::*;
use braid_processes::kept::{
    ARGUMENTS, PACKED_BYTES_MAX, SHARDED_ARGUMENTS, assert_content, assert_sharded_content, assert_sharded_writable,
    assert_writable, fill, fill_sharded, is_sharded, pack, packed,
};

/// Opens an unpacked array, finds its content, changes it, and opens it again. Returns how many files others could read.
fn opens_and_serves(file: &Path) -> usize {
    eprintln!("{}", file.display());
    let find = if is_sharded(file) { assert_sharded_content } else { assert_content };
    let change = if is_sharded(file) { assert_sharded_writable } else { assert_writable };
    let mut array = Array::unpacked(file);
    let found = findings(&array.braid(&["doctor"]).json(), "modes").len();
    array.start(&[]);
    for name in ["", "array.json", "hosts", "device-0.braid"] {
        let mode = array.dir().join(name).metadata().expect("it is there").mode();
        assert_eq!(mode & 0o077, 0, "{name} is private");
    }
    // An event says how many were made private. The file about the processes of the killed run is removed.
    let told = array.events("modes-corrected").into_iter().map(|event| number(&event["figures"]["files"]) as usize);
    assert_eq!(Vec::from_iter(told), Vec::from_iter((found > 0).then(|| found - 1)));
    find(&array);
    change(&array);
    array.down();
    array.start(&[]);
    find(&array);
    found
}

/// If this fails after a change of a format, the format needs a version, and the code must read the old one.
#[test]
fn arrays_of_earlier_builds_open_and_serve() {
    let packed = packed();
    for file in &packed {
        let size = file.metadata().expect("it is there").len();
        assert!(size < PACKED_BYTES_MAX, "{}: {size} bytes", file.display());
    }
    let found: Vec<usize> = packed.iter().map(|file| opens_and_serves(file)).collect();
    assert!(found[0] > 4, "the first one was made by a build that let all users read its files: {found:?}");
}

/// Leaves an array as a crash leaves it, with what is in journals, leases and heartbeats: packs it, and opens it again. With `BRAID_KEEP` it
/// is left in that file, to be kept in the repository.
fn is_packed_and_opened_again(mut array: Array, servers: usize, name: &str) {
    let status = array.status();
    let file_systems = items(&status["file_systems"]);
    let of_files = file_systems.iter().flat_map(|it| items(&it["servers"]));
    let of_locks = items(&status["lock_servers"]);
    let pids: Vec<u32> = of_files.chain(of_locks).map(pid_of).collect();
    assert_eq!(pids.len(), servers, "{status}");
    array.kill();
    gone(&pids);
    let file = std::env::var_os("BRAID_KEEP").map_or(array.scratch().path(name), PathBuf::from);
    pack(array.dir(), &file);
    let size = file.metadata().expect("it was just made").len();
    assert!(size < PACKED_BYTES_MAX, "{size} bytes");
    if std::env::var_os("BRAID_BIN").is_none() {
        opens_and_serves(&file);
    }
}

/// The array that this build would leave to later ones.
#[test]
fn an_array_of_this_build_is_packed_and_opened_again() {
    let array = Array::up(&ARGUMENTS);
    fill(&array);
    assert_content(&array);
    is_packed_and_opened_again(array, 2, "kept.tar.xz");
}

/// The same, with a file system of two shards.
#[test]
fn an_array_with_two_shards_is_packed_and_opened_again() {
    let array = Array::up(&SHARDED_ARGUMENTS);
    fill_sharded(&array);
    assert_sharded_content(&array);
    is_packed_and_opened_again(array, 2, "kept-two-shards.tar.xz");
}
