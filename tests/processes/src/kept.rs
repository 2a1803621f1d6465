//! Kept arrays: small arrays of the formats of earlier builds, packed, which every later build must open (`docs/disk-format.md`).
//!
//! [`fill`] puts known content into a new array, [`assert_content`] finds it again, and [`pack`] makes the file that is kept. The content
//! depends on nothing but this file, so that arrays packed by earlier builds are checked by the same code. What is added to it later must
//! be looked for in newer arrays alone.

use crate::array::{Array, items};
use crate::console::root;
use crate::program::run;
use crate::scratch::path_text;
use crate::{Client, Scratch};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The parameters of a kept array: small, and with all kinds of content.
pub const ARGUMENTS: [&str; 8] =
    ["--devices", "3", "--size", "128MiB", "--layout", "raid5:2+1", "--volume", "vol0:4MiB"];
/// The parameters of one that has only a file system with two metadata servers.
pub const SHARDED_ARGUMENTS: [&str; 8] =
    ["--devices", "3", "--size", "96MiB", "--layout", "raid5:2+1", "--volume", "vol0:1MiB"];
/// The folder of the packed arrays.
pub const FOLDER: &str = "tests/processes/kept";
/// The most bytes of a packed array: git keeps it for ever.
pub const PACKED_BYTES_MAX: u64 = 128 << 10;

const BLOCK: usize = 4096;
const VOLUME_BLOCKS: usize = (4 << 20) / BLOCK;
/// Every so many blocks of the volume one has content; the others are holes.
const STEP: usize = 13;
const FILES: usize = 20;
const FILE_LINES: usize = 700;
/// A file system with two metadata servers, in the arrays that are named after it.
const SHARDED: &str = "pair";
/// How many files are there: few, because each leaves much in the journals.
const SHARDED_FILES: usize = 4;

/// The packed arrays, in the order of their names.
pub fn packed() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(FOLDER)).expect("the folder is there");
    let mut packed: Vec<_> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    packed.retain(|path| path_text(path).ends_with(".tar.xz"));
    packed.sort();
    packed
}

/// Packs an array that is down. Files keep their modes.
pub fn pack(dir: &Path, file: &Path) {
    let options =
        ["--sparse", "--hole-detection=raw", "--sort=name", "--owner=0", "--group=0", "-cJf", path_text(file)];
    run("tar", &[&options[..], &["-C", path_text(dir), "."]].concat()).done();
}

/// Unpacks an array, with the modes that its files had, for the user of this process.
pub fn unpack(file: &Path, dir: &Path) {
    std::fs::create_dir_all(dir).expect("a folder can be made");
    run("tar", &["-xJf", path_text(file), "-C", path_text(dir), "--preserve-permissions", "--no-same-owner"]).done();
}

/// Puts known content into a new array, which is up. Part of it stays in journals.
pub fn fill(array: &Array) {
    let mut volume = Client::open(&array.nbd());
    for block in (0..VOLUME_BLOCKS).step_by(STEP) {
        volume.write((block * BLOCK) as u64, &[0xee; BLOCK]).expect("a write works");
        volume.write((block * BLOCK) as u64, &block_content(block)).expect("a write works");
    }
    drop(volume);
    array.braid(&["object", "create", "1:5"]).done();
    array.braid(&["object", "write", "1:5", &object_content()]).done();
    array.braid(&["attr", "set", "1:5", "1.1", "kept"]).done();
    array.braid(&["attr", "add", "1:5", "1.2", "41"]).done();
    array.create_attribute_volume("names", "timestamp");
    array.braid(&["attr", "set", "names:3", "2.1", "on two devices"]).done();
    array.braid(&["volume", "create", "locked", "--size", "1MiB", "--ordering", "server-lock"]).done();

    array.braid(&["fs", "create", "home", "--size", "16MiB"]).done();
    array.await_status("the file system is served", |status| status["file_systems"][0]["state"] == "serving");
    let scratch = Scratch::new();
    let tree = scratch.path("tree");
    std::fs::create_dir_all(tree.join("folder")).expect("there is room");
    for file in 0..FILES {
        std::fs::write(tree.join(format!("folder/file-{file}")), file_content(file)).expect("there is room");
    }
    std::os::unix::fs::symlink("folder/file-1", tree.join("link")).expect("there is room");
    array.braid(&["fs", "cp", "-r", path_text(&tree), "home:/"]).done();
    array.braid(&["fs", "rm", "home:/tree/folder/file-0"]).done();
    array.braid(&["device", "add", "--spare"]).done();
    array.braid(&["scrub", "vol0"]).done();
}

/// True if a packed array has only a file system with two metadata servers.
pub fn is_sharded(file: &Path) -> bool {
    path_text(file).ends_with("two-shards.tar.xz")
}

