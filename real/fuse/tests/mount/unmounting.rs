//! Mounting where it is impossible, and unmounting.

use crate::array::{Array, files_of_nobody};
use crate::{empty_directory, mount_if_possible};
use braid_fuse::{MountError, mount};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn a_mount_says_what_it_is() {
    let Some(array) = Array::new() else { return };
    let mounts = fs::read_to_string("/proc/self/mounts").expect("it can be read");
    let directory = array.directories[0].to_str().expect("text");
    let own = mounts.lines().find(|line| line.split(' ').nth(1) == Some(directory)).expect("it is mounted");
    let begins = format!("braid:test {directory} fuse.braid rw,");
    assert!(own.starts_with(&begins), "{own}");
    assert!(own.contains("default_permissions"), "{own}");
}

#[test]
fn after_unmounting_the_directory_is_as_before() {
    let Some(mut array) = Array::new() else { return };
    fs::write(array.path(0, "file"), b"content").expect("it is written");
    let begun = Instant::now();
    array.stop();
    assert!(begun.elapsed() < Duration::from_secs(4), "nobody uses it: there is nothing to wait for");
    assert_eq!(fs::read_dir(&array.directories[0]).expect("it can be listed").count(), 0);
}

#[test]
fn a_file_that_is_open_does_not_keep_the_file_system_mounted() {
    let Some(mut array) = Array::new() else { return };
    let mut file = File::create(array.path(0, "file")).expect("it is created");
    file.write_all(b"content").expect("it is written");
    array.stop();
    assert_eq!(fs::read_dir(&array.directories[0]).expect("it can be listed").count(), 0);
    assert!(file.write_all(b"more").is_err(), "nobody serves it");
}

#[test]
fn a_mount_that_others_unmount_ends() {
    let Some(mut array) = Array::new() else { return };
    for directory in &array.directories {
        rustix::mount::unmount(directory, rustix::mount::UnmountFlags::empty()).expect("nobody uses it");
    }
    let thread = array.thread.take().expect("it runs");
    thread.join().expect("the end of a mount is no error");
}

#[test]
fn a_mount_that_never_ran_is_unmounted() {
    let directory = empty_directory();
    let Some(mount) = mount_if_possible(&directory, files_of_nobody()) else { return };
    drop(mount);
    fs::remove_dir(&directory).expect("nothing is mounted");
}

#[test]
fn unsuitable_mount_points_are_refused() {
    let Some(array) = Array::new() else { return };
    let refused = |directory: &Path, name: &str| {
        mount(directory, name, files_of_nobody()).map(drop).expect_err("it can't be mounted")
    };
    assert!(matches!(refused(&array.directories[0], "test"), MountError::InUse { .. }));
    assert!(matches!(refused(&array.path(0, "nowhere"), "test"), MountError::NoDirectory { .. }));
    fs::write(array.path(0, "file"), b"").expect("it is written");
    assert!(matches!(refused(&array.path(0, "file"), "test"), MountError::NotADirectory { .. }));
    assert!(matches!(refused(&array.path(0, "file/below"), "test"), MountError::NotADirectory { .. }));
    for name in ["", "a,b", "a b", "a\n", "ä"] {
        assert!(matches!(refused(&array.directories[0], name), MountError::InvalidName { .. }), "{name}");
    }
}
