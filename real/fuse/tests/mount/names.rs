//! Files, directories and links.

use crate::array::Array;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

#[test]
fn an_append_goes_to_the_end_whatever_the_kernel_takes_for_it() {
    let Some(array) = Array::new() else { return };
    let path = array.path(0, "log");
    let mut log = OpenOptions::new().create(true).append(true).open(&path).expect("it is created");
    log.write_all(b"one ").expect("it is written");
    OpenOptions::new().append(true).open(&path).expect("it is opened").write_all(b"two ").expect("it is written");
    log.write_all(b"three").expect("it is written");
    assert_eq!(fs::read(&path).expect("it is read"), b"one two three");
}

#[test]
fn a_file_that_another_host_creates_at_the_same_time_is_opened() {
    let Some(array) = Array::new() else { return };
    let path = array.path(0, "file");
    // The kernel looks the name up, and again if it is told that what it knows is stale. Both times it finds nothing.
    let late = || array.controls.late.store(2, Ordering::SeqCst);
    let open = || OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    fs::write(&path, b"content").expect("it is written");
    late();
    open().expect("it exists by now").write_all(b"CON").expect("it is written");
    assert_eq!(fs::read(&path).expect("it is read"), b"CONtent");
    late();
    assert_eq!(File::create_new(&path).expect_err("it exists by now").kind(), ErrorKind::AlreadyExists);
    array.controls.late.store(1, Ordering::SeqCst);
    File::create(&path).expect("it exists by now");
    assert_eq!(fs::read(&path).expect("it is read"), b"", "it is cut");
}

#[test]
fn a_file_without_a_name_can_be_read_until_it_is_closed() {
    let Some(array) = Array::new() else { return };
    let path = array.path(0, "short-lived");
    fs::write(&path, b"content").expect("it is written");
    let mut file = File::open(&path).expect("it is opened");
    fs::remove_file(&path).expect("it is removed");
    assert_eq!(File::open(&path).expect_err("it has no name").kind(), ErrorKind::NotFound);
    let mut content = String::new();
    file.seek(SeekFrom::Start(3)).expect("it has places");
    file.read_to_string(&mut content).expect("it is read");
    assert_eq!((content.as_str(), file.metadata().expect("it exists").nlink()), ("tent", 0));
}

#[test]
fn attributes_are_set() {
    let Some(array) = Array::new() else { return };
    let path = array.path(0, "file");
    let created = OpenOptions::new().write(true).create_new(true).mode(0o640).open(&path).expect("it is created");
    assert_eq!(created.metadata().expect("it exists").mode(), 0o100_640);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4711)).expect("the mode is set");
    let (early, late) = (UNIX_EPOCH - Duration::from_millis(1500), UNIX_EPOCH + Duration::new(7, 8));
    created.set_times(fs::FileTimes::new().set_accessed(early).set_modified(late)).expect("the times are set");
    let found = fs::metadata(&path).expect("it exists");
    assert_eq!(found.mode(), 0o104_711);
    assert_eq!((found.accessed().ok(), found.modified().ok()), (Some(early), Some(late)));
    assert_eq!((found.mtime(), found.mtime_nsec(), found.atime(), found.atime_nsec()), (7, 8, -2, 500_000_000));

    let status = rustix::fs::statvfs(&array.directories[0]).expect("it is mounted");
    assert_eq!((status.f_bsize, status.f_blocks, status.f_bfree, status.f_namemax), (4096, 4096, status.f_bfree, 255));
}

#[test]
fn a_large_directory_lists_each_name_once() {
    let Some(array) = Array::new() else { return };
    let directory = array.path(0, "large");
    fs::create_dir(&directory).expect("it is created");
    let name = |number: u32| format!("{number}{}", "-".repeat(number as usize % 40));
    let names: BTreeSet<String> = (0..3_000).map(name).collect();
    // Each is a link to one file, which is faster to create than a file.
    fs::write(array.path(0, "file"), b"").expect("it is created");
    for name in &names {
        fs::hard_link(array.path(0, "file"), directory.join(name)).expect("it is linked");
    }
    let listed: Vec<_> = fs::read_dir(&directory).expect("it can be listed").collect::<Result<_, _>>().expect("listed");
    let inode = fs::metadata(array.path(0, "file")).expect("it exists").ino();
    assert!(listed.iter().all(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())));
    assert!(listed.iter().all(|entry| std::os::unix::fs::DirEntryExt::ino(entry) == inode));
    let found: BTreeSet<String> = listed.iter().map(|entry| entry.file_name().into_string().expect("text")).collect();
    assert_eq!((listed.len(), found == names), (3_000, true));

    // Names that are removed while the directory is listed shift no others.
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(&directory).expect("it can be listed") {
        let name = entry.expect("it is listed").file_name().into_string().expect("text");
        fs::remove_file(directory.join(&name)).expect("it is removed");
        assert!(found.insert(name), "it was removed already");
    }
    assert!(found == names);
    let listed = Command::new("ls").arg("-ai").arg(&directory).output().expect("ls runs");
    let listed = String::from_utf8(listed.stdout).expect("text");
    let dots: Vec<&str> = listed.split_whitespace().collect();
    let inode = fs::metadata(&directory).expect("it exists").ino().to_string();
    assert_eq!(dots, [inode.as_str(), ".", "1", ".."]);
}