/// Puts a file system with two metadata servers into a new array, which is up. Most of its names refer to inodes of the other server.
pub fn fill_sharded(array: &Array) {
    let create = ["fs", "create", SHARDED, "--size", "16MiB", "--servers", "2", "--placement", "spread"];
    array.braid(&create).done();
    array.await_status("both servers serve", |status| status["file_systems"][0]["state"] == "serving");
    let scratch = Scratch::new();
    let folder = scratch.path("folder");
    std::fs::create_dir_all(&folder).expect("there is room");
    for file in 0..SHARDED_FILES {
        std::fs::write(folder.join(format!("file-{file}")), file_content(file)).expect("there is room");
    }
    std::os::unix::fs::symlink("file-1", folder.join("link")).expect("there is room");
    array.braid(&["fs", "cp", "-r", path_text(&folder), &format!("{SHARDED}:/")]).done();
    array.braid(&["fs", "mv", &format!("{SHARDED}:/folder/file-2"), &format!("{SHARDED}:/moved")]).done();
    array.braid(&["fs", "rm", &format!("{SHARDED}:/folder/file-0")]).done();
}

/// Asserts that an array that was filled has its content, and is sound.
#[track_caller]
pub fn assert_content(array: &Array) {
    array.await_status("everything serves", |status| {
        let is = |part: &Value, state: &str| part["state"] == state;
        let volumes = items(&status["volumes"]);
        volumes.iter().all(|volume| is(volume, "healthy")) && is(&status["file_systems"][0], "serving")
    });
    let mut volume = Client::open(&array.nbd());
    for block in 0..VOLUME_BLOCKS {
        let wished = if block % STEP == 0 { block_content(block) } else { vec![0; BLOCK] };
        let read = volume.read((block * BLOCK) as u64, BLOCK).expect("a read works");
        assert!(read == wished, "block {block} of the volume has its content");
    }
    drop(volume);
    assert_eq!(array.told(&["object", "read", "1:5"]), object_content());
    assert_eq!(array.told(&["attr", "get", "1:5", "1.1"]), "kept\n");
    assert_eq!(array.told(&["attr", "get", "1:5", "1.2"]), "int:41\n");
    assert_eq!(array.told(&["attr", "get", "names:3", "2.1"]), "on two devices\n");
    for file in 1..FILES {
        let read = array.told(&["fs", "cat", &format!("home:/tree/folder/file-{file}")]);
        assert!(read == file_content(file), "file {file} has its content");
    }
    assert_eq!(array.told(&["fs", "cat", "home:/tree/link"]), file_content(1));
    array.braid(&["fs", "cat", "home:/tree/folder/file-0"]).refused(3, "no-such-file");
    assert!(!array.events("scrub-ended").is_empty());
    let devices = array.braid(&["device", "list"]).done().json();
    assert_eq!(items(&devices["spares"]).len(), 1, "{devices}");

    for name in ["vol0", "names", "locked"] {
        array.assert_sound(name);
    }
    array.assert_files_sound("home");
}

/// Asserts that an array has what [`fill_sharded`] has put into it, and is sound.
#[track_caller]
pub fn assert_sharded_content(array: &Array) {
    array.await_status("both servers serve", |status| status["file_systems"][0]["state"] == "serving");
    let cat = |path: &str| array.told(&["fs", "cat", &format!("{SHARDED}:/{path}")]);
    for file in [1, 3] {
        assert!(cat(&format!("folder/file-{file}")) == file_content(file), "file {file} has its content");
    }
    assert_eq!((cat("folder/link"), cat("moved")), (file_content(1), file_content(2)));
    for gone in ["file-0", "file-2"] {
        let path = format!("{SHARDED}:/folder/{gone}");
        array.braid(&["fs", "cat", &path]).refused(3, "no-such-file");
    }
    array.assert_files_sound(SHARDED);
}

/// Writes to everything, so that what an earlier build has made is changed, too.
pub fn assert_writable(array: &Array) {
    let mut volume = Client::open(&array.nbd());
    volume.write(0, &[7; BLOCK]).expect("a write works");
    assert_eq!(volume.read(0, BLOCK).expect("a read works"), [7; BLOCK]);
    volume.write(0, &block_content(0)).expect("a write works");
    drop(volume);
    assert_eq!(array.told(&["attr", "add", "1:5", "1.3", "1"]), "0\n");
    array.braid(&["attr", "set", "names:4", "2.1", "new"]).done();
    array.braid(&["fs", "mkdir", "home:/new"]).done();
}

/// Makes names and inodes in both shards.
pub fn assert_sharded_writable(array: &Array) {
    array.braid(&["fs", "mkdir", "-p", &format!("{SHARDED}:/new/newer/newest")]).done();
    array.braid(&["fs", "mv", &format!("{SHARDED}:/new/newer"), &format!("{SHARDED}:/newer")]).done();
}

fn block_content(block: usize) -> Vec<u8> {
    format!("block {block:5}\n").into_bytes().into_iter().cycle().take(BLOCK).collect()
}

fn object_content() -> String {
    "bytes of an object; ".repeat(500)
}

fn file_content(file: usize) -> String {
    format!("a line of file {file}\n").repeat(FILE_LINES)
}
